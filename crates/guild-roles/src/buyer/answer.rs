//! What comes in: feedback and results. And what does not: deadlines.

use std::sync::Arc;

use futures_util::future::join_all;
use guild_market::order::{self, Delivery, Order, Standing};
use guild_network::{archive, index};
use guild_protocol::env::{BoxFuture, Shutdown, UnixMs};
use guild_protocol::nostr::{Event, EventId, kind};
use guild_store::Tx;

use super::Shared;
use crate::feed::{Feed, Page};
use crate::{Error, Result};

/// How many orders end in one transaction.
const EXPIRED_MAX: i64 = 50;
/// How many open orders are looked at, and how many of their results are taken up again, at once.
const OPEN_MAX: i64 = 50;
const AGAIN_MAX: usize = 20;
/// How often the archive is read once more before a deadline counts, if it grows just then.
const LAST_LOOKS: usize = 5;

/// Follows the archive until the shutdown.
pub(super) async fn follow(shared: Arc<Shared>, shutdown: Shutdown) {
    let node = &shared.node;
    let mut feed = Feed::new(
        format!("buyer:{}", guild_protocol::env::Signer::public_key(&shared.key).hex()),
        kind::RESULTS.chain([kind::FEEDBACK]).collect(),
        (shared.options.page_max, shared.options.sweep_ms),
        (&node.store, &*node.bus, &node.clock),
    );
    let mut failing = false;
    loop {
        match shared.round(&mut feed).await {
            Ok(()) => failing = false,
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

impl Shared {
    /// Reads everything that is there, judges, and ends what is over.
    async fn round(self: &Arc<Shared>, feed: &mut Feed) -> Result<()> {
        for _ in 0..LAST_LOOKS {
            let up_to = self.read(feed).await?;
            self.look_again().await?;
            self.judge_all().await?;
            if self.expire(Some(up_to)).await? {
                return Ok(());
            }
        }
        self.expire(None).await?;
        Ok(())
    }

    /// Takes every answer that is there; up to which number that was.
    async fn read(self: &Arc<Shared>, feed: &mut Feed) -> Result<i64> {
        loop {
            let page: Page = feed.page().await?;
            // All are queued before the first is awaited, so that they share a commit.
            let calls: Vec<_> = page.events.iter().filter_map(|event| self.call(event)).collect();
            for done in join_all(calls).await {
                done?;
            }
            feed.done(&page).await?;
            if page.is_last {
                return Ok(page.up_to);
            }
        }
    }

    /// A result of an open order may come before the announcement of who sent it: looks at it again once that is known.
    async fn look_again(self: &Arc<Shared>) -> Result<()> {
        let read = self.node.store.read(|rx| {
            let mut again = Vec::new();
            for order in order::open_to_all(rx, OPEN_MAX)? {
                for answer in index::answers(rx, &order.request_id)? {
                    if !kind::is_result(answer.kind) || again.len() >= AGAIN_MAX {
                        continue;
                    }
                    let cards = index::provider(rx, &answer.author)?;
                    let serves = |one: &index::Provider| {
                        one.card.schema_ids().contains(&order.schema_id.as_str())
                    };
                    if cards.iter().any(serves) {
                        again.extend(archive::event(rx, &answer.event_id)?);
                    }
                }
            }
            Ok::<_, Error>(again)
        });
        for event in read.await? {
            if let Some(call) = self.call(&event) {
                call.await?;
            }
        }
        Ok(())
    }

    /// What becomes of an event. Only a store that fails is an error: whatever else is wrong, is so with this event
    /// alone.
    fn call(self: &Arc<Shared>, event: &Event) -> Option<BoxFuture<Result<()>>> {
        let request_id: EventId = event.tag("e")?.parse().ok()?;
        let (this, event, id) = (self.clone(), event.clone(), event.id);
        let called = self.node.store.write(move |tx| this.take(tx, &event, &request_id));
        let this = self.clone();
        Some(Box::pin(async move {
            match called.await {
                Ok(Some(word)) => this.counts.add(word),
                Ok(None) => {}
                Err(error) if error.is_passing() => return Err(error),
                Err(error) => this.shrug("answer_refused", &id, &error),
            }
            Ok(())
        }))
    }

    /// A word for what became of it; none if it is not about an order of ours.
    fn take(
        &self,
        tx: &mut Tx<'_>,
        event: &Event,
        request_id: &EventId,
    ) -> Result<Option<&'static str>> {
        let Some(order) = order::of_request(tx, request_id)? else { return Ok(None) };
        let now_ms = self.now_ms();
        if event.kind == kind::FEEDBACK {
            let after = order::fail(tx, event, &self.key, now_ms)?;
            if after.state == order.state {
                return Ok(Some("feedback"));
            }
            archive::pin(tx, &event.id)?;
            // A provider that only asked for more may be at work.
            self.take_back(tx, &after, now_ms)?;
            return Ok(Some("order_failed"));
        }
        let at_ms = self.came_ms(tx, &order, event, now_ms)?;
        let Delivery { standing, known, kept, .. } = order::deliver(tx, event, &self.key, at_ms)?;
        if kept || standing == Standing::Delivered {
            archive::pin(tx, &event.id)?;
        }
        Ok(Some(match (known, standing) {
            (true, _) => "result_known",
            (false, Standing::Delivered) => "result_delivered",
            (false, Standing::Late) => "result_late",
            (false, Standing::Repeated) => "result_repeated",
            (false, Standing::Equivocation) => "result_equivocation",
        }))
    }

    /// When a result came. One that was here before the deadline counts, although we read it only now.
    fn came_ms(
        &self,
        tx: &mut Tx<'_>,
        order: &Order,
        event: &Event,
        now_ms: UnixMs,
    ) -> Result<UnixMs> {
        if now_ms < order.deadline_ms {
            return Ok(now_ms);
        }
        let came_ms = archive::received_ms(tx, &event.id)?;
        Ok(came_ms.map_or(now_ms, |came_ms| came_ms.min(now_ms)))
    }

    /// Ends the orders whose time is over, unless the archive has grown since it was read up to a number: what has come
    /// in between may be a result. Whether it was done.
    async fn expire(self: &Arc<Shared>, up_to: Option<i64>) -> Result<bool> {
        let this = self.clone();
        let now_ms = self.now_ms();
        let due = self.node.store.read(move |rx| order::due(rx, now_ms, 1)).await;
        if due.map_err(Error::from)?.is_empty() {
            return Ok(true);
        }
        let called = self.node.store.write(move |tx| {
            if up_to.is_some_and(|up_to| archive::head(tx).is_ok_and(|head| head.last_seq > up_to))
            {
                return Ok(None);
            }
            let now_ms = this.now_ms();
            let over = order::expire(tx, now_ms, EXPIRED_MAX)?;
            for order in &over {
                this.take_back(tx, order, now_ms)?;
            }
            Ok::<_, Error>(Some(over.len()))
        });
        let Some(over) = called.await? else { return Ok(false) };
        (0..over).for_each(|_| self.counts.add("order_expired"));
        Ok(true)
    }
}
