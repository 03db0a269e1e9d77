//! What the relay takes, and how much of it.

use std::collections::BTreeSet;

use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Limits, kind};

/// Encrypted messages of the old kind (NIP-04).
const DIRECT_MESSAGE: u16 = 4;
/// A gift wrap that no relay keeps.
const EPHEMERAL_GIFT_WRAP: u16 = 21_059;

/// An answer may always have so many bytes of stored events.
pub const ANSWER_LEAST_BYTES: usize = 256 * 1024;

/// How the relay serves. Every number is a limit; what lies beyond is refused with words and counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What it calls itself (NIP-11).
    pub name: String,
    /// What it says it is for (NIP-11).
    pub description: String,
    /// Whose it is (NIP-11).
    pub pubkey: Option<PublicKey>,
    /// Names under which it is known, beside the one it is asked under (NIP-42).
    pub hosts: Vec<String>,
    /// Bytes of a frame from a client.
    pub frame_max_bytes: usize,
    /// Frames of a connection in a minute.
    pub frames_per_minute: u32,
    /// Events of a connection in a minute.
    pub events_per_minute: u32,
    /// Stored events of an author in a minute, over all connections.
    pub key_events_per_minute: u32,
    /// How many authors are counted at once.
    pub keys_max: usize,
    /// Refusals of a connection in a minute; one more ends it.
    pub strikes_per_minute: u32,
    /// Events of a connection that wait for their answer. While there are so many, nothing more is read.
    pub events_waiting_max: usize,
    /// Questions of a connection that wait for their answer.
    pub queries_waiting_max: usize,
    /// Questions of all connections that are with the database at once: fewer than it has readers, so that strangers
    /// never hold all of them.
    pub queries_at_once: usize,
    /// Open subscriptions of a connection.
    pub subscriptions_max: usize,
    /// Filters of one question.
    pub filters_max: usize,
    /// Values in all filters of the open subscriptions of a connection.
    pub values_max: usize,
    /// Stored events in the answer to one question.
    pub limit_max: usize,
    /// Bytes of the stored events in the answer to one question.
    pub answer_max_bytes: usize,
    /// Bytes of all answers that are on their way at once, but for [`ANSWER_LEAST_BYTES`] of each. Whoever asks while
    /// there are so many gets no more than that at once, so that many who do not read fill no memory.
    pub answers_max_bytes: usize,
    /// Events that a question looks at beyond those that it finds, and every KiB of such events; with more it is
    /// refused.
    pub visits_max: usize,
    /// Bytes of new events that wait for a reader; with more, its subscriptions are closed.
    pub queue_max_bytes: usize,
    /// Connections in all.
    pub connections_max: usize,
    /// Connections of one address (of one /64 network).
    pub connections_per_address: usize,
    /// How long a new connection may say nothing.
    pub first_frame_max_ms: i64,
    /// How often a quiet connection is asked whether it is still there.
    pub ping_ms: i64,
    /// How long it may take to answer that, or to take what is sent.
    pub silence_max_ms: i64,
    /// Open reconciliations of a connection (NIP-77).
    pub syncs_max: usize,
    /// Events of one reconciliation, or of one count.
    pub sync_max_events: usize,
    /// Bytes of these events, which have to be read.
    pub sync_max_bytes: usize,
    /// Events of all reconciliations that are open at once.
    pub syncs_max_events: usize,
    /// Whether only those who have proven a key may publish (NIP-42).
    pub auth_to_write: bool,
    /// Whether only those who have proven a key may read.
    pub auth_to_read: bool,
    /// Of these kinds everybody gets only what they wrote or what is addressed to them, once they have proven the key.
    pub private_kinds: BTreeSet<u16>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: "Guildhall".to_owned(),
            description:
                "The relay of a Guildhall node: requests for work, and what becomes of them."
                    .to_owned(),
            pubkey: None,
            hosts: Vec::new(),
            frame_max_bytes: Limits::DEFAULT.max_bytes,
            frames_per_minute: 12_000,
            events_per_minute: 6_000,
            key_events_per_minute: 3_000,
            keys_max: 10_000,
            strikes_per_minute: 100,
            events_waiting_max: 512,
            queries_waiting_max: 16,
            queries_at_once: 2,
            subscriptions_max: 64,
            filters_max: 16,
            values_max: 10_000,
            limit_max: 1_000,
            answer_max_bytes: 4 * 1024 * 1024,
            answers_max_bytes: 64 * 1024 * 1024,
            visits_max: 20_000,
            queue_max_bytes: 1024 * 1024,
            connections_max: 512,
            connections_per_address: 128,
            first_frame_max_ms: 60_000,
            ping_ms: 25_000,
            silence_max_ms: 60_000,
            syncs_max: 2,
            sync_max_events: 50_000,
            sync_max_bytes: 64 * 1024 * 1024,
            syncs_max_events: 1_000_000,
            auth_to_write: false,
            auth_to_read: false,
            private_kinds: BTreeSet::from([DIRECT_MESSAGE, kind::GIFT_WRAP, EPHEMERAL_GIFT_WRAP]),
        }
    }
}
