//! What the audit says about batches: nothing when all is well, and something about every kind of lie.

use guild_kernel::inbox::Outcome;
use guild_store::{Tx, args};
use serde_json::json;

use crate::audit::{Plant, found, sql};
use crate::office::{both, fork};
use crate::world::{Node, T0};

/// A batch that runs, with one of two tasks done; one that ended well; one that failed, whose other tasks are asked to
/// stop.
fn busy(node: &Node) {
    fork(node, 1, 2, json!({})).end(node, 0, Outcome::Success, T0 + 3);
    let well = fork(node, 2, 2, json!({}));
    well.end(node, 0, Outcome::Success, T0 + 3);
    well.end(node, 1, Outcome::Success, T0 + 4);
    let failed = fork(node, 3, 3, json!({ "fail_fast": true }));
    failed.end(node, 0, Outcome::Failed, T0 + 5);
}

/// A command that is carried out again as if it were new. The tables refuse it, so they must be changed first.
fn second_batch(tx: &mut Tx<'_>) {
    tx.exec("DROP INDEX pmo_batches_call", args![]).unwrap();
    sql(
        tx,
        "INSERT INTO pmo_batches (batch_id, project_id, channel_id, parent_agent_id, parent_agent_turn_id,
           parent_step_id, parent_tool_call_id, recursion_depth, task_count, fail_fast, status, deadline_ms,
           created_ms)
         SELECT 'batch_00000000000000000000000000000fff', project_id, channel_id, parent_agent_id,
           parent_agent_turn_id, parent_step_id, parent_tool_call_id, recursion_depth, task_count, fail_fast,
           status, deadline_ms, created_ms FROM pmo_batches WHERE status = 'running'",
    );
}

/// Each with the words that tell of it.
const PLANTS: [(&str, Plant); 15] = [
    ("has several batches", second_batch),
    ("runs, and nobody waits for it", |tx| {
        sql(tx, "UPDATE pmo_batches SET parent_step_id = 'step_x' WHERE status = 'running'");
    }),
    ("may run longer than it is waited for", |tx| {
        sql(tx, "UPDATE pmo_batches SET deadline_ms = deadline_ms + 1 WHERE status = 'running'");
    }),
    ("ended otherwise than its call was told", |tx| {
        sql(
            tx,
            "UPDATE turn_waiting_tools SET result_status = 'partial' WHERE result_status = 'success'",
        );
    }),
    ("has another number of tasks than it says", |tx| {
        sql(tx, "UPDATE pmo_batches SET task_count = 5 WHERE status = 'success'");
    }),
    ("is a task of no batch", |tx| {
        sql(
            tx,
            "UPDATE pmo_batch_tasks SET batch_id = 'batch_x' WHERE task_index = 1 AND status = 'success'",
        );
    }),
    ("is over with an open task, or runs without one", |tx| {
        sql(
            tx,
            "UPDATE pmo_batches SET status = 'success', closed_ms = 1 WHERE status = 'running'",
        );
    }),
    ("ended otherwise than its tasks did", |tx| {
        sql(tx, "UPDATE pmo_batches SET status = 'timeout' WHERE status = 'success'");
    }),
    ("runs, and must not have a failure in it", |tx| {
        sql(tx, "UPDATE pmo_batches SET status = 'running', closed_ms = NULL WHERE fail_fast = 1");
    }),
    ("is a task, and no turn that its parent has asked for", |tx| {
        sql(tx, "UPDATE pmo_batch_tasks SET agent_turn_id = 'turn_x' WHERE status = 'dispatched'");
    }),
    ("is over, and its batch waits for it", |tx| {
        sql(
            tx,
            "UPDATE pmo_batch_tasks SET status = 'dispatched', closed_ms = NULL, deliverable_card_id = NULL
             WHERE status = 'success'",
        );
    }),
    ("ended otherwise than its batch says", |tx| {
        sql(tx, "UPDATE pmo_batch_tasks SET status = 'failed' WHERE status = 'success'");
    }),
    ("goes on, its batch is over, and nobody stops it", |tx| {
        sql(tx, "DELETE FROM agent_inbox WHERE message_type = 'stop'");
    }),
    ("has no request or, being over, no response at its depth", |tx| {
        sql(tx, "DELETE FROM execution_edges WHERE primitive = 'join' AND edge_phase = 'request'");
    }),
    ("has no request or, being over, no response at its depth", |tx| {
        sql(
            tx,
            "UPDATE execution_edges SET recursion_depth = 3 WHERE primitive = 'join' AND edge_phase = 'response'",
        );
    }),
];

#[test]
fn every_lie_about_a_batch_is_seen() {
    both(|node| {
        busy(node);
        node.assert_well();
        for (words, plant) in PLANTS {
            let found = found(node, plant);
            assert!(found.contains(words), "{words:?} is not in:\n{found}");
        }
    });
}

#[test]
fn what_a_batch_cannot_be_is_refused_by_the_tables() {
    const LIES: [&str; 7] = [
        "UPDATE pmo_batches SET closed_ms = 7 WHERE status = 'running'",
        "UPDATE pmo_batches SET status = 'running' WHERE status = 'success'",
        "UPDATE pmo_batches SET task_count = 9 WHERE status = 'running'",
        "UPDATE pmo_batches SET parent_tool_call_id =
           (SELECT parent_tool_call_id FROM pmo_batches WHERE status = 'success') WHERE status = 'running'",
        "UPDATE pmo_batch_tasks SET status = 'success', closed_ms = 7 WHERE status = 'dispatched'",
        "UPDATE pmo_batch_tasks SET closed_ms = NULL WHERE status = 'success'",
        "UPDATE pmo_batch_tasks SET agent_turn_id =
           (SELECT agent_turn_id FROM pmo_batch_tasks WHERE status = 'dispatched') WHERE status = 'failed'",
    ];
    both(|node| {
        busy(node);
        for lie in LIES {
            let told = node.write(move |tx| Ok(tx.exec(lie, args![])?));
            assert_eq!(told.unwrap_err().code().name, "store.database", "{lie}");
        }
    });
}
