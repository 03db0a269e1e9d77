-- Everything that happened to the routing matrix, in order. A row says what an entry is afterwards, so replaying needs
-- no settings; its hash covers the row before it. The matrix in memory is what these rows give.
CREATE TABLE market_route_log (
    seq        BIGINT PRIMARY KEY CHECK (seq > 0),
    change_key TEXT   NOT NULL UNIQUE,
    at_ms      BIGINT NOT NULL,
    task_type  TEXT   NOT NULL,
    provider   TEXT   NOT NULL,
    version    BIGINT NOT NULL CHECK (version > 0),
    mutation   TEXT   NOT NULL,
    entry      TEXT   NOT NULL,
    prev_hash  TEXT   NOT NULL,
    hash       TEXT   NOT NULL
);
CREATE UNIQUE INDEX market_route_log_entry ON market_route_log (task_type, provider, version);

-- The whole matrix as of a row of the log: so a start need not replay all of them. Whatever is wrong with one, the log
-- has everything.
CREATE TABLE market_route_snapshot (
    seq   BIGINT PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    text  TEXT   NOT NULL
);

CREATE TRIGGER market_route_log_is_fixed BEFORE UPDATE ON market_route_log
BEGIN SELECT RAISE (ABORT, 'a row of the routing log is never changed'); END;
CREATE TRIGGER market_route_log_stays BEFORE DELETE ON market_route_log
BEGIN SELECT RAISE (ABORT, 'a row of the routing log is never deleted'); END;
