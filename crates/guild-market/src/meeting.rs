//! Getting to know a provider: it is asked to do benchmarks, and what comes of that decides whether it is hired.
//!
//! ```text
//! begin ─▶ trial: Delivering ─▶ Waiting ─▶ Judging ─▶ verdict ─▶ next trial, or what all of them come to
//!                    │ no relay    │ silence, then unresponsive    └─▶ Routing: admitted, quarantined ─▶ Ended
//!                    └─▶ the same request again, after pauses
//! ```
//!
//! A trial is one request with a result, judged once; its [`Course`] is a pure state machine that is kept as a row,
//! with the moment when somebody must look next. Every change is one transaction, together with what is published
//! because of it, so a process that dies leaves nothing half done, and another one goes on. Which process does what
//! takes time is the [claim](crate::claim) of the meeting.
//!
//! A result counts if its provider signed it, for this very request, and it is the first. Whatever else the provider
//! signs is kept as evidence. What others sign is not even that.

use guild_network::delivery;
use guild_network::publish::{self, AckState};
use guild_protocol::amount::Msat;
use guild_protocol::bolt11::Network;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::{Hash, to_hex};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::json;
use guild_protocol::nostr::{Event, is_relay_url, kind};
use guild_protocol::timestamp::Timestamp;
use guild_protocol::typed_id;
use guild_store::{Rx, Tx, args};
use serde_json::json;

use crate::claim::{Claim, Claimant, fenced};
use crate::error::code;
use crate::evaluation::{self, Baseline};
use crate::event::tell;
use crate::judge::{Verdict, record};
use crate::routing::TaskType;
use crate::{Error, Result, reference, verify};

mod change;
mod course;
mod payment;
mod read;
mod request;
mod take;
mod weigh;

pub use change::{changes, signed_twice};
pub use course::{Act, Course, End, Sign, Stage, Times};
pub use payment::{Purse, Unpaid, consider};
use read::cooling_of;
pub use read::{
    Meeting, State, Trial, Word, due, find, get, latest_of, page_before, trial_of, trials, words,
};
pub use request::{
    BENCHMARK_TYPE, INLINE_MAX_BYTES, INPUT_HASH, NewTrial, Terms, kind_for, kind_of_work,
};
pub use take::{Heard, Standing, is_asked, take};
pub use weigh::{Outcome, Tried, Weighed, weigh};

typed_id! {
    /// Names a meeting: made from the caller's key, so that asking again is the same meeting.
    MeetingId = "meeting", content;
}

impl MeetingId {
    /// The meeting that a caller names by this key.
    pub fn of_key(meeting_key: &str) -> MeetingId {
        MeetingId::of(&Hash::of(format!("guild.meeting.v1\n{meeting_key}").as_bytes()))
    }
}

/// How meetings are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long is waited for what.
    pub times: Times,
    /// How trials are weighed.
    pub evaluation: evaluation::Options,
    /// The network on which invoices are paid.
    pub network: Network,
    /// Whether a rail is configured that pays invoices. None exists yet.
    pub has_rail: bool,
    /// The most that is paid for all trials of a meeting,
    pub budget: Msat,
    /// and within 24 hours for those of all.
    pub budget_day: Msat,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            times: Times::default(),
            evaluation: evaluation::Options::default(),
            network: Network::Bitcoin,
            has_rail: false,
            budget: Msat(100_000),
            budget_day: Msat(1_000_000),
        }
    }
}

const KEY_MAX_BYTES: usize = 200;
const CHOICE_MAX_RELAYS: usize = 20;
/// The samples of other meetings that a pace is compared with.
const BASELINE_MAX: i64 = 256;
/// Fewer say nothing.
const BASELINE_MIN: usize = 3;

/// A meeting that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMeeting {
    /// The caller's name for it.
    pub meeting_key: String,
    /// On which terms.
    pub terms: Terms,
    /// The `d` tag of the announcement that it is about.
    pub d: String,
    /// For which work it is hired if it passes.
    pub task: TaskType,
    /// Where requests are sent: the best relays first, then others, then all.
    pub choices: [Vec<String>; 3],
}

impl NewMeeting {
    fn check(&self) -> Result<()> {
        let malformed = |why: &str| Err(Error::refused(&code::MEETING_MALFORMED, why));
        let key = &self.meeting_key;
        if key.is_empty() || key.len() > KEY_MAX_BYTES || key.chars().any(char::is_control) {
            return malformed("its key has 1 to 200 bytes of plain text");
        }
        if !kind::is_request(self.terms.kind) || self.terms.bid.is_some_and(|bid| bid.0 < 0) {
            return malformed("a kind is 5000 to 5999, and a bid zero or more");
        }
        let fits = |relays: &Vec<String>| {
            relays.len() <= CHOICE_MAX_RELAYS && relays.iter().all(|url| is_relay_url(url))
        };
        let choices = self.choices.iter().chain([&self.terms.relays]);
        if !choices.into_iter().all(fits) {
            return malformed("relays are at most 20 addresses of each choice, ws:// or wss://");
        }
        if !self.terms.benchmark.fits(&self.task) {
            let name = self.terms.benchmark.name();
            let why = format!("{name} says nothing about {}", self.task);
            return Err(Error::refused(&code::MEETING_NO_BENCHMARK, why));
        }
        Ok(())
    }
}

/// What became of a meeting that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// It has begun: its first request is to be published in this transaction.
    New(Meeting),
    /// It is there already; or another one with this provider is not over yet.
    Known(Meeting),
}

impl Begun {
    /// The meeting.
    pub fn meeting(self) -> Meeting {
        match self {
            Begun::New(meeting) | Begun::Known(meeting) => meeting,
        }
    }
}

/// Begins a meeting, unless its provider was met lately and did not pass.
pub fn begin(
    tx: &mut Tx<'_>,
    new: &NewMeeting,
    trial: &NewTrial,
    times: &Times,
    now_ms: UnixMs,
) -> Result<Begun> {
    new.check()?;
    let meeting_id = MeetingId::of_key(&new.meeting_key);
    if let Some(known) = find(tx, &meeting_id)? {
        if known.terms.provider != new.terms.provider || known.task != new.task {
            let why = format!("{:?} is the key of another meeting", new.meeting_key);
            return Err(Error::refused(&code::MEETING_CONFLICT, why));
        }
        return Ok(Begun::Known(known));
    }
    if let Some(last) = latest_of(tx, &new.terms.provider, &new.task)?
        && last.state != State::Ended
    {
        return Ok(Begun::Known(last));
    }
    if let Some(last) = cooling_of(tx, &new.terms, now_ms)? {
        return Err(cooling(&last));
    }
    insert(tx, &meeting_id, new, now_ms)?;
    add_trial(tx, &meeting_id, 1, (trial, new.terms.benchmark.name()), times, now_ms)?;
    let meeting = get(tx, &meeting_id)?;
    tell_of(tx, &meeting, "began", now_ms)?;
    Ok(Begun::New(meeting))
}

fn cooling(last: &Meeting) -> Error {
    let outcome = last.outcome.map_or("", Outcome::name);
    let until = match last.cooldown_until_ms {
        Some(i64::MAX) | None => "for good".to_owned(),
        Some(until_ms) => match Timestamp::from_ms(until_ms) {
            Ok(moment) => format!("until {moment}"),
            Err(_) => "for good".to_owned(),
        },
    };
    let why = format!("{} was {outcome} in {}, {until}", last.terms.provider, last.meeting_id);
    Error::refused(&code::MEETING_COOLING, why)
}

fn insert(tx: &mut Tx<'_>, meeting_id: &MeetingId, new: &NewMeeting, now_ms: UnixMs) -> Result<()> {
    let Terms { provider, benchmark, modules, kind, encrypted, bid, relays } = &new.terms;
    let modules: Vec<&str> = modules.iter().map(|module| module.name()).collect();
    tx.exec(
        "INSERT INTO market_meeting (meeting_id, meeting_key, provider, d, task_type, benchmark, modules, kind,
           encrypted, bid_units, relays, choices, begun_ms, state, due_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 'trying', $13)",
        args![
            meeting_id.as_str(),
            &new.meeting_key,
            &provider.npub(),
            &new.d.replace('\0', "\u{fffd}"),
            new.task.as_str(),
            benchmark.name(),
            &json!(modules).to_string(),
            i64::from(*kind),
            i64::from(*encrypted),
            bid.map(|bid| bid.0),
            &json!(relays).to_string(),
            &json!(new.choices).to_string(),
            now_ms
        ],
    )?;
    Ok(())
}

fn add_trial(
    tx: &mut Tx<'_>,
    meeting_id: &MeetingId,
    number: i64,
    (trial, benchmark): (&NewTrial, &str),
    times: &Times,
    now_ms: UnixMs,
) -> Result<()> {
    let (course, _) = Course::begin(times, now_ms);
    tx.exec(
        "INSERT INTO market_trial (request_id, meeting_id, number, request_json, seed, benchmark, begun_ms, course,
           total)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        args![
            &trial.request.id.hex(),
            meeting_id.as_str(),
            number,
            &trial.request.to_json(),
            &to_hex(&trial.seed),
            benchmark,
            now_ms,
            &course_text(&course)?,
            i64::try_from(trial.tests).unwrap_or(i64::MAX)
        ],
    )?;
    reference::used_by(tx, &trial.request)?;
    set_due(tx, meeting_id, course.due_ms)
}

fn course_text(course: &Course) -> Result<String> {
    Ok(String::from_utf8_lossy(&json::to_canonical(course)?).into_owned())
}

fn set_due(tx: &mut Tx<'_>, meeting_id: &MeetingId, due_ms: UnixMs) -> Result<()> {
    tx.exec(
        "UPDATE market_meeting SET due_ms = $2 WHERE meeting_id = $1",
        args![meeting_id.as_str(), due_ms],
    )?;
    Ok(())
}

/// Writes where a trial stands, and when its meeting is due.
fn set_course(tx: &mut Tx<'_>, trial: &Trial, course: &Course) -> Result<()> {
    tx.exec(
        "UPDATE market_trial SET course = $2 WHERE request_id = $1",
        args![&trial.request_id.hex(), &course_text(course)?],
    )?;
    set_due(tx, &trial.meeting_id, course.due_ms)
}

/// Claims a meeting that somebody must look at; none if another process has it, or if it is over.
pub fn claim(
    tx: &mut Tx<'_>,
    meeting_id: &MeetingId,
    who: &Claimant,
    now_ms: UnixMs,
) -> Result<Option<(Meeting, Claim)>> {
    let meeting = get(tx, meeting_id)?;
    if meeting.state == State::Ended {
        return Ok(None);
    }
    let Some(claim) = meeting.claimed.claim_by(who, now_ms) else { return Ok(None) };
    tx.cas(
        "UPDATE market_meeting SET claim_token = $2, claim_until_ms = $3, claim_epoch = $4
         WHERE meeting_id = $1 AND state <> 'ended'",
        args![meeting_id.as_str(), &claim.token, claim.until_ms, claim.epoch],
    )?;
    Ok(Some((meeting, claim)))
}

/// Makes a claim last longer. Refused if another process has taken the meeting over, or if it is over.
pub fn renew(
    tx: &mut Tx<'_>,
    meeting_id: &MeetingId,
    claim: &Claim,
    until_ms: UnixMs,
) -> Result<Claim> {
    let renewed = tx.exec(
        "UPDATE market_meeting SET claim_until_ms = $4
         WHERE meeting_id = $1 AND state <> 'ended' AND claim_token = $2 AND claim_epoch = $3",
        args![meeting_id.as_str(), &claim.token, claim.epoch, until_ms],
    )?;
    fenced(renewed)?;
    Ok(Claim { until_ms, ..claim.clone() })
}

/// Gives a claim back with what was done under it. Refused if another process has taken the meeting over.
fn give_back(tx: &mut Tx<'_>, meeting_id: &MeetingId, claim: &Claim) -> Result<()> {
    let given = tx.exec(
        "UPDATE market_meeting SET claim_token = NULL, claim_until_ms = NULL
         WHERE meeting_id = $1 AND state <> 'ended' AND claim_token = $2 AND claim_epoch = $3",
        args![meeting_id.as_str(), &claim.token, claim.epoch],
    )?;
    fenced(given)
}

/// Gives back all that this one has claimed, so that nobody has to wait for it; how many meetings.
pub fn release(tx: &mut Tx<'_>, who: &Claimant) -> Result<u64> {
    Ok(tx.exec(
        "UPDATE market_meeting SET claim_token = NULL, claim_until_ms = NULL
         WHERE state <> 'ended' AND claim_token = $1",
        args![&who.token],
    )?)
}

/// Looks at a trial whose moment has come: what is to be done now. `chance` is any number.
pub fn look(
    tx: &mut Tx<'_>,
    trial: &Trial,
    claim: &Claim,
    times: &Times,
    (now_ms, chance): (UnixMs, u64),
) -> Result<Vec<Act>> {
    give_back(tx, &trial.meeting_id, claim)?;
    // It may have been answered since it was read.
    let Some(trial) = trial_of(tx, &trial.request_id)? else { return Ok(Vec::new()) };
    // Without relays of others it is our own that has it.
    let Meeting { choices, terms, .. } = get(tx, &trial.meeting_id)?;
    let is_here = choices.iter().all(Vec::is_empty);
    let acks = publish::acks(tx, &trial.request_id)?;
    let mut acked = acks.iter().filter(|ack| ack.state == AckState::Acked);
    let is_ours = |ack: &publish::RelayAck| terms.relays.contains(&ack.relay);
    let ours = is_here || acked.clone().any(is_ours);
    let taken = trial.course.taken_ms.is_some() || is_here || acked.next().is_some();
    let mut before = trial.course.clone();
    if ours {
        before.relayed(now_ms);
    }
    let (course, acts) = before.after(times, Sign::Look { taken }, now_ms, chance);
    set_course(tx, &trial, &course)?;
    if acts.contains(&Act::End(End::Unresponsive)) {
        let provider = get(tx, &trial.meeting_id)?.terms.provider;
        delivery::silent(tx, &trial.request_id, &provider, now_ms)?;
    }
    if course.stage != trial.course.stage {
        tell_trial(tx, &trial, course.stage.name(), now_ms)?;
    }
    Ok(acts)
}

/// What the judge found.
#[derive(Debug, Clone, PartialEq)]
pub enum Judged {
    /// A verdict about a program.
    Verdict(Box<Verdict>),
    /// What the check of the work's own schema found.
    Checked(Box<verify::Verdict>),
    /// There was nothing that could be judged: in which words.
    Nothing(String),
}

/// Writes down what a result is worth, once.
pub fn judged(
    tx: &mut Tx<'_>,
    meeting: &Meeting,
    trial: &Trial,
    claim: &Claim,
    found: &Judged,
    now_ms: UnixMs,
) -> Result<()> {
    give_back(tx, &trial.meeting_id, claim)?;
    let (class, passed, peak, quality, words, judgement_id) = match found {
        Judged::Verdict(verdict) => {
            let id = record::record(tx, &meeting.terms.provider, verdict, now_ms)?;
            let peak = i64::try_from(verdict.metrics.memory_peak_bytes).ok();
            let quality = verdict.metrics.pylint_milli.value();
            let quality = quality.and_then(|milli| i64::try_from(milli).ok());
            let passed = i64::try_from(verdict.passed).unwrap_or(i64::MAX);
            (verdict.class.name(), passed, peak, quality, None, Some(id.to_string()))
        }
        Judged::Checked(verdict) if verdict.passed => ("SUCCESS", 1, None, None, None, None),
        Judged::Checked(verdict) => {
            let first = verdict.checks.problems().next().map(|problem| plain(&problem.to_string()));
            ("FAILURE", 0, None, None, first, None)
        }
        Judged::Nothing(words) => ("FAILURE", 0, None, None, Some(plain(words)), None),
    };
    let course = Course { stage: Stage::Over, due_ms: now_ms, ..trial.course.clone() };
    tx.exec(
        "UPDATE market_trial SET class = $2, passed = $3, memory_peak_bytes = $4, quality_milli = $5, words = $6,
           judgement_id = $7, judged_ms = $8 WHERE request_id = $1 AND class IS NULL",
        args![
            &trial.request_id.hex(),
            class,
            passed,
            peak,
            quality,
            words.as_ref(),
            judgement_id.as_ref(),
            now_ms
        ],
    )?;
    set_course(tx, trial, &course)?;
    tell_trial(tx, trial, "judged", now_ms)
}

/// How long others took for this benchmark.
pub fn baseline(rx: &mut Rx<'_>, meeting: &Meeting) -> Result<Baseline> {
    let mut rows: Vec<(i64,)> = rx.all(
        "SELECT t.latency_ms FROM market_trial t JOIN market_meeting m ON m.meeting_id = t.meeting_id
         WHERE t.benchmark = $1 AND t.class = 'SUCCESS' AND t.latency_ms IS NOT NULL AND m.provider <> $2
         ORDER BY t.judged_ms DESC LIMIT $3",
        args![meeting.terms.benchmark.name(), &meeting.terms.provider.npub(), BASELINE_MAX],
    )?;
    let mut baseline = Baseline::default();
    if rows.len() < BASELINE_MIN {
        return Ok(baseline);
    }
    rows.reverse();
    for (ms,) in rows {
        baseline.add(u64::try_from(ms).unwrap_or(0));
    }
    Ok(baseline)
}

/// What the trials of a meeting come to, beside what others took.
pub fn weigh_all(rx: &mut Rx<'_>, meeting: &Meeting, options: &Options) -> Result<Weighed> {
    let benchmark = meeting.terms.benchmark;
    let trials = trials(rx, &meeting.meeting_id)?;
    let tried: Vec<Tried> = trials.iter().map(|trial| trial.tried(benchmark)).collect();
    let baseline = baseline(rx, meeting)?;
    let silent_ms = options.times.unresponsive_ms;
    Ok(weigh(&options.evaluation, &baseline, silent_ms, &tried))
}

/// What follows when a trial is over.
#[derive(Debug, Clone, PartialEq)]
pub enum Advanced {
    /// The next trial has begun: its request is to be published in this transaction.
    Next(Trial),
    /// It is decided; the routing matrix is to be told.
    Decided(Meeting),
}

/// Goes on after a trial that is over: with the next one, or to the end.
pub fn advance(
    tx: &mut Tx<'_>,
    meeting: &Meeting,
    claim: &Claim,
    next: &NewTrial,
    options: &Options,
    now_ms: UnixMs,
) -> Result<Advanced> {
    give_back(tx, &meeting.meeting_id, claim)?;
    let (outcome, evaluation, cooldown_ms) = match weigh_all(tx, meeting, options)? {
        Weighed::Ended { outcome, evaluation, cooldown_ms } => (outcome, evaluation, cooldown_ms),
        Weighed::Next => {
            let made = trials(tx, &meeting.meeting_id)?.len();
            let number = i64::try_from(made).unwrap_or(i64::MAX).saturating_add(1);
            let name = meeting.terms.benchmark.name();
            let times = &options.times;
            add_trial(tx, &meeting.meeting_id, number, (next, name), times, now_ms)?;
            let trial = trial_of(tx, &next.request.id)?;
            let trial = trial.ok_or(guild_store::Error::Panicked)?;
            tell_trial(tx, &trial, "began", now_ms)?;
            return Ok(Advanced::Next(trial));
        }
    };
    let last = trials(tx, &meeting.meeting_id)?.pop();
    let words = last.and_then(|trial| trial.words);
    let evaluation = evaluation.map(|found| serde_json::to_string(&found).unwrap_or_default());
    tx.exec(
        "UPDATE market_meeting SET state = 'routing', outcome = $2, evaluation = $3, words = $4,
           cooldown_until_ms = $5, due_ms = $6 WHERE meeting_id = $1 AND state = 'trying'",
        args![
            meeting.meeting_id.as_str(),
            outcome.name(),
            evaluation.as_ref(),
            words.as_ref(),
            cooldown_ms.map(|ms| now_ms.saturating_add(ms)),
            now_ms
        ],
    )?;
    let meeting = get(tx, &meeting.meeting_id)?;
    tell_of(tx, &meeting, outcome.name(), now_ms)?;
    Ok(Advanced::Decided(meeting))
}

/// Ends a meeting whose outcome is in the routing matrix.
pub fn end(
    tx: &mut Tx<'_>,
    meeting: &Meeting,
    claim: &Claim,
    words: Option<&str>,
    now_ms: UnixMs,
) -> Result<Meeting> {
    give_back(tx, &meeting.meeting_id, claim)?;
    tx.exec(
        "UPDATE market_meeting SET state = 'ended', ended_ms = $2, words = coalesce($3, words)
         WHERE meeting_id = $1 AND state = 'routing'",
        args![meeting.meeting_id.as_str(), now_ms, words.map(plain).as_ref()],
    )?;
    let meeting = get(tx, &meeting.meeting_id)?;
    tell_of(tx, &meeting, "ended", now_ms)?;
    Ok(meeting)
}

/// What a stranger said, as it can be kept and shown: without what nobody sees, and not for ever.
fn plain(words: &str) -> String {
    const WORDS_MAX_CHARS: usize = 300;
    let seen = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    words.chars().take(WORDS_MAX_CHARS).map(seen).collect()
}

/// Tells what happened to a meeting. What was asked and answered is not in it: it may be private.
fn tell_of(tx: &mut Tx<'_>, meeting: &Meeting, what: &str, now_ms: UnixMs) -> Result<()> {
    let body = json!({
        "meeting_id": meeting.meeting_id, "provider": meeting.terms.provider, "task": meeting.task,
        "state": meeting.state.as_str(), "outcome": meeting.outcome.map(Outcome::name),
    });
    let id = format!("{}:{what}", meeting.meeting_id);
    tell(tx, &id, &format!("meeting.{what}"), &body, now_ms)
}

fn tell_trial(tx: &mut Tx<'_>, trial: &Trial, what: &str, now_ms: UnixMs) -> Result<()> {
    let body = json!({
        "meeting_id": trial.meeting_id, "request_id": trial.request_id, "number": trial.number,
    });
    let id = format!("trial:{}:{what}:{now_ms}", trial.request_id);
    tell(tx, &id, &format!("trial.{what}"), &body, now_ms)
}
