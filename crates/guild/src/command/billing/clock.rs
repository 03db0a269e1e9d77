//! `guild billing clock`

use std::io::{IsTerminal, stdin};

use guild_hosting::api::ClockView;
use guild_hosting::meter;
use guild_protocol::env::Clock;
use serde_json::{Value, json};

use super::super::{Context, hosted};
use crate::client::write_through;
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::host::Host;
use crate::node::{self, NodeFile};
use crate::output::{Answer, Output};
use crate::real::{SystemClock, runtime};

/// Show what the meter makes of the clock, and say that it is right
///
/// If the clock runs back or jumps, no minute is metered, and sandboxes end when what is paid is over. A jump ahead is
/// believed when it is seen twice; a step back only when the clock has caught up, or with --accept. Works through the
/// node that runs on the data directory, and when none runs. The exit code is 0 if minutes are metered, and 1 if not.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The present time is right: go on from here
    #[arg(long)]
    accept: bool,
    /// Do not ask
    #[arg(long, requires = "accept")]
    yes: bool,
}

pub(super) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    node::require_database(&node::store_options(&loaded))?;
    let seen = look(&loaded)?;
    let accept = args.accept && seen["steady"] != true;
    if !accept {
        return show(&seen, false, cx);
    }
    if !args.yes {
        confirm(&seen, cx.out)?;
    }
    let seen = write_through(
        &loaded,
        |client| client.accept_clock(),
        |parts, runtime| value(&runtime.block_on(parts.accept_clock())?),
    )?;
    show(&seen, true, cx)
}

fn look(loaded: &Loaded) -> Result<Value> {
    if let Some(node) = NodeFile::of_running(&loaded.config.data_dir)? {
        return Host::operator(&node.url, &node.token)?.get("/v1/operator/clock");
    }
    let service = node::open_read_only(loaded)?;
    let seen = runtime().map(|runtime| runtime.block_on(service.handle().read(meter::seen)));
    service.close();
    value(&ClockView::of(seen??.as_ref(), SystemClock.now_ms()))
}

fn value(view: &ClockView) -> Result<Value> {
    serde_json::to_value(view).map_err(|e| Error::new(&code::IO_FAILED, e.to_string()))
}

fn confirm(seen: &Value, out: &mut Output) -> Result<()> {
    let refused = |message| Err(Error::new(&code::USAGE, message));
    if !stdin().is_terminal() {
        return refused("there is nobody to ask; say --yes if the present time is right");
    }
    out.remark(&format!("the clock {}; the time is now {}", step(seen), moment(&seen["now_ms"])));
    out.remark("is the present time right? Type yes to go on from here");
    let mut line = String::new();
    stdin().read_line(&mut line).map_err(|e| Error::new(&code::IO_FAILED, e.to_string()))?;
    if line.trim() == "yes" { Ok(()) } else { refused("nothing was changed") }
}

fn step(seen: &Value) -> String {
    let by = hosted::span(seen["by_ms"].as_i64().unwrap_or(0));
    match seen["sight"].as_str() {
        Some("back") => format!("ran back by {by}"),
        Some("jumped") => format!("jumped ahead by {by}"),
        Some("never") => "was never looked at by the meter".to_owned(),
        _ => "is steady".to_owned(),
    }
}

fn moment(at_ms: &Value) -> String {
    let at = at_ms.as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "-".to_owned(), |at| format!("{at:.3}"))
}

fn show(seen: &Value, accepted: bool, cx: &mut Context<'_>) -> Result<Answer> {
    let steady = seen["steady"] == true;
    if cx.out.json() {
        cx.out.object(steady, json!({ "accepted": accepted, "clock": seen }))?;
        return Ok(Answer::of(steady));
    }
    let steps = format!("{} back, {} ahead", seen["backs"], seen["jumps"]);
    cx.out.fields(&[
        ("clock", &step(seen)),
        ("now", &moment(&seen["now_ms"])),
        ("metered until", &moment(&seen["last_ms"])),
        ("steps seen", &steps),
    ])?;
    if accepted {
        cx.out.remark("accepted: the meter goes on from here");
    } else if !steady {
        cx.out.remark(
            "no minute is metered; if the present time is right: guild billing clock --accept",
        );
    }
    Ok(Answer::of(steady))
}
