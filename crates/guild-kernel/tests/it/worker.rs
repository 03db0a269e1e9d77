//! Workers: turns from the first step to the last.

use guild_kernel::inbox::Outcome;
use guild_kernel::tool::Effect;
use serde_json::json;

use crate::rig::{Rig, calls, good, say, steps};
use crate::world::both;

#[test]
fn an_answer_ends_a_turn() {
    both(|node| {
        let mut rig = Rig::new(node, |_| Ok(say("Yes.")));
        let id = rig.ask(1, 1);
        let counts = rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        assert_eq!(node.deliverable(&id).unwrap().content, r#"{"text":"Yes."}"#);
        assert_eq!(node.output(1), ["agent.thought", "task.deliverable"]);
        assert_eq!(node.told(&id), ["queued", "1/running", "task"]);
        assert_eq!((counts.of("claimed"), counts.of("finished")), (1, 1));
        let step = node.steps(&id).remove(0);
        assert_eq!((step.usage.prompt_tokens, step.usage.cost_micro_usd), (5, 3));
        node.assert_well();
    });
}

#[test]
fn pure_tools_run_inside_the_step() {
    both(|node| {
        let replies = vec![calls(&[("add", r#"{"x":1}"#), ("add", r#"{"x":2}"#)]), say("Three.")];
        let mut rig = Rig::new(node, steps(replies));
        let called = rig.tool("add", (Effect::Pure, 0), |call| good(call.arguments["x"].clone()));
        let id = rig.ask(1, 1);
        rig.finish(&id);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        let arguments: Vec<_> =
            called.lock().unwrap().iter().map(|call| call.arguments.clone()).collect();
        assert_eq!(arguments, [json!({ "x": 1 }), json!({ "x": 2 })]);
        let names = ["agent.thought", "tool.call", "tool.result", "tool.call", "tool.result"];
        assert_eq!(node.output(1)[..5], names);
        assert_eq!(node.told(&id), ["queued", "1/running", "1/step-1", "task"]);
        node.assert_well();
    });
}
