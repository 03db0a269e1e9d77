//! Money.

use guild_protocol::env::Clock;
use guild_store::{Rx, Store};

use crate::access::idempotency::Reply;
use crate::access::{Caller, Scope, Token};
use crate::api::{
    BalanceView, ClockView, ConfirmBody, CreditBody, CreditView, FailBody, Line, PageQuery,
    QuoteView, Statement, WithdrawBody, WithdrawalView, Withdrawals, next_of,
};
use crate::clamp::Policy;
use crate::error::code;
use crate::money::{self, NewWithdrawal, Withdrawal};
use crate::{Error, HostingQuoteId, Result, UserId, WithdrawalId, meter};

use super::{Desk, Sent, answer, parse};

impl Desk {
    /// How the account stands.
    pub async fn balance(&self, token: Token) -> Result<BalanceView> {
        let policy = self.0.options.policy.clone();
        self.read(token, Scope::BillingRead, move |rx, caller, now_ms| {
            balance(rx, &caller.user_id, &policy, now_ms)
        })
        .await
    }

    /// A page of the transfers that touched the account.
    pub async fn statement(&self, token: Token, page: PageQuery) -> Result<Statement> {
        let (limit, before) = (page.limit()?, page.before::<i64>()?);
        self.read(token, Scope::BillingRead, move |rx, caller, _| {
            let account_id = money::account(&caller.user_id)?.account_id;
            let lines = money::statement(rx, &caller.user_id, before, limit)?;
            let lines: Vec<Line> = lines.iter().map(|line| Line::of(line, &account_id)).collect();
            let next = next_of(&lines, limit, |line| line.seq.to_string());
            Ok(Statement { lines, next })
        })
        .await
    }

    /// Asks for money out: it is held until it has arrived somewhere.
    pub async fn withdraw(&self, sent: Sent, body: WithdrawBody) -> Result<Reply> {
        let withdrawal_id = WithdrawalId::make(&*self.0.clock, &*self.0.random);
        let policy = self.0.options.policy.clone();
        self.write(sent, Scope::BillingWithdraw, move |tx, caller, now_ms| {
            let new = NewWithdrawal {
                withdrawal_id: withdrawal_id.clone(),
                user_id: caller.user_id.clone(),
                units: body.units()?,
                destination: body.destination.clone(),
            };
            let withdrawal = money::withdraw(tx, &new, &policy, now_ms)?;
            answer(201, &WithdrawalView::of(&withdrawal))
        })
        .await
    }

    /// One withdrawal.
    pub async fn withdrawal(&self, token: Token, id: &str) -> Result<WithdrawalView> {
        let withdrawal_id: WithdrawalId = parse("withdrawal_id", id)?;
        self.read(token, Scope::BillingRead, move |rx, caller, _| {
            let found = money::find_withdrawal(rx, &withdrawal_id)?;
            let own = found.filter(|withdrawal| withdrawal.user_id == caller.user_id);
            own.as_ref().map(WithdrawalView::of).ok_or_else(|| {
                let message = format!("you have no withdrawal {withdrawal_id}");
                Error::refused(&code::UNKNOWN_WITHDRAWAL, message)
            })
        })
        .await
    }

    /// A page of withdrawals.
    pub async fn withdrawals(&self, token: Token, page: PageQuery) -> Result<Withdrawals> {
        let (limit, before) = (page.limit()?, page.before::<WithdrawalId>()?);
        self.read(token, Scope::BillingRead, move |rx, caller: &Caller, _| {
            let all = money::withdrawals_before(rx, &caller.user_id, before.as_ref(), limit)?;
            let next = next_of(&all, limit, |withdrawal| withdrawal.withdrawal_id.to_string());
            let withdrawals = all.iter().map(WithdrawalView::of).collect();
            Ok(Withdrawals { withdrawals, next })
        })
        .await
    }

    /// A quote that was given.
    pub async fn quote(&self, token: Token, id: &str) -> Result<QuoteView> {
        let quote_id: HostingQuoteId = parse("quote_id", id)?;
        self.read(token, Scope::BillingRead, move |rx, caller, _| {
            let found = money::find_quote(rx, &quote_id)?;
            let own = found.filter(|quote| quote.user_id == caller.user_id);
            own.as_ref().map(QuoteView::of).ok_or_else(|| {
                Error::refused(&code::UNKNOWN_QUOTE, format!("you have no quote {quote_id}"))
            })
        })
        .await
    }

    /// Money has arrived for a user. Only for the operator of this node; booked once for each reference.
    pub async fn credit(&self, body: CreditBody) -> Result<CreditView> {
        let (user_id, units) = (body.user_id.parse::<UserId>()?, body.units()?);
        let (policy, now_ms) = (self.0.options.policy.clone(), self.now_ms());
        let write = self.0.store.write(move |tx| {
            let new = money::credit(tx, &user_id, units, &body.reference, now_ms)?;
            let balance = balance(tx, &user_id, &policy, now_ms)?;
            Ok(CreditView { user_id: user_id.to_string(), amount_micro_usd: units, new, balance })
        });
        write.await
    }

    /// A withdrawal has arrived. Only for the operator of this node.
    pub async fn confirm_withdrawal(&self, id: &str, body: ConfirmBody) -> Result<WithdrawalView> {
        let withdrawal_id: WithdrawalId = parse("withdrawal_id", id)?;
        let now_ms = self.now_ms();
        let confirm = move |tx: &mut guild_store::Tx<'_>| {
            money::confirm(tx, &withdrawal_id, &body.reference, now_ms)
        };
        Ok(WithdrawalView::of(&self.0.store.write::<Withdrawal, Error, _>(confirm).await?))
    }

    /// A withdrawal could not be sent: the money is back. Only for the operator of this node.
    pub async fn fail_withdrawal(&self, id: &str, body: FailBody) -> Result<WithdrawalView> {
        let withdrawal_id: WithdrawalId = parse("withdrawal_id", id)?;
        let now_ms = self.now_ms();
        let fail = move |tx: &mut guild_store::Tx<'_>| {
            money::fail(tx, &withdrawal_id, &body.words, now_ms)
        };
        Ok(WithdrawalView::of(&self.0.store.write::<Withdrawal, Error, _>(fail).await?))
    }

    /// The withdrawals that somebody has to send. Only for the operator of this node.
    pub async fn open_withdrawals(&self, page: PageQuery) -> Result<Withdrawals> {
        let (limit, after) = (page.limit()?, page.before::<WithdrawalId>()?);
        let read = move |rx: &mut Rx<'_>| money::withdrawals_open(rx, after.as_ref(), limit);
        let all = self.0.store.read::<Vec<Withdrawal>, Error, _>(read).await?;
        let next = next_of(&all, limit, |withdrawal| withdrawal.withdrawal_id.to_string());
        Ok(Withdrawals { withdrawals: all.iter().map(WithdrawalView::of).collect(), next })
    }

    /// What the meter makes of the clock. Only for the operator of this node.
    pub async fn meter_clock(&self) -> Result<ClockView> {
        let now_ms = self.now_ms();
        self.0.store.read(move |rx| Ok(ClockView::of(meter::seen(rx)?.as_ref(), now_ms))).await
    }

    /// The present time is right, whatever the meter saw before. Only for the operator of this node.
    pub async fn accept_clock(&self) -> Result<ClockView> {
        accept_clock(&self.0.store, &*self.0.clock).await
    }
}

/// The operator of this node says that the present time is right.
pub async fn accept_clock(store: &Store, clock: &dyn Clock) -> Result<ClockView> {
    let now_ms = clock.now_ms();
    let accept = move |tx: &mut guild_store::Tx<'_>| {
        meter::accept_clock(tx, now_ms)?;
        Ok(ClockView::of(meter::seen(tx)?.as_ref(), now_ms))
    };
    store.write(accept).await
}

fn balance(
    rx: &mut Rx<'_>,
    user_id: &UserId,
    policy: &Policy,
    now_ms: guild_protocol::env::UnixMs,
) -> Result<BalanceView> {
    let reserve = money::reserve(rx, user_id, policy, now_ms)?;
    Ok(BalanceView::of(user_id, &money::balance(rx, user_id)?, reserve))
}
