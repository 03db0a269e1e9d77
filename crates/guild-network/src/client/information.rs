//! What a relay says of itself and its limits (NIP-11). Read liberally: a limit that cannot be read is none.

use serde::Serialize;
use serde_json::Value;

use super::status::words;

/// A document larger than this is not read.
pub(super) const MAX_BYTES: usize = 64 * 1024;

/// The parts that matter to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Information {
    /// Its name.
    pub name: Option<String>,
    /// The program it runs.
    pub software: Option<String>,
    /// A longer frame is not read.
    pub max_message_bytes: Option<u64>,
    /// More subscriptions are refused.
    pub max_subscriptions: Option<u64>,
    /// One answer never has more events.
    pub max_limit: Option<u64>,
    /// It wants to know who asks.
    pub auth_required: bool,
}

impl Information {
    /// Reads the document; what is no document says nothing.
    pub fn parse(text: &[u8]) -> Information {
        let document: Value = serde_json::from_slice(text).unwrap_or_default();
        let limit = |name: &str| {
            let limit = &document["limitation"][name];
            // Zero would be a relay that is of no use to anybody: somebody meant "no limit".
            limit.as_u64().filter(|limit| *limit > 0)
        };
        let said = |name: &str| document[name].as_str().map(words);
        Information {
            name: said("name"),
            software: said("software"),
            max_message_bytes: limit("max_message_length"),
            max_subscriptions: limit("max_subscriptions"),
            max_limit: limit("max_limit"),
            auth_required: document["limitation"]["auth_required"].as_bool().unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_rubbish_is_none() {
        let text = br#"{"name":"r\u001b[2J","limitation":
            {"max_message_length":16384,"max_subscriptions":0,"max_limit":"5","auth_required":true}}"#;
        let read = Information::parse(text);
        assert_eq!(read.name.as_deref(), Some("r [2J"));
        assert_eq!((read.max_message_bytes, read.max_subscriptions), (Some(16_384), None));
        assert_eq!((read.max_limit, read.auth_required), (None, true));
        for rubbish in [&b""[..], b"[]", b"<html>", b"{\"limitation\":7}", b"\xff"] {
            assert_eq!(Information::parse(rubbish), Information::default());
        }
    }
}
