-- The one row that says how much is kept, and which numbers were given: a number is never given twice.
CREATE TABLE nostr_archive (
    one           BIGINT PRIMARY KEY CHECK (one = 1),
    last_seq      BIGINT NOT NULL,
    events        BIGINT NOT NULL,
    bytes         BIGINT NOT NULL,
    deletions     BIGINT NOT NULL,
    -- Of these events and bytes; they count towards no bound.
    pinned_events BIGINT NOT NULL,
    pinned_bytes  BIGINT NOT NULL,
    -- Up to here only pinned events are left.
    swept_seq     BIGINT NOT NULL
);
INSERT INTO nostr_archive (one, last_seq, events, bytes, deletions, pinned_events, pinned_bytes, swept_seq)
    VALUES (1, 0, 0, 0, 0, 0, 0, 0);

-- Every event that is kept. What its canonical JSON has once a row has once: it is put together again from content (as
-- JSON), created_at, event_id, kind, pubkey and rest, which begins with the signature. id_key and address_key are the
-- first eight bytes of event_id and address, so that an index entry is a number; whoever looks up by one compares the
-- whole.
CREATE TABLE nostr_event (
    seq         INTEGER PRIMARY KEY,
    id_key      BIGINT NOT NULL,
    event_id    TEXT   NOT NULL,
    pubkey      TEXT   NOT NULL,
    kind        BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    address_key BIGINT,
    address     TEXT,
    expires_at  BIGINT,
    pinned      BIGINT NOT NULL,
    hidden      BIGINT NOT NULL,
    origin      TEXT   NOT NULL,
    first_ms    BIGINT NOT NULL,
    received_ms BIGINT NOT NULL,
    bytes       BIGINT NOT NULL,
    content     TEXT   NOT NULL,
    rest        TEXT   NOT NULL
);
CREATE INDEX nostr_event_by_id ON nostr_event (id_key);
CREATE INDEX nostr_event_by_address ON nostr_event (address_key) WHERE address_key IS NOT NULL;
CREATE INDEX nostr_event_expiring ON nostr_event (expires_at) WHERE expires_at IS NOT NULL;

-- What an event can be found by: everything, its kind, its author and each of its one-letter tags. A row for each, in
-- the order in which events are answered. The upper 48 bits of the term of an author or a tag are of its hash, the lower
-- 16 are the kind of the event: what has the author or the tag stands together, by kinds. The upper 36 bits of a place
-- are the negated created_at, the lower 28 the first of the event's id: newest first, then lowest id.
CREATE TABLE nostr_term (
    term  BIGINT NOT NULL,
    place BIGINT NOT NULL,
    seq   BIGINT NOT NULL,
    PRIMARY KEY (term, place, seq)
) WITHOUT ROWID;

-- What its author wants deleted: an event by its id, or all versions at an address up to a time. The key finds the
-- latest wish of one author about one target, however many others have wishes about it.
CREATE TABLE nostr_deletion (
    target_key BIGINT NOT NULL,
    target     TEXT   NOT NULL,
    pubkey     TEXT   NOT NULL,
    until_s    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    PRIMARY KEY (target_key, target, pubkey, until_s, seq)
) WITHOUT ROWID;
CREATE INDEX nostr_deletion_by_seq ON nostr_deletion (seq);
