//! The pure decision: given what the archive holds, what a group of events changes in it.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, kind, tag};

use super::super::Verified;
use super::super::key::{Address, id_key};
use super::{Kept, New, Put};

/// A wish to delete, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deletion {
    pub(super) target_key: i64,
    /// The id of an event, or the hash of an address.
    pub(super) target: String,
    pub(super) pubkey: String,
    /// Versions up to this second.
    pub(super) until_s: i64,
    /// The event that says it.
    pub(super) seq: i64,
}

/// What the archive holds of it.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) by_id: BTreeMap<EventId, Kept>,
    pub(super) by_address: BTreeMap<String, Kept>,
    pub(super) wishes: Wishes,
}

/// Up to which second an author wants a target deleted.
#[derive(Debug, Default)]
pub(super) struct Wishes(BTreeMap<(String, String), i64>);

impl Wishes {
    pub(super) fn add(&mut self, target: String, author: String, until_s: i64) {
        let until = self.0.entry((target, author)).or_insert(until_s);
        *until = until_s.max(*until);
    }

    fn cover(&self, target: String, author: &str, created_at: i64) -> bool {
        self.0.get(&(target, author.to_owned())).is_some_and(|until_s| created_at <= *until_s)
    }
}

/// What changes.
pub(super) struct Decided<'a> {
    pub(super) last_seq: i64,
    pub(super) new: Vec<(New<'a>, &'a str)>,
    pub(super) forget: Vec<i64>,
    pub(super) hide: Vec<i64>,
    pub(super) deletions: Vec<Deletion>,
}

impl Decided<'_> {
    pub(super) fn is_nothing(&self) -> bool {
        self.new.is_empty() && self.forget.is_empty() && self.hide.is_empty()
    }
}

/// A plan that grows event by event.
pub(super) struct Plan<'a> {
    known: Known,
    first_seq: i64,
    last_seq: i64,
    now_s: i64,
    now_ms: UnixMs,
    /// By number, from `first_seq` on; none if a later event of the group removed it again.
    new: Vec<Option<(New<'a>, &'a str)>>,
    /// Those that are there, by their ids,
    new_ids: BTreeMap<EventId, usize>,
    /// and by their addresses. What was there before them is known there no more.
    new_addresses: BTreeMap<&'a Address, usize>,
    forget: Vec<i64>,
    hide: Vec<i64>,
    deletions: Vec<Deletion>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(known: Known, last_seq: i64, now_s: i64, now_ms: UnixMs) -> Plan<'a> {
        Plan {
            known,
            first_seq: last_seq.saturating_add(1),
            last_seq,
            now_s,
            now_ms,
            new: Vec::new(),
            new_ids: BTreeMap::new(),
            new_addresses: BTreeMap::new(),
            forget: Vec::new(),
            hide: Vec::new(),
            deletions: Vec::new(),
        }
    }

    pub(super) fn decided(self) -> Decided<'a> {
        let new: Vec<_> = self.new.into_iter().flatten().collect();
        let mut deletions = self.deletions;
        // A deletion that went with its event is none.
        let is_kept = |seq: i64| new.binary_search_by_key(&seq, |(new, _)| new.seq).is_ok();
        deletions.retain(|deletion| is_kept(deletion.seq));
        Decided { last_seq: self.last_seq, new, forget: self.forget, hide: self.hide, deletions }
    }

    pub(super) fn put(&mut self, event: &'a Verified, origin: &'a str) -> Put {
        if kind::is_ephemeral(event.event().kind) {
            return Put::Ephemeral;
        }
        if event.expires_at().is_some_and(|at| at <= self.now_s) {
            return Put::Expired;
        }
        let id = event.event().id;
        if self.new_ids.contains_key(&id) || self.known.by_id.contains_key(&id) {
            return Put::Known;
        }
        if self.is_deleted(event) {
            return Put::Deleted;
        }
        let mut first_ms = self.now_ms;
        if let Some(address) = event.address()
            && let Some(there) = self.there_at(address)
        {
            if (-event.created_at(), id) > (-there.created_at, there.event_id) {
                return Put::Older;
            }
            first_ms = there.first_ms;
            self.remove(&there);
        }
        let seq = self.store(event, origin, first_ms);
        if event.event().kind == kind::DELETION {
            self.delete(event, seq);
        }
        Put::New { seq }
    }

    fn store(&mut self, event: &'a Verified, origin: &'a str, first_ms: UnixMs) -> i64 {
        self.last_seq = self.last_seq.saturating_add(1);
        let seq = self.last_seq;
        let place = self.new.len();
        self.new_ids.insert(event.event().id, place);
        self.new.push(Some((New { seq, event, first_ms }, origin)));
        if let Some(address) = event.address() {
            self.new_addresses.insert(address, place);
        }
        seq
    }

    fn is_deleted(&self, event: &Verified) -> bool {
        // Nobody can take a deletion back.
        if self.known.wishes.0.is_empty() || event.event().kind == kind::DELETION {
            return false;
        }
        let author = event.event().pubkey.hex();
        let covers = |target| self.known.wishes.cover(target, &author, event.created_at());
        covers(event.event().id.hex()) || event.address().is_some_and(|a| covers(a.hex.clone()))
    }

    /// What a deletion of this group asks for, now and for what comes later.
    fn delete(&mut self, event: &Verified, seq: i64) {
        let author = event.event().pubkey.hex();
        let targets = targets(event.event());
        for id in &targets.ids {
            if let Some(there) = self.there(id)
                && there.pubkey == author
                && there.kind != i64::from(kind::DELETION)
            {
                self.remove(&there);
            }
            // Whatever its time: an id names one event.
            self.remember(id_key(id), id.hex(), &author, i64::MAX, seq);
        }
        for address in &targets.addresses {
            if let Some(there) = self.there_at(address)
                && there.created_at <= event.created_at()
            {
                self.remove(&there);
            }
            self.remember(address.key, address.hex.clone(), &author, event.created_at(), seq);
        }
    }

    /// The event with this id, stored before or by this group.
    fn there(&self, id: &EventId) -> Option<Kept> {
        let new = self.new_ids.get(id).and_then(|place| self.new_at(*place));
        new.or_else(|| self.known.by_id.get(id).cloned())
    }

    /// The event that stands at this address, stored before or by this group.
    fn there_at(&self, address: &Address) -> Option<Kept> {
        let new = self.new_addresses.get(address).and_then(|place| self.new_at(*place));
        new.or_else(|| self.known.by_address.get(&address.hex).cloned())
    }

    fn new_at(&self, place: usize) -> Option<Kept> {
        let (new, _) = self.new.get(place)?.as_ref()?;
        Some(kept(new.seq, new.event, new.first_ms))
    }

    fn remember(&mut self, target_key: i64, target: String, author: &str, until_s: i64, seq: i64) {
        self.known.wishes.add(target.clone(), author.to_owned(), until_s);
        let pubkey = author.to_owned();
        self.deletions.push(Deletion { target_key, target, pubkey, until_s, seq });
    }

    /// Takes an event out of what is served. One that is pinned is kept as evidence, whoever wants it gone.
    fn remove(&mut self, there: &Kept) {
        if let Some(address) = &there.address
            // One that was hidden before stands there no more.
            && self.known.by_address.get(address).is_some_and(|now| now.seq == there.seq)
        {
            self.known.by_address.remove(address);
        }
        if there.pinned {
            self.hide.push(there.seq);
            return;
        }
        self.known.by_id.remove(&there.event_id);
        self.new_ids.remove(&there.event_id);
        let place = there.seq.checked_sub(self.first_seq).and_then(|i| usize::try_from(i).ok());
        match place.and_then(|i| self.new.get_mut(i)) {
            Some(new) => {
                let address = new.take().and_then(|(new, _)| new.event.address());
                address.map(|address| self.new_addresses.remove(address));
            }
            None => self.forget.push(there.seq),
        }
    }
}

fn kept(seq: i64, event: &Verified, first_ms: UnixMs) -> Kept {
    Kept {
        seq,
        event_id: event.event().id,
        pubkey: event.event().pubkey.hex(),
        kind: i64::from(event.event().kind),
        created_at: event.created_at(),
        address: event.address().map(|address| address.hex.clone()),
        pinned: false,
        first_ms,
    }
}

/// What a deletion names: events by id, and its author's own addresses.
pub(super) struct Targets {
    pub(super) ids: BTreeSet<EventId>,
    pub(super) addresses: BTreeSet<Address>,
}

pub(super) fn targets(deletion: &Event) -> Targets {
    let ids = tag::values(&deletion.tags, "e").filter_map(|id| id.parse().ok()).collect();
    let own = |written: &str| {
        let (kind, rest) = written.split_once(':')?;
        let (author, d) = rest.split_once(':')?;
        let author: PublicKey = (author == deletion.pubkey.hex()).then_some(deletion.pubkey)?;
        Address::of(kind.parse().ok()?, &author, d)
    };
    let addresses = tag::values(&deletion.tags, "a").filter_map(own).collect();
    Targets { ids, addresses }
}
