//! What can happen to an entry, and what it is afterwards.

use std::collections::BTreeSet;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use serde::{Deserialize, Serialize};

use super::entry::{D_MAX_BYTES, Sample};
use super::evidence::ONE_MILLI;
use super::work::is_silence;
use super::{Cause, Entry, Evidence, Options, Status, TaskType};
use crate::error::code;
use crate::evaluation::{Note, Pace};
use crate::health::{self, Health, Signal, Stage};
use crate::judge::Class;
use crate::{Error, Result};

/// The longest key of a change.
const KEY_MAX_BYTES: usize = 400;

/// What happened to the provider of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what", deny_unknown_fields)]
pub enum Mutation {
    /// An evaluation took it. It begins anew: nothing of before is credited but that it was blacklisted.
    Admitted {
        /// The `d` tag of its announcement.
        d: String,
        /// [`Status::Active`] or [`Status::Conditional`].
        status: Status,
        /// The first trust.
        trust_bp: u32,
        /// How quick it is.
        pace: Pace,
        /// What is remarkable.
        notes: BTreeSet<Note>,
    },
    /// It was given a job.
    Assigned,
    /// A job that it was given was taken back, without an outcome.
    Returned,
    /// What it delivered was judged.
    Outcome {
        /// What it was worth.
        class: Class,
        /// How that moves trust, in ten-thousandths, as the verdict says; less for successes in a row.
        step_bp: i64,
        /// What was paid.
        cost_msat: Option<i64>,
        /// From the request to the result.
        latency_ms: Option<i64>,
    },
    /// It is hired, or not, from now on.
    Moved {
        /// What it is now.
        status: Status,
        /// Why.
        cause: Option<Cause>,
        /// Until when it is not asked.
        until_ms: Option<UnixMs>,
    },
    /// Its announcement was seen, and still names this work.
    Verified,
    /// Something was noticed of its health that is no outcome.
    Noticed {
        /// What.
        signal: Signal,
    },
}

impl Mutation {
    /// Its name, as it is written.
    pub fn name(&self) -> &'static str {
        match self {
            Mutation::Admitted { .. } => "admitted",
            Mutation::Assigned => "assigned",
            Mutation::Returned => "returned",
            Mutation::Outcome { .. } => "outcome",
            Mutation::Moved { .. } => "moved",
            Mutation::Verified => "verified",
            Mutation::Noticed { .. } => "noticed",
        }
    }
}

/// Something that shall happen to an entry, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Names it by what it is, such as the request whose outcome it is: it happens once, however often it is tried.
    pub key: String,
    /// Which work.
    pub task: TaskType,
    /// Whose entry.
    pub provider: PublicKey,
    /// What happens.
    pub mutation: Mutation,
}

impl Change {
    pub(super) fn check(&self) -> Result<()> {
        if self.key.is_empty() || self.key.len() > KEY_MAX_BYTES {
            let why = format!("the key of a change has 1 to {KEY_MAX_BYTES} bytes");
            return Err(Error::refused(&code::ROUTE_CHANGE, why));
        }
        Ok(())
    }
}

/// What an entry is after something has happened. Pure; an entry that there is not can only be admitted.
pub fn next(
    options: &Options,
    before: Option<&Entry>,
    mutation: &Mutation,
    now_ms: UnixMs,
) -> Result<Entry> {
    let version = before.map_or(0, |entry| entry.version).saturating_add(1);
    if let Mutation::Admitted { d, status, trust_bp, pace, notes } = mutation {
        if before.is_some_and(Entry::is_shut_out) {
            return Err(refused("it is blacklisted, so it is not evaluated again"));
        }
        if !status.is_hireable() || *trust_bp > options.trust_max_bp || d.len() > D_MAX_BYTES {
            return Err(refused("whoever is admitted is hireable, within the bounds of trust"));
        }
        return Ok(Entry {
            d: d.clone(),
            status: *status,
            cause: None,
            until_ms: None,
            trust_bp: *trust_bp,
            pace: *pace,
            notes: notes.clone(),
            last_verified_ms: now_ms,
            version,
            streak: 0,
            // Jobs that it has not answered yet are still its own.
            open_jobs: before.map_or(0, |entry| entry.open_jobs),
            jobs: before.map_or(0, |entry| entry.jobs),
            days: before.map(|entry| entry.days.clone()).unwrap_or_default(),
            samples: Vec::new(),
            evidence: Evidence::new(now_ms),
            health: Health::engaged(before.map(|one| &one.health), &options.health, now_ms),
        });
    }
    let Some(before) = before else {
        let why = "the matrix has no such entry: an evaluation admits a provider first";
        return Err(Error::refused(&code::ROUTE_UNKNOWN, why));
    };
    let mut entry = Entry { version, ..before.clone() };
    match mutation {
        Mutation::Admitted { .. } => {}
        Mutation::Assigned => entry.open_jobs = entry.open_jobs.saturating_add(1),
        Mutation::Returned => entry.open_jobs = entry.open_jobs.saturating_sub(1),
        Mutation::Outcome { class, step_bp, cost_msat, latency_ms } => {
            let sample = Sample {
                cost_msat: cost_msat.map(|cost| cost.max(0)),
                latency_ms: latency_ms.map(|latency| latency.max(0)),
            };
            outcome(options, &mut entry, (*class, *step_bp), sample, now_ms);
        }
        Mutation::Moved { status, cause, until_ms } => {
            if entry.is_shut_out() && *status != Status::Blacklisted {
                return Err(refused("whoever is blacklisted stays so"));
            }
            (entry.status, entry.cause, entry.until_ms) = (*status, *cause, *until_ms);
            stand(&options.health, &mut entry, now_ms);
        }
        Mutation::Verified => entry.last_verified_ms = entry.last_verified_ms.max(now_ms),
        Mutation::Noticed { signal } => noticed(&options.health, &mut entry, *signal, now_ms)?,
    }
    Ok(entry)
}

fn refused(why: &str) -> Error {
    Error::refused(&code::ROUTE_CHANGE, why)
}

/// What the health of somebody is whose status was said.
fn stand(options: &health::Options, entry: &mut Entry, now_ms: UnixMs) {
    let health = &mut entry.health;
    let signal = match (entry.status, entry.cause) {
        (Status::Blacklisted, _) => Signal::Forbidden,
        (Status::Quarantined, Some(Cause::Rejected)) => Signal::Rejected,
        (Status::Unresponsive, _) => Signal::Silent,
        (status, _) if status.is_hireable() && health.stage == Stage::Suspended => {
            *health = health.reviewed(options, now_ms);
            return;
        }
        _ => return,
    };
    health.follow(options, signal, now_ms);
}

/// What follows from something that was noticed. What leads nowhere is refused: nobody may write it.
fn noticed(
    options: &health::Options,
    entry: &mut Entry,
    signal: Signal,
    now_ms: UnixMs,
) -> Result<()> {
    let is_noticed = matches!(
        signal,
        Signal::Mismatch | Signal::Sustained | Signal::Verified | Signal::Persistent
    );
    let before = entry.health.stage;
    if !is_noticed || !entry.health.follow(options, signal, now_ms) {
        let why = format!("{} leads nowhere from {}", signal.name(), before.name());
        return Err(refused(&why));
    }
    match entry.health.stage {
        Stage::Suspended => suspend(options, entry),
        Stage::Removed => {
            (entry.status, entry.cause) = (Status::Archived, Some(Cause::Degraded));
            entry.until_ms = None;
        }
        Stage::Well | Stage::Warned | Stage::Reduced => {}
    }
    Ok(())
}

/// Takes the work of somebody away who was just suspended.
fn suspend(options: &health::Options, entry: &mut Entry) {
    if entry.status.is_hireable() {
        (entry.status, entry.cause) = (Status::SuspectedDegraded, Some(Cause::Degraded));
        entry.until_ms = Some(entry.health.until_ms(options));
    }
}

/// Whole trust, in ten-thousandths.
const WHOLE_BP: i64 = 10_000;

fn outcome(
    options: &Options,
    entry: &mut Entry,
    (class, step_bp): (Class, i64),
    sample: Sample,
    now_ms: UnixMs,
) {
    entry.open_jobs = entry.open_jobs.saturating_sub(1);
    entry.jobs = entry.jobs.saturating_add(1);
    entry.count(class == Class::Success, now_ms);
    entry.sample(sample);
    let good_milli = match class {
        Class::Success => ONE_MILLI,
        Class::Partial => ONE_MILLI.div_euclid(2),
        Class::Failure | Class::Error | Class::SecurityViolation => 0,
    };
    entry.evidence.push(good_milli, &options.thompson, now_ms);
    let step_said_bp = step_bp.clamp(WHOLE_BP.saturating_neg(), WHOLE_BP);
    let step_bp = step_said_bp;
    let step_bp = match class {
        Class::Success => {
            let fewer = options.trust_fewer_bp.saturating_mul(i64::from(entry.streak));
            step_bp.saturating_sub(fewer).max(options.trust_least_bp)
        }
        Class::Partial => step_bp.max(0),
        Class::Failure | Class::Error => step_bp.min(0),
        Class::SecurityViolation => WHOLE_BP.saturating_neg(),
    };
    entry.trust_bp = moved(options, entry.trust_bp, step_bp);
    entry.streak = if class == Class::Success { entry.streak.saturating_add(1) } else { 0 };
    if class == Class::SecurityViolation {
        (entry.status, entry.cause) = (Status::Blacklisted, Some(Cause::Forbidden));
        entry.until_ms = None;
        entry.health.follow(&options.health, Signal::Forbidden, now_ms);
    } else if entry.status == Status::Conditional && entry.streak >= options.promote_streak {
        entry.status = Status::Active;
    }
    if options.health.is_on && entry.status.is_hireable() {
        let is_timeout = is_silence(class, step_said_bp, sample.latency_ms);
        let latency_ms = sample.latency_ms;
        let result = health::Outcome { class, is_timeout, latency_ms };
        if entry.health.take(&options.health, result, now_ms) {
            suspend(&options.health, entry);
        }
    }
}

/// Trust after a step: never below nothing, and by success never beyond the ceiling.
fn moved(options: &Options, trust_bp: u32, step_bp: i64) -> u32 {
    let before = i64::from(trust_bp);
    let after = before.saturating_add(step_bp).max(0);
    let after =
        if step_bp > 0 { after.min(i64::from(options.trust_max_bp).max(before)) } else { after };
    u32::try_from(after).unwrap_or(trust_bp)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::entry::tests::entry;
    use super::*;

    fn result(class: Class, step_bp: i64) -> Mutation {
        Mutation::Outcome { class, step_bp, cost_msat: None, latency_ms: None }
    }

    fn after(entry: &Entry, mutation: &Mutation) -> Entry {
        next(&Options::default(), Some(entry), mutation, 1_000).unwrap()
    }

    #[test]
    fn success_diminishes_and_never_ends() {
        let mut one = entry(6_000);
        let mut seen = Vec::new();
        for _ in 0..12 {
            one = after(&one, &result(Class::Success, 1_500));
            seen.push(one.trust_bp);
        }
        // +0.15, +0.10, +0.05, and then 0.01 each, up to the ceiling.
        assert_eq!(seen[..6], [7_500, 8_500, 9_000, 9_000, 9_000, 9_000]);
        let mut two = entry(1_000);
        for _ in 0..5 {
            two = after(&two, &result(Class::Success, 1_000));
        }
        assert_eq!(two.trust_bp, 1_000 + 1_000 + 500 + 100 + 100 + 100);
        // A failure ends the row: the next success counts whole.
        let two =
            after(&after(&two, &result(Class::Failure, -1_500)), &result(Class::Success, 1_000));
        assert_eq!((two.trust_bp, two.streak), (2_800 - 1_500 + 1_000, 1));
    }

    #[test]
    fn failures_go_down_to_nothing_and_partial_goes_up() {
        let one = after(&entry(1_000), &result(Class::Error, -2_000));
        assert_eq!(one.trust_bp, 0);
        let one = after(&entry(4_000), &result(Class::Partial, 800));
        assert_eq!((one.trust_bp, one.streak), (4_800, 0));
        // A verdict that contradicts its class moves nothing the wrong way.
        assert_eq!(after(&entry(4_000), &result(Class::Failure, 900)).trust_bp, 4_000);
        assert_eq!(after(&entry(4_000), &result(Class::Partial, -900)).trust_bp, 4_000);
        assert_eq!(after(&entry(4_000), &result(Class::Failure, i64::MIN)).trust_bp, 0);
    }

    #[test]
    fn a_violation_is_for_ever() {
        let bad = after(&entry(9_000), &result(Class::SecurityViolation, 0));
        assert_eq!((bad.status, bad.cause), (Status::Blacklisted, Some(Cause::Forbidden)));
        assert_eq!(bad.trust_bp, 0);
        let options = Options::default();
        let back = Mutation::Moved { status: Status::Active, cause: None, until_ms: None };
        assert_eq!(next(&options, Some(&bad), &back, 1).unwrap_err().code(), &code::ROUTE_CHANGE);
        let again = admitted(Status::Active, 6_000);
        assert_eq!(next(&options, Some(&bad), &again, 1).unwrap_err().code(), &code::ROUTE_CHANGE);
        // Late outcomes do not bring it back either.
        assert_eq!(after(&bad, &result(Class::Success, 1_500)).status, Status::Blacklisted);
    }

    fn admitted(status: Status, trust_bp: u32) -> Mutation {
        let notes = BTreeSet::new();
        Mutation::Admitted { d: "d".to_owned(), status, trust_bp, pace: Pace::Fast, notes }
    }

    #[test]
    fn an_evaluation_begins_anew() {
        let options = Options::default();
        let first = next(&options, None, &admitted(Status::Conditional, 4_500), 5).unwrap();
        assert_eq!((first.version, first.trust_bp, first.last_verified_ms), (1, 4_500, 5));
        assert_eq!(
            next(&options, None, &Mutation::Assigned, 5).unwrap_err().code(),
            &code::ROUTE_UNKNOWN
        );
        for wrong in [admitted(Status::Quarantined, 6_000), admitted(Status::Active, 9_001)] {
            assert_eq!(next(&options, None, &wrong, 5).unwrap_err().code(), &code::ROUTE_CHANGE);
        }
        let mut used = after(&first, &Mutation::Assigned);
        used = after(&used, &Mutation::Assigned);
        used = after(&used, &result(Class::Success, 1_500));
        let again = after(&used, &admitted(Status::Active, 6_000));
        assert_eq!((again.trust_bp, again.open_jobs, again.jobs), (6_000, 1, 1));
        assert_eq!((again.version, again.evidence.good_milli), (5, 0));
    }

    #[test]
    fn conditions_end_after_three_successes_in_a_row() {
        let mut one = Entry { status: Status::Conditional, ..entry(4_500) };
        for (class, status) in [
            (Class::Success, Status::Conditional),
            (Class::Success, Status::Conditional),
            (Class::Failure, Status::Conditional),
            (Class::Success, Status::Conditional),
            (Class::Success, Status::Conditional),
            (Class::Success, Status::Active),
        ] {
            let step = if class == Class::Success { 1_000 } else { -1_000 };
            one = after(&one, &result(class, step));
            assert_eq!(one.status, status);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn trust_stays_within_its_bounds(
            start in 0u32..=9_000,
            steps in prop::collection::vec((0usize..4, any::<i64>()), 0..60),
        ) {
            let classes = [Class::Success, Class::Partial, Class::Failure, Class::Error];
            let mut one = entry(start);
            for (class, step) in steps {
                let before = one.trust_bp;
                let step = if step % 2 == 0 { step } else { step % 2_000 };
                one = after(&one, &result(classes[class], step));
                prop_assert!(one.trust_bp <= 9_000);
                match classes[class] {
                    Class::Success | Class::Partial => prop_assert!(one.trust_bp >= before),
                    _ => prop_assert!(one.trust_bp <= before),
                }
            }
        }
    }
}
