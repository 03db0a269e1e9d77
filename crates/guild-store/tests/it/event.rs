use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_protocol::id::EntryId;
use guild_store::audit::{self, NewEntry};
use guild_store::event::{self, Appended, NewEvent};
use guild_store::{Error, Hooks, Point, args};
use serde_json::{Map, json};

use crate::{Engine, Place, Scratch, block_on};

on_both! {
    an_event_is_stored_once,
    a_set_is_stored_in_its_order_and_each_event_once,
    a_set_with_a_conflict_stores_nothing_and_uses_no_number,
    a_set_of_nothing_is_nothing,
    sets_from_many_callers_leave_no_gap_and_keep_together,
    numbers_go_on_after_failures_and_deletions,
    pages_begin_where_they_are_told,
    an_entry_that_breaks_a_rule_is_refused_by_its_field,
    what_could_not_be_read_back_is_not_written,
    a_page_has_a_limit_in_bytes_and_leads_on,
}

fn entry(id: u64, action: &str) -> NewEntry {
    NewEntry {
        entry_id: format!("entry_{id:032x}").parse::<EntryId>().unwrap(),
        actor: "tester".to_owned(),
        action: action.to_owned(),
        subject: None,
        detail: Map::new(),
    }
}

fn an_event_is_stored_once(engine: Engine) {
    let scratch = Scratch::on(engine);
    let append = |body: &'static str| {
        let event = NewEvent { topic: "t", id: "a", kind: "k", at_ms: 5, body };
        block_on(scratch.store().write(move |tx| event::append(tx, &event)))
    };
    assert_eq!(append("1"), Ok(Appended::New(1)));
    assert_eq!(append("1"), Ok(Appended::Known(1)));
    assert_eq!(append("2"), Err(Error::EventConflict("a".to_owned())));
    let rows = block_on(scratch.store().read(|rx| event::after(rx, "t", 0, 10))).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].body, "1");
}

fn named<'a>(id: &'a str, body: &'a str) -> NewEvent<'a> {
    NewEvent { topic: "t", id, kind: "k", at_ms: 5, body }
}

/// Stores the set; none of it if it is to fail afterwards.
fn put(
    scratch: &Scratch,
    set: &[(&'static str, &'static str)],
    fail: bool,
) -> Result<Vec<Appended>, Error> {
    let set = set.to_vec();
    block_on(scratch.store().write(move |tx| {
        let events: Vec<NewEvent<'_>> = set.iter().map(|(id, body)| named(id, body)).collect();
        let appended = event::append_all(tx, &events)?;
        if fail { Err(Error::Fenced) } else { Ok(appended) }
    }))
}

fn stored(scratch: &Scratch) -> Vec<(i64, String, String)> {
    let page = block_on(scratch.store().read(|rx| event::after(rx, "t", 0, 1_000))).unwrap();
    page.into_iter().map(|event| (event.seq, event.id, event.body)).collect()
}

fn row(seq: i64, id: &str, body: &str) -> (i64, String, String) {
    (seq, id.to_owned(), body.to_owned())
}

fn a_set_is_stored_in_its_order_and_each_event_once(engine: Engine) {
    use Appended::{Known, New};
    let scratch = Scratch::on(engine);
    assert_eq!(put(&scratch, &[("b", "1"), ("a", "2")], false), Ok(vec![New(1), New(2)]));
    assert_eq!(put(&scratch, &[("x", "")], true), Err(Error::Fenced));
    // Some are known, one is named twice, the order is nobody's.
    let mixed = [("z", "3"), ("a", "2"), ("c", "4"), ("z", "3"), ("b", "1"), ("y", "")];
    let numbers = vec![New(3), Known(2), New(4), Known(3), Known(1), New(5)];
    assert_eq!(put(&scratch, &mixed, false), Ok(numbers));
    let again = vec![Known(3), Known(2), Known(4), Known(3), Known(1), Known(5)];
    assert_eq!(put(&scratch, &mixed, false), Ok(again));
    assert_eq!(put(&scratch, &[("last", "")], false), Ok(vec![New(6)]), "no number is used up");
    let rows = [
        row(1, "b", "1"),
        row(2, "a", "2"),
        row(3, "z", "3"),
        row(4, "c", "4"),
        row(5, "y", ""),
        row(6, "last", ""),
    ];
    assert_eq!(stored(&scratch), rows);
    // An id is unique in its topic only.
    let other = scratch.store().write(|tx| {
        event::append_all(tx, &[named("a", "2"), NewEvent { topic: "u", ..named("a", "9") }])
    });
    assert_eq!(block_on(other), Ok(vec![Known(2), New(7)]));
}

fn a_set_with_a_conflict_stores_nothing_and_uses_no_number(engine: Engine) {
    let scratch = Scratch::on(engine);
    put(&scratch, &[("a", "1"), ("b", "2")], false).unwrap();
    // The closure goes on after the refusal: what it stores then is all there is.
    for set in [[("n", ""), ("a", "1"), ("b", "other")], [("n", ""), ("m", "1"), ("m", "2")]] {
        let refused = scratch.store().write(move |tx| {
            let set = set.map(|(id, body)| named(id, body));
            Ok::<_, Error>(event::append_all(tx, &set).unwrap_err())
        });
        assert_eq!(block_on(refused), Ok(Error::EventConflict(set[2].0.to_owned())));
    }
    let kind = scratch.store().write(|tx| {
        event::append_all(tx, &[named("n", ""), NewEvent { kind: "other", ..named("a", "1") }])
    });
    assert_eq!(block_on(kind), Err(Error::EventConflict("a".to_owned())));
    assert_eq!(put(&scratch, &[("c", "3")], false), Ok(vec![Appended::New(3)]));
    assert_eq!(stored(&scratch), [row(1, "a", "1"), row(2, "b", "2"), row(3, "c", "3")]);
}

fn a_set_of_nothing_is_nothing(engine: Engine) {
    let scratch = Scratch::on(engine);
    assert_eq!(put(&scratch, &[], false), Ok(vec![]));
    assert_eq!(put(&scratch, &[("a", "")], false), Ok(vec![Appended::New(1)]));
}

fn sets_from_many_callers_leave_no_gap_and_keep_together(engine: Engine) {
    let scratch = Scratch::on(engine);
    let calls = (0..40_i64).map(|call| {
        scratch.store().write(move |tx| {
            let ids: Vec<String> = (0..25).map(|i| format!("{call}-{i}")).collect();
            let events: Vec<NewEvent<'_>> = ids.iter().map(|id| named(id, "{}")).collect();
            let seqs: Vec<i64> =
                event::append_all(tx, &events)?.into_iter().map(Appended::seq).collect();
            // Every fourth call takes everything back.
            if call % 4 == 3 { Err(Error::Fenced) } else { Ok(seqs) }
        })
    });
    let answers = block_on(futures_util::future::join_all(calls));
    let mut firsts = Vec::new();
    for seqs in answers.into_iter().flatten() {
        assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
        firsts.push(seqs[0]);
    }
    firsts.sort_unstable();
    assert_eq!(firsts, (0..30).map(|i| i * 25 + 1).collect::<Vec<i64>>());
    let rows = stored(&scratch);
    assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), (1..=750).collect::<Vec<_>>());
}

#[test]
fn any_number_of_events_is_one_journey() {
    let statements = Arc::new(AtomicU64::new(0));
    let counted = statements.clone();
    let hooks = Hooks::default().with_faults(move |point, _| {
        if point == Point::BeforeStatement {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        None
    });
    let place = Place::on(Engine::Postgres);
    let service = place.open(hooks);
    for (count, first) in [(1, 1), (200, 2), (1, 202)] {
        let before = statements.load(Ordering::SeqCst);
        let append = service.handle().write(move |tx| {
            let ids: Vec<String> = (first..first + count).map(|i| i.to_string()).collect();
            event::append_all(tx, &ids.iter().map(|id| named(id, "")).collect::<Vec<_>>())
        });
        let last = block_on(append).unwrap().last().copied();
        assert_eq!(last, Some(Appended::New(first + count - 1)));
        assert_eq!(statements.load(Ordering::SeqCst) - before, 1, "{count} events");
    }
    service.close();
}

#[test]
fn a_database_without_its_counter_is_found_out() {
    let scratch = Scratch::on(Engine::Postgres);
    put(&scratch, &[("a", "1")], false).unwrap();
    block_on(scratch.store().write(|tx| tx.exec("DELETE FROM counter", args![]))).unwrap();
    let refused = put(&scratch, &[("a", "1"), ("b", "2")], false);
    assert!(matches!(refused, Err(Error::Decode(_))), "{refused:?}");
    assert_eq!(stored(&scratch), [row(1, "a", "1")]);
}

fn numbers_go_on_after_failures_and_deletions(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    let add = |id: &'static str, fail: bool| {
        block_on(store.write(move |tx| {
            let event = NewEvent { topic: "t", id, kind: "k", at_ms: 0, body: "{}" };
            let seq = event::append(tx, &event)?.seq();
            if fail { Err(Error::Fenced) } else { Ok(seq) }
        }))
    };
    assert_eq!(add("a", false), Ok(1));
    assert_eq!(add("b", true), Err(Error::Fenced));
    assert_eq!(add("c", false), Ok(2), "a failed call leaves no gap");
    assert_eq!(add("c", false), Ok(2), "it is the same event");
    assert_eq!(add("c2", false), Ok(3), "a repeated call leaves no gap");
    block_on(store.write(|tx| tx.exec("DELETE FROM event", args![]))).unwrap();
    assert_eq!(add("d", false), Ok(4), "a number is never used again");
}

fn pages_begin_where_they_are_told(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for id in 1..=5 {
        block_on(store.write(move |tx| audit::append(tx, &entry(id, "test.done"), 7))).unwrap();
    }
    let page = block_on(store.read(|rx| audit::after(rx, 2, 2))).unwrap();
    assert_eq!(page.iter().map(|e| e.seq).collect::<Vec<_>>(), [3, 4]);
    assert_eq!((page[0].at_ms, page[0].actor.as_str()), (7, "tester"));
    let last = |count| block_on(store.read(move |rx| event::before_last(rx, audit::TOPIC, count)));
    assert_eq!([last(2), last(100), last(0)], [Ok(3), Ok(0), Ok(5)]);
}

fn an_entry_that_breaks_a_rule_is_refused_by_its_field(engine: Engine) {
    let scratch = Scratch::on(engine);
    let refused = |entry: NewEntry| match block_on(
        scratch.store().write(move |tx| audit::append(tx, &entry, 0)),
    ) {
        Err(Error::EntryMalformed { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    for bad in ["", "nodot", "Area.verb", "a.", ".b", "a b.c"] {
        assert_eq!(refused(entry(1, bad)), "action", "{bad}");
    }
    assert_eq!(refused(NewEntry { actor: String::new(), ..entry(1, "a.b") }), "actor");
    assert_eq!(refused(NewEntry { subject: Some("\n".into()), ..entry(1, "a.b") }), "subject");
    let big = json!({ "x": "y".repeat(70_000) });
    let detail = big.as_object().unwrap().clone();
    assert_eq!(refused(NewEntry { detail, ..entry(1, "a.b") }), "detail");
    let unsafe_integer = json!({ "x": u64::MAX });
    let detail = unsafe_integer.as_object().unwrap().clone();
    assert_eq!(refused(NewEntry { detail, ..entry(1, "a.b") }), "detail");
    let rows = block_on(scratch.store().read(|rx| audit::after(rx, 0, 10))).unwrap();
    assert_eq!(rows, []);
}

fn what_could_not_be_read_back_is_not_written(engine: Engine) {
    let scratch = Scratch::on(engine);
    let mut nested = json!(1);
    for _ in 0..200 {
        nested = json!({ "a": nested });
    }
    let detail = nested.as_object().unwrap().clone();
    let deep = NewEntry { detail, ..entry(1, "a.b") };
    let refused = block_on(scratch.store().write(move |tx| audit::append(tx, &deep, 0)));
    assert!(matches!(refused, Err(Error::EntryMalformed { field: "detail", .. })), "{refused:?}");
    block_on(scratch.store().write(|tx| audit::append(tx, &entry(2, "a.b"), 0))).unwrap();
    assert_eq!(block_on(scratch.store().read(|rx| audit::after(rx, 0, 10))).unwrap().len(), 1);
}

fn a_page_has_a_limit_in_bytes_and_leads_on(engine: Engine) {
    let scratch = Scratch::on(engine);
    let fill = scratch.store().write(|tx| {
        let body = "x".repeat(60_000);
        for id in 0..40 {
            let id = id.to_string();
            event::append(tx, &NewEvent { topic: "t", id: &id, kind: "k", at_ms: 0, body: &body })?;
        }
        Ok::<_, Error>(())
    });
    block_on(fill).unwrap();
    let page = |after| {
        block_on(scratch.store().read(move |rx| event::after(rx, "t", after, 500))).unwrap()
    };
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let page = page(seen.last().copied().unwrap_or(0));
        if page.is_empty() {
            break;
        }
        assert!(page.iter().map(|event| event.body.len()).sum::<usize>() < 1_300_000);
        seen.extend(page.iter().map(|event| event.seq));
        pages += 1;
    }
    assert_eq!(seen, (1..=40).collect::<Vec<i64>>());
    assert!(pages > 1);
}
