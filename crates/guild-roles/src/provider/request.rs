//! What comes in: requests, receipts, and the wish to have a request deleted.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::future::join_all;
use guild_market::code::INPUT_UNREACHABLE;
use guild_market::job::{self, Refusal, Shop, Taken};
use guild_market::order::TIME_LIMIT;
use guild_network::archive;
use guild_network::content::Path;
use guild_protocol::env::{BoxFuture, Shutdown, UnixMs};
use guild_protocol::hash::Hash;
use guild_protocol::nostr::job::Request;
use guild_protocol::nostr::receipt_notice::is_notice;
use guild_protocol::nostr::{Event, Limits, kind, nip44, tag, unix_s};
use guild_protocol::schema::Job;
use guild_store::Tx;

use super::{MINUTE_MS, Shared};
use crate::feed::{Feed, Page};
use crate::{Error, Result, alone};

/// Follows the archive until the shutdown.
pub(super) async fn follow(shared: Arc<Shared>, shutdown: Shutdown) {
    let node = &shared.node;
    let mut feed = Feed::new(
        format!("provider:{}", shared.us().hex()),
        kind::REQUESTS.chain([kind::DELETION, kind::APP_DATA]).collect(),
        (shared.options.page_max, shared.options.sweep_ms),
        (&node.store, &*node.bus, &node.clock),
    );
    let pace = Arc::new(Paces {
        refusals: Pace::new(shared.options.max_refusals_per_minute),
        fetches: Pace::new(shared.options.max_fetches_per_minute),
    });
    let mut failing = false;
    loop {
        match read(&shared, &mut feed, &pace).await {
            // There may be more.
            Ok(false) if !shutdown.is_triggered() => continue,
            Ok(_) => failing = false,
            Err(error) if error.is_closed() => return,
            // Once, not every second for as long as it lasts.
            Err(error) if !std::mem::replace(&mut failing, true) => {
                tracing::warn!(%error, "requests cannot be read; trying again");
            }
            Err(_) => {}
        }
        if !feed.wait(&shutdown).await {
            return;
        }
    }
}

/// Does what a page asks for; whether it was the last.
async fn read(shared: &Arc<Shared>, feed: &mut Feed, pace: &Arc<Paces>) -> Result<bool> {
    let page: Page = feed.page().await?;
    // All are queued before the first is awaited, so that they share a commit. A deletion is queued behind the request.
    let calls: Vec<_> = page.events.iter().filter_map(|event| shared.call(event, pace)).collect();
    for done in join_all(calls).await {
        done?;
    }
    feed.done(&page).await?;
    Ok(page.is_last)
}

impl Shared {
    /// What an event asks for. Only a store that cannot be used is an error: whatever else is wrong, is so with this
    /// event alone.
    fn call(self: &Arc<Shared>, event: &Event, pace: &Arc<Paces>) -> Option<BoxFuture<Result<()>>> {
        if event.pubkey == self.us() {
            return None;
        }
        let (this, event) = (self.clone(), event.clone());
        match event.kind {
            kind::DELETION => Some(this.forget(&event)),
            kind::APP_DATA if is_notice(&event) && event.tag("p") == Some(&this.us().hex()) => {
                Some(this.take_receipt(&event))
            }
            kind if kind::is_request(kind) && this.may_be_for_us(&event) => {
                Some(this.take(event, pace.clone()))
            }
            _ => None,
        }
    }

    fn may_be_for_us(&self, event: &Event) -> bool {
        let us = self.us().hex();
        let mut addressed = tag::values(&event.tags, "p").peekable();
        addressed.peek().is_none() || addressed.any(|key| key == us)
    }

    fn take(self: Arc<Shared>, event: Event, pace: Arc<Paces>) -> BoxFuture<Result<()>> {
        // Opened once, and counted once, whatever becomes of the transaction.
        let read = Request::parse(&event, Some(&self.key));
        let referred = read.as_ref().ok().filter(|request| request.providers.contains(&self.us()));
        match referred.and_then(job::referred) {
            None => self.take_read(event, read, pace),
            Some(reference) => Box::pin(async move {
                let read = match read {
                    Ok(request) => self.fetched(request, reference, &pace).await,
                    Err(error) => Err(error),
                };
                self.take_read(event, read, pace).await
            }),
        }
    }

    /// The request with the input that it only refers to; or why it is not to be had.
    async fn fetched(
        &self,
        request: Request,
        (path, hash): (Path, Option<Hash>),
        pace: &Paces,
    ) -> guild_protocol::Result<Request> {
        let Some(fetch) = self.node.fetch.as_ref().filter(|_| pace.fetches.may(self.now_ms()))
        else {
            return Ok(request);
        };
        let refused = |refusal: Refusal| guild_protocol::Error::new(refusal.code, refusal.words);
        let text = fetch(path, self.options.max_input_bytes).await.map_err(refused)?;
        if hash.is_some_and(|hash| hash != Hash::of(text.as_bytes())) {
            let why = "the input is not what its request says that it hashes to";
            return Err(guild_protocol::Error::new(&INPUT_UNREACHABLE, why));
        }
        Ok(job::carrying(&request, text))
    }

    fn take_read(
        self: Arc<Shared>,
        event: Event,
        read: guild_protocol::Result<Request>,
        pace: Arc<Paces>,
    ) -> BoxFuture<Result<()>> {
        let (this, id) = (self.clone(), event.id);
        let has_room = OnceLock::new();
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let may_refuse = || *has_room.get_or_init(|| pace.refusals.may(now_ms));
            this.take_in(tx, &event, &read, &may_refuse, now_ms)
        });
        Box::pin(async move {
            match called.await? {
                Ok(word) => self.counts.add(word),
                Err(error) => self.shrug("request_failed", &id, &error),
            }
            Ok(())
        })
    }

    fn take_in(
        &self,
        tx: &mut Tx<'_>,
        event: &Event,
        read: &guild_protocol::Result<Request>,
        may_refuse: &dyn Fn() -> bool,
        now_ms: UnixMs,
    ) -> Result<&'static str> {
        let taken = match read {
            Ok(request) if self.is_stale(event, request, now_ms) => return Ok("request_ignored"),
            Ok(request) => self.decide(tx, event, request, now_ms)?,
            // One that is open to all and cannot be read is nobody's.
            Err(_) if !tag::has(&event.tags, "p") => return Ok("request_ignored"),
            Err(error) => match job::find(tx, &event.id)? {
                Some(known) => Taken::Known(known),
                None => Taken::Refused(Refusal::new(error.code(), error.to_string())),
            },
        };
        match taken {
            Taken::Accepted(job) => {
                archive::pin(tx, &event.id)?;
                let answer = self.processing(event, &job, now_ms)?;
                self.publish(tx, answer, event, now_ms)?;
                Ok("request_accepted")
            }
            Taken::Refused(refusal) if may_refuse() => {
                let job = job::refuse(tx, event, &self.us(), &refusal, now_ms)?;
                let answer = self.error(event, &job, now_ms)?;
                self.publish_refusal(tx, answer, now_ms)?;
                Ok("request_refused")
            }
            // Not even a row: whoever asks faster than we answer must not fill the database either.
            Taken::Refused(_) => Ok("request_refused_silently"),
            Taken::Ignored(_) => Ok("request_ignored"),
            Taken::Known(_) => Ok("request_known"),
        }
    }

    fn decide(
        &self,
        tx: &mut Tx<'_>,
        event: &Event,
        request: &Request,
        now_ms: UnixMs,
    ) -> Result<Taken> {
        let max_output_bytes = match request.encrypted {
            true => nip44::MAX_PLAINTEXT_BYTES,
            false => Limits::DEFAULT.max_content_bytes,
        };
        let can_do = |job: &Job| self.worker.check(job, max_output_bytes);
        let shop = Shop {
            offer: &self.offer,
            registry: &self.node.registry,
            can_do: &can_do,
            claimant: &self.claimant,
        };
        Ok(job::take(tx, event, request, &shop, now_ms)?)
    }

    /// Nobody waits for an answer to a request from long ago that does not say how long it waits.
    fn is_stale(&self, event: &Event, request: &Request, now_ms: UnixMs) -> bool {
        let says_when = request.param(TIME_LIMIT).is_some() || tag::has(&event.tags, "expiration");
        let oldest_s = unix_s(now_ms.saturating_sub(self.options.max_age_ms));
        !says_when && event.created_at < oldest_s
    }

    /// The buyer wants its request deleted: what is not done yet is not done any more.
    fn forget(self: Arc<Shared>, event: &Event) -> BoxFuture<Result<()>> {
        let (buyer, id) = (event.pubkey, event.id);
        let named: Vec<_> =
            tag::values(&event.tags, "e").filter_map(|id| id.parse().ok()).take(100).collect();
        let this = self.clone();
        let called = alone::write(&self.node.store, move |tx| {
            let mut cancelled = 0;
            for request_id in &named {
                let open = job::find(tx, request_id)?
                    .is_some_and(|job| job.buyer == buyer && job.state == job::State::Accepted);
                if open {
                    job::cancel(tx, request_id, &buyer, this.now_ms())?;
                    cancelled += 1;
                }
            }
            Ok::<usize, Error>(cancelled)
        });
        Box::pin(async move {
            match called.await? {
                Ok(cancelled) => (0..cancelled).for_each(|_| self.counts.add("job_cancelled")),
                Err(error) => self.shrug("deletion_failed", &id, &error),
            }
            Ok(())
        })
    }
}

/// What strangers can make us do only so often.
struct Paces {
    refusals: Pace,
    fetches: Pace,
}

/// How often a minute has room for something.
struct Pace {
    max: u64,
    minute: Mutex<(UnixMs, u64)>,
}

impl Pace {
    fn new(max: u64) -> Pace {
        Pace { max, minute: Mutex::default() }
    }

    fn may(&self, now_ms: UnixMs) -> bool {
        let minute = now_ms.div_euclid(MINUTE_MS);
        let mut counted = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.0 != minute {
            *counted = (minute, 0);
        }
        counted.1 = counted.1.saturating_add(1);
        counted.1 <= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_room_for_so_many_refusals() {
        let pace = Pace::new(2);
        assert_eq!([pace.may(0), pace.may(1), pace.may(59_999)], [true, true, false]);
        assert!(pace.may(60_000));
        // A clock that goes backwards stands in another minute, too.
        assert!(pace.may(0));
    }
}
