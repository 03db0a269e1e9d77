//! The secrets that stand for a user.

use std::fmt;
use std::str::FromStr;

use guild_protocol::env::Random;
use guild_protocol::hash::{Hash, to_hex};
use zeroize::Zeroizing;

use super::code;
use crate::{Error, Result};

/// What a token stands for. Its prefix says so, to programs that look for leaked secrets too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// `ghs_…`
    Session,
    /// `ghk_…`
    Key,
    /// `ghw_…`: the cookie of a page. It reads, and nothing else.
    Page,
}

impl TokenKind {
    const ALL: [TokenKind; 3] = [TokenKind::Session, TokenKind::Key, TokenKind::Page];

    fn prefix(self) -> &'static str {
        match self {
            TokenKind::Session => "ghs_",
            TokenKind::Key => "ghk_",
            TokenKind::Page => "ghw_",
        }
    }
}

/// The hex digits of 256 random bits.
const DIGITS: usize = 64;

/// A bearer token: 256 random bits. Whoever has it is the user, so its `Debug` does not show it, it is wiped when it is
/// dropped, and only its hash is stored. There is nothing to guess in it, so a plain SHA-256 is enough.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    kind: TokenKind,
    text: Zeroizing<String>,
}

impl Token {
    /// A new one.
    pub fn make(kind: TokenKind, random: &dyn Random) -> Token {
        let mut bytes = Zeroizing::new([0; 32]);
        random.fill(bytes.as_mut());
        let digits = Zeroizing::new(to_hex(bytes.as_ref()));
        Token { kind, text: Zeroizing::new(format!("{}{}", kind.prefix(), *digits)) }
    }

    /// What it stands for.
    pub fn kind(&self) -> TokenKind {
        self.kind
    }

    /// The text, for the one answer that shows it.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What is stored.
    pub(crate) fn hash(&self) -> String {
        Hash::of(self.text.as_bytes()).hex()
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Token> {
        let kind = TokenKind::ALL.into_iter().find(|kind| {
            text.strip_prefix(kind.prefix())
                .is_some_and(|rest| rest.len() == DIGITS && rest.bytes().all(is_digit))
        });
        match kind {
            Some(kind) => Ok(Token { kind, text: Zeroizing::new(text.to_owned()) }),
            None => Err(Error::refused(&code::UNAUTHENTICATED, "this is not a token of ours")),
        }
    }
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.kind.prefix())
    }
}

/// Whether a text has something in it that looks like a token.
pub(super) fn holds_token(text: &str) -> bool {
    TokenKind::ALL
        .into_iter()
        .flat_map(|kind| text.split(kind.prefix()).skip(1))
        .any(|rest| rest.bytes().take(DIGITS).filter(|byte| is_digit(*byte)).count() == DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dice;
    impl Random for Dice {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0xab);
        }
    }

    #[test]
    fn a_token_is_read_back_and_nothing_else_is() {
        for kind in TokenKind::ALL {
            let token = Token::make(kind, &Dice);
            assert_eq!(token.reveal().parse::<Token>().unwrap(), token);
            assert!(holds_token(&format!("{{\"token\":\"{}\"}}", token.reveal())));
            let text = token.reveal();
            let longer = format!("{text}0");
            for bad in ["", "ghs_", "ghx_", &text[1..], &text[..67], &longer, &text.to_uppercase()]
            {
                assert_eq!(bad.parse::<Token>().unwrap_err().code(), &code::UNAUTHENTICATED);
            }
        }
        assert!(!holds_token("ghs_ and ghk_12 are prefixes"));
    }
}
