use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::join;
use guild_ledger::writer::Options as WriterOptions;
use guild_ledger::{Writer, ledger};
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};
use guild_roles::sweeper::{Options, Sweeper, Swept};
use guild_roles::treasury::{
    Account, Changed, Gate, Limit, NewTransfer, Outcome, RuleChange, Step, TransferId, Treasury,
    code,
};
use guild_store::{Hooks, Migrations, Service};

/// Time that the test sets; sleeping lets it pass.
struct Hand(AtomicI64);
impl Clock for Hand {
    fn now_ms(&self) -> UnixMs {
        self.0.load(Ordering::SeqCst)
    }
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        self.0.fetch_add(duration_ms, Ordering::SeqCst);
        Box::pin(async {
            tokio::task::yield_now().await;
        })
    }
}

struct Scene {
    _dir: tempfile::TempDir,
    service: Service,
    clock: Arc<Hand>,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let options = guild_store::Options::file(&dir.path().join("node.db"));
        let all = Migrations::store().and(guild_ledger::migrations());
        let service = Service::open(&options, &all, Hooks::default(), 0).unwrap();
        Scene { _dir: dir, service, clock: Arc::new(Hand(AtomicI64::new(1_000))) }
    }

    /// Runs a story with a treasury whose writer runs beside it.
    fn tell<F: Future<Output = ()>>(self, story: impl FnOnce(Treasury, Sweeper, Arc<Hand>) -> F) {
        let (store, clock) = (self.service.handle(), self.clock.clone());
        let options = WriterOptions::default();
        let (writer, running) = Writer::new(&options, store.clone(), clock.clone()).unwrap();
        let treasury = Treasury::new(store.clone(), writer, clock.clone());
        let sweeper =
            Sweeper::new(Options { batch_max: 2, ..Options::default() }, store, clock.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(testbed::in_time(join(story(treasury, sweeper, clock), running)));
        self.service.close();
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

fn amount(units: i64) -> Amount {
    Amount::new(AssetId::usd_micro(), units)
}

fn deposit(name: &str, units: i64) -> NewTransfer {
    let (debit, credit) = (outside().account_id, ann().account_id);
    let step = Step::Post { debit, credit, amount: amount(units) };
    NewTransfer::new(TransferId::named(1, &[name]), step, "deposit").unwrap()
}

fn hold(name: &str, units: i64, expires_ms: i64) -> NewTransfer {
    let (debit, credit) = (ann().account_id, outside().account_id);
    let step = Step::Hold { debit, credit, amount: amount(units), expires_ms };
    NewTransfer::new(TransferId::named(1, &[name]), step, "hold").unwrap()
}

async fn funded(treasury: &Treasury, units: i64) {
    treasury.open(outside()).await.unwrap();
    treasury.open(ann()).await.unwrap();
    treasury.transfer(vec![deposit("first", units)]).await.unwrap();
}

#[test]
fn asking_again_is_asking_for_the_same() {
    Scene::new().tell(|treasury, _, _| async move {
        assert_eq!(treasury.open(outside()).await, Ok(Changed::New(1)));
        assert_eq!(treasury.open(ann()).await, Ok(Changed::New(2)));
        assert_eq!(treasury.open(ann()).await, Ok(Changed::Known));
        let other = treasury.open(account("ann", Limit::None)).await.unwrap_err();
        assert_eq!(other.code(), &code::ACCOUNT_CONFLICT);
        for is_new in [true, false] {
            let outcomes = treasury.transfer(vec![deposit("one", 5)]).await.unwrap();
            assert_eq!(matches!(outcomes[..], [Outcome::New(_)]), is_new);
            assert_eq!(outcomes[0].booked().seq, 3);
        }
        let conflict = treasury.transfer(vec![deposit("one", 6)]).await.unwrap_err();
        assert_eq!(conflict.code(), &code::TRANSFER_CONFLICT);
    });
}

#[test]
fn a_rule_changes_where_it_is_told_to() {
    Scene::new().tell(|treasury, _, _| async move {
        funded(&treasury, 100).await;
        let id = || ann().account_id;
        let gate = Gate { reserve_units: 90, lets_through: vec!["fees".to_owned()] };
        let keep = RuleChange { gate: Some(gate.clone()), ..RuleChange::default() };
        let (changed, _) = treasury.set_rule(id(), keep.clone()).await.unwrap();
        assert_eq!(changed, Changed::New(4));
        let credit = RuleChange { credit_units: Some(3), ..RuleChange::default() };
        let (_, rule) = treasury.set_rule(id(), credit).await.unwrap();
        assert_eq!((rule.gate.as_ref(), rule.credit_units), (Some(&gate), Some(3)));
        assert_eq!(treasury.set_rule(id(), keep).await.unwrap().0, Changed::Known);
        let gated = treasury.transfer(vec![hold("h", 11, 9_000)]).await.unwrap_err();
        assert_eq!(gated.code(), &code::GATED);
        let bad = RuleChange { credit_units: Some(-1), ..RuleChange::default() };
        assert_eq!(treasury.set_rule(id(), bad).await.unwrap_err().code(), &code::BAD_AMOUNT);
        let nobody = account("zoe", Limit::None).account_id;
        let unknown = treasury.set_rule(nobody, RuleChange::default()).await.unwrap_err();
        assert_eq!(unknown.code(), &code::UNKNOWN_ACCOUNT);
    });
}

#[test]
fn what_has_run_out_is_given_back_once_and_the_rest_stays() {
    let scene = Scene::new();
    let store = scene.service.handle();
    scene.tell(|treasury, sweeper, clock| async move {
        funded(&treasury, 100).await;
        let early = ["a", "b", "c", "d", "e"].map(|name| hold(name, 10, 2_000));
        for hold in early.into_iter().chain([hold("late", 10, 9_000)]) {
            treasury.transfer(vec![hold]).await.unwrap();
        }
        assert_eq!(sweeper.sweep().await, Ok(Swept::default()), "nothing has run out yet");
        clock.0.store(2_000, Ordering::SeqCst);
        assert_eq!(sweeper.sweep().await, Ok(Swept { holds: 5, quotes: 0 }), "in batches of two");
        assert_eq!(sweeper.sweep().await, Ok(Swept::default()));
        let id = ann().account_id;
        let entry = store.read(move |rx| {
            Ok::<_, guild_ledger::Error>(ledger::all_entries(rx)?.remove(&id).unwrap())
        });
        let balance = entry.await.unwrap().balance;
        assert_eq!((balance.units(), balance.debits_pending), (100, 10));
    });
}

#[test]
fn the_service_sweeps_until_it_is_told_to_stop() {
    let scene = Scene::new();
    let store = scene.service.handle();
    scene.tell(|treasury, sweeper, _| async move {
        funded(&treasury, 100).await;
        treasury.transfer(vec![hold("h", 10, 4_000)]).await.unwrap();
        let shutdown = Shutdown::new();
        let looking = async {
            loop {
                let due = store.read(|rx| {
                    let entries = ledger::all_entries(rx)?;
                    Ok::<_, guild_ledger::Error>(
                        entries.values().map(|e| e.balance.debits_pending).sum::<i64>(),
                    )
                });
                if due.await.unwrap() == 0 {
                    shutdown.trigger();
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        join(sweeper.run(shutdown.clone()), looking).await;
    });
}
