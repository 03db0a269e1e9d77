//! What the registry keeps of an announcement.

use std::sync::Arc;

use guild_network::index::Announced;
use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::{EventId, is_relay_url};

use super::canonical::canonical;
use super::claim::Claims;

/// So much of a name is kept.
const NAME_MAX_CHARS: usize = 80;
/// So much of a description is kept, for matching.
const ABOUT_MAX_CHARS: usize = 400;
/// So many relays of one announcement are kept.
const RELAYS_MAX: usize = 8;
/// A longer address is none that anybody uses.
const RELAY_MAX_BYTES: usize = 256;

/// What the registry keeps of an announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Whose it is.
    pub provider: PublicKey,
    /// Names the offer among its author's, byte for byte: with the author it is the identity.
    pub d: Box<str>,
    /// That name as it looks, for searching. Others may share it.
    pub canonical_d: Box<str>,
    /// The number of its event in the archive.
    pub seq: i64,
    /// Its event's id.
    pub event_id: EventId,
    /// When it was made, in Unix seconds, as it says.
    pub created_at: u64,
    /// When the first version came.
    pub first_ms: UnixMs,
    /// When this version came.
    pub came_ms: UnixMs,
    /// Who brought it.
    pub origin: Arc<str>,
    /// What it calls itself.
    pub name: Option<Box<str>>,
    /// How it describes itself, as it looks: words with dashes in between.
    pub about: Option<Box<str>>,
    /// What it claims to be able to do.
    pub claims: Claims,
    /// Whether it says how fast it is.
    pub has_performance: bool,
    /// Where it wants to be asked.
    pub relays: Box<[Box<str>]>,
}

impl Card {
    /// What is kept of one that can be read.
    pub fn of(announced: &Announced, card: &Announcement) -> Card {
        let content = &card.content;
        let name = content.name.as_deref().map(|name| cut(name, NAME_MAX_CHARS));
        let about = content.description.as_deref().map(|about| cut(about, ABOUT_MAX_CHARS));
        let relays = card.relays.iter().filter(|url| url.len() <= RELAY_MAX_BYTES);
        let relays = relays.filter(|url| is_relay_url(url)).take(RELAYS_MAX);
        Card {
            provider: announced.pubkey,
            d: card.d.as_str().into(),
            canonical_d: canonical(&card.d).into(),
            seq: announced.seq,
            event_id: announced.event_id,
            created_at: announced.created_at,
            first_ms: announced.first_ms,
            came_ms: announced.received_ms,
            origin: announced.origin.clone(),
            name: name.filter(|name| !name.trim().is_empty()).map(Into::into),
            about: about.map(canonical).filter(|about| !about.is_empty()).map(Into::into),
            claims: Claims::of(card),
            has_performance: content.performance.is_some() || content.stability.is_some(),
            relays: relays.map(|url| url.as_str().into()).collect(),
        }
    }

    /// Whether it takes the place of another version: the newer one does, and of two made in one second the one with
    /// the lower id.
    pub fn supersedes(&self, other: &Card) -> bool {
        (self.created_at, &other.event_id) > (other.created_at, &self.event_id)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let texts = self.d.len().saturating_add(self.canonical_d.len());
        // Where it came from is shared by all that came from there together.
        let some = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let relays: usize =
            self.relays.iter().map(|url| url.len().saturating_add(size_of::<Box<str>>())).sum();
        texts
            .saturating_add(some(&self.name))
            .saturating_add(some(&self.about))
            .saturating_add(relays)
            .saturating_add(self.claims.heap_bytes())
    }
}

fn cut(text: &str, most_chars: usize) -> &str {
    let end = text.char_indices().nth(most_chars).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}
