//! The tools of orchestration, one by one.

use guild_kernel::boxes;
use guild_kernel::pmo::{self, Handled};
use guild_kernel::roster::{self, AgentStatus};
use guild_kernel::{AgentTurnId, code};
use guild_store::args;
use serde_json::{Value, json};

use crate::office::{
    WAIT_MS, answer, ask, ask_as, both, cards_in, carry_out, command, deliver, furnish, handle,
    make, refused, take_all,
};
use crate::world::{Node, T0, key, success};

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The turn that a call has asked for.
fn turn_of(result: &Value) -> AgentTurnId {
    text(&result["agent_turn_id"]).parse().unwrap()
}

#[test]
fn a_new_agent_is_asked_and_the_turn_goes_on() {
    both(|node| {
        let arguments =
            json!({ "target_strategy": "new", "target_ref": "coder", "instruction": "write it" });
        let asked = ask(node, 1, pmo::DELEGATE_ASYNC, arguments);
        assert_eq!(answer(node, &asked), None);
        carry_out(node, &asked, T0 + 1);
        let told = answer(node, &asked).unwrap();
        assert_eq!((&told["status"], &told["error"]), (&json!("success"), &Value::Null));
        let result = &told["result"];
        assert_eq!(result["status"], "accepted");
        assert_eq!(node.head(1).status(), "dispatched", "it goes on at once");
        let row = node.row(&turn_of(result));
        assert_eq!(row.parent_agent_turn_id.as_ref(), Some(&asked.fence.agent_turn_id));
        assert!(row.context_headers.contains("\"recursion_depth\":1"), "{}", row.context_headers);
        let made = node.read(move |rx| Ok(roster::agent(rx, &row.key)?.unwrap()));
        assert_eq!((made.profile_name.as_str(), made.tags.len()), ("coder", 2));
        assert_eq!(made.owner_agent_id, Some(key(1).agent_id));
        let cards = cards_in(node, &text(&result["context_box_id"]));
        let wanted = [
            ("task.instruction".to_owned(), json!({ "text": "write it" })),
            (
                "meta.parent_pointer".to_owned(),
                json!({
                    "parent_agent_id": "a1",
                    "parent_agent_turn_id": asked.fence.agent_turn_id,
                }),
            ),
        ];
        assert_eq!(cards, wanted);
        // The end of the new turn answers nobody.
        let fences = take_all(node, 1, T0 + 2);
        assert_eq!(fences.len(), 2);
        node.commit(&fences[&turn_of(result)], success(), T0 + 3).unwrap();
        assert_eq!(answer(node, &asked).unwrap(), told);
    });
}

#[test]
fn a_command_that_comes_twice_is_carried_out_once() {
    both(|node| {
        let arguments =
            json!({ "target_strategy": "new", "target_ref": "coder", "instruction": "once" });
        let asked = ask(node, 1, pmo::DELEGATE_ASYNC, arguments);
        assert_eq!(handle(node, &asked, T0 + 1), Ok(Handled::Done));
        let before = node.dump();
        assert_eq!(handle(node, &asked, T0 + 2), Ok(Handled::Gone));
        deliver(node, command(node, &asked.call), T0 + 3).unwrap();
        assert_eq!(node.dump(), before);
        // Nobody waits for it any more.
        let arguments = json!({ "profile_name": "coder", "instruction": "never" });
        let asked = ask(node, 2, pmo::LAUNCH_PRINCIPAL, arguments);
        node.stop(&asked.fence.agent_turn_id, T0 + 4).unwrap();
        let before = node.dump();
        assert_eq!(handle(node, &asked, T0 + 5), Ok(Handled::Gone));
        assert_eq!(node.dump(), before);
        // It comes so late that the clock answers.
        let arguments = json!({ "profile_name": "coder", "instruction": "late" });
        let asked = ask(node, 3, pmo::LAUNCH_PRINCIPAL, arguments);
        assert_eq!(handle(node, &asked, T0 + WAIT_MS), Ok(Handled::Gone));
        node.sweep(T0 + WAIT_MS);
        assert_eq!(answer(node, &asked).unwrap()["status"], "timeout");
    });
}

#[test]
fn an_agent_is_reused_with_its_memory() {
    both(|node| {
        let arguments = json!({ "profile_name": "coder", "instruction": "first" });
        let first = ask(node, 1, pmo::LAUNCH_PRINCIPAL, arguments);
        carry_out(node, &first, T0 + 1);
        let told = answer(node, &first).unwrap()["result"].clone();
        let (agent, memory) = (text(&told["agent_id"]), text(&told["output_box_id"]));
        let again = |n| {
            let arguments = json!({
                "target_strategy": "reuse", "target_ref": agent, "instruction": "second",
            });
            let asked = ask(node, n, pmo::DELEGATE_ASYNC, arguments);
            carry_out(node, &asked, T0 + 2);
            answer(node, &asked).unwrap()["result"].clone()
        };
        // While it works, and after it.
        let queued = again(2);
        assert_eq!(
            (text(&queued["agent_id"]), text(&queued["output_box_id"])),
            (agent.clone(), memory.clone())
        );
        assert_eq!(node.row(&turn_of(&queued)).status.as_str(), "queued");
        let fences = take_all(node, 100, T0 + 3);
        node.commit(&fences[&turn_of(&told)], success(), T0 + 3).unwrap();
        let fences = take_all(node, 200, T0 + 4);
        node.commit(&fences[&turn_of(&queued)], success(), T0 + 4).unwrap();
        assert_eq!(text(&again(3)["output_box_id"]), memory);
        // An agent that has never worked has none.
        let arguments =
            json!({ "target_strategy": "reuse", "target_ref": "a7", "instruction": "x" });
        let fresh = ask(node, 4, pmo::DELEGATE_ASYNC, arguments);
        carry_out(node, &fresh, T0 + 5);
        assert_ne!(text(&answer(node, &fresh).unwrap()["result"]["output_box_id"]), memory);
    });
}

#[test]
fn a_copy_knows_what_its_original_has_written() {
    both(|node| {
        node.ask(5, 5, T0);
        let fence = node.take(5, T0);
        node.commit(&fence, success(), T0).unwrap();
        let arguments = json!({
            "target_strategy": "clone", "target_ref": "a5", "instruction": "go on",
            "context_box_id": crate::world::context_box(1),
        });
        let asked = ask(node, 1, pmo::DELEGATE_ASYNC, arguments);
        carry_out(node, &asked, T0 + 1);
        let result = answer(node, &asked).unwrap()["result"].clone();
        assert_ne!(result["agent_id"], "a5");
        let cards = cards_in(node, &text(&result["context_box_id"]));
        let types: Vec<&str> = cards.iter().map(|(of, _)| of.as_str()).collect();
        let wanted = [
            "task.instruction",
            "agent.thought",
            "task.deliverable",
            "task.instruction",
            "meta.parent_pointer",
        ];
        assert_eq!(types, wanted);
        assert_eq!(cards[3].1, json!({ "text": "go on" }), "what is to be done comes last");
        assert_eq!(cards_in(node, &text(&result["output_box_id"])), []);
    });
}

#[test]
fn cards_are_handed_over_once_however_often_they_are_named() {
    both(|node| {
        // The original's memory is the box that is handed over as well.
        let arguments = json!({
            "target_strategy": "clone", "target_ref": "a1", "instruction": "again",
            "context_box_id": crate::world::output_box(1),
        });
        let asked = ask(node, 1, pmo::DELEGATE_ASYNC, arguments);
        carry_out(node, &asked, T0 + 1);
        let result = answer(node, &asked).unwrap()["result"].clone();
        let types: Vec<String> = cards_in(node, &text(&result["context_box_id"]))
            .into_iter()
            .map(|card| card.0)
            .collect();
        assert_eq!(
            types,
            ["agent.thought", "tool.call", "task.instruction", "meta.parent_pointer"]
        );
    });
}

#[test]
fn an_expert_is_asked_with_or_without_history() {
    both(|node| {
        for (n, history, count) in [(1, None, 2), (2, Some(false), 2), (3, Some(true), 4)] {
            let mut arguments = json!({ "expert_profile": "judge", "question": "is it so?" });
            if let Some(history) = history {
                arguments["include_history"] = json!(history);
            }
            let asked = ask(node, n, pmo::ASK_EXPERT, arguments);
            carry_out(node, &asked, T0 + 1);
            let result = answer(node, &asked).unwrap()["result"].clone();
            let cards = cards_in(node, &text(&result["context_box_id"]));
            assert_eq!(cards.len(), count, "{history:?}: {cards:?}");
        }
    });
}

#[test]
fn boxes_of_own_agents_are_handed_on() {
    both(|node| {
        let arguments = json!({ "profile_name": "coder", "instruction": "first" });
        let asked = ask(node, 1, pmo::LAUNCH_PRINCIPAL, arguments);
        carry_out(node, &asked, T0 + 1);
        let made = answer(node, &asked).unwrap()["result"].clone();
        let fences = take_all(node, 100, T0 + 2);
        node.commit(&fences[&turn_of(&made)], success(), T0 + 2).unwrap();
        let fence = &fences[&asked.fence.agent_turn_id];
        let arguments = json!({
            "target_strategy": "new", "target_ref": "judge", "instruction": "judge it",
            "context_box_id": made["output_box_id"],
        });
        let next = make(node, fence, pmo::DELEGATE_ASYNC, arguments.clone(), T0 + 3);
        carry_out(node, &next, T0 + 4);
        let told = answer(node, &next).unwrap();
        let cards = cards_in(node, &text(&told["result"]["context_box_id"]));
        assert_eq!(cards[1].0, "task.deliverable");
        // For anybody else it is a stranger's.
        let asked = ask(node, 2, pmo::DELEGATE_ASYNC, arguments);
        carry_out(node, &asked, T0 + 5);
        assert_eq!(refused(node, &asked), code::BOX_DENIED.name);
    });
}

#[test]
fn agents_are_made_found_copied_and_retired() {
    both(|node| {
        let mut n = 0;
        let mut provision = |arguments: Value| {
            n += 1;
            let asked = ask_as(node, (n, 1, "lead"), pmo::PROVISION_AGENT, arguments);
            carry_out(node, &asked, T0 + 1);
            let told = answer(node, &asked).unwrap();
            let fence = take_all(node, 50_000 + 100 * n, T0 + 2).remove(&asked.fence.agent_turn_id);
            node.commit(&fence.unwrap(), success(), T0 + 2).unwrap();
            match told["status"].as_str().unwrap() {
                "success" => Ok(told["result"].clone()),
                _ => Err(text(&told["error"]["code"])),
            }
        };
        let wish = json!({
            "action": "create", "agent_id": "helper", "profile_name": "coder", "tags": ["mine"],
            "display_name": "Helper", "metadata": { "why": "test" },
        });
        let made = provision(wish.clone()).unwrap();
        assert_eq!((&made["status"], &made["tags"]), (&json!("created"), &json!(["mine"])));
        assert_eq!(provision(wish.clone()), Err(code::AGENT_FIXED.name.to_owned()));
        let mut same = wish;
        same["action"] = json!("ensure");
        assert_eq!(provision(same.clone()).unwrap()["status"], "existing");
        for (field, other) in [
            ("profile_name", json!("judge")),
            ("worker_target", json!("elsewhere")),
            ("tags", json!([])),
            ("display_name", json!("Other")),
            ("owner_agent_id", json!("a2")),
        ] {
            let mut changed = same.clone();
            changed[field] = other;
            assert_eq!(provision(changed), Err(code::AGENT_FIXED.name.to_owned()), "{field}");
        }
        let copy = provision(json!({ "action": "derive", "derived_from": "helper" })).unwrap();
        assert_eq!(
            (&copy["profile_name"], &copy["display_name"]),
            (&json!("coder"), &json!("Helper"))
        );
        // Owned by an agent of one's own, and by nobody else.
        let owned = |owner: &str, name: &str| {
            json!({
                "action": "ensure", "agent_id": name, "profile_name": "judge", "owner_agent_id": owner,
            })
        };
        assert_eq!(provision(owned("helper", "below")).unwrap()["owner_agent_id"], "helper");
        assert_eq!(provision(owned("a2", "x")), Err(code::DELEGATION_DENIED.name.to_owned()));
        // Only what is one's own is retired; then it is asked for nothing.
        let retire = |name: &str| json!({ "action": "retire", "agent_id": name });
        assert_eq!(provision(retire("a3")), Err(code::DELEGATION_DENIED.name.to_owned()));
        assert_eq!(provision(retire("nobody")), Err(code::UNKNOWN_AGENT.name.to_owned()));
        assert_eq!(provision(retire("helper")).unwrap()["status"], "retired");
        let there = node.read(|rx| {
            let key = guild_kernel::AgentKey { agent_id: "helper".parse()?, ..key(1) };
            Ok(roster::agent(rx, &key)?.unwrap())
        });
        assert_eq!(there.status, AgentStatus::Retired);
        assert_eq!(provision(same), Err(code::UNKNOWN_AGENT.name.to_owned()));
        let derive = json!({ "action": "derive", "derived_from": "helper" });
        assert_eq!(provision(derive), Err(code::UNKNOWN_AGENT.name.to_owned()));
    });
}

#[test]
fn what_cannot_be_provisioned_is_refused() {
    both(|node| {
        let create = |more: Value| {
            let mut wish = json!({ "action": "create", "agent_id": "x", "profile_name": "coder" });
            for (name, value) in more.as_object().unwrap() {
                wish[name] = value.clone();
            }
            wish
        };
        let cases = [
            (json!({ "action": "create", "profile_name": "coder" }), code::MALFORMED.name),
            (json!({ "action": "create", "agent_id": "x" }), code::MALFORMED.name),
            (json!({ "action": "derive" }), code::MALFORMED.name),
            (json!({ "action": "retire" }), code::MALFORMED.name),
            (json!({ "action": "invent" }), code::MALFORMED.name),
            (create(json!({ "agent_id": "a.b" })), code::MALFORMED.name),
            (create(json!({ "derived_from": "a1" })), code::MALFORMED.name),
            (create(json!({ "worker_target": "svc1_bank" })), code::MALFORMED.name),
            (create(json!({ "profile_name": "nil\u{0}" })), code::MALFORMED.name),
            (create(json!({ "display_name": "two\nlines" })), code::MALFORMED.name),
            (create(json!({ "profile_name": "missing" })), code::UNKNOWN_PROFILE.name),
            (create(json!({ "tags": vec!["x".repeat(100); 100] })), code::TOO_LARGE.name),
            (create(json!({ "metadata": { "x": "y".repeat(300_000) } })), code::TOO_LARGE.name),
        ];
        for (n, (wish, wanted)) in (1..).zip(cases) {
            let asked = ask_as(node, (n, 1, "lead"), pmo::PROVISION_AGENT, wish.clone());
            carry_out(node, &asked, T0 + 1);
            assert_eq!(refused(node, &asked), wanted, "{wish}");
            node.stop(&asked.fence.agent_turn_id, T0 + 2).unwrap();
        }
        let made: Vec<(i64,)> = node.read(|rx| {
            Ok(rx.all("SELECT count(*) FROM project_agents WHERE agent_id = 'x'", args![])?)
        });
        assert_eq!(made, [(0,)]);
    });
}

#[test]
fn the_rows_of_the_tools_are_stored_as_they_are() {
    let node = Node::sqlite(guild_store::Hooks::default());
    furnish(&node);
    let mut wanted = pmo::tool_rows(&"p".parse().unwrap());
    wanted.sort_by(|a, b| a.tool_name.cmp(&b.tool_name));
    let found = node.read(|rx| roster::tools(rx, &"p".parse()?, 100));
    assert_eq!(found, wanted);
    let names: Vec<&str> = found.iter().map(|tool| tool.tool_name.as_str()).collect();
    let all = ["ask_expert", "delegate_async", "fork_join", "launch_principal", "provision_agent"];
    assert_eq!(names, all);
    for tool in &found {
        let subject = tool.target_subject.as_deref().unwrap();
        assert_eq!(subject, format!("{}{}", pmo::SUBJECT, tool.tool_name));
        assert_eq!(tool.parameters["additionalProperties"], json!(false));
    }
    assert_eq!(found[2].options, json!({ "suspend_timeout_seconds": 900 }));
    let none = node.read(|rx| boxes::find(rx, &crate::world::context_box(1)));
    assert_eq!(none, None);
}
