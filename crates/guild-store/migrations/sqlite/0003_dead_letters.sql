-- Whether a dead letter was refused by its sink itself. One that was only given up is tried again when its way is open.
ALTER TABLE outbox ADD COLUMN refused BIGINT NOT NULL DEFAULT 0 CHECK (refused IN (0, 1));
CREATE INDEX outbox_given_up ON outbox (sink, key, seq) WHERE state = 'dead' AND refused = 0;
