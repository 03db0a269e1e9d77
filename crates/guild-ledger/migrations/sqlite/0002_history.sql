-- One history with one gap-free counter: accounts, rules and transfers. The first form of these tables was never
-- written to; if it was, this stops here and changes nothing.
CREATE TEMP TABLE ledger_was_empty (n BIGINT NOT NULL CHECK (n = 0));
INSERT INTO ledger_was_empty SELECT count(*) FROM ledger_transfer;
INSERT INTO ledger_was_empty SELECT count(*) FROM ledger_account;
DROP TABLE ledger_was_empty;
DROP TABLE ledger_gate;
DROP TABLE ledger_transfer;
DROP TABLE ledger_account;
DROP TABLE ledger_head;

-- Who holds what. The counters, last_seq and the rule are redundant: the audit recomputes them from the history.
CREATE TABLE ledger_account (
    account_no      INTEGER PRIMARY KEY,
    account_id      TEXT   NOT NULL UNIQUE,
    owner           TEXT   NOT NULL,
    purpose         TEXT   NOT NULL,
    asset_id        TEXT   NOT NULL,
    balance_limit   TEXT   NOT NULL CHECK (balance_limit IN ('never_negative', 'never_positive', 'none')),
    debits_posted   BIGINT NOT NULL DEFAULT 0 CHECK (debits_posted >= 0),
    credits_posted  BIGINT NOT NULL DEFAULT 0 CHECK (credits_posted >= 0),
    debits_pending  BIGINT NOT NULL DEFAULT 0 CHECK (debits_pending >= 0),
    credits_pending BIGINT NOT NULL DEFAULT 0 CHECK (credits_pending >= 0),
    -- The newest transfer that touched it; 0 if none did.
    last_seq        BIGINT NOT NULL DEFAULT 0 CHECK (last_seq >= 0),
    opened_seq      BIGINT NOT NULL UNIQUE CHECK (opened_seq > 0),
    opened_ms       BIGINT NOT NULL,
    -- The present rule.
    reserve_units   BIGINT CHECK (reserve_units >= 0),
    lets_through    TEXT,
    credit_units    BIGINT CHECK (credit_units >= 0),
    UNIQUE (owner, purpose, asset_id),
    CHECK ((reserve_units IS NULL) = (lets_through IS NULL)),
    -- Written as differences: a sum of two counters may not fit.
    CHECK (balance_limit <> 'never_negative' OR debits_pending <= credits_posted - debits_posted),
    CHECK (balance_limit <> 'never_positive' OR credits_pending <= debits_posted - credits_posted)
);

-- What was booked. Rows are only added. Accounts and holds are named by number: 8 bytes, not 69. There is no index on
-- accounts: a statement walks from an account's last_seq backwards, from prev_seq to prev_seq. There is no foreign
-- key: its check would cost more than the row; the audit checks the same.
CREATE TABLE ledger_transfer (
    seq             INTEGER PRIMARY KEY,
    transfer_id     TEXT   NOT NULL UNIQUE,
    step            TEXT   NOT NULL,
    debit_no        BIGINT NOT NULL,
    credit_no       BIGINT NOT NULL,
    units           BIGINT NOT NULL CHECK (units > 0),
    hold_seq        BIGINT CHECK (hold_seq < seq),
    expires_ms      BIGINT,
    memo            TEXT   NOT NULL,
    at_ms           BIGINT NOT NULL,
    debit_prev_seq  BIGINT NOT NULL CHECK (debit_prev_seq >= 0 AND debit_prev_seq < seq),
    credit_prev_seq BIGINT NOT NULL CHECK (credit_prev_seq >= 0 AND credit_prev_seq < seq),
    CHECK (debit_no <> credit_no),
    -- Written without IN: SQLite would make a table of each list, for every row.
    CHECK ((step = 'hold') = (expires_ms IS NOT NULL)),
    CHECK (step = 'post' OR step = 'hold' OR step = 'settle' OR step = 'void' OR step = 'expire'),
    CHECK ((step = 'post' OR step = 'hold') = (hold_seq IS NULL))
);

-- Which holds are open, and which transfer closed the others.
CREATE TABLE ledger_hold (
    seq        INTEGER PRIMARY KEY,
    expires_ms BIGINT NOT NULL,
    closed_by  BIGINT CHECK (closed_by > seq)
);
CREATE INDEX ledger_hold_due ON ledger_hold (expires_ms) WHERE closed_by IS NULL;

-- Every rule ever set; each is the whole rule of its account from its number on.
CREATE TABLE ledger_rule (
    seq           INTEGER PRIMARY KEY,
    account_no    BIGINT NOT NULL REFERENCES ledger_account (account_no),
    reserve_units BIGINT CHECK (reserve_units >= 0),
    lets_through  TEXT,
    credit_units  BIGINT CHECK (credit_units >= 0),
    at_ms         BIGINT NOT NULL,
    CHECK ((reserve_units IS NULL) = (lets_through IS NULL))
);

-- After each commit: a hash over the whole history so far.
CREATE TABLE ledger_head (
    last_seq INTEGER PRIMARY KEY,
    hash     TEXT   NOT NULL
);

CREATE TRIGGER ledger_transfer_is_final BEFORE UPDATE ON ledger_transfer
BEGIN SELECT RAISE (ABORT, 'the history is never changed'); END;
CREATE TRIGGER ledger_transfer_stays BEFORE DELETE ON ledger_transfer
BEGIN SELECT RAISE (ABORT, 'the history is never deleted'); END;

CREATE TRIGGER ledger_rule_is_final BEFORE UPDATE ON ledger_rule
BEGIN SELECT RAISE (ABORT, 'the history is never changed'); END;
CREATE TRIGGER ledger_rule_stays BEFORE DELETE ON ledger_rule
BEGIN SELECT RAISE (ABORT, 'the history is never deleted'); END;

CREATE TRIGGER ledger_head_is_final BEFORE UPDATE ON ledger_head
BEGIN SELECT RAISE (ABORT, 'the history is never changed'); END;
CREATE TRIGGER ledger_head_stays BEFORE DELETE ON ledger_head
BEGIN SELECT RAISE (ABORT, 'the history is never deleted'); END;
