//! `guild doctor --market`

use guild_protocol::env::Clock;
use guild_roles::discovery::{self, Entry, Health, Registry};
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
#[derive(Serialize)]
struct Liar {
    url: String,
    hostile: u64,
    unasked: u64,
    malformed: u64,
    oversized: u64,
    bans: u64,
}

#[derive(Serialize)]
struct Body {
    offers: Offers,
    #[serde(flatten)]
    health: Health,
    remarkable: Vec<Remarkable>,
    /// None if no node runs here: only a running one knows its relays.
    relays: Option<Vec<Liar>>,
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
            Ok::<_, guild_roles::Error>((follower, health))
        })
    });
    service.close();
    let (follower, health) = read??;
    let now_ms = SystemClock.now_ms();
    let body = Body {
        offers: offers(follower.registry(), now_ms),
        health,
        remarkable: remarkable(follower.registry(), now_ms),
        relays: liars(loaded)?,
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

/// The relays that sent what they must not, if a node runs that knows them.
fn liars(loaded: &Loaded) -> Result<Option<Vec<Liar>>> {
    let Some(node) = NodeFile::of_running(&loaded.config.data_dir)? else { return Ok(None) };
    let told = Client::new(&node).relays()?;
    let relays = told["relays"].as_array().into_iter().flatten();
    let liar = |relay: &Value| {
        let count = |name: &str| relay["counts"][name].as_u64().unwrap_or(0);
        Liar {
            url: relay["url"].as_str().unwrap_or("?").to_owned(),
            hostile: count("hostile"),
            unasked: count("unasked"),
            malformed: count("malformed"),
            oversized: count("oversized"),
            bans: count("bans"),
        }
    };
    let lies =
        |liar: &Liar| liar.hostile + liar.unasked + liar.malformed + liar.oversized + liar.bans > 0;
    Ok(Some(relays.map(liar).filter(lies).collect()))
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
    let counts = body.health.counts.iter();
    let rows: Vec<_> =
        counts.map(|one| [words(&one.what), one.count.to_string(), time(one.last_ms)]).collect();
    if rows.is_empty() {
        cx.out.line("No announcement was refused.")?;
    } else {
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
    match &body.relays {
        None => cx.out.remark("no node runs here; a running one also tells which relays lie"),
        Some(liars) => {
            for Liar { url, hostile, unasked, malformed, oversized, bans } in liars {
                cx.out.line(&format!(
                    "{url} lies: {hostile} forged, {unasked} not asked for, {malformed} malformed, {oversized} too \
                     large, {bans} bans"
                ))?;
            }
        }
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
