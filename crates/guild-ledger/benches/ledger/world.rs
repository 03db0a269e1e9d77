//! The accounts between which the benches move money: everybody has more than enough, so nothing is refused.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use guild_ledger::{Account, AccountId, Limit, NewTransfer, Result, Step, TransferId, ledger};
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_store::{Service, Store};

use crate::said;

const NOW_MS: UnixMs = 1_767_225_600_000;
/// So many transfers are about the same millisecond.
const TRANSFERS_A_MS: u64 = 100;
const FUNDS_UNITS: i64 = 1_000_000_000_000;

/// A store with accounts, and the next transfer to ask for.
pub(crate) struct World {
    pub(crate) service: Service,
    pub(crate) users: Arc<[AccountId]>,
    /// The number of the last funding transfer.
    pub(crate) funded_seq: i64,
    prepared: RefCell<VecDeque<NewTransfer>>,
    draw: Cell<u64>,
    made: Cell<u64>,
}

impl World {
    pub(crate) fn open(
        options: &guild_store::Options,
        runtime: &tokio::runtime::Runtime,
        users: usize,
    ) -> Result<World, String> {
        let migrations = guild_store::Migrations::store().and(guild_ledger::migrations());
        let service = Service::open(options, &migrations, guild_store::Hooks::default(), NOW_MS)
            .map_err(said)?;
        let (users, funded_seq) = runtime.block_on(fund(&service.handle(), users)).map_err(said)?;
        let (draw, made) = (Cell::new(0x9e37_79b9_7f4a_7c15), Cell::new(0));
        let prepared = RefCell::default();
        Ok(World { service, users: users.into(), funded_seq, prepared, draw, made })
    }

    /// A number below `end`, the same on every machine (xorshift64*).
    pub(crate) fn below(&self, end: usize) -> usize {
        let mut state = self.draw.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.draw.set(state);
        let drawn = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(drawn).unwrap_or(0) % end.max(1)
    }

    /// Somebody's account.
    pub(crate) fn user(&self) -> AccountId {
        self.users[self.below(self.users.len())].clone()
    }

    /// Makes transfers before the time is taken: that is the callers' work, not the ledger's.
    pub(crate) fn prepare(&self, count: u64) -> Result<()> {
        for _ in 0..count {
            let transfer = self.make_transfer()?;
            self.prepared.borrow_mut().push_back(transfer);
        }
        Ok(())
    }

    /// The next transfer to ask for; made now if none is prepared.
    pub(crate) fn next_transfer(&self) -> Result<NewTransfer> {
        let prepared = self.prepared.borrow_mut().pop_front();
        prepared.map_or_else(|| self.make_transfer(), Ok)
    }

    /// One unit from somebody to somebody else.
    fn make_transfer(&self) -> Result<NewTransfer> {
        let number = self.made.get();
        self.made.set(number + 1);
        let from = self.below(self.users.len());
        let to = (from + 1 + self.below(self.users.len() - 1)) % self.users.len();
        post(number, &self.users[from], &self.users[to], 1)
    }

    pub(crate) fn store(&self) -> Store {
        self.service.handle()
    }
}

fn post(number: u64, debit: &AccountId, credit: &AccountId, units: i64) -> Result<NewTransfer> {
    let amount = Amount::new(AssetId::usd_micro(), units);
    let step = Step::Post { debit: debit.clone(), credit: credit.clone(), amount };
    let at_ms = NOW_MS + i64::try_from(number / TRANSFERS_A_MS).unwrap_or(0);
    let words = ["bench", debit.as_str(), &number.to_string()];
    NewTransfer::new(TransferId::named(at_ms, &words), step, "bench.post")
}

/// Opens the accounts and gives each its funds; the number of the last transfer.
async fn fund(store: &Store, users: usize) -> Result<(Vec<AccountId>, i64)> {
    let outside = Account::new("node", "outside", AssetId::usd_micro(), Limit::None)?;
    let mut accounts = vec![outside.clone()];
    for user in 0..users {
        let (owner, usd) = (format!("user-{user:06}"), AssetId::usd_micro());
        accounts.push(Account::new(&owner, "main", usd, Limit::NeverNegative)?);
    }
    let ids: Vec<AccountId> = accounts.iter().skip(1).map(|a| a.account_id.clone()).collect();
    for some in accounts.chunks(1_000) {
        let some = some.to_vec();
        let open = move |tx: &mut guild_store::Tx<'_>| {
            some.iter().try_for_each(|account| ledger::open(tx, account, NOW_MS))
        };
        store.write(open).await?;
    }
    let mut chains = Vec::new();
    for (number, id) in (0_u64..).zip(&ids) {
        chains.push(vec![post(u64::MAX - number, &outside.account_id, id, FUNDS_UNITS)?]);
    }
    let booked = store.write(move |tx| ledger::book(tx, &chains, NOW_MS)).await?;
    booked.into_iter().collect::<Result<Vec<_>>>()?;
    let head = store.read(ledger::head).await?;
    Ok((ids, head.last_seq))
}

/// Time stands still: nothing here depends on it.
pub(crate) struct Still;

impl Clock for Still {
    fn now_ms(&self) -> UnixMs {
        NOW_MS
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}
