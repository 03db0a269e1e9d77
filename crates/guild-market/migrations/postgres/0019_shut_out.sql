-- Who was shut out, and what it showed then. What it shows later is of no interest: it may copy whomever it wants to
-- harm.
CREATE TABLE market_shut_out (
    provider TEXT   PRIMARY KEY,
    at_ms    BIGINT NOT NULL
);
CREATE TABLE market_shut_out_mark (
    provider TEXT NOT NULL REFERENCES market_shut_out (provider),
    mark     TEXT NOT NULL,
    PRIMARY KEY (provider, mark)
);
