//! `guild market`

use std::collections::BTreeMap;

use guild_market::discovery::Follower;
use guild_protocol::env::Clock;
use guild_roles::discovery::{self, Entry, Registry};
use guild_roles::router::TaskType;
use guild_store::Store;
use serde::Serialize;

use super::Context;
use super::reading::{short, time};
use super::table::{self, Column};
use crate::config::Loaded;
use crate::error::Result;
use crate::node;
use crate::output::Answer;
use crate::real::{SystemClock, runtime};

/// How often the archive is looked at, if nobody says.
const EVERY_MS: u32 = 1_000;
/// So much of a name fits into a table.
const NAME_MAX_CHARS: usize = 24;
/// So many kinds of work of one offer fit.
const WORK_MAX: usize = 4;

/// Look at the market as it is now
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Watch(WatchArgs),
}

/// Show providers as they appear, come and go
///
/// Reads what the node of this data directory knows, beside it, until Ctrl-C. On a terminal the table is drawn anew
/// when something has changed; elsewhere each change is a line. With --json each offer is an object on a line, again
/// when it has changed.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchArgs {
    /// Only who may be able to do this work, the surest first: the id of a schema, a kind, or a word
    #[arg(long, value_name = "TASK")]
    task: Option<TaskType>,
    /// Only who is live
    #[arg(long)]
    live: bool,
    /// Show what is there now, and end
    #[arg(long)]
    once: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// How often to look, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = EVERY_MS, value_parser = clap::value_parser!(u32).range(100..))]
    every_ms: u32,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Watch(args) => watch(args, cx),
    }
}

/// An offer as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Shown {
    npub: String,
    d: String,
    /// With the beginning of the key if others look the same.
    shown: String,
    name: Option<String>,
    work: Vec<String>,
    disputed: Vec<String>,
    live: bool,
    state: &'static str,
    flapping: bool,
    versions: u32,
    relays: Vec<String>,
    origin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    score_bp: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    seen_ms: i64,
}

fn watch(args: &WatchArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let service = node::open_read_only(&loaded)?;
    let watched =
        runtime().and_then(|runtime| runtime.block_on(look(args, &loaded, &service.handle(), cx)));
    service.close();
    watched
}

async fn look(
    args: &WatchArgs,
    loaded: &Loaded,
    store: &Store,
    cx: &mut Context<'_>,
) -> Result<Answer> {
    let options = node::discovery_options(loaded);
    let mut follower: Follower = discovery::read(store, options, SystemClock.now_ms()).await?;
    let mut before: BTreeMap<(String, String), Shown> = BTreeMap::new();
    let mut is_first = true;
    loop {
        let now = offers(args, follower.registry(), SystemClock.now_ms());
        let changed: Vec<&Shown> =
            now.iter().filter(|one| is_other(before.get(&name(one)), one)).collect();
        let gone = before.keys().filter(|name| !now.iter().any(|one| self::name(one) == **name));
        let gone: Vec<(String, String)> = gone.cloned().collect();
        if is_first || !changed.is_empty() || !gone.is_empty() {
            show(args, &now, &changed, &gone, is_first, cx)?;
            cx.out.flush()?;
        }
        if args.once || cx.out.is_closed() {
            return Ok(Answer::of(!args.once || !now.is_empty()));
        }
        before = now.into_iter().map(|one| (name(&one), one)).collect();
        is_first = false;
        SystemClock.sleep(i64::from(args.every_ms)).await;
        discovery::refresh(store, &mut follower, SystemClock.now_ms()).await?;
    }
}

fn name(one: &Shown) -> (String, String) {
    (one.npub.clone(), one.d.clone())
}

/// Whether something has changed but the time at which it was seen.
fn is_other(before: Option<&Shown>, now: &Shown) -> bool {
    before.is_none_or(|before| Shown { seen_ms: now.seen_ms, ..before.clone() } != *now)
}

fn offers(args: &WatchArgs, registry: &Registry, now_ms: i64) -> Vec<Shown> {
    let limit = usize::from(args.limit);
    if let Some(task) = &args.task {
        let task = task.as_str();
        let wanted = discovery::Wanted { task, live_only: args.live, least_bp: 0, limit };
        let found = registry.find(&wanted, now_ms);
        let shown = |one: &discovery::Match| {
            let entry = registry.get(&one.provider, &one.d)?;
            let (score_bp, why) = (Some(one.score_bp), Some(one.how.to_string()));
            Some(Shown { score_bp, why, ..shown(registry, entry, now_ms) })
        };
        return found.iter().filter_map(shown).collect();
    }
    let mut all: Vec<&Entry> =
        registry.iter().filter(|entry| entry.life.is_live || !args.live).collect();
    all.sort_by_key(|entry| {
        (entry.state, std::cmp::Reverse((entry.life.is_live, entry.seen_ms)), entry.card.seq)
    });
    all.truncate(limit);
    all.into_iter().map(|entry| shown(registry, entry, now_ms)).collect()
}

fn shown(registry: &Registry, entry: &Entry, now_ms: i64) -> Shown {
    let card = &entry.card;
    let claims = |disputed: bool| {
        let of = move |standing| (standing == discovery::Standing::Disputed) == disputed;
        let those = card.claims.iter().filter(move |(_, standing)| of(*standing));
        those.map(|(claim, _)| claim.to_string()).collect::<Vec<_>>()
    };
    Shown {
        npub: card.provider.npub(),
        d: card.d.to_string(),
        shown: registry.shown(card),
        name: card.name.as_deref().map(str::to_owned),
        work: claims(false),
        disputed: claims(true),
        live: entry.life.is_live,
        state: entry.state.name(),
        flapping: entry.is_flapping(registry.options(), now_ms),
        versions: entry.versions,
        relays: card.relays.iter().map(|url| url.to_string()).collect(),
        origin: card.origin.to_string(),
        score_bp: None,
        why: None,
        seen_ms: entry.seen_ms,
    }
}

fn show(
    args: &WatchArgs,
    now: &[Shown],
    changed: &[&Shown],
    gone: &[(String, String)],
    is_first: bool,
    cx: &mut Context<'_>,
) -> Result<()> {
    if cx.out.json() {
        for one in changed {
            cx.out.object(true, one)?;
        }
        for (npub, d) in gone {
            cx.out.object(true, serde_json::json!({ "npub": npub, "d": d, "state": "gone" }))?;
        }
        return Ok(());
    }
    if cx.out.is_terminal() && !args.once {
        cx.out.clear()?;
    } else if !is_first {
        for one in changed {
            let state = if one.live { "live" } else { one.state };
            cx.out.line(&format!("{} {:?} {state} {}", one.npub, one.shown, work(one)))?;
        }
        for (npub, d) in gone {
            cx.out.line(&format!("{npub} {d:?} gone"))?;
        }
        return Ok(());
    }
    if now.is_empty() {
        cx.out.line("no provider; `guild relay ls` shows where they are looked for")?;
        return Ok(());
    }
    let columns = [
        Column::Left("provider"),
        Column::Left("offer"),
        Column::Left("name"),
        Column::Left("work"),
        Column::Left("live"),
        Column::Left("state"),
        Column::Left("seen"),
        Column::Left("relays"),
        Column::Left(if args.task.is_some() { "why" } else { "" }),
    ];
    let rows: Vec<_> = now.iter().map(row).collect();
    table::print(columns, &rows, cx.out)
}

fn row(one: &Shown) -> [String; 9] {
    let name: String =
        one.name.as_deref().unwrap_or_default().chars().take(NAME_MAX_CHARS).collect();
    let state = if one.flapping { "flapping" } else { one.state };
    let relays = match one.relays.len() {
        0 => one.origin.clone(),
        1 => one.relays.concat(),
        more => format!("{} and {} more", one.relays.first().map_or("", |url| url), more - 1),
    };
    let why = match (one.score_bp, &one.why) {
        (Some(bp), Some(why)) => format!("{}.{:02} {why}", bp / 10_000, bp % 10_000 / 100),
        _ => String::new(),
    };
    [
        short(&one.npub),
        one.shown.chars().take(32).collect(),
        name,
        work(one),
        if one.live { "yes" } else { "no" }.to_owned(),
        state.to_owned(),
        time(one.seen_ms),
        relays,
        why,
    ]
}

/// What it offers, in short; what it disputes itself has a question mark.
fn work(one: &Shown) -> String {
    let doubtful = one.disputed.iter().map(|claim| format!("{claim}?"));
    let all: Vec<String> = one.work.iter().cloned().chain(doubtful).collect();
    match all.len() {
        0..=WORK_MAX => all.join(" "),
        more => format!(
            "{} +{}",
            all.iter().take(WORK_MAX).cloned().collect::<Vec<_>>().join(" "),
            more - WORK_MAX
        ),
    }
}
