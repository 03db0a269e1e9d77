//! `guild relay`

use std::collections::BTreeSet;

use guild_network::archive;
use guild_network::client::{self, relay_url};
use guild_network::publish::{self, RelayAck};
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, Filter, Limits, unix_s};
use guild_protocol::{env::Clock, json as strict_json};
use serde_json::{Value, json};

use super::Context;
use crate::client::write_through;
use crate::config::Loaded;
use crate::error::{Error, InFile, Result, code};
use crate::input::Input;
use crate::node;
use crate::output::{Answer, Output};
use crate::real::{SystemClock, runtime};

mod known;

/// More than one event with room around it.
const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;
/// So much of what a relay said is shown on its line.
const WORDS_MAX_CHARS: usize = 200;

/// Publish events, ask for them, and look at the relays of others
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Publish(PublishArgs),
    Query(QueryArgs),
    Acks(AcksArgs),
    Ls(known::LsArgs),
    Show(known::ShowArgs),
}

/// Publish signed events
///
/// The file holds one event, or one on each line. They are kept by this node and go to all relays of network.relays:
/// through the running node, or when the next one starts. With --url they go to that relay alone, at once, and are not
/// kept.
#[derive(Debug, clap::Args)]
pub(crate) struct PublishArgs {
    /// The file; - is standard input
    file: Input,
    /// Only to this relay, at once
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How long to wait for that relay, in milliseconds
    #[arg(long, default_value_t = 10_000, value_name = "MS", requires = "url")]
    timeout_ms: u32,
}

/// Show events, newest first
///
/// From what this node has stored, also while it runs; with --url from that relay. Conditions of one kind are
/// alternatives, conditions of different kinds must all hold.
#[derive(Debug, clap::Args)]
pub(crate) struct QueryArgs {
    /// Only this event
    #[arg(long, value_name = "ID")]
    id: Vec<EventId>,
    /// Only of this kind
    #[arg(long, value_name = "NUMBER")]
    kind: Vec<u16>,
    /// Only by this key, in hex digits or as npub
    #[arg(long, value_name = "KEY")]
    author: Vec<PublicKey>,
    /// Only with this tag, as in `p=…`: one letter
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_tag)]
    tag: Vec<(char, String)>,
    /// Not older than this, in Unix seconds
    #[arg(long, value_name = "SECONDS")]
    since: Option<u64>,
    /// Not newer than this, in Unix seconds
    #[arg(long, value_name = "SECONDS")]
    until: Option<u64>,
    /// How many at most
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=5_000))]
    limit: u32,
    /// Ask this relay
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How long to wait for it, in milliseconds
    #[arg(long, default_value_t = 10_000, value_name = "MS", requires = "url")]
    timeout_ms: u32,
}

/// Show which relays have taken an event that this node published
///
/// Of each relay whether it has the event (acked), refuses it for good (refused), is still to get it (queued), or could
/// not be reached (given_up), and its words. Known for 60 days. The exit code is 1 if the event was never on its way to
/// a relay.
#[derive(Debug, clap::Args)]
pub(crate) struct AcksArgs {
    /// The event
    #[arg(value_name = "EVENT_ID")]
    event_id: EventId,
}

fn parse_tag(text: &str) -> Result<(char, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    let mut letters = name.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if letter.is_ascii_alphabetic() => Ok((letter, value.to_owned())),
        _ => Err("the name of a tag is one letter here".to_owned()),
    }
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Publish(args) => publish(args, cx),
        Command::Query(args) => query(args, cx),
        Command::Acks(args) => acks(args, cx),
        Command::Ls(args) => known::ls(args, cx),
        Command::Show(args) => known::show(args, cx),
    }
}

fn publish(args: &PublishArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let events = read_events(&args.file)?;
    let url = args.url.as_deref().map(relay_url).transpose()?;
    let loaded = if url.is_none() { Some(cx.config()?) } else { None };
    let runtime = runtime()?;
    for event in &events {
        let (relays, said) = match (&url, &loaded) {
            (Some(url), _) => {
                let within_ms = i64::from(args.timeout_ms);
                let told = client::tell(url, event, within_ms, &SystemClock);
                (vec![url.clone()], Some(runtime.block_on(told)?))
            }
            (None, Some(loaded)) => (queue(loaded, event)?, None),
            (None, None) => return Err(Error::new(&code::USAGE, "nowhere to publish to")),
        };
        show_published(event, &relays, said.as_deref(), cx.out)?;
    }
    Ok(Answer::Yes)
}

/// All events of the file, checked before any of them leaves.
fn read_events(file: &Input) -> Result<Vec<Event>> {
    let bytes = file.read(MAX_FILE_BYTES)?;
    // One event may be spread over lines.
    if Event::parse(&bytes, &Limits::DEFAULT).is_ok() {
        let event = Event::parse_verified(&bytes, &Limits::DEFAULT).in_file(file.path())?;
        return Ok(vec![event]);
    }
    let mut events = Vec::new();
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    for (i, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
        let event = Event::parse_verified(line, &Limits::DEFAULT)
            .map_err(|e| Error::from(e.within(&format!("line {}", i + 1))));
        events.push(event.in_file(file.path())?);
    }
    if events.is_empty() {
        let message = "there is no event in it";
        return Err(Error::new(&strict_json::code::SYNTAX, message).in_file(file.path()));
    }
    Ok(events)
}

fn queue(loaded: &Loaded, event: &Event) -> Result<Vec<String>> {
    let text = event.to_json();
    write_through(
        loaded,
        |client| client.publish(&text),
        |parts, runtime| {
            let relays = parts.relays(loaded, None);
            Ok(runtime.block_on(relays.publish(event.clone()))?.relays)
        },
    )
}

fn show_published(
    event: &Event,
    relays: &[String],
    said: Option<&str>,
    out: &mut Output,
) -> Result<()> {
    if out.json() {
        let body = json!({ "event_id": event.id, "relays": relays, "message": said });
        return out.object(true, body);
    }
    let state = match (said, relays) {
        (Some(""), _) => "taken".to_owned(),
        (Some(said), _) => format!("taken: {said}"),
        (None, []) => "kept; network.relays names no relay".to_owned(),
        (None, relays) => format!("queued for {}", relays.join(", ")),
    };
    out.line(&format!("{}  {state}", event.id))
}

impl QueryArgs {
    fn filter(&self) -> Filter {
        fn some<T: Ord + Clone>(values: &[T]) -> Option<BTreeSet<T>> {
            (!values.is_empty()).then(|| values.iter().cloned().collect())
        }
        let mut filter = Filter {
            ids: some(&self.id),
            authors: some(&self.author),
            kinds: some(&self.kind),
            since: self.since,
            until: self.until,
            limit: Some(u64::from(self.limit)),
            ..Filter::default()
        };
        for (letter, value) in &self.tag {
            filter.tags.entry(*letter).or_default().insert(value.clone());
        }
        filter
    }
}

fn query(args: &QueryArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let events = match &args.url {
        Some(url) => {
            let (url, filters) = (relay_url(url)?, [args.filter()]);
            let within_ms = i64::from(args.timeout_ms);
            let asked = client::ask(&url, &filters, limit, within_ms, &SystemClock);
            let answered = runtime()?.block_on(asked)?;
            if answered.dropped > 0 {
                cx.out.remark(&format!(
                    "{} events of the relay were wrong or not asked for, and were dropped",
                    answered.dropped
                ));
            }
            answered.events
        }
        None => stored(args.filter(), limit, cx)?,
    };
    if events.is_empty() && !cx.out.json() {
        cx.out.line("no event")?;
    }
    events.iter().try_for_each(|event| show_event(event, cx.out))?;
    Ok(Answer::Yes)
}

/// What the node has stored, read beside it.
fn stored(filter: Filter, limit: usize, cx: &Context<'_>) -> Result<Vec<Event>> {
    let loaded = cx.config()?;
    let service = node::open_read_only(&loaded)?;
    let now_s = unix_s(SystemClock.now_ms());
    let read = service.handle().read(move |rx| {
        let found = archive::query(rx, std::slice::from_ref(&filter), limit, now_s)?;
        let parse =
            |stored: archive::Stored| Ok(Event::parse(stored.json.as_bytes(), &Limits::DEFAULT)?);
        found.into_iter().map(parse).collect::<guild_network::Result<Vec<Event>>>()
    });
    let events = runtime()?.block_on(read);
    service.close();
    Ok(events?)
}

fn acks(args: &AcksArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let (service, id) = (node::open_read_only(&loaded)?, args.event_id);
    let acks = runtime()?.block_on(service.handle().read(move |rx| publish::acks(rx, &id)));
    service.close();
    let acks = acks?;
    let sent = Answer::of(!acks.is_empty());
    if cx.out.json() {
        let shown = |RelayAck { relay, state, message, at_ms }: &RelayAck| {
            let state = state.as_str();
            json!({ "relay": relay, "state": state, "message": message, "at_ms": at_ms })
        };
        let all: Vec<Value> = acks.iter().map(shown).collect();
        cx.out.object(sent == Answer::Yes, json!({ "event_id": args.event_id, "acks": all }))?;
        return Ok(sent);
    }
    if acks.is_empty() {
        cx.out.line("no relay: this node has not published it, or long ago")?;
    }
    for RelayAck { relay, state, message, at_ms } in &acks {
        let at = jiff::Timestamp::from_millisecond(*at_ms).map(|at| at.to_string());
        let at = at.unwrap_or_else(|_| at_ms.to_string());
        let words: String = message.chars().take(WORDS_MAX_CHARS).collect();
        let line = format!("{:8}  {at}  {relay}  {words}", state.as_str());
        cx.out.line(line.trim_end())?;
    }
    Ok(sent)
}

fn show_event(event: &Event, out: &mut Output) -> Result<()> {
    if out.json() {
        let event: Value = serde_json::from_str(&event.to_json())
            .map_err(|e| Error::new(&code::IO_FAILED, format!("the event is not JSON: {e}")))?;
        return out.object(true, json!({ "event": event }));
    }
    let at = i64::try_from(event.created_at).ok();
    let at = at.and_then(|at| jiff::Timestamp::from_second(at).ok());
    let at = at.map_or_else(|| event.created_at.to_string(), |at| at.to_string());
    let author: String = event.pubkey.hex().chars().take(12).collect();
    let content: String = event.content.chars().take(60).collect();
    out.line(&format!("{at}  {:>5}  {author}  {}  {content}", event.kind, event.id))
}
