//! Quotes and their holds run out through the node's sweeper, on both databases.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::join3;
use guild_ledger::policy::{Bundle, Tier};
use guild_ledger::quote::{self, NewQuote, QuoteId, State};
use guild_ledger::{Account, Balance, Error, Limit, NewTransfer, Step, TransferId, audit, ledger};
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::Signer;
use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};
use guild_protocol::identity::SecretKey;
use guild_protocol::receipt::Rail;
use guild_roles::sweeper::{Options, Sweeper, Swept};
use guild_store::{Hooks, Migrations, Service, Store};
use serde_json::json;

/// Runs the tests named on both databases: what one does the other must do.
macro_rules! on_both {
    ($($test:ident,)+) => {
        mod on_sqlite {
            $(#[test] fn $test() {
                let dir = tempfile::tempdir().unwrap();
                super::Scene::open(&guild_store::Options::file(&dir.path().join("node.db"))).tell(super::$test);
            })+
        }
        mod on_postgres {
            $(#[test] fn $test() {
                let database = testbed::Database::new().unwrap();
                super::Scene::open(&guild_store::Options::at(&database.url())).tell(super::$test);
            })+
        }
    };
}

on_both! {
    a_reserved_quote_gives_its_hold_back_once,
    a_quote_that_nobody_took_up_is_closed_and_pays_nothing,
    two_services_on_one_database_give_back_once,
}

/// Time that the test sets; sleeping lets it pass.
struct Hand(AtomicI64);

impl Hand {
    fn set(&self, now_ms: UnixMs) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now_ms(&self) -> UnixMs {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        self.0.fetch_add(duration_ms, Ordering::SeqCst);
        Box::pin(tokio::task::yield_now())
    }
}

/// Ann has 100, the clock stands at 1000, and quotes are asked for by their numbers.
struct Scene {
    service: Service,
    runtime: tokio::runtime::Runtime,
    clock: Arc<Hand>,
}

impl Scene {
    fn open(options: &guild_store::Options) -> Scene {
        let all = Migrations::store().and(guild_ledger::migrations());
        let service = Service::open(options, &all, Hooks::default(), 0).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let clock = Arc::new(Hand(AtomicI64::new(1_000)));
        let scene = Scene { service, runtime, clock };
        let accounts = [outside(), ann(), bob()];
        scene.write(move |tx| {
            accounts.iter().try_for_each(|account| ledger::open(tx, account, 1_000))?;
            let (debit, credit) = (outside().account_id, ann().account_id);
            let step = Step::Post { debit, credit, amount: usd(100) };
            let deposit = NewTransfer::new(TransferId::named(1, &["deposit"]), step, "deposit")?;
            ledger::book(tx, &[vec![deposit]], 1_000)?
                .into_iter()
                .try_for_each(|done| done.map(drop))
        });
        scene
    }

    fn tell(self, story: impl FnOnce(&Scene)) {
        story(&self);
        assert_eq!(self.write(|tx| audit::run(tx)).problems, Vec::<String>::new());
        self.service.close();
    }

    fn store(&self) -> Store {
        self.service.handle()
    }

    fn write<T: Send + 'static>(
        &self,
        closure: impl Fn(&mut guild_store::Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> T {
        self.runtime.block_on(testbed::in_time(self.store().write(closure))).unwrap()
    }

    /// A quote that runs out at 2000 and whose money is then held until 5000.
    fn quote(&self, number: u32, units: i64) {
        let now_ms = self.clock.now_ms();
        self.write(move |tx| quote::make(tx, &wanted(number, units), &bundle(), now_ms));
    }

    /// Reserves the quote and holds its money, as one.
    fn reserve(&self, number: u32) {
        let now_ms = self.clock.now_ms();
        self.write(move |tx| {
            let hold = quote::reserve(tx, &id(number), now_ms)?.hold;
            ledger::book(tx, &[vec![hold]], now_ms)?.into_iter().try_for_each(|done| done.map(drop))
        });
    }

    fn state(&self, number: u32) -> State {
        self.write(move |tx| Ok(quote::get(tx, &id(number))?.state))
    }

    fn balance(&self) -> Balance {
        self.write(|tx| Ok(ledger::all_entries(tx)?[&ann().account_id].balance))
    }

    /// How many transfers there are.
    fn transfers(&self) -> i64 {
        let sql = "SELECT count(*) FROM ledger_transfer";
        self.write(move |tx| Ok(tx.first::<(i64,)>(sql, &[])?.unwrap().0))
    }

    fn sweeper(&self) -> Sweeper {
        Sweeper::new(Options::default(), self.store(), self.clock.clone())
    }

    fn sweep(&self) -> Swept {
        self.runtime.block_on(self.sweeper().sweep()).unwrap()
    }
}

fn account(owner: &str, limit: Limit) -> Account {
    Account::new(owner, "main", AssetId::usd_micro(), limit).unwrap()
}

fn outside() -> Account {
    account("outside", Limit::None)
}

fn ann() -> Account {
    account("ann", Limit::NeverNegative)
}

fn bob() -> Account {
    account("bob", Limit::NeverNegative)
}

fn usd(units: i64) -> Amount {
    Amount::new(AssetId::usd_micro(), units)
}

fn id(number: u32) -> QuoteId {
    format!("quote_{number:032x}").parse().unwrap()
}

/// Up to 50 by itself, more with a guardian.
fn bundle() -> Bundle {
    let guardian: SecretKey = format!("{:064x}", 7).parse().unwrap();
    let asks = json!({
        "id": "ask", "action": "guardian", "guardian_key": guardian.public_key().npub(),
        "when": {"amount": {"USD_MICRO": {"at_least": 51}}},
    });
    let bundle = json!({
        "schema_version": "guild.policy_bundle.v1", "name": "test",
        "caps": {"USD_MICRO": 50}, "rules": [asks],
    });
    Bundle::parse(bundle.to_string().as_bytes()).unwrap()
}

fn wanted(number: u32, units: i64) -> NewQuote {
    NewQuote {
        quote_id: id(number),
        debit: ann().account_id,
        credit: bob().account_id,
        amount: usd(units),
        subject: "embed 3 texts".to_owned(),
        provider_tier: Tier::Primary,
        schema_id: None,
        rail: Rail::Ledger,
        expires_ms: 2_000,
        hold_until_ms: 5_000,
    }
}

fn a_reserved_quote_gives_its_hold_back_once(scene: &Scene) {
    scene.quote(1, 40);
    scene.reserve(1);
    let held = scene.balance();
    assert_eq!((held.free_units(), held.debits_pending), (60, 40));
    // The quote has run out, but it was reserved in time: its money stays held.
    scene.clock.set(4_999);
    assert_eq!(scene.sweep(), Swept::default());
    assert_eq!(scene.balance(), held);
    scene.clock.set(5_000);
    let before = scene.transfers();
    assert_eq!(scene.sweep(), Swept { holds: 1, quotes: 0 });
    assert_eq!(scene.sweep(), Swept::default(), "once");
    let after = scene.balance();
    assert_eq!((after.free_units(), after.debits_pending, after.debits_posted), (100, 0, 0));
    assert_eq!(scene.transfers(), before + 1);
    // Reserving again gives the same hold, which is known and closed: it holds nothing a second time.
    scene.reserve(1);
    assert_eq!(
        (scene.state(1), scene.balance(), scene.transfers()),
        (State::Reserved, after, before + 1)
    );
}

fn a_quote_that_nobody_took_up_is_closed_and_pays_nothing(scene: &Scene) {
    scene.quote(1, 40);
    scene.quote(2, 60);
    assert_eq!((scene.state(1), scene.state(2)), (State::Approved, State::Quoted));
    scene.clock.set(1_999);
    assert_eq!(scene.sweep(), Swept::default());
    scene.clock.set(2_000);
    let before = (scene.balance(), scene.transfers());
    assert_eq!(scene.sweep(), Swept { holds: 0, quotes: 2 });
    assert_eq!(scene.sweep(), Swept::default(), "once");
    assert_eq!((scene.state(1), scene.state(2)), (State::Expired, State::Denied));
    // Also for a clock that is set back: what is closed stays closed.
    let late = scene.runtime.block_on(scene.store().write(|tx| quote::reserve(tx, &id(1), 1_500)));
    assert_eq!(late.unwrap_err().code().name, "quote.expired");
    assert_eq!((scene.balance(), scene.transfers()), before);
}

fn two_services_on_one_database_give_back_once(scene: &Scene) {
    for number in 1..=4 {
        scene.quote(number, 10);
    }
    (1..=3).for_each(|number| scene.reserve(number));
    assert_eq!(scene.balance().debits_pending, 30);
    let before = scene.transfers();
    let shutdown = Shutdown::new();
    let (store, clock) = (scene.store(), scene.clock.clone());
    let looking = async {
        // Each sleep of a service lets a second pass. A while longer than needed: what is given back stays so.
        while clock.now_ms() < 20_000 {
            tokio::task::yield_now().await;
        }
        let last = store.read(|rx| Ok::<_, Error>(quote::get(rx, &id(4))?.state));
        assert_eq!(last.await, Ok(State::Expired));
        shutdown.trigger();
    };
    let [one, two] = [(); 2].map(|()| scene.sweeper().run(shutdown.clone()));
    scene.runtime.block_on(join3(one, two, looking));
    let after = scene.balance();
    assert_eq!((after.free_units(), after.debits_pending, after.debits_posted), (100, 0, 0));
    assert_eq!(scene.transfers(), before + 3);
}
