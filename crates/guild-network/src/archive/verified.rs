//! An event that is what its author signed.

use std::fmt;
use std::sync::Arc;

use guild_protocol::nostr::{Event, EventText, kind, tag};

use super::key::{self, Address};
use crate::Result;
use crate::index::Said;

/// An event whose id and signature hold, with its canonical text. Cheap to clone.
#[derive(Clone)]
pub struct Verified(Arc<Inner>);

struct Inner {
    event: Event,
    text: EventText,
    id_key: i64,
    address: Option<Address>,
    expires_at: Option<i64>,
    terms: Vec<i64>,
    said: Said,
}

impl Verified {
    /// Checks id and signature.
    pub fn check(event: Event) -> Result<Verified> {
        let text = event.verified_text()?;
        Verified::check_signature(event, text)
    }

    /// Checks the signature of an event whose id has been computed from its text.
    pub(crate) fn check_signature(event: Event, text: EventText) -> Result<Verified> {
        event.verify_signature()?;
        Ok(Verified::new(event, text))
    }

    /// An event that was checked before, as those of the archive.
    pub(crate) fn of_checked(event: Event) -> Verified {
        let text = event.text();
        Verified::new(event, text)
    }

    fn new(event: Event, text: EventText) -> Verified {
        Verified(Arc::new(Inner {
            text,
            id_key: key::id_key(&event.id),
            address: Address::of_event(&event),
            expires_at: expires_at(&event),
            terms: key::terms(&event),
            said: Said::of(&event),
            event,
        }))
    }

    /// The event.
    pub fn event(&self) -> &Event {
        &self.0.event
    }

    /// Its canonical JSON.
    pub fn json(&self) -> &str {
        self.0.text.json()
    }

    pub(super) fn text(&self) -> &EventText {
        &self.0.text
    }

    pub(super) fn id_key(&self) -> i64 {
        self.0.id_key
    }

    /// Where it stands under each of its terms.
    pub(super) fn place(&self) -> i64 {
        key::place(self.created_at(), self.0.id_key)
    }

    pub(super) fn address(&self) -> Option<&Address> {
        self.0.address.as_ref()
    }

    pub(super) fn expires_at(&self) -> Option<i64> {
        self.0.expires_at
    }

    pub(super) fn terms(&self) -> &[i64] {
        &self.0.terms
    }

    /// What it says about work.
    pub(crate) fn said(&self) -> &Said {
        &self.0.said
    }

    /// About how many rows it costs to store.
    pub(crate) fn rows(&self) -> usize {
        let targets = if self.0.event.kind == kind::DELETION { self.0.event.tags.len() } else { 0 };
        self.0.terms.len().saturating_add(targets)
    }

    pub(super) fn created_at(&self) -> i64 {
        seconds(self.0.event.created_at)
    }
}

impl PartialEq for Verified {
    fn eq(&self, other: &Verified) -> bool {
        self.0.event == other.0.event
    }
}

impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verified").field(&self.0.event).finish()
    }
}

/// When an event stops being of interest (NIP-40), in seconds. A tag that is no number says nothing.
fn expires_at(event: &Event) -> Option<i64> {
    tag::value(&event.tags, "expiration")?.parse().ok().map(seconds)
}

/// Seconds as a database keeps them.
pub(super) fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
