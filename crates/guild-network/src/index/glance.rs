//! What readers need to know of many requests and providers at once.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_store::{Column, Rx, Sql, args};

use super::read::{Answer, AnswerRow, OFFERS_MAX, Request, answer_of, of_answers};
use super::said::list_of;
use super::write::{canonical_name, pubkey_keys};
use crate::Result;
use crate::archive::{answer_terms, pubkey_key};

/// Nothing is counted further than this: whoever asks must not make the node read whole tables.
pub const COUNT_MAX: i64 = 20_000;

/// How much is known, each up to [`COUNT_MAX`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Announcements.
    pub providers: i64,
    /// Those of the latest of them whose provider was heard since.
    pub providers_live: i64,
    /// Requests.
    pub requests: i64,
}

/// How much is known, and who of it was heard since a moment.
pub fn counts(rx: &mut Rx<'_>, live_since_ms: UnixMs) -> Result<Counts> {
    counts_up_to(rx, live_since_ms, COUNT_MAX)
}

fn counts_up_to(rx: &mut Rx<'_>, live_since_ms: UnixMs, most: i64) -> Result<Counts> {
    let row: Option<(i64, i64, i64)> = rx.first(
        "SELECT (SELECT count(*) FROM (SELECT seq FROM index_provider LIMIT $2) AS offers),
           (SELECT count(*) FROM
              (SELECT pubkey, d, said_ms FROM index_provider ORDER BY seq DESC LIMIT $2) AS p
            WHERE p.said_ms >= $1 OR EXISTS (SELECT 1 FROM index_heartbeat h
              WHERE h.pubkey = p.pubkey AND h.d IN (p.d, '') AND h.last_ms >= $1)),
           (SELECT count(*) FROM (SELECT seq FROM index_request LIMIT $2) AS requests)",
        args![live_since_ms, most],
    )?;
    let (providers, providers_live, requests) = row.unwrap_or_default();
    Ok(Counts { providers, providers_live, requests })
}

const NAMES: Sql = Sql {
    lite: "SELECT pubkey, name FROM (SELECT pubkey, name, seq FROM index_provider
             WHERE pubkey_key = $3 AND pubkey = $1
             ORDER BY seq DESC LIMIT $2) AS found WHERE name IS NOT NULL ORDER BY seq",
    pg: "SELECT found.pubkey, found.name
         FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS ask (pubkey, most, pubkey_key),
           LATERAL (SELECT p.pubkey, p.name, p.seq FROM index_provider p
             WHERE p.pubkey_key = ask.pubkey_key AND p.pubkey = ask.pubkey
             ORDER BY p.seq DESC LIMIT ask.most) AS found
         WHERE found.name IS NOT NULL ORDER BY found.seq",
};

/// What these keys call themselves, by their newest announcements. Two may have the same name.
pub fn names(rx: &mut Rx<'_>, keys: &[PublicKey]) -> Result<BTreeMap<PublicKey, String>> {
    let pubkeys: Vec<String> = keys.iter().map(PublicKey::hex).collect();
    let pubkeys: Vec<&str> = pubkeys.iter().map(String::as_str).collect();
    let (most, keys) = (vec![OFFERS_MAX; keys.len()], pubkey_keys(keys));
    let columns = [Column::Texts(&pubkeys), Column::Ints(&most), Column::Ints(&keys)];
    let rows: Vec<(String, String)> = rx.all_set(NAMES, &columns)?;
    // The newest comes last and stays.
    rows.into_iter().map(|(key, name)| Ok((key.parse()?, name))).collect()
}

/// The first and the last key with a name: both are found at once, however many announcements have it. Nobody makes a
/// key that begins with the sixty bits of another.
pub(super) const NAME_KEYS: &str =
    "SELECT (SELECT min(pubkey_key) FROM index_provider WHERE canonical_name = $1),
       (SELECT max(pubkey_key) FROM index_provider WHERE canonical_name = $1)";

/// Whether another key announces a name that looks the same. A text that is too long to be a name is nobody's.
pub fn is_name_shared(rx: &mut Rx<'_>, key: &PublicKey, name: &str) -> Result<bool> {
    let Some(name) = canonical_name(name) else { return Ok(false) };
    let row: Option<(Option<i64>, Option<i64>)> = rx.first(NAME_KEYS, args![&name])?;
    let (first, last) = row.unwrap_or_default();
    let key = pubkey_key(key);
    Ok([first, last].into_iter().flatten().any(|other| other != key))
}

/// What was answered to a request by those whom it addresses, or by anybody if it addresses nobody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// There is a result.
    pub has_result: bool,
    /// Somebody says that it works on it.
    pub is_worked_on: bool,
    /// Somebody says that it failed, or will not do it.
    pub is_refused: bool,
}

macro_rules! progress {
    ($from:literal, $addressed:literal) => {
        concat!(
            "SELECT a.request_id,
               CAST(max(CASE WHEN e.kind BETWEEN 6000 AND 6999 THEN 1 ELSE 0 END) AS BIGINT),
               CAST(max(CASE WHEN a.status IN ('processing', 'partial') THEN 1 ELSE 0 END) AS BIGINT),
               CAST(max(CASE WHEN a.status = 'error' THEN 1 ELSE 0 END) AS BIGINT)
             FROM ",
            $from,
            " AND (r.providers = '[]' OR ",
            $addressed,
            ") GROUP BY a.request_id"
        )
    };
}

const PROGRESS: Sql = Sql {
    lite: progress!(
        "nostr_term t JOIN index_answer a ON a.seq = t.seq JOIN nostr_event e ON e.seq = t.seq
         JOIN index_request r ON r.seq = $4
         WHERE t.term >= $1 AND t.term <= $2 AND a.request_id = $3",
        "instr(r.providers, e.pubkey) > 0"
    ),
    pg: progress!(
        "unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[])
           AS w (first_term, last_term, request_id, seq)
         JOIN nostr_term t ON t.term >= w.first_term AND t.term <= w.last_term
         JOIN index_answer a ON a.seq = t.seq AND a.request_id = w.request_id
         JOIN nostr_event e ON e.seq = t.seq JOIN index_request r ON r.seq = w.seq WHERE true",
        "strpos(r.providers, e.pubkey) > 0"
    ),
};

/// How these requests go on. One without an answer is left out.
pub fn progress(rx: &mut Rx<'_>, requests: &[Request]) -> Result<BTreeMap<EventId, Progress>> {
    let terms = requests.iter().map(|request| answer_terms(&request.request_id));
    let (first, last): (Vec<i64>, Vec<i64>) = terms.unzip();
    let ids: Vec<String> = requests.iter().map(|request| request.request_id.hex()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let seqs: Vec<i64> = requests.iter().map(|request| request.seq).collect();
    let columns =
        [Column::Ints(&first), Column::Ints(&last), Column::Texts(&ids), Column::Ints(&seqs)];
    let rows: Vec<(String, i64, i64, i64)> = rx.all_set(PROGRESS, &columns)?;
    let read = |(id, result, working, refused): (String, i64, i64, i64)| {
        let progress =
            Progress { has_result: result > 0, is_worked_on: working > 0, is_refused: refused > 0 };
        Ok((id.parse()?, progress))
    };
    rows.into_iter().map(read).collect()
}

/// Whether a key announces this kind of work.
pub fn announces(rx: &mut Rx<'_>, key: &PublicKey, schema_id: &str) -> Result<bool> {
    // In this order, which SQLite keeps: of a schema there may be any number of offers.
    let row: Option<(i64,)> = rx.first(
        "SELECT p.seq FROM index_provider p CROSS JOIN index_schema s
         WHERE p.pubkey_key = $1 AND p.pubkey = $2 AND s.seq = p.seq AND s.schema_id = $3 LIMIT 1",
        args![pubkey_key(key), &key.hex(), schema_id],
    )?;
    Ok(row.is_some())
}

const RESULTS_BY: Sql = Sql {
    lite: of_answers!(
        "SELECT e.event_id",
        "AND e.kind BETWEEN 6000 AND 6999 AND e.pubkey IN (SELECT value FROM json_each($4))
         ORDER BY a.seq LIMIT $5"
    ),
    pg: of_answers!(
        "SELECT e.event_id",
        "AND e.kind BETWEEN 6000 AND 6999 AND e.pubkey = ANY (translate($4, '[]\"', '{}')::text[])
         ORDER BY a.seq LIMIT $5"
    ),
};

/// Up to `limit` results for a request by these authors, in the order in which they came.
pub fn results_by(
    rx: &mut Rx<'_>,
    request_id: &EventId,
    authors: &[PublicKey],
    limit: usize,
) -> Result<Vec<EventId>> {
    let ((first, last), id) = (answer_terms(request_id), request_id.hex());
    let authors = list_of(authors);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let ids: Vec<(String,)> = rx.all(RESULTS_BY, args![first, last, &id, &authors, limit])?;
    ids.into_iter().map(|(id,)| Ok(id.parse()?)).collect()
}

const ANSWERS_WITHIN: Sql = Sql {
    lite: of_answers!(
        "ORDER BY CASE WHEN instr($4, e.pubkey) > 0 THEN 0 ELSE 1 END, a.seq LIMIT $5"
    ),
    pg: of_answers!(
        "ORDER BY CASE WHEN strpos($4, e.pubkey) > 0 THEN 0 ELSE 1 END, a.seq LIMIT $5"
    ),
};

/// Up to `limit` answers to a request in the order in which they came. Those of `authors` first, if there are any: a
/// stranger who answers often must not hide them.
pub fn answers_within(
    rx: &mut Rx<'_>,
    request_id: &EventId,
    authors: &[PublicKey],
    limit: usize,
) -> Result<Vec<Answer>> {
    let authors: Vec<String> = authors.iter().map(PublicKey::hex).collect();
    let ((first, last), id, authors) =
        (answer_terms(request_id), request_id.hex(), authors.join(","));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows: Vec<AnswerRow> = rx.all(ANSWERS_WITHIN, args![first, last, &id, &authors, limit])?;
    let mut answers: Vec<Answer> =
        rows.into_iter().map(|row| answer_of(request_id, row)).collect::<Result<_>>()?;
    answers.sort_by_key(|answer| answer.seq);
    Ok(answers)
}

#[cfg(test)]
mod tests;

/// What is asked of large tables, and how many values are bound.
#[cfg(test)]
pub(crate) const STATEMENTS: [(Sql, usize); 4] =
    [(NAMES, 3), (PROGRESS, 4), (RESULTS_BY, 5), (ANSWERS_WITHIN, 5)];
