//! `guild store`

use std::path::{Path, PathBuf};

use guild_ledger::audit;
use guild_protocol::env::Clock;
use guild_store::backup::{self, Existing};
use guild_store::check::{self, Problem};
use guild_store::{Access, Service, connect};
use serde::Serialize;

use super::Context;
use crate::config::Loaded;
use crate::error::{Error, InFile, Result};
use crate::node::{self, Hold, Parts};
use crate::output::{Answer, lossy};
use crate::real::{SystemClock, runtime};

/// Save, check and upgrade the database
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Backup(BackupArgs),
    Check(CheckArgs),
    Migrate(MigrateArgs),
    Reindex(ReindexArgs),
}

/// Copy the database to a file
///
/// Works beside a running node. The copy is checked before it gets its name, and only its owner can read it. To use it,
/// put it in the place of node.db while no node runs, beside the keystore of the same node: that is not in the copy,
/// and the database is of no use without it. A copy of PostgreSQL is made by pg_dump and is read back with pg_restore.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// The file to write
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

/// Say whether the database is sound
///
/// Reads every page, compares the schema with the one this program makes, checks what the tables say of each other,
/// and audits the ledger. Works beside a running node.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Check this backup instead
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,
}

/// Bring the schema up to date without starting the node
///
/// `guild up` does it too. Refused while a node runs. Save the database first.
#[derive(Debug, clap::Args)]
pub(crate) struct MigrateArgs {
    /// Only list what would be applied
    #[arg(long)]
    dry_run: bool,
}

/// Make the index of providers, requests and answers again from the stored events
///
/// For an index that misses something or says something else than the events. Nothing is fetched, and who was heard
/// when stays known. Refused while a node runs.
#[derive(Debug, clap::Args)]
pub(crate) struct ReindexArgs {}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Backup(args) => make_backup(args, cx),
        Command::Check(args) => run_check(args, cx),
        Command::Migrate(args) => migrate(args, cx),
        Command::Reindex(ReindexArgs {}) => reindex(cx),
    }
}

#[derive(Serialize)]
struct BackupBody<'a> {
    #[serde(serialize_with = "lossy")]
    file: &'a Path,
    bytes: u64,
}

fn make_backup(args: &BackupArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let options = node::store_options(&loaded);
    node::require_database(&options)?;
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let bytes = backup::make(&options, &node::migrations(), &args.file, existing)?;
    if cx.out.json() {
        cx.out.object(true, BackupBody { file: &args.file, bytes })?;
    } else {
        cx.out.line(&format!("{}  {bytes} bytes, checked", args.file.display()))?;
    }
    Ok(Answer::Yes)
}

/// What was found.
#[derive(Default)]
struct Findings {
    problems: Vec<Problem>,
    ledger: Option<audit::Report>,
}

#[derive(Serialize)]
struct ProblemBody<'a> {
    code: &'a str,
    message: &'a str,
}

fn run_check(args: &CheckArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let findings = match &args.backup {
        Some(file) => check_backup(file).in_file(file)?,
        None => check_store(&cx.config()?)?,
    };
    let Findings { problems, ledger } = &findings;
    let money = ledger.as_ref().map(|report| &report.problems[..]).unwrap_or_default();
    let sound = problems.is_empty() && money.is_empty();
    let inconsistent = guild_store::code::INCONSISTENT.name;
    let all: Vec<ProblemBody<'_>> = problems
        .iter()
        .map(|problem| ProblemBody { code: problem.code.name, message: &problem.message })
        .chain(money.iter().map(|message| ProblemBody { code: inconsistent, message }))
        .collect();
    let transfers = ledger.as_ref().map(|report| report.transfers);
    if cx.out.json() {
        cx.out.object(sound, serde_json::json!({ "problems": all, "transfers": transfers }))?;
        return Ok(Answer::of(sound));
    }
    for problem in &all {
        cx.out.line(&format!("FAILED  {}: {}", problem.code, problem.message))?;
    }
    let audited = transfers.map(|n| format!(", {n} transfers audited")).unwrap_or_default();
    let verdict = if sound { "the store is sound" } else { "the store is NOT sound" };
    cx.out.line(&format!("{verdict}{audited}"))?;
    Ok(Answer::of(sound))
}

fn check_store(loaded: &Loaded) -> Result<Findings> {
    let options = node::store_options(loaded);
    node::require_database(&options)?;
    if let Some(path) = options.sqlite_file() {
        let problems = check::file(&path, &node::migrations())?;
        if !problems.is_empty() {
            // Whatever the tables say stands on pages or a schema that cannot be trusted.
            return Ok(Findings { problems, ledger: None });
        }
    }
    check_tables(node::open_read_only(loaded)?)
}

fn check_backup(file: &Path) -> Result<Findings> {
    std::fs::metadata(file).map_err(|e| Error::io(file, &e))?;
    if backup::is_dump(file)? {
        backup::list(file)?;
        return Ok(Findings::default());
    }
    let problems = check::file(file, &node::migrations())?;
    if !problems.is_empty() {
        return Ok(Findings { problems, ledger: None });
    }
    check_tables(backup::open(file, &node::migrations())?)
}

fn check_tables(service: Service) -> Result<Findings> {
    let runtime = runtime()?;
    let store = service.handle();
    let problems = runtime.block_on(store.read(check::tables));
    let report = runtime.block_on(store.read(audit::run));
    service.close();
    Ok(Findings { problems: problems?, ledger: Some(report?) })
}

fn migrate(args: &MigrateArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let (options, migrations) = (node::store_options(&loaded), node::migrations());
    let names = if args.dry_run {
        node::require_database(&options)?;
        migrations.pending(&mut *connect(&options, Access::Read)?)?
    } else {
        let _hold = Hold::take(&loaded.config.data_dir)?;
        let mut db = connect(&options, Access::Write)?;
        let names = migrations.pending(&mut *db)?;
        migrations.apply(&mut *db, SystemClock.now_ms())?;
        names
    };
    if cx.out.json() {
        let name = if args.dry_run { "pending" } else { "applied" };
        cx.out.object(true, serde_json::json!({ name: names }))?;
        return Ok(Answer::Yes);
    }
    let what = if args.dry_run { "would apply" } else { "applied" };
    for name in &names {
        cx.out.line(&format!("{what} {name}"))?;
    }
    if names.is_empty() {
        cx.out.line("the schema is up to date")?;
    }
    Ok(Answer::Yes)
}

fn reindex(cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    node::require_database(&node::store_options(&loaded))?;
    let parts = Parts::open(&loaded)?;
    let made = runtime()?.block_on(parts.reindex());
    parts.close();
    let events = made?;
    if cx.out.json() {
        cx.out.object(true, serde_json::json!({ "events": events }))?;
    } else {
        cx.out.line(&format!("the index was made again from {events} events"))?;
    }
    Ok(Answer::Yes)
}
