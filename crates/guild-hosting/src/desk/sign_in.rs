//! Signing in, and the keys of programs.

use std::net::IpAddr;

use guild_protocol::env::UnixMs;

use crate::access::idempotency::{Answer, Reply};
use crate::access::key::{self, KeyId, NewKey};
use crate::access::nip98::{self, Asked};
use crate::access::session::{self, NewSession, Via};
use crate::access::{Nonce, Place, Scope, Scopes, SessionId, Token, nonce, siwe};
use crate::api::{
    KeyView, Keys, NewKeyBody, NewKeyView, NonceView, Proof, RevokedView, SessionView, WhoView,
    malformed, seconds,
};
use crate::error::code;
use crate::{Error, Result, UserId};

use super::{Desk, Sent, answer, parse, text};

/// How long an API key is good if nothing is said.
const KEY_LIFETIME_S: i64 = 90 * 86_400;

/// As many as there are.
const SCOPES_MAX: usize = 8;

impl Desk {
    /// A nonce for a message to sign in, and what else it must name.
    pub async fn nonce(&self, address: IpAddr) -> Result<NonceView> {
        let made = Nonce::make(&*self.0.random);
        let (limits, now_ms) = (self.0.options.nonces.clone(), self.now_ms());
        let shown = made.reveal().to_owned();
        let issue = self
            .0
            .store
            .write(move |tx| nonce::issue(tx, &made, Place::of(address), &limits, now_ms));
        let expires_ms: UnixMs = issue.await?;
        let Some(origin) = self.0.options.siwe.origins.first() else {
            return Err(Error::refused(&code::NO_ORIGIN, "this node has no public address"));
        };
        Ok(NonceView {
            nonce: shown,
            expires_ms,
            domain: origin.authority().to_owned(),
            uri: origin.to_string(),
            chain_ids: self.0.options.siwe.chain_ids.iter().copied().collect(),
        })
    }

    /// A wallet signs in.
    pub async fn sign_in(&self, proof: Proof) -> Result<SessionView> {
        let now_ms = self.now_ms();
        let checked = siwe::check(&proof.message, &proof.signature, &self.0.options.siwe, now_ms);
        let new = self.new_session();
        let token = new.token.clone();
        let write = self.0.store.write(move |tx| siwe::sign_in(tx, &checked, &new, now_ms));
        let session = write.await?.session()?;
        Ok(SessionView::of(&session, &token))
    }

    /// A Nostr key signs in, by a header of NIP-98.
    pub async fn sign_in_nostr(&self, header: &str, asked: &Asked<'_>) -> Result<SessionView> {
        let now_ms = self.now_ms();
        let asked = Asked { origins: &self.0.options.siwe.origins, ..*asked };
        let proof = nip98::check(header, &asked, now_ms)?;
        let new = self.new_session();
        let token = new.token.clone();
        let write = self.0.store.write(move |tx| nip98::sign_in(tx, &proof, &new, now_ms));
        Ok(SessionView::of(&write.await?, &token))
    }

    /// Somebody signs in without a proof, if that is switched on.
    pub async fn sign_in_unproven(&self, user_id: &str) -> Result<SessionView> {
        if !self.0.options.bypass {
            let message = "signing in without a proof is switched off";
            return Err(Error::refused(&code::BYPASS_OFF, message));
        }
        let (user_id, now_ms) = (user_id.parse::<UserId>()?, self.now_ms());
        let new = self.new_session();
        let token = new.token.clone();
        let write =
            self.0.store.write(move |tx| session::open(tx, &user_id, Via::Bypass, &new, now_ms));
        Ok(SessionView::of(&write.await?, &token))
    }

    fn new_session(&self) -> NewSession {
        NewSession::make(&*self.0.clock, &*self.0.random, self.0.options.session_ms)
    }

    /// Ends the session of this token. What is ended already is fine.
    pub async fn sign_out(&self, token: Token) -> Result<()> {
        let caller = self.who(token).await?;
        let session_id: SessionId = caller.require_session()?.clone();
        let now_ms = self.now_ms();
        let close =
            move |tx: &mut guild_store::Tx<'_>| session::close(tx, &caller, &session_id, now_ms);
        self.0.store.write(close).await
    }

    /// Whose token this is, for its owner.
    pub async fn me(&self, token: Token) -> Result<WhoView> {
        Ok(WhoView::of(&self.who(token).await?))
    }

    /// Makes an API key. Its token is in this answer only.
    pub async fn create_key(&self, sent: Sent, body: NewKeyBody) -> Result<Reply> {
        let scopes = scopes(&body.scopes)?;
        let lifetime_ms = seconds("lifetime_s", body.lifetime_s.unwrap_or(KEY_LIFETIME_S))?;
        let expires_ms = self.now_ms().saturating_add(lifetime_ms);
        let new = NewKey::make(&*self.0.clock, &*self.0.random, &body.name, scopes, expires_ms);
        self.write(sent, Scope::KeysWrite, move |tx, caller, now_ms| {
            let key = KeyView::of(&key::make(tx, caller, &new, now_ms)?);
            let token = Some(new.token.reveal().to_owned());
            let shown = text(&NewKeyView { key: key.clone(), token })?;
            Answer::shown_once(201, shown, text(&NewKeyView { key, token: None })?)
        })
        .await
    }

    /// The API keys of whoever asks.
    pub async fn keys(&self, token: Token) -> Result<Keys> {
        self.read(token, Scope::KeysWrite, |rx, caller, now_ms| {
            Ok(Keys { keys: key::list(rx, caller, now_ms)?.iter().map(KeyView::of).collect() })
        })
        .await
    }

    /// Revokes an API key, and those that were made with it.
    pub async fn revoke_key(&self, sent: Sent, key_id: &str) -> Result<Reply> {
        let key_id: KeyId = parse("key_id", key_id)?;
        self.write(sent, Scope::KeysWrite, move |tx, caller, now_ms| {
            answer(200, &RevokedView { revoked: key::revoke(tx, caller, &key_id, now_ms)? })
        })
        .await
    }
}

fn scopes(words: &[String]) -> Result<Scopes> {
    if words.iter().any(|word| word.contains(char::is_whitespace)) {
        return malformed("scopes: each is one word".to_owned());
    }
    if words.len() > SCOPES_MAX {
        return malformed(format!("scopes: at most {SCOPES_MAX}"));
    }
    words.join(" ").parse()
}
