//! How a provider advertises itself (NIP-89, kind 31990).
//!
//! Everything in an announcement is a claim. Kinds are kept as they were written: numbers, lists of numbers and
//! names are all found in the wild, and whoever matches them decides what they mean.

use std::collections::BTreeSet;

use super::{Draft, Event, Tag, is_relay_url, kind, tag};
use crate::amount::Msat;
use crate::hash::shorten;
use crate::identity::PublicKey;
use crate::json;
use crate::{Error, Result};

mod content;

pub use content::{
    Capabilities, Capacity, Content, Hardware, JobPrices, KindNames, Performance, Pricing,
    Stability, SupplyClass,
};

/// The codes of this module.
pub mod code {
    crate::codes! {
        WRONG_KIND = "announcement.kind_wrong", Invalid,
            "An event is not an announcement.", "An announcement has the kind 31990.";
        BAD_CONTENT = "announcement.content_malformed", Invalid,
            "The content of an announcement is neither empty nor a JSON object within limits.",
            "Write an object, of at most 64 KiB.";
        BAD_VALUE = "announcement.value_not_allowed", Invalid,
            "A value may not be sent in an announcement, although it might be read.",
            "Correct the field named; docs/formats/nostr.md says what is allowed.";
    }
}

/// The largest `d` that is sent.
const MAX_D_BYTES: usize = 256;

/// What a provider says about itself.
///
/// ```
/// use guild_protocol::{identity::SecretKey, nostr::announcement::Announcement};
/// let provider: SecretKey = format!("{:064x}", 2).parse().unwrap();
/// let mut card = Announcement::new("fast-box");
/// card.kinds.push("5050".into());
/// card.relays.push("wss://relay.example".into());
/// card.content.name = Some("Fast box".into());
/// let event = card.draft(1_700_000_000).unwrap().sign(&provider).unwrap();
/// assert_eq!(Announcement::parse(&event).unwrap(), card);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Announcement {
    /// Names the offer among its author's, byte for byte. An announcement without it has the empty one.
    pub d: String,
    /// The `k` tags as written.
    pub kinds: Vec<String>,
    /// The `t` tags: schema ids, and other words for what the provider is good at.
    pub topics: Vec<String>,
    /// Where to send requests.
    pub relays: Vec<String>,
    /// What it says in JSON.
    pub content: Content,
    /// Tags that have no meaning here.
    pub other_tags: Vec<Tag>,
}

impl Announcement {
    /// An announcement that says nothing yet.
    pub fn new(d: impl Into<String>) -> Announcement {
        Announcement {
            d: d.into(),
            kinds: Vec::new(),
            topics: Vec::new(),
            relays: Vec::new(),
            content: Content::default(),
            other_tags: Vec::new(),
        }
    }

    /// Reads an announcement. Says nothing about its signature.
    pub fn parse(event: &Event) -> Result<Announcement> {
        if event.kind != kind::ANNOUNCEMENT {
            let message = format!("the kind {} is not an announcement", event.kind);
            return Err(Error::new(&code::WRONG_KIND, message).at("kind"));
        }
        let mut card = Announcement::of_tags(&event.tags);
        card.content = Content::parse(&event.content).map_err(|e| e.within("content"))?;
        Ok(card)
    }

    /// As [`Announcement::parse`], from tags and a content that it has taken before: the limits are not checked again.
    /// Nothing if the content is not what it was then.
    pub fn read_again(tags: &[Tag], content: &str) -> Option<Announcement> {
        let mut card = Announcement::of_tags(tags);
        card.content = Content::read_again(content)?;
        Some(card)
    }

    fn of_tags(tags: &[Tag]) -> Announcement {
        let mut card = Announcement::new(tag::value(tags, "d").unwrap_or_default());
        for whole in tags {
            let Some((name, rest)) = whole.split_first() else { continue };
            match (name.as_str(), rest) {
                ("d", _) => {}
                ("k", [value, ..]) => card.kinds.push(value.clone()),
                ("t", [value, ..]) => card.topics.push(value.clone()),
                ("relays" | "relay", rest) => card.relays.extend_from_slice(rest),
                _ => card.other_tags.push(whole.clone()),
            }
        }
        card
    }

    /// The announcement as an event. Every job of `capabilities.supported_jobs` is also sent as a `t` tag, because
    /// relays can be asked for tags and not for content.
    pub fn draft(&self, created_at: u64) -> Result<Draft> {
        if self.d.is_empty() || self.d.len() > MAX_D_BYTES {
            return Err(not_allowed("a d tag has 1 to 256 bytes").at("d"));
        }
        let mut tags = vec![tag::tag(["d", &self.d])];
        for written in &self.kinds {
            tags.push(tag::tag(["k", check_kind(written).map_err(|e| e.at("kinds"))?]));
        }
        let jobs = self.content.supported_jobs().iter().filter(|job| !self.topics.contains(job));
        tags.extend(self.topics.iter().chain(jobs).map(|topic| tag::tag(["t", topic])));
        if let Some(bad) = self.relays.iter().find(|url| !is_relay_url(url)) {
            let message = format!("{:?} is not the address of a relay", shorten(bad));
            return Err(not_allowed(message).at("relays"));
        }
        if !self.relays.is_empty() {
            let name = std::iter::once("relays".to_owned());
            tags.push(name.chain(self.relays.iter().cloned()).collect());
        }
        for tag in &self.other_tags {
            if matches!(
                tag.first().map(String::as_str),
                None | Some("d" | "k" | "t" | "relay" | "relays")
            ) {
                return Err(not_allowed("a further tag has a name with a meaning").at("other_tags"));
            }
            tags.push(tag.clone());
        }
        Ok(Draft { kind: kind::ANNOUNCEMENT, created_at, tags, content: self.content.to_json()? })
    }

    /// The schema ids it claims, from the content and from the tags, each once, in order.
    pub fn schema_ids(&self) -> Vec<&str> {
        let versioned = |topic: &&String| {
            let (head, version) = topic.rsplit_once(".v").unwrap_or_default();
            !head.is_empty() && !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit())
        };
        let claimed =
            self.content.supported_jobs().iter().chain(self.topics.iter().filter(versioned));
        let mut seen = BTreeSet::new();
        claimed.map(String::as_str).filter(|id| seen.insert(*id)).collect()
    }

    /// What one job of this schema costs, if the announcement says so.
    pub fn price_of(&self, schema_id: &str) -> Option<Msat> {
        self.content.pricing.as_ref()?.per_job.as_ref()?.0.get(schema_id).copied()
    }

    /// The address of the announcement: `31990:<author>:<d>`, byte for byte.
    pub fn address(&self, author: &PublicKey) -> String {
        format!("{}:{}:{}", kind::ANNOUNCEMENT, author.hex(), self.d)
    }

    /// A form of `d` for searching: lower case, every run of characters that are neither letters nor digits one dash.
    /// Two providers may share it; it identifies nobody.
    ///
    /// ```
    /// use guild_protocol::nostr::announcement::Announcement;
    /// assert_eq!(Announcement::new(" Benchmark Platform_v2 ").canonical_d(), "benchmark-platform-v2");
    /// ```
    pub fn canonical_d(&self) -> String {
        let lower = self.d.to_lowercase();
        let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("-")
    }
}

/// Only numbers are sent as `k`: names go into `t` and into the content's `supported_kinds`.
fn check_kind(written: &str) -> Result<&str> {
    match written.parse::<u16>() {
        Ok(number) if number.to_string() == written => Ok(written),
        _ => Err(not_allowed(format!("{:?} is not the number of a kind", shorten(written)))),
    }
}

fn not_allowed(message: impl Into<String>) -> Error {
    Error::new(&code::BAD_VALUE, message)
}

/// The content of an announcement is read within these.
const CONTENT_LIMITS: json::Limits = json::Limits { max_bytes: 64 * 1024, max_depth: 16 };
