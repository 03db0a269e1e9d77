-- A dispute about the result of a request, as one of those sees it who take part: of one request there is one. What it
-- is about, and how the money stood when it began, is fixed; it is decided once.
CREATE TABLE market_dispute (
    dispute_id  TEXT   NOT NULL,
    side        TEXT   NOT NULL CHECK (side IN ('buyer', 'provider', 'arbiter')),
    request_id  TEXT   NOT NULL,
    buyer       TEXT   NOT NULL,
    provider    TEXT   NOT NULL,
    arbiter     TEXT,
    filed_by    TEXT   NOT NULL CHECK (filed_by IN ('buyer', 'provider')),
    reason      TEXT   NOT NULL CHECK (reason IN
        ('result_wrong', 'verdict_wrong', 'not_paid', 'late', 'copied', 'terms', 'other')),
    private     BIGINT NOT NULL CHECK (private IN (0, 1)),
    filing_id   TEXT   NOT NULL,
    stood       TEXT   CHECK (stood IN ('release', 'withhold')),
    opened_ms   BIGINT NOT NULL,
    deadline_ms BIGINT NOT NULL,
    state       TEXT   NOT NULL CHECK (state IN ('open', 'answered', 'decided', 'expired')),
    changed_ms  BIGINT NOT NULL,
    due_ms      BIGINT NOT NULL,
    decided_by  TEXT   CHECK (decided_by IN ('rule', 'arbiter', 'concession', 'deadline', 'record')),
    outcome     TEXT   CHECK (outcome IN ('release', 'withhold')),
    hold_id     TEXT   UNIQUE,
    held_units  BIGINT NOT NULL CHECK (held_units >= 0),
    pending     BIGINT NOT NULL CHECK (pending IN (0, 1)),
    moved_units BIGINT NOT NULL CHECK (moved_units >= 0),
    receipt_id  TEXT,
    verdict     TEXT,
    replay      TEXT,
    PRIMARY KEY (dispute_id, side),
    CHECK ((state IN ('open', 'answered')) = (decided_by IS NULL)),
    CHECK (outcome IS NULL OR decided_by IS NOT NULL),
    CHECK (pending = 0 OR outcome IS NOT NULL),
    CHECK ((held_units > 0) = (hold_id IS NOT NULL)),
    CHECK (moved_units = 0 OR decided_by IS NOT NULL)
);
CREATE INDEX market_dispute_changed ON market_dispute (changed_ms, dispute_id);
CREATE INDEX market_dispute_due ON market_dispute (due_ms, dispute_id)
    WHERE state IN ('open', 'answered') OR pending = 1;
CREATE UNIQUE INDEX market_dispute_receipt ON market_dispute (receipt_id, side);
CREATE INDEX market_dispute_request ON market_dispute (request_id);
CREATE INDEX market_dispute_buyer ON market_dispute (buyer, changed_ms);
CREATE INDEX market_dispute_provider ON market_dispute (provider, changed_ms);

-- What was said in it, as it was signed: the evidence of both sides.
CREATE TABLE market_dispute_said (
    dispute_id TEXT   NOT NULL,
    side       TEXT   NOT NULL,
    event_id   TEXT   NOT NULL,
    author     TEXT   NOT NULL,
    step       TEXT   NOT NULL CHECK (step IN ('filed', 'answered', 'decided')),
    arbiter    TEXT,
    content    TEXT   NOT NULL,
    json       TEXT   NOT NULL,
    at_ms      BIGINT NOT NULL,
    PRIMARY KEY (dispute_id, side, event_id),
    FOREIGN KEY (dispute_id, side) REFERENCES market_dispute (dispute_id, side)
);

CREATE TRIGGER market_dispute_terms_are_fixed
BEFORE UPDATE OF dispute_id, side, request_id, buyer, provider, filed_by, reason, private, filing_id, stood, opened_ms,
    deadline_ms, hold_id, held_units ON market_dispute
FOR EACH ROW EXECUTE FUNCTION market_refuse('what a dispute is about is never changed');
CREATE TRIGGER market_dispute_is_decided_once BEFORE UPDATE ON market_dispute
FOR EACH ROW WHEN (OLD.decided_by IS NOT NULL AND (NEW.decided_by IS NULL OR NEW.decided_by <> OLD.decided_by
    OR (OLD.outcome IS NOT NULL AND (NEW.outcome IS NULL OR NEW.outcome <> OLD.outcome))))
EXECUTE FUNCTION market_refuse('a dispute is decided once');
CREATE TRIGGER market_dispute_stays BEFORE DELETE ON market_dispute
FOR EACH ROW EXECUTE FUNCTION market_refuse('a dispute is never deleted');
CREATE TRIGGER market_dispute_said_is_fixed BEFORE UPDATE ON market_dispute_said
FOR EACH ROW EXECUTE FUNCTION market_refuse('what was said is never changed');
CREATE TRIGGER market_dispute_said_stays BEFORE DELETE ON market_dispute_said
FOR EACH ROW EXECUTE FUNCTION market_refuse('what was said is never deleted');
