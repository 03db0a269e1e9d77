//! Hosting over HTTP: `/v1`. What is asked for and answered stands in [`guild_hosting::api`], and what it does in
//! [`guild_hosting::desk`]; here it is read, passed on and described.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::routing::{delete, get, post};

use crate::Shared;

mod access;
pub(crate) mod asked;
mod billing;
pub(crate) mod document;
mod inside;
mod jobs;
mod operator;
mod ports;
pub(crate) mod pour;
mod sandboxes;

/// Where files go in and out.
const FILES: &str = "/v1/sandboxes/{sandbox_id}/files";

/// The routes. Each is in [`document::Document`] too, and a test compares the two.
pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/v1", get(document::page))
        .route("/v1/openapi.json", get(document::openapi))
        .route("/v1/auth/nonce", post(access::nonce))
        .route("/v1/auth/verify", post(access::verify))
        .route("/v1/auth/bypass", post(access::bypass))
        .route("/v1/auth/me", get(access::me))
        .route("/v1/auth/logout", post(access::logout))
        .route("/v1/keys", get(access::keys).post(access::create_key))
        .route("/v1/keys/{key_id}", delete(access::revoke_key))
        .route("/v1/prices", get(sandboxes::price))
        .route("/v1/jobs", get(jobs::list).post(jobs::create))
        .route("/v1/jobs/{job_id}", get(jobs::show))
        .route("/v1/jobs/{job_id}/extend", post(jobs::extend))
        .route("/v1/jobs/{job_id}/stop", post(jobs::stop))
        .route("/v1/jobs/{job_id}/sandboxes", get(sandboxes::of_job).post(sandboxes::create))
        .route("/v1/sandboxes", get(sandboxes::list))
        .route("/v1/sandboxes/{sandbox_id}", get(sandboxes::show))
        .route("/v1/sandboxes/{sandbox_id}/extend", post(sandboxes::extend))
        .route("/v1/sandboxes/{sandbox_id}/resize", post(sandboxes::resize))
        .route("/v1/sandboxes/{sandbox_id}/stop", post(sandboxes::stop))
        .route("/v1/sandboxes/{sandbox_id}/destroy", post(sandboxes::destroy))
        .route("/v1/sandboxes/{sandbox_id}/pause", post(sandboxes::pause))
        .route("/v1/sandboxes/{sandbox_id}/resume", post(sandboxes::resume))
        .route("/v1/sandboxes/{sandbox_id}/exec", post(inside::exec))
        .route("/v1/sandboxes/{sandbox_id}/exec/{exec_id}", get(inside::output))
        .route("/v1/sandboxes/{sandbox_id}/exec/{exec_id}/stdin", post(inside::stdin))
        .route("/v1/sandboxes/{sandbox_id}/exec/{exec_id}/signal", post(inside::signal))
        .route("/v1/sandboxes/{sandbox_id}/directory", get(inside::directory))
        .route("/v1/sandboxes/{sandbox_id}/secrets", post(inside::secrets))
        .merge(files())
        .merge(ports::routes())
        .route("/v1/billing/balance", get(billing::balance))
        .route("/v1/billing/statement", get(billing::statement))
        .route("/v1/billing/withdrawals", get(billing::withdrawals).post(billing::withdraw))
        .route("/v1/billing/withdrawals/{withdrawal_id}", get(billing::withdrawal))
        .route("/v1/billing/quotes/{quote_id}", get(billing::quote))
        .route("/v1/operator/clock", get(operator::clock))
        .route("/v1/operator/clock/accept", post(operator::accept_clock))
        .route("/v1/operator/credits", post(operator::credit))
        .route("/v1/operator/withdrawals", get(operator::withdrawals))
        .route("/v1/operator/withdrawals/{withdrawal_id}/confirm", post(operator::confirm))
        .route("/v1/operator/withdrawals/{withdrawal_id}/fail", post(operator::fail))
}

/// Files are larger than anything else that is sent here: how large, their handler says.
fn files() -> Router<Shared> {
    let files = get(inside::download).put(inside::upload).delete(inside::delete);
    Router::new().route(FILES, files).layer(DefaultBodyLimit::disable())
}

/// Whether a request has a pace of its own instead of a deadline.
pub(crate) fn has_own_pace(method: &Method, route: &str) -> bool {
    *method == Method::PUT && route == FILES
}
