//! Event kinds: every number this system sends or reads, in one place.
//!
//! ```
//! use guild_protocol::nostr::kind;
//! assert_eq!(kind::result_of(kind::DEFAULT_REQUEST), Some(kind::DEFAULT_RESULT));
//! assert!(kind::is_addressable(kind::ANNOUNCEMENT) && !kind::is_addressable(kind::DEFAULT_REQUEST));
//! ```

use std::ops::RangeInclusive;

/// Somebody's name and picture (NIP-01).
pub const PROFILE: u16 = 0;
/// A wish to delete earlier events; for a request: to cancel it (NIP-09).
pub const DELETION: u16 = 5;
/// The seal of a private message: who wrote it, for its reader alone (NIP-59).
pub const SEAL: u16 = 13;
/// A private message (NIP-17). Never published as it is.
pub const PRIVATE_MESSAGE: u16 = 14;
/// A gift wrap, hiding who writes to whom (NIP-59).
pub const GIFT_WRAP: u16 = 1059;
/// What a file is and where it can be had (NIP-94).
pub const FILE_METADATA: u16 = 1063;
/// A label on somebody or something (NIP-32); our reviews are published as these too.
pub const LABEL: u16 = 1985;
/// A review of one engagement.
pub const REVIEW: u16 = 2020;
/// Requests for work (NIP-90).
pub const REQUESTS: RangeInclusive<u16> = 5000..=5999;
/// A benchmark request: the number the source documents call generic.
pub const BENCHMARK_REQUEST: u16 = 5000;
/// The kind of a request whose schema is not configured to another.
pub const DEFAULT_REQUEST: u16 = 5050;
/// Results of work (NIP-90): the request's kind + 1000.
pub const RESULTS: RangeInclusive<u16> = 6000..=6999;
/// The result of a [`DEFAULT_REQUEST`].
pub const DEFAULT_RESULT: u16 = 6050;
/// How a job is going (NIP-90).
pub const FEEDBACK: u16 = 7000;
/// The relays where somebody reads and writes (NIP-65).
pub const RELAY_LIST: u16 = 10002;
/// A provider's sign of life.
pub const HEARTBEAT: u16 = 11998;
/// Proves a key to a relay (NIP-42). Never stored or passed on.
pub const AUTH: u16 = 22242;
/// A node asks a relay whether it passes events on, by sending this one to itself. Never stored.
pub const ECHO: u16 = 24_848;
/// Proves a key to a web server, for one request (NIP-98).
pub const HTTP_AUTH: u16 = 27235;
/// Data of an application, by name (NIP-78). A receipt travels to its provider as one of these.
pub const APP_DATA: u16 = 30078;
/// Somebody recommends providers for a kind (NIP-89).
pub const RECOMMENDATION: u16 = 31989;
/// A provider advertises itself (NIP-89).
pub const ANNOUNCEMENT: u16 = 31990;
/// A review that its author may replace.
pub const REPLACEABLE_REVIEW: u16 = 32020;

/// How far a result's kind is from its request's.
const RESULT_OFFSET: u16 = 1000;

/// Whether events of this kind ask for work.
pub fn is_request(kind: u16) -> bool {
    REQUESTS.contains(&kind)
}

/// Whether events of this kind deliver work.
pub fn is_result(kind: u16) -> bool {
    RESULTS.contains(&kind)
}

/// The kind of the result of a request of this kind.
pub fn result_of(request: u16) -> Option<u16> {
    is_request(request).then(|| request.saturating_add(RESULT_OFFSET))
}

/// The kind of the request that a result of this kind answers.
pub fn request_of(result: u16) -> Option<u16> {
    is_result(result).then(|| result.saturating_sub(RESULT_OFFSET))
}

/// Whether relays keep only the newest event per author. Between two of one second the lowest id wins.
pub fn is_replaceable(kind: u16) -> bool {
    matches!(kind, 0 | 3 | 10_000..=19_999)
}

/// Whether relays pass events on without keeping them.
pub fn is_ephemeral(kind: u16) -> bool {
    matches!(kind, 20_000..=29_999)
}

/// Whether relays keep only the newest event per author and `d` tag.
pub fn is_addressable(kind: u16) -> bool {
    matches!(kind, 30_000..=39_999)
}

/// Whether relays keep every event.
pub fn is_regular(kind: u16) -> bool {
    !is_replaceable(kind) && !is_ephemeral(kind) && !is_addressable(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_of_one_sort() {
        for kind in 0..=u16::MAX {
            let sorts =
                [is_regular(kind), is_replaceable(kind), is_ephemeral(kind), is_addressable(kind)];
            assert_eq!(sorts.into_iter().filter(|yes| *yes).count(), 1, "{kind}");
        }
        for kind in [DELETION, GIFT_WRAP, LABEL, REVIEW, DEFAULT_REQUEST, DEFAULT_RESULT, FEEDBACK]
        {
            assert!(is_regular(kind), "{kind}");
        }
        assert!([PROFILE, RELAY_LIST, HEARTBEAT].into_iter().all(is_replaceable));
        assert!([RECOMMENDATION, ANNOUNCEMENT, REPLACEABLE_REVIEW].into_iter().all(is_addressable));
    }

    #[test]
    fn a_result_is_a_thousand_above_its_request() {
        assert_eq!(
            [result_of(4999), result_of(5000), result_of(5999), result_of(6000)],
            [None, Some(6000), Some(6999), None]
        );
        for kind in REQUESTS {
            assert_eq!(result_of(kind).and_then(request_of), Some(kind));
        }
        assert_eq!(request_of(FEEDBACK), None);
    }
}
