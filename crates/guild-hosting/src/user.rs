//! Who buys: a wallet or a Nostr key.

use std::fmt;
use std::str::FromStr;

use guild_protocol::identity::PublicKey;

use crate::error::code;
use crate::{Error, Result};

/// Whoever has proven a key. A wallet is written `eip155:0x…` with lower-case digits, a Nostr key `nostr:…`.
///
/// ```
/// # use guild_hosting::UserId;
/// let user: UserId = "eip155:0x00000000000000000000000000000000000000aa".parse()?;
/// assert_eq!(user, UserId::of_wallet([0; 19].iter().copied().chain([0xaa])));
/// assert!("eip155:0xAA".parse::<UserId>().is_err());
/// # Ok::<(), guild_hosting::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(String);

const WALLET: &str = "eip155:0x";
const NOSTR: &str = "nostr:";

impl UserId {
    /// The owner of a wallet, by the bytes of its address.
    pub fn of_wallet(address: impl IntoIterator<Item = u8>) -> UserId {
        let address: Vec<u8> = address.into_iter().collect();
        UserId(format!("{WALLET}{}", guild_protocol::hash::to_hex(&address)))
    }

    /// The owner of a Nostr key.
    pub fn of_key(key: &PublicKey) -> UserId {
        UserId(format!("{NOSTR}{}", key.hex()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for UserId {
    type Err = Error;

    fn from_str(text: &str) -> Result<UserId> {
        let hex = |rest: &str, digits: usize| {
            rest.len() == digits && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_wallet = text.strip_prefix(WALLET).is_some_and(|rest| hex(rest, 40));
        let is_key = text.strip_prefix(NOSTR).is_some_and(|rest| hex(rest, 64));
        if is_wallet || is_key {
            return Ok(UserId(text.to_owned()));
        }
        let message = "a user is eip155:0x and 40, or nostr: and 64, lower-case hex digits";
        Err(Error::refused(&code::MALFORMED, message))
    }
}
