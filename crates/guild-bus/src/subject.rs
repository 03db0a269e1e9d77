//! The names that bells ring under: tokens joined by dots, as NATS has them.
//!
//! A token is one segment. It is not empty, not too long, and has no `.`, `*`, `>`, white space or control character,
//! so that no name can reach further than it says.
//!
//! ```
//! use guild_bus::subject::{Subject, WorkerTarget};
//! let target = WorkerTarget::parse("worker_generic")?;
//! assert_eq!(Subject::Wakeup(target).to_string(), "cmd.agent.worker_generic.wakeup");
//! assert!(WorkerTarget::parse("worker.*").is_err());
//! assert!(WorkerTarget::parse("svc1_ground_control_dev_01")?.is_exclusive());
//! # Ok::<(), guild_bus::Error>(())
//! ```

use std::fmt;

use crate::error::{Error, Result};

/// The longest token.
pub const TOKEN_MAX_BYTES: usize = 128;
/// The longest topic. A server takes a line of 4,096 bytes, and the namespace and the number stand in it too.
pub const TOPIC_MAX_BYTES: usize = 1024;

/// What the targets begin with that only one process may serve.
const EXCLUSIVE: &str = "svc1_";

/// One segment of a subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(String);

impl Token {
    /// Takes a text that is one token.
    pub fn parse(text: &str) -> Result<Token> {
        match token_fault(text) {
            None => Ok(Token(text.to_owned())),
            Some(why) => Err(bad("token", text, why)),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has only lower-case letters, digits, `_` and `-`, as is recommended.
    pub fn is_plain(&self) -> bool {
        is_plain(&self.0)
    }
}

pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

fn token_fault(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("a part is empty");
    }
    if text.len() > TOKEN_MAX_BYTES {
        return Some("a part is longer than 128 bytes");
    }
    text.chars().find_map(|c| match c {
        '.' => Some("a part has a dot in it"),
        '*' | '>' => Some("* and > mean many subjects"),
        c if c.is_whitespace() => Some("there is white space in it"),
        c if c.is_control() => Some("there is a control character in it"),
        _ => None,
    })
}

fn topic_fault(text: &str) -> Option<&'static str> {
    if text.len() > TOPIC_MAX_BYTES {
        return Some("it is longer than 1024 bytes");
    }
    text.split('.').find_map(token_fault)
}

fn bad(what: &str, text: &str, why: &str) -> Error {
    let start: String = text.chars().take(80).collect();
    Error::BadSubject(format!("{start:?} is not a {what}: {why}"))
}

/// What bells ring under: one token, or several joined by dots.
///
/// [`Bus::ring`](crate::Bus::ring) and [`Bus::listen`](crate::Bus::listen) take a text and cannot fail, so a topic
/// that comes from outside is checked here first. A text that is no topic is heard within its own process only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topic(String);

impl Topic {
    /// Takes a text that is a topic.
    pub fn parse(text: &str) -> Result<Topic> {
        match topic_fault(text) {
            None => Ok(Topic(text.to_owned())),
            Some(why) => Err(bad("topic", text, why)),
        }
    }

    /// Whether a text is a topic.
    pub fn is_valid(text: &str) -> bool {
        topic_fault(text).is_none()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names the pool of workers, or the one service, that does an agent's work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerTarget(Token);

impl WorkerTarget {
    /// Takes a text that is a target.
    pub fn parse(text: &str) -> Result<WorkerTarget> {
        Token::parse(text).map(WorkerTarget)
    }

    /// The target of a service that runs once in its scope: `svc1_<service>_<scope>`.
    pub fn exclusive(service: &str, scope: &str) -> Result<WorkerTarget> {
        for part in [service, scope] {
            if part.is_empty() || !is_plain(part) {
                let why = "a service and its scope have lower-case letters, digits, _ and -";
                return Err(bad("part of a target", part, why));
            }
        }
        WorkerTarget::parse(&format!("{EXCLUSIVE}{service}_{scope}"))
    }

    /// Whether only one process may serve it. True of everything that begins with `svc1_`: a name that was made
    /// wrongly must not lift the restriction.
    pub fn is_exclusive(&self) -> bool {
        self.as_str().starts_with(EXCLUSIVE)
    }

    /// Whether it has only the recommended characters.
    pub fn is_plain(&self) -> bool {
        self.0.is_plain()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// What an agent tells about its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgentEvent {
    /// A phase of a step began or ended.
    Step,
    /// The turn ended.
    Task,
    /// A piece of output came.
    Chunk,
}

impl AgentEvent {
    /// All of them.
    pub const ALL: [AgentEvent; 3] = [AgentEvent::Step, AgentEvent::Task, AgentEvent::Chunk];

    /// The last token of its subject.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentEvent::Step => "step",
            AgentEvent::Task => "task",
            AgentEvent::Chunk => "chunk",
        }
    }
}

/// The subjects between the kernel and its workers and tools.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// `cmd.agent.{worker_target}.wakeup`: there is work for this target.
    Wakeup(WorkerTarget),
    /// `evt.agent.{agent_id}.{step|task|chunk}`: an agent tells how far it is.
    Agent {
        /// Who tells.
        agent_id: Token,
        /// What.
        event: AgentEvent,
    },
    /// `cmd.tool.…`: a tool is called.
    Tool(Topic),
    /// `cmd.sys.…`: a part of the system is called.
    System(Topic),
}

impl Subject {
    /// Takes a text that is one of these subjects.
    pub fn parse(text: &str) -> Result<Subject> {
        if let Some(why) = topic_fault(text) {
            return Err(bad("subject", text, why));
        }
        let rest = |start: &str| text.strip_prefix(start).and_then(|rest| Topic::parse(rest).ok());
        if let Some(tool) = rest("cmd.tool.") {
            return Ok(Subject::Tool(tool));
        }
        if let Some(system) = rest("cmd.sys.") {
            return Ok(Subject::System(system));
        }
        let tokens: Vec<&str> = text.split('.').collect();
        match tokens[..] {
            ["cmd", "agent", target, "wakeup"] => Ok(Subject::Wakeup(WorkerTarget::parse(target)?)),
            ["evt", "agent", agent_id, event] => {
                let event = AgentEvent::ALL.into_iter().find(|known| known.as_str() == event);
                let event = event.ok_or_else(|| bad("subject", text, "no agent tells this"))?;
                Ok(Subject::Agent { agent_id: Token::parse(agent_id)?, event })
            }
            _ => Err(bad("subject", text, "it is none that a worker or a tool has")),
        }
    }

    /// The topic that its bells ring under; refused if it is too long.
    pub fn topic(&self) -> Result<Topic> {
        Topic::parse(&self.to_string())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Wakeup(target) => write!(f, "cmd.agent.{}.wakeup", target.as_str()),
            Subject::Agent { agent_id, event } => {
                write!(f, "evt.agent.{}.{}", agent_id.as_str(), event.as_str())
            }
            Subject::Tool(tool) => write!(f, "cmd.tool.{}", tool.as_str()),
            Subject::System(system) => write!(f, "cmd.sys.{}", system.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token() -> impl Strategy<Value = String> {
        prop_oneof![3 => "[a-z0-9_-]{1,20}", 1 => "[^.*>\\s\\p{Cc}]{1,30}"]
    }

    fn subject() -> impl Strategy<Value = Subject> {
        let topic = || {
            let tokens = prop::collection::vec(token(), 1..4);
            tokens.prop_map(|tokens| Topic::parse(&tokens.join(".")).unwrap())
        };
        let event = prop::sample::select(AgentEvent::ALL.to_vec());
        prop_oneof![
            token().prop_map(|target| Subject::Wakeup(WorkerTarget::parse(&target).unwrap())),
            (token(), event).prop_map(|(agent_id, event)| Subject::Agent {
                agent_id: Token::parse(&agent_id).unwrap(),
                event
            }),
            topic().prop_map(Subject::Tool),
            topic().prop_map(Subject::System),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_as_the_same(subject in subject()) {
            let text = subject.to_string();
            let topic = subject.topic().unwrap();
            prop_assert_eq!(Subject::parse(&text).unwrap(), subject);
            prop_assert_eq!(topic.as_str(), text);
        }

        #[test]
        fn any_text_is_read_back_or_refused(text in prop_oneof![any::<String>(), "(cmd|evt)\\.(agent|tool|sys)\\.[a-z.*> ]{0,12}"]) {
            match Subject::parse(&text) {
                Ok(subject) => prop_assert_eq!(subject.to_string(), text),
                Err(error) => prop_assert_eq!(error.code().name, "bus.bad_subject"),
            }
        }

        #[test]
        fn one_wrong_character_spoils_a_token(start in token(), end in token(), wrong in "[.*>\\s\\p{Cc}]") {
            let text = format!("{start}{wrong}{end}");
            prop_assert!(Token::parse(&text).is_err());
            prop_assert!(WorkerTarget::parse(&text).is_err());
            prop_assert_eq!(Topic::is_valid(&text), wrong == ".");
        }
    }

    #[test]
    fn lengths_have_their_limits() {
        let longest = "x".repeat(TOKEN_MAX_BYTES);
        assert!(Token::parse(&longest).is_ok() && Token::parse(&format!("{longest}x")).is_err());
        assert!(Token::parse("").is_err() && Topic::parse("").is_err());
        let long = [longest.as_str(); 7].join(".");
        assert!(Topic::is_valid(&long) && !Topic::is_valid(&format!("{long}.{longest}.{longest}")));
        let tool = Subject::Tool(Topic::parse(&format!("{long}.{}", "x".repeat(119))).unwrap());
        assert!(tool.topic().is_err(), "with its beginning it is too long");
    }

    #[test]
    fn exclusive_targets_are_made_and_known() {
        let made = WorkerTarget::exclusive("ground_control", "dev_proj_01").unwrap();
        assert_eq!(made.as_str(), "svc1_ground_control_dev_proj_01");
        assert!(made.is_exclusive() && made.is_plain());
        for (service, scope) in [("", "a"), ("a", ""), ("a.b", "c"), ("A", "b")] {
            assert!(WorkerTarget::exclusive(service, scope).is_err());
        }
        let target = |text| WorkerTarget::parse(text).unwrap();
        assert!(target("svc1_x").is_exclusive(), "a careless name is not a free one");
        assert!(!target("worker_generic").is_exclusive() && !target("svc2_a_b").is_exclusive());
        assert!(!target("Worker").is_plain());
    }

    #[test]
    fn other_subjects_are_none_of_these() {
        for text in [
            "cmd.agent.a.sleep",
            "cmd.agent.a.b.wakeup",
            "cmd.agent.wakeup",
            "evt.agent.a.other",
            "evt.tool.a",
            "cmd.tool",
            "cmd.sys",
            "str.agent.a.chunk",
            "audit",
        ] {
            let error = Subject::parse(text).unwrap_err();
            assert_eq!(error.code().name, "bus.bad_subject", "{text}");
        }
    }
}
