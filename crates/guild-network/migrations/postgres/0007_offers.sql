-- An offer is found by the number of its event, of its author's key, or of its address (address_key of nostr_event): an
-- index of numbers costs a quarter of one of texts. pubkey_key is the first 60 bits of the key, so many that SQL makes
-- a number of them; whoever looks up by it compares the whole. Two versions of an offer have two rows until the
-- transaction that brought the newer one has forgotten the older one.
CREATE TABLE index_offer (
    seq         BIGINT PRIMARY KEY,
    pubkey_key  BIGINT NOT NULL,
    pubkey      TEXT COLLATE "C" NOT NULL,
    d           TEXT COLLATE "C" NOT NULL,
    canonical_d TEXT   NOT NULL,
    name        TEXT,
    -- The name as it looks at a glance.
    canonical_name TEXT COLLATE "C",
    first_ms    BIGINT NOT NULL,
    last_ms     BIGINT NOT NULL,
    said_ms     BIGINT NOT NULL
);
INSERT INTO index_offer
    (seq, pubkey_key, pubkey, d, canonical_d, name, canonical_name, first_ms, last_ms, said_ms)
    SELECT seq,
        ('x' || substr(pubkey, 1, 15))::bit(60)::bigint,
        pubkey, d, canonical_d, name, canonical_name, first_ms, last_ms, said_ms
    FROM index_provider;
DROP TABLE index_provider;
ALTER TABLE index_offer RENAME TO index_provider;
ALTER INDEX index_offer_pkey RENAME TO index_provider_pkey;
CREATE INDEX index_provider_by_key ON index_provider (pubkey_key, seq);
CREATE INDEX index_provider_by_name ON index_provider (canonical_name, pubkey_key) WHERE canonical_name IS NOT NULL;
