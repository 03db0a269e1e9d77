//! Results that wait for their verdict, and the verdict's consequences.

use std::sync::Arc;

use guild_market::claim::Claim;
use guild_market::code::CLAIM_LOST;
use guild_market::order::{self, Order, Waits};
use guild_market::settle::{Keys, settle};
use guild_market::verify::{Rerun, Subject, Verdict, verify, verify_rerun};
use guild_network::archive::Verified;
use guild_network::publish;
use guild_protocol::nostr::Event;
use guild_protocol::nostr::job::JobResult;

use super::Shared;
use super::council::{Judged, Place};
use crate::alone::{self, Alone};
use crate::{Error, Result};

/// How many are judged in one go.
const JUDGED_MAX: i64 = 100;

impl Shared {
    /// Judges and settles every delivered order but those whose commands must be run again. One that cannot be settled
    /// now stays, and is tried again.
    pub(super) async fn judge_all(self: &Arc<Shared>) -> Result<()> {
        for order in self.waiting(Waits::Verdict, JUDGED_MAX).await? {
            let claim = match self.claim(&order).await? {
                Ok(Some(claim)) => claim,
                Ok(None) => {
                    self.counts.add("order_claimed_elsewhere");
                    continue;
                }
                Err(error) => {
                    self.not_settled(&order, None, &error);
                    continue;
                }
            };
            match self.judge(&order).await? {
                Ok(judged) => self.conclude(order, claim, judged).await?,
                Err(error) => self.not_settled(&order, None, &error),
            }
        }
        Ok(())
    }

    /// The right to judge an order. Whoever took its result has it already, for one try; any other needs a write.
    pub(super) async fn claim(&self, order: &Order) -> Alone<Option<Claim>> {
        let held = order.claimed.held_by(&self.claimant);
        let is_fresh = |claim: &Claim| claim.epoch == 1 && claim.until_ms > self.now_ms();
        if let Some(claim) =
            held.filter(|claim| is_fresh(claim) && !self.later.knows(&order.order_id))
        {
            return Ok(Ok(Some(claim)));
        }
        let (order_id, who) = (order.order_id.clone(), self.claimant.clone());
        let clock = self.node.clock.clone();
        let called = alone::write(&self.node.store, move |tx| {
            Ok(order::claim(tx, &order_id, &who, clock.now_ms())?)
        });
        called.await
    }

    /// Orders that wait for something, but for those that were tried in vain and have to wait.
    pub(super) async fn waiting(&self, waits: Waits, limit: i64) -> Result<Vec<Order>> {
        let now_ms = self.now_ms();
        let (put_off, who) = (self.later.waiting(now_ms), self.claimant.clone());
        let read = self
            .node
            .store
            .read(move |rx| order::waiting(rx, waits, (&who, now_ms), &put_off, limit));
        let ids = read.await;
        let mut orders = Vec::new();
        for order_id in ids.map_err(Error::from)? {
            let id = order_id.clone();
            match alone::read(&self.node.store, move |rx| Ok(order::get(rx, &id)?)).await? {
                Ok(order) => orders.push(order),
                Err(error) => {
                    tracing::warn!(%order_id, %error, "an order cannot be read");
                    self.later.put_off(order_id, None, self.now_ms());
                }
            }
        }
        Ok(orders)
    }

    /// An order that could not be settled waits before it is tried again, and longer each time, so that it holds up no
    /// other. A verdict stands: it is not looked for again.
    pub(super) fn not_settled(&self, order: &Order, verdict: Option<Verdict>, error: &Error) {
        self.shrug("order_not_settled", &order.request_id, error);
        self.later.put_off(order.order_id.clone(), verdict, self.now_ms());
    }

    /// Whether a result, if it were taken, would be accepted.
    pub(super) fn would_pass(&self, order: &Order, result: &Event) -> Result<bool> {
        let parsed = JobResult::parse(result, Some(&self.key))?;
        let job = order.job(&self.node.registry)?;
        let subject = Subject { job: &job, provider: &result.pubkey, output_text: &parsed.content };
        Ok(verify(&self.node.registry, &self.options.verify, &subject)?.passed)
    }

    /// Outside of the transaction: a verdict may mean doing the work again.
    async fn judge(&self, order: &Order) -> Alone<Judged> {
        if let Some(verdict) = self.later.kept(&order.order_id) {
            return Ok(Ok(Judged::Verdict(verdict)));
        }
        let place = match self.place_of(order).await? {
            Ok(place) => place,
            Err(error) => return Ok(Err(error)),
        };
        Ok(match place {
            Place::Alone => self.found(order, &[]).map(Judged::Verdict),
            Place::Replica => self.ballot(order, &[]),
            Place::Decided(verdict) => Ok(Judged::Verdict(*verdict)),
            Place::Known(known) => match self.as_known(order, &known) {
                Ok(Some(verdict)) if verdict.passed => Ok(Judged::Verdict(verdict)),
                Ok(other) => match self.found(order, &[]) {
                    Ok(found) => {
                        Ok(Judged::Verdict(self.beside_known(&known, other, found).await?))
                    }
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            },
        })
    }

    /// What a result is worth by itself.
    pub(super) fn found(&self, order: &Order, reruns: &[Rerun]) -> Result<Verdict> {
        let job = order.job(&self.node.registry)?;
        let output_text = order.output_text.as_deref().unwrap_or_default();
        let provider = order.deliverer()?;
        let subject = Subject { job: &job, provider: &provider, output_text };
        Ok(verify_rerun(&self.node.registry, &self.options.verify, &subject, reruns)?)
    }

    /// What follows from what was found.
    pub(super) async fn conclude(
        self: &Arc<Shared>,
        order: Order,
        claim: Claim,
        judged: Judged,
    ) -> Result<()> {
        match judged {
            Judged::Verdict(verdict) => self.settle(order, claim, verdict).await,
            Judged::Ballot(verdict, says) => self.vote(order, claim, (verdict, says)).await,
        }
    }

    /// Pays, or does not, by a verdict. Only a store that cannot be used is an error.
    pub(super) async fn settle(
        self: &Arc<Shared>,
        order: Order,
        claim: Claim,
        verdict: Verdict,
    ) -> Result<()> {
        let passed = verdict.passed;
        let (this, order_id, found) = (self.clone(), order.order_id.clone(), verdict.clone());
        let to = self.destinations(&order);
        let called = alone::write(&self.node.store, move |tx| {
            let keys = Keys { key: &this.key, random: &*this.node.random };
            let now_ms = this.now_ms();
            let settled = match settle(tx, &order_id, &claim, &found, keys, now_ms) {
                // Nothing was written: the other process settles it.
                Err(guild_market::Error::Refused { code, .. }) if code == &CLAIM_LOST => {
                    return Ok(false);
                }
                settled => settled?,
            };
            this.ended(tx, &settled.order, now_ms)?;
            this.learn(tx, &settled.order, now_ms)?;
            if let Some(notice) = settled.notice {
                publish::enqueue(tx, &Verified::check(notice)?, &to, now_ms)?;
            }
            Ok(true)
        });
        let settled = called.await;
        match settled.as_ref().map_or_else(Err, Result::as_ref) {
            Err(error) => self.not_settled(&order, Some(verdict), error),
            Ok(false) => {
                self.later.done(&order.order_id);
                self.counts.add("order_lost");
            }
            Ok(true) => {
                self.later.done(&order.order_id);
                self.counts.add(if passed { "order_released" } else { "order_withheld" });
                tracing::info!(order_id = %order.order_id, passed, "an order is settled");
            }
        }
        settled.map(|_| ())
    }
}
