-- Who may do a thing that only one may do at a time. A row is never deleted: its epoch must never be given again.
CREATE TABLE lease (
    name     TEXT COLLATE "C"   NOT NULL PRIMARY KEY,
    holder   TEXT,
    token    TEXT,
    epoch    BIGINT NOT NULL CHECK (epoch >= 1),
    until_ms BIGINT NOT NULL,
    CHECK ((token IS NULL) = (holder IS NULL))
);

-- What a receipt needs is never forgotten: the database itself refuses to delete an event that is pinned.
CREATE TABLE event_pin (
    topic     TEXT COLLATE "C" NOT NULL,
    id        TEXT COLLATE "C" NOT NULL,
    pinned_by TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, id, pinned_by),
    FOREIGN KEY (topic, id) REFERENCES event (topic, id)
);

-- Up to which number events of a topic have been forgotten. A gap behind the last of them is a loss.
CREATE TABLE event_forgotten (
    topic     TEXT COLLATE "C"   NOT NULL PRIMARY KEY,
    up_to_seq BIGINT NOT NULL
);
