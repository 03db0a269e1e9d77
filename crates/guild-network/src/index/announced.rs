//! Announcements in the order in which they came, for whoever keeps a registry of providers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::{Event, EventId, Filter, Limits, Tag, kind};
use guild_store::{Column, Rx, Sql, args};

use super::recommendation::recommended;
use super::said::{BAD_NAME, Said};
use super::write::pubkey_keys;
use crate::Result;
use crate::archive::{self, Verified, unreadable};

/// So many announcements are read at once: each may have 64 KiB.
const PAGE: i64 = 512;
/// So many numbers of the archive are looked at for them.
const WINDOW: i64 = 20_000;
/// So many recommendations of trusted keys are looked at, the newest.
const RECOMMENDED_MAX: usize = 1_000;

/// An announcement, as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Announced {
    /// The number of its event.
    pub seq: i64,
    /// Its event's id.
    pub event_id: EventId,
    /// Whose it is.
    pub pubkey: PublicKey,
    /// When it was made, in Unix seconds, as it says.
    pub created_at: u64,
    /// Who brought it: a relay by its URL, `client` or `own`.
    pub origin: Arc<str>,
    /// When the first version of it came.
    pub first_ms: UnixMs,
    /// When this version came.
    pub received_ms: UnixMs,
    /// What it says, or the code of the reason why nobody can be hired by it.
    pub card: Result<Arc<Announcement>, &'static str>,
}

/// The reason if the event has more than 128 KiB: it is not even read, so a page is never large.
const TOO_LARGE: &str = "announcement.too_large";

/// An event that has more bytes than this is not read again for what it offers.
const MAX_BYTES: usize = 131_072;

impl Announced {
    /// An event that is stored just now, if it is an announcement.
    pub(crate) fn of_stored(
        event: &Verified,
        seq: i64,
        origin: Arc<str>,
        first_ms: UnixMs,
        received_ms: UnixMs,
    ) -> Option<Announced> {
        let Said::Offer(said) = event.said() else { return None };
        let card = match said {
            _ if event.json().len() > MAX_BYTES => Err(TOO_LARGE),
            Ok(said) => Ok(said.card.clone()),
            Err(code) => Err(*code),
        };
        let Event { id, pubkey, created_at, .. } = *event.event();
        Some(Announced {
            seq,
            event_id: id,
            pubkey,
            created_at,
            origin,
            first_ms,
            received_ms,
            card,
        })
    }
}

/// Some of the announcements after a number.
#[derive(Debug, Clone, PartialEq)]
pub struct AnnouncedPage {
    /// In the order in which they came. One that was replaced since is not among them.
    pub announced: Vec<Announced>,
    /// Everything up to this number is in this page or an earlier one, or is no announcement.
    pub up_to: i64,
    /// Whether nothing is behind it.
    pub is_last: bool,
}

type Row = (i64, String, String, i64, String, i64, i64, String, String, i64);

macro_rules! select {
    ($from:expr) => {
        select!($from, "LIMIT $3")
    };
    ($from:expr, $limit:literal) => {
        concat!(
            "SELECT e.seq, e.event_id, e.pubkey, e.created_at, e.origin, e.first_ms, e.received_ms,
               CASE WHEN e.bytes > 131072 THEN '' ELSE e.content END,
               CASE WHEN e.bytes > 131072 THEN '' ELSE e.rest END,
               CAST(CASE WHEN p.seq IS NULL THEN 0 ELSE 1 END AS BIGINT) FROM ",
            $from,
            " ORDER BY e.seq ",
            $limit
        )
    };
}

/// All that came in between, whether or not it can be read.
pub(super) const BETWEEN: &str = select!(
    "nostr_event e LEFT JOIN index_provider p ON p.seq = e.seq
     WHERE e.seq > $1 AND e.seq <= $2 AND e.kind = 31990 AND e.hidden = 0"
);
/// Those that can be read.
pub(super) const INDEXED: &str = select!(
    "index_provider p JOIN nostr_event e ON e.seq = p.seq WHERE p.seq > $1 AND p.seq <= $2"
);

macro_rules! newest_of {
    ($pubkey:literal, $key:literal, $most:literal) => {
        concat!(
            "(SELECT o.seq FROM index_provider o WHERE o.pubkey_key = ",
            $key,
            " AND o.pubkey = ",
            $pubkey,
            " ORDER BY o.seq DESC LIMIT ",
            $most,
            ") AS p JOIN nostr_event e ON e.seq = p.seq"
        )
    };
}

/// Those of some keys that can be read, a few of each.
const OF_KEYS: Sql = Sql {
    lite: select!(newest_of!("$1", "$3", "$2"), ""),
    pg: select!(
        concat!(
            "unnest($1::text[], $2::bigint[], $3::bigint[]) AS ask (pubkey, most, pubkey_key), LATERAL ",
            newest_of!("ask.pubkey", "ask.pubkey_key", "ask.most")
        ),
        ""
    ),
};

/// What these keys announce that can be read, of each no more than the newest so many.
pub fn announced_of(rx: &mut Rx<'_>, keys: &[PublicKey], per_key: i64) -> Result<Vec<Announced>> {
    let pubkeys: Vec<String> = keys.iter().map(PublicKey::hex).collect();
    let pubkeys: Vec<&str> = pubkeys.iter().map(String::as_str).collect();
    let (most, keys) = (vec![per_key; keys.len()], pubkey_keys(keys));
    let columns = [Column::Texts(&pubkeys), Column::Ints(&most), Column::Ints(&keys)];
    Ok(readable(rx.all_set(OF_KEYS, &columns)?))
}

/// When a key announced itself first, of all that it announces now; nothing if it announces nothing.
pub fn first_heard_ms(rx: &mut Rx<'_>, pubkey: &PublicKey) -> Result<Option<UnixMs>> {
    let row: Option<(Option<i64>,)> = rx.first(
        "SELECT min(first_ms) FROM index_provider WHERE pubkey = $1",
        args![&pubkey.hex()],
    )?;
    Ok(row.and_then(|(first_ms,)| first_ms))
}

/// When something came from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Came {
    /// The first of it,
    pub first_ms: UnixMs,
    /// and the last.
    pub last_ms: UnixMs,
}

macro_rules! foreign {
    ($order:literal) => {
        concat!(
            "(SELECT received_ms FROM nostr_event
              WHERE seq > $1 AND origin NOT IN ('own', 'client') ORDER BY seq ",
            $order,
            " LIMIT 1)"
        )
    };
}

/// How far back it is looked for what came.
const CAME_WINDOW: i64 = 20_000;
pub(super) const CAME: &str = concat!("SELECT ", foreign!("ASC"), ", ", foreign!("DESC"));

/// When events came from relays after a number, as far as they are still there; and the last number now. What this node
/// itself made, or its clients, does not count.
pub fn came_after(rx: &mut Rx<'_>, seq: i64) -> Result<(Option<Came>, i64)> {
    let head_seq = archive::head(rx)?.last_seq;
    let after = seq.max(head_seq.saturating_sub(CAME_WINDOW));
    let row: Option<(Option<i64>, Option<i64>)> = rx.first(CAME, args![after])?;
    let (first, last) = row.unwrap_or_default();
    let came = first.zip(last).map(|(first_ms, last_ms)| Came { first_ms, last_ms });
    Ok((came, head_seq))
}

/// The next announcements after a number, with those that cannot be read.
pub fn announced_after(rx: &mut Rx<'_>, seq: i64) -> Result<AnnouncedPage> {
    let head_seq = archive::head(rx)?.last_seq;
    let end = seq.saturating_add(WINDOW).min(head_seq.max(seq));
    page(rx, BETWEEN, seq, end, head_seq)
}

/// The next announcements after a number and up to another that can be read: other events cost nothing here.
pub fn announced_before(rx: &mut Rx<'_>, seq: i64, until_seq: i64) -> Result<AnnouncedPage> {
    page(rx, INDEXED, seq, until_seq, until_seq)
}

fn page(
    rx: &mut Rx<'_>,
    sql: &'static str,
    seq: i64,
    end: i64,
    head_seq: i64,
) -> Result<AnnouncedPage> {
    let rows: Vec<Row> = rx.all(sql, args![seq, end, PAGE])?;
    let is_full = i64::try_from(rows.len()).unwrap_or(i64::MAX) >= PAGE;
    let last = rows.last().map(|row| row.0).filter(|_| is_full);
    let up_to = last.unwrap_or(end);
    Ok(AnnouncedPage { announced: readable(rows), up_to, is_last: up_to >= head_seq })
}

fn readable(rows: Vec<Row>) -> Vec<Announced> {
    let readable = |row: Row| {
        let seq = row.0;
        announced(row).inspect_err(|error| {
            metrics::counter!("archive_unreadable_total").increment(1);
            tracing::error!(%error, seq, "an announcement of the archive cannot be read, and is left out");
        })
    };
    rows.into_iter().filter_map(|row| readable(row).ok()).collect()
}

fn announced(row: Row) -> Result<Announced> {
    let (seq, event_id, pubkey, created_at, origin, first_ms, received_ms, content, rest, indexed) =
        row;
    let (event_id, pubkey) = (event_id.parse()?, pubkey.parse()?);
    let created_at = u64::try_from(created_at).unwrap_or(0);
    let origin = origin.into();
    let with =
        |card| Announced { seq, event_id, pubkey, created_at, origin, first_ms, received_ms, card };
    if rest.is_empty() {
        return Ok(with(Err(TOO_LARGE)));
    }
    let content: String = parsed(&content)?;
    let tags: Vec<Tag> = parsed(tags_of(&rest).ok_or_else(|| unreadable("an event has no tags"))?)?;
    let again = if indexed != 0 { Announcement::read_again(&tags, &content) } else { None };
    let card = match again {
        Some(card) => Ok(Arc::new(card)),
        None => {
            let sig = rest.get(..SIG_DIGITS).unwrap_or_default().parse()?;
            let kind = kind::ANNOUNCEMENT;
            let event = Event { id: event_id, pubkey, created_at, kind, tags, content, sig };
            match Announcement::parse(&event) {
                Ok(_) => Err(BAD_NAME),
                Err(error) => Err(error.code().name),
            }
        }
    };
    Ok(with(card))
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| unreadable(&e.to_string()))
}

const SIG_DIGITS: usize = 128;

/// The tags in the end of an event's text, which begins with the signature.
fn tags_of(rest: &str) -> Option<&str> {
    rest.get(SIG_DIGITS..)?.strip_prefix("\",\"tags\":")?.strip_suffix('}')
}

const ANNOUNCED: Sql = Sql {
    lite: "SELECT p.pubkey, p.d FROM nostr_event e JOIN index_provider p ON p.seq = e.seq
           WHERE e.address_key = $1 AND p.pubkey = $2 AND p.d = $3",
    pg: "SELECT p.pubkey, p.d FROM unnest($1::bigint[], $2::text[], $3::text[]) AS ask (key, pubkey, d)
         JOIN nostr_event e ON e.address_key = ask.key
         JOIN index_provider p ON p.seq = e.seq AND p.pubkey = ask.pubkey AND p.d = ask.d",
};

/// Those of these offers, by their author and name, that are still announced, in whatever version: they were neither
/// deleted nor forgotten.
pub fn still_announced(
    rx: &mut Rx<'_>,
    offers: &[(PublicKey, &str)],
) -> Result<BTreeSet<(PublicKey, String)>> {
    let pubkeys: Vec<String> = offers.iter().map(|(pubkey, _)| pubkey.hex()).collect();
    let pubkeys: Vec<&str> = pubkeys.iter().map(String::as_str).collect();
    let names: Vec<&str> = offers.iter().map(|(_, d)| *d).collect();
    let keys: Vec<i64> = offers.iter().map(|(pubkey, d)| archive::offer_key(pubkey, d)).collect();
    let columns = [Column::Ints(&keys), Column::Texts(&pubkeys), Column::Texts(&names)];
    let rows: Vec<(String, String)> = rx.all_set(ANNOUNCED, &columns)?;
    rows.into_iter().map(|(pubkey, d)| Ok((pubkey.parse()?, d))).collect()
}

/// An offer that was heard: whose, its name (empty: all of that key), when last.
pub type Heard = (PublicKey, String, UnixMs);

const HEARD: Sql = Sql {
    lite: "SELECT pubkey, d, last_ms FROM index_heartbeat
           WHERE pubkey = $1 AND d IN ($2, '') AND last_ms > $3
           UNION ALL SELECT p.pubkey, p.d, p.said_ms
           FROM nostr_event e JOIN index_provider p ON p.seq = e.seq
           WHERE e.address_key = $4 AND p.pubkey = $1 AND p.d = $2 AND p.said_ms > $3",
    pg: "WITH ask AS (
           SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
             AS ask (pubkey, d, since_ms, key))
         SELECT h.pubkey, h.d, h.last_ms FROM ask
         JOIN index_heartbeat h ON h.pubkey = ask.pubkey AND h.d IN (ask.d, '') AND h.last_ms > ask.since_ms
         UNION ALL SELECT p.pubkey, p.d, p.said_ms FROM ask
         JOIN nostr_event e ON e.address_key = ask.key JOIN index_provider p
           ON p.seq = e.seq AND p.pubkey = ask.pubkey AND p.d = ask.d AND p.said_ms > ask.since_ms",
};

/// Which of these offers, each by its author and name, gave a sign of life after a moment of its own. Others may have
/// given any number: they are not looked at.
pub fn heard_after(rx: &mut Rx<'_>, offers: &[(PublicKey, &str, UnixMs)]) -> Result<Vec<Heard>> {
    let pubkeys: Vec<String> = offers.iter().map(|(pubkey, ..)| pubkey.hex()).collect();
    let pubkeys: Vec<&str> = pubkeys.iter().map(String::as_str).collect();
    let names: Vec<&str> = offers.iter().map(|(_, d, _)| *d).collect();
    let since: Vec<i64> = offers.iter().map(|(.., since_ms)| *since_ms).collect();
    let keys: Vec<i64> = offers.iter().map(|(key, d, _)| archive::offer_key(key, d)).collect();
    let columns =
        [Column::Texts(&pubkeys), Column::Texts(&names), Column::Ints(&since), Column::Ints(&keys)];
    let rows: Vec<(String, String, i64)> = rx.all_set(HEARD, &columns)?;
    rows.into_iter().map(|(pubkey, d, last_ms)| Ok((pubkey.parse()?, d, last_ms))).collect()
}

/// Whom these keys recommend, and which of them do.
pub fn recommended_by(
    rx: &mut Rx<'_>,
    authors: &BTreeSet<PublicKey>,
    now_s: u64,
) -> Result<BTreeMap<PublicKey, BTreeSet<PublicKey>>> {
    let mut found: BTreeMap<PublicKey, BTreeSet<PublicKey>> = BTreeMap::new();
    if authors.is_empty() {
        return Ok(found);
    }
    let filter = Filter {
        authors: Some(authors.clone()),
        kinds: Some([kind::RECOMMENDATION].into()),
        ..Filter::default()
    };
    for stored in archive::query(rx, &[filter], RECOMMENDED_MAX, now_s)? {
        let event = Event::parse(stored.json.as_bytes(), &Limits::DEFAULT)?;
        for provider in recommended(&event) {
            found.entry(provider).or_default().insert(event.pubkey);
        }
    }
    Ok(found)
}

/// What is asked of large tables by sets, and how many values are bound.
#[cfg(test)]
pub(crate) const STATEMENTS: [(Sql, usize); 3] = [(OF_KEYS, 3), (ANNOUNCED, 3), (HEARD, 4)];
