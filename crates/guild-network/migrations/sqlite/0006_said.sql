-- When an announcement was made, as a sign of life: it follows from its event, so it needs no row of its own among the
-- heartbeats.
ALTER TABLE index_provider ADD COLUMN said_ms BIGINT NOT NULL DEFAULT 0;
UPDATE index_provider SET said_ms = coalesce(
    (SELECT min(e.created_at * 1000, e.received_ms) FROM nostr_event e WHERE e.seq = index_provider.seq), 0);
