//! Who this node is to others.

use std::collections::BTreeSet;

use guild_protocol::env::{Random, Signer};
use guild_protocol::identity::{PublicKey, SecretKey};

use crate::config::{Environment, Loaded};
use crate::error::Result;
use crate::keystore::{self, Keystore};

/// The keys of a node: its own, and one for each role.
pub(crate) struct Identity {
    pub(super) node: SecretKey,
    pub(super) buyer: SecretKey,
    pub(super) provider: SecretKey,
}

impl Identity {
    /// The keys that come of this one.
    pub(crate) fn of(node: SecretKey) -> Result<Identity> {
        Ok(Identity { buyer: node.role("buyer")?, provider: node.role("provider")?, node })
    }

    /// The keys of the keystore. A node without one makes one: nobody can be hired or paid without a name.
    pub(crate) fn of_keystore(
        loaded: &Loaded,
        environment: &Environment,
        random: &dyn Random,
    ) -> Result<Identity> {
        let path = Keystore::path(loaded);
        if path.symlink_metadata().is_err() {
            let passphrase = keystore::new_passphrase(false, environment)?;
            let made = Keystore::create(&path, random, passphrase.as_deref())?;
            tracing::info!(
                npub = made.public_key.npub(),
                keystore = %path.display(),
                "a new identity was made; keep a copy of the keystore"
            );
        }
        Identity::of(Keystore::read(&path)?.unlock(environment)?)
    }

    /// What is addressed to one of these is addressed to us.
    pub(super) fn public_keys(&self) -> BTreeSet<PublicKey> {
        [&self.node, &self.buyer, &self.provider].map(Signer::public_key).into()
    }
}
