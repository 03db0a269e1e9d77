//! `guild demo`

use std::path::PathBuf;

use futures_util::future::{Either, select};
use guild_market::order;
use guild_protocol::env::{Clock, Shutdown};
use tokio::runtime::Runtime;

use self::job::{Done, Job, Whom};
use self::met::Met;
use self::proof::Proof;
use self::town::Town;
use super::{Context, audit, ledger, up};
use crate::config::{Config, Level, Log, LogFormat};
use crate::error::{Error, Result, code};
use crate::output::Answer;
use crate::real::SystemClock;
use crate::telemetry;

mod job;
mod met;
mod proof;
mod show;
mod town;
mod worker;

/// See the whole market at work, on this host alone
///
/// Starts a buyer with a relay and three providers: an honest one, a slow one and one that cheats. They find each other
/// over real sockets. The buyer first hires by price alone, and is cheated; then it tests each of them by benchmarks
/// whose tests it keeps to itself, and ranks them. It hires them in the open and in private, for embeddings and to run
/// the tests of a small program in a sandbox, one at a time and two side by side. It does what came back once more, or
/// compares it, pays for what holds and signs a receipt for each. Then everything is checked again from the bytes
/// alone, as a stranger would. It needs no service, network, key or model, and leaves nothing behind.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave it running until Ctrl-C, to look around in the explorer
    #[arg(long)]
    keep: bool,
    /// The port of the explorer and the relay [default: any that is free]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
}

/// Who is found to cheat.
const CHEAT: &str = "Cleo";

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    // Its own settings: what a user configured for a real node has no say here.
    telemetry::start(&Log { level: Level::Error, format: LogFormat::Text }, cx.global.louder());
    let began_ms = SystemClock.now_ms();
    let runtime = up::node_runtime()?;
    let interrupted = Shutdown::new();
    runtime.block_on(async { up::stop_on_signal(&interrupted) })?;
    step("four nodes are started: a buyer with a relay, and three providers", cx);
    let sandbox = crate::sandbox::open(&Config::default(), cx.environment);
    if let Err(error) = &sandbox {
        step(&format!("tests are left out, because nothing can be run here safely: {error}"), cx);
    }
    let sandbox = sandbox.ok();
    let opened = Town::open(args.port, sandbox.as_ref());
    let town = until(&runtime, &interrupted, opened)?;
    let jobs = job::jobs(sandbox.is_some());
    let told = perform((&runtime, &interrupted), &town, jobs, began_ms, cx);
    let kept = match &told {
        Ok(_) if args.keep => keep(&runtime, &interrupted, cx),
        _ => Ok(()),
    };
    // Whatever went wrong before is what the reader should hear of.
    let closed = runtime.block_on(town.close());
    let answer = told?;
    kept.and(closed)?;
    Ok(answer)
}

/// Everything from the first job to the last check.
fn perform(
    (runtime, interrupted): (&Runtime, &Shutdown),
    town: &Town,
    jobs: impl Iterator<Item = Job>,
    began_ms: i64,
    cx: &mut Context<'_>,
) -> Result<Answer> {
    let offers = until(runtime, interrupted, town.meet())?;
    step(&format!("{} providers have announced themselves at the relay", offers.len()), cx);
    // The first one is hired by its price alone, by somebody who has tested nobody yet.
    let mut done: Vec<Done> = Vec::new();
    let (blind, informed): (Vec<Job>, Vec<Job>) = jobs.partition(|job| job.whom == Whom::Cheapest);
    for job in blind {
        done.extend(hired(&job, done.len() + 1, (runtime, interrupted), town, cx)?);
    }
    let mut met: Vec<Met> = Vec::new();
    for name in town.applicants() {
        cx.out.progress(&format!("{name} is tested"));
        let found = until(runtime, interrupted, town.test(name))?;
        cx.out.progress("");
        step(&found.sentence(), cx);
        met.push(found);
    }
    for job in informed {
        if job.whom == Whom::Two {
            // Now the node chooses, and whoever chooses tries those out now and then of whom it knows little good.
            until(runtime, interrupted, town.shut_out(CHEAT))?;
            step(&format!("{CHEAT} is shut out"), cx);
        }
        done.extend(hired(&job, done.len() + 1, (runtime, interrupted), town, cx)?);
    }
    until(runtime, interrupted, town.receipts_taken(&done))?;
    step("every provider has its receipts; now a stranger checks the bytes", cx);
    let proofs = done.iter().map(|done| Proof::fetch(town.url(), done)).collect::<Result<_>>()?;
    let evidence = write_evidence(town, cx)?;
    let holds = audit::holds(&evidence, cx)?;
    let dossiers = match town.residents().next() {
        Some(buyer) => proof::dossiers(&buyer.loaded, runtime)?,
        None => proof::Dossiers::default(),
    };
    let told = show::Told {
        offers,
        met,
        applicants: town.applicants().count(),
        done,
        proofs,
        evidence_holds: holds,
        dossiers,
        nodes: evidence.len(),
        explorer: town.url().to_owned(),
        took_ms: SystemClock.now_ms().saturating_sub(began_ms),
    };
    show::show(&told, cx)?;
    Ok(Answer::of(told.ok()))
}

/// Has a job done, and tells of it.
fn hired(
    job: &Job,
    number: usize,
    (runtime, interrupted): (&Runtime, &Shutdown),
    town: &Town,
    cx: &mut Context<'_>,
) -> Result<Vec<Done>> {
    cx.out.progress(&job.wanted());
    let finished = until(runtime, interrupted, town.hire(number, *job))?;
    cx.out.progress("");
    finished.iter().for_each(|done| step(&done.sentence(), cx));
    Ok(finished)
}

/// The evidence of every node, each in a directory of its own.
fn write_evidence(town: &Town, cx: &mut Context<'_>) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for resident in town.residents() {
        let path = town.path().join("evidence").join(resident.name);
        ledger::write_evidence(&path, &resident.loaded, cx)?;
        written.push(path);
    }
    Ok(written)
}

fn keep(runtime: &Runtime, interrupted: &Shutdown, cx: &mut Context<'_>) -> Result<()> {
    if !cx.out.json() {
        cx.out.line("It keeps running. Ctrl-C ends it and removes all of it.")?;
    }
    cx.out.flush()?;
    runtime.block_on(interrupted.triggered());
    Ok(())
}

/// Waits for something, unless somebody wants to stop.
fn until<T>(
    runtime: &Runtime,
    interrupted: &Shutdown,
    wait: impl Future<Output = Result<T>>,
) -> Result<T> {
    runtime.block_on(async {
        match select(std::pin::pin!(wait), interrupted.triggered()).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => Err(Error::new(&code::DEMO_STOPPED, "the demo was interrupted")),
        }
    })
}

/// What has happened, for a person who watches.
fn step(text: &str, cx: &mut Context<'_>) {
    if !cx.out.json() {
        cx.out.remark(&format!("· {text}"));
    }
}

/// Whether an order ended as it should: paid work was checked, and what was not paid is wrong indeed.
fn is_settled(order: &order::Order) -> bool {
    matches!(order.state, order::State::Released | order::State::Withheld)
}
