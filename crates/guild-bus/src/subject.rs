//! The names that bells ring under and letters are sent to: tokens joined by dots, as NATS has them.
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
    /// The turn goes on, or waits.
    State,
}

impl AgentEvent {
    /// All of them.
    pub const ALL: [AgentEvent; 3] = [AgentEvent::Step, AgentEvent::Task, AgentEvent::State];

    /// The last token of its subject.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentEvent::Step => "step",
            AgentEvent::Task => "task",
            AgentEvent::State => "state",
        }
    }
}

/// The subjects between the kernel and its workers and tools.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// `cmd.agent.{worker_target}.wakeup`: there is work for this target.
    Wakeup(WorkerTarget),
    /// `evt.agent.{agent_id}.{step|task|state}`: an agent tells how far it is.
    Agent {
        /// Who tells.
        agent_id: Token,
        /// What.
        event: AgentEvent,
    },
    /// `str.agent.{agent_id}.chunk`: a piece of what an agent is saying. Nobody keeps these.
    Chunk(Token),
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
            ["str", "agent", agent_id, "chunk"] => Ok(Subject::Chunk(Token::parse(agent_id)?)),
            _ => Err(bad("subject", text, "it is none that a worker or a tool has")),
        }
    }

    /// The topic that its bells ring under; refused if it is too long.
    pub fn topic(&self) -> Result<Topic> {
        Topic::parse(&self.to_string())
    }

    /// Whether a server that can keep letters keeps those of this subject: commands to tools, and what agents tell.
    /// Whatever is asked for an answer is not kept: the server's own confirmation would be taken for the answer.
    pub fn is_kept(&self) -> bool {
        matches!(self, Subject::Tool(_) | Subject::Agent { .. })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Wakeup(target) => write!(f, "cmd.agent.{}.wakeup", target.as_str()),
            Subject::Agent { agent_id, event } => {
                write!(f, "evt.agent.{}.{}", agent_id.as_str(), event.as_str())
            }
            Subject::Chunk(agent_id) => write!(f, "str.agent.{}.chunk", agent_id.as_str()),
            Subject::Tool(tool) => write!(f, "cmd.tool.{}", tool.as_str()),
            Subject::System(system) => write!(f, "cmd.sys.{}", system.as_str()),
        }
    }
}

/// What stands before every subject of letters, such as `guild.v1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix(Topic);

impl Prefix {
    /// Takes a text that is a prefix: plain tokens.
    pub fn parse(text: &str) -> Result<Prefix> {
        if !text.split('.').all(is_plain) {
            return Err(bad("prefix", text, "it has others than a-z, 0-9, _ and - in its parts"));
        }
        Topic::parse(text).map(Prefix)
    }

    /// The prefix of those that share a namespace: `{namespace}.v1`.
    pub fn of(namespace: &str) -> Result<Prefix> {
        Prefix::parse(&format!("{namespace}.v1"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// A subject of one channel of one project: `{prefix}.{project_id}.{channel_id}.{subject}`.
///
/// ```
/// use guild_bus::subject::{Address, Prefix};
/// let prefix = Prefix::of("guild")?;
/// let address = Address::parse(&prefix, "guild.v1.p1.public.cmd.tool.shop.buy")?;
/// assert_eq!(address.project_id.as_str(), "p1");
/// assert_eq!(address.subject.to_string(), "cmd.tool.shop.buy");
/// # Ok::<(), guild_bus::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// What stands before it.
    pub prefix: Prefix,
    /// Whose.
    pub project_id: Token,
    /// Where.
    pub channel_id: Token,
    /// What.
    pub subject: Subject,
}

impl Address {
    /// Takes a text that is such a subject under this prefix.
    pub fn parse(prefix: &Prefix, text: &str) -> Result<Address> {
        let rest = text.strip_prefix(prefix.as_str()).and_then(|rest| rest.strip_prefix('.'));
        let mut parts = rest.unwrap_or_default().splitn(3, '.');
        let (Some(project_id), Some(channel_id), Some(subject)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(bad("subject", text, "it is none of a project and a channel"));
        };
        Ok(Address {
            prefix: prefix.clone(),
            project_id: Token::parse(project_id)?,
            channel_id: Token::parse(channel_id)?,
            subject: Subject::parse(subject)?,
        })
    }

    /// As a topic; refused if it is too long.
    pub fn topic(&self) -> Result<Topic> {
        Topic::parse(&self.to_string())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, project_id) = (self.prefix.as_str(), self.project_id.as_str());
        write!(f, "{prefix}.{project_id}.{}.{}", self.channel_id.as_str(), self.subject)
    }
}

/// Many subjects at once: `*` stands for one token, and `>` at the end for one or more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern(String);

impl Pattern {
    /// Takes a text that is a pattern.
    pub fn parse(text: &str) -> Result<Pattern> {
        if text.len() > TOPIC_MAX_BYTES {
            return Err(bad("pattern", text, "it is longer than 1024 bytes"));
        }
        let tokens: Vec<&str> = text.split('.').collect();
        let last = tokens.len().saturating_sub(1);
        let fault = tokens.iter().enumerate().find_map(|(at, token)| match *token {
            "*" => None,
            ">" if at == last => None,
            token => token_fault(token),
        });
        fault.map_or_else(|| Ok(Pattern(text.to_owned())), |why| Err(bad("pattern", text, why)))
    }

    /// All that is sent to this subject in any channel of any project: its own tokens may be patterns.
    pub fn everywhere(prefix: &Prefix, subject: &str) -> Result<Pattern> {
        Pattern::parse(&format!("{}.*.*.{subject}", prefix.as_str()))
    }

    /// Whether a subject is one of these.
    pub fn matches(&self, subject: &str) -> bool {
        let mut tokens = subject.split('.');
        for wanted in self.0.split('.') {
            match (wanted, tokens.next()) {
                (_, None) => return false,
                (">", Some(_)) => return true,
                ("*", Some(_)) => {}
                (wanted, Some(token)) if wanted == token => {}
                _ => return false,
            }
        }
        tokens.next().is_none()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
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
            token().prop_map(|agent_id| Subject::Chunk(Token::parse(&agent_id).unwrap())),
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
        fn addresses_are_read_as_they_are_written(subject in subject(), project in token(), channel in token()) {
            let [project_id, channel_id] = [&project, &channel].map(|text| Token::parse(text).unwrap());
            let prefix = Prefix::of("ns").unwrap();
            let address = Address { prefix: prefix.clone(), project_id, channel_id, subject };
            let text = address.to_string();
            prop_assert_eq!(Address::parse(&prefix, &text).unwrap(), address);
            let tail = text.splitn(5, '.').last().unwrap_or_default();
            prop_assert!(Pattern::everywhere(&prefix, tail).unwrap().matches(&text));
            prop_assert!(Pattern::parse("ns.v1.>").unwrap().matches(&text));
            prop_assert!(!Pattern::parse("ns.v1.*").unwrap().matches(&text));
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
    fn patterns_reach_as_far_as_they_say() {
        let matches = |pattern: &str, text| Pattern::parse(pattern).unwrap().matches(text);
        assert!(matches("a.*.c", "a.b.c") && matches("a.>", "a.b.c") && matches("a", "a"));
        for (pattern, text) in
            [("a.*", "a"), ("a.>", "a"), ("a", "a.b"), ("a.*", "a.b.c"), ("b", "a")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        for bad in ["", "a.>.b", "a..b", "a*", "a b", &"x.".repeat(600)] {
            assert_eq!(Pattern::parse(bad).unwrap_err().code().name, "bus.bad_subject");
        }
        for bad in ["", "Guild.v1", "a..b", "*", "a.>"] {
            assert!(Prefix::parse(bad).is_err(), "{bad}");
        }
        let prefix = Prefix::of("guild").unwrap();
        for bad in ["guild.v1", "guild.v1.p.c", "guild.v1.p.c.cmd", "other.v1.p.c.cmd.tool.x"] {
            assert!(Address::parse(&prefix, bad).is_err(), "{bad}");
        }
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
            "evt.agent.a.chunk",
            "str.agent.a.step",
            "audit",
        ] {
            let error = Subject::parse(text).unwrap_err();
            assert_eq!(error.code().name, "bus.bad_subject", "{text}");
        }
    }
}
