//! Nostr: signed events, and what they say on our market.
//!
//! | module | what it settles |
//! |---|---|
//! | [`kind`] | the numbers of event kinds, and what relays do with each range |
//! | [`event`] | one event: reading within limits, its id, its signature, making one |
//! | [`tag`] | looking things up in tags |
//! | [`file_metadata`] | what a file is and where it can be had (NIP-94) |
//! | [`gift`] | private messages of which nobody sees who writes to whom |
//! | [`filter`] | what somebody asks a relay for |
//! | [`heartbeat`] | a provider's sign of life |
//! | [`message`] | what clients and relays say to each other |
//! | [`nip44`] | encryption between two keys |
//! | [`job`] | requests, results and feedback (NIP-90) |
//! | [`announcement`] | how a provider advertises itself (NIP-89) |
//! | [`receipt_notice`] | how a receipt travels to its provider |
//! | [`review`] | what somebody says in public of a provider |
//! | [`dispute`] | what the two say who dispute about a result |
//!
//! We send what the published texts say and read what is found in the wild. What exactly is in
//! `docs/formats/nostr.md`.

use crate::env::UnixMs;

pub mod announcement;
pub mod dispute;
pub mod event;
pub mod file_metadata;
pub mod filter;
pub mod gift;
pub mod heartbeat;
pub mod job;
pub mod kind;
pub mod message;
pub mod nip44;
pub mod receipt_notice;
pub mod review;
pub mod tag;

pub use event::{Draft, Event, EventId, EventText, Limits};
pub use filter::Filter;
pub use tag::Tag;

/// The codes of this module.
pub mod code {
    crate::codes! {
        EVENT_SIZE = "nostr.event_size", Invalid,
            "The text of an event is larger than the limit.",
            "Refer to large content by its CID or URL instead of carrying it.";
        CONTENT_SIZE = "nostr.content_size", Invalid,
            "The content of an event is larger than the limit.",
            "Refer to large content by its CID or URL instead of carrying it.";
        TAG_COUNT = "nostr.tag_count", Invalid,
            "An event has more tags, or a tag has more items, than the limit.",
            "Send fewer tags.";
        TAG_SIZE = "nostr.tag_size", Invalid,
            "An item of a tag is larger than the limit.",
            "Refer to large input by its CID or URL instead of carrying it.";
        SHAPE = "nostr.event_shape", Invalid,
            "A field of an event is missing or not of the type that NIP-01 demands.",
            "Correct the field named.";
        BAD_ID = "nostr.event_id_malformed", Invalid,
            "An event id is not 64 lower-case hex digits.", "Copy the id whole.";
        WRONG_ID = "nostr.event_id_wrong", Invalid,
            "The id of an event is not the hash of what it says.",
            "Do not trust the event: it was changed after it was signed.";
        FILTER = "nostr.filter_malformed", Invalid,
            "A filter has a condition that is not known or not of its form.",
            "Correct the condition named; NIP-01 lists them.";
        MESSAGE = "nostr.message_malformed", Invalid,
            "A message between a client and a relay is not of its form.",
            "Correct what is named; NIP-01 lists the messages.";
    }
}

/// The seconds that events carry, from the milliseconds of the clock. Before 1970 is 1970.
pub fn unix_s(now_ms: UnixMs) -> u64 {
    u64::try_from(now_ms.div_euclid(1000)).unwrap_or(0)
}

/// Whether the text can be the address of a relay: `ws://` or `wss://`, a host, no white space, at most 512 bytes.
pub fn is_relay_url(text: &str) -> bool {
    let host = text.strip_prefix("wss://").or_else(|| text.strip_prefix("ws://"));
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    text.len() <= 512
        && host.is_some_and(|host| {
            !host.is_empty() && !host.starts_with('/') && host.chars().all(plain)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_come_from_milliseconds() {
        assert_eq!(
            [unix_s(-1), unix_s(0), unix_s(999), unix_s(1_700_000_000_999)],
            [0, 0, 0, 1_700_000_000]
        );
    }

    #[test]
    fn only_web_socket_addresses_are_relays() {
        for good in ["wss://relay.example", "ws://127.0.0.1:4848/relay", "wss://[::1]:7"] {
            assert!(is_relay_url(good), "{good}");
        }
        let long = format!("wss://{}", "x".repeat(512));
        for bad in ["", "spec", "wss://", "wss:///x", "https://relay.example", "wss://a b", &long] {
            assert!(!is_relay_url(bad), "{bad}");
        }
    }
}
