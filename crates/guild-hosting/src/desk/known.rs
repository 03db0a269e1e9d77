//! Who has asked of late. A write goes by it, to be counted and turned away before its transaction; within that the
//! token is looked up again, so whoever is only remembered changes nothing.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;

use crate::access::{Caller, Credential, Token};

/// For how long somebody is remembered.
const KEEP_MS: i64 = 2_000;
/// How many are.
const COUNT_MAX: usize = 4_096;

/// Callers by the hashes of their tokens, and since when they are known.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<String, (Caller, UnixMs)>);

impl Known {
    /// Whose token this was a moment ago.
    pub(super) fn find(&self, token: &Token, now_ms: UnixMs) -> Option<Caller> {
        let (caller, at_ms) = self.0.get(&token.hash())?;
        is_fresh(*at_ms, now_ms).then(|| caller.clone())
    }

    /// Remembers somebody whose use was written down.
    pub(super) fn keep(&mut self, token: &Token, mut caller: Caller, now_ms: UnixMs) {
        if let Credential::Key { use_due, .. } = &mut caller.credential {
            *use_due = false;
        }
        if self.0.len() >= COUNT_MAX {
            self.0.retain(|_, (_, at_ms)| is_fresh(*at_ms, now_ms));
        }
        if self.0.len() >= COUNT_MAX {
            self.0.clear();
        }
        self.0.insert(token.hash(), (caller, now_ms));
    }
}

/// A clock that was set back makes nobody known for longer.
fn is_fresh(at_ms: UnixMs, now_ms: UnixMs) -> bool {
    (0..KEEP_MS).contains(&now_ms.saturating_sub(at_ms))
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::Random;

    use super::*;
    use crate::access::{Scopes, TokenKind};

    struct Counting(std::sync::atomic::AtomicU8);

    impl Random for Counting {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        }
    }

    fn caller() -> Caller {
        let credential =
            Credential::Key { key_id: format!("key_{:032x}", 1).parse().unwrap(), use_due: true };
        Caller {
            user_id: "eip155:0x00000000000000000000000000000000000000aa".parse().unwrap(),
            scopes: Scopes::default(),
            credential,
        }
    }

    #[test]
    fn somebody_is_known_for_a_moment_and_their_number_is_bounded() {
        let random = Counting(0.into());
        let tokens: Vec<Token> = (0..9).map(|_| Token::make(TokenKind::Key, &random)).collect();
        let mut known = Known::default();
        known.keep(&tokens[0], caller(), 1_000);
        let found = known.find(&tokens[0], 1_000 + KEEP_MS - 1).unwrap();
        assert!(matches!(found.credential, Credential::Key { use_due: false, .. }));
        assert_eq!(known.find(&tokens[1], 1_000), None);
        assert_eq!(known.find(&tokens[0], 1_000 + KEEP_MS), None);
        assert_eq!(known.find(&tokens[0], 999), None, "the clock was set back");
        for n in 0..COUNT_MAX {
            known.0.insert(n.to_string(), (caller(), 5_000));
        }
        known.keep(&tokens[2], caller(), 5_001);
        assert_eq!(known.0.len(), 1, "all of them were fresh");
    }
}
