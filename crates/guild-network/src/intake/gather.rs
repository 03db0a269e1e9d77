//! The next group of events that are stored together.

use tokio::sync::mpsc;

use super::work::{Ahead, Ready, TAKE};

/// A group ends when its events have so many rows: an event with thousands of tags has thousands.
const MAX_ROWS: usize = 131_072;

/// Of a full group this part is worth a commit while others are still checked.
const WORTH_A_COMMIT: usize = 4;

/// A group, as far as it has come.
#[derive(Default)]
pub(super) struct Gathered {
    ready: Vec<Ready>,
    rows: usize,
    /// How often a worker has sent something since the group began, were it nothing but that all was forged.
    sent: usize,
    /// How many had ever been pushed when it began to wait for more.
    pushed: Option<usize>,
}

impl Gathered {
    /// Ready once there is a group worth a commit: a full one, all that is there while no signature is being checked,
    /// or the larger part of what is left when nobody brings more: then one core stores it while the others check the
    /// rest. It also ends after as many checks as would fill it, so nobody waits for the end of a flood of forged
    /// events. May be dropped at any time: what came is kept.
    pub(super) async fn gather(
        &mut self,
        waiting: &mut mpsc::UnboundedReceiver<Vec<Ready>>,
        max_events: usize,
        look: impl Fn() -> Ahead,
    ) {
        loop {
            // Looked at before what came is taken: whoever is counted no more has sent.
            let ahead = look();
            let mut came = false;
            while !self.is_full(max_events)
                && let Ok(more) = waiting.try_recv()
            {
                self.add(more);
                came = true;
            }
            if self.is_full(max_events) || (ahead.unchecked == 0 && !self.ready.is_empty()) {
                return;
            }
            let is_last = self.pushed == Some(ahead.pushed) && ahead.unchecked <= self.ready.len();
            if is_last && self.ready.len() >= max_events.div_ceil(WORTH_A_COMMIT) {
                return;
            }
            // The word that all is checked may have been among what came, and is said only once: before waiting for
            // another it must be known that the look was later than all that was taken.
            if came {
                continue;
            }
            self.pushed = Some(ahead.pushed);
            match waiting.recv().await {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt;
    use guild_protocol::identity::SecretKey;
    use guild_protocol::nostr::Draft;
    use tokio::sync::oneshot;

    use super::*;
    use crate::archive::Verified;
    use crate::intake::source::Held;

    fn ready() -> Ready {
        let key: SecretKey = format!("{:064x}", 1).parse().unwrap();
        let draft = Draft { kind: 1, created_at: 0, tags: Vec::new(), content: String::new() };
        let event = Verified::check(draft.sign(&key).unwrap()).unwrap();
        Ready { event, origin: "test".into(), held: Held::alone(), answer: oneshot::channel().0 }
    }

    fn ahead(unchecked: usize, pushed: usize) -> Ahead {
        Ahead { unchecked, pushed }
    }

    #[test]
    fn the_word_that_all_is_checked_is_heard_whenever_it_comes() {
        // A worker sends its events, is counted no more, and sends the word, all of it right behind the look.
        let (send, mut waiting) = mpsc::unbounded_channel();
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            if looks.get() == 1 {
                send.send(vec![ready()]).unwrap();
                send.send(Vec::new()).unwrap();
                return ahead(1, 1);
            }
            ahead(0, 1)
        };
        let mut gathered = Gathered::default();
        let group = gathered.gather(&mut waiting, 100, look).now_or_never();
        assert!(group.is_some(), "the event would wait for the next one");
        assert_eq!(gathered.into_events().len(), 1);
    }

    #[test]
    fn a_group_waits_while_signatures_are_checked_and_not_longer_than_it_has_room() {
        let (send, mut waiting) = mpsc::unbounded_channel();
        let mut gathered = Gathered::default();
        send.send(vec![ready()]).unwrap();
        let busy = || ahead(9, 10);
        assert!(gathered.gather(&mut waiting, TAKE + 1, busy).now_or_never().is_none());
        // As many checks as fill a group end it, were all of them forged.
        send.send(Vec::new()).unwrap();
        assert!(gathered.gather(&mut waiting, TAKE + 1, busy).now_or_never().is_some());
        assert_eq!(gathered.into_events().len(), 1);
    }

    #[test]
    fn the_larger_part_of_the_last_events_does_not_wait_for_the_rest() {
        let (send, mut waiting) = mpsc::unbounded_channel();
        let mut gathered = Gathered::default();
        let mut gather = |events: usize, ahead: Ahead| {
            send.send((0..events).map(|_| ready()).collect()).unwrap();
            let group = gathered.gather(&mut waiting, 160, || ahead).now_or_never();
            group.map(|()| std::mem::take(&mut gathered).into_events().len())
        };
        // Somebody may be about to bring more, and does.
        assert_eq!(gather(40, ahead(40, 80)), None);
        assert_eq!(gather(10, ahead(50, 100)), None);
        // Nobody brings more, but more is still to be checked than stored.
        assert_eq!(gather(0, ahead(51, 100)), None);
        assert_eq!(gather(0, ahead(50, 100)), Some(50));
        // Too few are worth no commit of their own.
        assert_eq!(gather(39, ahead(20, 100)), None);
        assert_eq!(gather(0, ahead(20, 100)), None);
        assert_eq!(gather(1, ahead(20, 100)), Some(40));
    }
}
