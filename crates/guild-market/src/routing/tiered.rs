//! The policy `tiered`: a tier is drawn, and its best is taken; now and then somebody is drawn from all.
//!
//! Tiers are kept sorted by score, so a choice looks at its winner and at those few who are better and may not be taken
//! this time, however many there are.

use super::choice::{How, Look};
use super::{Draws, Options, Tier};

/// So often a place is drawn before all are looked at in turn.
const TRIES: u32 = 32;

/// The place of the one who is taken, and how it came to that.
pub(super) fn pick(look: &mut Look<'_>, draws: &mut Draws) -> Option<(usize, How)> {
    let options = look.matrix.options();
    let epsilon_bp = epsilon_bp(options, look.task.outcomes);
    if draws.below(10_000) < u64::from(epsilon_bp)
        && let Some(place) = explore(look, draws)
    {
        return Some((place, How::Explored { epsilon_bp }));
    }
    let weight = |tier: &Tier| match look.task.pool(*tier).is_empty() {
        true => 0,
        false => tier.weight_pct(options),
    };
    let of_pct = Tier::ALL.iter().map(weight).fold(0_u32, u32::saturating_add);
    let mut drawn = draws.below(u64::from(of_pct));
    let mut first = None;
    for tier in Tier::ALL {
        let weight_pct = weight(&tier);
        if drawn < u64::from(weight_pct) {
            first = Some((tier, weight_pct));
            break;
        }
        drawn = drawn.saturating_sub(u64::from(weight_pct));
    }
    if let Some((tier, weight_pct)) = first
        && let Some(place) = best(look, tier)
    {
        return Some((place, How::Tier { tier, weight_pct, of_pct }));
    }
    let mut others =
        Tier::ALL.into_iter().filter(|tier| first.is_none_or(|(drawn, _)| drawn != *tier));
    others.find_map(|tier| Some((best(look, tier)?, How::Instead { tier })))
}

/// How often somebody is drawn from all: ever less with experience.
pub(super) fn epsilon_bp(options: &Options, outcomes: u64) -> u32 {
    let jobs = options.epsilon_jobs.max(1);
    let epsilon = u64::from(options.epsilon_bp).saturating_mul(jobs);
    let epsilon = epsilon.checked_div(jobs.saturating_add(outcomes)).unwrap_or(0);
    u32::try_from(epsilon).unwrap_or(0)
}

/// The best of a tier who may be taken.
fn best(look: &mut Look<'_>, tier: Tier) -> Option<usize> {
    let pool = look.task.pool(tier);
    for (_, place) in pool {
        let (provider, entry) = look.at(*place)?;
        if look.may(provider, entry) {
            return Some(*place);
        }
    }
    None
}

/// Anybody who is hired and may be taken.
fn explore(look: &Look<'_>, draws: &mut Draws) -> Option<usize> {
    let count = look.task.entries().len();
    let end = u64::try_from(count).unwrap_or(u64::MAX);
    let may = |place: usize| {
        let (provider, entry) = look.at(place)?;
        let free = entry.status.is_hireable() && look.against(provider, entry).is_none();
        free.then_some(place)
    };
    let mut drawn = 0;
    for _ in 0..TRIES {
        drawn = usize::try_from(draws.below(end)).unwrap_or(0);
        if let Some(place) = may(drawn) {
            return Some(place);
        }
    }
    // Few are hired: the next one from here.
    (drawn..count).chain(0..drawn).find_map(may)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exploration_gets_rarer_with_experience() {
        let options = Options::default();
        let after = |outcomes| epsilon_bp(&options, outcomes);
        assert_eq!((after(0), after(500), after(2_000)), (1_000, 500, 200));
        assert_eq!(after(u64::MAX), 0);
        let never = Options { epsilon_bp: 0, ..options };
        assert_eq!(epsilon_bp(&never, 0), 0);
    }
}
