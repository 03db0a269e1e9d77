//! What the archive holds of what a group of events is about.

use guild_protocol::nostr::kind;
use guild_store::{Column, Rx, Sql};

use super::super::key::id_key;
use super::super::{Head, Verified};
use super::Kept;
use super::plan::{Known, Wishes, targets};
use crate::Result;

type Row = (i64, String, String, i64, i64, Option<String>, i64, i64);

macro_rules! kept {
    ($rest:literal) => {
        concat!(
            "SELECT seq, event_id, pubkey, kind, created_at, address, pinned, first_ms ",
            "FROM nostr_event WHERE ",
            $rest
        )
    };
}

const BY_ID: Sql = Sql { lite: kept!("id_key = $1"), pg: kept!("id_key = ANY ($1::bigint[])") };
const BY_ADDRESS: Sql =
    Sql { lite: kept!("address_key = $1"), pg: kept!("address_key = ANY ($1::bigint[])") };
const WISHES: Sql = Sql {
    lite: "SELECT target, pubkey, until_s FROM nostr_deletion
           WHERE target_key = $1 AND target = $2 AND pubkey = $3 ORDER BY until_s DESC LIMIT 1",
    pg: "SELECT found.* FROM unnest($1::bigint[], $2::text[], $3::text[])
           AS ask (target_key, target, pubkey),
         LATERAL (SELECT d.target, d.pubkey, d.until_s FROM nostr_deletion d
           WHERE d.target_key = ask.target_key AND d.target = ask.target AND d.pubkey = ask.pubkey
           ORDER BY d.until_s DESC LIMIT 1) AS found",
};

fn kept(row: Row) -> Result<Kept> {
    let (seq, event_id, pubkey, kind, created_at, address, pinned, first_ms) = row;
    let (event_id, pinned) = (event_id.parse()?, pinned != 0);
    Ok(Kept { seq, event_id, pubkey, kind, created_at, address, pinned, first_ms })
}

/// Reads all that the decisions about these events depend on.
pub(super) fn load(rx: &mut Rx<'_>, events: &[(&Verified, &str)], head: &Head) -> Result<Known> {
    let (mut ids, mut addresses) = (Vec::with_capacity(events.len()), Vec::new());
    for (event, _) in events {
        ids.push(event.id_key());
        addresses.extend(event.address().map(|address| address.key));
        if event.event().kind == kind::DELETION {
            let targets = targets(event.event());
            ids.extend(targets.ids.iter().map(id_key));
            addresses.extend(targets.addresses.iter().map(|address| address.key));
        }
    }
    let mut known = Known::default();
    if head.deletions > 0 {
        known.wishes = wishes(rx, events)?;
    }
    each_once(&mut ids);
    let rows: Vec<Row> = rx.all_set(BY_ID, &[Column::Ints(&ids)])?;
    for row in rows {
        let row = kept(row)?;
        known.by_id.insert(row.event_id, row);
    }
    each_once(&mut addresses);
    let rows: Vec<Row> = rx.all_set(BY_ADDRESS, &[Column::Ints(&addresses)])?;
    for row in rows {
        let row = kept(row)?;
        known.by_address.extend(row.address.clone().map(|address| (address, row)));
    }
    Ok(known)
}

/// In the order of the index, so that neighbours are read together.
fn each_once(keys: &mut Vec<i64>) {
    keys.sort_unstable();
    keys.dedup();
}

/// What the authors of these events have asked to delete of them.
fn wishes(rx: &mut Rx<'_>, events: &[(&Verified, &str)]) -> Result<Wishes> {
    let mut asked: Vec<(i64, String, String)> = Vec::new();
    for (event, _) in events {
        let author = event.event().pubkey.hex();
        asked.push((event.id_key(), event.event().id.hex(), author.clone()));
        asked.extend(event.address().map(|at| (at.key, at.hex.clone(), author)));
    }
    let keys: Vec<i64> = asked.iter().map(|(key, _, _)| *key).collect();
    let targets: Vec<&str> = asked.iter().map(|(_, target, _)| target.as_str()).collect();
    let authors: Vec<&str> = asked.iter().map(|(_, _, author)| author.as_str()).collect();
    let columns = [Column::Ints(&keys), Column::Texts(&targets), Column::Texts(&authors)];
    let rows: Vec<(String, String, i64)> = rx.all_set(WISHES, &columns)?;
    let mut wishes = Wishes::default();
    rows.into_iter().for_each(|(target, author, until_s)| wishes.add(target, author, until_s));
    Ok(wishes)
}

/// What is asked of large tables, and how many values are bound.
#[cfg(test)]
pub(in super::super) const STATEMENTS: [(Sql, usize); 3] =
    [(BY_ID, 1), (BY_ADDRESS, 1), (WISHES, 3)];
