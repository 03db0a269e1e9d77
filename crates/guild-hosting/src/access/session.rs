//! Sessions: a proof of a key becomes a token, for a while.

use guild_protocol::env::{Clock, Random, UnixMs};
use guild_protocol::typed_id;
use guild_store::{Columns, Decode, Error as StoreError, Rx, Tx, args};
use serde_json::json;

use super::event::tell;
use super::{Caller, Credential, SWEEP_MAX, Scopes, Token, TokenKind, check_still, code};
use crate::{Error, Result, UserId};

/// The longest time that a session may last: 30 days.
pub const MAX_LIFETIME_MS: i64 = 30 * 24 * 3_600 * 1_000;
/// How many sessions a user has at most; one more ends the oldest.
pub const MAX_PER_USER: i64 = 32;

typed_id! {
    /// Names a session. Not a secret.
    SessionId = "session", made;
}

/// How somebody signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// By a wallet.
    Siwe,
    /// By a Nostr key.
    Nip98,
    /// Without any proof, where [`bypass_allowed`](super::bypass_allowed) says so.
    Bypass,
}

impl Via {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Via::Siwe => "siwe",
            Via::Nip98 => "nip98",
            Via::Bypass => "bypass",
        }
    }

    fn read(text: &str) -> Option<Via> {
        [Via::Siwe, Via::Nip98, Via::Bypass].into_iter().find(|via| via.as_str() == text)
    }
}

/// A session before it is opened. Made outside of the transaction, which may run more than once.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its name.
    pub session_id: SessionId,
    /// Its secret.
    pub token: Token,
    /// How long it lasts.
    pub lifetime_ms: i64,
}

impl NewSession {
    /// A new one.
    pub fn make(clock: &dyn Clock, random: &dyn Random, lifetime_ms: i64) -> NewSession {
        let token = Token::make(TokenKind::Session, random);
        NewSession { session_id: SessionId::make(clock, random), token, lifetime_ms }
    }

    /// A new one for the cookie of a page. The token says what it is, so its holder may only read.
    pub fn for_page(clock: &dyn Clock, random: &dyn Random, lifetime_ms: i64) -> NewSession {
        let token = Token::make(TokenKind::Page, random);
        NewSession { session_id: SessionId::make(clock, random), token, lifetime_ms }
    }
}

/// An open session, without its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Its name.
    pub session_id: SessionId,
    /// Whose.
    pub user_id: UserId,
    /// How it came about.
    pub via: Via,
    /// Since when.
    pub created_ms: UnixMs,
    /// Until when.
    pub expires_ms: UnixMs,
}

impl Decode for Session {
    fn decode(row: &dyn Columns) -> std::result::Result<Session, StoreError> {
        let (session_id, user_id, via, created_ms, expires_ms) =
            <(String, String, String, i64, i64)>::decode(row)?;
        let bad = || StoreError::Decode("a session is not of its form".to_owned());
        Ok(Session {
            session_id: session_id.parse().map_err(|_| bad())?,
            user_id: user_id.parse().map_err(|_| bad())?,
            via: Via::read(&via).ok_or_else(bad)?,
            created_ms,
            expires_ms,
        })
    }
}

/// Opens a session for somebody who has proven to be this user. Nobody else calls it: [`super::siwe::sign_in`] and
/// [`super::nip98::sign_in`] do, and whoever may do without a proof.
pub fn open(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    via: Via,
    new: &NewSession,
    now_ms: UnixMs,
) -> Result<Session> {
    let lifetime_ms = new.lifetime_ms.clamp(1, MAX_LIFETIME_MS);
    let session = Session {
        session_id: new.session_id.clone(),
        user_id: user_id.clone(),
        via,
        created_ms: now_ms,
        expires_ms: now_ms.saturating_add(lifetime_ms),
    };
    tx.exec(
        "INSERT INTO access_session (session_id, token_hash, user_id, via, created_ms, expires_ms)
         VALUES ($1, $2, $3, $4, $5, $6)",
        args![
            session.session_id.as_str(),
            &new.token.hash(),
            user_id.as_str(),
            via.as_str(),
            session.created_ms,
            session.expires_ms
        ],
    )?;
    tx.exec(
        "DELETE FROM access_session WHERE session_id IN (SELECT session_id FROM access_session
           WHERE user_id = $1 ORDER BY created_ms DESC, session_id DESC LIMIT 1000 OFFSET $2)",
        args![user_id.as_str(), MAX_PER_USER],
    )?;
    let about = json!({"session_id": session.session_id, "via": via.as_str()});
    let id = format!("{}/opened", session.session_id);
    tell(tx, &id, "access.session_opened", user_id, about, now_ms)?;
    Ok(session)
}

/// Whose token this is.
pub(super) fn of_token(rx: &mut Rx<'_>, token: &Token, now_ms: UnixMs) -> Result<Option<Caller>> {
    let session: Option<Session> = rx.first(
        "SELECT session_id, user_id, via, created_ms, expires_ms FROM access_session
         WHERE token_hash = $1 AND expires_ms > $2",
        args![&token.hash(), now_ms],
    )?;
    // The hash is of the whole token: one of a page is not found as one of a session.
    let (scopes, credential): (Scopes, fn(SessionId) -> Credential) = match token.kind() {
        TokenKind::Page => (Scopes::READ, Credential::Page),
        TokenKind::Session | TokenKind::Key => (Scopes::ALL, Credential::Session),
    };
    Ok(session.map(|session| Caller {
        user_id: session.user_id,
        scopes,
        credential: credential(session.session_id),
    }))
}

pub(super) fn is_open(rx: &mut Rx<'_>, session_id: &SessionId, now_ms: UnixMs) -> Result<bool> {
    let open: Option<(i64,)> = rx.first(
        "SELECT 1 FROM access_session WHERE session_id = $1 AND expires_ms > $2",
        args![session_id.as_str(), now_ms],
    )?;
    Ok(open.is_some())
}

/// The open sessions of the caller's user, the newest first. Only for somebody who is signed in.
pub fn list(rx: &mut Rx<'_>, caller: &Caller, now_ms: UnixMs) -> Result<Vec<Session>> {
    caller.require_session()?;
    Ok(rx.all(
        "SELECT session_id, user_id, via, created_ms, expires_ms FROM access_session
         WHERE user_id = $1 AND expires_ms > $2 ORDER BY created_ms DESC, session_id DESC LIMIT $3",
        args![caller.user_id.as_str(), now_ms, MAX_PER_USER],
    )?)
}

/// Closes a session of the caller's user, its own or another one. Only for somebody who is signed in.
pub fn close(
    tx: &mut Tx<'_>,
    caller: &Caller,
    session_id: &SessionId,
    now_ms: UnixMs,
) -> Result<()> {
    caller.require_session()?;
    end(tx, caller, session_id, now_ms)
}

/// Ends the very session that the caller is known by, also that of a page.
pub fn leave(tx: &mut Tx<'_>, caller: &Caller, now_ms: UnixMs) -> Result<()> {
    match &caller.credential {
        Credential::Session(session_id) | Credential::Page(session_id) => {
            end(tx, caller, session_id, now_ms)
        }
        Credential::Key { .. } => {
            Err(Error::refused(&code::NEEDS_SESSION, "an API key has no session to end"))
        }
    }
}

fn end(tx: &mut Tx<'_>, caller: &Caller, session_id: &SessionId, now_ms: UnixMs) -> Result<()> {
    check_still(tx, caller, now_ms)?;
    let closed = tx.exec(
        "DELETE FROM access_session WHERE session_id = $1 AND user_id = $2",
        args![session_id.as_str(), caller.user_id.as_str()],
    )?;
    if closed == 0 {
        return Err(Error::refused(&code::SESSION_UNKNOWN, "you have no such session"));
    }
    let id = format!("{session_id}/closed");
    let about = json!({"session_id": session_id});
    tell(tx, &id, "access.session_closed", &caller.user_id, about, now_ms)
}

/// Ends all sessions that were opened without a proof; how many there were. A node that starts without the flag calls
/// it, or such a session would outlive the flag.
pub fn end_bypassed(tx: &mut Tx<'_>) -> Result<u64> {
    Ok(tx.exec("DELETE FROM access_session WHERE via = 'bypass'", args![])?)
}

/// Takes away a few that have expired.
pub(super) fn sweep(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<u64> {
    Ok(tx.exec(
        "DELETE FROM access_session WHERE session_id IN (SELECT session_id FROM access_session
           WHERE expires_ms <= $1 LIMIT $2)",
        args![now_ms, SWEEP_MAX],
    )?)
}
