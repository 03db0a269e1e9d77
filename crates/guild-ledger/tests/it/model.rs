//! The book beside a model that is too simple to be wrong: a list of what was accepted, summed up anew for every
//! question.

use guild_ledger::book::{Book, Entry};
use guild_ledger::{Account, Balance, Gate, Limit, NewTransfer, Rule, Step};
use guild_protocol::amount::AssetId;
use proptest::prelude::*;

use crate::{named, transfer, usd};

const ACCOUNTS: usize = 5;

#[derive(Debug, Clone, PartialEq)]
enum Ask {
    Post(usize, usize, i64),
    Hold(usize, usize, i64, i64),
    Settle(usize, Option<i64>),
    Void(usize),
    Expire(usize),
}

/// A name, what is asked under it, and when.
type Asked = (usize, Ask, i64);

#[derive(Clone, Default)]
struct Model {
    accepted: Vec<Asked>,
}

impl Model {
    fn hold(&self, name: usize) -> Option<(usize, usize, i64, i64)> {
        self.accepted.iter().find_map(|(n, ask, _)| match ask {
            Ask::Hold(d, c, u, e) if *n == name => Some((*d, *c, *u, *e)),
            _ => None,
        })
    }

    fn closed(&self, hold: usize) -> bool {
        self.accepted.iter().any(|(_, ask, _)| {
            matches!(ask, Ask::Settle(h, _) | Ask::Void(h) | Ask::Expire(h) if *h == hold)
        })
    }

    /// `(debits posted, credits posted, debits pending, credits pending)`.
    fn sums(&self, account: usize) -> [i64; 4] {
        let mut sums = [0; 4];
        let mut moved = |debit: usize, credit: usize, units: i64, at: usize| {
            if debit == account {
                sums[at] += units;
            }
            if credit == account {
                sums[at + 1] += units;
            }
        };
        for (name, ask, _) in &self.accepted {
            match ask {
                Ask::Post(d, c, u) => moved(*d, *c, *u, 0),
                Ask::Hold(d, c, u, _) if !self.closed(*name) => moved(*d, *c, *u, 2),
                Ask::Settle(h, units) => {
                    let (d, c, held, _) = self.hold(*h).unwrap();
                    moved(d, c, units.unwrap_or(held), 0);
                }
                _ => {}
            }
        }
        sums
    }

    /// Whether all limits hold, for the account that was just debited also its rule.
    fn fine(&self, debit: usize, credit: usize) -> bool {
        let limits = [debit, credit].into_iter().all(|account| {
            let [dp, cp, dn, cn] = self.sums(account);
            match account {
                1..=3 => dp + dn <= cp,
                4 => cp + cn <= dp,
                _ => true,
            }
        });
        let [dp, cp, dn, _] = self.sums(debit);
        limits
            && match debit {
                0 => dp + dn - cp <= 150,
                2 => credit == 3 || cp - dp - dn >= 20,
                _ => true,
            }
    }

    fn take(&mut self, asked: &Asked) -> bool {
        let (name, ask, now) = asked;
        if let Some((_, known, _)) = self.accepted.iter().find(|(n, ..)| n == name) {
            return match (known, ask) {
                (Ask::Settle(h, units), Ask::Settle(again, asked)) => {
                    let held = self.hold(*h).unwrap().2;
                    h == again && asked.unwrap_or(held) == units.unwrap_or(held)
                }
                _ => known == ask,
            };
        }
        let open = |h: &usize| self.hold(*h).filter(|_| !self.closed(*h));
        let allowed = match ask {
            Ask::Post(d, c, u) => d != c && *u > 0,
            Ask::Hold(d, c, u, e) => d != c && *u > 0 && e > now,
            Ask::Settle(h, units) => open(h).is_some_and(|(_, _, held, e)| {
                e > *now && (1..=held).contains(&units.unwrap_or(held))
            }),
            Ask::Void(h) => open(h).is_some(),
            Ask::Expire(h) => open(h).is_some_and(|(.., e)| e <= *now),
        };
        if !allowed {
            return false;
        }
        self.accepted.push(asked.clone());
        let fine = match ask {
            Ask::Post(d, c, _) | Ask::Hold(d, c, ..) => self.fine(*d, *c),
            _ => true,
        };
        if !fine {
            self.accepted.pop();
        }
        fine
    }

    fn take_chain(&mut self, chain: &[Asked]) -> bool {
        let before = self.clone();
        let taken = chain.iter().all(|asked| self.take(asked));
        if !taken {
            *self = before;
        }
        taken
    }
}

fn accounts() -> [Account; ACCOUNTS] {
    let account =
        |owner, purpose, limit| Account::new(owner, purpose, AssetId::usd_micro(), limit).unwrap();
    [
        account("outside", "main", Limit::None),
        account("ann", "main", Limit::NeverNegative),
        account("bob", "main", Limit::NeverNegative),
        account("node", "fees", Limit::NeverNegative),
        account("debtor", "main", Limit::NeverPositive),
    ]
}

fn book() -> Book {
    let mut book = Book::default();
    for (n, account) in accounts().into_iter().enumerate() {
        book.add_account(Entry::opened(account, i64::try_from(n).unwrap()));
    }
    let [outside, _, bob, ..] = accounts();
    let gate = Gate { reserve_units: 20, lets_through: vec!["fees".to_owned()] };
    book.set_rule(&outside.account_id, Rule { gate: None, credit_units: Some(150) });
    book.set_rule(&bob.account_id, Rule { gate: Some(gate), credit_units: None });
    book
}

fn transfer_of((name, ask, _): &Asked) -> NewTransfer {
    let id = |n: &usize| accounts()[*n].account_id.clone();
    let hold = |n: &usize| named(&n.to_string());
    let step = match ask {
        Ask::Post(d, c, u) => Step::Post { debit: id(d), credit: id(c), amount: usd(*u) },
        Ask::Hold(d, c, u, e) => {
            Step::Hold { debit: id(d), credit: id(c), amount: usd(*u), expires_ms: *e }
        }
        Ask::Settle(h, units) => Step::Settle { hold: hold(h), units: *units },
        Ask::Void(h) => Step::Void { hold: hold(h) },
        Ask::Expire(h) => Step::Expire { hold: hold(h) },
    };
    transfer(&name.to_string(), step)
}

fn chains() -> impl Strategy<Value = Vec<Vec<(usize, Ask)>>> {
    let (account, units, name) = (0..ACCOUNTS, -1..90i64, 0..40usize);
    let ask = prop_oneof![
        4 => (account.clone(), account.clone(), units.clone()).prop_map(|(d, c, u)| Ask::Post(d, c, u)),
        4 => (account.clone(), account, units.clone(), 1..200i64).prop_map(|(d, c, u, e)| Ask::Hold(d, c, u, e)),
        3 => (name.clone(), proptest::option::of(units)).prop_map(|(h, u)| Ask::Settle(h, u)),
        1 => name.clone().prop_map(Ask::Void),
        2 => name.clone().prop_map(Ask::Expire),
    ];
    let chain = proptest::collection::vec((name, ask), 1..4);
    proptest::collection::vec(chain, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_book_decides_as_the_model_does(asked in chains()) {
        let (mut book, mut model) = (book(), Model::default());
        for (round, chain) in asked.into_iter().enumerate() {
            let now_ms = i64::try_from(round * 5).unwrap();
            let chain: Vec<Asked> = chain.into_iter().map(|(n, ask)| (n, ask, now_ms)).collect();
            let transfers: Vec<NewTransfer> = chain.iter().map(transfer_of).collect();
            let taken = book.apply_chain(&transfers, now_ms);
            prop_assert_eq!(taken.is_ok(), model.take_chain(&chain), "{:?}: {:?}", chain, taken);
            for (n, account) in accounts().iter().enumerate() {
                let [debits_posted, credits_posted, debits_pending, credits_pending] = model.sums(n);
                let sums = Balance { debits_posted, credits_posted, debits_pending, credits_pending };
                prop_assert_eq!(book.entry(&account.account_id).unwrap().balance, sums);
            }
            prop_assert_eq!(book.last_seq(), i64::try_from(model.accepted.len()).unwrap());
        }
    }
}
