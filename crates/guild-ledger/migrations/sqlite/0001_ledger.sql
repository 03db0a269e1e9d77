-- Who holds what. The counters are redundant: the audit recomputes them from the transfers.
CREATE TABLE ledger_account (
    account_id      TEXT   PRIMARY KEY,
    owner           TEXT   NOT NULL,
    purpose         TEXT   NOT NULL,
    asset_id        TEXT   NOT NULL,
    balance_limit   TEXT   NOT NULL CHECK (balance_limit IN ('never_negative', 'never_positive', 'none')),
    debits_posted   BIGINT NOT NULL DEFAULT 0 CHECK (debits_posted >= 0),
    credits_posted  BIGINT NOT NULL DEFAULT 0 CHECK (credits_posted >= 0),
    debits_pending  BIGINT NOT NULL DEFAULT 0 CHECK (debits_pending >= 0),
    credits_pending BIGINT NOT NULL DEFAULT 0 CHECK (credits_pending >= 0),
    opened_ms       BIGINT NOT NULL,
    UNIQUE (owner, purpose, asset_id),
    CHECK (balance_limit <> 'never_negative' OR debits_posted + debits_pending <= credits_posted),
    CHECK (balance_limit <> 'never_positive' OR credits_posted + credits_pending <= debits_posted)
);

-- What was booked. Rows are only added.
CREATE TABLE ledger_transfer (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    transfer_id TEXT   NOT NULL UNIQUE,
    step        TEXT   NOT NULL CHECK (step IN ('post', 'hold', 'settle', 'void', 'expire')),
    debit       TEXT   NOT NULL REFERENCES ledger_account (account_id),
    credit      TEXT   NOT NULL REFERENCES ledger_account (account_id),
    asset_id    TEXT   NOT NULL,
    units       BIGINT NOT NULL CHECK (units > 0),
    hold_id     TEXT   UNIQUE REFERENCES ledger_transfer (transfer_id),
    expires_ms  BIGINT,
    memo        TEXT   NOT NULL,
    at_ms       BIGINT NOT NULL,
    CHECK (debit <> credit),
    CHECK ((step = 'hold') = (expires_ms IS NOT NULL)),
    CHECK ((step IN ('settle', 'void', 'expire')) = (hold_id IS NOT NULL))
);
CREATE INDEX ledger_transfer_debit ON ledger_transfer (debit, seq);
CREATE INDEX ledger_transfer_credit ON ledger_transfer (credit, seq);
CREATE INDEX ledger_hold_expiry ON ledger_transfer (expires_ms) WHERE step = 'hold';

CREATE TRIGGER ledger_transfer_is_final BEFORE UPDATE ON ledger_transfer
BEGIN SELECT RAISE (ABORT, 'a transfer is never changed'); END;
CREATE TRIGGER ledger_transfer_stays BEFORE DELETE ON ledger_transfer
BEGIN SELECT RAISE (ABORT, 'a transfer is never deleted'); END;

-- The reserve that an account must keep.
CREATE TABLE ledger_gate (
    account_id    TEXT   PRIMARY KEY REFERENCES ledger_account (account_id),
    reserve_units BIGINT NOT NULL CHECK (reserve_units >= 0),
    lets_through  TEXT   NOT NULL
);

-- After each commit of transfers: a hash over everything booked so far.
CREATE TABLE ledger_head (
    last_seq BIGINT PRIMARY KEY,
    hash     TEXT   NOT NULL
);
