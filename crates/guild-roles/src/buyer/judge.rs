//! Results that wait for their verdict, and the verdict's consequences.

use std::sync::Arc;

use guild_market::order::{self, Order};
use guild_market::settle::{Keys, settle};
use guild_market::verify::{Subject, Verdict, verify};
use guild_network::archive::Verified;
use guild_network::publish;
use guild_protocol::nostr::Event;
use guild_protocol::nostr::job::JobResult;

use super::Shared;
use crate::{Error, Result};

/// How many are judged in one go.
const JUDGED_MAX: i64 = 100;

impl Shared {
    /// Judges and settles every delivered order but those whose commands must be run again. One that cannot be settled
    /// now stays, and is tried again.
    pub(super) async fn judge_all(self: &Arc<Shared>) -> Result<()> {
        let waiting = self.node.store.read(|rx| order::delivered(rx, JUDGED_MAX)).await;
        for order in waiting.map_err(Error::from)? {
            let request_id = order.request_id;
            match self.judge(order).await {
                Ok(word) => self.counts.add(word),
                Err(error) if error.is_passing() => return Err(error),
                Err(error) => self.shrug("order_not_settled", &request_id, &error),
            }
        }
        Ok(())
    }

    /// Whether a result, if it were taken, would be accepted.
    pub(super) fn would_pass(&self, order: &Order, result: &Event) -> Result<bool> {
        let parsed = JobResult::parse(result, Some(&self.key))?;
        let job = order.job(&self.node.registry)?;
        let subject = Subject { job: &job, provider: &result.pubkey, output_text: &parsed.content };
        Ok(verify(&self.node.registry, &self.options.verify, &subject)?.passed)
    }

    async fn judge(self: &Arc<Shared>, order: Order) -> Result<&'static str> {
        let job = order.job(&self.node.registry)?;
        let output_text = order.output_text.as_deref().unwrap_or_default();
        let provider = order.deliverer()?;
        let subject = Subject { job: &job, provider: &provider, output_text };
        // Outside of the transaction: a verdict may mean doing the work again.
        let verdict = verify(&self.node.registry, &self.options.verify, &subject)?;
        self.settle(order, verdict).await
    }

    /// Pays, or does not, by a verdict.
    pub(super) async fn settle(
        self: &Arc<Shared>,
        order: Order,
        verdict: Verdict,
    ) -> Result<&'static str> {
        let passed = verdict.passed;
        let (this, order_id) = (self.clone(), order.order_id.clone());
        let to = self.destinations(&order);
        let called = self.node.store.write(move |tx| {
            let keys = Keys { key: &this.key, random: &*this.node.random };
            let now_ms = this.now_ms();
            let settled = settle(tx, &order_id, &verdict, keys, now_ms)?;
            if let Some(notice) = settled.notice {
                publish::enqueue(tx, &Verified::check(notice)?, &to, now_ms)?;
            }
            Ok::<_, Error>(())
        });
        called.await?;
        tracing::info!(order_id = %order.order_id, passed, "an order is settled");
        Ok(if passed { "order_released" } else { "order_withheld" })
    }
}
