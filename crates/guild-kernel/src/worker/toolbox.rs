//! What an agent may call: rows of the project, as far as its profile allows them, and the worker's own tool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use guild_store::{Rx, Val};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::profile::Profile;
use crate::model::ToolSpec;
use crate::roster::AfterExecution;
use crate::row::{Statement, Text};
use crate::tool::{Effect, Tools};

/// The tool that ends a turn with a result.
pub(super) const SUBMIT_RESULT: &str = "submit_result";

/// So many options that are none are enough to tell of.
const UNKNOWN_MAX: usize = 10;

/// A row of `tools`, as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ToolRow {
    pub(super) tool_name: String,
    pub(super) description: String,
    pub(super) parameters: String,
    pub(super) target_subject: Option<String>,
    pub(super) after_execution: String,
    pub(super) options: String,
}

/// What a row says beside the rest.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ToolOptions {
    args: Arguments,
    /// Which arguments are taken from the environment, by the names that they have there.
    envs: BTreeMap<String, String>,
    suspend_timeout_seconds: Option<i64>,
    timeout_seconds: Option<i64>,
    /// Whether the node keeps the row up to date: see [`KEPT_BY_NODE`](crate::roster::KEPT_BY_NODE).
    kept_by_node: Option<IgnoredAny>,
    /// What nobody knows.
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Arguments {
    defaults: Map<String, Value>,
    fixed: Map<String, Value>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

impl ToolOptions {
    /// How long a turn waits: as long as the row says, and otherwise as long as is usual.
    pub(super) fn timeout_ms(&self, usual_ms: i64) -> i64 {
        let seconds = self.suspend_timeout_seconds.or(self.timeout_seconds);
        let asked_ms = seconds.map(|seconds| seconds.saturating_mul(1_000));
        asked_ms.unwrap_or(usual_ms).clamp(1, crate::turn::LONGEST_MS)
    }

    /// What a tool is called with: what the model chose, what it left out, and what it may not choose.
    pub(super) fn complete(&self, chosen: Map<String, Value>) -> Map<String, Value> {
        let mut arguments = self.args.defaults.clone();
        arguments.extend(chosen);
        for name in self.envs.keys() {
            arguments.remove(name);
        }
        arguments.extend(self.args.fixed.clone());
        arguments
    }

    /// Adds what comes from the environment; the name that is missing there.
    pub(crate) fn add_environment(
        &self,
        arguments: &mut Map<String, Value>,
        environment: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        for (argument, name) in &self.envs {
            let value = environment.get(name).ok_or_else(|| name.clone())?;
            arguments.insert(argument.clone(), Value::String(value.clone()));
        }
        Ok(())
    }

    /// The options that nobody knows: most likely misspelt.
    fn unknown(&self) -> impl Iterator<Item = String> {
        let inner = self.args.others.keys().map(|name| format!("args.{name}"));
        self.others.keys().cloned().chain(inner)
    }

    fn is_hidden(&self, argument: &str) -> bool {
        self.args.fixed.contains_key(argument) || self.envs.contains_key(argument)
    }

    /// The schema without what the model may not choose, and without the duty to say what has a default.
    fn visible(&self, mut schema: Value) -> Value {
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|argument, _| !self.is_hidden(argument));
        }
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|argument| {
                argument
                    .as_str()
                    .is_some_and(|a| !self.is_hidden(a) && !self.args.defaults.contains_key(a))
            });
        }
        schema
    }
}

/// Who runs a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Runs {
    /// The worker, inside the step.
    Here,
    /// The worker, once the call is written down.
    Later,
    /// Somebody else, who is told at this subject.
    Elsewhere(String),
}

/// A tool that may be called.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) runs: Runs,
    pub(super) after: AfterExecution,
    pub(super) options: ToolOptions,
}

/// All that an agent may call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Toolbox {
    entries: BTreeMap<String, Entry>,
    specs: Vec<ToolSpec>,
    submits: bool,
    pub(super) warnings: Vec<String>,
}

impl Toolbox {
    /// What a profile allows of these rows. A row that cannot be read is not offered.
    pub(super) fn new(profile: &Profile, rows: &[ToolRow], here: &Tools) -> Toolbox {
        let mut toolbox =
            Toolbox { submits: profile.allows_internal(SUBMIT_RESULT), ..Toolbox::default() };
        for row in rows.iter().filter(|row| profile.allows(&row.tool_name)) {
            if let Err(why) = toolbox.add(row, here) {
                toolbox.warnings.push(format!("{} is not offered: {why}", row.tool_name));
            }
        }
        let known: BTreeSet<&str> = rows.iter().map(|row| row.tool_name.as_str()).collect();
        for name in profile.allowed_tools.iter().flatten() {
            if !known.contains(name.as_str()) && name != SUBMIT_RESULT {
                toolbox.warnings.push(format!("the profile allows {name:?}, which is not there"));
            }
        }
        if toolbox.submits {
            toolbox.specs.push(submit_spec());
        }
        toolbox
    }

    fn add(&mut self, row: &ToolRow, here: &Tools) -> Result<(), String> {
        if row.tool_name == SUBMIT_RESULT {
            return Err("the worker has a tool of this name".to_owned());
        }
        if callable(&row.tool_name) != row.tool_name {
            return Err("models cannot call this name".to_owned());
        }
        let runs = match &row.target_subject {
            Some(subject) => Runs::Elsewhere(subject.clone()),
            None => match here.get(&row.tool_name).map(|tool| tool.effect()) {
                Some(Effect::Pure) => Runs::Here,
                Some(Effect::Once) => Runs::Later,
                None => return Err("this worker does not have it".to_owned()),
            },
        };
        let after = row.after_execution.parse().map_err(|e: crate::Error| e.to_string())?;
        let options = read_options(&row.options)?;
        for name in options.unknown().take(UNKNOWN_MAX) {
            let name: String = name.chars().take(80).collect();
            self.warnings.push(format!("{} has an option {name:?}, which is none", row.tool_name));
        }
        let schema: Value =
            serde_json::from_str(&row.parameters).map_err(|e| format!("its schema: {e}"))?;
        if !schema.is_object() {
            return Err("its schema is no object".to_owned());
        }
        self.specs.push(ToolSpec {
            name: row.tool_name.clone(),
            description: row.description.clone(),
            parameters: options.visible(schema),
        });
        self.entries.insert(row.tool_name.clone(), Entry { runs, after, options });
        Ok(())
    }

    pub(super) fn get(&self, tool_name: &str) -> Option<&Entry> {
        self.entries.get(tool_name)
    }

    /// Whether a turn may end by submitting a result.
    pub(super) fn submits(&self) -> bool {
        self.submits
    }

    /// What is offered to the model. In the last step only what can end the turn.
    pub(super) fn offered(&self, profile: &Profile, is_last: bool) -> Vec<ToolSpec> {
        if !is_last {
            return self.specs.clone();
        }
        let ends = |spec: &&ToolSpec| {
            if self.submits {
                spec.name == SUBMIT_RESULT
            } else {
                profile.must_end_with().contains(&spec.name)
            }
        };
        self.specs.iter().filter(ends).cloned().collect()
    }
}

/// A name as every provider takes it. What a model calls may be anything.
pub(super) fn callable(tool_name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = tool_name.chars().take(64).map(|c| if fits(c) { c } else { '_' }).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

static OPTIONS: LazyLock<Statement> = LazyLock::new(|| {
    let keys = [("project_id", Text), ("tool_name", Text)];
    Statement::select("tools", &[keys[0], keys[1], ("options", Text)], &keys, "")
});

/// What is asked again and again.
#[cfg(test)]
pub(super) fn statements() -> [&'static LazyLock<Statement>; 1] {
    [&OPTIONS]
}

/// What rows say beside the rest, as far as they are there and can be read, by project and tool.
pub(crate) type OptionsOf = BTreeMap<(String, String), Result<ToolOptions, String>>;

/// The options of these tools of these projects.
pub(crate) fn options_of(
    rx: &mut Rx<'_>,
    tools: &BTreeSet<(&str, &str)>,
) -> crate::Result<OptionsOf> {
    let keys: Vec<Vec<Val<'_>>> =
        tools.iter().map(|(project, tool)| vec![(*project).into(), (*tool).into()]).collect();
    let rows: Vec<(String, String, String)> = OPTIONS.read(rx, &keys)?;
    let read =
        |(project, tool, text): (String, String, String)| ((project, tool), read_options(&text));
    Ok(rows.into_iter().map(read).collect())
}

/// What the options of a row say; nothing is no options.
fn read_options(text: &str) -> Result<ToolOptions, String> {
    let options: Option<ToolOptions> =
        serde_json::from_str(text).map_err(|error| format!("its options: {error}"))?;
    Ok(options.unwrap_or_default())
}

fn submit_spec() -> ToolSpec {
    ToolSpec {
        name: SUBMIT_RESULT.to_owned(),
        description:
            "Ends the turn and delivers its result. Call it alone, and only when the work is done."
                .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "result": {
                    "type": "object",
                    "properties": {
                        "fields": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "name": { "type": "string" },
                                    "value": { "description": "Any JSON value." },
                                },
                                "required": ["name", "value"],
                            },
                        },
                    },
                    "required": ["fields"],
                },
            },
            "required": ["result"],
        }),
    }
}
