//! One integration binary for the crate: the ledger on real databases.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agree;
mod audit;
mod booking;
mod evidence;
mod export;
mod history;
mod killed;
mod model;
mod policy;
mod quote;
mod receivable;
mod upgrade;
mod writer;

use std::collections::BTreeSet;

use guild_ledger::book::{Entry, Outcome};
use guild_ledger::{
    Account, AccountId, Error, Limit, NewTransfer, Step, TransferId, ledger, migrations,
};
use guild_protocol::amount::{Amount, AssetId};
use guild_store::{Hooks, Migrations, Options, Service, Store};

/// A ledger on a database of its own, with the outside world and some users' accounts, numbered from 1.
struct Scratch {
    store: Store,
    ids: Vec<AccountId>,
    service: Option<Service>,
    _place: Place,
}

#[expect(dead_code, reason = "held only so that it is removed at the end")]
enum Place {
    Directory(tempfile::TempDir),
    Database(testbed::Database),
}

/// Runs a test on every kind of database.
fn both(users: usize, test: impl Fn(&Scratch)) {
    test(&Scratch::sqlite(users));
    test(&Scratch::postgres(users));
}

impl Scratch {
    fn sqlite(users: usize) -> Scratch {
        Scratch::sqlite_with(users, Hooks::default())
    }

    fn sqlite_with(users: usize, hooks: Hooks) -> Scratch {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::file(&dir.path().join("node.db"));
        Scratch::open(users, &options, hooks, Place::Directory(dir))
    }

    fn postgres(users: usize) -> Scratch {
        Scratch::postgres_with(users, Hooks::default())
    }

    fn postgres_with(users: usize, hooks: Hooks) -> Scratch {
        let database = testbed::Database::new().unwrap();
        let options = Options::at(&database.url());
        Scratch::open(users, &options, hooks, Place::Database(database))
    }

    fn open(users: usize, options: &Options, hooks: Hooks, place: Place) -> Scratch {
        let all = Migrations::store().and(migrations());
        let service = Service::open(options, &all, hooks, 0).unwrap();
        let store = service.handle();
        let ids = open_accounts(&store, users);
        Scratch { store, ids, service: Some(service), _place: place }
    }

    fn open_account(&self, account: &Account, now_ms: i64) -> Result<(), Error> {
        let account = account.clone();
        block_on(self.store.write(move |tx| ledger::open(tx, &account, now_ms)))
    }

    fn book(&self, chains: Vec<Vec<NewTransfer>>) -> Vec<Result<Vec<Outcome>, Error>> {
        self.book_at(chains, 7)
    }

    fn book_at(
        &self,
        chains: Vec<Vec<NewTransfer>>,
        now_ms: i64,
    ) -> Vec<Result<Vec<Outcome>, Error>> {
        block_on(self.store.write(move |tx| ledger::book(tx, &chains, now_ms))).unwrap()
    }

    fn entry(&self, id: &AccountId) -> Entry {
        let ids = BTreeSet::from([id.clone()]);
        let entries = block_on(self.store.read(move |rx| ledger::entries(rx, &ids))).unwrap();
        entries[id].clone()
    }

    fn free(&self, id: &AccountId) -> i64 {
        self.entry(id).balance.free_units()
    }

    fn problems(&self) -> Vec<String> {
        block_on(self.store.read(guild_ledger::audit::run)).unwrap().problems
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.close();
        }
    }
}

/// The outside world and `users` accounts, numbered from 1.
fn open_accounts(store: &Store, users: usize) -> Vec<AccountId> {
    let mut accounts = vec![account("outside", Limit::None)];
    accounts.extend((1..=users).map(|n| account(&format!("user-{n}"), Limit::NeverNegative)));
    let ids = accounts.iter().map(|account| account.account_id.clone()).collect();
    let open =
        store.write(move |tx| accounts.iter().try_for_each(|account| ledger::open(tx, account, 0)));
    block_on(open).unwrap();
    ids
}

fn account(owner: &str, limit: Limit) -> Account {
    Account::new(owner, "main", AssetId::usd_micro(), limit).unwrap()
}

fn usd(units: i64) -> Amount {
    Amount::new(AssetId::usd_micro(), units)
}

fn named(name: &str) -> TransferId {
    TransferId::named(5, &[name])
}

fn transfer(name: &str, step: Step) -> NewTransfer {
    NewTransfer::new(named(name), step, "test").unwrap()
}

fn post(name: &str, debit: &AccountId, credit: &AccountId, units: i64) -> NewTransfer {
    let (debit, credit) = (debit.clone(), credit.clone());
    transfer(name, Step::Post { debit, credit, amount: usd(units) })
}

fn hold(
    name: &str,
    debit: &AccountId,
    credit: &AccountId,
    units: i64,
    expires_ms: i64,
) -> NewTransfer {
    let (debit, credit) = (debit.clone(), credit.clone());
    transfer(name, Step::Hold { debit, credit, amount: usd(units), expires_ms })
}

fn settle(name: &str, hold: &str, units: Option<i64>) -> NewTransfer {
    transfer(name, Step::Settle { hold: named(hold), units })
}

fn void(name: &str, hold: &str) -> NewTransfer {
    transfer(name, Step::Void { hold: named(hold) })
}

/// What became of each chain: `new`, `known`, or the code of its refusal.
fn said(outcomes: &[Result<Vec<Outcome>, Error>]) -> Vec<&'static str> {
    let word = |outcome: &Outcome| match outcome {
        Outcome::New(_) => "new",
        Outcome::Known(_) => "known",
    };
    outcomes
        .iter()
        .map(|chain| match chain {
            Ok(outcomes) => outcomes.first().map_or("empty", word),
            Err(error) => error.code().name,
        })
        .collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
