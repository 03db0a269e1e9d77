//! The rows of the tools of orchestration.

use serde_json::{Value, json};

use super::batch::TASKS_MAX;
use super::{
    ASK_EXPERT, DELEGATE_ASYNC, FORK_JOIN, FORK_JOIN_DEADLINE_MS, LAUNCH_PRINCIPAL,
    PROVISION_AGENT, SUBJECT,
};
use crate::ProjectId;
use crate::roster::{AfterExecution, Tool};

/// The rows of a project's tools of orchestration, for [`roster::put_tool`](crate::roster::put_tool). Which of them an
/// agent may call is said by its profile.
pub fn tool_rows(project_id: &ProjectId) -> Vec<Tool> {
    let row = |(name, description, parameters, options): (&str, &str, Value, Value)| Tool {
        project_id: project_id.clone(),
        tool_name: name.to_owned(),
        description: description.to_owned(),
        parameters,
        target_subject: Some(format!("{SUBJECT}{name}")),
        after_execution: AfterExecution::Suspend,
        options,
    };
    let batch_wait = json!({ "suspend_timeout_seconds": FORK_JOIN_DEADLINE_MS / 1_000 });
    let rows = [
        (DELEGATE_ASYNC, DELEGATE_WORDS, delegate(), json!({})),
        (LAUNCH_PRINCIPAL, LAUNCH_WORDS, launch(), json!({})),
        (ASK_EXPERT, EXPERT_WORDS, expert(), json!({})),
        (FORK_JOIN, FORK_WORDS, fork(), batch_wait),
        (PROVISION_AGENT, PROVISION_WORDS, provision(), json!({})),
    ];
    rows.into_iter().map(row).collect()
}

const DELEGATE_WORDS: &str = "Hand a task to another agent and go on at once. The answer says which turn it is; its \
                              result is not waited for.";
const LAUNCH_WORDS: &str = "Start a new agent of a profile with a task and go on at once.";
const EXPERT_WORDS: &str = "Put a question to a new agent of a profile and go on at once.";
const FORK_WORDS: &str = "Hand tasks to several agents at once and wait for all of them. The answer has the result of \
                          each task, in the order of the tasks.";
const PROVISION_WORDS: &str =
    "Make an agent, make sure that it is there, copy one, or retire one of your own.";

fn text(description: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "description": description })
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn delegate() -> Value {
    let properties = json!({
        "target_strategy": {
            "type": "string",
            "enum": ["new", "reuse", "clone"],
            "description": "new: a new agent of a profile; reuse: an agent that is there, with its memory; clone: a \
                            new agent like one that is there, which knows what that one has written.",
        },
        "target_ref": text("The name of the profile for new, otherwise the id of the agent."),
        "instruction": text("What is to be done. The agent sees nothing else unless a box is handed over."),
        "context_box_id": text("A box of this turn or of an agent of your own whose cards the agent reads first."),
    });
    object(&properties, &["target_strategy", "target_ref", "instruction"])
}

fn launch() -> Value {
    let properties = json!({
        "profile_name": text("The name of the profile."),
        "instruction": text("What is to be done."),
    });
    object(&properties, &["profile_name", "instruction"])
}

fn expert() -> Value {
    let properties = json!({
        "expert_profile": text("The name of the profile."),
        "question": text("The question."),
        "include_history": {
            "type": "boolean",
            "default": false,
            "description": "Whether the expert reads what this turn has written so far.",
        },
    });
    object(&properties, &["expert_profile", "question"])
}

fn fork() -> Value {
    let properties = json!({
        "tasks": {
            "type": "array",
            "minItems": 1,
            "maxItems": TASKS_MAX,
            "items": delegate(),
            "description": "The tasks. An agent that is reused can do only one of them.",
        },
        "fail_fast": {
            "type": "boolean",
            "default": false,
            "description": "Whether the first failure stops the other tasks.",
        },
        "deadline_seconds": {
            "type": "integer",
            "minimum": 1,
            "description": "After so long what is missing is given up; what is there is the answer.",
        },
    });
    object(&properties, &["tasks"])
}

fn provision() -> Value {
    let properties = json!({
        "action": {
            "type": "string",
            "enum": ["ensure", "create", "derive", "retire"],
            "description": "ensure: it is there afterwards; create: it is new; derive: it is new and like another \
                            one; retire: it takes no more work.",
        },
        "agent_id": text("The id of the agent: one word. Only derive can do without."),
        "profile_name": text("How it thinks, for ensure and create."),
        "derived_from": text("The id of the agent that it is like, for derive."),
        "display_name": text("What people call it."),
        "owner_agent_id": text("Who owns it: you, or an agent of your own."),
        "worker_target": text("Whose workers do its work: what the profile says."),
        "tags": { "type": "array", "items": { "type": "string" } },
        "metadata": { "type": "object" },
    });
    object(&properties, &["action"])
}
