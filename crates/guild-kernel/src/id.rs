//! Ids. What the kernel makes is named by what it is and by its time: a call that is run again makes the same ids, and
//! rows that are made together lie together.

use std::fmt;
use std::str::FromStr;

use guild_bus::subject::Token;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hasher;
use guild_protocol::typed_id;

use crate::{Error, Result, code};

typed_id! {
    /// Names a turn: one piece of work of one agent. Made when the turn is accepted.
    AgentTurnId = "turn", made;
    /// Names a step: what is done between two writes of a worker.
    StepId = "step", made;
    /// Names a card.
    CardId = "card", made;
    /// Names a box.
    BoxId = "box", made;
    /// Names a row of the inbox.
    InboxId = "inbox", made;
    /// Names an edge between two turns.
    EdgeId = "edge", made;
    /// Names a call of a tool. A model's own name for it may repeat; this one does not.
    ToolCallId = "call", made;
    /// Names a batch: several turns that one call waits for.
    BatchId = "batch", made;
    /// The right to write for a turn, until somebody takes it away.
    LeaseToken = "lease", made;
}

/// A UUIDv8: 48 bits of time, then a hash of the words.
fn named(prefix: &str, at_ms: UnixMs, words: &[&str]) -> String {
    const LATEST_MS: UnixMs = (1 << 48) - 1;
    const VERSION_8: u128 = 0x8 << 76;
    const VARIANT: u128 = 0b10 << 62;
    const HASHED: u128 = !((0xffff_ffff_ffff << 80) | (0xf << 76) | (0b11 << 62));
    let mut hasher = Hasher::new();
    for word in words {
        // Lengths keep ["ab", "c"] apart from ["a", "bc"].
        hasher.update(&u64::try_from(word.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(word.as_bytes());
    }
    let digest = hasher.finish();
    let (_, hashed) = digest.as_bytes().split_at(16);
    let hashed = <[u8; 16]>::try_from(hashed).map_or(0, u128::from_be_bytes);
    let time = u128::try_from(at_ms.clamp(0, LATEST_MS)).unwrap_or(0);
    let id = (time << 80) | VERSION_8 | VARIANT | (hashed & HASHED);
    format!("{prefix}_{id:032x}")
}

macro_rules! named_ids {
    ($($name:ident)+) => {$(
        impl $name {
            /// The id of what these words name, made at this time.
            pub(crate) fn named(at_ms: UnixMs, words: &[&str]) -> $name {
                $name(named($name::PREFIX, at_ms, words))
            }
        }
    )+};
}
named_ids! { AgentTurnId StepId CardId BoxId InboxId EdgeId BatchId }

impl ToolCallId {
    /// The call with this place among those that a step makes. Known before the step is written, so a tool that runs
    /// in the worker can be told its id.
    pub fn of(step_id: &StepId, place: usize) -> ToolCallId {
        let hex = step_id.as_str().get(5..17).unwrap_or_default();
        let at_ms = UnixMs::from_str_radix(hex, 16).unwrap_or(0);
        ToolCallId(named(ToolCallId::PREFIX, at_ms, &[step_id.as_str(), &place.to_string()]))
    }
}

impl CardId {
    /// The card of a call that was made at this time.
    pub(crate) fn of_call(tool_call_id: &ToolCallId, made_ms: UnixMs) -> CardId {
        CardId::named(made_ms, &[tool_call_id.as_str(), "call"])
    }
}

macro_rules! token_ids {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<$name> {
                match Token::parse(text) {
                    Ok(_) => Ok($name(text.to_owned())),
                    Err(error) => {
                        Err(Error::refused(&code::MALFORMED, format!("{}: {error}", $what)))
                    }
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(from)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    )+};
}

token_ids! {
    /// Names a project: agents, cards and boxes of two projects never meet. One token of a subject.
    ProjectId = "project_id";
    /// Names an agent within its project. One token of a subject.
    AgentId = "agent_id";
    /// Names a channel within its project. One token of a subject.
    ChannelId = "channel_id";
}

/// An agent of a project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentKey {
    /// Whose agent it is.
    pub project_id: ProjectId,
    /// Which one.
    pub agent_id: AgentId,
}

impl fmt::Display for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.project_id, self.agent_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_named_by_what_it_is() {
        let one = StepId::named(7, &["ab", "c"]);
        assert_eq!(one, StepId::named(7, &["ab", "c"]));
        assert_ne!(one, StepId::named(7, &["a", "bc"]));
        assert!(one < StepId::named(8, &["ab", "c"]), "later is behind");
        assert_eq!(one.as_str().parse::<StepId>().unwrap(), one);
        let (first, second) = (ToolCallId::of(&one, 0), ToolCallId::of(&one, 1));
        assert_ne!(first, second);
        assert_eq!(first.as_str().get(5..17), one.as_str().get(5..17));
    }

    #[test]
    fn names_that_reach_further_than_they_say_are_refused() {
        for bad in ["", "a.b", "*", ">", "a b", "a\0", &"x".repeat(129)] {
            assert_eq!(bad.parse::<ProjectId>().unwrap_err().code(), &code::MALFORMED, "{bad:?}");
        }
        assert_eq!("p1".parse::<AgentId>().unwrap().as_str(), "p1");
    }
}
