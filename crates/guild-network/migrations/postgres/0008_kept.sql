-- What is missing between low_s and until_s: both ends included, or neither is there.
ALTER TABLE relay_mark ADD COLUMN gap_since_s BIGINT;
ALTER TABLE relay_mark ADD COLUMN gap_until_s BIGINT;
