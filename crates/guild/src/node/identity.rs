//! Who this node is to others. Its database belongs to the one identity that was first started on it: under another key
//! nothing in it could be signed, paid or delivered as it was promised.

use std::collections::BTreeSet;
use std::path::Path;

use guild_market::receipts;
use guild_protocol::env::{Random, Signer};
use guild_protocol::identity::{PublicKey, SecretKey};

use super::Parts;
use crate::config::{Environment, Loaded};
use crate::error::{Error, Result, code};
use crate::keystore::{self, Keystore};

/// Where the secret of a node comes from.
pub(crate) enum Origin<'a> {
    /// From the keystore. A node without one makes one: nobody can be hired or paid without a name.
    Keystore(&'a Environment),
    /// From whoever starts it.
    Given(SecretKey),
}

/// The keys of a node: its own, and one for each role.
pub(crate) struct Identity {
    pub(super) node: SecretKey,
    pub(super) buyer: SecretKey,
    pub(super) provider: SecretKey,
}

impl Identity {
    /// The identity to which the database belongs, from now on if it belonged to nobody. Any other is refused.
    pub(super) async fn claim(
        origin: Origin<'_>,
        loaded: &Loaded,
        parts: &Parts,
    ) -> Result<Identity> {
        let path = Keystore::path(loaded);
        let key = match origin {
            Origin::Given(key) => key,
            Origin::Keystore(environment) => {
                let owner = parts.store.read(receipts::owner).await?;
                of_keystore(&path, owner, environment, &*parts.random)?
            }
        };
        let (us, now_ms) = (key.public_key(), parts.clock.now_ms());
        let owner = parts.store.write(move |tx| receipts::claim(tx, &us, now_ms)).await?;
        if owner != us {
            let message = format!(
                "the database belongs to {}, this is the keystore of {}",
                owner.npub(),
                us.npub()
            );
            return Err(Error::new(&code::NODE_OTHER_IDENTITY, message).in_file(&path));
        }
        Ok(Identity { buyer: key.role("buyer")?, provider: key.role("provider")?, node: key })
    }

    /// What is addressed to one of these is addressed to us.
    pub(super) fn public_keys(&self) -> BTreeSet<PublicKey> {
        [&self.node, &self.buyer, &self.provider].map(Signer::public_key).into()
    }
}

/// The key of the keystore, which is made if there is none and the database belongs to nobody.
fn of_keystore(
    path: &Path,
    owner: Option<PublicKey>,
    environment: &Environment,
    random: &dyn Random,
) -> Result<SecretKey> {
    if path.symlink_metadata().is_err() {
        if let Some(owner) = owner {
            let message = format!(
                "the database belongs to {}, whose keystore is not here; no new one was made",
                owner.npub()
            );
            return Err(Error::new(&code::NODE_OTHER_IDENTITY, message).in_file(path));
        }
        let passphrase = keystore::new_passphrase(false, environment)?;
        let made = Keystore::create(path, random, passphrase.as_deref())?;
        tracing::info!(
            npub = made.public_key.npub(),
            keystore = %path.display(),
            "a new identity was made; keep a copy of the keystore"
        );
    }
    Keystore::read(path)?.unlock(environment)
}
