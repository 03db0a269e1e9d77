//! API keys: tokens with a part of their owner's rights.
//!
//! A key never makes a key that may do more, or lives longer, than itself. Revoking a key revokes all that were made
//! with it, so a stolen key leaves nothing behind.

use std::collections::BTreeSet;

use guild_protocol::env::{Clock, Random, UnixMs};
use guild_protocol::typed_id;
use guild_store::{Column, Columns, Decode, Error as StoreError, Rx, Sql, Tx, args};
use serde_json::json;

use super::event::tell;
use super::{
    Caller, Credential, SWEEP_MAX, Scope, Scopes, Token, TokenKind, check_still, code, count,
};
use crate::{Error, Result, UserId};

/// The longest time that a key may live: 366 days.
pub const MAX_LIFETIME_MS: i64 = 366 * 24 * 3_600 * 1_000;
/// How many keys a user has at most.
pub const MAX_PER_USER: i64 = 50;
/// The most characters of a name.
pub const MAX_NAME_CHARS: usize = 64;
/// The use of a key is written down once in this time: an hour.
pub const USE_EVERY_MS: i64 = 3_600 * 1_000;

typed_id! {
    /// Names an API key. Not a secret.
    KeyId = "key", made;
}

/// An API key before it is made. Made outside of the transaction, which may run more than once.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Its id.
    pub key_id: KeyId,
    /// Its secret.
    pub token: Token,
    /// What its owner calls it.
    pub name: String,
    /// What it may do.
    pub scopes: Scopes,
    /// Until when.
    pub expires_ms: UnixMs,
}

impl NewKey {
    /// A new one.
    pub fn make(
        clock: &dyn Clock,
        random: &dyn Random,
        name: &str,
        scopes: Scopes,
        expires_ms: UnixMs,
    ) -> NewKey {
        let token = Token::make(TokenKind::Key, random);
        let key_id = KeyId::make(clock, random);
        NewKey { key_id, token, name: name.to_owned(), scopes, expires_ms }
    }

    fn check(&self, now_ms: UnixMs) -> Result<()> {
        let refused = |message: String| Err(Error::refused(&code::KEY_MALFORMED, message));
        let chars = self.name.chars().count();
        if chars == 0 || chars > MAX_NAME_CHARS || self.name.chars().any(char::is_control) {
            return refused(format!(
                "name: has 1 to {MAX_NAME_CHARS} characters, none of them a control character"
            ));
        }
        if self.scopes == Scopes::NONE {
            return refused("scopes: at least one is needed".to_owned());
        }
        if self.expires_ms <= now_ms || self.expires_ms > now_ms.saturating_add(MAX_LIFETIME_MS) {
            return refused(
                "expires_ms: is in the future, and at most 366 days from now".to_owned(),
            );
        }
        Ok(())
    }
}

/// An API key, without its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its id.
    pub key_id: KeyId,
    /// Whose.
    pub user_id: UserId,
    /// What its owner calls it.
    pub name: String,
    /// What it may do.
    pub scopes: Scopes,
    /// With which key it was made; nothing if in a session.
    pub made_by: Option<KeyId>,
    /// Since when.
    pub created_ms: UnixMs,
    /// Until when.
    pub expires_ms: UnixMs,
    /// When it was used last, to the hour.
    pub last_used_ms: Option<UnixMs>,
}

macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT key_id, user_id, name, scopes, made_by, created_ms, expires_ms, last_used_ms
             FROM access_key ",
            $tail
        )
    };
}

type KeyRow = (String, String, String, String, Option<String>, i64, i64, Option<i64>);

impl Decode for Key {
    fn decode(row: &dyn Columns) -> std::result::Result<Key, StoreError> {
        let (key_id, user_id, name, scopes, made_by, created_ms, expires_ms, last_used_ms) =
            KeyRow::decode(row)?;
        let bad = || StoreError::Decode("an API key is not of its form".to_owned());
        Ok(Key {
            key_id: key_id.parse().map_err(|_| bad())?,
            user_id: user_id.parse().map_err(|_| bad())?,
            name,
            scopes: scopes.parse().map_err(|_| bad())?,
            made_by: made_by.map(|id| id.parse().map_err(|_| bad())).transpose()?,
            created_ms,
            expires_ms,
            last_used_ms,
        })
    }
}

/// Makes a key for the caller's user. Needs the scope `keys:write`.
pub fn make(tx: &mut Tx<'_>, caller: &Caller, new: &NewKey, now_ms: UnixMs) -> Result<Key> {
    caller.require(Scope::KeysWrite)?;
    check_still(tx, caller, now_ms)?;
    new.check(now_ms)?;
    let wider = |message| Err(Error::refused(&code::SCOPE_WIDER, message));
    if !caller.scopes.covers(new.scopes) {
        return wider("the new key would have scopes that the caller has not");
    }
    let made_by = match &caller.credential {
        Credential::Session(_) | Credential::Page(_) => None,
        Credential::Key { key_id, .. } => Some(key_id.clone()),
    };
    if let Some(maker) = &made_by
        && expiry(tx, maker, now_ms)?.is_none_or(|until_ms| new.expires_ms > until_ms)
    {
        return wider("the new key would live longer than the one that makes it");
    }
    // Those that have expired have made room, also before a sweep has seen them.
    let have = count(
        tx,
        "SELECT count(*) FROM access_key WHERE user_id = $1 AND expires_ms > $2",
        args![caller.user_id.as_str(), now_ms],
    )?;
    if have >= MAX_PER_USER {
        return Err(Error::refused(&code::KEY_LIMIT, format!("you have {have} API keys")));
    }
    let key = Key {
        key_id: new.key_id.clone(),
        user_id: caller.user_id.clone(),
        name: new.name.clone(),
        scopes: new.scopes,
        made_by,
        created_ms: now_ms,
        expires_ms: new.expires_ms,
        last_used_ms: None,
    };
    insert(tx, &key, &new.token)?;
    let about = json!({"key_id": key.key_id, "scopes": key.scopes.to_string()});
    tell(tx, &format!("{}/made", key.key_id), "access.key_made", &key.user_id, about, now_ms)?;
    Ok(key)
}

fn insert(tx: &mut Tx<'_>, key: &Key, token: &Token) -> Result<()> {
    tx.exec(
        "INSERT INTO access_key (key_id, token_hash, user_id, name, scopes, made_by, created_ms, expires_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        args![
            key.key_id.as_str(),
            &token.hash(),
            key.user_id.as_str(),
            &key.name,
            &key.scopes.to_string(),
            key.made_by.as_ref().map(KeyId::as_str),
            key.created_ms,
            key.expires_ms
        ],
    )?;
    Ok(())
}

/// Whose token this is.
pub(super) fn of_token(rx: &mut Rx<'_>, token: &Token, now_ms: UnixMs) -> Result<Option<Caller>> {
    let key: Option<Key> = rx.first(
        select!("WHERE token_hash = $1 AND expires_ms > $2"),
        args![&token.hash(), now_ms],
    )?;
    Ok(key.map(|key| Caller {
        user_id: key.user_id,
        scopes: key.scopes,
        credential: Credential::Key {
            key_id: key.key_id,
            use_due: key.last_used_ms.is_none_or(|used_ms| is_due(used_ms, now_ms)),
        },
    }))
}

fn is_due(used_ms: UnixMs, now_ms: UnixMs) -> bool {
    now_ms.saturating_sub(used_ms) >= USE_EVERY_MS
}

/// Until when a key lives, if it does.
pub(super) fn expiry(rx: &mut Rx<'_>, key_id: &KeyId, now_ms: UnixMs) -> Result<Option<UnixMs>> {
    let expires: Option<(i64,)> = rx.first(
        "SELECT expires_ms FROM access_key WHERE key_id = $1 AND expires_ms > $2",
        args![key_id.as_str(), now_ms],
    )?;
    Ok(expires.map(|(expires_ms,)| expires_ms))
}

/// Writes down that a key was used. Called when [`Credential::Key`] says that it is due: once in an hour at most.
pub fn used(tx: &mut Tx<'_>, key_id: &KeyId, now_ms: UnixMs) -> Result<()> {
    tx.exec(
        "UPDATE access_key SET last_used_ms = $2 WHERE key_id = $1
           AND (last_used_ms IS NULL OR last_used_ms <= $3)",
        args![key_id.as_str(), now_ms, now_ms.saturating_sub(USE_EVERY_MS)],
    )?;
    Ok(())
}

/// The keys of the caller's user, the newest first. Needs the scope `keys:write`.
pub fn list(rx: &mut Rx<'_>, caller: &Caller, now_ms: UnixMs) -> Result<Vec<Key>> {
    caller.require(Scope::KeysWrite)?;
    of_user(rx, &caller.user_id, now_ms)
}

fn of_user(rx: &mut Rx<'_>, user_id: &UserId, now_ms: UnixMs) -> Result<Vec<Key>> {
    Ok(rx.all(
        select!("WHERE user_id = $1 AND expires_ms > $2 ORDER BY created_ms DESC, key_id DESC"),
        args![user_id.as_str(), now_ms],
    )?)
}

const REVOKE: Sql = Sql {
    lite: "DELETE FROM access_key WHERE key_id = $1",
    pg: "DELETE FROM access_key WHERE key_id = ANY ($1::text[])",
};

/// Revokes a key and all that were made with it; how many that were. Whoever is signed in may revoke each of its user's
/// keys. A key may revoke itself, and with the scope `keys:write` those that were made with it.
pub fn revoke(tx: &mut Tx<'_>, caller: &Caller, key_id: &KeyId, now_ms: UnixMs) -> Result<usize> {
    check_still(tx, caller, now_ms)?;
    let keys = of_user(tx, &caller.user_id, now_ms)?;
    let reach = match &caller.credential {
        Credential::Session(_) => keys.iter().map(|key| &key.key_id).collect(),
        Credential::Page(_) => BTreeSet::new(),
        Credential::Key { key_id: own, .. } if key_id == own => BTreeSet::from([own]),
        Credential::Key { key_id: own, .. } => {
            caller.require(Scope::KeysWrite)?;
            below(&keys, own)
        }
    };
    if !reach.contains(key_id) {
        return Err(Error::refused(
            &code::KEY_UNKNOWN,
            "you have no such API key, or may not revoke it",
        ));
    }
    let gone: Vec<&str> = below(&keys, key_id).into_iter().map(KeyId::as_str).collect();
    tx.exec_set(REVOKE, &[Column::Texts(&gone)])?;
    for id in &gone {
        let about = json!({"key_id": id, "with": key_id});
        tell(tx, &format!("{id}/revoked"), "access.key_revoked", &caller.user_id, about, now_ms)?;
    }
    Ok(gone.len())
}

/// A key, and all that were made with it or with one of those.
fn below<'a>(keys: &'a [Key], key_id: &'a KeyId) -> BTreeSet<&'a KeyId> {
    let mut found = BTreeSet::from([key_id]);
    loop {
        let before = found.len();
        let made = |key: &&Key| key.made_by.as_ref().is_some_and(|by| found.contains(by));
        let more: Vec<&KeyId> = keys.iter().filter(made).map(|key| &key.key_id).collect();
        found.extend(more);
        if found.len() == before {
            return found;
        }
    }
}

/// Takes away a few that have expired.
pub(super) fn sweep(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<u64> {
    Ok(tx.exec(
        "DELETE FROM access_key WHERE key_id IN (SELECT key_id FROM access_key
           WHERE expires_ms <= $1 LIMIT $2)",
        args![now_ms, SWEEP_MAX],
    )?)
}
