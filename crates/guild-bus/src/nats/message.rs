//! A bell as a message: the topic in the subject, the number in the payload.

use crate::subject::Topic;

/// What stands between the namespace and the topic.
const BELL: &str = "bell";

pub(super) fn subject(namespace: &str, topic: &str) -> String {
    format!("{namespace}.{BELL}.{topic}")
}

pub(super) fn payload(after: i64) -> String {
    after.to_string()
}

/// The bell in a message. Anybody may publish on the server: what we would not have written is none.
pub(super) fn read<'a>(namespace: &str, subject: &'a str, bytes: &[u8]) -> Option<(&'a str, i64)> {
    let rest = subject.strip_prefix(namespace)?.strip_prefix('.')?;
    let topic = rest.strip_prefix(BELL)?.strip_prefix('.')?;
    let text = std::str::from_utf8(bytes).ok()?;
    let after: i64 = text.parse().ok()?;
    (Topic::is_valid(topic) && payload(after) == text).then_some((topic, after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_what_we_would_have_written_is_a_bell() {
        assert_eq!(read("g", "g.bell.audit", b"42"), Some(("audit", 42)));
        assert_eq!(read("g", "g.bell.a.b", b"-1"), Some(("a.b", -1)));
        for rubbish in ["", "+1", "01", " 1", "1 ", "1\n", "-0", "1.0", "9223372036854775808", "x"]
        {
            assert_eq!(read("g", "g.bell.audit", rubbish.as_bytes()), None, "{rubbish:?}");
        }
        assert_eq!(read("g", "g.bell.audit", b"\xff"), None);
        for subject in [
            "g",
            "g.bell.",
            "other.bell.audit",
            "g.audit",
            "g.bellaudit",
            "g.bell.a..b",
            "g.bell.a\u{7f}",
        ] {
            assert_eq!(read("g", subject, b"1"), None, "{subject:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_bell_arrives_as_it_was_rung(topic in "[a-z0-9_-]{1,9}(\\.[^.*>\\s\\p{Cc}]{1,9}){0,3}", after: i64) {
            let read = read("ns", &subject("ns", &topic), payload(after).as_bytes())
                .map(|(topic, after)| (topic.to_owned(), after));
            prop_assert_eq!(read, Some((topic, after)));
        }

        #[test]
        fn anything_may_come(subject: String, bytes: Vec<u8>) {
            if let Some((topic, after)) = read("ns", &subject, &bytes) {
                prop_assert_eq!(&subject, &super::subject("ns", topic));
                prop_assert_eq!(bytes, payload(after).into_bytes());
            }
        }
    }
}
