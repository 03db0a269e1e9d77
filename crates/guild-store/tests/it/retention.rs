use std::sync::Arc;

use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};
use guild_store::event::{self, Event, NewEvent};
use guild_store::retention::{self, Keeper, Policy};
use guild_store::{Error, Store, args, check};

use crate::{Engine, Scratch, block_on};

on_both! {
    old_events_are_forgotten_but_never_what_a_receipt_needs,
    a_retention_that_forgets_pins_is_stopped_by_the_schema,
    a_follower_that_was_away_goes_on_with_what_is_there,
    any_number_is_forgotten_in_small_steps_also_past_a_wrong_clock,
    a_policy_that_makes_no_sense_is_refused,
}

/// An event of `topic` for every moment.
fn fill(store: &Store, topic: &'static str, moments_ms: impl IntoIterator<Item = i64>) {
    let moments_ms: Vec<i64> = moments_ms.into_iter().collect();
    let filled = store.write(move |tx| {
        for at_ms in &moments_ms {
            let id = format!("{topic}{at_ms}");
            event::append(tx, &NewEvent { topic, id: &id, kind: "k", at_ms: *at_ms, body: "{}" })?;
        }
        Ok::<_, Error>(())
    });
    block_on(filled).unwrap();
}

fn pin(store: &Store, topic: &'static str, id: &'static str) -> Result<(), Error> {
    block_on(store.write(move |tx| retention::pin(tx, topic, id, "receipt-1")))
}

fn after(store: &Store, topic: &'static str, after: i64) -> Vec<Event> {
    block_on(store.read(move |rx| event::after(rx, topic, after, 10_000))).unwrap()
}

fn ids(store: &Store, topic: &'static str) -> Vec<String> {
    after(store, topic, 0).into_iter().map(|event| event.id).collect()
}

fn problems(store: &Store) -> Vec<String> {
    let found = block_on(store.read(check::tables)).unwrap();
    found.into_iter().map(|problem| problem.message).collect()
}

/// A clock at one moment, whose first long wait ends the service.
struct Once(UnixMs, Shutdown);

impl Clock for Once {
    fn now_ms(&self) -> UnixMs {
        self.0
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        self.1.trigger();
        Box::pin(std::future::pending())
    }
}

/// One round of the service.
fn keep(store: &Store, topic: &str, keep_ms: i64, now_ms: UnixMs) {
    let shutdown = Shutdown::new();
    let policies = vec![Policy { topic: topic.to_owned(), keep_ms }];
    let clock = Arc::new(Once(now_ms, shutdown.clone()));
    let keeper = Keeper::new(policies, store.clone(), clock).unwrap();
    block_on(keeper.run(shutdown));
}

fn old_events_are_forgotten_but_never_what_a_receipt_needs(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    fill(&store, "a", 0..10);
    fill(&store, "b", 0..3);
    pin(&store, "a", "a2").unwrap();
    pin(&store, "a", "a2").unwrap();
    assert_eq!(pin(&store, "a", "a99"), Err(Error::NoSuchEvent("a99".to_owned())));
    assert_eq!(pin(&store, "b", "a2"), Err(Error::NoSuchEvent("a2".to_owned())));
    keep(&store, "a", 5, 11);
    assert_eq!(ids(&store, "a"), ["a2", "a6", "a7", "a8", "a9"]);
    assert_eq!(ids(&store, "b"), ["b0", "b1", "b2"], "a topic that no policy names is kept");
    keep(&store, "a", 5, 1_000);
    assert_eq!(ids(&store, "a"), ["a2"]);
    assert_eq!(problems(&store), [""; 0]);
    let up_to = |topic| block_on(store.read(move |rx| retention::forgotten_up_to(rx, topic)));
    assert_eq!((up_to("a"), up_to("b")), (Ok(10), Ok(0)));
}

fn a_retention_that_forgets_pins_is_stopped_by_the_schema(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    fill(&store, "a", 0..3);
    pin(&store, "a", "a1").unwrap();
    // The planted bug: whoever forgets does not ask for pins.
    let careless = store.write(|tx| tx.exec("DELETE FROM event WHERE topic = 'a'", args![]));
    assert!(matches!(block_on(careless), Err(Error::Database(_))));
    assert_eq!(ids(&store, "a"), ["a0", "a1", "a2"]);
}

#[test]
fn an_event_that_was_lost_in_spite_of_its_pin_is_found() {
    let mut scratch = Scratch::on(Engine::Sqlite);
    fill(&scratch.store(), "a", 0..3);
    pin(&scratch.store(), "a", "a1").unwrap();
    scratch.close();
    // A program that does not even keep the schema's rules.
    let db = rusqlite::Connection::open(scratch.place.dir.path().join("node.db")).unwrap();
    db.execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM event WHERE id = 'a1'").unwrap();
    drop(db);
    scratch.reopen();
    let found = problems(&scratch.store());
    assert_eq!(
        found,
        ["events 2 to 2 are missing", "event a1 of a is gone, and receipt-1 needs it"]
    );
}

fn a_follower_that_was_away_goes_on_with_what_is_there(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    fill(&store, "a", 0..6);
    let seen =
        after(&store, "a", 0).into_iter().take(2).map(|event| event.seq).next_back().unwrap();
    assert_eq!(seen, 2);
    keep(&store, "a", 2, 6);
    let rest: Vec<_> =
        after(&store, "a", seen).into_iter().map(|event| (event.seq, event.id)).collect();
    assert_eq!(rest, [(5, "a4".to_owned()), (6, "a5".to_owned())]);
    let up_to = block_on(store.read(|rx| retention::forgotten_up_to(rx, "a"))).unwrap();
    assert!(seen < up_to, "it can see that it missed something");
    // Even if nothing is left, the numbers go on behind its cursor.
    keep(&store, "a", 1, 100);
    assert_eq!(after(&store, "a", 6), []);
    fill(&store, "a", [200]);
    assert_eq!(after(&store, "a", 6).into_iter().map(|event| event.seq).collect::<Vec<_>>(), [7]);
}

fn any_number_is_forgotten_in_small_steps_also_past_a_wrong_clock(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    // The third one was written under a clock that was a year ahead.
    fill(&store, "a", [0, 1, 31_536_000_000]);
    fill(&store, "a", 2..2_000);
    let step = block_on(store.write(|tx| retention::forget(tx, "a", 1_990, 0))).unwrap();
    assert_eq!(step.forgotten, u64::try_from(retention::STEP_MAX).unwrap() - 1);
    keep(&store, "a", 10, 2_000);
    assert_eq!(after(&store, "a", 0).len(), 1 + 10);
    assert_eq!(problems(&store), [""; 0]);
}

fn a_policy_that_makes_no_sense_is_refused(engine: Engine) {
    let scratch = Scratch::on(engine);
    let clock: Arc<dyn Clock> = Arc::new(Once(0, Shutdown::new()));
    for (topic, keep_ms) in [("", 1), ("a", 0), ("a", -1)] {
        let policies = vec![Policy { topic: topic.to_owned(), keep_ms }];
        let refused = Keeper::new(policies, scratch.store(), clock.clone());
        assert!(matches!(refused.err(), Some(Error::BadOptions(_))));
    }
}
