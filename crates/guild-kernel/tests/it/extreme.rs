//! Numbers and nestings that could be written once and never read again: they stay outside, and what holds them
//! already stops nobody.

use guild_kernel::inbox::Outcome::{self, Partial, Success};
use guild_kernel::tool::Effect;
use guild_kernel::turn::{Finish, Then};
use guild_store::args;
use serde_json::{Value, json};

use crate::office::{answer, fork, furnish};
use crate::replay::exported;
use crate::rig::{Rig, calls, elsewhere, good, row, say, shown, steps};
use crate::world::{T0, both};

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

fn deep(levels: usize) -> String {
    nested(levels).to_string()
}

/// Both are refused at the door, with a code that the model or the caller is told.
#[test]
fn what_cannot_be_read_again_is_not_taken() {
    both(|node| {
        let bad = [("1e16".to_owned(), "json.integer_range"), (deep(65), "json.depth")];
        for (n, (value, code)) in (1..).zip(bad) {
            let arguments = format!(r#"{{"x":{value}}}"#);
            let said = arguments.as_str();
            let first = calls(&[("look", said), ("send", said), ("give", "{}")]);
            let result = format!(r#"{{"result":{{"a":{value}}}}}"#);
            let last = calls(&[("submit_result", result.as_str())]);
            let replies = vec![first, last, say("Seen.")];
            let mut rig = Rig::new(node, steps(replies));
            let looked = rig.tool("look", (Effect::Pure, 0), |_| good(Value::Null));
            let given: Value = serde_json::from_str(&value).unwrap();
            rig.tool("give", (Effect::Pure, 0), move |_| good(given.clone()));
            rig.row(row("send", Some("cmd.tool.post.send")));
            let id = rig.ask(n, n);
            rig.finish(&id);
            assert_eq!(node.ended(&id), (Some(Success), None));
            assert!(looked.lock().unwrap().is_empty(), "it was never called");
            let told = shown(rig.model.asked.lock().unwrap().last().unwrap());
            assert_eq!(told.matches("kernel.bad_arguments").count(), 3, "{told}");
            assert!(told.contains(code), "the result of a tool is refused too: {told}");
            exported(node, &id);
        }
        node.assert_well();
    });
}

/// What is as deep as may be goes through everything: a call, its result, what is delivered, the replay.
#[test]
fn what_is_just_not_too_deep_is_carried_through() {
    both(|node| {
        let value = deep(60);
        let said = [format!(r#"{{"x":{value}}}"#), format!(r#"{{"result":{{"a":{value}}}}}"#)];
        let first = calls(&[("look", said[0].as_str())]);
        let last = calls(&[("submit_result", said[1].as_str())]);
        let mut rig = Rig::new(node, steps(vec![first, last]));
        rig.tool("look", (Effect::Once, 0), |call| good(call.arguments["x"].clone()));
        let id = rig.ask(1, 1);
        rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Success), None));
        assert!(node.deliverable(&id).unwrap().content.contains(&value));
        assert!(exported(node, &id).matches(&value).count() >= 4, "said and called, twice");
        node.assert_well();
    });
}

/// A tool elsewhere is told that its report is not taken, and may send another one.
#[test]
fn a_report_that_cannot_be_read_again_is_refused() {
    both(|node| {
        let mut rig = Rig::new(node, steps(vec![calls(&[("send", "{}")]), say("Sent.")]));
        rig.row(row("send", Some("cmd.tool.post.send")));
        let id = rig.ask(1, 1);
        let mut worker = rig.worker();
        rig.until(&mut [&mut worker], |node| elsewhere(node).len() == 1);
        let good_report = elsewhere(node).remove(0).report;
        for (result, code) in [(json!(1e16), "json.integer_range"), (nested(65), "json.depth")] {
            let report = guild_kernel::turn::Report { result, ..good_report.clone() };
            let taken = node.write(move |tx| {
                guild_kernel::turn::report_all(tx, std::slice::from_ref(&report), T0)
            });
            assert_eq!(taken.unwrap().remove(0).unwrap_err().code().name, code);
        }
        node.report(&good_report, T0 + 1);
        rig.until(&mut [&mut worker], |node| node.row(&id).closed_ms.is_some());
        assert_eq!(node.ended(&id), (Some(Success), None));
        node.assert_well();
    });
}

/// One child that delivers what cannot be repeated keeps no other one from ending.
#[test]
fn what_one_task_delivers_stops_no_other() {
    both(|node| {
        furnish(node);
        let forked = fork(node, 1, 3, json!({}));
        // The door is shut: such a deliverable is refused, and the turn is told so.
        let finish = |value: Value| {
            let deliverable = Some(json!({ "fields": [{ "name": "n", "value": value }] }));
            Then::Finish(Finish { outcome: Success, deliverable, error_code: None })
        };
        let first = &forked.fences[&forked.turns[0]];
        for value in [json!(1e16), nested(99)] {
            assert!(node.commit(first, finish(value), T0 + 3).is_err());
        }
        // Cards that another version has let in.
        for (task, content) in
            [(0, r#"{"n":10000000000000000}"#.to_owned()), (1, format!(r#"{{"n":{}}}"#, deep(126)))]
        {
            forked.end(node, task, Success, T0 + 3);
            let turn = forked.turns[task].to_string();
            node.write(move |tx| {
                let sql = "UPDATE cards SET content = $1 WHERE type = 'task.deliverable' AND agent_turn_id = $2";
                Ok(tx.exec(sql, args![&content, &turn])?)
            })
            .unwrap();
        }
        forked.end(node, 2, Success, T0 + 4);
        assert_eq!(forked.ended(node), (Some(Success), vec![Some(Success); 3]));
        let told = answer(node, &forked.asked).unwrap();
        let results = told["result"]["results"].as_array().unwrap();
        for result in &results[..2] {
            assert_eq!(result.get("summary"), None);
            let warning = result["warning"].as_str().unwrap();
            assert!(warning.contains("cannot be repeated here"), "{warning}");
            assert!(result["deliverable_card_id"].is_string(), "it is where it was");
        }
        assert_eq!(results[2]["summary"], json!({ "text": "2 is done" }));
        assert_eq!(results[2].get("warning"), None);
        // And each of these turns can be exported.
        assert!(
            exported(node, &forked.turns[0])
                .contains(r#"{"unreadable":"{\"n\":10000000000000000}"}"#)
        );
        exported(node, &forked.turns[1]);
        exported(node, &forked.turns[2]);
        node.assert_well();
    });
}

/// Rows of before: options of a tool and results that hold such a number. The call is refused, the turn goes on.
#[test]
fn rows_of_before_put_no_turn_aside() {
    both(|node| {
        let replies = vec![calls(&[("look", "{}")]), calls(&[("send", "{}")])];
        let mut rig = Rig::new(node, steps(replies));
        let looked = rig.tool("look", (Effect::Pure, 0), |_| good(Value::Null));
        rig.row(row("send", Some("cmd.tool.post.send")));
        node.plant(
            r#"UPDATE tools SET options = '{"args":{"fixed":{"x":10000000000000000}}}' WHERE tool_name = 'look'"#,
        );
        let id = rig.ask(1, 1);
        let mut worker = rig.worker();
        rig.until(&mut [&mut worker], |node| elsewhere(node).len() == 1);
        assert!(looked.lock().unwrap().is_empty());
        let told = shown(rig.model.asked.lock().unwrap().last().unwrap());
        assert!(told.contains("json.integer_range"), "{told}");
        // The result that is applied while the turn is not looked at, and ends it.
        let report = guild_kernel::turn::Report {
            result: json!({ "x": 1, "__cg_control": { "after_execution": "terminate" } }),
            status: Partial,
            ..elsewhere(node).remove(0).report
        };
        node.report(&report, T0 + 1);
        rig.until(&mut [&mut worker], |node| node.row(&id).closed_ms.is_some());
        assert_eq!(node.ended(&id), (Some(Outcome::Partial), None));
        exported(node, &id);
        node.assert_well();
    });
}
