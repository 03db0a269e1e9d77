//! What a reader gets: plain values, ready to be shown or sent. Times are Unix milliseconds, prices millisatoshi. What
//! strangers wrote is cut where it is too long, with a `…`; the event has all of it.

use guild_protocol::amount::Amount;
use guild_protocol::identity::PublicKey;
use guild_protocol::receipt::Status;
use serde::Serialize;

use super::matrix::{Belief, Curve, Stance};
use super::review::ProviderReviews;
use super::words::{NAME_MAX_CHARS, clipped};

/// Somebody who takes part. The name is what that key says about itself, and proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Party {
    /// The key as people exchange it.
    pub npub: String,
    /// The same key as events carry it.
    pub pubkey: String,
    /// The name it announced.
    pub name: Option<String>,
    /// Whether it is a key under which this node deals.
    pub ours: bool,
}

impl Party {
    /// The one with this key.
    pub fn new(key: &PublicKey, name: Option<String>, ours: bool) -> Party {
        let name = name.map(|name| clipped(&name, NAME_MAX_CHARS));
        Party { npub: key.npub(), pubkey: key.hex(), name, ours }
    }
}

/// One announcement: an offer to work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Offer {
    /// Who offers.
    pub provider: Party,
    /// Names the offer among its author's.
    pub d: String,
    /// What it says about itself.
    pub about: Option<String>,
    /// The job schemas it claims.
    pub schema_ids: Vec<String>,
    /// The request kinds it claims, as written.
    pub kinds: Vec<String>,
    /// What a job costs at least, as announced.
    pub price_msat: Option<i64>,
    /// Whether it reads encrypted requests.
    pub private: bool,
    /// Where to send requests.
    pub relays: Vec<String>,
    /// The announcement.
    pub event_id: String,
    /// When the announcement was made, as its author says.
    pub announced_ms: i64,
    /// When this node first saw it.
    pub first_seen_ms: i64,
    /// The last sign of life: a heartbeat, or any event of it that was seen.
    pub last_seen_ms: Option<i64>,
    /// Whether that was recent.
    pub live: bool,
    /// Whether a name that looks the same stands on another key's offer too.
    pub name_shared: bool,
    /// What this node believes of its provider, for each kind of work.
    pub routing: Vec<Stance>,
}

/// A provider with all its offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Provider {
    /// Who it is.
    pub provider: Party,
    /// The last sign of life.
    pub last_seen_ms: Option<i64>,
    /// Whether that was recent.
    pub live: bool,
    /// What it offers, newest first.
    pub offers: Vec<Offer>,
    /// What this node knows of its work.
    pub record: Record,
    /// What others say for it.
    pub recommendations: Recommendations,
    /// What this node believes of it, for each kind of work.
    pub routing: Vec<Belief>,
    /// How far it was trusted over time.
    pub trust: Vec<Curve>,
    /// The latest receipts between it and this node.
    pub receipts: Vec<Receipt>,
    /// What is said of it.
    pub reviews: ProviderReviews,
}

/// Counts of somebody's work, from what this node itself bought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Record {
    /// How often it was paid.
    pub released: i64,
    /// How often its work was not accepted.
    pub withheld: i64,
    /// How much it was paid, in millisatoshi.
    pub paid_msat: i64,
}

/// Who recommends a provider (NIP-89). Keys cost nothing, so many of them prove nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recommendations {
    /// How many keys do.
    pub count: usize,
    /// Some of them, those that did so last first.
    pub by: Vec<Party>,
}

/// What this node has to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// It was only seen.
    Seen,
    /// This node pays.
    Bought,
    /// This node works.
    Hired,
}

impl Side {
    /// The word that is sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Side::Seen => "seen",
            Side::Bought => "bought",
            Side::Hired => "hired",
        }
    }
}

/// How a request stands, whoever is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Nobody has answered.
    Open,
    /// Somebody works.
    Working,
    /// There is a result, not yet judged.
    Delivered,
    /// Accepted and paid.
    Paid,
    /// Not accepted; the money went back.
    Withheld,
    /// The provider said no, or failed.
    Refused,
    /// Time ran out.
    Expired,
    /// Its buyer took it back.
    Cancelled,
    /// It ended without a result.
    Failed,
}

impl Standing {
    /// The word that is sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Open => "open",
            Standing::Working => "working",
            Standing::Delivered => "delivered",
            Standing::Paid => "paid",
            Standing::Withheld => "withheld",
            Standing::Refused => "refused",
            Standing::Expired => "expired",
            Standing::Cancelled => "cancelled",
            Standing::Failed => "failed",
        }
    }
}

/// A request, as a line of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// The request's event.
    pub request_id: String,
    /// What this node has to do with it.
    pub side: Side,
    /// How it stands.
    pub standing: Standing,
    /// Who asks.
    pub buyer: Party,
    /// Whom it addresses, or who answered it: at most 32.
    pub providers: Vec<Party>,
    /// How many more it addresses.
    pub more_providers: usize,
    /// The kind of the request's event.
    pub kind: u16,
    /// The schema of the job; none if it is private and the reader has no part in it.
    pub schema_id: Option<String>,
    /// The most that is paid.
    pub bid_msat: Option<i64>,
    /// Whether its input travels encrypted.
    pub private: bool,
    /// When it was made, as its author says.
    pub created_ms: i64,
    /// When this node first saw it.
    pub received_ms: i64,
}

/// A request with all that became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestDetail {
    /// The request.
    pub request: Request,
    /// What was agreed to be paid.
    pub price_msat: Option<i64>,
    /// Why it ended as it did, if it did not end well. Of private work only its owner gets this.
    pub reason: Option<String>,
    /// The receipt, if there is one.
    pub receipt_id: Option<String>,
    /// The delegation that it is a part of, if it is one of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegation_id: Option<String>,
    /// The dispute about its result, and where that stands, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispute: Option<(String, &'static str)>,
    /// What happened, oldest first.
    pub timeline: Vec<Step>,
}

/// What sort of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The request was seen.
    Request,
    /// Somebody was chosen for it.
    Choice,
    /// Money was set aside.
    Hold,
    /// A provider said how it goes.
    Feedback,
    /// A result came.
    Result,
    /// The result was judged.
    Verdict,
    /// Money moved, or went back.
    Payment,
    /// A receipt was signed.
    Receipt,
    /// It ended without a verdict.
    End,
}

/// How a step went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    /// As hoped.
    Good,
    /// Not as hoped.
    Bad,
    /// Neither.
    Plain,
}

/// One thing that happened to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What sort of thing.
    pub kind: StepKind,
    /// How it went.
    pub tone: Tone,
    /// When this node knew.
    pub at_ms: i64,
    /// Who did it.
    pub author: Option<Party>,
    /// In words. May hold words of strangers.
    pub text: String,
    /// The event that says so.
    pub event_id: Option<String>,
}

/// A receipt, as a line of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// Names it by its content.
    pub receipt_id: String,
    /// What was paid for.
    pub request_id: Option<String>,
    /// What this node has to do with it: it paid, or it was paid.
    pub side: Side,
    /// Who pays.
    pub buyer: Party,
    /// Who is paid.
    pub provider: Party,
    /// How much.
    pub amount: Amount,
    /// How it was settled.
    pub status: Status,
    /// When it was settled, as its signer says.
    pub at_ms: i64,
}

/// What there is, in numbers. What others can make any number of is counted up to [`COUNT_MAX`](super::COUNT_MAX).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Offers seen, up to so many.
    pub offers: i64,
    /// Offers whose provider is live, up to so many.
    pub offers_live: i64,
    /// Requests seen, up to so many.
    pub requests: i64,
    /// Receipts given and taken.
    pub receipts: i64,
    /// What was paid by the receipts that this node gave, in millisatoshi.
    pub paid_msat: i64,
    /// What was paid by the receipts that this node took, in millisatoshi.
    pub earned_msat: i64,
}

/// What happens now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// In numbers.
    pub counts: Counts,
    /// Live offers, the most recent sign of life first.
    pub offers: Vec<Offer>,
    /// The latest requests.
    pub requests: Vec<Request>,
    /// The latest receipts.
    pub receipts: Vec<Receipt>,
}
