//! `cargo xtask bench NAME`: our speed beside a peer's, on the same input, in the same minutes, with equal results.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::workspace::{self, Workspace};
use crate::{Result, setup};

mod machine;

use machine::Machine;

/// One measurement: a bench target of ours, and scripts in `bench/peers/` that do the same work.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    package: &'static str,
    input_bytes: u64,
    peers: &'static [&'static str],
}

/// Every bench. `bench/floors.toml` has a floor for each.
pub(crate) const BENCHES: &[Bench] = &[
    Bench { name: "cid", package: "guild-protocol", input_bytes: 32 << 20, peers: &["cid.mjs"] },
    Bench { name: "hash", package: "guild-protocol", input_bytes: 8 << 20, peers: &["hash.mjs"] },
];

/// Ours and the peers run in turn, so often.
const ROUNDS: usize = 3;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What to measure.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(BENCHES.iter().map(|b| b.name)))]
    name: String,
    /// Print only the result, as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Fail below the floor in bench/floors.toml.
    #[arg(long)]
    check: bool,
    /// How long each of the runs lasts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

/// What one run of one party prints.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Measurement {
    name: String,
    mb_per_s: f64,
    /// What was computed: must be the same for all.
    result: String,
}

/// The answer of a bench.
#[derive(Debug, PartialEq, Serialize)]
struct Report {
    bench: String,
    guild_mb_per_s: f64,
    peers: BTreeMap<String, f64>,
    /// Ours to the fastest peer's.
    ratio: f64,
    floor: f64,
    ok: bool,
    machine: Machine,
}

/// A floor of `bench/floors.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Floor {
    /// The least ratio of our speed to the fastest peer's.
    pub(crate) min_ratio: f64,
}

/// Measures, prints, and with `--check` judges.
pub(crate) fn run(tree: &Workspace, options: &Options) -> Result {
    let bench = BENCHES
        .iter()
        .find(|bench| bench.name == options.name)
        .ok_or_else(|| format!("there is no bench {:?}", options.name))?;
    let floors = std::fs::read_to_string(tree.path("bench/floors.toml"))
        .map_err(|e| format!("bench/floors.toml: {e}"))?;
    let floor = *floors_of(&floors)?
        .get(bench.name)
        .ok_or_else(|| format!("bench/floors.toml has no floor for {}", bench.name))?;
    install_peers(tree)?;
    let directory = tempfile::tempdir().map_err(|e| format!("no temporary directory: {e}"))?;
    let input = directory.path().join("input");
    generate(tree, bench, &input)?;
    // After the build, which is no part of the noise, and before the first run.
    let machine = Machine::look(tree);
    let runs = measure(&parties(tree, bench, &input, options.seconds), ROUNDS)?;
    let report = judge(bench.name, floor, machine, &runs)?;
    let line = serde_json::to_string(&report).map_err(|e| e.to_string())?;
    if !options.json {
        print!("{}", table(&report));
    }
    println!("{line}");
    if options.check && !report.ok {
        return Err(format!(
            "{} is below its floor: {:.2} < {}",
            bench.name, report.ratio, report.floor
        ));
    }
    Ok(())
}

/// Reads the floors, by the name of their bench.
pub(crate) fn floors_of(text: &str) -> Result<BTreeMap<String, Floor>> {
    toml::from_str(text).map_err(|e| format!("bench/floors.toml: {e}"))
}

/// Installs what the peers use. Their versions are exact, so what is there is right unless the list is newer.
fn install_peers(tree: &Workspace) -> Result {
    setup::ensure(&[setup::NODE, setup::NPM])?;
    let changed = |path: &str| tree.path(path).metadata().and_then(|m| m.modified()).ok();
    let installed = changed("bench/peers/node_modules/.package-lock.json");
    if installed.is_some() && installed >= changed("bench/peers/package.json") {
        return Ok(());
    }
    let mut command = tree.program("npm");
    command.args(["install", "--no-package-lock", "--no-audit", "--no-fund"]);
    workspace::output(command.current_dir(tree.path("bench/peers"))).map(drop)
}

fn cargo_bench(tree: &Workspace, bench: &Bench) -> Command {
    let mut command = tree.program("cargo");
    command.args(["bench", "--quiet", "-p", bench.package, "--bench", bench.name, "--"]);
    command
}

fn generate(tree: &Workspace, bench: &Bench, input: &Path) -> Result {
    let mut command = cargo_bench(tree, bench);
    command.arg("--generate").arg(input).args(["--bytes", &bench.input_bytes.to_string()]);
    workspace::output(&mut command)?;
    let bytes = input.metadata().map_or(0, |m| m.len());
    if bytes == 0 { Err(format!("bench {} wrote no input", bench.name)) } else { Ok(()) }
}

/// Ours first, then the peers: each a program that prints one measurement.
fn parties(tree: &Workspace, bench: &Bench, input: &Path, seconds: u64) -> Vec<Command> {
    let ours = cargo_bench(tree, bench);
    let peers = bench.peers.iter().map(|script| {
        let mut command = tree.program("node");
        command.arg(tree.path("bench/peers").join(script));
        command
    });
    std::iter::once(ours)
        .chain(peers)
        .map(|mut command| {
            command.arg("--input").arg(input).args(["--seconds", &seconds.to_string()]);
            command
        })
        .collect()
}

/// Runs all parties in turn, so that a slow minute of the machine slows all of them.
/// Gives the measurements of each party.
fn measure(parties: &[Command], rounds: usize) -> Result<Vec<Vec<Measurement>>> {
    let mut runs = vec![Vec::new(); parties.len()];
    for _ in 0..rounds {
        for (party, runs) in parties.iter().zip(&mut runs) {
            let mut command = again(party);
            runs.push(
                read_measurement(&workspace::output(&mut command)?)
                    .map_err(|e| format!("{}: {e}", workspace::shown(&command)))?,
            );
        }
    }
    Ok(runs)
}

/// A command can be started once; this is the same one, fresh.
fn again(command: &Command) -> Command {
    let mut fresh = Command::new(command.get_program());
    fresh.args(command.get_args()).stdin(Stdio::null());
    if let Some(directory) = command.get_current_dir() {
        fresh.current_dir(directory);
    }
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => fresh.env(key, value),
            None => fresh.env_remove(key),
        };
    }
    fresh
}

/// The last line that is a JSON object.
fn read_measurement(output: &str) -> Result<Measurement> {
    let line = output.lines().rev().find(|line| line.starts_with('{'));
    let line = line.ok_or("it printed no measurement")?;
    serde_json::from_str(line).map_err(|e| format!("its measurement is malformed: {e}"))
}

/// Compares medians; refuses to compare those who computed different things.
fn judge(name: &str, floor: Floor, machine: Machine, runs: &[Vec<Measurement>]) -> Result<Report> {
    let [ours, peers @ ..] = runs else { return Err("nothing was measured".to_owned()) };
    let first = ours.first().ok_or("nothing was measured")?;
    if let Some(other) = runs.iter().flatten().find(|run| run.result != first.result) {
        return Err(format!(
            "the results differ, so speed means nothing: {} got {}, {} got {}",
            first.name, first.result, other.name, other.result
        ));
    }
    let guild_mb_per_s = median(ours)?;
    let peers = peers
        .iter()
        .map(|runs| {
            Ok((runs.first().ok_or("a peer was not measured")?.name.clone(), median(runs)?))
        })
        .collect::<Result<BTreeMap<_, _>>>()?;
    let fastest = peers.values().copied().fold(0.0, f64::max);
    if fastest <= 0.0 {
        return Err("no peer was measured".to_owned());
    }
    let ratio = guild_mb_per_s / fastest;
    let (bench, floor) = (name.to_owned(), floor.min_ratio);
    Ok(Report { bench, guild_mb_per_s, peers, ratio, floor, ok: ratio >= floor, machine })
}

fn median(runs: &[Measurement]) -> Result<f64> {
    let mut speeds: Vec<f64> = runs.iter().map(|run| run.mb_per_s).collect();
    speeds.sort_by(f64::total_cmp);
    match speeds.get(speeds.len() / 2) {
        Some(speed) if speed.is_finite() && *speed > 0.0 => Ok(*speed),
        _ => Err("a speed is not a positive number".to_owned()),
    }
}

fn table(report: &Report) -> String {
    let m = &report.machine;
    let mut text = format!(
        "bench {}, median of {ROUNDS} runs each\n  {} cores, {}, load {} before, {}, {}\n\n",
        report.bench, m.cores, m.cpu, m.load_average, m.rustc, m.date
    );
    text += &format!("  {:<24}{:>10} MB/s\n", "guild", format!("{:.1}", report.guild_mb_per_s));
    for (name, speed) in &report.peers {
        text += &format!("  {name:<24}{:>10} MB/s\n", format!("{speed:.1}"));
    }
    let verdict = if report.ok { "ok" } else { "BELOW" };
    text + &format!(
        "  {:<24}{:>10} (floor {}, {verdict})\n\n",
        "ratio",
        format!("{:.2}", report.ratio),
        report.floor
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(name: &str, result: &str, speeds: [f64; 3]) -> Vec<Measurement> {
        let run = |mb_per_s| Measurement { name: name.into(), mb_per_s, result: result.into() };
        speeds.map(run).into()
    }

    fn judged(ours: Vec<Measurement>, peer: Vec<Measurement>) -> Result<Report> {
        judge("hash", Floor { min_ratio: 1.5 }, Machine::default(), &[ours, peer])
    }

    #[test]
    fn medians_are_compared() {
        let report = judged(
            runs("guild", "x", [1.0, 300.0, 310.0]),
            runs("peer", "x", [100.0, 90.0, 999.0]),
        )
        .unwrap();
        assert_eq!((report.guild_mb_per_s, report.ratio, report.ok), (300.0, 3.0, true));
        let line = serde_json::to_string(&report).unwrap();
        assert!(line.starts_with(
            r#"{"bench":"hash","guild_mb_per_s":300.0,"peers":{"peer":100.0},"ratio":3.0,"floor":1.5,"ok":true,"machine":{"#
        ), "{line}");
        assert!(
            table(&report).contains("guild                        300.0 MB/s"),
            "{}",
            table(&report)
        );
    }

    #[test]
    fn being_slow_and_being_wrong_are_caught() {
        let slow = judged(runs("guild", "x", [140.0; 3]), runs("peer", "x", [100.0; 3])).unwrap();
        assert!(!slow.ok);
        let wrong =
            judged(runs("guild", "x", [300.0; 3]), runs("peer", "y", [100.0; 3])).unwrap_err();
        assert!(wrong.contains("guild got x, peer got y"), "{wrong}");
        let silent =
            judged(runs("guild", "x", [300.0; 3]), runs("peer", "x", [0.0; 3])).unwrap_err();
        assert_eq!(silent, "a speed is not a positive number");
        assert!(judge("hash", Floor { min_ratio: 1.0 }, Machine::default(), &[]).is_err());
    }

    #[test]
    fn parties_take_turns_and_their_last_line_counts() {
        let directory = tempfile::tempdir().unwrap();
        let party = |name: &str| {
            let mut command = Command::new("sh");
            let line =
                format!(r#"{{"name":"{name}","mb_per_s":2,"bytes":1,"rounds":1,"result":"r"}}"#);
            let script = format!("echo {name} >> turns; echo noise; echo '{line}'");
            command.current_dir(directory.path()).args(["-c", &script]);
            command
        };
        let runs = measure(&[party("a"), party("b")], 2).unwrap();
        assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(runs[1][1], Measurement { name: "b".into(), mb_per_s: 2.0, result: "r".into() });
        let turns = std::fs::read_to_string(directory.path().join("turns")).unwrap();
        assert_eq!(turns, "a\nb\na\nb\n");
        let mut mute = Command::new("true");
        mute.current_dir(directory.path());
        assert_eq!(measure(&[mute], 1).unwrap_err(), "true: it printed no measurement");
    }

    #[test]
    fn floors_are_read_strictly() {
        assert_eq!(floors_of("[hash]\nmin_ratio = 1.5").unwrap()["hash"].min_ratio, 1.5);
        assert!(floors_of("[hash]\nratio = 1.5").is_err());
        assert!(floors_of("hash = 1").is_err());
    }
}
