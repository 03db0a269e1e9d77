//! `cargo xtask bench NAME`: our speed beside that of a peer, or of a limit, doing the same work in the same minutes
//! with equal results.

use std::path::Path;
use std::process::Command;

use crate::workspace::{self, Workspace};
use crate::{Result, setup};

pub(crate) mod growth;
mod judge;
mod machine;

pub(crate) use judge::floors_of;
use judge::{Measurement, Runs, judge};
use machine::Machine;

/// A bench target of ours, with one or more cases.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    package: &'static str,
    /// What the numbers are.
    unit: &'static str,
    pub(crate) cases: &'static [Case],
}

/// Something to be done, and the programs that do it in turn. `bench/floors.toml` has a floor for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    needs: Needs,
    /// Each prints a measurement, or several: the bench's own target prints ours, and may print a limit too.
    programs: &'static [Program],
}

/// What a program is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// A file of about so many bytes, the same for all.
    Input(u64),
    /// An empty directory on a disk.
    Disk,
    /// That, and an empty database on a server that flushes its commits.
    Postgres,
    /// That, and a server for bells.
    Cluster,
    /// That directory, and a relay of another make, which the bench starts.
    Relay,
    /// That directory, and other programs that make sandboxes.
    Runtimes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    /// The bench target itself.
    Ours,
    /// A script in `bench/peers/`.
    Peer(&'static str),
}

/// A limit measured by the bench itself: the bare loop knows how our own commits were grouped.
const fn limited(name: &'static str, needs: Needs) -> Case {
    Case { name, needs, programs: &[Program::Ours] }
}

/// One that writes to a directory on a disk.
const fn on_disk(name: &'static str) -> Case {
    limited(name, Needs::Disk)
}

/// One that writes to a server.
const fn on_server(name: &'static str) -> Case {
    limited(name, Needs::Postgres)
}

/// Cases whose numbers are how often something is done in a second.
const fn often(name: &'static str, package: &'static str, cases: &'static [Case]) -> Bench {
    Bench { name, package, unit: "/s", cases }
}

/// Every bench.
pub(crate) const BENCHES: &[Bench] = &[
    often(
        "api",
        "guild",
        &[
            on_disk("reads_sqlite"),
            on_server("reads_postgres"),
            on_disk("creations_sqlite"),
            on_server("creations_postgres"),
        ],
    ),
    Bench {
        name: "cid",
        package: "guild-protocol",
        unit: "MB/s",
        cases: &[Case {
            name: "file",
            needs: Needs::Input(32 << 20),
            programs: &[Program::Ours, Program::Peer("cid.mjs")],
        }],
    },
    often(
        "delegate",
        "guild-roles",
        &[
            on_disk("one_sqlite"),
            on_server("one_postgres"),
            on_disk("three_sqlite"),
            on_server("three_postgres"),
        ],
    ),
    often("discovery", "guild-roles", &[on_disk("sqlite"), on_server("postgres")]),
    Bench {
        name: "footprint",
        package: "guild",
        unit: "nodes",
        cases: &[on_disk("memory"), on_disk("ready")],
    },
    Bench {
        name: "hash",
        package: "guild-protocol",
        unit: "MB/s",
        cases: &[Case {
            name: "document",
            needs: Needs::Input(8 << 20),
            programs: &[Program::Ours, Program::Peer("hash.mjs")],
        }],
    },
    often(
        "intake",
        "guild-network",
        &[on_disk("new_sqlite"), on_server("new_postgres"), on_disk("known_sqlite")],
    ),
    often(
        "kernel",
        "guild-kernel",
        &[
            Case {
                name: "sqlite",
                needs: Needs::Cluster,
                programs: &[Program::Ours, Program::Peer("graphile-worker.mjs")],
            },
            Case {
                name: "postgres",
                needs: Needs::Cluster,
                programs: &[Program::Ours, Program::Peer("graphile-worker.mjs")],
            },
            on_disk("tool_sqlite"),
            limited("tool_postgres", Needs::Cluster),
        ],
    ),
    often(
        "ledger",
        "guild-ledger",
        &[
            on_disk("batched_sqlite"),
            on_server("batched_postgres"),
            on_disk("direct_sqlite"),
            on_server("direct_postgres"),
            on_disk("ready_sqlite"),
            on_server("ready_postgres"),
        ],
    ),
    often(
        "meter",
        "guild",
        &[
            on_disk("sqlite"),
            on_server("postgres"),
            on_disk("api_sqlite"),
            on_server("api_postgres"),
            on_disk("lease"),
        ],
    ),
    often("relay", "guild", &[limited("latency", Needs::Relay), limited("publish", Needs::Relay)]),
    Bench {
        name: "routing",
        package: "guild-market",
        unit: "",
        cases: &[
            on_disk("tiered_stationary"),
            on_disk("tiered_drifting"),
            on_disk("thompson_stationary"),
            on_disk("thompson_drifting"),
            on_disk("select"),
            on_disk("candidates"),
        ],
    },
    Bench {
        name: "sandbox",
        package: "guild",
        unit: "",
        cases: &[
            limited("start", Needs::Runtimes),
            limited("ahead", Needs::Runtimes),
            limited("bare", Needs::Runtimes),
            limited("python", Needs::Runtimes),
            limited("python_cold", Needs::Runtimes),
            limited("many", Needs::Runtimes),
        ],
    },
    Bench {
        name: "store",
        package: "guild-store",
        unit: "/s",
        cases: &[
            Case {
                name: "jobs_postgres",
                needs: Needs::Postgres,
                programs: &[
                    Program::Ours,
                    Program::Peer("graphile-worker.mjs"),
                    Program::Peer("pg-boss.mjs"),
                ],
            },
            on_disk("cycle_sqlite_1"),
            on_disk("cycle_sqlite_8"),
            on_disk("cycle_sqlite_64"),
            on_server("cycle_postgres_1"),
            on_server("cycle_postgres_8"),
            on_server("cycle_postgres_64"),
        ],
    },
];

/// All programs run in turn, so often.
const ROUNDS: usize = 3;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What to measure.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(BENCHES.iter().map(|b| b.name)))]
    name: String,
    /// Measure only this case.
    #[arg(long)]
    case: Option<String>,
    /// Print only the result, as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Fail below a floor in bench/floors.toml.
    #[arg(long)]
    check: bool,
    /// How long each of the runs lasts, about.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

/// Measures, prints, and with `--check` judges.
pub(crate) fn run(tree: &Workspace, options: &Options) -> Result {
    let bench = BENCHES
        .iter()
        .find(|bench| bench.name == options.name)
        .ok_or_else(|| format!("there is no bench {:?}", options.name))?;
    let cases = chosen(bench, options.case.as_deref())?;
    let floors = std::fs::read_to_string(tree.path("bench/floors.toml"))
        .map_err(|e| format!("bench/floors.toml: {e}"))?;
    let mut floors = floors_of(&floors)?;
    let floors = floors
        .remove(bench.name)
        .ok_or_else(|| format!("bench/floors.toml has no floor for {}", bench.name))?;
    let stage = Stage::set(tree, bench, &cases, options.seconds)?;
    // After the build, which is no part of the noise, and before the first run.
    let machine = Machine::look(tree, stage.directory.path());
    let runs = take_turns(&cases, ROUNDS, |case, program| {
        let measured = stage.run(case, program)?;
        for each in &measured {
            eprintln!("  {} · {}: {:.1}{}", case.name, each.name, each.per_s, bench.unit);
        }
        Ok(measured)
    })?;
    let report = judge(bench.name, bench.unit, &floors, machine, &runs)?;
    let line = serde_json::to_string(&report).map_err(|e| e.to_string())?;
    if !options.json {
        print!("{}", report.table(ROUNDS));
    }
    println!("{line}");
    let below = report.below();
    if options.check && !below.is_empty() {
        return Err(format!("below the floor: {}", below.join(", ")));
    }
    Ok(())
}

fn chosen(bench: &Bench, name: Option<&str>) -> Result<Vec<Case>> {
    let cases = bench.cases.iter().filter(|case| name.is_none_or(|name| name == case.name));
    let cases: Vec<Case> = cases.copied().collect();
    if cases.is_empty() {
        let names: Vec<_> = bench.cases.iter().map(|case| case.name).collect();
        return Err(format!("{} has the cases {}", bench.name, names.join(", ")));
    }
    Ok(cases)
}

/// Where the programs run: everything that must be there before the first of them starts.
struct Stage<'a> {
    tree: &'a Workspace,
    bench: &'a Bench,
    seconds: u64,
    /// Below the build directory, which is on a disk.
    directory: tempfile::TempDir,
    server: Option<testbed::Postgres>,
}

impl<'a> Stage<'a> {
    fn set(
        tree: &'a Workspace,
        bench: &'a Bench,
        cases: &[Case],
        seconds: u64,
    ) -> Result<Stage<'a>> {
        let programs = || cases.iter().flat_map(|case| case.programs);
        if programs().any(|program| matches!(program, Program::Peer(_))) {
            install_peers(tree)?;
        }
        workspace::run(cargo_bench(tree, bench).arg("--no-run"))?;
        std::fs::create_dir_all(tree.target("")).map_err(|e| e.to_string())?;
        let directory = tempfile::tempdir_in(tree.target(""))
            .map_err(|e| format!("no temporary directory: {e}"))?;
        let mut stage = Stage { tree, bench, seconds, directory, server: None };
        for case in cases {
            match case.needs {
                Needs::Input(bytes) => stage.generate(case, bytes)?,
                Needs::Disk => machine::refuse_memory(stage.directory.path())?,
                Needs::Relay => {
                    machine::refuse_memory(stage.directory.path())?;
                    setup::nostr_relay(tree)?;
                }
                Needs::Runtimes => setup::ensure(setup::RUNTIMES)?,
                Needs::Postgres | Needs::Cluster => {
                    machine::refuse_memory(&std::env::temp_dir())?;
                    machine::refuse_memory(stage.directory.path())?;
                    if case.needs == Needs::Cluster {
                        setup::ensure(&[setup::NATS])?;
                    }
                    if stage.server.is_none() {
                        stage.server = Some(start_postgres()?);
                    }
                }
            }
        }
        Ok(stage)
    }

    fn input(&self, case: &Case) -> std::path::PathBuf {
        self.directory.path().join(case.name)
    }

    fn generate(&self, case: &Case, bytes: u64) -> Result {
        let input = self.input(case);
        let mut command = cargo_bench(self.tree, self.bench);
        command.arg("--").arg("--generate").arg(&input).args(["--bytes", &bytes.to_string()]);
        workspace::output(&mut command)?;
        let bytes = input.metadata().map_or(0, |m| m.len());
        if bytes == 0 { Err(format!("bench {} wrote no input", self.bench.name)) } else { Ok(()) }
    }

    /// One run of one program, on a directory and a database that nobody has used before.
    fn run(&self, case: &Case, program: &Program) -> Result<Vec<Measurement>> {
        let mut command = match program {
            Program::Ours => cargo_bench(self.tree, self.bench),
            Program::Peer(script) => {
                let mut node = self.tree.program("node");
                node.arg(self.tree.path("bench/peers").join(script));
                node
            }
        };
        if *program == Program::Ours {
            command.arg("--");
        }
        let fresh = tempfile::tempdir_in(self.directory.path()).map_err(|e| e.to_string())?;
        // Dropped after the run.
        let database = match (case.needs, &self.server) {
            (Needs::Postgres | Needs::Cluster, Some(server)) => Some(server.database()?),
            _ => None,
        };
        let url = database.as_ref().map(testbed::Database::url);
        self.give(case, &mut command, fresh.path(), url.as_deref());
        judge::read(&workspace::output(&mut command)?)
            .map_err(|e| format!("{}: {e}", workspace::shown(&command)))
    }

    fn give(&self, case: &Case, command: &mut Command, fresh: &Path, url: Option<&str>) {
        if let Needs::Input(_) = case.needs {
            command.arg("--input").arg(self.input(case));
        } else {
            command.args(["--case", case.name]).arg("--directory").arg(fresh);
        }
        if let Some(url) = url {
            command.args(["--postgres", url]);
        }
        command.args(["--seconds", &self.seconds.to_string()]);
    }
}

/// The server of a bench: its commits reach the disk.
pub(crate) fn start_postgres() -> Result<testbed::Postgres> {
    setup::ensure(&[setup::POSTGRES])?;
    testbed::Postgres::start(testbed::postgres::Durability::Full)
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
    command.args(["bench", "--quiet", "-p", bench.package, "--bench", bench.name]);
    command
}

/// Runs all programs in turn, so that a slow minute of the machine slows all of them.
fn take_turns(
    cases: &[Case],
    rounds: usize,
    mut run: impl FnMut(&Case, &Program) -> Result<Vec<Measurement>>,
) -> Result<Vec<Runs>> {
    let mut runs: Vec<Runs> = cases.iter().map(|case| Runs::of(case.name)).collect();
    for _ in 0..rounds {
        for (case, runs) in cases.iter().zip(&mut runs) {
            let mut round = Vec::new();
            for program in case.programs {
                round.extend(run(case, program)?);
            }
            runs.rounds.push(round);
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_take_turns() {
        let case = |name| Case {
            name,
            needs: Needs::Disk,
            programs: &[Program::Ours, Program::Peer("x")],
        };
        let mut turns = Vec::new();
        let runs = take_turns(&[case("a"), case("b")], 2, |case, program| {
            turns.push((case.name, *program));
            Ok(vec![Measurement::default()])
        })
        .unwrap();
        let round = [
            ("a", Program::Ours),
            ("a", Program::Peer("x")),
            ("b", Program::Ours),
            ("b", Program::Peer("x")),
        ];
        assert_eq!(turns, [round, round].concat());
        let counts: Vec<_> =
            runs.iter().map(|runs| (runs.case.as_str(), runs.rounds.len())).collect();
        assert_eq!(counts, [("a", 2), ("b", 2)]);
        assert!(runs.iter().flat_map(|runs| &runs.rounds).all(|round| round.len() == 2));
        assert!(take_turns(&[case("a")], 1, |_, _| Err("down".to_owned())).is_err());
    }

    #[test]
    fn a_case_is_chosen_by_its_name() {
        let store = BENCHES.iter().find(|bench| bench.name == "store").unwrap();
        assert_eq!(chosen(store, None).unwrap().len(), store.cases.len());
        assert_eq!(chosen(store, Some("jobs_postgres")).unwrap()[0].name, "jobs_postgres");
        assert!(chosen(store, Some("jobs")).unwrap_err().contains("jobs_postgres, cycle_sqlite_1"));
    }
}
