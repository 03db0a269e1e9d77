//! Two keys and a source of bytes that are the same in every run. The seeds were made with these keys.

use guild_protocol::env::Random;
use guild_protocol::identity::SecretKey;

/// The one who asks.
pub fn buyer() -> SecretKey {
    key("7f7ff03d123792d6ac594bfa67bf6d0c0ab55b6b1fdb6249303fe861f1ccba9a")
}

/// The one who answers.
pub fn provider() -> SecretKey {
    key("c15d739894c81a2fcfd3a2df85a0d2c0dbc47a280d092799f144d73d7ae78add")
}

fn key(hex: &str) -> SecretKey {
    hex.parse().expect("a fixed key is a key")
}

/// Gives these bytes again and again.
pub struct Bytes<'a>(pub &'a [u8]);

impl Random for Bytes<'_> {
    fn fill(&self, bytes: &mut [u8]) {
        for (to, from) in bytes.iter_mut().zip(self.0.iter().chain(&[4]).cycle()) {
            *to = *from;
        }
    }
}
