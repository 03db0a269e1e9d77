//! What only the operator of this node may do, by the node's own token: say that money has arrived or was sent, and
//! that the clock is right.

use axum::Json;
use guild_hosting::api::{
    ClockView, ConfirmBody, CreditBody, CreditView, FailBody, PageQuery, Problem, WithdrawalView,
    Withdrawals,
};

use super::asked::{Asked, At, Body, Id};
use super::document::{WithdrawalPage, WithdrawalPath};
use crate::Result;
use crate::guard::Operator;

/// Money has arrived for a user. Booked once for each reference.
#[utoipa::path(post, path = "/v1/operator/credits", tag = "operator", request_body(content = CreditBody),
    security(("node" = [])), responses(
    (status = 200, description = "How the account stands.", body = CreditView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn credit(
    at: At,
    _: Operator,
    Body(body): Body<CreditBody>,
) -> Result<Json<CreditView>> {
    Ok(Json(at.desk.credit(body).await?))
}

/// The withdrawals that have to be sent, the oldest first; `before` is where the page before ended.
#[utoipa::path(get, path = "/v1/operator/withdrawals", tag = "operator", params(WithdrawalPage),
    security(("node" = [])), responses(
    (status = 200, description = "A page of them.", body = Withdrawals),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn withdrawals(
    at: At,
    _: Operator,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Withdrawals>> {
    Ok(Json(at.desk.open_withdrawals(page).await?))
}

/// A withdrawal has arrived.
#[utoipa::path(post, path = "/v1/operator/withdrawals/{withdrawal_id}/confirm", tag = "operator",
    params(WithdrawalPath),
    request_body(content = ConfirmBody), security(("node" = [])), responses(
    (status = 200, description = "The withdrawal.", body = WithdrawalView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn confirm(
    at: At,
    _: Operator,
    Id(id): Id,
    Body(body): Body<ConfirmBody>,
) -> Result<Json<WithdrawalView>> {
    Ok(Json(at.desk.confirm_withdrawal(&id, body).await?))
}

/// A withdrawal could not be sent: the money is back in the account.
#[utoipa::path(post, path = "/v1/operator/withdrawals/{withdrawal_id}/fail", tag = "operator",
    params(WithdrawalPath),
    request_body(content = FailBody), security(("node" = [])), responses(
    (status = 200, description = "The withdrawal.", body = WithdrawalView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn fail(
    at: At,
    _: Operator,
    Id(id): Id,
    Body(body): Body<FailBody>,
) -> Result<Json<WithdrawalView>> {
    Ok(Json(at.desk.fail_withdrawal(&id, body).await?))
}

/// What the meter makes of the clock. Unless it is steady, no minute is metered.
#[utoipa::path(get, path = "/v1/operator/clock", tag = "operator", security(("node" = [])), responses(
    (status = 200, description = "What it saw.", body = ClockView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn clock(at: At, _: Operator) -> Result<Json<ClockView>> {
    Ok(Json(at.desk.meter_clock().await?))
}

/// The present time is right, also if the meter saw a later one: it goes on from here.
#[utoipa::path(post, path = "/v1/operator/clock/accept", tag = "operator", security(("node" = [])), responses(
    (status = 200, description = "What the meter makes of it now.", body = ClockView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn accept_clock(at: At, _: Operator) -> Result<Json<ClockView>> {
    Ok(Json(at.desk.accept_clock().await?))
}
