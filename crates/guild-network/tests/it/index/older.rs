//! What an older node has written, as a newer one finds it.

use guild_network::index;
use guild_protocol::env::Signer;
use guild_store::{Hooks, Migrations, Options, Service, args};

use crate::support::{block_on, key};

fn open(options: &Options, migrations: usize) -> Service {
    let known = Migrations::store().and(guild_network::migrations().into_iter().take(migrations));
    Service::open(options, &known, Hooks::default(), 0).unwrap()
}

fn offers_are_found(options: &Options) {
    let keys: Vec<_> = (1..=40).map(|n| key(n).public_key()).collect();
    let old = open(options, 6);
    let written = keys.clone();
    let write = old.handle().write(move |tx| {
        for (seq, key) in (1_i64..).zip(&written) {
            tx.exec(
                "INSERT INTO index_provider
                   (seq, pubkey, d, canonical_d, name, canonical_name, first_ms, last_ms, said_ms)
                 VALUES ($1, $2, 'x', 'x', $3, $3, 1, 2, 3)",
                args![seq, &key.hex(), if seq > 2 { "ofmany" } else { "alone" }],
            )?;
        }
        tx.exec("UPDATE index_provider SET name = NULL WHERE seq = 2", &[])?;
        tx.exec("UPDATE index_provider SET canonical_name = NULL WHERE seq = 2", &[])
    });
    assert_eq!(block_on(write).unwrap(), 1);
    old.close();
    let new = open(options, usize::MAX);
    let read = new.handle().read(move |rx| {
        let names = index::names(rx, &keys)?;
        let shared = |rx: &mut _, n: usize, name| index::is_name_shared(rx, &keys[n], name);
        let shared = [shared(rx, 0, "alone")?, shared(rx, 2, "ofmany")?, shared(rx, 1, "alone")?];
        let times: Option<(i64, i64, i64)> = rx.first(
            "SELECT CAST(sum(first_ms) AS BIGINT), CAST(sum(last_ms) AS BIGINT),
               CAST(sum(said_ms) AS BIGINT) FROM index_provider WHERE d = 'x'",
            &[],
        )?;
        Ok::<_, guild_network::Error>((names.len(), shared, times))
    });
    let found = block_on(read).unwrap();
    new.close();
    assert_eq!(found, (39, [false, true, true], Some((40, 80, 120))));
}

#[test]
fn the_offers_of_an_older_node_are_found_by_their_keys_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    offers_are_found(&Options::file(&dir.path().join("node.db")));
}

#[test]
fn the_offers_of_an_older_node_are_found_by_their_keys_on_postgres() {
    offers_are_found(&Options::at(&testbed::Database::new().unwrap().url()));
}
