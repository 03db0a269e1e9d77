-- What this node says in public of providers. Of one provider there is at most one draft for each kind of work, which
-- later outcomes change; what is due is a row, so whoever looks next publishes it.
CREATE TABLE market_review (
    review_id    TEXT   PRIMARY KEY,
    provider     TEXT   NOT NULL,
    task_type    TEXT   NOT NULL,
    number       BIGINT NOT NULL CHECK (number > 0),
    state        TEXT   NOT NULL CHECK (state IN ('due', 'held', 'published', 'superseded')),
    reason       TEXT   NOT NULL CHECK (reason IN ('benchmark', 'order', 'change', 'violation')),
    drafted_ms   BIGINT NOT NULL,
    changed_ms   BIGINT NOT NULL,
    due_ms       BIGINT NOT NULL,
    outcomes     BIGINT NOT NULL CHECK (outcomes > 0),
    trust_bp     BIGINT NOT NULL CHECK (trust_bp >= 0 AND trust_bp <= 10000),
    relay        TEXT,
    request_id   TEXT,
    content      TEXT   NOT NULL,
    published_ms BIGINT,
    event_id     TEXT,
    set_id       TEXT,
    label_id     TEXT,
    CHECK ((state IN ('due', 'held')) = (published_ms IS NULL)),
    CHECK ((published_ms IS NULL) = (event_id IS NULL))
);
CREATE UNIQUE INDEX market_review_number ON market_review (provider, task_type, number);
CREATE UNIQUE INDEX market_review_draft ON market_review (provider, task_type) WHERE state IN ('due', 'held');
CREATE INDEX market_review_due ON market_review (due_ms, review_id) WHERE state IN ('due', 'held');
CREATE INDEX market_review_changed ON market_review (changed_ms, review_id);

-- What others say: the newest of each reviewer about one provider and kind of work, and what it can be checked by.
CREATE TABLE market_review_seen (
    subject     TEXT   NOT NULL,
    task_type   TEXT   NOT NULL,
    reviewer    TEXT   NOT NULL,
    event_id    TEXT   NOT NULL,
    kind        BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    received_ms BIGINT NOT NULL,
    trust_bp    BIGINT NOT NULL CHECK (trust_bp >= 0 AND trust_bp <= 10000),
    grade       TEXT   NOT NULL CHECK (grade IN ('none', 'forged', 'asked', 'done', 'paid')),
    graded_ms   BIGINT NOT NULL,
    content     TEXT   NOT NULL,
    PRIMARY KEY (subject, task_type, reviewer)
);
CREATE INDEX market_review_seen_received ON market_review_seen (received_ms, event_id);
CREATE INDEX market_review_seen_event ON market_review_seen (event_id);
CREATE INDEX market_review_seen_graded ON market_review_seen (graded_ms);
CREATE INDEX market_review_seen_reviewer ON market_review_seen (reviewer);

-- How well what a reviewer said foretold our own outcomes: sums of squares, beside those of the base rate.
CREATE TABLE market_reviewer (
    reviewer   TEXT   PRIMARY KEY,
    outcomes   BIGINT NOT NULL CHECK (outcomes > 0),
    brier      BIGINT NOT NULL CHECK (brier >= 0),
    base       BIGINT NOT NULL CHECK (base >= 0),
    changed_ms BIGINT NOT NULL
);
CREATE INDEX market_reviewer_changed ON market_reviewer (changed_ms);

-- How often work of a kind was done well for us, by whomever.
CREATE TABLE market_review_base (
    task_type TEXT   PRIMARY KEY,
    outcomes  BIGINT NOT NULL CHECK (outcomes > 0),
    good_bp   BIGINT NOT NULL CHECK (good_bp >= 0)
);

-- What all reviews of a provider come to, in thousandths of an outcome. It follows from the rows above.
CREATE TABLE market_review_prior (
    subject    TEXT   NOT NULL,
    task_type  TEXT   NOT NULL,
    good_milli BIGINT NOT NULL CHECK (good_milli >= 0),
    bad_milli  BIGINT NOT NULL CHECK (bad_milli >= 0),
    at_ms      BIGINT NOT NULL,
    PRIMARY KEY (subject, task_type),
    CHECK (good_milli + bad_milli <= 5000)
);
CREATE INDEX market_review_prior_task ON market_review_prior (task_type, subject);
CREATE INDEX market_review_prior_at ON market_review_prior (at_ms);
