//! The numbers of routing.

use crate::health;

/// What is looked at inside a tier, in hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Trust.
    pub trust: u32,
    /// What it costs.
    pub cost: u32,
    /// How long it takes.
    pub latency: u32,
    /// How much it has to do already.
    pub load: u32,
    /// How little is known of it.
    pub exploration: u32,
}

/// Where the tiers begin, and how often each is drawn, in hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiers {
    /// From this trust on: proven.
    pub primary_bp: u32,
    /// From this trust on: diverse.
    pub secondary_bp: u32,
    /// From this trust on: emerging. Whoever has less is asked only if there is nobody else.
    pub tertiary_bp: u32,
    /// How often the first is drawn.
    pub primary_pct: u32,
    /// How often the second is.
    pub secondary_pct: u32,
    /// How often the third is.
    pub tertiary_pct: u32,
}

/// How the policy `thompson` believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thompson {
    /// So many outcomes, in thousandths, the mean of all others is worth for somebody of whom nothing is known.
    pub prior_milli: u32,
    /// What an outcome of one's own weighs, in hundredths. More than 100 explores less: the horizon is finite.
    pub sharpness_pct: u32,
    /// After so long a third of an outcome is left.
    pub fade_ms: i64,
    /// How often a provider becomes a worse one from one outcome to the next, in millionths.
    pub change_ppm: u32,
    /// How likely that must be before everything earlier is forgotten, in ten-thousandths.
    pub certain_bp: u32,
    /// What the cost weighs beside success, in ten-thousandths.
    pub cost_bp: u32,
    /// What the time weighs beside success, in ten-thousandths.
    pub latency_bp: u32,
}

/// The numbers of routing. The defaults are the documented ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What is looked at inside a tier.
    pub weights: Weights,
    /// The tiers.
    pub tiers: Tiers,
    /// How often somebody is drawn from all, at first, in ten-thousandths.
    pub epsilon_bp: u32,
    /// After so many outcomes of a task type that is half as often.
    pub epsilon_jobs: u64,
    /// The largest part of a task type's jobs that one provider gets, in hundredths; 100 is no limit.
    pub share_pct: u32,
    /// Within this time.
    pub share_ms: i64,
    /// A task type should have so many active providers.
    pub min_active: usize,
    /// A cost of which half of the score is left.
    pub usual_cost_msat: i64,
    /// A time of which half of the score is left.
    pub usual_latency_ms: i64,
    /// Success makes no more trust than this.
    pub trust_max_bp: u32,
    /// A further success in a row adds so much less than the one before it,
    pub trust_fewer_bp: i64,
    /// and at least so much.
    pub trust_least_bp: i64,
    /// So many successes in a row end the conditions of somebody.
    pub promote_streak: u32,
    /// The first trust of somebody whom nobody evaluated, if the first thing that it did was what was ordered,
    pub met_well_bp: u32,
    /// and if it was not.
    pub met_badly_bp: u32,
    /// An announcement that was not seen for so long is stale.
    pub stale_ms: i64,
    /// The policy `thompson`.
    pub thompson: Thompson,
    /// How partners come and go.
    pub health: health::Options,
}

const HOUR_MS: i64 = 3_600_000;
const MONTH_MS: i64 = 30 * 24 * HOUR_MS;
const FADE_MS: i64 = 45 * 24 * HOUR_MS;

impl Default for Options {
    fn default() -> Options {
        Options {
            weights: Weights { trust: 40, cost: 25, latency: 20, load: 10, exploration: 5 },
            tiers: Tiers {
                primary_bp: 8_000,
                secondary_bp: 5_000,
                tertiary_bp: 3_000,
                primary_pct: 70,
                secondary_pct: 25,
                tertiary_pct: 5,
            },
            epsilon_bp: 1_000,
            epsilon_jobs: 500,
            share_pct: 50,
            share_ms: HOUR_MS,
            min_active: 3,
            usual_cost_msat: 1_000,
            usual_latency_ms: 5_000,
            trust_max_bp: 9_000,
            trust_fewer_bp: 500,
            trust_least_bp: 100,
            promote_streak: 3,
            met_well_bp: 4_500,
            met_badly_bp: 3_000,
            stale_ms: MONTH_MS,
            thompson: Thompson {
                prior_milli: 2_000,
                sharpness_pct: 300,
                fade_ms: FADE_MS,
                change_ppm: 500,
                certain_bp: 9_900,
                cost_bp: 2_500,
                latency_bp: 2_000,
            },
            health: health::Options::default(),
        }
    }
}
