//! Writes what was decided.

use guild_protocol::env::UnixMs;
use guild_protocol::nostr::{EventText, kind};
use guild_store::{Column, Rx, Sql, Tx};

use super::super::{json, key, parse};
use super::New;
use super::plan::Deletion;
use crate::{Result, index};

const INSERT: Sql = Sql {
    lite: "INSERT INTO nostr_event (seq, id_key, event_id, pubkey, kind, created_at, address_key,
             address, expires_at, pinned, hidden, origin, first_ms, received_ms, bytes, content, rest)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
    pg: "INSERT INTO nostr_event (seq, id_key, event_id, pubkey, kind, created_at, address_key,
           address, expires_at, pinned, hidden, origin, first_ms, received_ms, bytes, content, rest)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[],
           $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[],
           $12::text[], $13::bigint[], $14::bigint[], $15::bigint[], $16::text[], $17::text[])",
};

const INSERT_TERMS: Sql = Sql {
    lite: "INSERT OR FAIL INTO nostr_term (term, place, seq) VALUES ($1, $2, $3)",
    pg: "INSERT INTO nostr_term (term, place, seq)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])",
};

const INSERT_DELETIONS: Sql = Sql {
    lite: "INSERT INTO nostr_deletion (target_key, target, pubkey, until_s, seq)
           VALUES ($1, $2, $3, $4, $5)",
    pg: "INSERT INTO nostr_deletion (target_key, target, pubkey, until_s, seq)
         SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])",
};

/// Terms of events: term, place, seq.
#[derive(Default)]
struct Terms(Vec<[i64; 3]>);

impl Terms {
    fn push(&mut self, terms: &[i64], place: i64, seq: i64) {
        self.0.extend(terms.iter().map(|term| [*term, place, seq]));
    }

    /// In the order of the table, so that neighbours are written together.
    fn columns(mut self) -> [Vec<i64>; 3] {
        self.0.sort_unstable();
        [0, 1, 2].map(|i| self.0.iter().filter_map(|row| row.get(i).copied()).collect())
    }
}

/// Stores rows and terms; how many bytes came in.
pub(super) fn insert(tx: &mut Tx<'_>, new: &[(New<'_>, &str)], now_ms: UnixMs) -> Result<i64> {
    let ints =
        |of: &dyn Fn(&New<'_>) -> i64| new.iter().map(|(new, _)| of(new)).collect::<Vec<_>>();
    let opt_ints =
        |of: &dyn Fn(&New<'_>) -> Option<i64>| new.iter().map(|(n, _)| of(n)).collect::<Vec<_>>();
    let texts = |of: fn(&EventText) -> &str| {
        new.iter().map(|(n, _)| of(n.event.text())).collect::<Vec<_>>()
    };
    let address: Vec<Option<&str>> =
        new.iter().map(|(n, _)| n.event.address().map(|address| address.hex.as_str())).collect();
    let origin: Vec<&str> = new.iter().map(|(_, origin)| *origin).collect();
    let bytes = ints(&|n| length(n.event.json()));
    // Nothing is pinned or hidden when it comes.
    let no = vec![0; new.len()];
    tx.exec_set(
        INSERT,
        &[
            Column::Ints(&ints(&|n| n.seq)),
            Column::Ints(&ints(&|n| n.event.id_key())),
            Column::Texts(&texts(EventText::id)),
            Column::Texts(&texts(EventText::pubkey)),
            Column::Ints(&ints(&|n| i64::from(n.event.event().kind))),
            Column::Ints(&ints(&|n| n.event.created_at())),
            Column::OptInts(&opt_ints(&|n| n.event.address().map(|address| address.key))),
            Column::OptTexts(&address),
            Column::OptInts(&opt_ints(&|n| n.event.expires_at())),
            Column::Ints(&no),
            Column::Ints(&no),
            Column::Texts(&origin),
            Column::Ints(&ints(&|n| n.first_ms)),
            Column::Ints(&ints(&|_| now_ms)),
            Column::Ints(&bytes),
            Column::Texts(&texts(EventText::content)),
            Column::Texts(&texts(EventText::from_sig)),
        ],
    )?;
    let mut terms = Terms::default();
    for (n, _) in new {
        terms.push(n.event.terms(), n.event.place(), n.seq);
    }
    let columns = terms.columns();
    tx.exec_set(INSERT_TERMS, &columns.each_ref().map(|column| Column::Ints(column)))?;
    Ok(bytes.iter().sum())
}

/// How many announcements there are, and how many bytes they have.
pub(super) fn announced(new: &[(New<'_>, &str)]) -> (i64, i64) {
    let events = new.iter().map(|(new, _)| new.event);
    let announcements = events.filter(|event| event.event().kind == kind::ANNOUNCEMENT);
    announcements.fold((0, 0), |(events, bytes), event| {
        (events.saturating_add(1), bytes.saturating_add(length(event.json())))
    })
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

/// Remembers what is deleted; how many targets.
pub(super) fn insert_deletions(tx: &mut Tx<'_>, deletions: &[Deletion]) -> Result<i64> {
    if deletions.is_empty() {
        return Ok(0);
    }
    let ints = |of: fn(&Deletion) -> i64| deletions.iter().map(of).collect::<Vec<_>>();
    let target: Vec<&str> = deletions.iter().map(|d| d.target.as_str()).collect();
    let pubkey: Vec<&str> = deletions.iter().map(|d| d.pubkey.as_str()).collect();
    let inserted = tx.exec_set(
        INSERT_DELETIONS,
        &[
            Column::Ints(&ints(|d| d.target_key)),
            Column::Texts(&target),
            Column::Texts(&pubkey),
            Column::Ints(&ints(|d| d.until_s)),
            Column::Ints(&ints(|d| d.seq)),
        ],
    )?;
    Ok(i64::try_from(inserted).unwrap_or(i64::MAX))
}

/// How much went.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) events: i64,
    pub(crate) bytes: i64,
    pub(crate) deletions: i64,
    /// What of it were announcements. What is removed is never pinned, so all of them counted as such.
    pub(crate) announced_events: i64,
    pub(crate) announced_bytes: i64,
}

const TEXTS: Sql = Sql {
    lite: concat!("SELECT seq, ", json!(), " FROM nostr_event WHERE seq = $1"),
    pg: concat!("SELECT seq, ", json!(), " FROM nostr_event WHERE seq = ANY ($1::bigint[])"),
};
const DELETE_TERMS: Sql = Sql {
    lite: "DELETE FROM nostr_term WHERE term = $1 AND place = $2 AND seq = $3",
    pg: "DELETE FROM nostr_term t
         USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS gone (term, place, seq)
         WHERE t.term = gone.term AND t.place = gone.place AND t.seq = gone.seq",
};
const DELETE: Sql = Sql {
    lite: "DELETE FROM nostr_event WHERE seq = $1",
    pg: "DELETE FROM nostr_event WHERE seq = ANY ($1::bigint[])",
};
const DELETE_DELETIONS: Sql = Sql {
    lite: "DELETE FROM nostr_deletion WHERE seq = $1",
    pg: "DELETE FROM nostr_deletion WHERE seq = ANY ($1::bigint[])",
};
const HIDE: Sql = Sql {
    lite: "UPDATE nostr_event SET hidden = 1, address_key = NULL WHERE seq = $1",
    pg: "UPDATE nostr_event SET hidden = 1, address_key = NULL WHERE seq = ANY ($1::bigint[])",
};

/// Removes events and all that stands for them.
pub(in super::super) fn forget(tx: &mut Tx<'_>, seqs: &[i64]) -> Result<Gone> {
    if seqs.is_empty() {
        return Ok(Gone::default());
    }
    let gone = delete_terms(tx, seqs)?;
    index::forget(tx, seqs)?;
    let deletions = tx.exec_set(DELETE_DELETIONS, &[Column::Ints(seqs)])?;
    let events = tx.exec_set(DELETE, &[Column::Ints(seqs)])?;
    let count = |rows: u64| i64::try_from(rows).unwrap_or(i64::MAX);
    Ok(Gone { events: count(events), deletions: count(deletions), ..gone })
}

/// Serves events no longer, and keeps them.
pub(in super::super) fn hide(tx: &mut Tx<'_>, seqs: &[i64]) -> Result<()> {
    if seqs.is_empty() {
        return Ok(());
    }
    delete_terms(tx, seqs)?;
    index::hide(tx, seqs)?;
    tx.exec_set(HIDE, &[Column::Ints(seqs)])?;
    Ok(())
}

/// Removes the terms of events; how many bytes the events have, and how many announcements there are.
fn delete_terms(tx: &mut Tx<'_>, seqs: &[i64]) -> Result<Gone> {
    let (terms, gone) = terms_of(tx, seqs)?;
    let columns = terms.columns();
    tx.exec_set(DELETE_TERMS, &columns.each_ref().map(|column| Column::Ints(column)))?;
    Ok(gone)
}

fn terms_of(rx: &mut Rx<'_>, seqs: &[i64]) -> Result<(Terms, Gone)> {
    let texts: Vec<(i64, String)> = rx.all_set(TEXTS, &[Column::Ints(seqs)])?;
    let (mut terms, mut gone) = (Terms::default(), Gone::default());
    for (seq, json) in texts {
        let event = parse(&json)?;
        let bytes = length(&json);
        gone.bytes = gone.bytes.saturating_add(bytes);
        if event.kind == kind::ANNOUNCEMENT {
            gone.announced_events = gone.announced_events.saturating_add(1);
            gone.announced_bytes = gone.announced_bytes.saturating_add(bytes);
        }
        let created_at = super::super::verified::seconds(event.created_at);
        terms.push(&key::terms(&event), key::place(created_at, key::id_key(&event.id)), seq);
    }
    Ok((terms, gone))
}

/// What is asked of large tables, and how many numbers are bound.
#[cfg(test)]
pub(in super::super) const STATEMENTS: [(Sql, usize); 5] =
    [(TEXTS, 1), (DELETE_TERMS, 3), (DELETE, 1), (DELETE_DELETIONS, 1), (HIDE, 1)];
