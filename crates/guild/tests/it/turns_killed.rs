//! Workers that are real processes, on one PostgreSQL and one NATS: whatever dies, every turn ends once.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::BTreeMap;
use std::io::BufReader;
use std::ops::Range;
use std::process::ChildStderr;

use guild_kernel::boxes::{self, NewBox};
use guild_kernel::card::{self, CardType, NewCard, Role};
use guild_kernel::inbox::Outcome;
use guild_kernel::roster::{self, AfterExecution, Agent, AgentStatus, Profile, Tool};
use guild_kernel::turn::{NewTurn, Report, enqueue_all, report_all};
use guild_kernel::{AgentKey, BoxId, CardId, ProjectId, Result, TASK, audit, replay};
use guild_protocol::replay::{Standing, verify};
use guild_store::{Hooks, Migrations, Options, Service, Store, Tx, args};
use serde_json::{Value, json};
use testbed::{Database, Dice, Nats, now_ms};

use crate::key::KEYSTORE;
use crate::node::{ANY_PORT, Node};
use crate::support::Home;
use crate::thinker::{TOOL, Thinker};

const TARGET: &str = "worker_generic";
const KILLS: u64 = 20;
const TURNS: u64 = 120;

pub(crate) struct Hall {
    database: Database,
    pub(crate) thinker: Thinker,
    homes: Vec<Home>,
}

impl Hall {
    /// So many places for workers that share one database and one bus, with short leases.
    pub(crate) fn open(workers: usize, name: &str) -> Hall {
        Hall::open_with(workers, name, |_, home| home)
    }

    /// The same, each with something of its own.
    pub(crate) fn open_with(
        workers: usize,
        name: &str,
        change: impl Fn(usize, Home) -> Home,
    ) -> Hall {
        let short = |home: Home| home.with("GUILD_KERNEL_LEASE_MS", "2000");
        Hall::open_as(workers, name, |worker, home| change(worker, short(home)))
    }

    /// The same, with nothing set but where the database and the bus are, and this.
    fn open_as(workers: usize, name: &str, change: impl Fn(usize, Home) -> Home) -> Hall {
        let (database, thinker) = (Database::new().unwrap(), Thinker::start());
        let namespace = format!("{name}_{}", std::process::id());
        let home = || {
            let home = Home::new()
                .with("GUILD_STORE_URL", &database.url())
                .with("GUILD_BUS_URL", &Nats::shared_url().unwrap())
                .with("GUILD_BUS_NAMESPACE", &namespace);
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

    /// The same, and what it logs.
    pub(crate) fn up_with_log(&self, worker: usize) -> (Node, BufReader<ChildStderr>) {
        Node::up_with_log(&self.homes[worker], &ANY_PORT)
    }

    pub(crate) fn home(&self, worker: usize) -> &Home {
        &self.homes[worker]
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

/// Agents with these numbers, and a turn for each of them.
fn ask(tx: &mut Tx<'_>, numbers: Range<usize>, with_tool: bool) -> Result<()> {
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
        options: json!({ "suspend_timeout_seconds": 600 }),
    };
    roster::put_tool(tx, &tool, at_ms)?;
    let mut wishes = Vec::new();
    for number in numbers {
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
    let hall = Hall::open_as(1, "at_once", |_, home| home);
    let (_, shown) = hall.home(0).json(&["config", "show"]);
    let set: Vec<&String> = shown["origins"].as_object().unwrap().keys().collect();
    assert_eq!(set, ["bus.namespace", "bus.url", "store.url"], "all else is as it is by default");
    let node = hall.up(0);
    let service = hall.service();
    let store = service.handle();
    block_on(store.write(|tx| ask(tx, 0..400, false))).unwrap();
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

/// Who is in the middle of a step of this number, as its holder is named.
fn holder_in(store: &Store, number: i64) -> Option<String> {
    let holder: Option<(String,)> = block_on(store.read(move |rx| {
        rx.first(
            "SELECT h.lease_holder FROM agent_state_head AS h JOIN agent_steps AS s
               ON s.step_id = h.active_step_id
             WHERE h.status = 'running' AND s.number = $1 ORDER BY h.agent_id LIMIT 1",
            args![number],
        )
    }))
    .unwrap();
    holder.map(|(holder,)| holder)
}

/// Turns come in waves, and in each of them a worker is killed that thinks about one: in every other wave about its
/// second step, after the tool has answered.
#[test]
fn workers_are_killed_and_every_turn_ends_once_where_it_was() {
    let hall = Hall::open(3, "killed");
    hall.thinker.take_ms(150);
    let mut nodes: Vec<Node> = (0..3).map(|worker| hall.up(worker)).collect();
    let service = hall.service();
    let store = service.handle();
    let dice = Dice::new(7);
    let wave = TURNS / KILLS;
    for kill in 0..KILLS {
        let first = usize::try_from(kill * wave).unwrap();
        let numbers = first..first + usize::try_from(wave).unwrap();
        block_on(store.write(move |tx| ask(tx, numbers.clone(), true))).unwrap();
        let number = i64::try_from(1 + kill % 2).unwrap();
        let mut holder = None;
        while holder.is_none() && sum(&ended(&store)) < (kill + 1) * wave {
            answer_calls(&store, &dice);
            holder = holder_in(&store, number);
        }
        let of = |node: &Node| format!("node-{}-", node.ready["pid"]);
        let busy =
            holder.and_then(|holder| nodes.iter().position(|node| holder.starts_with(&of(node))));
        let worker = busy.unwrap_or_else(|| usize::try_from(dice.below(3)).unwrap());
        nodes.remove(worker).kill();
        nodes.insert(worker, hall.up(worker));
    }
    while sum(&ended(&store)) < TURNS {
        answer_calls(&store, &dice);
        pause();
    }
    assert_eq!(
        ended(&store),
        BTreeMap::from([("success".to_owned(), TURNS)]),
        "none contradictory"
    );
    check(&store);
    let all = |sql: &'static str| -> Vec<(i64, i64)> {
        block_on(store.read(move |rx| rx.all(sql, args![]))).unwrap()
    };
    // Each went on at the step where it was: the first was written once, and the second.
    let written =
        all("SELECT number, count(*) FROM agent_steps WHERE status IN ('completed', 'suspended')
         GROUP BY number ORDER BY number");
    let turns = i64::try_from(TURNS).unwrap();
    assert_eq!(written, [(1, turns), (2, turns)]);
    // The kills hit turns in the middle of either step, and each of these steps was done again under a later lease.
    let lost = all(
        "SELECT number, count(*) FROM agent_steps WHERE status = 'abandoned' GROUP BY number ORDER BY number",
    );
    assert_eq!(lost.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2], "{lost:?}");
    let again = all(
        "SELECT a.number, count(DISTINCT a.step_id) FROM agent_steps AS a JOIN agent_steps AS s
           ON s.agent_turn_id = a.agent_turn_id AND s.number = a.number AND s.turn_epoch > a.turn_epoch
         WHERE a.status = 'abandoned' AND s.status IN ('completed', 'suspended')
         GROUP BY a.number ORDER BY a.number",
    );
    assert_eq!(again, lost, "none from the start, and none given up");
    // And each of them can be exported and checked, with the steps that were lost in the middle.
    let turns: Vec<(String,)> = block_on(store.read(|rx| {
        rx.all("SELECT agent_turn_id FROM agent_inbox WHERE message_type = 'turn'", args![])
    }))
    .unwrap();
    for (id,) in turns {
        let id = id.parse().unwrap();
        let sealed = block_on(store.read(move |rx| replay::export(rx, &id, "test"))).unwrap();
        let standing = verify(sealed.text.as_bytes(), None).unwrap().standing;
        assert_eq!(standing, Standing::Sealed, "{}", sealed.text);
    }
    println!("{KILLS} kills, steps lost in the middle: {lost:?}");
    service.close();
    for node in nodes {
        assert_eq!(node.stop(), 0);
    }
}
