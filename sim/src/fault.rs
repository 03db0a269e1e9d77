//! Everything that can go wrong. Each time a place is reached where something can, a decision is made; those that were
//! decided against the system are numbered, so that a run can be repeated with some of them only.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use guild_protocol::env::UnixMs;

/// What goes wrong, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A process dies before a statement.
    CrashBeforeStatement,
    /// A process dies after a statement.
    CrashAfterStatement,
    /// A process dies with everything run and nothing committed.
    CrashBeforeCommit,
    /// A process dies when all is committed and nobody knows.
    CrashAfterCommit,
    /// A process dies when the bells have rung.
    CrashAfterBell,
    /// A process dies between two steps of its tasks.
    CrashBetweenSteps,
    /// A process dies before a message reaches the sink.
    CrashBeforeDelivery,
    /// A process dies after the sink took a message.
    CrashAfterDelivery,
    /// A process stands still for a while.
    Pause,
    /// The clock of a process is set to another time.
    ClockStep,
    /// The database refuses a statement.
    StatementRefused,
    /// The database carries a statement out and fails to say so.
    StatementLost,
    /// The database cannot settle a conflict: the transaction must be run again.
    StatementConflict,
    /// The database is locked when a statement comes.
    StatementLocked,
    /// The database refuses the commit.
    CommitRefused,
    /// The commit meets a conflict: the transaction must be run again.
    CommitConflict,
    /// The database is locked when the commit comes.
    CommitLocked,
    /// The commit does not happen, and nobody knows.
    CommitUnknown,
    /// The commit happens, and nobody knows.
    CommitAnswerLost,
    /// No bell is heard in this world.
    BellsMute,
    /// A bell is lost.
    BellLost,
    /// A bell rings twice.
    BellDoubled,
    /// A bell rings late, after others.
    BellLate,
    /// The sink fails.
    SinkFails,
    /// The sink refuses for good.
    SinkRefuses,
    /// The sink does not answer before the lease has run out.
    SinkStalls,
    /// The sink takes the message and says so after the lease has run out.
    SinkAnswersLate,
    /// The message is on its way when its process dies; the sink takes it later.
    SinkTakesFromTheDead,
    /// A machine, or the agent of a sandbox, does not do what it is asked.
    MachineFails,
    /// It does what it is asked, and the answer is lost.
    MachineAnswerLost,
    /// It takes long.
    MachineSlow,
    /// The agent of a sandbox dies, and the sandbox with it.
    AgentDies,
}

impl Kind {
    const COUNT: usize = Kind::AgentDies as usize + 1;

    /// A short text: where and what.
    pub fn words(self) -> &'static str {
        match self {
            Kind::CrashBeforeStatement => "crash before a statement",
            Kind::CrashAfterStatement => "crash after a statement",
            Kind::CrashBeforeCommit => "crash before the commit",
            Kind::CrashAfterCommit => "crash after the commit",
            Kind::CrashAfterBell => "crash after the bells",
            Kind::CrashBetweenSteps => "crash between two steps",
            Kind::CrashBeforeDelivery => "crash before the delivery",
            Kind::CrashAfterDelivery => "crash after the delivery",
            Kind::Pause => "pause",
            Kind::ClockStep => "clock step",
            Kind::StatementRefused => "statement refused",
            Kind::StatementLost => "statement done, its answer lost",
            Kind::StatementConflict => "conflict at a statement",
            Kind::StatementLocked => "database locked at a statement",
            Kind::CommitRefused => "commit refused",
            Kind::CommitConflict => "conflict at the commit",
            Kind::CommitLocked => "database locked at the commit",
            Kind::CommitUnknown => "commit not done, its answer lost",
            Kind::CommitAnswerLost => "commit done, its answer lost",
            Kind::BellsMute => "no bell is heard",
            Kind::BellLost => "bell lost",
            Kind::BellDoubled => "bell doubled",
            Kind::BellLate => "bell late",
            Kind::SinkFails => "sink fails",
            Kind::SinkRefuses => "sink refuses for good",
            Kind::SinkStalls => "sink stalls past the lease",
            Kind::SinkAnswersLate => "sink takes it and answers past the lease",
            Kind::SinkTakesFromTheDead => "process dies, the sink takes its message later",
            Kind::MachineFails => "machine fails",
            Kind::MachineAnswerLost => "machine does it, its answer lost",
            Kind::MachineSlow => "machine takes long",
            Kind::AgentDies => "agent dies",
        }
    }

    /// Whether it is the death of a process.
    pub fn is_crash(self) -> bool {
        self <= Kind::CrashAfterDelivery
            || matches!(self, Kind::SinkTakesFromTheDead | Kind::AgentDies)
    }
}

/// One decision: the `turn`-th time that `who` could meet this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The process; none, if it is about the bus or a machine.
    pub who: Option<usize>,
    /// What.
    pub kind: Kind,
    /// How often this could have happened before.
    pub turn: u64,
}

/// Something that went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Its number among all faults of the seed, from 1.
    pub number: u64,
    /// When, in virtual time.
    pub at_ms: UnixMs,
    /// Which decision it was.
    pub key: Key,
}

/// `  17  at   312 ms  process 1  crash after the commit`
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.key.who {
            Some(process) => format!("process {process}"),
            None if self.key.kind >= Kind::MachineFails => "machine".to_owned(),
            None => "the bus".to_owned(),
        };
        let words = self.key.kind.words();
        write!(f, "{:>5}  at {:>6} ms  {who:<9}  {words}", self.number, self.at_ms)
    }
}

/// Which faults of a seed happen, and in which order things happen otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Of the faults that the seed decides, only these, each with its number; without it, all.
    pub only: Option<BTreeMap<Key, u64>>,
    /// Which task runs next is drawn from the seed and this. Leaving a fault out may lead past a failure by chance;
    /// another order may lead to it again.
    pub schedule: u64,
}

impl Selection {
    /// All that the seed decides.
    pub const ALL: Selection = Selection { only: None, schedule: 0 };

    /// These faults of an earlier run of the same seed.
    pub fn only<'a>(faults: impl IntoIterator<Item = &'a Fault>) -> Selection {
        let only = faults.into_iter().map(|fault| (fault.key, fault.number)).collect();
        Selection { only: Some(only), schedule: 0 }
    }

    /// Those faults of an earlier run that have these numbers.
    pub fn numbered(faults: &[Fault], numbers: &BTreeSet<u64>) -> Selection {
        Selection::only(faults.iter().filter(|fault| numbers.contains(&fault.number)))
    }

    /// The same in another order.
    #[must_use]
    pub fn with_schedule(self, schedule: u64) -> Selection {
        Selection { schedule, ..self }
    }
}

/// Randomness of its own: what it gives depends on what it was made from alone, not on what else was drawn.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The same parts, the same throws.
    pub fn new(parts: &[u64]) -> Dice {
        let mut dice = Dice(0);
        for part in parts {
            dice.0 ^= *part;
            dice.0 = dice.throw();
        }
        dice
    }

    /// splitmix64
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which must not be zero.
    pub fn below(&mut self, n: u64) -> u64 {
        self.throw() % n
    }

    /// A number of milliseconds below `n`.
    pub fn below_ms(&mut self, n: u64) -> i64 {
        i64::try_from(self.below(n)).unwrap_or(0)
    }
}

/// Decides, numbers and counts.
#[derive(Debug)]
pub(crate) struct Decisions {
    seed: u64,
    selection: Selection,
    /// How often each could have been met: by process (the bus is the first), then by kind.
    turns: Vec<[u64; Kind::COUNT]>,
    fired: Vec<Fault>,
}

impl Decisions {
    pub(crate) fn new(seed: u64, selection: Selection) -> Decisions {
        Decisions { seed, selection, turns: Vec::new(), fired: Vec::new() }
    }

    /// Whether it happens now, once in `one_in` times; never, if that is zero. If so, with dice for how.
    pub(crate) fn decide(
        &mut self,
        at_ms: UnixMs,
        who: Option<usize>,
        kind: Kind,
        one_in: u64,
    ) -> Option<Dice> {
        let row = who.map_or(0, |process| process + 1);
        if self.turns.len() <= row {
            self.turns.resize(row + 1, [0; Kind::COUNT]);
        }
        let turn = self.turns[row][kind as usize];
        self.turns[row][kind as usize] += 1;
        // From the decision alone: leaving one fault out does not decide the others anew.
        let mut dice = Dice::new(&[self.seed, row as u64, kind as u64, turn]);
        if one_in == 0 || dice.below(one_in) != 0 {
            return None;
        }
        let key = Key { who, kind, turn };
        let number = match &self.selection.only {
            None => self.fired.len() as u64 + 1,
            Some(numbers) => *numbers.get(&key)?,
        };
        self.fired.push(Fault { number, at_ms, key });
        Some(dice)
    }

    pub(crate) fn fired(&self) -> &[Fault] {
        &self.fired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(selection: Selection) -> Vec<Fault> {
        let mut decisions = Decisions::new(7, selection);
        for turn in 0..100 {
            decisions.decide(turn, Some(1), Kind::Pause, 10);
            decisions.decide(turn, None, Kind::BellLost, 10);
        }
        decisions.fired().to_vec()
    }

    #[test]
    fn leaving_faults_out_leaves_the_others_as_they_were() {
        let all = run(Selection::ALL);
        assert!(all.len() > 5, "{all:?}");
        let numbers: Vec<u64> = all.iter().map(|fault| fault.number).collect();
        assert_eq!(numbers, (1..=all.len() as u64).collect::<Vec<_>>());
        let some = run(Selection::numbered(&all, &BTreeSet::from([2, 5])));
        assert_eq!(some, [all[1], all[4]]);
        assert_eq!(run(Selection::only(&[])), []);
    }

    #[test]
    fn a_fault_is_told_in_one_line() {
        let key = Key { who: Some(1), kind: Kind::CrashAfterCommit, turn: 3 };
        let line = Fault { number: 17, at_ms: 312, key }.to_string();
        assert_eq!(line, "   17  at    312 ms  process 1  crash after the commit");
    }
}
