//! From a wish to an order.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_ledger::policy::Tier;
use guild_ledger::quote::Quote;
use guild_market::discovery::Footing;
use guild_market::operator;
use guild_market::order::{self, NewOrder, Order, OrderId, Placed};
use guild_market::routing::chosen::Why;
use guild_market::verify;
use guild_network::archive::Verified;
use guild_network::index::{self, Offered, Provider};
use guild_network::publish::{self, Destinations};
use guild_network::ways::{self, Way};
use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::to_hex;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, kind};
use guild_protocol::schema::{Job, SchemaId};

use super::choose::{Candidate, best};
use super::routed::Picked;
use super::{Choice, Shared, Wish};
use crate::error::code;
use crate::router::{Matrix, TaskType};
use crate::{Error, Result};

/// How many offers of those whom nobody knows are compared.
const STRANGERS_MAX: i64 = 1_000;
/// How many of one key.
const OFFERS_PER_KEY: i64 = 16;

impl Shared {
    pub(super) async fn hire(self: &Arc<Shared>, wish: Wish) -> Result<Order> {
        let job = self.node.registry.validate_input(&wish.schema_id, &wish.input)?;
        let kind = kind_of(&wish)?;
        let key = wish.idempotency_key.clone().unwrap_or_else(|| self.made_up_key());
        if let Some(known) = self.known(&key, &wish, &job).await? {
            return Ok(known);
        }
        // Before anybody is asked to work, or to approve: what cannot be judged would never be paid.
        let workshop = self.node.workshop.as_ref();
        verify::can_verify(&job, workshop.map(|workshop| &workshop.bounds))?;
        if verify::is_sandbox_run(&job) && wish.provider == Choice::Any {
            let message = "commands that everybody may run would be run again for everybody";
            return Err(Error::refused(&code::OPEN_RUN, message));
        }
        let chosen = self.choose(&wish, &job, &key).await?;
        let (chosen, why) = match chosen {
            Some(Picked { candidate, why }) => (Some(candidate), why),
            None => (None, None),
        };
        let mut to = Destinations::own(&self.options.relays);
        if let Some(one) = &chosen {
            let ways = self.ways(one.provider).await?;
            to = to.and_of(&one.provider, ways::open(&ways), self.options.max_hints);
        }
        let new = NewOrder {
            order_key: key,
            kind,
            job,
            provider: chosen.as_ref().map(|one| one.provider),
            // Nobody is trusted before there is a record of it.
            provider_tier: Tier::Tertiary,
            price: chosen.as_ref().and_then(|one| one.price),
            budget: wish.budget,
            deadline_ms: deadline_ms(self.now_ms(), wish.time_limit_ms),
            private: wish.private,
            relays: to.urls(),
        };
        self.post(new, why).await
    }

    /// By which relays a provider is reached, the best first.
    pub(super) async fn ways(&self, provider: PublicKey) -> Result<Vec<Way>> {
        let now_ms = self.now_ms();
        let read =
            self.node.store.read(move |rx| Ok::<_, Error>(ways::ways(rx, &provider, now_ms)?));
        read.await
    }

    pub(super) fn made_up_key(&self) -> String {
        let mut bytes = [0; 16];
        self.node.random.fill(&mut bytes);
        to_hex(&bytes)
    }

    /// The order that is there under this key. Who does it was decided when it was posted; the rest must be the same.
    async fn known(&self, key: &str, wish: &Wish, job: &Job) -> Result<Option<Order>> {
        let order_id = OrderId::of_key(key);
        let known = self.node.store.read(move |rx| Ok::<_, Error>(order::find(rx, &order_id)?));
        let Some(known) = known.await? else { return Ok(None) };
        let same = known.job_hash == job.job_hash()
            && known.budget == wish.budget
            && known.private == wish.private
            && match wish.provider {
                Choice::Chosen(provider) => !known.is_open && known.provider == Some(provider),
                Choice::Best => !known.is_open,
                Choice::Any => known.is_open,
            };
        if same {
            return Ok(Some(known));
        }
        let message = format!("{key:?} is the key of other work");
        Err(guild_market::Error::refused(&guild_market::code::ORDER_CONFLICT, message).into())
    }

    /// Whom the request addresses; none if it is open to all.
    async fn choose(&self, wish: &Wish, job: &Job, key: &str) -> Result<Option<Picked>> {
        match wish.provider {
            Choice::Any => Ok(None),
            Choice::Chosen(provider) => {
                self.router.refuse_blacklisted(&provider).await?;
                let candidate = self.named(provider, job).await?;
                Ok(Some(Picked { candidate, why: None }))
            }
            Choice::Best => {
                let mut candidates = self.candidates(job).await?;
                let all = candidates.len();
                let best = match self.quoted(key).await? {
                    // A guardian was asked about one of them, and about nobody else.
                    Some(quote) => {
                        candidates.retain(|one| {
                            order::would_pay(&quote, &one.provider).is_ok_and(|would| would)
                        });
                        let best = best(candidates, wish.budget, wish.private);
                        best.map(|candidate| Picked { candidate, why: None })
                    }
                    None => self.pick(wish, candidates).await?,
                };
                best.map(Some).ok_or_else(|| no_provider(all, &wish.schema_id, wish.budget))
            }
        }
    }

    /// The quote that was made when this was asked for before and had to wait for a guardian.
    async fn quoted(&self, key: &str) -> Result<Option<Quote>> {
        let order_id = OrderId::of_key(key);
        self.node.store.read(move |rx| Ok::<_, Error>(order::quoted(rx, &order_id)?)).await
    }

    /// Those who are alive and announce this kind of work; not we, nobody who was shut out, and no newcomer
    /// that looks like one of those before it was evaluated.
    ///
    /// Whom the routing matrix knows for it is looked up by key, so no number of strangers hides anybody. Strangers
    /// have a bounded number of offers each, and in all; whoever the registry says is gone or flaps is not among them.
    pub(super) async fn candidates(&self, job: &Job) -> Result<Vec<Candidate>> {
        let matrix = self.router.current().await?;
        let (known, strangers) = self.there(job, &matrix).await?;
        let footings = self.footings(&strangers, job);
        let known = known.iter().map(|one| Candidate::of(one, job, Footing::Sound));
        let strangers = strangers.iter().zip(footings);
        let strangers = strangers.filter(|(_, footing)| *footing != Footing::Unfit);
        let strangers = strangers.map(|(one, footing)| Candidate::of(one, job, footing));
        let mut candidates: Vec<Candidate> = known.chain(strangers).collect();
        let asked: BTreeSet<PublicKey> = candidates.iter().map(|one| one.provider).collect();
        let read = self.node.store.read(move |rx| operator::refused(rx, &matrix, &asked));
        let refused = read.await?;
        candidates.retain(|one| !refused.contains(&one.provider));
        Ok(candidates)
    }

    /// The offers of those who are there: of whom the matrix knows for this work, and of all others.
    async fn there(&self, job: &Job, matrix: &Matrix) -> Result<(Vec<Provider>, Vec<Provider>)> {
        let schema_id = job.schema_id().to_string();
        let live_since_ms = self.now_ms().saturating_sub(self.options.live_ms);
        let mut known: Vec<PublicKey> = match schema_id.parse::<TaskType>() {
            Ok(task) => matrix.providers_of(&task).map(|(key, _)| *key).collect(),
            Err(_) => Vec::new(),
        };
        let ours = self.options.ours.clone();
        known.retain(|key| !ours.contains(key));
        let read = self.node.store.read(move |rx| {
            let wanted = Offered { schema_id: &schema_id, live_since_ms, per_key: OFFERS_PER_KEY };
            let mut strangers = index::offers(rx, &wanted, STRANGERS_MAX)?;
            let known_keys: BTreeSet<&PublicKey> = known.iter().collect();
            strangers
                .retain(|one| !known_keys.contains(&one.pubkey) && !ours.contains(&one.pubkey));
            Ok::<_, Error>((index::offers_of(rx, &known, &wanted)?, strangers))
        });
        read.await
    }

    /// How each of these stands. Where no registry is kept, or it was not read yet, what they announce is all there is.
    fn footings(&self, strangers: &[Provider], job: &Job) -> Vec<Footing> {
        let task = job.schema_id().as_str();
        let asked = self.node.discovery.as_ref().and_then(|discovery| {
            discovery.ask(|registry, now_ms| {
                let of = |one: &Provider| registry.footing(&one.pubkey, &one.card.d, task, now_ms);
                strangers.iter().map(of).collect()
            })
        });
        asked.unwrap_or_else(|| vec![Footing::Sound; strangers.len()])
    }

    /// One who is named is hired whatever it announces, if it does at all.
    pub(super) async fn named(&self, provider: PublicKey, job: &Job) -> Result<Candidate> {
        let job = job.clone();
        let read = self.node.store.read(move |rx| {
            let all = index::provider(rx, &provider)?;
            let schema_id = job.schema_id().as_str();
            let serving = all.iter().find(|one| one.card.schema_ids().contains(&schema_id));
            let one = serving.or(all.first());
            Ok::<_, Error>(one.map(|one| Candidate::of(one, &job, Footing::Sound)))
        });
        let unknown = Candidate {
            provider,
            price: None,
            latency_ms: None,
            opens_sealed: true,
            footing: Footing::Unlisted,
        };
        Ok(read.await?.unwrap_or(unknown))
    }

    /// The request of an order. An input that is too large for an event is kept here, and referred to.
    pub(super) async fn request_of(&self, new: &NewOrder) -> Result<Event> {
        let payload = new.payload_text()?;
        let is_large = !new.private && payload.len() > self.options.inline_max_bytes;
        let address = match self.node.refer.as_ref().filter(|_| is_large) {
            Some(refer) => Some(refer(payload.into_bytes()).await?),
            None => None,
        };
        let (random, now_ms) = (&*self.node.random, self.now_ms());
        Ok(new.request_by(address.as_deref(), &self.key, random, now_ms)?)
    }

    async fn post(self: &Arc<Shared>, new: NewOrder, why: Option<Why>) -> Result<Order> {
        let request = Verified::check(self.request_of(&new).await?)?;
        let this = self.clone();
        let called = self.node.store.write(move |tx| {
            let now_ms = this.now_ms();
            let placed = order::post(tx, &new, request.event(), &this.node.policy, now_ms)?;
            if let Placed::Posted(order) = &placed {
                this.given(tx, order, why.as_ref(), now_ms)?;
                this.draw(tx, order, now_ms)?;
                publish::enqueue(tx, &request, &this.destinations(order), now_ms)?;
            }
            // A quote that waits for a guardian stays, so this is no error inside of the transaction.
            Ok::<_, Error>(placed)
        });
        let order = called.await?.order()?;
        self.counts.add("order_posted");
        Ok(order)
    }
}

/// The kind of the event of a request.
pub(super) fn kind_of(wish: &Wish) -> Result<u16> {
    let kind = wish.kind.unwrap_or(kind::DEFAULT_REQUEST);
    if kind::is_request(kind) {
        return Ok(kind);
    }
    let message = format!("{kind} is not the kind of a request");
    Err(Error::refused(&code::KIND, message))
}

/// To the second, as the request says it, so that both sides mean the same moment. What has no whole second left is
/// kept as it is.
pub(super) fn deadline_ms(now_ms: UnixMs, time_limit_ms: i64) -> UnixMs {
    let exact_ms = now_ms.saturating_add(time_limit_ms);
    let whole_ms = exact_ms.saturating_sub(exact_ms.rem_euclid(1_000));
    if whole_ms.saturating_sub(now_ms) >= 1_000 { whole_ms } else { exact_ms }
}

fn no_provider(live: usize, schema_id: &SchemaId, budget: Msat) -> Error {
    let message = match live {
        0 => format!("nobody who is alive announces {schema_id}"),
        live => {
            format!("none of {live} who announce {schema_id} does it for {} msat", budget.0)
        }
    };
    Error::refused(&code::NO_PROVIDER, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_a_whole_second_where_there_is_one() {
        assert_eq!(deadline_ms(10_200, 60_000), 70_000);
        assert_eq!(deadline_ms(10_000, 60_000), 70_000);
        assert_eq!(deadline_ms(10_200, 1_800), 12_000);
        assert_eq!(deadline_ms(10_900, 1_000), 11_900, "a tenth of what was asked for is not it");
        assert_eq!(deadline_ms(10_900, 500), 11_400);
        assert_eq!(deadline_ms(10_000, -5), 9_995);
        assert_eq!(deadline_ms(10_000, i64::MAX), i64::MAX - i64::MAX % 1_000);
    }
}
