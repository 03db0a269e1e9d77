-- Who works on a job, and who judges an order: several processes may share these rows. A claim is a random token, an end
-- and an epoch that grows with every claim; its holder's writes name token and epoch. Without a token, or past its end, it
-- is free.
ALTER TABLE market_job ADD COLUMN claim_token TEXT;
ALTER TABLE market_job ADD COLUMN claim_until_ms BIGINT;
ALTER TABLE market_job ADD COLUMN claim_epoch BIGINT NOT NULL DEFAULT 0;
ALTER TABLE market_order ADD COLUMN claim_token TEXT;
ALTER TABLE market_order ADD COLUMN claim_until_ms BIGINT;
ALTER TABLE market_order ADD COLUMN claim_epoch BIGINT NOT NULL DEFAULT 0;
