-- What the receipts add up to, counted when one is kept, so that nobody has to read all of them. `other` is the provider
-- of a receipt that we gave and the buyer of one that we took; empty, it is all of them together.
CREATE TABLE market_total (
    other     TEXT   NOT NULL,
    direction TEXT   NOT NULL CHECK (direction IN ('given', 'taken')),
    status    TEXT   NOT NULL,
    asset_id  TEXT   NOT NULL,
    receipts  BIGINT NOT NULL CHECK (receipts > 0),
    units     BIGINT NOT NULL,
    PRIMARY KEY (other, direction, status, asset_id)
);
INSERT INTO market_total (other, direction, status, asset_id, receipts, units)
    SELECT '', direction, status, asset_id, count(*), CAST(sum(units) AS BIGINT)
    FROM market_receipt GROUP BY direction, status, asset_id;
INSERT INTO market_total (other, direction, status, asset_id, receipts, units)
    SELECT provider, direction, status, asset_id, count(*), CAST(sum(units) AS BIGINT)
    FROM market_receipt WHERE direction = 'given' GROUP BY provider, direction, status, asset_id;
INSERT INTO market_total (other, direction, status, asset_id, receipts, units)
    SELECT buyer, direction, status, asset_id, count(*), CAST(sum(units) AS BIGINT)
    FROM market_receipt WHERE direction = 'taken' GROUP BY buyer, direction, status, asset_id;
