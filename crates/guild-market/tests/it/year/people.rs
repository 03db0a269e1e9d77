//! Who offers work in a year: most do it well, some do not, and some only look as if they did.

use guild_market::routing::Draws;
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::{PublicKey, SecretKey};

/// What somebody is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    /// Does what it can, well most of the time, and now and then becomes better or worse.
    Honest,
    /// Does what it can, which is not enough.
    Mediocre,
    /// One of several that say the same wrong thing, three times in ten.
    Ring,
    /// Cheats on every tenth job.
    Tenth,
    /// Good as long as it is looked at, and half of the time in work.
    Turncoat,
    /// Right, and from the middle of the year on ten times as slow.
    Slow,
    /// Gone from some day on.
    Dying,
    /// Tries what is forbidden, once.
    Breaker,
}

/// So many of each: fifty in all, of which more than a third are after what is not theirs.
const MIX: [(Nature, usize); 8] = [
    (Nature::Honest, 25),
    (Nature::Mediocre, 6),
    (Nature::Ring, 8),
    (Nature::Tenth, 3),
    (Nature::Turncoat, 3),
    (Nature::Slow, 2),
    (Nature::Dying, 2),
    (Nature::Breaker, 1),
];

impl Nature {
    /// Whether it means to be paid for what it does not do.
    pub(super) fn is_hostile(self) -> bool {
        matches!(self, Nature::Ring | Nature::Tenth | Nature::Turncoat | Nature::Breaker)
    }
}

/// What somebody sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Right,
    /// The same wrong answer has the same hash.
    Wrong(Hash),
    Nothing,
    Forbidden,
}

/// Somebody who offers work.
#[derive(Debug, Clone)]
pub(super) struct Person {
    pub(super) key: PublicKey,
    pub(super) nature: Nature,
    /// Keys of one operator count once.
    pub(super) operator: usize,
    /// How often it is right, in ten-thousandths.
    pub(super) right_bp: u64,
    pub(super) price_msat: i64,
    pub(super) latency_ms: i64,
    /// How often it has come back under a new key.
    pub(super) generation: u32,
    jobs: u64,
    /// When it dies or breaks the rules, if it does.
    turn_day: i64,
}

/// Operators of several keys have numbers of their own, which nobody else's has.
const OPERATORS_OF_RINGS: usize = 1_000;

/// The key of somebody; another one for each time that it comes back.
fn key(number: usize, generation: u32) -> PublicKey {
    let text = format!("{:056x}{generation:08x}", number + 1);
    text.parse::<SecretKey>().unwrap().public_key()
}

/// How often somebody is right, drawn anew.
fn drawn_rate(nature: Nature, draws: &mut Draws) -> u64 {
    match nature {
        Nature::Mediocre => 8_000 + draws.below(1_200),
        _ => 9_800 + draws.below(200),
    }
}

/// Fifty of them.
pub(super) fn all(draws: &mut Draws) -> Vec<Person> {
    let natures = MIX.iter().flat_map(|(nature, count)| std::iter::repeat_n(*nature, *count));
    let person = |(number, nature): (usize, Nature)| Person {
        key: key(number, 0),
        nature,
        // The ring has two keys at each of its operators.
        operator: if nature == Nature::Ring {
            OPERATORS_OF_RINGS + number.div_ceil(2)
        } else {
            number
        },
        right_bp: drawn_rate(nature, draws),
        price_msat: 40 + i64::try_from(draws.below(41)).unwrap(),
        latency_ms: 500 + i64::try_from(draws.below(2_000)).unwrap(),
        generation: 0,
        jobs: 0,
        turn_day: 30 + i64::try_from(draws.below(300)).unwrap(),
    };
    natures.enumerate().map(person).collect()
}

impl Person {
    /// Whether it is there at all.
    pub(super) fn is_there(&self, day: i64) -> bool {
        self.nature != Nature::Dying || day < self.turn_day
    }

    /// Now and then somebody becomes another one.
    pub(super) fn drift(&mut self, draws: &mut Draws) {
        if draws.below(120) != 0 {
            return;
        }
        self.right_bp = match self.nature {
            // One honest provider in six changes for the worse, for a while.
            Nature::Honest if draws.below(6) == 0 => 8_500 + draws.below(1_000),
            nature => drawn_rate(nature, draws),
        };
    }

    /// It is shut out, and comes back under a new key.
    pub(super) fn whitewash(&mut self, number: usize) {
        self.generation += 1;
        self.key = key(number, self.generation);
    }

    /// How likely it is right about a job, in ten-thousandths.
    pub(super) fn chance_bp(&self, day: i64) -> u64 {
        match self.nature {
            _ if !self.is_there(day) => 0,
            Nature::Ring => 7_000,
            Nature::Tenth => self.right_bp * 9 / 10,
            Nature::Turncoat => 5_000,
            _ => self.right_bp,
        }
    }

    /// What it sends for a job, and how long that takes.
    pub(super) fn answer(&mut self, job: u64, day: i64, draws: &mut Draws) -> (Answer, i64) {
        self.jobs += 1;
        let wobble = i64::try_from(draws.below(401)).unwrap() - 200;
        let slow = if self.nature == Nature::Slow && day > 180 { 10 } else { 1 };
        let latency_ms = (self.latency_ms + wobble) * slow;
        // Each wrong answer is wrong in its own way; only those of the ring are the same.
        let own = Answer::Wrong(Hash::of(format!("{job} {}", self.key).as_bytes()));
        let together = Answer::Wrong(Hash::of(format!("{job} ring").as_bytes()));
        let drawn = draws.below(10_000);
        let answer = match self.nature {
            _ if !self.is_there(day) => Answer::Nothing,
            Nature::Breaker if day >= self.turn_day => Answer::Forbidden,
            Nature::Ring if drawn < 3_000 => together,
            Nature::Ring => Answer::Right,
            Nature::Tenth if self.jobs.is_multiple_of(10) => own,
            Nature::Turncoat if drawn < 5_000 => own,
            Nature::Turncoat => Answer::Right,
            _ if drawn < self.right_bp => Answer::Right,
            // Some who fail are silent.
            _ if draws.below(4) == 0 => Answer::Nothing,
            _ => own,
        };
        (answer, latency_ms)
    }

    /// Whether it passes one run of an evaluation: there everybody is at its best.
    pub(super) fn passes(&self, day: i64, draws: &mut Draws) -> bool {
        let best_bp = if self.nature.is_hostile() { 9_900 } else { self.right_bp };
        self.is_there(day) && draws.below(10_000) < best_bp
    }
}

#[test]
fn nobody_shares_an_operator_but_those_of_the_ring_by_two() {
    let mut keys = std::collections::BTreeMap::<usize, Vec<Nature>>::new();
    for person in all(&mut Draws::new(1)) {
        keys.entry(person.operator).or_default().push(person.nature);
    }
    for natures in keys.values() {
        let ring = natures == &[Nature::Ring; 2];
        assert!(ring || natures.len() == 1 && natures != &[Nature::Ring], "{natures:?}");
    }
    assert_eq!(keys.len(), 50 - 4);
}
