-- The relays that are known: where each comes from, how closely it is followed, when it is asked next, and what it has
-- brought since that was last weighed. What is decided from is in `standing`, as JSON.
CREATE TABLE relay_known (
    relay          TEXT   NOT NULL PRIMARY KEY,
    source         TEXT   NOT NULL,
    -- Who named it first; NULL for the settings.
    named_by       TEXT,
    host           TEXT   NOT NULL,
    tier           BIGINT NOT NULL,
    -- Never, until it is drawn: 9223372036854775807.
    due_ms         BIGINT NOT NULL,
    known_ms       BIGINT NOT NULL,
    pending_events BIGINT NOT NULL,
    pending_news   BIGINT NOT NULL,
    pending_worth  BIGINT NOT NULL,
    standing       TEXT   NOT NULL
) WITHOUT ROWID;
CREATE INDEX relay_known_by_tier ON relay_known (tier, due_ms);
CREATE INDEX relay_known_by_namer ON relay_known (named_by) WHERE named_by IS NOT NULL;
CREATE INDEX relay_known_by_host ON relay_known (host);

-- How far the archive was read for hints and answers, and when relays were last drawn.
CREATE TABLE relay_scout (
    one        BIGINT PRIMARY KEY CHECK (one = 1),
    seq        BIGINT NOT NULL,
    sampled_ms BIGINT NOT NULL,
    probed_ms  BIGINT NOT NULL
);
INSERT INTO relay_scout (one, seq, sampled_ms, probed_ms) VALUES (1, 0, 0, 0);

-- What became of our requests to a provider at a relay. Thousandths of an observation, as of at_ms: they fade.
CREATE TABLE relay_delivery (
    provider   TEXT   NOT NULL,
    relay      TEXT   NOT NULL,
    taken      BIGINT NOT NULL,
    refused    BIGINT NOT NULL,
    unanswered BIGINT NOT NULL,
    answered   BIGINT NOT NULL,
    -- From the request to the first answer, lately.
    after_ms   BIGINT,
    at_ms      BIGINT NOT NULL,
    PRIMARY KEY (provider, relay)
) WITHOUT ROWID;
CREATE INDEX relay_delivery_by_time ON relay_delivery (at_ms);
CREATE INDEX relay_delivery_by_relay ON relay_delivery (relay);

-- Which relay first brought a provider's answer to a request of ours: each counts once.
CREATE TABLE relay_heard (
    request_id TEXT   NOT NULL,
    provider   TEXT   NOT NULL,
    relay      TEXT   NOT NULL,
    after_ms   BIGINT NOT NULL,
    at_ms      BIGINT NOT NULL,
    PRIMARY KEY (request_id, provider)
) WITHOUT ROWID;
CREATE INDEX relay_heard_by_time ON relay_heard (at_ms);
CREATE INDEX relay_heard_by_provider ON relay_heard (provider);
