//! Work over Nostr (NIP-90): a [`Request`], its [`JobResult`], and [`Feedback`] in between.
//!
//! What is built follows the published text to the letter; a value that it does not allow is refused. What is read
//! may also have the forms found in the wild: other input types, a marker in the relay's place, `json` for a MIME
//! type, statuses nobody specified, tags nobody knows. None of the readers checks a signature: verify first, or use
//! [`correlates`], which does.
//!
//! The schema of a job is named by the parameter `schema_id`, never by the kind; `job_hash` binds its input.

use std::fmt;

use super::event::Event;
use super::{EventId, Tag, is_relay_url};
use crate::amount::Msat;
use crate::hash::shorten;
use crate::identity::PublicKey;
use crate::{Error, Result};

mod correlate;
mod feedback;
mod request;
mod result;
mod seal;

pub use correlate::{correlates, feedback_correlates};
pub use feedback::{Feedback, Status};
pub use request::{Param, Request};
pub use result::JobResult;

/// The codes of this module.
pub mod code {
    crate::codes! {
        WRONG_KIND = "nip90.kind_wrong", Invalid,
            "An event is not of the kind that is expected here.",
            "A request has the kind 5000 to 5999, its result 1000 more, feedback 7000.";
        BAD_TAG = "nip90.tag_malformed", Invalid,
            "A tag of a job event does not have the form its name demands.",
            "Correct the tag named; docs/formats/nostr.md lists all of them.";
        BAD_VALUE = "nip90.value_not_allowed", Invalid,
            "A value may not be sent in a job event, although it might be read.",
            "Use a value that NIP-90 allows.";
        NO_REQUEST = "nip90.request_missing", Invalid,
            "A result or feedback does not say which request it belongs to.",
            "Add an e tag with the request's id.";
        NO_STATUS = "nip90.status_missing", Invalid,
            "Feedback has no status, neither outside nor inside its ciphertext.",
            "Add a status tag.";
        NO_RECIPIENT = "nip90.recipient_missing", Invalid,
            "An encrypted job event does not name exactly one key that can open it.",
            "Address it with one p tag; send one event per provider.";
        ENCRYPTED = "nip90.encrypted", Denied,
            "The event is encrypted and no key was given that opens it, or it must not be sent in the open.",
            "Open it with the key of its author or of its recipient; answer it encrypted.";
        WRONG_REQUEST = "nip90.request_wrong", Invalid,
            "A result belongs to another request.", "Ignore it.";
        WRONG_AUTHOR = "nip90.author_wrong", Denied,
            "A result is signed by a key that the request did not address.",
            "Ignore it: anybody can answer a public request id.";
    }
}

/// What sort of data an input is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputType {
    /// The data itself.
    Text,
    /// Where the data is.
    Url,
    /// The id of an event whose content is the data.
    Event,
    /// The id of a request whose result is the data.
    Job,
    /// Anything else, as written: `json`, `prompt`, `base64`. Read, never sent.
    Other(String),
}

impl InputType {
    fn of(written: &str) -> InputType {
        match written {
            "text" | "" => InputType::Text,
            "url" => InputType::Url,
            "event" => InputType::Event,
            "job" => InputType::Job,
            other => InputType::Other(other.to_owned()),
        }
    }

    /// The word on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            InputType::Text => "text",
            InputType::Url => "url",
            InputType::Event => "event",
            InputType::Job => "job",
            InputType::Other(other) => other,
        }
    }

    /// Whether the data stands in the tag itself, rather than a reference to it.
    pub fn is_inline(&self) -> bool {
        matches!(self, InputType::Text | InputType::Other(_))
    }
}

/// One input of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The data, or the reference to it.
    pub data: String,
    /// What `data` is.
    pub input_type: InputType,
    /// Where to look for a referenced event.
    pub relay: Option<String>,
    /// What the input is for, if there are several.
    pub marker: Option<String>,
}

impl Input {
    /// The data itself.
    pub fn text(data: impl Into<String>) -> Input {
        Input { data: data.into(), input_type: InputType::Text, relay: None, marker: None }
    }

    /// The same input with a marker.
    #[must_use]
    pub fn marked(self, marker: impl Into<String>) -> Input {
        Input { marker: Some(marker.into()), ..self }
    }

    /// Reads what follows the name `i`.
    fn of(rest: &[String]) -> Result<Input> {
        let slot = |i: usize| rest.get(i).map(String::as_str).filter(|text| !text.is_empty());
        let data = rest.first().ok_or_else(|| bad_tag("an input has no data"))?;
        let (relay, marker) = match (slot(2), slot(3)) {
            // The documents write the marker where the relay belongs.
            (Some(third), None) if !is_relay_url(third) => (None, Some(third)),
            other => other,
        };
        Ok(Input {
            data: data.clone(),
            input_type: InputType::of(rest.get(1).map_or("", String::as_str)),
            relay: relay.map(str::to_owned),
            marker: marker.map(str::to_owned),
        })
    }

    fn to_tag(&self) -> Result<Tag> {
        if let InputType::Other(other) = &self.input_type {
            let message = format!("{:?} is not an input type of NIP-90", shorten(other));
            return Err(Error::new(&code::BAD_VALUE, message));
        }
        let mut tag = vec!["i".to_owned(), self.data.clone(), self.input_type.as_str().to_owned()];
        if let Some(relay) = &self.relay {
            check_relay(relay)?;
        }
        if self.relay.is_some() || self.marker.is_some() {
            tag.push(self.relay.clone().unwrap_or_default());
        }
        if let Some(marker) = &self.marker {
            if marker.is_empty() {
                return Err(Error::new(&code::BAD_VALUE, "a marker is not empty"));
            }
            tag.push(marker.clone());
        }
        Ok(tag)
    }
}

/// What a provider asks for: `["amount", msat, bolt11?]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    /// How much.
    pub msat: Msat,
    /// The invoice to pay, if there is one.
    pub bolt11: Option<String>,
}

impl Price {
    /// A price without an invoice.
    pub fn new(msat: Msat) -> Price {
        Price { msat, bolt11: None }
    }

    fn of(rest: &[String]) -> Result<Price> {
        let bolt11 = rest.get(1).filter(|text| !text.is_empty()).cloned();
        Ok(Price { msat: msat_of(rest)?, bolt11 })
    }

    fn to_tag(&self) -> Result<Tag> {
        let mut tag = vec!["amount".to_owned(), msat_text(self.msat)?];
        tag.extend(self.bolt11.clone());
        Ok(tag)
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} msat", self.msat.0)
    }
}

/// The request that a result or feedback belongs to: `["e", id, relay?]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRef {
    /// The request's event id.
    pub id: EventId,
    /// Where the request can be found.
    pub relay: Option<String>,
}

impl RequestRef {
    /// The reference to this request.
    pub fn to(request: &Event) -> RequestRef {
        RequestRef { id: request.id, relay: None }
    }

    fn of(rest: &[String]) -> Result<RequestRef> {
        let id = rest.first().ok_or_else(|| bad_tag("no event id"))?.parse()?;
        Ok(RequestRef { id, relay: rest.get(1).filter(|text| !text.is_empty()).cloned() })
    }

    fn to_tag(&self) -> Result<Tag> {
        if let Some(relay) = &self.relay {
            check_relay(relay)?;
        }
        let mut tag = vec!["e".to_owned(), self.id.hex()];
        tag.extend(self.relay.clone());
        Ok(tag)
    }
}

/// Names that have a meaning in a job event; no `other_tags` may carry them.
const RESERVED: [&str; 14] = [
    "i",
    "output",
    "param",
    "bid",
    "relays",
    "p",
    "t",
    "e",
    "request",
    "amount",
    "status",
    "encrypted",
    "expiration",
    "content",
];

fn push_other(tags: &mut Vec<Tag>, other: &[Tag]) -> Result<()> {
    for tag in other {
        let name = tag.first().map_or("", String::as_str);
        if name.is_empty() || RESERVED.contains(&name) {
            let message = format!("a further tag may not be named {:?}", shorten(name));
            return Err(Error::new(&code::BAD_VALUE, message).at("other_tags"));
        }
        tags.push(tag.clone());
    }
    Ok(())
}

fn bad_tag(message: impl Into<String>) -> Error {
    Error::new(&code::BAD_TAG, message)
}

fn wrong_kind(kind: u16, expected: &str) -> Error {
    Error::new(&code::WRONG_KIND, format!("the kind {kind} is not {expected}")).at("kind")
}

fn check_relay(url: &str) -> Result<()> {
    if is_relay_url(url) {
        return Ok(());
    }
    let message = format!("{:?} is not the address of a relay", shorten(url));
    Err(Error::new(&code::BAD_VALUE, message))
}

fn key_of(rest: &[String]) -> Result<PublicKey> {
    rest.first().ok_or_else(|| bad_tag("no public key"))?.parse()
}

fn msat_of(rest: &[String]) -> Result<Msat> {
    let written = rest.first().map_or("", String::as_str);
    let digits = !written.is_empty() && written.bytes().all(|b| b.is_ascii_digit());
    let number = digits.then(|| written.parse().ok()).flatten();
    number.map(Msat).ok_or_else(|| {
        bad_tag(format!("{:?} is not a whole number of millisatoshi", shorten(written)))
    })
}

fn msat_text(msat: Msat) -> Result<String> {
    if msat.0 < 0 {
        return Err(Error::new(&code::BAD_VALUE, "a price is not negative"));
    }
    Ok(msat.0.to_string())
}

/// A tag and where it stands, for messages: outside, or inside the ciphertext.
#[derive(Clone, Copy)]
struct Placed<'a> {
    list: &'static str,
    index: usize,
    name: &'a str,
    rest: &'a [String],
    whole: &'a Tag,
}

impl Placed<'_> {
    fn is_inside(&self) -> bool {
        self.list == INSIDE
    }

    fn place(&self) -> String {
        format!("{}[{}]", self.list, self.index)
    }
}

const OUTSIDE: &str = "tags";
const INSIDE: &str = "content";

fn placed<'a>(list: &'static str, tags: &'a [Tag]) -> impl Iterator<Item = Placed<'a>> {
    tags.iter().enumerate().map(move |(index, whole)| {
        let (name, rest) = match whole.split_first() {
            Some((name, rest)) => (name.as_str(), rest),
            None => ("", &[] as &[String]),
        };
        Placed { list, index, name, rest, whole }
    })
}
