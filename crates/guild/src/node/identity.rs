//! Who this node is to others.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_protocol::env::{Random, Signer};
use guild_protocol::identity::{PublicKey, SecretKey};

use crate::config::{Environment, Loaded};
use crate::error::Result;
use crate::keystore::Keystore;

/// The roles whose keys others may write to.
const ROLES: [&str; 2] = ["buyer", "provider"];

/// The keys of a node.
pub(super) struct Identity {
    pub(super) signer: Arc<dyn Signer>,
    /// What is addressed to one of these is addressed to us.
    pub(super) keys: BTreeSet<PublicKey>,
}

/// The keys of the keystore. A node without one still needs a name to talk to relays under: one for this run, to which
/// nobody can write anything that matters.
pub(super) fn identity(
    loaded: &Loaded,
    environment: &Environment,
    random: &dyn Random,
) -> Result<Identity> {
    let path = Keystore::path(loaded);
    if path.symlink_metadata().is_err() {
        let key = passing_key(random)?;
        return Ok(Identity { signer: Arc::new(key), keys: BTreeSet::new() });
    }
    let key = Keystore::read(&path)?.unlock(environment)?;
    let mut keys = BTreeSet::from([key.public_key()]);
    for role in ROLES {
        keys.insert(key.role(role)?.public_key());
    }
    Ok(Identity { signer: Arc::new(key), keys })
}

fn passing_key(random: &dyn Random) -> Result<SecretKey> {
    loop {
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        // All but a vanishing part of all bytes are a key.
        if let Ok(key) = SecretKey::from_bytes(bytes) {
            return Ok(key);
        }
    }
}
