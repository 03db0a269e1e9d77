-- What an archive cannot tell of an offer: how many versions of its announcement were seen, where it stands, and how it
-- has come and gone. Whoever has been seen once, and has neither come back nor gone, has no row.
CREATE TABLE market_offer_mark (
    pubkey        TEXT   NOT NULL,
    d             TEXT   NOT NULL,
    seq           BIGINT NOT NULL,
    versions      BIGINT NOT NULL,
    late          BIGINT NOT NULL,
    state         TEXT   NOT NULL,
    state_ms      BIGINT NOT NULL,
    seen_ms       BIGINT NOT NULL,
    live          BIGINT NOT NULL,
    heard_ms      BIGINT,
    flips         BIGINT NOT NULL,
    flips_from_ms BIGINT NOT NULL,
    PRIMARY KEY (pubkey, d)
) WITHOUT ROWID;
CREATE INDEX market_offer_mark_by_seen ON market_offer_mark (seen_ms);

-- What is wrong with announcements that can be read: a few rows for each.
CREATE TABLE market_discrepancy (
    pubkey TEXT   NOT NULL,
    d      TEXT   NOT NULL,
    what   TEXT   NOT NULL,
    value  TEXT   NOT NULL,
    at_ms  BIGINT NOT NULL,
    PRIMARY KEY (pubkey, d, what, value)
) WITHOUT ROWID;
CREATE INDEX market_discrepancy_by_time ON market_discrepancy (at_ms);

-- How often announcements were refused, by the reason.
CREATE TABLE market_discovery_count (
    what    TEXT   PRIMARY KEY,
    count   BIGINT NOT NULL,
    last_ms BIGINT NOT NULL
) WITHOUT ROWID;

-- Keys that announce too much.
CREATE TABLE market_loud_key (
    pubkey  TEXT   PRIMARY KEY,
    refused BIGINT NOT NULL,
    last_ms BIGINT NOT NULL
) WITHOUT ROWID;

-- Up to here announcements were counted.
CREATE TABLE market_discovery (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    seq BIGINT NOT NULL
);
INSERT INTO market_discovery (one, seq) VALUES (1, 0);
