//! Clocks that were ahead: what they have written keeps nobody waiting once they agree again.

use guild_bus::subject::WorkerTarget;
use guild_kernel::inbox::Outcome;
use guild_kernel::model::Reply;
use guild_kernel::tool::Effect;
use guild_kernel::turn::recall;
use serde_json::json;

use crate::rig::{Rig, answer_all, calls, good, row, say, steps};
use crate::world::{T0, TARGET, TIMEOUT_MS, TTL_MS, block_on, both, report, success};

const DAY_MS: i64 = 24 * 3_600_000;

fn targets() -> Vec<WorkerTarget> {
    vec![WorkerTarget::parse(TARGET).unwrap()]
}

fn story() -> Vec<Reply> {
    vec![
        calls(&[("pay", r#"{"x":1}"#), ("send", r#"{"x":2}"#)]),
        calls(&[("submit_result", r#"{"result":{"fields":[{"name":"a","value":1}]}}"#)]),
    ]
}

/// Whatever a worker was doing when it was lost under a clock a day ahead: another one, whose clock is right, goes on
/// with it at once, and not in a day.
#[test]
fn a_worker_may_be_lost_under_a_wrong_clock() {
    both(|node| {
        let mut rig = Rig::new(node, steps(story()));
        rig.tool("pay", (Effect::Once, 0), |_| good(json!("paid")));
        rig.row(row("send", Some("cmd.tool.post.send")));
        let mut recalled = 0;
        for k in 0..200_u32 {
            rig.hands.turn_to(T0 + DAY_MS);
            let n = 1_000 + k;
            let id = rig.ask(n, k % 8);
            let mut first = rig.worker();
            let looks = usize::try_from(k).unwrap();
            let mut answered = false;
            let alone = rig.until_polls(&mut [&mut first], looks, |node| {
                // Whoever has been told answers at the second look.
                if std::mem::replace(&mut answered, true) {
                    answer_all(node, T0 + DAY_MS);
                }
                node.row(&id).closed_ms.is_some()
            });
            drop(first);
            rig.crash();
            rig.hands.turn_to(T0);
            let mut second = rig.worker();
            // Nobody answers now: what is open is given up when its time is over, within an hour.
            rig.until(&mut [&mut second], |node| node.row(&id).closed_ms.is_some());
            assert_eq!(node.ended(&id).0, Some(Outcome::Success), "lost after {k} looks");
            recalled += second.counts.of("recalled");
            if alone {
                assert!(k > 6, "a story has more than {k} moments");
                assert!(recalled > 6, "{recalled}");
                node.assert_well();
                return;
            }
        }
        panic!("it never ends");
    });
}

/// A worker that never was ahead, beside a process whose clock is: it does not wait for tomorrow.
#[test]
fn what_another_clock_wrote_is_brought_back() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done")));
        let mut worker = rig.worker();
        rig.work(&mut [&mut worker], usize::MAX);
        let theirs = node.ask(1, 1, T0 + DAY_MS);
        assert!(node.read(|rx| recall::is_ahead(rx, &targets(), T0, TTL_MS)));
        rig.until(&mut [&mut worker], |node| node.row(&theirs).closed_ms.is_some());
        assert!(rig.now_ms() < T0 + 60_000);
        assert_eq!(worker.counts.of("recalled"), 1);
        node.assert_well();
    });
}

/// What a good clock has written stays as it is, and so does what was brought back already.
#[test]
fn only_what_was_never_meant_is_brought_back() {
    both(|node| {
        let ahead_ms = T0 + recall::AHEAD_MS;
        for (n, now_ms) in [(1, T0), (2, T0), (3, ahead_ms), (4, T0)] {
            node.ask(n, n, now_ms);
        }
        let claimed = node.claim(&[1, 2, 3], ahead_ms);
        node.suspend(&claimed[1].fence, &[0], ahead_ms);
        let before = node.dump();
        assert!(!node.read(|rx| recall::is_ahead(rx, &targets(), T0, TTL_MS)));
        assert_eq!(node.write(|tx| recall::recall(tx, T0, TTL_MS)).unwrap(), 0);
        assert_eq!(node.dump(), before);

        // The same, written an hour ahead.
        let later_ms = T0 + 3_600_000;
        let fences = node.claim(&[4], later_ms);
        let calls = node.suspend(&fences[0].fence, &[0, 1], later_ms);
        node.heartbeat(&claimed[0].fence, later_ms).unwrap();
        assert!(node.read(|rx| recall::is_ahead(rx, &targets(), T0, TTL_MS)));
        assert!(node.write(|tx| recall::recall(tx, T0, TTL_MS)).unwrap() >= 3);
        node.assert_well();
        let after = node.dump();
        assert!(!node.read(|rx| recall::is_ahead(rx, &targets(), T0, TTL_MS)));
        assert_eq!(node.write(|tx| recall::recall(tx, T0 + 1_000, TTL_MS)).unwrap(), 0);
        assert_eq!(node.dump(), after);
        // Whoever still works on it goes on, if nobody was faster.
        node.commit(&claimed[0].fence, success(), T0).unwrap();
        node.report(&report(&fences[0].fence, &calls[0]), T0 + 1_000);
        assert_eq!(node.sweep(T0 + TIMEOUT_MS - 1), 0);
        assert!(node.sweep(T0 + TIMEOUT_MS) > 0);
        node.assert_well();
    });
}

/// No row can stop the look at all calls, with a number that cannot be added to a time.
#[test]
fn a_wait_without_an_end_is_refused_by_the_table() {
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        node.suspend(&fence, &[0], T0);
        for timeout_ms in ["-1", "604800001", "9223372036854775807"] {
            let lie = format!("UPDATE turn_waiting_tools SET timeout_ms = {timeout_ms}");
            let lie: &'static str = lie.leak();
            let told = block_on(node.store.write(move |tx| tx.exec(lie, &[])));
            assert_eq!(told.unwrap_err().code().name, "store.database", "{timeout_ms}");
        }
        node.plant("UPDATE turn_waiting_tools SET timeout_ms = 604800000, deadline_ms = 9223372036854775807");
        assert!(node.read(|rx| recall::is_awaited_too_long(rx, T0)));
        assert!(node.write(|tx| recall::recall(tx, T0, TTL_MS)).unwrap() > 0);
        assert!(!node.read(|rx| recall::is_awaited_too_long(rx, T0)));
    });
}

/// A heartbeat under a clock that went back a little shortens no lease; one that was given by a wrong clock it does.
#[test]
fn a_heartbeat_keeps_no_wrong_lease() {
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0 + DAY_MS);
        assert_eq!(node.heartbeat(&fence, T0 + DAY_MS - 1_000).unwrap(), T0 + DAY_MS + TTL_MS);
        assert_eq!(node.heartbeat(&fence, T0).unwrap(), T0 + TTL_MS);
        node.assert_well();
    });
}
