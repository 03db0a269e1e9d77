//! What the archive holds of what a group of events is about.

use std::collections::BTreeSet;

use guild_protocol::nostr::kind;
use guild_store::{Column, Rx, Sql};

use super::super::key::id_key;
use super::super::{Head, Verified};
use super::Kept;
use super::plan::{Deletion, Known, targets};
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
const DELETIONS: Sql = Sql {
    lite: "SELECT target_key, target, pubkey, until_s FROM nostr_deletion WHERE target_key = $1",
    pg: "SELECT target_key, target, pubkey, until_s FROM nostr_deletion
         WHERE target_key = ANY ($1::bigint[])",
};

fn kept(row: Row) -> Result<Kept> {
    let (seq, event_id, pubkey, kind, created_at, address, pinned, first_ms) = row;
    let (event_id, pinned) = (event_id.parse()?, pinned != 0);
    Ok(Kept { seq, event_id, pubkey, kind, created_at, address, pinned, first_ms })
}

/// Reads all that the decisions about these events depend on.
pub(super) fn load(rx: &mut Rx<'_>, events: &[(Verified, &str)], head: &Head) -> Result<Known> {
    let (mut ids, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for (event, _) in events {
        ids.insert(event.id_key());
        addresses.extend(event.address().map(|address| address.key));
        if event.event().kind == kind::DELETION {
            let targets = targets(event.event());
            ids.extend(targets.ids.iter().map(id_key));
            addresses.extend(targets.addresses.iter().map(|address| address.key));
        }
    }
    let mut known = Known::default();
    if head.deletions > 0 {
        let keys: Vec<i64> = ids.iter().chain(&addresses).copied().collect();
        let rows: Vec<(i64, String, String, i64)> =
            rx.all_set(DELETIONS, &[Column::Ints(&keys)])?;
        for (target_key, target, pubkey, until_s) in rows {
            known.deletions.push(Deletion { target_key, target, pubkey, until_s, seq: 0 });
        }
    }
    let ids: Vec<i64> = ids.into_iter().collect();
    let rows: Vec<Row> = rx.all_set(BY_ID, &[Column::Ints(&ids)])?;
    for row in rows {
        let row = kept(row)?;
        known.by_id.insert(row.event_id, row);
    }
    let addresses: Vec<i64> = addresses.into_iter().collect();
    let rows: Vec<Row> = rx.all_set(BY_ADDRESS, &[Column::Ints(&addresses)])?;
    for row in rows {
        let row = kept(row)?;
        known.by_address.extend(row.address.clone().map(|address| (address, row)));
    }
    Ok(known)
}

/// What is asked of large tables.
#[cfg(test)]
pub(in super::super) const STATEMENTS: [Sql; 3] = [BY_ID, BY_ADDRESS, DELETIONS];
