//! A node with a ledger and hosting on a database of its own.

use guild_hosting::audit::{self, Report};
use guild_hosting::clamp::{Extend, Granted, Policy};
use guild_hosting::job::{self, Job, NewJob};
use guild_hosting::meter::{self, Ticked};
use guild_hosting::money::{self, Balance, Quote};
use guild_hosting::price::Shape;
use guild_hosting::sandbox::{self, NewSandbox, Placed, Sandbox, SecurityMode};
use guild_hosting::{HostingJobId, HostingQuoteId, Result, SandboxId, UserId, WithdrawalId};
use guild_ledger::ledger;
use guild_store::{Hooks, Migrations, Options, Rx, Service, Store, Tx};

/// When everything begins.
pub(crate) const T0: i64 = 1_768_435_200_000;
pub(crate) const MINUTE_MS: i64 = 60_000;
pub(crate) const HOUR_MS: i64 = 3_600_000;
pub(crate) const DAY_MS: i64 = 86_400_000;
/// One processor and one GiB: a minute costs [`PRICE`].
pub(crate) const SHAPE: Shape = Shape { cpu_milli: 1_000, ram_mib: 1_024, disk_mib: 1_024 };
pub(crate) const PRICE: i64 = 1_110;

pub(crate) fn user(n: u8) -> UserId {
    UserId::of_wallet([n; 20])
}

fn made(prefix: &str, n: u32) -> String {
    format!("{prefix}_{n:032x}")
}

pub(crate) fn job_id(n: u32) -> HostingJobId {
    made("job", n).parse().unwrap()
}

pub(crate) fn sandbox_id(n: u32) -> SandboxId {
    made("sbx", n).parse().unwrap()
}

pub(crate) fn withdrawal_id(n: u32) -> WithdrawalId {
    made("wd", n).parse().unwrap()
}

pub(crate) fn quote_id(n: u32) -> HostingQuoteId {
    made("quote", n).parse().unwrap()
}

/// A job of user 1 that may spend a lot, for a day.
pub(crate) fn new_job(n: u32) -> NewJob {
    NewJob {
        job_id: job_id(n),
        user_id: user(1),
        name: format!("job {n}"),
        max_spend: 1_000_000,
        ttl_ms: DAY_MS,
        idle_timeout_ms: None,
    }
}

/// A sandbox of job 1 that may spend a lot, for a day.
pub(crate) fn new_sandbox(n: u32) -> NewSandbox {
    NewSandbox {
        sandbox_id: sandbox_id(n),
        quote_id: quote_id(n),
        job_id: job_id(1),
        user_id: user(1),
        shape: SHAPE,
        cap: 1_000_000,
        ttl_ms: DAY_MS,
        idle_timeout_ms: None,
        image: "sandbox-base:v1.0.0".to_owned(),
        image_digest: "sha256:00".to_owned(),
        security_mode: SecurityMode::Standard,
        machine: "local".to_owned(),
    }
}

/// A wish that changes nothing, about this version.
pub(crate) fn wish(version: i64) -> Extend {
    Extend { version, spend: None, expires_ms: None, idle_timeout_ms: None }
}

pub(crate) struct Node {
    pub(crate) store: Store,
    service: Option<Service>,
    _place: Place,
}

#[expect(dead_code, reason = "held only so that it is removed at the end")]
enum Place {
    Directory(tempfile::TempDir),
    Database(testbed::Database),
}

fn tables() -> Migrations {
    Migrations::store().and(guild_ledger::migrations()).and(guild_hosting::migrations())
}

/// Runs a test on every kind of database.
pub(crate) fn both(test: impl Fn(&Node)) {
    test(&Node::sqlite(Hooks::default()));
    test(&Node::postgres(Hooks::default()));
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

impl Node {
    pub(crate) fn sqlite(hooks: Hooks) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::file(&dir.path().join("node.db"));
        Node::open(&options, hooks, Place::Directory(dir))
    }

    pub(crate) fn postgres(hooks: Hooks) -> Node {
        let database = testbed::Database::copy_of("hosting", |url| {
            Service::open(&Options::at(url), &tables(), Hooks::default(), 0).unwrap().close();
        })
        .unwrap();
        let options = Options::at(&database.url());
        Node::open(&options, hooks, Place::Database(database))
    }

    fn open(options: &Options, hooks: Hooks, place: Place) -> Node {
        let service = Service::open(options, &tables(), hooks, 0).unwrap();
        Node { store: service.handle(), service: Some(service), _place: place }
    }

    pub(crate) fn write<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        block_on(self.store.write(run))
    }

    pub(crate) fn read<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Rx<'_>) -> Result<T> + Send + 'static,
    ) -> T {
        block_on(self.store.read(run)).unwrap()
    }

    /// Puts money into the account of a user.
    pub(crate) fn fund(&self, n: u8, units: i64) {
        let reference = format!("{n}-{units}-{}", self.balance(n).free);
        self.write(move |tx| money::credit(tx, &user(n), units, &reference, T0)).unwrap();
    }

    pub(crate) fn balance(&self, n: u8) -> Balance {
        self.read(move |rx| money::balance(rx, &user(n)))
    }

    pub(crate) fn revenue(&self) -> i64 {
        self.units_of(money::revenue().unwrap().account_id)
    }

    pub(crate) fn units_of(&self, id: guild_ledger::AccountId) -> i64 {
        let entries = self.read(move |rx| Ok(ledger::entries(rx, &[id.clone()].into())?));
        entries.into_values().next().map_or(0, |entry| entry.balance.units())
    }

    pub(crate) fn create_job(&self, new: &NewJob, now_ms: i64) -> Result<(Job, Granted)> {
        let new = new.clone();
        self.write(move |tx| job::create(tx, &new, &Policy::default(), now_ms))
    }

    pub(crate) fn place(&self, new: &NewSandbox, now_ms: i64) -> Result<Placed> {
        let new = new.clone();
        self.write(move |tx| sandbox::create(tx, &new, &Policy::default(), now_ms))
    }

    /// Orders a sandbox that can be paid.
    pub(crate) fn order(&self, new: &NewSandbox, now_ms: i64) -> (Sandbox, Granted) {
        match self.place(new, now_ms).unwrap() {
            Placed::Starting(sandbox, granted) => (*sandbox, granted),
            Placed::Quoted(quote) => panic!("{quote:?}"),
        }
    }

    /// Orders a sandbox that cannot be paid.
    pub(crate) fn quoted(&self, new: &NewSandbox, now_ms: i64) -> Quote {
        match self.place(new, now_ms).unwrap() {
            Placed::Quoted(quote) => quote,
            Placed::Starting(sandbox, _) => panic!("{sandbox:?}"),
        }
    }

    pub(crate) fn started(&self, n: u32, now_ms: i64) -> Result<Sandbox> {
        self.write(move |tx| {
            sandbox::started(tx, &sandbox_id(n), "http://127.0.0.1:9", "key", now_ms)
        })
    }

    /// A sandbox of job 1 that runs since then.
    pub(crate) fn run(&self, new: &NewSandbox, now_ms: i64) -> Sandbox {
        self.order(new, now_ms);
        let id = new.sandbox_id.clone();
        self.write(move |tx| sandbox::started(tx, &id, "http://127.0.0.1:9", "key", now_ms))
            .unwrap()
    }

    pub(crate) fn tick(&self, now_ms: i64) -> Ticked {
        self.write(move |tx| meter::tick(tx, now_ms, 1_000)).unwrap()
    }

    /// The meter as it runs: every second, from `from_ms` until before `until_ms`.
    pub(crate) fn ticks(&self, from_ms: i64, until_ms: i64) {
        let mut now_ms = from_ms;
        while now_ms < until_ms {
            while self.tick(now_ms).more {}
            now_ms += 1_000;
        }
    }

    pub(crate) fn sandbox(&self, n: u32) -> Sandbox {
        self.read(move |rx| Ok(sandbox::find(rx, &sandbox_id(n))?.unwrap()))
    }

    pub(crate) fn job(&self, n: u32) -> Job {
        self.read(move |rx| Ok(job::find(rx, &job_id(n))?.unwrap()))
    }

    /// The kinds of all events so far.
    pub(crate) fn events(&self) -> Vec<String> {
        let events =
            self.read(|rx| Ok(guild_store::event::after(rx, guild_hosting::TOPIC, 0, 1_000)?));
        events.into_iter().map(|event| event.kind).collect()
    }

    /// What an audit finds.
    pub(crate) fn audit(&self) -> Report {
        self.read(audit::run)
    }

    /// What an audit by the ledger's own rules finds wrong.
    pub(crate) fn ledger_problems(&self) -> Vec<String> {
        block_on(self.store.read(guild_ledger::audit::run)).unwrap().problems
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.close();
        }
    }
}
