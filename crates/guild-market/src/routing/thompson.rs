//! The policy `thompson`: how well somebody will do is drawn from what is known of it, for everybody; the best is
//! taken. So somebody is tried as often as it may be the best.
//!
//! - Whoever is new is believed to be like the others, weakly; and like [others say](super::Hearsay), as long as it has
//!   done little here.
//! - A job that has not ended counts as a failure: whoever never answers does not get ever more.
//! - Outcomes fade, and who may have become worse is drawn for as such: see its [evidence](super::Evidence).
//! - What it costs and how long it takes are taken off.

use guild_protocol::env::UnixMs;

use super::choice::{How, Look};
use super::{Draws, Entry, Hearsay, Options, Parts};

/// What is believed of whoever is new.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prior {
    good: f64,
    bad: f64,
}

impl Prior {
    pub(super) fn of(options: &Options, mean: f64) -> Prior {
        let strength = f64::from(options.thompson.prior_milli) / 1_000.0;
        Prior { good: strength * mean, bad: strength * (1.0 - mean) }
    }

    /// The same with what others say of this one.
    fn and(self, said: Option<&Hearsay>, entry: &Entry) -> Prior {
        let Some(said) = said else { return self };
        let (good, bad) = said.beside(entry).counts();
        Prior { good: self.good + good, bad: self.bad + bad }
    }
}

/// The place of the one who is taken, and how it came to that.
pub(super) fn pick(look: &mut Look<'_>, draws: &mut Draws) -> Option<(usize, How)> {
    let options = look.matrix.options();
    let prior = Prior::of(options, look.task.mean());
    let (mut best, mut highest, mut of) = (None, f64::NEG_INFINITY, 0_usize);
    let everybody = look.task.entries().iter().zip(look.task.parts()).enumerate();
    for (place, ((provider, entry), parts)) in everybody {
        if !entry.status.is_hireable() || !look.may(provider, entry) {
            continue;
        }
        of = of.saturating_add(1);
        let prior = prior.and(look.said.get(provider), entry);
        let success = success(options, prior, entry, look.wanted.now_ms, draws);
        let worth = success - expense(options, parts);
        if worth > highest {
            (highest, best) = (worth, Some((place, success)));
        }
    }
    let (place, success) = best?;
    let (provider, entry) = look.at(place)?;
    let prior = prior.and(look.said.get(provider), entry);
    let known_bp = bp(mean(prior, entry));
    Some((place, How::Drawn { success_bp: bp(success), known_bp, of }))
}

/// How often somebody will do well, drawn.
pub(super) fn success(
    options: &Options,
    prior: Prior,
    entry: &Entry,
    now_ms: UnixMs,
    draws: &mut Draws,
) -> f64 {
    let (good, bad) = entry.evidence.counts(&options.thompson, now_ms, draws.unit());
    let weight = f64::from(options.thompson.sharpness_pct) / 100.0;
    let bad = bad + f64::from(entry.open_jobs);
    draws.beta(prior.good + good * weight, prior.bad + bad * weight)
}

/// How often somebody did well.
fn mean(prior: Prior, entry: &Entry) -> f64 {
    let good = prior.good + entry.evidence.good_milli as f64 / 1_000.0;
    let bad = prior.bad + entry.evidence.bad_milli as f64 / 1_000.0;
    if good + bad > 0.0 { good / (good + bad) } else { 0.5 }
}

/// What cost and time take off: of what is usual, half of their weight.
fn expense(options: &Options, parts: &Parts) -> f64 {
    let part = |spared_bp: u32, weight_bp: u32| {
        (1.0 - f64::from(spared_bp) / 10_000.0) * f64::from(weight_bp) / 10_000.0
    };
    part(parts.cost_bp, options.thompson.cost_bp)
        + part(parts.latency_bp, options.thompson.latency_bp)
}

fn bp(part: f64) -> u32 {
    (part.clamp(0.0, 1.0) * 10_000.0).round() as u32
}
