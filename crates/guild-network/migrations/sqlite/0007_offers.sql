-- An offer is found by the number of its event, of its author's key, or of its address (address_key of nostr_event): an
-- index of numbers costs a quarter of one of texts. pubkey_key is the first 60 bits of the key, so many that SQL makes
-- a number of them; whoever looks up by it compares the whole. Two versions of an offer have two rows until the
-- transaction that brought the newer one has forgotten the older one.
CREATE TABLE index_offer (
    seq         INTEGER PRIMARY KEY,
    pubkey_key  BIGINT NOT NULL,
    pubkey      TEXT   NOT NULL,
    d           TEXT   NOT NULL,
    canonical_d TEXT   NOT NULL,
    name        TEXT,
    -- The name as it looks at a glance.
    canonical_name TEXT,
    first_ms    BIGINT NOT NULL,
    last_ms     BIGINT NOT NULL,
    said_ms     BIGINT NOT NULL
);
INSERT INTO index_offer
    (seq, pubkey_key, pubkey, d, canonical_d, name, canonical_name, first_ms, last_ms, said_ms)
    SELECT seq,
        ((instr('0123456789abcdef', substr(pubkey, 1, 1)) - 1) << 56)
        | ((instr('0123456789abcdef', substr(pubkey, 2, 1)) - 1) << 52)
        | ((instr('0123456789abcdef', substr(pubkey, 3, 1)) - 1) << 48)
        | ((instr('0123456789abcdef', substr(pubkey, 4, 1)) - 1) << 44)
        | ((instr('0123456789abcdef', substr(pubkey, 5, 1)) - 1) << 40)
        | ((instr('0123456789abcdef', substr(pubkey, 6, 1)) - 1) << 36)
        | ((instr('0123456789abcdef', substr(pubkey, 7, 1)) - 1) << 32)
        | ((instr('0123456789abcdef', substr(pubkey, 8, 1)) - 1) << 28)
        | ((instr('0123456789abcdef', substr(pubkey, 9, 1)) - 1) << 24)
        | ((instr('0123456789abcdef', substr(pubkey, 10, 1)) - 1) << 20)
        | ((instr('0123456789abcdef', substr(pubkey, 11, 1)) - 1) << 16)
        | ((instr('0123456789abcdef', substr(pubkey, 12, 1)) - 1) << 12)
        | ((instr('0123456789abcdef', substr(pubkey, 13, 1)) - 1) << 8)
        | ((instr('0123456789abcdef', substr(pubkey, 14, 1)) - 1) << 4)
        | (instr('0123456789abcdef', substr(pubkey, 15, 1)) - 1),
        pubkey, d, canonical_d, name, canonical_name, first_ms, last_ms, said_ms
    FROM index_provider;
DROP TABLE index_provider;
ALTER TABLE index_offer RENAME TO index_provider;
CREATE INDEX index_provider_by_key ON index_provider (pubkey_key);
CREATE INDEX index_provider_by_name ON index_provider (canonical_name, pubkey_key) WHERE canonical_name IS NOT NULL;
