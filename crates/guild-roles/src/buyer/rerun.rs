//! Results of commands: each is judged by running them again, several at once and beside everything else.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use guild_market::claim::Claim;
use guild_market::order::{self, Order, OrderId, Waits};
use guild_market::sandbox_run::Plan;
use guild_market::verify::{Rerun, differs};
use guild_protocol::env::{BoxFuture, Shutdown};
use guild_protocol::error::Kind;
use guild_protocol::schema::{Job, Registry};

use super::Shared;
use super::council::{Judged, Place};
use crate::error::code;
use crate::holding::until_lost;
use crate::workbench::Workbench;
use crate::workshop::Workshop;
use crate::{Error, Result};

/// How many are judged at once. Fewer may run: that is up to the workshop.
pub(super) const AT_ONCE: usize = 8;

/// Judges until the shutdown.
pub(super) async fn judge(shared: Arc<Shared>, shutdown: Shutdown) {
    let bench = Workbench {
        what: "orders",
        bus: &*shared.node.bus,
        clock: &*shared.node.clock,
        sweep_ms: shared.options.sweep_ms,
        at_once: AT_ONCE,
    };
    let waiting = |limit: i64| {
        let shared = shared.clone();
        async move { shared.waiting(Waits::Runs, limit).await }.boxed()
    };
    let finish = |order: Order| shared.clone().finish(order).boxed();
    bench.work(&shutdown, waiting, |order| order.order_id.clone(), finish).await;
}

impl Shared {
    /// Judges and settles one order. One that cannot be settled now stays as it is, and is found again by its row. One
    /// that another process takes over is dropped.
    async fn finish(self: Arc<Shared>, order: Order) {
        let claim = match self.claim(&order).await {
            Ok(Ok(Some(claim))) => claim,
            Ok(Ok(None)) => return self.counts.add("order_claimed_elsewhere"),
            Ok(Err(error)) | Err(error) => return self.not_settled(&order, None, &error),
        };
        self.counts.add("order_begun");
        let lost = until_lost(&*self.node.clock, &self.claimant, claim.clone(), |claim| {
            self.renew(order.order_id.clone(), claim)
        });
        let judged = match select(Box::pin(self.judge_again(&order)), Box::pin(lost)).await {
            Either::Left((judged, _)) => judged,
            Either::Right(_) => {
                self.counts.add("order_lost");
                // It may be its own still: what is begun again is claimed again.
                return self.later.put_off(order.order_id.clone(), None, self.now_ms());
            }
        };
        match judged {
            Ok(judged) => {
                // An error is counted, and the order is found again by its row.
                let _ = self.conclude(order, claim, judged).await;
            }
            Err(error) => self.not_settled(&order, None, &error),
        }
    }

    fn renew(&self, order_id: OrderId, claim: Claim) -> BoxFuture<Result<Claim>> {
        let (ttl_ms, clock) = (self.claimant.ttl_ms, self.node.clock.clone());
        let called = self.node.store.write(move |tx| {
            let until_ms = clock.now_ms().saturating_add(ttl_ms);
            Ok(order::renew(tx, &order_id, &claim, until_ms)?)
        });
        Box::pin(called)
    }

    async fn judge_again(&self, order: &Order) -> Result<Judged> {
        if let Some(verdict) = self.later.kept(&order.order_id) {
            return Ok(Judged::Verdict(verdict));
        }
        let place = self.place_of(order).await??;
        if let Place::Decided(verdict) = place {
            return Ok(Judged::Verdict(*verdict));
        }
        let known = match &place {
            Place::Known(known) => self.as_known(order, known)?,
            _ => None,
        };
        if let Some(verdict) = known.as_ref().filter(|verdict| verdict.passed) {
            return Ok(Judged::Verdict(verdict.clone()));
        }
        let job = order.job(&self.node.registry)?;
        let output_text = order.output_text.as_deref().unwrap_or_default();
        match place {
            Place::Replica if self.is_compared(&job) => self.ballot(order, &[]),
            Place::Replica => self.ballot(order, &self.run_again(&job, output_text).await?),
            Place::Known(first) => {
                let reruns = self.run_again(&job, output_text).await?;
                let found = self.found(order, &reruns)?;
                Ok(Judged::Verdict(self.beside_known(&first, known, found).await?))
            }
            _ => {
                let reruns = self.run_again(&job, output_text).await?;
                self.found(order, &reruns).map(Judged::Verdict)
            }
        }
    }

    /// Runs the commands of a job again, where that is done here.
    async fn run_again(&self, job: &Job, output_text: &str) -> Result<Vec<Rerun>> {
        run_again(&self.node.registry, self.node.workshop.as_ref(), job, output_text).await
    }
}

/// Runs the commands of a job again: once, and once more before a provider is blamed. What is not even of the right
/// form is not worth it. An error is about now and here: it says nothing about the result.
pub(crate) async fn run_again(
    registry: &Registry,
    workshop: Option<&Workshop>,
    job: &Job,
    output_text: &str,
) -> Result<Vec<Rerun>> {
    let read = registry.validate_output_text(job.schema_id(), output_text.as_bytes());
    let Ok(output) = read else { return Ok(Vec::new()) };
    let Some(workshop) = workshop else {
        return Err(Error::refused(&code::WORKSHOP, "there is no sandbox to run it again"));
    };
    let plan = match Plan::of(job, &workshop.bounds) {
        Ok(plan) => plan,
        Err(refusal) => return Ok(vec![Err(refusal)]),
    };
    let mut reruns = Vec::new();
    for _ in 0..2 {
        let rerun = (workshop.run)(plan.clone()).await;
        match &rerun {
            Err(refusal) if refusal.code.kind == Kind::Unavailable => {
                return Err(Error::refused(refusal.code, refusal.words.clone()));
            }
            _ => {}
        }
        let settled = !rerun.as_ref().is_ok_and(|ran| differs(job, &output, ran));
        reruns.push(rerun);
        if settled {
            break;
        }
    }
    Ok(reruns)
}
