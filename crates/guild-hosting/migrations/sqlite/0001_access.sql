-- Nonces that were given out and not used. Only their hashes: whoever reads the table can sign in with none of them.
CREATE TABLE access_nonce (
    nonce_hash TEXT   PRIMARY KEY,
    place      TEXT   NOT NULL,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX access_nonce_place ON access_nonce (place);
CREATE INDEX access_nonce_expires ON access_nonce (expires_ms);

-- Nostr events that were shown as a proof, for as long as they could be shown again.
CREATE TABLE access_seen (
    event_id   TEXT   PRIMARY KEY,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX access_seen_expires ON access_seen (expires_ms);

-- Who is signed in. A session that was closed has no row.
CREATE TABLE access_session (
    session_id TEXT   PRIMARY KEY,
    token_hash TEXT   NOT NULL UNIQUE,
    user_id    TEXT   NOT NULL,
    via        TEXT   NOT NULL CHECK (via IN ('siwe', 'nip98', 'bypass')),
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX access_session_user ON access_session (user_id, created_ms);
CREATE INDEX access_session_expires ON access_session (expires_ms);

-- API keys. A key that was revoked has no row, nor have those that were made with it.
CREATE TABLE access_key (
    key_id       TEXT   PRIMARY KEY,
    token_hash   TEXT   NOT NULL UNIQUE,
    user_id      TEXT   NOT NULL,
    name         TEXT   NOT NULL,
    scopes       TEXT   NOT NULL,
    made_by      TEXT,
    created_ms   BIGINT NOT NULL,
    expires_ms   BIGINT NOT NULL,
    last_used_ms BIGINT
);
CREATE INDEX access_key_user ON access_key (user_id, created_ms);
CREATE INDEX access_key_expires ON access_key (expires_ms);

-- What was asked for under an idempotency key, and what was answered.
CREATE TABLE access_idempotency (
    user_id      TEXT   NOT NULL,
    method       TEXT   NOT NULL,
    path         TEXT   NOT NULL,
    key          TEXT   NOT NULL,
    request_hash TEXT   NOT NULL,
    state        TEXT   NOT NULL CHECK (state IN ('in_flight', 'done')),
    tries        BIGINT NOT NULL,
    until_ms     BIGINT,
    status       BIGINT,
    body         TEXT,
    created_ms   BIGINT NOT NULL,
    PRIMARY KEY (user_id, method, path, key),
    CHECK ((state = 'in_flight') = (until_ms IS NOT NULL)),
    CHECK ((state = 'done') = (status IS NOT NULL)),
    CHECK ((state = 'done') = (body IS NOT NULL))
);
CREATE INDEX access_idempotency_created ON access_idempotency (created_ms);
