//! `cargo xtask soak growth`: whether writing and reading stay as fast when the ledger and the event table have grown.

use std::collections::BTreeMap;

use serde::Serialize;

use super::judge::{self, Measurement};
use super::machine::{self, Machine};
use super::{BENCHES, Bench, cargo_bench, start_postgres};
use crate::Result;
use crate::workspace::{self, Workspace};

/// What is left of the first speed must be at least this.
const FLOOR: f64 = 0.9;

/// Which database grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

impl Database {
    fn case(self) -> &'static str {
        match self {
            Database::Sqlite => "growth_sqlite",
            Database::Postgres => "growth_postgres",
        }
    }
}

/// The answer.
#[derive(Debug, PartialEq, Serialize)]
struct Report {
    soak: &'static str,
    /// By the number of transfers and events that were there.
    curve: BTreeMap<u64, Speeds>,
    /// The last speed to the first.
    write_ratio: f64,
    read_ratio: f64,
    floor: f64,
    ok: bool,
    machine: Machine,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct Speeds {
    /// Transfers and as many events, a second.
    write_per_s: f64,
    /// Balances, a second.
    read_per_s: f64,
}

/// Grows the database to so many millions of transfers and events, and compares the speeds at the end with the first.
pub(crate) fn soak(tree: &Workspace, database: Database, millions: u64) -> Result {
    let bench: &Bench =
        BENCHES.iter().find(|bench| bench.name == "ledger").ok_or("there is no bench ledger")?;
    workspace::run(cargo_bench(tree, bench).arg("--no-run"))?;
    let directory = tempfile::tempdir_in(tree.target("")).map_err(|e| e.to_string())?;
    machine::refuse_memory(directory.path())?;
    let machine = Machine::look(tree, directory.path());
    let mut command = cargo_bench(tree, bench);
    command.args(["--", "--case", database.case(), "--millions", &millions.to_string()]);
    command.arg("--directory").arg(directory.path());
    // Both live until the end of the run.
    let server = match database {
        Database::Sqlite => None,
        Database::Postgres => Some(start_postgres()?),
    };
    let fresh = server.as_ref().map(testbed::Postgres::database).transpose()?;
    if let Some(fresh) = &fresh {
        command.args(["--postgres", &fresh.url()]);
    }
    let report = report(database, machine, &judge::read(&workspace::output(&mut command)?)?)?;
    print!("{}", table(&report));
    println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    if report.ok { Ok(()) } else { Err("it got slower as it grew".to_owned()) }
}

/// Has so many millions of turns done; whether the last ones are as fast as the first.
pub(crate) fn turns(tree: &Workspace, millions: u64) -> Result {
    let bench: &Bench =
        BENCHES.iter().find(|bench| bench.name == "kernel").ok_or("there is no bench kernel")?;
    workspace::run(cargo_bench(tree, bench).arg("--no-run"))?;
    let directory = tempfile::tempdir_in(tree.target("")).map_err(|e| e.to_string())?;
    machine::refuse_memory(directory.path())?;
    let machine = Machine::look(tree, directory.path());
    let mut command = cargo_bench(tree, bench);
    command.args(["--", "--case", "turns", "--millions", &millions.to_string()]);
    command.arg("--directory").arg(directory.path());
    let measured = judge::read(&workspace::output(&mut command)?)?;
    let speed = |name: &str| {
        let found = measured.iter().find(|run| run.name == name).map(|run| run.per_s);
        found.ok_or_else(|| format!("{name} was not measured"))
    };
    let (last, first) = (speed("guild")?, speed("the first turns")?);
    let ratio = ratio(last, first)?;
    let ok = ratio >= FLOOR;
    let report = serde_json::json!({
        "soak": "turns", "millions": millions, "first_per_s": first, "last_per_s": last,
        "ratio": ratio, "floor": FLOOR, "ok": ok, "machine": machine,
    });
    println!("{report}");
    if ok { Ok(()) } else { Err("turns got slower as there were more of them".to_owned()) }
}

fn report(database: Database, machine: Machine, measured: &[Measurement]) -> Result<Report> {
    let mut curve: BTreeMap<u64, Speeds> = BTreeMap::new();
    for run in measured {
        let at = run.result.parse().map_err(|e| format!("a mark is malformed: {e}"))?;
        let speeds = curve.entry(at).or_default();
        match run.name.as_str() {
            "write" => speeds.write_per_s = run.per_s,
            "read" => speeds.read_per_s = run.per_s,
            other => return Err(format!("{other} was measured")),
        }
    }
    let (Some((_, first)), Some((_, last))) = (curve.first_key_value(), curve.last_key_value())
    else {
        return Err("nothing was measured".to_owned());
    };
    if curve.len() < 2 {
        return Err("it did not grow".to_owned());
    }
    let write_ratio = ratio(last.write_per_s, first.write_per_s)?;
    let read_ratio = ratio(last.read_per_s, first.read_per_s)?;
    let ok = write_ratio >= FLOOR && read_ratio >= FLOOR;
    let soak = database.case();
    Ok(Report { soak, curve, write_ratio, read_ratio, floor: FLOOR, ok, machine })
}

fn ratio(last: f64, first: f64) -> Result<f64> {
    let measured = |speed: f64| speed.is_finite() && speed > 0.0;
    if measured(last) && measured(first) {
        return Ok(last / first);
    }
    Err("a speed is not a positive number".to_owned())
}

fn table(report: &Report) -> String {
    let mut text = format!("{:>12}{:>12}{:>12}\n", "rows", "writes/s", "reads/s");
    for (at, speeds) in &report.curve {
        text += &format!("{at:>12}{:>12.0}{:>12.0}\n", speeds.write_per_s, speeds.read_per_s);
    }
    let verdict = if report.ok { "ok" } else { "BELOW" };
    text + &format!(
        "{:>12}{:>12.2}{:>12.2} (floor {FLOOR}, {verdict})\n",
        "ratio", report.write_ratio, report.read_ratio
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(speeds: &[(&str, f64, &str)]) -> Vec<Measurement> {
        let run = |(name, per_s, result): &(&str, f64, &str)| Measurement {
            name: (*name).into(),
            per_s: *per_s,
            result: (*result).into(),
        };
        speeds.iter().map(run).collect()
    }

    fn judged(speeds: &[(&str, f64, &str)]) -> Result<Report> {
        report(Database::Sqlite, Machine::default(), &measured(speeds))
    }

    #[test]
    fn the_end_is_compared_with_the_beginning() {
        let first = [("write", 100.0, "100000"), ("read", 200.0, "100000")];
        let same =
            judged(&[first[0], first[1], ("write", 95.0, "1000000"), ("read", 300.0, "1000000")]);
        let same = same.unwrap();
        assert_eq!((same.write_ratio, same.read_ratio, same.ok), (0.95, 1.5, true));
        let shown = table(&same);
        assert!(shown.contains("      100000         100         200\n"), "{shown}");
        // Either of the two is enough, and what happened between does not matter.
        let slower = [("write", 89.0, "2000000"), ("read", 200.0, "2000000")];
        let between = [("write", 10.0, "1000000"), ("read", 10.0, "1000000")];
        let all = [first, between, slower].concat();
        assert!(!judged(&all).unwrap().ok);
        let all = [first, [("write", 100.0, "1000000"), ("read", 179.0, "1000000")]].concat();
        assert!(!judged(&all).unwrap().ok);
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        assert_eq!(judged(&[]).unwrap_err(), "nothing was measured");
        let first = [("write", 100.0, "100000"), ("read", 200.0, "100000")];
        assert_eq!(judged(&first).unwrap_err(), "it did not grow");
        let half = [first[0], first[1], ("write", 100.0, "1000000")];
        assert_eq!(judged(&half).unwrap_err(), "a speed is not a positive number");
        assert!(judged(&[("wait", 1.0, "1")]).is_err());
    }
}
