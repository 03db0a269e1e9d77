//! How turns end: with a result, with an answer, or because nothing is left.

use guild_kernel::card::CardType;
use guild_kernel::inbox::Outcome;
use guild_kernel::model::Reply;
use guild_kernel::tool::Effect;
use serde_json::{Value, json};

use crate::rig::{Rig, calls, good, say, shown, steps};
use crate::world::{Node, both};

fn submit(arguments: &str) -> Reply {
    calls(&[("submit_result", arguments)])
}

fn fields(node: &Node, id: &guild_kernel::AgentTurnId) -> Value {
    serde_json::from_str(&node.deliverable(id).unwrap().content).unwrap()
}

#[test]
fn a_result_has_many_forms() {
    both(|node| {
        let forms = [
            r#"{"result":{"fields":[{"name":"a","value":1},{"name":"b","value":[2]}]}}"#,
            r#"{"result":{"fields":{"a":1,"b":[2]}}}"#,
            r#"{"result":{"a":1,"b":[2]}}"#,
            r#"{"result":[{"name":"a","value":1},{"b":[2]}]}"#,
            r#"{"fields":[{"name":"a","value":1},{"name":"b","value":[2]}]}"#,
        ];
        let wanted = [(
            CardType::ResultFields,
            json!({ "fields": [{ "name": "a", "description": "One." }, { "name": "b" }] }),
        )];
        for (at, form) in forms.into_iter().enumerate() {
            let n = u32::try_from(at).unwrap() + 1;
            let mut rig = Rig::new(node, steps(vec![submit(form)]));
            let id = rig.ask_with(n, n, &wanted);
            rig.finish(&id);
            assert_eq!(node.ended(&id), (Some(Outcome::Success), None), "{form}");
            let list = json!([{ "name": "a", "value": 1 }, { "name": "b", "value": [2] }]);
            assert_eq!(fields(node, &id), json!({ "fields": list }), "{form}");
            let cards = ["agent.thought", "tool.call", "tool.result", "task.deliverable"];
            assert_eq!(node.output(n), cards);
        }
        node.assert_well();
    });
}

#[test]
fn a_result_that_lacks_something_is_sent_back() {
    both(|node| {
        let wanted = [(CardType::ResultFields, json!({ "fields": [{ "name": "a" }] }))];
        let replies = vec![
            submit(r#"{"result":{"fields":[{"name":"b","value":1}]}}"#),
            submit(r#"{"result":{"fields":[{"name":"a","value":1},{"name":"a","value":2}]}}"#),
            submit(r#"{"result":"what?"}"#),
            submit(r#"{"result":{"a":3}}"#),
        ];
        let mut rig = Rig::new(node, steps(replies));
        let id = rig.ask_with(1, 1, &wanted);
        rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        assert_eq!(fields(node, &id)["fields"][0]["value"], 3);
        let asked = rig.model.asked.lock().unwrap();
        assert_eq!(asked.len(), 4);
        let told = shown(asked.last().unwrap());
        for words in ["the result lacks a", "has a more than once", "no fields that can be read"] {
            assert!(told.contains(words), "{told}");
        }
        node.assert_well();
    });
}

#[test]
fn a_bad_result_is_never_lost() {
    both(|node| {
        let cases = [
            // In the last step what is there is delivered.
            (
                json!({ "fields": [{ "name": "a" }] }),
                r#"{"result":{"b":1}}"#,
                "b",
                Outcome::Partial,
            ),
            // What is wanted cannot be read: nothing is checked.
            (json!({ "fields": 7 }), r#"{"result":{"b":1}}"#, "b", Outcome::Success),
            // What is sent cannot be read.
            (json!({ "fields": [] }), r#"{"result":"done"}"#, "result", Outcome::Partial),
            (json!({ "fields": [] }), r#"{}"#, "result", Outcome::Partial),
        ];
        for (at, (wanted, sent, name, outcome)) in cases.into_iter().enumerate() {
            let n = u32::try_from(at).unwrap() + 1;
            let mut rig = Rig::new(node, steps(vec![submit(sent)]));
            rig.profile(json!({ "max_steps": 1 }));
            let id = rig.ask_with(n, n, &[(CardType::ResultFields, wanted)]);
            rig.finish(&id);
            assert_eq!(node.ended(&id), (Some(outcome), None), "{sent}");
            assert_eq!(fields(node, &id)["fields"][0]["name"], name);
        }
        node.assert_well();
    });
}

#[test]
fn a_result_is_submitted_alone() {
    both(|node| {
        let good_result = r#"{"result":{"a":1}}"#;
        let replies =
            vec![calls(&[("look", "{}"), ("submit_result", good_result)]), submit(good_result)];
        let mut rig = Rig::new(node, steps(replies));
        let looked = rig.tool("look", (Effect::Pure, 0), |_| good(Value::Null));
        let id = rig.ask(1, 1);
        rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        assert!(looked.lock().unwrap().is_empty(), "nothing ran");
        let told = shown(rig.model.asked.lock().unwrap().last().unwrap());
        assert_eq!(told.matches("kernel.submit_not_alone").count(), 2, "{told}");
        node.assert_well();
    });
}

/// In the last step what was submitted is delivered, whatever else was called and however it was written.
#[test]
fn what_is_submitted_in_the_last_step_is_never_lost() {
    both(|node| {
        let (one, two) = (r#"{"result":{"a":1}}"#, r#"{"result":{"a":2}}"#);
        let large = format!(r#"{{"result":{{"a":"{}"}}}}"#, "x".repeat(200 * 1024));
        let field =
            |name: &str, value: Value| json!({ "fields": [{ "name": name, "value": value }] });
        let cases = [
            (vec![("submit_result", one), ("submit_result", two)], field("a", json!(1))),
            (vec![("look", "{}"), ("submit_result", two)], field("a", json!(2))),
            (vec![("submit_result", "{\"result\":")], field("result", json!("{\"result\":"))),
            (vec![("submit_result", "[1]"), ("submit_result", two)], field("a", json!(2))),
            (vec![("submit_result", "no"), ("look", "{}")], field("result", json!("no"))),
            (
                vec![("submit_result", r#"{"result":{"a":1e16}}"#)],
                field("result", json!(r#"{"result":{"a":1e16}}"#)),
            ),
            (vec![("submit_result", large.as_str())], field("result", json!(large))),
        ];
        for (n, (called, delivered)) in (1..).zip(cases) {
            let mut rig = Rig::new(node, steps(vec![calls(&called)]));
            let looked = rig.tool("look", (Effect::Pure, 0), |_| good(Value::Null));
            rig.profile(json!({ "max_steps": 1 }));
            let id = rig.ask(n, n % 8);
            rig.finish(&id);
            assert_eq!(node.ended(&id), (Some(Outcome::Partial), None), "{called:?}");
            assert_eq!(fields(node, &id), delivered);
            assert!(looked.lock().unwrap().is_empty(), "nothing else ran");
            let step = node.steps(&id).remove(0);
            assert!(step.metadata.contains("warnings"), "{}", step.metadata);
        }
        node.assert_well();
    });
}

#[test]
fn a_turn_that_must_end_with_a_tool_is_reminded() {
    both(|node| {
        let replies = vec![say("I am done."), submit(r#"{"result":{"a":1}}"#)];
        let mut rig = Rig::new(node, steps(replies));
        rig.profile(json!({ "must_end_with": ["submit_result"] }));
        let id = rig.ask(1, 1);
        rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        assert_eq!(node.output(1)[..2], ["agent.thought", "sys.must_end_with_required"]);
        let mut rig = Rig::new(node, |_| Ok(say("I am done.")));
        rig.profile(json!({ "must_end_with": "submit_result", "max_steps": 3 }));
        let id = rig.ask(2, 2);
        rig.finish(&id);
        let code = Some("kernel.max_steps".to_owned());
        assert_eq!(node.ended(&id), (Some(Outcome::Failed), code));
        assert_eq!(fields(node, &id)["fields"][2]["value"], "I am done.", "it is not lost");
        let asked = rig.model.asked.lock().unwrap();
        assert_eq!(
            asked.iter().map(|prompt| prompt.must_call).collect::<Vec<_>>(),
            [false, false, true]
        );
        node.assert_well();
    });
}

#[test]
fn steps_are_counted() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(calls(&[("look", "{}")])));
        rig.tool("look", (Effect::Once, 0), |_| good(Value::Null));
        rig.options.max_steps = 4;
        let id = rig.ask(1, 1);
        rig.finish(&id);
        let code = Some("kernel.max_steps".to_owned());
        assert_eq!(node.ended(&id), (Some(Outcome::Failed), code));
        let asked = rig.model.asked.lock().unwrap();
        let names = |at: usize| asked[at].tools.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
        assert_eq!(asked.len(), 4);
        assert_eq!(names(2), ["look", "submit_result"]);
        assert_eq!(names(3), ["submit_result"], "in the last step only what ends the turn");
        let told: Vec<bool> =
            asked.iter().map(|p| shown(p).contains("Two steps are left")).collect();
        assert_eq!(told, [false, false, true, false]);
        node.assert_well();
    });
}

#[test]
fn nothing_said_is_an_answer_too() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("")));
        let id = rig.ask(1, 1);
        rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Partial), None));
        assert_eq!(fields(node, &id), json!({ "text": "(no answer)" }));
        node.assert_well();
    });
}

/// What came before in the output box, then the context, then the turn's own cards.
#[test]
fn a_prompt_is_made_of_what_the_turn_may_see() {
    let node = Node::sqlite(Default::default());
    let mut thinking = say("Let me look.");
    thinking.calls = calls(&[("look", r#"{"x":1}"#)]).calls;
    thinking.reasoning = Some("hm".to_owned());
    let mut rig = Rig::new(&node, steps(vec![thinking, say("Seen.")]));
    rig.tool("look", (Effect::Pure, 0), |_| good(json!({ "sky": "blue" })));
    rig.profile(json!({
        "system_prompt_template": "You are {display_name}. Ask: {downstream_profiles_desc}",
        "description": "Looks.",
        "delegation_policy": { "target_profiles": ["basic"] },
        "llm_config": { "model": "m", "save_reasoning_content": true },
    }));
    let context = [
        (CardType::ResultFields, json!({ "fields": [{ "name": "a", "description": "One." }] })),
        (CardType::JudgeFeedback, json!({ "data": { "score": 3 } })),
        (CardType::ParentPointer, json!({ "parent_agent_id": "a2" })),
    ];
    let id = rig.ask_with(1, 1, &context);
    rig.finish(&id);
    let asked = rig.model.asked.lock().unwrap();
    insta::assert_snapshot!(shown(&asked[0]), @r#"
    system: You are Agent 1. Ask: - basic: Looks.

    When the work is done call submit_result. The result has these fields, each once:
    - a: One.
    user: do 1
    system: {"score":3}
    tools: look, submit_result
    config: {"model":"m","save_reasoning_content":true}, must call: false
    "#);
    insta::assert_snapshot!(shown(&asked[1]), @r#"
    system: You are Agent 1. Ask: - basic: Looks.

    When the work is done call submit_result. The result has these fields, each once:
    - a: One.
    user: do 1
    system: {"score":3}
    assistant: (hm) Let me look. [call_* look({"x":1})]
    tool call_* look: {"sky":"blue"}
    tools: look, submit_result
    config: {"model":"m","save_reasoning_content":true}, must call: false
    "#);
    node.assert_well();
}
