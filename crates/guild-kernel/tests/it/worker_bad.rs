//! What a worker meets that is not as it should be: it concerns one turn, and nobody beside it.

use guild_kernel::inbox::Outcome;
use guild_kernel::tool::Effect;
use serde_json::json;

use crate::rig::{Rig, calls, good, row, say, shown, steps};
use crate::world::{T0, both};

const BAD_HEAD: &str =
    "UPDATE agent_state_head SET context_box_id = 'rubbish' WHERE agent_id = 'a3'";

/// A head that cannot be read loses its own lease. Those beside it are renewed: each is done once, and paid once.
#[test]
fn a_head_that_cannot_be_read_takes_no_other_lease() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done"))).slow(60_000);
        let ids: Vec<_> = (1..=5).map(|n| rig.ask(n, n)).collect();
        let mut worker = rig.worker();
        rig.work(&mut [&mut worker], usize::MAX);
        assert_eq!(worker.counts.of("claimed"), 5);
        assert_eq!(node.plant(BAD_HEAD), 1);
        rig.until(&mut [&mut worker], |node| ids.iter().all(|id| node.row(id).closed_ms.is_some()));
        assert_eq!(node.ended(&ids[2]).1.as_deref(), Some("kernel.unwritable"));
        for id in [&ids[0], &ids[1], &ids[3], &ids[4]] {
            assert_eq!(node.ended(id), (Some(Outcome::Success), None));
            assert_eq!(node.steps(id).len(), 1, "its lease was never lost");
        }
        assert_eq!(rig.model.asked.lock().unwrap().len(), 5);
        node.assert_well();
    });
}

/// The same for whoever leaves: the others wait for no lease.
#[test]
fn a_head_that_cannot_be_read_keeps_no_other_turn_from_being_given_back() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done"))).slow(5_000);
        for n in 1..=5 {
            rig.ask(n, n);
        }
        let mut worker = rig.worker();
        rig.work(&mut [&mut worker], usize::MAX);
        assert_eq!(node.plant(BAD_HEAD), 1);
        worker.stop(&mut rig);
        for n in [1, 2, 4, 5] {
            assert_eq!(node.head(n).status(), "dispatched", "{n}");
        }
    });
}

/// A worker that takes a run over and has not what its tool wants does not call it with less than was meant.
#[test]
fn a_run_that_is_taken_over_is_not_run_without_its_secrets() {
    let plants = [
        ("UPDATE tools SET updated_ms = 1", "kernel.missing_environment", "PAY_KEY"),
        ("UPDATE tools SET options = '7'", "kernel.malformed_row", "its options"),
        ("DELETE FROM tools", "kernel.unknown_tool", "its row is gone"),
    ];
    both(|node| {
        for (n, (plant, code, why)) in (1..).zip(plants) {
            let replies = vec![calls(&[("pay", r#"{"x":7}"#)]), say("done")];
            let mut rig = Rig::new(node, steps(replies));
            rig.hands.turn_to(T0 + i64::from(n) * 1_000_000);
            let paid = rig.tool("pay", (Effect::Once, 20_000), |_| good(json!("paid")));
            let mut patient = row("pay", None);
            let envs = json!({ "key": "PAY_KEY" });
            patient.options = json!({ "suspend_timeout_seconds": 200, "envs": envs });
            rig.row(patient);
            rig.environment.insert("PAY_KEY".to_owned(), "secret".to_owned());
            let id = rig.ask(n, n);
            let mut first = rig.worker();
            let called = paid.clone();
            rig.until(&mut [&mut first], |_| !called.lock().unwrap().is_empty());
            drop(first);
            rig.crash();
            rig.environment.clear();
            assert_eq!(node.plant(plant), 1);
            let mut second = rig.worker();
            rig.until(&mut [&mut second], |node| node.row(&id).closed_ms.is_some());
            assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
            assert_eq!(paid.lock().unwrap().len(), 1, "{code}");
            let told = shown(rig.model.asked.lock().unwrap().last().unwrap());
            assert!(told.contains(code) && told.contains(why), "{told}");
        }
        node.assert_well();
    });
}

/// Of a box that is too large a turn sees the end, and says so.
#[test]
fn a_box_with_more_cards_than_are_seen_is_warned_of() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done")));
        let thought = (guild_kernel::card::CardType::Thought, json!({ "text": "x" }));
        let warned = |rig: &mut Rig<'_>, n: u32, more: &[&'static str]| {
            let id = rig.ask_with(n, n, &vec![thought.clone(); 999]);
            for plant in more {
                assert_eq!(node.plant(plant), 1);
            }
            rig.finish(&id);
            assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
            node.steps(&id)[0].metadata.contains("a box is too large")
        };
        assert!(!warned(&mut rig, 1, &[]), "all of a thousand are seen");
        let more = "INSERT INTO card_box_entries (box_id, place, card_id)
            SELECT context_box_id, 1000, 'card_00000000000000000000000000000001'
            FROM agent_state_head WHERE agent_id = 'a2'";
        assert!(warned(&mut rig, 2, &[more]));
    });
}
