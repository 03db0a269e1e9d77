//! What a benchmark shows of a provider: a score of four dimensions, a standing, annotations, and what several attempts
//! come to.
//!
//! Everything is decided over whole numbers: parts are in ten-thousandths (`bp`), shares of a baseline in hundredths
//! (`pct`). The defaults of [`Options`] are the documented numbers.
//!
//! ```
//! use guild_market::evaluation::{Baseline, Observed, Options, Standing, Tests, evaluate};
//! let options = Options::default();
//! // Of work that is not code only the schema's own check is known: it decides alone.
//! let passed = Observed { tests: Some(Tests { passed: 1, total: 1 }), ..Observed::default() };
//! assert_eq!(evaluate(&options, &Baseline::default(), &passed).standing, Standing::Active);
//! // What was not looked at has not passed.
//! let nothing = evaluate(&options, &Baseline::default(), &Observed::default());
//! assert_eq!((nothing.standing, nothing.score_bp), (Standing::Rejected, 0));
//! ```

mod attempts;
mod baseline;
mod score;

pub use attempts::{Advice, Attempt, advise};
pub use baseline::Baseline;
pub(crate) use baseline::percentile;
pub use score::{
    Dimension, Evaluation, Note, Observed, Pace, Part, Resources, Standing, Tests, evaluate,
};

/// 30 days.
const REJECTED_MS: i64 = 30 * 24 * 3_600_000;

/// What the dimensions weigh, in hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Whether it does what it must.
    pub correctness: u32,
    /// How long it takes beside what others take.
    pub performance: u32,
    /// Whether it keeps to its limits.
    pub resources: u32,
    /// How well it is made.
    pub quality: u32,
}

/// The numbers of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What the dimensions weigh.
    pub weights: Weights,
    /// From this score on a provider is active.
    pub active_bp: u32,
    /// From this score on it is taken under conditions.
    pub conditional_bp: u32,
    /// Whoever needs this much of the baseline gets nothing for its performance, and is slow.
    pub slow_pct: u64,
    /// Below this share of the median it is fast.
    pub fast_pct: u64,
    /// Below this share of the 95th percentile it is reliable.
    pub reliable_pct: u64,
    /// Below this share of the memory that it may use it is efficient.
    pub efficient_pct: u64,
    /// Beyond this coverage it is thorough.
    pub thorough_bp: u64,
    /// What its quality must be above, in thousandths of a point; ten points are the best.
    pub quality_milli: u64,
    /// From this score on it may be exceptional,
    pub exceptional_bp: u32,
    /// if it also needs less than this share of the median.
    pub exceptional_pct: u64,
    /// The first trust in somebody exceptional.
    pub exceptional_trust_bp: u32,
    /// The first trust in whoever is active.
    pub active_trust_bp: u32,
    /// The first trust in whoever is taken under conditions.
    pub conditional_trust_bp: u32,
    /// How many attempts an extended evaluation has.
    pub extended_attempts: usize,
    /// For how long nobody asks again who has failed every attempt.
    pub rejected_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            weights: Weights { correctness: 50, performance: 25, resources: 15, quality: 10 },
            active_bp: 8_000,
            conditional_bp: 6_000,
            slow_pct: 150,
            fast_pct: 75,
            reliable_pct: 100,
            efficient_pct: 80,
            thorough_bp: 9_000,
            quality_milli: 7_000,
            exceptional_bp: 9_500,
            exceptional_pct: 50,
            exceptional_trust_bp: 7_500,
            active_trust_bp: 6_000,
            conditional_trust_bp: 4_500,
            extended_attempts: 5,
            rejected_ms: REJECTED_MS,
        }
    }
}
