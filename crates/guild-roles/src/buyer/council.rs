//! Delegations that are to be decided: each is looked at when something happened to it, or when its time has come.
//!
//! ```text
//! results ─▶ each is checked by itself: a vote ─▶ enough say the same ─▶ decided, the others are cancelled ─▶ paid
//!                                       ├─▶ the slowest is late, or too few are left ─▶ one more is asked
//!                                       └─▶ nobody agrees ─▶ a judge chooses, or nobody is paid
//! ```
//!
//! A judge may take minutes, and so may whoever is asked: so this is beside everything else.

use std::sync::Arc;

use futures_util::FutureExt;
use guild_market::claim::Claim;
use guild_market::code::{BUDGET_ENVELOPE, CLAIM_LOST, DELEGATION_APPROVAL, PRICE, WALLET};
use guild_market::delegation::judge::{Finding, Question};
use guild_market::delegation::{self, Closed, DelegationId, Means, Step, vote};
use guild_market::health::probe;
use guild_market::order::{self, Order};
use guild_market::verify::{Rerun, Subject, Verdict, mode_of, verify_ballot};
use guild_network::archive::Verified;
use guild_network::publish;
use guild_protocol::env::{BoxFuture, Shutdown};
use guild_protocol::hash::Hash;
use guild_protocol::schema::{Job, VerificationMode};
use guild_store::Tx;

use super::Shared;
use crate::alone::{self, Alone};
use crate::workbench::Workbench;
use crate::{Error, Result};

/// How many are decided at once.
const AT_ONCE: usize = 8;
/// How often one is looked at in one go.
const LOOKS_MAX: usize = 8;
/// After so long one that fails by itself is tried again.
const AGAIN_MS: i64 = 15_000;

/// What was found about a result.
pub(super) enum Judged {
    /// What it is worth.
    Verdict(Verdict),
    /// What it is worth by itself, and what it says: the others decide.
    Ballot(Verdict, Option<Hash>),
}

/// Where an order belongs.
pub(super) enum Place {
    /// It stands for itself.
    Alone,
    /// It is a part of a delegation that is not decided yet.
    Replica,
    /// It is a part of one that has ended, with this verdict.
    Decided(Box<Verdict>),
    /// It is a test, and the answer is known: that of this order.
    Known(Box<Order>),
}

/// Decides until the shutdown.
pub(super) async fn decide(shared: Arc<Shared>, shutdown: Shutdown) {
    let bench = Workbench {
        what: "delegations",
        bus: &*shared.node.bus,
        clock: &*shared.node.clock,
        sweep_ms: shared.options.sweep_ms,
        at_once: AT_ONCE,
    };
    let due = |limit: i64| {
        let shared = shared.clone();
        async move {
            let now_ms = shared.now_ms();
            let read = shared.node.store.read(move |rx| delegation::due(rx, now_ms, limit));
            Ok(read.await?)
        }
        .boxed()
    };
    let finish = |id: DelegationId| shared.clone().look_at(id).boxed();
    bench.work(&shutdown, due, Clone::clone, finish).await;
}

impl Shared {
    /// Where an order belongs. Only an order whose key says so is looked up among delegations.
    pub(super) async fn place_of(&self, order: &Order) -> Alone<Place> {
        let order = order.clone();
        let read = alone::read(&self.node.store, move |rx| {
            if !order.order_key.starts_with(delegation::ORDER_KEY_PREFIX) {
                let known = probe::of_order(rx, &order.order_id)?.and_then(|probe| probe.known);
                return Ok(match known {
                    Some(known) => Place::Known(Box::new(order::get(rx, &known)?)),
                    None => Place::Alone,
                });
            }
            let Some(replica) = delegation::replica_of(rx, &order.order_id)? else {
                return Ok(Place::Alone);
            };
            let all = delegation::get(rx, &replica.delegation_id)?;
            if all.state == delegation::State::Open {
                return Ok(Place::Replica);
            }
            let replicas = delegation::replicas(rx, &all.delegation_id)?;
            let verdict = delegation::verdict_of(&all, &replicas, &replica, &order)?;
            Ok(Place::Decided(Box::new(verdict)))
        });
        read.await
    }

    /// Whether a result of such work is judged by comparing it with others alone.
    pub(super) fn is_compared(&self, job: &Job) -> bool {
        mode_of(job) == VerificationMode::Subjective
    }

    /// What the result of a replica is worth by itself, and what it says.
    pub(super) fn ballot(&self, order: &Order, reruns: &[Rerun]) -> Result<Judged> {
        let registry = &self.node.registry;
        let job = order.job(registry)?;
        let output_text = order.output_text.as_deref().unwrap_or_default();
        let provider = order.deliverer()?;
        let subject = Subject { job: &job, provider: &provider, output_text };
        let verdict = verify_ballot(registry, &self.options.verify, &subject, reruns)?;
        Ok(Judged::Ballot(verdict, vote::projection(registry, &job, output_text)))
    }

    /// Writes down what a replica says. Only a store that cannot be used is an error.
    pub(super) async fn vote(
        self: &Arc<Shared>,
        order: Order,
        claim: Claim,
        (verdict, says): (Verdict, Option<Hash>),
    ) -> Result<()> {
        let (order_id, clock) = (order.order_id.clone(), self.node.clock.clone());
        let called = alone::write(&self.node.store, move |tx| {
            let found = (&verdict, says);
            match delegation::voted(tx, &order_id, &claim, found, clock.now_ms()) {
                // Nothing was written: the other process does it.
                Err(guild_market::Error::Refused { code, .. }) if code == &CLAIM_LOST => Ok(false),
                voted => Ok(voted.map(|_| true)?),
            }
        });
        match called.await? {
            Ok(true) => self.counts.add("replica_voted"),
            Ok(false) => self.counts.add("order_lost"),
            Err(error) => self.not_settled(&order, None, &error),
        }
        Ok(())
    }

    fn means(&self) -> Means<'_> {
        Means {
            registry: &self.node.registry,
            options: &self.options.delegation,
            has_judge: self.node.judge.is_some(),
        }
    }

    /// Does what is to be done about a delegation. What fails by itself is looked at again later.
    async fn look_at(self: Arc<Shared>, delegation_id: DelegationId) {
        let Err(error) = self.looks(&delegation_id).await else { return };
        self.counts.add("delegation_not_decided");
        tracing::debug!(%error, code = error.code().name, %delegation_id, "it is not decided now");
        let until_ms = self.now_ms().saturating_add(AGAIN_MS);
        let put_off =
            self.node.store.write(move |tx| delegation::put_off(tx, &delegation_id, until_ms));
        if let Err(error) = put_off.await {
            tracing::debug!(%error, "it is looked at again at once");
        }
    }

    async fn looks(self: &Arc<Shared>, delegation_id: &DelegationId) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            match self.step(delegation_id).await?? {
                Step::Over | Step::Waits => return Ok(()),
                Step::Closed(closed) => return self.closed(*closed).await,
                Step::More(_) => self.ask_one_more(delegation_id).await?,
                Step::Ask(question) => {
                    let found = self.ask_judge(&question).await;
                    let closed = self.adjudged(delegation_id, question, found).await??;
                    if let Some(closed) = closed {
                        return self.closed(closed).await;
                    }
                }
            }
        }
        Ok(())
    }

    fn step(self: &Arc<Shared>, delegation_id: &DelegationId) -> BoxFuture<Alone<Step>> {
        let (this, id) = (self.clone(), delegation_id.clone());
        alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let step = delegation::step(tx, &id, this.means(), now_ms)?;
            if let Step::Closed(closed) = &step {
                this.take_all_back(tx, closed)?;
            }
            Ok(step)
        })
    }

    /// Whoever is still at it is asked to stop. Nobody counts on it: what comes all the same changes nothing.
    pub(super) fn take_all_back(&self, tx: &mut Tx<'_>, closed: &Closed) -> Result<()> {
        let now_ms = self.now_ms();
        for order in &closed.cancelled {
            self.ended(tx, order, now_ms)?;
            self.take_back(tx, order, now_ms)?;
        }
        Ok(())
    }

    /// Pays those who agree, at once. Whatever does not work out here is found by its row.
    async fn closed(self: &Arc<Shared>, closed: Closed) -> Result<()> {
        let Closed { delegation, cancelled } = closed;
        self.counts.add(match delegation.state {
            delegation::State::Decided => "delegation_decided",
            _ => "delegation_undecided",
        });
        tracing::info!(
            delegation_id = %delegation.delegation_id, state = delegation.state.as_str(),
            cancelled = cancelled.len(), "a delegation has ended"
        );
        let id = delegation.delegation_id;
        let read = self.node.store.read(move |rx| delegation::with_orders(rx, &id));
        for (_, order) in read.await? {
            if order.state != order::State::Delivered {
                continue;
            }
            if let (Ok(Some(claim)), Ok(Place::Decided(verdict))) =
                (self.claim(&order).await?, self.place_of(&order).await?)
            {
                self.settle(order, claim, *verdict).await?;
            }
        }
        Ok(())
    }

    /// Asks one more, or writes down that nobody is left.
    async fn ask_one_more(self: &Arc<Shared>, delegation_id: &DelegationId) -> Result<()> {
        let found = self.one_more(delegation_id).await?;
        let Some((replica, why)) = found else { return self.exhaust(delegation_id).await };
        let (this, id) = (self.clone(), delegation_id.clone());
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let bundle = &this.node.policy;
            let added = delegation::add(tx, &id, &replica, this.means(), bundle, now_ms)?;
            if let Some(order) = &added {
                this.given(tx, order, why.as_ref(), now_ms)?;
                let request = Verified::check(replica.request.clone())?;
                publish::enqueue(tx, &request, &this.destinations(order), now_ms)?;
            }
            Ok(added.is_some())
        });
        match called.await? {
            Ok(true) => self.counts.add("replica_added"),
            Ok(false) => {}
            // It ends with those who are there.
            Err(error) if is_final(&error) => return self.exhaust(delegation_id).await,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn exhaust(&self, delegation_id: &DelegationId) -> Result<()> {
        let id = delegation_id.clone();
        self.counts.add("delegation_exhausted");
        alone::write(&self.node.store, move |tx| Ok(delegation::exhaust(tx, &id)?)).await?
    }

    async fn ask_judge(&self, question: &Question) -> std::result::Result<Finding, String> {
        let Some(judge) = &self.node.judge else { return Err("there is no judge".to_owned()) };
        self.counts.add("judge_asked");
        let said = judge(question.prompt()).await?;
        question.read(&said)
    }

    fn adjudged(
        self: &Arc<Shared>,
        delegation_id: &DelegationId,
        question: Question,
        found: std::result::Result<Finding, String>,
    ) -> BoxFuture<Alone<Option<Closed>>> {
        let (this, id) = (self.clone(), delegation_id.clone());
        alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let closed = delegation::adjudged(tx, &id, &question, &found, this.means(), now_ms)?;
            if let Some(closed) = &closed {
                this.take_all_back(tx, closed)?;
            }
            Ok(closed)
        })
    }
}

/// Whether asking again would give the same: the wallet, an envelope, the policy or the budget says no.
fn is_final(error: &Error) -> bool {
    let code = error.code();
    let all = [&PRICE, &WALLET, &BUDGET_ENVELOPE, &DELEGATION_APPROVAL];
    all.contains(&code) || code.name.starts_with("quote.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_cannot_pay_for_one_more_does_not_ask_again_and_again() {
        for code in [&PRICE, &WALLET, &BUDGET_ENVELOPE, &DELEGATION_APPROVAL] {
            assert!(is_final(&Error::refused(code, "no")), "{}", code.name);
        }
        assert!(!is_final(&Error::refused(&CLAIM_LOST, "another process does it")));
    }
}
