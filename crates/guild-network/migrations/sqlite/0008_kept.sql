-- What is missing of a relay between low_s and until_s: both ends included, or neither is there.
ALTER TABLE relay_mark ADD COLUMN gap_since_s BIGINT;
ALTER TABLE relay_mark ADD COLUMN gap_until_s BIGINT;

-- Announcements have a part of the archive of their own. How much of it they are, what is pinned aside; and up to where
-- they were looked at for those that are of no use, in the order in which they first came.
ALTER TABLE nostr_archive ADD COLUMN announced_events BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nostr_archive ADD COLUMN announced_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nostr_archive ADD COLUMN looked_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nostr_archive ADD COLUMN looked_seq BIGINT NOT NULL DEFAULT 0;
UPDATE nostr_archive SET
    announced_events = (SELECT count(*) FROM nostr_event WHERE kind = 31990 AND pinned = 0),
    announced_bytes = (SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM nostr_event WHERE kind = 31990 AND pinned = 0);
CREATE INDEX nostr_event_announced ON nostr_event (first_ms, seq) WHERE kind = 31990 AND pinned = 0;

-- Whose announcements and lists of relays no flood pushes out.
CREATE TABLE nostr_known_key (
    pubkey TEXT PRIMARY KEY
) WITHOUT ROWID;
