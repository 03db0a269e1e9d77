//! How the time of a call grows with its size.

use super::{Fate, Run, compare};
use crate::Result;
use crate::judge::suite::{Case, Ratio};
use crate::judge::verdict::Status;

/// A ratio that is too large is measured again, up to so many times as often: noise only ever adds.
const PATIENCE: u32 = 3;
/// Less CPU time than this is noise.
const FLOOR_US: u64 = 5_000;

/// The least of what each kind of process took so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Least {
    /// One that is only loaded.
    idle_us: u64,
    small_us: u64,
    large_us: u64,
    /// How long the answer to the large call took.
    wall_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Idle,
    Small,
    Large,
}

impl Least {
    fn new() -> Least {
        Least { idle_us: u64::MAX, small_us: u64::MAX, large_us: u64::MAX, wall_us: u64::MAX }
    }

    fn take(&mut self, side: Side, cpu_us: u64, wall_us: u64) {
        let least = match side {
            Side::Idle => &mut self.idle_us,
            Side::Small => &mut self.small_us,
            Side::Large => &mut self.large_us,
        };
        *least = cpu_us.min(*least);
        if side == Side::Large {
            self.wall_us = wall_us.min(self.wall_us);
        }
    }

    /// What the calls alone took.
    fn net(&self) -> (u64, u64) {
        let net = |cpu_us: u64| cpu_us.saturating_sub(self.idle_us).max(FLOOR_US);
        (net(self.small_us), net(self.large_us))
    }

    /// Whether the large call took at most so many percent of the small one.
    fn is_within(&self, percent: u64) -> bool {
        let (small, large) = self.net();
        let most = u128::from(small).saturating_mul(u128::from(percent));
        u128::from(large).saturating_mul(100) <= most
    }
}

impl Run<'_> {
    /// Calls with two sizes, each time in a new process: nothing that was computed before helps.
    ///
    /// What is compared is CPU time of the whole tree, as the kernel counts it, less that of a process that is only
    /// loaded: other work on this host changes it little.
    pub(super) fn ratio(&mut self, at: usize, ratio: &Ratio) -> Result<Fate> {
        let mut least = Least::new();
        for turn in 0..ratio.repetitions.saturating_mul(PATIENCE) {
            if turn >= ratio.repetitions && least.is_within(ratio.max_ratio_percent) {
                break;
            }
            for side in [Side::Idle, Side::Small, Side::Large] {
                let case = match side {
                    Side::Idle => None,
                    Side::Small => Some(&ratio.small),
                    Side::Large => Some(&ratio.large),
                };
                match self.timed(at, case)? {
                    Ok((cpu_us, wall_us)) => least.take(side, cpu_us, wall_us),
                    Err(fate) => return Ok(fate),
                }
            }
        }
        let fate = match (least.is_within(ratio.max_ratio_percent), least.net()) {
            (true, _) => Fate::passed(least.wall_us),
            (false, (small, large)) => {
                let most = ratio.max_ratio_percent;
                Fate::failed(format!("{small} µs of CPU became {large}, more than {most} % of it"))
            }
        };
        Ok(Fate { wall_us: Some(least.wall_us), ..fate })
    }

    /// One process that answers one call, or is only loaded: its CPU time, and how long the answer took.
    fn timed(&mut self, at: usize, case: Option<&Case>) -> Result<Result<(u64, u64), Fate>> {
        let before_us = self.usage.cpu_us;
        let mut subject = None;
        let answered = match case {
            None => self.start()?.map(|started| {
                subject = Some(started);
                None
            }),
            Some(case) => self.answer(case, &mut subject)?.map(|answered| Some((case, answered))),
        };
        let answered = match answered {
            Ok(answered) => answered,
            Err(why) => return Ok(Err(Fate::error(why))),
        };
        self.part(subject, Some(at))?;
        if self.over {
            // What it did after its answer has been written down already.
            let why = self.results.get(at).and_then(|result| result.why.clone());
            return Ok(Err(Fate::error(why.unwrap_or_default())));
        }
        let cpu_us = self.usage.cpu_us.saturating_sub(before_us);
        Ok(match answered {
            None => Ok((cpu_us, 0)),
            Some((case, answered)) => match compare(case, &answered) {
                fate if fate.status == Status::Passed => Ok((cpu_us, answered.wall_us)),
                fate => Err(fate),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least(idle_us: u64, small_us: u64, large_us: u64) -> Least {
        Least { idle_us, small_us, large_us, wall_us: 0 }
    }

    #[test]
    fn ratios_are_whole_numbers_without_the_start() {
        assert!(least(10_000, 110_000, 270_000).is_within(260));
        assert!(!least(10_000, 110_000, 270_001).is_within(260));
        assert!(!least(10_000, 20_000, 60_000).is_within(300), "50 of 10, not 60 of 20");
        assert!(least(0, u64::MAX, u64::MAX).is_within(100), "nothing overflows");
        assert!(
            least(10_000, 10_001, 14_999).is_within(100),
            "what is less than the noise is equal"
        );
        assert!(!least(10_000, 1, 26_000).is_within(300));
    }

    #[test]
    fn only_the_least_counts() {
        let mut all = Least::new();
        for (side, cpu_us) in
            [(Side::Idle, 9), (Side::Small, 7), (Side::Small, 8), (Side::Large, 5)]
        {
            all.take(side, cpu_us, 3);
        }
        assert_eq!(all, Least { idle_us: 9, small_us: 7, large_us: 5, wall_us: 3 });
    }
}
