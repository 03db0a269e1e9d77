//! A process for each sandbox, on this host.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use guild_hosting::SandboxId;
use guild_hosting::machine::{Instance, Machine, Order};
use guild_protocol::env::Clock;

use super::{Host, Real, kill, order, printed, shell, until};

async fn runs(host: &Host, instance: &Instance) -> String {
    let client = host.link().client_of(instance).unwrap();
    printed(&client, &shell("echo here; cat note 2>/dev/null")).await
}

#[tokio::test]
async fn it_is_made_once_found_again_stopped_and_removed() {
    let host = Host::new();
    let machine = host.machine();
    let order = order();
    let made = machine.create(&order).await.unwrap();
    assert_eq!(machine.create(&order).await.unwrap(), made, "asking twice makes one");
    assert_eq!(host.agents().len(), 1);
    let client = host.link().client_of(&made).unwrap();
    assert_eq!(client.exec(&shell("true")).await.unwrap_err().code().name, "agent.not_leased");
    client.lease(Real.now_ms() + 600_000).await.unwrap();
    client.put_file("note", false, b"kept").await.unwrap();

    // The node is started anew.
    let machine = host.machine();
    assert_eq!(machine.find(&order.sandbox_id).await.unwrap(), Some(made.clone()));
    let found = machine.list().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].instance, Some(made.clone()));
    assert_eq!(runs(&host, &made).await, "here\nkept");

    let stopped = machine.stop(&order.sandbox_id).await.unwrap();
    assert!(stopped.keeps_files && stopped.ran_ms.unwrap() > 0, "{stopped:?}");
    assert_eq!(machine.stop(&order.sandbox_id).await.unwrap(), stopped, "again");
    assert_eq!(client.exec(&shell("true")).await.unwrap_err().code().name, "agent.ended");
    assert_eq!(client.get_file("note").await.unwrap().whole(9).await.unwrap(), b"kept");

    machine.destroy(&order.sandbox_id).await.unwrap();
    machine.destroy(&order.sandbox_id).await.unwrap();
    assert!(host.agents().is_empty());
    assert_eq!(fs::read_dir(host.root()).unwrap().count(), 0);
    assert_eq!(machine.find(&order.sandbox_id).await.unwrap(), None);
    assert_eq!(machine.list().await.unwrap(), []);
}

#[tokio::test]
async fn its_directory_is_for_nobody_else_and_holds_no_secret_key() {
    let host = Host::new();
    let machine = host.machine();
    let order = order();
    machine.create(&order).await.unwrap();
    let directory = host.root().join(order.sandbox_id.as_str());
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(host.root()), mode(directory.clone())), (0o700, 0o700));
    let names: Vec<String> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected = ["agent.json", "log", "order.json", "ready.json"];
    assert!(names.iter().all(|name| expected.contains(&name.as_str())), "{names:?}");
    machine.destroy(&order.sandbox_id).await.unwrap();
}

#[tokio::test]
async fn whatever_was_done_when_the_node_died_the_next_one_goes_on() {
    let host = Host::new();
    let order = order();
    let directory = host.root().join(order.sandbox_id.as_str());

    // It died while it waited for the agent: the process is there, nobody has written about it.
    let machine = host.machine();
    let mut creating = machine.create(&order);
    futures_util::future::select(&mut creating, Real.sleep(1)).await;
    drop((creating, machine));
    assert_eq!(host.agents().len(), 1, "it was started");
    let made = host.machine().create(&order).await.unwrap();
    assert_eq!(host.agents().len(), 1, "and it was taken over");

    // It died before it wrote down what the agent said.
    fs::remove_file(directory.join("agent.json")).unwrap();
    assert_eq!(host.machine().create(&order).await.unwrap(), made);

    // It died between the order and the start, or the agent died: another is started, with another key.
    host.agents().into_iter().for_each(kill);
    until("the agent is gone", async || host.agents().is_empty()).await;
    assert_eq!(host.machine().find(&order.sandbox_id).await.unwrap(), None);
    let again = host.machine().create(&order).await.unwrap();
    assert_ne!(again.agent_key, made.agent_key);
    assert_eq!(host.agents().len(), 1);
    assert_eq!(host.machine().create(&order).await.unwrap(), again);
    host.machine().destroy(&order.sandbox_id).await.unwrap();
    assert!(host.agents().is_empty());
}

#[tokio::test]
async fn a_process_without_directory_is_seen_and_removed() {
    let host = Host::new();
    let machine = host.machine();
    let order = order();
    machine.create(&order).await.unwrap();
    fs::remove_dir_all(host.root().join(order.sandbox_id.as_str())).unwrap();
    let found = machine.list().await.unwrap();
    assert_eq!((found.len(), found[0].instance.is_none()), (1, true));
    assert_eq!(found[0].sandbox_id, order.sandbox_id);
    machine.destroy(&order.sandbox_id).await.unwrap();
    assert!(host.agents().is_empty());
}

#[tokio::test]
async fn what_cannot_be_made_is_said_and_can_be_removed() {
    let host = Host::new();
    let machine = host.machine();
    let good = order();
    for (image, code) in [
        ("sandbox-base:latest", "hosting.no_such_image"),
        ("sandbox-base:v8.8.8", "hosting.no_such_image"),
    ] {
        let order = Order { image: image.to_owned(), ..good.clone() };
        assert_eq!(machine.create(&order).await.unwrap_err().code().name, code);
    }
    assert_eq!(machine.list().await.unwrap(), [], "and nothing of it is left");

    // An agent that ends says why.
    let order = Order { cpu_milli: 1 << 40, ..good.clone() };
    let error = machine.create(&order).await.unwrap_err();
    assert_eq!(error.code().name, "hosting.machine_failed");
    assert!(error.to_string().contains("number too large"), "{error}");
    assert_eq!(machine.list().await.unwrap().len(), 1);
    machine.destroy(&order.sandbox_id).await.unwrap();
    assert_eq!(machine.list().await.unwrap(), []);

    // The same name for something else.
    machine.create(&good).await.unwrap();
    let other = Order { ram_mib: 512, ..good.clone() };
    assert_eq!(machine.create(&other).await.unwrap_err().code().name, "hosting.machine_failed");
    let refused = machine.resize(&good.sandbox_id, 2_000, 512).await.unwrap_err();
    assert_eq!(refused.code().name, "hosting.machine_unable");
    machine.destroy(&good.sandbox_id).await.unwrap();
}

#[tokio::test]
async fn a_program_that_calls_itself_an_agent_is_none() {
    let host = Host::new();
    let machine = host.machine();
    let order = order();
    let directory = host.root().join(order.sandbox_id.as_str());
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("ready.json");
    let mut fake = std::process::Command::new("sh")
        .args(["-c", "read forever", "sh", "--ready-file", path.to_str().unwrap()])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // A lie about where it is is not believed either: only this host's own addresses are.
    let agent = guild_protocol::env::Signer::public_key(&*host.key);
    let ready = serde_json::json!({
        "address": "192.0.2.1:80",
        "sandbox_id": order.sandbox_id.as_str().replace("sbx", "sandbox"),
        "agent": agent,
        "pid": fake.id(),
    });
    fs::write(&path, ready.to_string()).unwrap();
    assert!(machine.find(&order.sandbox_id).await.is_err());
    assert_eq!(machine.list().await.unwrap()[0].instance, None);
    machine.destroy(&order.sandbox_id).await.unwrap();
    assert!(!fake.wait().unwrap().success(), "it was ended");
    assert_eq!(machine.list().await.unwrap(), []);
}

#[tokio::test]
async fn twenty_at_once_and_nothing_is_left() {
    let host = Host::new();
    let machine = host.machine();
    let orders: Vec<Order> = (0..20).map(|_| order()).collect();
    let made = futures_util::future::join_all(orders.iter().map(|order| machine.create(order)));
    let made: Vec<Instance> = made.await.into_iter().map(Result::unwrap).collect();
    let keys: std::collections::BTreeSet<String> =
        made.iter().map(|instance| instance.agent_key.hex()).collect();
    assert_eq!((keys.len(), host.agents().len()), (20, 20));
    let each = made.iter().map(|instance| async {
        let client = host.link().client_of(instance).unwrap();
        client.lease(Real.now_ms() + 600_000).await.unwrap();
        runs(&host, instance).await
    });
    let said = futures_util::future::join_all(each).await;
    assert!(said.iter().all(|said| said == "here\n"), "{said:?}");
    let ids: Vec<&SandboxId> = orders.iter().map(|order| &order.sandbox_id).collect();
    let gone = futures_util::future::join_all(ids.iter().map(|id| machine.destroy(id))).await;
    gone.into_iter().for_each(Result::unwrap);
    assert!(host.agents().is_empty());
    assert_eq!(fs::read_dir(host.root()).unwrap().count(), 0);
}
