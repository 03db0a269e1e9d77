//! From a wish that matters to several orders of the same work.

use std::sync::Arc;

use futures_util::future::select;
use guild_market::TOPIC;
use guild_market::code::{DELEGATION_MALFORMED, DELEGATION_TOO_FEW};
use guild_market::delegation::{
    self, Clusters, Criticality, Delegation, DelegationId, NewDelegation, NewReplica, Posted,
    Replica, Standing, State, cluster_of,
};
use guild_market::operator;
use guild_market::order::NewOrder;
use guild_market::routing::chosen::Why;
use guild_network::archive::Verified;
use guild_network::publish::{self, Destinations};
use guild_network::ways;
use guild_protocol::amount::Msat;
use guild_protocol::env::{Signer, UnixMs};
use guild_protocol::identity::PublicKey;
use guild_protocol::schema::{SchemaId, VerificationMode};

use super::choose::Candidate;
use super::hire::{deadline_ms, kind_of};
use super::routed::Picked;
use super::{Buyer, Choice, Progress, Shared, Wish};
use crate::router::TaskType;
use crate::{Error, Result};

/// So many jobs of somebody must be known before it is said how long it takes.
const SAMPLES_LEAST: usize = 5;

/// What is to be done, and how much it matters.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// What is to be done. Its budget is for all who do it together.
    pub wish: Wish,
    /// How much it matters.
    pub criticality: Criticality,
    /// Whether fewer may do it, if there are not as many operators.
    pub fewer_ok: bool,
}

/// A delegation, and how those are getting on who do it.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// Where it stands.
    pub delegation: Delegation,
    /// Those who do it, in the order in which they were asked.
    pub replicas: Vec<(Replica, Progress)>,
}

impl Course {
    /// Whether nothing more happens to it: it has ended, and everybody is paid or not.
    pub fn is_settled(&self) -> bool {
        self.delegation.state != State::Open
            && self.replicas.iter().all(|(_, progress)| progress.order.state.is_closed())
    }

    /// What was paid in all.
    pub fn paid(&self) -> Msat {
        let paid = self.replicas.iter().filter_map(|(_, progress)| progress.order.paid);
        Msat(paid.fold(0, |sum, paid| sum.saturating_add(paid.0)))
    }

    /// The answer, as the first of those gave it whose answer it is.
    pub fn output_text(&self) -> Option<&str> {
        let winner = self.replicas.iter().find(|(one, _)| one.standing == Standing::Agrees);
        winner.and_then(|(_, progress)| progress.order.output_text.as_deref())
    }
}

impl Buyer {
    /// Has several do the same work: their budgets are held and the requests on their way when this answers.
    pub async fn delegate(&self, wanted: Wanted) -> Result<Delegation> {
        self.0.delegate(wanted).await
    }

    /// A delegation, and how those are getting on who do it.
    pub async fn course(&self, delegation_id: DelegationId) -> Result<Course> {
        let shared = self.0.clone();
        let read = self.0.node.store.read(move |rx| {
            let delegation = delegation::get(rx, &delegation_id)?;
            let mut replicas = Vec::new();
            for (replica, order) in delegation::with_orders(rx, &delegation_id)? {
                replicas.push((replica, shared.progress(rx, order)?));
            }
            Ok(Course { delegation, replicas })
        });
        read.await
    }

    /// Waits until a delegation is decided and everybody is paid or not.
    pub async fn wait_for(&self, delegation_id: &DelegationId) -> Result<Course> {
        let shared = &self.0;
        // Listening begins before the first read, so nothing falls between the two.
        let mut bell = shared.node.bus.listen(TOPIC);
        loop {
            let course = self.course(delegation_id.clone()).await?;
            if course.is_settled() {
                return Ok(course);
            }
            select(bell.hear(), shared.node.clock.sleep(shared.options.sweep_ms)).await;
        }
    }

    /// Gives a delegation up, as long as nothing has come; its requests are to be deleted. The budgets go back.
    pub async fn give_up(&self, delegation_id: DelegationId) -> Result<Delegation> {
        let shared = self.0.clone();
        let called = self.0.node.store.write(move |tx| {
            let closed = delegation::cancel(tx, &delegation_id, shared.now_ms())?;
            shared.take_all_back(tx, &closed)?;
            Ok::<_, Error>(closed.delegation)
        });
        called.await
    }
}

/// Somebody who is to do it, and why it is this one.
type Seated = (NewReplica, Option<Why>);

impl Shared {
    pub(super) async fn delegate(self: &Arc<Shared>, wanted: Wanted) -> Result<Delegation> {
        let Wanted { wish, criticality, fewer_ok } = wanted;
        let mut new = self.new_delegation(&wish, criticality)?;
        let id = new.delegation_id();
        let known = self.node.store.read(move |rx| Ok::<_, Error>(delegation::find(rx, &id)?));
        if let Some(known) = known.await? {
            delegation::check_same(&known, &new)?;
            return Ok(known);
        }
        new.check(self.now_ms())?;
        // Before anybody is asked to work: what cannot be judged would never be paid.
        let workshop = self.node.workshop.as_ref();
        delegation::can_decide(&new, workshop.map(|workshop| &workshop.bounds))?;
        let candidates = self.candidates(&new.job).await?;
        let clusters = self.clusters(new.job.schema_id(), &candidates).await?;
        let picked = self.pick_all(&new, &wish, candidates, &clusters).await?;
        let found = u32::try_from(picked.len()).unwrap_or(u32::MAX);
        let least = if new.mode() == VerificationMode::Objective { 1 } else { 2 };
        if found < new.replicas && !(fewer_ok && found >= least) {
            return Err(too_few(&new, found).into());
        }
        new.replicas = found;
        let mut seated = Vec::new();
        for (number, picked) in (1..).zip(picked) {
            seated.push(self.seat(&new, number, picked, &clusters).await?);
        }
        self.post_all(new, seated).await
    }

    fn new_delegation(&self, wish: &Wish, criticality: Criticality) -> Result<NewDelegation> {
        if wish.provider != Choice::Best {
            let message = "those who do it are chosen here: no provider can be named";
            return Err(guild_market::Error::refused(&DELEGATION_MALFORMED, message).into());
        }
        let options = &self.options.delegation;
        Ok(NewDelegation {
            delegation_key: wish.idempotency_key.clone().unwrap_or_else(|| self.made_up_key()),
            buyer: self.key.public_key(),
            kind: kind_of(wish)?,
            job: self.node.registry.validate_input(&wish.schema_id, &wish.input)?,
            criticality,
            replicas: options.replicas(criticality),
            extra_max: options.extra_max,
            budget: wish.budget,
            deadline_ms: deadline_ms(self.now_ms(), wish.time_limit_ms),
            private: wish.private,
        })
    }

    /// Which operator each key belongs to, of those who announce some work.
    async fn clusters(&self, schema_id: &SchemaId, candidates: &[Candidate]) -> Result<Clusters> {
        let schema_id = schema_id.to_string();
        let asked = candidates.iter().map(|one| one.provider).collect();
        let read = self.node.store.read(move |rx| operator::signs(rx, Some(&schema_id), &asked));
        Ok(operator::clusters(&read.await?))
    }

    /// One after the other, each of another operator, each within its part of the budget.
    async fn pick_all(
        &self,
        new: &NewDelegation,
        wish: &Wish,
        mut left: Vec<Candidate>,
        clusters: &Clusters,
    ) -> Result<Vec<Picked>> {
        let part = new.budget.0.checked_div(i64::from(new.replicas)).unwrap_or(0);
        let each = Wish { budget: Msat(part), ..wish.clone() };
        let mut picked: Vec<Picked> = Vec::new();
        for _ in 0..new.replicas {
            let Some(one) = self.pick(&each, left.clone()).await? else { break };
            let cluster = cluster_of(clusters, &one.candidate.provider);
            left.retain(|other| cluster_of(clusters, &other.provider) != cluster);
            picked.push(one);
        }
        Ok(picked)
    }

    /// One more who could do it, of an operator that is not there yet, within what is left of the budget.
    pub(super) async fn one_more(&self, id: &DelegationId) -> Result<Option<Seated>> {
        let delegation_id = id.clone();
        let read = self.node.store.read(move |rx| {
            let delegation = delegation::get(rx, &delegation_id)?;
            Ok::<_, Error>((delegation, delegation::with_orders(rx, &delegation_id)?))
        });
        let (delegation, seated) = read.await?;
        let job = delegation.job(&self.node.registry)?;
        let left = delegation::left_of(&delegation, &seated);
        let replicas: Vec<Replica> = seated.into_iter().map(|(replica, _)| replica).collect();
        let mut candidates = self.candidates(&job).await?;
        let clusters = self.clusters(&delegation.schema_id, &candidates).await?;
        candidates.retain(|one| !delegation::is_taken(&replicas, &clusters, &one.provider));
        let wish = Wish {
            schema_id: delegation.schema_id.clone(),
            input: job.payload().clone(),
            budget: left,
            time_limit_ms: delegation.deadline_ms.saturating_sub(self.now_ms()),
            provider: Choice::Best,
            private: delegation.private,
            policy: None,
            kind: Some(delegation.kind),
            idempotency_key: None,
        };
        let Some(picked) = self.pick(&wish, candidates).await? else { return Ok(None) };
        let new = NewDelegation {
            delegation_key: delegation.delegation_key.clone(),
            buyer: delegation.buyer,
            kind: delegation.kind,
            job,
            criticality: delegation.criticality,
            replicas: delegation.replicas,
            extra_max: delegation.extra_max,
            budget: delegation.budget,
            deadline_ms: delegation.deadline_ms,
            private: delegation.private,
        };
        let last = replicas.iter().map(|replica| replica.number).max().unwrap_or(0);
        self.seat(&new, last.saturating_add(1), picked, &clusters).await.map(Some)
    }

    /// The order of somebody who was picked, with its request.
    async fn seat(
        &self,
        new: &NewDelegation,
        number: i64,
        picked: Picked,
        clusters: &Clusters,
    ) -> Result<Seated> {
        let Picked { candidate, why } = picked;
        let Candidate { provider, price, .. } = candidate;
        let ways = self.ways(provider).await?;
        let to = Destinations::own(&self.options.relays).and_of(
            &provider,
            ways::open(&ways),
            self.options.max_hints,
        );
        let order = NewOrder {
            order_key: new.order_key(number),
            kind: new.kind,
            job: new.job.clone(),
            provider: Some(provider),
            // Nobody is trusted before there is a record of it.
            provider_tier: guild_ledger::policy::Tier::Tertiary,
            price,
            // Not more than it asks for: what is left is for others.
            budget: price.unwrap_or(Msat(0)),
            deadline_ms: new.deadline_ms,
            private: new.private,
            relays: to.urls(),
        };
        let now_ms = self.now_ms();
        let request = self.request_of(&order).await?;
        let slow_from_ms = self.slow_from_ms(new, &provider, now_ms).await?;
        let cluster = cluster_of(clusters, &provider);
        Ok((NewReplica { order, request, cluster, slow_from_ms }, why))
    }

    /// From when on somebody takes longer than it does of all but five of a hundred times; where that is not known,
    /// after half of the time that there is.
    async fn slow_from_ms(
        &self,
        new: &NewDelegation,
        provider: &PublicKey,
        now_ms: UnixMs,
    ) -> Result<UnixMs> {
        let half_ms = new.deadline_ms.saturating_sub(now_ms).div_euclid(2);
        let learnt_ms = match new.job.schema_id().as_str().parse::<TaskType>() {
            Ok(task) => {
                let matrix = self.router.current().await?;
                matrix.entry(&task, provider).and_then(|entry| entry.latency_p95_ms(SAMPLES_LEAST))
            }
            Err(_) => None,
        };
        let slow_ms = learnt_ms.unwrap_or(half_ms).max(self.options.delegation.slow_least_ms);
        Ok(now_ms.saturating_add(slow_ms))
    }

    async fn post_all(
        self: &Arc<Shared>,
        new: NewDelegation,
        seated: Vec<Seated>,
    ) -> Result<Delegation> {
        let this = self.clone();
        let (replicas, whys): (Vec<NewReplica>, Vec<Option<Why>>) = seated.into_iter().unzip();
        let called = self.node.store.write(move |tx| {
            let now_ms = this.now_ms();
            let posted = delegation::post(tx, &new, &replicas, &this.node.policy, now_ms)?;
            let (delegation, orders) = match posted {
                Posted::New(delegation, orders) => (delegation, orders),
                Posted::Known(delegation) => return Ok(delegation),
            };
            for ((order, replica), why) in orders.iter().zip(&replicas).zip(&whys) {
                this.given(tx, order, why.as_ref(), now_ms)?;
                this.draw(tx, order, now_ms)?;
                let request = Verified::check(replica.request.clone())?;
                publish::enqueue(tx, &request, &this.destinations(order), now_ms)?;
            }
            Ok::<_, Error>(delegation)
        });
        let delegation = called.await?;
        self.counts.add("delegation_posted");
        Ok(delegation)
    }
}

fn too_few(new: &NewDelegation, found: u32) -> guild_market::Error {
    let part = new.budget.0.checked_div(i64::from(new.replicas)).unwrap_or(0);
    let message = format!(
        "{} work is done by {} distinct operators, and {found} do {} for {part} msat each",
        new.criticality.as_str(),
        new.replicas,
        new.job.schema_id()
    );
    guild_market::Error::refused(&DELEGATION_TOO_FEW, message)
}
