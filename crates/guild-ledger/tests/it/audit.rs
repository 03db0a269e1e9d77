use guild_ledger::{Error, Gate, NewTransfer, Rule, Step, audit, ledger};
use guild_store::{Sql, args};
use proptest::prelude::*;

use crate::{Scratch, block_on, both, hold, named, post, settle, transfer, usd};

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
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    /// Whatever is asked, in batches of any size, alone or in chains: the history replays to what is stored.
    #[test]
    fn the_audit_agrees_with_any_history(asked in asks(), batch in 1..7usize, chain in 1..4usize) {
        both(3, |s| {
            let step = |ask: &Ask| match ask {
                Ask::Post(d, c, u) => Step::Post {
                    debit: s.ids[*d].clone(),
                    credit: s.ids[*c].clone(),
                    amount: usd(*u),
                },
                Ask::Hold(d, c, u, e) => Step::Hold {
                    debit: s.ids[*d].clone(),
                    credit: s.ids[*c].clone(),
                    amount: usd(*u),
                    expires_ms: *e,
                },
                Ask::Settle(h, units) => Step::Settle { hold: named(&h.to_string()), units: *units },
                Ask::Void(h) => Step::Void { hold: named(&h.to_string()) },
                Ask::Expire(h) => Step::Expire { hold: named(&h.to_string()) },
            };
            let transfers: Vec<NewTransfer> =
                asked.iter().map(|(name, ask)| transfer(&name.to_string(), step(ask))).collect();
            let chains: Vec<Vec<NewTransfer>> = transfers.chunks(chain).map(<[_]>::to_vec).collect();
            for (round, chains) in chains.chunks(batch).enumerate() {
                s.book_at(chains.to_vec(), i64::try_from(round * 10).unwrap());
            }
            assert_eq!(s.problems(), Vec::<String>::new());
        });
    }
}

/// Numbers 1 to 3 open accounts, 4 is a rule, 5 a post, 6 a hold, 7 its settlement, 8 an open hold.
fn history(s: &Scratch) {
    let (ann, bob) = (&s.ids[1], &s.ids[2]);
    let id = ann.clone();
    let gate = Gate { reserve_units: 1, lets_through: vec!["fees".to_owned()] };
    let rule = Rule { gate: Some(gate), credit_units: None };
    block_on(s.store.write(move |tx| ledger::set_rule(tx, &id, &rule, 3))).unwrap();
    s.book(vec![vec![post("in", &s.ids[0], ann, 100)]]);
    s.book(vec![vec![hold("h", ann, bob, 30, 50)]]);
    s.book(vec![vec![settle("s", "h", None)], vec![hold("o", ann, bob, 5, 60)]]);
}

/// Each guard of the history, and how it is taken away.
const GUARDS: [Sql; 6] = [
    Sql {
        lite: "DROP TRIGGER ledger_transfer_is_final",
        pg: "DROP TRIGGER ledger_transfer_is_final ON ledger_transfer",
    },
    Sql {
        lite: "DROP TRIGGER ledger_rule_is_final",
        pg: "DROP TRIGGER ledger_rule_is_final ON ledger_rule",
    },
    Sql {
        lite: "DROP TRIGGER ledger_head_is_final",
        pg: "DROP TRIGGER ledger_head_is_final ON ledger_head",
    },
    Sql { lite: "DROP TRIGGER ledger_transfer_stays", pg: "SELECT 1" },
    Sql { lite: "DROP TRIGGER ledger_rule_stays", pg: "SELECT 1" },
    Sql { lite: "DROP TRIGGER ledger_head_stays", pg: "SELECT 1" },
];

/// Carries what the audit said out of a transaction that is rolled back.
struct Found(Result<Vec<String>, Error>);

impl<E: Into<Error>> From<E> for Found {
    fn from(error: E) -> Found {
        Found(Err(error.into()))
    }
}

/// What the audit says after this damage, which is then undone.
fn problems_after(s: &Scratch, sql: &'static str) -> Vec<String> {
    let damaged = s.store.write(move |tx| -> Result<(), Found> {
        for guard in GUARDS {
            tx.exec(guard, args![])?;
        }
        tx.exec(sql, args![])?;
        let report = audit::run(tx)?;
        Err(Found(Ok(report.problems)))
    });
    block_on(damaged).unwrap_err().0.unwrap()
}

#[test]
fn every_kind_of_damage_is_found() {
    const MORE: &str =
        "UPDATE ledger_account SET credits_posted = credits_posted + 1 WHERE owner = 'user-2'";
    let damages = [
        (MORE, "is stored as"),
        (MORE, "not zero"),
        ("UPDATE ledger_transfer SET units = 99 WHERE seq = 5", "is not that of the history"),
        ("UPDATE ledger_transfer SET units = 29 WHERE seq = 5", "transfer 6 was not allowed"),
        ("UPDATE ledger_transfer SET units = 100 WHERE seq = 6", "transfer 6 was not allowed"),
        ("UPDATE ledger_transfer SET memo = 'other' WHERE seq = 5", "is not that of the history"),
        ("UPDATE ledger_transfer SET at_ms = 50 WHERE seq = 7", "transfer 7 was not allowed"),
        ("UPDATE ledger_transfer SET debit_no = 9 WHERE seq = 5", "does not exist"),
        ("UPDATE ledger_transfer SET hold_seq = 4 WHERE seq = 7", "does not exist"),
        ("DELETE FROM ledger_transfer WHERE seq = 5", "6 follows 4: numbers are missing"),
        ("DELETE FROM ledger_rule WHERE seq = 4", "5 follows 3: numbers are missing"),
        ("DELETE FROM ledger_transfer WHERE seq = 8", "do not belong together"),
        ("DELETE FROM ledger_head WHERE last_seq = 8", "do not belong together"),
        ("DELETE FROM ledger_head WHERE last_seq = 5", "is not that of the history"),
        (
            "INSERT INTO ledger_head SELECT 9, hash FROM ledger_head WHERE last_seq = 8",
            "do not belong together",
        ),
        (
            "UPDATE ledger_transfer SET debit_prev_seq = 5 WHERE seq = 7",
            "follows others in its statements",
        ),
        (
            "UPDATE ledger_transfer SET credit_prev_seq = 0 WHERE seq = 7",
            "follows others in its statements",
        ),
        ("UPDATE ledger_account SET last_seq = 6 WHERE owner = 'user-2'", "begins at 6, not at 8"),
        ("UPDATE ledger_hold SET closed_by = NULL WHERE seq = 6", "the row of hold 6"),
        ("UPDATE ledger_hold SET closed_by = 8 WHERE seq = 6", "the row of hold 6"),
        ("UPDATE ledger_hold SET closed_by = 9 WHERE seq = 8", "the row of hold 8"),
        ("UPDATE ledger_hold SET expires_ms = 51 WHERE seq = 8", "the row of hold 8"),
        ("DELETE FROM ledger_hold WHERE seq = 8", "the row of hold 8"),
        ("INSERT INTO ledger_hold VALUES (5, 9, NULL)", "the row of hold 5"),
        ("INSERT INTO ledger_hold VALUES (77, 9, NULL)", "the row of hold 77"),
        ("UPDATE ledger_account SET reserve_units = 0 WHERE owner = 'user-1'", "another rule"),
        ("UPDATE ledger_account SET credit_units = 7 WHERE owner = 'outside'", "another rule"),
        ("UPDATE ledger_rule SET reserve_units = 99 WHERE seq = 4", "transfer 6 was not allowed"),
        ("UPDATE ledger_account SET owner = 'eve' WHERE owner = 'user-1'", "the id of its name"),
        ("INSERT INTO ledger_rule VALUES (0, 1, NULL, NULL, 5, 3)", "has no place in the history"),
        (
            "INSERT INTO ledger_head SELECT 0, hash FROM ledger_head WHERE last_seq = 8",
            "has no place in the history",
        ),
        ("UPDATE ledger_rule SET lets_through = '[\"\"]' WHERE seq = 4", "could not be set"),
    ];
    both(2, |s| {
        history(s);
        for (sql, words) in damages {
            let problems = problems_after(s, sql);
            assert!(problems.iter().any(|p| p.contains(words)), "{sql}: {problems:?}");
        }
        assert_eq!(s.problems(), Vec::<String>::new());
    });
}

/// The history is read in pages: whatever lies on the edge of one is read too.
#[test]
fn what_stands_twice_is_found_also_at_the_end_of_a_page() {
    both(1, |s| {
        let chains = (1..=1_000).map(|n| vec![post(&n.to_string(), &s.ids[0], &s.ids[1], 1)]);
        s.book(chains.collect());
        for (sql, words) in [
            ("INSERT INTO ledger_rule VALUES (999, 1, NULL, NULL, 5, 3)", "999 follows 999"),
            (
                "INSERT INTO ledger_rule VALUES (1000, 1, NULL, NULL, 5, 3)",
                "no place in the history",
            ),
        ] {
            let problems = problems_after(s, sql);
            assert!(problems.iter().any(|p| p.contains(words)), "{problems:?}");
        }
    });
}

/// The first head begins with 32 zero bytes, not with what somebody has put before it.
#[test]
fn an_empty_ledger_has_no_head() {
    both(0, |s| {
        let began = "INSERT INTO ledger_head SELECT 0, hash FROM ledger_head";
        let emptied = s.store.write(move |tx| -> Result<(), Found> {
            for guard in GUARDS {
                tx.exec(guard, args![])?;
            }
            tx.exec(began, args![])?;
            tx.exec("DELETE FROM ledger_account", args![])?;
            tx.exec("DELETE FROM ledger_head WHERE last_seq > 0", args![])?;
            Err(Found(Ok(audit::run(tx)?.problems)))
        });
        let problems = block_on(emptied).unwrap_err().0.unwrap();
        assert!(problems.iter().any(|p| p.contains("do not belong together")), "{problems:?}");
    });
}
