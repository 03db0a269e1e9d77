//! Traces: what belongs together is told under one trace, from whoever asks to the last event.

use guild_kernel::turn::{NewTurn, Parent, Then};
use guild_kernel::{AgentTurnId, code, pmo};
use guild_store::args;
use serde_json::{Value, json};

use crate::office::{self, carry_out, fork};
use crate::world::{Node, T0, both, call, new_turn, success};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What events of a turn say of their trace: the span of the turn, and the one that led to it.
fn told(node: &Node, id: &AgentTurnId) -> Vec<(String, Option<String>)> {
    let start = format!("{id}/");
    let events = node.read(|rx| Ok(guild_store::event::after(rx, guild_kernel::TOPIC, 0, 10_000)?));
    let of_turn = events.into_iter().filter(|event| event.id.starts_with(&start));
    of_turn
        .map(|event| {
            let body: Value = serde_json::from_str(&event.body).unwrap();
            let parent = body["parent_traceparent"].as_str().map(str::to_owned);
            (body["traceparent"].as_str().unwrap().to_owned(), parent)
        })
        .collect()
}

/// The trace of a turn, which all that is told of it agrees on.
fn trace_of(node: &Node, id: &AgentTurnId) -> String {
    let told = told(node, id);
    assert!(!told.is_empty() && told.iter().all(|(span, _)| *span == told[0].0), "{told:?}");
    let parts: Vec<&str> = told[0].0.split('-').collect();
    let [version, trace, span, flags] = parts.as_slice() else { panic!("{told:?}") };
    assert_eq!((*version, trace.len(), span.len(), *flags), ("00", 32, 16, "01"));
    (*trace).to_owned()
}

#[test]
fn a_trace_goes_from_whoever_asks_to_events_commands_and_children() {
    both(|node| {
        node.pack([1, 2]);
        let new = NewTurn { trace_id: Some(SPAN.to_owned()), ..new_turn(1, 1) };
        let id = node.enqueue(&new, T0).unwrap();
        let fence = node.take(1, T0);
        node.commit(&fence, Then::Continue, T0 + 1).unwrap();
        let claimed = node.head(1).active.unwrap();
        assert_eq!(claimed.trace_id.as_deref(), Some(TRACE));
        assert_eq!(trace_of(node, &id), TRACE);
        assert_eq!(told(node, &id)[0].1.as_deref(), Some(SPAN), "who led to it is told once");
        // A second try has a span of its own, and is the same wish; another trace is another wish.
        let again = SPAN.replace("b7ad", "c8be");
        let same = NewTurn { trace_id: Some(again), ..new.clone() };
        assert_eq!(node.enqueue(&same, T0 + 2).unwrap(), id);
        assert_eq!(node.enqueue(&new_turn(1, 1), T0 + 2).unwrap(), id, "nor one that names none");
        let other = NewTurn { trace_id: Some(TRACE.replace('0', "1")), ..new };
        assert_eq!(node.enqueue(&other, T0 + 2).unwrap_err().code(), &code::CONFLICT);
        // A child belongs to the trace of its parent.
        let parent = Parent {
            agent_id: fence.key.agent_id,
            agent_turn_id: id.clone(),
            step_id: None,
            answers: None,
        };
        let child = NewTurn { parent: Some(parent), ..new_turn(2, 2) };
        let child = node.enqueue(&child, T0 + 3).unwrap();
        assert_eq!(trace_of(node, &child), TRACE);
        assert_eq!(told(node, &child)[0].1.as_deref(), Some(told(node, &id)[0].0.as_str()));
        node.stop(&id, T0 + 4).unwrap();
        assert_eq!(trace_of(node, &id), TRACE, "to the end");
        node.sweep(T0 + 4);
        node.assert_well();
    });
}

#[test]
fn a_turn_that_nobody_named_a_trace_for_has_its_own() {
    both(|node| {
        let (first, second) = (node.ask(1, 1, T0), node.ask(2, 2, T0));
        assert_ne!(trace_of(node, &first), trace_of(node, &second));
        let fence = node.take(1, T0);
        let calls = vec![call(0)];
        node.commit(&fence, Then::Suspend(calls), T0 + 1).unwrap();
        let body: (String,) = node.read(|rx| {
            let sql = "SELECT body FROM outbox WHERE sink = 'tool'";
            Ok(rx.first(sql, args![])?.unwrap())
        });
        let body: Value = serde_json::from_str(&body.0).unwrap();
        assert_eq!(body["headers"]["trace_id"], trace_of(node, &first));
        let second = node.take(2, T0 + 1);
        node.commit(&second, success(), T0 + 1).unwrap();
        node.assert_well();
    });
}

#[test]
fn tasks_belong_to_the_trace_of_their_batch() {
    office::both(|node| {
        let forked = fork(node, 1, 2, json!({}));
        let trace = trace_of(node, &forked.asked.fence.agent_turn_id);
        for turn in &forked.turns {
            assert_eq!(trace_of(node, turn), trace);
        }
        let leads: Vec<_> = forked.turns.iter().map(|turn| told(node, turn)[0].1.clone()).collect();
        assert!(leads[0].is_some() && leads[0] == leads[1], "one call has led to both: {leads:?}");
        let arguments = json!({ "profile_name": "coder", "instruction": "do it" });
        let asked = office::ask(node, 2, pmo::LAUNCH_PRINCIPAL, arguments);
        carry_out(node, &asked, T0 + 1);
        let told = office::answer(node, &asked).unwrap();
        let child: AgentTurnId = told["result"]["agent_turn_id"].as_str().unwrap().parse().unwrap();
        assert_eq!(trace_of(node, &child), trace_of(node, &asked.fence.agent_turn_id));
    });
}

#[test]
fn what_is_no_trace_is_refused() {
    both(|node| {
        node.pack([1]);
        for bad in ["", "x", "00", &TRACE[1..], "00-0af7651916cd43dd8448eb211c80319c--01"] {
            let new = NewTurn { trace_id: Some(bad.to_owned()), ..new_turn(1, 1) };
            assert_eq!(node.enqueue(&new, T0).unwrap_err().code(), &code::MALFORMED, "{bad}");
        }
    });
}
