use guild_ledger::{Account, Gate, Limit, Rule, ledger};
use guild_protocol::amount::AssetId;
use guild_store::args;

use crate::{account, block_on, both, hold, post, said, settle, void};

#[test]
fn a_bad_transfer_holds_up_no_other_and_repeats_book_nothing() {
    both(2, |s| {
        let batch = vec![
            vec![post("in", &s.ids[0], &s.ids[1], 100)],
            vec![post("too much", &s.ids[1], &s.ids[2], 101)],
            vec![post("fine", &s.ids[1], &s.ids[2], 40)],
            vec![
                post("half", &s.ids[2], &s.ids[1], 10),
                post("broken", &s.ids[2], &s.ids[1], 1_000),
            ],
            vec![],
        ];
        let first = s.book(batch.clone());
        assert_eq!(said(&first), ["new", "ledger.overdraft", "new", "ledger.overdraft", "empty"]);
        let head = block_on(s.store.read(ledger::head)).unwrap();
        let again = s.book(batch);
        assert_eq!(
            said(&again),
            ["known", "ledger.overdraft", "known", "ledger.overdraft", "empty"]
        );
        assert_eq!(first[0].as_ref().unwrap()[0].booked(), again[0].as_ref().unwrap()[0].booked());
        assert_eq!(block_on(s.store.read(ledger::head)).unwrap(), head);
        assert_eq!((s.free(&s.ids[1]), s.free(&s.ids[2])), (60, 40));
        assert_eq!(s.problems(), Vec::<String>::new());
    });
}

#[test]
fn holds_are_closed_once_in_their_batch_and_in_later_ones() {
    both(2, |s| {
        let (ann, bob) = (&s.ids[1], &s.ids[2]);
        s.book(vec![vec![post("in", &s.ids[0], ann, 100)]]);
        let first = s.book(vec![
            vec![hold("a", ann, bob, 10, 100), settle("a-s", "a", Some(4))],
            vec![hold("b", ann, bob, 20, 100)],
            vec![hold("c", ann, bob, 30, 100)],
            vec![void("a-v", "a")],
        ]);
        assert_eq!(said(&first), ["new", "new", "new", "ledger.hold_closed"]);
        assert_eq!(s.free(ann), 46);
        // Settling names no account: both are found through the hold.
        let second = s.book(vec![vec![settle("b-s", "b", None)], vec![void("b-v", "b")]]);
        assert_eq!(said(&second), ["new", "ledger.hold_closed"]);
        let third = s.book(vec![
            vec![void("b-v", "b")],
            vec![void("c-v", "c")],
            vec![settle("b-s", "b", None)],
            vec![void("x", "nothing")],
        ]);
        let codes = ["ledger.hold_closed", "new", "known", "ledger.unknown_hold"];
        assert_eq!(said(&third), codes);
        assert_eq!((s.free(ann), s.free(bob)), (76, 24));
        assert_eq!(s.problems(), Vec::<String>::new());
    });
}

#[test]
fn an_account_is_opened_once_and_rules_are_kept() {
    both(1, |s| {
        let (outside, user) = (&s.ids[0], &s.ids[1]);
        let head = block_on(s.store.read(ledger::head)).unwrap();
        assert_eq!(head.last_seq, 2);
        s.open_account(&account("user-1", Limit::NeverNegative), 9).unwrap();
        let conflict = s.open_account(&account("user-1", Limit::None), 9).unwrap_err();
        assert_eq!(conflict.code().name, "ledger.account_conflict");
        let user_1 = account("user-1", Limit::NeverNegative).account_id;
        let mut forged = account("eve", Limit::NeverNegative);
        forged.account_id = user_1;
        assert_eq!(s.open_account(&forged, 9).unwrap_err().code().name, "ledger.malformed");
        let nameless = Account { owner: String::new(), ..account("eve", Limit::None) };
        assert_eq!(s.open_account(&nameless, 9).unwrap_err().code().name, "ledger.malformed");
        assert_eq!(block_on(s.store.read(ledger::head)).unwrap(), head);
        let set = |id: &guild_ledger::AccountId, rule: Rule| {
            let id = id.clone();
            block_on(s.store.write(move |tx| ledger::set_rule(tx, &id, &rule, 3)))
        };
        let gate = Gate { reserve_units: 90, lets_through: vec!["fees".to_owned()] };
        let gated = Rule { gate: Some(gate), credit_units: None };
        set(user, gated.clone()).unwrap();
        set(outside, Rule { gate: None, credit_units: Some(100) }).unwrap();
        assert_eq!(s.entry(user).rule, gated);
        let outcomes = s.book(vec![
            vec![post("in", outside, user, 100)],
            vec![post("out", user, outside, 11)],
            vec![post("more", outside, user, 1)],
        ]);
        assert_eq!(said(&outcomes), ["new", "ledger.gated", "ledger.credit_limit"]);
        let before = block_on(s.store.read(ledger::head)).unwrap();
        set(user, gated).unwrap();
        assert_eq!(block_on(s.store.read(ledger::head)).unwrap(), before, "nothing changed");
        set(user, Rule::default()).unwrap();
        assert_eq!(said(&s.book(vec![vec![post("out", user, outside, 11)]])), ["new"]);
        let stranger = account("stranger", Limit::None).account_id;
        let unknown = set(&stranger, Rule::default()).unwrap_err();
        assert_eq!(unknown.code().name, "ledger.unknown_account");
        assert_eq!(s.problems(), Vec::<String>::new());
    });
}

#[test]
fn the_schema_itself_refuses_what_the_code_would_never_ask() {
    both(1, |s| {
        s.book(vec![vec![post("in", &s.ids[0], &s.ids[1], 100)]]);
        for sql in [
            "UPDATE ledger_account SET debits_posted = 101 WHERE owner = 'user-1'",
            "UPDATE ledger_account SET credits_posted = -1 WHERE owner = 'outside'",
            "UPDATE ledger_transfer SET units = 1",
            "DELETE FROM ledger_transfer",
            "UPDATE ledger_head SET last_seq = 9 WHERE last_seq = 1",
            "DELETE FROM ledger_head",
            "INSERT INTO ledger_transfer SELECT 9, 'x', 'post', debit_no, credit_no, 0, NULL, NULL, memo, at_ms,
               debit_prev_seq, credit_prev_seq FROM ledger_transfer",
            "INSERT INTO ledger_transfer SELECT 9, 'x', 'settle', debit_no, credit_no, 1, NULL, NULL, memo, at_ms,
               debit_prev_seq, credit_prev_seq FROM ledger_transfer",
            "INSERT INTO ledger_transfer SELECT 9, 'x', 'post', debit_no, debit_no, 1, NULL, NULL, memo, at_ms,
               debit_prev_seq, credit_prev_seq FROM ledger_transfer",
            "INSERT INTO ledger_transfer SELECT 9, transfer_id, 'post', debit_no, credit_no, 1, NULL, NULL, memo,
               at_ms, debit_prev_seq, credit_prev_seq FROM ledger_transfer",
        ] {
            let refused = block_on(s.store.write(move |tx| tx.exec(sql, args![])));
            assert!(refused.is_err(), "{sql}");
        }
        // The same insert with nothing wrong goes through, so the refusals above are about what they say.
        let fine = "INSERT INTO ledger_transfer SELECT 9, 'x', 'post', debit_no, credit_no, 1, NULL, NULL, memo,
               at_ms, debit_prev_seq, credit_prev_seq FROM ledger_transfer";
        assert_eq!(block_on(s.store.write(move |tx| tx.exec(fine, args![]))), Ok(1));
    });
}

#[test]
fn accounts_are_found_by_their_names() {
    both(1, |s| {
        let btc = Account::new("ann", "main", AssetId::btc_ln(), Limit::None).unwrap();
        let usd = Account::new("ann", "main", AssetId::usd_micro(), Limit::None).unwrap();
        for account in [&usd, &btc] {
            s.open_account(account, 0).unwrap();
        }
        let found = |owner: &'static str, purpose: &'static str| {
            let found = s.store.read(move |rx| ledger::entries_named(rx, owner, purpose));
            let found = block_on(found).unwrap();
            found.into_iter().map(|entry| entry.account.as_ref().clone()).collect::<Vec<_>>()
        };
        assert_eq!(found("ann", "main"), [btc, usd]);
        assert_eq!((found("ann", "other"), found("Ann", "main")), (Vec::new(), Vec::new()));
        let names = |limit| block_on(s.store.read(move |rx| ledger::names(rx, limit))).unwrap();
        let ann = ("ann".to_owned(), "main".to_owned());
        assert!(names(100).iter().filter(|name| **name == ann).count() == 1, "{:?}", names(100));
        assert_eq!(names(1).len(), 1);
    });
}

#[test]
fn a_settlement_of_all_is_not_one_of_a_part() {
    both(2, |s| {
        let (ann, bob) = (&s.ids[1], &s.ids[2]);
        s.book(vec![
            vec![post("in", &s.ids[0], ann, 100)],
            vec![hold("part", ann, bob, 20, 100)],
            vec![hold("all", ann, bob, 20, 100)],
            vec![settle("part-s", "part", Some(5))],
            vec![settle("all-s", "all", None)],
        ]);
        let again = s.book(vec![
            vec![settle("part-s", "part", Some(5))],
            vec![settle("part-s", "part", None)],
            vec![settle("all-s", "all", Some(20))],
            vec![settle("all-s", "all", None)],
            vec![settle("all-s", "all", Some(19))],
        ]);
        let conflict = "ledger.transfer_conflict";
        assert_eq!(said(&again), ["known", conflict, "known", "known", conflict]);
        assert_eq!((s.free(ann), s.free(bob)), (75, 25));
    });
}
