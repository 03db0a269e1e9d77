use guild_ledger::history::{expire_due, history_after, holds_due, statement, statement_told};
use guild_ledger::record::What;
use guild_ledger::{AccountId, Limit, Rule, TransferId, ledger};

use crate::{Scratch, account, block_on, both, hold, named, post, said, settle};

/// `(seq, balance, free)` of the lines.
fn lines(s: &Scratch, id: &AccountId, before_seq: Option<i64>, limit: i64) -> Vec<(i64, i64, i64)> {
    let id = id.clone();
    let lines = block_on(s.store.read(move |rx| statement(rx, &id, before_seq, limit))).unwrap();
    lines.iter().map(|l| (l.booked.seq, l.balance.units(), l.balance.free_units())).collect()
}

#[test]
fn a_statement_is_newest_first_with_the_balance_after_each_line() {
    both(3, |s| {
        let (ann, bob, eve) = (&s.ids[1], &s.ids[2], &s.ids[3]);
        s.book(vec![vec![post("in", &s.ids[0], ann, 100)]]); // 5
        s.book(vec![
            vec![post("gift", ann, bob, 10)],       // 6
            vec![hold("h", ann, bob, 30, 100)],     // 7
            vec![post("other", &s.ids[0], eve, 1)], // 8
            vec![settle("s", "h", Some(20))],       // 9
        ]);
        s.book(vec![vec![post("back", bob, ann, 5)]]); // 10
        let all = [(10, 75, 75), (9, 70, 70), (7, 90, 60), (6, 90, 90), (5, 100, 100)];
        assert_eq!(lines(s, ann, None, 10), all);
        assert_eq!(lines(s, ann, None, 2), all[..2]);
        assert_eq!(lines(s, ann, Some(9), 2), all[2..4]);
        assert_eq!(lines(s, ann, Some(5), 2), []);
        assert_eq!(lines(s, bob, None, 10), [(10, 25, 25), (9, 30, 30), (7, 10, 10), (6, 10, 10)]);
        assert_eq!(lines(s, eve, None, 10), [(8, 1, 1)]);
        let stranger = account("stranger", Limit::None).account_id;
        let unknown = block_on(s.store.read(move |rx| statement(rx, &stranger, None, 1)));
        assert_eq!(unknown.unwrap_err().code().name, "ledger.unknown_account");
    });
}

#[test]
fn a_statement_longer_than_a_page_is_walked_to_its_end() {
    both(1, |s| {
        let chains = (1..=2_100).map(|n| vec![post(&n.to_string(), &s.ids[0], &s.ids[1], 1)]);
        s.book(chains.collect());
        let first = lines(s, &s.ids[1], None, 5_000);
        assert_eq!(
            (first.len(), first[0], first[999]),
            (1_000, (2_102, 2_100, 2_100), (1_103, 1_101, 1_101))
        );
        assert_eq!(lines(s, &s.ids[1], Some(5), 10), [(4, 2, 2), (3, 1, 1)]);
        let id = s.ids[1].clone();
        let walked = block_on(s.store.read(move |rx| {
            let walked = std::cell::RefCell::new(Vec::new());
            statement_told(rx, &id, Some(5), 10, &|so_far| walked.borrow_mut().push(so_far))?;
            Ok::<_, guild_ledger::Error>(walked.into_inner())
        }));
        assert_eq!(walked.unwrap(), [1_000, 2_000, 2_100], "the whole walk is told of");
    });
}

#[test]
fn holds_that_ran_out_are_given_back_once() {
    both(2, |s| {
        let (ann, bob) = (&s.ids[1], &s.ids[2]);
        let asked = vec![
            vec![post("in", &s.ids[0], ann, 100)],
            vec![hold("late", ann, bob, 10, 50)],
            vec![hold("early", ann, bob, 20, 40)],
            vec![hold("open", ann, bob, 30, 60)],
            vec![hold("closed", ann, bob, 1, 40), settle("s", "closed", None)],
        ];
        assert_eq!(said(&s.book(asked)), ["new"; 5]);
        let due = |now_ms, limit| {
            let due = block_on(s.store.read(move |rx| holds_due(rx, now_ms, limit))).unwrap();
            due.into_iter().map(|hold| hold.transfer_id).collect::<Vec<_>>()
        };
        assert_eq!(due(39, 10), []);
        assert_eq!(due(50, 10), [named("early"), named("late")]);
        assert_eq!(due(50, 1), [named("early")]);
        let expire =
            |now_ms| block_on(s.store.write(move |tx| expire_due(tx, now_ms, 10))).unwrap();
        assert_eq!((expire(50), expire(50), s.free(ann)), (2, 0, 69));
        assert_eq!((expire(60), due(99, 10)), (1, vec![]));
        assert_eq!((s.free(ann), s.free(bob)), (99, 1));
        assert_eq!(s.problems(), Vec::<String>::new());
    });
}

#[test]
fn everything_that_happened_is_one_history() {
    both(1, |s| {
        s.book(vec![vec![post("a", &s.ids[0], &s.ids[1], 9)]]);
        let id = s.ids[1].clone();
        let rule = Rule { gate: None, credit_units: Some(4) };
        block_on(s.store.write(move |tx| ledger::set_rule(tx, &id, &rule, 8))).unwrap();
        s.open_account(&account("late", Limit::None), 9).unwrap();
        s.book(vec![vec![post("b", &s.ids[1], &s.ids[0], 9)]]);
        let page = |after, limit| {
            let page = block_on(s.store.read(move |rx| history_after(rx, after, limit))).unwrap();
            let word = |what: &What<'_>| match what {
                What::Account { .. } => "account",
                What::Rule { .. } => "rule",
                What::Transfer(_) => "transfer",
            };
            page.iter().map(|record| (record.seq, word(&record.what))).collect::<Vec<_>>()
        };
        let all = [
            (1, "account"),
            (2, "account"),
            (3, "transfer"),
            (4, "rule"),
            (5, "account"),
            (6, "transfer"),
        ];
        assert_eq!(page(0, 100), all);
        assert_eq!(page(2, 2), all[2..4]);
        assert_eq!(page(6, 2), []);
    });
}

/// Its id can be taken: whoever knows a hold knows the id under which it will be given back.
#[test]
fn a_hold_that_cannot_be_given_back_holds_up_no_other() {
    both(2, |s| {
        let (ann, bob) = (&s.ids[1], &s.ids[2]);
        let taken = TransferId::named(40, &["hold.expire", named("first").as_str()]);
        let mut spoiler = post("spoiler", ann, bob, 1);
        spoiler.transfer_id = taken;
        let asked = vec![
            vec![post("in", &s.ids[0], ann, 100)],
            vec![hold("first", ann, bob, 10, 40)],
            vec![hold("second", ann, bob, 20, 50)],
            vec![spoiler],
        ];
        assert_eq!(said(&s.book(asked)), ["new"; 4]);
        let expire = || block_on(s.store.write(move |tx| expire_due(tx, 60, 10)));
        assert_eq!((expire(), s.free(ann)), (Ok(1), 89));
        // What is left is told, not passed over.
        assert_eq!(expire().unwrap_err().code().name, "ledger.transfer_conflict");
        assert_eq!(s.problems(), Vec::<String>::new());
    });
}

#[test]
fn transfers_are_found_by_their_ids() {
    both(2, |s| {
        let (ann, bob) = (&s.ids[1], &s.ids[2]);
        s.book(vec![vec![post("in", &s.ids[0], ann, 100)], vec![hold("h", ann, bob, 30, 100)]]);
        let asked = [named("h"), named("never"), named("in"), named("h")];
        let found = block_on(s.store.read(move |rx| ledger::booked(rx, &asked))).unwrap();
        let units: Vec<i64> = found.values().map(|booked| booked.units).collect();
        assert_eq!(
            (found.len(), found[&named("in")].units, units.iter().sum::<i64>()),
            (2, 100, 130)
        );
        assert!(block_on(s.store.read(|rx| ledger::booked(rx, &[]))).unwrap().is_empty());
    });
}
