//! A process for each sandbox, on this host.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use guild_hosting::SandboxId;
use guild_hosting::machine::{Instance, Machine, Order};
use guild_protocol::env::Clock;
use guild_sandbox::agent::{ExecRequest, Shape};

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
    until("it was started", async || {
        futures_util::future::select(&mut creating, Real.sleep(1)).await;
        host.agents().len() == 1
    })
    .await;
    drop((creating, machine));
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
    assert_eq!(refused.code().name, "agent.not_leased");
    let refused = machine.resize(&good.sandbox_id, -1, 512).await.unwrap_err();
    assert_eq!(refused.code().name, "hosting.machine_unable");
    machine.destroy(&good.sandbox_id).await.unwrap();
}

#[tokio::test]
async fn a_shape_changes_while_it_runs_and_nobody_dies() {
    /// Holds so much memory, says so, and stays.
    fn holds(mib: u32) -> ExecRequest {
        shell(&format!(
            "exec python3 -uc 'import time; x = bytearray({mib} << 20); x[::4096] = b\"1\" * len(x[::4096]); \
             print(\"held\\n\", end=\"\"); time.sleep(1000)'"
        ))
    }
    let host = Host::new();
    let machine = host.machine();
    let order = order();
    let instance = machine.create(&order).await.unwrap();
    let client = host.link().client_of(&instance).unwrap();
    client.lease(Real.now_ms() + 120_000).await.unwrap();
    let id = &order.sandbox_id;
    let first = client.exec(&holds(100)).await.unwrap();
    let said = client.stream(&first, 1).next().await.unwrap().unwrap();
    assert_eq!(said.data_b64.0, b"held\n");
    let shape = async || client.health().await.unwrap().shape;
    let has = |cpu_milli, memory_mib| Some(Shape { cpu_milli, memory_mib });
    assert_eq!(shape().await, has(1_000, 256), "what it was made with");
    if let Err(error) = machine.resize(id, 1_000, 512).await {
        assert_eq!(shape().await, has(1_000, 256));
        // This host cannot, and says by which layer.
        assert_eq!(error.code().name, "hosting.machine_cannot");
        assert!(error.to_string().contains("cgroup_"), "{error}");
        return;
    }
    assert_eq!(shape().await, has(1_000, 512));
    // What did not fit before fits now.
    let second = client.exec(&holds(250)).await.unwrap();
    let said = client.stream(&second, 1).next().await.unwrap().unwrap();
    assert_eq!(said.data_b64.0, b"held\n");
    // What is in use is not taken away, and nothing else is changed then.
    let refused = machine.resize(id, 100, 200).await.unwrap_err();
    assert_eq!(refused.code().name, "hosting.machine_cannot", "{refused}");
    assert!(refused.to_string().contains("memory"), "{refused}");
    assert_eq!(client.health().await.unwrap().execs, 2, "both still run");
    assert_eq!(shape().await, has(1_000, 512), "what was refused has changed nothing");
    client.signal(&second, 9).await.unwrap();
    client.stream(&second, 1).collect(100).await.unwrap();
    // Whoever ran before computes less from now on, too.
    until("its memory is given back", async || machine.resize(id, 100, 200).await.is_ok()).await;
    assert_eq!(shape().await, has(100, 200));
    let busy = "import time; end = time.time() + 2\nwhile time.time() < end: pass\nprint(int(time.process_time() * 1000))";
    let argv = ["python3", "-c", busy].map(str::to_owned).to_vec();
    let used_ms: u64 = printed(&client, &ExecRequest { argv, ..ExecRequest::default() })
        .await
        .trim()
        .parse()
        .unwrap();
    assert!(used_ms < 1_000, "a tenth of a core gave {used_ms} ms in two seconds");
    assert_eq!(client.health().await.unwrap().execs, 1, "the first still runs");
    let large = client.exec(&holds(250)).await.unwrap();
    let (out, _, _) = client.stream(&large, 1).collect(100).await.unwrap();
    assert_eq!(out, b"", "there is no room for so much any more");
    machine.destroy(id).await.unwrap();
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
    // A process that is just being executed has no command line for a moment.
    let line = format!("/proc/{}/cmdline", fake.id());
    until("it is there", async || fs::read(&line).is_ok_and(|line| !line.is_empty())).await;
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

/// A process and all that it has started.
fn tree(first: i32) -> Vec<i32> {
    let (mut found, mut open) = (Vec::new(), vec![first]);
    while let Some(pid) = open.pop() {
        found.push(pid);
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().flat_map(str::parse::<i32>));
        }
    }
    found
}

/// The cgroups that launchers among these have made: their names say whose they are.
fn cgroups_of(pids: &[i32]) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), vec![std::path::PathBuf::from("/sys/fs/cgroup")]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix("guild-sandbox-").and_then(|rest| rest.split('-').next());
            match owner.and_then(|owner| owner.parse::<i32>().ok()) {
                Some(owner) if pids.contains(&owner) => found.push(name),
                Some(_) => {}
                None if entry.file_type().is_ok_and(|kind| kind.is_dir()) => {
                    open.push(entry.path());
                }
                None => {}
            }
        }
    }
    found
}

#[tokio::test]
async fn stopped_destroyed_or_killed_nothing_of_it_is_left() {
    let host = Host::new();
    let machine = host.machine();
    for how in ["destroyed", "stopped first", "its agent killed"] {
        let order = order();
        let made = machine.create(&order).await.unwrap();
        let client = host.link().client_of(&made).unwrap();
        client.lease(Real.now_ms() + 600_000).await.unwrap();
        let exec =
            client.exec(&shell("sleep 1000 & setsid sleep 1000 & echo up; sleep 1000")).await;
        client.stream(&exec.unwrap(), 1).next().await.unwrap();
        let agent = *host.agents().first().unwrap();
        let pids = tree(agent);
        assert!(pids.len() >= 6, "agent, nursery, launcher, init, keeper, commands: {pids:?}");
        match how {
            "stopped first" => drop(machine.stop(&order.sandbox_id).await.unwrap()),
            "its agent killed" => kill(agent),
            _ => {}
        }
        machine.destroy(&order.sandbox_id).await.unwrap();
        let lives = |pid: &i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        until(how, async || !pids.iter().any(lives)).await;
        until(how, async || cgroups_of(&pids).is_empty()).await;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(host.root().to_str().unwrap()), "{how}");
        assert_eq!(fs::read_dir(host.root()).unwrap().count(), 0, "{how}");
    }
}
