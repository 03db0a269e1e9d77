use guild_protocol::id::EntryId;
use guild_store::audit::{self, NewEntry};
use guild_store::event::{self, Appended, NewEvent};
use guild_store::{Error, args};
use serde_json::{Map, json};

use crate::{Engine, Scratch, block_on};

on_both! {
    an_event_is_stored_once,
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
