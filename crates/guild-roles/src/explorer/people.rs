//! Who is who: what keys call themselves, and which are our own.

use std::collections::{BTreeMap, BTreeSet};

use guild_market::receipts;
use guild_network::index;
use guild_protocol::identity::PublicKey;
use guild_store::Rx;

use super::view::Party;
use crate::Result;

/// What is known of some keys.
pub(super) struct People {
    names: BTreeMap<PublicKey, String>,
    own: BTreeSet<String>,
}

impl People {
    /// Looks these keys up.
    pub(super) fn of(rx: &mut Rx<'_>, keys: impl IntoIterator<Item = PublicKey>) -> Result<People> {
        let keys: BTreeSet<PublicKey> = keys.into_iter().collect();
        let names = index::names(rx, &keys.into_iter().collect::<Vec<_>>())?;
        let own = receipts::keys(rx)?.into_iter().map(|(_, npub)| npub).collect();
        Ok(People { names, own })
    }

    /// Whether this node deals under that key.
    pub(super) fn is_ours(&self, key: &PublicKey) -> bool {
        self.own.contains(&key.npub())
    }

    /// Somebody, as far as known.
    pub(super) fn party(&self, key: &PublicKey) -> Party {
        Party::new(key, self.names.get(key).cloned(), self.is_ours(key))
    }
}
