-- How far each role has read the archive of events. Written with or after what was done about them, never before.
CREATE TABLE role_cursor (
    name TEXT   PRIMARY KEY,
    seq  BIGINT NOT NULL
);
