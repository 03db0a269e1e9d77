//! Sign-In with Ethereum (EIP-4361): a wallet signs a message that names this node and a nonce of ours.
//!
//! [`check`] is pure and costs a signature, so it stands outside of the transaction; [`sign_in`] is a transaction that
//! uses up the nonce, whatever the check has found, and then opens a session or says why not. Nothing is left to be
//! forgotten: a [`Policy`] has no field that may be absent, and the account of a checked message is known to
//! [`sign_in`] alone.

use std::collections::BTreeSet;
use std::fmt;

use guild_protocol::env::UnixMs;
use guild_protocol::evm::{Address, Signature};
use guild_protocol::timestamp::Timestamp;
use guild_store::Tx;

use super::session::{self, NewSession, Session, Via};
use super::{Nonce, Origin, code, nonce};
use crate::{Error, Result, UserId};

mod grammar;
mod parse;

/// The most bytes of a message.
pub const MAX_BYTES: usize = 8 * 1024;
/// The most resources of a message.
pub const MAX_RESOURCES: usize = 32;
/// By how much the clock of a wallet may differ from ours.
pub const SKEW_MS: i64 = 60_000;

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// The whole of it, or a line that belongs to no field.
    Message,
    /// What stands before `://` in the first line.
    Scheme,
    /// Who asks for the signature.
    Domain,
    /// Who signs.
    Address,
    /// What people read.
    Statement,
    /// `URI`
    Uri,
    /// `Version`
    Version,
    /// `Chain ID`
    ChainId,
    /// `Nonce`
    Nonce,
    /// `Issued At`
    IssuedAt,
    /// `Expiration Time`
    ExpirationTime,
    /// `Not Before`
    NotBefore,
    /// `Request ID`
    RequestId,
    /// `Resources`
    Resources,
}

impl Field {
    /// Its name in errors, as the ABNF of the EIP calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Field::Message => "message",
            Field::Scheme => "scheme",
            Field::Domain => "domain",
            Field::Address => "address",
            Field::Statement => "statement",
            Field::Uri => "uri",
            Field::Version => "version",
            Field::ChainId => "chain-id",
            Field::Nonce => "nonce",
            Field::IssuedAt => "issued-at",
            Field::ExpirationTime => "expiration-time",
            Field::NotBefore => "not-before",
            Field::RequestId => "request-id",
            Field::Resources => "resources",
        }
    }
}

/// Why a text is not a message of EIP-4361. Repeats nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", field.as_str())]
pub struct Malformed {
    /// Where.
    pub field: Field,
    /// Why.
    pub reason: &'static str,
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Error {
        Error::refused(&code::SIWE_MALFORMED, malformed.to_string())
    }
}

/// A moment as it was written, since the text is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    text: String,
    at_ms: UnixMs,
}

impl Time {
    /// This moment, written in UTC.
    pub fn at(at_ms: UnixMs) -> Result<Time> {
        let moment = Timestamp::from_ms(at_ms).map_err(|_| Malformed {
            field: Field::Message,
            reason: "a moment is in the years 0 to 9999",
        })?;
        Ok(Time { text: moment.to_string(), at_ms })
    }

    /// The moment.
    pub fn at_ms(&self) -> UnixMs {
        self.at_ms
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A message of version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The scheme of whoever asks.
    pub scheme: Option<String>,
    /// Host and port of whoever asks.
    pub domain: String,
    /// Who signs.
    pub address: Address,
    /// What people read.
    pub statement: Option<String>,
    /// What is signed in to.
    pub uri: String,
    /// On which chain the account is (EIP-155).
    pub chain_id: u64,
    /// Ours.
    pub nonce: Nonce,
    /// When it was made.
    pub issued_at: Time,
    /// From when on it is not good any more.
    pub expiration_time: Option<Time>,
    /// From when on it is good.
    pub not_before: Option<Time>,
    /// Whatever the one who asks calls it.
    pub request_id: Option<String>,
    /// Whatever the one who signs shall agree to. Absent and empty are two texts.
    pub resources: Option<Vec<String>>,
}

impl Message {
    /// Reads a message, and nothing that the grammar of the EIP does not allow. Stricter than it in four things: no
    /// user in the domain, no zeros before the number of a chain, moments in capital letters without leap seconds, and
    /// the sizes.
    ///
    /// ```
    /// # use guild_hosting::access::siwe::{Field, Message};
    /// let text = "guild.example wants you to sign in with your Ethereum account:\n\
    ///     0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf\n\n\n\
    ///     URI: https://guild.example\nVersion: 1\nChain ID: 8453\nNonce: 0123456789abcdef\n\
    ///     Issued At: 2026-01-15T08:30:00Z";
    /// assert_eq!(Message::parse(text).unwrap().text(), text);
    /// let refused = Message::parse(&text.replace("Chain ID: 8453", "Chain ID: 8453\r")).unwrap_err();
    /// assert_eq!(refused.field, Field::ChainId);
    /// ```
    pub fn parse(text: &str) -> Result<Message, Malformed> {
        parse::message(text)
    }

    /// The text to sign. It holds the nonce, so it has no `Display`.
    pub fn text(&self) -> String {
        parse::text(self)
    }
}

/// What a message must say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The public origins of this node: the domain and the URI of a message are those of one of them.
    pub origins: Vec<Origin>,
    /// The chains whose accounts may sign in.
    pub chain_ids: BTreeSet<u64>,
    /// By how much the clock of a wallet may differ from ours; [`SKEW_MS`] at a node.
    pub skew_ms: i64,
}

impl Policy {
    fn check(&self, message: &Message, now_ms: UnixMs) -> Result<()> {
        let at_domain = || self.origins.iter().filter(|one| one.authority() == message.domain);
        let of_scheme = |one: &&Origin| message.scheme.as_ref().is_none_or(|s| s == one.scheme());
        if at_domain().next().is_none() {
            return Err(mismatch(Field::Domain, "is not that of this node"));
        }
        if !at_domain().any(|one| of_scheme(&one)) {
            return Err(mismatch(Field::Scheme, "is not that of this node"));
        }
        if !at_domain().filter(of_scheme).any(|one| one.holds(&message.uri)) {
            return Err(mismatch(Field::Uri, "is not at the domain of the message"));
        }
        if !self.chain_ids.contains(&message.chain_id) {
            return Err(mismatch(Field::ChainId, "is not one whose accounts may sign in"));
        }
        self.check_times(message, now_ms)
    }

    fn check_times(&self, message: &Message, now_ms: UnixMs) -> Result<()> {
        let skew_ms = self.skew_ms.max(0);
        let (early, late) = (now_ms.saturating_sub(skew_ms), now_ms.saturating_add(skew_ms));
        let issued_ms = message.issued_at.at_ms;
        let refused = |field: Field, why: &str| {
            Err(Error::refused(&code::SIWE_TIME, format!("{}: {why}", field.as_str())))
        };
        if issued_ms > late {
            return refused(Field::IssuedAt, "is in the future");
        }
        if issued_ms < early.saturating_sub(nonce::LIFETIME_MS) {
            return refused(Field::IssuedAt, "is longer ago than a nonce is good");
        }
        if message.expiration_time.as_ref().is_some_and(|time| time.at_ms <= early) {
            return refused(Field::ExpirationTime, "has passed");
        }
        if message.not_before.as_ref().is_some_and(|time| time.at_ms > late) {
            return refused(Field::NotBefore, "is in the future");
        }
        Ok(())
    }
}

fn mismatch(field: Field, why: &str) -> Error {
    Error::refused(&code::SIWE_MISMATCH, format!("{}: {why}", field.as_str()))
}

/// A message that was looked at, with what was found. It says nothing before its nonce is used up.
#[derive(Debug, Clone)]
pub struct Checked {
    nonce: Option<Nonce>,
    verdict: Result<Address>,
}

/// Looks at a message and its signature (`0x` and 130 hex digits): grammar, site, chain, times, signer. Pure.
pub fn check(message: &str, signature: &str, policy: &Policy, now_ms: UnixMs) -> Checked {
    match Message::parse(message) {
        Err(malformed) => Checked { nonce: None, verdict: Err(malformed.into()) },
        Ok(read) => {
            let verdict = policy
                .check(&read, now_ms)
                .and_then(|()| signed_by(message, signature, &read.address))
                .map(|()| read.address);
            Checked { nonce: Some(read.nonce), verdict }
        }
    }
}

fn signed_by(message: &str, signature: &str, address: &Address) -> Result<()> {
    let refused = |why: String| Error::refused(&code::SIWE_SIGNATURE, why);
    if let Some(bytes) = bytes_of_contract(signature) {
        let message = format!(
            "a signature of {bytes} bytes is not one of a key (65); wallets that are contracts (EIP-1271) cannot sign \
             in here"
        );
        return Err(Error::refused(&code::SIWE_CONTRACT, message));
    }
    let signature: Signature =
        signature.parse().map_err(|e: guild_protocol::Error| refused(e.message().to_owned()))?;
    let signer = signature.signer_of(message.as_bytes()).ok();
    if signer.as_ref() == Some(address) {
        return Ok(());
    }
    Err(refused("the signature is not of the address that the message names".to_owned()))
}

/// How many bytes these are, if they are bytes and not the 65 of a key: what a contract takes for a signature is as
/// long as it likes, or nothing at all.
fn bytes_of_contract(signature: &str) -> Option<usize> {
    let digits = signature.strip_prefix("0x")?;
    let is_bytes = digits.len().is_multiple_of(2) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    (is_bytes && digits.len() != 130).then_some(digits.len() / 2)
}

/// What became of a try to sign in. The transaction must be committed in either case: a try that failed has used up its
/// nonce as well.
#[derive(Debug, Clone)]
#[must_use = "a refusal is a value here, so that the nonce stays used"]
pub enum SignIn {
    /// A session was opened.
    Open(Session),
    /// The message was refused.
    Refused(Error),
}

impl SignIn {
    /// The session or the refusal. Called after the commit: inside of the transaction a refusal would give the nonce
    /// back.
    pub fn session(self) -> Result<Session> {
        match self {
            SignIn::Open(session) => Ok(session),
            SignIn::Refused(error) => Err(error),
        }
    }
}

/// Uses up the nonce of a message, then opens a session if nothing is wrong with it.
pub fn sign_in(
    tx: &mut Tx<'_>,
    checked: &Checked,
    new: &NewSession,
    now_ms: UnixMs,
) -> Result<SignIn> {
    if let Some(of_message) = &checked.nonce
        && !nonce::consume(tx, of_message, now_ms)?
    {
        let message = "the nonce is not one of ours, has expired or was used before";
        return Ok(SignIn::Refused(Error::refused(&code::NONCE_UNKNOWN, message)));
    }
    match &checked.verdict {
        Err(refused) => Ok(SignIn::Refused(refused.clone())),
        Ok(address) => {
            let user_id = UserId::of_wallet(address.as_bytes().iter().copied());
            Ok(SignIn::Open(session::open(tx, &user_id, Via::Siwe, new, now_ms)?))
        }
    }
}
