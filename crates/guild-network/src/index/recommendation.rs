//! Who recommends whom (NIP-89). Anybody can, as often as they have keys: it is what is said, and proves nothing.

use std::collections::BTreeSet;

use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, kind, tag};
use guild_store::{Column, Rx, Sql, Tx, args};

use super::write::Seen;
use crate::Result;

/// One event recommends no more providers than this.
const RECOMMENDED_MAX: usize = 64;
/// So many recommendations of one provider are looked at, the newest.
const LOOKED_AT_MAX: i64 = 1_000;

/// What is said for a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recommendations {
    /// How many keys recommend it, as far as a look at the newest thousand events tells.
    pub count: usize,
    /// Some of them, those that did so last first.
    pub authors: Vec<PublicKey>,
}

/// The keys whose announcements an event recommends, each once. Nobody recommends itself.
pub(super) fn recommended(event: &Event) -> BTreeSet<PublicKey> {
    let provider = |address: &str| {
        let (kind_written, rest) = address.split_once(':')?;
        let (provider, _) = rest.split_once(':')?;
        let is_announcement = kind_written.parse() == Ok(kind::ANNOUNCEMENT);
        provider.parse::<PublicKey>().ok().filter(|key| is_announcement && *key != event.pubkey)
    };
    tag::values(&event.tags, "a").filter_map(provider).take(RECOMMENDED_MAX).collect()
}

const INSERT: Sql = Sql {
    lite: "INSERT INTO index_recommendation (provider, seq, author) VALUES ($1, $2, $3)
           ON CONFLICT DO NOTHING",
    pg: "INSERT INTO index_recommendation (provider, seq, author)
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[]) ON CONFLICT DO NOTHING",
};

/// Writes what new events recommend.
pub(super) fn insert(tx: &mut Tx<'_>, seen: &[Seen<'_>]) -> Result<()> {
    let mut rows: Vec<(String, i64, String)> = Vec::new();
    for Seen { seq, event, .. } in seen.iter().filter(|s| s.event.kind == kind::RECOMMENDATION) {
        let row = |provider: PublicKey| (provider.hex(), *seq, event.pubkey.hex());
        rows.extend(recommended(event).into_iter().map(row));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let providers: Vec<&str> = rows.iter().map(|row| row.0.as_str()).collect();
    let seqs: Vec<i64> = rows.iter().map(|row| row.1).collect();
    let authors: Vec<&str> = rows.iter().map(|row| row.2.as_str()).collect();
    let columns = [Column::Texts(&providers), Column::Ints(&seqs), Column::Texts(&authors)];
    tx.exec_set(INSERT, &columns)?;
    Ok(())
}

pub(super) const OF_PROVIDER: &str =
    "SELECT author FROM index_recommendation WHERE provider = $1 ORDER BY seq DESC LIMIT $2";

/// Who recommends a provider, with up to `limit` of their keys.
pub fn recommendations(
    rx: &mut Rx<'_>,
    provider: &PublicKey,
    limit: usize,
) -> Result<Recommendations> {
    let rows: Vec<(String,)> = rx.all(OF_PROVIDER, args![&provider.hex(), LOOKED_AT_MAX])?;
    let mut all = BTreeSet::new();
    let mut authors = Vec::new();
    for (author,) in rows {
        let author: PublicKey = author.parse()?;
        if all.insert(author) && authors.len() < limit {
            authors.push(author);
        }
    }
    Ok(Recommendations { count: all.len(), authors })
}
