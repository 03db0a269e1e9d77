//! The archive of events as a role reads it: in the order in which they came, from where it stopped.

use std::sync::Arc;

use futures_util::future::{Either, select};
use guild_bus::{Bus, Listener};
use guild_market::discovery;
use guild_network::archive::{self, Reach, Reached};
use guild_protocol::env::{Clock, Shutdown, UnixMs};
use guild_protocol::nostr::Event;
use guild_store::Store;

use crate::{Error, Result, cursor};

/// How often the cursor is written although nothing of interest came: so many events are read again after a crash.
const IDLE_STEP: i64 = 10_000;
/// No further event is read once a page has so many bytes.
const PAGE_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Follows the archive.
pub(crate) struct Feed {
    name: String,
    kinds: Vec<u16>,
    reach: Reach,
    sweep_ms: i64,
    store: Store,
    clock: Arc<dyn Clock>,
    listener: Listener,
    /// Up to here everything is done, in this life.
    done_seq: Option<i64>,
    /// Up to here a later life knows that it is.
    saved_seq: i64,
}

/// Some events, and how far they reach.
pub(crate) struct Page {
    pub(crate) events: Vec<Event>,
    /// Everything up to this number is in this page or an earlier one, or is none of ours.
    pub(crate) up_to: i64,
    /// Whether there was nothing behind it.
    pub(crate) is_last: bool,
}

impl Feed {
    /// Events of these kinds, after the cursor of this name.
    pub(crate) fn new(
        name: String,
        kinds: Vec<u16>,
        (page_max, sweep_ms): (usize, i64),
        (store, bus, clock): (&Store, &dyn Bus, &Arc<dyn Clock>),
    ) -> Feed {
        // Listening begins before the first read, so nothing falls between the two.
        let listener = bus.listen(archive::TOPIC);
        let (store, clock) = (store.clone(), clock.clone());
        let reach = Reach { events: page_max.max(1), bytes: PAGE_MAX_BYTES };
        Feed { name, kinds, reach, sweep_ms, store, clock, listener, done_seq: None, saved_seq: 0 }
    }

    /// The events after those that are done.
    pub(crate) async fn page(&mut self) -> Result<Page> {
        let after = match self.done_seq {
            Some(seq) => seq,
            None => {
                let name = self.name.clone();
                self.saved_seq = self.store.read(move |rx| cursor::load(rx, &name)).await?;
                self.saved_seq
            }
        };
        let (kinds, reach) = (self.kinds.clone(), self.reach);
        let read = self.store.read(move |rx| {
            let head = archive::head(rx)?;
            Ok::<_, crate::Error>((head.last_seq, archive::after_within(rx, after, &kinds, reach)?))
        });
        let (head_seq, Reached { events, last_seq, is_last }) = read.await?;
        let up_to = match last_seq {
            Some(seq) if !is_last => seq,
            _ => head_seq.max(after),
        };
        self.done_seq.get_or_insert(after);
        Ok(Page { events: events.into_iter().map(|(_, event)| event).collect(), up_to, is_last })
    }

    /// Everything up to this number is done.
    pub(crate) async fn done(&mut self, page: &Page) -> Result<()> {
        let idle = page.events.is_empty();
        if !idle || page.up_to.saturating_sub(self.saved_seq) >= IDLE_STEP {
            let (name, up_to) = (self.name.clone(), page.up_to);
            self.store.write(move |tx| cursor::advance(tx, &name, up_to)).await?;
            self.saved_seq = page.up_to;
        }
        self.done_seq = Some(page.up_to);
        Ok(())
    }

    /// Waits for more; false when it is time to stop. A bell only shortens the wait.
    pub(crate) async fn wait(&mut self, shutdown: &Shutdown) -> bool {
        let more = select(self.listener.hear(), self.clock.sleep(self.sweep_ms));
        match select(shutdown.triggered(), more).await {
            Either::Left(_) => false,
            Either::Right(_) => !shutdown.is_triggered(),
        }
    }
}

/// Counts an answer that was refused, for whoever asks what is wrong with what others send.
pub(crate) async fn count_refused(store: &Store, error: &Error, now_ms: UnixMs) -> Result<()> {
    let code = error.code().name;
    Ok(store.write(move |tx| discovery::count_answer(tx, code, now_ms)).await?)
}
