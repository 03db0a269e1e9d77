//! Tests of providers that look like work: drawn with ordinary orders, posted like them, and judged by what is known.

use std::sync::Arc;

use guild_ledger::policy::Tier;
use guild_market::benchmark::{Benchmark, SEED_BYTES};
use guild_market::health::fresh::vary;
use guild_market::health::known;
use guild_market::health::probe::{self, LATE_MS, Probe, Reason, is_drawn};
use guild_market::order::{self, NewOrder, Order, Placed};
use guild_market::routing;
use guild_market::verify::{Verdict, can_verify};
use guild_network::archive::Verified;
use guild_network::publish::{self, Destinations};
use guild_network::ways;
use guild_protocol::env::UnixMs;
use guild_protocol::nostr::kind;
use guild_protocol::schema::Job;
use guild_store::Tx;

use super::hire::deadline_ms;
use super::{Buyer, Shared};
use crate::alone;
use crate::router::TaskType;
use crate::{Error, Result};

/// How much time there is for work of which no order says how much.
const TIME_LIMIT_MS: i64 = 5 * 60_000;

/// How much time there was for an order. A deadline is a whole second: what was asked for is the next whole number of
/// them.
fn time_limit_ms(order: &Order) -> i64 {
    let left_ms = order.deadline_ms.saturating_sub(order.posted_ms).max(1);
    left_ms.saturating_add(999).div_euclid(1_000).saturating_mul(1_000)
}

/// Work that tests somebody.
struct Exercise {
    job: Job,
    kind: u16,
    time_limit_ms: i64,
    /// Whose answer is known; none if the result is checked by itself.
    known: Option<Order>,
}

impl Buyer {
    /// Makes an order of a test that is due; nothing if it cannot be one, and then it is dropped and says why. Only a
    /// store that cannot be used is an error.
    pub async fn probe(&self, probe: Probe) -> Result<Option<Order>> {
        self.0.probe(probe).await
    }
}

impl Shared {
    /// Draws whether the provider of an ordinary order is tested too, some time later.
    pub(super) fn draw(&self, tx: &mut Tx<'_>, order: &Order, now_ms: UnixMs) -> Result<()> {
        let rate_bp = self.options.hidden_rate_bp;
        let Some(provider) = order.provider.filter(|_| rate_bp > 0) else { return Ok(()) };
        let Ok(task) = order.schema_id.as_str().parse::<TaskType>() else { return Ok(()) };
        if !is_drawn(rate_bp, self.node.random.next_u64()) {
            return Ok(());
        }
        // Of a stranger nothing is believed yet that a test could change.
        let known = routing::log::latest(tx, &task, &provider)?;
        if !known.is_some_and(|entry| entry.status.is_hireable()) {
            return Ok(());
        }
        let span = u64::try_from(self.options.hidden_delay_ms).unwrap_or(0).saturating_add(1);
        let delay = self.node.random.next_u64().checked_rem(span).unwrap_or(0);
        let due_ms = now_ms.saturating_add(i64::try_from(delay).unwrap_or(0));
        let key = self.made_up_key();
        Ok(probe::add(tx, &key, (&provider, &task), Reason::Hidden, (due_ms, now_ms))?)
    }

    /// Takes what was paid into the pool of work whose answer is known. What cannot be taken holds up no money.
    pub(super) fn learn(&self, tx: &mut Tx<'_>, order: &Order, now_ms: UnixMs) -> Result<()> {
        match known::learn(tx, &self.node.registry, order, now_ms) {
            Ok(true) => self.counts.add("answer_known"),
            Ok(false) => {}
            Err(error @ guild_market::Error::Store(_)) => return Err(error.into()),
            Err(error) => tracing::debug!(%error, "an answer is not taken into the pool"),
        }
        Ok(())
    }

    /// What a result is worth beside the answer that is known.
    pub(super) fn as_known(&self, order: &Order, known: &Order) -> Result<Option<Verdict>> {
        let options = (&self.options.verify, &self.options.delegation);
        Ok(known::verdict(&self.node.registry, options, order, known)?)
    }

    /// What a test is worth that gave another answer than the one that is known. An answer may be right one day and
    /// wrong on the next: so it is checked as any other result before its provider is blamed, and if that finds it
    /// right, it is, and the answer that was known leaves the pool. What cannot be checked so stays wrong.
    pub(super) async fn beside_known(
        &self,
        known: &Order,
        differs: Option<Verdict>,
        found: Verdict,
    ) -> Result<Verdict> {
        let Some(differs) = differs else { return Ok(found) };
        if !found.passed {
            return Ok(differs);
        }
        self.counts.add("answer_outdated");
        let order_id = known.order_id.clone();
        self.node.store.write(move |tx| known::forget(tx, &order_id)).await?;
        Ok(found)
    }

    async fn probe(self: &Arc<Shared>, probe: Probe) -> Result<Option<Order>> {
        match self.probing(&probe).await {
            Ok(Ok(order)) => {
                self.counts.add(if order.is_some() { "probe_posted" } else { "probe_known" });
                Ok(order)
            }
            Ok(Err(words)) => {
                self.counts.add("probe_dropped");
                tracing::debug!(provider = %probe.provider, %words, "a test is not posted");
                let key = probe.probe_key.clone();
                let dropped = self.node.store.write(move |tx| probe::drop_it(tx, &key, &words));
                dropped.await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The order of a test, or why there is none.
    async fn probing(
        self: &Arc<Shared>,
        probe: &Probe,
    ) -> Result<std::result::Result<Option<Order>, String>> {
        let now_ms = self.now_ms();
        if now_ms.saturating_sub(probe.due_ms) > LATE_MS {
            return Ok(Err("nobody was there to post it in time".to_owned()));
        }
        let matrix = self.router.current().await?;
        let entry = matrix.entry(&probe.task, &probe.provider);
        let is_hired = entry.is_some_and(|entry| entry.status.is_hireable());
        if !is_hired || matrix.is_blacklisted(&probe.provider) {
            return Ok(Err("its provider is not hired now".to_owned()));
        }
        let exercise = match self.exercise(probe).await? {
            Ok(exercise) => exercise,
            Err(words) => return Ok(Err(words)),
        };
        let candidate = self.named(probe.provider, &exercise.job).await?;
        let Some(price) = candidate.price else {
            return Ok(Err("its provider says no price".to_owned()));
        };
        if price > self.options.hidden_max {
            return Ok(Err(format!("{} msat are more than is paid for a test", price.0)));
        }
        let ways = self.ways(probe.provider).await?;
        let to = Destinations::own(&self.options.relays).and_of(
            &probe.provider,
            ways::open(&ways),
            self.options.max_hints,
        );
        let new = NewOrder {
            order_key: probe.probe_key.clone(),
            kind: exercise.kind,
            job: exercise.job,
            provider: Some(probe.provider),
            provider_tier: Tier::Tertiary,
            price: Some(price),
            budget: price,
            deadline_ms: deadline_ms(now_ms, exercise.time_limit_ms),
            private: false,
            relays: to.urls(),
        };
        self.post_probe(probe, new, exercise.known).await
    }

    /// Work that nobody has seen, where its result can be computed here; else one of the pool that its provider has
    /// never been given.
    async fn exercise(&self, probe: &Probe) -> Result<std::result::Result<Exercise, String>> {
        let mut seed = [0; SEED_BYTES];
        self.node.random.fill(&mut seed);
        let made = Benchmark::of_task(&probe.task).and_then(|benchmark| benchmark.job(&seed));
        if let Ok(Some(job)) = made {
            return Ok(Ok(self.never_seen(probe, job).await?));
        }
        let (task, provider) = (probe.task.clone(), probe.provider);
        let chance = self.node.random.next_u64();
        let read = self.node.store.read(move |rx| known::pick(rx, &task, &provider, chance));
        if let Some(known) = read.await? {
            let job = known.job(&self.node.registry);
            let request = known.request();
            let (job, request) = match (job, request) {
                (Ok(job), Ok(request)) => (job, request),
                (Err(error), _) | (_, Err(error)) => return Ok(Err(error.to_string())),
            };
            let time_limit_ms = time_limit_ms(&known);
            let (kind, known) = (request.kind, Some(known));
            return Ok(Ok(Exercise { job, kind, time_limit_ms, known }));
        }
        Ok(Err(format!("no answer is known yet for {}", probe.task)))
    }

    /// Work of the form of what is bought here, of which nobody has seen a text; as long as nothing was, `made`.
    async fn never_seen(&self, probe: &Probe, made: Job) -> Result<Exercise> {
        let (task, registry) = (probe.task.clone(), &self.node.registry);
        let latest = self.node.store.read(move |rx| known::latest(rx, &task)).await?;
        let (mut forms, mut jobs) = (Vec::new(), Vec::new());
        for order in latest {
            let job = order.job(registry).ok().filter(|job| can_verify(job, None).is_ok());
            if let (Some(job), Ok(request)) = (job, order.request()) {
                forms.push((request.kind, time_limit_ms(&order)));
                jobs.push(job);
            }
        }
        let varied = vary(registry, made.schema_id(), &jobs, self.node.random.next_u64());
        let varied =
            varied.and_then(|(place, job)| forms.get(place).map(|(kind, ms)| (job, *kind, *ms)));
        let (job, kind, time_limit_ms) =
            varied.unwrap_or((made, kind::DEFAULT_REQUEST, TIME_LIMIT_MS));
        Ok(Exercise { job, kind, time_limit_ms, known: None })
    }

    async fn post_probe(
        self: &Arc<Shared>,
        probe: &Probe,
        new: NewOrder,
        known: Option<Order>,
    ) -> Result<std::result::Result<Option<Order>, String>> {
        let request = self.request_of(&new).await?;
        let request = Verified::check(request)?;
        let (this, key) = (self.clone(), probe.probe_key.clone());
        let known = known.map(|known| known.order_id);
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let placed = order::post(tx, &new, request.event(), &this.node.policy, now_ms)?;
            let is_new = matches!(placed, Placed::Posted(_));
            // One that waits for a guardian is no test: the refusal takes all of it back.
            let order = placed.order()?;
            if !is_new || !probe::posted(tx, &key, &order.order_id, known.as_ref())? {
                return Ok(None);
            }
            this.given(tx, &order, None, now_ms)?;
            publish::enqueue(tx, &request, &this.destinations(&order), now_ms)?;
            Ok::<_, Error>(Some(order))
        });
        // The wallet, the policy or an envelope says no.
        Ok(called.await?.map_err(|error| error.to_string()))
    }
}
