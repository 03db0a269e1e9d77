use std::collections::BTreeSet;

use guild_ledger::book::{Gate, Outcome};
use guild_ledger::{Error, Limit, NewTransfer, audit, ledger};
use guild_store::{Store, args};

use crate::{Scratch, account, block_on, post};

fn book(store: &Store, chains: Vec<Vec<NewTransfer>>) -> Vec<Vec<Result<Outcome, Error>>> {
    block_on(store.write(move |tx| ledger::book(tx, &chains, 7))).unwrap()
}

fn free(store: &Store, id: &guild_ledger::AccountId) -> i64 {
    let ids = BTreeSet::from([id.clone()]);
    let entries = block_on(store.read(move |rx| ledger::entries(rx, &ids))).unwrap();
    entries[id].balance.free_units()
}

#[test]
fn a_bad_transfer_holds_up_no_other_and_repeats_book_nothing() {
    let (scratch, ids) = Scratch::new(2);
    let store = scratch.store();
    let batch = vec![
        vec![post("in", &ids[0], &ids[1], 100)],
        vec![post("too much", &ids[1], &ids[2], 101)],
        vec![post("fine", &ids[1], &ids[2], 40)],
        vec![post("half", &ids[2], &ids[1], 10), post("broken", &ids[2], &ids[1], 1_000)],
    ];
    let codes = |outcomes: Vec<Vec<Result<Outcome, Error>>>| -> Vec<&'static str> {
        outcomes
            .into_iter()
            .flatten()
            .map(|outcome| match outcome {
                Ok(Outcome::New(_)) => "new",
                Ok(Outcome::Known(_)) => "known",
                Err(error) => error.code().name,
            })
            .collect()
    };
    let refused = ["ledger.chain_broken", "ledger.overdraft"];
    let first = codes(book(&store, batch.clone()));
    assert_eq!(first, ["new", "ledger.overdraft", "new", refused[0], refused[1]]);
    let head = block_on(store.read(ledger::head_hash)).unwrap();
    let again = codes(book(&store, batch));
    assert_eq!(again, ["known", "ledger.overdraft", "known", refused[0], refused[1]]);
    assert_eq!(block_on(store.read(ledger::head_hash)).unwrap(), head);
    assert_eq!((free(&store, &ids[1]), free(&store, &ids[2])), (60, 40));
    assert_eq!(block_on(store.read(audit::run)).unwrap().problems, Vec::<String>::new());
}

#[test]
fn an_account_is_opened_once_and_a_gate_is_kept() {
    let (scratch, ids) = Scratch::new(1);
    let store = scratch.store();
    let other = account("user-1", Limit::None);
    let conflict = block_on(store.write(move |tx| ledger::open(tx, &other, 0))).unwrap_err();
    assert_eq!(conflict.code().name, "ledger.account_conflict");
    let user = ids[1].clone();
    let gate = Gate { reserve_units: 90, lets_through: vec![] };
    block_on(store.write(move |tx| ledger::set_gate(tx, &user, Some(&gate)))).unwrap();
    let outcomes = book(
        &store,
        vec![vec![post("in", &ids[0], &ids[1], 100)], vec![post("out", &ids[1], &ids[0], 11)]],
    );
    assert!(outcomes[0][0].is_ok());
    assert_eq!(outcomes[1][0].as_ref().unwrap_err().code().name, "ledger.gated");
}

#[test]
fn the_schema_itself_refuses_what_the_code_would_never_ask() {
    let (scratch, ids) = Scratch::new(1);
    let store = scratch.store();
    book(&store, vec![vec![post("in", &ids[0], &ids[1], 100)]]);
    for sql in [
        "UPDATE ledger_account SET debits_posted = 101 WHERE owner = 'user-1'",
        "UPDATE ledger_account SET credits_posted = -1 WHERE owner = 'outside'",
        "UPDATE ledger_transfer SET units = 1",
        "DELETE FROM ledger_transfer",
        "INSERT INTO ledger_transfer (transfer_id, step, debit, credit, asset_id, units, memo, at_ms)
         SELECT 'x', 'post', debit, credit, asset_id, 0, memo, at_ms FROM ledger_transfer",
        "INSERT INTO ledger_transfer (transfer_id, step, debit, credit, asset_id, units, memo, at_ms)
         SELECT 'x', 'settle', debit, credit, asset_id, 1, memo, at_ms FROM ledger_transfer",
    ] {
        let refused = block_on(store.write(move |tx| tx.exec(sql, args![])));
        assert!(refused.is_err(), "{sql}");
    }
}
