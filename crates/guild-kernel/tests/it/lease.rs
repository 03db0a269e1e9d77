//! Workers that are lost, and workers that do not know that they are.

use guild_kernel::inbox::Outcome;
use guild_kernel::turn::{Committed, Fence, LOST_LEASES_MAX, Then};
use guild_kernel::{AgentTurnId, code};

use crate::world::{Node, T0, TTL_MS, both, call, commit, report, success};

/// Whatever a holder that lost its turn tries changes nothing.
fn is_fenced(node: &Node, fence: &Fence, now_ms: i64) {
    let before = node.dump();
    let tries = [Then::Continue, Then::Suspend(vec![call(0)]), success()];
    for then in tries {
        let refused = node.commit(fence, then, now_ms).unwrap_err();
        assert_eq!(refused.code(), &code::FENCED);
    }
    assert_eq!(node.heartbeat(fence, now_ms).unwrap_err().code(), &code::FENCED);
    assert_eq!(node.dump(), before, "cards and boxes too");
}

/// One step of a story: what a worker does with the turn that it holds.
fn play(node: &Node, fence: &Fence, act: usize, now_ms: i64) -> Option<Fence> {
    match act {
        0 | 1 => match node.commit(fence, Then::Continue, now_ms).unwrap() {
            Committed::Continued { fence, .. } => Some(fence),
            other => panic!("{other:?}"),
        },
        2 => {
            let calls = node.suspend(fence, &[0, 1], now_ms);
            for call in &calls {
                node.report(&report(fence, call), now_ms);
            }
            None
        }
        _ => {
            node.commit(fence, success(), now_ms).unwrap();
            None
        }
    }
}

#[test]
fn a_lease_lost_between_any_two_writes_costs_nothing_but_time() {
    both(|node| {
        for lost_at in 0_u32..4 {
            let agent = lost_at + 1;
            let (id, mut now_ms) =
                (node.ask(lost_at + 1, agent, T0), T0 + i64::from(agent) * 100_000);
            let mut fence = node.take(10 * agent, now_ms);
            for act in 0..4 {
                if act == lost_at as usize {
                    now_ms += TTL_MS;
                    assert_eq!(node.sweep(now_ms), 1);
                    is_fenced(node, &fence, now_ms);
                    let next = node.take(10 * agent + 1, now_ms);
                    is_fenced(node, &fence, now_ms);
                    assert_eq!(next.turn_epoch, fence.turn_epoch + 1);
                    fence = next;
                }
                fence = match play(node, &fence, act, now_ms) {
                    Some(next) => next,
                    None if act == 2 => node.take(10 * agent + 2, now_ms),
                    None => break,
                };
            }
            let steps = node.steps(&id);
            let done: Vec<i64> = steps
                .iter()
                .filter(|step| step.status.as_str() != "abandoned")
                .map(|step| step.number)
                .collect();
            assert_eq!(done, [1, 2, 3, 4], "it went on where it was");
            assert_eq!(steps.len(), 5);
            assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
            node.assert_well();
        }
    });
}

#[test]
fn a_heartbeat_keeps_a_turn() {
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        assert_eq!(node.heartbeat(&fence, T0 + 6_000), Ok(T0 + 6_000 + TTL_MS));
        assert_eq!(node.sweep(T0 + TTL_MS), 0);
        // A lease that is over and that nobody took away is still its holder's.
        let late_ms = T0 + 6_000 + TTL_MS + 1;
        assert!(node.heartbeat(&fence, late_ms).is_ok());
        assert_eq!(node.sweep(late_ms), 0);
        assert!(
            node.heartbeat(&fence, late_ms - 5_000).unwrap() >= late_ms + TTL_MS,
            "never shorter"
        );
        node.commit(&fence, success(), late_ms).unwrap();
        node.assert_well();
    });
}

#[test]
fn a_step_that_loses_worker_after_worker_is_given_up() {
    both(|node| {
        let lose = |token: u32, now_ms: i64| {
            let fence = node.take(token, now_ms);
            assert_eq!(node.sweep(now_ms + TTL_MS), 1);
            fence
        };
        let id: AgentTurnId = node.ask(1, 1, T0);
        let mut now_ms = T0;
        for n in 1..LOST_LEASES_MAX {
            lose(u32::try_from(n).unwrap(), now_ms);
            now_ms += TTL_MS;
        }
        // A step that is done makes good for all that were lost before it.
        let fence = node.take(50, now_ms);
        node.commit(&fence, Then::Continue, now_ms).unwrap();
        now_ms += TTL_MS;
        assert_eq!(node.sweep(now_ms), 1);
        for n in 1..LOST_LEASES_MAX {
            let fence = lose(100 + u32::try_from(n).unwrap(), now_ms);
            now_ms += TTL_MS;
            is_fenced(node, &fence, now_ms);
        }
        let code = Some("kernel.lost_too_often".to_owned());
        assert_eq!(node.ended(&id), (Some(Outcome::Failed), code));
        assert!(node.deliverable(&id).is_some());
        assert_eq!(node.head(1).status(), "idle");
        node.assert_well();
    });
}

#[test]
fn a_forged_fence_opens_nothing() {
    both(|node| {
        node.ask(1, 1, T0);
        node.ask(2, 2, T0);
        let claimed = node.claim(&[1, 2], T0);
        let (mine, theirs) = (claimed[0].fence.clone(), claimed[1].fence.clone());
        let forged = [
            Fence { turn_epoch: 2, ..mine.clone() },
            Fence { turn_epoch: 0, ..mine.clone() },
            Fence { token: theirs.token.clone(), ..mine.clone() },
            Fence { agent_turn_id: theirs.agent_turn_id.clone(), ..mine.clone() },
            Fence { key: theirs.key.clone(), ..mine.clone() },
            Fence { step_id: theirs.step_id, ..mine },
        ];
        let before = node.dump();
        for fence in &forged {
            let refused = node.commit_all(&[commit(fence, success())], T0).remove(0).unwrap_err();
            assert_eq!(refused.code(), &code::FENCED);
        }
        assert_eq!(node.dump(), before);
    });
}
