-- What we bought. An order without a provider is open to all. The terms are fixed when it is posted; the rest is written once, by the step that comes to it.
CREATE TABLE market_order (
    order_id         TEXT   PRIMARY KEY,
    order_key        TEXT   NOT NULL,
    request_id       TEXT   NOT NULL UNIQUE,
    request_json     TEXT   NOT NULL,
    buyer            TEXT   NOT NULL,
    provider         TEXT,
    schema_id        TEXT   NOT NULL,
    job_hash         TEXT   NOT NULL,
    payload          TEXT   NOT NULL,
    private          BIGINT NOT NULL CHECK (private IN (0, 1)),
    price_units      BIGINT CHECK (price_units >= 0),
    budget_units     BIGINT NOT NULL CHECK (budget_units >= 0),
    deadline_ms      BIGINT NOT NULL,
    relays           TEXT   NOT NULL,
    policy_bundle_id TEXT   NOT NULL,
    approval_rule_id TEXT,
    hold_id          TEXT   UNIQUE,
    posted_ms        BIGINT NOT NULL,
    state            TEXT   NOT NULL CHECK (state IN
        ('posted', 'delivered', 'released', 'withheld', 'expired', 'cancelled', 'failed')),
    changed_ms       BIGINT NOT NULL,
    result_id        TEXT,
    delivered_by     TEXT,
    output_text      TEXT,
    asked_units      BIGINT,
    delivered_ms     BIGINT,
    verdict          TEXT,
    paid_units       BIGINT CHECK (paid_units >= 0 AND paid_units <= budget_units),
    receipt_id       TEXT   UNIQUE,
    replay           TEXT,
    words            TEXT,
    CHECK ((budget_units > 0) = (hold_id IS NOT NULL)),
    CHECK (provider IS NOT NULL OR private = 0),
    CHECK ((result_id IS NULL) = (delivered_by IS NULL)),
    CHECK (provider IS NULL OR delivered_by IS NULL OR provider = delivered_by),
    CHECK ((state IN ('delivered', 'released', 'withheld')) = (result_id IS NOT NULL)),
    CHECK ((state IN ('released', 'withheld')) = (verdict IS NOT NULL)),
    CHECK ((state = 'released') = (paid_units IS NOT NULL))
);
CREATE INDEX market_order_open ON market_order (deadline_ms) WHERE state IN ('posted', 'delivered');
CREATE INDEX market_order_posted ON market_order (posted_ms);

-- Every result of the provider of an order, with what it was good for. A second, different one is evidence against it.
-- Of an order that is open to all, each author has one try.
CREATE TABLE market_answer (
    event_id    TEXT   PRIMARY KEY,
    request_id  TEXT   NOT NULL REFERENCES market_order (request_id),
    author      TEXT   NOT NULL,
    standing    TEXT   NOT NULL CHECK (standing IN ('delivered', 'late', 'repeated', 'equivocation', 'rejected')),
    json        TEXT,
    received_ms BIGINT NOT NULL,
    CHECK ((standing = 'rejected') = (json IS NULL))
);
CREATE INDEX market_answer_request ON market_answer (request_id);
CREATE UNIQUE INDEX market_answer_rejected ON market_answer (request_id, author) WHERE standing = 'rejected';

-- What we were hired for, and what we refused. Of a refusal only why is kept: anybody can make us refuse.
CREATE TABLE market_job (
    request_id   TEXT   PRIMARY KEY,
    request_json TEXT,
    provider     TEXT   NOT NULL,
    buyer        TEXT   NOT NULL,
    private      BIGINT NOT NULL CHECK (private IN (0, 1)),
    schema_id    TEXT,
    job_hash     TEXT,
    payload      TEXT,
    price_units  BIGINT NOT NULL CHECK (price_units >= 0),
    taken_ms     BIGINT NOT NULL,
    due_ms       BIGINT,
    state        TEXT   NOT NULL CHECK (state IN
        ('accepted', 'delivered', 'paid', 'underpaid', 'withheld', 'failed', 'cancelled', 'refused')),
    changed_ms   BIGINT NOT NULL,
    result_json  TEXT,
    delivered_ms BIGINT,
    paid_units   BIGINT,
    receipt_id   TEXT   UNIQUE,
    code         TEXT,
    words        TEXT,
    CHECK ((state = 'refused') = (request_json IS NULL)),
    CHECK (state = 'refused' OR (schema_id IS NOT NULL AND job_hash IS NOT NULL AND payload IS NOT NULL)),
    CHECK ((state IN ('delivered', 'paid', 'underpaid', 'withheld')) = (result_json IS NOT NULL)),
    CHECK ((result_json IS NULL) = (delivered_ms IS NULL)),
    CHECK ((state IN ('paid', 'underpaid', 'withheld')) = (receipt_id IS NOT NULL)),
    CHECK ((state IN ('paid', 'underpaid')) = (paid_units IS NOT NULL))
);
CREATE INDEX market_job_accepted ON market_job (taken_ms, request_id) WHERE state = 'accepted';
CREATE INDEX market_job_delivered ON market_job (delivered_ms, request_id)
    WHERE state = 'delivered' AND price_units > 0;
CREATE INDEX market_job_not_paid ON market_job (buyer, delivered_ms)
    WHERE state IN ('delivered', 'underpaid', 'withheld');
CREATE INDEX market_job_refused ON market_job (taken_ms) WHERE state = 'refused';
CREATE INDEX market_job_taken ON market_job (taken_ms);

-- How well each of our keys has done, counted when a job ends, so that nobody has to read all jobs.
CREATE TABLE market_stability (
    provider   TEXT   PRIMARY KEY,
    good       BIGINT NOT NULL CHECK (good >= 0),
    bad        BIGINT NOT NULL CHECK (bad >= 0),
    delivered  BIGINT NOT NULL CHECK (delivered >= 0),
    latency_ms BIGINT NOT NULL CHECK (latency_ms >= 0)
);

-- Receipts that we gave as a buyer and took as a provider, in their own bytes.
CREATE TABLE market_receipt (
    receipt_id TEXT   PRIMARY KEY,
    direction  TEXT   NOT NULL CHECK (direction IN ('given', 'taken')),
    request_id TEXT   NOT NULL,
    buyer      TEXT   NOT NULL,
    provider   TEXT   NOT NULL,
    status     TEXT   NOT NULL,
    asset_id   TEXT   NOT NULL,
    units      BIGINT NOT NULL,
    text       TEXT   NOT NULL,
    at_ms      BIGINT NOT NULL
);
CREATE INDEX market_receipt_at ON market_receipt (at_ms);
CREATE INDEX market_receipt_buyer ON market_receipt (buyer, at_ms);
CREATE INDEX market_receipt_provider ON market_receipt (provider, at_ms);
CREATE INDEX market_receipt_request ON market_receipt (request_id);

-- What providers' submissions were worth and what they used, over time. A metric that was not measured is empty.
CREATE TABLE market_judgement (
    judgement_id      TEXT   PRIMARY KEY,
    provider          TEXT   NOT NULL,
    at_ms             BIGINT NOT NULL,
    suite             TEXT   NOT NULL,
    suite_hash        TEXT   NOT NULL,
    submission_hash   TEXT   NOT NULL,
    class             TEXT   NOT NULL CHECK (class IN
        ('SUCCESS', 'PARTIAL', 'FAILURE', 'ERROR', 'SECURITY_VIOLATION')),
    mode              TEXT   NOT NULL CHECK (mode IN ('trusted', 'tamper_evident')),
    passed            BIGINT NOT NULL CHECK (passed >= 0 AND passed <= total),
    total             BIGINT NOT NULL,
    wall_us           BIGINT NOT NULL,
    cpu_us            BIGINT NOT NULL,
    memory_peak_bytes BIGINT NOT NULL,
    coverage_bp       BIGINT CHECK (coverage_bp BETWEEN 0 AND 10000),
    pylint_milli      BIGINT CHECK (pylint_milli BETWEEN 0 AND 10000),
    bandit_milli      BIGINT CHECK (bandit_milli BETWEEN 0 AND 10000),
    mypy_milli        BIGINT CHECK (mypy_milli BETWEEN 0 AND 10000),
    verdict           TEXT   NOT NULL,
    CHECK (class <> 'SUCCESS' OR passed = total)
);
CREATE INDEX market_judgement_at ON market_judgement (at_ms);
CREATE INDEX market_judgement_provider ON market_judgement (provider, at_ms);

-- The keys under which this node has dealt: an auditor of several nodes must know who is who. The key of the node itself
-- is the one to which the database belongs.
CREATE TABLE market_key (
    role          TEXT   NOT NULL CHECK (role IN ('node', 'buyer', 'provider')),
    npub          TEXT   NOT NULL,
    first_used_ms BIGINT NOT NULL,
    PRIMARY KEY (role, npub)
);
CREATE UNIQUE INDEX market_key_node ON market_key (role) WHERE role = 'node';

CREATE TRIGGER market_order_terms_are_fixed
BEFORE UPDATE OF order_id, order_key, request_id, request_json, buyer, provider, schema_id, job_hash, payload, private,
    price_units, budget_units, deadline_ms, policy_bundle_id, hold_id, posted_ms ON market_order
BEGIN SELECT RAISE (ABORT, 'the terms of an order are never changed'); END;
CREATE TRIGGER market_order_stays_closed BEFORE UPDATE ON market_order
WHEN OLD.state NOT IN ('posted', 'delivered')
BEGIN SELECT RAISE (ABORT, 'a closed order is never changed'); END;
CREATE TRIGGER market_order_stays BEFORE DELETE ON market_order
BEGIN SELECT RAISE (ABORT, 'an order is never deleted'); END;
CREATE TRIGGER market_job_stays_closed BEFORE UPDATE ON market_job
WHEN OLD.state NOT IN ('accepted', 'delivered')
BEGIN SELECT RAISE (ABORT, 'a closed job is never changed'); END;
CREATE TRIGGER market_receipt_is_fixed BEFORE UPDATE ON market_receipt
BEGIN SELECT RAISE (ABORT, 'a receipt is never changed'); END;
CREATE TRIGGER market_receipt_stays BEFORE DELETE ON market_receipt
BEGIN SELECT RAISE (ABORT, 'a receipt is never deleted'); END;
CREATE TRIGGER market_judgement_is_fixed BEFORE UPDATE ON market_judgement
BEGIN SELECT RAISE (ABORT, 'a judgement is never changed'); END;
