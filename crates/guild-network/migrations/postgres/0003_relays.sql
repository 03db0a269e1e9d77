-- How far each relay has been read: everything from low_s to until_s (Unix seconds) that passes the filter.
CREATE TABLE relay_mark (
    relay TEXT NOT NULL,
    filter_name TEXT NOT NULL,
    until_s BIGINT NOT NULL,
    low_s BIGINT NOT NULL,
    complete BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (relay, filter_name)
);

-- What each relay said about an event of ours: queued, acked or refused.
CREATE TABLE nostr_ack (
    event_id TEXT NOT NULL,
    relay TEXT NOT NULL,
    state TEXT NOT NULL,
    message TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (event_id, relay)
);
CREATE INDEX nostr_ack_by_time ON nostr_ack (at_ms);
