//! Whom a turn may ask: the `delegation_policy` of the profile that it thinks with.
//!
//! ```
//! use guild_kernel::pmo::policy::Policy;
//! use serde_json::json;
//! let policy = Policy::of(&json!({ "delegation_policy": { "target_profiles": ["coder"] } }));
//! assert!(policy.allows("coder", &[]));
//! assert!(!policy.allows("judge", &[]));
//! ```

use serde_json::Value;

/// Whom a turn may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// There is no policy, or it cannot be read.
    Nobody,
    /// Those whose profile is named, if any are, and has one of these tags, if there are any.
    Some {
        /// Names of profiles; without a list all of them, with an empty one none.
        target_profiles: Option<Vec<String>>,
        /// Tags; none of them restrict nothing.
        target_tags: Vec<String>,
    },
}

/// A list of texts; nothing if it is anything else.
fn texts(value: &Value) -> Option<Vec<String>> {
    let texts = value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned));
    texts.collect()
}

/// The tags of a profile.
pub(super) fn tags_of(body: &Value) -> Vec<String> {
    body.get("tags").and_then(texts).unwrap_or_default()
}

impl Policy {
    /// What the body of a profile says. What cannot be read allows nothing.
    pub fn of(body: &Value) -> Policy {
        let read = || {
            let policy = body.get("delegation_policy")?.as_object()?;
            let target_profiles = match policy.get("target_profiles") {
                None | Some(Value::Null) => None,
                Some(list) => Some(texts(list)?),
            };
            let target_tags = match policy.get("target_tags") {
                None | Some(Value::Null) => Vec::new(),
                Some(list) => texts(list)?,
            };
            Some(Policy::Some { target_profiles, target_tags })
        };
        read().unwrap_or(Policy::Nobody)
    }

    /// Whether agents that think with this profile may be asked.
    pub fn allows(&self, profile_name: &str, tags: &[String]) -> bool {
        let Policy::Some { target_profiles, target_tags } = self else { return false };
        let named = |names: &Vec<String>| names.iter().any(|name| name == profile_name);
        let tagged = target_tags.is_empty() || tags.iter().any(|tag| target_tags.contains(tag));
        target_profiles.as_ref().is_none_or(named) && tagged
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nobody_is_asked_unless_a_policy_says_so() {
        let expert = ["expert".to_owned()];
        let cases = [
            (json!({}), false, false),
            (json!({ "delegation_policy": null }), false, false),
            (json!({ "delegation_policy": [] }), false, false),
            (json!({ "delegation_policy": { "target_profiles": "a" } }), false, false),
            (json!({ "delegation_policy": { "target_profiles": [1] } }), false, false),
            (json!({ "delegation_policy": { "target_tags": "expert" } }), false, false),
            (json!({ "delegation_policy": {} }), true, true),
            (json!({ "delegation_policy": { "target_profiles": null } }), true, true),
            (json!({ "delegation_policy": { "target_profiles": [] } }), false, false),
            (json!({ "delegation_policy": { "target_profiles": ["a"] } }), true, false),
            (json!({ "delegation_policy": { "target_tags": [] } }), true, true),
            (json!({ "delegation_policy": { "target_tags": ["expert", "x"] } }), false, true),
            (
                json!({ "delegation_policy": { "target_tags": ["x"], "target_profiles": ["a", "b"] } }),
                false,
                false,
            ),
        ];
        for (body, plain, tagged) in cases {
            let policy = Policy::of(&body);
            assert_eq!(policy.allows("a", &[]), plain, "a: {body}");
            assert_eq!(policy.allows("b", &expert), tagged, "b: {body}");
        }
        assert_eq!(tags_of(&json!({ "tags": ["x", "y"] })), ["x", "y"]);
        assert!(tags_of(&json!({ "tags": ["x", 1] })).is_empty());
    }
}
