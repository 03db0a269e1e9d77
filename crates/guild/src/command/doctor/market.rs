//! `guild doctor --market`

use std::collections::BTreeMap;

use guild_network::roster::{self, Known};
use guild_protocol::env::Clock;
use guild_roles::discovery::{self, ANSWER, Counted, Entry, Health, Registry};
use serde::Serialize;
use serde_json::Value;

use super::super::Context;
use super::super::reading::time;
use super::super::table::{self, Column};
use crate::client::Client;
use crate::config::Loaded;
use crate::error::Result;
use crate::node::{self, NodeFile};
use crate::output::Answer;
use crate::real::{SystemClock, runtime};

/// So many examples of each fault are shown.
const EXAMPLES: usize = 10;

/// How many offers there are of what.
#[derive(Serialize)]
struct Offers {
    entries: usize,
    listed: usize,
    live: usize,
    quarantined: usize,
    archived: usize,
    flapping: usize,
    disputed: usize,
    collisions: usize,
}

/// An offer that is remarkable.
#[derive(Serialize)]
struct Remarkable {
    npub: String,
    d: String,
    shown: String,
    why: &'static str,
}

/// A relay that sent what it must not.
#[derive(Serialize, Clone)]
struct Liar {
    url: String,
    hostile: u64,
    unasked: u64,
    malformed: u64,
    /// Pages in which it gave fewer events than it says that it gives.
    limits: u64,
    /// More than anybody can need, so often.
    floods: u64,
    bans: u64,
}

#[derive(Serialize)]
struct Body {
    offers: Offers,
    #[serde(flatten)]
    health: Health,
    remarkable: Vec<Remarkable>,
    relays: Vec<Liar>,
    /// Whether a node runs here, which also knows those that it is connected to.
    is_running: bool,
}

/// Says what is wrong with what others announce. Nothing of it is a fault of this node, so the answer is yes.
pub(super) fn run(loaded: &Loaded, cx: &mut Context<'_>) -> Result<Answer> {
    let service = node::open_read_only(loaded)?;
    let read = runtime().map(|runtime| {
        runtime.block_on(async {
            let (store, now_ms) = (service.handle(), SystemClock.now_ms());
            let options = node::discovery_options(loaded);
            let follower = discovery::read(&store, options, now_ms).await?;
            let limit = i64::try_from(EXAMPLES).unwrap_or(i64::MAX);
            let health = store.read(move |rx| discovery::health(rx, limit)).await?;
            let known = store.read(|rx| roster::list(rx, None)).await?;
            Ok::<_, guild_roles::Error>((follower, health, known))
        })
    });
    service.close();
    let (follower, health, known) = read??;
    let now_ms = SystemClock.now_ms();
    let body = Body {
        offers: offers(follower.registry(), now_ms),
        health,
        remarkable: remarkable(follower.registry(), now_ms),
        relays: liars(&known, loaded)?,
        is_running: NodeFile::of_running(&loaded.config.data_dir)?.is_some(),
    };
    if cx.out.json() {
        cx.out.object(true, &body)?;
    } else {
        print(&body, cx)?;
    }
    Ok(Answer::Yes)
}

fn offers(registry: &Registry, now_ms: i64) -> Offers {
    let sum = registry.summary(now_ms);
    Offers {
        entries: sum.entries,
        listed: sum.listed,
        live: sum.live,
        quarantined: sum.quarantined,
        archived: sum.archived,
        flapping: sum.flapping,
        disputed: sum.disputed,
        collisions: sum.collisions,
    }
}

fn remarkable(registry: &Registry, now_ms: i64) -> Vec<Remarkable> {
    let one = |entry: &Entry, why| Remarkable {
        npub: entry.card.provider.npub(),
        d: entry.card.d.to_string(),
        shown: registry.shown(&entry.card),
        why,
    };
    let shared = registry.iter().filter(|entry| registry.is_shared(&entry.card));
    let shared = shared.map(|entry| one(entry, "looks like an offer of another key"));
    let flapping = registry.iter().filter(|entry| entry.is_flapping(registry.options(), now_ms));
    let flapping = flapping.map(|entry| one(entry, "comes and goes too often"));
    shared.take(EXAMPLES).chain(flapping.take(EXAMPLES)).collect()
}

/// The relays that sent what they must not: what was counted of every one that is known, and what a running node counts
/// of those that it is connected to.
fn liars(known: &[Known], loaded: &Loaded) -> Result<Vec<Liar>> {
    let number = |count: i64| u64::try_from(count).unwrap_or(0);
    let counted = known.iter().map(|relay| {
        let tally = &relay.tally;
        let liar = Liar {
            url: relay.relay.clone(),
            hostile: number(tally.hostile),
            unasked: number(tally.unasked),
            malformed: number(tally.malformed),
            limits: number(tally.limits),
            floods: number(tally.floods),
            bans: number(tally.bans),
        };
        (relay.relay.clone(), liar)
    });
    let mut all: BTreeMap<String, Liar> = counted.collect();
    if let Some(node) = NodeFile::of_running(&loaded.config.data_dir)? {
        let told = Client::new(&node).relays()?;
        for relay in told["relays"].as_array().into_iter().flatten() {
            let now = connected(relay);
            let liar = all.entry(now.url.clone()).or_insert_with(|| now.clone());
            // What the node counts since its start is a part of what was written, or more than that.
            liar.hostile = liar.hostile.max(now.hostile);
            liar.unasked = liar.unasked.max(now.unasked);
            liar.malformed = liar.malformed.max(now.malformed);
            liar.limits = liar.limits.max(now.limits);
            liar.bans = liar.bans.max(now.bans);
        }
    }
    let lies = |liar: &Liar| {
        let Liar { hostile, unasked, malformed, limits, floods, bans, .. } = liar;
        [hostile, unasked, malformed, limits, floods, bans].into_iter().any(|count| *count > 0)
    };
    Ok(all.into_values().filter(lies).collect())
}

/// What a running node counts of a relay since it started.
fn connected(relay: &Value) -> Liar {
    let count = |name: &str| relay["counts"][name].as_u64().unwrap_or(0);
    Liar {
        url: relay["url"].as_str().unwrap_or("?").to_owned(),
        hostile: count("hostile"),
        unasked: count("unasked"),
        malformed: count("malformed").saturating_add(count("oversized")),
        limits: count("limits"),
        floods: 0,
        bans: count("bans"),
    }
}

fn print(body: &Body, cx: &mut Context<'_>) -> Result<()> {
    let Offers { listed, live, quarantined, archived, flapping, disputed, collisions, .. } =
        body.offers;
    cx.out.fields(&[
        ("offers", &format!("{listed} listed, {live} of them live")),
        ("not seen for long", &format!("{quarantined} quarantined, {archived} archived")),
        ("flapping", &flapping.to_string()),
        ("contradict themselves", &format!("{disputed}, {} times", body.health.discrepancies)),
        ("names that collide", &collisions.to_string()),
    ])?;
    cx.out.line("")?;
    let columns =
        [Column::Left("announcements refused"), Column::Right("times"), Column::Left("last")];
    let row = |(what, one): (String, &Counted)| [what, one.count.to_string(), time(one.last_ms)];
    let is_answer = |one: &&Counted| one.what.starts_with(ANSWER);
    let counts = || body.health.counts.iter();
    let announced = counts().filter(|one| !is_answer(one));
    let rows: Vec<_> = announced.map(|one| row((words(&one.what), one))).collect();
    if rows.is_empty() {
        cx.out.line("No announcement was refused.")?;
    } else {
        table::print(columns, &rows, cx.out)?;
    }
    let code = |one: &Counted| one.what.trim_start_matches(ANSWER).to_owned();
    let rows: Vec<_> = counts().filter(is_answer).map(|one| row((code(one), one))).collect();
    if !rows.is_empty() {
        cx.out.line("")?;
        let columns =
            [Column::Left("answers refused"), Column::Right("times"), Column::Left("last")];
        table::print(columns, &rows, cx.out)?;
    }
    for one in &body.health.logged {
        let what = discrepancy(&one.what);
        cx.out.line(&format!("{} {:?}: {what} {:?}", one.npub, one.d, one.value))?;
    }
    for Remarkable { npub, shown, why, .. } in &body.remarkable {
        cx.out.line(&format!("{npub} {shown:?} {why}"))?;
    }
    for one in &body.health.loud {
        cx.out.line(&format!("{} announces too much: {} refused", one.npub, one.refused))?;
    }
    if !body.is_running {
        let more =
            "no node runs here; a running one also tells what relays that it is connected to do";
        cx.out.remark(more);
    }
    for Liar { url, hostile, unasked, malformed, limits, floods, bans } in &body.relays {
        cx.out.line(&format!(
            "{url} lies: {hostile} forged, {unasked} not asked for, {malformed} malformed, {limits} times fewer than \
             it says, {floods} floods, {bans} bans"
        ))?;
    }
    Ok(())
}

/// A reason in words; a code stays what it is.
fn words(what: &str) -> String {
    match what {
        "no_work" => "offers no work",
        "per_key" => "too many offers of one key",
        "budget" => "too many new ones by one relay in an hour",
        "full" => "the registry is full",
        code => code,
    }
    .to_owned()
}

fn discrepancy(what: &str) -> &str {
    match what {
        "only_tag" => "a tag names what supported_kinds does not,",
        "only_content" => "supported_kinds names what no tag does,",
        "unreadable" => "no kind of work can be meant by",
        "too_broad" => "this pattern fits nearly everything,",
        "too_many" => "there are more kinds of work than are read",
        other => other,
    }
}
