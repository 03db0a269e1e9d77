//! How an agent thinks, as its profile says.

use serde::Deserialize;
use serde_json::Value;

/// The body of a profile. Whatever else stands in it is for others.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Profile {
    pub(super) system_prompt_template: String,
    pub(super) description: String,
    pub(super) tags: Vec<String>,
    /// Nothing said: all tools of the project. An empty list: none.
    pub(super) allowed_tools: Option<Vec<String>>,
    pub(super) allowed_internal_tools: Option<Vec<String>>,
    must_end_with: Option<Names>,
    pub(super) max_steps: Option<i64>,
    pub(super) llm_config: Value,
    delegation_policy: Option<Policy>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Many(Vec<String>),
}

/// Whom an agent may ask.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Policy {
    target_tags: Option<Vec<String>>,
    target_profiles: Option<Vec<String>>,
}

/// A profile that others may ask for work.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Neighbour {
    pub(super) name: String,
    pub(super) profile: Profile,
}

/// The most steps that a profile may give to a turn.
const STEPS_MAX: i64 = 1_000;

/// Where the agent's own name belongs.
pub(super) const DISPLAY_NAME: &str = "{display_name}";
/// Where those belong whom the agent may ask.
pub(super) const DOWNSTREAM: &str = "{downstream_profiles_desc}";

impl Profile {
    pub(super) fn parse(body: &str) -> Result<Profile, String> {
        let profile: Profile = serde_json::from_str(body).map_err(|error| error.to_string())?;
        match profile.max_steps {
            Some(steps) if !(1..=STEPS_MAX).contains(&steps) => {
                Err(format!("max_steps is from 1 to {STEPS_MAX}, not {steps}"))
            }
            _ => Ok(profile),
        }
    }

    /// The tools one of which must be called for the turn to end.
    pub(super) fn must_end_with(&self) -> &[String] {
        match &self.must_end_with {
            None => &[],
            Some(Names::One(name)) if name.is_empty() => &[],
            Some(Names::One(name)) => std::slice::from_ref(name),
            Some(Names::Many(names)) => names,
        }
    }

    /// Whether a tool of the project may be called.
    pub(super) fn allows(&self, tool_name: &str) -> bool {
        self.allowed_tools.as_ref().is_none_or(|names| names.iter().any(|name| name == tool_name))
    }

    /// Whether a tool of the worker's own may be called.
    pub(super) fn allows_internal(&self, tool_name: &str) -> bool {
        let named = |names: &Vec<String>| names.iter().any(|name| name == tool_name);
        self.allowed_internal_tools.as_ref().is_none_or(named)
    }

    pub(super) fn saves_reasoning(&self) -> bool {
        self.llm_config.get("save_reasoning_content").and_then(Value::as_bool).unwrap_or(false)
    }

    /// Whether an agent with this profile may ask one with that. Who has no policy asks nobody.
    fn may_ask(&self, other: &Neighbour) -> bool {
        let Some(policy) = &self.delegation_policy else { return false };
        let by_name = policy.target_profiles.as_ref().is_none_or(|n| n.contains(&other.name));
        let tagged = |tags: &Vec<String>| other.profile.tags.iter().any(|tag| tags.contains(tag));
        by_name && policy.target_tags.as_ref().is_none_or(tagged)
    }

    /// The system prompt, without what a task asks for.
    pub(super) fn system_prompt(&self, display_name: &str, neighbours: &[Neighbour]) -> String {
        let mut text = self.system_prompt_template.clone();
        if text.contains(DOWNSTREAM) {
            let line = |other: &Neighbour| {
                let about = other.profile.description.trim();
                if about.is_empty() {
                    other.name.clone()
                } else {
                    format!("{}: {about}", other.name)
                }
            };
            let known = neighbours.iter().filter(|other| self.may_ask(other));
            let lines: Vec<String> = known.map(|other| format!("- {}", line(other))).collect();
            let lines = if lines.is_empty() { "(nobody)".to_owned() } else { lines.join("\n") };
            text = text.replace(DOWNSTREAM, &lines);
        }
        text.replace(DISPLAY_NAME, display_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_has_a_meaning() {
        let nothing = Profile::parse("{}").unwrap();
        assert!(nothing.allows("any") && nothing.allows_internal("submit_result"));
        assert!(nothing.must_end_with().is_empty());
        let none = r#"{"allowed_tools":[],"allowed_internal_tools":[],"must_end_with":"a"}"#;
        let none = Profile::parse(none).unwrap();
        assert!(!none.allows("any") && !none.allows_internal("submit_result"));
        assert_eq!(none.must_end_with(), ["a"]);
        assert!(Profile::parse(r#"{"allowed_tools":7}"#).is_err());
        assert!(Profile::parse(r#"{"max_steps":0}"#).is_err());
    }

    #[test]
    fn a_prompt_names_those_who_may_be_asked() {
        let neighbour = |name: &str, body: &str| Neighbour {
            name: name.to_owned(),
            profile: Profile::parse(body).unwrap(),
        };
        let others = [
            neighbour("cook", r#"{"description":"Cooks.","tags":["food"]}"#),
            neighbour("smith", r#"{"tags":["iron"]}"#),
        ];
        let prompt = |policy: &str| {
            let body = format!(
                r#"{{"system_prompt_template":"I am {{display_name}}.\n{{downstream_profiles_desc}}"{policy}}}"#
            );
            Profile::parse(&body).unwrap().system_prompt("Ann", &others)
        };
        assert_eq!(prompt(""), "I am Ann.\n(nobody)");
        let all = r#","delegation_policy":{"target_tags":null,"target_profiles":null}"#;
        assert_eq!(prompt(all), "I am Ann.\n- cook: Cooks.\n- smith");
        let iron = r#","delegation_policy":{"target_tags":["iron"]}"#;
        assert_eq!(prompt(iron), "I am Ann.\n- smith");
        let none = r#","delegation_policy":{"target_profiles":[]}"#;
        assert_eq!(prompt(none), "I am Ann.\n(nobody)");
    }
}
