//! Looking at everybody now and then: what time brings, and what is tried.
//!
//! Every entry of the routing matrix has a row that says when it is looked at next. [`decide`] is pure; [`look`] reads
//! what it needs, writes what follows, and says what is to be done outside of the database. It is one transaction, and
//! the row moves in it: any number of processes may look, and nothing is done twice.

use guild_network::index;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::{Hash, to_hex};
use guild_protocol::identity::PublicKey;
use guild_store::{Columns, Decode, Rx, Tx, args};

use super::probe::{self, Probe, Reason};
use super::{Engagement, Options, Retry, Signal, Stage, is_other_version, retry};
use crate::Result;
use crate::routing::log::{self, Appended};
use crate::routing::{self, Cause, Change, Entry, Mutation, Status, TaskType};
use crate::row::{Cells, page};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// How often somebody is looked at, whatever happens.
const LOOK_MS: i64 = HOUR_MS;
/// How often whoever gets half as much work may show that it is well.
const VERIFY_MS: i64 = 6 * HOUR_MS;
/// A meeting that could not be begun is tried again after this.
const AGAIN_MS: i64 = HOUR_MS;
/// So many entries are taken up in one go, and so many of one provider are removed with it.
const TRACKED_MAX: i64 = 500;
const TASKS_MAX: i64 = 200;

/// How often what is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    /// How long it is from one heartbeat benchmark to the next: a fifth more or less, so that nobody can wait for it.
    pub heartbeat_ms: i64,
    /// Whoever was not heard for so long is asked something.
    pub silent_ms: i64,
}

impl Default for Times {
    fn default() -> Times {
        Times { heartbeat_ms: 7 * DAY_MS, silent_ms: DAY_MS }
    }
}

/// An entry that is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// Whose.
    pub provider: PublicKey,
    /// For which work.
    pub task: TaskType,
    /// When it is looked at next.
    pub due_ms: UnixMs,
    /// When it is to have its next heartbeat benchmark.
    pub heartbeat_ms: UnixMs,
    /// The suspension that the next two are of.
    pub suspended_ms: Option<UnixMs>,
    /// Its newest announcement then.
    pub card_id: Option<String>,
    /// The version that it said it was.
    pub card_version: Option<String>,
}

impl Decode for Watch {
    fn decode(row: &dyn Columns) -> guild_store::Result<Watch> {
        let mut cells = Cells::of(row);
        Ok(Watch {
            provider: cells.parsed()?,
            task: cells.parsed()?,
            due_ms: cells.next()?,
            heartbeat_ms: cells.next()?,
            suspended_ms: cells.next()?,
            card_id: cells.next()?,
            card_version: cells.next()?,
        })
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT provider, task_type, due_ms, heartbeat_ms, suspended_ms, card_id, card_version FROM market_watch ",
            $rest
        )
    };
}

/// Begins to look at entries that are new; how many. The first heartbeat comes within a week.
pub fn track(tx: &mut Tx<'_>, times: &Times, (now_ms, chance): (UnixMs, u64)) -> Result<u64> {
    let new: Vec<(String, String, i64)> = tx.all(
        "SELECT provider, task_type, seq FROM market_route_log
         WHERE version = 1 AND seq > (SELECT coalesce(max(seq), 0) FROM market_watch) ORDER BY seq LIMIT $1",
        args![TRACKED_MAX],
    )?;
    let mut count = 0_u64;
    for (provider, task, seq) in new {
        let mixed = chance.wrapping_add(u64::try_from(seq).unwrap_or(0));
        let within =
            routing::Draws::new(mixed).below(u64::try_from(times.heartbeat_ms).unwrap_or(1));
        let heartbeat_ms = now_ms.saturating_add(i64::try_from(within).unwrap_or(0));
        tx.exec(
            "INSERT INTO market_watch (provider, task_type, seq, due_ms, heartbeat_ms)
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
            args![&provider, &task, seq, now_ms, heartbeat_ms],
        )?;
        count = count.saturating_add(1);
    }
    Ok(count)
}

/// Entries that are to be looked at now, the longest due first.
pub fn due(rx: &mut Rx<'_>, now_ms: UnixMs, limit: i64) -> Result<Vec<Watch>> {
    let sql = select!("WHERE due_ms <= $1 ORDER BY due_ms, provider, task_type LIMIT $2");
    Ok(rx.all(sql, args![now_ms, page(limit)])?)
}

/// How an entry is looked at; nothing if it is not yet.
pub fn find(rx: &mut Rx<'_>, (provider, task): (&PublicKey, &TaskType)) -> Result<Option<Watch>> {
    let sql = select!("WHERE provider = $1 AND task_type = $2");
    Ok(rx.first(sql, args![&provider.npub(), task.as_str()])?)
}

/// What is announced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// When its provider was heard last, by whatever.
    pub heard_ms: Option<UnixMs>,
    /// Its newest announcement.
    pub card_id: Option<String>,
    /// The version that it says it is.
    pub version: Option<String>,
}

fn seen(rx: &mut Rx<'_>, provider: &PublicKey) -> Result<Seen> {
    const VERSION_MAX_CHARS: usize = 64;
    let offers = index::provider(rx, provider)?;
    let heard_ms = offers.iter().filter_map(|one| one.heard_ms).max();
    let newest = offers.iter().max_by_key(|one| (one.created_at, one.event_id));
    let version = newest.and_then(|one| one.card.content.other.get("version")?.as_str());
    Ok(Seen {
        heard_ms,
        card_id: newest.map(|one| one.event_id.hex()),
        version: version.map(|text| text.chars().take(VERSION_MAX_CHARS).collect()),
    })
}

/// What is known when it is decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts<'a> {
    /// The entry.
    pub entry: &'a Entry,
    /// How it is looked at.
    pub watch: &'a Watch,
    /// What is announced.
    pub seen: &'a Seen,
    /// The latest test that was not drawn with an order.
    pub last: Option<&'a Probe>,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing; it is looked at again at this moment.
    Waits(UnixMs),
    /// Something is to be written about it.
    Notice(Signal),
    /// It is to be tested.
    Test(Reason),
    /// It is to be met.
    Meet,
}

/// What follows from what is known of an entry.
pub fn decide(options: &Options, times: &Times, facts: &Facts<'_>, now_ms: UnixMs) -> Next {
    let Facts { entry, watch, seen, last } = facts;
    let look_ms = now_ms.saturating_add(LOOK_MS);
    if entry.is_shut_out() {
        return Next::Waits(now_ms.saturating_add(times.heartbeat_ms));
    }
    let is_of_it = watch.suspended_ms == Some(entry.health.since_ms);
    let known = Engagement {
        is_card_new: is_of_it && seen.card_id.is_some() && watch.card_id != seen.card_id,
        is_version_new: is_of_it
            && is_other_version(
                watch.card_version.as_deref().unwrap_or_default(),
                seen.version.as_deref().unwrap_or_default(),
            ),
    };
    match retry(options, entry, &known, now_ms) {
        Some(Retry::Now) => return Next::Meet,
        Some(Retry::At(at_ms)) => return Next::Waits(at_ms.min(look_ms)),
        Some(Retry::Waits(at_ms)) => return Next::Waits(at_ms),
        Some(Retry::Never) => return Next::Notice(Signal::Persistent),
        None => {}
    }
    if !entry.status.is_hireable() {
        return Next::Waits(look_ms);
    }
    let lasted_ms = now_ms.saturating_sub(entry.health.since_ms);
    if entry.health.stage == Stage::Warned && lasted_ms >= options.sustained_ms {
        return Next::Notice(Signal::Sustained);
    }
    // One test at a time: whoever is silent must not have a whole pile of them.
    let is_open =
        |after_ms: i64| last.is_some_and(|last| now_ms.saturating_sub(last.made_ms) < after_ms);
    if entry.health.stage == Stage::Reduced && !is_open(VERIFY_MS) {
        return Next::Test(Reason::Verify);
    }
    let heard_ms = seen.heard_ms.unwrap_or(i64::MIN).max(entry.last_verified_ms);
    if now_ms.saturating_sub(heard_ms) >= times.silent_ms && !is_open(times.silent_ms) {
        return Next::Test(Reason::Silent);
    }
    if watch.heartbeat_ms <= now_ms && !is_open(VERIFY_MS) {
        return Next::Test(Reason::Heartbeat);
    }
    let beat_ms = if watch.heartbeat_ms > now_ms { watch.heartbeat_ms } else { look_ms };
    Next::Waits(look_ms.min(beat_ms))
}

/// What came of a look.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Looked {
    /// New rows of the routing log.
    pub rows: Vec<Appended>,
    /// The name of a meeting that is to be begun.
    pub meet: Option<String>,
    /// Why it is tested, if it is.
    pub test: Option<Reason>,
}

/// Looks at an entry whose moment has come; nothing if somebody else has. `made_up` is a key that nobody can guess.
pub fn look(
    tx: &mut Tx<'_>,
    (options, times): (&routing::Options, &Times),
    (provider, task): (&PublicKey, &TaskType),
    made_up: &[u8; 16],
    now_ms: UnixMs,
) -> Result<Option<Looked>> {
    let Some(mut watch) = find(tx, (provider, task))? else { return Ok(None) };
    let Some(entry) = log::latest(tx, task, provider)? else { return Ok(None) };
    if watch.due_ms > now_ms {
        return Ok(None);
    }
    let seen = seen(tx, provider)?;
    if entry.health.stage == Stage::Suspended && watch.suspended_ms != Some(entry.health.since_ms) {
        watch.suspended_ms = Some(entry.health.since_ms);
        (watch.card_id, watch.card_version) = (seen.card_id.clone(), seen.version.clone());
    }
    let last = probe::latest(tx, (provider, task), 1)?.pop();
    let facts = Facts { entry: &entry, watch: &watch, seen: &seen, last: last.as_ref() };
    let mut looked = Looked::default();
    let again_ms = now_ms.saturating_add(AGAIN_MS);
    watch.due_ms = match decide(&options.health, times, &facts, now_ms) {
        Next::Waits(at_ms) => at_ms.max(now_ms.saturating_add(1)),
        Next::Meet => {
            looked.meet = Some(meeting_key(provider, task, &entry));
            again_ms
        }
        Next::Test(reason) => {
            probe::add(tx, &to_hex(made_up), (provider, task), reason, (now_ms, now_ms))?;
            looked.test = Some(reason);
            // What was to be its heartbeat is had by any test.
            watch.heartbeat_ms = next_heartbeat(times, made_up, now_ms);
            again_ms
        }
        Next::Notice(signal) => {
            let changes = noticed(tx, (provider, task), &entry, signal)?;
            looked.rows = log::append(tx, options, &changes, now_ms)?;
            again_ms
        }
    };
    tx.exec(
        "UPDATE market_watch SET due_ms = $3, heartbeat_ms = $4, suspended_ms = $5, card_id = $6, card_version = $7
         WHERE provider = $1 AND task_type = $2",
        args![
            &provider.npub(),
            task.as_str(),
            watch.due_ms,
            watch.heartbeat_ms,
            watch.suspended_ms,
            watch.card_id.as_ref(),
            watch.card_version.as_ref()
        ],
    )?;
    Ok(Some(looked))
}

/// The same for as long as the entry is what it is: so a meeting is begun once.
fn meeting_key(provider: &PublicKey, task: &TaskType, entry: &Entry) -> String {
    let engagement = format!("{task}\n{provider}\n{}", entry.health.since_ms);
    format!("lifecycle:{}", Hash::of(engagement.as_bytes()))
}

fn next_heartbeat(times: &Times, made_up: &[u8; 16], now_ms: UnixMs) -> UnixMs {
    let seed = made_up.iter().fold(0_u64, |seed, byte| seed.rotate_left(8) ^ u64::from(*byte));
    let fifth_ms = times.heartbeat_ms.max(5).div_euclid(5);
    let span = u64::try_from(fifth_ms.saturating_mul(2)).unwrap_or(1);
    let within = i64::try_from(routing::Draws::new(seed).below(span)).unwrap_or(0);
    let least_ms = times.heartbeat_ms.saturating_sub(fifth_ms);
    now_ms.saturating_add(least_ms).saturating_add(within)
}

/// What is written when something was noticed. Whoever is removed is shut out of everything.
fn noticed(
    rx: &mut Rx<'_>,
    (provider, task): (&PublicKey, &TaskType),
    entry: &Entry,
    signal: Signal,
) -> Result<Vec<Change>> {
    let change = |task: &TaskType, version: i64, mutation: Mutation| Change {
        key: format!("noticed:{}:{task}:{provider}:{version}", signal.name()),
        task: task.clone(),
        provider: *provider,
        mutation,
    };
    let mut changes = vec![change(task, entry.version, Mutation::Noticed { signal })];
    if signal != Signal::Persistent {
        return Ok(changes);
    }
    let others: Vec<(String,)> = rx.all(
        "SELECT DISTINCT task_type FROM market_route_log WHERE provider = $1 AND task_type <> $2
         ORDER BY task_type LIMIT $3",
        args![&provider.npub(), task.as_str(), TASKS_MAX],
    )?;
    for (other,) in others {
        let other: TaskType = other.parse()?;
        let Some(entry) = log::latest(rx, &other, provider)? else { continue };
        if !entry.is_shut_out() {
            let (status, cause) = (Status::Blacklisted, Some(Cause::Degraded));
            let moved = Mutation::Moved { status, cause, until_ms: None };
            changes.push(change(&other, entry.version, moved));
        }
    }
    Ok(changes)
}
