use guild_ledger::{NewTransfer, Step, TransferId, audit, ledger};
use guild_store::args;
use proptest::prelude::*;

use crate::{Scratch, block_on, post, transfer, usd};

/// One thing that somebody asks, by number.
#[derive(Debug, Clone)]
enum Ask {
    Post(usize, usize, i64),
    Hold(usize, usize, i64, i64),
    Settle(usize, Option<i64>),
    Void(usize),
    Expire(usize),
}

fn asks() -> impl Strategy<Value = Vec<(usize, Ask)>> {
    let (account, units, name) = (0..4usize, -2..120i64, 0..30usize);
    let ask = prop_oneof![
        3 => (account.clone(), account.clone(), units.clone()).prop_map(|(d, c, u)| Ask::Post(d, c, u)),
        3 => (account.clone(), account, units.clone(), 1..60i64).prop_map(|(d, c, u, e)| Ask::Hold(d, c, u, e)),
        2 => (name.clone(), proptest::option::of(units)).prop_map(|(h, u)| Ask::Settle(h, u)),
        1 => name.clone().prop_map(Ask::Void),
        1 => name.clone().prop_map(Ask::Expire),
    ];
    proptest::collection::vec((name, ask), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// Whatever is asked, in batches of any size, alone or in chains: the history replays to what is stored.
    #[test]
    fn the_audit_agrees_with_any_history(asked in asks(), batch in 1..7usize, chain in 1..4usize) {
        let (scratch, ids) = Scratch::new(3);
        let store = scratch.store();
        let hold = |name: &usize| TransferId::named(&[&name.to_string()]);
        let step = |ask: &Ask| match ask {
            Ask::Post(d, c, u) => {
                Step::Post { debit: ids[*d].clone(), credit: ids[*c].clone(), amount: usd(*u) }
            }
            Ask::Hold(d, c, u, e) => Step::Hold {
                debit: ids[*d].clone(),
                credit: ids[*c].clone(),
                amount: usd(*u),
                expires_ms: *e,
            },
            Ask::Settle(h, units) => Step::Settle { hold: hold(h), units: *units },
            Ask::Void(h) => Step::Void { hold: hold(h) },
            Ask::Expire(h) => Step::Expire { hold: hold(h) },
        };
        let transfers: Vec<NewTransfer> =
            asked.iter().map(|(name, ask)| transfer(&name.to_string(), step(ask))).collect();
        let chains: Vec<Vec<NewTransfer>> = transfers.chunks(chain).map(<[_]>::to_vec).collect();
        for (round, chains) in chains.chunks(batch).enumerate() {
            let (chains, now_ms) = (chains.to_vec(), i64::try_from(round * 10).unwrap());
            block_on(store.write(move |tx| ledger::book(tx, &chains, now_ms))).unwrap();
        }
        let report = block_on(store.read(audit::run)).unwrap();
        prop_assert_eq!(report.problems, Vec::<String>::new());
    }
}

/// A ledger with a few transfers, damaged by hand; what the audit says of it.
fn audit_after(damage: &'static str) -> Vec<String> {
    let (scratch, ids) = Scratch::new(2);
    let store = scratch.store();
    let chains =
        vec![vec![post("in", &ids[0], &ids[1], 100)], vec![post("on", &ids[1], &ids[2], 30)]];
    for chain in chains {
        let chains = vec![chain];
        block_on(store.write(move |tx| ledger::book(tx, &chains, 7))).unwrap();
    }
    block_on(store.write(move |tx| {
        tx.exec("DROP TRIGGER ledger_transfer_is_final", args![])?;
        tx.exec("DROP TRIGGER ledger_transfer_stays", args![])?;
        tx.exec(damage, args![])
    }))
    .unwrap();
    block_on(store.read(audit::run)).unwrap().problems
}

#[test]
fn every_kind_of_damage_is_found() {
    for (damage, words) in [
        (
            "UPDATE ledger_account SET credits_posted = credits_posted + 1 WHERE owner = 'user-2'",
            "is stored as",
        ),
        (
            "UPDATE ledger_account SET credits_posted = credits_posted + 1 WHERE owner = 'user-2'",
            "not zero",
        ),
        ("UPDATE ledger_transfer SET units = 31 WHERE seq = 2", "is not that of the history"),
        ("UPDATE ledger_transfer SET units = 101 WHERE seq = 2", "was not allowed"),
        ("UPDATE ledger_transfer SET memo = 'other' WHERE seq = 1", "is not that of the history"),
        ("DELETE FROM ledger_transfer WHERE seq = 1", "numbers are missing"),
        ("DELETE FROM ledger_transfer WHERE seq = 2", "do not belong together"),
        ("DELETE FROM ledger_head WHERE last_seq = 2", "do not belong together"),
    ] {
        let problems = audit_after(damage);
        assert!(problems.iter().any(|p| p.contains(words)), "{damage}: {problems:?}");
    }
    assert_eq!(audit_after("SELECT 1 WHERE 0"), Vec::<String>::new());
}
