//! What comes in: feedback and results. And what does not: deadlines.

use std::sync::Arc;

use futures_util::future::join_all;
use guild_market::code::ROUTE_BLACKLISTED;
use guild_market::delegation;
use guild_market::order::{self, Brief, Delivery, Order, Standing, State, Waits};
use guild_network::{archive, index};
use guild_protocol::env::{BoxFuture, Shutdown, UnixMs};
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, kind};
use guild_store::{Rx, Tx};

use super::Shared;
use crate::Result;
use crate::alone::{self, Alone};
use crate::feed::{self, Feed, Page};

/// How many orders end at once.
const EXPIRED_MAX: i64 = 50;
/// How many open orders are looked at when somebody announces itself, and how many of its results are then taken up.
const OPEN_MAX: i64 = 50;
const AGAIN_MAX: usize = 20;

/// Follows the archive until the shutdown.
pub(super) async fn follow(shared: Arc<Shared>, shutdown: Shutdown) {
    let node = &shared.node;
    let mut feed = Feed::new(
        format!("buyer:{}", guild_protocol::env::Signer::public_key(&shared.key).hex()),
        kind::RESULTS.chain([kind::FEEDBACK, kind::ANNOUNCEMENT]).collect(),
        (shared.options.page_max, shared.options.sweep_ms),
        (&node.store, &*node.bus, &node.clock),
    );
    let mut failing = false;
    loop {
        match shared.round(&mut feed).await {
            // There may be more.
            Ok(false) if !shutdown.is_triggered() => continue,
            Ok(_) => failing = false,
            Err(error) if error.is_closed() => return,
            // Once, not every second for as long as it lasts.
            Err(error) if !std::mem::replace(&mut failing, true) => {
                tracing::warn!(%error, "orders cannot be looked after; trying again");
            }
            Err(_) => {}
        }
        if !feed.wait(&shutdown).await {
            return;
        }
    }
}

/// An answer of somebody who may answer, to an order of ours.
struct Heard {
    event: Event,
    brief: Brief,
}

impl Heard {
    /// Whether it must be judged before it counts: rubbish must not keep others from doing the work.
    fn is_try(&self) -> bool {
        let Brief { provider, state, .. } = &self.brief;
        kind::is_result(self.event.kind) && provider.is_none() && *state == State::Posted
    }
}

impl Shared {
    /// Reads a page, judges, and ends what is over; whether the page was the last. However much there is to read, what
    /// was delivered is judged, and what is over ends.
    async fn round(self: &Arc<Shared>, feed: &mut Feed) -> Result<bool> {
        let page: Page = feed.page().await?;
        self.take_all(&page).await?;
        feed.done(&page).await?;
        self.judge_all().await?;
        self.expire(page.up_to).await?;
        Ok(page.is_last)
    }

    /// Takes every answer of a page.
    async fn take_all(self: &Arc<Shared>, page: &Page) -> Result<()> {
        if page.events.is_empty() {
            return Ok(());
        }
        let events = page.events.clone();
        let heard = match alone::read(&self.node.store, move |rx| concerning(rx, &events)).await? {
            Ok(found) => self.welcome(found),
            Err(_) => self.one_by_one(&page.events).await?,
        };
        // All are queued before the first is awaited, so that they share a commit.
        let calls: Vec<_> = heard.into_iter().map(|heard| self.call(heard)).collect();
        join_all(calls).await.into_iter().collect()
    }

    fn welcome(&self, (heard, strangers): (Vec<Heard>, usize)) -> Vec<Heard> {
        (0..strangers).for_each(|_| self.counts.add("answer_refused"));
        heard
    }

    /// What a page has that concerns us, if it cannot be found out for the whole page: the one that is the cause is
    /// left out.
    async fn one_by_one(&self, events: &[Event]) -> Result<Vec<Heard>> {
        let mut heard = Vec::new();
        for event in events.iter().cloned() {
            let id = event.id;
            let one = [event];
            match alone::read(&self.node.store, move |rx| concerning(rx, &one)).await? {
                Ok(found) => heard.extend(self.welcome(found)),
                Err(error) => self.shrug("answer_refused", &id, &error),
            }
        }
        Ok(heard)
    }

    /// What becomes of an answer. Only a store that cannot be used is an error: whatever else is wrong, is so with this
    /// answer alone.
    fn call(self: &Arc<Shared>, heard: Heard) -> BoxFuture<Result<()>> {
        let (this, id) = (self.clone(), heard.event.id);
        let called: BoxFuture<Alone<&'static str>> = match heard.is_try() {
            true => Box::pin(this.try_out(heard)),
            false => alone::write(&self.node.store, move |tx| this.take(tx, &heard)),
        };
        let this = self.clone();
        Box::pin(async move {
            match called.await? {
                Ok(word) => this.counts.add(word),
                Err(error) => {
                    this.shrug("answer_refused", &id, &error);
                    feed::count_refused(&this.node.store, &error, this.now_ms()).await?;
                }
            }
            Ok(())
        })
    }

    /// Judges a result for an order that is open to all, and takes it only if it is what was ordered.
    async fn try_out(self: Arc<Shared>, heard: Heard) -> Alone<&'static str> {
        let request_id = heard.brief.request_id;
        // Whoever tried what is forbidden is not hired by answering what is open to all, either.
        match self.router.refuse_blacklisted(&heard.event.pubkey).await {
            Err(error) if error.code() == &ROUTE_BLACKLISTED => return Ok(Err(error)),
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        let store = &self.node.store;
        let read = alone::read(store, move |rx| Ok(order::of_request(rx, &request_id)?));
        let passed = match read.await? {
            Ok(Some(order)) => self.would_pass(&order, &heard.event),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        let passed = match passed {
            Ok(passed) => passed,
            Err(error) => return Ok(Err(error)),
        };
        let this = self.clone();
        let called = alone::write(store, move |tx| match passed {
            true => this.take(tx, &heard),
            false => {
                let now_ms = this.now_ms();
                let order = order::reject(tx, &heard.event, now_ms)?;
                this.rejected(tx, &order, &heard.event.pubkey, now_ms)?;
                Ok("result_rejected")
            }
        });
        called.await
    }

    /// A word for what became of it.
    fn take(&self, tx: &mut Tx<'_>, heard: &Heard) -> Result<&'static str> {
        let Heard { event, brief } = heard;
        let now_ms = self.now_ms();
        if event.kind == kind::FEEDBACK {
            let Some(failed) = order::fail(tx, event, &self.key, now_ms)? else {
                return Ok("feedback");
            };
            archive::pin(tx, &event.id)?;
            self.ended(tx, &failed, now_ms)?;
            // A provider that only asked for more may be at work.
            self.take_back(tx, &failed, now_ms)?;
            return Ok("order_failed");
        }
        let at_ms = came_ms(tx, brief, event, now_ms)?;
        let Delivery { standing, known, kept, order } =
            order::deliver(tx, event, &self.key, &self.claimant, at_ms)?;
        if kept || standing == Standing::Delivered {
            archive::pin(tx, &event.id)?;
        }
        if !known && standing == Standing::Equivocation {
            self.signed_twice(tx, &order, now_ms)?;
        }
        if !known && standing == Standing::Late {
            delegation::late(tx, &order.order_id)?;
        }
        Ok(match (known, standing) {
            (true, _) => "result_known",
            (false, Standing::Delivered) => "result_delivered",
            (false, Standing::Late) => "result_late",
            (false, Standing::Repeated) => "result_repeated",
            (false, Standing::Equivocation) => "result_equivocation",
            (false, Standing::Rejected) => "result_rejected",
        })
    }

    /// Ends the orders whose time is over and for which nothing can be there that was not read: the archive was read up
    /// to a number, and what has a larger one came after the deadline.
    async fn expire(self: &Arc<Shared>, up_to: i64) -> Result<()> {
        let now_ms = self.now_ms();
        let mut due = self.waiting(Waits::End(now_ms), EXPIRED_MAX).await?;
        if due.is_empty() {
            return Ok(());
        }
        let read = self.node.store.read(move |rx| archive::received_after(rx, up_to)).await?;
        due.retain(|order| order.deadline_ms <= read.unwrap_or(now_ms));
        // All are queued before the first is awaited, so that they share a commit.
        let calls: Vec<_> = due.into_iter().map(|order| self.end(order, up_to)).collect();
        join_all(calls).await.into_iter().collect()
    }

    fn end(self: &Arc<Shared>, order: Order, up_to: i64) -> BoxFuture<Result<()>> {
        let (this, order_id) = (self.clone(), order.order_id.clone());
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let read_until_ms = archive::received_after(tx, up_to)?.unwrap_or(now_ms);
            let ended = order::expire(tx, &order_id, read_until_ms, now_ms)?;
            if let Some(order) = &ended {
                this.ended(tx, order, now_ms)?;
                this.take_back(tx, order, now_ms)?;
            }
            Ok(ended.is_some())
        });
        let this = self.clone();
        Box::pin(async move {
            match called.await? {
                Ok(true) => this.counts.add("order_expired"),
                Ok(false) => {}
                Err(error) => {
                    this.shrug("order_not_ended", &order.request_id, &error);
                    this.later.put_off(order.order_id, None, this.now_ms());
                }
            }
            Ok(())
        })
    }
}

/// Those of these events that are answers to orders of ours, by who may answer; and how many are by somebody else.
fn concerning(rx: &mut Rx<'_>, events: &[Event]) -> Result<(Vec<Heard>, usize)> {
    let mut answers: Vec<(EventId, Event)> = events.iter().filter_map(naming).collect();
    answers.extend(unheard(rx, events)?);
    let ids: Vec<EventId> = answers.iter().map(|(request_id, _)| *request_id).collect();
    let briefs = order::briefs(rx, &ids)?;
    let (mut heard, mut strangers) = (Vec::new(), 0_usize);
    for (request_id, event) in answers {
        let Some(brief) = briefs.get(&request_id) else { continue };
        let may = match brief.provider {
            Some(provider) => provider == event.pubkey,
            None => {
                index::announces(rx, &event.pubkey, brief.schema_id.as_str())?
                    && order::may_try(rx, &request_id, &event.pubkey)?
            }
        };
        match may {
            true => heard.push(Heard { event, brief: brief.clone() }),
            false => strangers = strangers.saturating_add(1),
        }
    }
    Ok((heard, strangers))
}

/// An answer, and the request that it names.
fn naming(event: &Event) -> Option<(EventId, Event)> {
    if event.kind == kind::ANNOUNCEMENT {
        return None;
    }
    Some((event.tag("e")?.parse().ok()?, event.clone()))
}

/// A result of an open order may come before the announcement of who sent it: it is looked at again when that comes.
fn unheard(rx: &mut Rx<'_>, events: &[Event]) -> Result<Vec<(EventId, Event)>> {
    let announced = events.iter().filter(|event| event.kind == kind::ANNOUNCEMENT);
    let authors: Vec<PublicKey> = announced.map(|event| event.pubkey).collect();
    let mut again = Vec::new();
    if authors.is_empty() {
        return Ok(again);
    }
    for request_id in order::open_to_all(rx, OPEN_MAX)? {
        let room = AGAIN_MAX.saturating_sub(again.len());
        for id in index::results_by(rx, &request_id, &authors, room)? {
            again.extend(archive::event(rx, &id)?.map(|event| (request_id, event)));
        }
    }
    Ok(again)
}

/// When a result came. One that was here before the deadline counts, although we read it only now.
fn came_ms(tx: &mut Tx<'_>, brief: &Brief, event: &Event, now_ms: UnixMs) -> Result<UnixMs> {
    if now_ms < brief.deadline_ms {
        return Ok(now_ms);
    }
    let came_ms = archive::received_ms(tx, &event.id)?;
    Ok(came_ms.map_or(now_ms, |came_ms| came_ms.min(now_ms)))
}
