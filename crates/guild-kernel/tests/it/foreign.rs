//! A tool of another make: the program of `docs/tools.md`, in Python, over a real server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use futures_util::StreamExt;
use guild_bus::Bus;
use guild_bus::mail::{Letter, Limits, Mail, Nats};
use guild_bus::nats::Options;
use guild_bus::subject::{Topic, WorkerTarget};
use guild_kernel::ToolCallId;
use guild_kernel::inbox::Outcome;
use guild_kernel::outside::{DeskOptions, Doorbell};
use guild_kernel::roster::AfterExecution;
use guild_kernel::turn::{Call, Committed, Then};
use guild_protocol::env::{Clock, Shutdown};
use serde_json::{Value, json};
use testbed::Nats as Server;

use crate::outside::{happened, place};
use crate::post::{Counting, Office};
use crate::world::{Node, TIMEOUT_MS, call, success};

/// The program that the page shows.
fn script() -> &'static str {
    let page = include_str!("../../../../docs/tools.md");
    let (_, rest) = page.split_once("```python\n").unwrap();
    rest.split_once("```\n").unwrap().0
}

/// The program, running. Killed with SIGKILL when it is dropped.
struct Shop {
    process: Child,
    said: Receiver<String>,
}

impl Shop {
    fn start(url: &str, name: &str, seconds: &str) -> Shop {
        let mut command = Command::new("python3");
        command
            .args(["-c", script()])
            .env("PYTHONPATH", testbed::nats_py::directory().unwrap())
            .env("NATS_URL", url)
            .env("SHOP_NAME", name)
            .env("SHOP_SECONDS", seconds)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = process.stdout.take().unwrap();
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                drop(sender.send(line.trim().to_owned()));
            }
        });
        Shop { process, said }
    }

    /// The next thing that it says; one that says nothing has failed.
    fn line(&mut self) -> String {
        self.said.recv_timeout(Duration::from_secs(60)).unwrap()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An office whose mail goes over this server, with everything running.
fn office<'n>(node: &'n Node, server: &Server) -> Office<'n> {
    let office = Office::with(node, "guild", |runtime, clock| {
        let options = Options { url: server.url(), ..Options::default() };
        let random = Arc::new(Counting::default());
        let (mail, service) =
            Nats::new(&options, Limits::default(), clock.clone(), random).unwrap();
        runtime.spawn(service.run(Shutdown::new()));
        while !mail.status().connected {
            runtime.block_on(clock.sleep(5));
        }
        Arc::new(mail) as Arc<dyn Mail>
    });
    office.drain();
    office.desk(DeskOptions::default());
    office
}

/// Turn `n` calls the shop and waits.
fn buy(office: &Office<'_>, n: u32, arguments: Value) -> ToolCallId {
    let now_ms = office.clock.now_ms();
    office.node.ask(n, n, now_ms);
    let fence = office.node.take(n, now_ms);
    let buy = Call {
        tool_name: "buy".to_owned(),
        arguments,
        target_subject: Some("cmd.tool.shop.buy".to_owned()),
        after_execution: AfterExecution::Suspend,
        timeout_ms: TIMEOUT_MS * 20,
        ..call(0)
    };
    match office.node.commit(&fence, Then::Suspend(vec![buy]), now_ms).unwrap() {
        Committed::Suspended { mut calls, .. } => calls.remove(0),
        other => panic!("{other:?}"),
    }
}

/// What came out of a call, and the turn goes on to its end.
fn finish(office: &Office<'_>, n: u32, call: &ToolCallId) -> Value {
    let node = office.node;
    let id = call.clone();
    let cards = node.read(move |rx| guild_kernel::card::results(rx, &[&id]));
    let fence = node.take(1_000 + n, office.clock.now_ms());
    node.commit(&fence, success(), office.clock.now_ms()).unwrap();
    assert_eq!(node.ended(&fence.agent_turn_id).0, Some(Outcome::Success));
    assert_eq!(cards.len(), 1, "one result");
    assert_eq!(cards[0].author_id, "tool.shop");
    serde_json::from_str(&cards[0].content).unwrap()
}

#[test]
fn a_foreign_tool_is_killed_answers_twice_and_late_and_every_call_has_one_result() {
    let server = Server::start_with_streams().unwrap();
    let node = Node::postgres(Default::default());
    let office = office(&node, &server);
    let mut shop = Shop::start(&server.url(), "shop", "0");
    assert_eq!(shop.line(), "ready: commands are kept");

    let call = buy(&office, 1, json!({ "item": "tea" }));
    assert_eq!(shop.line(), r#"called: {"item": "tea"}"#);
    assert_eq!(shop.line(), "reported: applied");
    assert_eq!(finish(&office, 1, &call)["result"], json!({ "bought": "tea" }));
    let call = buy(&office, 2, json!({}));
    assert_eq!((shop.line(), shop.line()), ("called: {}".into(), "reported: applied".into()));
    assert_eq!(finish(&office, 2, &call)["error"]["code"], "shop.no_item");
    drop(shop);

    // Killed in the middle: what it was handed comes to the next one.
    let mut slow = Shop::start(&server.url(), "shop", "1000");
    assert_eq!(slow.line(), "ready: commands are kept");
    let call = buy(&office, 3, json!({ "item": "milk" }));
    assert_eq!(slow.line(), r#"called: {"item": "milk"}"#);
    drop(slow);
    let mut shop = Shop::start(&server.url(), "shop", "0");
    assert_eq!(shop.line(), "ready: commands are kept");
    assert_eq!(
        (shop.line(), shop.line()),
        (r#"called: {"item": "milk"}"#.into(), "reported: applied".into())
    );
    assert_eq!(finish(&office, 3, &call)["result"], json!({ "bought": "milk" }));

    // Twice: another one takes the same command and takes longer.
    let mut other = Shop::start(&server.url(), "other", "2");
    assert_eq!(other.line(), "ready: commands are kept");
    for _ in 0..3 {
        assert_eq!(other.line(), "not wanted: kernel.answered", "what is over is not done again");
    }
    let call = buy(&office, 4, json!({ "item": "salt" }));
    assert_eq!(
        (shop.line(), shop.line()),
        (r#"called: {"item": "salt"}"#.into(), "reported: applied".into())
    );
    // It asked before the first had reported, or after.
    match other.line().as_str() {
        r#"called: {"item": "salt"}"# => assert_eq!(other.line(), "reported: known"),
        said => assert_eq!(said, "not wanted: kernel.answered"),
    }
    finish(&office, 4, &call);
    drop((shop, other));

    // Late: the turn has given the call up, and its result is that.
    let mut late = Shop::start(&server.url(), "shop", "3");
    assert_eq!(late.line(), "ready: commands are kept");
    let call = buy(&office, 5, json!({ "item": "rice" }));
    assert_eq!(late.line(), r#"called: {"item": "rice"}"#);
    office.clock.jump(TIMEOUT_MS * 20);
    assert!(node.sweep(office.clock.now_ms()) > 0);
    assert_eq!(late.line(), "reported: skipped kernel.answered");
    let cards = node.read(move |rx| guild_kernel::card::results(rx, &[&call]));
    assert_eq!(cards.len(), 1);
    assert!(cards[0].content.contains("kernel.tool_timeout"), "{}", cards[0].content);
    node.assert_well();

    // Whoever comes later finds all that has happened in the stream, each once.
    office.teller("one", office.mail.clone());
    let happened = happened(&node);
    office.until(|| place(&node) == happened.last().map(|(seq, _)| *seq));
    let info = Topic::parse("$JS.API.STREAM.INFO.guild_v1_evt").unwrap();
    let answer = office.within(office.mail.ask(Letter::new(info, Vec::new()), 5_000)).unwrap();
    let info: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(info["state"]["messages"], happened.len());
}

#[test]
fn without_streams_a_command_waits_until_its_tool_listens() {
    let server = Server::start().unwrap();
    let node = Node::sqlite(Default::default());
    let office = office(&node, &server);
    let call = buy(&office, 1, json!({ "item": "tea" }));
    let mut shop = Shop::start(&server.url(), "shop", "0");
    assert_eq!(shop.line(), "ready: nothing is kept");
    assert_eq!(
        (shop.line(), shop.line()),
        (r#"called: {"item": "tea"}"#.into(), "reported: applied".into())
    );
    assert_eq!(finish(&office, 1, &call)["result"], json!({ "bought": "tea" }));
    node.assert_well();
}

/// A plain client rings at the documented subject and workers wake; and hears the kernel say where work waits.
#[test]
fn a_foreign_client_rings_and_hears_wake_ups() {
    let server = Server::start().unwrap();
    let node = Node::sqlite(Default::default());
    let office = office(&node, &server);
    let target = |name: &str| WorkerTarget::parse(name).unwrap();
    let targets = ["worker_generic", "svc1_clerk_p", "worker_other"].map(target).to_vec();
    let (mail, bus, prefix) = (office.mail.clone(), office.bus.clone(), office.prefix.clone());
    let doorbell = Doorbell::new(targets, mail, bus, prefix, office.clock.clone());
    let run = doorbell.run(Shutdown::new());
    office.runtime.spawn(async { run.await.unwrap() });
    let mut bells = ["worker_generic", "svc1_clerk_p", "worker_other"]
        .map(|name| office.bus.listen(&format!("cmd.agent.{name}.wakeup")));
    let (client, mut ear) = office.within(async {
        let client = async_nats::connect(server.url()).await.unwrap();
        let ear = client.subscribe("guild.v1.*.*.cmd.agent.*.wakeup").await.unwrap();
        client.flush().await.unwrap();
        (client, ear)
    });
    let ring = |subject: &'static str, payload: &'static [u8]| {
        office.within(async {
            client.publish(subject, payload.into()).await.unwrap();
            client.flush().await.unwrap();
        });
    };
    // What it carries is of no importance. Subscribing takes a moment, so it is rung until it is heard.
    for (bell, subject) in [
        (0, "guild.v1.p.public.cmd.agent.worker_generic.wakeup"),
        (1, "guild.v1.other-project.any-channel.cmd.agent.svc1_clerk_p.wakeup"),
    ] {
        let heard = (0..600).any(|_| {
            ring(subject, b"\xff rubbish");
            office.runtime.block_on(office.clock.sleep(10));
            bells[bell].try_hear().is_some()
        });
        assert!(heard, "{subject}");
    }
    // Another prefix and another shape are nobody's.
    ring("other.v1.p.public.cmd.agent.worker_other.wakeup", b"");
    ring("guild.v1.p.cmd.agent.worker_other.wakeup", b"");

    // What the kernel says: once for a project, a channel and a target, and its own bell is not rung again by it.
    let heard = |ear: &mut async_nats::Subscriber| loop {
        let message = office.within(ear.next()).unwrap();
        let by = message.headers.as_ref().and_then(|headers| headers.get("Guild-Sender"));
        if by.is_some_and(|by| by.as_str() == "kernel") {
            return (message.subject.to_string(), message.payload);
        }
    };
    for n in 1..=3 {
        node.ask(n, n, office.clock.now_ms());
    }
    office.teller("teller", office.mail.clone());
    let told = heard(&mut ear);
    assert_eq!(told.0, "guild.v1.p.public.cmd.agent.worker_generic.wakeup");
    assert_eq!(told.1.as_ref(), b"{}");
    // Nothing of a turn that a worker has, or that is over: the next wake-up is about the next turn.
    for n in 1..=3 {
        let fence = node.take(n, office.clock.now_ms());
        node.commit(&fence, success(), office.clock.now_ms()).unwrap();
    }
    office.until(|| place(&node) == happened(&node).last().map(|(seq, _)| *seq));
    node.write(|tx| {
        let mut agent = crate::world::agent(9);
        agent.worker_target = "worker_other".to_owned();
        guild_kernel::roster::put_agent(tx, &agent, &json!({}), crate::world::T0)
    })
    .unwrap();
    node.ask(4, 9, office.clock.now_ms());
    assert_eq!(heard(&mut ear).0, "guild.v1.p.public.cmd.agent.worker_other.wakeup");
    // The kernel does not wake itself by what it says.
    let heard = (0..600).any(|_| {
        ring("guild.v1.p.public.cmd.agent.svc1_clerk_p.wakeup", b"");
        office.runtime.block_on(office.clock.sleep(10));
        bells[1].try_hear().is_some()
    });
    assert!(heard && bells[2].try_hear().is_none());
}
