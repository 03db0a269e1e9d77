//! Brings a registry up to the archive, a page at a time.

use std::collections::{BTreeMap, BTreeSet};

use guild_network::index::{self, AnnouncedPage, Came, Heard};
use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::unix_s;
use guild_store::{Rx, Tx};

use super::card::Card;
use super::entry::Mark;
use super::registry::{Name, Registry, Taken, Why};
use super::{Discrepancy, Options, rows};
use crate::Result;

/// So many offers are asked at once whether their announcement is still there.
const CHECK_MAX: usize = 2_000;
/// So many of those whom the matrix knows, and nobody here does, are looked for at once.
const MISSING_MAX: usize = 500;
/// A key of which as many were refused at once is too loud.
const LOUD_MIN: u64 = 5;

/// A registry, and how far it has come.
#[derive(Debug, Clone)]
pub struct Follower {
    registry: Registry,
    marks: BTreeMap<Name, Mark>,
    /// Up to here everything of the archive is in the registry.
    seq: i64,
    /// Up to here announcements were counted, by this or another process.
    counted_seq: i64,
    /// Whether nothing was behind it at the last look.
    is_last: bool,
    /// Up to here those that were refused were looked at again.
    again_seq: i64,
    /// The last offer that was asked for its announcement.
    checked: Option<Name>,
    /// The last of those whom the matrix knows that was looked for by its key.
    missed: Option<PublicKey>,
    /// Up to here it was looked when something came.
    came_seq: i64,
    /// What was counted and not yet written.
    counts: BTreeMap<String, u64>,
    /// What the intake has refused, as far as it is known here.
    refused: BTreeMap<&'static str, u64>,
    refused_new: BTreeMap<String, u64>,
    renewed: BTreeSet<Name>,
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Saved {
    pub(super) from_seq: i64,
    pub(super) to_seq: i64,
    pub(super) marks: Vec<(Name, Mark)>,
    /// Offers whose discrepancies are no longer those that were written.
    pub(super) renewed: BTreeSet<Name>,
    pub(super) discrepancies: BTreeMap<Name, Vec<Discrepancy>>,
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) refused: BTreeMap<String, u64>,
    pub(super) loud: BTreeMap<PublicKey, u64>,
}

impl Saved {
    /// Whether there is nothing to write.
    pub fn is_nothing(&self) -> bool {
        self.from_seq == self.to_seq
            && self.marks.is_empty()
            && self.renewed.is_empty()
            && self.counts.is_empty()
            && self.refused.is_empty()
            && self.loud.is_empty()
    }
}

/// Who gave signs, whom trusted keys recommend, what was refused before and may come in now, and what is gone.
#[derive(Debug, Clone, PartialEq)]
pub struct Signs {
    heard: Vec<Heard>,
    recommended: BTreeMap<PublicKey, BTreeSet<PublicKey>>,
    again: AnnouncedPage,
    asked: Vec<Name>,
    there: BTreeSet<(PublicKey, String)>,
    missing: Vec<PublicKey>,
    found: AnnouncedPage,
    came: Option<Came>,
    came_seq: i64,
}

/// A registry of all that was counted before, and of all signs of life; what came since is to be looked for. `members`
/// is whom the routing matrix knows.
pub fn open(
    rx: &mut Rx<'_>,
    options: Options,
    members: &BTreeSet<PublicKey>,
    now_ms: UnixMs,
) -> Result<Follower> {
    let counted_seq = rows::counted_seq(rx)?;
    let recommended = index::recommended_by(rx, &options.trusted, unix_s(now_ms))?;
    let mut registry = Registry::new(options);
    registry.set_recommended(&recommended);
    registry.set_members(members.clone());
    let (came, came_seq) = index::came_after(rx, 0)?;
    if let Some(came) = came {
        // What came before was heard: only what follows is a silence.
        registry.received(came.last_ms, came.last_ms);
    }
    let mut follower = Follower {
        registry,
        marks: rows::marks(rx)?,
        seq: 0,
        counted_seq,
        is_last: false,
        again_seq: 0,
        checked: None,
        missed: None,
        came_seq,
        counts: BTreeMap::new(),
        refused: BTreeMap::new(),
        refused_new: BTreeMap::new(),
        renewed: BTreeSet::new(),
    };
    while follower.seq < counted_seq {
        let page = index::announced_before(rx, follower.seq, counted_seq)?;
        follower.take(&page, false, now_ms);
        follower.seq = page.up_to.max(follower.seq.saturating_add(1));
    }
    // All of it was counted and written by an earlier life.
    follower.counts.clear();
    follower.renewed.clear();
    follower.registry.take_loud();
    let heard = heard(rx, &follower.registry.heard())?;
    follower.hear(&heard, now_ms);
    follower.registry.tick(now_ms);
    Ok(follower)
}

/// The next announcements after a number.
pub fn look(rx: &mut Rx<'_>, seq: i64) -> Result<AnnouncedPage> {
    Ok(index::announced_after(rx, seq)?)
}

/// Who of those that are known gave a sign since the last one.
fn heard(rx: &mut Rx<'_>, known: &[(Name, UnixMs)]) -> Result<Vec<Heard>> {
    let known: Vec<(PublicKey, &str, UnixMs)> =
        known.iter().map(|((key, d), since_ms)| (*key, &**d, *since_ms)).collect();
    Ok(index::heard_after(rx, &known)?)
}

/// Where a follower stands, as far as [`signs`] must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    trusted: BTreeSet<PublicKey>,
    asked: Vec<Name>,
    heard: Vec<(Name, UnixMs)>,
    again_seq: i64,
    seq: i64,
    missing: Vec<PublicKey>,
    per_key: i64,
    came_seq: i64,
}

/// What else there is to know, for a follower at this place.
pub fn signs(rx: &mut Rx<'_>, place: &Place, now_ms: UnixMs) -> Result<Signs> {
    let asked: Vec<(PublicKey, &str)> = place.asked.iter().map(|(key, d)| (*key, &**d)).collect();
    let (came, came_seq) = index::came_after(rx, place.came_seq)?;
    Ok(Signs {
        heard: heard(rx, &place.heard)?,
        recommended: index::recommended_by(rx, &place.trusted, unix_s(now_ms))?,
        again: index::announced_before(rx, place.again_seq, place.seq)?,
        there: index::still_announced(rx, &asked)?,
        asked: place.asked.clone(),
        missing: place.missing.clone(),
        found: AnnouncedPage {
            announced: index::announced_of(rx, &place.missing, place.per_key)?,
            up_to: place.seq,
            is_last: true,
        },
        came,
        came_seq,
    })
}

impl Follower {
    /// The registry, as far as it has come.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Up to which number of the archive that is.
    pub fn seq(&self) -> i64 {
        self.seq
    }

    /// Whether nothing was behind that at the last look.
    pub fn is_caught_up(&self) -> bool {
        self.is_last
    }

    /// Where it stands.
    pub fn place(&self) -> Place {
        Place {
            trusted: self.registry.options().trusted.clone(),
            asked: self.registry.names_after(self.checked.as_ref(), CHECK_MAX),
            heard: self.registry.heard(),
            again_seq: self.again_seq,
            seq: self.seq,
            missing: self.registry.missing(self.missed.as_ref(), MISSING_MAX),
            per_key: i64::try_from(self.registry.options().offers_per_key).unwrap_or(i64::MAX),
            came_seq: self.came_seq,
        }
    }

    /// Takes a page of announcements, as [`look`] gave it for this place.
    pub fn apply(&mut self, page: &AnnouncedPage, now_ms: UnixMs) {
        if page.up_to < self.seq {
            return;
        }
        self.take(page, false, now_ms);
        (self.seq, self.is_last) = (page.up_to, page.is_last);
    }

    fn take(&mut self, page: &AnnouncedPage, is_again: bool, now_ms: UnixMs) {
        for announced in &page.announced {
            let said = match &announced.card {
                Ok(said) => said,
                Err(code) => {
                    // What is looked at again was counted when it came.
                    if !is_again {
                        self.count(code);
                    }
                    continue;
                }
            };
            let name = || -> Name { (announced.pubkey, said.d.as_str().into()) };
            let card = Card::of(announced, said);
            let is_wrong = !card.claims.discrepancies().is_empty();
            let has_marks = !self.marks.is_empty();
            let mark = has_marks.then(|| self.marks.remove(&name())).flatten();
            match self.registry.take(card, mark.as_ref(), is_again, now_ms) {
                Taken::New if is_wrong => {
                    self.renewed.insert(name());
                }
                // What was wrong before may be right now.
                Taken::Newer => {
                    self.renewed.insert(name());
                }
                Taken::Refused(why) if !is_again => self.count(why.name()),
                Taken::Refused(Why::NoWork) | Taken::New | Taken::Known | Taken::Refused(_) => {}
            }
        }
    }

    fn count(&mut self, what: &str) {
        let count = self.counts.entry(what.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    fn hear(&mut self, heard: &[Heard], now_ms: UnixMs) {
        for (provider, d, at_ms) in heard {
            self.registry.hear(provider, d, *at_ms, now_ms);
        }
    }

    /// Takes what else is known, and lets time pass.
    pub fn tick(&mut self, signs: &Signs, now_ms: UnixMs) {
        self.registry.set_recommended(&signs.recommended);
        // Whoever is not there any more makes room for others.
        for name in &signs.asked {
            let is_there = signs.there.contains(&(name.0, name.1.to_string()));
            if !is_there && self.registry.withdraw(name) {
                self.renewed.insert(name.clone());
            }
        }
        let is_round = signs.asked.len() < CHECK_MAX;
        self.checked = signs.asked.last().filter(|_| !is_round).cloned();
        // Before those who wait for their turn: they need none.
        self.take(&signs.found, true, now_ms);
        let is_round = signs.missing.len() < MISSING_MAX;
        self.missed = signs.missing.last().filter(|_| !is_round).copied();
        self.take(&signs.again, true, now_ms);
        self.again_seq = if signs.again.is_last { 0 } else { signs.again.up_to };
        self.hear(&signs.heard, now_ms);
        self.came_seq = signs.came_seq;
        if let Some(came) = signs.came {
            self.registry.received(came.first_ms, came.last_ms);
        }
        self.registry.tick(now_ms);
    }

    /// Whom the routing matrix knows now.
    pub fn set_members(&mut self, members: BTreeSet<PublicKey>) {
        self.registry.set_members(members);
    }

    /// The announcements that the intake of this process has refused since its start, by the code of the reason.
    pub fn refused(&mut self, so_far: &BTreeMap<&'static str, u64>) {
        for (code, count) in so_far {
            let before = self.refused.insert(code, *count).unwrap_or(0);
            let new = count.saturating_sub(before);
            if new > 0 {
                let sum = self.refused_new.entry((*code).to_owned()).or_default();
                *sum = sum.saturating_add(new);
            }
        }
    }

    /// What is to be written since the last call.
    pub fn take_saved(&mut self) -> Saved {
        let mut loud = self.registry.take_loud();
        loud.retain(|_, refused| *refused >= LOUD_MIN);
        let renewed = std::mem::take(&mut self.renewed);
        let wrong = |name: &Name| {
            let entry = self.registry.get(&name.0, &name.1)?;
            let list = entry.card.claims.discrepancies();
            (!list.is_empty()).then(|| (name.clone(), list.to_vec()))
        };
        let discrepancies = renewed.iter().filter_map(wrong).collect();
        let to_seq = self.seq.max(self.counted_seq);
        let from_seq = std::mem::replace(&mut self.counted_seq, to_seq);
        Saved {
            from_seq,
            to_seq,
            marks: self.registry.take_dirty(),
            renewed,
            discrepancies,
            counts: std::mem::take(&mut self.counts),
            refused: std::mem::take(&mut self.refused_new),
            loud,
        }
    }
}

/// Forgets rows that are of no use any more.
pub fn sweep(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<()> {
    rows::sweep(tx, now_ms)
}
