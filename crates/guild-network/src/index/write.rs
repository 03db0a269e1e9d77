//! From events to rows.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::job::{Feedback, JobResult, Request};
use guild_protocol::nostr::{Event, EventId, kind, tag};
use guild_store::{Column, Sql, Tx, args};

use crate::Result;
use crate::archive::{self, id_key};

/// An event, and when it came.
pub(crate) struct Seen<'a> {
    pub(crate) seq: i64,
    pub(crate) event: &'a Event,
    /// When its first version came.
    pub(crate) first_ms: UnixMs,
    pub(crate) received_ms: UnixMs,
}

/// Texts longer than this are no names of anything.
const MAX_NAME_BYTES: usize = 256;
/// Who was not heard for so long is forgotten.
const FORGET_HEARTBEAT_MS: i64 = 30 * 24 * 3_600_000;

/// Writes what new events say.
pub(crate) fn apply(tx: &mut Tx<'_>, seen: &[Seen<'_>]) -> Result<()> {
    derive(tx, seen)?;
    observe(tx, seen)
}

/// Makes all rows again from the archive. What was only observed, the heartbeats, stays.
pub fn rebuild(tx: &mut Tx<'_>) -> Result<()> {
    for table in [
        "DELETE FROM index_provider",
        "DELETE FROM index_schema",
        "DELETE FROM index_request",
        "DELETE FROM index_answer",
    ] {
        tx.exec(table, &[])?;
    }
    let mut after = 0;
    loop {
        let rows = archive::rows_after(tx, after, 500)?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.seq;
        let seen: Vec<Seen<'_>> = rows
            .iter()
            .filter(|row| !row.is_hidden || kind::is_request(row.event.kind))
            .map(|row| Seen {
                seq: row.seq,
                event: &row.event,
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
    insert_answers(tx, seen)
}

/// A text that a column can hold, if it is short enough to name something.
pub(super) fn word(text: &str) -> Option<&str> {
    (text.len() <= MAX_NAME_BYTES && !text.contains('\0')).then_some(text)
}

fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

struct ProviderRow {
    seq: i64,
    pubkey: String,
    d: String,
    canonical_d: String,
    name: Option<String>,
    first_ms: UnixMs,
    last_ms: UnixMs,
    schemas: Vec<String>,
}

fn provider_row(seen: &Seen<'_>) -> Option<ProviderRow> {
    if seen.event.kind != kind::ANNOUNCEMENT {
        return None;
    }
    // One that cannot be read is still in the archive; nobody can be hired by it.
    let card = Announcement::parse(seen.event).ok()?;
    let mut schemas: Vec<String> =
        card.schema_ids().into_iter().filter_map(word).map(str::to_owned).collect();
    schemas.sort();
    schemas.dedup();
    Some(ProviderRow {
        seq: seen.seq,
        pubkey: seen.event.pubkey.hex(),
        d: word(&card.d)?.to_owned(),
        canonical_d: card.canonical_d(),
        name: card.content.name.as_deref().and_then(word).map(str::to_owned),
        first_ms: seen.first_ms,
        last_ms: seen.received_ms,
        schemas,
    })
}

const INSERT_PROVIDERS: Sql = Sql {
    lite: "INSERT INTO index_provider (seq, pubkey, d, canonical_d, name, first_ms, last_ms)
           VALUES ($1, $2, $3, $4, $5, $6, $7)",
    pg: "INSERT INTO index_provider (seq, pubkey, d, canonical_d, name, first_ms, last_ms)
         SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[],
           $6::bigint[], $7::bigint[])",
};
const INSERT_SCHEMAS: Sql = Sql {
    lite: "INSERT INTO index_schema (schema_id, seq) VALUES ($1, $2)",
    pg: "INSERT INTO index_schema (schema_id, seq) SELECT * FROM unnest($1::text[], $2::bigint[])",
};

fn insert_providers(tx: &mut Tx<'_>, seen: &[Seen<'_>]) -> Result<()> {
    let rows: Vec<ProviderRow> = seen.iter().filter_map(provider_row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let ints = |of: fn(&ProviderRow) -> i64| rows.iter().map(of).collect::<Vec<_>>();
    let texts = |of: fn(&ProviderRow) -> &str| rows.iter().map(of).collect::<Vec<_>>();
    let names: Vec<Option<&str>> = rows.iter().map(|row| row.name.as_deref()).collect();
    tx.exec_set(
        INSERT_PROVIDERS,
        &[
            Column::Ints(&ints(|row| row.seq)),
            Column::Texts(&texts(|row| &row.pubkey)),
            Column::Texts(&texts(|row| &row.d)),
            Column::Texts(&texts(|row| &row.canonical_d)),
            Column::OptTexts(&names),
            Column::Ints(&ints(|row| row.first_ms)),
            Column::Ints(&ints(|row| row.last_ms)),
        ],
    )?;
    let schemas = rows.iter().flat_map(|row| row.schemas.iter().map(|id| (id.as_str(), row.seq)));
    let (ids, seqs): (Vec<&str>, Vec<i64>) = schemas.unzip();
    tx.exec_set(INSERT_SCHEMAS, &[Column::Texts(&ids), Column::Ints(&seqs)])?;
    Ok(())
}

struct RequestRow {
    seq: i64,
    schema_id: Option<String>,
    bid_msat: Option<i64>,
    providers: String,
    is_private: bool,
}

fn request_row(seen: &Seen<'_>) -> Option<RequestRow> {
    let event = seen.event;
    if !kind::is_request(event.kind) {
        return None;
    }
    let is_private = tag::has(&event.tags, "encrypted");
    // Of a private one only what everybody sees.
    let (schema_id, bid_msat, providers) = if is_private {
        let bid = tag::value(&event.tags, "bid").and_then(|bid| bid.parse().ok());
        let keys = tag::values(&event.tags, "p").filter_map(|key| key.parse().ok());
        (None, bid, keys.collect::<Vec<PublicKey>>())
    } else {
        let request = Request::parse(event, None).ok()?;
        let bid = request.bid.map(|bid| bid.0);
        (request.schema_id, bid, request.providers)
    };
    let providers: Vec<String> = providers.iter().map(|key| format!("\"{}\"", key.hex())).collect();
    Some(RequestRow {
        seq: seen.seq,
        schema_id: schema_id.as_deref().and_then(word).map(str::to_owned),
        bid_msat,
        providers: format!("[{}]", providers.join(",")),
        is_private,
    })
}

const INSERT_REQUESTS: Sql = Sql {
    lite: "INSERT INTO index_request (seq, schema_id, bid_msat, providers, private)
           VALUES ($1, $2, $3, $4, $5)",
    pg: "INSERT INTO index_request (seq, schema_id, bid_msat, providers, private)
         SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::bigint[])",
};

fn insert_requests(tx: &mut Tx<'_>, seen: &[Seen<'_>]) -> Result<()> {
    let rows: Vec<RequestRow> = seen.iter().filter_map(request_row).collect();
    let ints = |of: fn(&RequestRow) -> i64| rows.iter().map(of).collect::<Vec<_>>();
    let schemas: Vec<Option<&str>> = rows.iter().map(|row| row.schema_id.as_deref()).collect();
    let bids: Vec<Option<i64>> = rows.iter().map(|row| row.bid_msat).collect();
    let providers: Vec<&str> = rows.iter().map(|row| row.providers.as_str()).collect();
    tx.exec_set(
        INSERT_REQUESTS,
        &[
            Column::Ints(&ints(|row| row.seq)),
            Column::OptTexts(&schemas),
            Column::OptInts(&bids),
            Column::Texts(&providers),
            Column::Ints(&ints(|row| i64::from(row.is_private))),
        ],
    )?;
    Ok(())
}

struct AnswerRow {
    seq: i64,
    request: EventId,
    request_id: String,
    status: Option<String>,
    price_msat: Option<i64>,
}

/// The request, the status and the price that an answer names; of an encrypted one what everybody sees.
fn answer_says(event: &Event) -> Option<(EventId, Option<String>, Option<i64>)> {
    if tag::has(&event.tags, "encrypted") {
        let request = tag::value(&event.tags, "e")?.parse().ok()?;
        let price = tag::value(&event.tags, "amount").and_then(|price| price.parse().ok());
        return Some((request, tag::value(&event.tags, "status").map(str::to_owned), price));
    }
    if event.kind == kind::FEEDBACK {
        let feedback = Feedback::parse(event, None).ok()?;
        let price = feedback.price.map(|price| price.msat.0);
        return Some((feedback.request.id, Some(feedback.status.to_string()), price));
    }
    let result = JobResult::parse(event, None).ok()?;
    Some((result.request.id, None, result.price.map(|price| price.msat.0)))
}

fn is_answer(event: &Event) -> bool {
    kind::is_result(event.kind) || event.kind == kind::FEEDBACK
}

fn answer_row(seen: &Seen<'_>) -> Option<AnswerRow> {
    if !is_answer(seen.event) {
        return None;
    }
    let (request, status, price_msat) = answer_says(seen.event)?;
    Some(AnswerRow {
        seq: seen.seq,
        request,
        request_id: request.hex(),
        status: status.as_deref().and_then(word).map(str::to_owned),
        price_msat,
    })
}

const INSERT_ANSWERS: Sql = Sql {
    lite: "INSERT INTO index_answer (seq, request_key, request_id, status, price_msat)
           VALUES ($1, $2, $3, $4, $5)",
    pg: "INSERT INTO index_answer (seq, request_key, request_id, status, price_msat)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[])",
};

fn insert_answers(tx: &mut Tx<'_>, seen: &[Seen<'_>]) -> Result<()> {
    let rows: Vec<AnswerRow> = seen.iter().filter_map(answer_row).collect();
    let ints = |of: fn(&AnswerRow) -> i64| rows.iter().map(of).collect::<Vec<_>>();
    let requests: Vec<&str> = rows.iter().map(|row| row.request_id.as_str()).collect();
    let statuses: Vec<Option<&str>> = rows.iter().map(|row| row.status.as_deref()).collect();
    let prices: Vec<Option<i64>> = rows.iter().map(|row| row.price_msat).collect();
    tx.exec_set(
        INSERT_ANSWERS,
        &[
            Column::Ints(&ints(|row| row.seq)),
            Column::Ints(&ints(|row| id_key(&row.request))),
            Column::Texts(&requests),
            Column::OptTexts(&statuses),
            Column::OptInts(&prices),
        ],
    )?;
    Ok(())
}

const HEARD: Sql = Sql {
    lite: "INSERT INTO index_heartbeat (pubkey, d, last_ms) VALUES ($1, $2, $3)
           ON CONFLICT (pubkey, d) DO UPDATE SET last_ms = max(last_ms, excluded.last_ms)",
    pg: "INSERT INTO index_heartbeat AS old (pubkey, d, last_ms)
         SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
         ON CONFLICT (pubkey, d) DO UPDATE SET last_ms = greatest(old.last_ms, excluded.last_ms)",
};
const HEARD_ANSWERING: Sql = Sql {
    lite: "INSERT INTO index_heartbeat (pubkey, d, last_ms)
           SELECT $1, '', $2 WHERE EXISTS (SELECT 1 FROM index_provider WHERE pubkey = $1)
           ON CONFLICT (pubkey, d) DO UPDATE SET last_ms = max(last_ms, excluded.last_ms)",
    pg: "INSERT INTO index_heartbeat AS old (pubkey, d, last_ms)
         SELECT pubkey, '', last_ms FROM unnest($1::text[], $2::bigint[]) AS heard (pubkey, last_ms)
         WHERE EXISTS (SELECT 1 FROM index_provider p WHERE p.pubkey = heard.pubkey)
         ON CONFLICT (pubkey, d) DO UPDATE SET last_ms = greatest(old.last_ms, excluded.last_ms)",
};

/// Notes who was heard: by a heartbeat, an announcement, or an answer. An old event that comes late is an old sign.
fn observe(tx: &mut Tx<'_>, seen: &[Seen<'_>]) -> Result<()> {
    let (mut heard, mut answering) = (BTreeMap::new(), BTreeMap::new());
    for Seen { event, received_ms, .. } in seen {
        let at_ms = seconds(event.created_at).saturating_mul(1000).min(*received_ms);
        let pubkey = || event.pubkey.hex();
        if is_answer(event) {
            let last = answering.entry(pubkey()).or_insert(at_ms);
            *last = at_ms.max(*last);
        }
        if matches!(event.kind, kind::HEARTBEAT | kind::ANNOUNCEMENT)
            && let Some(d) = word(event.tag("d").unwrap_or_default())
        {
            let last = heard.entry((pubkey(), d)).or_insert(at_ms);
            *last = at_ms.max(*last);
        }
    }
    let pubkeys: Vec<&str> = heard.keys().map(|(pubkey, _)| pubkey.as_str()).collect();
    let ds: Vec<&str> = heard.keys().map(|(_, d)| *d).collect();
    let lasts: Vec<i64> = heard.values().copied().collect();
    tx.exec_set(HEARD, &[Column::Texts(&pubkeys), Column::Texts(&ds), Column::Ints(&lasts)])?;
    let pubkeys: Vec<&str> = answering.keys().map(String::as_str).collect();
    let lasts: Vec<i64> = answering.values().copied().collect();
    tx.exec_set(HEARD_ANSWERING, &[Column::Texts(&pubkeys), Column::Ints(&lasts)])?;
    Ok(())
}

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

/// Removes what events said that are kept and no longer served. A request that was taken back is still one that
/// somebody made: readers see it, and that it was.
pub(crate) fn hide(tx: &mut Tx<'_>, seqs: &[i64]) -> Result<()> {
    for sql in [delete!("index_provider"), delete!("index_schema"), delete!("index_answer")] {
        tx.exec_set(sql, &[Column::Ints(seqs)])?;
    }
    Ok(())
}

/// Forgets who was not heard for long.
pub(crate) fn sweep(tx: &mut Tx<'_>, now_s: u64) -> Result<()> {
    let before_ms = seconds(now_s).saturating_mul(1000).saturating_sub(FORGET_HEARTBEAT_MS);
    tx.exec("DELETE FROM index_heartbeat WHERE last_ms < $1", args![before_ms])?;
    Ok(())
}
