//! What agents call: in the worker, elsewhere, wrongly, and too much.

use std::sync::Mutex;

use guild_kernel::inbox::Outcome;
use guild_kernel::model::Failure;
use guild_kernel::roster::AfterExecution;
use guild_kernel::tool::{Effect, ToolOutcome};
use serde_json::{Value, json};

use crate::rig::{
    Rig, answer_all, calls, cards_of, elsewhere, good, row, say, shown, steps, steps_before,
};
use crate::world::{Node, T0, both};

/// The last question, in words.
fn last(rig: &Rig<'_>) -> String {
    shown(rig.model.asked.lock().unwrap().last().unwrap())
}

#[test]
fn tools_with_an_effect_run_once_their_call_is_written() {
    both(|node| {
        let replies = vec![calls(&[("pay", r#"{"x":1}"#), ("pay", r#"{"x":2}"#)]), say("Paid.")];
        let mut rig = Rig::new(node, steps(replies));
        let paid = rig.tool("pay", (Effect::Once, 10), |call| good(call.arguments["x"].clone()));
        let id = rig.ask(1, 1);
        let counts = rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        let paid = paid.lock().unwrap();
        assert_eq!(paid.len(), 2);
        assert_ne!(paid[0].tool_call_id, paid[1].tool_call_id);
        let told = ["queued", "1/running", "1/suspended", "1/dispatched", "2/running", "task"];
        assert_eq!(node.told(&id), told);
        assert_eq!((counts.of("suspended"), counts.of("tool_run")), (1, 2));
        assert_eq!(
            node.read(|rx| Ok(rx.first::<(i64,)>("SELECT count(*) FROM outbox", &[])?)),
            Some((0,))
        );
        node.assert_well();
    });
}

#[test]
fn calls_elsewhere_are_answered_in_any_order() {
    both(|node| {
        let replies = vec![calls(&[("a", "{}"), ("b", "{}"), ("c", "{}")]), say("All.")];
        let mut rig = Rig::new(node, steps(replies));
        for name in ["a", "b", "c"] {
            rig.row(row(name, Some(&format!("cmd.tool.shop.{name}"))));
        }
        let id = rig.ask(1, 1);
        let mut worker = rig.worker();
        rig.until(&mut [&mut worker], |node| elsewhere(node).len() == 3);
        let mut waiting = elsewhere(node);
        waiting.sort_by(|one, other| other.tool_name.cmp(&one.tool_name));
        for call in &waiting {
            node.report(&call.report, T0 + 1);
            node.report(&call.report, T0 + 1);
        }
        rig.until(&mut [&mut worker], |node| node.row(&id).closed_ms.is_some());
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        let asked = last(&rig);
        let places: Vec<_> =
            ["a is done", "b is done", "c is done"].map(|text| asked.find(text).unwrap()).into();
        assert!(places.is_sorted(), "results stand behind their calls, in their order:\n{asked}");
        node.report(&waiting[0].report, T0 + 2);
        node.assert_well();
    });
}

#[test]
fn who_never_answers_is_given_up() {
    both(|node| {
        let replies = vec![calls(&[("a", "{}")]), say("Never mind.")];
        let mut rig = Rig::new(node, steps(replies));
        rig.row(row("a", Some("cmd.tool.shop.a")));
        let id = rig.ask(1, 1);
        rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        assert!((T0 + 30_000..T0 + 32_000).contains(&rig.now_ms()));
        assert!(last(&rig).contains("kernel.tool_timeout"), "{}", last(&rig));
        node.assert_well();
    });
}

#[test]
fn a_result_can_end_the_turn() {
    both(|node| {
        let replies = vec![calls(&[("bye", "{}"), ("look", "{}")])];
        let mut rig = Rig::new(node, steps(replies));
        let ends = json!({ "x": 1, "__cg_control": { "after_execution": "terminate" } });
        rig.tool("bye", (Effect::Pure, 0), move |_| good(ends.clone()));
        rig.tool("look", (Effect::Pure, 0), |_| good(json!(1)));
        let id = rig.ask(1, 1);
        rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        assert_eq!(node.steps(&id).len(), 1);
        // The same, while the turn waits for something else.
        rig.row(row("send", Some("cmd.tool.post.send")));
        let replies = vec![calls(&[("bye", "{}"), ("send", "{}")])];
        let mut rig = Rig::new(node, steps(replies));
        let bad = ToolOutcome {
            status: Outcome::Failed,
            after_execution: Some(AfterExecution::Terminate),
            ..good(json!(null))
        };
        rig.tool("bye", (Effect::Pure, 0), move |_| bad.clone());
        let id = rig.ask(2, 2);
        let mut worker = rig.worker();
        rig.until(&mut [&mut worker], |node| {
            answer_all(node, T0);
            node.row(&id).closed_ms.is_some()
        });
        assert_eq!(node.ended(&id), (Some(Outcome::Failed), None));
        assert_eq!(rig.model.asked.lock().unwrap().len(), 1);
        // And one that somebody else sends.
        let replies = vec![calls(&[("send", "{}")])];
        let mut rig = Rig::new(node, steps(replies));
        let id = rig.ask(3, 3);
        let mut worker = rig.worker();
        rig.until(&mut [&mut worker], |node| {
            for mut call in elsewhere(node) {
                call.report.result = json!({ "__cg_control": { "after_execution": "terminate" } });
                node.report(&call.report, T0);
            }
            node.row(&id).closed_ms.is_some()
        });
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        node.assert_well();
    });
}

#[test]
fn what_a_model_calls_wrongly_it_is_told() {
    both(|node| {
        let big = format!(r#"{{"x":"{}"}}"#, "x".repeat(10_000_000));
        let replies = vec![
            calls(&[
                ("look", "{\"x\":"),
                ("look", "[1]"),
                ("look", r#"{"x":12345678901234567890}"#),
            ]),
            calls(&[("nothing", "{}"), ("look", &big), ("look", "")]),
            say("Sorry."),
        ];
        let mut rig = Rig::new(node, steps(replies));
        let looked = rig.tool("look", (Effect::Pure, 0), |_| good(json!(1)));
        let (id, other) = (rig.ask(1, 1), rig.ask(2, 2));
        let mut worker = rig.worker();
        rig.until(&mut [&mut worker], |node| {
            [&id, &other].into_iter().all(|id| node.row(id).closed_ms.is_some())
        });
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        assert_eq!(looked.lock().unwrap().len(), 2, "only what can be called is, in each turn");
        let asked = last(&rig);
        let codes = ["kernel.bad_arguments", "kernel.unknown_tool", "kernel.too_large"];
        let counts = codes.map(|code| asked.matches(code).count());
        assert_eq!(counts, [3, 1, 1], "{asked}");
        let steps = node.steps(&id);
        assert!(steps[0].metadata.contains("no JSON"), "{}", steps[0].metadata);
        assert!(steps[1].metadata.contains("bytes"), "{}", steps[1].metadata);
        assert!(node.dump().len() < 1_000_000);
        node.assert_well();
    });
}

#[test]
fn tools_that_break_break_nothing_else() {
    both(|node| {
        let replies = vec![
            calls(&[("panics", "{}"), ("huge", "{}"), ("slow", "{}"), ("good", "{}")]),
            say("Oh."),
        ];
        let mut rig = Rig::new(node, steps(replies));
        for (at, effect) in [Effect::Pure, Effect::Once].into_iter().enumerate() {
            rig.tool("panics", (effect, 0), |_| panic!("by a bug"));
            rig.tool("huge", (effect, 0), |_| good(json!("x".repeat(3_000_000))));
            rig.tool("slow", (effect, 3_600_000), |_| good(json!(1)));
            rig.tool("good", (effect, 0), |_| good(json!("fine")));
            let n = u32::try_from(at).unwrap() + 1;
            let id = rig.ask(n, n);
            rig.finish(&id);
            assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
            let cards = cards_of(node, n).join("\n");
            let words = ["kernel.tool_failed", "kernel.too_large", "kernel.tool_timeout", "fine"];
            let counts = words.map(|word| cards.matches(word).count());
            assert_eq!(counts, [1, 1, 1, 1], "{cards}");
        }
        node.assert_well();
    });
}

#[test]
fn what_a_model_may_not_choose_it_does_not_see() {
    let node = Node::sqlite(Default::default());
    let mut rig = Rig::new(
        &node,
        steps(vec![calls(&[("pay", r#"{"to":"me","key":"mine","sum":1}"#)]), say("ok")]),
    );
    let paid = rig.tool("pay", (Effect::Pure, 0), |_| good(Value::Null));
    let mut pay = row("pay", None);
    let text = json!({ "type": "string" });
    pay.parameters = json!({
        "type": "object",
        "properties": { "to": text, "key": text, "sum": text, "note": text },
        "required": ["to", "key", "sum", "note"],
    });
    pay.options = json!({
        "args": { "defaults": { "note": "none", "sum": 9 }, "fixed": { "to": "you" } },
        "envs": { "key": "PAY_KEY" },
    });
    rig.row(pay);
    let id = rig.ask(1, 1);
    rig.finish(&id);
    assert!(last(&rig).contains("kernel.missing_environment"), "{}", last(&rig));
    assert!(paid.lock().unwrap().is_empty());
    rig.environment.insert("PAY_KEY".to_owned(), "secret".to_owned());
    let id = rig.ask(2, 1);
    rig.finish(&id);
    let wanted = json!({ "to": "you", "key": "secret", "sum": 1, "note": "none" });
    assert_eq!(paid.lock().unwrap()[0].arguments, wanted);
    let offered = rig.model.asked.lock().unwrap()[0].tools[0].parameters.clone();
    let properties = json!({ "sum": text, "note": text });
    assert_eq!(offered, json!({ "type": "object", "properties": properties, "required": [] }));
    assert!(!node.dump().contains("secret"));
    // Elsewhere too: the call is made only by a worker that has it, and the card does not say it.
    let mut send = row("send", Some("cmd.tool.post.send"));
    send.options = json!({ "envs": { "key": "PAY_KEY" } });
    rig.row(send);
    rig.saying(steps(vec![calls(&[("send", r#"{"key":"mine","x":1}"#)]), say("sent")]));
    let id = rig.ask(3, 1);
    let mut worker = rig.worker();
    rig.until(&mut [&mut worker], |node| elsewhere(node).len() == 1);
    answer_all(&node, T0 + 1);
    rig.until(&mut [&mut worker], |node| node.row(&id).closed_ms.is_some());
    assert!(!node.dump().contains("secret"));
    assert!(cards_of(&node, 3).iter().any(|card| card.contains(r#""arguments":{"x":1}"#)));
    node.assert_well();
}

#[test]
fn a_profile_says_what_may_be_called() {
    let node = Node::sqlite(Default::default());
    let mut rig = Rig::new(&node, |_| Ok(say("ok")));
    rig.tool("look", (Effect::Pure, 0), |_| good(Value::Null));
    rig.row(row("send", Some("cmd.tool.post.send")));
    rig.row(row("absent", None));
    let mut n = 0;
    let mut offered = |rig: &mut Rig<'_>, body: Value| {
        n += 1;
        rig.profile(body);
        let id = rig.ask(n, 1);
        rig.finish(&id);
        let asked = rig.model.asked.lock().unwrap();
        let names: Vec<String> =
            asked.last().unwrap().tools.iter().map(|tool| tool.name.clone()).collect();
        (names.join(" "), node.steps(&id)[0].metadata.clone())
    };
    let (names, warnings) = offered(&mut rig, json!({}));
    assert_eq!(names, "look send submit_result");
    assert!(warnings.contains("this worker does not have it"), "{warnings}");
    let (names, warnings) = offered(&mut rig, json!({ "allowed_tools": ["look", "gone"] }));
    assert_eq!(names, "look submit_result");
    assert!(warnings.contains("gone"), "{warnings}");
    let nothing = json!({ "allowed_tools": [], "allowed_internal_tools": [] });
    assert_eq!(offered(&mut rig, nothing), (String::new(), "{}".to_owned()));
    node.assert_well();
}

/// A misspelt option does nothing, and is told of in every step.
#[test]
fn an_option_that_is_none_is_warned_of() {
    let node = Node::sqlite(Default::default());
    let mut rig = Rig::new(&node, |_| Ok(say("ok")));
    rig.tool("look", (Effect::Pure, 0), |_| good(Value::Null));
    let mut look = row("look", None);
    look.options = json!({
        "suspend_timeout_ms": 5, "args": { "default": {}, "fixed": {} }, "kept_by_node": true, "timeout_seconds": 3,
    });
    rig.row(look);
    let id = rig.ask(1, 1);
    rig.finish(&id);
    let warnings = &node.steps(&id)[0].metadata;
    let told = json!({ "warnings": [
        "look has an option \"suspend_timeout_ms\", which is none",
        "look has an option \"args.default\", which is none",
    ] });
    assert_eq!(serde_json::from_str::<Value>(warnings).unwrap(), told);
    node.assert_well();
}

#[test]
fn a_model_that_is_busy_is_asked_again() {
    both(|node| {
        let times = Mutex::new(0);
        let mut rig = Rig::new(node, move |_| {
            let mut times = times.lock().unwrap();
            *times += 1;
            let retry_after_ms = (*times == 2).then_some(20_000);
            if *times < 3 {
                return Err(Failure::Busy {
                    message: "later".to_owned(),
                    retry_after_ms,
                    cost_unknown: false,
                });
            }
            Ok(say("Now."))
        });
        let id = rig.ask(1, 1);
        let counts = rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        assert_eq!(counts.of("model_retry"), 2);
        let waited_ms = rig.now_ms() - T0;
        assert!((22_000..23_000).contains(&waited_ms), "{waited_ms}");
        node.assert_well();
    });
}

#[test]
fn a_model_that_fails_ends_the_turn_with_a_code() {
    both(|node| {
        let busy = |retry_after_ms| Failure::Busy {
            message: "no".to_owned(),
            retry_after_ms,
            cost_unknown: false,
        };
        let failures = [
            (busy(None), "kernel.model_busy", 3),
            (busy(Some(3_600_000)), "kernel.model_busy", 1),
            (Failure::Refused("wrong key".to_owned()), "kernel.model_refused", 1),
            (Failure::Garbled("<html>".to_owned()), "kernel.model_garbled", 1),
        ];
        for (at, (failure, code, asked)) in failures.into_iter().enumerate() {
            let n = u32::try_from(at).unwrap() + 1;
            let mut rig = Rig::new(node, move |_| Err(failure.clone()));
            let id = rig.ask(n, n);
            rig.finish(&id);
            assert_eq!(node.ended(&id), (Some(Outcome::Failed), Some(code.to_owned())));
            assert_eq!(rig.model.asked.lock().unwrap().len(), asked);
            assert_eq!(node.output(n), ["agent.error", "task.deliverable"]);
            assert_eq!(node.steps(&id)[0].error_code.as_deref(), Some(code));
        }
        let mut rig = Rig::new(node, |_| Ok(say("late"))).slow(3_600_000);
        let id = rig.ask(9, 6);
        rig.finish(&id);
        assert_eq!(node.ended(&id).1.as_deref(), Some("kernel.model_timeout"));
        let mut rig = Rig::new(node, |prompt| match steps_before(prompt) {
            0 => Ok(calls(&[("nothing", "{}")])),
            _ => panic!("by a bug"),
        });
        let id = rig.ask(10, 7);
        rig.finish(&id);
        assert_eq!(node.ended(&id).1.as_deref(), Some("kernel.model_garbled"));
        node.assert_well();
    });
}

#[test]
fn many_turns_are_done_together() {
    both(|node| {
        let replies = vec![calls(&[("look", "{}")]), calls(&[("pay", "{}")]), say("ok")];
        let mut rig = Rig::new(node, steps(replies));
        rig.options.tasks = 16;
        rig.tool("look", (Effect::Pure, 0), |_| good(Value::Null));
        rig.tool("pay", (Effect::Once, 0), |_| good(Value::Null));
        let ids: Vec<_> = (1..=40).map(|n| rig.ask(n, n % 8)).collect();
        let (mut one, mut two) = (rig.worker(), rig.worker());
        rig.until(&mut [&mut one, &mut two], |node| {
            ids.iter().all(|id| node.row(id).closed_ms.is_some())
        });
        for id in &ids {
            assert_eq!(node.ended(id), (Some(Outcome::Success), None));
            assert_eq!(node.steps(id).len(), 3);
        }
        assert_eq!(rig.now_ms(), T0, "bells wake, no sweep is needed");
        assert_eq!(one.counts.of("finished") + two.counts.of("finished"), 40);
        node.assert_well();
    });
}
