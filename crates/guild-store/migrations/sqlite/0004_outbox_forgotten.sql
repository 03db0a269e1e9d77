-- Messages of a sink that were queued before this moment may have been forgotten. A later one that is not there was
-- never queued.
CREATE TABLE outbox_forgotten (
    sink      TEXT   PRIMARY KEY,
    before_ms BIGINT NOT NULL
) WITHOUT ROWID;
