mod silent;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, UnixMs};
use guild_store::outbox::{
    self, Deliver, Drainer, Failure, Filter, Message, NewMessage, Options, State,
};
use guild_store::{Error, Store, args};

use crate::{Engine, Scratch, block_on};

on_both! {
    a_key_that_stalls_holds_up_no_other,
    no_more_lanes_are_under_way_than_allowed,
    the_outbox_is_listed_in_pages_by_state_and_sink,
    messages_leave_in_order_with_their_key_at_every_attempt,
    what_never_works_becomes_a_dead_letter_and_can_be_retried,
    one_key_is_one_message,
    many_are_queued_in_their_order_or_none,
    settings_out_of_range_are_refused,
    a_dead_letter_retried_while_its_lane_is_delivered_is_delivered_too,
    a_sink_that_panics_fails_its_message_only,
    whatever_a_sink_says_can_be_written_down,
    a_list_of_less_than_nothing_is_empty,
    what_a_wrong_clock_put_into_the_future_leaves_now,
    what_waits_for_another_try_leaves_when_its_way_is_open_again,
    a_lane_that_is_open_again_gets_back_all_that_was_given_up_and_nothing_that_was_refused,
    what_waits_in_a_lane_is_counted_up_to_a_limit,
    dead_letters_are_forgotten_when_they_are_old_or_too_many,
    what_another_wrong_clock_puts_into_the_future_meanwhile_leaves_too,
    delivered_messages_and_empty_lanes_are_forgotten_however_many,
    a_sink_that_takes_its_time_is_not_cut_off,
}

/// A clock that jumps over every wait.
#[derive(Default)]
struct Jumping(AtomicI64);

impl Clock for Jumping {
    fn now_ms(&self) -> UnixMs {
        self.0.load(Ordering::SeqCst)
    }
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        // Yield first, so that whatever races with the wait comes first when it is ready.
        self.0.fetch_add(duration_ms.clamp(0, 50), Ordering::SeqCst);
        let mut yielded = false;
        Box::pin(std::future::poll_fn(move |cx| {
            if std::mem::replace(&mut yielded, true) {
                return std::task::Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        }))
    }
}

struct Zero;
impl Random for Zero {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

fn enqueue(
    store: &Store,
    key: &'static str,
    id: &'static str,
    body: &'static str,
) -> Result<(), Error> {
    let message = NewMessage { sink: "s", key, idempotency_key: id, body };
    block_on(store.write(move |tx| outbox::enqueue(tx, &message, 0)))
}

/// Drains until nothing is queued, and tells which messages the sink was given, in order.
fn drain(
    store: &Store,
    answer: impl Fn(&Message) -> Result<(), Failure> + Send + Sync + 'static,
) -> Vec<String> {
    drain_from(store, 0, Options::default(), answer)
}

/// The same, beginning at this moment.
fn drain_from(
    store: &Store,
    now_ms: UnixMs,
    options: Options,
    answer: impl Fn(&Message) -> Result<(), Failure> + Send + Sync + 'static,
) -> Vec<String> {
    let given = Arc::new(Mutex::new(Vec::new()));
    let seen = given.clone();
    let deliver: Deliver = Arc::new(move |message| {
        seen.lock().unwrap().push(message.idempotency_key.clone());
        Box::pin(std::future::ready(answer(&message)))
    });
    let options = Options { max_attempts: 3, backoff_min_ms: 10, sweep_ms: 5, ..options };
    let shutdown = Shutdown::new();
    let drainer =
        Drainer::new(options, store.clone(), Arc::new(Jumping(now_ms.into())), Arc::new(Zero))
            .unwrap();
    let draining = drainer
        .sink("s", deliver, Box::new(|| Box::pin(std::future::pending())))
        .run(shutdown.clone());
    let watching = async {
        let queued = "SELECT count(*) FROM outbox WHERE state = 'queued'";
        while store.read(move |rx| rx.first::<(i64,)>(queued, &[])).await.unwrap() != Some((0,)) {}
        shutdown.trigger();
    };
    block_on(async { futures_util::join!(draining, watching) });
    let given = given.lock().unwrap();
    given.clone()
}

fn messages_leave_in_order_with_their_key_at_every_attempt(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for id in ["a1", "a2", "a3"] {
        enqueue(&store, "a", id, "{}").unwrap();
    }
    let tries = AtomicI64::new(0);
    let given = drain(&store, move |message| match message.idempotency_key.as_str() {
        "a2" if tries.fetch_add(1, Ordering::SeqCst) == 0 => Err(Failure::Retry("not yet".into())),
        _ => Ok(()),
    });
    assert_eq!(given, ["a1", "a2", "a2", "a3"]);
}

fn what_never_works_becomes_a_dead_letter_and_can_be_retried(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for id in ["bad", "refused", "good"] {
        enqueue(&store, "a", id, "{}").unwrap();
    }
    let given = drain(&store, |message| match message.idempotency_key.as_str() {
        "bad" => Err(Failure::Retry("still not".into())),
        "refused" => Err(Failure::Never("no such thing".into())),
        _ => Ok(()),
    });
    assert_eq!(given, ["bad", "bad", "bad", "refused", "good"]);
    let dead = block_on(store.read(|rx| outbox::dead_letters(rx, 10))).unwrap();
    let told: Vec<_> = dead
        .iter()
        .map(|d| (d.message.idempotency_key.as_str(), d.message.attempts, d.last_error.as_str()))
        .collect();
    assert_eq!(told, [("bad", 3, "still not"), ("refused", 1, "no such thing")]);
    let seq = dead[0].message.seq;
    assert!(block_on(store.write(move |tx| outbox::retry(tx, seq, 0))).unwrap());
    assert!(!block_on(store.write(move |tx| outbox::retry(tx, seq, 0))).unwrap());
    assert_eq!(drain(&store, |_| Ok(())), ["bad"]);
    assert_eq!(block_on(store.read(|rx| outbox::dead_letters(rx, 10))).unwrap().len(), 1);
}

type Given = (&'static str, &'static str, &'static str);

fn enqueue_all(store: &Store, given: Vec<Given>, now_ms: UnixMs) -> Result<(), Error> {
    block_on(store.write(move |tx| {
        let message =
            |(key, idempotency_key, body)| NewMessage { sink: "s", key, idempotency_key, body };
        let messages: Vec<NewMessage<'_>> = given.iter().copied().map(message).collect();
        outbox::enqueue_all(tx, &messages, now_ms)
    }))
}

fn queued(store: &Store) -> Vec<(String, i64)> {
    let sql = "SELECT idempotency_key, created_ms FROM outbox ORDER BY seq";
    block_on(store.read(move |rx| rx.all::<(String, i64)>(sql, &[]))).unwrap()
}

fn many_are_queued_in_their_order_or_none(engine: Engine) {
    let rung: Arc<Mutex<Vec<(String, i64)>>> = Arc::default();
    let ear = rung.clone();
    let hooks = guild_store::Hooks::on_ring(move |topic, after| {
        ear.lock().unwrap().push((topic.to_owned(), after));
    });
    let place = crate::Place::on(engine);
    let service = Some(place.open(hooks));
    let scratch = Scratch { place, service };
    let store = scratch.store();
    enqueue_all(&store, vec![], 1).unwrap();
    assert_eq!(*rung.lock().unwrap(), []);
    let first = vec![("a", "a1", "1"), ("b", "b1", "2"), ("a", "a2", "3"), ("a", "a1", "1")];
    enqueue_all(&store, first.clone(), 1).unwrap();
    let wanted = [("a1".to_owned(), 1), ("b1".to_owned(), 1), ("a2".to_owned(), 1)];
    assert_eq!(queued(&store), wanted);
    assert!(rung.lock().unwrap().contains(&("outbox".to_owned(), 0)), "{rung:?}");
    rung.lock().unwrap().clear();
    // All of it again changes nothing, and rings nobody; with something new only that is queued.
    enqueue_all(&store, first, 2).unwrap();
    assert_eq!(*rung.lock().unwrap(), []);
    enqueue_all(&store, vec![("a", "a2", "3"), ("c", "c1", "4"), ("a", "a3", "5")], 2).unwrap();
    let now = queued(&store);
    assert_eq!(now[3..], [("c1".to_owned(), 2), ("a3".to_owned(), 2)]);
    // Other content, a key of another lane, or two contents in one set: nothing of it is queued.
    for bad in [("a", "a2", "other"), ("b", "a2", "3")] {
        let told = enqueue_all(&store, vec![("d", "d1", "6"), bad], 3).unwrap_err();
        assert_eq!(told, Error::OutboxConflict("a2".to_owned()));
    }
    let twice = vec![("d", "d1", "6"), ("d", "d1", "7")];
    let told = enqueue_all(&store, twice, 3).unwrap_err();
    assert_eq!(told, Error::OutboxConflict("d1".to_owned()));
    assert_eq!(queued(&store), now);
    // The lanes know of them.
    let mut given = drain(&store, |_| Ok(()));
    assert!(given.iter().position(|id| id == "a1") < given.iter().position(|id| id == "a3"));
    given.sort();
    assert_eq!(given, ["a1", "a2", "a3", "b1", "c1"]);
}

fn one_key_is_one_message(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    enqueue(&store, "a", "id", "1").unwrap();
    enqueue(&store, "a", "id", "1").unwrap();
    assert_eq!(enqueue(&store, "a", "id", "2"), Err(Error::OutboxConflict("id".to_owned())));
    assert_eq!(enqueue(&store, "b", "id", "1"), Err(Error::OutboxConflict("id".to_owned())));
    assert_eq!(drain(&store, |_| Ok(())), ["id"]);
}

fn settings_out_of_range_are_refused(engine: Engine) {
    let scratch = Scratch::on(engine);
    let options = Options { lease_ms: 0, ..Options::default() };
    let refused =
        Drainer::new(options, scratch.store(), Arc::new(Jumping::default()), Arc::new(Zero));
    assert_eq!(
        refused.err(),
        Some(Error::BadOptions("outbox.lease_ms must be at least 1".to_owned()))
    );
}

fn a_dead_letter_retried_while_its_lane_is_delivered_is_delivered_too(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for id in ["bad", "first", "also bad", "second"] {
        enqueue(&store, "a", id, "{}").unwrap();
    }
    let bad = |message: &Message| message.idempotency_key.ends_with("bad");
    drain(&store, move |message| match bad(message) || message.idempotency_key == "second" {
        true => Err(Failure::Never("not now".into())),
        false => Ok(()),
    });
    let dead = block_on(store.read(|rx| outbox::dead_letters(rx, 10))).unwrap();
    let [bad, also_bad, second] = [0, 1, 2].map(|i| dead[i].message.seq);
    // The last one goes out alone; meanwhile somebody retries the two that stand before it.
    block_on(store.write(move |tx| outbox::retry(tx, second, 0))).unwrap();
    let again = store.clone();
    let given = drain(&store, move |message| {
        if message.seq == second {
            for seq in [bad, also_bad] {
                block_on_here(again.write(move |tx| outbox::retry(tx, seq, 0))).unwrap();
            }
        }
        Ok(())
    });
    assert_eq!(given, ["second", "bad", "also bad"]);
}

/// Waits inside a sink, which runs inside the test's own runtime.
fn block_on_here<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| block_on(future)).join().unwrap())
}

fn a_sink_that_panics_fails_its_message_only(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for id in ["poison", "good"] {
        enqueue(&store, "a", id, "{}").unwrap();
    }
    let given = drain(&store, |message| {
        assert!(message.idempotency_key != "poison", "planted");
        Ok(())
    });
    assert_eq!(given, ["poison", "poison", "poison", "good"]);
    let dead = block_on(store.read(|rx| outbox::dead_letters(rx, 10))).unwrap();
    assert_eq!(dead[0].last_error, "the sink panicked");
}

fn what_a_wrong_clock_put_into_the_future_leaves_now(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    let year_ms = 365 * 24 * 3_600 * 1_000;
    let message = NewMessage { sink: "s", key: "a", idempotency_key: "early", body: "{}" };
    block_on(store.write(move |tx| outbox::enqueue(tx, &message, year_ms))).unwrap();
    // A holder died under the wrong clock, too.
    let lease = "UPDATE outbox_lane SET token = 'x', until_ms = $1";
    block_on(store.write(move |tx| tx.exec(lease, args![year_ms]))).unwrap();
    enqueue(&store, "a", "later", "{}").unwrap();
    assert_eq!(drain(&store, |_| Ok(())), ["early", "later"]);
}

fn what_waits_for_another_try_leaves_when_its_way_is_open_again(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for (key, id) in [("a", "1"), ("b", "2")] {
        enqueue(&store, key, id, id).unwrap();
    }
    let later = "UPDATE outbox SET due_ms = 900000";
    let lanes = "UPDATE outbox_lane SET due_ms = 900000";
    block_on(store.write(move |tx| tx.exec(later, &[]).and(tx.exec(lanes, &[])))).unwrap();
    let reopen = |key: &'static str| {
        block_on(store.write(move |tx| outbox::reopen(tx, "s", key, 1))).unwrap()
    };
    assert_eq!([reopen("a"), reopen("a"), reopen("c")], [1, 0, 0]);
    let due: Vec<(String, i64)> =
        block_on(store.read(|rx| rx.all("SELECT key, due_ms FROM outbox_lane ORDER BY key", &[])))
            .unwrap();
    assert_eq!(due, [("a".to_owned(), 1), ("b".to_owned(), 900_000)]);
}

fn a_lane_that_is_open_again_gets_back_all_that_was_given_up_and_nothing_that_was_refused(
    engine: Engine,
) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    // The dead letters of others, and what was refused here, come first: they must not stand in the way.
    let many = store.write(|tx| {
        for (key, count) in [("other", 600), ("refused", 600), ("a", 1_200)] {
            for i in 0..count {
                let name = format!("{key}-{i}");
                let key = if key == "other" { key } else { "a" };
                let message = NewMessage { sink: "s", key, idempotency_key: &name, body: "{}" };
                outbox::enqueue(tx, &message, 0)?;
            }
        }
        tx.exec("UPDATE outbox SET state = 'dead', closed_ms = 1", args![])?;
        tx.exec("UPDATE outbox SET refused = 1 WHERE idempotency_key LIKE 'refused-%'", args![])?;
        tx.exec("UPDATE outbox_lane SET due_ms = NULL", args![])
    });
    block_on(many).unwrap();
    let (mut after, mut steps) = (0, 0);
    let revive =
        |after: i64| block_on(store.write(move |tx| outbox::revive(tx, "s", "a", after, 7)));
    while let Some(last) = revive(after).unwrap() {
        assert!(last > after);
        (after, steps) = (last, steps + 1);
    }
    assert_eq!(steps, 3);
    let states =
        "SELECT count(*) FROM outbox WHERE state = 'queued' AND attempts = 0 AND key = 'a'";
    assert_eq!(block_on(store.read(move |rx| rx.first::<(i64,)>(states, &[]))), Ok(Some((1_200,))));
    let due = "SELECT due_ms FROM outbox_lane WHERE key = 'a'";
    assert_eq!(block_on(store.read(move |rx| rx.first::<(i64,)>(due, &[]))), Ok(Some((7,))));
    let given = drain_from(&store, 7, Options::default(), |_| Ok(()));
    assert_eq!(given.len(), 1_200);
    assert_eq!((given[0].as_str(), given[1_199].as_str()), ("a-0", "a-1199"), "in their order");
}

fn what_waits_in_a_lane_is_counted_up_to_a_limit(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for (key, id) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4")] {
        enqueue(&store, key, id, "{}").unwrap();
    }
    block_on(store.write(|tx| {
        tx.exec("UPDATE outbox SET state = 'done', closed_ms = 1 WHERE seq = 1", args![])
    }))
    .unwrap();
    let waiting = |key: &'static str, limit| {
        block_on(store.read(move |rx| outbox::waiting(rx, "s", key, limit))).unwrap()
    };
    assert_eq!([waiting("a", 9), waiting("a", 1), waiting("c", 9), waiting("a", -1)], [2, 1, 0, 0]);
}

fn dead_letters_are_forgotten_when_they_are_old_or_too_many(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    let many = store.write(|tx| {
        for (sink, count) in [("s", 2_500), ("other", 10)] {
            for i in 0..count {
                let name = format!("m{i}");
                let message = NewMessage { sink, key: &name, idempotency_key: &name, body: "{}" };
                outbox::enqueue(tx, &message, 0)?;
            }
        }
        tx.exec("UPDATE outbox SET state = 'dead', closed_ms = 10000 + seq", args![])
    });
    block_on(many).unwrap();
    let left = |options: Options, now_ms: i64| {
        // Something to deliver, so that the drainer has come to tidy before it ends.
        let id = format!("last-{}", options.dead_max).leak();
        enqueue(&store, "last", id, "{}").unwrap();
        drain_from(&store, now_ms, options, |_| Ok(()));
        let dead = "SELECT count(*), min(seq) FROM outbox WHERE state = 'dead' AND sink = 's'";
        block_on(store.read(move |rx| rx.first::<(i64, i64)>(dead, &[]))).unwrap().unwrap()
    };
    let options = Options { dead_max: 100, ..Options::default() };
    assert_eq!(left(options, 20_000), (100, 2_401), "the newest stay");
    let options = Options { keep_dead_ms: 7_550, ..Options::default() };
    assert_eq!(left(options, 20_000), (51, 2_450), "what is older than it may be is gone");
    let others = "SELECT count(*) FROM outbox WHERE sink = 'other'";
    assert_eq!(block_on(store.read(move |rx| rx.first::<(i64,)>(others, &[]))), Ok(Some((10,))));
}

fn what_another_wrong_clock_puts_into_the_future_meanwhile_leaves_too(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    enqueue(&store, "a", "first", "{}").unwrap();
    let writer = store.clone();
    // The drainer has looked through the outbox, and its own clock is never set back.
    let given = drain(&store, move |message| {
        if message.idempotency_key == "first" {
            let year_ms = 365 * 24 * 3_600 * 1_000;
            let message = NewMessage { sink: "s", key: "b", idempotency_key: "early", body: "{}" };
            block_on_here(writer.write(move |tx| outbox::enqueue(tx, &message, year_ms))).unwrap();
        }
        Ok(())
    });
    assert_eq!(given, ["first", "early"]);
}

fn delivered_messages_and_empty_lanes_are_forgotten_however_many(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    let many = store.write(|tx| {
        for i in 0..2_500 {
            let name = format!("m{i}");
            let message = NewMessage { sink: "s", key: &name, idempotency_key: &name, body: "{}" };
            outbox::enqueue(tx, &message, 0)?;
        }
        tx.exec("UPDATE outbox SET state = 'done', closed_ms = 1", args![])?;
        tx.exec("UPDATE outbox_lane SET due_ms = NULL", args![])
    });
    block_on(many).unwrap();
    enqueue(&store, "dead", "dead", "{}").unwrap();
    let options = Options { keep_done_ms: 10, ..Options::default() };
    drain_from(&store, 1_000, options, |_| Err(Failure::Never("no".into())));
    let counts = "SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM outbox_lane)";
    let left = block_on(store.read(move |rx| rx.first::<(i64, i64)>(counts, &[]))).unwrap();
    // Its lane may be forgotten too by then.
    assert!(matches!(left, Some((1, 0 | 1))), "only the dead letter stays: {left:?}");
    let forgotten = "SELECT sink, before_ms FROM outbox_forgotten";
    let forgotten = block_on(store.read(move |rx| rx.all::<(String, i64)>(forgotten, &[])));
    assert_eq!(forgotten, Ok(vec![("s".to_owned(), 1)]), "from when it was is remembered");
}

fn a_sink_that_takes_its_time_is_not_cut_off(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for id in ["a", "b", "c", "d", "e"] {
        enqueue(&store, "k", id, "{}").unwrap();
    }
    // Each delivery takes 40 of the lease's 100 ms.
    let clock = Arc::new(Jumping::default());
    let (time, shutdown) = (clock.clone(), Shutdown::new());
    let deliver: Deliver = Arc::new(move |_| {
        time.0.fetch_add(40, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(())))
    });
    let options = Options { lease_ms: 100, ..Options::default() };
    let drainer = Drainer::new(options, store.clone(), clock, Arc::new(Zero)).unwrap();
    let draining = drainer
        .sink("s", deliver, Box::new(|| Box::pin(std::future::pending())))
        .run(shutdown.clone());
    let watching = async {
        let open = "SELECT count(*) FROM outbox WHERE state <> 'done'";
        while store.read(move |rx| rx.first::<(i64,)>(open, &[])).await.unwrap() != Some((0,)) {}
        shutdown.trigger();
    };
    block_on(async { futures_util::join!(draining, watching) });
    let tried = "SELECT max(attempts) FROM outbox";
    let most = block_on(store.read(move |rx| rx.first::<(i64,)>(tried, &[]))).unwrap();
    assert_eq!(most, Some((1,)), "nothing was tried twice");
}

/// Drains with at most `lanes_max` lanes at once until `wanted` deliveries have begun; which ones, in their order, and
/// the most that were under way at once.
fn drain_lanes(
    store: &Store,
    lanes_max: i64,
    stalls: impl Fn(&str) -> bool + Send + Sync + 'static,
    wanted: usize,
) -> (Vec<String>, i64) {
    let begun = Arc::new(Mutex::new(Vec::new()));
    let (open, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let (seen, peak) = (begun.clone(), most.clone());
    let deliver: Deliver = Arc::new(move |message: Message| {
        seen.lock().unwrap().push(message.idempotency_key.clone());
        peak.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let (open, stalled) = (open.clone(), stalls(&message.key));
        Box::pin(async move {
            if stalled {
                std::future::pending::<()>().await;
            }
            open.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        })
    });
    let shutdown = Shutdown::new();
    let options = Options { lanes_max, sweep_ms: 5, lease_ms: 1_000_000_000, ..Options::default() };
    let drainer =
        Drainer::new(options, store.clone(), Arc::new(Patient), Arc::new(Counting::default()));
    let draining = drainer
        .unwrap()
        .sink("s", deliver, Box::new(|| Box::pin(std::future::pending())))
        .run(shutdown.clone());
    let watching = async {
        let turn = || store.write(|_| Ok::<_, Error>(()));
        while begun.lock().unwrap().len() < wanted {
            turn().await.unwrap();
        }
        // Whatever would still begin has time to.
        for _ in 0..30 {
            turn().await.unwrap();
        }
        shutdown.trigger();
    };
    block_on(async { futures_util::join!(draining, watching) });
    let begun = begun.lock().unwrap().clone();
    (begun, most.load(Ordering::SeqCst))
}

fn a_key_that_stalls_holds_up_no_other(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for (key, id) in [("a", "stalled"), ("b", "b1"), ("b", "b2"), ("c", "c1"), ("d", "d1")] {
        enqueue(&store, key, id, "{}").unwrap();
    }
    let (begun, most) = drain_lanes(&store, 2, |key| key == "a", 5);
    assert_eq!(begun, ["stalled", "b1", "b2", "c1", "d1"]);
    assert_eq!(most, 2);
}

fn no_more_lanes_are_under_way_than_allowed(engine: Engine) {
    for lanes_max in [1usize, 3] {
        let scratch = Scratch::on(engine);
        for key in ["a", "b", "c", "d", "e"] {
            enqueue(&scratch.store(), key, key, "{}").unwrap();
        }
        let limit = i64::try_from(lanes_max).unwrap();
        let (begun, most) = drain_lanes(&scratch.store(), limit, |_| true, lanes_max);
        assert_eq!((begun.len(), most), (lanes_max, limit));
    }
}

/// A clock whose short waits are over at once, and whose long ones never are.
struct Patient;
impl Clock for Patient {
    fn now_ms(&self) -> UnixMs {
        0
    }
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        match duration_ms > 1_000_000 {
            true => Box::pin(std::future::pending()),
            false => Jumping::default().sleep(0),
        }
    }
}

/// Tokens that differ.
#[derive(Default)]
struct Counting(AtomicI64);
impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(u8::try_from(self.0.fetch_add(1, Ordering::SeqCst) % 251).unwrap());
    }
}

fn the_outbox_is_listed_in_pages_by_state_and_sink(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for id in ["good", "bad", "worse"] {
        enqueue(&store, "a", id, "{}").unwrap();
    }
    drain(&store, |message| match message.idempotency_key.as_str() {
        "good" => Ok(()),
        _ => Err(Failure::Never("no".into())),
    });
    let other = NewMessage { sink: "other", key: "a", idempotency_key: "waits", body: "{}" };
    block_on(store.write(move |tx| outbox::enqueue(tx, &other, 9))).unwrap();
    let list = |filter: Filter, limit| {
        let listed = block_on(store.read(move |rx| outbox::list(rx, &filter, limit))).unwrap();
        listed.into_iter().map(|message| (message.seq, message.state)).collect::<Vec<_>>()
    };
    let all = [(1, State::Done), (2, State::Dead), (3, State::Dead), (4, State::Queued)];
    assert_eq!(list(Filter::default(), 10), all);
    assert_eq!(list(Filter::default(), 2), all[..2]);
    assert_eq!(list(Filter { after: 2, ..Filter::default() }, 10), all[2..]);
    assert_eq!(list(Filter { state: Some(State::Dead), ..Filter::default() }, 10), all[1..3]);
    assert_eq!(list(Filter { sink: Some("other".into()), ..Filter::default() }, 10), all[3..]);
    let retry = |sink: Option<&'static str>, after| {
        block_on(store.write(move |tx| outbox::retry_dead(tx, sink, after, 0))).unwrap()
    };
    assert_eq!(retry(Some("other"), 0), [0i64; 0]);
    assert_eq!(retry(None, 2), [3]);
    assert_eq!(retry(Some("s"), 0), [2]);
    assert_eq!(drain_some(&store), ["bad", "worse"], "in their order");
}

/// Drains the messages of the one sink that there is a drainer for.
fn drain_some(store: &Store) -> Vec<String> {
    block_on(store.write(|tx| tx.exec("DELETE FROM outbox WHERE sink = 'other'", args![])))
        .unwrap();
    drain(store, |_| Ok(()))
}

fn whatever_a_sink_says_can_be_written_down(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    enqueue(&store, "a", "odd", "{}").unwrap();
    enqueue(&store, "b", "long", "{}").unwrap();
    let given = drain(&store, |message| match message.idempotency_key.as_str() {
        "odd" => Err(Failure::Never("got \0 from the peer".into())),
        _ => Err(Failure::Never("ä".repeat(1_000_000))),
    });
    assert_eq!(given, ["odd", "long"]);
    let dead = block_on(store.read(|rx| outbox::dead_letters(rx, 10))).unwrap();
    assert_eq!(dead[0].last_error, "got \u{fffd} from the peer");
    assert_eq!(dead[1].last_error.chars().count(), 1_000);
}

fn a_list_of_less_than_nothing_is_empty(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    enqueue(&store, "a", "id", "{}").unwrap();
    block_on(store.write(|tx| tx.exec("UPDATE outbox SET state = 'dead', closed_ms = 0", args![])))
        .unwrap();
    let listed = store.read(|rx| outbox::list(rx, &Filter::default(), -1));
    assert_eq!(block_on(listed), Ok(Vec::new()));
    assert_eq!(block_on(store.read(|rx| outbox::dead_letters(rx, -1))), Ok(Vec::new()));
    let before = store.read(|rx| guild_store::event::before_last(rx, "t", -1));
    assert_eq!(block_on(before), Ok(0));
}
