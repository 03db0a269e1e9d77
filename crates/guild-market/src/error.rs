//! The error of this crate.

use guild_protocol::error::{Code, Kind};

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        UNKNOWN_ORDER = "market.unknown_order", NotFound,
            "There is no such order.", "`guild requests ls` lists those that exist.";
        ORDER_MALFORMED = "market.order_malformed", Invalid,
            "An order contradicts itself, its request, or the limits of orders.", "Correct what is named.";
        ORDER_CONFLICT = "market.order_conflict", Conflict,
            "An order with this key exists, for other work, another provider or another budget.",
            "Use a new key for a new order.";
        ORDER_CLOSED = "market.order_closed", Conflict,
            "The order has ended, or has not come so far.", "Read the order again.";
        PRICE = "market.price_above_budget", Conflict,
            "The provider asks for more than the budget of the order.",
            "Raise the budget, or choose another provider.";
        WALLET = "market.wallet_empty", Conflict,
            "The wallet of the node does not hold the budget of the order.",
            "Fund it with the command named, or order with a smaller budget.";
        BUDGET_ENVELOPE = "budget.envelope_empty", Conflict,
            "The envelope of this kind of work has not so much left, and others cannot lend it.",
            "Wait until the moment that is named, order for less, or raise the limit with `guild budget set`.";
        BUDGET_MALFORMED = "budget.malformed", Invalid,
            "An envelope cannot be set like this.", "Correct what is named.";
        UNVERIFIABLE = "market.unverifiable", Invalid,
            "Nobody here can check this work, so it is neither ordered nor paid.",
            "Order work that can be done again here: oa.embedding.v1 by the model guild-hash-v1, or \
             oa.sandbox_run.v1 with an image and limits that this node has.";
        OUTPUT_SHAPE = "market.output_shape", Invalid,
            "A result does not have the size that was ordered.", "Do not pay for it.";
        OUTPUT_TOO_LARGE = "market.output_too_large", Invalid,
            "The result of a request could be larger than an event can carry.",
            "Split the work, or ask for smaller results.";
        OUTPUT_DIFFERS = "market.output_differs", Invalid,
            "A result is not what the work gives when it is done again.", "Do not pay for it.";
        PROVENANCE = "market.provenance_wrong", Invalid,
            "A result says of itself what is not so: its provider, its job or its hash.", "Do not pay for it.";
        SCHEMA_NOT_SERVED = "market.schema_not_served", NotFound,
            "The provider does not do this kind of work.",
            "Choose a provider whose announcement names the schema.";
        INPUT_UNREACHABLE = "market.input_unreachable", Unavailable,
            "The input that a request refers to cannot be had here, or is not what it should be.",
            "Send it inside of the request, or name content that the provider's peers have.";
        INPUT_MISSING = "market.input_missing", Invalid,
            "A request carries no input that can be read here.",
            "Send the payload as JSON in an i tag of the type text.";
        INPUT_TOO_LARGE = "market.input_too_large", Invalid,
            "The input of a request is larger than the provider takes.", "Split the work.";
        JOB_HASH = "market.job_hash_wrong", Invalid,
            "The job hash of a request is not that of its input.", "Compute it from the schema and the payload.";
        BID = "market.bid_too_low", Conflict,
            "The bid of a request is below the price.", "Bid at least the price named.";
        OVER_CREDIT = "market.over_credit", Conflict,
            "The buyer owes, or has lately not paid, as much as the provider lends it.",
            "Pay what is owed. Work that was not paid stops counting after a while, by default a week.";
        BUSY = "market.busy", Unavailable,
            "The provider does as many jobs as it can at once.", "Ask again later, or choose another provider.";
        IMAGE = "market.image_unknown", NotFound,
            "The image that commands are to run in is not there.",
            "Name the digest of one that is: `guild sandbox images` lists those of this node.";
        NETWORK_REFUSED = "market.network_refused", Denied,
            "The commands of a job would reach others.", "Ask for the network policy none.";
        LIMITS_EXCEEDED = "market.limits_exceeded", Conflict,
            "A job asks for more memory, cores, time or disk than is given here.",
            "Ask for at most what the message names.";
        SOURCE_REFUSED = "market.source_refused", Denied,
            "A tree of files would have to be fetched from elsewhere.",
            "Send the tree with the request: `guild hire --tree DIR` does.";
        RUN_MALFORMED = "market.run_malformed", Invalid,
            "The commands, the tree or the environment of a job cannot be meant.", "Correct the field that is named.";
        UNKNOWN_JOB = "market.unknown_job", NotFound,
            "There is no such job.", "`guild requests ls` lists those that exist.";
        JOB_CLOSED = "market.job_closed", Conflict,
            "The job has ended, or has not come so far.", "Read the job again.";
        CLAIM_LOST = "market.claim_lost", Conflict,
            "Another process of this node has taken over this job or order.",
            "Nothing is to be done: the other process ends it. If it happens often, a process or the database stalls.";
        RECEIPT_MISMATCH = "market.receipt_mismatch", Invalid,
            "A receipt is not about this job: another buyer, another job or another asset.",
            "Ask the buyer for the receipt of this request.";
        DELEGATION_MALFORMED = "delegation.malformed", Invalid,
            "Work cannot be delegated like this.", "Correct what is named.";
        DELEGATION_UNKNOWN = "delegation.unknown", NotFound,
            "There is no such delegation.",
            "`guild requests ls` lists what was ordered; its page names its delegation.";
        DELEGATION_CONFLICT = "delegation.conflict", Conflict,
            "A delegation with this key exists, for other work, another criticality or another budget.",
            "Use a new key for a new delegation.";
        DELEGATION_CLOSED = "delegation.closed", Conflict,
            "The delegation has ended, or has results that are decided about.", "Read the delegation again.";
        DELEGATION_OPEN = "delegation.open", Conflict,
            "The delegation is not decided yet, so nothing of it is paid or withheld.", "Wait for its decision.";
        DELEGATION_PART = "delegation.part", Conflict,
            "The order is one of several of a delegation, and ends with it.", "Ask this of the delegation.";
        DELEGATION_TOO_FEW = "delegation.too_few", Conflict,
            "There are not as many operators for the work as its criticality asks for, within the budget of each.",
            "Raise the budget, lower the criticality, or take fewer: `--fewer-ok`.";
        DELEGATION_APPROVAL = "delegation.needs_approval", Denied,
            "The policy asks a guardian about an order of this size, and a delegation is ordered at once or not at \
             all.",
            "Delegate with a smaller budget, or have the policy let orders of this size through.";
        DELEGATION_DIFFERS = "delegation.differs", Invalid,
            "The result is not the answer that counts.", "Do not pay for it.";
        DELEGATION_NO_CONSENSUS = "delegation.no_consensus", Invalid,
            "Nobody agreed on an answer, so none is paid.", "Delegate again, to others or to more.";
        KNOWN_DIFFERS = "health.known_answer_differs", Invalid,
            "The result is not the answer that is known for this work.", "Do not pay for it.";
        ROUTE_TASK = "route.bad_task", Invalid,
            "The name of a task type is empty, too long, or has characters that cannot stand everywhere.",
            "Use the id of a schema, or a short word such as benchmark-task.";
        ROUTE_UNKNOWN = "route.unknown_entry", NotFound,
            "The routing matrix does not know this provider for this work, or nobody for it.",
            "Evaluate the provider first: an evaluation admits it.";
        ROUTE_CHANGE = "route.change_refused", Conflict,
            "A change of the routing matrix contradicts what an entry is or may become.",
            "Read the entry again. Whoever is blacklisted stays so.";
        ROUTE_BLACKLISTED = "route.blacklisted", Denied,
            "The provider has tried what is forbidden, so its key is neither met nor hired any more.",
            "Choose another provider.";
        ROUTE_CONFLICT = "route.change_conflict", Conflict,
            "A change of the routing matrix has the key of another one.", "Use a new key for a new change.";
        ROUTE_LOG = "route.log_broken", Corrupt,
            "The log of the routing matrix has a gap, or a row that is not what was written.",
            "Restore the database from a backup: `guild store check` looks at the rest of it.";
        ROUTE_SNAPSHOT = "route.snapshot_unusable", Corrupt,
            "A snapshot of the routing matrix is damaged, or of another log or version.",
            "Nothing is to be done: an older one, or the log, is used instead.";
        MEETING_MALFORMED = "meeting.malformed", Invalid,
            "A meeting cannot be asked for like this: its relays, its bid or its size is not right.",
            "Correct what is named.";
        MEETING_UNKNOWN = "meeting.unknown", NotFound,
            "There is no such meeting.", "Begin one with `guild providers meet`.";
        MEETING_COOLING = "meeting.cooling_down", Conflict,
            "The provider was met lately and did not pass, so it is not met again yet.",
            "Wait until the moment that is named, or meet another provider.";
        MEETING_CONFLICT = "meeting.conflict", Conflict,
            "A meeting with this key exists, with another provider or for other work.",
            "Use a new key for a new meeting.";
        MEETING_NO_BENCHMARK = "meeting.no_benchmark", Invalid,
            "No benchmark, or not the one that is named, says anything about this work.",
            "Name other work, or another benchmark: `guild benchmark ls` lists them.";
        BENCHMARK_NO_TESTS = "benchmark.no_tests", Invalid,
            "This benchmark has no tests for a program: its results are checked as their schema says.",
            "Meet a provider with it: `guild providers meet`.";
        REVIEW_UNKNOWN = "review.unknown", NotFound,
            "There is no such review.", "`guild reviews ls` lists those that exist.";
        REVIEW_EARLY = "review.not_due", Conflict,
            "A review is not published yet: it waits for later outcomes, so that one bad hour is not the last word.",
            "Wait until the moment that is named, or publish it with --now.";
        REVIEW_HELD = "review.held", Conflict,
            "A review is not published while what it is about is disputed.",
            "Resolve the dispute, or publish the review nevertheless with --now.";
        DISPUTE_UNKNOWN = "dispute.unknown", NotFound,
            "There is no such dispute.", "`guild disputes ls` lists those that exist.";
        DISPUTE_SUBJECT = "dispute.nothing_delivered", Conflict,
            "There is no result of this request that the two who are named could dispute about.",
            "Only who bought or delivered a result disputes it: `guild requests show` says who that is.";
        DISPUTE_MALFORMED = "dispute.malformed", Invalid,
            "A dispute cannot be filed, answered or decided like this.", "Correct what is named.";
        DISPUTE_CONFLICT = "dispute.conflict", Conflict,
            "About this request there is a dispute already, or there was one.",
            "Read it with `guild disputes show`; an open one can be answered.";
        DISPUTE_OPEN = "dispute.open", Conflict,
            "The result is disputed, so its money stays held.",
            "Wait until the dispute is decided, or give in with `guild disputes resolve`.";
        DISPUTE_OVER = "dispute.over", Conflict,
            "The dispute is decided, and stays so.", "Read it with `guild disputes show`.";
        DISPUTE_LIMIT = "dispute.too_many", Conflict,
            "Too many disputes of this counterparty, or of all, are open.",
            "Wait until one of them is decided.";
        DISPUTE_LATE = "dispute.too_late", Conflict,
            "The result was delivered too long ago to be disputed.", "Nothing can be done: it stays as it is.";
        DISPUTE_ARBITER = "dispute.arbiter_not_accepted", Denied,
            "Whoever decided is not an arbiter that this node has accepted for this dispute.",
            "Name accepted arbiters in the setting market.arbiters before the dispute begins.";
        DISPUTE_NOT_OURS = "dispute.not_ours_to_decide", Denied,
            "This node cannot decide the dispute like this: a party can only give in.",
            "The buyer may say release, the provider withhold, and the arbiter either.";
        DISPUTE_LOST = "dispute.decided_for_buyer", Invalid,
            "A dispute about the result was decided for the buyer.", "Do not pay for it.";
        DISPUTE_REFUND = "dispute.not_refundable", Conflict,
            "What was paid is not owed any more in this node's book, so nothing can be taken back there.",
            "Pay it back by the rail that it came by, and book that.";
        BENCHMARK_UNKNOWN = "benchmark.unknown", NotFound,
            "There is no such benchmark, or it has no such part.", "`guild benchmark ls` lists those that exist.";
        BENCHMARK_ANSWER = "benchmark.bad_answer", Invalid,
            "The answer to a benchmark holds no program that could be judged.",
            "Answer with a JSON object of files, among them solution.py.";
        JUDGE_SUITE = "judge.bad_suite", Invalid,
            "A suite of tests is not written as it must be, or contradicts itself.",
            "Correct the field named; docs/judge.md describes all of them.";
        JUDGE_SUBMISSION = "judge.bad_submission", Invalid,
            "A submission is missing, too large, lacks its entry, or holds what is no plain file.",
            "Name a directory of plain files, without links, that holds the entry of the suite.";
        JUDGE_SALT = "judge.bad_salt", Invalid,
            "A salt is not 64 lower-case hex digits.", "`guild judge commit` makes one.";
        JUDGE_VERDICT = "judge.bad_verdict", Invalid,
            "A verdict contradicts itself, so it is not kept.", "Keep what `guild judge --json` printed, unchanged.";
        JUDGE_TOOL = "judge.tool_missing", Denied,
            "A program that the suite needs is not there where submissions run.",
            "Install it, or name a directory with it: `pip install --target DIR pytest`, then `--tools DIR`.";
    }
}

/// What can go wrong on the market.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Refused here.
    #[error("{message}")]
    Refused {
        /// Why, as a code.
        code: &'static Code,
        /// Why, about this case.
        message: String,
    },
    /// Something that strangers must agree with does not hold.
    #[error(transparent)]
    Protocol(#[from] guild_protocol::Error),
    /// The network refused.
    #[error(transparent)]
    Network(#[from] guild_network::Error),
    /// The ledger refused.
    #[error(transparent)]
    Ledger(#[from] guild_ledger::Error),
    /// The sandbox refused or failed.
    #[error(transparent)]
    Sandbox(#[from] guild_sandbox::Error),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] guild_store::Error),
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A refusal with this code and a sentence about this very case.
    pub fn refused(code: &'static Code, message: impl Into<String>) -> Error {
        Error::Refused { code, message: message.into() }
    }

    /// The stable code.
    pub fn code(&self) -> &'static Code {
        match self {
            Error::Refused { code, .. } => code,
            Error::Protocol(error) => error.code(),
            Error::Network(error) => error.code(),
            Error::Ledger(error) => error.code(),
            Error::Sandbox(error) => error.code(),
            Error::Store(error) => error.code(),
        }
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }
}
