//! Who is hired, and why.

use std::collections::BTreeSet;
use std::fmt;

use guild_protocol::env::{Random, UnixMs};
use guild_protocol::identity::PublicKey;
use serde::{Serialize, Serializer};

use super::matrix::Task;
use super::{Draws, Entry, Hearsays, Matrix, Parts, TaskType, Tier, thompson, tiered};
use crate::health::Stage;

/// So many who were passed over are named.
const NAMED_MAX: usize = 16;

/// How one is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// A tier is drawn, its best is taken; now and then somebody is drawn from all.
    Tiered,
    /// For everybody it is drawn how well it will do, from what is known of it; the best is taken.
    Thompson,
}

impl Policy {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Tiered => "tiered",
            Policy::Thompson => "thompson",
        }
    }

    /// The policy of that name.
    ///
    /// ```
    /// use guild_market::routing::Policy;
    /// assert_eq!(Policy::named("tiered"), Some(Policy::Tiered));
    /// ```
    pub fn named(name: &str) -> Option<Policy> {
        [Policy::Tiered, Policy::Thompson].into_iter().find(|policy| policy.name() == name)
    }
}

/// Who is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// For which work.
    pub task: &'a TaskType,
    /// None of these.
    pub except: &'a BTreeSet<PublicKey>,
    /// Nobody who is known to cost more.
    pub max_cost_msat: Option<i64>,
    /// When.
    pub now_ms: UnixMs,
}

/// Why somebody was passed over, or could not be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It has had its part of the work of the last hour.
    Share,
    /// It costs more than there is to spend.
    Cost,
    /// Whoever asks does not want it.
    Unwanted,
    /// Its status says so.
    Status,
    /// It gets half as much work, and this is of the other half.
    Reduced,
}

impl Reason {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Reason::Share => "has had its part of the last hour",
            Reason::Cost => "costs more than the budget",
            Reason::Unwanted => "is left out by whoever asks",
            Reason::Status => "is not hired now",
            Reason::Reduced => "gets half as much work until it passes a benchmark",
        }
    }
}

/// How the one who was chosen came to it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum How {
    /// The best of a tier that was drawn.
    Tier {
        /// Which one.
        tier: Tier,
        /// How often it is drawn, in hundredths,
        weight_pct: u32,
        /// of so many, of those tiers that have somebody.
        of_pct: u32,
    },
    /// The best of this tier, because nobody of the tier that was drawn could be taken.
    Instead {
        /// Which one.
        tier: Tier,
    },
    /// Drawn from all, to learn of it.
    Explored {
        /// How often that happens, in ten-thousandths.
        epsilon_bp: u32,
    },
    /// The best of what was drawn for everybody.
    Drawn {
        /// How often it will do well, as drawn, in ten-thousandths.
        success_bp: u32,
        /// How often it did, in ten-thousandths.
        known_bp: u32,
        /// From so many.
        of: usize,
    },
}

/// The one who was chosen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chosen {
    /// Who.
    pub provider: PublicKey,
    /// The `d` tag of its service.
    pub d: String,
    /// How it came to that.
    pub how: How,
    /// What its score is made of.
    pub parts: Parts,
    /// Its score, in millionths.
    pub score_micro: u32,
}

/// A choice, and why it is this one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// For which work.
    pub task: TaskType,
    /// How it was chosen.
    pub policy: Policy,
    /// When.
    pub at_ms: UnixMs,
    /// The seed: with it and the same matrix the choice is the same. As a text, because not every reader of JSON keeps
    /// 64 bits.
    #[serde(serialize_with = "as_text")]
    pub seed: u64,
    /// Who; nobody, if there is none.
    pub chosen: Option<Chosen>,
    /// How many are in each tier: primary, secondary, tertiary, below.
    pub tiers: [usize; 4],
    /// Who was better and passed over, some of them, and why.
    pub passed_over: Vec<(PublicKey, Reason)>,
    /// How many were.
    pub passed_over_count: usize,
    /// Whether the limit of one provider's part was left out, because there was nobody else.
    pub share_waived: bool,
    /// How many active providers the task type is short of.
    pub short_of_active: usize,
}

fn as_text<S: Serializer>(seed: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(seed)
}

/// What a policy looks at.
pub(super) struct Look<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) task: &'a Task,
    pub(super) wanted: &'a Wanted<'a>,
    /// What others say.
    pub(super) said: &'a Hearsays,
    /// Whether one provider's part of the work is limited.
    pub(super) limited: bool,
    /// Decides which half of the choices it is.
    pub(super) seed: u64,
    pub(super) passed_over: Vec<(PublicKey, Reason)>,
    pub(super) passed_over_count: usize,
}

impl<'a> Look<'a> {
    /// Whether somebody who is hired may be taken this time; who may not is remembered.
    pub(super) fn may(&mut self, provider: &PublicKey, entry: &Entry) -> bool {
        let Some(reason) = self.against(provider, entry) else { return true };
        self.passed_over_count = self.passed_over_count.saturating_add(1);
        if self.passed_over.len() < NAMED_MAX {
            self.passed_over.push((*provider, reason));
        }
        false
    }

    /// What speaks against somebody who is hired.
    pub(super) fn against(&self, provider: &PublicKey, entry: &Entry) -> Option<Reason> {
        let Wanted { except, max_cost_msat, now_ms, .. } = *self.wanted;
        if !except.is_empty() && except.contains(provider) {
            return Some(Reason::Unwanted);
        }
        if let Some(max) = max_cost_msat
            && entry.cost_msat().is_some_and(|cost| cost > max)
        {
            return Some(Reason::Cost);
        }
        let options = self.matrix.options();
        if self.limited && !self.task.shares.allow(options, provider, now_ms) {
            return Some(Reason::Share);
        }
        if self.limited && entry.health.stage == Stage::Reduced && self.is_other_half(provider) {
            return Some(Reason::Reduced);
        }
        None
    }

    /// Half of all seeds, another half for each provider. No draw of the policy is used up by it.
    fn is_other_half(&self, provider: &PublicKey) -> bool {
        let mixed =
            provider.as_bytes().iter().take(8).fold(self.seed, |mixed, byte| {
                Draws::new(mixed.wrapping_add(u64::from(*byte))).any()
            });
        Draws::new(mixed).below(2) == 0
    }

    pub(super) fn at(&self, place: usize) -> Option<&'a (PublicKey, Entry)> {
        self.task.entries().get(place)
    }

    fn begin_again(&mut self, limited: bool) {
        self.limited = limited;
        self.passed_over.clear();
        self.passed_over_count = 0;
    }
}

/// Chooses one by a policy. Pure, but for the seed that is drawn; nothing is changed: whoever hires the one chosen
/// writes that it was assigned.
///
/// One provider gets at most its part of the jobs of an hour, rounded up, also if it is by far the best: at every job
/// that it is given, the hour until then is looked at. Only if nobody else can be taken is that left out, and said.
pub fn choose(matrix: &Matrix, policy: Policy, wanted: &Wanted<'_>, random: &dyn Random) -> Choice {
    choose_with(matrix, policy, wanted, &Hearsays::new(), random)
}

/// The same, where others have said something of those whom nobody here has hired yet. Only the policy `thompson`
/// listens.
pub fn choose_with(
    matrix: &Matrix,
    policy: Policy,
    wanted: &Wanted<'_>,
    said: &Hearsays,
    random: &dyn Random,
) -> Choice {
    again(matrix, policy, (wanted, said), random.next_u64())
}

/// The choice of this seed.
pub(super) fn again(
    matrix: &Matrix,
    policy: Policy,
    (wanted, said): (&Wanted<'_>, &Hearsays),
    seed: u64,
) -> Choice {
    let mut choice = Choice {
        task: wanted.task.clone(),
        policy,
        at_ms: wanted.now_ms,
        seed,
        chosen: None,
        tiers: [0; 4],
        passed_over: Vec::new(),
        passed_over_count: 0,
        share_waived: false,
        short_of_active: matrix.options().min_active,
    };
    let Some(task) = matrix.task(wanted.task) else { return choice };
    choice.tiers = Tier::ALL.map(|tier| task.pool(tier).len());
    choice.short_of_active = choice.short_of_active.saturating_sub(task.active());
    let passed_over = Vec::new();
    let mut look =
        Look { matrix, task, wanted, said, limited: true, seed, passed_over, passed_over_count: 0 };
    for limited in [true, false] {
        look.begin_again(limited);
        let mut draws = Draws::new(seed);
        let found = match policy {
            Policy::Tiered => tiered::pick(&mut look, &mut draws),
            Policy::Thompson => thompson::pick(&mut look, &mut draws),
        };
        if let Some((place, how)) = found {
            choice.share_waived = !limited;
            choice.chosen = look.at(place).map(|(provider, entry)| {
                let parts = Parts::of(matrix.options(), entry);
                let score_micro = parts.score_micro(matrix.options());
                Chosen { provider: *provider, d: entry.d.clone(), how, parts, score_micro }
            });
            break;
        }
    }
    (choice.passed_over, choice.passed_over_count) = (look.passed_over, look.passed_over_count);
    choice
}

/// Ten-thousandths as people read them.
pub(super) fn shown_bp(bp: u32) -> String {
    format!("{}.{:02}", bp.div_euclid(10_000), bp.rem_euclid(10_000).div_euclid(100))
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Tier { tier, weight_pct, of_pct } => write!(
                f,
                "the best of the {} tier, which was drawn with {weight_pct} of {of_pct}",
                tier.name()
            ),
            How::Instead { tier } => write!(
                f,
                "the best of the {} tier, because nobody of the tier that was drawn may be taken",
                tier.name()
            ),
            How::Explored { epsilon_bp } => write!(
                f,
                "drawn from all, to learn of it, as happens {}.{:02} times of 100",
                epsilon_bp.div_euclid(100),
                epsilon_bp.rem_euclid(100)
            ),
            How::Drawn { success_bp, known_bp, of } => write!(
                f,
                "the best of what was drawn for {of}: it does well {} of the time, and did {}",
                shown_bp(*success_bp),
                shown_bp(*known_bp)
            ),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [primary, secondary, tertiary, below] = self.tiers;
        match &self.chosen {
            None => write!(f, "{}: nobody can be hired", self.policy.name())?,
            Some(Chosen { provider, how, parts, score_micro, .. }) => write!(
                f,
                "{}: {provider}\n  {how}\n  score {}: trust {}, cost {}, time {}, load {}, exploration {}",
                self.policy.name(),
                shown_bp(score_micro.div_euclid(100)),
                shown_bp(parts.trust_bp),
                shown_bp(parts.cost_bp),
                shown_bp(parts.latency_bp),
                shown_bp(parts.load_bp),
                shown_bp(parts.exploration_bp),
            )?,
        }
        write!(
            f,
            "\n  tiers: {primary} primary, {secondary} secondary, {tertiary} tertiary, {below} below"
        )?;
        for (provider, reason) in &self.passed_over {
            write!(f, "\n  passed over: {provider} {}", reason.words())?;
        }
        let more = self.passed_over_count.saturating_sub(self.passed_over.len());
        if more > 0 {
            write!(f, "\n  passed over: {more} more")?;
        }
        if self.share_waived {
            write!(f, "\n  it has had its part of the last hour, and there is nobody else")?;
        }
        if self.short_of_active > 0 {
            write!(f, "\n  the task type is short of {} active providers", self.short_of_active)?;
        }
        Ok(())
    }
}
