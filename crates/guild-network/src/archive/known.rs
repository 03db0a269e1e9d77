//! Whom this node knows: what they announce, and where they are reached, is not pushed out by what strangers announce.
//! Who that is follows from work, so whoever knows of work says it.

use std::collections::BTreeSet;

use guild_protocol::identity::PublicKey;
use guild_store::{Column, Rx, Sql, Tx};

use crate::Result;

const ADD: Sql = Sql {
    lite: "INSERT INTO nostr_known_key (pubkey) VALUES ($1) ON CONFLICT DO NOTHING",
    pg: "INSERT INTO nostr_known_key (pubkey) SELECT * FROM unnest($1::text[])
         ON CONFLICT DO NOTHING",
};
const REMOVE: Sql = Sql {
    lite: "DELETE FROM nostr_known_key WHERE pubkey = $1",
    pg: "DELETE FROM nostr_known_key WHERE pubkey = ANY ($1::text[])",
};

/// Whom this node knows.
pub fn known(rx: &mut Rx<'_>) -> Result<BTreeSet<PublicKey>> {
    let rows: Vec<(String,)> = rx.all("SELECT pubkey FROM nostr_known_key", &[])?;
    rows.into_iter().map(|(pubkey,)| Ok(pubkey.parse()?)).collect()
}

/// Says whom this node knows from now on.
pub fn set_known(tx: &mut Tx<'_>, keys: &BTreeSet<PublicKey>) -> Result<()> {
    let before = known(tx)?;
    for (sql, changed) in [(ADD, keys.difference(&before)), (REMOVE, before.difference(keys))] {
        let changed: Vec<String> = changed.map(PublicKey::hex).collect();
        let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
        tx.exec_set(sql, &[Column::Texts(&changed)])?;
    }
    Ok(())
}
