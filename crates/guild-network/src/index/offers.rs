//! Who offers some work and is there, however many others say so: each key has a bounded part of what is read.

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_store::{Column, Rx, Sql, args};

use super::read::{Provider, ProviderRow, provider_of};
use super::write::pubkey_keys;
use crate::Result;
use crate::archive::json;

/// Which offers are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered<'a> {
    /// Those of this schema,
    pub schema_id: &'a str,
    /// heard since,
    pub live_since_ms: UnixMs,
    /// and of each key no more than so many, the newest.
    pub per_key: i64,
}

/// When an offer was last heard: it, or all of its key, or its announcement.
macro_rules! heard {
    () => {
        "(SELECT CASE WHEN max(h.last_ms) > p.said_ms THEN max(h.last_ms) ELSE p.said_ms END
          FROM index_heartbeat h WHERE h.pubkey = p.pubkey AND h.d IN (p.d, '')) AS heard_ms"
    };
}

macro_rules! found {
    ($from:expr, $rest:literal) => {
        concat!(
            "SELECT found.seq, found.canonical_d, found.first_ms, found.last_ms, found.heard_ms, ",
            json!("e."),
            " FROM ",
            $from,
            " AS found JOIN nostr_event e ON e.seq = found.seq ",
            $rest
        )
    };
}

/// Every key's newest offer comes before anybody's second one, and whoever has been there for longest first.
const ALL: &str = found!(
    concat!(
        "(SELECT * FROM (
           SELECT heard.*, row_number() OVER (PARTITION BY pubkey ORDER BY seq DESC) AS place FROM (
             SELECT p.seq, p.pubkey, p.canonical_d, p.first_ms, p.last_ms, ",
        heard!(),
        " FROM index_schema s JOIN index_provider p ON p.seq = s.seq WHERE s.schema_id = $1
           ) AS heard WHERE heard_ms >= $2
         ) AS placed WHERE place <= $3 ORDER BY place, first_ms, seq LIMIT $4)"
    ),
    "ORDER BY found.place, found.first_ms, found.seq"
);

macro_rules! of_key {
    ($pubkey:literal, $key:literal, $schema_id:literal, $most:literal) => {
        concat!(
            "(SELECT p.seq, p.canonical_d, p.first_ms, p.last_ms, ",
            heard!(),
            " FROM (SELECT o.* FROM index_provider o JOIN index_schema s ON s.seq = o.seq
                 AND s.schema_id = ",
            $schema_id,
            " WHERE o.pubkey_key = ",
            $key,
            " AND o.pubkey = ",
            $pubkey,
            " ORDER BY o.seq DESC LIMIT ",
            $most,
            ") AS p)"
        )
    };
}

const OF_KEYS: Sql = Sql {
    lite: found!(of_key!("$1", "$5", "$2", "$4"), "WHERE found.heard_ms >= $3 ORDER BY found.seq"),
    pg: found!(
        concat!(
            "unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
               AS ask (pubkey, schema_id, since_ms, most, pubkey_key), LATERAL ",
            of_key!("ask.pubkey", "ask.pubkey_key", "ask.schema_id", "ask.most")
        ),
        "WHERE found.heard_ms >= ask.since_ms ORDER BY found.seq"
    ),
};

/// Who offers some work: of every key its newest offer before anybody's second one, whoever has been there longest
/// first. So one key has one place among the first, however much it announces and however often it is heard, and who
/// was there before a flood of keys stays before it.
pub fn offers(rx: &mut Rx<'_>, wanted: &Offered<'_>, limit: i64) -> Result<Vec<Provider>> {
    let Offered { schema_id, live_since_ms, per_key } = *wanted;
    let rows: Vec<ProviderRow> = rx.all(ALL, args![schema_id, live_since_ms, per_key, limit])?;
    rows.into_iter().map(provider_of).collect()
}

/// Which of these keys offer some work. Whatever others announce makes no difference.
pub fn offers_of(
    rx: &mut Rx<'_>,
    keys: &[PublicKey],
    wanted: &Offered<'_>,
) -> Result<Vec<Provider>> {
    let pubkeys: Vec<String> = keys.iter().map(PublicKey::hex).collect();
    let pubkeys: Vec<&str> = pubkeys.iter().map(String::as_str).collect();
    let schemas = vec![wanted.schema_id; keys.len()];
    let since = vec![wanted.live_since_ms; keys.len()];
    let most = vec![wanted.per_key; keys.len()];
    let columns = [
        Column::Texts(&pubkeys),
        Column::Texts(&schemas),
        Column::Ints(&since),
        Column::Ints(&most),
        Column::Ints(&pubkey_keys(keys)),
    ];
    let rows: Vec<ProviderRow> = rx.all_set(OF_KEYS, &columns)?;
    rows.into_iter().map(provider_of).collect()
}

/// What is asked of large tables, and how many values are bound.
#[cfg(test)]
pub(crate) const STATEMENTS: [(Sql, usize); 2] = [(Sql { lite: ALL, pg: ALL }, 4), (OF_KEYS, 5)];
