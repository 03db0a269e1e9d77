//! `guild relay ls` and `guild relay show`: the relays of others, how closely each is followed, and why.

use guild_network::client::relay_url;
use guild_network::delivery::{self, Quality};
use guild_network::roster::{self, Known};
use guild_protocol::env::Clock;
use guild_protocol::identity::PublicKey;
use serde_json::{Value, json};

use super::Context;
use crate::client::Client;
use crate::error::{Error, Result, code};
use crate::node::{self, NodeFile};
use crate::output::{Answer, Output};
use crate::real::{SystemClock, runtime};

/// So many providers are shown of one relay.
const PROVIDERS_MAX: usize = 50;
/// So much of what a relay said is shown on its line.
const WORDS_MAX_CHARS: usize = 200;

/// Show what the running node knows of the relays of others
///
/// First those that are connected now, then all that are known: how closely each is followed (1 live, 2 polled every
/// few minutes, 3 drawn now and then), how stable it is, how many announcers it was the first to bring, how much of
/// what it brought is of providers that have answered this node, and why it stands where it stands.
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {}

/// Show what is known of one relay of others
///
/// From what this node has stored, also while it runs: where the relay is known from, its tier and why, what it has
/// brought and done wrong, and how requests to providers fared there. The exit code is 1 if the relay is not known.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Its address
    #[arg(value_name = "URL")]
    url: String,
}

pub(super) fn ls(LsArgs {}: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let Some(node) = NodeFile::of_running(&loaded.config.data_dir)? else {
        return Err(Error::new(&code::NODE_NOT_RUNNING, "no node runs on this data directory"));
    };
    let body = Client::new(&node).relays()?;
    if cx.out.json() {
        cx.out.object(true, body)?;
        return Ok(Answer::Yes);
    }
    let all = |name: &str| body[name].as_array().cloned().unwrap_or_default();
    let (relays, known) = (all("relays"), all("known"));
    if relays.is_empty() && known.is_empty() {
        cx.out.line("no relay; network.relays names those that are always connected")?;
    }
    relays.iter().try_for_each(|relay| show_connection(relay, cx.out))?;
    known.iter().try_for_each(|relay| show_known(relay, cx.out))?;
    Ok(Answer::Yes)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("?").chars().take(WORDS_MAX_CHARS).collect()
}

fn show_connection(relay: &Value, out: &mut Output) -> Result<()> {
    let count = |name: &str| relay["counts"][name].as_u64().unwrap_or(0);
    let fetched = if relay["fetched"].as_bool() == Some(true) { "fetched" } else { "fetching" };
    let why = relay["last_error"].as_str().map(|why| format!("  {why}")).unwrap_or_default();
    out.line(&format!(
        "{}  {}  live {}  {fetched}  echo {}  events {} new {} hostile {}{why}",
        text(&relay["url"]),
        text(&relay["state"]),
        text(&relay["live"]["state"]),
        text(&relay["echo"]["state"]),
        count("events"),
        count("stored"),
        count("hostile"),
    ))
}

fn show_known(relay: &Value, out: &mut Output) -> Result<()> {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let (standing, tally) = (&relay["standing"], &relay["tally"]);
    let latency =
        standing["latency_ms"].as_i64().map(|ms| format!("  {ms} ms")).unwrap_or_default();
    out.line(&format!(
        "{}  {}  stable {} %  news {} worth {} hostile {}{latency}  {}",
        text(&relay["relay"]),
        text(&standing["tier"]),
        number(&standing["stability_milli"]) / 10,
        number(&tally["news"]),
        number(&tally["worth"]),
        number(&tally["hostile"]),
        text(&standing["why"]),
    ))
}

pub(super) fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let (loaded, url) = (cx.config()?, relay_url(&args.url)?);
    let service = node::open_read_only(&loaded)?;
    let (relay, now_ms) = (url.clone(), SystemClock.now_ms());
    let read = service.handle().read(move |rx| {
        let known = roster::get(rx, &relay)?;
        let fared = delivery::at_relay(rx, &relay, PROVIDERS_MAX, now_ms)?;
        Ok::<_, guild_network::Error>((known, fared))
    });
    let read = runtime()?.block_on(read);
    service.close();
    let (known, fared) = read?;
    let answer = Answer::of(known.is_some());
    if cx.out.json() {
        let shown = |(provider, quality): &(PublicKey, Quality)| {
            let score_milli = quality.score_milli();
            json!({ "provider": provider.npub(), "quality": quality, "score_milli": score_milli })
        };
        let fared: Vec<Value> = fared.iter().map(shown).collect();
        let body = json!({ "relay": url, "known": known, "deliveries": fared });
        cx.out.object(known.is_some(), body)?;
        return Ok(answer);
    }
    match &known {
        None => cx.out.line(&format!("{url} is not known"))?,
        Some(known) => show_one(known, cx.out)?,
    }
    for (provider, quality) in &fared {
        cx.out.line(&fared_line(provider, quality))?;
    }
    Ok(answer)
}

fn show_one(known: &Known, out: &mut Output) -> Result<()> {
    let Known { standing, tally, .. } = known;
    let at = |ms: Option<i64>| match ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()) {
        Some(at) => at.to_string(),
        None => "never".to_owned(),
    };
    let named = match &known.named_by {
        Some(key) => format!("{}, first named by {key}", known.source.as_str()),
        None => known.source.as_str().to_owned(),
    };
    let latency = standing.latency_ms.map_or("not measured".to_owned(), |ms| format!("{ms} ms"));
    let tier = standing.tier;
    let lines = [
        ("relay", known.relay.clone()),
        ("from", named),
        (
            "tier",
            format!("{} {}, since {}", tier.number(), tier.as_str(), at(Some(standing.since_ms))),
        ),
        ("why", standing.why.clone()),
        (
            "stable",
            format!(
                "{} % of {} looks, {} failed",
                standing.stability_milli / 10,
                tally.windows,
                tally.failures
            ),
        ),
        (
            "brought first",
            format!("{} events, {} announcers, {} of worth", tally.events, tally.news, tally.worth),
        ),
        (
            "wrong",
            format!(
                "{} forged, {} floods, {} bans, {} cut",
                tally.hostile, tally.floods, tally.bans, tally.cuts
            ),
        ),
        ("latency", latency),
        ("asked", at(tally.last_ms)),
        ("next", at(known.due_ms)),
        ("last error", tally.last_error.clone().unwrap_or_else(|| "none".to_owned())),
    ];
    lines.iter().try_for_each(|(name, value)| out.line(&format!("{name:14}{value}")))
}

fn fared_line(provider: &PublicKey, quality: &Quality) -> String {
    let whole = |milli: i64| format!("{}.{}", milli / 1_000, milli % 1_000 / 100);
    let after = quality.after_ms.map(|ms| format!("  after {ms} ms")).unwrap_or_default();
    format!(
        "{}  score {}  taken {} refused {} unanswered {} answered {}{after}",
        provider.npub(),
        quality.score_milli(),
        whole(quality.taken),
        whole(quality.refused),
        whole(quality.unanswered),
        whole(quality.answered),
    )
}
