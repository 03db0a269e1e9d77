//! Workers that are real processes, on one PostgreSQL and one NATS: whatever dies, every turn ends once.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::BTreeMap;

use guild_kernel::boxes::{self, NewBox};
use guild_kernel::card::{self, CardType, NewCard, Role};
use guild_kernel::inbox::Outcome;
use guild_kernel::roster::{self, AfterExecution, Agent, AgentStatus, Profile, Tool};
use guild_kernel::turn::{NewTurn, Report, enqueue_all, report_all};
use guild_kernel::{AgentKey, BoxId, CardId, ProjectId, Result, TASK, audit};
use guild_store::{Hooks, Migrations, Options, Service, Store, Tx, args};
use serde_json::{Value, json};
use testbed::{Database, Dice, Nats, now_ms};

use crate::key::KEYSTORE;
use crate::node::{ANY_PORT, Node};
use crate::support::Home;
use crate::thinker::{TOOL, Thinker};

const TARGET: &str = "worker_generic";
const KILLS: u64 = 20;

pub(crate) struct Hall {
    database: Database,
    pub(crate) thinker: Thinker,
    homes: Vec<Home>,
}

impl Hall {
    /// So many places for workers that share one database and one bus.
    pub(crate) fn open(workers: usize, name: &str) -> Hall {
        Hall::open_with(workers, name, |_, home| home)
    }

    /// The same, each with something of its own.
    pub(crate) fn open_with(
        workers: usize,
        name: &str,
        change: impl Fn(usize, Home) -> Home,
    ) -> Hall {
        let (database, thinker) = (Database::new().unwrap(), Thinker::start());
        let namespace = format!("{name}_{}", std::process::id());
        let home = || {
            let home = Home::new()
                .with("GUILD_STORE_URL", &database.url())
                .with("GUILD_BUS_URL", &Nats::shared_url().unwrap())
                .with("GUILD_BUS_NAMESPACE", &namespace)
                .with("GUILD_KERNEL_LEASE_MS", "2000");
            thinker.tell(&home);
            home
        };
        let homes: Vec<Home> = (0..workers).map(|worker| change(worker, home())).collect();
        assert_eq!(homes[0].run(&["key", "new"]).code, 0);
        for other in &homes[1..] {
            other.copy_private(&homes[0], KEYSTORE);
        }
        Hall { database, thinker, homes }
    }

    pub(crate) fn up(&self, worker: usize) -> Node {
        Node::up(&self.homes[worker], &ANY_PORT)
    }

    /// What whoever is no worker sees: it asks for turns, and is the tool.
    pub(crate) fn service(&self) -> Service {
        let migrations = Migrations::store()
            .and(guild_ledger::migrations())
            .and(guild_network::migrations())
            .and(guild_market::migrations())
            .and(guild_roles::migrations())
            .and(guild_hosting::migrations())
            .and(guild_kernel::migrations());
        let options = Options::at(&self.database.url());
        Service::open(&options, &migrations, Hooks::default(), now_ms()).unwrap()
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn project() -> ProjectId {
    "p1".parse().unwrap()
}

pub(crate) fn key(number: usize) -> AgentKey {
    AgentKey { project_id: project(), agent_id: format!("agent-{number}").parse().unwrap() }
}

/// Agents, and a turn for each of them.
fn ask(tx: &mut Tx<'_>, count: usize, with_tool: bool) -> Result<()> {
    let at_ms = now_ms();
    let tools = if with_tool { json!([TOOL]) } else { json!([]) };
    let body = json!({
        "system_prompt_template": "Answer.", "allowed_tools": tools,
        "allowed_internal_tools": [], "llm_config": { "model": "here/thinker" },
    });
    let (project_id, worker_target) = (project(), TARGET.to_owned());
    let name = "thinker".to_owned();
    let profile = Profile { project_id, name, worker_target, body };
    roster::put_profile(tx, &profile, at_ms)?;
    let tool = Tool {
        project_id: project(),
        tool_name: TOOL.to_owned(),
        description: "Looks something up.".to_owned(),
        parameters: json!({ "type": "object", "properties": { "key": { "type": "string" } } }),
        target_subject: Some("cmd.tool.test.look_up".to_owned()),
        after_execution: AfterExecution::Suspend,
        options: json!({ "suspend_timeout_ms": 600_000 }),
    };
    roster::put_tool(tx, &tool, at_ms)?;
    let mut wishes = Vec::new();
    for number in 0..count {
        let agent = Agent {
            key: key(number),
            profile_name: "thinker".to_owned(),
            worker_target: TARGET.to_owned(),
            tags: Vec::new(),
            display_name: format!("Agent {number}"),
            owner_agent_id: None,
            status: AgentStatus::Active,
        };
        roster::put_agent(tx, &agent, &json!({}), at_ms)?;
        wishes.push(wish(tx, number, &format!("Task {number}"), at_ms)?);
    }
    for accepted in enqueue_all(tx, &wishes, at_ms)? {
        assert!(!accepted?.known, "asked twice");
    }
    Ok(())
}

pub(crate) fn wish(tx: &mut Tx<'_>, number: usize, task: &str, at_ms: i64) -> Result<NewTurn> {
    let id = |prefix: &str, what: usize| format!("{prefix}_{:032x}", number * 4 + what);
    let card_id: CardId = id("card", 0).parse()?;
    let (context_box_id, output_box_id): (BoxId, BoxId) =
        (id("box", 1).parse()?, id("box", 2).parse()?);
    let instruction = NewCard {
        card_id: card_id.clone(),
        project_id: project(),
        card_type: CardType::Instruction,
        role: Role::User,
        author_id: "test".to_owned(),
        content: json!({ "text": task }),
        metadata: json!({}),
    };
    card::put_all(tx, &[instruction], at_ms)?;
    let new = |box_id: &BoxId, cards: Vec<CardId>| NewBox {
        box_id: box_id.clone(),
        project_id: project(),
        owner_agent_id: Some(key(number).agent_id),
        cards,
    };
    let both = [new(&context_box_id, vec![card_id]), new(&output_box_id, Vec::new())];
    boxes::create_all(tx, &both, at_ms)?;
    Ok(NewTurn {
        key: key(number),
        channel_id: "public".parse()?,
        correlation_id: format!("task-{number}"),
        profile_name: None,
        context_box_id,
        output_box_id,
        parent: None,
        trace_id: None,
        metadata: json!({}),
    })
}

/// How many turns have ended, and how.
pub(crate) fn ended(store: &Store) -> BTreeMap<String, u64> {
    let bodies: Vec<(String, String)> = block_on(store.read(|rx| {
        rx.all("SELECT id, body FROM event WHERE topic = 'turns' AND kind = $1", args![TASK])
    }))
    .unwrap();
    let mut outcomes = BTreeMap::new();
    for (_, body) in bodies {
        let body: Value = serde_json::from_str(&body).unwrap();
        *outcomes.entry(body["status"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    outcomes
}

pub(crate) fn sum(outcomes: &BTreeMap<String, u64>) -> u64 {
    outcomes.values().sum()
}

pub(crate) fn check(store: &Store) {
    let report = block_on(store.read(audit::run)).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// Waits, without asserting a time: a turn that never ends is found by the deadline of the test run.
pub(crate) fn pause() {
    testbed::wait_ms(30);
}

#[test]
fn four_hundred_turns_of_four_hundred_agents_at_once_each_end_once() {
    let hall = Hall::open(1, "at_once");
    let node = hall.up(0);
    let service = hall.service();
    let store = service.handle();
    block_on(store.write(|tx| ask(tx, 400, false))).unwrap();
    while sum(&ended(&store)) < 400 {
        pause();
    }
    assert_eq!(ended(&store), BTreeMap::from([("success".to_owned(), 400)]));
    let steps: Option<(i64,)> =
        block_on(store.read(|rx| rx.first("SELECT count(*) FROM agent_steps", args![]))).unwrap();
    assert_eq!(steps, Some((400,)), "each turn took its one step once");
    assert_eq!(hall.thinker.asked(), 400, "nobody was asked twice");
    check(&store);
    service.close();
    assert_eq!(node.stop(), 0);
}

/// The tool: answers every call that waits, now and then twice.
fn answer_calls(store: &Store, dice: &Dice) {
    let waiting: Vec<(String, String, String)> = block_on(store.read(|rx| {
        rx.all(
            "SELECT tool_call_id, agent_id, agent_turn_id FROM turn_waiting_tools
             WHERE wait_status = 'waiting' LIMIT 20",
            args![],
        )
    }))
    .unwrap();
    let twice = dice.below(4) == 0;
    let reports: Vec<Report> = waiting
        .iter()
        .map(|(call, agent, turn)| Report {
            key: AgentKey { project_id: project(), agent_id: agent.parse().unwrap() },
            agent_turn_id: turn.parse().unwrap(),
            tool_call_id: call.parse().unwrap(),
            source: "tool.test".to_owned(),
            status: Outcome::Success,
            after_execution: None,
            result: json!({ "value": 42 }),
            error: Value::Null,
        })
        .collect();
    for _ in 0..if twice { 2 } else { 1 } {
        let reports = reports.clone();
        block_on(store.write(move |tx| report_all(tx, &reports, now_ms()))).unwrap();
    }
}

#[test]
fn workers_are_killed_and_every_turn_ends_once_where_it_was() {
    let hall = Hall::open(3, "killed");
    let mut nodes: Vec<Option<Node>> = (0..3).map(|worker| Some(hall.up(worker))).collect();
    let service = hall.service();
    let store = service.handle();
    block_on(store.write(|tx| ask(tx, 120, true))).unwrap();
    let dice = Dice::new(u64::try_from(now_ms()).unwrap());
    let mut kills = 0;
    while sum(&ended(&store)) < 120 || kills < KILLS {
        answer_calls(&store, &dice);
        if kills < KILLS {
            let worker = usize::try_from(dice.below(3)).unwrap();
            if let Some(node) = nodes[worker].take() {
                node.kill();
                kills += 1;
            }
            nodes[worker] = Some(hall.up(worker));
        }
        pause();
    }
    assert_eq!(ended(&store), BTreeMap::from([("success".to_owned(), 120)]), "none contradictory");
    check(&store);
    // Each went on at the step where it was: the first was written once, and the second.
    let written: Vec<(i64, i64)> = block_on(store.read(|rx| {
        rx.all(
            "SELECT number, count(*) FROM agent_steps WHERE status IN ('completed', 'suspended')
             GROUP BY number ORDER BY number",
            args![],
        )
    }))
    .unwrap();
    assert_eq!(written, [(1, 120), (2, 120)]);
    service.close();
    for node in nodes.into_iter().flatten() {
        assert_eq!(node.stop(), 0);
    }
}
