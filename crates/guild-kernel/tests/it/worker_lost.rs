//! Workers that are lost at any moment, and workers that do not know that they are.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use guild_bus::subject::WorkerTarget;
use guild_kernel::inbox::{InboxStatus, Outcome};
use guild_kernel::model::Reply;
use guild_kernel::roster::{self, Agent};
use guild_kernel::tool::Effect;
use guild_kernel::worker::Options;
use guild_store::args;
use serde_json::json;

use crate::rig::{Rig, answer_all, calls, cards_of, good, plain, row, say, shown, steps};
use crate::world::{Node, T0, agent, both, key};

/// Tools of every kind, several steps, and an end.
fn story() -> Vec<Reply> {
    vec![
        calls(&[("look", r#"{"x":1}"#)]),
        calls(&[("look", r#"{"x":2}"#), ("pay", r#"{"x":3}"#), ("send", r#"{"x":4}"#)]),
        say("Nearly.").and_calls(&[("look", "{}")]),
        calls(&[("submit_result", r#"{"result":{"fields":[{"name":"a","value":1}]}}"#)]),
    ]
}

trait AndCalls {
    fn and_calls(self, more: &[(&str, &str)]) -> Reply;
}

impl AndCalls for Reply {
    fn and_calls(mut self, more: &[(&str, &str)]) -> Reply {
        self.calls = calls(more).calls;
        self
    }
}

fn rig(
    node: &Node,
) -> (Rig<'_>, std::sync::Arc<std::sync::Mutex<Vec<guild_kernel::tool::ToolCall>>>) {
    let mut rig = Rig::new(node, steps(story()));
    rig.tool("look", (Effect::Pure, 0), |call| good(json!({ "seen": call.arguments["x"] })));
    let paid = rig.tool("pay", (Effect::Once, 0), |_| good(json!("paid")));
    rig.row(row("send", Some("cmd.tool.post.send")));
    (rig, paid)
}

/// Whatever moment a worker is lost at, another one goes on where the turn was, and the end is the same.
#[test]
fn a_worker_may_be_lost_at_any_moment() {
    both(|node| {
        let (mut rig, paid) = rig(node);
        let id = rig.ask(1_000, 1);
        let mut worker = rig.worker();
        let hands = rig.hands.clone();
        rig.until(&mut [&mut worker], |node| {
            answer_all(node, T0);
            node.row(&id).closed_ms.is_some()
        });
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        drop(worker);
        let wanted = cards_of(node, 1_000);
        assert_eq!(paid.lock().unwrap().len(), 1);
        let mut lost = 0;
        for (k, dies) in (1..200).flat_map(|k| [(k, false), (k, true)]) {
            paid.lock().unwrap().clear();
            let n = 2_000 + lost;
            let id = rig.ask(n, lost % 8);
            let mut first = rig.worker();
            let over = |node: &Node| {
                answer_all(node, T0);
                node.row(&id).closed_ms.is_some()
            };
            let alone = rig.until_polls(&mut [&mut first], k, over);
            drop(first);
            if dies {
                rig.crash();
            }
            lost += 1;
            let mut second = rig.worker();
            rig.until(&mut [&mut second], over);
            assert_eq!(node.ended(&id), (Some(Outcome::Success), None), "lost after {k} looks");
            assert_eq!(cards_of(node, n), wanted, "lost after {k} looks");
            let done = paid.lock().unwrap();
            let ids: BTreeSet<_> = done.iter().map(|call| call.tool_call_id.clone()).collect();
            assert_eq!(ids.len(), 1, "lost after {k} looks");
            let numbers: BTreeSet<i64> = node.steps(&id).iter().map(|step| step.number).collect();
            assert_eq!(numbers.len(), story().len());
            if alone {
                assert!(k > 10, "a story has more than {k} moments");
                break;
            }
        }
        assert!(lost > 20, "{lost}");
        assert!(hands.first_ms().is_some());
        node.assert_well();
    });
}

/// What a worker remembers is what another one reads.
#[test]
fn another_worker_asks_the_same() {
    let prompts = |changes: bool| {
        let node = Node::sqlite(Default::default());
        let (mut rig, _) = rig(&node);
        rig.profile(json!({ "system_prompt_template": "You are {display_name}.", "max_steps": 5 }));
        let id = rig.ask(1, 1);
        let mut worker = rig.worker();
        let over = |node: &Node| {
            answer_all(node, T0);
            node.row(&id).closed_ms.is_some()
        };
        let mut lost = 0;
        loop {
            let polls = if changes { worker.polls + 1 } else { 1_000 };
            if rig.until_polls(&mut [&mut worker], polls, over) {
                break;
            }
            let mut steps = node.steps(&id);
            steps.retain(|step| step.status.as_str() != "abandoned" && step.ended_ms.is_some());
            let done = steps.len();
            let asked = rig.model.asked.lock().unwrap().len();
            if done == asked && done > lost {
                // It has written a step, and has not asked for the next one.
                lost = done;
                drop(worker);
                rig.crash();
                worker = rig.worker();
            }
        }
        assert_eq!(lost > 0, changes);
        let asked = rig.model.asked.lock().unwrap();
        asked.iter().map(shown).collect::<Vec<_>>()
    };
    let (remembered, read) = (prompts(false), prompts(true));
    assert_eq!(remembered.len(), story().len());
    assert_eq!(remembered, read);
}

/// A worker that was away for too long writes nothing, whatever it believes.
#[test]
fn whoever_was_away_writes_nothing() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done"))).slow(5_000);
        let id = rig.ask(1, 1);
        let mut away = rig.worker();
        rig.work(&mut [&mut away], usize::MAX);
        assert_eq!(node.head(1).status(), "running");
        let mut other = rig.worker();
        rig.until(&mut [&mut other], |node| node.row(&id).closed_ms.is_some());
        assert!(rig.now_ms() > T0 + 30_000);
        assert_eq!(other.counts.of("finished"), 1);
        let before = node.dump();
        let end_ms = rig.now_ms() + 100_000;
        let hands = rig.hands.clone();
        rig.until(&mut [&mut away], |_| hands.now_ms() >= end_ms);
        assert_eq!(node.dump(), before);
        assert_eq!((away.counts.of("finished"), away.counts.of("claimed")), (0, 1));
        assert_eq!(away.counts.of("fenced") + away.counts.of("dropped"), 1);
        node.assert_well();
    });
}

/// Heartbeats keep a turn while its model takes longer than a lease, and a run while its tool does.
#[test]
fn slow_things_are_kept() {
    both(|node| {
        let replies = vec![calls(&[("pay", "{}")]), say("done")];
        let mut rig = Rig::new(node, steps(replies)).slow(100_000);
        let paid = rig.tool("pay", (Effect::Once, 100_000), |_| good(json!("paid")));
        let mut patient = row("pay", None);
        patient.options = json!({ "suspend_timeout_seconds": 200 });
        rig.row(patient);
        let id = rig.ask(1, 1);
        let (mut worker, mut other) = (rig.worker(), rig.worker());
        rig.until(&mut [&mut worker, &mut other], |node| node.row(&id).closed_ms.is_some());
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        assert_eq!(rig.now_ms(), T0 + 300_000);
        assert_eq!(paid.lock().unwrap().len(), 1);
        assert_eq!(node.steps(&id).len(), 2);
        node.assert_well();
    });
}

/// A clock that jumps ahead makes every lease late: the turn is done once all the same.
#[test]
fn a_clock_that_jumps_takes_nothing_twice() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done"))).slow(10_000);
        let ids: Vec<_> = (1..=4).map(|n| rig.ask(n, n)).collect();
        let (mut one, mut two) = (rig.worker(), rig.worker());
        rig.work(&mut [&mut one], usize::MAX);
        rig.hands.turn_to(T0 + 3_600_000);
        rig.until(&mut [&mut two, &mut one], |node| {
            ids.iter().all(|id| node.row(id).closed_ms.is_some())
        });
        for id in &ids {
            assert_eq!(node.ended(id), (Some(Outcome::Success), None));
        }
        assert_eq!(one.counts.of("finished") + two.counts.of("finished"), 4);
        node.assert_well();
    });
}

/// A run whose worker was lost is taken over, under the same id.
#[test]
fn a_lost_run_is_taken_over() {
    both(|node| {
        let replies = vec![calls(&[("pay", r#"{"x":7}"#)]), say("done")];
        let mut rig = Rig::new(node, steps(replies));
        let paid = rig.tool("pay", (Effect::Once, 20_000), |_| good(json!("paid")));
        let mut patient = row("pay", None);
        patient.options = json!({ "suspend_timeout_seconds": 200, "envs": { "key": "PAY_KEY" } });
        rig.row(patient);
        rig.environment.insert("PAY_KEY".to_owned(), "secret".to_owned());
        let id = rig.ask(1, 1);
        let mut first = rig.worker();
        let called = paid.clone();
        rig.until(&mut [&mut first], |_| !called.lock().unwrap().is_empty());
        drop(first);
        rig.crash();
        let mut second = rig.worker();
        rig.until(&mut [&mut second], |node| node.row(&id).closed_ms.is_some());
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        let paid = paid.lock().unwrap();
        assert_eq!(paid.len(), 2);
        assert_eq!(paid[0], paid[1]);
        assert_eq!(paid[0].arguments, json!({ "x": 7, "key": "secret" }));
        assert_eq!(second.counts.of("picked_up"), 1);
        assert!(!node.dump().contains("secret"), "what comes from the environment is not kept");
        node.assert_well();
    });
}

/// Who stops gives back what it holds: nobody waits for the end of a lease.
#[test]
fn a_shutdown_gives_everything_back() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done"))).slow(5_000);
        let id = rig.ask(1, 1);
        let mut first = rig.worker();
        rig.work(&mut [&mut first], usize::MAX);
        assert_eq!(node.head(1).status(), "running");
        let counts = first.counts.clone();
        first.stop(&mut rig);
        assert_eq!(node.head(1).status(), "dispatched", "{:?}", counts.all());
        let mut second = rig.worker();
        rig.until(&mut [&mut second], |node| node.row(&id).closed_ms.is_some());
        assert_eq!(rig.now_ms(), T0 + 5_000);
        let steps = node.steps(&id);
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0].status.as_str(), "abandoned");
        node.assert_well();
    });
}

/// A target that only one may serve is served by one; the next one waits for its end.
#[test]
fn a_target_for_one_is_served_by_one() {
    both(|node| {
        node.write(|tx| {
            let alone = Agent { worker_target: "svc1_post_1".to_owned(), ..agent(77) };
            roster::put_agent(tx, &alone, &json!({}), T0)
        })
        .unwrap();
        assert_eq!(key(77).agent_id.as_str(), "a77");
        let mut rig = Rig::new(node, |_| Ok(say("done")));
        let targets = vec![WorkerTarget::parse("svc1_post_1").unwrap()];
        let options = Options { targets, ..rig.options.clone() };
        let (mut first, mut second) = (rig.worker_with(options.clone()), rig.worker_with(options));
        rig.work(&mut [&mut first, &mut second], usize::MAX);
        assert_eq!(second.counts.of("target_held"), 1);
        for n in 1..=3 {
            let id = rig.ask(n, 77);
            rig.until(&mut [&mut second, &mut first], |node| node.row(&id).closed_ms.is_some());
        }
        assert_eq!((first.counts.of("claimed"), second.counts.of("claimed")), (3, 0));
        drop(first);
        let id = rig.ask(4, 77);
        let before_ms = rig.now_ms();
        rig.until(&mut [&mut second], |node| node.row(&id).closed_ms.is_some());
        assert!(rig.now_ms() - before_ms >= 10_000, "the lease must end first");
        assert_eq!(second.counts.of("claimed"), 1);
        node.assert_well();
    });
}

/// Rows that no code of ours writes: one turn is in error, and nobody else is delayed.
#[test]
fn bad_rows_are_put_aside() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done")));
        let ids: Vec<_> = (1..=5).map(|n| rig.ask(n, n)).collect();
        let plants = [
            "UPDATE agent_state_head SET context_box_id = 'rubbish' WHERE agent_id = 'a1'",
            "UPDATE cards SET content = 'no json' WHERE card_id = 'card_00000000000000000000000000000002'",
            "INSERT INTO card_box_entries (box_id, place, card_id)
               SELECT output_box_id, 0, 'card_00000000000000000000000000000001' FROM agent_state_head
               WHERE agent_id = 'a3'",
            "UPDATE agent_state_head SET profile_name = 'gone' WHERE agent_id = 'a4'",
        ];
        for plant in plants {
            assert_eq!(node.plant(plant), 1, "{plant}");
        }
        let mut worker = rig.worker();
        rig.until(&mut [&mut worker], |node| ids.iter().all(|id| node.row(id).closed_ms.is_some()));
        assert_eq!(rig.now_ms(), T0, "nobody waited");
        let ended: Vec<_> = ids.iter().map(|id| (node.row(id).status, node.ended(id).1)).collect();
        let code = |name: &str| Some(name.to_owned());
        assert_eq!(ended[0], (InboxStatus::Error, code("kernel.malformed_row")));
        assert_eq!(ended[1], (InboxStatus::Consumed, None), "a card less is no reason to fail");
        assert_eq!(ended[2], (InboxStatus::Error, code("kernel.unwritable")));
        assert_eq!(ended[3], (InboxStatus::Consumed, code("kernel.bad_profile")));
        assert_eq!(ended[4], (InboxStatus::Consumed, None));
        assert!(plain(&node.steps(&ids[1])[0].metadata).contains("cannot be read"));
        for id in &ids {
            assert!(node.deliverable(id).is_some());
        }
        // They take work again.
        node.plant("DELETE FROM card_box_entries WHERE card_id = 'card_00000000000000000000000000000001' AND place = 0 AND box_id = 'box_00000000000000000000000000000007'");
        let again: Vec<_> = [1, 3].into_iter().map(|n| rig.ask(10 + n, n)).collect();
        rig.until(&mut [&mut worker], |node| {
            again.iter().all(|id| node.row(id).closed_ms.is_some())
        });
        for id in &again {
            assert_eq!(node.ended(id), (Some(Outcome::Success), None));
        }
        node.assert_well();
    });
}

/// What the database cannot do now it is asked for again; what it will not do ends the turn, and nobody else's.
#[test]
fn what_passes_is_waited_for_and_what_does_not_ends_one_turn() {
    use guild_store::Error as Store;
    let passing: [fn() -> Store; 2] =
        [|| Store::Full("no room".to_owned()), || Store::Io("disk I/O error".to_owned())];
    both(|node| {
        let planned: Arc<Mutex<VecDeque<Store>>> = Arc::default();
        let mut rig = Rig::new(node, |_| Ok(say("done")));
        let (armed, refusals) = (planned.clone(), rig.refusals.clone());
        rig.saying(move |_| {
            // The next thing that is written is the step.
            refusals.lock().unwrap().append(&mut armed.lock().unwrap());
            Ok(say("done"))
        });
        for (n, error) in (1..).zip(passing) {
            planned.lock().unwrap().extend([error(), error(), error()]);
            let id = rig.ask(n, n);
            let counts = rig.finish(&id);
            assert_eq!(node.ended(&id), (Some(Outcome::Success), None), "{}", error());
            assert!(counts.of("error") > 0 && counts.of("unwritten") == 0, "{}", error());
            assert_eq!(node.steps(&id).len(), 1, "it is the same step");
        }
        planned.lock().unwrap().push_back(Store::Database("CHECK constraint failed".to_owned()));
        let id = rig.ask(7, 7);
        let counts = rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Failed), Some("store.database".to_owned())));
        assert_eq!((counts.of("unwritten"), counts.of("marked")), (1, 0));
        let used = &node.steps(&id)[0].usage;
        assert_eq!(
            (used.prompt_tokens, used.cost_micro_usd),
            (5, 3),
            "the model is paid all the same"
        );
        node.assert_well();
    });
}

/// The query that `docs/models.md` shows: what each model has used, and how often that is not known.
#[test]
fn what_models_cost_is_summed_by_a_query() {
    let page = include_str!("../../../../docs/models.md");
    let (_, rest) = page.split_once("```sql\n").unwrap();
    let sql: &'static str = rest.split_once(";\n```").unwrap().0;
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done")));
        rig.saying(|prompt| {
            let mut reply = say("done");
            if shown(prompt).contains("do 3") {
                reply.usage.model = Some("free".to_owned());
                (reply.usage.cost_micro_usd, reply.usage.cost_unknown) = (0, true);
            }
            Ok(reply)
        });
        for n in 1..=3 {
            let id = rig.ask(n, n);
            rig.finish(&id);
        }
        type Row = (Option<String>, i64, i64, i64, i64);
        let mut rows: Vec<Row> = node.read(move |rx| {
            // A server counts sums of its largest integers without a bound.
            let sql = format!(
                "SELECT model, CAST(p AS BIGINT), CAST(c AS BIGINT), CAST(m AS BIGINT), CAST(u AS BIGINT)
                 FROM ({}) AS used",
                sql.replacen("SUM(prompt_tokens)", "SUM(prompt_tokens) AS p", 1)
                    .replacen("SUM(completion_tokens)", "SUM(completion_tokens) AS c", 1)
                    .replacen("SUM(cost_micro_usd)", "SUM(cost_micro_usd) AS m", 1)
                    .replacen("SUM(cost_unknown)", "SUM(cost_unknown) AS u", 1)
            );
            Ok(rx.all(&*String::leak(sql), args![])?)
        });
        rows.sort();
        let row = |model: &str, used: [i64; 4]| {
            (Some(model.to_owned()), used[0], used[1], used[2], used[3])
        };
        assert_eq!(rows, [row("free", [5, 2, 0, 1]), row("script", [10, 4, 6, 0])]);
    });
}

/// What a sweep cannot do is tried a few times, and then put aside.
#[test]
fn what_cannot_be_swept_is_put_aside() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("done")));
        let ids: Vec<_> = (1..=3).map(|n| rig.ask(n, n)).collect();
        node.claim(&[1, 2, 3], T0);
        assert_eq!(
            node.plant("UPDATE agent_state_head SET lost_leases = 4 WHERE agent_id = 'a2'"),
            1
        );
        let grow = "INSERT INTO card_box_entries (box_id, place, card_id)
                    SELECT output_box_id, 0, 'card_00000000000000000000000000000001' FROM agent_state_head
                    WHERE agent_id = 'a2'";
        assert_eq!(node.plant(grow), 1);
        assert_eq!(
            node.plant("UPDATE agent_state_head SET channel_id = 'a.b' WHERE agent_id = 'a3'"),
            1
        );
        let mut worker = rig.worker();
        rig.until(&mut [&mut worker], |node| ids.iter().all(|id| node.row(id).closed_ms.is_some()));
        assert_eq!(node.ended(&ids[0]), (Some(Outcome::Success), None));
        for id in &ids[1..] {
            assert_eq!(node.row(id).error_code.as_deref(), Some("kernel.unwritable"));
            assert!(node.deliverable(id).is_some());
        }
        assert_eq!(worker.counts.of("marked"), 2);
        assert!(rig.now_ms() < T0 + 20_000, "{}", rig.now_ms() - T0);
        let again = rig.ask(13, 3);
        rig.until(&mut [&mut worker], |node| node.row(&again).closed_ms.is_some());
        assert_eq!(node.ended(&again), (Some(Outcome::Success), None));
    });
}
