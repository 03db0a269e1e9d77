//! What a year came to, and what it may come to at worst.

use super::people::{Answer, Nature};

/// What a year came to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) jobs: u64,
    pub(super) refused: u64,
    pub(super) nobody: u64,
    pub(super) decided: u64,
    pub(super) right: u64,
    /// How many would have been right if the best had done each, in ten-thousandths of a job.
    pub(super) oracle_bp: u64,
    pub(super) tests: u64,
    pub(super) suspended: u64,
    pub(super) removed: u64,
    pub(super) returned: u64,
    /// How often somebody who is shut out was to be taken back all the same, and was refused.
    pub(super) kept_out: u64,
    pub(super) paid_msat: i64,
    /// What was paid for answers that were not right, to those who mean it,
    pub(super) stolen_msat: i64,
    /// and what the ring had of that.
    pub(super) ring_msat: i64,
    /// Who got how much work in the last quarter: all, the honest, the ring, and those who turn.
    pub(super) late: u64,
    pub(super) late_honest: u64,
    pub(super) late_ring: u64,
    pub(super) late_turncoat: u64,
}

impl Sum {
    /// Counts who works at the end of the year, when all has been learnt that can be.
    pub(super) fn works_late(&mut self, nature: Nature) {
        self.late += 1;
        match nature {
            Nature::Honest => self.late_honest += 1,
            Nature::Ring => self.late_ring += 1,
            Nature::Turncoat => self.late_turncoat += 1,
            _ => {}
        }
    }

    /// Counts what somebody is paid for what it said.
    pub(super) fn is_paid(&mut self, nature: Nature, answer: Answer, msat: i64) {
        let is_stolen = nature.is_hostile() && answer != Answer::Right;
        self.paid_msat += msat;
        self.stolen_msat += if is_stolen { msat } else { 0 };
        self.ring_msat += if is_stolen && nature == Nature::Ring { msat } else { 0 };
    }

    /// Whether those who are after what is not theirs get less than whoever hires without looking would give them. Of
    /// the money that is what lies are paid: a quarter of the work, which nobody can check by itself, times how often
    /// eight of fifty (3 in 10), three (1 in 10) and three (1 in 2) lie, 2.1 %. Of the work at the end of the year it
    /// is how many keys they have: the ring 16 %, those who turn 6 %, of which a third is let through. The honest have
    /// half of the keys, and 71 % of those that are after nothing: about the middle of both.
    pub(super) fn is_within_bounds(&self) -> bool {
        let late = |part: u64, pct: u64| part * 100 < self.late * pct;
        self.stolen_msat * 1_000 < self.paid_msat * 21
            && late(self.late_ring, 16)
            && late(self.late_turncoat, 2)
            && !late(self.late_honest, 60)
    }

    /// In words.
    pub(super) fn words(&self) -> String {
        let posted = self.jobs - self.refused - self.nobody;
        let share = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
        let oracle = self.oracle_bp as f64 / 10_000.0;
        format!(
            "{} jobs, {} beyond the envelopes, {} without anybody, {} tests; right {:.1} % of what was posted, an \
             oracle {:.1} %; {} suspensions, {} removals, {} back; {:.2} % of the money for lies, {:.2} % of the \
             ring; at the end {:.1} % of the work to the honest, {:.1} % to the ring, {:.1} % to those who turn",
            self.jobs,
            self.refused,
            self.nobody,
            self.tests,
            share(self.right, posted),
            100.0 * oracle / posted.max(1) as f64,
            self.suspended,
            self.removed,
            self.returned,
            100.0 * self.stolen_msat as f64 / self.paid_msat.max(1) as f64,
            100.0 * self.ring_msat as f64 / self.paid_msat.max(1) as f64,
            share(self.late_honest, self.late),
            share(self.late_ring, self.late),
            share(self.late_turncoat, self.late),
        )
    }
}
