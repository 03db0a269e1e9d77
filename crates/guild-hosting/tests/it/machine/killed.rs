//! The node dies at every step, and the next one goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use guild_hosting::machine::{Abilities, Found, Instance, Machine, Order, Stopped, local::Local};
use guild_hosting::sandbox::{self, Status};
use guild_hosting::{Result, SandboxId};
use guild_protocol::env::BoxFuture;

use super::super::world::user;
use super::Shop;

/// Nobody hears of anything from a call on: before that call has done anything, or after it has done it.
struct Dies {
    machine: Local,
    left: AtomicU32,
    after: bool,
    dead: Arc<AtomicBool>,
}

impl Dies {
    fn call<T: Send + 'static>(&self, call: BoxFuture<Result<T>>) -> BoxFuture<Result<T>> {
        let (after, dead) = (self.after, self.dead.clone());
        let counted =
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if counted != Ok(1) && !dead.load(Ordering::SeqCst) {
            return call;
        }
        Box::pin(async move {
            if after && !dead.load(Ordering::SeqCst) {
                let _ = call.await;
            }
            dead.store(true, Ordering::SeqCst);
            std::future::pending().await
        })
    }
}

impl Machine for Dies {
    fn name(&self) -> &str {
        self.machine.name()
    }
    fn abilities(&self) -> Abilities {
        self.machine.abilities()
    }
    fn create(&self, order: &Order) -> BoxFuture<Result<Instance>> {
        self.call(self.machine.create(order))
    }
    fn find(&self, id: &SandboxId) -> BoxFuture<Result<Option<Instance>>> {
        self.call(self.machine.find(id))
    }
    // Comparing would count at any time: the calls that matter are those that change something.
    fn list(&self) -> BoxFuture<Result<Vec<Found>>> {
        self.machine.list()
    }
    fn stop(&self, id: &SandboxId) -> BoxFuture<Result<Stopped>> {
        self.call(self.machine.stop(id))
    }
    fn destroy(&self, id: &SandboxId) -> BoxFuture<Result<()>> {
        self.call(self.machine.destroy(id))
    }
    fn resize(&self, id: &SandboxId, cpu_milli: i64, ram_mib: i64) -> BoxFuture<Result<()>> {
        self.machine.resize(id, cpu_milli, ram_mib)
    }
}

/// Lets the node die at its first call from now on, and starts another.
fn die_once(shop: &Shop, after: bool) {
    let dead = Arc::new(AtomicBool::new(false));
    let machine =
        Dies { machine: shop.machine(), left: AtomicU32::new(1), after, dead: dead.clone() };
    shop.drive_on(Arc::new(machine));
    shop.until("the node dies", || dead.load(Ordering::SeqCst));
    shop.kill_driver();
    shop.drive();
}

#[test]
fn killed_before_and_after_everything_that_a_machine_does() {
    for after in [false, true] {
        let shop = Shop::new();
        let before = shop.node.balance(1).free;
        let id = shop.order(1);
        die_once(&shop, after);
        let row = shop.until_status(1, Status::Running);
        assert_eq!(shop.host.agents().len(), 1, "it was made once");
        shop.until("it has its lease", || shop.health(&row).leased);
        shop.kill_driver();
        let (stopped, now_ms) = (id.clone(), shop.now_ms());
        shop.node.write(move |tx| sandbox::stop(tx, &user(1), &stopped, now_ms)).unwrap();
        die_once(&shop, after);
        let row = shop.until_status(1, Status::Stopped);
        assert!(row.ran_ms > 0, "how long it ran is known all the same: {row:?}");
        shop.kill_driver();
        let now_ms = shop.now_ms();
        shop.node.write(move |tx| sandbox::destroy(tx, &user(1), &id, now_ms)).unwrap();
        die_once(&shop, after);
        let row = shop.until_status(1, Status::Destroyed);
        shop.assert_nothing_left();
        assert_eq!((row.paid_minutes, shop.node.balance(1).free), (1, before - row.price));
        assert_eq!(shop.node.ledger_problems(), Vec::<String>::new());
    }
}

#[test]
fn killed_again_and_again_at_any_moment() {
    let shop = Shop::new();
    let before = shop.node.balance(1).free;
    for n in 1..=4 {
        shop.order(n);
    }
    // Each node lives a little longer than the one before.
    let mut lives_ms = 1;
    while (1..=4).any(|n| shop.row(n).status != Status::Running) {
        shop.drive();
        shop.pass(lives_ms);
        shop.kill_driver();
        lives_ms += 7;
        assert!(
            lives_ms < 20_000,
            "they never run: {:?}",
            [1, 2, 3, 4].map(|n| shop.row(n).status)
        );
    }
    assert_eq!(shop.host.agents().len(), 4);
    for n in 1..=4 {
        let row = shop.row(n);
        let machine = shop.machine();
        let found = shop.runtime.block_on(machine.find(&row.sandbox_id)).unwrap().unwrap();
        assert_eq!(Some(found.agent_key.hex()), row.agent_key, "the agent that the row names");
        let (id, now_ms) = (row.sandbox_id, shop.now_ms());
        shop.node.write(move |tx| sandbox::destroy(tx, &user(1), &id, now_ms)).unwrap();
    }
    lives_ms = 1;
    while (1..=4).any(|n| shop.row(n).status != Status::Destroyed) {
        shop.drive();
        shop.pass(lives_ms);
        shop.kill_driver();
        lives_ms += 7;
        assert!(lives_ms < 20_000, "they are never gone");
    }
    shop.assert_nothing_left();
    let price = shop.row(1).price;
    assert_eq!(shop.node.balance(1).free, before - 4 * price, "each paid its minute once");
    assert_eq!(shop.node.ledger_problems(), Vec::<String>::new());
}
