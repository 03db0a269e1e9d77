//! What the agents of a node have from it: tools, and somebody who hears them.

use std::sync::Arc;

use guild_bus::mail::{Letter, Limits, Local, Mail};
use guild_bus::subject::{Prefix, Topic};
use guild_kernel::model::Chunk;
use guild_kernel::outside::{Said, Speaker, Voice};
use guild_kernel::roster::{self, Profile, Tool};
use guild_kernel::turn::step::Usage;
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_roles::agents::{AgentKey, Agents, Task};
use guild_roles::live::Live;
use guild_roles::tools::{NodeTool, Offer};
use guild_store::{Hooks, Migrations, Options, Service, Store};
use serde_json::{Value, json};

struct Still;
impl Clock for Still {
    fn now_ms(&self) -> UnixMs {
        1_768_465_800_000
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(testbed::in_time(future))
}

/// On a file and on a server.
fn both<F: Future<Output = ()>>(story: impl Fn(Store) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let database = testbed::Database::new().unwrap();
    let file = Options::file(&dir.path().join("node.db"));
    for options in [file, Options::at(&database.url())] {
        let all = Migrations::store().and(guild_kernel::migrations());
        let service = Service::open(&options, &all, Hooks::default(), 0).unwrap();
        run(story(service.handle()));
        service.close();
    }
}

fn offer(run_max_s: u32) -> Offer {
    Offer {
        tools: [NodeTool::SandboxRun, NodeTool::LedgerBalance].into(),
        run_max_s,
        hire_max: Msat(0),
    }
}

fn task(project: &str) -> Task {
    Task {
        project_id: project.parse().unwrap(),
        agent_id: "ann".parse().unwrap(),
        channel_id: "public".parse().unwrap(),
        worker_target: "worker_generic".to_owned(),
        profile_name: "plain".to_owned(),
        profile: Some(json!({})),
        instruction: "Do it.".to_owned(),
        result_fields: [].into(),
        correlation_id: format!("task of {project}"),
    }
}

async fn tools(store: &Store, project: &str) -> Vec<Tool> {
    let project = project.parse().unwrap();
    store.read(move |rx| roster::tools(rx, &project, 100)).await.unwrap()
}

fn find<'a>(tools: &'a [Tool], name: &str) -> &'a Tool {
    tools.iter().find(|tool| tool.tool_name == name).unwrap()
}

#[test]
fn a_project_that_is_asked_has_the_tools_of_its_node() {
    both(|store| async move {
        let agents = Agents::new(store.clone(), Arc::new(Still));
        agents.ask(task("bare")).await.unwrap();
        assert!(tools(&store, "bare").await.is_empty(), "nobody offers anything");
        let agents = agents.offering(offer(60));
        let id = agents.ask(task("p")).await.unwrap();
        let names: Vec<String> =
            tools(&store, "p").await.into_iter().map(|tool| tool.tool_name).collect();
        let wanted = [
            "ask_expert",
            "delegate_async",
            "fork_join",
            "launch_principal",
            "ledger_balance",
            "provision_agent",
            "sandbox_run",
        ];
        assert_eq!(names, wanted);
        assert_eq!(agents.ask(task("p")).await.unwrap(), id, "the same task is the same turn");
        // A node that starts tells the projects that are there.
        agents.offer_tools().await.unwrap();
        assert_eq!(tools(&store, "bare").await.len(), wanted.len());
    });
}

#[test]
fn rows_of_the_node_follow_it_and_those_of_others_are_left_alone() {
    both(|store| async move {
        let agents =
            |run_max_s| Agents::new(store.clone(), Arc::new(Still)).offering(offer(run_max_s));
        agents(60).ask(task("p")).await.unwrap();
        let mut own = find(&tools(&store, "p").await, "ledger_balance").clone();
        assert_eq!(own.options[roster::KEPT_BY_NODE], true);
        own.description = "Ours.".to_owned();
        own.options = json!({});
        let (put, mut broken) = (own.clone(), own.clone());
        broken.tool_name = "sandbox_run".to_owned();
        broken.project_id = "q".parse().unwrap();
        let written = store.write(move |tx| {
            roster::put_tool(tx, &put, 1)?;
            roster::put_tool(tx, &broken, 1)?;
            let (project_id, worker_target) = ("q".parse()?, "worker_generic".to_owned());
            let profile =
                Profile { project_id, name: "x".to_owned(), worker_target, body: json!({}) };
            roster::put_profile(tx, &profile, 1)?;
            // What another program has spoilt holds up nobody.
            tx.exec(
                "UPDATE tools SET options = 'x', parameters = '[' WHERE project_id = 'q'",
                &[],
            )?;
            Ok::<_, guild_kernel::Error>(())
        });
        written.await.unwrap();
        agents(120).offer_tools().await.unwrap();
        let there = tools(&store, "p").await;
        assert_eq!(find(&there, "ledger_balance"), &own);
        let waits = &find(&there, "sandbox_run").options["suspend_timeout_seconds"];
        assert!(waits.as_i64().unwrap() > 120, "{waits}");
        agents(120).ask(task("q")).await.unwrap();
    });
}

fn key(agent: &str) -> AgentKey {
    AgentKey { project_id: "p".parse().unwrap(), agent_id: agent.parse().unwrap() }
}

/// What a worker says while its model speaks, heard by whoever listens to the agent.
#[test]
fn pieces_are_heard_in_order_by_those_who_listen_to_the_agent() {
    let mail: Arc<dyn Mail> = Arc::new(Local::new(Limits::default(), Arc::new(Still)));
    let prefix = Prefix::of("guild").unwrap();
    let voice = Voice::new(mail.clone(), prefix.clone(), Arc::new(Still));
    let live = Live::new(mail.clone(), prefix);
    let mut listening = live.listen(&key("ann")).unwrap();
    let speaker = |agent: &str| Speaker {
        key: key(agent),
        channel_id: "public".parse().unwrap(),
        agent_turn_id: format!("turn_{:032x}", 1).parse().unwrap(),
        step_id: format!("step_{:032x}", 2).parse().unwrap(),
    };
    let text = Chunk::Text("It\u{1b} is".to_owned());
    voice.say(&speaker("bob"), 0, Said::Start);
    voice.say(&speaker("ann"), 0, Said::Start);
    // Rubbish of others on the same subject is no piece.
    for payload in [&b"{"[..], b"{}", br#"{"chunk_type":1,"content":"","index":0}"#, b"[]"] {
        let subject = Topic::parse("guild.v1.p.public.str.agent.ann.chunk").unwrap();
        mail.cast(Letter::new(subject, payload.to_vec()));
    }
    voice.say(&speaker("ann"), 1, Said::Chunk(&text));
    voice.say(&speaker("ann"), 2, Said::End(&Usage::default()));
    let heard = run(listening.next());
    let told: Vec<(u64, &str, &str)> = heard
        .iter()
        .map(|one| (one.index, one.chunk_type.as_str(), one.content.as_str()))
        .collect();
    assert_eq!(told, [(0, "start", ""), (1, "content", "It\u{1b} is"), (2, "end", "")]);
    assert_eq!(heard[0].agent_turn_id, format!("turn_{:032x}", 1));
    let shown: Value = serde_json::to_value(&heard[1]).unwrap();
    assert_eq!(shown["step_id"], format!("step_{:032x}", 2));
    // Whoever stops listening holds up nobody.
    drop(listening);
    voice.say(&speaker("ann"), 3, Said::Start);
}
