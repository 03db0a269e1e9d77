//! Totals, and that no statement about receipts reads all of them.

use guild_protocol::amount::{Amount, Msat};
use guild_protocol::env::{Signer, UnixMs};
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use guild_protocol::receipt::{Draft, Proof, Rail, Receipt};
use guild_protocol::timestamp::Timestamp;
use guild_store::{Engine, Hooks, Migration, Migrations, Options, Service, Store};

use super::*;

const NOW: UnixMs = 1_768_465_800_000;

fn secret(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32]).unwrap()
}

fn receipt(buyer: u8, provider: u8, units: i64, status: Status) -> Receipt {
    let transfer_id = format!("xfer_{buyer}_{provider}_{units}");
    let proof = Proof::LedgerTransfer { transfer_id, ledger_head: Hash::of(b"head") };
    let draft = Draft {
        session_id: "order_1".to_owned(),
        request_id: Some("cd".repeat(32)),
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "policy".to_owned(),
        job_hash: Some(Hash::of(b"job")),
        payment_proof: (status == Status::Released).then_some(proof),
        rail: Rail::Ledger,
        amount: Amount::from(Msat(units)),
        provider_id: secret(provider).public_key(),
        buyer_id: secret(buyer).public_key(),
        approval_rule_id: None,
        idempotency_key: format!("pay_{units}"),
        status,
        verdict_hash: Some(Hash::of(b"verdict")),
        timestamp: Timestamp::from_ms(NOW).unwrap(),
    };
    draft.sign(&secret(buyer)).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn open(options: &Options, market: Vec<Migration>) -> Service {
    Service::open(options, &Migrations::store().and(market), Hooks::default(), 0).unwrap()
}

/// On both databases.
fn both(test: impl Fn(&Options)) {
    let dir = tempfile::tempdir().unwrap();
    test(&Options::file(&dir.path().join("node.db")));
    test(&Options::at(&testbed::Database::new().unwrap().url()));
}

fn seen(store: &Store, provider: u8) -> (Totals, Record) {
    let key = secret(provider).public_key();
    block_on(store.read(move |rx| Ok::<_, crate::Error>((totals(rx)?, record(rx, &key)?)))).unwrap()
}

fn keep(store: &Store, receipt: Receipt, direction: Direction) {
    let kept = store.write(move |tx| receipts::keep(tx, &receipt, direction, NOW));
    block_on(kept).unwrap();
}

#[test]
fn what_is_kept_is_counted_once() {
    both(|options| {
        let service = open(options, crate::migrations());
        let store = service.handle();
        assert_eq!(seen(&store, 2), Default::default());
        let first = receipt(1, 2, 5_000, Status::Released);
        for receipt in [
            first.clone(),
            first,
            receipt(1, 2, 700, Status::Released),
            receipt(1, 2, 900, Status::Withheld),
            receipt(1, 3, 80, Status::Released),
        ] {
            keep(&store, receipt, Direction::Given);
        }
        keep(&store, receipt(4, 1, 30, Status::Released), Direction::Taken);
        let totals = Totals { receipts: 5, paid: 5_780, earned: 30 };
        assert_eq!(seen(&store, 2), (totals, Record { released: 2, withheld: 1, paid: 5_700 }));
        // What others state cannot break the count.
        let sql = "UPDATE market_total SET units = $1";
        let full = store.write(move |tx| tx.exec(sql, args![i64::MAX - 1]));
        assert!(block_on(full).unwrap() > 0);
        keep(&store, receipt(5, 1, 30, Status::Released), Direction::Taken);
        assert_eq!(seen(&store, 2).0.earned, i64::MAX);
        service.close();
    });
}

#[test]
fn receipts_of_an_older_database_are_counted_by_its_migration() {
    both(|options| {
        let mut migrations = crate::migrations();
        migrations.truncate(1);
        let service = open(options, migrations);
        let npubs = [1, 2].map(|n| secret(n).public_key().npub());
        let written = service.handle().write(move |tx| {
            for (id, direction, units) in [("a", "given", 7), ("b", "given", 8), ("c", "taken", 9)]
            {
                tx.exec(
                    "INSERT INTO market_receipt (receipt_id, direction, request_id, buyer, provider,
                       status, asset_id, units, text, at_ms)
                     VALUES ($1, $2, 'r', $3, $4, 'released', $5, $6, '{}', 1)",
                    args![id, direction, &npubs[0], &npubs[1], AssetId::BTC_LN, units],
                )?;
            }
            Ok::<_, crate::Error>(())
        });
        block_on(written).unwrap();
        service.close();
        let service = open(options, crate::migrations());
        let totals = Totals { receipts: 3, paid: 15, earned: 9 };
        let record = Record { released: 2, withheld: 0, paid: 15 };
        assert_eq!(seen(&service.handle(), 2), (totals, record));
        service.close();
    });
}

#[test]
fn the_latest_receipts_of_a_key_come_first_and_once() {
    both(|options| {
        let service = open(options, crate::migrations());
        let store = service.handle();
        for units in 1..=4 {
            keep(&store, receipt(1, 2, units, Status::Released), Direction::Given);
            keep(&store, receipt(2, 3, units, Status::Released), Direction::Taken);
        }
        // It pays itself.
        keep(&store, receipt(2, 2, 5, Status::Released), Direction::Given);
        let count = |limit| {
            let key = secret(2).public_key();
            block_on(store.read(move |rx| receipts_of(rx, &key, limit))).unwrap().len()
        };
        assert_eq!((count(3), count(100)), (3, 9));
        service.close();
    });
}

/// What the database means to do, if it is asked with ones.
fn plan(rx: &mut Rx<'_>, sql: &str, arguments: usize) -> guild_store::Result<String> {
    let is_sqlite = rx.engine() == Engine::Sqlite;
    // PostgreSQL must be told the types that the columns tell it otherwise.
    let numbers =
        |n: usize| sql.contains(&format!("at_ms <= ${n}")) || sql.contains(&format!("LIMIT ${n}"));
    let mut text = sql.to_owned();
    for n in (1..=arguments).rev() {
        text = text.replace(&format!("${n}"), if numbers(n) { "1" } else { "'1'" });
    }
    let explain = if is_sqlite { "EXPLAIN QUERY PLAN" } else { "EXPLAIN (COSTS OFF)" };
    let text: &'static str = format!("{explain} {text}").leak();
    if is_sqlite {
        let rows: Vec<(i64, i64, i64, String)> = rx.all(text, args![])?;
        return Ok(rows.into_iter().map(|row| row.3).collect::<Vec<_>>().join("\n"));
    }
    let rows: Vec<(String,)> = rx.all(text, args![])?;
    Ok(rows.into_iter().map(|row| row.0).collect::<Vec<_>>().join("\n"))
}

/// Whether all receipts, or all totals, are read.
fn reads_all(plan: &str) -> bool {
    plan.lines().any(|line| line.starts_with("SCAN market_")) || plan.contains("Seq Scan")
}

#[test]
fn receipts_are_found_by_an_index() {
    // There is no index on amounts.
    let planted = [("SELECT receipt_id FROM market_receipt WHERE units = $1", 1)];
    both(|options| {
        let service = open(options, crate::migrations());
        let own = [(TOTALS, 0), (RECORD, 2), (RECEIPTS_OF, 2)];
        let asked = service.handle().write(move |tx| {
            if tx.engine() == Engine::Postgres {
                // An empty table is best read whole: that says nothing about a full one.
                tx.exec("SET LOCAL enable_seqscan = off", &[])?;
            }
            let all = receipts::STATEMENTS.into_iter().chain(own).chain(planted);
            all.map(|(sql, arguments)| plan(tx, sql, arguments)).collect()
        });
        let plans: guild_store::Result<Vec<String>> = block_on(asked);
        service.close();
        let plans = plans.unwrap();
        let (planted, plans) = plans.split_last().unwrap();
        assert!(reads_all(planted), "{planted}");
        for plan in plans {
            assert!(!reads_all(plan), "{plan}");
        }
    });
}
