-- What is kept of content: one row. The phase of the collection of garbage is idle, mark or sweep.
CREATE TABLE content_head (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    blocks BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    round BIGINT NOT NULL,
    phase TEXT NOT NULL,
    sweep_after TEXT NOT NULL,
    removed BIGINT NOT NULL,
    removed_bytes BIGINT NOT NULL
);
INSERT INTO content_head (one, blocks, bytes, seq, round, phase, sweep_after, removed, removed_bytes)
VALUES (1, 0, 0, 0, 0, 'idle', '', 0, 0);

-- Every block, by the SHA-256 of its bytes. What changes often stands here, the bytes apart: they never change.
-- walked is twice the round in which its links were followed, and one more if it was for a pin.
CREATE TABLE content_block (
    digest TEXT NOT NULL PRIMARY KEY,
    bytes BIGINT NOT NULL,
    links BIGINT NOT NULL,
    marked BIGINT NOT NULL,
    walked BIGINT NOT NULL,
    touched_seq BIGINT NOT NULL,
    touched_ms BIGINT NOT NULL
) WITHOUT ROWID;
CREATE TABLE content_bytes (
    digest TEXT NOT NULL PRIMARY KEY,
    data BLOB NOT NULL
);

-- Roots that are kept with everything below them, for somebody and a reason.
CREATE TABLE content_pin (
    digest TEXT NOT NULL,
    is_node BIGINT NOT NULL,
    owner TEXT NOT NULL,
    reason TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (digest, is_node, owner)
) WITHOUT ROWID;

-- Who adds content now: what was touched since start_seq is not garbage until the session ends or expires.
CREATE TABLE content_session (
    session_id TEXT NOT NULL PRIMARY KEY,
    start_seq BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL
) WITHOUT ROWID;

-- Nodes that are needed and whose links are still to be followed in this round; pinned, if a pin is why.
CREATE TABLE content_grey (
    digest TEXT NOT NULL PRIMARY KEY,
    pinned BIGINT NOT NULL
) WITHOUT ROWID;

-- Blocks whose bytes were not those of their name, as they were found.
CREATE TABLE content_aside (
    digest TEXT NOT NULL PRIMARY KEY,
    data BLOB NOT NULL,
    times BIGINT NOT NULL,
    at_ms BIGINT NOT NULL
);
