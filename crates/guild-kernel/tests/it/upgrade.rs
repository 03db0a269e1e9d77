//! Tables of before, with what they admitted: they become what they are now, and nothing is lost.

use guild_kernel::{AgentTurnId, audit, inbox};
use guild_store::{Hooks, Migrations, Options, Service, args};

use crate::world::{T0, block_on};

/// A turn that was put aside, one that ended, one that is open, a stop, and two messages that nobody handles.
const ROWS: &str = "INSERT INTO agent_inbox (seq, inbox_id, project_id, agent_id, channel_id, message_type,
    correlation_id, agent_turn_id, turn_epoch, context_headers, payload, status, outcome, error_code, retry_count,
    next_retry_ms, created_ms, closed_ms) VALUES
    (1, 'inbox_00000000000000000000000000000001', 'p', 'a1', 'public', 'turn', 'c1',
     'turn_00000000000000000000000000000001', 1, '{}', '{}', 'error', NULL, 'kernel.unwritable', 0, NULL, 1, 2),
    (2, 'inbox_00000000000000000000000000000002', 'p', 'a1', 'public', 'turn', 'c2',
     'turn_00000000000000000000000000000002', 2, '{}', '{}', 'consumed', 'partial', NULL, 0, NULL, 1, 2),
    (3, 'inbox_00000000000000000000000000000003', 'p', 'a1', 'public', 'turn', 'c3',
     'turn_00000000000000000000000000000003', 3, '{}', '{}', 'queued', NULL, NULL, 0, NULL, 1, NULL),
    (4, 'inbox_00000000000000000000000000000004', 'p', 'a1', 'public', 'stop', 'c4',
     'turn_00000000000000000000000000000003', 3, '{}', '{}', 'pending', NULL, NULL, 0, 7, 1, NULL),
    (5, 'inbox_00000000000000000000000000000005', 'p', 'a1', 'public', 'ui_action', 'c5',
     'turn_00000000000000000000000000000003', 3, '{}', '{}', 'pending', NULL, NULL, 0, NULL, 1, NULL),
    (6, 'inbox_00000000000000000000000000000006', 'p', 'a1', 'public', 'command_anchor', 'c6',
     'turn_00000000000000000000000000000003', 3, '{}', '{}', 'pending', NULL, NULL, 0, NULL, 1, NULL)";

fn upgraded(options: &Options) {
    let before = Migrations::store().and(guild_kernel::migrations().into_iter().take(2));
    let service = Service::open(options, &before, Hooks::default(), T0).unwrap();
    block_on(service.handle().write(|tx| tx.exec(ROWS, args![]))).unwrap();
    service.close();
    let all = Migrations::store().and(guild_kernel::migrations());
    let service = Service::open(options, &all, Hooks::default(), T0).unwrap();
    let store = service.handle();
    let rows: Vec<(i64, String, String)> = block_on(store.read(|rx| {
        rx.all("SELECT seq, status, coalesce(outcome, '') FROM agent_inbox ORDER BY seq", args![])
    }))
    .unwrap();
    let row = |seq: i64, status: &str, outcome: &str| (seq, status.to_owned(), outcome.to_owned());
    let wanted = [
        row(1, "error", "failed"),
        row(2, "consumed", "partial"),
        row(3, "queued", ""),
        row(4, "pending", ""),
    ];
    assert_eq!(rows, wanted);
    // Every row is still found by its name, and reads as it did.
    let id: AgentTurnId = "turn_00000000000000000000000000000001".parse().unwrap();
    let turn = block_on(store.read(move |rx| inbox::turn(rx, &id))).unwrap().unwrap();
    assert_eq!(turn.error_code.as_deref(), Some("kernel.unwritable"));
    assert_eq!(turn.closed_ms, Some(2));
    // And the tables refuse from now on what they did not.
    for lie in [
        "UPDATE agent_inbox SET outcome = NULL WHERE seq = 1",
        "UPDATE agent_inbox SET message_type = 'ui_action' WHERE seq = 4",
        "INSERT INTO agent_inbox SELECT 9, 'x', project_id, agent_id, channel_id, message_type, 'c9', agent_turn_id,
           turn_epoch, parent_agent_turn_id, context_headers, payload, status, outcome, error_code, retry_count,
           next_retry_ms, created_ms, closed_ms FROM agent_inbox WHERE seq = 3",
    ] {
        let told = block_on(store.write(move |tx| tx.exec(lie, args![])));
        assert_eq!(told.unwrap_err().code().name, "store.database", "{lie}");
    }
    assert!(block_on(store.read(audit::run)).is_ok());
    service.close();
}

#[test]
fn tables_of_before_are_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    upgraded(&Options::file(&dir.path().join("node.db")));
    let database = testbed::Database::new().unwrap();
    upgraded(&Options::at(&database.url()));
}
