-- The last number given to each kind of row. A sequence would leave gaps and give numbers out of the order of commits;
-- whoever writes is alone, so a plain counter does neither.
CREATE TABLE counter (
    name TEXT COLLATE "C" PRIMARY KEY,
    last BIGINT NOT NULL
);
INSERT INTO counter (name, last) VALUES ('event', 0), ('outbox', 0);

-- What happened, in order. The numbers have no gaps and are never used again.
CREATE TABLE event (
    seq   BIGINT PRIMARY KEY,
    topic TEXT COLLATE "C" NOT NULL,
    id    TEXT COLLATE "C" NOT NULL,
    kind  TEXT   NOT NULL,
    at_ms BIGINT NOT NULL,
    body  TEXT   NOT NULL,
    UNIQUE (topic, id)
);
CREATE INDEX event_by_topic ON event (topic, seq);

-- What must still leave this node. Messages of one lane (sink, key) leave in the order of seq.
CREATE TABLE outbox (
    seq             BIGINT PRIMARY KEY,
    sink            TEXT COLLATE "C" NOT NULL,
    key             TEXT COLLATE "C" NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    body            TEXT   NOT NULL,
    state           TEXT   NOT NULL CHECK (state IN ('queued', 'done', 'dead')),
    attempts        BIGINT NOT NULL CHECK (attempts >= 0),
    due_ms          BIGINT NOT NULL,
    created_ms      BIGINT NOT NULL,
    closed_ms       BIGINT,
    last_error      TEXT,
    UNIQUE (sink, idempotency_key),
    CHECK ((state = 'queued') = (closed_ms IS NULL))
);
CREATE INDEX outbox_queued ON outbox (sink, key, seq) WHERE state = 'queued';
CREATE INDEX outbox_closed ON outbox (state, closed_ms) WHERE state <> 'queued';

-- One row a lane: who may deliver its messages now, and when its first queued message is due (null: none waits).
CREATE TABLE outbox_lane (
    sink     TEXT COLLATE "C" NOT NULL,
    key      TEXT COLLATE "C" NOT NULL,
    due_ms   BIGINT,
    token    TEXT,
    until_ms BIGINT NOT NULL,
    epoch    BIGINT NOT NULL,
    PRIMARY KEY (sink, key)
);
CREATE INDEX outbox_lane_due ON outbox_lane (sink, due_ms) WHERE due_ms IS NOT NULL;
