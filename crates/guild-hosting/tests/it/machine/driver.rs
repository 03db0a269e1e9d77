//! The life of sandboxes, as the rows want it.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use guild_hosting::machine::image::{Images, Source, tree_digest};
use guild_hosting::machine::{Abilities, Found, Instance, Machine, Order, Stopped, local::Local};
use guild_hosting::sandbox::{self, Reason, Status};
use guild_hosting::{Error, Result, SandboxId, code, meter, money};
use guild_protocol::env::BoxFuture;
use guild_sandbox::agent::{EndedBy, Lease, Party, State};

use super::super::world::{MINUTE_MS, Node, sandbox_id, user};
use super::{Host, OTHER_IMAGE, Real, Shop, kill, order, shell};

fn life(node: Node) {
    let shop = Shop::on(node);
    let counts = shop.drive();
    let id = shop.order(1);
    let row = shop.until_status(1, Status::Running);
    assert_eq!((row.paid_minutes, row.spent), (1, row.price), "the first minute is paid");
    shop.until("it has its lease", || shop.health(&row).leased);
    let health = shop.health(&row);
    assert!(health.run_until_ms < row.ends_ms.unwrap(), "it ends before what is paid does");
    assert_eq!(health.image_version, row.image);

    // Another minute is paid, and its agent hears of it.
    let due_ms = row.ends_ms.unwrap() - 10_000;
    shop.node.write(move |tx| meter::tick(tx, due_ms, 10)).unwrap();
    let later = shop.row(1);
    assert_eq!(later.paid_minutes, 2);
    shop.until("its lease is longer", || {
        shop.health(&row).run_until_ms > health.run_until_ms + MINUTE_MS - 2_000
    });

    // It stands still and goes on.
    let (owner, now_ms) = (user(1), shop.now_ms());
    let pausing = id.clone();
    shop.node.write(move |tx| sandbox::pause(tx, &owner, &pausing, now_ms)).unwrap();
    shop.until("it is frozen", || shop.health(&row).state == State::Frozen);
    let (owner, resuming) = (user(1), id.clone());
    shop.node.write(move |tx| sandbox::resume(tx, &owner, &resuming, now_ms)).unwrap();
    shop.until("it goes on", || shop.health(&row).state == State::Running);

    // It is stopped; its files stay until it is destroyed.
    let client = shop.client(&row);
    shop.runtime.block_on(client.put_file("note", false, b"kept")).unwrap();
    let (owner, stopping) = (user(1), id.clone());
    shop.node.write(move |tx| sandbox::stop(tx, &owner, &stopping, now_ms + 1)).unwrap();
    let row = shop.until_status(1, Status::Stopped);
    assert_eq!(row.stop_reason, Some(Reason::User));
    assert!(row.ran_ms > 0 && row.ran_ms <= row.paid_minutes * MINUTE_MS, "{row:?}");
    assert_eq!(row.lost_units, 0);
    let kept = shop.runtime.block_on(async { client.get_file("note").await?.whole(9).await });
    assert_eq!(kept.unwrap(), b"kept");
    let owner = user(1);
    let now_ms = shop.now_ms();
    shop.node.write(move |tx| sandbox::destroy(tx, &owner, &id, now_ms)).unwrap();
    shop.until_status(1, Status::Destroyed);
    shop.assert_nothing_left();
    // It is counted when it has been done.
    shop.until("it is counted", || counts.of("removed") > 0);
    assert_eq!((counts.of("started"), counts.of("stopped"), counts.of("removed")), (1, 1, 1));
    assert_eq!((counts.of("leak"), counts.of("lost")), (0, 0), "{:?}", counts.all());
    assert_eq!(shop.node.ledger_problems(), Vec::<String>::new());
}

#[test]
fn a_sandbox_lives_as_its_row_says_on_sqlite() {
    life(Node::sqlite(guild_store::Hooks::default()));
}

#[test]
fn a_sandbox_lives_as_its_row_says_on_postgres() {
    life(Node::postgres(guild_store::Hooks::default()));
}

#[test]
fn what_is_removed_before_it_starts_leaves_nothing_and_costs_nothing() {
    let shop = Shop::new();
    let id = shop.order(1);
    let free = shop.node.balance(1).free;
    let (owner, now_ms) = (user(1), shop.now_ms());
    shop.node.write(move |tx| sandbox::stop(tx, &owner, &id, now_ms)).unwrap();
    shop.drive();
    shop.until_status(1, Status::Stopped);
    shop.assert_nothing_left();
    assert!(shop.node.balance(1).free > free, "what was held is given back");
}

#[test]
fn what_runs_and_is_destroyed_is_asked_first_how_long_it_ran() {
    let shop = Shop::new();
    shop.drive();
    let id = shop.order(1);
    let row = shop.until_status(1, Status::Running);
    shop.until("it has its lease", || shop.health(&row).leased);
    let (owner, now_ms) = (user(1), shop.now_ms());
    shop.node.write(move |tx| sandbox::destroy(tx, &owner, &id, now_ms)).unwrap();
    let row = shop.until_status(1, Status::Destroyed);
    assert!(row.ran_ms > 0 && row.lost_units == 0, "{row:?}");
    shop.assert_nothing_left();
}

#[test]
fn twenty_at_once() {
    let shop = Shop::new();
    shop.drive();
    let ids: Vec<SandboxId> = (1..=20).map(|n| shop.order(n)).collect();
    for n in 1..=20 {
        shop.until_status(n, Status::Running);
    }
    assert_eq!(shop.host.agents().len(), 20);
    let door = shop.door();
    let each = ids.iter().map(|id| async {
        let visit = door.enter(&user(1), id).await.unwrap();
        let exec = visit.exec(&shell("echo $((6 * 7))")).await.unwrap();
        visit.stream(&exec, 1).collect(100).await.unwrap().0
    });
    let said = shop.runtime.block_on(futures_util::future::join_all(each));
    assert!(said.iter().all(|said| said == b"42\n"));
    let now_ms = shop.now_ms();
    shop.node
        .write(move |tx| {
            ids.iter().try_for_each(|id| sandbox::destroy(tx, &user(1), id, now_ms).map(drop))
        })
        .unwrap();
    for n in 1..=20 {
        shop.until_status(n, Status::Destroyed);
    }
    shop.assert_nothing_left();
}

#[test]
fn an_agent_that_dies_is_noticed_and_nothing_more_is_paid() {
    let shop = Shop::new();
    let counts = shop.drive();
    shop.order(1);
    let row = shop.until_status(1, Status::Running);
    shop.host.agents().into_iter().for_each(kill);
    let row_after = shop.until_status(1, Status::Failed);
    assert_eq!(row_after.stop_reason, Some(Reason::Machine));
    assert_eq!(row_after.paid_minutes, row.paid_minutes);
    shop.assert_nothing_left();
    assert_eq!(counts.of("lost"), 1);
}

#[test]
fn what_was_lost_while_nobody_looked_is_noticed_too() {
    let shop = Shop::new();
    shop.drive();
    shop.order(1);
    shop.until_status(1, Status::Running);
    shop.kill_driver();
    shop.host.agents().into_iter().for_each(kill);
    std::fs::remove_dir_all(shop.host.root()).unwrap();
    shop.drive();
    shop.until_status(1, Status::Failed);
    shop.assert_nothing_left();
}

#[test]
fn what_nobody_wants_is_removed() {
    let mut shop = Shop::new();
    shop.options.reconcile_ms = 200;
    // One without a row, one whose directory is gone too, one whose row has failed.
    let machine = shop.machine();
    let (planted, hidden) = (order(), order());
    shop.order(1);
    let failed_order = Order { sandbox_id: sandbox_id(1), ..order() };
    shop.runtime.block_on(async {
        for order in [&planted, &hidden, &failed_order] {
            machine.create(order).await.unwrap();
        }
    });
    std::fs::remove_dir_all(shop.host.root().join(hidden.sandbox_id.as_str())).unwrap();
    let now_ms = shop.now_ms();
    shop.node.write(move |tx| sandbox::failed(tx, &sandbox_id(1), "a test", now_ms)).unwrap();
    assert_eq!(shop.host.agents().len(), 3);
    let counts = shop.drive();
    shop.until("the leaks are counted", || counts.of("leak") == 3);
    shop.assert_nothing_left();
    // And nothing that is wanted.
    shop.order(2);
    shop.until_status(2, Status::Running);
    shop.pass(1_000);
    assert_eq!((shop.row(2).status, counts.of("leak")), (Status::Running, 3));
}

#[test]
fn what_cannot_be_removed_keeps_nothing_else() {
    let mut shop = Shop::new();
    shop.options.reconcile_ms = 200;
    let machine = shop.machine();
    shop.runtime.block_on(async {
        for _ in 0..3 {
            machine.create(&order()).await.unwrap();
        }
    });
    let listed = |machine: &Local| -> Vec<SandboxId> {
        let found = shop.runtime.block_on(machine.list()).unwrap();
        found.into_iter().map(|found| found.sandbox_id).collect()
    };
    // The one that is looked at first.
    let stuck = listed(&machine).remove(0);
    shop.drive_on(Arc::new(Odd {
        machine: shop.machine(),
        image: None,
        stuck: Some(stuck.clone()),
    }));
    shop.until("the others are removed", || listed(&machine) == [stuck.clone()]);
    shop.kill_driver();
    shop.drive();
    shop.until("it is removed by another", || listed(&machine).is_empty());
    shop.assert_nothing_left();
}

/// A machine that is not as it should be.
struct Odd {
    machine: Local,
    /// What it makes whatever is ordered.
    image: Option<&'static str>,
    /// What it cannot remove.
    stuck: Option<SandboxId>,
}

impl Machine for Odd {
    fn name(&self) -> &str {
        self.machine.name()
    }
    fn abilities(&self) -> Abilities {
        self.machine.abilities()
    }
    fn create(&self, order: &Order) -> BoxFuture<Result<Instance>> {
        let image = self.image.map_or_else(|| order.image.clone(), str::to_owned);
        self.machine.create(&Order { image, ..order.clone() })
    }
    fn find(&self, id: &SandboxId) -> BoxFuture<Result<Option<Instance>>> {
        self.machine.find(id)
    }
    fn list(&self) -> BoxFuture<Result<Vec<Found>>> {
        self.machine.list()
    }
    fn stop(&self, id: &SandboxId) -> BoxFuture<Result<Stopped>> {
        self.machine.stop(id)
    }
    fn destroy(&self, id: &SandboxId) -> BoxFuture<Result<()>> {
        if self.stuck.as_ref() == Some(id) {
            let error = Error::refused(&code::CANNOT, "it is stuck");
            return Box::pin(ready(Err(error)));
        }
        self.machine.destroy(id)
    }
    fn resize(&self, id: &SandboxId, cpu_milli: i64, ram_mib: i64) -> BoxFuture<Result<()>> {
        self.machine.resize(id, cpu_milli, ram_mib)
    }
}

#[test]
fn what_is_not_what_was_bought_never_runs_and_costs_nothing() {
    let shop = Shop::new();
    let free = shop.node.balance(1).free;
    let (machine, image) = (shop.machine(), Some(OTHER_IMAGE));
    shop.drive_on(Arc::new(Odd { machine, image, stuck: None }));
    shop.order(1);
    let row = shop.until_status(1, Status::Failed);
    assert_eq!((row.stop_reason, row.spent), (Some(Reason::NotStarted), 0));
    assert!(row.words.unwrap().contains(OTHER_IMAGE));
    shop.assert_nothing_left();
    assert_eq!(shop.node.balance(1).free, free);
}

#[test]
fn an_image_that_is_not_listed_never_runs_and_costs_nothing() {
    let shop = Shop::new();
    shop.drive();
    shop.order_as(1, |new| new.image = "sandbox-base:latest".to_owned());
    let row = shop.until_status(1, Status::Failed);
    assert_eq!((row.stop_reason, row.spent), (Some(Reason::NotStarted), 0));
    shop.assert_nothing_left();
}

#[test]
fn an_image_that_was_changed_since_it_was_bought_never_runs_and_costs_nothing() {
    let shop = Shop::new();
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("file"), "another").unwrap();
    let digest = tree_digest(tree.path()).unwrap();
    let source = Source::Directory { path: tree.path().to_owned(), digest };
    let images = Images::new().with(super::IMAGE.parse().unwrap(), source);
    let machine = Local::new(shop.host.options(), Arc::new(images), shop.link()).unwrap();
    shop.drive_on(Arc::new(machine));
    let bought = format!("sha256:{}", "0".repeat(64));
    shop.order_as(1, |new| new.image_digest.clone_from(&bought));
    let row = shop.until_status(1, Status::Failed);
    assert_eq!((row.stop_reason, row.spent), (Some(Reason::NotStarted), 0));
    let words = row.words.unwrap();
    assert!(words.contains(&bought) && words.contains(&digest.to_string()), "{words}");
    shop.assert_nothing_left();
}

/// With nobody left to renew it, the agent ends by itself, before what is paid is over.
#[test]
fn a_lease_that_nobody_renews_ends_the_sandbox_within_what_is_paid() {
    let mut shop = Shop::new().faster(5);
    shop.options.margin_ms = 10_000;
    shop.drive();
    shop.order(1);
    let row = shop.until_status(1, Status::Running);
    shop.until("it has its lease", || shop.health(&row).leased);
    let client = shop.client(&row);
    shop.runtime.block_on(client.exec(&shell("sleep 100000"))).unwrap();
    // Driver and meter are dead.
    shop.kill_driver();
    shop.until("it has ended by itself", || shop.health(&row).class.is_some());
    let health = shop.health(&row);
    assert_eq!(health.ended_by, Some(EndedBy::Lease));
    assert!(health.ran_ms <= MINUTE_MS, "{health:?}");
    // They come back: what was not paid is not billed, and what is paid was enough.
    let counts = shop.drive();
    shop.until("what is paid is over", || shop.now_ms() > row.ends_ms.unwrap());
    assert_eq!(shop.row(1).status, Status::Running, "the meter has the word: {:?}", counts.all());
    let now_ms = shop.now_ms();
    shop.node.write(move |tx| meter::tick(tx, now_ms, 10)).unwrap();
    let row = shop.until_status(1, Status::Stopped);
    assert_eq!((row.stop_reason, row.paid_minutes), (Some(Reason::MeterGap), 1));
    assert_eq!((row.ran_ms, row.lost_units), (health.ran_ms, 0));
}

#[test]
fn what_is_paid_ends_at_its_end_with_meter_and_driver_alive() {
    let mut shop = Shop::new().faster(5);
    shop.options.margin_ms = 5_000;
    shop.drive();
    // It can pay for two minutes.
    shop.order_as(1, |new| new.cap = 2 * 908);
    let price = shop.row(1).price;
    assert_eq!(price, 908, "the cap above is meant to be two minutes");
    shop.until_status(1, Status::Running);
    shop.until("it is stopped", || {
        let now_ms = shop.now_ms();
        shop.node.write(move |tx| meter::tick(tx, now_ms, 10)).unwrap();
        shop.row(1).status == Status::Stopped
    });
    let row = shop.row(1);
    assert_eq!((row.stop_reason, row.paid_minutes), (Some(Reason::SandboxCap), 2));
    assert!(row.ran_ms > MINUTE_MS && row.ran_ms <= 2 * MINUTE_MS, "{row:?}");
    assert_eq!((row.spent, row.lost_units), (2 * price, 0));
}

#[test]
fn an_old_lease_gives_no_time_and_one_for_another_agent_none_either() {
    let shop = Shop::new();
    shop.drive();
    shop.order(1);
    let row = shop.until_status(1, Status::Running);
    shop.until("it has its lease", || shop.health(&row).leased);
    shop.kill_driver();
    let client = shop.client(&row);
    let stands = shop.health(&row).run_until_ms;
    let signed = |party: &Party, issued_ms| {
        Lease::until(party, stands + MINUTE_MS, issued_ms, &*shop.host.key).unwrap()
    };
    let old = signed(client.party(), row.started_ms.unwrap() - 1_000);
    let answer = shop.runtime.block_on(client.send_lease(&old)).unwrap();
    assert_eq!((answer.changed, answer.run_until_ms), (false, stands));
    let stranger = guild_protocol::identity::SecretKey::make(&Real);
    let stranger = guild_protocol::env::Signer::public_key(&stranger);
    let other = Party { agent: stranger, ..client.party().clone() };
    let error = shop.runtime.block_on(client.send_lease(&signed(&other, shop.now_ms())));
    assert_eq!(error.unwrap_err().code().name, "agent.wrong_signature");
    assert_eq!(shop.health(&row).run_until_ms, stands);
}

/// A machine that cannot be asked for a while.
struct Moody(Local, Arc<AtomicBool>);

impl Moody {
    fn or<T: Send + 'static>(&self, asked: BoxFuture<Result<T>>) -> BoxFuture<Result<T>> {
        if self.1.load(Ordering::SeqCst) {
            return asked;
        }
        let code = &guild_hosting::machine::code::MACHINE;
        Box::pin(std::future::ready(Err(guild_hosting::Error::refused(code, "not now"))))
    }
}

impl Machine for Moody {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn create(&self, order: &Order) -> BoxFuture<Result<Instance>> {
        self.or(self.0.create(order))
    }
    fn find(&self, id: &SandboxId) -> BoxFuture<Result<Option<Instance>>> {
        self.or(self.0.find(id))
    }
    fn list(&self) -> BoxFuture<Result<Vec<Found>>> {
        self.or(self.0.list())
    }
    fn stop(&self, id: &SandboxId) -> BoxFuture<Result<Stopped>> {
        self.or(self.0.stop(id))
    }
    fn destroy(&self, id: &SandboxId) -> BoxFuture<Result<()>> {
        self.or(self.0.destroy(id))
    }
    fn resize(&self, id: &SandboxId, cpu_milli: i64, ram_mib: i64) -> BoxFuture<Result<()>> {
        self.0.resize(id, cpu_milli, ram_mib)
    }
}

#[test]
fn a_machine_that_fails_is_tried_again_and_given_up_without_cost() {
    let mut shop = Shop::new();
    shop.options.start_tries = 1_000;
    let good = Arc::new(AtomicBool::new(false));
    let counts = shop.drive_on(Arc::new(Moody(shop.machine(), good.clone())));
    shop.order(1);
    shop.until("it was tried", || counts.of("error") >= 3);
    assert_eq!(shop.row(1).status, Status::Starting);
    good.store(true, Ordering::SeqCst);
    shop.until_status(1, Status::Running);

    shop.options.start_tries = 2;
    shop.kill_driver();
    let free = shop.node.balance(1).free;
    good.store(false, Ordering::SeqCst);
    shop.order(2);
    let counts = shop.drive_on(Arc::new(Moody(shop.machine(), good.clone())));
    // It cannot be removed either, so it is not given up yet.
    shop.until("it was tried", || counts.of("error") >= 4);
    assert_eq!(shop.row(2).status, Status::Starting);
    good.store(true, Ordering::SeqCst);
    shop.until("it runs or is given up", || shop.row(2).status != Status::Starting);
    let row = shop.row(2);
    let spent = if row.status == Status::Running { row.price } else { 0 };
    assert_eq!(shop.node.balance(1).free, free - spent);
    assert_eq!(shop.node.read(|rx| money::balance(rx, &user(1))).held, 0);
}

#[test]
fn hosts_do_not_see_each_other() {
    let (one, other) = (Host::new(), Host::new());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let order = order();
        one.machine().create(&order).await.unwrap();
        assert_eq!(other.machine().list().await.unwrap(), []);
        other.machine().destroy(&order.sandbox_id).await.unwrap();
        assert_eq!(one.agents().len(), 1);
    });
}

#[test]
fn an_agent_that_waited_too_long_is_replaced_before_anything_is_paid() {
    let shop = Shop::new();
    let id = shop.order(1);
    // A node made it long ago and died.
    let order = Order { sandbox_id: id, ..order() };
    let machine = shop.machine();
    let old = shop.runtime.block_on(async {
        let made = machine.create(&order).await.unwrap();
        shop.link().client_of(&made).unwrap().stop().await.unwrap();
        made
    });
    shop.drive();
    let row = shop.until_status(1, Status::Running);
    assert_ne!(row.agent_key.as_deref(), Some(old.agent_key.hex().as_str()));
    shop.until("it has its lease", || shop.health(&row).leased);
    assert_eq!((shop.host.agents().len(), shop.row(1).paid_minutes), (1, 1));
}
