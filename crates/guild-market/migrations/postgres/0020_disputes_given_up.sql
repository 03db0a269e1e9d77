-- How often it was tried to let the money follow, and what it waits for. It is not tried for ever: what was given up
-- says why.
ALTER TABLE market_dispute ADD COLUMN tries BIGINT NOT NULL DEFAULT 0;
ALTER TABLE market_dispute ADD COLUMN waits_for TEXT
    CHECK (waits_for IS NULL OR waits_for IN ('wallet', 'envelope', 'receipt', 'repair'));
ALTER TABLE market_dispute ADD COLUMN given_up BIGINT NOT NULL DEFAULT 0 CHECK (given_up IN (0, 1));
