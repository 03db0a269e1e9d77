//! `cargo xtask fuzz`: coverage-guided fuzzing on the stable compiler. The counters come from LLVM's own pass, the
//! engine is libFuzzer, and each `[[bin]]` of `fuzz/Cargo.toml` is a target.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Deserialize;

use crate::Result;
use crate::setup;
use crate::workspace::{self, Workspace};

/// What makes a program report where it has been, and what it compared.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
];
/// The feature, and the target, with a bug in it.
const PLANTED: &str = "planted";
/// A planted bug that is not found in this time counts as not found. It takes a few seconds.
const PLANTED_SECONDS: u64 = 60;
const MAX_INPUT_BYTES: u32 = 4096;

/// What to fuzz and how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this target; all of them otherwise.
    target: Option<String>,
    /// How long, for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Run the target once on this file, to see a failure again.
    #[arg(long, requires = "target", value_name = "FILE")]
    input: Option<PathBuf>,
}

/// Fuzzes what the options name.
pub(crate) fn run(tree: &Workspace, options: &Options) -> Result {
    let all = targets(&manifest(tree)?)?;
    let chosen: Vec<String> = match &options.target {
        Some(name) if all.contains(name) => vec![name.clone()],
        Some(name) => return Err(format!("no fuzz target {name:?}; there are {}", all.join(", "))),
        None => all,
    };
    let programs = build(tree, &[])?;
    if let (Some(input), [name]) = (&options.input, chosen.as_slice()) {
        let input = std::path::absolute(input).map_err(|e| e.to_string())?;
        return workspace::run(tree.program(programs.join(name)).arg(input));
    }
    chosen.iter().try_for_each(|name| fuzz_and_keep(tree, &programs, name, options.seconds))
}

/// Fuzzes every target for its share of the time, and keeps what was learnt.
pub(crate) fn run_all(tree: &Workspace, seconds: u64) -> Result {
    let targets = targets(&manifest(tree)?)?;
    let programs = build(tree, &[])?;
    let share = (seconds / u64::try_from(targets.len()).unwrap_or(1).max(1)).max(1);
    targets.iter().try_for_each(|name| fuzz_and_keep(tree, &programs, name, share))
}

/// Fuzzes every target for a few seconds, forgetting what was learnt: a test, so it starts the same each time.
pub(crate) fn smoke(tree: &Workspace, seconds: u64) -> Result {
    let programs = build(tree, &[])?;
    for name in targets(&manifest(tree)?)? {
        let corpus = temporary()?;
        fuzz(tree, &Run { programs: &programs, name: &name, seconds, corpus: corpus.path() })?;
    }
    Ok(())
}

/// Demands that the planted bug is found, and for the right reason.
pub(crate) fn find_planted(tree: &Workspace) -> Result {
    let programs = build(tree, &["--features", PLANTED, "--bin", PLANTED])?;
    let corpus = temporary()?;
    let found = execute(
        tree,
        &Run {
            programs: &programs,
            name: PLANTED,
            seconds: PLANTED_SECONDS,
            corpus: corpus.path(),
        },
        corpus.path(),
    )?;
    match judge(found.success, &found.text) {
        Err(_) if found.text.contains("the planted bug") => {
            println!("  the planted bug was found");
            Ok(())
        }
        Err(other) => {
            Err(format!("the planted target failed otherwise: {other}\n{}", tail(&found.text)))
        }
        Ok(stats) => Err(format!("the planted bug was not found in {} runs", stats.executions)),
    }
}

fn temporary() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(|e| format!("no temporary directory: {e}"))
}

fn manifest(tree: &Workspace) -> Result<String> {
    std::fs::read_to_string(tree.path("fuzz/Cargo.toml"))
        .map_err(|e| format!("fuzz/Cargo.toml: {e}"))
}

/// The targets that a fuzz manifest lists.
pub(crate) fn targets(manifest: &str) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Manifest {
        #[serde(default)]
        bin: Vec<Bin>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Bin {
        name: String,
        #[serde(default)]
        required_features: Vec<String>,
    }
    let manifest: Manifest =
        toml::from_str(manifest).map_err(|e| format!("fuzz/Cargo.toml: {e}"))?;
    let plain = manifest.bin.into_iter().filter(|bin| bin.required_features.is_empty());
    Ok(plain.map(|bin| bin.name).collect())
}

/// Builds the targets; gives the directory that they are in.
fn build(tree: &Workspace, more: &[&str]) -> Result<PathBuf> {
    setup::ensure(&[setup::CXX_COMPILER])?;
    // Naming the target keeps the flags away from build scripts, which could not link with them.
    let host = host_triple(&workspace::output(tree.program("rustc").arg("-vV"))?)?;
    let directory = tree.target("fuzz");
    let mut command = tree.program("cargo");
    command.args(["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    command.args(["--target", &host, "--target-dir"]).arg(&directory).args(more);
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", FLAGS.join(" "));
    workspace::run(&mut command)?;
    Ok(directory.join(host).join("release"))
}

fn host_triple(version: &str) -> Result<String> {
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV does not name its host".to_owned())
}

/// One run of one target.
struct Run<'a> {
    programs: &'a Path,
    name: &'a str,
    seconds: u64,
    /// Where interesting inputs are written.
    corpus: &'a Path,
}

fn fuzz_and_keep(tree: &Workspace, programs: &Path, name: &str, seconds: u64) -> Result {
    let corpus = tree.path("fuzz/corpus").join(name);
    std::fs::create_dir_all(&corpus).map_err(|e| format!("{}: {e}", corpus.display()))?;
    fuzz(tree, &Run { programs, name, seconds, corpus: &corpus })
}

fn fuzz(tree: &Workspace, run: &Run<'_>) -> Result {
    let artifacts = tree.path("fuzz/artifacts").join(run.name);
    let outcome = execute(tree, run, &artifacts)?;
    match judge(outcome.success, &outcome.text) {
        Ok(stats) => {
            println!(
                "  fuzz {}: {} runs, {} places reached",
                run.name, stats.executions, stats.covered
            );
            Ok(())
        }
        Err(why) => {
            eprintln!("{}", tail(&outcome.text));
            Err(format!(
                "fuzz target {}: {why}; see it again with\n  cargo xtask fuzz {} --input <the file named above>",
                run.name, run.name
            ))
        }
    }
}

struct Outcome {
    success: bool,
    text: String,
}

fn execute(tree: &Workspace, run: &Run<'_>, artifacts: &Path) -> Result<Outcome> {
    std::fs::create_dir_all(artifacts).map_err(|e| format!("{}: {e}", artifacts.display()))?;
    let mut command = tree.program(run.programs.join(run.name));
    command.args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]);
    command.arg(format!("-max_len={MAX_INPUT_BYTES}"));
    command.arg(format!("-max_total_time={}", run.seconds));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(run.corpus);
    let seeds = tree.path("fuzz/seeds").join(run.name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    let output = command
        .stdout(Stdio::null())
        .output()
        .map_err(|e| format!("{} did not start: {e}", workspace::shown(&command)))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Outcome { success: output.status.success(), text })
}

/// What a run without failure reports.
#[derive(Debug, PartialEq, Eq)]
struct Stats {
    executions: u64,
    covered: u64,
}

/// Reads libFuzzer's report. A program without counters is fuzzed blindly, which counts as a failure.
fn judge(success: bool, report: &str) -> Result<Stats> {
    if !report.contains("INFO: Loaded 1 modules") {
        return Err("the program has no coverage counters".to_owned());
    }
    if !success {
        let why = report
            .lines()
            .find(|line| line.contains("panicked at") || line.contains("ERROR: libFuzzer"));
        return Err(why.unwrap_or("it failed").trim().to_owned());
    }
    let number_after = |word: &str| {
        let rest = report.rsplit_once(word)?.1.trim_start();
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let stats = Stats {
        executions: number_after("stat::number_of_executed_units:").unwrap_or(0),
        covered: number_after(" cov:").unwrap_or(0),
    };
    match stats {
        Stats { executions: 0, .. } => Err("nothing was executed".to_owned()),
        Stats { covered: 0, .. } => Err("no place was reached".to_owned()),
        stats => Ok(stats),
    }
}

fn tail(report: &str) -> String {
    let lines: Vec<&str> = report.lines().collect();
    lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "INFO: Loaded 1 modules   (2039 inline 8-bit counters)\n\
        #2\tINITED cov: 12 ft: 13 corp: 1/1b\n#9000\tDONE   cov: 345 ft: 900 corp: 80/4b\n\
        stat::number_of_executed_units: 9000\n";

    #[test]
    fn a_good_report_is_read() {
        assert_eq!(judge(true, GOOD), Ok(Stats { executions: 9000, covered: 345 }));
    }

    #[test]
    fn a_crash_a_blind_run_and_an_empty_run_are_failures() {
        let crash =
            format!("{GOOD}\nthread '<unnamed>' panicked at src/x.rs:1:1:\nthe planted bug\n");
        assert!(judge(false, &crash).unwrap_err().contains("panicked at src/x.rs"));
        assert_eq!(
            judge(true, &GOOD.replace("Loaded 1", "Loaded 0")).unwrap_err(),
            "the program has no coverage counters"
        );
        assert_eq!(judge(true, &GOOD.replace(" 9000", " 0")).unwrap_err(), "nothing was executed");
        assert_eq!(judge(true, &GOOD.replace("cov:", "")).unwrap_err(), "no place was reached");
    }

    #[test]
    fn targets_are_the_programs_without_required_features() {
        let manifest =
            "[[bin]]\nname = 'json'\n[[bin]]\nname = 'planted'\nrequired-features = ['planted']\n";
        assert_eq!(targets(manifest).unwrap(), ["json"]);
        assert!(targets("[[bin]]").is_err());
    }
}
