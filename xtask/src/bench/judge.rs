//! What the measurements say. Nothing here starts a program.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use crate::Result;

/// The name under which our own speed is printed.
const OURS: &str = "guild";

/// What one party prints.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct Measurement {
    pub(super) name: String,
    pub(super) per_s: f64,
    /// What was computed or counted: must be the same for all in one round.
    pub(super) result: String,
}

/// The measurements of a case.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Runs {
    pub(super) case: String,
    pub(super) rounds: Vec<Vec<Measurement>>,
}

impl Runs {
    pub(super) fn of(case: &str) -> Runs {
        Runs { case: case.to_owned(), rounds: Vec::new() }
    }
}

/// A floor of `bench/floors.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Floor {
    /// The least ratio of our speed to the fastest other.
    pub(crate) min_ratio: f64,
}

/// The answer of a bench.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Report {
    bench: String,
    unit: String,
    cases: BTreeMap<String, Verdict>,
    ok: bool,
    machine: Machine,
}

/// How a case went.
#[derive(Debug, PartialEq, Serialize)]
struct Verdict {
    guild: f64,
    others: BTreeMap<String, f64>,
    /// Ours to the fastest other.
    ratio: f64,
    floor: f64,
    ok: bool,
    /// What the last round did.
    result: String,
}

/// Reads the floors, by bench and case.
pub(crate) fn floors_of(text: &str) -> Result<BTreeMap<String, BTreeMap<String, Floor>>> {
    toml::from_str(text).map_err(|e| format!("bench/floors.toml: {e}"))
}

/// The measurements in a program's output: every line that is a JSON object.
pub(super) fn read(output: &str) -> Result<Vec<Measurement>> {
    let lines = output.lines().filter(|line| line.starts_with('{'));
    let read =
        |line| serde_json::from_str(line).map_err(|e| format!("its measurement is malformed: {e}"));
    let measurements: Vec<Measurement> = lines.map(read).collect::<Result<_>>()?;
    if measurements.is_empty() {
        Err("it printed no measurement".to_owned())
    } else {
        Ok(measurements)
    }
}

/// Compares medians; refuses to compare those who did different things.
pub(super) fn judge(
    bench: &str,
    unit: &str,
    floors: &BTreeMap<String, Floor>,
    machine: Machine,
    runs: &[Runs],
) -> Result<Report> {
    let mut cases = BTreeMap::new();
    for run in runs {
        let floor = floors
            .get(&run.case)
            .ok_or_else(|| format!("bench/floors.toml has no floor for {bench}.{}", run.case))?;
        let verdict = verdict(*floor, run).map_err(|e| format!("{}: {e}", run.case))?;
        cases.insert(run.case.clone(), verdict);
    }
    if cases.is_empty() {
        return Err("nothing was measured".to_owned());
    }
    let ok = cases.values().all(|case| case.ok);
    Ok(Report { bench: bench.to_owned(), unit: unit.to_owned(), cases, ok, machine })
}

fn verdict(floor: Floor, runs: &Runs) -> Result<Verdict> {
    let mut speeds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in &runs.rounds {
        all_did_the_same(round)?;
        for run in round {
            speeds.entry(&run.name).or_default().push(run.per_s);
        }
    }
    if speeds.values().any(|speeds| speeds.len() != runs.rounds.len()) {
        return Err("somebody was not measured in every round, or twice in one".to_owned());
    }
    let mut medians = BTreeMap::new();
    for (name, speeds) in speeds {
        medians.insert(name.to_owned(), median(speeds)?);
    }
    let guild = medians.remove(OURS).ok_or("nothing of ours was measured")?;
    let fastest = medians.values().copied().fold(0.0, f64::max);
    if fastest <= 0.0 {
        return Err("there was nobody to compare with".to_owned());
    }
    let ratio = guild / fastest;
    let last = runs.rounds.last().and_then(|round| round.first());
    Ok(Verdict {
        guild,
        others: medians,
        ratio,
        floor: floor.min_ratio,
        ok: ratio >= floor.min_ratio,
        result: last.map(|run| run.result.clone()).unwrap_or_default(),
    })
}

fn all_did_the_same(round: &[Measurement]) -> Result {
    let first = round.first().ok_or("nothing was measured")?;
    match round.iter().find(|run| run.result != first.result) {
        None => Ok(()),
        Some(other) => Err(format!(
            "the results differ, so speed means nothing: {} got {}, {} got {}",
            first.name, first.result, other.name, other.result
        )),
    }
}

fn median(mut speeds: Vec<f64>) -> Result<f64> {
    speeds.sort_by(f64::total_cmp);
    match speeds.get(speeds.len() / 2) {
        Some(speed) if speed.is_finite() && *speed > 0.0 => Ok(*speed),
        _ => Err("a speed is not a positive number".to_owned()),
    }
}

impl Report {
    /// The cases that are below their floor.
    pub(super) fn below(&self) -> Vec<String> {
        let below = self.cases.iter().filter(|(_, case)| !case.ok);
        below
            .map(|(name, case)| {
                format!("{}.{name} with {:.2} < {}", self.bench, case.ratio, case.floor)
            })
            .collect()
    }

    /// For people.
    pub(super) fn table(&self, rounds: usize) -> String {
        let m = &self.machine;
        let mut text = format!(
            "bench {}, median of {rounds} runs each\n  {} cores, {}, load {} before, {}, flush {} µs, {}, {}\n",
            self.bench, m.cores, m.cpu, m.load_average, m.filesystem, m.flush_us, m.rustc, m.date
        );
        for (name, case) in &self.cases {
            text += &format!("\n  {name}: {}\n", case.result);
            let ours = std::iter::once((OURS, &case.guild));
            let others = case.others.iter().map(|(name, speed)| (name.as_str(), speed));
            for (name, speed) in ours.chain(others) {
                text += &format!("    {name:<24}{speed:>12.1} {}\n", self.unit);
            }
            let verdict = if case.ok { "ok" } else { "BELOW" };
            let (ratio, floor) = (case.ratio, case.floor);
            text += &format!("    {:<24}{ratio:>12.2} (floor {floor}, {verdict})\n", "ratio");
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floors() -> BTreeMap<String, Floor> {
        floors_of("[store.jobs]\nmin_ratio = 1.5\n[store.cycle]\nmin_ratio = 0.7").unwrap()["store"]
            .clone()
    }

    fn measured(name: &str, result: &str, per_s: f64) -> Measurement {
        Measurement { name: name.into(), per_s, result: result.into() }
    }

    fn runs(case: &str, ours: [(&str, f64); 3], peer: [(&str, f64); 3]) -> Runs {
        let round = |((our_result, our_speed), (result, speed))| {
            vec![measured(OURS, our_result, our_speed), measured("peer", result, speed)]
        };
        Runs { case: case.into(), rounds: ours.into_iter().zip(peer).map(round).collect() }
    }

    fn judged(runs: &[Runs]) -> Result<Report> {
        judge("store", "MB/s", &floors(), Machine::default(), runs)
    }

    #[test]
    fn medians_are_compared_case_by_case() {
        let ours = [("x", 1.0), ("y", 300.0), ("z", 310.0)];
        let peer = [("x", 100.0), ("y", 90.0), ("z", 999.0)];
        let slow = runs("cycle", [("x", 60.0); 3], [("x", 100.0); 3]);
        let report = judged(&[runs("jobs", ours, peer), slow]).unwrap();
        let jobs = &report.cases["jobs"];
        assert_eq!((jobs.guild, jobs.ratio, jobs.ok), (300.0, 3.0, true));
        assert_eq!((report.cases["cycle"].ratio, report.ok), (0.6, false));
        assert_eq!(report.below(), ["store.cycle with 0.60 < 0.7"]);
        let line = serde_json::to_string(&report).unwrap();
        assert!(line.starts_with(concat!(
            r#"{"bench":"store","unit":"MB/s","cases":{"cycle":{"guild":60.0,"others":{"peer":100.0},"#,
            r#""ratio":0.6,"floor":0.7,"ok":false,"result":"x"},"jobs":{"#
        )), "{line}");
        let table = report.table(3);
        assert!(
            table.contains("  jobs: z\n    guild                          300.0 MB/s\n"),
            "{table}"
        );
        assert!(
            table.contains("ratio                           0.60 (floor 0.7, BELOW)"),
            "{table}"
        );
    }

    #[test]
    fn being_slow_and_being_wrong_are_caught() {
        let slow = judged(&[runs("jobs", [("x", 140.0); 3], [("x", 100.0); 3])]).unwrap();
        assert!(!slow.ok);
        // One round of three is enough.
        let peer = [("x", 100.0), ("x", 100.0), ("y", 100.0)];
        let wrong = judged(&[runs("jobs", [("x", 300.0); 3], peer)]).unwrap_err();
        assert!(wrong.contains("guild got x, peer got y"), "{wrong}");
        let silent = judged(&[runs("jobs", [("x", 300.0); 3], [("x", 0.0); 3])]).unwrap_err();
        assert_eq!(silent, "jobs: a speed is not a positive number");
        let unknown = judged(&[runs("reads", [("x", 300.0); 3], [("x", 1.0); 3])]).unwrap_err();
        assert_eq!(unknown, "bench/floors.toml has no floor for store.reads");
        assert_eq!(judged(&[]).unwrap_err(), "nothing was measured");
    }

    #[test]
    fn whoever_is_missing_is_missed() {
        let mut some = runs("jobs", [("x", 300.0); 3], [("x", 100.0); 3]);
        some.rounds[1].pop();
        let error = judged(std::slice::from_ref(&some)).unwrap_err();
        assert!(error.contains("not measured in every round"), "{error}");
        for round in &mut some.rounds {
            round.truncate(1);
        }
        let error = judged(std::slice::from_ref(&some)).unwrap_err();
        assert_eq!(error, "jobs: there was nobody to compare with");
        for round in &mut some.rounds {
            *round = vec![measured("peer", "x", 1.0)];
        }
        assert_eq!(judged(&[some]).unwrap_err(), "jobs: nothing of ours was measured");
    }

    #[test]
    fn every_measurement_of_a_program_is_read() {
        let line = |name: &str| format!(r#"{{"name":"{name}","per_s":2,"bytes":1,"result":"r"}}"#);
        let output = format!("noise\n{}\n{}\n", line("guild"), line("bare loop"));
        let both = [measured("guild", "r", 2.0), measured("bare loop", "r", 2.0)];
        assert_eq!(read(&output).unwrap(), both);
        assert_eq!(read("noise\n").unwrap_err(), "it printed no measurement");
        assert!(read("{\"name\":\"guild\"}").unwrap_err().contains("malformed"));
    }

    #[test]
    fn floors_are_read_strictly() {
        assert_eq!(floors()["jobs"].min_ratio, 1.5);
        assert!(floors_of("[store.jobs]\nratio = 1.5").is_err());
        assert!(floors_of("[store]\nmin_ratio = 1.5").is_err());
        assert!(floors_of("store = 1").is_err());
    }
}
