//! Signing in, and the keys of programs.

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::key::Key;
use crate::access::session::{Session, Via};
use crate::access::{Caller, Credential, Scope, Scopes, Token};

/// What a message to sign in must name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NonceView {
    /// Good for one try.
    pub nonce: String,
    /// Until then.
    pub expires_ms: UnixMs,
    /// The domain that the message must name.
    pub domain: String,
    /// The address that the message must name, or one below it.
    pub uri: String,
    /// The chains that the message may name.
    pub chain_ids: Vec<u64>,
}

/// A signed message (EIP-4361).
#[derive(Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The message, byte for byte as it was signed.
    #[schema(max_length = 8192)]
    pub message: String,
    /// `0x` and 130 hex digits.
    #[schema(max_length = 400)]
    pub signature: String,
}

/// A session that was opened. Its token is shown here and never again.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SessionView {
    /// Names it.
    pub session_id: String,
    /// Goes into `authorization: Bearer …`.
    pub token: String,
    /// Who is signed in.
    pub user_id: String,
    /// By what: `siwe`, `nip98` or `bypass`.
    pub via: String,
    /// Until then.
    pub expires_ms: UnixMs,
}

impl SessionView {
    pub(crate) fn of(session: &Session, token: &Token) -> SessionView {
        SessionView {
            session_id: session.session_id.to_string(),
            token: token.reveal().to_owned(),
            user_id: session.user_id.to_string(),
            via: Via::as_str(session.via).to_owned(),
            expires_ms: session.expires_ms,
        }
    }
}

/// Whose token was shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WhoView {
    /// Whose it is.
    pub user_id: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// The session, if it is one.
    pub session_id: Option<String>,
    /// The API key, if it is one.
    pub key_id: Option<String>,
}

impl WhoView {
    pub(crate) fn of(caller: &Caller) -> WhoView {
        let (session_id, key_id) = match &caller.credential {
            Credential::Session(session_id) | Credential::Page(session_id) => {
                (Some(session_id.to_string()), None)
            }
            Credential::Key { key_id, .. } => (None, Some(key_id.to_string())),
        };
        let scopes = words(caller.scopes);
        WhoView { user_id: caller.user_id.to_string(), scopes, session_id, key_id }
    }
}

fn words(scopes: Scopes) -> Vec<String> {
    scopes.iter().map(|scope| scope.to_string()).collect()
}

/// An API key that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKeyBody {
    /// What its owner calls it.
    #[schema(min_length = 1, max_length = 64, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub name: String,
    /// What it may do: `jobs:read`, `jobs:write`, `sandboxes:read`, `sandboxes:write`, `sandboxes:exec`,
    /// `billing:read`, `billing:withdraw`, `keys:write`.
    #[schema(value_type = Vec<Scope>, min_items = 1, max_items = 8)]
    pub scopes: Vec<String>,
    /// For how long: 366 days at most; 90 days if not said.
    #[schema(minimum = 1, maximum = 31622400)]
    pub lifetime_s: Option<i64>,
}

/// An API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeyView {
    /// Names it.
    pub key_id: String,
    /// What its owner calls it.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// The key that made it, if one did.
    pub made_by: Option<String>,
    /// When it was made.
    pub created_ms: UnixMs,
    /// Until when it is good.
    pub expires_ms: UnixMs,
    /// When it was used, to the hour.
    pub last_used_ms: Option<UnixMs>,
}

impl KeyView {
    pub(crate) fn of(key: &Key) -> KeyView {
        KeyView {
            key_id: key.key_id.to_string(),
            name: key.name.clone(),
            scopes: words(key.scopes),
            made_by: key.made_by.as_ref().map(ToString::to_string),
            created_ms: key.created_ms,
            expires_ms: key.expires_ms,
            last_used_ms: key.last_used_ms,
        }
    }
}

/// A key that was made.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NewKeyView {
    /// The key.
    pub key: KeyView,
    /// What goes into `authorization: Bearer …`. Shown once: the same request again is answered without it.
    pub token: Option<String>,
}

/// The API keys of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Keys {
    /// The newest first.
    pub keys: Vec<KeyView>,
}

/// What was taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RevokedView {
    /// How many keys: the one named, and those that were made with it.
    pub revoked: usize,
}
