//! Signing in, and the keys of programs.

use std::net::IpAddr;

use guild_protocol::env::UnixMs;
use guild_protocol::evm::Address;
use guild_protocol::hash::from_hex_exact;

use crate::access::idempotency::{Answer, Reply};
use crate::access::key::{self, KeyId, NewKey};
use crate::access::nip98::{self, Asked};
use crate::access::session::{self, NewSession, Via};
use crate::access::{Nonce, Origin, Place, Scope, Scopes, Token, nonce, siwe};
use crate::api::{
    KeyView, Keys, NewKeyBody, NewKeyView, NonceView, Proof, RevokedView, SessionView, WhoView,
    malformed, seconds,
};
use crate::error::code;
use crate::{Error, Result, UserId};

use super::{Browser, Desk, Sent, answer, parse, text};

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
        self.sign_in_as(proof, self.new_session()).await
    }

    async fn sign_in_as(&self, proof: Proof, new: NewSession) -> Result<SessionView> {
        let now_ms = self.now_ms();
        let checked = siwe::check(&proof.message, &proof.signature, &self.0.options.siwe, now_ms);
        let token = new.token.clone();
        let write = self.0.store.write(move |tx| siwe::sign_in(tx, &checked, &new, now_ms));
        let session = write.await?.session()?;
        Ok(SessionView::of(&session, &token))
    }

    /// A Nostr key signs in, by a header of NIP-98.
    pub async fn sign_in_nostr(&self, header: &str, asked: &Asked<'_>) -> Result<SessionView> {
        self.sign_in_nostr_as(header, asked, self.new_session()).await
    }

    async fn sign_in_nostr_as(
        &self,
        header: &str,
        asked: &Asked<'_>,
        new: NewSession,
    ) -> Result<SessionView> {
        let now_ms = self.now_ms();
        let asked = Asked { origins: &self.0.options.siwe.origins, ..*asked };
        let proof = nip98::check(header, &asked, now_ms)?;
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

    /// The message that a wallet is to sign for the pages at this origin, with a nonce in it. The address may be
    /// written without its checksum, as wallets give it to pages.
    pub async fn page_message(
        &self,
        from: IpAddr,
        origin: &str,
        (address, chain_id): (&str, u64),
    ) -> Result<String> {
        self.knock(from)?;
        let origin = self.origin(origin)?;
        let Some(bytes) = address
            .strip_prefix("0x")
            .and_then(|digits| from_hex_exact::<20>(&digits.to_ascii_lowercase()))
        else {
            return malformed("address: is 0x and 40 hex digits".to_owned());
        };
        let chain_ids = &self.0.options.siwe.chain_ids;
        let chain_id = chain_ids.get(&chain_id).or(chain_ids.first()).copied().unwrap_or(1);
        let asked = self.nonce(from).await?;
        let now_ms = self.now_ms();
        let message = siwe::Message {
            scheme: None,
            domain: origin.authority().to_owned(),
            address: Address::from_bytes(bytes),
            statement: Some(
                "Look at your sandboxes and your account. Nothing can be changed.".to_owned(),
            ),
            uri: format!("{origin}/hosting"),
            chain_id,
            nonce: asked.nonce.parse()?,
            issued_at: siwe::Time::at(now_ms)?,
            expiration_time: None,
            not_before: None,
            request_id: None,
            resources: None,
        };
        Ok(message.text())
    }

    /// A browser proves who looks: a session that only reads, for its cookie.
    pub async fn sign_in_page(&self, from: IpAddr, browser: Browser<'_>) -> Result<SessionView> {
        self.knock(from)?;
        let (clock, random) = (&*self.0.clock, &*self.0.random);
        let new = NewSession::for_page(clock, random, self.0.options.session_ms);
        match browser {
            Browser::Wallet(proof) => self.sign_in_as(proof, new).await,
            Browser::Nostr(header, asked) => self.sign_in_nostr_as(header, &asked, new).await,
        }
    }

    /// This origin, if it is one of this node's.
    pub fn origin(&self, text: &str) -> Result<&Origin> {
        let known = self.0.options.siwe.origins.iter().find(|origin| origin.to_string() == text);
        known.ok_or_else(|| {
            let message = format!("{text:?} is not a public address of this node");
            Error::refused(&code::NO_ORIGIN, message)
        })
    }

    fn new_session(&self) -> NewSession {
        NewSession::make(&*self.0.clock, &*self.0.random, self.0.options.session_ms)
    }

    /// Ends the session of this token. What is ended already is fine.
    pub async fn sign_out(&self, token: Token) -> Result<()> {
        let caller = self.who(token).await?;
        let now_ms = self.now_ms();
        self.0.store.write(move |tx| session::leave(tx, &caller, now_ms)).await
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
