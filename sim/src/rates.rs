//! How often things go wrong.

use crate::fault::{Dice, Kind};

/// One in so many, for each class of faults; zero, the default, is never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// A crash at a point of the store or around a delivery.
    pub crash: u64,
    /// A crash between two steps of any task.
    pub step_crash: u64,
    /// A pause of a whole process.
    pub pause: u64,
    /// The longest such pause.
    pub pause_max_ms: u64,
    /// For how long a process is down after a crash, at most.
    pub down_max_ms: u64,
    /// A statement that fails.
    pub statement: u64,
    /// A commit that fails, or whose answer is lost.
    pub commit: u64,
    /// A bell that is lost or doubled; twice as many are late.
    pub bell: u64,
    /// A sink that fails or refuses; a third as many stall or answer late.
    pub sink: u64,
    /// A clock that is set to another time.
    pub clock_step: u64,
    /// A machine that fails, or whose answer is lost; half as often it takes long, and rarely an agent dies.
    pub machine: u64,
    /// Whether the processes correct their clocks to that of the database.
    pub corrected: bool,
}

impl Rates {
    /// The rates of a seed: in each world some classes are missing, because one kind of fault can hide another. A crash
    /// also rescues. Clocks differ in one world of four, in half of those with correction.
    pub fn for_seed(seed: u64) -> Rates {
        let mut dice = Dice::new(&[seed, 0x7261_7465]);
        let mut class = |one_in: u64| if dice.below(5) == 0 { 0 } else { one_in };
        let (crash, step_crash) = (class(50), class(150));
        let (pause, statement, commit) = (class(40), class(500), class(60));
        let (bell, sink) = (class(8), class(10));
        let clock_step = if dice.below(4) == 0 { 40 } else { 0 };
        let corrected = dice.below(2) == 0;
        let machine = if dice.below(4) == 0 { 0 } else { 25 };
        let (pause_max_ms, down_max_ms) = (350, 200);
        Rates {
            crash,
            step_crash,
            pause,
            pause_max_ms,
            down_max_ms,
            statement,
            commit,
            bell,
            sink,
            clock_step,
            machine,
            corrected,
        }
    }

    pub(crate) fn one_in(&self, kind: Kind) -> u64 {
        match kind {
            Kind::CrashBetweenSteps => self.step_crash,
            Kind::CrashBeforeStatement
            | Kind::CrashAfterStatement
            | Kind::CrashBeforeCommit
            | Kind::CrashAfterCommit
            | Kind::CrashAfterBell
            | Kind::CrashBeforeDelivery
            | Kind::CrashAfterDelivery => self.crash,
            Kind::SinkTakesFromTheDead => self.crash * 2,
            Kind::Pause => self.pause,
            Kind::ClockStep => self.clock_step,
            Kind::StatementRefused
            | Kind::StatementLost
            | Kind::StatementConflict
            | Kind::StatementLocked => self.statement,
            Kind::CommitRefused
            | Kind::CommitConflict
            | Kind::CommitLocked
            | Kind::CommitUnknown
            | Kind::CommitAnswerLost => self.commit,
            Kind::BellsMute | Kind::BellLost | Kind::BellDoubled => self.bell,
            Kind::BellLate => self.bell.div_ceil(2),
            Kind::SinkFails | Kind::SinkRefuses => self.sink,
            Kind::SinkStalls | Kind::SinkAnswersLate => self.sink * 3,
            Kind::MachineFails | Kind::MachineAnswerLost => self.machine,
            Kind::MachineSlow => self.machine * 2,
            Kind::AgentDies => self.machine * 12,
        }
    }
}
