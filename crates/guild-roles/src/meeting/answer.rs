//! What comes in: feedback and results of those who were asked.

use std::sync::Arc;

use futures_util::future::join_all;
use guild_market::meeting::{self, Heard, Standing};
use guild_network::archive;
use guild_protocol::env::{BoxFuture, Shutdown, Signer};
use guild_protocol::nostr::{Event, EventId, kind};

use super::Shared;
use crate::alone::{self, Alone};
use crate::feed::{self, Feed};
use crate::{Error, Result};

/// Follows the archive until the shutdown.
pub(super) async fn follow(shared: Arc<Shared>, shutdown: Shutdown) {
    let node = &shared.node;
    let mut feed = Feed::new(
        format!("meeting:{}", shared.key.public_key().hex()),
        kind::RESULTS.chain([kind::FEEDBACK]).collect(),
        (shared.options.page_max, shared.options.sweep_ms),
        (&node.store, &*node.bus, &node.clock),
    );
    let mut failing = false;
    loop {
        match round(&shared, &mut feed).await {
            // There may be more.
            Ok(false) if !shutdown.is_triggered() => continue,
            Ok(_) => failing = false,
            Err(error) if error.is_closed() => return,
            // Once, not every second for as long as it lasts.
            Err(error) if !std::mem::replace(&mut failing, true) => {
                tracing::warn!(%error, "answers in meetings cannot be read; trying again");
            }
            Err(_) => {}
        }
        if !feed.wait(&shutdown).await {
            return;
        }
    }
}

/// Takes a page; whether it was the last.
async fn round(shared: &Arc<Shared>, feed: &mut Feed) -> Result<bool> {
    let page = feed.page().await?;
    let heard = match shared.asked(page.events.clone()).await? {
        Ok(heard) => heard,
        // One of them is the cause: it is left out.
        Err(_) => {
            let mut heard = Vec::new();
            for event in page.events.iter().cloned() {
                let id = event.id;
                match shared.asked(vec![event]).await? {
                    Ok(one) => heard.extend(one),
                    Err(error) => {
                        shared.shrug("answer_refused", &id, &error);
                        feed::count_refused(&shared.node.store, &error, shared.now_ms()).await?;
                    }
                }
            }
            heard
        }
    };
    // All are queued before the first is awaited, so that they share a commit.
    let calls: Vec<_> = heard.into_iter().map(|(id, event)| shared.hear(id, event)).collect();
    for done in join_all(calls).await {
        done?;
    }
    feed.done(&page).await?;
    Ok(page.is_last)
}

impl Shared {
    /// Those of these events that are about a request of ours, each with that request.
    async fn asked(self: &Arc<Shared>, events: Vec<Event>) -> Alone<Vec<(EventId, Event)>> {
        if events.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let this = self.clone();
        let looked = alone::read(&self.node.store, move |rx| {
            let mut asked = Vec::new();
            for event in &events {
                if let Some(request_id) = meeting::is_asked(rx, event, &this.key)? {
                    asked.push((request_id, event.clone()));
                }
            }
            Ok(asked)
        });
        looked.await
    }

    /// What becomes of an answer. Only a store that cannot be used is an error: whatever else is wrong, is so with this
    /// answer alone.
    fn hear(self: &Arc<Shared>, request_id: EventId, event: Event) -> BoxFuture<Result<()>> {
        let (this, id) = (self.clone(), event.id);
        let that = self.clone();
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = that.now_ms();
            // What came while nobody looked came when it came.
            let came_ms = archive::received_ms(tx, &event.id)?.unwrap_or(now_ms).min(now_ms);
            let options = &that.options.market;
            let heard = meeting::take(tx, &request_id, &event, &that.key, options, came_ms)?;
            if heard.as_ref().is_some_and(|heard| heard.kept && !heard.known) {
                archive::pin(tx, &event.id)?;
            }
            if heard.as_ref().is_some_and(|heard| heard.standing == Standing::Equivocation) {
                that.signed_twice(tx, &request_id, now_ms)?;
            }
            Ok::<_, Error>(heard)
        });
        Box::pin(async move {
            match called.await? {
                Ok(heard) => this.counts.add(word(heard.as_ref())),
                Err(error) => {
                    this.shrug("answer_refused", &id, &error);
                    feed::count_refused(&this.node.store, &error, this.now_ms()).await?;
                }
            }
            Ok(())
        })
    }
}

fn word(heard: Option<&Heard>) -> &'static str {
    match heard {
        None => "answer_unasked",
        Some(Heard { known: true, .. }) => "answer_known",
        Some(Heard { standing, .. }) => match standing {
            Standing::Feedback => "feedback",
            Standing::Unpaid => "unpaid",
            Standing::Delivered => "result_delivered",
            Standing::Late => "result_late",
            Standing::Repeated => "result_repeated",
            Standing::Equivocation => "result_equivocation",
        },
    }
}
