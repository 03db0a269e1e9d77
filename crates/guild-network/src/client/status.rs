//! What is known of each relay, for people and programs.

use guild_protocol::env::UnixMs;
use serde::Serialize;

use super::information::Information;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is being made.
    Connecting,
    /// It stands.
    Connected,
    /// It failed, and is tried again in a while.
    Waiting,
    /// The relay did too much harm, and is left alone for a while.
    Banned,
}

/// How a relay answers one of our subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "snake_case", tag = "state", content = "why")]
pub enum SubState {
    /// Not asked for yet.
    #[default]
    Idle,
    /// Asked for.
    Asked,
    /// All that was stored has come; from now on what is new.
    Live,
    /// The relay ended it; it is asked for again in a while.
    Closed(String),
    /// The relay wants to know who we are first.
    NeedsAuth,
    /// The relay does not give it to us.
    Refused(String),
}

/// Whether the relay knows who we are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "snake_case", tag = "state", content = "why")]
pub enum AuthState {
    /// It has not asked.
    #[default]
    Unasked,
    /// It would like to know; nothing has needed it so far.
    Challenged,
    /// It has been told and has not answered.
    Sent,
    /// It knows.
    Proven,
    /// It does not let us in.
    Refused(String),
}

/// Whether the relay passes on what it is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "snake_case", tag = "state", content = "why")]
pub enum EchoState {
    /// Not known yet.
    #[default]
    Unknown,
    /// Our own event came back.
    Heard,
    /// It did not.
    Deaf,
    /// The relay does not take such events, so there is nothing to learn.
    Refused(String),
}

/// What a relay has sent since the node was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct Counts {
    /// Connections that stood.
    pub connections: u64,
    /// Frames read.
    pub frames: u64,
    /// Bytes of them.
    pub bytes_in: u64,
    /// Bytes of the frames sent.
    pub bytes_out: u64,
    /// Events that we asked for.
    pub events: u64,
    /// Events that were new.
    pub stored: u64,
    /// Events that we knew.
    pub known: u64,
    /// Events that were refused here, whatever the reason.
    pub refused: u64,
    /// Events with a wrong id or signature.
    pub hostile: u64,
    /// Events that nobody asked for.
    pub unasked: u64,
    /// Answers to what we published.
    pub ok: u64,
    /// Those that said no.
    pub ok_refused: u64,
    /// Answers about something that we did not publish or ask.
    pub stray: u64,
    /// Ends of what is stored.
    pub eose: u64,
    /// Subscriptions that the relay ended.
    pub closed: u64,
    /// Remarks for people.
    pub notices: u64,
    /// Demands to prove a key.
    pub auths: u64,
    /// Frames that are no message.
    pub malformed: u64,
    /// Frames that are longer than any message.
    pub oversized: u64,
    /// Pages in which it gave fewer events than it says that it gives, although there were more.
    pub limits: u64,
    /// Times that it was banned.
    pub bans: u64,
}

/// What is known of one relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RelayStatus {
    /// Its address.
    pub url: String,
    /// Whether the settings name it. Others are used to publish to somebody, and forgotten when idle.
    pub configured: bool,
    /// Where the connection stands.
    pub state: State,
    /// Since when.
    pub since_ms: UnixMs,
    /// How often in a row it failed.
    pub failures: u32,
    /// Why it last failed, or what the relay last said to people.
    pub last_error: Option<String>,
    /// The subscription of what is new.
    pub live: SubState,
    /// Whether all that was stored there has been fetched.
    pub fetched: bool,
    /// Whether it knows who we are.
    pub auth: AuthState,
    /// Whether it passes on what it is given.
    pub echo: EchoState,
    /// How long the last echo took.
    pub echo_ms: Option<i64>,
    /// How long it took to connect.
    pub connect_ms: Option<i64>,
    /// What it says of itself (NIP-11).
    pub information: Information,
    /// What it has sent.
    pub counts: Counts,
}

impl RelayStatus {
    pub(super) fn new(url: &str, configured: bool, now_ms: UnixMs) -> RelayStatus {
        RelayStatus {
            url: url.to_owned(),
            configured,
            state: State::Connecting,
            since_ms: now_ms,
            failures: 0,
            last_error: None,
            live: SubState::Idle,
            fetched: false,
            auth: AuthState::Unasked,
            echo: EchoState::Unknown,
            echo_ms: None,
            connect_ms: None,
            information: Information::default(),
            counts: Counts::default(),
        }
    }
}

/// What a stranger said, short and without what steers a terminal.
pub(super) fn words(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
