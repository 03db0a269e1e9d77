//! Ending turns from outside.

use guild_kernel::inbox::Outcome;
use guild_kernel::turn::{NewTurn, Parent, Stopped, Then};
use guild_kernel::{AgentTurnId, code};

use crate::world::{Node, T0, both, new_turn, report, success};

fn stopped(node: &Node, id: &AgentTurnId) {
    assert_eq!(node.ended(id).0, Some(Outcome::Canceled));
    assert_eq!(node.told(id).iter().filter(|what| *what == "task").count(), 1);
    let deliverable = node.deliverable(id).unwrap();
    assert!(deliverable.content.contains("fallback_deliverable"), "{}", deliverable.content);
    assert_eq!(node.stop(id, T0 + 99), Ok(Stopped::Over));
    node.assert_well();
}

#[test]
fn a_turn_is_stopped_in_every_state() {
    both(|node| {
        let begun = node.ask(1, 1, T0);
        let queued = node.ask(2, 1, T0);
        assert_eq!(node.stop(&queued, T0 + 1), Ok(Stopped::Canceled));
        stopped(node, &queued);
        assert_eq!(node.stop(&begun, T0 + 1), Ok(Stopped::Stopped), "dispatched");
        stopped(node, &begun);
        assert!(node.claim(&[1], T0 + 2).is_empty());

        let running = node.ask(3, 1, T0 + 2);
        let fence = node.take(2, T0 + 2);
        assert_eq!(node.stop(&running, T0 + 3), Ok(Stopped::Stopped));
        stopped(node, &running);
        let before = node.dump();
        assert_eq!(node.commit(&fence, success(), T0 + 4).unwrap_err().code(), &code::FENCED);
        assert_eq!(node.heartbeat(&fence, T0 + 4).unwrap_err().code(), &code::FENCED);
        assert_eq!(node.dump(), before);

        let suspended = node.ask(4, 1, T0 + 5);
        let fence = node.take(3, T0 + 5);
        let calls = node.suspend(&fence, &[0, 1], T0 + 5);
        node.report(&report(&fence, &calls[0]), T0 + 5);
        let next = node.ask(5, 1, T0 + 5);
        assert_eq!(node.stop(&suspended, T0 + 6), Ok(Stopped::Stopped));
        stopped(node, &suspended);
        let fence = node.take(4, T0 + 7);
        assert_eq!(fence.agent_turn_id, next, "the next one has begun");
        node.commit(&fence, success(), T0 + 8).unwrap();
        assert_eq!(node.stop(&next, T0 + 9), Ok(Stopped::Over));
        let nobody: AgentTurnId = format!("turn_{:032x}", 1).parse().unwrap();
        assert_eq!(node.stop(&nobody, T0).unwrap_err().code(), &code::UNKNOWN_TURN);
        node.assert_well();
    });
}

#[test]
fn only_what_has_not_begun_is_taken_back() {
    both(|node| {
        let begun = node.ask(1, 1, T0);
        let queued = node.ask(2, 1, T0);
        assert_eq!(node.cancel(&begun, T0).unwrap_err().code(), &code::NOT_QUEUED);
        node.cancel(&queued, T0 + 1).unwrap();
        stopped(node, &queued);
        assert_eq!(node.cancel(&queued, T0 + 1).unwrap_err().code(), &code::NOT_QUEUED);
        let fence = node.take(1, T0 + 2);
        node.commit(&fence, success(), T0 + 3).unwrap();
        assert!(node.claim(&[2], T0 + 4).is_empty(), "it never begins");
        node.assert_well();
    });
}

/// Turn 1 of agent 1, suspended; a child that answers its call and one that does not.
fn family(node: &Node) -> (AgentTurnId, AgentTurnId, AgentTurnId) {
    node.pack(1..=3);
    let parent = node.enqueue(&new_turn(1, 1), T0).unwrap();
    let fence = node.take(1, T0);
    let calls = node.suspend(&fence, &[0, 1], T0);
    let child = |n, answers| NewTurn {
        parent: Some(Parent {
            agent_id: fence.key.agent_id.clone(),
            agent_turn_id: parent.clone(),
            step_id: None,
            answers,
        }),
        ..new_turn(n, n)
    };
    let awaited = node.enqueue(&child(2, Some(calls[0].clone())), T0).unwrap();
    let free = node.enqueue(&child(3, None), T0).unwrap();
    (parent, awaited, free)
}

#[test]
fn a_stop_reaches_all_that_was_asked_for() {
    both(|node| {
        let (parent, awaited, free) = family(node);
        let grandchild = NewTurn {
            parent: Some(Parent {
                agent_id: "a3".parse().unwrap(),
                agent_turn_id: free.clone(),
                step_id: None,
                answers: None,
            }),
            ..new_turn(4, 4)
        };
        node.pack([4]);
        let grandchild = node.enqueue(&grandchild, T0).unwrap();
        node.stop(&parent, T0 + 1).unwrap();
        assert_eq!(node.head(2).status(), "dispatched", "not yet");
        node.assert_well();
        assert_eq!(node.sweep(T0 + 1), 3);
        for id in [parent, awaited, free, grandchild] {
            stopped(node, &id);
        }
    });
}

#[test]
fn an_end_by_itself_stops_what_it_would_have_waited_for() {
    both(|node| {
        let (_, awaited, free) = family(node);
        // Both calls run out of time; the children are still at work.
        node.sweep(T0 + 15_000);
        let fence = node.claim(&[7, 8, 9], T0 + 15_000);
        let parent = fence.iter().find(|c| c.fence.key.agent_id.as_str() == "a1").unwrap();
        node.commit(&parent.fence, Then::Continue, T0 + 15_001).unwrap();
        let fence = guild_kernel::turn::Fence {
            step_id: match node.head(1).active.unwrap().state {
                guild_kernel::turn::head::State::Running { step_id, .. } => step_id,
                other => panic!("{other:?}"),
            },
            ..parent.fence.clone()
        };
        node.commit(&fence, success(), T0 + 15_002).unwrap();
        node.sweep(T0 + 15_003);
        stopped(node, &awaited);
        assert_eq!(node.row(&free).closed_ms, None, "nobody waits for it, and it goes on");
        node.assert_well();
    });
}
