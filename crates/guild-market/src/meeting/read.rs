//! Meetings, trials and words as rows.

use std::collections::BTreeSet;

use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::from_hex_exact;
use guild_protocol::identity::PublicKey;
use guild_protocol::json;
use guild_protocol::nostr::{Event, EventId, Limits};
use guild_store::{Columns, Decode, Rx, args};

use super::{Course, MeetingId, Outcome, Standing, Terms, Tried};
use crate::benchmark::{Benchmark, Module, SEED_BYTES};
use crate::claim::{Claimant, Claimed};
use crate::error::code;
use crate::evaluation::Evaluation;
use crate::judge::Class;
use crate::routing::TaskType;
use crate::row::{Cells, page, unreadable};
use crate::{Error, Result};

/// Where a meeting stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its provider is being tried.
    Trying,
    /// It is decided, and the routing matrix is to be told.
    Routing,
    /// It is over.
    Ended,
}

impl State {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Trying => "trying",
            State::Routing => "routing",
            State::Ended => "ended",
        }
    }

    fn parse(word: &str) -> guild_store::Result<State> {
        let all = [State::Trying, State::Routing, State::Ended];
        let found = all.into_iter().find(|state| state.as_str() == word);
        found.ok_or_else(|| unreadable("a meeting has an unknown state"))
    }
}

/// A provider that we are getting to know, or got to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Meeting {
    /// Names it.
    pub meeting_id: MeetingId,
    /// On which terms, and with whom.
    pub terms: Terms,
    /// The `d` tag of the announcement that it is about.
    pub d: String,
    /// For which work it is hired if it passes.
    pub task: TaskType,
    /// Where requests are sent: the best relays first, then others, then all.
    pub choices: Vec<Vec<String>>,
    /// When it began.
    pub begun_ms: UnixMs,
    /// Where it stands.
    pub state: State,
    /// When somebody must look at it.
    pub due_ms: UnixMs,
    /// What came of it.
    pub outcome: Option<Outcome>,
    /// What was found, if something could be judged.
    pub evaluation: Option<Evaluation>,
    /// Why, in words.
    pub words: Option<String>,
    /// Until when it is not met again.
    pub cooldown_until_ms: Option<UnixMs>,
    /// When it ended.
    pub ended_ms: Option<UnixMs>,
    /// Which process works on it.
    pub claimed: Claimed,
}

/// A list in JSON, as we wrote it.
fn list<T: serde::de::DeserializeOwned>(text: &str) -> guild_store::Result<T> {
    json::decode(text.as_bytes()).map_err(unreadable)
}

fn modules(text: &str) -> guild_store::Result<BTreeSet<Module>> {
    let names: Vec<String> = list(text)?;
    let module = |name: &String| Module::ALL.into_iter().find(|module| module.name() == name);
    names
        .iter()
        .map(|name| module(name).ok_or_else(|| unreadable("a meeting has an unknown module")))
        .collect()
}

impl Decode for Meeting {
    fn decode(row: &dyn Columns) -> guild_store::Result<Meeting> {
        let mut cells = Cells::of(row);
        let meeting_id = cells.parsed()?;
        let provider: PublicKey = cells.parsed()?;
        let d = cells.next()?;
        let task = cells.parsed()?;
        let benchmark = Benchmark::named(&cells.next::<String>()?).map_err(unreadable)?;
        let modules = modules(&cells.next::<String>()?)?;
        let kind = u16::try_from(cells.next::<i64>()?).map_err(unreadable)?;
        let encrypted = cells.next::<i64>()? != 0;
        let bid: Option<Msat> = cells.msat_or_none()?;
        let relays = list(&cells.next::<String>()?)?;
        let choices = list(&cells.next::<String>()?)?;
        let terms = Terms { provider, benchmark, modules, kind, encrypted, bid, relays };
        let begun_ms = cells.next()?;
        let state = State::parse(&cells.next::<String>()?)?;
        let due_ms = cells.next()?;
        let outcome: Option<String> = cells.next()?;
        let evaluation: Option<String> = cells.next()?;
        Ok(Meeting {
            meeting_id,
            terms,
            d,
            task,
            choices,
            begun_ms,
            state,
            due_ms,
            outcome: outcome
                .map(|name| Outcome::named(&name).ok_or_else(|| unreadable("an unknown outcome")))
                .transpose()?,
            evaluation: evaluation.map(|text| list(&text)).transpose()?,
            words: cells.next()?,
            cooldown_until_ms: cells.next()?,
            ended_ms: cells.next()?,
            claimed: Claimed::read(&mut cells)?,
        })
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT meeting_id, provider, d, task_type, benchmark, modules, kind, encrypted, bid_units, relays, choices,
               begun_ms, state, due_ms, outcome, evaluation, words, cooldown_until_ms, ended_ms, claim_token,
               claim_until_ms, claim_epoch FROM market_meeting ",
            $rest
        )
    };
}

/// The meeting with this id, if there is one.
pub fn find(rx: &mut Rx<'_>, meeting_id: &MeetingId) -> Result<Option<Meeting>> {
    Ok(rx.first(select!("WHERE meeting_id = $1"), args![meeting_id.as_str()])?)
}

/// The meeting with this id.
pub fn get(rx: &mut Rx<'_>, meeting_id: &MeetingId) -> Result<Meeting> {
    let unknown = || Error::refused(&code::MEETING_UNKNOWN, format!("there is no {meeting_id}"));
    find(rx, meeting_id)?.ok_or_else(unknown)
}

/// The last meeting with a provider for some work, if there was one.
pub fn latest_of(
    rx: &mut Rx<'_>,
    provider: &PublicKey,
    task: &TaskType,
) -> Result<Option<Meeting>> {
    Ok(rx.first(
        select!(
            "WHERE provider = $1 AND task_type = $2 ORDER BY begun_ms DESC, meeting_id DESC LIMIT 1"
        ),
        args![&provider.npub(), task.as_str()],
    )?)
}

/// The meeting because of which a provider is not met yet on these terms. Whoever said nothing, or tried what is
/// forbidden, is not met for other work either; whoever failed is not met with the same benchmark.
pub(super) fn cooling_of(
    rx: &mut Rx<'_>,
    terms: &Terms,
    now_ms: UnixMs,
) -> Result<Option<Meeting>> {
    Ok(rx.first(
        select!(
            "WHERE provider = $1 AND cooldown_until_ms > $2
               AND (benchmark = $3 OR outcome IN ('unresponsive', 'forbidden'))
             ORDER BY cooldown_until_ms DESC, meeting_id LIMIT 1"
        ),
        args![&terms.provider.npub(), now_ms, terms.benchmark.name()],
    )?)
}

/// A page of meetings, the newest first: those before this one, or the newest of all.
pub fn page_before(
    rx: &mut Rx<'_>,
    before: Option<(UnixMs, &MeetingId)>,
    limit: i64,
) -> Result<Vec<Meeting>> {
    let (at_ms, id) = before.map_or((i64::MAX, ""), |(at_ms, id)| (at_ms, id.as_str()));
    Ok(rx.all(
        select!(
            "WHERE begun_ms < $1 OR (begun_ms = $1 AND meeting_id < $2)
             ORDER BY begun_ms DESC, meeting_id DESC LIMIT $3"
        ),
        args![at_ms, id, page(limit)],
    )?)
}

/// Meetings whose moment has come and that this one may claim, the most urgent first.
pub fn due(rx: &mut Rx<'_>, who: &Claimant, now_ms: UnixMs, limit: i64) -> Result<Vec<MeetingId>> {
    let rows: Vec<(String,)> = rx.all(
        "SELECT meeting_id FROM market_meeting WHERE state <> 'ended' AND due_ms <= $1
           AND (claim_token IS NULL OR claim_token = $2 OR claim_until_ms <= $1 OR claim_until_ms > $3)
         ORDER BY due_ms, meeting_id LIMIT $4",
        args![now_ms, &who.token, who.longest_ms(now_ms), page(limit)],
    )?;
    rows.into_iter().map(|(id,)| Ok(id.parse()?)).collect()
}

/// One request of a meeting, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Its request's id.
    pub request_id: EventId,
    /// Of which meeting.
    pub meeting_id: MeetingId,
    /// Its number there, from 1.
    pub number: i64,
    /// The request as it was signed.
    pub request_json: String,
    /// From which its task follows.
    pub seed: [u8; SEED_BYTES],
    /// When it began.
    pub begun_ms: UnixMs,
    /// How it has gone.
    pub course: Course,
    /// What was said about it.
    pub words: Option<String>,
    /// The result that counts.
    pub result_id: Option<EventId>,
    /// What it says.
    pub content: Option<String>,
    /// From the request to the result.
    pub latency_ms: Option<i64>,
    /// What it was worth.
    pub class: Option<Class>,
    /// Tests that passed.
    pub passed: i64,
    /// Tests that there are.
    pub total: i64,
    /// The most memory at one time.
    pub memory_peak_bytes: Option<i64>,
    /// How well it is made, in thousandths of a point.
    pub quality_milli: Option<i64>,
    /// How much of it the tests reached, in ten-thousandths.
    pub coverage_bp: Option<i64>,
}

impl Decode for Trial {
    fn decode(row: &dyn Columns) -> guild_store::Result<Trial> {
        let mut cells = Cells::of(row);
        Ok(Trial {
            request_id: cells.parsed()?,
            meeting_id: cells.parsed()?,
            number: cells.next()?,
            request_json: cells.next()?,
            seed: from_hex_exact(&cells.next::<String>()?)
                .ok_or_else(|| unreadable("a trial has no seed"))?,
            begun_ms: cells.next()?,
            course: list(&cells.next::<String>()?)?,
            words: cells.next()?,
            result_id: cells.parsed_or_none()?,
            content: cells.next()?,
            latency_ms: cells.next()?,
            class: cells.next::<Option<String>>()?.as_deref().and_then(Class::named),
            passed: cells.next()?,
            total: cells.next()?,
            memory_peak_bytes: cells.next()?,
            quality_milli: cells.next()?,
            coverage_bp: cells.next()?,
        })
    }
}

impl Trial {
    /// The request.
    pub fn request(&self) -> Result<Event> {
        let event = Event::parse(self.request_json.as_bytes(), &Limits::DEFAULT);
        Ok(event.map_err(unreadable)?)
    }

    /// What became of it, for whoever weighs.
    pub fn tried(&self, benchmark: Benchmark) -> Tried {
        let number = |value: i64| u64::try_from(value).unwrap_or(0);
        Tried {
            class: self.class,
            end: self.course.end,
            passed: number(self.passed),
            total: number(self.total),
            latency_ms: self.latency_ms.map(number),
            memory_peak_bytes: self.memory_peak_bytes.map(number),
            memory_limit_bytes: benchmark.memory_limit_bytes(),
            quality_milli: self.quality_milli.map(number),
            coverage_bp: self.coverage_bp.map(number),
        }
    }
}

macro_rules! select_trial {
    ($rest:literal) => {
        concat!(
            "SELECT request_id, meeting_id, number, request_json, seed, begun_ms, course, words, result_id, content,
               latency_ms, class, passed, total, memory_peak_bytes, quality_milli,
               (SELECT j.coverage_bp FROM market_judgement j WHERE j.judgement_id = market_trial.judgement_id)
             FROM market_trial ",
            $rest
        )
    };
}

/// The trials of a meeting, in order.
pub fn trials(rx: &mut Rx<'_>, meeting_id: &MeetingId) -> Result<Vec<Trial>> {
    let sql = select_trial!("WHERE meeting_id = $1 ORDER BY number");
    Ok(rx.all(sql, args![meeting_id.as_str()])?)
}

/// The trial of this request, if it is one of ours.
pub fn trial_of(rx: &mut Rx<'_>, request_id: &EventId) -> Result<Option<Trial>> {
    Ok(rx.first(select_trial!("WHERE request_id = $1"), args![&request_id.hex()])?)
}

/// What a provider said about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Its event.
    pub event_id: EventId,
    /// What it was good for.
    pub standing: Standing,
    /// What it says, for people.
    pub words: Option<String>,
    /// The event as it was signed.
    pub json: String,
    /// When it came.
    pub received_ms: UnixMs,
}

impl Decode for Word {
    fn decode(row: &dyn Columns) -> guild_store::Result<Word> {
        let mut cells = Cells::of(row);
        Ok(Word {
            event_id: cells.parsed()?,
            standing: Standing::parse(&cells.next::<String>()?)?,
            words: cells.next()?,
            json: cells.next()?,
            received_ms: cells.next()?,
        })
    }
}

/// What was said about a request, in the order in which it came.
pub fn words(rx: &mut Rx<'_>, request_id: &EventId) -> Result<Vec<Word>> {
    Ok(rx.all(
        "SELECT event_id, standing, words, json, received_ms FROM market_word
         WHERE request_id = $1 ORDER BY received_ms, event_id",
        args![&request_id.hex()],
    )?)
}
