//! Jobs: bounded spending windows that own sandboxes.

use axum::Json;
use guild_hosting::api::{ExtendBody, JobView, Jobs, NewJobBody, PageQuery, Problem};

use super::asked::{Answered, Asked, Caller, Id, Nothing, Write};
use super::document::{Idempotent, JobPage, JobPath};
use crate::Result;

/// Makes a job. No money moves: a job bounds what its sandboxes spend.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", request_body(content = NewJobBody), params(Idempotent),
    responses(
    (status = 201, description = "The job, and what was granted of what was asked for.", body = JobView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn create(write: Write<NewJobBody>) -> Result<Answered> {
    Ok(Answered(write.desk.create_job(write.sent, write.body).await?))
}

/// The jobs, the newest first.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(JobPage), responses(
    (status = 200, description = "A page of them.", body = Jobs),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn list(
    Caller { desk, token }: Caller,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Jobs>> {
    Ok(Json(desk.jobs(token, page).await?))
}

/// One job.
#[utoipa::path(get, path = "/v1/jobs/{job_id}", tag = "jobs",
    params(JobPath), responses(
    (status = 200, description = "The job.", body = JobView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn show(Caller { desk, token }: Caller, Id(job_id): Id) -> Result<Json<JobView>> {
    Ok(Json(desk.job(token, &job_id).await?))
}

/// Gives a job more money or time. What is asked for is absolute: the same again changes nothing.
#[utoipa::path(post, path = "/v1/jobs/{job_id}/extend", tag = "jobs", request_body(content = ExtendBody),
    params(JobPath, Idempotent), responses(
    (status = 200, description = "The job, and what was granted of what was asked for.", body = JobView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn extend(Id(job_id): Id, write: Write<ExtendBody>) -> Result<Answered> {
    Ok(Answered(write.desk.extend_job(write.sent, &job_id, write.body).await?))
}

/// Ends a job and, at once, all its sandboxes.
#[utoipa::path(post, path = "/v1/jobs/{job_id}/stop", tag = "jobs",
    params(JobPath, Idempotent), responses(
    (status = 200, description = "The job.", body = JobView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn stop(Id(job_id): Id, write: Write<Nothing>) -> Result<Answered> {
    Ok(Answered(write.desk.stop_job(write.sent, &job_id).await?))
}
