//! Hosting for people: pages below `/hosting` that show what the API at `/v1` tells programs.
//!
//! Who looks is known by a cookie that is sent to these paths alone, and what it holds may read and nothing else
//! ([`cookie`]). So no page of another site can make a browser change anything: there is nothing to change here, and
//! the API does not know the cookie.

mod cookie;
mod file;
mod sign_in;
mod watch;

use axum::Router;
use axum::extract::{FromRequestParts, State};
use axum::http::header::CACHE_CONTROL;
use axum::http::request::Parts;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use guild_hosting::desk::{Desk, Viewer};
use serde::Deserialize;

use crate::log::number;
use crate::v1::asked::{Asked, At, Id};
use crate::{Error, Result, Shared, web};

pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/hosting", get(overview))
        .route("/hosting/events", get(watch::events))
        .route("/hosting/jobs/{job_id}", get(job))
        .route("/hosting/sandboxes/{sandbox_id}", get(sandbox))
        .route("/hosting/statement", get(statement))
        .route("/hosting/statement.csv", get(file::csv))
        .route("/hosting/statement.json", get(file::json))
        .route("/hosting/sign-in", post(sign_in::sign_in))
        .route("/hosting/sign-in/message", post(sign_in::message))
        .route("/hosting/sign-out", post(sign_in::sign_out))
}

/// Somebody who may look at something.
pub(crate) struct Visit {
    pub(crate) desk: Desk,
    pub(crate) viewer: Viewer,
}

impl FromRequestParts<Shared> for Visit {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Visit> {
        let At { desk, address } = At::from_request_parts(parts, shared).await?;
        let viewer = cookie::viewer(shared, &parts.headers, address)?;
        Ok(Visit { desk, viewer })
    }
}

/// Where a list goes on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Before {
    before: Option<String>,
}

impl Before {
    fn number(&self) -> Result<Option<i64>> {
        self.before.as_deref().map(|text| number("before", Some(text), 0)).transpose()
    }
}

/// A page that nobody keeps: it is one person's.
fn shown(page: String) -> Response {
    ([(CACHE_CONTROL, "no-store")], Html(page)).into_response()
}

async fn overview(
    State(shared): State<Shared>,
    visit: Result<Visit>,
    Asked(before): Asked<Before>,
) -> Result<Response> {
    if shared.desk.is_none() {
        return Ok(shown(web::hosting::closed()));
    }
    let visit = visit?;
    let overview = visit.desk.overview(&visit.viewer, before.before.as_deref()).await?;
    Ok(shown(web::hosting::overview(&overview, shared.clock.now_ms())))
}

async fn job(State(shared): State<Shared>, visit: Visit, Id(job_id): Id) -> Result<Response> {
    let page = visit.desk.job_page(&visit.viewer, &job_id).await?;
    Ok(shown(web::hosting::job(&page, shared.clock.now_ms())))
}

async fn sandbox(
    State(shared): State<Shared>,
    visit: Visit,
    Id(sandbox_id): Id,
    Asked(before): Asked<Before>,
) -> Result<Response> {
    let page = visit.desk.sandbox_page(&visit.viewer, &sandbox_id, before.number()?).await?;
    Ok(shown(web::hosting::sandbox(&page, shared.clock.now_ms())))
}

async fn statement(visit: Visit, Asked(before): Asked<Before>) -> Result<Response> {
    let page = visit.desk.statement_page(&visit.viewer, before.number()?).await?;
    Ok(shown(web::hosting::statement(&page)))
}
