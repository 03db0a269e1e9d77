//! Receipts: what buyers have signed that they owe us.

use std::sync::Arc;

use guild_market::job::{self, TakenJob};
use guild_network::archive;
use guild_protocol::env::{BoxFuture, UnixMs};
use guild_protocol::nostr::receipt_notice::ReceiptNotice;
use guild_protocol::nostr::{Event, EventId, Filter, Limits, kind, unix_s};

use super::Shared;
use crate::alone::{self, Alone};
use crate::{Error, Result};

/// How many events about one job are looked at.
const NOTICES_MAX: usize = 20;
/// How many unpaid jobs are looked after at once.
const UNPAID_MAX: u16 = 100;

/// The unpaid job that was looked at last. The next look begins behind it, so that each has its turn.
pub(super) type LastLooked = Option<(UnixMs, EventId)>;

impl Shared {
    /// Books what a receipt says. Taking it again changes nothing.
    pub(super) fn take_receipt(self: Arc<Shared>, event: &Event) -> BoxFuture<Result<()>> {
        let id = event.id;
        let notice = match ReceiptNotice::parse(event, Some(&self.key)) {
            Ok(notice) => notice,
            Err(error) => {
                self.shrug("receipt_refused", &id, &error.into());
                return Box::pin(std::future::ready(Ok(())));
            }
        };
        let this = self.clone();
        let called = alone::write(&self.node.store, move |tx| {
            let (us, credit, now_ms) = (this.us(), this.offer.credit, this.now_ms());
            let known = job::find(tx, &notice.request_id)?.and_then(|job| job.receipt_id);
            let job = job::take_receipt(tx, &notice.receipt, &us, credit, now_ms)?;
            archive::pin(tx, &id)?;
            Ok::<_, Error>((known.is_some(), job))
        });
        Box::pin(async move {
            match called.await? {
                Ok((true, _)) => self.counts.add("receipt_known"),
                Ok((false, job)) => self.tell(&job),
                Err(error) => self.shrug("receipt_refused", &id, &error),
            }
            Ok(())
        })
    }

    fn tell(&self, job: &TakenJob) {
        self.counts.add("receipt_taken");
        let (request_id, state) = (job.request_id, job.state.as_str());
        tracing::info!(%request_id, state, paid_msat = job.paid.map(|paid| paid.0), "a job is settled");
    }

    /// Looks for receipts of jobs that are done and not paid: one that could not be taken when it came, because it was
    /// beyond the credit, may be taken now. Where to go on; none behind the last one.
    pub(super) async fn look_for_receipts(
        self: &Arc<Shared>,
        after: LastLooked,
    ) -> Result<LastLooked> {
        let read = self.node.store.read(move |rx| {
            let after = after.as_ref().map(|(at_ms, id)| (*at_ms, id));
            Ok::<_, Error>(job::unpaid_after(rx, after, UNPAID_MAX.into())?)
        });
        let jobs = read.await?;
        for job in &jobs {
            match self.notices_of(job).await? {
                Ok(notices) => {
                    for event in &notices {
                        self.clone().take_receipt(event).await?;
                    }
                }
                // One that cannot be asked for keeps no other from being found.
                Err(error) => self.shrug("receipt_not_looked_for", &job.request_id, &error),
            }
        }
        // A page that is not full was the last.
        let full = jobs.get(usize::from(UNPAID_MAX).saturating_sub(1));
        Ok(full.and_then(|job| Some((job.delivered_ms?, job.request_id))))
    }

    /// The events that may be receipts of a job.
    fn notices_of(&self, job: &TakenJob) -> BoxFuture<Alone<Vec<Event>>> {
        let now_s = unix_s(self.now_ms());
        let filter =
            Filter { authors: Some([job.buyer].into()), ..Filter::kinds([kind::APP_DATA]) }
                .tag('e', [job.request_id.hex()]);
        alone::read(&self.node.store, move |rx| {
            let found = archive::query(rx, std::slice::from_ref(&filter), NOTICES_MAX, now_s)?;
            let parsed =
                found.iter().map(|one| Event::parse(one.json.as_bytes(), &Limits::DEFAULT));
            Ok(parsed.collect::<Result<_, _>>()?)
        })
    }
}
