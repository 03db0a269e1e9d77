//! Waiting for calls: results in any order, early, late, twice, by strangers, or never.

use guild_kernel::inbox::{InboxStatus, Outcome};
use guild_kernel::roster::AfterExecution;
use guild_kernel::turn::wait::{self, WaitStatus};
use guild_kernel::turn::{self, Call, Committed, Report, Reported, Then, head::State};
use guild_kernel::{AgentTurnId, ToolCallId, card, code};
use guild_store::args;
use serde_json::{Value, json};

use crate::world::{Node, T0, TIMEOUT_MS, both, call, new_turn, report, success};

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

fn wait_of(node: &Node, call: &ToolCallId) -> wait::Wait {
    let call = call.clone();
    node.read(move |rx| Ok(wait::find_all(rx, &[&call])?.remove(0)))
}

fn result_of(node: &Node, call: &ToolCallId) -> Value {
    let call = call.clone();
    let card = node.read(move |rx| Ok(card::results(rx, &[&call])?.remove(0)));
    serde_json::from_str(&card.content).unwrap()
}

fn skipped(code: &'static guild_protocol::error::Code) -> Reported {
    Reported::Skipped(code)
}

#[test]
fn three_calls_are_answered_in_every_order() {
    both(|node| {
        for (n, order) in (1..).zip(ORDERS) {
            let id = node.ask(n, 1, T0);
            let fence = node.take(n, T0);
            let calls = node.suspend(&fence, &[0, 1, 2], T0 + 1);
            for (i, place) in order.into_iter().enumerate() {
                let reported = node.report(&report(&fence, &calls[place]), T0 + 2);
                assert_eq!(reported, Reported::Applied { resumed: i == 2 }, "{order:?}");
            }
            node.assert_well();
            let next = node.take(100 + n, T0 + 3);
            assert_eq!(next.turn_epoch, fence.turn_epoch + 1, "resumed under another lease");
            node.commit(&next, success(), T0 + 4).unwrap();
            let (epoch, after) = (fence.turn_epoch, next.turn_epoch);
            let told = node.told(&id);
            let wanted = [
                "queued".to_owned(),
                format!("{epoch}/running"),
                format!("{epoch}/suspended"),
                format!("{epoch}/dispatched"),
                format!("{after}/running"),
                "task".to_owned(),
            ];
            assert_eq!(told, wanted);
            let output = node.output(n);
            assert_eq!(output.iter().filter(|card| **card == "tool.result").count(), 3);
            assert_eq!(output.iter().filter(|card| **card == "tool.call").count(), 3);
        }
        node.assert_well();
    });
}

#[test]
fn commands_leave_with_the_commit_and_say_who_calls_beside_what() {
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let calls = node.suspend(&fence, &[0, 1], T0);
        let sent = node.read(|rx| {
            let sql = "SELECT sink, key, idempotency_key, body FROM outbox ORDER BY seq";
            Ok(rx.all::<(String, String, String, String)>(sql, args![])?)
        });
        assert_eq!(sent.len(), 2);
        let (sink, key, idempotency_key, body) = &sent[0];
        assert_eq!(
            (sink.as_str(), key.as_str()),
            (turn::COMMAND_SINK, "p.public.cmd.tool.shop.tool0")
        );
        assert_eq!(idempotency_key, calls[0].as_str());
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["headers"]["agent_turn_id"], json!(fence.agent_turn_id.as_str()));
        let payload: Vec<&String> = body["payload"].as_object().unwrap().keys().collect();
        assert_eq!(payload, ["after_execution", "tool_call_card_id", "tool_name"]);
        // Nobody else can be called.
        for subject in ["cmd.sys.node.halt", "evt.agent.a.task", "cmd.agent.x.wakeup", "a.*"] {
            let mut bad = call(0);
            bad.target_subject = Some(subject.to_owned());
            node.ask(2, 2, T0);
            let other = node.claim(&[2], T0).pop().map_or_else(|| fence.clone(), |c| c.fence);
            assert!(node.commit(&other, Then::Suspend(vec![bad]), T0).is_err(), "{subject}");
        }
        node.assert_well();
    });
}

#[test]
fn a_result_may_come_before_the_turn_waits_for_it() {
    both(|node| {
        let id = node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let early: Vec<ToolCallId> =
            (0..2).map(|place| ToolCallId::of(&fence.step_id, place)).collect();
        assert_eq!(node.report(&report(&fence, &early[0]), T0), Reported::Early);
        assert_eq!(node.report(&report(&fence, &early[0]), T0), Reported::Known);
        node.assert_well();
        let calls = node.suspend(&fence, &[0, 1], T0 + 1);
        assert_eq!(calls, early);
        let State::Suspended { waiting, .. } = node.head(1).active.unwrap().state else {
            panic!("it should wait");
        };
        assert_eq!(waiting, 1, "one was there already");
        assert_eq!(wait_of(node, &calls[0]).status, WaitStatus::Applied);
        assert_eq!(node.report(&report(&fence, &calls[0]), T0 + 2), Reported::Known);
        node.report(&report(&fence, &calls[1]), T0 + 2);
        let fence = node.take(2, T0 + 3);
        // All of them early: the turn does not even stop.
        for place in [0, 1] {
            let call = ToolCallId::of(&fence.step_id, place);
            assert_eq!(node.report(&report(&fence, &call), T0 + 3), Reported::Early);
        }
        let then = Then::Suspend(vec![call(0), call(1)]);
        let committed = node.commit(&fence, then, T0 + 4).unwrap();
        assert!(matches!(committed, Committed::Suspended { resumed: true, .. }));
        // One that is never waited for is not needed when the turn is over.
        let fence = node.take(3, T0 + 5);
        let never = ToolCallId::of(&fence.step_id, 7);
        assert_eq!(node.report(&report(&fence, &never), T0 + 5), Reported::Early);
        node.commit(&fence, success(), T0 + 6).unwrap();
        let left = node.read(|rx| {
            let sql =
                "SELECT status, error_code FROM agent_inbox WHERE message_type = 'tool_result'
                       ORDER BY seq";
            Ok(rx.all::<(String, Option<String>)>(sql, args![])?)
        });
        assert_eq!(left.len(), 5);
        assert_eq!(left[4], ("skipped".to_owned(), Some("kernel.turn_closed".to_owned())));
        assert_eq!(node.ended(&id).0, Some(Outcome::Success));
        node.assert_well();
    });
}

#[test]
fn late_double_and_foreign_results_change_nothing() {
    both(|node| {
        node.ask(1, 1, T0);
        node.ask(2, 2, T0);
        let claimed = node.claim(&[1, 2], T0);
        let (fence, other) = (&claimed[0].fence, &claimed[1].fence);
        let calls = node.suspend(fence, &[0, 1], T0);
        let theirs = node.suspend(other, &[0], T0);
        node.report(&report(fence, &calls[0]), T0 + 1);
        let before = node.dump();
        let again = report(fence, &calls[0]);
        assert_eq!(node.report(&again, T0 + 2), Reported::Known);
        let else_said = Report { result: json!("no"), ..again };
        assert_eq!(node.report(&else_said, T0 + 2), skipped(&code::ANSWERED));
        assert_eq!(node.report(&report(fence, &theirs[0]), T0 + 2), skipped(&code::FOREIGN_CALL));
        let unknown = ToolCallId::of(&fence.step_id, 9);
        assert_eq!(node.report(&report(fence, &unknown), T0 + 2), skipped(&code::UNKNOWN_CALL));
        let id: AgentTurnId = format!("turn_{:032x}", 7).parse().unwrap();
        let stranger = Report { agent_turn_id: id, ..report(fence, &calls[1]) };
        assert_eq!(node.report(&stranger, T0 + 2), skipped(&code::FOREIGN_CALL));
        assert_eq!(node.dump(), before);
        node.stop(&fence.agent_turn_id, T0 + 3).unwrap();
        let before = node.dump();
        assert_eq!(node.report(&report(fence, &calls[1]), T0 + 4), skipped(&code::ANSWERED));
        assert_eq!(node.dump(), before);
        node.assert_well();
    });
}

#[test]
fn the_same_result_twice_in_one_set_is_one() {
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let calls = node.suspend(&fence, &[0, 1], T0);
        let mut huge = report(&fence, &calls[1]);
        huge.result = json!("x".repeat(10_000_000));
        let set = vec![report(&fence, &calls[0]), report(&fence, &calls[0]), huge];
        let answers = node.write(move |tx| turn::report_all(tx, &set, T0 + 1)).unwrap();
        assert_eq!(answers[0], Ok(Reported::Applied { resumed: false }));
        assert_eq!(answers[1], Ok(Reported::Known));
        assert_eq!(answers[2].as_ref().unwrap_err().code(), &code::TOO_LARGE);
        node.assert_well();
    });
}

#[test]
fn a_call_that_nobody_answers_is_answered_by_the_clock() {
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let calls = node.suspend(&fence, &[0, 1], T0);
        assert_eq!(node.sweep(T0 + TIMEOUT_MS - 1), 0);
        node.report(&report(&fence, &calls[0]), T0 + 1);
        assert_eq!(node.sweep(T0 + TIMEOUT_MS), 1);
        assert_eq!(result_of(node, &calls[0])["status"], "success", "the first counts");
        let late = result_of(node, &calls[1]);
        assert_eq!(
            (&late["status"], &late["error"]["code"]),
            (&json!("timeout"), &json!("kernel.tool_timeout"))
        );
        assert_eq!(node.head(1).status(), "dispatched");
        let now_ms = T0 + TIMEOUT_MS + 1;
        assert_eq!(node.report(&report(&fence, &calls[1]), now_ms), skipped(&code::ANSWERED));
        assert_eq!(node.sweep(now_ms), 0);
        node.assert_well();
    });
}

#[test]
fn a_result_that_was_stored_and_not_reported_is_adopted() {
    both(|node| {
        node.ask(1, 1, T0);
        node.ask(2, 2, T0);
        let claimed = node.claim(&[1, 2], T0);
        let fence = claimed[0].fence.clone();
        let calls = node.suspend(&fence, &[0], T0);
        let theirs = node.suspend(&claimed[1].fence, &[0], T0);
        let (call, step, turn) =
            (calls[0].to_string(), fence.step_id.to_string(), fence.agent_turn_id.to_string());
        node.write(move |tx| {
            tx.exec(
                "INSERT INTO cards (card_id, project_id, type, role, author_id, agent_turn_id, step_id,
                   tool_call_id, content, metadata, created_ms)
                 VALUES ('card_00000000000000000000000000000abc', 'p', 'tool.result', 'tool', 'shop',
                   $1, $2, $3, '{\"status\":\"partial\"}', '{}', 5)",
                args![&turn, &step, &call],
            )?;
            Ok(())
        })
        .unwrap();
        assert_eq!(node.sweep(T0 + TIMEOUT_MS), 2);
        let adopted = wait_of(node, &calls[0]).result.unwrap();
        assert_eq!(adopted.0, Outcome::Partial);
        assert_eq!(wait_of(node, &theirs[0]).result.unwrap().0, Outcome::Timeout);
        assert_eq!((node.head(1).status(), node.head(2).status()), ("dispatched", "dispatched"));
        node.assert_well();
    });
}

#[test]
fn a_result_may_end_its_turn() {
    both(|node| {
        let ending = |place| Call { after_execution: AfterExecution::Terminate, ..call(place) };
        let id = node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let then = Then::Suspend(vec![ending(0), call(1)]);
        let Committed::Suspended { calls, .. } = node.commit(&fence, then, T0).unwrap() else {
            panic!("it should wait");
        };
        let failed = Report { status: Outcome::Failed, ..report(&fence, &calls[0]) };
        assert_eq!(node.report(&failed, T0), Reported::Applied { resumed: false });
        assert_eq!(node.row(&id).status, InboxStatus::Processing, "it waits for the other");
        assert_eq!(
            node.report(&report(&fence, &calls[1]), T0),
            Reported::Applied { resumed: true }
        );
        assert_eq!(node.ended(&id), (Some(Outcome::Failed), None));
        // Whoever answers may say so too.
        let id = node.ask(2, 1, T0);
        let fence = node.take(2, T0);
        let calls = node.suspend(&fence, &[0], T0);
        let last = Report {
            after_execution: Some(AfterExecution::Terminate),
            ..report(&fence, &calls[0])
        };
        node.report(&last, T0);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        node.assert_well();
    });
}

#[test]
fn the_end_of_a_turn_answers_the_call_that_asked_for_it() {
    both(|node| {
        node.pack([1, 2]);
        node.enqueue(&new_turn(1, 1), T0).unwrap();
        let fence = node.take(1, T0);
        let calls = node.suspend(&fence, &[0], T0);
        let child = turn::NewTurn {
            parent: Some(turn::Parent {
                agent_id: fence.key.agent_id.clone(),
                agent_turn_id: fence.agent_turn_id.clone(),
                step_id: Some(fence.step_id),
                answers: Some(calls[0].clone()),
            }),
            ..new_turn(2, 2)
        };
        let id = node.enqueue(&child, T0 + 1).unwrap();
        let theirs = node.claim(&[2], T0 + 2).remove(0);
        assert_eq!((theirs.recursion_depth, &theirs.fence.agent_turn_id), (1, &id));
        node.commit(&theirs.fence, success(), T0 + 3).unwrap();
        let result = result_of(node, &calls[0]);
        assert_eq!(result["result"]["agent_turn_id"], json!(id.as_str()));
        assert_eq!(result["status"], "success");
        assert_eq!(node.head(1).status(), "dispatched", "in the same transaction");
        // Nobody waits for the call any more, so nobody can be asked to answer it.
        node.pack([3]);
        let late = turn::NewTurn { parent: child.parent, ..new_turn(3, 3) };
        assert_eq!(node.enqueue(&late, T0 + 4).unwrap_err().code(), &code::PARENT_CLOSED);
        node.assert_well();
    });
}
