//! Who offers work.

use guild_market::overview;
use guild_network::index;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::announcement::Announcement;
use guild_store::Rx;

use super::page::{Cursor, Listed, Page, cut};
use super::people::People;
use super::view::{Offer, Party, Provider, Recommendations, Record};
use super::words::{ABOUT_MAX_CHARS, NAME_MAX_CHARS, clipped, clipped_all};
use super::{Wanted, receipt};
use crate::{Error, Result};

/// How many receipts stand beside a provider.
const RECEIPTS_MAX: i64 = 25;
/// How many of those who recommend it.
const RECOMMENDERS_MAX: usize = 10;

/// A page of offers, those heard last first.
pub(super) fn page(
    rx: &mut Rx<'_>,
    page: &Page,
    wanted: &Wanted,
    live_since_ms: i64,
) -> Result<Listed<Offer>> {
    let after = match &page.after {
        Some(cursor) => Some((cursor.at, cursor.id.parse::<i64>().map_err(|_| Error::Cursor)?)),
        None => None,
    };
    let lines = page.lines();
    let asked = index::Wanted {
        schema_id: wanted.schema_id.clone(),
        live_since_ms: wanted.live.then_some(live_since_ms),
        after,
        limit: lines.saturating_add(1),
    };
    let rows = index::providers(rx, &asked)?;
    let cursor =
        |row: &index::Provider| Cursor { at: row.heard_ms.unwrap_or(0), id: row.seq.to_string() };
    let (rows, next) = cut(rows, lines, cursor);
    let people = People::of(rx, rows.iter().map(|row| row.pubkey))?;
    let mut items = Vec::new();
    for row in &rows {
        items.push(offer(rx, row, &people, live_since_ms)?);
    }
    Ok(Listed { items, next })
}

fn offer(
    rx: &mut Rx<'_>,
    row: &index::Provider,
    people: &People,
    live_since_ms: i64,
) -> Result<Offer> {
    let name = row.card.content.name.clone();
    let name_shared = match &name {
        Some(name) => index::is_name_shared(rx, &row.pubkey, name)?,
        None => false,
    };
    Ok(Offer {
        provider: Party::new(&row.pubkey, name, people.is_ours(&row.pubkey)),
        d: clipped(&row.card.d, NAME_MAX_CHARS),
        about: row.card.content.description.as_deref().map(|text| clipped(text, ABOUT_MAX_CHARS)),
        schema_ids: clipped_all(row.card.schema_ids()),
        kinds: clipped_all(row.card.kinds.iter().map(String::as_str)),
        price_msat: price(&row.card),
        private: row.card.content.supports_encryption.unwrap_or(false),
        relays: clipped_all(row.card.relays.iter().map(String::as_str)),
        event_id: row.event_id.hex(),
        announced_ms: i64::try_from(row.created_at).unwrap_or(i64::MAX).saturating_mul(1_000),
        first_seen_ms: row.first_ms,
        last_seen_ms: row.heard_ms,
        live: row.heard_ms.is_some_and(|heard_ms| heard_ms >= live_since_ms),
        name_shared,
    })
}

/// What a job costs at least, of those that it offers.
fn price(card: &Announcement) -> Option<i64> {
    let prices = card.content.pricing.as_ref()?.per_job.as_ref()?;
    prices.0.values().map(|price| price.0).min()
}

/// All that is known of a key; none if it never offered anything and no receipt names it.
pub(super) fn provider(
    rx: &mut Rx<'_>,
    key: &PublicKey,
    live_since_ms: i64,
) -> Result<Option<Provider>> {
    let rows = index::provider(rx, key)?;
    let recommended = index::recommendations(rx, key, RECOMMENDERS_MAX)?;
    let people = People::of(rx, recommended.authors.iter().copied().chain([*key]))?;
    let by = recommended.authors.iter().map(|author| people.party(author)).collect();
    let mut offers = Vec::new();
    for row in &rows {
        offers.push(offer(rx, row, &people, live_since_ms)?);
    }
    let receipts = overview::receipts_of(rx, key, RECEIPTS_MAX)?;
    if offers.is_empty() && receipts.is_empty() {
        return Ok(None);
    }
    let overview::Record { released, withheld, paid } = overview::record(rx, key)?;
    let last_seen_ms = offers.iter().filter_map(|offer| offer.last_seen_ms).max();
    Ok(Some(Provider {
        provider: people.party(key),
        last_seen_ms,
        live: offers.iter().any(|offer| offer.live),
        offers,
        record: Record { released, withheld, paid_msat: paid },
        recommendations: Recommendations { count: recommended.count, by },
        receipts: receipt::lines(rx, &receipts)?,
    }))
}
