//! What is offered for some work, and why so much.
//!
//! `bid = base × urgency × quality × market`, and a buffer on top; never more than the ceiling.
//!
//! | factor | is |
//! |---|---|
//! | base | the configured price until [`OUTCOMES_MIN`] paid results are known, then the median of what was paid |
//! | urgency | 1.0, 1.5 or 2.0 |
//! | quality | 1 + (the trust that is wanted − 0.5), if that is above 0.5 |
//! | market | 1 + 0.5 × (0.8 − the part of bids that were taken), 0.5 to 2; 1 until [`OUTCOMES_MIN`] are known |
//!
//! Everything is whole: millisatoshi, and factors in ten-thousandths. The product is made first and rounded once, half
//! up; so is the buffer. The median of an even number is between the two in the middle, rounded down.

use std::collections::BTreeMap;

use guild_protocol::amount::Msat;
use guild_store::{Rx, args};
use serde::Serialize;

use crate::Result;

/// So many outcomes must be known before they count.
pub const OUTCOMES_MIN: usize = 10;
/// So many of the latest orders are looked at.
const OUTCOMES_MAX: i64 = 100;
/// Ten thousand parts are the whole.
const WHOLE_BP: i64 = 10_000;
/// Where the share of bids that are taken changes nothing.
const TAKEN_USUAL_BP: i64 = 8_000;
const MARKET_LEAST_BP: i64 = 5_000;
const MARKET_MOST_BP: i64 = 20_000;

/// How soon it is needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Urgency {
    /// As usual.
    #[default]
    Normal,
    /// Sooner than usual.
    Urgent,
    /// Now.
    Critical,
}

impl Urgency {
    /// All of them.
    pub const ALL: [Urgency; 3] = [Urgency::Normal, Urgency::Urgent, Urgency::Critical];

    /// The word in commands and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Urgency::Normal => "normal",
            Urgency::Urgent => "urgent",
            Urgency::Critical => "critical",
        }
    }

    /// The urgency of this word.
    pub fn parse(word: &str) -> Option<Urgency> {
        Urgency::ALL.into_iter().find(|urgency| urgency.as_str() == word)
    }

    fn factor_bp(self) -> i64 {
        match self {
            Urgency::Normal => 10_000,
            Urgency::Urgent => 15_000,
            Urgency::Critical => 20_000,
        }
    }
}

/// What bids are made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What work costs of which nothing is known, by its schema.
    pub prices: BTreeMap<String, Msat>,
    /// The same for every other schema.
    pub price: Msat,
    /// What is added on top, in ten-thousandths.
    pub buffer_bp: i64,
    /// The most that is bid.
    pub ceiling: Msat,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            prices: BTreeMap::new(),
            price: Msat(2_000),
            buffer_bp: 0,
            ceiling: Msat(1_000_000),
        }
    }
}

/// What is wanted of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How soon.
    pub urgency: Urgency,
    /// How far whoever does it should be trusted, in ten-thousandths.
    pub target_trust_bp: u32,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted { urgency: Urgency::Normal, target_trust_bp: 5_000 }
    }
}

/// How the latest orders of a kind of work went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// What was paid for results, in millisatoshi.
    pub paid: Vec<i64>,
    /// How many bids were taken: something was delivered.
    pub taken: usize,
    /// How many were not: the provider did not want it, or nobody did it in time.
    pub refused: usize,
}

/// Reads how the latest orders of a kind of work went. What was free, is not decided, or was taken back says nothing.
pub fn history(rx: &mut Rx<'_>, schema_id: &str) -> Result<History> {
    let rows: Vec<(String, Option<i64>)> = rx.all(
        "SELECT state, paid_units FROM market_order
         WHERE schema_id = $1 AND budget_units > 0
           AND state IN ('delivered', 'released', 'withheld', 'expired', 'failed')
         ORDER BY changed_ms DESC, order_id DESC LIMIT $2",
        args![schema_id, OUTCOMES_MAX],
    )?;
    let mut history = History::default();
    for (state, paid) in rows {
        match state.as_str() {
            "expired" | "failed" => history.refused = history.refused.saturating_add(1),
            _ => history.taken = history.taken.saturating_add(1),
        }
        history.paid.extend(paid.filter(|paid| *paid > 0));
    }
    Ok(history)
}

/// Where the base of a bid comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// The price of the settings.
    Configured,
    /// The middle of what was paid.
    Median,
}

/// A bid with every factor of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bid {
    /// For which work.
    pub schema_id: String,
    /// What such work costs.
    pub base_msat: i64,
    /// Where that comes from.
    pub base: Base,
    /// How many paid results are known.
    pub outcomes: usize,
    /// How soon it is needed.
    pub urgency: Urgency,
    /// The factor of that, in ten-thousandths.
    pub urgency_bp: i64,
    /// How far whoever does it should be trusted, in ten-thousandths.
    pub target_trust_bp: u32,
    /// The factor of that.
    pub quality_bp: i64,
    /// How many of the latest bids were taken,
    pub taken: usize,
    /// of so many.
    pub bids: usize,
    /// The factor of that.
    pub market_bp: i64,
    /// The product, in millisatoshi.
    pub product_msat: i64,
    /// What is added on top.
    pub buffer_msat: i64,
    /// The part that is.
    pub buffer_bp: i64,
    /// The most that is bid.
    pub ceiling_msat: i64,
    /// What is bid.
    pub bid_msat: i64,
}

/// The bid for some work.
pub fn bid(schema_id: &str, options: &Options, wanted: Wanted, history: &History) -> Bid {
    let configured = options.prices.get(schema_id).unwrap_or(&options.price).0.max(0);
    let (base, base_msat) = match median(&history.paid) {
        Some(median) => (Base::Median, median),
        None => (Base::Configured, configured),
    };
    let urgency_bp = wanted.urgency.factor_bp();
    let trust_bp = i64::from(wanted.target_trust_bp).clamp(0, WHOLE_BP);
    let quality_bp = trust_bp.max(5_000).saturating_add(5_000);
    let bids = history.taken.saturating_add(history.refused);
    let market_bp = market_bp(history.taken, bids);
    let product_msat = product(base_msat, [urgency_bp, quality_bp, market_bp]);
    let buffer_msat = product(product_msat, [options.buffer_bp.max(0), WHOLE_BP, WHOLE_BP]);
    let ceiling_msat = options.ceiling.0.max(0);
    Bid {
        schema_id: schema_id.to_owned(),
        base_msat,
        base,
        outcomes: history.paid.len(),
        urgency: wanted.urgency,
        urgency_bp,
        target_trust_bp: wanted.target_trust_bp,
        quality_bp,
        taken: history.taken,
        bids,
        market_bp,
        product_msat,
        buffer_msat,
        buffer_bp: options.buffer_bp,
        ceiling_msat,
        bid_msat: product_msat.saturating_add(buffer_msat).min(ceiling_msat),
    }
}

/// The middle of what was paid, once enough is known.
fn median(paid: &[i64]) -> Option<i64> {
    if paid.len() < OUTCOMES_MIN {
        return None;
    }
    let mut sorted = paid.to_vec();
    sorted.sort_unstable();
    let upper = *sorted.get(sorted.len().checked_div(2)?)?;
    let lower = *sorted.get(sorted.len().saturating_sub(1).checked_div(2)?)?;
    Some(lower.saturating_add(upper.saturating_sub(lower).checked_div(2)?))
}

/// More is bid where bids are refused, and less where nearly all are taken.
fn market_bp(taken: usize, bids: usize) -> i64 {
    if bids < OUTCOMES_MIN {
        return WHOLE_BP;
    }
    let (taken, bids) = (i64::try_from(taken).unwrap_or(0), i64::try_from(bids).unwrap_or(1));
    let rate_bp = taken.saturating_mul(WHOLE_BP).checked_div(bids).unwrap_or(TAKEN_USUAL_BP);
    let half = TAKEN_USUAL_BP.saturating_sub(rate_bp).checked_div(2).unwrap_or(0);
    WHOLE_BP.saturating_add(half).clamp(MARKET_LEAST_BP, MARKET_MOST_BP)
}

/// A product with three factors in ten-thousandths, rounded half up. What is too large for 64 bits stays at their end.
fn product(units: i64, factors_bp: [i64; 3]) -> i64 {
    let whole = i128::from(WHOLE_BP).saturating_pow(3);
    let half = whole.checked_div(2).unwrap_or(0);
    let times = |product: i128, factor: i64| product.saturating_mul(i128::from(factor));
    let product = factors_bp.into_iter().fold(i128::from(units), times).saturating_add(half);
    i64::try_from(product.checked_div(whole).unwrap_or(0)).unwrap_or(i64::MAX)
}

/// Ten-thousandths as people read them.
fn factor(bp: i64) -> String {
    let (whole, rest) = (bp.checked_div(WHOLE_BP), bp.checked_rem(WHOLE_BP));
    format!("{}.{:04}", whole.unwrap_or(0), rest.unwrap_or(0))
}

impl Bid {
    /// What is bid.
    pub fn budget(&self) -> Msat {
        Msat(self.bid_msat)
    }

    /// Every factor, a line for each.
    pub fn words(&self) -> String {
        let from = match self.base {
            Base::Configured => {
                format!(
                    "the configured price, {} of {OUTCOMES_MIN} outcomes are known",
                    self.outcomes
                )
            }
            Base::Median => format!("the median of {} outcomes", self.outcomes),
        };
        let market = match self.bids {
            bids if bids < OUTCOMES_MIN => format!("{bids} of {OUTCOMES_MIN} bids are known"),
            bids => format!("{} of the latest {bids} bids were taken", self.taken),
        };
        let trust = i64::from(self.target_trust_bp);
        let mut lines = vec![
            format!("bid: {} msat for {}", self.bid_msat, self.schema_id),
            format!("  base       {:>8} msat  {from}", self.base_msat),
            format!("  × urgency  {:>8}       {}", factor(self.urgency_bp), self.urgency.as_str()),
            format!(
                "  × quality  {:>8}       a trust of {} is wanted",
                factor(self.quality_bp),
                factor(trust)
            ),
            format!("  × market   {:>8}       {market}", factor(self.market_bp)),
            format!("  =          {:>8} msat", self.product_msat),
        ];
        if self.buffer_bp > 0 {
            let part = factor(self.buffer_bp);
            lines.push(format!("  + buffer   {:>8} msat  {part} of it", self.buffer_msat));
        }
        if self.product_msat.saturating_add(self.buffer_msat) > self.ceiling_msat {
            lines.push(format!("  ceiling    {:>8} msat  no more is bid", self.ceiling_msat));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORK: &str = "oa.embedding.v1";

    fn wanted(urgency: Urgency, target_trust_bp: u32) -> Wanted {
        Wanted { urgency, target_trust_bp }
    }

    fn history(paid: &[i64], taken: usize, refused: usize) -> History {
        History { paid: paid.to_vec(), taken, refused }
    }

    #[test]
    fn a_newcomer_bids_the_configured_price() {
        let options = Options::default();
        let plain = bid(WORK, &options, Wanted::default(), &History::default());
        assert_eq!((plain.bid_msat, plain.base), (2_000, Base::Configured));
        let prices = BTreeMap::from([(WORK.to_owned(), Msat(500))]);
        let priced = Options { prices, ..options };
        assert_eq!(bid(WORK, &priced, Wanted::default(), &History::default()).bid_msat, 500);
        let other = bid("oa.other.v1", &priced, Wanted::default(), &History::default());
        assert_eq!(other.bid_msat, 2_000);
    }

    #[test]
    fn every_factor_does_what_the_formula_says() {
        let options = Options::default();
        let of = |urgency, trust, history: &History| {
            bid(WORK, &options, wanted(urgency, trust), history).bid_msat
        };
        let nothing = History::default();
        assert_eq!(of(Urgency::Urgent, 5_000, &nothing), 3_000);
        assert_eq!(of(Urgency::Critical, 5_000, &nothing), 4_000);
        assert_eq!(of(Urgency::Normal, 7_000, &nothing), 2_400);
        assert_eq!(of(Urgency::Normal, 2_000, &nothing), 2_000, "less trust is no discount");
        assert_eq!(of(Urgency::Critical, 10_000, &nothing), 6_000);
        // 9 outcomes are too few, 10 are enough: their median, and how many were taken.
        assert_eq!(of(Urgency::Normal, 5_000, &history(&[100; 9], 9, 0)), 2_000);
        assert_eq!(of(Urgency::Normal, 5_000, &history(&[100; 10], 8, 2)), 100);
        assert_eq!(of(Urgency::Normal, 5_000, &history(&[1_000; 10], 10, 0)), 900);
        assert_eq!(of(Urgency::Normal, 5_000, &history(&[1_000; 10], 10, 30)), 1_275);
        assert_eq!(of(Urgency::Normal, 5_000, &history(&[1_000; 10], 0, 10)), 1_400);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |paid: &[i64]| median(paid);
        assert_eq!(of(&[1, 2, 3]), None);
        assert_eq!(of(&[9, 1, 8, 2, 7, 3, 6, 4, 5, 5, 1_000]), Some(5));
        assert_eq!(of(&[10, 1, 9, 2, 8, 3, 7, 4, 6, 5]), Some(5), "rounded down");
        assert_eq!(of(&[i64::MAX; 10]), Some(i64::MAX));
    }

    #[test]
    fn it_is_rounded_once_buffered_and_capped() {
        let odd = Options { price: Msat(333), ..Options::default() };
        // 333 × 1.5 × 1.2345 = 616.63…
        let told = bid(WORK, &odd, wanted(Urgency::Urgent, 7_345), &History::default());
        assert_eq!(told.bid_msat, 617);
        let buffered = Options { buffer_bp: 1_000, ..odd };
        let told = bid(WORK, &buffered, wanted(Urgency::Urgent, 7_345), &History::default());
        assert_eq!((told.product_msat, told.buffer_msat, told.bid_msat), (617, 62, 679));
        let capped = Options { ceiling: Msat(650), ..buffered };
        let told = bid(WORK, &capped, wanted(Urgency::Urgent, 7_345), &History::default());
        assert_eq!(told.bid_msat, 650);
        assert_eq!(
            told.words(),
            "bid: 650 msat for oa.embedding.v1
  base            333 msat  the configured price, 0 of 10 outcomes are known
  × urgency    1.5000       urgent
  × quality    1.2345       a trust of 0.7345 is wanted
  × market     1.0000       0 of 10 bids are known
  =               617 msat
  + buffer         62 msat  0.1000 of it
  ceiling         650 msat  no more is bid"
        );
    }

    proptest! {
        #[test]
        fn more_is_never_less_and_nothing_passes_the_ceiling(
            price in 0i64..=i64::MAX, ceiling in 0i64..=i64::MAX, buffer_bp in 0i64..=10_000,
            trust in 0u32..=20_000, taken in 0usize..200, refused in 0usize..200,
        ) {
            let options = Options { price: Msat(price), ceiling: Msat(ceiling), buffer_bp, ..Options::default() };
            let history = history(&[], taken, refused);
            let bids = Urgency::ALL.map(|urgency| bid(WORK, &options, wanted(urgency, trust), &history));
            for told in &bids {
                prop_assert!((0..=ceiling).contains(&told.bid_msat));
                prop_assert!((5_000..=20_000).contains(&told.market_bp));
                prop_assert!((10_000..=15_000).contains(&told.quality_bp));
                prop_assert!(!told.words().is_empty());
            }
            prop_assert!(bids[0].bid_msat <= bids[1].bid_msat && bids[1].bid_msat <= bids[2].bid_msat);
            let worse = History { refused: refused + 1, ..history };
            let after = bid(WORK, &options, wanted(Urgency::Normal, trust), &worse);
            if taken + refused >= OUTCOMES_MIN {
                prop_assert!(after.bid_msat >= bids[0].bid_msat);
            }
        }
    }
}
