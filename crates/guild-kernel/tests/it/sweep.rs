//! What was overlooked is found, and one bad row holds up nobody.

use guild_kernel::inbox::Outcome;
use guild_kernel::turn::sweep::{self, Due, Swept};

use crate::world::{T0, TIMEOUT_MS, TTL_MS, both, key, report, success};

#[test]
fn an_idle_agent_with_a_queue_is_found() {
    both(|node| {
        let id = node.ask(1, 1, T0);
        let back = "UPDATE agent_inbox SET status = 'queued' WHERE correlation_id = 'c1'";
        assert_eq!(node.plant(back), 1);
        let forget = "UPDATE agent_state_head SET status = 'idle', active_agent_turn_id = NULL,
            active_inbox_id = NULL, seq = NULL, channel_id = NULL, recursion_depth = NULL,
            profile_name = NULL, context_box_id = NULL, output_box_id = NULL, due_ms = NULL
            WHERE agent_id = 'a1'";
        assert_eq!(node.plant(forget), 1);
        assert_eq!(node.problems(), ["a1 is idle, and turns wait for it"]);
        assert_eq!(node.read(|rx| sweep::due(rx, T0, 9)), [Due::Queue(key(1))]);
        node.sweep(T0);
        let fence = node.take(1, T0);
        assert_eq!(fence.agent_turn_id, id);
        node.assert_well();
    });
}

#[test]
fn a_turn_that_waits_for_nothing_is_closed() {
    both(|node| {
        let id = node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        node.suspend(&fence, &[0], T0);
        node.plant("UPDATE turn_waiting_tools SET wait_status = 'dropped', closed_ms = 1");
        assert!(!node.problems().is_empty());
        assert_eq!(node.sweep(T0 + TIMEOUT_MS), 1);
        let code = Some("kernel.nothing_awaited".to_owned());
        assert_eq!(node.ended(&id), (Some(Outcome::Failed), code));
        node.assert_well();
    });
}

#[test]
fn whoever_is_second_finds_nothing_to_do() {
    both(|node| {
        for n in 1..=2 {
            node.ask(n, n, T0);
        }
        let claimed = node.claim(&[1, 2], T0);
        let calls = node.suspend(&claimed[1].fence, &[0], T0);
        let now_ms = T0 + TIMEOUT_MS;
        let due = node.read(move |rx| sweep::due(rx, now_ms, 9));
        assert_eq!(due, [Due::Lease(key(1)), Due::Call(calls[0].clone())]);
        node.heartbeat(&claimed[0].fence, now_ms).unwrap();
        node.report(&report(&claimed[1].fence, &calls[0]), now_ms);
        let before = node.dump();
        let swept = node.write(move |tx| sweep::settle(tx, &due, now_ms)).unwrap();
        assert_eq!(swept, [Swept::Gone, Swept::Gone]);
        assert_eq!(node.dump(), before);
        node.commit(&claimed[0].fence, success(), now_ms).unwrap();
        node.assert_well();
    });
}

/// Something that fails does so alone, when each thing is done by itself.
#[test]
fn a_bad_row_holds_up_nobody() {
    both(|node| {
        for n in 1..=3 {
            node.ask(n, n, T0);
        }
        node.claim(&[1, 2, 3], T0);
        // A card that stands where the box of agent 2 will go on: whatever ends its turn cannot be written.
        let grow = "INSERT INTO card_box_entries (box_id, place, card_id)
                    SELECT output_box_id, 0, 'card_00000000000000000000000000000001' FROM agent_state_head
                    WHERE agent_id = 'a2'";
        assert_eq!(node.plant(grow), 1);
        assert_eq!(
            node.plant("UPDATE agent_state_head SET lost_leases = 4 WHERE agent_id = 'a2'"),
            1
        );
        let now_ms = T0 + TTL_MS;
        let due = node.read(move |rx| sweep::due(rx, now_ms, 9));
        assert_eq!(due.len(), 3);
        let all = due.clone();
        assert!(node.write(move |tx| sweep::settle(tx, &all, now_ms)).is_err());
        let mut done = Vec::new();
        for one in due {
            let one = [one];
            done.push(node.write(move |tx| sweep::settle(tx, &one, now_ms)).is_ok());
        }
        done.sort_unstable();
        assert_eq!(done, [false, true, true]);
        let statuses: Vec<_> = (1..=3).map(|n| node.head(n).status()).collect();
        assert_eq!(statuses, ["dispatched", "running", "dispatched"]);
    });
}
