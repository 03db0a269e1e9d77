-- A bounded spending window that owns sandboxes. What is held is the first minute of those that are starting.
CREATE TABLE hosting_job (
    job_id           TEXT   COLLATE "C" PRIMARY KEY,
    user_id          TEXT   COLLATE "C" NOT NULL,
    name             TEXT   NOT NULL,
    status           TEXT   NOT NULL CHECK (status IN
        ('running', 'stopped', 'stopped_due_to_budget', 'stopped_due_to_balance', 'expired', 'idle')),
    max_spend        BIGINT NOT NULL CHECK (max_spend > 0),
    spent            BIGINT NOT NULL DEFAULT 0 CHECK (spent >= 0),
    held             BIGINT NOT NULL DEFAULT 0 CHECK (held >= 0),
    created_ms       BIGINT NOT NULL,
    expires_ms       BIGINT NOT NULL,
    idle_timeout_ms  BIGINT CHECK (idle_timeout_ms > 0),
    last_activity_ms BIGINT NOT NULL,
    -- When somebody has to look at it next; nobody once it has ended.
    due_ms           BIGINT,
    ended_ms         BIGINT,
    -- What was asked for last, and what was granted: asking the same again gets the same answer.
    answer           TEXT   NOT NULL,
    version          BIGINT NOT NULL DEFAULT 1,
    -- Written as a difference: a sum may not fit.
    CHECK (spent <= max_spend - held),
    CHECK ((status = 'running') = (due_ms IS NOT NULL)),
    CHECK ((status = 'running') = (ended_ms IS NULL))
);
CREATE INDEX hosting_job_user ON hosting_job (user_id, job_id);
CREATE INDEX hosting_job_due ON hosting_job (due_ms, job_id) WHERE due_ms IS NOT NULL;

-- What is bought by the minute. It never runs beyond ends_ms, which is never beyond what is paid.
CREATE TABLE hosting_sandbox (
    sandbox_id       TEXT   COLLATE "C" PRIMARY KEY,
    job_id           TEXT   COLLATE "C" NOT NULL REFERENCES hosting_job (job_id),
    user_id          TEXT   COLLATE "C" NOT NULL,
    status           TEXT   NOT NULL CHECK (status IN
        ('starting', 'running', 'ending', 'stopped', 'destroying', 'destroyed', 'failed')),
    stop_reason      TEXT,
    words            TEXT,
    cpu_milli        BIGINT NOT NULL CHECK (cpu_milli > 0),
    ram_mib          BIGINT NOT NULL CHECK (ram_mib > 0),
    disk_mib         BIGINT NOT NULL CHECK (disk_mib > 0),
    -- For each minute, as it was when it was bought.
    price            BIGINT NOT NULL CHECK (price > 0),
    -- Another shape and its price, from a minute on that has not begun, or has just begun.
    next_cpu_milli   BIGINT CHECK (next_cpu_milli > 0),
    next_ram_mib     BIGINT CHECK (next_ram_mib > 0),
    next_disk_mib    BIGINT CHECK (next_disk_mib > 0),
    next_price       BIGINT CHECK (next_price > 0),
    next_from_ms     BIGINT,
    cap              BIGINT NOT NULL CHECK (cap > 0),
    spent            BIGINT NOT NULL DEFAULT 0 CHECK (spent >= 0 AND spent <= cap),
    paid_minutes     BIGINT NOT NULL DEFAULT 0 CHECK (paid_minutes >= 0),
    created_ms       BIGINT NOT NULL,
    started_ms       BIGINT,
    expires_ms       BIGINT NOT NULL,
    idle_timeout_ms  BIGINT CHECK (idle_timeout_ms > 0),
    last_activity_ms BIGINT NOT NULL,
    ends_ms          BIGINT,
    -- When the meter has to look at it next; never, if it has not to.
    due_ms           BIGINT,
    -- What its agent says that it ran, and what of it we bear ourselves.
    ran_ms           BIGINT NOT NULL DEFAULT 0 CHECK (ran_ms >= 0),
    lost_units       BIGINT NOT NULL DEFAULT 0 CHECK (lost_units >= 0),
    image            TEXT   NOT NULL,
    image_digest     TEXT   NOT NULL,
    security_mode    TEXT   NOT NULL CHECK (security_mode IN ('standard')),
    machine          TEXT   NOT NULL,
    instance         TEXT,
    endpoint         TEXT,
    agent_key        TEXT,
    secrets_ms       BIGINT,
    paused           BIGINT NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    answer           TEXT   NOT NULL,
    version          BIGINT NOT NULL DEFAULT 1,
    CHECK ((started_ms IS NULL) = (paid_minutes = 0)),
    CHECK (status <> 'running' OR (started_ms IS NOT NULL AND ends_ms IS NOT NULL)),
    CHECK (status NOT IN ('starting', 'running') OR due_ms IS NOT NULL),
    CHECK (started_ms IS NULL OR ends_ms <= started_ms + 60000 * paid_minutes),
    CHECK ((next_price IS NULL) = (next_from_ms IS NULL) AND (next_price IS NULL) = (next_cpu_milli IS NULL)
        AND (next_price IS NULL) = (next_ram_mib IS NULL) AND (next_price IS NULL) = (next_disk_mib IS NULL))
);
CREATE INDEX hosting_sandbox_job ON hosting_sandbox (job_id, sandbox_id);
CREATE INDEX hosting_sandbox_user ON hosting_sandbox (user_id, sandbox_id);
CREATE INDEX hosting_sandbox_due ON hosting_sandbox (due_ms, sandbox_id) WHERE due_ms IS NOT NULL;
CREATE INDEX hosting_sandbox_open ON hosting_sandbox (sandbox_id)
    WHERE status IN ('starting', 'running', 'ending', 'destroying');

-- What a user spent for sandboxes on each day: the reserve of an account is made from it.
CREATE TABLE hosting_day (
    user_id TEXT   COLLATE "C" NOT NULL,
    day     BIGINT NOT NULL,
    units   BIGINT NOT NULL CHECK (units >= 0),
    PRIMARY KEY (user_id, day)
);

-- Money on its way out: held when it is asked for, gone when it has arrived, given back when it has not.
CREATE TABLE hosting_withdrawal (
    withdrawal_id TEXT   COLLATE "C" PRIMARY KEY,
    user_id       TEXT   COLLATE "C" NOT NULL,
    units         BIGINT NOT NULL CHECK (units > 0),
    destination   TEXT   NOT NULL,
    status        TEXT   NOT NULL CHECK (status IN ('requested', 'confirmed', 'failed')),
    reference     TEXT,
    words         TEXT,
    requested_ms  BIGINT NOT NULL,
    changed_ms    BIGINT NOT NULL,
    CHECK ((status = 'confirmed') = (reference IS NOT NULL)),
    CHECK ((status = 'failed') = (words IS NOT NULL))
);
CREATE INDEX hosting_withdrawal_user ON hosting_withdrawal (user_id, withdrawal_id);
CREATE INDEX hosting_withdrawal_open ON hosting_withdrawal (withdrawal_id) WHERE status = 'requested';

-- What somebody would have to pay for what it could not.
CREATE TABLE hosting_quote (
    quote_id   TEXT   COLLATE "C" PRIMARY KEY,
    user_id    TEXT   COLLATE "C" NOT NULL,
    units      BIGINT NOT NULL CHECK (units > 0),
    buys       TEXT   NOT NULL,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX hosting_quote_user ON hosting_quote (user_id, quote_id);
CREATE INDEX hosting_quote_expires ON hosting_quote (expires_ms);

-- One row: what the meter saw of the clock.
CREATE TABLE hosting_meter (
    one        BIGINT PRIMARY KEY CHECK (one = 1),
    last_ms    BIGINT NOT NULL,
    suspect_ms BIGINT,
    ticks      BIGINT NOT NULL,
    backs      BIGINT NOT NULL,
    jumps      BIGINT NOT NULL
);
