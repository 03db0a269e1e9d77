//! What the relay says about itself (NIP-11).

use serde_json::{Value, json};

use guild_protocol::nostr::message::MAX_SUB_BYTES;
use guild_protocol::nostr::{Limits, filter};

use super::Options;

/// What it understands.
const NIPS: [u16; 8] = [1, 9, 11, 40, 42, 45, 70, 77];

/// The document.
pub(crate) fn document(options: &Options) -> Value {
    let limits = Limits::DEFAULT;
    let mut document = json!({
        "name": options.name,
        "description": options.description,
        "supported_nips": NIPS,
        "software": "guildhall",
        "version": env!("CARGO_PKG_VERSION"),
        "limitation": {
            "max_message_length": options.frame_max_bytes,
            "max_subscriptions": options.subscriptions_max,
            "max_filters": options.filters_max,
            "max_limit": options.limit_max,
            "default_limit": options.limit_max,
            "max_subid_length": MAX_SUB_BYTES,
            "max_event_tags": limits.max_tags,
            "max_content_length": limits.max_content_bytes.min(options.frame_max_bytes),
            "max_values": filter::MAX_VALUES,
            "min_pow_difficulty": 0,
            "auth_required": options.auth_to_read && options.auth_to_write,
            "payment_required": false,
            "restricted_writes": options.auth_to_write,
            "created_at_upper_limit": 900,
            "events_per_minute": options.events_per_minute,
        },
    });
    if let (Some(key), Some(members)) = (options.pubkey, document.as_object_mut()) {
        members.insert("pubkey".to_owned(), key.hex().into());
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_told_are_those_in_force() {
        let options = Options { limit_max: 7, subscriptions_max: 3, ..Options::default() };
        let told = document(&options);
        assert_eq!(told["limitation"]["max_limit"], 7);
        assert_eq!(told["limitation"]["max_subscriptions"], 3);
        assert_eq!(told["limitation"]["auth_required"], false);
        assert!(told["supported_nips"].as_array().unwrap().contains(&json!(77)));
        assert!(told.get("pubkey").is_none());
    }
}
