//! The codes: what can be wrong with a dossier, and why there is none.

guild_protocol::codes! {
    UNKNOWN = "dossier.unknown", NotFound,
        "This node has bought nothing under that id.",
        "Give the id of a request, an order or a delegation of this node; `guild requests ls` lists them.";
    OPEN = "dossier.open", Conflict,
        "The work is not over, so there is nothing final to show.", "Wait until it is settled.";
    PRIVATE = "dossier.private", Denied,
        "The work is private, and its evidence shows what was asked and answered.",
        "Add --reveal-private if whoever gets it may read it.";
    EXPORT = "dossier.too_large", Invalid,
        "The evidence of this work is larger than a dossier may be.",
        "Ask for a part of it: one order instead of a delegation.";
    MANIFEST = "dossier.manifest", Invalid,
        "evidence.json cannot be read, contradicts itself, or names what does not belong to the work.",
        "Do not trust the directory: ask for it again.";
    MISSING = "dossier.missing", Invalid,
        "Something is not there that is named by what is.",
        "Do not trust what is left: ask for the whole directory.";
    CHANGED = "dossier.changed", Invalid,
        "A file has other bytes than evidence.json says.",
        "Do not trust the file: ask for the directory again.";
    TOO_LARGE = "dossier.file_too_large", Invalid,
        "A file is longer than the files of a dossier are, and was not read.",
        "Ask for the directory again; what the program writes is within its own limits.";
    NOT_PLAIN = "dossier.file_not_plain", Invalid,
        "A link or a device stands where a file should, and was not followed.",
        "Copy the directory with what the links point to, if you trust where they point.";
    EVENT = "dossier.event", Invalid,
        "An event does not have its id, or was not signed by its author.",
        "Do not trust the event: somebody made it up or changed it.";
    REQUEST = "dossier.request", Invalid,
        "The request is not one of the buyer, or is not of this work.",
        "Do not trust the directory: the work was asked for by somebody else, or never.";
    INPUT = "dossier.input", Invalid,
        "What was asked for does not have the hash that the request names.",
        "Do not trust the input: it is that of other work.";
    RESULT = "dossier.result", Invalid,
        "A result is not that of the provider who was asked, or does not answer this request.",
        "Do not trust the result: somebody else made it, or it is of other work.";
    FEEDBACK = "dossier.feedback", Invalid,
        "What was said meanwhile is not about this request, or not by one of the two.",
        "Ignore it.";
    OUTPUT = "dossier.output", Invalid,
        "The verdict is about other bytes than those that were delivered.",
        "Do not trust the verdict: it is about something else.";
    VERDICT = "dossier.verdict", Invalid,
        "A verdict cannot be read, contradicts itself, or is not about this work.",
        "Do not trust the verdict.";
    VERDICT_HASH = "dossier.verdict_hash", Invalid,
        "The receipt was signed for another verdict.",
        "Do not trust the verdict: the buyer has signed for another one.";
    STATUS = "dossier.status", Invalid,
        "Verdict, receipt and what became of the order do not say the same.",
        "Ask the buyer: one of them is of something else.";
    RERUN = "dossier.rerun", Invalid,
        "Judged again, the result is worth something else.",
        "Do not trust the verdict: whoever has job and result comes to another one.";
    VOTES = "dossier.votes", Invalid,
        "The votes of a delegation are not all there, or are not what the results say.",
        "Do not trust the decision: results were left out, added or counted for another answer.";
    WINNER = "dossier.winner", Invalid,
        "The answer that counts does not follow from the votes.",
        "Do not trust the decision: by the documented rule there is another one, or none.";
    RECEIPT = "dossier.receipt", Invalid,
        "A receipt does not hold, or there is none although something was due.",
        "`guild receipts verify` says all that is wrong with it.";
    RECEIPT_OTHER = "dossier.receipt_other", Invalid,
        "The receipt is about other work, another provider or another buyer.",
        "Do not trust the receipt: it proves something else.";
    AMOUNT = "dossier.amount", Invalid,
        "What was paid is not what was bid and asked for, or is more than the budget.",
        "Ask the buyer: what it has signed contradicts what it offered.";
    PAYMENT = "dossier.payment", Invalid,
        "The transfer that the receipt names is not there, is of another amount, or went elsewhere.",
        "Do not trust the receipt: the ledger says what was paid.";
    LEDGER = "dossier.ledger", Invalid,
        "The commit of the ledger does not lead to the head that the receipt names.",
        "Do not trust the slice: it is of another history.";
    REPLAY = "dossier.replay", Invalid,
        "The replay does not hold, or the receipt does not sign for it.",
        "`guild replay verify --receipt` says all that is wrong with it.";
    REPLAY_OTHER = "dossier.replay_other", Invalid,
        "The replay tells of other work, another result, verdict or payment.",
        "Do not trust the replay.";
    REVIEW = "dossier.review", Invalid,
        "A review is not by the buyer, or cites what is not in these files or not so.",
        "Do not trust the review: what it rests on is something else.";
    COMMITMENT = "dossier.commitment", Invalid,
        "The tests that were revealed are not those that the request committed to.",
        "Do not trust the judgement: the tests were chosen afterwards.";
}
