//! Announcements as they are stored here, for whoever keeps a registry: it need not read from the archive what this
//! process has just had in its hands.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::archive::Done;
use crate::index::{Announced, AnnouncedPage};

/// A page has so many announcements at most: whoever takes one holds up others meanwhile.
const PAGE: usize = 512;
/// So many announcements wait for one follower at most; what it does not take in time it reads.
const WAITING_MAX: usize = 16_384;

/// What follows on a number of the archive.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// These, and nothing in between. Others may be behind them.
    Page(AnnouncedPage),
    /// Something is being stored right now: [`Announcements::changed`] tells when it is.
    Soon,
    /// Nothing is known here: the archive must be asked.
    Read,
}

/// What waits for one follower.
#[derive(Default)]
struct Waiting {
    /// Each with the number that it follows on.
    pages: VecDeque<(i64, AnnouncedPage)>,
    announced: usize,
}

#[derive(Default)]
struct Inbox {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Whoever panicked left pages that are whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The announcements that this process stores, for one follower of the archive.
pub struct Announcements {
    inbox: Arc<Inbox>,
    desk: Arc<Desk>,
}

impl Announcements {
    /// What follows on a number of the archive. What came before it is forgotten here.
    pub fn after(&self, seq: i64) -> Next {
        // Looked at first: whoever is counted no more has handed out what it stored.
        let is_storing = self.desk.storing.load(Ordering::Acquire) > 0;
        let mut waiting = self.inbox.lock();
        while let Some((after_seq, page)) = waiting.pages.pop_front() {
            if page.up_to > seq && after_seq > seq {
                // Somebody else has stored something in between.
                waiting.pages.push_front((after_seq, page));
                return Next::Read;
            }
            waiting.announced = waiting.announced.saturating_sub(page.announced.len());
            if page.up_to > seq {
                let mut page = page;
                page.announced.retain(|one| one.seq > seq);
                return Next::Page(page);
            }
        }
        if is_storing { Next::Soon } else { Next::Read }
    }

    /// Ready once something was stored since the last time.
    pub async fn changed(&self) {
        self.inbox.changed.notified().await;
    }
}

/// Hands out what is stored.
#[derive(Default)]
pub(super) struct Desk {
    followers: Mutex<Vec<Weak<Inbox>>>,
    /// How many groups are being stored.
    storing: AtomicUsize,
}

/// A group that is being stored: until it is dropped, followers wait for it instead of asking the archive.
pub(super) struct Storing(Arc<Desk>);

impl Drop for Storing {
    fn drop(&mut self) {
        self.0.storing.fetch_sub(1, Ordering::Release);
        for inbox in self.0.inboxes() {
            inbox.changed.notify_one();
        }
    }
}

impl Desk {
    pub(super) fn follow(self: &Arc<Desk>) -> Announcements {
        let inbox = Arc::new(Inbox::default());
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.push(Arc::downgrade(&inbox));
        Announcements { inbox, desk: self.clone() }
    }

    pub(super) fn store(self: &Arc<Desk>) -> Storing {
        self.storing.fetch_add(1, Ordering::Release);
        Storing(self.clone())
    }

    fn inboxes(&self) -> Vec<Arc<Inbox>> {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|inbox| inbox.strong_count() > 0);
        followers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Hands out what a transaction has stored.
    pub(super) fn hand_out(&self, done: &Done) {
        if done.last_seq <= done.after_seq {
            return;
        }
        for inbox in self.inboxes() {
            let mut waiting = inbox.lock();
            waiting.pages.extend(pages(done));
            waiting.announced = waiting.announced.saturating_add(done.announced.len());
            while waiting.announced > WAITING_MAX
                && let Some((_, page)) = waiting.pages.pop_front()
            {
                waiting.announced = waiting.announced.saturating_sub(page.announced.len());
            }
        }
    }
}

/// What was stored, in pages that follow on each other.
fn pages(done: &Done) -> Vec<(i64, AnnouncedPage)> {
    let mut pages = Vec::new();
    let mut after_seq = done.after_seq;
    let mut rest: &[Announced] = &done.announced;
    while after_seq < done.last_seq {
        let (these, others) = rest.split_at(rest.len().min(PAGE));
        let last = these.last().filter(|_| !others.is_empty());
        let up_to = last.map_or(done.last_seq, |last| last.seq);
        pages.push((after_seq, AnnouncedPage { announced: these.to_vec(), up_to, is_last: false }));
        (after_seq, rest) = (up_to, others);
    }
    pages
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;
    use guild_protocol::nostr::EventId;

    use super::*;

    fn announced(seq: i64) -> Announced {
        let key: SecretKey = format!("{:064x}", 1).parse().unwrap();
        Announced {
            seq,
            event_id: EventId::from_bytes([1; 32]),
            pubkey: key.public_key(),
            created_at: 0,
            origin: "own".into(),
            first_ms: 0,
            received_ms: 0,
            card: Err("test"),
        }
    }

    fn done(after_seq: i64, last_seq: i64, seqs: impl Iterator<Item = i64>) -> Done {
        Done { puts: Vec::new(), after_seq, last_seq, announced: seqs.map(announced).collect() }
    }

    fn seqs(next: Next) -> (Vec<i64>, i64) {
        match next {
            Next::Page(page) => (page.announced.iter().map(|one| one.seq).collect(), page.up_to),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_stored_follows_on_what_is_known() {
        let desk = Arc::new(Desk::default());
        let news = desk.follow();
        assert_eq!(news.after(0), Next::Read);
        let storing = desk.store();
        assert_eq!(news.after(0), Next::Soon);
        desk.hand_out(&done(0, 10, [2, 5, 9].into_iter()));
        drop(storing);
        assert_eq!(seqs(news.after(0)), (vec![2, 5, 9], 10));
        assert_eq!(news.after(10), Next::Read, "nothing is on its way");
        // Of a page of which a part was read from the archive the rest is taken.
        desk.hand_out(&done(10, 20, [11, 15].into_iter()));
        assert_eq!(seqs(news.after(12)), (vec![15], 20));
        // Whoever else stored something in between is asked for it, and what waits is not lost.
        desk.hand_out(&done(25, 30, [26].into_iter()));
        assert_eq!(news.after(20), Next::Read);
        assert_eq!(seqs(news.after(25)), (vec![26], 30));
        // What is known already is dropped.
        desk.hand_out(&done(30, 40, [31].into_iter()));
        assert_eq!(news.after(40), Next::Read);
        assert_eq!(news.inbox.lock().announced, 0);
        // What was not new is nothing.
        desk.hand_out(&done(40, 40, std::iter::empty()));
        assert_eq!(news.after(40), Next::Read);
    }

    #[test]
    fn pages_are_small_and_bounded() {
        let desk = Arc::new(Desk::default());
        let news = desk.follow();
        desk.hand_out(&done(0, 2_000, 1..=1_500));
        let mut seq = 0;
        let mut all = Vec::new();
        while let Next::Page(page) = news.after(seq) {
            assert!(page.announced.len() <= PAGE);
            all.extend(page.announced.iter().map(|one| one.seq));
            seq = page.up_to;
        }
        assert_eq!((seq, all), (2_000, (1..=1_500).collect()));
        for n in 0..10 {
            let from = 2_000 + n * 4_000;
            desk.hand_out(&done(from, from + 4_000, from + 1..=from + 4_000));
        }
        assert!(news.inbox.lock().announced <= WAITING_MAX);
        assert_eq!(news.after(2_000), Next::Read, "what was dropped is read");
        // Nobody who has gone is handed anything.
        drop(news);
        assert_eq!(desk.inboxes().len(), 0);
    }
}
