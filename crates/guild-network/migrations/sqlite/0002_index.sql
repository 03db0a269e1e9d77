-- Derived from the archive, in the same transaction. `seq` is the number of the event that says it.
CREATE TABLE index_provider (
    seq         INTEGER PRIMARY KEY,
    pubkey      TEXT   NOT NULL,
    d           TEXT   NOT NULL,
    canonical_d TEXT   NOT NULL,
    name        TEXT,
    -- The name as it looks at a glance.
    canonical_name TEXT,
    first_ms    BIGINT NOT NULL,
    last_ms     BIGINT NOT NULL,
    UNIQUE (pubkey, d)
);
CREATE INDEX index_provider_by_key ON index_provider (pubkey, seq);
CREATE INDEX index_provider_by_name ON index_provider (canonical_name, pubkey) WHERE canonical_name IS NOT NULL;
CREATE TABLE index_schema (
    schema_id TEXT   NOT NULL,
    seq       BIGINT NOT NULL,
    PRIMARY KEY (schema_id, seq)
);
CREATE INDEX index_schema_by_seq ON index_schema (seq);

-- When an offer was last heard; with an empty d, when any of its key was. An observation: it outlives the event that
-- showed it, but not the announcement, and no rebuild brings it back.
CREATE TABLE index_heartbeat (
    pubkey  TEXT   NOT NULL,
    d       TEXT   NOT NULL,
    last_ms BIGINT NOT NULL,
    PRIMARY KEY (pubkey, d)
);
CREATE INDEX index_heartbeat_by_time ON index_heartbeat (last_ms);

-- What a request says; when, by whom and under which id is in its event.
CREATE TABLE index_request (
    seq       INTEGER PRIMARY KEY,
    schema_id TEXT,
    bid_msat  BIGINT,
    providers TEXT   NOT NULL,
    private   BIGINT NOT NULL
);

-- What a result or feedback says. It is found by the terms of its e tag; whoever looks compares request_id.
CREATE TABLE index_answer (
    seq        INTEGER PRIMARY KEY,
    request_id TEXT   NOT NULL,
    status     TEXT,
    price_msat BIGINT
);

-- Which key somebody recommends (NIP-89).
CREATE TABLE index_recommendation (
    provider TEXT NOT NULL,
    seq      BIGINT NOT NULL,
    author   TEXT NOT NULL,
    PRIMARY KEY (provider, seq)
);
CREATE INDEX index_recommendation_by_seq ON index_recommendation (seq);
