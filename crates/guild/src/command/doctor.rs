//! `guild doctor`

use serde::Serialize;

use super::Context;
use crate::error::Result;
use crate::output::Answer;

mod content;
mod isolation;
mod market;
mod node;
mod program;

/// Say what this host can and cannot do
///
/// Changes nothing, and leaves nothing: the sandbox that it tries is gone. The exit code is 1 if something is missing
/// without which a node cannot run. With --market, say instead what is wrong with what others announce: what was
/// refused and why, who contradicts itself, looks like somebody else, comes and goes, or announces too much, and which
/// relays lie.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Look at the announcements of others instead
    #[arg(long)]
    market: bool,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// It works, with less than it could have.
    Weaker,
    Missing,
}

/// What was looked at and found.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    /// Whether a node cannot run without it.
    required: bool,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, required: false, found: found.into(), advice: None }
    }

    fn weaker(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        let advice = Some(advice.into());
        Check { status: Status::Weaker, advice, ..Check::ok(name, found) }
    }

    fn missing(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { status: Status::Missing, ..Check::weaker(name, found, advice) }
    }

    fn required(self) -> Check {
        Check { required: true, ..self }
    }

    fn fails(&self) -> bool {
        self.required && self.status == Status::Missing
    }
}

/// Checks of one kind.
#[derive(Debug, Serialize)]
struct Group {
    name: &'static str,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct Body {
    groups: Vec<Group>,
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    if args.market {
        return market::run(&loaded, cx);
    }
    let mut own = node::checks(&loaded);
    own.push(content::check(&loaded));
    let groups = vec![
        Group { name: "This node", checks: own },
        Group {
            name: "Isolation of strangers' code",
            checks: isolation::checks(&loaded.config, cx.environment),
        },
        Group { name: "Programs it can use", checks: program::checks(cx.environment) },
    ];
    let failing = groups.iter().flat_map(|group| &group.checks).filter(|check| check.fails());
    let failing = failing.count();
    if cx.out.json() {
        cx.out.object(failing == 0, Body { groups })?;
    } else {
        for group in &groups {
            print(group, cx)?;
        }
        cx.out.line(match failing {
            0 => "A node can run here.",
            _ => "A node cannot run here until the required things above are there.",
        })?;
    }
    Ok(Answer::of(failing == 0))
}

fn print(group: &Group, cx: &mut Context<'_>) -> Result<()> {
    let width = group.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    cx.out.line(group.name)?;
    for check in &group.checks {
        let status = match check.status {
            Status::Ok => "ok",
            Status::Weaker => "weaker",
            Status::Missing => "missing",
        };
        let mark = if check.fails() { "!" } else { " " };
        let Check { name, found, .. } = check;
        cx.out.line(&format!("{mark} {status:7}  {name:width$}  {found}"))?;
        if let Some(advice) = &check.advice {
            cx.out.line(&format!("  {:7}  {:width$}  -> {advice}", "", ""))?;
        }
    }
    cx.out.line("")
}
