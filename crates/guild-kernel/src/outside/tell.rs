//! Tells what happens to turns: the event table, followed in order, at least once.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::select;
use guild_bus::Bus;
use guild_bus::mail::{Letter, MESSAGE_ID, Mail};
use guild_bus::subject::{AgentEvent, Prefix, Subject, Token};
use guild_protocol::env::{Clock, Random, Shutdown};
use guild_protocol::error::Kind;
use guild_protocol::hash::to_hex;
use guild_store::event::{self, Event};
use guild_store::lease::{self, Lease};
use guild_store::{Rx, Store, Tx, args};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::doorbell::{self, Work};
use super::header::{
    AGENT_ID, CHANNEL_ID, EVENT_SEQ, PARENT_TRACEPARENT, PROJECT_ID, TRACEPARENT, TURN_EPOCH,
    TURN_ID, address, of_kernel,
};
use crate::{
    AgentId, AgentTurnId, ChannelId, ProjectId, QUEUED, Result, STATE, STEP, TASK, TOPIC, trace,
};

/// Who tells: one process at a time.
const NAME: &str = "kernel.tell";

/// How events are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TellerOptions {
    /// Who tells, for a person to read.
    pub holder: String,
    /// How long one process may tell before another takes over.
    pub lease_ms: i64,
    /// How many events are told at once.
    pub page: i64,
    /// How often the table is looked at without a bell, and how long a failure is waited out.
    pub sweep_ms: i64,
}

impl Default for TellerOptions {
    fn default() -> TellerOptions {
        TellerOptions { holder: "node".to_owned(), lease_ms: 30_000, page: 256, sweep_ms: 1_000 }
    }
}

/// What a teller works with.
pub struct TellerParts {
    /// Where the events are.
    pub store: Store,
    /// What rings when there are new ones.
    pub bus: Arc<dyn Bus>,
    /// Where they are told.
    pub mail: Arc<dyn Mail>,
    /// Under which subjects.
    pub prefix: Prefix,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// For the token of its lease.
    pub random: Arc<dyn Random>,
}

/// Follows the events of turns and sends each as a letter. Any number of processes may run one: the place is stored,
/// and its lease is held by one of them. A letter may come twice, under the same name and place.
pub struct Teller {
    options: TellerOptions,
    parts: TellerParts,
    token: String,
}

/// The right to tell, and how far it is.
struct Held {
    lease: Lease,
    place: i64,
}

/// What a look at the table led to.
enum Looked {
    /// There may be more.
    More,
    /// Nothing is left to tell.
    Nothing,
    /// It failed.
    Failed,
    /// Somebody else tells.
    Elsewhere,
}

impl Teller {
    /// A teller that has told nothing yet.
    pub fn new(options: TellerOptions, parts: TellerParts) -> Teller {
        let mut token = [0; 16];
        parts.random.fill(&mut token);
        Teller { options, parts, token: to_hex(&token) }
    }

    /// Tells until the shutdown.
    pub async fn run(self, shutdown: Shutdown) {
        let mut bell = self.parts.bus.listen(TOPIC);
        let tell = async {
            let mut held = None;
            loop {
                let looked = self.look(&mut held).await.unwrap_or_else(|error| {
                    tracing::warn!(%error, code = error.code().name, "events cannot be told now");
                    held = None;
                    Looked::Failed
                });
                let pause = |ms| self.parts.clock.sleep(ms);
                match looked {
                    Looked::More => {}
                    Looked::Nothing => {
                        select(bell.hear(), pause(self.options.sweep_ms)).await;
                    }
                    Looked::Failed => pause(self.options.sweep_ms).await,
                    Looked::Elsewhere => pause(self.options.lease_ms / 3).await,
                }
            }
        };
        select(pin!(tell), shutdown.triggered()).await;
    }

    async fn look(&self, held: &mut Option<Held>) -> Result<Looked> {
        let now_ms = self.parts.clock.now_ms();
        // What is sent takes some time: only with half of the lease left. A clock that was set back makes it no longer.
        let fresh = |held: &&mut Held| {
            let left_ms = held.lease.until_ms.saturating_sub(now_ms);
            (self.options.lease_ms / 2..=self.options.lease_ms).contains(&left_ms)
        };
        if held.as_mut().filter(fresh).is_none() {
            *held = self.begin().await?;
        }
        let Some(held) = held else { return Ok(Looked::Elsewhere) };
        let (place, page) = (held.place, self.options.page);
        let read = move |rx: &mut Rx<'_>| -> Result<(Vec<Event>, BTreeSet<Work>)> {
            let events = event::after(rx, TOPIC, place, page)?;
            let work = doorbell::due(rx, &agents_of(&events))?;
            Ok((events, work))
        };
        let (events, work) = self.parts.store.read(read).await?;
        if events.is_empty() {
            return Ok(Looked::Nothing);
        }
        self.wake(&work, now_ms);
        let (told, failed) = self.tell(&events).await;
        if let Some(told) = told {
            let (lease, clock) = (held.lease.clone(), self.parts.clock.clone());
            let moved = self.parts.store.write(move |tx| move_on(tx, &lease, told, clock.now_ms()));
            moved.await?;
            held.place = told;
        }
        Ok(if failed { Looked::Failed } else { Looked::More })
    }

    /// Takes or renews the lease, and reads the place; nothing if somebody else tells.
    async fn begin(&self) -> Result<Option<Held>> {
        let (holder, token) = (self.options.holder.clone(), self.token.clone());
        let (lease_ms, clock) = (self.options.lease_ms, self.parts.clock.clone());
        let begun = self.parts.store.write(move |tx| {
            let lease = lease::acquire(tx, NAME, &holder, &token, lease_ms, clock.now_ms())?;
            let Some(lease) = lease else { return Ok(None) };
            let place: Option<(i64,)> =
                tx.first("SELECT place FROM kernel_places WHERE name = $1", args![NAME])?;
            Ok(Some(Held { lease, place: place.map_or(0, |(place,)| place) }))
        });
        begun.await
    }

    /// Says where work waits for a worker. A hint, as bells are: workers look by themselves too.
    fn wake(&self, work: &BTreeSet<Work>, now_ms: i64) {
        for one in work {
            match doorbell::wakeup(one, &self.parts.prefix, now_ms) {
                Ok(letter) => self.parts.mail.cast(letter),
                Err(error) => tracing::debug!(%error, "a wake-up cannot be told"),
            }
        }
    }

    /// The last event that is told, and whether the next one could not be. What cannot be told at all is passed over.
    async fn tell(&self, events: &[Event]) -> (Option<i64>, bool) {
        let (mut letters, mut places) = (Vec::new(), Vec::new());
        for event in events {
            match letter(event, &self.parts.prefix) {
                Ok(letter) => {
                    letters.push(letter);
                    places.push(event.seq);
                }
                Err(error) => tracing::warn!(seq = event.seq, %error, "an event cannot be told"),
            }
        }
        let sent = self.parts.mail.send_all(letters).await;
        let stuck = sent.iter().zip(&places).find_map(|(sent, seq)| match sent {
            Ok(_) => None,
            Err(error) if error.kind() == Kind::Invalid => None,
            Err(error) => Some((*seq, error)),
        });
        if let Some((seq, error)) = stuck {
            tracing::debug!(seq, %error, "events are told later");
            let before = events.iter().map(|event| event.seq).take_while(|at| *at < seq).last();
            return (before, true);
        }
        (events.last().map(|event| event.seq), false)
    }
}

fn move_on(tx: &mut Tx<'_>, lease: &Lease, place: i64, now_ms: i64) -> Result<()> {
    lease::check(tx, lease, now_ms)?;
    tx.exec(
        "INSERT INTO kernel_places (name, place) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET place = excluded.place",
        args![NAME, place],
    )?;
    Ok(())
}

/// The agents whose turns may wait for a worker since these events.
fn agents_of(events: &[Event]) -> BTreeSet<(ProjectId, AgentId)> {
    #[derive(Deserialize)]
    struct Agent {
        project_id: ProjectId,
        agent_id: AgentId,
        status: String,
    }
    let waits = |event: &Event| {
        let agent: Agent = serde_json::from_str(&event.body).ok()?;
        let waits = ["queued", "dispatched"].contains(&agent.status.as_str());
        waits.then_some((agent.project_id, agent.agent_id))
    };
    events
        .iter()
        .filter(|event| [QUEUED, STATE].contains(&event.kind.as_str()))
        .filter_map(waits)
        .collect()
}

/// Whose event it is.
#[derive(Deserialize)]
struct About {
    project_id: ProjectId,
    channel_id: ChannelId,
    agent_id: AgentId,
    agent_turn_id: AgentTurnId,
    turn_epoch: i64,
    /// Of events that were told before there were any, it is made.
    traceparent: Option<String>,
    parent_traceparent: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// An event as a letter: whose it is in the headers, what it says in the payload.
fn letter(told: &Event, prefix: &Prefix) -> Result<Letter> {
    let bad = |why: &dyn std::fmt::Display| {
        crate::Error::refused(&crate::code::MALFORMED_ROW, format!("event {}: {why}", told.seq))
    };
    let about: About = serde_json::from_str(&told.body).map_err(|error| bad(&error))?;
    let event = match told.kind.as_str() {
        QUEUED | STATE => AgentEvent::State,
        STEP => AgentEvent::Step,
        TASK => AgentEvent::Task,
        other => return Err(bad(&format!("{other} is no kind of event"))),
    };
    let agent_id = Token::parse(about.agent_id.as_str())?;
    let subject = Subject::Agent { agent_id, event };
    let topic = address(prefix, &about.project_id, &about.channel_id, subject)?.topic()?;
    let mut headers = of_kernel(&told.kind, told.at_ms)?;
    headers.set(PROJECT_ID, about.project_id.as_str())?;
    headers.set(CHANNEL_ID, about.channel_id.as_str())?;
    headers.set(AGENT_ID, about.agent_id.as_str())?;
    headers.set(TURN_ID, about.agent_turn_id.as_str())?;
    headers.set(TURN_EPOCH, &about.turn_epoch.to_string())?;
    headers.set(EVENT_SEQ, &told.seq.to_string())?;
    headers.set(MESSAGE_ID, &format!("event/{}", told.id))?;
    let made = || trace::of_turn(None, &about.agent_turn_id);
    headers.set(TRACEPARENT, &about.traceparent.unwrap_or_else(made))?;
    if let Some(parent) = &about.parent_traceparent {
        headers.set(PARENT_TRACEPARENT, parent)?;
    }
    let mut payload = about.rest;
    if event == AgentEvent::Step
        && let Some(phase) = payload.remove("status")
    {
        payload.insert("phase".to_owned(), phase);
    }
    Ok(Letter::json(topic, headers, &Value::Object(payload))?)
}
