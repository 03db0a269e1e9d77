//! The sandbox as a whole: how it is, how long, with which secrets.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::super::error::Result;
use super::super::wire::{
    Attestation, EndedBy, Health, LeaseStands, ResizeRequest, SecretRelease, SecretsReleased,
    Shape, State as Does,
};
use super::super::{Lease, Shared, lock};
use super::Admitted;
use super::body::Sent;
use super::exec::blocking;

type Agent = State<Arc<Shared>>;

pub(super) async fn health(State(shared): Agent) -> Json<Health> {
    let (state, ended_by, class, shape) = {
        let status = shared.status();
        let state = match (status.ended_by, status.frozen) {
            (Some(_), _) => Does::Ended,
            (None, true) => Does::Frozen,
            (None, false) => Does::Running,
        };
        (state, status.ended_by, status.class, status.shape)
    };
    // One lock after another: inside the expression below they would be held together.
    let now_ms = shared.clock.now_ms();
    let (run_until_ms, uptime_ms, leased, ran_ms) = {
        let term = lock(&shared.term);
        (term.run_until_ms(), term.gone_ms(), term.has_begun(), term.ran_ms(now_ms))
    };
    let secrets_released = lock(&shared.vault).is_released();
    Json(Health {
        sandbox_id: shared.party.sandbox_id.clone(),
        state,
        ended_by,
        class,
        image_version: shared.options.image_version.clone(),
        run_until_ms,
        now_ms,
        uptime_ms,
        leased,
        ran_ms,
        shape: Some(shape),
        execs: shared.execs.running(),
        secrets_released,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

pub(super) async fn attestation(State(shared): Agent, admitted: Admitted) -> Json<Attestation> {
    lock(&shared.vault).attested(admitted.nonce);
    Json(Attestation {
        mode: "standard".to_owned(),
        image_version: shared.options.image_version.clone(),
        measurement: None,
    })
}

pub(super) async fn release_secrets(
    State(shared): Agent,
    sent: Sent<SecretRelease>,
) -> Result<Json<SecretsReleased>> {
    shared.require_running()?;
    let names = lock(&shared.vault).release(&sent.value, &shared.key)?;
    tracing::info!(count = names.len(), "secrets were released");
    Ok(Json(SecretsReleased { names }))
}

pub(super) async fn lease(
    State(shared): Agent,
    Sent { value: lease, .. }: Sent<Lease>,
) -> Result<Json<LeaseStands>> {
    lease.check(&shared.party, &shared.options.controller)?;
    shared.require_alive()?;
    let (changed, run_until_ms) = {
        let mut term = lock(&shared.term);
        (term.accept(&lease, shared.clock.now_ms()), term.run_until_ms())
    };
    if changed && lease.stop {
        shared.end(EndedBy::Stop);
    }
    tracing::info!(changed, run_until_ms, stop = lease.stop, "a lease came");
    Ok(Json(LeaseStands { run_until_ms, changed }))
}

/// Gives the sandbox another shape, or changes nothing.
pub(super) async fn resize(
    State(shared): Agent,
    Sent { value, .. }: Sent<ResizeRequest>,
) -> Result<StatusCode> {
    shared.require_running()?;
    let ResizeRequest { cpu_milli, memory_mib } = value;
    let bytes = memory_mib.saturating_mul(1 << 20);
    blocking(move || {
        let _in_turn = lock(&shared.resizing);
        shared.handle.resize(cpu_milli, bytes)?;
        shared.status().shape = Shape { cpu_milli, memory_mib };
        Ok(())
    })
    .await?;
    tracing::info!(cpu_milli, memory_mib, "another shape");
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn freeze(State(shared): Agent) -> Result<StatusCode> {
    set_frozen(&shared, true)
}

pub(super) async fn thaw(State(shared): Agent) -> Result<StatusCode> {
    set_frozen(&shared, false)
}

fn set_frozen(shared: &Shared, frozen: bool) -> Result<StatusCode> {
    shared.require_running()?;
    if frozen {
        shared.handle.freeze()?;
    } else {
        shared.handle.thaw()?;
    }
    shared.status().frozen = frozen;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends the sandbox and the agent. This answer is still sent.
pub(super) async fn shutdown(State(shared): Agent) -> StatusCode {
    shared.end(EndedBy::Stop);
    shared.shutdown.trigger();
    StatusCode::NO_CONTENT
}
