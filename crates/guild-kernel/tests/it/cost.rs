//! What was paid and is not known is told apart from what cost nothing.

use std::sync::Mutex;

use guild_kernel::AgentTurnId;
use guild_kernel::inbox::Outcome;
use guild_kernel::model::Failure;
use guild_kernel::turn::step::Usage;
use guild_kernel::{code, turn};

use crate::rig::{Rig, say};
use crate::world::{Node, T0, both};

/// What the only step of a turn has used.
fn used(node: &Node, id: &AgentTurnId) -> Usage {
    let mut steps = node.steps(id);
    assert_eq!(steps.len(), 1);
    steps.remove(0).usage
}

/// Whether nobody knows what it cost: then the cost is zero.
fn is_unknown(usage: &Usage) -> bool {
    assert!(!usage.cost_unknown || usage.cost_micro_usd == 0);
    usage.cost_unknown
}

fn busy(cost_unknown: bool) -> Failure {
    Failure::Busy { message: "later".to_owned(), retry_after_ms: None, cost_unknown }
}

#[test]
fn a_model_that_fails_may_be_paid_all_the_same() {
    both(|node| {
        let failures = [
            (busy(false), false),
            (busy(true), true),
            (Failure::Refused("wrong key".to_owned()), false),
            (Failure::Garbled("<html>".to_owned()), true),
        ];
        for (n, (failure, unknown)) in (1..).zip(failures) {
            let mut rig = Rig::new(node, move |_| Err(failure.clone()));
            let id = rig.ask(n, n);
            rig.finish(&id);
            assert_eq!(node.ended(&id).0, Some(Outcome::Failed));
            assert_eq!(is_unknown(&used(node, &id)), unknown, "{n}");
        }
        let mut rig = Rig::new(node, |_| Ok(say("late"))).slow(3_600_000);
        let id = rig.ask(9, 6);
        rig.finish(&id);
        assert_eq!(node.ended(&id).1.as_deref(), Some(code::MODEL_TIMEOUT.name));
        assert!(is_unknown(&used(node, &id)));
        node.assert_well();
    });
}

/// An attempt that broke is not forgotten when a later one succeeds. One that was turned away has cost nothing.
#[test]
fn an_attempt_that_broke_makes_the_cost_unknown() {
    both(|node| {
        for (n, broke) in [(1, false), (2, true)] {
            let times = Mutex::new(0);
            let mut rig = Rig::new(node, move |_| {
                let mut times = times.lock().unwrap();
                *times += 1;
                match *times {
                    1 => Err(busy(broke)),
                    2 => Err(busy(false)),
                    _ => Ok(say("Now.")),
                }
            });
            let id = rig.ask(n, n);
            rig.finish(&id);
            assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
            let used = used(node, &id);
            assert_eq!(is_unknown(&used), broke);
            assert_eq!((used.prompt_tokens, used.cost_micro_usd), (5, if broke { 0 } else { 3 }));
        }
        node.assert_well();
    });
}

/// Whoever works on a step may have asked a model when it is lost, leaves, or is stopped.
#[test]
fn a_step_that_is_abandoned_has_an_unknown_cost() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done"))).slow(5_000);
        let id = rig.ask(1, 1);
        let mut left = rig.worker();
        rig.work(&mut [&mut left], usize::MAX);
        left.stop(&mut rig);
        assert!(is_unknown(&used(node, &id)), "its worker has left");
        rig.finish(&id);
        let told: Vec<bool> = node.steps(&id).iter().map(|step| is_unknown(&step.usage)).collect();
        assert_eq!(told, [true, false]);

        let id = node.ask(2, 2, T0);
        node.take(2, T0);
        node.stop(&id, T0 + 1).unwrap();
        assert!(is_unknown(&used(node, &id)), "it was stopped");

        let id = node.ask(3, 3, T0);
        let fence = node.take(3, T0);
        node.write(move |tx| turn::put_aside(tx, &fence, &code::UNWRITABLE, T0 + 1)).unwrap();
        assert!(is_unknown(&used(node, &id)), "it was put aside");

        let id = node.ask(4, 4, T0);
        node.take(4, T0);
        node.sweep(T0 + 1_000_000);
        assert!(is_unknown(&node.steps(&id)[0].usage), "its worker was lost");
    });
}
