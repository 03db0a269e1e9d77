//! `guild hire`

use std::io::Write;
use std::path::PathBuf;

use guild_ledger::quote::code::NOT_APPROVED;
use guild_market::sandbox_run::SCHEMA_ID;
use guild_protocol::env::{Random, Shutdown};
use guild_protocol::error::Kind;
use guild_protocol::hash::to_hex;
use guild_protocol::json;
use guild_protocol::nostr::Limits;
use guild_protocol::schema::SchemaId;
use serde_json::{Value, json};

use self::desk::{Desk, now_ms};
use self::watch::Watch;
use super::{Context, up};
use crate::config::RoutePolicy;
use crate::error::{Error, InFile, Result, code};
use crate::input::{Draft, Existing, Input};
use crate::output::Answer;
use crate::real::SystemRandom;

mod commands;
pub(super) mod desk;
mod several;
mod watch;

/// An input larger than this does not fit into a request.
const MAX_INPUT_BYTES: usize = Limits::DEFAULT.max_tag_item_bytes;
/// How often the order is looked at.
const LOOK_MS: i64 = 150;
/// How long, after the deadline, a node that does not answer is waited for.
const PATIENCE_MS: i64 = 30_000;

/// Hire somebody for a job, check what comes back, and pay for it
///
/// Through the running node, or as a node of its own for as long as it takes when none runs. The budget is set aside,
/// the request is published, the result is checked against its schema and, where that can be done, recomputed; only
/// then it is paid. Every paid or refused result gives a signed receipt.
///
/// What was made is printed, or written into a file; `guild requests result` prints it again. A node that is restarted
/// meanwhile is waited for, and nobody is hired twice.
///
/// The exit code is 0 if the result was accepted and paid, 1 if it was not or never came, 2 if the order is wrong, and
/// 3 if nobody knows yet. The order goes on at the node when this command is interrupted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What kind of work, such as oa.embedding.v1; `guild schema ls` lists them
    #[arg(
        long,
        value_name = "ID",
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    schema: Option<SchemaId>,
    /// The input: JSON, a file with it, or - for standard input
    #[arg(long, value_name = "FILE|JSON", required_unless_present = "command")]
    input: Option<String>,
    /// A command line to run in a sandbox, as oa.sandbox_run.v1; may be repeated, and added to an input
    #[arg(long, value_name = "LINE")]
    command: Vec<String>,
    /// The files that the commands work on, without .git; they travel with the request
    #[arg(long, value_name = "DIR", requires = "command")]
    tree: Option<PathBuf>,
    /// The image that they run in; `guild sandbox images` lists those of this node [default: this host's own]
    #[arg(long, value_name = "DIGEST", requires = "command")]
    image: Option<String>,
    /// The most that is paid, such as 2000msat or 5sat [default: a bid by what such work has cost; see --explain]
    #[arg(long, value_name = "AMOUNT", value_parser = budget)]
    budget: Option<i64>,
    /// How soon it is needed: more is bid for what is urgent
    #[arg(long, value_name = "URGENCY", value_enum, conflicts_with = "budget")]
    urgency: Option<Urgency>,
    /// How far whoever does it should be trusted, from 0 to 1: more is bid above 0.5
    #[arg(long, value_name = "TRUST", value_parser = trust_bp, conflicts_with = "budget")]
    target_trust: Option<u32>,
    /// How long to wait for the result, such as 30s or 10m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration_ms)]
    deadline: i64,
    /// Encrypt input and result, so that only the provider can read them
    #[arg(long)]
    private: bool,
    /// Whom: an npub, best (by the matrix; the cheapest where that knows nobody) or any (whoever delivers first)
    #[arg(long, value_name = "NPUB|best|any", default_value = "best")]
    provider: String,
    /// How the best is chosen [default: market.policy]
    #[arg(long, value_name = "POLICY", value_enum)]
    policy: Option<RoutePolicy>,
    /// How much it matters: one does it, or 2, 3 or 5 with keys of their own, for the budget together; what they say is
    /// compared, and only who gives the answer that counts is paid
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "low")]
    criticality: Level,
    /// Take fewer, if there are not as many
    #[arg(long)]
    fewer_ok: bool,
    /// Say why it is this one, or each of them, and how a bid was made
    #[arg(long)]
    explain: bool,
    /// A name of your own for the order: repeating the command with it hires nobody twice
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Write the result into this file, which must not be there yet
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Do not wait for the result
    #[arg(long, conflicts_with = "output")]
    no_wait: bool,
}

/// How much work matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    /// One does it
    Low,
    /// Two do it, and the first that passes its check wins
    Medium,
    /// Three do it, and two must say the same
    High,
    /// Five do it, and three must say the same
    Critical,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Low => "low",
            Level::Medium => "medium",
            Level::High => "high",
            Level::Critical => "critical",
        }
    }
}

/// How soon work is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Urgency {
    /// As usual
    Normal,
    /// One and a half times the bid
    Urgent,
    /// Twice the bid
    Critical,
}

/// `0.75`, in ten-thousandths.
fn trust_bp(text: &str) -> Result<u32, String> {
    let wanted = || "write a number from 0 to 1, such as 0.75".to_owned();
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() != 1 || !digits(whole) || rest.len() > 4 || !digits(rest) {
        return Err(wanted());
    }
    let bp: u32 = format!("{whole}{rest:0<4}").parse().map_err(|_| wanted())?;
    if bp <= 10_000 { Ok(bp) } else { Err(wanted()) }
}

/// `2000msat` or `5sat`, in millisatoshi.
pub(super) fn budget(text: &str) -> Result<i64, String> {
    let wanted = || "write an amount such as 2000msat or 5sat".to_owned();
    let (number, factor) = match text.strip_suffix("msat") {
        Some(number) => (number, 1),
        None => (text.strip_suffix("sat").ok_or_else(wanted)?, 1_000),
    };
    let number: i64 = number.trim().parse().map_err(|_| wanted())?;
    number.checked_mul(factor).filter(|msat| *msat >= 0).ok_or_else(wanted)
}

/// `30s` or `10m`, in milliseconds.
pub(super) fn duration_ms(text: &str) -> Result<i64, String> {
    let wanted = || "write a time such as 30s, 10m or 2h".to_owned();
    let span: jiff::Span = text.parse().map_err(|_| wanted())?;
    let duration = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours());
    let ms = duration.map_err(|_| wanted())?.as_millis();
    i64::try_from(ms).ok().filter(|ms| *ms > 0).ok_or_else(wanted)
}

/// The input itself if it looks like JSON, otherwise a file.
fn input(text: &str) -> Result<Value> {
    if text.trim_start().starts_with('{') {
        return Ok(json::decode(text.as_bytes())?);
    }
    let file = Input::from(std::ffi::OsString::from(text));
    json::decode(&file.read(MAX_INPUT_BYTES)?).in_file(file.path())
}

/// Whether several do it: then the node chooses them, and one budget is for all of them.
fn is_for_several(args: &Args) -> Result<bool> {
    let refused = |why: &str| Err(Error::new(&guild_market::code::DELEGATION_MALFORMED, why));
    match args.criticality {
        Level::Low => Ok(false),
        _ if args.provider != "best" => {
            refused("those who do it are chosen by the node: --provider cannot be named")
        }
        _ if args.budget.is_none() => {
            refused("say how much all of them may cost together: --budget")
        }
        _ => Ok(true),
    }
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let several = is_for_several(args)?;
    let (schema_id, input) = work(args)?;
    // Now, not when all is paid.
    let draft = |path: &PathBuf| Draft::begin(path, 0o644, Existing::Keep);
    let file = args.output.as_ref().map(draft).transpose()?;
    let loaded = cx.config_in_peace()?;
    let runtime = up::node_runtime()?;
    let interrupted = Shutdown::new();
    runtime.block_on(async { up::stop_on_signal(&interrupted) })?;
    let mut desk = Desk::open(&loaded, cx.environment, &runtime)?;
    let key = args.key.clone().unwrap_or_else(made_up_key);
    let mut order = json!({
        "schema_id": schema_id,
        "input": input,
        "budget_msat": args.budget,
        "urgency": args.urgency,
        "target_trust_bp": args.target_trust,
        "time_limit_ms": args.deadline,
        "provider": args.provider,
        "private": args.private,
        "policy": args.policy,
        "idempotency_key": key,
    });
    let until_ms = now_ms().saturating_add(args.deadline);
    cx.out.progress("looking for somebody who does it …");
    if let (true, Some(members)) = (several, order.as_object_mut()) {
        for of_one in ["provider", "urgency", "target_trust_bp"] {
            members.remove(of_one);
        }
        members.insert("criticality".to_owned(), json!(args.criticality.name()));
        members.insert("fewer_ok".to_owned(), json!(args.fewer_ok));
    }
    let posted = desk.hire(&order, until_ms, &interrupted);
    cx.out.progress("");
    let told = posted.map_err(|error| can_be_repeated(error, &key)).and_then(|posted| {
        if args.explain && !cx.out.json() {
            if several { several::explain(&posted, cx) } else { explain(&posted, cx) }
        }
        match (args.no_wait, several) {
            (true, true) => return several::posted_only(&posted, cx),
            (true, false) => return posted_only(&posted, cx),
            (false, true) => {
                return several::follow(&mut desk, &posted, &interrupted, file, cx);
            }
            (false, false) => {}
        }
        follow(&mut desk, &posted, &interrupted, file, cx)
    });
    let closed = desk.close();
    let answer = told?;
    closed?;
    Ok(answer)
}

/// What is to be done: as it was written, or made of commands.
fn work(args: &Args) -> Result<(SchemaId, Value)> {
    let written = args.input.as_deref().map(input).transpose()?;
    if args.command.is_empty() {
        // Both are there, or commands would be.
        let missing = || Error::new(&code::HIRE_TREE, "there is nothing to be done");
        let schema_id = args.schema.clone().ok_or_else(missing)?;
        return Ok((schema_id, written.ok_or_else(missing)?));
    }
    let (tree, image) = (args.tree.as_deref(), args.image.as_deref());
    let input = commands::input(written, &args.command, tree, image)?;
    Ok((SCHEMA_ID.parse()?, input))
}

pub(super) fn made_up_key() -> String {
    let mut bytes = [0; 16];
    SystemRandom.fill(&mut bytes);
    to_hex(&bytes)
}

/// Nobody knows whether it was ordered, or a guardian must approve it first: the same key is the same order.
fn can_be_repeated(error: Error, key: &str) -> Error {
    let again = match error.code() {
        code if code == &NOT_APPROVED => "Have it approved, then repeat",
        code if code.kind == Kind::Unavailable => "Look at the node, then repeat",
        _ => return error,
    };
    error.help(format!("{again} the command with `--key {key}`: nobody is hired twice."))
}

/// Says why so much was bid, if that was decided here, and why the order went to whom it went.
fn explain(order: &Value, cx: &mut Context<'_>) {
    if let Some(words) = order["bid"]["words"].as_str() {
        words.lines().for_each(|line| cx.out.remark(line));
    }
    match order["choice"]["words"].as_str() {
        Some(words) => words.lines().for_each(|line| cx.out.remark(line)),
        None => cx.out.remark("nothing was chosen here: the order says whom"),
    }
}

fn posted_only(order: &Value, cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, order)?;
        return Ok(Answer::Yes);
    }
    let text = |name: &str| order[name].as_str().unwrap_or_default().to_owned();
    cx.out.fields(&[("order", &text("order_id")), ("request", &text("request_id"))])?;
    cx.out.line(&how_to_look(order))?;
    Ok(Answer::Yes)
}

fn how_to_look(order: &Value) -> String {
    let request = order["request_id"].as_str().unwrap_or_default();
    format!("`guild requests show {request}` tells what becomes of it")
}

/// Looks at the order until it is over, or the reader has seen enough.
fn follow(
    desk: &mut Desk<'_>,
    posted: &Value,
    interrupted: &Shutdown,
    file: Option<Draft>,
    cx: &mut Context<'_>,
) -> Result<Answer> {
    let order_id = posted["order_id"].as_str().unwrap_or_default().to_owned();
    let deadline_ms = posted["deadline_ms"].as_i64().unwrap_or_default();
    let mut watch = Watch::new(deadline_ms);
    let mut order = posted.clone();
    loop {
        watch.tell(&order, cx);
        if watch::is_over(&order) {
            break;
        }
        if interrupted.is_triggered() {
            let goes_on = match desk.stays() {
                true => "the order goes on at the node",
                false => "the order goes on when this node runs again: `guild up`",
            };
            cx.out.remark(&format!("{goes_on}; {}", how_to_look(&order)));
            return Ok(Answer::Open);
        }
        desk.pause(LOOK_MS);
        let patience_ms = deadline_ms.max(now_ms()).saturating_add(PATIENCE_MS);
        order = match desk.order(&order_id, patience_ms, interrupted) {
            // What was interrupted is no failure: the order is told as it was last seen.
            Err(_) if interrupted.is_triggered() => order,
            told => told?,
        };
    }
    let file = match file {
        Some(file) if watch::is_accepted(&order) => Some(write_output(file, &order)?),
        _ => None,
    };
    watch::show(&order, file.as_deref(), cx)
}

fn write_output(file: Draft, order: &Value) -> Result<PathBuf> {
    let mut text = serde_json::to_vec_pretty(&order["output"])
        .map_err(|e| Error::new(&code::IO_FAILED, e.to_string()))?;
    text.push(b'\n');
    let path = file.path().to_owned();
    file.handle()?.write_all(&text).map_err(|e| Error::io(&path, &e))?;
    file.keep()?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_times_have_units() {
        assert_eq!(budget("2000msat"), Ok(2_000));
        assert_eq!(budget("5sat"), Ok(5_000));
        assert_eq!(budget("0sat"), Ok(0));
        for bad in ["", "5", "-5sat", "5 btc", "sat", "9223372036854775807sat", "1.5sat"] {
            assert!(budget(bad).is_err(), "{bad}");
        }
        for (text, bp) in
            [("0", 0), ("1", 10_000), ("0.5", 5_000), ("0.7345", 7_345), ("1.0000", 10_000)]
        {
            assert_eq!(trust_bp(text), Ok(bp));
        }
        for bad in ["", ".5", "2", "1.0001", "0.12345", "-0.1", "0,5", "0.1.1"] {
            assert!(trust_bp(bad).is_err(), "{bad}");
        }
        assert_eq!(duration_ms("30s"), Ok(30_000));
        assert_eq!(duration_ms("2h"), Ok(7_200_000));
        for bad in ["", "30", "-1s", "0s", "soon"] {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
    }
}
