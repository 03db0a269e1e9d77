//! What a message of a dispute says in JSON. Nothing is left out, cut or guessed: what differs is refused.

use serde::{Deserialize, Serialize};

use super::{By, Message, Outcome, Parties, Reason, Said, code};
use crate::hash::{Hash, shorten};
use crate::id::ReceiptId;
use crate::identity::PublicKey;
use crate::json;
use crate::nostr::EventId;
use crate::{Error, Result};

/// The content of a message is read within these.
const LIMITS: json::Limits = json::Limits { max_bytes: 16 * 1_024, max_depth: 4 };
/// The longest statement.
pub const STATEMENT_MAX_CHARS: usize = 2_000;
/// The most that is referred to.
pub const EVIDENCE_MAX: usize = 16;
/// The version of what is written here.
const VERSION: u32 = 1;

/// Something that a message can be checked by. It names the thing by what it is, and carries none of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "WireReference", into = "WireReference")]
pub enum Reference {
    /// An event: a request, a result, feedback.
    Event(EventId),
    /// Bytes: a verdict, a replay, an output.
    Hash(Hash),
    /// A receipt.
    Receipt(ReceiptId),
}

/// A reference as it is written: an object with one field.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireReference {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<Hash>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptId>,
}

impl TryFrom<WireReference> for Reference {
    type Error = &'static str;
    fn try_from(wire: WireReference) -> Result<Reference, &'static str> {
        match wire {
            WireReference { event: Some(id), hash: None, receipt: None } => {
                Ok(Reference::Event(id))
            }
            WireReference { event: None, hash: Some(hash), receipt: None } => {
                Ok(Reference::Hash(hash))
            }
            WireReference { event: None, hash: None, receipt: Some(id) } => {
                Ok(Reference::Receipt(id))
            }
            _ => Err("a reference is one of event, hash and receipt"),
        }
    }
}

impl From<Reference> for WireReference {
    fn from(reference: Reference) -> WireReference {
        let none = WireReference::default();
        match reference {
            Reference::Event(id) => WireReference { event: Some(id), ..none },
            Reference::Hash(hash) => WireReference { hash: Some(hash), ..none },
            Reference::Receipt(id) => WireReference { receipt: Some(id), ..none },
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arbiter: Option<String>,
    buyer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    dispute_id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    evidence: Vec<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filing: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    request_id: EventId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result_id: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    statement: Option<String>,
    step: String,
    version: u32,
}

pub(super) fn parse(text: &str) -> Result<Message> {
    let wire: Wire = json::decode_within(text.as_bytes(), LIMITS)?;
    if wire.version != VERSION {
        return Err(malformed(format!("the version {} is not known", wire.version), "version"));
    }
    let said = said(&wire)?;
    let arbiter = wire.arbiter.as_deref().map(|text| key(text, "arbiter")).transpose()?;
    let parties = Parties {
        buyer: key(&wire.buyer, "buyer")?,
        provider: key(&wire.provider, "provider")?,
        arbiter,
    };
    let message = Message {
        request_id: wire.request_id,
        parties,
        result_id: wire.result_id,
        said,
        statement: wire.statement,
        evidence: wire.evidence,
    };
    if message.dispute_id().as_str() != wire.dispute_id {
        return Err(malformed("it is not the one of the request", "dispute_id"));
    }
    // There is one way to write it, so that whoever repeats it has the same bytes.
    if to_json(&message)? != text {
        return Err(malformed("it is not canonical JSON", "content"));
    }
    Ok(message)
}

/// A key as this program writes it: lower-case hex digits.
fn key(text: &str, at: &str) -> Result<PublicKey> {
    let key: PublicKey = text.parse().map_err(|e: Error| e.at(at))?;
    match key.hex() == text {
        true => Ok(key),
        false => Err(malformed("a key is written in lower-case hex digits", at)),
    }
}

fn said(wire: &Wire) -> Result<Said> {
    let Wire { step, reason, outcome, by, filing, .. } = wire;
    match (step.as_str(), reason, outcome, by, filing) {
        ("filed", Some(reason), None, None, None) => {
            let known = Reason::parse(reason).ok_or_else(|| unknown(reason, "reason"))?;
            Ok(Said::Filed(known))
        }
        ("answered", None, None, None, None) => Ok(Said::Answered),
        ("decided", None, Some(outcome), Some(by), Some(filing)) => Ok(Said::Decided {
            outcome: Outcome::parse(outcome).ok_or_else(|| unknown(outcome, "outcome"))?,
            by: By::parse(by).ok_or_else(|| unknown(by, "by"))?,
            filing: *filing,
        }),
        _ => Err(malformed("a step needs what belongs to it, and nothing else", "step")),
    }
}

fn unknown(word: &str, at: &str) -> Error {
    malformed(format!("{:?} is no word of it", shorten(word)), at)
}

fn malformed(what: impl Into<String>, at: &str) -> Error {
    Error::new(&code::MALFORMED, what.into()).at(at)
}

/// Whether what it says may be said at all.
pub(super) fn check(message: &Message) -> Result<()> {
    let written = message.statement.as_deref();
    if written.is_some_and(|text| text.is_empty() || text.chars().count() > STATEMENT_MAX_CHARS) {
        let what = format!("has 1 to {STATEMENT_MAX_CHARS} characters");
        return Err(malformed(what, "statement"));
    }
    if written.is_some_and(|text| text.contains('\0')) {
        return Err(malformed("has a character that cannot be kept", "statement"));
    }
    if message.evidence.len() > EVIDENCE_MAX {
        return Err(malformed(format!("names at most {EVIDENCE_MAX} things"), "evidence"));
    }
    to_json(message).map(drop)
}

/// The content in canonical JSON.
pub(super) fn to_json(message: &Message) -> Result<String> {
    let Message { request_id, parties, result_id, said, statement, evidence } = message;
    let (reason, outcome, by, filing) = match said {
        Said::Filed(reason) => (Some(reason.as_str().to_owned()), None, None, None),
        Said::Answered => (None, None, None, None),
        Said::Decided { outcome, by, filing } => {
            (None, Some(outcome.as_str().to_owned()), Some(by.as_str().to_owned()), Some(*filing))
        }
    };
    let wire = Wire {
        arbiter: parties.arbiter.map(|key| key.hex()),
        buyer: parties.buyer.hex(),
        by,
        dispute_id: message.dispute_id().to_string(),
        evidence: evidence.clone(),
        filing,
        outcome,
        provider: parties.provider.hex(),
        reason,
        request_id: *request_id,
        result_id: *result_id,
        statement: statement.clone(),
        step: said.step().to_owned(),
        version: VERSION,
    };
    let bytes = json::to_canonical(&wire)?;
    if bytes.len() > LIMITS.max_bytes {
        let what = format!("{} bytes are more than {}", bytes.len(), LIMITS.max_bytes);
        return Err(malformed(what, "content"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
