//! `guild providers meet`

use guild_market::benchmark::Benchmark;
use guild_protocol::env::Shutdown;
use guild_protocol::identity::PublicKey;
use guild_roles::code::UNHEARD;
use guild_roles::router::TaskType;
use serde_json::{Value, json};

use crate::command::hire::desk::{Desk, now_ms};
use crate::command::hire::{budget, made_up_key};
use crate::command::reading::time;
use crate::command::table::{self, Column};
use crate::command::{Context, up};
use crate::error::Result;
use crate::output::Answer;

/// How often the meeting is looked at.
const LOOK_MS: i64 = 200;
/// How long a node that does not answer is waited for.
const PATIENCE_MS: i64 = 30_000;
/// A node that has just started has yet to hear from its relays who offers work.
const HEARING_MS: i64 = 10_000;

/// Get to know a provider: ask it to do benchmarks, judge the results, and decide whether it is hired
///
/// Through the running node, or as a node of its own for as long as it takes when none runs. Each trial is a request
/// of its own with tests that the provider does not see; three to five of them decide. What comes of it is in the
/// routing matrix: `guild route explain` shows it.
///
/// The exit code is 0 if it is hired from now on, 1 if it is not, 2 if it cannot be met, and 3 if nobody knows yet. The
/// meeting goes on at the node when this command is interrupted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its key, as npub or in hex digits
    key: PublicKey,
    /// By which benchmark; `guild benchmark ls` lists them [default: the one for the task, or std-v3]
    #[arg(long, value_name = "NAME", value_parser = benchmark)]
    suite: Option<Benchmark>,
    /// For which work it is hired if it passes [default: that of the benchmark]
    #[arg(long, value_name = "TASK")]
    task: Option<TaskType>,
    /// Encrypt what is asked and answered, so that only the provider can read it
    #[arg(long)]
    encrypted: bool,
    /// The most that is paid for a trial, such as 1000msat [default: no bid]
    #[arg(long, value_name = "AMOUNT", value_parser = budget)]
    bid: Option<i64>,
    /// A name of your own for the meeting: repeating the command with it asks nobody twice
    #[arg(long = "id", value_name = "NAME")]
    name: Option<String>,
    /// Do not wait for the end
    #[arg(long)]
    no_wait: bool,
}

pub(in crate::command) fn benchmark(name: &str) -> Result<Benchmark, String> {
    Benchmark::named(name).map_err(|error| error.to_string())
}

pub(super) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config_in_peace()?;
    let runtime = up::node_runtime()?;
    let interrupted = Shutdown::new();
    runtime.block_on(async { up::stop_on_signal(&interrupted) })?;
    let mut desk = Desk::open(&loaded, cx.environment, &runtime)?;
    let wish = json!({
        "provider": args.key.npub(),
        "task": args.task,
        "benchmark": args.suite.map(Benchmark::name),
        "encrypted": args.encrypted,
        "bid_msat": args.bid,
        "idempotency_key": args.name.clone().unwrap_or_else(made_up_key),
    });
    let told = begin(&mut desk, &wish, &interrupted, cx).and_then(|begun| {
        if args.no_wait {
            return begun_only(&begun, cx);
        }
        follow(&mut desk, begun, &interrupted, cx)
    });
    let closed = desk.close();
    let answer = told?;
    closed?;
    Ok(answer)
}

/// Begins it. A node of our own first waits until it has heard of the provider.
fn begin(
    desk: &mut Desk<'_>,
    wish: &Value,
    interrupted: &Shutdown,
    cx: &mut Context<'_>,
) -> Result<Value> {
    let hearing_ms = now_ms().saturating_add(HEARING_MS);
    cx.out.progress("looking for it …");
    let begun = loop {
        let until_ms = now_ms().saturating_add(PATIENCE_MS);
        let told = desk.ask(until_ms, interrupted, |client| client.meet(wish));
        let waits = now_ms() < hearing_ms && !desk.stays() && !interrupted.is_triggered();
        match told {
            Err(error) if error.code() == &UNHEARD && waits => desk.pause(LOOK_MS),
            told => break told,
        }
    };
    cx.out.progress("");
    begun
}

fn begun_only(meeting: &Value, cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, meeting)?;
    } else {
        cx.out.fields(&[
            ("meeting", text(meeting, "meeting_id")),
            ("state", text(meeting, "state")),
        ])?;
    }
    Ok(Answer::Yes)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Looks at it until it is over, or the reader has seen enough.
fn follow(
    desk: &mut Desk<'_>,
    begun: Value,
    interrupted: &Shutdown,
    cx: &mut Context<'_>,
) -> Result<Answer> {
    let meeting_id = text(&begun, "meeting_id").to_owned();
    let mut told = 0;
    let mut meeting = begun;
    loop {
        let lines = story(&meeting);
        for line in lines.iter().skip(told) {
            cx.out.remark(line);
        }
        told = told.max(lines.len());
        if text(&meeting, "state") == "ended" {
            return show(&meeting, cx);
        }
        if interrupted.is_triggered() {
            let goes_on = match desk.stays() {
                true => "the meeting goes on at the node",
                false => "the meeting goes on when this node runs again: `guild up`",
            };
            cx.out.remark(goes_on);
            return Ok(Answer::Open);
        }
        cx.out.progress(&now(&meeting));
        desk.pause(LOOK_MS);
        let until_ms = now_ms().saturating_add(PATIENCE_MS);
        let looked = desk.ask(until_ms, interrupted, |client| client.meeting(&meeting_id));
        cx.out.progress("");
        meeting = match looked {
            // What was interrupted is no failure: it is told as it was last seen.
            Err(_) if interrupted.is_triggered() => meeting,
            looked => looked?,
        };
    }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What has happened so far, a line for each thing; a line that was told never changes.
fn story(meeting: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for trial in list(meeting, "trials") {
        let number = &trial["number"];
        lines.push(format!("trial {number}: asked, {}", text(trial, "request_id")));
        for said in list(trial, "said") {
            let words = text(said, "words");
            let words = if words.is_empty() { String::new() } else { format!(": {words}") };
            lines.push(format!("trial {number}: {}{words}", text(said, "standing")));
        }
        if let Some(class) = trial["class"].as_str() {
            let (passed, total) = (&trial["passed"], &trial["total"]);
            lines.push(format!("trial {number}: {class}, {passed} of {total} tests"));
        } else if let Some(end) = trial["end"].as_str() {
            lines.push(format!("trial {number}: {end}"));
        }
    }
    lines
}

/// What is going on.
fn now(meeting: &Value) -> String {
    match list(meeting, "trials").last() {
        Some(trial) => format!("trial {}: {} …", trial["number"], text(trial, "stage")),
        None => "asking …".to_owned(),
    }
}

fn show(meeting: &Value, cx: &mut Context<'_>) -> Result<Answer> {
    let admitted = meeting["admitted"].as_bool().unwrap_or(false);
    if cx.out.json() {
        cx.out.object(admitted, meeting)?;
        return Ok(Answer::of(admitted));
    }
    let columns = [
        Column::Right("trial"),
        Column::Left("result"),
        Column::Right("tests"),
        Column::Right("time"),
        Column::Right("sent again"),
        Column::Left("words"),
    ];
    let rows: Vec<_> = list(meeting, "trials").iter().map(row).collect();
    table::print(columns, &rows, cx.out)?;
    cx.out.line("")?;
    let evaluation = &meeting["evaluation"];
    let score = match evaluation["score_bp"].as_u64() {
        Some(bp) => format!("{}.{:02}", bp / 10_000, bp % 10_000 / 100),
        None => String::new(),
    };
    let notes: Vec<&str> = list(evaluation, "notes").iter().filter_map(Value::as_str).collect();
    let not_before = match meeting["cooldown_until_ms"].as_i64() {
        Some(i64::MAX) => "never again".to_owned(),
        Some(until_ms) => format!("not before {}", time(until_ms)),
        None => String::new(),
    };
    cx.out.fields(&[
        ("provider", text(meeting, "provider")),
        ("outcome", text(meeting, "outcome")),
        ("for", text(meeting, "task")),
        ("score", &score),
        ("pace", text(evaluation, "pace")),
        ("notes", &notes.join(", ")),
        ("words", text(meeting, "words")),
        ("met again", &not_before),
        ("meeting", text(meeting, "meeting_id")),
    ])?;
    Ok(Answer::of(admitted))
}

fn row(trial: &Value) -> [String; 6] {
    let result = trial["class"].as_str().or(trial["end"].as_str()).unwrap_or("none");
    [
        trial["number"].to_string(),
        result.to_owned(),
        format!("{}/{}", trial["passed"], trial["total"]),
        trial["latency_ms"].as_i64().map(|ms| format!("{ms} ms")).unwrap_or_default(),
        trial["retries"].to_string(),
        text(trial, "words").to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_told_line_by_line() {
        let begun =
            json!({"trials": [{"number": 1, "request_id": "ab", "said": [], "stage": "waiting"}]});
        let mut told = story(&begun);
        assert_eq!(told, ["trial 1: asked, ab"]);
        assert_eq!(now(&begun), "trial 1: waiting …");
        let said = json!([{"standing": "feedback", "words": "processing"}, {"standing": "delivered", "words": null}]);
        let over = json!({"trials": [{
            "number": 1, "request_id": "ab", "said": said, "class": "PARTIAL", "passed": 9, "total": 10,
        }]});
        let more = story(&over);
        assert!(more.starts_with(&told));
        told = more;
        assert_eq!(told[3], "trial 1: PARTIAL, 9 of 10 tests");
        let silent = json!({"trials": [{"number": 1, "request_id": "ab", "end": "unresponsive"}]});
        assert_eq!(story(&silent)[1], "trial 1: unresponsive");
        assert!(benchmark("std-v9").is_err());
    }
}
