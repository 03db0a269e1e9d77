-- Work whose answer is known, because it was checked by itself or several agreed on it: what providers are tested by
-- without knowing it. Never private work.
CREATE TABLE market_known (
    order_id  TEXT   PRIMARY KEY REFERENCES market_order (order_id),
    schema_id TEXT   NOT NULL,
    job_hash  TEXT   NOT NULL UNIQUE,
    source    TEXT   NOT NULL CHECK (source IN ('checked', 'agreed')),
    added_ms  BIGINT NOT NULL,
    uses      BIGINT NOT NULL CHECK (uses >= 0)
);
CREATE INDEX market_known_schema ON market_known (schema_id, uses, added_ms);

-- Tests of providers that look like work: each is an ordinary order, under this key. Without a known answer the result
-- is checked as that of any other order.
CREATE TABLE market_probe (
    probe_key      TEXT   PRIMARY KEY,
    provider       TEXT   NOT NULL,
    task_type      TEXT   NOT NULL,
    reason         TEXT   NOT NULL CHECK (reason IN ('hidden', 'heartbeat', 'silent', 'verify')),
    made_ms        BIGINT NOT NULL,
    due_ms         BIGINT NOT NULL,
    state          TEXT   NOT NULL CHECK (state IN ('due', 'posted', 'dropped')),
    known_order_id TEXT   REFERENCES market_order (order_id),
    order_id       TEXT   UNIQUE REFERENCES market_order (order_id),
    words          TEXT,
    CHECK ((state = 'posted') = (order_id IS NOT NULL)),
    CHECK (known_order_id IS NULL OR state = 'posted')
);
CREATE INDEX market_probe_due ON market_probe (due_ms, probe_key) WHERE state = 'due';
CREATE INDEX market_probe_provider ON market_probe (provider, task_type, made_ms);

-- Entries of the routing matrix that are looked at now and then: when next, and what its provider announced when it was
-- suspended.
CREATE TABLE market_watch (
    provider     TEXT   NOT NULL,
    task_type    TEXT   NOT NULL,
    seq          BIGINT NOT NULL,
    due_ms       BIGINT NOT NULL,
    heartbeat_ms BIGINT NOT NULL,
    suspended_ms BIGINT,
    card_id      TEXT,
    card_version TEXT,
    PRIMARY KEY (provider, task_type)
);
CREATE INDEX market_watch_due ON market_watch (due_ms, provider, task_type);
CREATE INDEX market_watch_seq ON market_watch (seq);

-- Who was ever given the same work.
CREATE INDEX market_order_job ON market_order (job_hash, provider);

CREATE TRIGGER market_probe_stays_posted BEFORE UPDATE ON market_probe
WHEN OLD.state <> 'due'
BEGIN SELECT RAISE (ABORT, 'a test that was posted or dropped is never changed'); END;
CREATE TRIGGER market_probe_stays BEFORE DELETE ON market_probe
WHEN OLD.state = 'posted'
BEGIN SELECT RAISE (ABORT, 'a test that was posted is never deleted'); END;
