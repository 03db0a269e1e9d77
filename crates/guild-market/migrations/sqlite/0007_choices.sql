-- Why an order went to whom it went, as it was said when it was posted.
CREATE TABLE market_choice (
    order_id TEXT   PRIMARY KEY REFERENCES market_order (order_id),
    at_ms    BIGINT NOT NULL,
    how      TEXT   NOT NULL,
    words    TEXT   NOT NULL,
    document TEXT
);
