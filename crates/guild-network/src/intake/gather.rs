//! The next group of events that are stored together.

use tokio::sync::mpsc;

use super::Shared;
use super::work::{Ready, TAKE};

/// A group ends when its events have so many rows: an event with thousands of tags has thousands.
const MAX_ROWS: usize = 65_536;

/// A group, as far as it has come.
#[derive(Default)]
pub(super) struct Gathered {
    ready: Vec<Ready>,
    rows: usize,
    /// How often a worker has sent something since the group began, were it nothing but that all was forged.
    sent: usize,
}

impl Gathered {
    /// Ready once there is a group worth a commit: a full one, or all that is there while no signature is being
    /// checked. It also ends after as many checks as would fill it, so nobody waits for the end of a flood of forged
    /// events. May be dropped at any time: what came is kept.
    pub(super) async fn gather(
        &mut self,
        waiting: &mut mpsc::UnboundedReceiver<Vec<Ready>>,
        shared: &Shared,
        may: bool,
    ) {
        let max_events = shared.options.group_max_events;
        loop {
            // Looked at before what came is taken: whoever is counted no more has sent.
            let is_idle = shared.queue.is_idle();
            while may
                && !self.is_full(max_events)
                && let Ok(more) = waiting.try_recv()
            {
                self.add(more);
            }
            if may && (self.is_full(max_events) || (is_idle && !self.ready.is_empty())) {
                return;
            }
            match if may { waiting.recv().await } else { None } {
                Some(more) => self.add(more),
                None => std::future::pending().await,
            }
        }
    }

    pub(super) fn add(&mut self, mut more: Vec<Ready>) {
        let rows = more.iter().map(|ready| ready.event.rows()).sum();
        self.rows = self.rows.saturating_add(rows);
        self.ready.append(&mut more);
        // Counted from its first event on: nothing waits before.
        self.sent = if self.ready.is_empty() { 0 } else { self.sent.saturating_add(1) };
    }

    fn is_full(&self, max_events: usize) -> bool {
        let checked = self.sent.saturating_mul(TAKE);
        self.ready.len().max(checked) >= max_events || self.rows >= MAX_ROWS
    }

    pub(super) fn into_events(self) -> Vec<Ready> {
        self.ready
    }
}
