//! From the one feed of new events to the connections whose subscriptions want them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use guild_protocol::nostr::Filter;

use super::session::refused;
use super::subscriptions::Subscriptions;
use crate::intake::LiveEvent;
use crate::sync::lock;

/// What each event costs beside its text.
const OVERHEAD_BYTES: usize = 64;

/// All connections and what they want.
#[derive(Debug, Default)]
pub(crate) struct Hub(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    subscriptions: Subscriptions,
    mailboxes: BTreeMap<u64, Arc<Mailbox>>,
    connections_made: u64,
    /// The highest number of an event that was passed on.
    passed_on: i64,
    ended: bool,
}

impl State {
    /// How many subscriptions there are, for whoever watches the node.
    fn show(&self) {
        metrics::gauge!("relay_subscriptions").set(self.subscriptions.len() as f64);
    }
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// A new connection: its number and where its events come in.
    pub(crate) fn enter(&self, max_bytes: usize) -> (u64, Arc<Mailbox>) {
        let mut state = self.lock();
        state.connections_made += 1;
        let connection = state.connections_made;
        let mailbox = Arc::new(Mailbox::new(max_bytes));
        if state.ended {
            mailbox.put(|box_| box_.ended = true);
        }
        state.mailboxes.insert(connection, mailbox.clone());
        (connection, mailbox)
    }

    /// A connection is gone.
    pub(crate) fn leave(&self, connection: u64) {
        let mut state = self.lock();
        state.subscriptions.remove_all(connection);
        state.mailboxes.remove(&connection);
        state.show();
    }

    /// From now on, new events that pass a filter go to the mailbox. Gives the number up to which events were passed
    /// on before: none of them comes again.
    pub(crate) fn subscribe(&self, connection: u64, number: u64, filters: Vec<Filter>) -> i64 {
        let mut state = self.lock();
        state.subscriptions.insert((connection, number), filters);
        state.show();
        state.passed_on
    }

    /// From now on, none for this one.
    pub(crate) fn unsubscribe(&self, connection: u64, number: u64) {
        let mut state = self.lock();
        state.subscriptions.remove((connection, number));
        state.show();
    }

    /// Passes a new event on.
    pub(crate) fn pass_on(&self, live: &Arc<LiveEvent>) {
        let mut state = self.lock();
        state.passed_on = state.passed_on.max(live.seq.unwrap_or(0));
        let (wanting, _) = state.subscriptions.wanting(live.event());
        for (connection, number) in wanting {
            let Some(mailbox) = state.mailboxes.get(&connection) else { continue };
            if !mailbox.put(|mail| mail.push(number, live)) {
                refused("queue");
                state.subscriptions.remove_all(connection);
                state.show();
            }
        }
    }

    /// Some events were not passed on: no subscription may go on as if there had been none.
    pub(crate) fn missed(&self) {
        let mut state = self.lock();
        state.subscriptions = Subscriptions::default();
        state.show();
        state.mailboxes.values().for_each(|mailbox| {
            mailbox.put(Mail::overflow);
        });
    }

    /// All connections shall end.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.mailboxes.values().for_each(|mailbox| mailbox.put(|mail| mail.ended = true));
    }
}

/// Where the new events of a connection wait for it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    waker: AtomicWaker,
}

#[derive(Debug)]
struct Mail {
    events: VecDeque<(u64, Arc<LiveEvent>)>,
    bytes: usize,
    max_bytes: usize,
    missed: bool,
    ended: bool,
}

/// What has come.
#[derive(Debug, PartialEq)]
pub(crate) enum Taken {
    /// New events, each with the number of its subscription.
    Events(VecDeque<(u64, Arc<LiveEvent>)>),
    /// There were more than could wait: some are lost.
    Missed,
    /// The relay ends.
    Ended,
}

impl Mail {
    fn push(&mut self, number: u64, live: &Arc<LiveEvent>) -> bool {
        if self.missed {
            return true;
        }
        self.bytes += live.json().len() + OVERHEAD_BYTES;
        if self.bytes > self.max_bytes {
            self.overflow();
            return false;
        }
        self.events.push_back((number, live.clone()));
        true
    }

    fn overflow(&mut self) {
        (self.events, self.bytes, self.missed) = (VecDeque::new(), 0, true);
    }
}

impl Mailbox {
    fn new(max_bytes: usize) -> Mailbox {
        let mail =
            Mail { events: VecDeque::new(), bytes: 0, max_bytes, missed: false, ended: false };
        Mailbox { mail: Mutex::new(mail), waker: AtomicWaker::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        lock(&self.mail)
    }

    fn put<T>(&self, change: impl FnOnce(&mut Mail) -> T) -> T {
        let changed = change(&mut self.lock());
        self.waker.wake();
        changed
    }

    /// All that has come, once something has.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Taken> {
        // First, so that nothing can come in between unheard.
        self.waker.register(cx.waker());
        let mut mail = self.lock();
        if mail.ended {
            return Poll::Ready(Taken::Ended);
        }
        if std::mem::take(&mut mail.missed) {
            return Poll::Ready(Taken::Missed);
        }
        if mail.events.is_empty() {
            return Poll::Pending;
        }
        mail.bytes = 0;
        Poll::Ready(Taken::Events(std::mem::take(&mut mail.events)))
    }
}
