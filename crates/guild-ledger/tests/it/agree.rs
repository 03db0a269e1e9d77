//! Two databases and a book in memory are asked the same, at the edges of what can be asked: they answer the same, and
//! come to the same bytes.

use guild_ledger::book::{Book, Entry, Outcome};
use guild_ledger::evidence::Checker;
use guild_ledger::{Account, Error, Gate, Limit, NewTransfer, Rule, Step, export, ledger};
use guild_protocol::amount::AssetId;
use proptest::prelude::*;

use crate::{Scratch, block_on, named, usd};

const LATEST_MS: i64 = (1 << 53) - 1;

#[derive(Debug, Clone)]
enum Ask {
    Post(usize, usize, i64),
    Hold(usize, usize, i64, i64),
    Settle(usize, Option<i64>),
    Void(usize),
    Expire(usize),
}

#[derive(Debug, Clone)]
enum Round {
    /// Chains of a name and what is asked under it.
    Book(Vec<Vec<(usize, Ask)>>),
    Rule(usize, Rule),
}

fn accounts() -> [Account; 6] {
    let account =
        |owner, purpose, limit| Account::new(owner, purpose, AssetId::usd_micro(), limit).unwrap();
    [
        account("outside", "main", Limit::None),
        account("ann", "main", Limit::NeverNegative),
        account("bob", "main", Limit::NeverNegative),
        account("node", "fees", Limit::NeverNegative),
        account("debtor", "main", Limit::NeverPositive),
        // Never opened.
        account("stranger", "main", Limit::None),
    ]
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let account = || prop_oneof![20 => 0..5usize, 1 => Just(5usize)];
    let units = || {
        prop_oneof![
            12 => 1..120i64,
            1 => Just(0),
            1 => Just(-1),
            1 => Just(i64::MIN),
            2 => Just(i64::MAX),
            2 => Just(i64::MAX - 50),
        ]
    };
    let until = prop_oneof![
        8 => 0..150i64,
        1 => Just(-1),
        1 => Just(LATEST_MS),
        1 => Just(LATEST_MS + 1),
        1 => Just(i64::MAX),
    ];
    let name = || 0..25usize;
    let ask = prop_oneof![
        5 => (account(), account(), units()).prop_map(|(d, c, u)| Ask::Post(d, c, u)),
        4 => (account(), account(), units(), until).prop_map(|(d, c, u, e)| Ask::Hold(d, c, u, e)),
        4 => (name(), proptest::option::of(units())).prop_map(|(h, u)| Ask::Settle(h, u)),
        1 => name().prop_map(Ask::Void),
        2 => name().prop_map(Ask::Expire),
    ];
    let chain = proptest::collection::vec((name(), ask), 0..5);
    let batch = proptest::collection::vec(chain, 1..7).prop_map(Round::Book);
    let gate = (units(), any::<bool>()).prop_map(|(reserve_units, fees)| Gate {
        reserve_units,
        lets_through: if fees { vec!["fees".to_owned()] } else { vec![] },
    });
    let rule = (proptest::option::of(gate), proptest::option::of(units()))
        .prop_map(|(gate, credit_units)| Rule { gate, credit_units });
    let rule = (account(), rule).prop_map(|(account, rule)| Round::Rule(account, rule));
    proptest::collection::vec(prop_oneof![5 => batch, 1 => rule], 1..25)
}

fn transfer((name, ask): &(usize, Ask)) -> NewTransfer {
    let id = |n: usize| accounts()[n].account_id.clone();
    let hold = |n: usize| named(&n.to_string());
    let step = match *ask {
        Ask::Post(d, c, u) => Step::Post { debit: id(d), credit: id(c), amount: usd(u) },
        Ask::Hold(d, c, u, expires_ms) => {
            Step::Hold { debit: id(d), credit: id(c), amount: usd(u), expires_ms }
        }
        Ask::Settle(h, units) => Step::Settle { hold: hold(h), units },
        Ask::Void(h) => Step::Void { hold: hold(h) },
        Ask::Expire(h) => Step::Expire { hold: hold(h) },
    };
    // Not by `new`: what it refuses must be refused here too.
    NewTransfer { transfer_id: hold(*name), step, memo: "test".to_owned() }
}

/// Everything that a caller is told.
type Told = Vec<Result<Vec<(bool, i64, i64, i64)>, String>>;

fn told(answers: &[Result<Vec<Outcome>, Error>]) -> Told {
    let one = |outcome: &Outcome| {
        let booked = outcome.booked();
        (matches!(outcome, Outcome::New(_)), booked.seq, booked.units, booked.at_ms)
    };
    let chain = |answer: &Result<Vec<Outcome>, Error>| match answer {
        Ok(outcomes) => Ok(outcomes.iter().map(one).collect()),
        Err(error) => Err(format!("{}: {error}", error.code().name)),
    };
    answers.iter().map(chain).collect()
}

fn exported(s: &Scratch) -> Vec<u8> {
    let bytes = s.store.read(|rx| {
        let mut bytes = Vec::new();
        export::export(rx, &mut bytes)?;
        Ok::<_, Error>(bytes)
    });
    block_on(bytes).unwrap()
}

fn set_rule(s: &Scratch, account: &Account, rule: &Rule, now_ms: i64) -> Result<(), String> {
    let (id, rule) = (account.account_id.clone(), rule.clone());
    let set = s.store.write(move |tx| ledger::set_rule(tx, &id, &rule, now_ms));
    block_on(set).map_err(|error| error.code().name.to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn both_databases_and_the_book_answer_the_same(rounds in rounds()) {
        let stores = [Scratch::sqlite(0), Scratch::postgres(0)];
        let mut book = Book::after(1);
        // The outside world of every scratch is the first of these.
        book.add_account(Entry::opened(accounts()[0].clone(), 1));
        for account in &accounts()[1..5] {
            stores.iter().for_each(|s| s.open_account(account, 0).unwrap());
            let number = book.last_seq() + 1;
            book.add_account(Entry::opened(account.clone(), number));
            book.skip_to(number);
        }
        for (round, what) in rounds.iter().enumerate() {
            let now_ms = i64::try_from(round * 6).unwrap();
            match what {
                Round::Book(chains) => {
                    let chains: Vec<Vec<NewTransfer>> =
                        chains.iter().map(|chain| chain.iter().map(transfer).collect()).collect();
                    let pure: Vec<_> =
                        chains.iter().map(|chain| book.apply_chain(chain, now_ms)).collect();
                    for s in &stores {
                        prop_assert_eq!(told(&s.book_at(chains.clone(), now_ms)), told(&pure));
                    }
                }
                Round::Rule(account, rule) => {
                    let account = &accounts()[*account];
                    let [lite, pg] = stores.each_ref().map(|s| set_rule(s, account, rule, now_ms));
                    prop_assert_eq!(&lite, &pg);
                    let before = book.entry(&account.account_id).map(|entry| entry.rule.clone());
                    if lite.is_ok() && before.as_ref() != Some(rule) {
                        book.set_rule(&account.account_id, rule.clone());
                        book.skip_to(book.last_seq() + 1);
                    }
                }
            }
        }
        let [lite, pg] = stores.each_ref().map(exported);
        prop_assert_eq!(&lite, &pg);
        let mut checker = Checker::new();
        lite.split_inclusive(|b| *b == b'\n').for_each(|line| checker.line(line));
        prop_assert_eq!(checker.finish().problems, vec![]);
        for s in &stores {
            prop_assert_eq!(s.problems(), Vec::<String>::new());
        }
    }
}
