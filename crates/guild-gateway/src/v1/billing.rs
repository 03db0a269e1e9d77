//! The money of a user.

use axum::Json;
use guild_hosting::api::{
    BalanceView, PageQuery, Problem, QuoteView, Statement, WithdrawBody, WithdrawalView,
    Withdrawals,
};

use super::asked::{Answered, Asked, Caller, Id, Write};
use super::document::{Idempotent, QuotePath, StatementPage, WithdrawalPage, WithdrawalPath};
use crate::Result;

/// How the account stands, what a minute costs now, and how many are left.
#[utoipa::path(get, path = "/v1/billing/balance", tag = "billing", responses(
    (status = 200, description = "How it stands.", body = BalanceView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn balance(Caller { desk, token }: Caller) -> Result<Json<BalanceView>> {
    Ok(Json(desk.balance(token).await?))
}

/// Every transfer that touched the account, the newest first.
#[utoipa::path(get, path = "/v1/billing/statement", tag = "billing", params(StatementPage), responses(
    (status = 200, description = "A page of them.", body = Statement),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn statement(
    Caller { desk, token }: Caller,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Statement>> {
    Ok(Json(desk.statement(token, page).await?))
}

/// Asks for money out. It is held until the operator of this node has sent it; a reserve for what runs must stay.
#[utoipa::path(post, path = "/v1/billing/withdrawals", tag = "billing", request_body(content = WithdrawBody),
    params(Idempotent), responses(
    (status = 201, description = "The withdrawal.", body = WithdrawalView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn withdraw(write: Write<WithdrawBody>) -> Result<Answered> {
    Ok(Answered(write.desk.withdraw(write.sent, write.body).await?))
}

/// The withdrawals, the newest first.
#[utoipa::path(get, path = "/v1/billing/withdrawals", tag = "billing", params(WithdrawalPage), responses(
    (status = 200, description = "A page of them.", body = Withdrawals),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn withdrawals(
    Caller { desk, token }: Caller,
    Asked(page): Asked<PageQuery>,
) -> Result<Json<Withdrawals>> {
    Ok(Json(desk.withdrawals(token, page).await?))
}

/// One withdrawal.
#[utoipa::path(get, path = "/v1/billing/withdrawals/{withdrawal_id}", tag = "billing",
    params(WithdrawalPath), responses(
    (status = 200, description = "The withdrawal.", body = WithdrawalView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn withdrawal(
    Caller { desk, token }: Caller,
    Id(withdrawal_id): Id,
) -> Result<Json<WithdrawalView>> {
    Ok(Json(desk.withdrawal(token, &withdrawal_id).await?))
}

/// A quote that was given with a 402.
#[utoipa::path(get, path = "/v1/billing/quotes/{quote_id}", tag = "billing",
    params(QuotePath), responses(
    (status = 200, description = "The quote.", body = QuoteView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn quote(
    Caller { desk, token }: Caller,
    Id(quote_id): Id,
) -> Result<Json<QuoteView>> {
    Ok(Json(desk.quote(token, &quote_id).await?))
}
