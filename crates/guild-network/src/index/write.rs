//! From events to rows.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, kind};
use guild_store::{Column, Sql, Tx, args};

use super::recommendation;
use super::said::{AnswerSaid, OfferSaid, RequestSaid, Said, is_answer};
use crate::Result;
use crate::archive;

/// An event, and when it came.
pub(crate) struct Seen<'a> {
    pub(crate) seq: i64,
    pub(crate) event: &'a Event,
    /// What it says as a row.
    pub(crate) said: &'a Said,
    /// When its first version came.
    pub(crate) first_ms: UnixMs,
    pub(crate) received_ms: UnixMs,
}

impl Seen<'_> {
    /// When its author gave this sign of life. An old event that comes late is an old sign.
    fn at_ms(&self) -> UnixMs {
        seconds(self.event.created_at).saturating_mul(1000).min(self.received_ms)
    }
}

/// Texts longer than this are no names of anything.
const MAX_NAME_BYTES: usize = 256;
/// Who was not heard for so long is forgotten.
const FORGET_HEARTBEAT_MS: i64 = 30 * 24 * 3_600_000;
/// One sweep never forgets more than this, so that no other write waits long for it.
const FORGET_STEP_MAX: i64 = 500;

/// Writes what new events say.
pub(crate) fn apply(tx: &mut Tx<'_>, seen: &[Seen<'_>]) -> Result<()> {
    derive(tx, seen)?;
    observe(tx, seen)
}

/// Makes all rows again from the archive; from how many events. What was only observed, the heartbeats, stays.
pub fn rebuild(tx: &mut Tx<'_>) -> Result<u64> {
    for table in [
        "DELETE FROM index_provider",
        "DELETE FROM index_schema",
        "DELETE FROM index_request",
        "DELETE FROM index_answer",
        "DELETE FROM index_recommendation",
    ] {
        tx.exec(table, &[])?;
    }
    let (mut after, mut events) = (0, 0_u64);
    loop {
        let rows = archive::rows_after(tx, after, 500)?;
        let Some(last) = rows.last() else { return Ok(events) };
        (after, events) = (last.seq, events.saturating_add(rows.len() as u64));
        let said: Vec<Said> = rows.iter().map(|row| Said::of(&row.event)).collect();
        let seen: Vec<Seen<'_>> = rows
            .iter()
            .zip(&said)
            .filter(|(row, _)| !row.is_hidden || kind::is_request(row.event.kind))
            .map(|(row, said)| Seen {
                seq: row.seq,
                event: &row.event,
                said,
                first_ms: row.first_ms,
                received_ms: row.received_ms,
            })
            .collect();
        derive(tx, &seen)?;
    }
}

fn derive(tx: &mut Tx<'_>, seen: &[Seen<'_>]) -> Result<()> {
    insert_providers(tx, seen)?;
    insert_requests(tx, seen)?;
    insert_answers(tx, seen)?;
    recommendation::insert(tx, seen)
}

/// A text that a column can hold, if it is short enough to name something.
pub(super) fn word(text: &str) -> Option<&str> {
    (text.len() <= MAX_NAME_BYTES && !text.contains('\0')).then_some(text)
}

/// A name as it looks at a glance: lower case, and nothing but letters and digits, if it has any. What cannot be seen,
/// as characters without width, makes no difference.
pub(super) fn canonical_name(name: &str) -> Option<String> {
    let seen = |c: &char| !c.is_control() && !c.is_whitespace();
    let lower = word(name)?.to_lowercase();
    let plain: String = lower.chars().filter(|c| c.is_alphanumeric()).collect();
    let shown = if plain.is_empty() { lower.chars().filter(seen).collect() } else { plain };
    Some(shown).filter(|shown| !shown.is_empty())
}

fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// The numbers by which the offers of keys are found.
pub(super) fn pubkey_keys<'a>(keys: impl IntoIterator<Item = &'a PublicKey>) -> Vec<i64> {
    keys.into_iter().map(archive::pubkey_key).collect()
}

/// An offer as it stands in a row.
struct ProviderRow<'a> {
    seq: i64,
    pubkey: &'a PublicKey,
    said: &'a OfferSaid,
    first_ms: UnixMs,
    last_ms: UnixMs,
    said_ms: UnixMs,
}

fn provider_row<'a>(seen: &Seen<'a>) -> Option<ProviderRow<'a>> {
    let Said::Offer(Ok(said)) = seen.said else { return None };
    Some(ProviderRow {
        seq: seen.seq,
        pubkey: &seen.event.pubkey,
        said,
        first_ms: seen.first_ms,
        last_ms: seen.received_ms,
        said_ms: seen.at_ms(),
    })
}

macro_rules! insert_providers {
    ($rows:literal) => {
        concat!(
            "INSERT INTO index_provider (seq, pubkey, d, canonical_d, name, canonical_name, first_ms,
               last_ms, said_ms, pubkey_key) ",
            $rows
        )
    };
}

/// The row of an older version goes with its event.
const INSERT_PROVIDERS: Sql = Sql {
    lite: insert_providers!("VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"),
    pg: insert_providers!(
        "SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[],
           $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])"
    ),
};
const INSERT_SCHEMAS: Sql = Sql {
    lite: "INSERT INTO index_schema (schema_id, seq) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    pg: "INSERT INTO index_schema (schema_id, seq)
         SELECT * FROM unnest($1::text[], $2::bigint[]) ON CONFLICT DO NOTHING",
};

fn insert_providers(tx: &mut Tx<'_>, seen: &[Seen<'_>]) -> Result<()> {
    let rows: Vec<ProviderRow<'_>> = seen.iter().filter_map(provider_row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let ints = |of: fn(&ProviderRow<'_>) -> i64| rows.iter().map(of).collect::<Vec<_>>();
    let pubkeys: Vec<String> = rows.iter().map(|row| row.pubkey.hex()).collect();
    let pubkeys: Vec<&str> = pubkeys.iter().map(String::as_str).collect();
    let texts = |of: fn(&OfferSaid) -> &str| rows.iter().map(|row| of(row.said)).collect();
    let (ds, canonical_ds): (Vec<&str>, Vec<&str>) =
        (texts(|said| &said.card.d), texts(|said| &said.canonical_d));
    let names: Vec<Option<&str>> = rows.iter().map(|row| row.said.name()).collect();
    let canonical_names: Vec<Option<&str>> =
        rows.iter().map(|row| row.said.canonical_name.as_deref()).collect();
    tx.exec_set(
        INSERT_PROVIDERS,
        &[
            Column::Ints(&ints(|row| row.seq)),
            Column::Texts(&pubkeys),
            Column::Texts(&ds),
            Column::Texts(&canonical_ds),
            Column::OptTexts(&names),
            Column::OptTexts(&canonical_names),
            Column::Ints(&ints(|row| row.first_ms)),
            Column::Ints(&ints(|row| row.last_ms)),
            Column::Ints(&ints(|row| row.said_ms)),
            Column::Ints(&ints(|row| archive::pubkey_key(row.pubkey))),
        ],
    )?;
    let schemas =
        rows.iter().flat_map(|row| row.said.schemas.iter().map(|id| (id.as_str(), row.seq)));
    let (ids, seqs): (Vec<&str>, Vec<i64>) = schemas.unzip();
    tx.exec_set(INSERT_SCHEMAS, &[Column::Texts(&ids), Column::Ints(&seqs)])?;
    Ok(())
}

const INSERT_REQUESTS: Sql = Sql {
    lite: "INSERT INTO index_request (seq, schema_id, bid_msat, providers, private)
           VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
    pg: "INSERT INTO index_request (seq, schema_id, bid_msat, providers, private)
         SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::bigint[])
         ON CONFLICT DO NOTHING",
};

fn insert_requests<'a>(tx: &mut Tx<'_>, seen: &[Seen<'a>]) -> Result<()> {
    let row = |seen: &Seen<'a>| match seen.said {
        Said::Request(said) => Some((seen.seq, said)),
        _ => None,
    };
    let rows: Vec<(i64, &RequestSaid)> = seen.iter().filter_map(row).collect();
    let seqs: Vec<i64> = rows.iter().map(|(seq, _)| *seq).collect();
    let schemas: Vec<Option<&str>> =
        rows.iter().map(|(_, said)| said.schema_id.as_deref()).collect();
    let bids: Vec<Option<i64>> = rows.iter().map(|(_, said)| said.bid_msat).collect();
    let providers: Vec<&str> = rows.iter().map(|(_, said)| said.providers.as_str()).collect();
    let private: Vec<i64> = rows.iter().map(|(_, said)| i64::from(said.is_private)).collect();
    tx.exec_set(
        INSERT_REQUESTS,
        &[
            Column::Ints(&seqs),
            Column::OptTexts(&schemas),
            Column::OptInts(&bids),
            Column::Texts(&providers),
            Column::Ints(&private),
        ],
    )?;
    Ok(())
}

const INSERT_ANSWERS: Sql = Sql {
    lite: "INSERT INTO index_answer (seq, request_id, status, price_msat)
           VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
    pg: "INSERT INTO index_answer (seq, request_id, status, price_msat)
         SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[])
         ON CONFLICT DO NOTHING",
};

fn insert_answers<'a>(tx: &mut Tx<'_>, seen: &[Seen<'a>]) -> Result<()> {
    let row = |seen: &Seen<'a>| match seen.said {
        Said::Answer(said) => Some((seen.seq, said)),
        _ => None,
    };
    let rows: Vec<(i64, &AnswerSaid)> = seen.iter().filter_map(row).collect();
    let seqs: Vec<i64> = rows.iter().map(|(seq, _)| *seq).collect();
    let requests: Vec<&str> = rows.iter().map(|(_, said)| said.request_id.as_str()).collect();
    let statuses: Vec<Option<&str>> = rows.iter().map(|(_, said)| said.status.as_deref()).collect();
    let prices: Vec<Option<i64>> = rows.iter().map(|(_, said)| said.price_msat).collect();
    tx.exec_set(
        INSERT_ANSWERS,
        &[
            Column::Ints(&seqs),
            Column::Texts(&requests),
            Column::OptTexts(&statuses),
            Column::OptInts(&prices),
        ],
    )?;
    Ok(())
}

const HEARD: Sql = Sql {
    lite: "INSERT INTO index_heartbeat (pubkey, d, last_ms) SELECT $1, $2, $3
           WHERE EXISTS (SELECT 1 FROM nostr_event e JOIN index_provider p ON p.seq = e.seq
             WHERE e.address_key = $4 AND p.pubkey = $1 AND p.d = $2)
           ON CONFLICT (pubkey, d) DO UPDATE SET last_ms = max(last_ms, excluded.last_ms)",
    pg: "INSERT INTO index_heartbeat AS old (pubkey, d, last_ms)
         SELECT pubkey, d, last_ms
         FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
           AS heard (pubkey, d, last_ms, key)
         WHERE EXISTS (SELECT 1 FROM nostr_event e JOIN index_provider p ON p.seq = e.seq
           WHERE e.address_key = heard.key AND p.pubkey = heard.pubkey AND p.d = heard.d)
         ON CONFLICT (pubkey, d) DO UPDATE SET last_ms = greatest(old.last_ms, excluded.last_ms)",
};
const HEARD_AT_ALL: Sql = Sql {
    lite: "INSERT INTO index_heartbeat (pubkey, d, last_ms)
           SELECT $1, '', $2
           WHERE EXISTS (SELECT 1 FROM index_provider WHERE pubkey_key = $3 AND pubkey = $1)
           ON CONFLICT (pubkey, d) DO UPDATE SET last_ms = max(last_ms, excluded.last_ms)",
    pg: "INSERT INTO index_heartbeat AS old (pubkey, d, last_ms)
         SELECT pubkey, '', last_ms
         FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS heard (pubkey, last_ms, key)
         WHERE EXISTS (SELECT 1 FROM index_provider p
           WHERE p.pubkey_key = heard.key AND p.pubkey = heard.pubkey)
         ON CONFLICT (pubkey, d) DO UPDATE SET last_ms = greatest(old.last_ms, excluded.last_ms)",
};

/// Notes which offers were heard: one by a heartbeat that names it, all of a key by an answer or a heartbeat that names
/// none. Whoever offers nothing is not noted. An announcement is a sign too, which its own row tells.
fn observe(tx: &mut Tx<'_>, seen: &[Seen<'_>]) -> Result<()> {
    let (mut offers, mut keys) = (BTreeMap::new(), BTreeMap::new());
    for one in seen {
        let (event, at_ms) = (one.event, one.at_ms());
        let d = match event.kind {
            kind::HEARTBEAT => word(event.tag("d").unwrap_or_default()),
            _ => is_answer(event).then_some(""),
        };
        let last = match d {
            None => continue,
            Some("") => keys.entry(event.pubkey).or_insert(at_ms),
            Some(d) => offers.entry((event.pubkey, d)).or_insert(at_ms),
        };
        *last = at_ms.max(*last);
    }
    let pubkeys: Vec<String> = offers.keys().map(|(pubkey, _)| pubkey.hex()).collect();
    let pubkeys: Vec<&str> = pubkeys.iter().map(String::as_str).collect();
    let ds: Vec<&str> = offers.keys().map(|(_, d)| *d).collect();
    let lasts: Vec<i64> = offers.values().copied().collect();
    let places: Vec<i64> = offers.keys().map(|(key, d)| archive::offer_key(key, d)).collect();
    tx.exec_set(
        HEARD,
        &[Column::Texts(&pubkeys), Column::Texts(&ds), Column::Ints(&lasts), Column::Ints(&places)],
    )?;
    let pubkeys: Vec<String> = keys.keys().map(PublicKey::hex).collect();
    let pubkeys: Vec<&str> = pubkeys.iter().map(String::as_str).collect();
    let lasts: Vec<i64> = keys.values().copied().collect();
    let keys = pubkey_keys(keys.keys());
    let columns = [Column::Texts(&pubkeys), Column::Ints(&lasts), Column::Ints(&keys)];
    tx.exec_set(HEARD_AT_ALL, &columns)?;
    Ok(())
}

const OFFERS: Sql = Sql {
    lite: "SELECT pubkey, d FROM index_provider WHERE seq = $1",
    pg: "SELECT pubkey, d FROM index_provider WHERE seq = ANY ($1::bigint[])",
};
const UNHEARD: Sql = Sql {
    lite: "DELETE FROM index_heartbeat WHERE pubkey = $1 AND d = $2 AND d <> ''
           AND NOT EXISTS (SELECT 1 FROM nostr_event e JOIN index_provider p ON p.seq = e.seq
             WHERE e.address_key = $3 AND p.pubkey = $1 AND p.d = $2)",
    pg: "DELETE FROM index_heartbeat h
         USING unnest($1::text[], $2::text[], $3::bigint[]) AS gone (pubkey, d, key)
         WHERE h.pubkey = gone.pubkey AND h.d = gone.d AND h.d <> ''
         AND NOT EXISTS (SELECT 1 FROM nostr_event e JOIN index_provider p ON p.seq = e.seq
           WHERE e.address_key = gone.key AND p.pubkey = gone.pubkey AND p.d = gone.d)",
};
const UNHEARD_AT_ALL: Sql = Sql {
    lite: "DELETE FROM index_heartbeat WHERE pubkey = $1 AND d = ''
           AND NOT EXISTS (SELECT 1 FROM index_provider WHERE pubkey_key = $2 AND pubkey = $1)",
    pg: "DELETE FROM index_heartbeat h USING unnest($1::text[], $2::bigint[]) AS gone (pubkey, key)
         WHERE h.pubkey = gone.pubkey AND h.d = '' AND NOT EXISTS (SELECT 1 FROM index_provider p
           WHERE p.pubkey_key = gone.key AND p.pubkey = gone.pubkey)",
};

macro_rules! delete {
    ($table:literal) => {
        Sql {
            lite: concat!("DELETE FROM ", $table, " WHERE seq = $1"),
            pg: concat!("DELETE FROM ", $table, " WHERE seq = ANY ($1::bigint[])"),
        }
    };
}

/// Removes what events said that are forgotten.
pub(crate) fn forget(tx: &mut Tx<'_>, seqs: &[i64]) -> Result<()> {
    hide(tx, seqs)?;
    tx.exec_set(delete!("index_request"), &[Column::Ints(seqs)])?;
    Ok(())
}

/// Removes what events said that are kept and no longer served, and when an offer was heard that is no more. A request
/// that was taken back is still one that somebody made: readers see it, and that it was.
pub(crate) fn hide(tx: &mut Tx<'_>, seqs: &[i64]) -> Result<()> {
    let offers: Vec<(String, String)> = tx.all_set(OFFERS, &[Column::Ints(seqs)])?;
    for sql in [
        delete!("index_provider"),
        delete!("index_schema"),
        delete!("index_answer"),
        delete!("index_recommendation"),
    ] {
        tx.exec_set(sql, &[Column::Ints(seqs)])?;
    }
    let keys = offers.iter().map(|(pubkey, _)| pubkey.parse()).collect::<Result<Vec<_>, _>>()?;
    let places: Vec<i64> =
        keys.iter().zip(&offers).map(|(key, (_, d))| archive::offer_key(key, d)).collect();
    let pubkeys: Vec<&str> = offers.iter().map(|(pubkey, _)| pubkey.as_str()).collect();
    let ds: Vec<&str> = offers.iter().map(|(_, d)| d.as_str()).collect();
    let columns = [Column::Texts(&pubkeys), Column::Texts(&ds), Column::Ints(&places)];
    tx.exec_set(UNHEARD, &columns)?;
    let columns = [Column::Texts(&pubkeys), Column::Ints(&pubkey_keys(&keys))];
    tx.exec_set(UNHEARD_AT_ALL, &columns)?;
    Ok(())
}

/// Forgets some of those that were not heard for long; whether there are more.
pub(crate) fn sweep(tx: &mut Tx<'_>, now_s: u64) -> Result<bool> {
    let before_ms = seconds(now_s).saturating_mul(1000).saturating_sub(FORGET_HEARTBEAT_MS);
    let gone = tx.exec(
        "DELETE FROM index_heartbeat WHERE (pubkey, d) IN (SELECT pubkey, d FROM index_heartbeat
           WHERE last_ms < $1 ORDER BY last_ms LIMIT $2)",
        args![before_ms, FORGET_STEP_MAX],
    )?;
    Ok(i64::try_from(gone).unwrap_or(i64::MAX) >= FORGET_STEP_MAX)
}

#[cfg(test)]
mod tests {
    use super::canonical_name;

    #[test]
    fn names_that_look_the_same_are_the_same() {
        let fast = Some("fastbox".to_owned());
        for name in ["Fast Box", "fast-box", " FASTBOX ", "Fa\u{200b}st\u{202e} box", "«Fast» box!"]
        {
            assert_eq!(canonical_name(name), fast, "{name:?}");
        }
        assert_ne!(canonical_name("Fast Box 2"), fast);
        assert_eq!(canonical_name("\u{1f980} \u{1f980}"), Some("\u{1f980}\u{1f980}".to_owned()));
        assert_eq!(canonical_name(" \t"), None);
        assert_eq!(canonical_name(&"x".repeat(300)), None);
    }
}
