//! Sandboxes that are bought at a node: `guild sandbox create|ls|show|exec|extend|resize|stop|destroy`.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use guild_protocol::env::Clock;
use serde_json::{Value, json};

use super::super::Context;
use super::super::hosted::{self, Amount, Span, word};
use super::super::table::Column;
use crate::error::{Error, Result, code};
use crate::host::Host;
use crate::output::Answer;
use crate::real::{SystemClock, runtime};

const POLL_MS: i64 = 100;

/// Buy a sandbox in a job
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// The job that pays
    job_id: String,
    /// Its image, by version
    #[arg(long, default_value = "sandbox-base:v1.0.0")]
    image: String,
    /// Thousandths of a processor
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    cpu_milli: u32,
    /// Memory
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    ram_mib: u32,
    /// Disk
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    disk_mib: u32,
    /// What it may spend [default: what the job has left]
    #[arg(long, value_name = "AMOUNT")]
    budget: Option<Amount>,
    /// For how long [default: as long as the job]
    #[arg(long, value_name = "TIME")]
    ttl: Option<Span>,
    /// End it after so long without use
    #[arg(long, value_name = "TIME")]
    idle: Option<Span>,
    /// Do not wait until it runs
    #[arg(long)]
    no_wait: bool,
}

/// List your sandboxes, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Only those of this job
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=hosted::LIST_MAX))]
    limit: u32,
}

/// A sandbox by its id
#[derive(Debug, clap::Args)]
pub(crate) struct IdArgs {
    /// The sandbox
    sandbox_id: String,
}

/// Run a command in a sandbox
///
/// What it prints goes to standard output and errors. The exit code is 0 if the command exited with 0, and 1 if not.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// The sandbox
    sandbox_id: String,
    /// Set a variable; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    env: Vec<super::Pair>,
    /// Where it starts
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// End it after so long
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// Give it standard input
    #[arg(long)]
    stdin: bool,
    /// A secret that it needs, as a variable of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    secret: Vec<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Give a sandbox more money or time
#[derive(Debug, clap::Args)]
pub(crate) struct ExtendArgs {
    /// The sandbox
    sandbox_id: String,
    /// What may be spent in all
    #[arg(long, value_name = "AMOUNT")]
    budget: Option<Amount>,
    /// How long it shall last from now on
    #[arg(long, value_name = "TIME")]
    ttl: Option<Span>,
    /// End it after so long without use
    #[arg(long, value_name = "TIME")]
    idle: Option<Span>,
}

/// Give a sandbox another shape, from the next minute on
#[derive(Debug, clap::Args)]
pub(crate) struct ResizeArgs {
    /// The sandbox
    sandbox_id: String,
    /// Thousandths of a processor
    #[arg(long, value_name = "N")]
    cpu_milli: Option<u32>,
    /// Memory
    #[arg(long, value_name = "MIB")]
    ram_mib: Option<u32>,
}

pub(super) fn host(cx: &Context<'_>) -> Result<Host> {
    Host::of(&cx.config()?)
}

pub(super) fn create(args: &CreateArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let host = host(cx)?;
    let body = hosted::without_nulls(json!({
        "image": args.image,
        "cpu_milli": args.cpu_milli,
        "ram_mib": args.ram_mib,
        "disk_mib": args.disk_mib,
        "max_spend_micro_usd": args.budget.map(Amount::micro_usd),
        "ttl_s": args.ttl.map(Span::seconds),
        "idle_timeout_s": args.idle.map(Span::seconds),
    }));
    let path = format!("/v1/jobs/{}/sandboxes", word(&args.job_id)?);
    hosted::remark_price(&host, (args.cpu_milli.into(), args.ram_mib.into()), cx.out)?;
    let mut sandbox = host.post(&path, &body)?;
    if !args.no_wait {
        let id = hosted::text(&sandbox, "sandbox_id");
        let runtime = runtime()?;
        while sandbox["status"] == "starting" {
            cx.out.progress(&format!("{id} is starting"));
            runtime.block_on(SystemClock.sleep(POLL_MS));
            let grants = sandbox["granted"].take();
            sandbox = host.get(&format!("/v1/sandboxes/{}", word(&id)?))?;
            sandbox["granted"] = grants;
        }
    }
    // What was not asked for cannot be less than asked for.
    for (field, asked) in
        [("max_spend_micro_usd", args.budget.is_some()), ("expires_ms", args.ttl.is_some())]
    {
        if let (false, Some(grants)) = (asked, sandbox["granted"].as_object_mut()) {
            grants.remove(field);
        }
    }
    let runs = matches!(sandbox["status"].as_str(), Some("running" | "starting"));
    one(&sandbox, runs, cx)
}

pub(super) fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let path = match &args.job {
        Some(job_id) => format!("/v1/jobs/{}/sandboxes", word(job_id)?),
        None => "/v1/sandboxes".to_owned(),
    };
    let page = hosted::newest(&host(cx)?, &path, "sandboxes", args.limit)?;
    let columns = [
        Column::Left("sandbox"),
        Column::Left("status"),
        Column::Right("a minute"),
        Column::Right("spent"),
        Column::Right("of"),
        Column::Right("time left"),
    ];
    let row = |sandbox: &Value| {
        let status = match sandbox["stop_reason"].as_str() {
            Some(reason) => format!("{} ({reason})", hosted::text(sandbox, "status")),
            None => hosted::text(sandbox, "status"),
        };
        [
            hosted::text(sandbox, "sandbox_id"),
            status,
            hosted::usd(sandbox, "burn_micro_usd_per_minute"),
            hosted::usd(sandbox, "spent_micro_usd"),
            hosted::usd(sandbox, "max_spend_micro_usd"),
            hosted::lasts(sandbox),
        ]
    };
    let answer = hosted::list(&page, "sandboxes", columns, row, cx)?;
    hosted::remark_more(&page, cx.out);
    Ok(answer)
}

pub(super) fn show(args: &IdArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let path = format!("/v1/sandboxes/{}", word(&args.sandbox_id)?);
    one(&host(cx)?.get(&path)?, true, cx)
}

/// Stop, destroy, pause or resume.
pub(super) fn act(args: &IdArgs, what: &str, cx: &mut Context<'_>) -> Result<Answer> {
    let path = format!("/v1/sandboxes/{}/{what}", word(&args.sandbox_id)?);
    one(&host(cx)?.post(&path, &json!({}))?, true, cx)
}

pub(super) fn extend(args: &ExtendArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let host = host(cx)?;
    let path = format!("/v1/sandboxes/{}", word(&args.sandbox_id)?);
    let body = hosted::extension(&host.get(&path)?, args.budget, args.ttl, args.idle);
    one(&host.post(&format!("{path}/extend"), &body)?, true, cx)
}

pub(super) fn resize(args: &ResizeArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let host = host(cx)?;
    let path = format!("/v1/sandboxes/{}", word(&args.sandbox_id)?);
    let present = host.get(&path)?;
    let or = |wanted: Option<u32>, field: &str| {
        wanted.map_or(present[field].as_i64().unwrap_or(0), i64::from)
    };
    let shape = (or(args.cpu_milli, "cpu_milli"), or(args.ram_mib, "ram_mib"));
    hosted::remark_price(&host, shape, cx.out)?;
    let body = hosted::without_nulls(json!({
        "version": present["version"],
        "cpu_milli": args.cpu_milli,
        "ram_mib": args.ram_mib,
    }));
    one(&host.post(&format!("{path}/resize"), &body)?, true, cx)
}

fn one(sandbox: &Value, ok: bool, cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(ok, sandbox)?;
        return Ok(Answer::of(ok));
    }
    let spent = format!(
        "{} of {}",
        hosted::usd(sandbox, "spent_micro_usd"),
        hosted::usd(sandbox, "max_spend_micro_usd")
    );
    cx.out.fields(&[
        ("sandbox", &hosted::text(sandbox, "sandbox_id")),
        ("status", &hosted::text(sandbox, "status")),
        ("spent", &spent),
        ("burns", &hosted::burn(sandbox)),
        ("time left", &hosted::lasts(sandbox)),
    ])?;
    if let Some(reason) = sandbox["stop_reason"].as_str() {
        let words = sandbox["words"].as_str().unwrap_or_default();
        cx.out.fields(&[("ended by", &format!("{reason} {words}"))])?;
    }
    hosted::remark_grants(sandbox, cx.out);
    Ok(Answer::of(ok))
}

pub(super) fn exec(args: &ExecArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let host = host(cx)?;
    let path = format!("/v1/sandboxes/{}/exec", word(&args.sandbox_id)?);
    let env: serde_json::Map<String, Value> =
        args.env.iter().map(|super::Pair(name, value)| (name.clone(), json!(value))).collect();
    let body = hosted::without_nulls(json!({
        "argv": args.command,
        "env": env,
        "cwd": args.cwd,
        "timeout_ms": args.timeout.map(|span| span.seconds().saturating_mul(1_000)),
        "stdin_b64": args.stdin.then(read_stdin).transpose()?.map(|bytes| STANDARD.encode(bytes)),
        "needs_secrets": args.secret,
    }));
    let started = host.post(&path, &body)?;
    let exec_id = hosted::text(&started, "exec_id");
    let exec = Exec { sandbox_id: &args.sandbox_id, exec_id: &exec_id };
    follow(&host, &format!("{path}/{}", word(&exec_id)?), &exec, cx)
}

/// What a command reads first: all of it must fit into a request.
fn read_stdin() -> Result<Vec<u8>> {
    const MAX_BYTES: u64 = 64 * 1_024;
    let mut bytes = Vec::new();
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(bytes);
    }
    let read = stdin.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|e| Error::io(Path::new("-"), &e))?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = "standard input is larger than 64 KiB; copy it in with `guild sandbox cp`";
        return Err(Error::new(&code::IO_TOO_LARGE, message));
    }
    Ok(bytes)
}

/// A command in a sandbox.
struct Exec<'a> {
    sandbox_id: &'a str,
    exec_id: &'a str,
}

/// Prints what a command prints until it ends. A stream that breaks off is asked for again from where it broke.
fn follow(host: &Host, path: &str, exec: &Exec<'_>, cx: &mut Context<'_>) -> Result<Answer> {
    const BREAKS_MAX: u32 = 20;
    const QUIET_MS: i64 = 10_000;
    let (mut next, mut breaks) = (1, 0);
    loop {
        let began_ms = SystemClock.now_ms();
        let frames = BufReader::new(host.read(&format!("{path}?from={next}"))?);
        for line in frames.lines() {
            let Ok(line) = line else { break };
            let frame: Value = serde_json::from_str(&line)
                .map_err(|_| Error::new(&code::NODE_UNREACHABLE, "a frame is not understood"))?;
            if let Some(seq) = frame["seq"].as_u64() {
                next = seq + 1;
                breaks = 0;
            }
            let data = STANDARD.decode(frame["data_b64"].as_str().unwrap_or_default());
            let data = data.unwrap_or_default();
            match frame["stream"].as_str() {
                Some("stdout") if !cx.out.json() => {
                    // Whoever reads it waits for it.
                    cx.out.raw(&data)?;
                    cx.out.flush()?;
                }
                // Whoever closed it does not want to see it.
                Some("stderr") if !cx.out.json() => drop(std::io::stderr().write_all(&data)),
                Some("exit") => return ended(&frame, host, exec, cx),
                Some("gap") => cx.out.remark("some of what it printed came too late and is lost"),
                _ => {}
            }
        }
        // A command that says nothing for long is no reason to give up: the node ends a quiet stream.
        breaks = if SystemClock.now_ms() - began_ms >= QUIET_MS { 0 } else { breaks + 1 };
        if breaks > BREAKS_MAX {
            let message = format!("what {} prints cannot be read any more", exec.exec_id);
            return Err(Error::new(&code::NODE_UNREACHABLE, message));
        }
        runtime()?.block_on(SystemClock.sleep(POLL_MS));
    }
}

fn ended(frame: &Value, host: &Host, exec: &Exec<'_>, cx: &mut Context<'_>) -> Result<Answer> {
    let yes = frame["exit_code"] == 0;
    cx.out.flush()?;
    let sandbox = hosted::remark_pace(host, exec.sandbox_id, cx.out).unwrap_or_default();
    if cx.out.json() {
        let body = json!({
            "exec_id": exec.exec_id,
            "burn_micro_usd_per_minute": sandbox["burn_micro_usd_per_minute"],
            "lasts_ms": sandbox["lasts_ms"],
            "exit_code": frame["exit_code"],
            "signal": frame["signal"],
            "class": frame["class"],
            "truncated": frame["truncated"] == true,
        });
        cx.out.object(yes, body)?;
    } else if !yes {
        let class = frame["class"].as_str().unwrap_or("unknown");
        let how = match (frame["exit_code"].as_i64(), frame["signal"].as_i64()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no exit code".to_owned(),
        };
        cx.out.remark(&format!("it ended with {how} ({class})"));
    }
    Ok(Answer::of(yes))
}
