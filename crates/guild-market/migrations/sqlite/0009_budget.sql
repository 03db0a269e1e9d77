-- How much may be spent on a kind of work, by day and by month, in millisatoshi. The task * is for all kinds that have no
-- envelope of their own. One that was taken away stays as a row, so that its versions are never given twice.
CREATE TABLE market_envelope (
    task          TEXT   PRIMARY KEY,
    is_set        BIGINT NOT NULL CHECK (is_set IN (0, 1)),
    version       BIGINT NOT NULL CHECK (version > 0),
    daily_units   BIGINT NOT NULL CHECK (daily_units >= 0),
    monthly_units BIGINT NOT NULL CHECK (monthly_units >= 0),
    priority      BIGINT NOT NULL,
    lends_bp      BIGINT NOT NULL CHECK (lends_bp BETWEEN 0 AND 10000),
    rolls_bp      BIGINT NOT NULL CHECK (rolls_bp BETWEEN 0 AND 10000),
    changed_ms    BIGINT NOT NULL
);

-- What became of an envelope in one day (2026-01-15) or month (2026-01). What is held and spent is never more than the
-- limit, with what was carried over from the month before and what others lent, less what it lent itself.
CREATE TABLE market_envelope_period (
    task           TEXT   NOT NULL REFERENCES market_envelope (task),
    layer          TEXT   NOT NULL CHECK (layer IN ('day', 'month')),
    period         TEXT   NOT NULL,
    limit_units    BIGINT NOT NULL CHECK (limit_units >= 0),
    rolled_units   BIGINT NOT NULL CHECK (rolled_units >= 0 AND rolled_units <= limit_units),
    borrowed_units BIGINT NOT NULL CHECK (borrowed_units >= 0),
    lent_units     BIGINT NOT NULL CHECK (lent_units >= 0),
    held_units     BIGINT NOT NULL CHECK (held_units >= 0),
    spent_units    BIGINT NOT NULL CHECK (spent_units >= 0),
    PRIMARY KEY (task, layer, period),
    CHECK (layer = 'month' OR rolled_units = 0),
    CHECK (held_units + spent_units + lent_units <= limit_units + rolled_units + borrowed_units)
);
CREATE INDEX market_envelope_period_at ON market_envelope_period (layer, period);

-- Every order that was charged to an envelope, to the day and month in which it was posted.
CREATE TABLE market_envelope_use (
    order_id    TEXT   PRIMARY KEY REFERENCES market_order (order_id),
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
CREATE INDEX market_envelope_use_month ON market_envelope_use (task, month, day);

-- What changed envelopes: they were set or taken away, lent to each other, or carried something into a month.
CREATE TABLE market_envelope_log (
    log_id        TEXT   PRIMARY KEY,
    at_ms         BIGINT NOT NULL,
    what          TEXT   NOT NULL CHECK (what IN ('set', 'removed', 'lent', 'rolled')),
    task          TEXT   NOT NULL,
    borrower      TEXT,
    layer         TEXT,
    period        TEXT,
    order_id      TEXT,
    units         BIGINT,
    daily_units   BIGINT,
    monthly_units BIGINT,
    priority      BIGINT,
    lends_bp      BIGINT,
    rolls_bp      BIGINT,
    CHECK ((what = 'lent') = (borrower IS NOT NULL)),
    CHECK ((what = 'lent') = (order_id IS NOT NULL)),
    CHECK ((what IN ('lent', 'rolled')) = (layer IS NOT NULL AND period IS NOT NULL AND units IS NOT NULL))
);
CREATE INDEX market_envelope_log_at ON market_envelope_log (at_ms, log_id);
CREATE INDEX market_envelope_log_lent ON market_envelope_log (task, layer, period) WHERE what = 'lent';
CREATE INDEX market_envelope_log_borrowed ON market_envelope_log (borrower, layer, period) WHERE what = 'lent';

-- What bids are made from: how the latest orders of a kind of work went.
CREATE INDEX market_order_decided ON market_order (schema_id, changed_ms)
    WHERE state IN ('delivered', 'released', 'withheld', 'expired', 'failed');

CREATE TRIGGER market_envelope_use_stays_closed BEFORE UPDATE ON market_envelope_use
WHEN OLD.closed_ms IS NOT NULL
BEGIN SELECT RAISE (ABORT, 'a closed charge is never changed'); END;
CREATE TRIGGER market_envelope_use_stays BEFORE DELETE ON market_envelope_use
BEGIN SELECT RAISE (ABORT, 'a charge is never deleted'); END;
CREATE TRIGGER market_envelope_log_is_fixed BEFORE UPDATE ON market_envelope_log
BEGIN SELECT RAISE (ABORT, 'a change of an envelope is never rewritten'); END;
CREATE TRIGGER market_envelope_log_stays BEFORE DELETE ON market_envelope_log
BEGIN SELECT RAISE (ABORT, 'a change of an envelope is never deleted'); END;
