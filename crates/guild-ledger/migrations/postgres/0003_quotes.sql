-- The policies by which quotes were decided, as canonical JSON: what a receipt's policy_bundle_id names.
CREATE TABLE ledger_policy_bundle (
    policy_bundle_id TEXT   PRIMARY KEY,
    document         TEXT   NOT NULL,
    first_used_ms    BIGINT NOT NULL
);

-- Payments that are decided first. The document and its hash are what a guardian signs.
CREATE TABLE ledger_quote (
    quote_id         TEXT   PRIMARY KEY,
    document         TEXT   NOT NULL,
    quote_hash       TEXT   NOT NULL,
    policy_bundle_id TEXT   NOT NULL REFERENCES ledger_policy_bundle (policy_bundle_id),
    expires_ms       BIGINT NOT NULL,
    state            TEXT   NOT NULL CHECK (state IN ('quoted', 'approved', 'denied', 'reserved', 'expired')),
    changed_ms       BIGINT NOT NULL,
    approval         TEXT,
    transfer_id      TEXT   UNIQUE,
    CHECK ((state = 'reserved') = (transfer_id IS NOT NULL))
);
CREATE INDEX ledger_quote_due ON ledger_quote (expires_ms) WHERE state IN ('quoted', 'approved');

CREATE FUNCTION ledger_quote_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '%', TG_ARGV[0]; END $$;
CREATE TRIGGER ledger_quote_is_fixed
BEFORE UPDATE OF quote_id, document, quote_hash, policy_bundle_id, expires_ms ON ledger_quote
FOR EACH ROW EXECUTE FUNCTION ledger_quote_refuse('the terms of a quote are never changed');
CREATE TRIGGER ledger_quote_stays_closed BEFORE UPDATE ON ledger_quote
FOR EACH ROW WHEN (OLD.state IN ('denied', 'reserved', 'expired'))
EXECUTE FUNCTION ledger_quote_refuse('a closed quote is never changed');
CREATE TRIGGER ledger_quote_stays BEFORE DELETE ON ledger_quote
FOR EACH ROW EXECUTE FUNCTION ledger_quote_refuse('a quote is never deleted');
CREATE TRIGGER ledger_policy_bundle_is_fixed BEFORE UPDATE ON ledger_policy_bundle
FOR EACH ROW EXECUTE FUNCTION ledger_quote_refuse('a policy bundle is never changed');
CREATE TRIGGER ledger_policy_bundle_stays BEFORE DELETE ON ledger_policy_bundle
FOR EACH ROW EXECUTE FUNCTION ledger_quote_refuse('a policy bundle is never deleted');
