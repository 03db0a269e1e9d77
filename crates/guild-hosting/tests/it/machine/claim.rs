//! Several hosts on one database: each looks after its own machine, and a name belongs to one of them.

use std::sync::Arc;

use guild_hosting::machine::claim::Claim;
use guild_hosting::machine::code;
use guild_hosting::machine::driver::{self as driving, Counts, Driver};
use guild_hosting::machine::image::{Images, Source};
use guild_hosting::machine::link::Link;
use guild_hosting::machine::local::{Local, Options};
use guild_hosting::sandbox::Status;
use guild_protocol::env::Shutdown;

use super::super::world::Node;
use super::{Host, IMAGE, Real, Shop};

fn claim(host: &Host, name: &str) -> Claim {
    Claim::of(name.parse().unwrap(), &host.root(), &Real).unwrap()
}

/// Drives a machine of this name on a host, with a claim to it.
fn drive(shop: &Shop, host: &Host, name: &str) -> (tokio::task::JoinHandle<()>, Counts) {
    let images = Images::new().with(IMAGE.parse().unwrap(), Source::Host);
    let link = Link::new(host.key.clone(), shop.clock.clone(), Arc::new(Real));
    let options = Options { name: name.to_owned(), ..host.options() };
    let machine = Local::new(options, Arc::new(images), link.clone()).unwrap();
    let never: guild_store::outbox::Wake = Box::new(|| Box::pin(std::future::pending()));
    let options = driving::Options { reconcile_ms: 100, ..shop.options.clone() };
    let store = shop.node.store.clone();
    let driver = Driver::new(options, Arc::new(machine), link, store, never).unwrap();
    let driver = driver.claiming(claim(host, name));
    let counts = driver.counts();
    (shop.runtime.spawn(driver.run(Shutdown::new())), counts)
}

fn apart(node: Node) {
    let shop = Shop::on(node);
    let (one, two) = (&shop.host, Host::new());
    let (first, first_counts) = drive(&shop, one, "one");
    let (second, second_counts) = drive(&shop, &two, "two");
    shop.order_as(1, |new| new.machine = "one".to_owned());
    shop.order_as(2, |new| new.machine = "two".to_owned());
    for n in [1, 2] {
        shop.until_status(n, Status::Running);
    }
    assert_eq!((one.agents().len(), two.agents().len()), (1, 1));
    // Each compares again and again, and takes nothing of the other for lost or left.
    shop.pass(1_000);
    for (n, counts) in [(1, &first_counts), (2, &second_counts)] {
        assert_eq!(shop.row(n).status, Status::Running);
        let met = ["lost", "leak", "unclaimed"].map(|word| counts.of(word));
        assert_eq!(met, [0, 0, 0], "{:?}", counts.all());
    }

    // Whoever comes from elsewhere with a name that is taken is refused, and does nothing if it comes all the same.
    let stranger = Host::new();
    let stranger_claim = claim(&stranger, "one");
    let now_ms = shop.now_ms();
    let refused = shop.node.write(move |tx| stranger_claim.require(tx, now_ms)).unwrap_err();
    assert_eq!(refused.code(), &code::MACHINE_TAKEN);
    assert!(refused.to_string().contains("hosting.machine"), "{refused}");
    let (third, third_counts) = drive(&shop, &stranger, "one");
    shop.until("it has tried", || third_counts.of("unclaimed") >= 3);
    shop.order_as(3, |new| new.machine = "one".to_owned());
    shop.until_status(3, Status::Running);
    assert_eq!(shop.row(1).status, Status::Running);
    let done = third_counts.all().keys().copied().filter(|word| *word != "unclaimed").count();
    assert_eq!((done, stranger.agents().len()), (0, 0), "{:?}", third_counts.all());

    // The same directory has it again at once, whoever died.
    first.abort();
    let (again, again_counts) = drive(&shop, one, "one");
    shop.order_as(4, |new| new.machine = "one".to_owned());
    shop.until_status(4, Status::Running);
    assert_eq!((again_counts.of("unclaimed"), again_counts.of("lost")), (0, 0));
    for task in [second, third, again] {
        task.abort();
        let _ = shop.runtime.block_on(task);
    }
}

#[test]
fn two_hosts_leave_each_other_s_sandboxes_alone_on_sqlite() {
    apart(Node::sqlite(guild_store::Hooks::default()));
}

#[test]
fn two_hosts_leave_each_other_s_sandboxes_alone_on_postgres() {
    apart(Node::postgres(guild_store::Hooks::default()));
}

/// A claim that is lost while it is held: the next write is refused, and so is everything after it.
#[test]
fn whoever_lost_its_machine_writes_nothing_more() {
    let shop = Shop::new();
    let (task, counts) = drive(&shop, &shop.host, "local");
    shop.order(1);
    shop.until_status(1, Status::Running);
    let stolen =
        "UPDATE lease SET token = 'another', epoch = epoch + 1 WHERE name = 'machine:local'";
    shop.node
        .write(move |tx| {
            assert_eq!(tx.exec(stolen, guild_store::args![])?, 1);
            Ok(())
        })
        .unwrap();
    shop.order(2);
    shop.until("it has noticed", || counts.of("unclaimed") >= 2);
    assert_eq!((shop.row(1).status, shop.row(2).status), (Status::Running, Status::Starting));
    task.abort();
    let _ = shop.runtime.block_on(task);
}
