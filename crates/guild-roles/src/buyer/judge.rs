//! Results that wait for their verdict, and the verdict's consequences.

use std::sync::Arc;

use guild_market::order::{self, Order, Waits};
use guild_market::settle::{Keys, settle};
use guild_market::verify::{Subject, Verdict, verify};
use guild_network::archive::Verified;
use guild_network::publish;
use guild_protocol::nostr::Event;
use guild_protocol::nostr::job::JobResult;

use super::Shared;
use crate::{Error, Result, alone};

/// How many are judged in one go.
const JUDGED_MAX: i64 = 100;

impl Shared {
    /// Judges and settles every delivered order but those whose commands must be run again. One that cannot be settled
    /// now stays, and is tried again.
    pub(super) async fn judge_all(self: &Arc<Shared>) -> Result<()> {
        for order in self.waiting(Waits::Verdict, JUDGED_MAX).await? {
            match self.judge(&order) {
                Ok(verdict) => self.settle(order, verdict).await?,
                Err(error) => self.not_settled(&order, None, &error),
            }
        }
        Ok(())
    }

    /// Orders that wait for something, but for those that were tried in vain and have to wait.
    pub(super) async fn waiting(&self, waits: Waits, limit: i64) -> Result<Vec<Order>> {
        let put_off = self.later.waiting(self.now_ms());
        let ids = self.node.store.read(move |rx| order::waiting(rx, waits, &put_off, limit)).await;
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

    fn judge(&self, order: &Order) -> Result<Verdict> {
        if let Some(verdict) = self.later.kept(&order.order_id) {
            return Ok(verdict);
        }
        let job = order.job(&self.node.registry)?;
        let output_text = order.output_text.as_deref().unwrap_or_default();
        let provider = order.deliverer()?;
        let subject = Subject { job: &job, provider: &provider, output_text };
        // Outside of the transaction: a verdict may mean doing the work again.
        Ok(verify(&self.node.registry, &self.options.verify, &subject)?)
    }

    /// Pays, or does not, by a verdict. Only a store that cannot be used is an error.
    pub(super) async fn settle(self: &Arc<Shared>, order: Order, verdict: Verdict) -> Result<()> {
        let passed = verdict.passed;
        let (this, order_id, found) = (self.clone(), order.order_id.clone(), verdict.clone());
        let to = self.destinations(&order);
        let called = alone::write(&self.node.store, move |tx| {
            let keys = Keys { key: &this.key, random: &*this.node.random };
            let now_ms = this.now_ms();
            let settled = settle(tx, &order_id, &found, keys, now_ms)?;
            if let Some(notice) = settled.notice {
                publish::enqueue(tx, &Verified::check(notice)?, &to, now_ms)?;
            }
            Ok(())
        });
        let settled = called.await;
        match settled.as_ref().map_or_else(Err, Result::as_ref) {
            Err(error) => self.not_settled(&order, Some(verdict), error),
            Ok(()) => {
                self.later.done(&order.order_id);
                self.counts.add(if passed { "order_released" } else { "order_withheld" });
                tracing::info!(order_id = %order.order_id, passed, "an order is settled");
            }
        }
        settled.map(|_| ())
    }
}
