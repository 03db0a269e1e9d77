use guild_store::{Hooks, Migrations, Options, Service};

use super::*;

fn check(options: &Options) {
    let all = Migrations::store().and(crate::migrations());
    let service = Service::open(options, &all, Hooks::default(), 0).unwrap();
    let counted = service.handle().write(|tx| {
        for n in 1..=5_i64 {
            let key = format!("key{n}");
            tx.exec(
                "INSERT INTO index_provider
                   (seq, pubkey_key, pubkey, d, canonical_d, first_ms, last_ms, said_ms)
                 VALUES ($1, $1, $2, 'd', 'd', 0, 0, 0)",
                args![n, &key],
            )?;
            tx.exec(
                "INSERT INTO index_heartbeat (pubkey, d, last_ms) VALUES ($1, '', $2)",
                args![&key, n],
            )?;
            tx.exec(
                "INSERT INTO index_request (seq, providers, private) VALUES ($1, '[]', 0)",
                args![n],
            )?;
        }
        Ok::<_, crate::Error>([counts(tx, 3)?, counts_up_to(tx, 3, 2)?, counts_up_to(tx, 5, 2)?])
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let counted = runtime.block_on(counted).unwrap();
    service.close();
    let of = |providers, providers_live, requests| Counts { providers, providers_live, requests };
    assert_eq!(counted, [of(5, 3, 5), of(2, 2, 2), of(2, 1, 2)]);
}

#[test]
fn nothing_is_counted_further_than_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    check(&Options::file(&dir.path().join("node.db")));
    check(&Options::at(&testbed::Database::new().unwrap().url()));
}
