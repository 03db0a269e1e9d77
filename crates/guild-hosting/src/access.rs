//! Who may ask, and that asking twice is asking once.
//!
//! | module | what it settles |
//! |---|---|
//! | [`siwe`] | a wallet proves itself by a signed message (EIP-4361) with a [`nonce`] of ours |
//! | [`nip98`] | a Nostr key proves itself by a signed event about this very request |
//! | [`session`] | a proof becomes a token for a while, or the cookie of a page, which only reads |
//! | [`key`] | API keys: tokens with a part of their owner's rights |
//! | [`scope`] | the rights |
//! | [`idempotency`] | a repeated write has one effect and one answer |
//! | [`rate`] | how many requests of one token, and from one place |
//!
//! ```
//! # use guild_hosting::access::{self, Scope, Token};
//! # use guild_hosting::Result;
//! # use guild_store::Tx;
//! fn stop_job(tx: &mut Tx<'_>, bearer: &str, now_ms: i64) -> Result<()> {
//!     let caller = access::who(tx, &bearer.parse::<Token>()?, now_ms)?;
//!     caller.require(Scope::JobsWrite)
//!     // … and whatever is read is read for `caller.user_id` alone.
//! }
//! ```
//!
//! A write asks [`who`] in its own transaction, so that a token that was revoked a moment ago changes nothing any more.
//! Secrets are kept as hashes, and no secret is in a `Debug`, an error or an event.

use std::net::SocketAddr;

use guild_protocol::env::UnixMs;
use guild_protocol::error::Code;
use guild_store::{Migration, Rx, Sql, Tx};

use crate::{Error, Result, UserId};

mod event;
pub mod idempotency;
pub mod key;
pub mod nip98;
pub mod nonce;
mod origin;
pub mod rate;
pub mod scope;
pub mod session;
pub mod siwe;
mod token;

pub use event::TOPIC;
pub use key::KeyId;
pub use nonce::Nonce;
pub use origin::{Origin, Place};
pub use scope::{Scope, Scopes};
pub use session::SessionId;
pub use token::{Token, TokenKind};

/// The codes of this module.
pub mod code {
    guild_protocol::codes! {
        UNAUTHENTICATED = "access.unauthenticated", Denied,
            "The request has no token, or one that is unknown, has expired or was revoked.",
            "Sign in again, or make a new API key.";
        SCOPE_MISSING = "access.scope_missing", Denied,
            "The token does not have the scope that this needs.",
            "Use a session, or make an API key with the scope named.";
        SCOPE_UNKNOWN = "access.scope_unknown", Invalid,
            "A scope has a name that is not known.", "Use the names of the documentation, such as jobs:read.";
        SCOPE_WIDER = "access.scope_wider", Denied,
            "An API key may not make another one that has more scopes or lives longer than itself.",
            "Ask for less, or make the key in a session.";
        ORIGIN_MALFORMED = "access.origin_malformed", Invalid,
            "A public origin is not http:// or https:// and a host in small letters.",
            "Write it like https://guild.example or http://127.0.0.1:4848.";
        SIWE_MALFORMED = "access.siwe_malformed", Invalid,
            "The message to sign in is not one of EIP-4361.",
            "Correct the field named, or have a library make the message.";
        SIWE_MISMATCH = "access.siwe_mismatch", Denied,
            "The message to sign in is for another site or another chain.",
            "Sign in at the address of this node; never sign a message that another site shows.";
        SIWE_TIME = "access.siwe_time", Denied,
            "The message to sign in is too old, has expired, or is not valid yet.",
            "Set the clock, ask for a new nonce and sign again.";
        SIWE_SIGNATURE = "access.siwe_signature", Denied,
            "The message to sign in is not signed by the account that it names.",
            "Sign the message as it is with the account that it names; only 65-byte signatures are read.";
        SIWE_CONTRACT = "access.siwe_contract", Denied,
            "The signature is not the 65 bytes of a key: wallets that are contracts sign like that (EIP-1271, \
             ERC-6492). This node asks no chain, so it cannot check it.",
            "Sign in with an account that has a key of its own, or with a Nostr key.";
        NONCE_UNKNOWN = "access.nonce_unknown", Denied,
            "The nonce is not one of ours, has expired or was used before.",
            "Ask for a new nonce; each is good for one try within five minutes.";
        NONCE_LIMIT = "access.nonce_limit", Unavailable,
            "Too many nonces were asked for from one place and not used.",
            "Use one of them, or wait until they expire.";
        NIP98_MALFORMED = "access.nip98_malformed", Invalid,
            "The header is not the word Nostr and a signed event of kind 27235 in base64.",
            "Correct what the message names; NIP-98 says how it is made.";
        NIP98_MISMATCH = "access.nip98_mismatch", Denied,
            "The event is about another request: another address, method or body.",
            "Sign an event for each request, with its absolute URL, its method and the hash of its body.";
        NIP98_TIME = "access.nip98_time", Denied,
            "The event was made more than a minute from now.", "Set the clock and sign a new event.";
        NIP98_REPLAYED = "access.nip98_replayed", Denied,
            "The event was used before.", "Sign a new event for each request.";
        SESSION_UNKNOWN = "access.session_unknown", NotFound,
            "You have no such session.", "List the sessions first.";
        KEY_MALFORMED = "access.key_malformed", Invalid,
            "An API key's name, scopes or expiry are not of their form.", "Correct the field named.";
        KEY_LIMIT = "access.key_limit", Conflict,
            "There are as many API keys as one user may have.", "Revoke one that is not needed.";
        KEY_UNKNOWN = "access.key_unknown", NotFound,
            "You have no such API key.", "List the keys first.";
        NEEDS_SESSION = "access.needs_session", Denied,
            "An API key or the cookie of a page may not do this; only whoever is signed in may.", "Sign in.";
        RATE_LIMITED = "access.rate_limited", Unavailable,
            "Too many requests with one token or from one place.", "Wait as long as the answer says.";
        IDEMPOTENCY_MALFORMED = "access.idempotency_malformed", Invalid,
            "An idempotency key is not 1 to 255 visible ASCII characters, or the method or path is not of its form.",
            "Use a random key, a new one for each thing that is wanted.";
        IDEMPOTENCY_MISMATCH = "access.idempotency_mismatch", Invalid,
            "The idempotency key was used for another request.", "Use a new key for a new request.";
        IDEMPOTENCY_IN_FLIGHT = "access.idempotency_in_flight", Conflict,
            "The first request with this idempotency key is not answered yet.",
            "Wait a moment and send the same request again.";
        IDEMPOTENCY_LOST = "access.idempotency_lost", Conflict,
            "Another try of the same request has taken over.", "Send the same request again for its answer.";
        ANSWER_UNFIT = "access.answer_unfit", Internal,
            "An answer may not be kept: it is too large, holds a token, or has a status that it cannot have.",
            "Please report it.";
        BYPASS_EXPOSED = "access.bypass_exposed", Denied,
            "Signing in without a proof was asked for where others can come: by the address, a proxy or an origin.",
            "Listen on 127.0.0.1 or ::1, trust no proxy, name no origin of others, or leave the flag away.";
    }
}

/// The HTTP status of an answer with this code. It is that of its kind, but for the few that HTTP has a word for.
pub fn http_status(code: &'static Code) -> u16 {
    const UNAUTHENTICATED: [&Code; 10] = [
        &code::UNAUTHENTICATED,
        &code::SIWE_MISMATCH,
        &code::SIWE_TIME,
        &code::SIWE_SIGNATURE,
        &code::SIWE_CONTRACT,
        &code::NONCE_UNKNOWN,
        &code::NIP98_MALFORMED,
        &code::NIP98_MISMATCH,
        &code::NIP98_TIME,
        &code::NIP98_REPLAYED,
    ];
    match code {
        code if UNAUTHENTICATED.contains(&code) => 401,
        code if *code == code::IDEMPOTENCY_MISMATCH => 422,
        code if *code == code::RATE_LIMITED || *code == code::NONCE_LIMIT => 429,
        code => code.kind.http_status(),
    }
}

/// By what somebody is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Credential {
    /// A session: all that its user may do.
    Session(SessionId),
    /// An API key.
    Key {
        /// Which.
        key_id: KeyId,
        /// Whether it is time to write down that it was used: [`key::used`], in a write of its own.
        use_due: bool,
    },
    /// A session of a page: it reads.
    Page(SessionId),
}

/// Whoever asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Whose rights.
    pub user_id: UserId,
    /// Which of them.
    pub scopes: Scopes,
    /// By what it is known.
    pub credential: Credential,
}

impl Caller {
    /// Refuses unless the caller has this scope.
    pub fn require(&self, scope: Scope) -> Result<()> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        Err(Error::refused(&code::SCOPE_MISSING, format!("this needs the scope {scope}")))
    }

    /// Refuses unless the caller is signed in: some things no API key may do.
    pub fn require_session(&self) -> Result<&SessionId> {
        match &self.credential {
            Credential::Session(session_id) => Ok(session_id),
            Credential::Key { .. } | Credential::Page(_) => {
                let message = "an API key or the cookie of a page may not do this";
                Err(Error::refused(&code::NEEDS_SESSION, message))
            }
        }
    }

    /// The name under which its requests are counted.
    pub fn rate_key(&self) -> &str {
        match &self.credential {
            Credential::Session(session_id) | Credential::Page(session_id) => session_id.as_str(),
            Credential::Key { key_id, .. } => key_id.as_str(),
        }
    }
}

/// Whose token this is. The token is looked up by its hash, so the time that takes says nothing about a secret.
pub fn who(rx: &mut Rx<'_>, token: &Token, now_ms: UnixMs) -> Result<Caller> {
    let found = match token.kind() {
        TokenKind::Session | TokenKind::Page => session::of_token(rx, token, now_ms)?,
        TokenKind::Key => key::of_token(rx, token, now_ms)?,
    };
    found.ok_or_else(unauthenticated)
}

/// The refusal of whoever shows no token, or one that is not good.
pub fn unauthenticated() -> Error {
    let message = "the token is unknown, has expired or was revoked";
    Error::refused(&code::UNAUTHENTICATED, message)
}

/// Refuses if what the caller is known by has ended since.
pub(crate) fn check_still(rx: &mut Rx<'_>, caller: &Caller, now_ms: UnixMs) -> Result<()> {
    let still = match &caller.credential {
        Credential::Session(session_id) | Credential::Page(session_id) => {
            session::is_open(rx, session_id, now_ms)?
        }
        Credential::Key { key_id, .. } => key::expiry(rx, key_id, now_ms)?.is_some(),
    };
    if still { Ok(()) } else { Err(unauthenticated()) }
}

/// How others may come to a node.
#[derive(Debug, Clone, Copy)]
pub struct Reach<'a> {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether proxies are trusted to say who comes: then there are some, and others come through them.
    pub has_proxies: bool,
    /// The origins under which it is known, if any were set.
    pub origins: &'a [Origin],
}

/// Whether somebody may sign in without a proof: only if the flag is set, and the flag is refused where others can
/// come: by the address, through a proxy, or by a name that is not this machine's own.
///
/// ```
/// # use guild_hosting::access::{Reach, bypass_allowed};
/// let at = |address: &str| {
///     Reach { address: address.parse().unwrap(), has_proxies: false, origins: &[] }
/// };
/// assert!(bypass_allowed(true, at("127.0.0.1:4848")).unwrap());
/// assert!(!bypass_allowed(false, at("0.0.0.0:4848")).unwrap());
/// assert!(bypass_allowed(true, at("0.0.0.0:4848")).is_err());
/// let behind = Reach { has_proxies: true, ..at("127.0.0.1:4848") };
/// assert!(bypass_allowed(true, behind).is_err());
/// ```
pub fn bypass_allowed(flag: bool, reach: Reach<'_>) -> Result<bool> {
    let Reach { address, has_proxies, origins } = reach;
    let message = if !address.ip().to_canonical().is_loopback() {
        format!("{address} can be reached by others")
    } else if has_proxies {
        "a proxy is trusted, so others come through it".to_owned()
    } else if let Some(origin) = origins.iter().find(|origin| !origin.is_loopback()) {
        format!("others come by {origin}")
    } else {
        return Ok(flag);
    };
    if flag { Err(Error::refused(&code::BYPASS_EXPOSED, message)) } else { Ok(false) }
}

/// How many rows of a table one sweep takes away, so that no other write waits long for it.
pub const SWEEP_MAX: i64 = 200;

/// Takes away a few of the rows that have no meaning any more; true if there may be more.
pub fn sweep(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<bool> {
    let swept = [
        nonce::sweep(tx, now_ms)?,
        nip98::sweep(tx, now_ms)?,
        session::sweep(tx, now_ms)?,
        key::sweep(tx, now_ms)?,
        idempotency::sweep(tx, now_ms)?,
    ];
    Ok(swept.iter().any(|count| *count >= SWEEP_MAX.unsigned_abs()))
}

/// The tables of this module.
pub fn migrations() -> Vec<Migration> {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0001_access.sql"),
        pg: include_str!("../migrations/postgres/0001_access.sql"),
    };
    vec![Migration { area: "access", number: 1, name: "access", sql }]
}

/// How many rows a query counts.
fn count(rx: &mut Rx<'_>, sql: &'static str, args: &[guild_store::Val<'_>]) -> Result<i64> {
    let row: Option<(i64,)> = rx.first(sql, args)?;
    Ok(row.map_or(0, |(count,)| count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_signs_in_without_a_proof_where_others_come() {
        let at = |address: &str| Reach {
            address: address.parse().unwrap(),
            has_proxies: false,
            origins: &[],
        };
        let allowed = |flag, address: &str| bypass_allowed(flag, at(address));
        for loopback in ["127.0.0.1:1", "127.9.9.9:4848", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(allowed(true, loopback), Ok(true));
            assert_eq!(allowed(false, loopback), Ok(false));
        }
        for open in [
            "0.0.0.0:1",
            "[::]:1",
            "192.168.0.1:1",
            "[::ffff:10.0.0.1]:1",
            "[fe80::1]:1",
            "8.8.8.8:1",
        ] {
            assert_eq!(allowed(true, open).unwrap_err().code(), &code::BYPASS_EXPOSED, "{open}");
            assert_eq!(allowed(false, open), Ok(false));
        }
    }

    #[test]
    fn nobody_signs_in_without_a_proof_where_others_come_by_a_detour() {
        let here = "127.0.0.1:4848".parse().unwrap();
        let refused = |has_proxies, origins: &[&str]| {
            let origins: Vec<Origin> = origins.iter().map(|text| text.parse().unwrap()).collect();
            let reach = Reach { address: here, has_proxies, origins: &origins };
            assert_eq!(bypass_allowed(false, reach), Ok(false), "without the flag all is well");
            bypass_allowed(true, reach).err().map(|error| error.code().name)
        };
        let exposed = Some("access.bypass_exposed");
        assert_eq!(refused(true, &[]), exposed, "a proxy lets others in");
        let own = ["http://127.0.0.1:4848", "http://localhost:4848", "http://[::1]:4848"];
        assert_eq!(refused(false, &own), None);
        for other in
            ["https://guild.example.com", "http://localhost.example.com", "http://10.0.0.1"]
        {
            assert_eq!(refused(false, &[own[0], other]), exposed, "{other}");
        }
    }

    #[test]
    fn statuses_are_those_of_http() {
        let of = |status| code::ALL.iter().filter(move |code| http_status(code) == status).count();
        assert_eq!([of(401), of(422), of(429), of(503)], [10, 1, 2, 0]);
        assert_eq!(http_status(&code::SCOPE_MISSING), 403);
        assert_eq!(http_status(&code::IDEMPOTENCY_IN_FLIGHT), 409);
        assert_eq!(http_status(&crate::code::MALFORMED), 400);
    }
}
