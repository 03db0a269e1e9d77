//! The codes of the problems, one for each rule.

guild_protocol::codes! {
    FORM = "evidence.form", Invalid,
        "A line of the ledger is not a record in canonical JSON, with exactly its fields.",
        "Do not trust the file: export the ledger again, and find out who changed this one.";
    VERSION = "evidence.version", Invalid,
        "The ledger has a schema_version that this program does not know.",
        "Use a newer program, or export the ledger as guild.ledger_export.v1.";
    ORDER = "evidence.order", Invalid,
        "A line stands where no such line may stand.",
        "Do not trust the file: export the ledger again.";
    CUT = "evidence.cut", Invalid,
        "The ledger has no end line, so nobody knows what is missing.",
        "Export the ledger again; an export that was interrupted is no evidence.";
    TRAILING = "evidence.trailing", Invalid,
        "There are lines behind the end line.",
        "Do not trust the file: something was added to it.";
    END = "evidence.end", Invalid,
        "The end line does not name the last head and the last record.",
        "Do not trust the file: records were removed or added.";
    GAP = "evidence.gap", Invalid,
        "The numbers of the records are not 1, 2, 3 and so on.",
        "Do not trust the file: records were removed, added or put into another order.";
    ID = "evidence.id", Invalid,
        "An id does not have its form.",
        "Do not trust the record: ids are acct_ and 64, or xfer_ and 32 lower-case hex digits.";
    ACCOUNT_ID = "evidence.account_id", Invalid,
        "The id of an account is not the hash of its owner, purpose and asset.",
        "Do not trust the account: it goes under another's name.";
    REOPENED = "evidence.reopened", Invalid,
        "An account is opened twice.", "Look for a writer that does not see what is there.";
    DOUBLED = "evidence.doubled", Invalid,
        "A transfer is booked twice.", "Look for a retry that is not recognised as one.";
    AMOUNT = "evidence.amount", Invalid,
        "An amount is below its least value or does not fit into 64 bits.",
        "Look for a writer that does not check amounts.";
    UNKNOWN_ACCOUNT = "evidence.unknown_account", Invalid,
        "A record names an account that is not opened before it.",
        "Look for a lost or reordered record.";
    SAME_ACCOUNT = "evidence.same_account", Invalid,
        "A transfer has one account on both sides.", "Look for a writer that does not compare them.";
    ASSET = "evidence.asset", Invalid,
        "A transfer goes from one asset to another.", "Look for a writer that does not compare them.";
    OVERDRAFT = "evidence.overdraft", Invalid,
        "An account that may never be negative is.",
        "Look for two decisions that used the same money.";
    ABOVE_ZERO = "evidence.above_zero", Invalid,
        "An account that may never be positive is.",
        "Look for two decisions that paid the same debt.";
    GATE = "evidence.gate", Invalid,
        "A transfer took an account below the reserve that its gate kept at that point.",
        "Look for a path out that does not ask the gate.";
    CREDIT = "evidence.credit", Invalid,
        "An account owes more than the credit it had at that point.",
        "Look for a path out that does not ask for the credit limit.";
    OVERFLOW = "evidence.overflow", Invalid,
        "A counter of an account no longer fits into 64 bits.",
        "Look for a writer that does not check sums.";
    UNKNOWN_HOLD = "evidence.unknown_hold", Invalid,
        "A record closes a hold that is not made before it.", "Look for a lost or reordered record.";
    HOLD_CLOSED = "evidence.hold_closed", Invalid,
        "A hold is closed twice.", "Look for two decisions about the same hold.";
    HELD = "evidence.held", Invalid,
        "A record settles more than is held, or gives back another amount than was held.",
        "Look for a writer that does not compare with the hold.";
    SIDES = "evidence.sides", Invalid,
        "A record closes a hold between other accounts than those of the hold.",
        "Look for a writer that does not take the accounts from the hold.";
    EXPIRY = "evidence.expiry", Invalid,
        "A hold is made or settled after it ran out, or expires before.",
        "Look for a clock that differs between writers, or a check that is missing.";
    HEAD = "evidence.head", Invalid,
        "A head is not the hash of the records it covers, or records have no head.",
        "Do not trust the file: a record before this head was changed after it was booked.";
    SUM = "evidence.sum", Invalid,
        "The balances of all accounts of an asset do not add up to zero.",
        "Look for a balance that was written without its counterpart.";
    BALANCE = "evidence.balance", Invalid,
        "The balance of an account is missing, or is not what its transfers make.",
        "Look for a balance that was written without its transfer.";
    CALL = "evidence.call", Invalid,
        "A line of the calls is not a call or an answer.", "Correct the program that writes the calls.";
    ANSWER = "evidence.answer", Invalid,
        "The calls hold an answer to something that was never asked.",
        "Write each call down before it is made.";
    LOST = "evidence.lost", Invalid,
        "A caller was told that a transfer is booked, and the ledger does not hold it.",
        "Look for an answer that is given before the commit.";
    UNASKED = "evidence.unasked", Invalid,
        "The ledger holds a transfer that nobody asked for.",
        "Look for a writer that makes up transfers, or a caller that does not write its calls down.";
    CONTENT = "evidence.content", Invalid,
        "A transfer is booked with other content than was asked for.",
        "Look for a writer that mixes transfers up.";
    REFUSED = "evidence.refused", Invalid,
        "The ledger holds a transfer that was refused each time it was asked for.",
        "Look for a refusal that leaves something behind.";
    RECEIPT = "evidence.receipt", Invalid,
        "A receipt does not hold.", "`guild receipts verify` says all that is wrong with it.";
    RECEIPT_TRANSFER = "evidence.receipt_transfer", Invalid,
        "A receipt names a transfer that the ledger does not hold.",
        "Do not trust the receipt: the payment it states is not in the book.";
    RECEIPT_AMOUNT = "evidence.receipt_amount", Invalid,
        "A receipt states another amount than its transfer.",
        "Do not trust the receipt: the book says what was paid.";
    RECEIPT_STEP = "evidence.receipt_step", Invalid,
        "A receipt states a payment and names a transfer that moved nothing, or the other way round.",
        "Do not trust the receipt: the book says what became of the money.";
    RECEIPT_PAYEE = "evidence.receipt_payee", Invalid,
        "A receipt of the node itself states a payment and names a transfer that is not owed to its provider.",
        "Do not trust the receipt: the money went elsewhere.";
    RECEIPT_DOUBLED = "evidence.receipt_doubled", Invalid,
        "Two receipts state one transfer as their payment.",
        "Do not trust the later receipt: the money moved once.";
    RECEIPT_HEAD = "evidence.receipt_head", Invalid,
        "A receipt names a head that the ledger never had, or had before the transfer.",
        "Do not trust the receipt: it belongs to another history.";
    KEYS = "evidence.keys", Invalid,
        "The keys of a node cannot be read or, of several nodes, are missing or those of another, too.",
        "Export the evidence again, with keys.json; give each node keys of its own.";
    DEBT_MISSING = "evidence.debt_missing", Invalid,
        "A node has paid another in its own book, and the other has not booked the debt, or was given no receipt.",
        "Look for a receipt that was not signed, not delivered or not taken.";
    DEBT_UNPAID = "evidence.debt_unpaid", Invalid,
        "A receipt or a debt of one node has no payment in the book of the other.",
        "Do not trust the receipt: the buyer's book does not answer for it.";
    DEBT_AMOUNT = "evidence.debt_amount", Invalid,
        "A receipt, the payment and the debt are not about the same amount between the same two.",
        "Look for a node that does not take the amount from the receipt.";
    DEBT_DOUBLED = "evidence.debt_doubled", Invalid,
        "One payment is booked as owed twice.",
        "Look for a node that does not recognise what it has booked.";
    DEBT_UNPROVEN = "evidence.debt_unproven", Invalid,
        "A debt is booked by a receipt that nobody shows, or that does not hold.",
        "Do not trust the debt: ask for the receipt.";
    DEBT_BALANCE = "evidence.debt_balance", Invalid,
        "What one node owes another is not what the other is owed by it.",
        "Look for what was paid on one side only.";
    EVENT = "evidence.event", Invalid,
        "A line of the events is not an object with a number, or the numbers do not rise.",
        "Export the events again.";
}
