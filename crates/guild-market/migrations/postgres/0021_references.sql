-- Content that requests only refer to, which is pinned for them; when it is looked at whether anybody needs it still.
CREATE TABLE market_reference (
    cid    TEXT   PRIMARY KEY,
    due_ms BIGINT NOT NULL
);
CREATE INDEX market_reference_due ON market_reference (due_ms, cid);

-- The requests that name it.
CREATE TABLE market_reference_use (
    cid        TEXT NOT NULL REFERENCES market_reference (cid),
    request_id TEXT NOT NULL,
    PRIMARY KEY (cid, request_id)
);
