//! Several agents at once: all orders of ends, failures, deadlines, stops, and commands that come twice.

use guild_kernel::code;
use guild_kernel::inbox::Outcome::{Canceled, Failed, Partial, Success, Timeout};
use guild_kernel::pmo::{self, Handled};
use guild_kernel::turn::{LOST_LEASES_MAX, Report, Reported, Stopped};
use guild_store::args;
use serde_json::{Value, json};

use crate::office::{
    Asked, WAIT_MS, answer, ask, batch_of, both, carry_out, command, deliver, ends, fork, handle,
    look, make, take_all, tasks,
};
use crate::world::{T0, TTL_MS, block_on, report, success};

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

#[test]
fn the_last_of_them_ends_the_wait_in_every_order() {
    both(|node| {
        for (n, order) in (1..).zip(ORDERS) {
            let forked = fork(node, n, 3, json!({}));
            for (at, task) in order.into_iter().enumerate() {
                assert_eq!(forked.status(node), "suspended", "{order:?} {at}");
                forked.end(node, task, Success, T0 + 3);
            }
            assert_eq!(forked.status(node), "dispatched");
            assert_eq!(forked.ended(node), (Some(Success), vec![Some(Success); 3]));
            let told = answer(node, &forked.asked).unwrap();
            assert_eq!((&told["status"], &told["error"]), (&json!("success"), &Value::Null));
            let results = told["result"]["results"].as_array().unwrap();
            for (task, result) in results.iter().enumerate() {
                assert_eq!(result["task_index"], json!(task));
                assert_eq!(result["agent_turn_id"], json!(forked.turns[task]));
                assert_eq!(result["summary"], json!({ "text": format!("{task} is done") }));
            }
            // The turn goes on with it, and ends.
            let fence = node.take(1_000 * n + 200, T0 + 4);
            assert_eq!(fence.agent_turn_id, forked.asked.fence.agent_turn_id);
            node.commit(&fence, success(), T0 + 5).unwrap();
        }
        let edges = node.read(|rx| {
            let sql = "SELECT edge_phase, count(*) FROM execution_edges WHERE primitive = 'join'
                       GROUP BY edge_phase ORDER BY edge_phase";
            Ok(rx.all::<(String, i64)>(sql, args![])?)
        });
        assert_eq!(edges, [("request".to_owned(), 6), ("response".to_owned(), 6)]);
    });
}

#[test]
fn a_batch_has_up_to_eight_tasks() {
    both(|node| {
        let forked = fork(node, 1, 8, json!({}));
        for task in 0..8 {
            forked.end(node, task, Success, T0 + 3);
        }
        assert_eq!(forked.ended(node).0, Some(Success));
    });
}

#[test]
fn without_fail_fast_all_are_waited_for() {
    both(|node| {
        let cases = [
            ([Failed, Success, Success], Partial),
            ([Failed, Failed, Partial], Failed),
            ([Partial, Partial, Partial], Partial),
            ([Timeout, Timeout, Partial], Timeout),
        ];
        for (n, (outcomes, wanted)) in (1..).zip(cases) {
            let forked = fork(node, n, 3, json!({}));
            for (task, outcome) in outcomes.into_iter().enumerate() {
                assert_eq!(forked.status(node), "suspended");
                forked.end(node, task, outcome, T0 + 3);
            }
            assert_eq!(forked.ended(node), (Some(wanted), outcomes.map(Some).to_vec()));
            let told = answer(node, &forked.asked).unwrap();
            assert_eq!(told["status"], json!(wanted.as_str()));
            assert_eq!(told["error"]["code"], json!(code::BATCH_FAILED.name));
            let first = &told["result"]["results"][0];
            assert_eq!(first["status"], json!(outcomes[0].as_str()));
            assert_eq!(first["error"]["code"], json!("test.broken"));
            node.stop(&forked.asked.fence.agent_turn_id, T0 + 4).unwrap();
        }
    });
}

#[test]
fn with_fail_fast_the_first_failure_stops_the_others() {
    both(|node| {
        for (n, bad) in (1..).zip([Failed, Timeout, Canceled]) {
            let forked = fork(node, n, 4, json!({ "fail_fast": true }));
            forked.end(node, 3, Success, T0 + 3);
            assert_eq!(forked.status(node), "suspended");
            forked.end(node, 1, bad, T0 + 4);
            let ends = vec![Some(Canceled), Some(bad), Some(Canceled), Some(Success)];
            assert_eq!(forked.ended(node), (Some(Failed), ends));
            assert_eq!(forked.status(node), "dispatched", "at once");
            let told = answer(node, &forked.asked).unwrap();
            assert_eq!(told["status"], "failed");
            assert_eq!(told["result"]["results"][0]["error"]["code"], code::BATCH_OVER.name);
            // One of the others is faster than its stop; that changes nothing of the batch.
            forked.end(node, 0, Success, T0 + 4);
            assert_eq!(node.sweep(T0 + 4), 1);
            assert_eq!(node.ended(&forked.turns[0]).0, Some(Success));
            assert_eq!(node.ended(&forked.turns[2]).0, Some(Canceled));
            assert_eq!(forked.ended(node).1[0], Some(Canceled));
            assert_eq!(answer(node, &forked.asked).unwrap(), told);
            node.stop(&forked.asked.fence.agent_turn_id, T0 + 5).unwrap();
            look(node);
        }
        // A part is no failure.
        let forked = fork(node, 4, 2, json!({ "fail_fast": true }));
        forked.end(node, 0, Partial, T0 + 6);
        assert_eq!(forked.status(node), "suspended");
        forked.end(node, 1, Success, T0 + 6);
        assert_eq!(forked.ended(node).0, Some(Partial));
    });
}

#[test]
fn what_is_missing_at_the_deadline_is_given_up() {
    both(|node| {
        for (n, (done, wanted)) in (1..).zip([(0, Timeout), (2, Partial)]) {
            let forked = fork(node, n, 3, json!({ "deadline_seconds": 5 }));
            for task in 0..done {
                forked.end(node, task, Success, T0 + 3);
            }
            assert_eq!(node.sweep(T0 + 5_000), 0, "not yet");
            let count = 1 + (3 - done);
            assert_eq!(
                node.sweep(T0 + 5_001),
                count,
                "the batch, and a stop for each that is left"
            );
            let (batch, ends) = forked.ended(node);
            assert_eq!(batch, Some(wanted));
            assert_eq!(ends.iter().filter(|end| **end == Some(Timeout)).count(), 3 - done);
            assert_eq!(answer(node, &forked.asked).unwrap()["status"], json!(wanted.as_str()));
            for turn in &forked.turns[done..] {
                assert_eq!(node.ended(turn).0, Some(Canceled));
            }
            assert_eq!(forked.status(node), "dispatched");
            look(node);
            node.stop(&forked.asked.fence.agent_turn_id, T0 + 5_002).unwrap();
        }
    });
}

#[test]
fn a_batch_is_over_before_its_call_is() {
    both(|node| {
        // Longer than the call is awaited, and as long as batches are if nobody says how long.
        for (n, more) in (1..).zip([json!({ "deadline_seconds": 4_000 }), json!({})]) {
            let forked = fork(node, n, 2, more);
            forked.end(node, 1, Success, T0 + 3);
            let deadline_ms = batch_of(node, &forked.asked).unwrap().0.deadline_ms;
            assert_eq!(deadline_ms, T0 + WAIT_MS);
            // The wait for the call is swept before the batch, and still what is there is the answer.
            node.sweep(T0 + WAIT_MS);
            let told = answer(node, &forked.asked).unwrap();
            assert_eq!(
                (&told["status"], &told["result"]["results"][1]["status"]),
                (&json!("partial"), &json!("success"))
            );
            assert_eq!(forked.ended(node), (Some(Partial), vec![Some(Timeout), Some(Success)]));
            look(node);
            node.stop(&forked.asked.fence.agent_turn_id, T0 + WAIT_MS + 1).unwrap();
        }
    });
}

#[test]
fn only_one_of_both_sweeps_is_needed() {
    use guild_kernel::turn::sweep::{self, Due};
    both(|node| {
        for (n, by_call) in [(1, true), (2, false)] {
            let forked = fork(node, n, 1, json!({}));
            let batch_id = batch_of(node, &forked.asked).unwrap().0.batch_id;
            let due = if by_call {
                Due::Call(forked.asked.call.clone())
            } else {
                Due::Batch(batch_id.clone())
            };
            let now_ms = T0 + WAIT_MS;
            let found = node.read(move |rx| sweep::due(rx, now_ms, 100));
            assert!(found.contains(&due), "{found:?}");
            let one = [due];
            node.write(move |tx| sweep::settle(tx, &one, now_ms)).unwrap();
            assert_eq!(forked.ended(node).0, Some(Timeout));
            let again = [Due::Batch(batch_id), Due::Call(forked.asked.call.clone())];
            let gone = node.write(move |tx| sweep::settle(tx, &again, now_ms)).unwrap();
            assert_eq!(gone, [sweep::Swept::Gone; 2]);
            look(node);
            node.sweep(now_ms);
        }
    });
}

#[test]
fn a_task_whose_workers_are_lost_or_that_is_taken_back_has_failed() {
    both(|node| {
        let asked = ask(
            node,
            1,
            pmo::FORK_JOIN,
            json!({ "tasks": [
                { "target_strategy": "new", "target_ref": "coder", "instruction": "be lost" },
                { "target_strategy": "reuse", "target_ref": "a6", "instruction": "be queued" },
                { "target_strategy": "reuse", "target_ref": "a7", "instruction": "be retired" },
            ]}),
        );
        // The agents of two of them are busy.
        let busy = [node.ask(6, 6, T0), node.ask(7, 7, T0)];
        let fences = take_all(node, 60, T0);
        carry_out(node, &asked, T0 + 1);
        let (_, tasks) = batch_of(node, &asked).unwrap();
        node.cancel(&tasks[1].agent_turn_id, T0 + 2).unwrap();
        node.write(|tx| guild_kernel::roster::retire(tx, &crate::world::key(7))).unwrap();
        node.commit(&fences[&busy[1]], success(), T0 + 3).unwrap();
        look(node);
        let (_, now) = batch_of(node, &asked).unwrap();
        assert_eq!(
            now.iter().map(|t| t.outcome).collect::<Vec<_>>(),
            [None, Some(Canceled), Some(Failed)]
        );
        assert_eq!(now[2].error_code.as_deref(), Some(code::UNKNOWN_AGENT.name));
        let mut now_ms = T0 + 4;
        for n in 0..LOST_LEASES_MAX {
            let claimed = take_all(node, 100 + 100 * u32::try_from(n).unwrap(), now_ms);
            assert!(claimed.contains_key(&tasks[0].agent_turn_id), "{n}");
            now_ms += TTL_MS;
            node.sweep(now_ms);
        }
        let (batch, now) = batch_of(node, &asked).unwrap();
        assert_eq!(now[0].error_code.as_deref(), Some(code::LOST_TOO_OFTEN.name));
        assert_eq!(batch.outcome, Some(Failed));
    });
}

#[test]
fn a_stop_of_whoever_waits_ends_the_batch_and_its_tasks() {
    both(|node| {
        let forked = fork(node, 1, 3, json!({}));
        forked.end(node, 0, Success, T0 + 3);
        // One of them waits for others in its turn.
        let below = json!({ "tasks": [
            { "target_strategy": "reuse", "target_ref": "a5", "instruction": "below" },
        ]});
        let set = node
            .plant("UPDATE project_agents SET profile_name = 'lead' WHERE owner_agent_id = 'a1'");
        assert_eq!(set, 3);
        let set = node
            .plant("UPDATE agent_state_head SET profile_name = 'lead' WHERE status = 'running'");
        assert_eq!(set, 2);
        let asked = make(node, &forked.fences[&forked.turns[1]], pmo::FORK_JOIN, below, T0 + 3);
        carry_out(node, &asked, T0 + 3);
        let inner = batch_of(node, &asked).unwrap().1[0].agent_turn_id.clone();
        let parent = &forked.asked.fence.agent_turn_id;
        assert_eq!(node.stop(parent, T0 + 4), Ok(Stopped::Stopped));
        look(node);
        let ended = vec![Some(Success), Some(Canceled), Some(Canceled)];
        assert_eq!(forked.ended(node), (Some(Canceled), ended));
        assert_eq!(answer(node, &forked.asked), None, "nobody is told");
        assert_eq!(node.sweep(T0 + 4), 3);
        for turn in [&forked.turns[1], &forked.turns[2], &inner] {
            assert_eq!(node.ended(turn).0, Some(Canceled));
        }
        assert_eq!(batch_of(node, &asked).unwrap().0.outcome, Some(Canceled));
        assert_eq!(node.sweep(T0 + WAIT_MS), 0);
    });
}

#[test]
fn a_task_and_its_parent_may_be_stopped_in_one_go() {
    both(|node| {
        for (n, child_first) in [(1, true), (2, false)] {
            let forked = fork(node, n, 1, json!({}));
            let mut ids = vec![forked.turns[0].clone(), forked.asked.fence.agent_turn_id.clone()];
            if !child_first {
                ids.reverse();
            }
            let stops: Vec<_> = ids
                .into_iter()
                .map(|agent_turn_id| guild_kernel::turn::Stop {
                    agent_turn_id,
                    reason: "enough".to_owned(),
                })
                .collect();
            node.write(move |tx| guild_kernel::turn::stop_all(tx, &stops, T0 + 3)).unwrap();
            assert_eq!(forked.ended(node), (Some(Canceled), vec![Some(Canceled)]));
            look(node);
        }
        assert_eq!(node.sweep(T0 + 4), 0);
    });
}

#[test]
fn an_answer_from_elsewhere_ends_the_batch() {
    both(|node| {
        let forked = fork(node, 1, 2, json!({}));
        let other =
            Report { result: json!("enough"), ..report(&forked.asked.fence, &forked.asked.call) };
        assert_eq!(node.report(&other, T0 + 3), Reported::Applied { resumed: true });
        assert_eq!(forked.ended(node), (Some(Canceled), vec![Some(Canceled); 2]));
        look(node);
        assert_eq!(node.sweep(T0 + 4), 2);
        assert_eq!(answer(node, &forked.asked).unwrap()["result"], "enough");
    });
}

#[test]
fn commands_that_come_twice_or_at_once_make_one_batch() {
    both(|node| {
        let asked = ask(node, 1, pmo::FORK_JOIN, json!({ "tasks": tasks(2) }));
        assert_eq!(handle(node, &asked, T0 + 1), Ok(Handled::Done));
        let before = node.dump();
        assert_eq!(handle(node, &asked, T0 + 2), Ok(Handled::Gone));
        deliver(node, command(node, &asked.call), T0 + 3).unwrap();
        assert_eq!(node.dump(), before);
        // Two nodes deliver it at once.
        for n in 2..6 {
            let asked = ask(node, n, pmo::FORK_JOIN, json!({ "tasks": tasks(3) }));
            let message = command(node, &asked.call);
            let handled: Vec<Handled> = block_on(async {
                let go = || {
                    let message = message.clone();
                    node.store.write(move |tx| pmo::handle(tx, &message, T0 + 4))
                };
                let (one, two, three) = (go(), go(), go());
                let all: [guild_kernel::Result<Handled>; 3] = [one.await, two.await, three.await];
                all.into_iter().map(Result::unwrap).collect()
            });
            assert_eq!(handled.iter().filter(|handled| **handled == Handled::Done).count(), 1);
            assert_eq!(batch_of(node, &asked).unwrap().1.len(), 3);
            look(node);
        }
        let batches: Vec<(i64,)> =
            node.read(|rx| Ok(rx.all("SELECT count(*) FROM pmo_batches", args![])?));
        assert_eq!(batches, [(5,)]);
    });
}

#[test]
fn other_calls_of_the_same_step_are_waited_for_too() {
    use guild_kernel::turn::{Committed, NewTurn, Then};
    both(|node| {
        node.pack([1]);
        let new = NewTurn { profile_name: Some("lead".to_owned()), ..crate::world::new_turn(1, 1) };
        node.enqueue(&new, T0).unwrap();
        let fence = node.take(1, T0);
        let fork = |place| guild_kernel::turn::Call {
            place,
            ..crate::office::call(pmo::FORK_JOIN, json!({ "tasks": tasks(1) }), WAIT_MS)
        };
        let then = Then::Suspend(vec![fork(0), crate::world::call(1), fork(2)]);
        let Committed::Suspended { calls, .. } = node.commit(&fence, then, T0).unwrap() else {
            panic!("it should wait");
        };
        let sinks = node.read(|rx| {
            let sql = "SELECT sink, key FROM outbox ORDER BY seq";
            Ok(rx.all::<(String, String)>(sql, args![])?)
        });
        let lane = |sink: &str, key: &str| (sink.to_owned(), key.to_owned());
        let wanted = [
            lane(pmo::SINK, calls[0].as_str()),
            lane("tool", "p.public.cmd.tool.shop.tool1"),
            lane(pmo::SINK, calls[2].as_str()),
        ];
        assert_eq!(sinks, wanted);
        let asked = |at: usize| Asked { fence: fence.clone(), call: calls[at].clone() };
        for at in [0, 2] {
            carry_out(node, &asked(at), T0 + 1);
        }
        let fences = take_all(node, 100, T0 + 2);
        for fence in fences.values() {
            node.commit(fence, success(), T0 + 3).unwrap();
            look(node);
        }
        assert_eq!(node.head(1).status(), "suspended");
        node.report(&report(&fence, &calls[1]), T0 + 4);
        assert_eq!(node.head(1).status(), "dispatched");
    });
}

#[test]
fn large_deliverables_are_named_and_not_repeated() {
    both(|node| {
        let forked = fork(node, 1, 1, json!({}));
        let fence = &forked.fences[&forked.turns[0]];
        node.commit(fence, ends(Success, &"x".repeat(900_000)), T0 + 3).unwrap();
        let told = answer(node, &forked.asked).unwrap();
        let result = &told["result"]["results"][0];
        assert_eq!((&result["summary"], &result["summary_bytes"]), (&Value::Null, &json!(900_011)));
        let card = node.deliverable(&forked.turns[0]).unwrap();
        assert_eq!(result["deliverable_card_id"], json!(card.card_id));
    });
}
