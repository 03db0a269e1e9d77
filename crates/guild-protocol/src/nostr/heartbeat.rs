//! A provider's sign of life (kind 11998).
//!
//! Relays keep the newest of each author only. A provider that has been silent for three of its intervals is taken for
//! gone; what it announces says nothing about that.
//!
//! ```
//! use guild_protocol::{identity::SecretKey, nostr::heartbeat::Heartbeat};
//! let provider: SecretKey = format!("{:064x}", 2).parse().unwrap();
//! let beat = Heartbeat { d: "fast-box".into(), interval_s: 60, open_jobs: Some(2), ..Heartbeat::default() };
//! let event = beat.draft(1_700_000_000).unwrap().sign(&provider).unwrap();
//! assert_eq!(Heartbeat::parse(&event).unwrap(), beat);
//! assert!(beat.is_live_at(1_700_000_000, 1_700_000_180));
//! assert!(!beat.is_live_at(1_700_000_000, 1_700_000_181));
//! ```

use super::{Draft, Event, Tag, kind, tag};
use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        WRONG_KIND = "heartbeat.kind_wrong", Invalid,
            "An event is not a heartbeat.", "A heartbeat has the kind 11998.";
        BAD_VALUE = "heartbeat.value_not_allowed", Invalid,
            "A value may not be sent in a heartbeat, although it might be read.",
            "Correct the field named; docs/formats/nostr.md says what is allowed.";
    }
}

/// The time between two beats of a provider that does not say it.
pub const DEFAULT_INTERVAL_S: u64 = 300;
/// The longest time between two beats; a longer one is read as this.
pub const MAX_INTERVAL_S: u64 = 86_400;
/// How many beats may be missing.
const MISSED_MAX: u64 = 3;
/// The largest `d` that is sent.
const MAX_D_BYTES: usize = 256;

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Which of the author's announcements it is about; empty: all of them.
    pub d: String,
    /// How long until the next one.
    pub interval_s: u64,
    /// How many jobs it does now, if it says so.
    pub open_jobs: Option<u64>,
    /// Tags that have no meaning here.
    pub other_tags: Vec<Tag>,
}

impl Default for Heartbeat {
    fn default() -> Heartbeat {
        Heartbeat {
            d: String::new(),
            interval_s: DEFAULT_INTERVAL_S,
            open_jobs: None,
            other_tags: Vec::new(),
        }
    }
}

const INTERVAL: &str = "interval";
const OPEN_JOBS: &str = "open_jobs";

impl Heartbeat {
    /// Reads a heartbeat. Says nothing about its signature. Others send no tags at all, or tags of their own; a number
    /// that cannot be read is as good as none.
    pub fn parse(event: &Event) -> Result<Heartbeat> {
        if event.kind != kind::HEARTBEAT {
            let message = format!("the kind {} is not a heartbeat", event.kind);
            return Err(Error::new(&code::WRONG_KIND, message).at("kind"));
        }
        let number = |name: &str| event.tag(name).and_then(|written| written.parse::<u64>().ok());
        let interval_s = number(INTERVAL).filter(|seconds| *seconds > 0);
        let has_meaning = |whole: &Tag| {
            matches!(whole.first().map(String::as_str), None | Some("d" | INTERVAL | OPEN_JOBS))
        };
        Ok(Heartbeat {
            d: event.tag("d").unwrap_or_default().to_owned(),
            interval_s: interval_s
                .map_or(DEFAULT_INTERVAL_S, |seconds| seconds.min(MAX_INTERVAL_S)),
            open_jobs: number(OPEN_JOBS),
            other_tags: event.tags.iter().filter(|tag| !has_meaning(tag)).cloned().collect(),
        })
    }

    /// The heartbeat as an event. Its content is empty.
    pub fn draft(&self, created_at: u64) -> Result<Draft> {
        let not_allowed = |what: &str, at: &str| Err(Error::new(&code::BAD_VALUE, what).at(at));
        if self.d.len() > MAX_D_BYTES {
            return not_allowed("a d tag has at most 256 bytes", "d");
        }
        if !(1..=MAX_INTERVAL_S).contains(&self.interval_s) {
            return not_allowed("1 second to 1 day between two beats", "interval_s");
        }
        let mut tags = Vec::new();
        if !self.d.is_empty() {
            tags.push(tag::tag(["d", &self.d]));
        }
        tags.push(tag::tag([INTERVAL, &self.interval_s.to_string()]));
        tags.extend(self.open_jobs.map(|jobs| tag::tag([OPEN_JOBS, &jobs.to_string()])));
        for tag in &self.other_tags {
            if matches!(tag.first().map(String::as_str), None | Some("d" | INTERVAL | OPEN_JOBS)) {
                return not_allowed("a further tag has a name with a meaning", "other_tags");
            }
            tags.push(tag.clone());
        }
        Ok(Draft { kind: kind::HEARTBEAT, created_at, tags, content: String::new() })
    }

    /// Whether a provider that sent this at `beat_s` is still taken for alive at `now_s`.
    pub fn is_live_at(&self, beat_s: u64, now_s: u64) -> bool {
        now_s <= beat_s.saturating_add(self.interval_s.saturating_mul(MISSED_MAX))
    }
}
