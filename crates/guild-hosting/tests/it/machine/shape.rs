//! The shape that a sandbox has is the one that is paid, whoever gave it another, and whoever forgot.

use std::sync::{Arc, Mutex};

use guild_hosting::clamp::Policy;
use guild_hosting::machine::link::{Line, Link};
use guild_hosting::machine::{Abilities, Found, Instance, Machine, Order, Stopped, local::Local};
use guild_hosting::price::Shape;
use guild_hosting::sandbox::{self, Status};
use guild_hosting::{Error, Result, SandboxId};
use guild_protocol::env::BoxFuture;
use guild_sandbox::agent::{self, Attestation, Client, Health, Lease, LeaseStands};
use guild_store::{Tx, args};

use super::super::world::user;
use super::{SMALL, Shop};

/// What a sandbox may use, and who did what with it.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    cpu_milli: i64,
    ram_mib: i64,
    given: u32,
    looks: u32,
}

impl Held {
    fn shape(&self) -> (i64, i64) {
        let held = self.0.lock().unwrap();
        (held.cpu_milli, held.ram_mib)
    }

    /// By somebody else than the driver.
    fn set(&self, cpu_milli: i64, ram_mib: i64) {
        let mut held = self.0.lock().unwrap();
        (held.cpu_milli, held.ram_mib) = (cpu_milli, ram_mib);
    }

    /// How often the driver gave it another.
    fn given(&self) -> u32 {
        self.0.lock().unwrap().given
    }

    /// How often its agent was asked how it is.
    fn looks(&self) -> u32 {
        self.0.lock().unwrap().looks
    }
}

/// A host that can give other shapes wherever the test runs.
struct Elastic {
    inner: Local,
    held: Held,
    /// Whether its agents say what they have.
    says: bool,
}

impl Machine for Elastic {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn abilities(&self) -> Abilities {
        Abilities { resize: true, ..self.inner.abilities() }
    }
    fn create(&self, order: &Order) -> BoxFuture<Result<Instance>> {
        self.held.set(order.cpu_milli, order.ram_mib);
        self.inner.create(order)
    }
    fn find(&self, id: &SandboxId) -> BoxFuture<Result<Option<Instance>>> {
        self.inner.find(id)
    }
    fn list(&self) -> BoxFuture<Result<Vec<Found>>> {
        self.inner.list()
    }
    fn stop(&self, id: &SandboxId) -> BoxFuture<Result<Stopped>> {
        self.inner.stop(id)
    }
    fn destroy(&self, id: &SandboxId) -> BoxFuture<Result<()>> {
        self.inner.destroy(id)
    }
    fn resize(&self, _: &SandboxId, cpu_milli: i64, ram_mib: i64) -> BoxFuture<Result<()>> {
        self.held.set(cpu_milli, ram_mib);
        self.held.0.lock().unwrap().given += 1;
        Box::pin(std::future::ready(Ok(())))
    }
    fn line(&self, link: &Link, instance: &Instance) -> Result<Box<dyn Line>> {
        let (client, held) = (link.client_of(instance)?, self.held.clone());
        Ok(Box::new(Says { client, held, says: self.says }))
    }
}

/// An agent, but for the shape.
struct Says {
    client: Client,
    held: Held,
    says: bool,
}

impl Line for Says {
    fn attestation(&self) -> BoxFuture<agent::Result<Attestation>> {
        Line::attestation(&self.client)
    }
    fn health(&self) -> BoxFuture<agent::Result<Health>> {
        let (health, held, says) = (Line::health(&self.client), self.held.clone(), self.says);
        Box::pin(async move {
            held.0.lock().unwrap().looks += 1;
            let (cpu_milli, ram_mib) = held.shape();
            let (cpu_milli, memory_mib) = (cpu_milli.try_into().unwrap(), ram_mib.unsigned_abs());
            let shape = says.then_some(agent::Shape { cpu_milli, memory_mib });
            Ok(Health { shape, ..health.await? })
        })
    }
    fn lease(&self, lease: Lease) -> BoxFuture<agent::Result<LeaseStands>> {
        Line::lease(&self.client, lease)
    }
    fn set_frozen(&self, frozen: bool) -> BoxFuture<agent::Result<()>> {
        Line::set_frozen(&self.client, frozen)
    }
}

fn drive(shop: &Shop, held: &Held, says: bool) {
    let machine = Elastic { inner: shop.machine(), held: held.clone(), says };
    shop.drive_on(Arc::new(machine));
}

fn of(shape: Shape) -> (i64, i64) {
    (shape.cpu_milli, shape.ram_mib)
}

/// A sandbox that runs and has its lease.
fn running(says: bool) -> (Shop, Held, SandboxId) {
    let (shop, held) = (Shop::new(), Held::default());
    drive(&shop, &held, says);
    let id = shop.order(1);
    let row = shop.until_status(1, Status::Running);
    shop.until("it has its lease", || shop.health(&row).leased);
    assert_eq!(held.shape(), of(SMALL));
    (shop, held, id)
}

fn resize(shop: &Shop, id: &SandboxId, shape: Shape) {
    let (id, version, now_ms) = (id.clone(), shop.row(1).version, shop.now_ms());
    let resize = move |tx: &mut Tx<'_>| {
        sandbox::resize(tx, &user(1), &id, version, &shape, &Policy::default(), now_ms)
    };
    shop.node.write(resize).unwrap();
}

#[test]
fn what_somebody_else_gave_too_late_is_taken_away_again() {
    let (shop, held, id) = running(true);
    let less = Shape { ram_mib: 128, ..SMALL };
    resize(&shop, &id, less);
    shop.until("it gets less", || held.shape() == of(less));
    shop.until("its driver has done so", || held.given() == 1);
    // The word of somebody who was refused, and gave back what he had read before, comes only now.
    held.set(SMALL.cpu_milli, SMALL.ram_mib);
    shop.until("it has again what is paid", || held.shape() == of(less));
}

#[test]
fn what_is_paid_reaches_it_after_a_new_start_of_its_driver() {
    for says in [true, false] {
        let (shop, held, _) = running(says);
        shop.kill_driver();
        let more = Shape { ram_mib: 512, ..SMALL };
        // It was resized, and the minutes of its old shape are over: of all this its driver has heard nothing.
        let begun = "UPDATE hosting_sandbox SET ram_mib = $1";
        let paid = move |tx: &mut Tx<'_>| Ok::<_, Error>(tx.exec(begun, args![more.ram_mib])?);
        shop.node.write(paid).unwrap();
        assert_eq!(held.shape(), of(SMALL), "nobody gave it anything yet");
        drive(&shop, &held, says);
        shop.until("it has what is paid", || held.shape() == of(more));
    }
}

#[test]
fn what_is_as_it_should_be_is_given_nothing() {
    for says in [true, false] {
        let (shop, held, _) = running(says);
        shop.until("it was looked at", || held.looks() >= 3);
        assert_eq!((held.given(), held.shape()), (0, of(SMALL)));
    }
}
