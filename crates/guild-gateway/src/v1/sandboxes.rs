//! Sandboxes: bought by the minute, each paid before it begins.

use axum::Json;
use guild_hosting::api::{
    ExtendBody, Insufficient, NewSandboxBody, PageQuery, PriceQuery, PriceView, Problem,
    ResizeBody, SandboxView, Sandboxes,
};

use super::asked::{Answered, Asked, At, Caller, Id, Nothing, Write};
use super::document::{Idempotent, JobPath, SandboxPage, SandboxPath};
use crate::Result;

/// What a minute of a shape costs, and which images there are. Anybody may ask.
#[utoipa::path(get, path = "/v1/prices", tag = "sandboxes", security(()), params(PriceQuery), responses(
    (status = 200, description = "The price.", body = PriceView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn price(at: At, Asked(query): Asked<PriceQuery>) -> Result<Json<PriceView>> {
    Ok(Json(at.desk.price(&query)?))
}

/// Orders a sandbox. Its first minute is held; it is paid when the sandbox starts.
#[utoipa::path(post, path = "/v1/jobs/{job_id}/sandboxes", tag = "sandboxes",
    request_body(content = NewSandboxBody),
    params(JobPath, Idempotent), responses(
    (status = 201, description = "The sandbox, and what was granted of what was asked for.", body = SandboxView),
    (status = 402, description = "The account does not pay for the first minute; what is missing.",
        body = Insufficient),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn create(Id(job_id): Id, write: Write<NewSandboxBody>) -> Result<Answered> {
    Ok(Answered(write.desk.create_sandbox(write.sent, &job_id, write.body).await?))
}

/// The sandboxes of a job, the newest first.
#[utoipa::path(get, path = "/v1/jobs/{job_id}/sandboxes", tag = "sandboxes",
    params(JobPath, SandboxPage), responses(
    (status = 200, description = "A page of them.", body = Sandboxes),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn of_job(
    Caller { desk, token }: Caller,
    Id(job_id): Id,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Sandboxes>> {
    Ok(Json(desk.sandboxes(token, Some(&job_id), page).await?))
}

/// All sandboxes, the newest first.
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", params(SandboxPage), responses(
    (status = 200, description = "A page of them.", body = Sandboxes),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn list(
    Caller { desk, token }: Caller,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Sandboxes>> {
    Ok(Json(desk.sandboxes(token, None, page).await?))
}

/// One sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}", tag = "sandboxes",
    params(SandboxPath), responses(
    (status = 200, description = "The sandbox.", body = SandboxView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn show(
    Caller { desk, token }: Caller,
    Id(sandbox_id): Id,
) -> Result<Json<SandboxView>> {
    Ok(Json(desk.sandbox(token, &sandbox_id).await?))
}

/// Gives a sandbox more money or time, within what its job has left.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/extend", tag = "sandboxes",
    request_body(content = ExtendBody),
    params(SandboxPath, Idempotent), responses(
    (status = 200, description = "The sandbox.", body = SandboxView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn extend(Id(sandbox_id): Id, write: Write<ExtendBody>) -> Result<Answered> {
    Ok(Answered(write.desk.extend_sandbox(write.sent, &sandbox_id, write.body).await?))
}

/// Gives a sandbox another shape, from the next minute on that is not paid yet.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/resize", tag = "sandboxes",
    request_body(content = ResizeBody),
    params(SandboxPath, Idempotent), responses(
    (status = 200, description = "The sandbox.", body = SandboxView),
    (status = 402, description = "The account does not pay for a minute of it; what is missing.",
        body = Insufficient),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn resize(Id(sandbox_id): Id, write: Write<ResizeBody>) -> Result<Answered> {
    Ok(Answered(write.desk.resize_sandbox(write.sent, &sandbox_id, write.body).await?))
}

/// Ends a sandbox at once; its files are kept until it is destroyed or its time is over.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/stop", tag = "sandboxes",
    params(SandboxPath, Idempotent), responses(
    (status = 200, description = "The sandbox.", body = SandboxView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn stop(Id(sandbox_id): Id, write: Write<Nothing>) -> Result<Answered> {
    Ok(Answered(write.desk.stop_sandbox(write.sent, &sandbox_id).await?))
}

/// Ends a sandbox at once, and removes it with its files.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/destroy", tag = "sandboxes",
    params(SandboxPath, Idempotent), responses(
    (status = 200, description = "The sandbox.", body = SandboxView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn destroy(Id(sandbox_id): Id, write: Write<Nothing>) -> Result<Answered> {
    Ok(Answered(write.desk.destroy_sandbox(write.sent, &sandbox_id).await?))
}

/// Pauses a sandbox. It stays paid for: its memory is in use.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/pause", tag = "sandboxes",
    params(SandboxPath, Idempotent), responses(
    (status = 200, description = "The sandbox.", body = SandboxView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn pause(Id(sandbox_id): Id, write: Write<Nothing>) -> Result<Answered> {
    Ok(Answered(write.desk.pause_sandbox(write.sent, &sandbox_id).await?))
}

/// Lets a paused sandbox go on.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/resume", tag = "sandboxes",
    params(SandboxPath, Idempotent), responses(
    (status = 200, description = "The sandbox.", body = SandboxView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn resume(Id(sandbox_id): Id, write: Write<Nothing>) -> Result<Answered> {
    Ok(Answered(write.desk.resume_sandbox(write.sent, &sandbox_id).await?))
}
