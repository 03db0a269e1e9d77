//! What the registry keeps in rows: what an archive cannot tell, and what is wrong with what came.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_store::{Column, Columns, Decode, Rx, Sql, Tx, args};
use serde::Serialize;

use super::claim::DISCREPANCIES_MAX;
use super::entry::{Mark, State};
use super::follow::Saved;
use super::registry::Name;
use crate::Result;
use crate::row::{Cells, page};

const DAY_MS: i64 = 24 * 3_600_000;
/// Marks of whom nobody has seen for longer are forgotten.
const FORGET_MS: i64 = 365 * DAY_MS;
/// More marks are not read: those seen last are.
const MARKS_MAX: i64 = 100_000;
/// So many keys that are too loud are kept, the loudest.
const LOUD_MAX: i64 = 1_000;
/// So many discrepancies are kept in all, the newest.
const LOGGED_MAX: i64 = 100_000;

struct MarkRow(Name, Mark);

impl Decode for MarkRow {
    fn decode(row: &dyn Columns) -> guild_store::Result<MarkRow> {
        let mut cells = Cells::of(row);
        let pubkey: PublicKey = cells.parsed()?;
        let d: String = cells.next()?;
        let count = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        let mark = Mark {
            seq: cells.next()?,
            versions: count(cells.next()?),
            is_late: cells.next::<i64>()? != 0,
            state: State::of(&cells.next::<String>()?),
            state_ms: cells.next()?,
            seen_ms: cells.next()?,
            is_live: cells.next::<i64>()? != 0,
            heard_ms: cells.next()?,
            flips: count(cells.next()?),
            flips_from_ms: cells.next()?,
        };
        Ok(MarkRow((pubkey, d.into()), mark))
    }
}

struct Engaged(PublicKey);

impl Decode for Engaged {
    fn decode(row: &dyn Columns) -> guild_store::Result<Engaged> {
        Ok(Engaged(Cells::of(row).parsed()?))
    }
}

/// Whom this node meets now, or has an order with that is open.
pub fn engaged(rx: &mut Rx<'_>) -> Result<BTreeSet<PublicKey>> {
    let rows: Vec<Engaged> = rx.all(
        "SELECT provider FROM market_meeting WHERE state <> 'ended'
         UNION SELECT coalesce(provider, delivered_by) FROM market_order
         WHERE state IN ('posted', 'delivered') AND coalesce(provider, delivered_by) IS NOT NULL",
        &[],
    )?;
    Ok(rows.into_iter().map(|Engaged(key)| key).collect())
}

/// What earlier lives know.
pub(super) fn marks(rx: &mut Rx<'_>) -> Result<BTreeMap<Name, Mark>> {
    let rows: Vec<MarkRow> = rx.all(
        "SELECT pubkey, d, seq, versions, late, state, state_ms, seen_ms, live, heard_ms, flips, flips_from_ms
         FROM market_offer_mark ORDER BY seen_ms DESC LIMIT $1",
        args![MARKS_MAX],
    )?;
    Ok(rows.into_iter().map(|MarkRow(name, mark)| (name, mark)).collect())
}

/// Up to which number announcements were counted.
pub(super) fn counted_seq(rx: &mut Rx<'_>) -> Result<i64> {
    let row: Option<(i64,)> = rx.first("SELECT seq FROM market_discovery", &[])?;
    Ok(row.map_or(0, |(seq,)| seq))
}

const PUT_MARK: &str = "INSERT INTO market_offer_mark
     (pubkey, d, seq, versions, late, state, state_ms, seen_ms, live, heard_ms, flips, flips_from_ms)
   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
   ON CONFLICT (pubkey, d) DO UPDATE SET seq = $3, versions = $4, late = $5, state = $6, state_ms = $7,
     seen_ms = $8, live = $9, heard_ms = $10, flips = $11, flips_from_ms = $12";

const PUT_MARKS: Sql = Sql {
    lite: PUT_MARK,
    pg: "INSERT INTO market_offer_mark
           (pubkey, d, seq, versions, late, state, state_ms, seen_ms, live, heard_ms, flips, flips_from_ms)
         SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[],
           $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])
         ON CONFLICT (pubkey, d) DO UPDATE SET seq = excluded.seq, versions = excluded.versions,
           late = excluded.late, state = excluded.state, state_ms = excluded.state_ms,
           seen_ms = excluded.seen_ms, live = excluded.live, heard_ms = excluded.heard_ms,
           flips = excluded.flips, flips_from_ms = excluded.flips_from_ms",
};

const FORGET_DISCREPANCIES: Sql = Sql {
    lite: "DELETE FROM market_discrepancy WHERE pubkey = $1 AND d = $2",
    pg: "DELETE FROM market_discrepancy m USING unnest($1::text[], $2::text[]) AS gone (pubkey, d)
         WHERE m.pubkey = gone.pubkey AND m.d = gone.d",
};

const PUT_DISCREPANCIES: Sql = Sql {
    lite:
        "INSERT INTO market_discrepancy (pubkey, d, what, value, at_ms) VALUES ($1, $2, $3, $4, $5)
           ON CONFLICT DO NOTHING",
    pg: "INSERT INTO market_discrepancy (pubkey, d, what, value, at_ms)
         SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
         ON CONFLICT DO NOTHING",
};

const ADD_COUNT: &str =
    "INSERT INTO market_discovery_count (what, count, last_ms) VALUES ($1, $2, $3)
   ON CONFLICT (what) DO UPDATE SET count = market_discovery_count.count + $2, last_ms = $3";

const ADD_LOUD: &str = "INSERT INTO market_loud_key (pubkey, refused, last_ms) VALUES ($1, $2, $3)
   ON CONFLICT (pubkey) DO UPDATE SET refused = market_loud_key.refused + $2, last_ms = $3";

/// Writes what a follower has found. Of several processes that follow one archive each writes the marks, and the first
/// one counts: what one of them has counted the others do not.
pub fn save(tx: &mut Tx<'_>, saved: &Saved, now_ms: UnixMs) -> Result<()> {
    let args = args![saved.from_seq, saved.to_seq];
    let is_first = tx.exec("UPDATE market_discovery SET seq = $2 WHERE seq <= $1", args)? > 0;
    if !is_first {
        // Another process was quicker, at least for a part.
        tx.exec("UPDATE market_discovery SET seq = $1 WHERE seq < $1", args![saved.to_seq])?;
    }
    put_marks(tx, &saved.marks)?;
    put_discrepancies(tx, saved, now_ms)?;
    let counted = saved.counts.iter().filter(|_| is_first);
    for (what, count) in counted.chain(&saved.refused) {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        tx.exec(ADD_COUNT, args![what.as_str(), count, now_ms])?;
    }
    if is_first && !saved.loud.is_empty() {
        for (key, refused) in &saved.loud {
            let refused = i64::try_from(*refused).unwrap_or(i64::MAX);
            tx.exec(ADD_LOUD, args![&key.hex(), refused, now_ms])?;
        }
        tx.exec(
            "DELETE FROM market_loud_key WHERE pubkey NOT IN
               (SELECT pubkey FROM market_loud_key ORDER BY refused DESC, pubkey LIMIT $1)",
            args![LOUD_MAX],
        )?;
    }
    Ok(())
}

fn put_marks(tx: &mut Tx<'_>, marks: &[(Name, Mark)]) -> Result<()> {
    if marks.is_empty() {
        return Ok(());
    }
    let ints = |of: &dyn Fn(&Mark) -> i64| marks.iter().map(|(_, m)| of(m)).collect::<Vec<_>>();
    let pubkeys: Vec<String> = marks.iter().map(|((key, _), _)| key.hex()).collect();
    let pubkeys: Vec<&str> = pubkeys.iter().map(String::as_str).collect();
    let ds: Vec<&str> = marks.iter().map(|((_, d), _)| &**d).collect();
    let states: Vec<&str> = marks.iter().map(|(_, mark)| mark.state.name()).collect();
    let heard: Vec<Option<i64>> = marks.iter().map(|(_, mark)| mark.heard_ms).collect();
    tx.exec_set(
        PUT_MARKS,
        &[
            Column::Texts(&pubkeys),
            Column::Texts(&ds),
            Column::Ints(&ints(&|m| m.seq)),
            Column::Ints(&ints(&|m| i64::from(m.versions))),
            Column::Ints(&ints(&|m| i64::from(m.is_late))),
            Column::Texts(&states),
            Column::Ints(&ints(&|m| m.state_ms)),
            Column::Ints(&ints(&|m| m.seen_ms)),
            Column::Ints(&ints(&|m| i64::from(m.is_live))),
            Column::OptInts(&heard),
            Column::Ints(&ints(&|m| i64::from(m.flips))),
            Column::Ints(&ints(&|m| m.flips_from_ms)),
        ],
    )?;
    Ok(())
}

fn put_discrepancies(tx: &mut Tx<'_>, saved: &Saved, now_ms: UnixMs) -> Result<()> {
    let gone: BTreeSet<(String, &str)> =
        saved.renewed.iter().map(|(key, d)| (key.hex(), &**d)).collect();
    if gone.is_empty() {
        return Ok(());
    }
    let pubkeys: Vec<&str> = gone.iter().map(|(key, _)| key.as_str()).collect();
    let ds: Vec<&str> = gone.iter().map(|(_, d)| *d).collect();
    tx.exec_set(FORGET_DISCREPANCIES, &[Column::Texts(&pubkeys), Column::Texts(&ds)])?;
    let mut rows: Vec<(String, &str, &str, &str)> = Vec::new();
    for ((key, d), list) in &saved.discrepancies {
        for one in list.iter().take(DISCREPANCIES_MAX) {
            rows.push((key.hex(), d, one.what.name(), &one.value));
        }
    }
    let pubkeys: Vec<&str> = rows.iter().map(|row| row.0.as_str()).collect();
    let ds: Vec<&str> = rows.iter().map(|row| row.1).collect();
    let whats: Vec<&str> = rows.iter().map(|row| row.2).collect();
    let values: Vec<&str> = rows.iter().map(|row| row.3).collect();
    let times = vec![now_ms; rows.len()];
    tx.exec_set(
        PUT_DISCREPANCIES,
        &[
            Column::Texts(&pubkeys),
            Column::Texts(&ds),
            Column::Texts(&whats),
            Column::Texts(&values),
            Column::Ints(&times),
        ],
    )?;
    Ok(())
}

/// Forgets what is of no use any more.
pub(super) fn sweep(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<()> {
    let before_ms = now_ms.saturating_sub(FORGET_MS);
    tx.exec("DELETE FROM market_offer_mark WHERE seen_ms < $1", args![before_ms])?;
    tx.exec(
        "DELETE FROM market_discrepancy WHERE at_ms <
           (SELECT at_ms FROM market_discrepancy ORDER BY at_ms DESC LIMIT 1 OFFSET $1)",
        args![LOGGED_MAX],
    )?;
    Ok(())
}

/// How often something was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Why: the code of an error, or a word of the registry.
    pub what: String,
    /// How often.
    pub count: i64,
    /// When last.
    pub last_ms: UnixMs,
}

/// A key that announces too much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loud {
    /// The key.
    pub npub: String,
    /// How many of its announcements were refused.
    pub refused: i64,
    /// When last.
    pub last_ms: UnixMs,
}

/// Something in an announcement that contradicts itself or cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Logged {
    /// Whose announcement.
    pub npub: String,
    /// Which.
    pub d: String,
    /// What is wrong.
    pub what: String,
    /// The word.
    pub value: String,
    /// When it was seen.
    pub at_ms: UnixMs,
}

/// What was wrong with what came.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Health {
    /// Up to which number of the archive that is.
    pub counted_seq: i64,
    /// What was refused, by the reason.
    pub counts: Vec<Counted>,
    /// Who announces too much, the loudest first.
    pub loud: Vec<Loud>,
    /// How many announcements contradict themselves, and how often.
    pub discrepancies: i64,
    /// The last of them.
    pub logged: Vec<Logged>,
}

/// Counts an answer to a request of ours that was refused, by the code of why.
pub fn count_answer(tx: &mut Tx<'_>, code: &str, now_ms: UnixMs) -> Result<()> {
    tx.exec(ADD_COUNT, args![&format!("{ANSWER}{code}"), 1_i64, now_ms])?;
    Ok(())
}

/// How the name of what was wrong with an answer, and not with an announcement, begins.
pub const ANSWER: &str = "answer:";

/// What was wrong with what came, with at most `limit` examples of each.
pub fn health(rx: &mut Rx<'_>, limit: i64) -> Result<Health> {
    let counts: Vec<(String, i64, i64)> =
        rx.all("SELECT what, count, last_ms FROM market_discovery_count ORDER BY what", &[])?;
    let loud: Vec<(String, i64, i64)> = rx.all(
        "SELECT pubkey, refused, last_ms FROM market_loud_key ORDER BY refused DESC, pubkey LIMIT $1",
        args![page(limit)],
    )?;
    let all: Option<(i64,)> = rx.first("SELECT count(*) FROM market_discrepancy", &[])?;
    let loud = loud.into_iter().map(|(pubkey, refused, last_ms)| {
        Ok(Loud { npub: pubkey.parse::<PublicKey>()?.npub(), refused, last_ms })
    });
    Ok(Health {
        counted_seq: counted_seq(rx)?,
        counts: counts
            .into_iter()
            .map(|(what, count, last_ms)| Counted { what, count, last_ms })
            .collect(),
        loud: loud.collect::<Result<_>>()?,
        discrepancies: all.map_or(0, |(count,)| count),
        logged: logged(
            rx,
            "SELECT pubkey, d, what, value, at_ms FROM market_discrepancy
             ORDER BY at_ms DESC, pubkey, d, what, value LIMIT $1",
            args![page(limit)],
        )?,
    })
}

/// What is wrong with the announcements of a provider.
pub fn discrepancies(rx: &mut Rx<'_>, provider: &PublicKey) -> Result<Vec<Logged>> {
    logged(
        rx,
        "SELECT pubkey, d, what, value, at_ms FROM market_discrepancy WHERE pubkey = $1
         ORDER BY d, what, value LIMIT $2",
        args![&provider.hex(), page(i64::MAX)],
    )
}

fn logged(
    rx: &mut Rx<'_>,
    sql: &'static str,
    args: &[guild_store::Val<'_>],
) -> Result<Vec<Logged>> {
    let rows: Vec<(String, String, String, String, i64)> = rx.all(sql, args)?;
    let one = |(pubkey, d, what, value, at_ms): (String, String, String, String, i64)| {
        Ok(Logged { npub: pubkey.parse::<PublicKey>()?.npub(), d, what, value, at_ms })
    };
    rows.into_iter().map(one).collect()
}
