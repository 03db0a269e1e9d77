//! What the archive teaches about relays: who brought what first, which relays are named, and where answers to our
//! requests came from. Read in the order in which events came, and written together with how far it was read.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, kind};
use guild_store::{Rx, Tx, args};

use super::super::relay_url;
use crate::archive::{self, Reach};
use crate::roster::{self, Bounds, Learnt, Source};
use crate::ways::RelayList;
use crate::{Result, delivery, index};

/// So much is looked at in one step.
const REACH: Reach = Reach { events: 500, bytes: 4 << 20 };
const STEP_EVENTS: i64 = 50_000;
const ORIGINS_MAX: i64 = 2_000;
const ANSWERS_MAX: i64 = 1_000;
/// Of one announcement so many hints are looked at.
const HINTS_MAX: usize = 4;

/// Where an answer to a request of ours came from.
struct Heard {
    request_id: EventId,
    provider: PublicKey,
    origin: String,
    after_ms: i64,
}

/// What the next events teach.
pub(super) struct Lesson {
    from: i64,
    to: i64,
    /// Events, announcers, and signs of providers that have answered us, by relay.
    brought: BTreeMap<String, (i64, i64, i64)>,
    named: BTreeMap<String, (Source, PublicKey)>,
    heard: Vec<Heard>,
}

/// How far the archive was read.
pub(super) fn place(rx: &mut Rx<'_>) -> Result<i64> {
    let row: Option<(i64,)> = rx.first("SELECT seq FROM relay_scout", &[])?;
    Ok(row.map_or(0, |(seq,)| seq))
}

/// What comes behind that; nothing if that was all.
pub(super) fn read(rx: &mut Rx<'_>) -> Result<Option<Lesson>> {
    let (from, last) = (place(rx)?, archive::head(rx)?.last_seq);
    if from >= last {
        return Ok(None);
    }
    let kinds = [kind::ANNOUNCEMENT, kind::RELAY_LIST];
    let reached = archive::after_within(rx, from, &kinds, REACH)?;
    let to = if reached.is_last { last } else { reached.last_seq.unwrap_or(last) };
    let to = to.min(from.saturating_add(STEP_EVENTS));
    let mut named = BTreeMap::new();
    for (_, event) in reached.events.iter().filter(|(seq, _)| *seq <= to) {
        for (url, source) in hints(event) {
            named.entry(url).or_insert((source, event.pubkey));
        }
    }
    let mut brought = BTreeMap::new();
    let counted: Vec<(String, i64, i64)> = rx.all(
        "SELECT origin, count(*), count(DISTINCT CASE WHEN kind IN (31990, 11998) THEN pubkey END)
         FROM nostr_event WHERE seq > $1 AND seq <= $2 AND origin LIKE 'ws%'
         GROUP BY origin ORDER BY origin LIMIT $3",
        args![from, to, ORIGINS_MAX],
    )?;
    for (origin, events, news) in counted {
        brought.insert(origin, (events, news, 0));
    }
    let proven: Vec<(String, i64)> = rx.all(
        "SELECT origin, count(DISTINCT pubkey) FROM nostr_event
         WHERE seq > $1 AND seq <= $2 AND kind IN (31990, 11998) AND origin LIKE 'ws%'
           AND EXISTS (SELECT 1 FROM relay_heard h WHERE h.provider = nostr_event.pubkey)
         GROUP BY origin ORDER BY origin LIMIT $3",
        args![from, to, ORIGINS_MAX],
    )?;
    for (origin, worth) in proven {
        brought.entry(origin).or_insert((0, 0, 0)).2 = worth;
    }
    Ok(Some(Lesson { from, to, brought, named, heard: answers(rx, from, to)? }))
}

/// The relays that an event names, each in its one spelling.
fn hints(event: &Event) -> Vec<(String, Source)> {
    if event.kind == kind::RELAY_LIST {
        let RelayList { read, write } = RelayList::of(event);
        let both: BTreeSet<String> = read.into_iter().chain(write).collect();
        return both.into_iter().map(|url| (url, Source::List)).collect();
    }
    let tags = event.tags.iter().filter_map(|tag| tag.split_first());
    let tags = tags.filter(|(name, _)| matches!(name.as_str(), "relays" | "relay"));
    let urls = tags.flat_map(|(_, rest)| rest).filter_map(|url| relay_url(url).ok());
    urls.take(HINTS_MAX).map(|url| (url, Source::Hint)).collect()
}

/// Answers to requests of ours, by those whom the requests addressed.
fn answers(rx: &mut Rx<'_>, from: i64, to: i64) -> Result<Vec<Heard>> {
    let rows: Vec<(String, String, String, i64)> = rx.all(
        "SELECT a.request_id, e.pubkey, e.origin, e.received_ms
         FROM index_answer a JOIN nostr_event e ON e.seq = a.seq
         WHERE a.seq > $1 AND a.seq <= $2
           AND EXISTS (SELECT 1 FROM nostr_ack k WHERE k.event_id = a.request_id)
         ORDER BY a.seq LIMIT $3",
        args![from, to, ANSWERS_MAX],
    )?;
    let mut heard = Vec::new();
    for (request_id, provider, origin, received_ms) in rows {
        let (request_id, provider): (EventId, PublicKey) = (request_id.parse()?, provider.parse()?);
        let Some(request) = index::request(rx, &request_id)? else { continue };
        // Whoever was not asked proves nothing by answering.
        if request.providers.contains(&provider) {
            let after_ms = received_ms.saturating_sub(request.received_ms).max(0);
            heard.push(Heard { request_id, provider, origin, after_ms });
        }
    }
    Ok(heard)
}

/// What strangers may teach.
pub(super) struct Taught<'a> {
    pub(super) bounds: &'a Bounds,
    /// Our own relays, which nobody need name.
    pub(super) own: &'a BTreeSet<String>,
    /// Whether relays that strangers name are learnt at all.
    pub(super) discovers: bool,
}

/// Writes it down, once: false if somebody else has.
pub(super) fn write(
    tx: &mut Tx<'_>,
    lesson: &Lesson,
    taught: &Taught<'_>,
    now_ms: UnixMs,
) -> Result<bool> {
    let moved = tx.exec(
        "UPDATE relay_scout SET seq = $2 WHERE one = 1 AND seq = $1",
        args![lesson.from, lesson.to],
    )?;
    if moved == 0 {
        return Ok(false);
    }
    let mut worth: BTreeMap<&str, i64> = BTreeMap::new();
    for Heard { request_id, provider, origin, after_ms } in &lesson.heard {
        if delivery::heard(tx, request_id, provider, (origin, *after_ms), now_ms)? {
            *worth.entry(origin).or_default() += 1;
        }
    }
    for (relay, (events, news, signs)) in &lesson.brought {
        let answers = worth.get(relay.as_str()).copied().unwrap_or(0);
        roster::bring(tx, relay, (*events, *news, signs.saturating_add(answers)))?;
    }
    if taught.discovers {
        name(tx, lesson, taught, now_ms)?;
    }
    Ok(true)
}

fn name(tx: &mut Tx<'_>, lesson: &Lesson, taught: &Taught<'_>, now_ms: UnixMs) -> Result<()> {
    let mut is_full = false;
    for (url, (source, named_by)) in &lesson.named {
        if taught.own.contains(url) {
            continue;
        }
        // To find that there is no room is work; a flood of hints makes it once in a step.
        let learnt = match is_full {
            true => Learnt::Full,
            false => roster::learn(tx, url, *source, named_by, taught.bounds, now_ms)?,
        };
        is_full |= learnt == Learnt::Full;
        metrics::counter!("relay_hints_total", "what" => learnt.as_str()).increment(1);
    }
    Ok(())
}
