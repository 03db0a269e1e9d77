//! All offers that are known, within bounds.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::kind;

use super::Options;
use super::card::Card;
use super::claim::Claim;
use super::ear::Ear;
use super::entry::{Entry, Mark, State};
use crate::benchmark;
use crate::routing::{Live, TaskType};

const HOUR_MS: i64 = 3_600_000;
/// So many hours of arrivals are remembered.
const HOURS_MAX: usize = 48;
/// So many relays are told apart within an hour; all others share what is left of one.
const ORIGINS_MAX: usize = 1_000;
/// So many keys that are too loud are told apart.
const LOUD_MAX: usize = 1_000;

/// Names an offer: its author, and its `d` byte for byte.
pub(super) type Name = (PublicKey, Box<str>);

/// The offers of one key, by their names. Each stands apart: it is large, and would be moved whenever another comes
/// beside it.
type Offers = BTreeMap<Box<str>, Box<Entry>>;

/// What became of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// An offer that was not known.
    New,
    /// A newer version of one that was.
    Newer,
    /// The same, or an older version.
    Known,
    /// It is not kept here.
    Refused(Why),
}

/// Why an announcement is not kept in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It offers no work.
    NoWork,
    /// Its key has as many offers as are kept.
    PerKey,
    /// Too many new ones came by the same relay within an hour. It is looked at again later.
    Budget,
    /// The registry is full, and this one was never heard.
    Full,
}

impl Why {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Why::NoWork => "no_work",
            Why::PerKey => "per_key",
            Why::Budget => "budget",
            Why::Full => "full",
        }
    }
}

/// How many there are of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Offers.
    pub entries: usize,
    /// Those that can be found.
    pub listed: usize,
    /// Those of them that are live.
    pub live: usize,
    /// Those that were not seen for long.
    pub quarantined: usize,
    /// Those of which that has lasted long.
    pub archived: usize,
    /// Those that have come and gone too often.
    pub flapping: usize,
    /// Those whose announcement contradicts itself.
    pub disputed: usize,
    /// Names that offers of several keys share, as they look.
    pub collisions: usize,
    /// About how much memory they take.
    pub bytes: usize,
}

/// All offers that are known. A pure value: it follows from what it is told.
#[derive(Debug, Clone)]
pub struct Registry {
    options: Options,
    /// By key: nobody is here without an offer.
    offers: BTreeMap<PublicKey, Offers>,
    /// How many offers there are.
    count: usize,
    /// Whose offers have a name that looks like this.
    names: BTreeMap<Box<str>, BTreeMap<PublicKey, u32>>,
    /// New offers by hour and by who brought them.
    arrivals: BTreeMap<i64, BTreeMap<Box<str>, u32>>,
    /// Whom trusted keys recommend, and how many do.
    recommended: BTreeMap<PublicKey, usize>,
    /// Whom the routing matrix knows.
    members: BTreeSet<PublicKey>,
    /// Whether we hear others at all.
    ear: Ear,
    /// Keys of which something was refused lately, and how often.
    loud: BTreeMap<PublicKey, u64>,
    /// What has changed in a way that the archive cannot tell.
    dirty: BTreeSet<Name>,
}

impl Registry {
    /// An empty one.
    pub fn new(options: Options) -> Registry {
        Registry {
            options,
            offers: BTreeMap::new(),
            count: 0,
            names: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            recommended: BTreeMap::new(),
            members: BTreeSet::new(),
            ear: Ear::default(),
            loud: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// How it works.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Everybody who is kept, by key and name.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.offers.values().flat_map(BTreeMap::values).map(|entry| &**entry)
    }

    /// How many offers are kept.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One offer, by its author and its `d`.
    pub fn get(&self, provider: &PublicKey, d: &str) -> Option<&Entry> {
        self.offers.get(provider)?.get(d).map(|entry| &**entry)
    }

    fn get_mut(&mut self, provider: &PublicKey, d: &str) -> Option<&mut Entry> {
        self.offers.get_mut(provider)?.get_mut(d).map(|entry| &mut **entry)
    }

    /// All offers of one key.
    pub fn of(&self, provider: &PublicKey) -> impl Iterator<Item = &Entry> {
        let offers = self.offers.get(provider).into_iter();
        offers.flat_map(BTreeMap::values).map(|entry| &**entry)
    }

    /// How many trusted keys recommend somebody.
    pub fn recommended(&self, provider: &PublicKey) -> usize {
        self.recommended.get(provider).copied().unwrap_or(0)
    }

    /// Whom trusted keys recommend.
    pub fn set_recommended(&mut self, by: &BTreeMap<PublicKey, BTreeSet<PublicKey>>) {
        self.recommended = by.iter().map(|(provider, by)| (*provider, by.len())).collect();
    }

    /// Whom the routing matrix knows: they come in as whom trusted keys recommend, and keep their places.
    pub fn set_members(&mut self, members: BTreeSet<PublicKey>) {
        self.members = members;
    }

    /// Up to `limit` of those whom the routing matrix knows and that have no offer here, after one of them.
    pub(super) fn missing(&self, after: Option<&PublicKey>, limit: usize) -> Vec<PublicKey> {
        let rest = self.members.iter().filter(|key| after.is_none_or(|after| *key > after));
        rest.filter(|key| !self.offers.contains_key(key)).take(limit).copied().collect()
    }

    /// Whether there is more to somebody than an announcement: strangers have not made it up.
    fn is_vouched(&self, provider: &PublicKey) -> bool {
        self.recommended(provider) > 0 || self.members.contains(provider)
    }

    /// Whether offers of other keys have a name that looks the same.
    pub fn is_shared(&self, card: &Card) -> bool {
        self.names.get(&card.canonical_d).is_some_and(|keys| keys.len() > 1)
    }

    /// The name of an offer for people: with the beginning of its key if others look the same.
    pub fn shown(&self, card: &Card) -> String {
        if !self.is_shared(card) && !card.d.is_empty() {
            return card.d.to_string();
        }
        let key: String = card.provider.npub().chars().take(12).collect();
        format!("{key}/{}", card.d)
    }

    /// Takes an announcement. `mark` is what an earlier life knows of it. `is_again` if it was refused before, and is
    /// looked at once more: then it counts as one that came now.
    pub fn take(
        &mut self,
        card: Card,
        mark: Option<&Mark>,
        is_again: bool,
        now_ms: UnixMs,
    ) -> Taken {
        match self.get(&card.provider, &card.d).map(|entry| card.supersedes(&entry.card)) {
            Some(false) => return Taken::Known,
            Some(true) => return self.renew(card, now_ms),
            None => {}
        }
        if let Err(why) = self.admit(&card, mark.is_some(), is_again, now_ms) {
            if matches!(why, Why::PerKey | Why::Budget) && !is_again {
                self.count_loud(card.provider);
            }
            return Taken::Refused(why);
        }
        let mut entry = Box::new(Entry::new(card, mark));
        if is_again {
            entry.is_late = true;
            self.dirty.insert((entry.card.provider, entry.card.d.clone()));
        }
        self.named(&entry.card);
        self.count = self.count.saturating_add(1);
        let offers = self.offers.entry(entry.card.provider).or_default();
        offers.insert(entry.card.d.clone(), entry);
        Taken::New
    }

    fn renew(&mut self, card: Card, now_ms: UnixMs) -> Taken {
        let name: Name = (card.provider, card.d.clone());
        if !card.claims.is_work() {
            // It offers nothing any more.
            self.remove(&name);
            return Taken::Refused(Why::NoWork);
        }
        let Some(entry) = self.get_mut(&name.0, &name.1) else { return Taken::Known };
        let within_hour = entry.renew(card, now_ms);
        if within_hour > self.options.versions_per_hour {
            self.count_loud(name.0);
        }
        self.dirty.insert(name);
        Taken::Newer
    }

    /// Whether there is a place for a new offer.
    fn admit(
        &mut self,
        card: &Card,
        is_marked: bool,
        is_again: bool,
        now_ms: UnixMs,
    ) -> Result<(), Why> {
        if !card.claims.is_work() {
            return Err(Why::NoWork);
        }
        let offers = self.offers.get(&card.provider).map_or(0, BTreeMap::len);
        if offers >= self.options.offers_per_key {
            return Err(Why::PerKey);
        }
        let is_known = is_marked || self.is_vouched(&card.provider);
        if !is_known {
            // Before there is room or not: looking for room costs more than counting.
            let at_ms = if is_again { now_ms } else { card.first_ms };
            if !self.arrives(at_ms.div_euclid(HOUR_MS), &card.origin) {
                return Err(Why::Budget);
            }
        }
        if self.count >= self.options.entries_max && !self.make_room(is_known) {
            return Err(Why::Full);
        }
        Ok(())
    }

    /// Counts one more that came in this hour from there, if the budget has a place for it; whether it has.
    fn arrives(&mut self, hour: i64, origin: &str) -> bool {
        while self.arrivals.len() > HOURS_MAX {
            self.arrivals.pop_first();
        }
        let budget = self.options.new_per_hour;
        let hour = self.arrivals.entry(hour).or_default();
        let origin =
            if hour.len() < ORIGINS_MAX || hour.contains_key(origin) { origin } else { "" };
        match hour.get_mut(origin) {
            Some(came) if *came >= budget => return false,
            Some(came) => *came = came.saturating_add(1),
            None if budget == 0 => return false,
            None => {
                hour.insert(origin.into(), 1);
            }
        }
        true
    }

    /// Makes room for somebody, if one who is there is worth less: archived, quarantined, or, for somebody who is known
    /// to be of use, never heard.
    fn make_room(&mut self, is_known: bool) -> bool {
        let worth = |entry: &Entry| match entry.state {
            State::Archived => 0,
            State::Quarantined => 1,
            State::Listed if entry.life.heard_ms.is_none() => 2,
            State::Listed => 3,
        };
        let limit = if is_known { 2 } else { 1 };
        let is_less =
            |entry: &&Entry| worth(entry) <= limit && !self.is_vouched(&entry.card.provider);
        let least = self.iter().filter(is_less).min_by_key(|entry| (worth(entry), entry.seen_ms));
        let Some(Entry { card, .. }) = least else { return false };
        let name = (card.provider, card.d.clone());
        self.remove(&name);
        true
    }

    fn named(&mut self, card: &Card) {
        if card.canonical_d.is_empty() {
            return;
        }
        let add = |keys: &mut BTreeMap<PublicKey, u32>| {
            let count = keys.entry(card.provider).or_default();
            *count = count.saturating_add(1);
        };
        match self.names.get_mut(&card.canonical_d) {
            Some(keys) => add(keys),
            None => add(self.names.entry(card.canonical_d.clone()).or_default()),
        }
    }

    fn remove(&mut self, name: &Name) -> Option<Entry> {
        let offers = self.offers.get_mut(&name.0)?;
        let entry = offers.remove(&name.1)?;
        if offers.is_empty() {
            self.offers.remove(&name.0);
        }
        self.count = self.count.saturating_sub(1);
        self.dirty.remove(name);
        if let Some(keys) = self.names.get_mut(&entry.card.canonical_d) {
            if let Some(count) = keys.get_mut(&name.0) {
                *count = count.saturating_sub(1);
            }
            keys.retain(|_, count| *count > 0);
            if keys.is_empty() {
                self.names.remove(&entry.card.canonical_d);
            }
        }
        Some(*entry)
    }

    fn count_loud(&mut self, key: PublicKey) {
        if self.loud.len() < LOUD_MAX || self.loud.contains_key(&key) {
            let count = self.loud.entry(key).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// An offer gave a sign of life; all of its key if it names none.
    pub fn hear(&mut self, provider: &PublicKey, d: &str, at_ms: UnixMs, now_ms: UnixMs) {
        let silent_ms = self.options.silent_ms;
        let all: Vec<Box<str>> = match d {
            "" => self.of(provider).map(|entry| entry.card.d.clone()).collect(),
            d => vec![d.into()],
        };
        for d in all {
            let Some(entry) = self.get_mut(provider, &d) else { continue };
            entry.seen_ms = entry.seen_ms.max(at_ms);
            // Whoever is live for the first time is found again by its heartbeat alone.
            if entry.life.hear(at_ms, silent_ms, now_ms) && entry.life.flips(now_ms) > 0 {
                self.dirty.insert((*provider, d));
            }
        }
    }

    /// Something came from outside at these times, the first and the last since it was asked before.
    pub fn received(&mut self, first_ms: UnixMs, last_ms: UnixMs) {
        self.ear.received(self.options.silent_ms, first_ms, last_ms);
    }

    /// Time has passed: who is silent, and who was not seen for long. How many changed. While we hear nobody, nobody
    /// has gone: it is we who are away.
    pub fn tick(&mut self, now_ms: UnixMs) -> usize {
        let vouched =
            |key: &PublicKey| self.recommended.contains_key(key) || self.members.contains(key);
        let witnesses = self.offers.iter().filter(|(key, _)| vouched(key));
        let witnesses = witnesses.flat_map(|(_, offers)| offers.values());
        let heard = witnesses.filter(|entry| entry.life.is_live);
        let heard = heard.filter_map(|entry| entry.life.heard_ms);
        self.ear.listen(self.options.silent_ms, heard, now_ms);
        let is_deaf = self.ear.is_deaf(now_ms);
        let mut changed = 0_usize;
        for entry in self.offers.values_mut().flat_map(BTreeMap::values_mut) {
            let gone = !is_deaf && entry.life.tick(self.options.silent_ms, now_ms);
            if entry.move_on(&self.options, is_deaf, now_ms) || gone {
                changed = changed.saturating_add(1);
                self.dirty.insert((entry.card.provider, entry.card.d.clone()));
            }
        }
        changed
    }

    /// Every offer, and when it was heard last.
    pub(super) fn heard(&self) -> Vec<(Name, UnixMs)> {
        let heard = |entry: &Entry| entry.life.heard_ms.unwrap_or(i64::MIN);
        let name = |entry: &Entry| (entry.card.provider, entry.card.d.clone());
        self.iter().map(|entry| (name(entry), heard(entry))).collect()
    }

    /// Up to `limit` offers after one, to see whether they are still announced.
    pub(super) fn names_after(&self, after: Option<&Name>, limit: usize) -> Vec<Name> {
        let is_rest =
            |card: &&Card| after.is_none_or(|(key, d)| (&card.provider, &card.d) > (key, d));
        let rest = self.iter().map(|entry| &entry.card).filter(is_rest);
        rest.take(limit).map(|card| (card.provider, card.d.clone())).collect()
    }

    /// An offer is not announced any more; whether it was known.
    pub(super) fn withdraw(&mut self, name: &Name) -> bool {
        self.remove(name).is_some()
    }

    /// What has changed since the last call in a way that the archive cannot tell.
    pub(super) fn take_dirty(&mut self) -> Vec<(Name, Mark)> {
        let dirty = std::mem::take(&mut self.dirty);
        let mark = |name: Name| {
            let mark = self.get(&name.0, &name.1)?.mark();
            Some((name, mark))
        };
        dirty.into_iter().filter_map(mark).collect()
    }

    /// The keys of which something was refused since the last call, and how often.
    pub(super) fn take_loud(&mut self) -> BTreeMap<PublicKey, u64> {
        std::mem::take(&mut self.loud)
    }

    /// What is there of the work that the matrix knows, to compare it with: those of these providers that are listed,
    /// and which of these task types each offers.
    pub fn live(&self, known: &BTreeMap<PublicKey, BTreeSet<TaskType>>) -> Vec<Live> {
        let mut found = Vec::new();
        for (provider, tasks) in known {
            for entry in self.of(provider).filter(|entry| entry.state == State::Listed) {
                let offers = |task: &&TaskType| self.offers(entry, task);
                found.push(Live {
                    provider: *provider,
                    d: entry.card.d.to_string(),
                    tasks: tasks.iter().filter(offers).cloned().collect(),
                    seen_ms: entry.seen_ms,
                });
            }
        }
        found
    }

    /// Whether an offer still covers work that its provider was once admitted for: by its words, or by the kind that
    /// such work is asked by. Whoever is met is asked for a benchmark by a kind that it announces, whichever that is.
    fn offers(&self, entry: &Entry, task: &TaskType) -> bool {
        let usual = [kind::DEFAULT_REQUEST].into();
        let kinds = self.options.kinds.get(task.as_str()).unwrap_or(&usual);
        let by_kind = |number: &u16| {
            let number = number.to_string();
            entry.card.claims.iter().any(|(claim, _)| claim.covers(&number))
        };
        let is_any = |claim: &Claim| matches!(claim, Claim::Kind(_));
        self.matches(entry, task.as_str()).is_some()
            || kinds.iter().any(by_kind)
            || (task.as_str() == benchmark::TASK_TYPE
                && entry.card.claims.iter().any(|(claim, _)| is_any(claim)))
    }

    /// How many there are of what.
    pub fn summary(&self, now_ms: UnixMs) -> Summary {
        let mut sum = Summary { entries: self.count, ..Summary::default() };
        for entry in self.iter() {
            let state = match entry.state {
                State::Listed => &mut sum.listed,
                State::Quarantined => &mut sum.quarantined,
                State::Archived => &mut sum.archived,
            };
            *state = state.saturating_add(1);
            let add =
                |yes: bool, count: &mut usize| *count = count.saturating_add(usize::from(yes));
            add(entry.life.is_live && entry.state == State::Listed, &mut sum.live);
            add(entry.is_flapping(&self.options, now_ms), &mut sum.flapping);
            add(!entry.card.claims.discrepancies().is_empty(), &mut sum.disputed);
        }
        sum.collisions = self.names.values().filter(|keys| keys.len() > 1).count();
        sum.bytes = self.bytes();
        sum
    }

    /// About how much memory the offers take.
    pub fn bytes(&self) -> usize {
        let fixed = size_of::<(Box<str>, Box<Entry>)>().saturating_add(size_of::<Entry>());
        let entry = |entry: &Entry| {
            // Its name stands in both maps.
            let names = entry.card.d.len().saturating_add(entry.card.canonical_d.len());
            fixed.saturating_add(entry.card.heap_bytes()).saturating_add(names)
        };
        let entries: usize = self.iter().map(entry).sum();
        let keys = self.offers.len().saturating_mul(size_of::<(PublicKey, Offers)>());
        let key = size_of::<PublicKey>().saturating_add(size_of::<u32>());
        let names: usize =
            self.names.values().map(|keys| keys.len().saturating_mul(key).saturating_add(48)).sum();
        entries.saturating_add(keys).saturating_add(names)
    }

    /// What must always hold; each sentence is a fault of this program.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.count > self.options.entries_max {
            problems.push(format!("{} offers are kept", self.count));
        }
        if self.count != self.iter().count() || self.offers.values().any(BTreeMap::is_empty) {
            problems.push(format!("{} offers were counted", self.count));
        }
        let mut keys: BTreeMap<PublicKey, usize> = BTreeMap::new();
        let mut names: BTreeMap<&str, BTreeMap<PublicKey, u32>> = BTreeMap::new();
        let all = self
            .offers
            .iter()
            .flat_map(|(key, offers)| offers.iter().map(move |(d, entry)| (key, d, entry)));
        for (key, d, entry) in all {
            if (*key, &**d) != (entry.card.provider, &*entry.card.d) {
                problems.push(format!("an offer of {key} is kept under another name"));
            }
            let count = keys.entry(*key).or_default();
            *count = count.saturating_add(1);
            if !entry.card.canonical_d.is_empty() {
                let count =
                    names.entry(&entry.card.canonical_d).or_default().entry(*key).or_default();
                *count = count.saturating_add(1);
            }
        }
        let over = keys.iter().filter(|(_, count)| **count > self.options.offers_per_key);
        problems.extend(over.map(|(key, count)| format!("{key} has {count} offers")));
        let kept: BTreeMap<&str, &BTreeMap<PublicKey, u32>> =
            self.names.iter().map(|(name, keys)| (&**name, keys)).collect();
        if kept.len() != names.len()
            || names.iter().any(|(name, keys)| kept.get(name) != Some(&keys))
        {
            problems.push("the names are not those of the offers".to_owned());
        }
        problems
    }
}

#[cfg(test)]
mod tests;
