-- Providers that we got to know, or are getting to know. The terms are fixed when it begins; what is due is a row, so
-- whoever looks next goes on. Of one provider there is one open meeting for each kind of work.
CREATE TABLE market_meeting (
    meeting_id        TEXT   PRIMARY KEY,
    meeting_key       TEXT   NOT NULL,
    provider          TEXT   NOT NULL,
    d                 TEXT   NOT NULL,
    task_type         TEXT   NOT NULL,
    benchmark         TEXT   NOT NULL,
    modules           TEXT   NOT NULL,
    kind              BIGINT NOT NULL,
    encrypted         BIGINT NOT NULL CHECK (encrypted IN (0, 1)),
    bid_units         BIGINT CHECK (bid_units >= 0),
    relays            TEXT   NOT NULL,
    choices           TEXT   NOT NULL,
    begun_ms          BIGINT NOT NULL,
    state             TEXT   NOT NULL CHECK (state IN ('trying', 'routing', 'ended')),
    due_ms            BIGINT NOT NULL,
    outcome           TEXT   CHECK (outcome IN
        ('active', 'conditional', 'rejected', 'forbidden', 'unresponsive', 'undelivered', 'unpaid')),
    evaluation        TEXT,
    words             TEXT,
    cooldown_until_ms BIGINT,
    ended_ms          BIGINT,
    claim_token       TEXT,
    claim_until_ms    BIGINT,
    claim_epoch       BIGINT NOT NULL DEFAULT 0,
    CHECK ((state = 'trying') = (outcome IS NULL)),
    CHECK ((state = 'ended') = (ended_ms IS NOT NULL))
);
CREATE UNIQUE INDEX market_meeting_open ON market_meeting (provider, task_type) WHERE state <> 'ended';
CREATE INDEX market_meeting_due ON market_meeting (due_ms, meeting_id) WHERE state <> 'ended';
CREATE INDEX market_meeting_provider ON market_meeting (provider, begun_ms);

-- One request of a meeting, and what came of it. Its course is the state machine, in JSON.
CREATE TABLE market_trial (
    request_id        TEXT   PRIMARY KEY,
    meeting_id        TEXT   NOT NULL REFERENCES market_meeting (meeting_id),
    number            BIGINT NOT NULL CHECK (number > 0),
    request_json      TEXT   NOT NULL,
    seed              TEXT   NOT NULL,
    benchmark         TEXT   NOT NULL,
    begun_ms          BIGINT NOT NULL,
    course            TEXT   NOT NULL,
    words             TEXT,
    result_id         TEXT,
    content           TEXT,
    latency_ms        BIGINT,
    class             TEXT   CHECK (class IN ('SUCCESS', 'PARTIAL', 'FAILURE', 'ERROR', 'SECURITY_VIOLATION')),
    passed            BIGINT NOT NULL DEFAULT 0 CHECK (passed >= 0 AND passed <= total),
    total             BIGINT NOT NULL,
    memory_peak_bytes BIGINT,
    quality_milli     BIGINT,
    judgement_id      TEXT,
    judged_ms         BIGINT,
    CHECK ((result_id IS NULL) = (content IS NULL)),
    CHECK ((class IS NULL) = (judged_ms IS NULL))
);
CREATE UNIQUE INDEX market_trial_number ON market_trial (meeting_id, number);
CREATE INDEX market_trial_judged ON market_trial (benchmark, judged_ms) WHERE class = 'SUCCESS';

-- What a provider said about a request, as it signed it. Two results that differ are evidence against it.
CREATE TABLE market_word (
    event_id    TEXT   PRIMARY KEY,
    request_id  TEXT   NOT NULL REFERENCES market_trial (request_id),
    standing    TEXT   NOT NULL CHECK (standing IN
        ('feedback', 'unpaid', 'delivered', 'late', 'repeated', 'equivocation')),
    words       TEXT,
    json        TEXT   NOT NULL,
    received_ms BIGINT NOT NULL
);
CREATE INDEX market_word_request ON market_word (request_id, received_ms);

CREATE TRIGGER market_meeting_stays_ended BEFORE UPDATE ON market_meeting
FOR EACH ROW WHEN (OLD.state = 'ended') EXECUTE FUNCTION market_refuse('a meeting that has ended is never changed');
CREATE TRIGGER market_word_is_fixed BEFORE UPDATE ON market_word
FOR EACH ROW EXECUTE FUNCTION market_refuse('what was said is never changed');
