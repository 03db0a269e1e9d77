//! Who offers work.

use guild_market::routing::Matrix;
use guild_market::{benchmark, overview};
use guild_network::index;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::announcement::Announcement;
use guild_store::Rx;

use super::matrix::{self, Stance};
use super::page::{Cursor, Listed, PAGE_MAX, Page, cut};
use super::people::People;
use super::view::{Offer, Party, Provider, Recommendations, Record};
use super::words::{ABOUT_MAX_CHARS, NAME_MAX_CHARS, clipped, clipped_all};
use super::{Wanted, receipt};
use crate::{Error, Result};

/// How many receipts stand beside a provider.
const RECEIPTS_MAX: i64 = 25;
/// How many of those who recommend it.
const RECOMMENDERS_MAX: usize = 10;

/// So many offers are looked at for one page that the matrix narrows down.
const LOOKED_AT_MAX: usize = 2_000;

/// A page of offers, those heard last first. One that the matrix narrows down may be short, and still lead on.
pub(super) fn page(
    rx: &mut Rx<'_>,
    page: &Page,
    wanted: &Wanted,
    (live_since_ms, matrix): (i64, &Matrix),
) -> Result<Listed<Offer>> {
    let mut after = match &page.after {
        Some(cursor) => Some((cursor.at, cursor.id.parse::<i64>().map_err(|_| Error::Cursor)?)),
        None => None,
    };
    let lines = page.lines();
    let narrowed = wanted.status.is_some() || wanted.tier.is_some();
    let limit = if narrowed { PAGE_MAX } else { lines.saturating_add(1) };
    let (mut found, mut looked_at) = (Vec::new(), 0_usize);
    let more = loop {
        let asked = index::Wanted {
            schema_id: wanted.schema_id.clone(),
            live_since_ms: wanted.live.then_some(live_since_ms),
            after,
            limit,
        };
        let rows = index::providers(rx, &asked)?;
        let is_last = rows.len() < limit;
        after = rows.last().map(place).or(after);
        looked_at = looked_at.saturating_add(rows.len());
        found.extend(rows.into_iter().filter(|row| passes(matrix, &row.pubkey, wanted)));
        if is_last || found.len() > lines || !narrowed {
            break None;
        }
        if looked_at >= LOOKED_AT_MAX {
            break after;
        }
    };
    let cursor = |at: (i64, i64)| Cursor { at: at.0, id: at.1.to_string() };
    let (rows, next) = cut(found, lines, |row| cursor(place(row)));
    let next = next.or_else(|| more.map(cursor));
    let people = People::of(rx, rows.iter().map(|row| row.pubkey))?;
    let mut items = Vec::new();
    for row in &rows {
        items.push(offer(rx, row, &people, (live_since_ms, matrix))?);
    }
    Ok(Listed { items, next })
}

/// Where an offer stands in the list.
fn place(row: &index::Provider) -> (i64, i64) {
    (row.heard_ms.unwrap_or(0), row.seq)
}

/// Whether the matrix knows somebody as it is wanted: for the work that is wanted, or for any.
fn passes(matrix: &Matrix, key: &PublicKey, wanted: &Wanted) -> bool {
    if wanted.status.is_none() && wanted.tier.is_none() {
        return true;
    }
    let about = |stance: &Stance| {
        wanted.schema_id.as_ref().is_none_or(|schema_id| stance.task.as_str() == schema_id)
            && wanted.status.is_none_or(|status| stance.status == status)
            && wanted.tier.is_none_or(|tier| stance.tier == Some(tier))
    };
    matrix::stances(matrix, key).iter().any(about)
}

fn offer(
    rx: &mut Rx<'_>,
    row: &index::Provider,
    people: &People,
    (live_since_ms, matrix): (i64, &Matrix),
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
        routing: matrix::stances(matrix, &row.pubkey),
    })
}

/// What a job costs at least, of those that it offers. Benchmarks are mostly free, and say nothing about work.
fn price(card: &Announcement) -> Option<i64> {
    let prices = card.content.pricing.as_ref()?.per_job.as_ref()?;
    let of_work = prices.0.iter().filter(|(schema_id, _)| *schema_id != benchmark::SCHEMA_ID);
    let all = || prices.0.values().map(|price| price.0).min();
    of_work.map(|(_, price)| price.0).min().or_else(all)
}

/// All that is known of a key; none if it never offered anything, no receipt names it, and the matrix does not know it.
pub(super) fn provider(
    rx: &mut Rx<'_>,
    key: &PublicKey,
    live_since_ms: i64,
    (matrix, now_ms): (&Matrix, i64),
) -> Result<Option<Provider>> {
    let rows = index::provider(rx, key)?;
    let recommended = index::recommendations(rx, key, RECOMMENDERS_MAX)?;
    let people = People::of(rx, recommended.authors.iter().copied().chain([*key]))?;
    let by = recommended.authors.iter().map(|author| people.party(author)).collect();
    let mut offers = Vec::new();
    for row in &rows {
        offers.push(offer(rx, row, &people, (live_since_ms, matrix))?);
    }
    let receipts = overview::receipts_of(rx, key, RECEIPTS_MAX)?;
    let routing = matrix::beliefs(matrix, key, now_ms);
    if offers.is_empty() && receipts.is_empty() && routing.is_empty() {
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
        trust: matrix::curves(rx, key, &routing)?,
        routing,
        receipts: receipt::lines(rx, &receipts)?,
        reviews: Default::default(),
    }))
}
