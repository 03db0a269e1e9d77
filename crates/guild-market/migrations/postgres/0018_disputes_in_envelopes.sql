-- What a dispute charges to the envelope of its order's work, to the day and month in which it was charged: the charge
-- of the order itself is closed by then, and stays so.
CREATE TABLE market_envelope_dispute (
    dispute_id  TEXT   PRIMARY KEY,
    order_id    TEXT   NOT NULL REFERENCES market_order (order_id),
    task        TEXT   NOT NULL REFERENCES market_envelope (task),
    day         TEXT   NOT NULL,
    month       TEXT   NOT NULL,
    held_units  BIGINT NOT NULL CHECK (held_units >= 0),
    spent_units BIGINT NOT NULL CHECK (spent_units >= 0),
    charged_ms  BIGINT NOT NULL,
    closed_ms   BIGINT,
    CHECK (closed_ms IS NULL OR held_units = 0),
    CHECK (closed_ms IS NOT NULL OR spent_units = 0)
);
CREATE INDEX market_envelope_dispute_month ON market_envelope_dispute (task, month, day);

CREATE TRIGGER market_envelope_dispute_stays_closed BEFORE UPDATE ON market_envelope_dispute
FOR EACH ROW WHEN (OLD.closed_ms IS NOT NULL)
EXECUTE FUNCTION market_refuse('a closed charge is never changed');
CREATE TRIGGER market_envelope_dispute_stays BEFORE DELETE ON market_envelope_dispute
FOR EACH ROW EXECUTE FUNCTION market_refuse('a charge is never deleted');
