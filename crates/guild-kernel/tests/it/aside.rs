//! What is put aside owes nothing to anybody: whoever waits for it is answered, and whoever works for it is stopped.

use guild_kernel::inbox::{InboxStatus, Outcome};
use guild_kernel::turn::sweep::{self, Due};
use guild_kernel::turn::{self, Fence, NewTurn, Parent};
use guild_kernel::{AgentTurnId, Error, ToolCallId, audit, card, code};
use guild_store::args;
use serde_json::{Value, json};

use crate::audit::{Plant, found, sql};
use crate::office::{self, Forked, WAIT_MS, answer, batch_of, fork};
use crate::world::{Node, T0, TIMEOUT_MS, both, key, new_turn, success};

/// A turn that waits for a call, and whoever is to answer it.
struct Family {
    parent: AgentTurnId,
    call: ToolCallId,
    child: AgentTurnId,
    fence: Fence,
    grandchild: AgentTurnId,
}

fn asked_by(fence: &Fence, answers: Option<&ToolCallId>) -> Option<Parent> {
    Some(Parent {
        agent_id: fence.key.agent_id.clone(),
        agent_turn_id: fence.agent_turn_id.clone(),
        step_id: Some(fence.step_id.clone()),
        answers: answers.cloned(),
    })
}

/// Agent 1 waits for agent 2, which works and has asked agent 3 for something without waiting.
fn family(node: &Node) -> Family {
    let parent = node.ask(1, 1, T0);
    let waits = node.take(1, T0);
    let call = node.suspend(&waits, &[0], T0).remove(0);
    node.pack([2, 3]);
    let new = NewTurn { parent: asked_by(&waits, Some(&call)), ..new_turn(2, 2) };
    let child = node.enqueue(&new, T0).unwrap();
    let fence = node.take(2, T0);
    let new = NewTurn { parent: asked_by(&fence, None), ..new_turn(3, 3) };
    let grandchild = node.enqueue(&new, T0).unwrap();
    Family { parent, call, child, fence, grandchild }
}

fn result_of(node: &Node, call: &ToolCallId) -> Value {
    let call = call.clone();
    let card = node.read(move |rx| Ok(card::results(rx, &[&call])?.pop().unwrap()));
    serde_json::from_str(&card.content).unwrap()
}

fn put(node: &Node, due: &Due, now_ms: i64) {
    let due = due.clone();
    node.write(move |tx| sweep::put_aside(tx, &due, &code::UNWRITABLE, now_ms)).unwrap();
}

/// Puts aside what somebody has.
fn put_held(node: &Node, fence: &Fence, now_ms: i64) {
    let fence = fence.clone();
    let put = node.write(move |tx| turn::put_aside(tx, &fence, &code::UNWRITABLE, now_ms));
    assert!(put.unwrap());
}

#[test]
fn whoever_waits_for_a_turn_that_is_put_aside_is_answered_and_its_children_are_stopped() {
    both(|node| {
        let of = family(node);
        let now_ms = T0 + 5;
        put_held(node, &of.fence, now_ms);
        node.assert_well();
        let row = node.row(&of.child);
        assert_eq!(row.status, InboxStatus::Error);
        assert_eq!(node.head(1).status(), "suspended", "the answer stands ready");
        assert_eq!(node.sweep(now_ms), 2, "the answer and the stop");
        assert_eq!(node.head(1).status(), "dispatched");
        let told = result_of(node, &of.call);
        assert_eq!(
            (&told["status"], &told["error"]["code"]),
            (&json!("failed"), &json!("kernel.unwritable"))
        );
        assert_eq!(told["result"]["agent_turn_id"], of.child.as_str());
        let delivered = node.deliverable(&of.child).unwrap().card_id;
        assert_eq!(told["result"]["deliverable_card_id"], delivered.as_str());
        let stopped = (Some(Outcome::Canceled), Some("kernel.stopped".to_owned()));
        assert_eq!(node.ended(&of.grandchild), stopped);
        let fence = node.take(9, now_ms);
        assert_eq!(fence.agent_turn_id, of.parent);
        node.commit(&fence, success(), now_ms).unwrap();
        node.assert_well();
    });
}

/// Also one that never began.
#[test]
fn whoever_waits_for_a_turn_that_cannot_begin_is_answered() {
    both(|node| {
        node.ask(1, 1, T0);
        let waits = node.take(1, T0);
        let call = node.suspend(&waits, &[0], T0).remove(0);
        node.ask(2, 2, T0);
        node.pack([3, 4]);
        let new = NewTurn { parent: asked_by(&waits, Some(&call)), ..new_turn(3, 2) };
        let child = node.enqueue(&new, T0).unwrap();
        let next = node.enqueue(&new_turn(4, 2), T0).unwrap();
        put(node, &Due::Queue(key(2)), T0 + 5);
        node.assert_well();
        assert_eq!(node.row(&child).error_code.as_deref(), Some("kernel.unwritable"));
        assert_eq!(node.row(&next).status, InboxStatus::Queued);
        assert_eq!(node.sweep(T0 + 5), 1);
        assert_eq!(result_of(node, &call)["error"]["code"], "kernel.unwritable");
        assert_eq!(node.head(1).status(), "dispatched");
        node.assert_well();
    });
}

/// In two transactions whoever looks between them sees an agent with nothing to do for whom a turn waits.
#[test]
fn an_agent_whose_turn_is_put_aside_begins_the_next_at_once() {
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let next = node.ask(2, 1, T0);
        let now_ms = T0 + 5;
        let alone = fence.clone();
        let seen = node.write::<()>(move |tx| {
            assert!(turn::put_aside(tx, &alone, &code::UNWRITABLE, now_ms)?);
            let between = audit::run(tx)?.problems.join("\n");
            sweep::begin_next(tx, &alone.key, now_ms)?;
            let after = audit::run(tx)?.problems;
            assert_eq!(after, Vec::<String>::new());
            Err(Error::refused(&code::MALFORMED, between))
        });
        let seen = seen.unwrap_err().to_string();
        assert!(seen.contains("is idle, and turns wait for it"), "{seen}");
        node.write(move |tx| {
            turn::put_aside(tx, &fence, &code::UNWRITABLE, now_ms)?;
            sweep::begin_next(tx, &fence.key, now_ms)
        })
        .unwrap();
        node.assert_well();
        assert_eq!(node.head(1).status(), "dispatched");
        assert_eq!(node.take(2, now_ms).agent_turn_id, next);
    });
}

/// Headers that somebody has changed answer nobody else's call.
#[test]
fn a_turn_that_is_put_aside_answers_no_call_of_a_stranger() {
    both(|node| {
        node.ask(5, 5, T0 - 10);
        let stranger = node.take(5, T0 - 10);
        let other = node.suspend(&stranger, &[0], T0 - 10).remove(0);
        let of = family(node);
        let (mine, others) = (of.call.to_string(), other.to_string());
        node.write(move |tx| {
            tx.exec(
                "UPDATE agent_inbox SET context_headers = replace(context_headers, $1, $2)
                 WHERE correlation_id = 'c2'",
                args![&mine, &others],
            )?;
            Ok(())
        })
        .unwrap();
        put_held(node, &of.fence, T0 + 5);
        node.sweep(T0 + 5);
        assert_eq!((node.head(1).status(), node.head(5).status()), ("suspended", "suspended"));
    });
}

fn due_of(node: &Node, forked: &Forked) -> Due {
    Due::Batch(batch_of(node, &forked.asked).unwrap().0.batch_id)
}

#[test]
fn a_batch_that_is_put_aside_ends_as_its_tasks_did_and_answers() {
    office::both(|node| {
        let late = T0 + WAIT_MS;
        let none = fork(node, 1, 2, json!({}));
        let some = fork(node, 2, 2, json!({}));
        some.end(node, 1, Outcome::Success, T0 + 3);
        let fast = fork(node, 3, 2, json!({ "fail_fast": true }));
        let wanted = [
            (&none, Outcome::Timeout, [Outcome::Timeout; 2]),
            (&some, Outcome::Partial, [Outcome::Timeout, Outcome::Success]),
            (&fast, Outcome::Failed, [Outcome::Timeout; 2]),
        ];
        for (forked, outcome, ends) in wanted {
            put(node, &due_of(node, forked), late);
            let ends = ends.into_iter().map(Some).collect();
            assert_eq!(forked.ended(node), (Some(outcome), ends));
            assert_eq!(forked.status(node), "suspended", "the answer stands ready");
        }
        node.assert_well();
        node.sweep(late);
        for (forked, outcome, _) in wanted {
            assert_eq!(forked.status(node), "dispatched");
            let told = answer(node, &forked.asked).unwrap();
            assert_eq!(told["status"], outcome.as_str());
            assert_eq!(told["error"]["code"], "kernel.unwritable");
            assert_eq!(told["result"]["results"].as_array().unwrap().len(), 2);
        }
        // Whoever still worked for them is stopped.
        for turn in none.turns.iter().chain(&some.turns[..1]).chain(&fast.turns) {
            assert_eq!(node.ended(turn).1.as_deref(), Some("kernel.stopped"));
        }
    });
}

/// Its name is none, so nothing else can be done about it.
#[test]
fn a_batch_without_a_name_is_put_aside_by_a_sweep() {
    both(|node| {
        office::furnish(node);
        let bad = fork(node, 1, 2, json!({}));
        let good = fork(node, 2, 1, json!({}));
        node.plant(
            "UPDATE pmo_batch_tasks SET batch_id = 'rubbish' WHERE agent_turn_id IN
            (SELECT i.agent_turn_id FROM agent_inbox AS i WHERE i.parent_agent_turn_id =
              (SELECT p.agent_turn_id FROM agent_inbox AS p WHERE p.correlation_id = 'c1'))",
        );
        node.plant("UPDATE pmo_batches SET batch_id = 'rubbish' WHERE parent_agent_id = 'a1'");
        let late = T0 + WAIT_MS;
        let due = node.read(move |rx| sweep::due(rx, late, 9));
        assert!(due.contains(&Due::BadBatch("rubbish".to_owned())), "{due:?}");
        let batches: Vec<Due> =
            due.into_iter().filter(|due| matches!(due, Due::BadBatch(_) | Due::Batch(_))).collect();
        assert_eq!(batches.len(), 2);
        node.write(move |tx| sweep::settle(tx, &batches, late)).unwrap();
        let left = node.read(|rx| {
            Ok(rx.all::<(String,)>(
                "SELECT batch_id FROM pmo_batches WHERE status = 'running'",
                args![],
            )?)
        });
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(good.status(node), "dispatched", "nobody else waits for it");
        // Whoever waits for it is answered all the same.
        for _ in 0..4 {
            node.sweep(late);
        }
        assert_eq!(bad.status(node), "dispatched");
        let told = answer(node, &bad.asked).unwrap();
        assert_eq!(told["error"]["code"], "kernel.malformed_row");
    });
}

#[test]
fn a_task_that_is_put_aside_counts_for_its_batch() {
    office::both(|node| {
        let now_ms = T0 + 5;
        let put_task = |forked: &Forked, task: usize| {
            put_held(node, &forked.fences[&forked.turns[task]], now_ms);
            node.assert_well();
        };
        let (failed, well) = (Some(Outcome::Failed), Some(Outcome::Success));
        // One that goes on without it.
        let first = fork(node, 1, 2, json!({}));
        put_task(&first, 0);
        assert_eq!(node.sweep(now_ms), 0);
        assert_eq!(first.ended(node), (None, vec![failed, None]));
        first.end(node, 1, Outcome::Success, now_ms);
        assert_eq!(first.ended(node), (Some(Outcome::Partial), vec![failed, well]));
        // One that waited for it alone.
        let last = fork(node, 2, 2, json!({}));
        last.end(node, 1, Outcome::Success, now_ms);
        put_task(&last, 0);
        assert_eq!(last.status(node), "suspended");
        assert_eq!(node.sweep(now_ms), 1);
        assert_eq!(last.ended(node), (Some(Outcome::Partial), vec![failed, well]));
        let told = answer(node, &last.asked).unwrap();
        assert_eq!(told["result"]["results"][0]["error"]["code"], "kernel.unwritable");
        // One that must not have a failure in it.
        let fast = fork(node, 3, 2, json!({ "fail_fast": true }));
        put_task(&fast, 0);
        assert!(node.sweep(now_ms) >= 2, "the batch and the stop");
        assert_eq!(fast.ended(node), (failed, vec![failed, Some(Outcome::Canceled)]));
        assert_eq!(node.ended(&fast.turns[1]).1.as_deref(), Some("kernel.stopped"));
        for forked in [&first, &last, &fast] {
            assert_eq!(forked.status(node), "dispatched");
        }
    });
}

#[test]
fn batches_of_a_turn_that_is_put_aside_are_canceled() {
    office::both(|node| {
        let forked = fork(node, 1, 2, json!({}));
        forked.end(node, 0, Outcome::Success, T0 + 3);
        put(node, &Due::Stuck(forked.asked.fence.key.clone()), T0 + 5);
        node.assert_well();
        let ends = vec![Some(Outcome::Success), Some(Outcome::Canceled)];
        assert_eq!(forked.ended(node), (Some(Outcome::Canceled), ends));
        assert_eq!(node.sweep(T0 + 5), 1);
        assert_eq!(node.ended(&forked.turns[1]).1.as_deref(), Some("kernel.stopped"));
        assert!(answer(node, &forked.asked).is_none());
    });
}

/// Calls that no turn waits for are dropped: more of them than are looked at together hide nothing.
#[test]
fn calls_that_nobody_waits_for_hide_no_others() {
    const ORPHANS: usize = 250;
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let call = node.suspend(&fence, &[0], T0).remove(0);
        node.write(|tx| {
            for n in 0..ORPHANS {
                let name = format!("call_{n:032x}");
                tx.exec(
                    "INSERT INTO turn_waiting_tools (tool_call_id, project_id, agent_id, agent_turn_id,
                       turn_epoch, step_id, tool_name, after_execution, target_subject, wait_status,
                       deadline_ms, created_ms)
                     VALUES ($1, 'p', 'a2', 'turn_00000000000000000000000000000001', 1,
                       'step_00000000000000000000000000000001', 'x', 'suspend', 'cmd.tool.a.b', 'waiting', 7, 7)",
                    args![&name],
                )?;
            }
            Ok(())
        })
        .unwrap();
        let late = T0 + TIMEOUT_MS;
        // As a worker looks: so many of each kind at once.
        for _ in 0..3 {
            let due = node.read(move |rx| sweep::due(rx, late, 200));
            node.write(move |tx| sweep::settle(tx, &due, late)).unwrap();
        }
        assert_eq!(result_of(node, &call)["status"], "timeout");
        assert_eq!(node.head(1).status(), "dispatched");
        assert!(node.read(move |rx| sweep::due(rx, late, 200)).is_empty());
    });
}

/// A look at the queues is bounded, whoever waits for how much, and comes round.
#[test]
fn queues_are_looked_at_in_parts() {
    both(|node| {
        for agent in 0..8 {
            let first = 10 * agent;
            node.pack(first..first + 4);
            let new: Vec<NewTurn> = (first..first + 4).map(|n| new_turn(n, agent)).collect();
            assert!(node.enqueue_all(&new, T0).iter().all(Result::is_ok));
        }
        // Agents 3 and 7 were overlooked.
        let back =
            "UPDATE agent_inbox SET status = 'queued' WHERE correlation_id IN ('c30', 'c70')";
        assert_eq!(node.plant(back), 2);
        let forget = "UPDATE agent_state_head SET status = 'idle', active_agent_turn_id = NULL,
            active_inbox_id = NULL, seq = NULL, channel_id = NULL, recursion_depth = NULL,
            profile_name = NULL, context_box_id = NULL, output_box_id = NULL, due_ms = NULL
            WHERE agent_id IN ('a3', 'a7')";
        assert_eq!(node.plant(forget), 2);
        let (mut place, mut seen) = (sweep::Place::default(), Vec::new());
        for _ in 0..3 {
            let from = place.clone();
            let (due, next) = node.read(move |rx| sweep::due_from(rx, &from, T0, 3));
            seen.push(due);
            place = next;
        }
        assert_eq!(seen, [vec![], vec![Due::Queue(key(3))], vec![Due::Queue(key(7))]]);
        assert_eq!(place, sweep::Place::default(), "and from the beginning");
        node.write(|tx| sweep::settle(tx, &[Due::Queue(key(3)), Due::Queue(key(7))], T0)).unwrap();
        node.assert_well();
    });
}

/// Each with the words that tell of it.
const PLANTS: [(&str, Plant); 3] = [
    ("is over, and the call that it answers still waits", close_child),
    ("goes on, the turn that asked for it is over, and nobody stops it", close_child),
    ("is told under another trace than its turn was asked under", |tx| {
        sql(
            tx,
            "UPDATE event SET body = replace(body, '\"traceparent\":\"00-', '\"traceparent\":\"00-f')
             WHERE kind = 'turn.queued'",
        );
    }),
];

/// A turn is put aside as it was before: alone.
fn close_child(tx: &mut guild_store::Tx<'_>) {
    sql(
        tx,
        "UPDATE agent_inbox SET status = 'error', outcome = 'failed', error_code = 'kernel.unwritable', closed_ms = 7
         WHERE correlation_id = 'c2'",
    );
}

#[test]
fn the_audit_sees_who_is_forgotten() {
    both(|node| {
        family(node);
        node.assert_well();
        for (words, plant) in PLANTS {
            let found = found(node, plant);
            assert!(found.contains(words), "{words:?} is not in:\n{found}");
        }
    });
}
