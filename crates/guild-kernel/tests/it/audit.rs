//! The audit: silent when all is well, and loud about every kind of lie.

use guild_kernel::{Error, audit, code};
use guild_store::event::{NewEvent, append};
use guild_store::{Tx, args};

use crate::world::{Node, T0, both, new_turn, report, success};

/// One turn that is over, one that runs, one that waits for two of three calls, one that is queued, one that was lost.
fn busy(node: &Node) {
    node.ask(1, 1, T0);
    let fence = node.take(1, T0);
    node.commit(&fence, success(), T0 + 1).unwrap();
    node.ask(2, 2, T0 + 2);
    node.take(2, T0 + 2);
    node.ask(3, 3, T0 + 3);
    let fence = node.take(3, T0 + 3);
    let calls = node.suspend(&fence, &[0, 1, 2], T0 + 4);
    node.report(&report(&fence, &calls[0]), T0 + 5);
    node.pack([4]);
    node.enqueue(&new_turn(4, 3), T0 + 6).unwrap();
    node.ask(5, 4, T0 - 20_000);
    node.take(4, T0 - 20_000);
    node.sweep(T0 + 6);
}

pub(crate) type Plant = fn(&mut Tx<'_>);

pub(crate) fn sql(tx: &mut Tx<'_>, text: &'static str) {
    assert!(tx.exec(text, args![]).unwrap() > 0, "{text}");
}

fn name(tx: &mut Tx<'_>, sql: &'static str) -> String {
    tx.first::<(String,)>(sql, args![]).unwrap().unwrap().0
}

const OVER: &str = "SELECT agent_turn_id FROM agent_inbox WHERE correlation_id = 'c1'";
const OPEN: &str = "SELECT agent_turn_id FROM agent_inbox WHERE correlation_id = 'c2'";
const ABANDONED: &str = "SELECT step_id FROM agent_steps WHERE status = 'abandoned'";

fn tell(tx: &mut Tx<'_>, id: &str, kind: &str, body: &str) {
    let event = NewEvent { topic: guild_kernel::TOPIC, id, kind, at_ms: T0, body };
    append(tx, &event).unwrap();
}

fn body(turn: &str, agent: &str, epoch: i64, status: &str) -> String {
    format!(
        r#"{{"agent_id":"{agent}","agent_turn_id":"{turn}","channel_id":"public","project_id":"p","status":"{status}","turn_epoch":{epoch}}}"#
    )
}

/// A worker that lost its turn and writes all the same.
fn unfenced_append(tx: &mut Tx<'_>) {
    let step = name(tx, ABANDONED);
    tx.exec(
        "INSERT INTO cards (card_id, project_id, type, role, author_id, agent_turn_id, step_id, content,
           metadata, created_ms)
         SELECT 'card_00000000000000000000000000000fff', 'p', 'agent.thought', 'assistant', 'a4',
           agent_turn_id, step_id, '{}', '{}', ended_ms FROM agent_steps WHERE step_id = $1",
        args![&step],
    )
    .unwrap();
}

/// A watchdog that asks for a turn again instead of ringing. The tables refuse it, so they must be changed first.
fn second_copy(tx: &mut Tx<'_>) {
    tx.exec("DROP INDEX agent_inbox_turn", args![]).unwrap();
    sql(
        tx,
        "INSERT INTO agent_inbox (seq, inbox_id, project_id, agent_id, channel_id, message_type,
           correlation_id, agent_turn_id, turn_epoch, context_headers, payload, status, retry_count, created_ms)
         SELECT 900, 'inbox_00000000000000000000000000000900', project_id, agent_id, channel_id,
           message_type, 'copy', agent_turn_id, turn_epoch, context_headers, payload, 'queued', 0, created_ms
         FROM agent_inbox WHERE correlation_id = 'c2'",
    );
}

/// Results that are applied, and a turn that is resumed by somebody who never comes.
fn applied_and_not_resumed(tx: &mut Tx<'_>) {
    sql(
        tx,
        "UPDATE turn_waiting_tools SET wait_status = 'applied', result_status = 'success', closed_ms = 1,
           result_card_id = (SELECT card_id FROM cards WHERE type = 'tool.result')
         WHERE wait_status = 'waiting'",
    );
}

/// Each with the words that tell of it.
const PLANTS: &[(&str, Plant)] = &[
    ("card_00000000000000000000000000000fff was written without a lease", unfenced_append),
    ("card_00000000000000000000000000000002 lies in a box that its turn does not write to", |tx| {
        sql(
            tx,
            "INSERT INTO card_box_entries (box_id, place, card_id)
             SELECT output_box_id, 0, 'card_00000000000000000000000000000002' FROM agent_state_head
             WHERE agent_id = 'a2'",
        );
        sql(
            tx,
            "UPDATE card_boxes SET next_place = next_place + 1 WHERE box_id =
               (SELECT output_box_id FROM agent_state_head WHERE agent_id = 'a2')",
        );
    }),
    ("was written by a step and does not lie in the box of its turn", |tx| {
        sql(
            tx,
            "DELETE FROM card_box_entries WHERE place = 0 AND box_id =
               (SELECT output_box_id FROM agent_state_head WHERE agent_id = 'a3')",
        );
    }),
    ("has several rows", second_copy),
    ("waits for another number of calls than are open", applied_and_not_resumed),
    ("has several terminal events", |tx| {
        tx.exec("DROP INDEX event_turn_task", args![]).unwrap();
        let turn = name(tx, OVER);
        let body = body(&turn, "a1", 1, "failed");
        tell(tx, &format!("{turn}/1/task"), "turn.task", &body);
    }),
    ("is awaited by a turn that does not wait for it", |tx| {
        sql(
            tx,
            "UPDATE turn_waiting_tools SET wait_status = 'waiting', result_card_id = NULL,
               result_status = NULL, closed_ms = NULL, step_id = 'step_x' WHERE wait_status = 'applied'",
        );
    }),
    ("is awaited elsewhere than it was called", |tx| {
        sql(
            tx,
            "UPDATE turn_waiting_tools SET target_subject = 'cmd.tool.a.b' WHERE wait_status = 'applied'",
        );
    }),
    ("has begun, and its agent does not work on it", |tx| {
        sql(tx, "UPDATE agent_state_head SET active_agent_turn_id = 'x' WHERE agent_id = 'a2'");
    }),
    ("is worked on, and its row does not say so", |tx| {
        sql(tx, "UPDATE agent_inbox SET status = 'deferred' WHERE correlation_id = 'c2'");
    }),
    ("is over, and no event says so", |tx| {
        sql(tx, "DELETE FROM event WHERE kind = 'turn.task'");
    }),
    ("is open, and an event says that it is over", |tx| {
        let turn = name(tx, OPEN);
        tell(tx, &format!("{turn}/task"), "turn.task", &body(&turn, "a2", 1, "failed"));
    }),
    ("is an event of a turn that is not there", |tx| {
        let turn = format!("turn_{:032x}", 1);
        tell(tx, &format!("{turn}/queued"), "turn.queued", &body(&turn, "a2", 0, "queued"));
    }),
    ("ended otherwise than its terminal event says", |tx| {
        sql(tx, "UPDATE agent_inbox SET outcome = 'failed' WHERE correlation_id = 'c1'");
    }),
    ("is an event after the end of its turn", |tx| {
        let turn = name(tx, OVER);
        tell(
            tx,
            &format!("{turn}/2/dispatched"),
            "turn.state",
            &body(&turn, "a1", 1, "dispatched"),
        );
    }),
    ("runs in epoch 1 after 1", |tx| {
        let turn = name(tx, OPEN);
        tell(tx, &format!("{turn}/again"), "turn.state", &body(&turn, "a2", 1, "running"));
    }),
    ("is in epoch 1, an event in 7", |tx| {
        let turn = name(tx, OPEN);
        tell(tx, &format!("{turn}/7/step-1"), "turn.step", &body(&turn, "a2", 7, "completed"));
    }),
    ("is over, and has delivered nothing", |tx| {
        sql(tx, "UPDATE cards SET type = 'agent.error' WHERE type = 'task.deliverable'");
    }),
    ("is answered without a report, or reported without an answer", |tx| {
        sql(tx, "DELETE FROM execution_edges WHERE primitive = 'report'");
    }),
    ("is answered, and was not asked at the same depth", |tx| {
        sql(tx, "UPDATE execution_edges SET recursion_depth = 1 WHERE primitive = 'report'");
    }),
    ("is too deep", |tx| {
        sql(tx, "UPDATE execution_edges SET recursion_depth = 20 WHERE primitive = 'enqueue'");
    }),
    ("has a result that is in no box", |tx| {
        sql(
            tx,
            "DELETE FROM card_box_entries WHERE card_id IN (SELECT card_id FROM cards WHERE type = 'tool.result')",
        );
    }),
    ("has gaps", |tx| {
        sql(tx, "UPDATE card_boxes SET next_place = next_place + 1 WHERE next_place = 5");
    }),
    ("has begun, and nobody does it", |tx| {
        sql(
            tx,
            "UPDATE agent_steps SET status = 'started', ended_ms = NULL WHERE status = 'abandoned'",
        );
    }),
    ("has done another number of steps than it says", |tx| {
        sql(tx, "UPDATE agent_state_head SET steps_taken = 7 WHERE agent_id = 'a3'");
    }),
    ("has another deadline than the first of its open calls", |tx| {
        sql(tx, "UPDATE agent_state_head SET resume_deadline_ms = 7 WHERE agent_id = 'a3'");
    }),
    ("is called, and its command was never queued", |tx| {
        sql(tx, "DELETE FROM outbox WHERE sink = 'tool'");
    }),
    ("has a command, and was never called", |tx| {
        sql(tx, "DELETE FROM execution_edges WHERE primitive = 'tool_call'");
    }),
    (" says agent_turn_id in its payload", |tx| {
        sql(
            tx,
            "UPDATE outbox SET body = replace(body, '\"payload\":{', '\"payload\":{\"agent_turn_id\":\"x\",') WHERE sink = 'tool'",
        );
    }),
    (" says project_id in its payload", |tx| {
        sql(
            tx,
            "UPDATE agent_inbox SET payload = '{\"project_id\":\"q\"}' WHERE correlation_id = 'c1'",
        );
    }),
    ("has several results", |tx| {
        tx.exec("DROP INDEX cards_tool_result", args![]).unwrap();
        sql(
            tx,
            "INSERT INTO cards SELECT 'card_00000000000000000000000000000ffe', project_id, type, role, author_id,
               agent_turn_id, step_id, tool_call_id, content, metadata, created_ms
             FROM cards WHERE type = 'tool.result'",
        );
    }),
    ("was asked for by nobody", |tx| {
        sql(tx, "DELETE FROM execution_edges WHERE primitive = 'enqueue'");
    }),
];

/// Plants, audits, and takes everything back.
pub(crate) fn found(node: &Node, plant: Plant) -> String {
    let report = node.write::<()>(move |tx| {
        plant(tx);
        let report = audit::run(tx)?;
        Err(Error::refused(&code::MALFORMED, report.problems.join("\n")))
    });
    report.unwrap_err().to_string()
}

#[test]
fn every_kind_of_lie_is_seen() {
    both(|node| {
        assert_eq!(node.read(audit::run), audit::Report::default());
        busy(node);
        let report = node.read(audit::run);
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!((report.turns, report.over), (5, 1));
        for (words, plant) in PLANTS {
            let found = found(node, *plant);
            assert!(found.contains(words), "{words:?} is not in:\n{found}");
        }
        node.assert_well();
    });
}

/// The turns of an agent begin in the order in which they were asked for, whatever ended before it could begin.
#[test]
fn a_turn_that_overtakes_another_is_seen() {
    both(|node| {
        node.ask(1, 1, T0);
        node.pack(2..6);
        let turns: Vec<_> =
            (2..6).map(|n| node.enqueue(&new_turn(n, 1), T0 + i64::from(n)).unwrap()).collect();
        node.cancel(&turns[0], T0 + 7).unwrap();
        let fence = node.take(1, T0 + 8);
        node.commit(&fence, success(), T0 + 9).unwrap();
        node.assert_well();
        let found = found(node, |tx| {
            const LAST: &str = "SELECT agent_turn_id FROM agent_inbox WHERE correlation_id = 'c5'";
            let turn = name(tx, LAST);
            tell(tx, &format!("{turn}/9/running"), "turn.state", &body(&turn, "a1", 9, "running"));
        });
        let words = format!("{} began before {}, which was asked for earlier", turns[3], turns[2]);
        assert!(found.contains(&words), "{words:?} is not in:\n{found}");
        let fence = node.take(2, T0 + 10);
        assert_eq!(fence.agent_turn_id, turns[1]);
        node.commit(&fence, success(), T0 + 11).unwrap();
        node.assert_well();
    });
}

/// A command that was delivered and forgotten is not missed, whatever was queued since.
#[test]
fn a_command_that_was_forgotten_is_not_missed() {
    both(|node| {
        busy(node);
        node.write(|tx| {
            sql(tx, "DELETE FROM outbox WHERE sink = 'tool'");
            Ok(())
        })
        .unwrap();
        assert_eq!(node.problems().len(), 3, "{:?}", node.problems());
        node.write(|tx| {
            tx.exec(
                "INSERT INTO outbox_forgotten (sink, before_ms) VALUES ('tool', $1)",
                args![T0 + 5],
            )?;
            Ok(())
        })
        .unwrap();
        node.assert_well();
    });
}

/// What rows must not say at all the database itself refuses.
#[test]
fn what_cannot_be_is_refused_by_the_tables() {
    const LIES: [&str; 15] = [
        "UPDATE agent_state_head SET lease_token = NULL WHERE agent_id = 'a2'",
        "UPDATE agent_state_head SET lease_until_ms = 5 WHERE agent_id = 'a3'",
        "UPDATE agent_state_head SET waiting_tool_count = 0 WHERE agent_id = 'a3'",
        "UPDATE agent_state_head SET active_agent_turn_id = NULL WHERE agent_id = 'a2'",
        "UPDATE agent_state_head SET status = 'idle' WHERE agent_id = 'a2'",
        "UPDATE agent_inbox SET outcome = 'success' WHERE correlation_id = 'c2'",
        "UPDATE agent_inbox SET outcome = NULL WHERE correlation_id = 'c1'",
        "INSERT INTO cards SELECT 'card_x', project_id, type, role, author_id, agent_turn_id, step_id,
           tool_call_id, content, metadata, created_ms FROM cards WHERE type = 'task.deliverable'",
        "INSERT INTO cards SELECT 'card_x', project_id, type, role, author_id, agent_turn_id, step_id,
           tool_call_id, content, metadata, created_ms FROM cards WHERE type = 'tool.result'",
        // A turn that is over says how it ended, also one that could not be done; nothing else does.
        "UPDATE agent_inbox SET status = 'error', error_code = 'x', closed_ms = 5 WHERE correlation_id = 'c2'",
        "UPDATE agent_inbox SET status = 'skipped', closed_ms = 5 WHERE correlation_id = 'c2'",
        "UPDATE agent_inbox SET outcome = 'success' WHERE message_type = 'tool_result'",
        // It ends once, whatever the event is called.
        "INSERT INTO event (seq, topic, id, kind, at_ms, body)
         SELECT 90000, topic, substr(id, 1, 37) || '/2/task', kind, at_ms, body FROM event WHERE kind = 'turn.task'",
        // What nobody handles is no message.
        "UPDATE agent_inbox SET message_type = 'ui_action' WHERE message_type = 'tool_result'",
        "UPDATE agent_inbox SET message_type = 'command_anchor' WHERE message_type = 'tool_result'",
    ];
    both(|node| {
        busy(node);
        for lie in LIES {
            let told = node.write(move |tx| Ok(tx.exec(lie, args![])?));
            assert_eq!(told.unwrap_err().code().name, "store.database", "{lie}");
        }
        node.assert_well();
    });
}
