//! How an entry ranks inside its tier. A score depends on its entry alone, so it is kept until the entry changes.

use serde::Serialize;

use super::{Entry, Options, Status};

/// Groups of entries by trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Proven.
    Primary,
    /// Diverse.
    Secondary,
    /// Emerging, or taken under conditions.
    Tertiary,
    /// Asked only if there is nobody else.
    Below,
}

impl Tier {
    /// All of them, the best first.
    pub const ALL: [Tier; 4] = [Tier::Primary, Tier::Secondary, Tier::Tertiary, Tier::Below];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Primary => "primary",
            Tier::Secondary => "secondary",
            Tier::Tertiary => "tertiary",
            Tier::Below => "below",
        }
    }

    /// The tier of that name.
    pub fn named(name: &str) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| tier.name() == name)
    }

    /// How often it is drawn, in hundredths, if all tiers have somebody.
    pub fn weight_pct(self, options: &Options) -> u32 {
        match self {
            Tier::Primary => options.tiers.primary_pct,
            Tier::Secondary => options.tiers.secondary_pct,
            Tier::Tertiary => options.tiers.tertiary_pct,
            Tier::Below => 0,
        }
    }

    /// The tier of an entry; none if it is not hired.
    pub fn of(options: &Options, entry: &Entry) -> Option<Tier> {
        let tiers = &options.tiers;
        match entry.status {
            status if !status.is_hireable() => None,
            _ if entry.trust_bp < tiers.tertiary_bp => Some(Tier::Below),
            Status::Conditional => Some(Tier::Tertiary),
            _ if entry.trust_bp < tiers.secondary_bp => Some(Tier::Tertiary),
            _ if entry.trust_bp < tiers.primary_bp => Some(Tier::Secondary),
            _ => Some(Tier::Primary),
        }
    }
}

/// What a score is made of: each part in ten-thousandths, more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// Trust.
    pub trust_bp: u32,
    /// The less it costs, the more.
    pub cost_bp: u32,
    /// The quicker it is, the more.
    pub latency_bp: u32,
    /// The less it has to do, the more.
    pub load_bp: u32,
    /// The less is known of it, the more.
    pub exploration_bp: u32,
}

impl Parts {
    /// The parts of an entry. What is not known is taken for usual.
    pub fn of(options: &Options, entry: &Entry) -> Parts {
        let usual_cost = options.usual_cost_msat;
        let usual_latency = options.usual_latency_ms;
        Parts {
            trust_bp: entry.trust_bp,
            cost_bp: beside(usual_cost, entry.cost_msat().unwrap_or(usual_cost)),
            latency_bp: beside(usual_latency, entry.latency_ms().unwrap_or(usual_latency)),
            load_bp: beside(1, i64::from(entry.open_jobs)),
            exploration_bp: beside(10, i64::try_from(entry.jobs).unwrap_or(i64::MAX)),
        }
    }

    /// The weighted sum, in millionths.
    pub fn score_micro(&self, options: &Options) -> u32 {
        let weights = &options.weights;
        let parts = [
            (self.trust_bp, weights.trust),
            (self.cost_bp, weights.cost),
            (self.latency_bp, weights.latency),
            (self.load_bp, weights.load),
            (self.exploration_bp, weights.exploration),
        ];
        parts.into_iter().fold(0_u32, |sum, (part_bp, weight)| {
            sum.saturating_add(part_bp.saturating_mul(weight))
        })
    }
}

/// All of nothing, half of what is usual, ever less of ever more.
fn beside(usual: i64, is: i64) -> u32 {
    let (usual, is) = (i128::from(usual.max(1)), i128::from(is.max(0)));
    let part = usual.saturating_mul(10_000).checked_div(usual.saturating_add(is));
    part.and_then(|bp| u32::try_from(bp).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::entry;
    use super::super::{Sample, Status};
    use super::*;

    #[test]
    fn tiers_begin_where_they_are_said_to() {
        let options = Options::default();
        let tier = |trust_bp| Tier::of(&options, &entry(trust_bp)).unwrap();
        assert_eq!(
            (tier(9_000), tier(8_000), tier(7_999)),
            (Tier::Primary, Tier::Primary, Tier::Secondary)
        );
        assert_eq!((tier(5_000), tier(4_999)), (Tier::Secondary, Tier::Tertiary));
        assert_eq!((tier(3_000), tier(2_999)), (Tier::Tertiary, Tier::Below));
        let with = |status| Tier::of(&options, &Entry { status, ..entry(8_500) });
        assert_eq!(with(Status::Conditional), Some(Tier::Tertiary));
        assert_eq!((with(Status::Quarantined), with(Status::Blacklisted)), (None, None));
    }

    #[test]
    fn the_parts_weigh_as_documented() {
        let options = Options::default();
        let plain = entry(8_000);
        let parts = Parts::of(&options, &plain);
        let expected = Parts {
            trust_bp: 8_000,
            cost_bp: 5_000,
            latency_bp: 5_000,
            load_bp: 10_000,
            exploration_bp: 10_000,
        };
        assert_eq!(parts, expected);
        assert_eq!(parts.score_micro(&options), 320_000 + 125_000 + 100_000 + 100_000 + 50_000);
        let mut cheap = plain.clone();
        cheap.sample(Sample { cost_msat: Some(250), latency_ms: Some(15_000) });
        let parts = Parts::of(&options, &cheap);
        assert_eq!((parts.cost_bp, parts.latency_bp), (8_000, 2_500));
        let busy = Entry { open_jobs: 3, jobs: 30, ..plain };
        let parts = Parts::of(&options, &busy);
        assert_eq!((parts.load_bp, parts.exploration_bp), (2_500, 2_500));
        assert_eq!((beside(0, 0), beside(1, i64::MAX), beside(i64::MAX, 0)), (10_000, 0, 10_000));
    }
}
