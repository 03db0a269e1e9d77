-- One piece of work that several do. The terms are fixed when it is posted; it is decided once.
CREATE TABLE market_delegation (
    delegation_id  TEXT   PRIMARY KEY,
    delegation_key TEXT   NOT NULL,
    buyer          TEXT   NOT NULL,
    kind           BIGINT NOT NULL,
    schema_id      TEXT   NOT NULL,
    job_hash       TEXT   NOT NULL,
    payload        TEXT   NOT NULL,
    private        BIGINT NOT NULL CHECK (private IN (0, 1)),
    objective      BIGINT NOT NULL CHECK (objective IN (0, 1)),
    criticality    TEXT   NOT NULL CHECK (criticality IN ('medium', 'high', 'critical')),
    consensus      TEXT   NOT NULL CHECK (consensus IN ('first_success', 'majority', 'quorum')),
    replicas       BIGINT NOT NULL CHECK (replicas > 0),
    needed         BIGINT NOT NULL CHECK (needed BETWEEN 1 AND replicas),
    extra_max      BIGINT NOT NULL CHECK (extra_max >= 0),
    budget_units   BIGINT NOT NULL CHECK (budget_units >= 0),
    deadline_ms    BIGINT NOT NULL,
    posted_ms      BIGINT NOT NULL,
    state          TEXT   NOT NULL CHECK (state IN ('open', 'decided', 'undecided', 'cancelled')),
    changed_ms     BIGINT NOT NULL,
    due_ms         BIGINT NOT NULL,
    exhausted      BIGINT NOT NULL DEFAULT 0 CHECK (exhausted IN (0, 1)),
    winner         TEXT,
    decided_by     TEXT   CHECK (decided_by IN ('votes', 'judge')),
    why            TEXT,
    CHECK ((state = 'decided') = (winner IS NOT NULL)),
    CHECK ((state = 'decided') = (decided_by IS NOT NULL)),
    CHECK ((state = 'open') = (why IS NULL)),
    CHECK (consensus <> 'first_success' OR objective = 1)
);
CREATE INDEX market_delegation_due ON market_delegation (due_ms, delegation_id) WHERE state = 'open';
CREATE INDEX market_delegation_posted ON market_delegation (posted_ms, delegation_id);

-- One of those who do it: an order of its own. No two of one operator. What it says is written when its result was
-- checked by itself; where it stands, when the whole is decided.
CREATE TABLE market_replica (
    delegation_id TEXT   NOT NULL REFERENCES market_delegation (delegation_id),
    number        BIGINT NOT NULL CHECK (number > 0),
    order_id      TEXT   NOT NULL UNIQUE REFERENCES market_order (order_id),
    provider      TEXT   NOT NULL,
    cluster       TEXT   NOT NULL,
    reason        TEXT   NOT NULL CHECK (reason IN ('first', 'hedge', 'replacement')),
    slow_from_ms  BIGINT NOT NULL,
    judged_ms     BIGINT,
    passed        BIGINT CHECK (passed IN (0, 1)),
    ballot        TEXT,
    says          TEXT,
    vote          TEXT,
    standing      TEXT   NOT NULL CHECK (standing IN
        ('waiting', 'agrees', 'differs', 'failed', 'late', 'cancelled')),
    PRIMARY KEY (delegation_id, number),
    UNIQUE (delegation_id, provider),
    UNIQUE (delegation_id, cluster),
    CHECK ((judged_ms IS NULL) = (passed IS NULL)),
    CHECK ((judged_ms IS NULL) = (ballot IS NULL)),
    CHECK (passed IS NULL OR passed = 0 OR says IS NOT NULL),
    CHECK (vote IS NULL OR (passed IS NOT NULL AND passed = 1)),
    CHECK (standing <> 'agrees' OR vote IS NOT NULL),
    CHECK (standing <> 'differs' OR judged_ms IS NOT NULL),
    CHECK (standing NOT IN ('failed', 'late', 'cancelled') OR judged_ms IS NULL)
);

CREATE TRIGGER market_delegation_terms_are_fixed
BEFORE UPDATE OF delegation_id, delegation_key, buyer, kind, schema_id, job_hash, payload, private, objective,
    criticality, consensus, replicas, needed, extra_max, budget_units, deadline_ms, posted_ms ON market_delegation
FOR EACH ROW EXECUTE FUNCTION market_refuse('the terms of a delegation are never changed');
CREATE TRIGGER market_delegation_stays_closed BEFORE UPDATE ON market_delegation
FOR EACH ROW WHEN (OLD.state <> 'open')
EXECUTE FUNCTION market_refuse('a delegation that has ended is never changed');
CREATE TRIGGER market_delegation_stays BEFORE DELETE ON market_delegation
FOR EACH ROW EXECUTE FUNCTION market_refuse('a delegation is never deleted');
CREATE TRIGGER market_replica_terms_are_fixed
BEFORE UPDATE OF delegation_id, number, order_id, provider, cluster, reason, slow_from_ms ON market_replica
FOR EACH ROW EXECUTE FUNCTION market_refuse('the terms of a replica are never changed');
CREATE TRIGGER market_replica_stays_decided BEFORE UPDATE ON market_replica
FOR EACH ROW
WHEN (OLD.standing <> 'waiting' AND NOT (OLD.standing IN ('failed', 'cancelled') AND NEW.standing = 'late'))
EXECUTE FUNCTION market_refuse('where a replica stands is decided once');
CREATE TRIGGER market_replica_stays BEFORE DELETE ON market_replica
FOR EACH ROW EXECUTE FUNCTION market_refuse('a replica is never deleted');
