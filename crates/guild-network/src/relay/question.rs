//! What the database is asked for a client: one question of a connection at a time, and few of all.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_protocol::env::BoxFuture;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, Filter, unix_s};
use guild_store::Rx;
use tokio::sync::OwnedSemaphorePermit;

use super::session::{Answer, refused};
use super::{ANSWER_LEAST_BYTES, KIB, Options, Shared, auth};
use crate::archive::{self, Budget};
use crate::code;

/// A question.
#[derive(Debug)]
pub(super) enum Question {
    /// What is stored, for a subscription.
    Stored { number: u64, filters: Vec<Filter>, passed_on: i64, proven: BTreeSet<PublicKey> },
    /// How many there are.
    Count { sub: String, filters: Vec<Filter> },
    /// What there is, to reconcile.
    Sync { sub: String, filter: Box<Filter>, message: String },
}

/// Room for a large answer, from before it is read until it is sent.
pub(super) struct Room(OwnedSemaphorePermit);

impl Room {
    /// Room for the largest answer, if there is some.
    fn take(shared: &Shared) -> Option<Room> {
        let kib = u32::try_from(shared.options.answer_max_bytes.div_ceil(KIB)).ok()?;
        shared.answers.clone().try_acquire_many_owned(kib).ok().map(Room)
    }

    /// Gives back what an answer of so many bytes does not need; all of it, if it is none of the large ones.
    fn for_bytes(mut self, bytes: usize) -> Option<Room> {
        if bytes <= ANSWER_LEAST_BYTES {
            return None;
        }
        let spare = self.0.num_permits().saturating_sub(bytes.div_ceil(KIB));
        drop(self.0.split(spare));
        Some(self)
    }
}

/// Its answer.
pub(super) enum Reply {
    /// With the room that the answer needs until it is sent.
    Stored(u64, Result<Answer, String>, Option<Room>),
    Count(String, Result<u64, String>),
    Sync {
        sub: String,
        message: String,
        events: Result<Vec<(u64, EventId)>, String>,
    },
}

impl Question {
    /// Whether it is about this subscription.
    pub(super) fn is_of(&self, subscription: u64) -> bool {
        matches!(self, Question::Stored { number, .. } if *number == subscription)
    }

    /// Whether it opens this reconciliation.
    pub(super) fn is_sync_of(&self, name: &str) -> bool {
        matches!(self, Question::Sync { sub, .. } if sub == name)
    }

    /// Asks, when it is its turn.
    pub(super) fn ask(self, shared: &Arc<Shared>) -> BoxFuture<Reply> {
        let shared = shared.clone();
        Box::pin(async move {
            // The semaphore is never closed.
            let turn = shared.turns.clone().acquire_owned().await.ok();
            let (options, now_s) = (shared.options.clone(), unix_s(shared.clock.now_ms()));
            match self {
                Question::Stored { number, filters, passed_on, proven } => {
                    let mut room = Room::take(&shared);
                    let budget = options.budget(room.is_some());
                    let stored = ask(&shared, turn, move |rx| {
                        let may_see =
                            |event: &Event| auth::may_see(event, &proven, &options.private_kinds);
                        archive::query_within(rx, &filters, budget, now_s, &may_see)
                    });
                    let stored = stored.await;
                    let bytes = stored.iter().flatten().map(|stored| stored.json.len()).sum();
                    room = room.and_then(|room| room.for_bytes(bytes));
                    Reply::Stored(number, stored.map(|stored| Answer { stored, passed_on }), room)
                }
                Question::Count { sub, filters } => {
                    let most = options.sync_max_events;
                    let found = ask(&shared, turn, move |rx| {
                        let may_see = |event: &Event| is_public(&options, event);
                        archive::ids_within(rx, &filters, options.sync_budget(), now_s, &may_see)
                    });
                    let found = found.await.and_then(|found| {
                        if found.len() <= most {
                            return Ok(found.len() as u64);
                        }
                        refused("wide");
                        Err(format!("blocked: more than {most} events; ask for fewer at once"))
                    });
                    Reply::Count(sub, found)
                }
                Question::Sync { sub, filter, message } => {
                    let events = ask(&shared, turn, move |rx| {
                        let (budget, filters) =
                            (options.sync_budget(), std::slice::from_ref(&*filter));
                        let may_see = |event: &Event| is_public(&options, event);
                        archive::ids_within(rx, filters, budget, now_s, &may_see)
                    });
                    Reply::Sync { sub, message, events: events.await }
                }
            }
        })
    }
}

/// A turn lasts as long as the read does, also if the client has gone: the read goes on without it.
async fn ask<T: Send + 'static>(
    shared: &Shared,
    turn: Option<OwnedSemaphorePermit>,
    read: impl Fn(&mut Rx<'_>) -> crate::Result<T> + Send + 'static,
) -> Result<T, String> {
    let in_turn = move |rx: &mut Rx<'_>| {
        let _turn = &turn;
        read(rx)
    };
    shared.store.read(in_turn).await.map_err(|error| {
        if error.code() == &code::TOO_WIDE {
            refused("wide");
            // Not for ever: what is stored changes, and so does the page that is asked for.
            return format!("error: {error}; name authors, kinds, tags or a time");
        }
        refused("database");
        tracing::warn!(%error, "a client's question was not answered");
        format!("error: {} happened; try again later", error.code().name)
    })
}

impl Options {
    fn budget(&self, has_room: bool) -> Budget {
        let bytes = match has_room {
            true => self.answer_max_bytes,
            false => self.answer_max_bytes.min(ANSWER_LEAST_BYTES),
        };
        Budget { events: self.limit_max, bytes, visits: self.visits_max }
    }

    /// Every event that is reconciled or counted has to be read, and one more to see that there are too many.
    fn sync_budget(&self) -> Budget {
        let events = self.sync_max_events.saturating_add(1);
        Budget { events, bytes: self.sync_max_bytes, visits: self.visits_max }
    }
}

/// Whether everybody may see an event.
fn is_public(options: &Options, event: &Event) -> bool {
    !options.private_kinds.contains(&event.kind)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError, mpsc};

    use futures_util::FutureExt;
    use guild_bus::Local;
    use guild_protocol::env::{Clock, Random, UnixMs};
    use guild_protocol::identity::SecretKey;
    use guild_protocol::nostr::Draft;
    use guild_store::{Hooks, Migrations, Service, Store};

    use super::*;
    use crate::archive::Verified;
    use crate::intake::{self, Intake};
    use crate::relay::Relay;

    struct Still;
    impl Clock for Still {
        fn now_ms(&self) -> UnixMs {
            1_000_000
        }
        fn sleep(&self, _: i64) -> BoxFuture<()> {
            Box::pin(std::future::pending())
        }
    }

    struct Zero;
    impl Random for Zero {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }

    fn relay(options: Options, store: &Store) -> Arc<Shared> {
        let intake_options = intake::Options { workers: 0, ..intake::Options::default() };
        let (intake, _) =
            Intake::new(intake_options, store.clone(), &Local::new(), Arc::new(Still));
        let (relay, _) =
            Relay::new(options, intake, store.clone(), Arc::new(Still), Arc::new(Zero));
        relay.0
    }

    fn everything() -> Question {
        let (filters, proven) = (vec![Filter::default()], BTreeSet::new());
        Question::Stored { number: 1, filters, passed_on: 0, proven }
    }

    fn opened() -> (tempfile::TempDir, Service) {
        let dir = tempfile::tempdir().unwrap();
        let file = guild_store::Options::file(&dir.path().join("node.db"));
        let all = Migrations::store().and(crate::migrations());
        (dir, Service::open(&file, &all, Hooks::default(), 0).unwrap())
    }

    /// Whoever asks, leaves and comes again has one question with the database, not any number.
    #[tokio::test]
    async fn a_turn_lasts_as_long_as_the_question_also_if_its_client_has_gone() {
        let (_dir, service) = opened();
        let store = service.handle();
        let shared = relay(Options { queries_at_once: 1, ..Options::default() }, &store);
        // All readers are busy.
        let readers = guild_store::Options::at("").readers;
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let busy: Vec<_> = (0..readers)
            .map(|_| {
                let wait = wait.clone();
                store.read(move |_: &mut Rx<'_>| {
                    let _ = wait.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    Ok::<_, guild_store::Error>(())
                })
            })
            .collect();
        while store.waiting().1 > 0 {
            std::thread::yield_now();
        }
        for _ in 0..50 {
            assert!(everything().ask(&shared).now_or_never().is_none());
        }
        assert_eq!(store.waiting().1, 1);
        (0..readers).for_each(|_| go.send(()).unwrap());
        futures_util::future::join_all(busy).await;
        assert!(matches!(everything().ask(&shared).await, Reply::Stored(1, Ok(_), None)));
        service.close();
    }

    /// The events of an answer, and their bytes.
    fn size(reply: &Reply) -> usize {
        match reply {
            Reply::Stored(_, Ok(answer), _) => answer.stored.iter().map(|one| one.json.len()).sum(),
            _ => 0,
        }
    }

    #[tokio::test]
    async fn large_answers_that_nobody_reads_leave_less_to_others_and_never_nothing() {
        let (_dir, service) = opened();
        let store = service.handle();
        let key = SecretKey::from_bytes([1; 32]).unwrap();
        let events: Vec<Verified> = (0..8)
            .map(|n| {
                let content = "x".repeat(100_000);
                let draft = Draft { kind: 1, created_at: n, tags: Vec::new(), content };
                Verified::check(draft.sign(&key).unwrap()).unwrap()
            })
            .collect();
        let put = store.write(move |tx| archive::put(tx, &events, "test", 0));
        put.await.unwrap();
        let (answer, all) = (1024 * KIB, 2000 * KIB);
        let options =
            Options { answer_max_bytes: answer, answers_max_bytes: all, ..Options::default() };
        let shared = relay(options, &store);
        let unread = [everything().ask(&shared).await, everything().ask(&shared).await];
        assert!(unread.iter().all(|reply| size(reply) > 800_000), "room for both");
        let cut = everything().ask(&shared).await;
        assert!((100_000..=ANSWER_LEAST_BYTES + 101_000).contains(&size(&cut)), "{}", size(&cut));
        drop(unread);
        assert!(size(&everything().ask(&shared).await) > 800_000, "given back");
        assert_eq!(shared.answers.available_permits(), all / KIB);
        service.close();
    }
}
