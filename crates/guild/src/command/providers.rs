//! `guild providers`

use guild_protocol::env::{Clock, Random};
use guild_protocol::hash::to_hex;
use guild_protocol::identity::PublicKey;
use guild_protocol::schema::SchemaId;
use guild_roles::explorer::{Belief, Offer, Provider, Recommendations, Wanted, msat};
use guild_roles::router::{Entry, Quarantine, Status, TaskType, Tier};
use serde_json::json;

use super::hire::duration_ms;
use super::reading::{self, ListArgs};
use super::table::Column;
use super::{Context, route};
use crate::client::write_through;
use crate::error::Result;
use crate::node;
use crate::output::Answer;
use crate::real::{SystemClock, SystemRandom};

mod health;
mod meet;

pub(super) use meet::benchmark as benchmark_named;

/// Look at who offers work and how far it is trusted; meet one, or shut it out
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(LsArgs),
    Show(ShowArgs),
    Health(health::Args),
    Meet(meet::Args),
    Quarantine(QuarantineArgs),
}

/// List offers, those heard last first
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Only for this kind of work
    #[arg(long, value_name = "ID")]
    schema: Option<SchemaId>,
    /// Only who has given a sign of life in the last 15 minutes
    #[arg(long)]
    live: bool,
    /// Only whom the routing matrix has with this status, such as active or quarantined
    #[arg(long, value_parser = status)]
    status: Option<Status>,
    /// Only who is in this tier: primary, secondary, tertiary or below
    #[arg(long, value_parser = tier)]
    tier: Option<Tier>,
    #[command(flatten)]
    list: ListArgs,
}

/// Show what a provider offers, and what this node knows of its work
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Its key, as npub or in hex digits
    key: PublicKey,
}

/// Do not hire a provider, for some work or for all, or hire it again
///
/// Through the running node, or directly when none runs. It is a row of the routing log, with the reason. Whoever is
/// taken back is taken back under conditions.
#[derive(Debug, clap::Args)]
pub(crate) struct QuarantineArgs {
    /// Its key, as npub or in hex digits
    key: PublicKey,
    /// Only for this work [default: all that it is known for]
    #[arg(long, value_name = "TASK")]
    task: Option<TaskType>,
    /// For how long, such as 12h or 30d [default: until it is lifted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration_ms, conflicts_with = "lift")]
    for_ms: Option<i64>,
    /// End it
    #[arg(long)]
    lift: bool,
    /// Why, in a few words
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

fn status(text: &str) -> Result<Status, String> {
    let name = text.to_uppercase().replace('-', "_");
    Status::named(&name).ok_or_else(|| {
        "write active, conditional, suspected-degraded, unresponsive, quarantined, blacklisted or archived".to_owned()
    })
}

fn tier(text: &str) -> Result<Tier, String> {
    Tier::named(text).ok_or_else(|| "write primary, secondary, tertiary or below".to_owned())
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls(args) => ls(args, cx),
        Command::Show(args) => show(args, cx),
        Command::Health(args) => health::run(args, cx),
        Command::Meet(args) => meet::run(args, cx),
        Command::Quarantine(args) => quarantine(args, cx),
    }
}

fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let page = args.list.page();
    let schema_id = args.schema.as_ref().map(ToString::to_string);
    let (live, status, tier) = (args.live, args.status, args.tier);
    let wanted = Wanted { schema_id, live, status, tier };
    let ask = |market: guild_roles::explorer::Explorer| async move {
        market.providers(page, wanted).await
    };
    let listed = reading::read(&cx.config()?, ask)?;
    let columns = [
        Column::Left("provider"),
        Column::Left("name"),
        Column::Left("work"),
        Column::Right("price"),
        Column::Right("trust"),
        Column::Left("status"),
        Column::Left("tier"),
        Column::Left("pace"),
        Column::Left("private"),
        Column::Left("heard"),
        Column::Left("live"),
    ];
    reading::list("providers", &listed, columns, row, cx)?;
    Ok(Answer::Yes)
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// A name that looks like another key's is marked: only the key tells them apart.
fn name(offer: &Offer) -> String {
    let name = offer.provider.name.as_deref().unwrap_or_default();
    let short: String = name.chars().take(24).collect();
    if offer.name_shared { format!("{short} (shared)") } else { short }
}

/// What is believed of whoever offers, for the work that it is trusted most for.
fn believed(offer: &Offer) -> [String; 4] {
    let best = offer.routing.iter().max_by_key(|stance| (stance.tier.is_some(), stance.trust_bp));
    let Some(best) = best else { return Default::default() };
    let tier = best.tier.map(|tier| tier.name().to_owned()).unwrap_or_default();
    [route::part(best.trust_bp), best.status.name().to_owned(), tier, best.pace.name().to_owned()]
}

fn row(offer: &Offer) -> [String; 11] {
    let [trust, status, tier, pace] = believed(offer);
    [
        offer.provider.npub.clone(),
        name(offer),
        offer.schema_ids.join(", "),
        offer.price_msat.map(msat).unwrap_or_default(),
        trust,
        status,
        tier,
        pace,
        yes(offer.private),
        offer.last_seen_ms.map(reading::time).unwrap_or_default(),
        yes(offer.live),
    ]
}

fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let key = args.key;
    let found = reading::read(&cx.config()?, |market| async move { market.provider(key).await })?;
    let provider = found.ok_or_else(|| reading::unknown("provider", &key.npub(), "providers"))?;
    if cx.out.json() {
        cx.out.object(true, &provider)?;
        return Ok(Answer::Yes);
    }
    print(&provider, cx)?;
    for belief in &provider.routing {
        print_belief(belief, cx)?;
    }
    Ok(Answer::Yes)
}

fn print_belief(belief: &Belief, cx: &mut Context<'_>) -> Result<()> {
    let entry = &belief.entry;
    let notes: Vec<&str> = entry.notes.iter().map(|note| note.name()).collect();
    let tier = belief.tier.map(|tier| format!(", {} tier", tier.name())).unwrap_or_default();
    let until = entry.until_ms.map(|until_ms| format!(", until {}", reading::time(until_ms)));
    let known = |value: Option<String>| value.unwrap_or_else(|| "not known".to_owned());
    let well = belief.success_rate_30d_bp;
    let well = well.map(|bp| format!(", {} % of those of 30 days done well", bp / 100));
    let (jobs, open) = (entry.jobs, entry.open_jobs);
    cx.out.line("")?;
    cx.out.fields(&[
        ("  routing", belief.task.as_str()),
        ("  status", &format!("{}{}", route::standing(entry), until.unwrap_or_default())),
        ("  trust", &format!("{}{tier}", route::part(entry.trust_bp))),
        ("  pace", entry.pace.name()),
        ("  notes", &notes.join(", ")),
        ("  jobs", &format!("{jobs}, {open} open{}", well.unwrap_or_default())),
        ("  cost", &known(belief.cost_msat.map(msat))),
        ("  time", &known(belief.latency_ms.map(|ms| format!("{ms} ms")))),
        ("  last hour", &format!("{} of {} jobs", belief.share_jobs, belief.share_of)),
        ("  verified", &reading::time(entry.last_verified_ms)),
    ])
}

fn quarantine(args: &QuarantineArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    // Where nobody is known nobody can be shut out, and nothing is made.
    node::require_database(&node::store_options(&loaded))?;
    let mut name = [0; 12];
    SystemRandom.fill(&mut name);
    let asked = Quarantine {
        provider: args.key,
        task: args.task.clone(),
        until_ms: args.for_ms.map(|for_ms| SystemClock.now_ms().saturating_add(for_ms)),
        lift: args.lift,
        reason: args.reason.clone(),
        idempotency_key: to_hex(&name),
    };
    let entries = write_through(
        &loaded,
        |client| client.quarantine(&asked),
        |parts, runtime| Ok(runtime.block_on(parts.router().quarantine(&asked))?),
    )?;
    if cx.out.json() {
        let entry = |(task, entry): &(TaskType, Entry)| json!({ "task": task, "entry": entry });
        let entries: Vec<_> = entries.iter().map(entry).collect();
        cx.out.object(true, json!({ "provider": args.key, "entries": entries }))?;
        return Ok(Answer::Yes);
    }
    for (task, entry) in &entries {
        let until = entry.until_ms.map(|until_ms| format!(" until {}", reading::time(until_ms)));
        let until = until.unwrap_or_default();
        cx.out.line(&format!("{task}  {}{until}", route::standing(entry)))?;
    }
    Ok(Answer::Yes)
}

fn print(provider: &Provider, cx: &mut Context<'_>) -> Result<()> {
    let record = &provider.record;
    let name = provider.provider.name.clone().unwrap_or_default();
    let heard = provider.last_seen_ms.map(reading::time).unwrap_or_else(|| "never".to_owned());
    let work = format!(
        "{} paid, {} not accepted, {} in all",
        record.released,
        record.withheld,
        msat(record.paid_msat)
    );
    cx.out.fields(&[
        ("provider", &provider.provider.npub),
        ("name", &name),
        ("live", &yes(provider.live)),
        ("heard", &heard),
        ("our jobs", &work),
        ("recommended", &recommended(&provider.recommendations)),
    ])?;
    for offer in &provider.offers {
        let price = offer.price_msat.map(msat).unwrap_or_else(|| "a price on request".to_owned());
        cx.out.line("")?;
        cx.out.fields(&[
            ("  offer", &offer.d),
            ("  work", &offer.schema_ids.join(", ")),
            ("  price", &price),
            ("  private", &yes(offer.private)),
            ("  relays", &offer.relays.join(", ")),
            ("  about", offer.about.as_deref().unwrap_or_default()),
        ])?;
        if offer.name_shared {
            cx.out
                .line("  Another key offers under a name that looks the same: compare the keys.")?;
        }
    }
    Ok(())
}

fn recommended(by: &Recommendations) -> String {
    let shown: Vec<&str> = by.by.iter().map(|party| party.npub.as_str()).collect();
    match by.count {
        0 => "by nobody".to_owned(),
        count if count > shown.len() => format!("by {count} keys, last by {}", shown.join(", ")),
        _ => format!("by {}", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use guild_roles::explorer::Party;

    use super::*;

    #[test]
    fn many_who_recommend_are_counted_and_some_are_named() {
        let party = |npub: &str| Party {
            npub: npub.to_owned(),
            pubkey: String::new(),
            name: None,
            ours: false,
        };
        let by = |count| Recommendations { count, by: vec![party("npub1a"), party("npub1b")] };
        assert_eq!(recommended(&Recommendations::default()), "by nobody");
        assert_eq!(recommended(&by(2)), "by npub1a, npub1b");
        assert_eq!(recommended(&by(9)), "by 9 keys, last by npub1a, npub1b");
    }
}
