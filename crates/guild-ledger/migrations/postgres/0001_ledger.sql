-- The ledger's first form was never made on PostgreSQL; 0002_history makes its present one.
SELECT 1;
