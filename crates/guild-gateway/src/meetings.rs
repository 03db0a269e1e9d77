//! Meetings of this node with providers: begun and looked at by whoever has its token. What was asked and answered may
//! be private, so nobody else reads it.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use guild_protocol::amount::Msat;
use guild_protocol::identity::PublicKey;
use guild_roles::meeting::{
    Benchmark, Meeting, MeetingId, Meetings, Module, Outcome, Story, Trial, Wish, Word,
};
use guild_roles::router::TaskType;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Error, Result, Shared};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMeeting {
    provider: String,
    task: Option<TaskType>,
    benchmark: Option<String>,
    #[serde(default)]
    modules: Vec<String>,
    #[serde(default)]
    encrypted: bool,
    bid_msat: Option<i64>,
    idempotency_key: Option<String>,
}

pub(crate) async fn create(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<NewMeeting>,
) -> Result<(StatusCode, Json<Value>)> {
    let meetings = meetings(&shared)?;
    let provider = asked.provider.parse::<PublicKey>();
    let wish = Wish {
        provider: provider
            .map_err(|_| Error::bad("provider", "must be a public key, npub1… or hex"))?,
        benchmark: benchmark(asked.benchmark.as_deref(), asked.task.as_ref())?,
        modules: modules(&asked.modules)?,
        encrypted: asked.encrypted,
        bid: asked.bid_msat.map(Msat),
        task: asked.task,
        idempotency_key: asked.idempotency_key,
    };
    let meeting = meetings.meet(wish).await?;
    Ok((StatusCode::CREATED, Json(view(&meeting))))
}

/// The one that is named, or the one that says something about the work.
fn benchmark(name: Option<&str>, task: Option<&TaskType>) -> Result<Benchmark> {
    let found = match (name, task) {
        (Some(name), _) => Benchmark::named(name),
        (None, Some(task)) => Benchmark::of_task(task),
        (None, None) => Ok(Benchmark::StdV3),
    };
    Ok(found.map_err(guild_roles::Error::from)?)
}

fn modules(names: &[String]) -> Result<BTreeSet<Module>> {
    let module = |name: &String| {
        let found = Module::ALL.into_iter().find(|module| module.name() == name);
        found.ok_or_else(|| Error::bad("modules", "are computation, memory and io"))
    };
    names.iter().map(module).collect()
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    _: Owner,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    let id: MeetingId = id
        .parse()
        .map_err(|_| Error::bad("meeting_id", "must be the id of a meeting, meeting_…"))?;
    let Story { meeting, trials } = meetings(&shared)?.story(id).await?;
    let mut body = view(&meeting);
    body["trials"] = trials.iter().map(|(trial, words)| trial_view(trial, words)).collect();
    Ok(Json(body))
}

fn meetings(shared: &Shared) -> Result<&Meetings> {
    shared.meetings.as_ref().ok_or_else(|| Error::NoSuchPath("/api/meetings".to_owned()))
}

fn view(meeting: &Meeting) -> Value {
    let terms = &meeting.terms;
    let modules: Vec<&str> = terms.modules.iter().map(|module| module.name()).collect();
    json!({
        "meeting_id": meeting.meeting_id,
        "provider": terms.provider.npub(),
        "d": meeting.d,
        "task": meeting.task,
        "benchmark": terms.benchmark.name(),
        "modules": modules,
        "kind": terms.kind,
        "encrypted": terms.encrypted,
        "bid_msat": terms.bid.map(|bid| bid.0),
        "begun_ms": meeting.begun_ms,
        "state": meeting.state.as_str(),
        "outcome": meeting.outcome.map(Outcome::name),
        "admitted": meeting.outcome.is_some_and(Outcome::is_admitted),
        "evaluation": meeting.evaluation,
        "words": meeting.words,
        "cooldown_until_ms": meeting.cooldown_until_ms,
        "ended_ms": meeting.ended_ms,
    })
}

fn trial_view(trial: &Trial, words: &[Word]) -> Value {
    let said = words.iter().map(|word| {
        json!({
            "event_id": word.event_id, "standing": word.standing.as_str(), "words": word.words,
            "received_ms": word.received_ms,
        })
    });
    json!({
        "request_id": trial.request_id,
        "number": trial.number,
        "begun_ms": trial.begun_ms,
        "stage": trial.course.stage.name(),
        "end": trial.course.end,
        "retries": trial.course.retries,
        "words": trial.words,
        "result_id": trial.result_id,
        "latency_ms": trial.latency_ms,
        "class": trial.class,
        "passed": trial.passed,
        "total": trial.total,
        "memory_peak_bytes": trial.memory_peak_bytes,
        "quality_milli": trial.quality_milli,
        "coverage_bp": trial.coverage_bp,
        "said": said.collect::<Vec<_>>(),
    })
}
