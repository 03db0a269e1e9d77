//! What is simulated, and what must hold.

pub mod audit_log;
pub mod kernel;
pub mod ledger;
pub mod market;
pub mod meter;

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;

use crate::fault::{Fault, Selection};
use crate::world::World;

/// Something that can be simulated, perhaps with a bug planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// append → event row → outbox → bell → stream
    AuditLog(Option<audit_log::Bug>),
    /// Turns of agents: workers, models, tools, and agents that ask agents.
    Kernel(Option<kernel::Bug>),
    /// Money: transfers, holds and rules by many clients through several processes.
    Ledger(Option<ledger::Bug>),
    /// Work for money between nodes: orders, jobs, verdicts, receipts.
    Market(Option<market::Bug>),
    /// Sandboxes by the minute: fleets of them, and their meters.
    Meter(Option<meter::Bug>),
}

impl Scenario {
    /// Their names.
    pub const NAMES: [&str; 5] = ["audit-log", "kernel", "ledger", "market", "meter"];

    /// The scenario of this name with the bug of this name, if there are such.
    pub fn named(name: &str, bug: Option<&str>) -> Result<Scenario, String> {
        match name {
            "audit-log" => planted(bug).map(Scenario::AuditLog),
            "kernel" => planted(bug).map(Scenario::Kernel),
            "ledger" => planted(bug).map(Scenario::Ledger),
            "market" => planted(bug).map(Scenario::Market),
            "meter" => planted(bug).map(Scenario::Meter),
            _ => {
                Err(format!("there is no scenario {name:?}; there are {}", Self::NAMES.join(", ")))
            }
        }
    }

    /// Runs one seed, with these of its faults.
    pub fn run(self, seed: u64, selection: &Selection) -> Report {
        match self {
            Scenario::AuditLog(bug) => audit_log::run(seed, bug, selection),
            Scenario::Kernel(bug) => kernel::run(seed, bug, selection),
            Scenario::Ledger(bug) => ledger::run(seed, bug, selection),
            Scenario::Market(bug) => market::run(seed, bug, selection),
            Scenario::Meter(bug) => meter::run(seed, bug, selection),
        }
    }
}

fn planted<B: ValueEnum>(bug: Option<&str>) -> Result<Option<B>, String> {
    bug.map(|name| B::from_str(name, true).map_err(|_| unknown_bug::<B>(name))).transpose()
}

fn unknown_bug<B: ValueEnum>(name: &str) -> String {
    let known = B::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let names: Vec<String> = known.map(|value| value.get_name().to_owned()).collect();
    format!("there is no bug {name:?} to plant; there are {}", names.join(", "))
}

/// What one seed led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A hash of all that happened: equal when the seed is run again.
    pub trace: u64,
    /// Steps of tasks.
    pub polls: u64,
    /// What went wrong around the system.
    pub faults: Vec<Fault>,
    /// What the system did.
    pub deeds: BTreeMap<&'static str, u64>,
    /// The texts that a planted bug changes, and whether any statement had them: a bug that never was cannot be found.
    pub edits: BTreeMap<&'static str, bool>,
    /// What must never happen and did. Empty when all is well.
    pub violations: Vec<String>,
}

impl Report {
    pub(crate) fn of(seed: u64, world: &World, polls: u64) -> Report {
        let (trace, faults, deeds) = (world.trace(), world.faults(), world.deeds());
        let (edits, violations) = (world.edits(), world.violations());
        Report { seed, trace, polls, faults, deeds, edits, violations }
    }

    /// How often each kind of fault happened; of crashes only, or of all others.
    pub fn count(&self, crashes: bool) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for fault in self.faults.iter().filter(|fault| fault.key.kind.is_crash() == crashes) {
            *counts.entry(fault.key.kind.words()).or_default() += 1;
        }
        counts
    }

    /// What the violations are about, without what only this very run has: their codes in brackets; if none has one,
    /// the first words of the first, without numbers.
    pub fn failure_kinds(&self) -> BTreeSet<String> {
        let told = |violation: &String| match violation.split_once(": ") {
            Some((_, what)) => what.to_owned(),
            None => violation.clone(),
        };
        let code = |what: String| Some(what.strip_prefix('[')?.split_once(']')?.0.to_owned());
        let codes: BTreeSet<String> = self.violations.iter().map(told).filter_map(code).collect();
        if !codes.is_empty() {
            return codes;
        }
        let words = |what: String| what.chars().filter(|c| !c.is_ascii_digit()).take(30).collect();
        self.violations.first().map(told).map(words).into_iter().collect()
    }
}
