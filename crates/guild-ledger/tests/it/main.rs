//! One integration binary for the crate: the ledger on a real database.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod booking;
mod history;
mod policy;
mod quote;

use guild_ledger::{Account, AccountId, Limit, NewTransfer, Step, TransferId, ledger, migrations};
use guild_protocol::amount::{Amount, AssetId};
use guild_store::{Hooks, Migrations, Options, Service, Store};

struct Scratch {
    _dir: tempfile::TempDir,
    service: Option<Service>,
}

impl Scratch {
    /// A ledger with the outside world and `users` accounts, numbered from 1.
    fn new(users: usize) -> (Scratch, Vec<AccountId>) {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::file(&dir.path().join("node.db"));
        let all = Migrations::store().and(migrations());
        let service = Service::open(&options, &all, Hooks::default(), 0).unwrap();
        let this = Scratch { _dir: dir, service: Some(service) };
        let ids = open_accounts(&this.store(), users);
        (this, ids)
    }

    fn store(&self) -> Store {
        self.service.as_ref().unwrap().handle()
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

fn transfer(name: &str, step: Step) -> NewTransfer {
    NewTransfer::new(TransferId::named(&[name]), step, "test").unwrap()
}

fn post(name: &str, debit: &AccountId, credit: &AccountId, units: i64) -> NewTransfer {
    let (debit, credit) = (debit.clone(), credit.clone());
    transfer(name, Step::Post { debit, credit, amount: usd(units) })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
