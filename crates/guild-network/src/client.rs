//! The relays of others: one connection to each, what is wanted of them, and what is published to them.
//!
//! | module | what it settles |
//! |---|---|
//! | `session` | the conversation with a relay: pure |
//! | `fetch` | fetching what is stored, page by page: pure |
//! | `pace` | how long to wait, and how much to put up with: pure |
//! | [`ask`], [`tell`] | one question or one event to one relay, without a node |
//! | [`Pool`] | the handle; [`Service`] keeps the connections |
//! | `link`, `connection`, `dial` | one relay across its connections; one connection; the way there |
//! | [`Trust`] | whose certificates are believed |
//! | [`Want`] | what is fetched and followed |
//! | [`Information`] | what a relay says of itself (NIP-11) |
//! | [`RelayStatus`] | what is known of a relay |
//! | [`tier`] | how closely a relay is followed: pure |
//! | [`Scout`] | polls and samples relays, learns of new ones, and moves them between tiers |

mod address;
mod ask;
mod connection;
mod dial;
mod fetch;
mod information;
mod link;
mod pace;
mod pool;
mod scout;
mod session;
mod status;
pub mod tier;
mod trust;
mod want;

use pool::Shared;

pub use address::relay_url;
pub(crate) use address::{Address, is_private};
pub use ask::{Answered, ask, tell};
pub use dial::{Wire, reach};
pub use information::Information;
pub use pool::{Ack, Pool, PublishError, Service};
pub use scout::{Scout, ScoutOptions};
pub use status::{AuthState, Counts, EchoState, RelayStatus, State, SubState};
pub use trust::Trust;
pub use want::{Want, market_wants};

/// How relays are dealt with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The relays that are always connected.
    pub relays: Vec<String>,
    /// What is wanted of each of them.
    pub wants: Vec<Want>,
    /// How long a connection may take to stand.
    pub connect_ms: i64,
    /// How long a relay may take to say whether it takes an event.
    pub answer_ms: i64,
    /// How long it may be silent before the end of an answer.
    pub eose_ms: i64,
    /// After so long without a word it is pinged.
    pub ping_ms: i64,
    /// After so long without a word the connection is given up.
    pub silence_ms: i64,
    /// After so long without being read the connection is given up.
    pub stall_ms: i64,
    /// The pause after the first failure; it doubles with each further one.
    pub retry_min_ms: i64,
    /// The longest pause.
    pub retry_max_ms: i64,
    /// How many events are asked for at once.
    pub page_max_events: u64,
    /// How many events of one want are fetched before it rests: the next connection goes on below, and one that stands
    /// after an hour.
    pub fetch_max_events: u64,
    /// How far below the watermark the next connection begins: events may reach a relay late.
    pub overlap_s: u64,
    /// How often an event is sent to ourselves.
    pub echo_ms: i64,
    /// How long it may take to come back.
    pub echo_patience_ms: i64,
    /// More events with a wrong id or signature than this, within `hostile_window_ms`, and the relay is banned.
    pub hostile_max: usize,
    /// See `hostile_max`.
    pub hostile_window_ms: i64,
    /// More frames that bring nothing than this, within `nuisance_window_ms`, and the relay is banned.
    pub nuisance_max: usize,
    /// See `nuisance_max`.
    pub nuisance_window_ms: i64,
    /// How long a ban lasts.
    pub ban_ms: i64,
    /// How many events of one relay may wait to be stored; then its socket is not read.
    pub offers_max: usize,
    /// How long publishing may take in all, a connection that must be made first included. Shorter than the lease of
    /// the outbox, or every slow relay is a lost lease.
    pub publish_ms: i64,
    /// How many events may wait to be published at one relay.
    pub publishing_max: usize,
    /// How many relays that are not configured may be connected to publish to somebody.
    pub guests_max: usize,
    /// After so long without use such a connection is ended.
    pub guest_idle_ms: i64,
    /// Whether such a relay may be on this host or in a private network. A stranger names them: with this a stranger
    /// can make the node knock at doors that only it can reach.
    pub private_guests: bool,
    /// How long one poll may take.
    pub poll_ms: i64,
    /// How many events one poll takes.
    pub poll_max_events: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            relays: Vec::new(),
            wants: Vec::new(),
            connect_ms: 10_000,
            answer_ms: 5_000,
            eose_ms: 30_000,
            ping_ms: 30_000,
            silence_ms: 75_000,
            stall_ms: 15_000,
            retry_min_ms: 500,
            retry_max_ms: 60_000,
            page_max_events: 500,
            fetch_max_events: 1_000_000,
            overlap_s: 2 * 3_600,
            echo_ms: 60_000,
            echo_patience_ms: 15_000,
            hostile_max: 10,
            hostile_window_ms: 10 * 60_000,
            nuisance_max: 1_000,
            nuisance_window_ms: 60_000,
            ban_ms: 3_600_000,
            offers_max: 256,
            publish_ms: 8_000,
            publishing_max: 64,
            guests_max: 16,
            guest_idle_ms: 60_000,
            private_guests: false,
            poll_ms: 30_000,
            poll_max_events: 20_000,
        }
    }
}
