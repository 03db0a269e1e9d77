//! Real processes that share one PostgreSQL and one NATS: who may serve a target, turns that ask for turns while
//! workers die, and arguments that are far too large.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::BTreeMap;

use guild_kernel::roster::{self, AfterExecution, Agent, AgentStatus, Profile, Tool};
use guild_kernel::turn::enqueue_all;
use guild_kernel::{Result, pmo};
use guild_store::{Decode, Store, Tx, args};
use serde_json::{Value, json};
use testbed::{Dice, now_ms};

use crate::node::Node;
use crate::thinker::{HUGE, TOOL, Thinker};
use crate::turns_killed::{Hall, block_on, check, ended, key, pause, project, sum, wish};

const TARGET: &str = "worker_generic";
/// A service that runs once in the project.
const ALONE: &str = "svc1_clerk_p1";

/// How agents think: with which tools, and whom they may ask.
fn put_profile(tx: &mut Tx<'_>, name: &str, target: &str, tools: &[&str]) -> Result<()> {
    let body = json!({
        "system_prompt_template": "Answer.", "allowed_tools": tools, "delegation_policy": {},
        "allowed_internal_tools": [], "llm_config": { "model": "here/thinker" },
    });
    let (project_id, name, worker_target) = (project(), name.to_owned(), target.to_owned());
    roster::put_profile(tx, &Profile { project_id, name, worker_target, body }, now_ms())
}

/// A turn for each task, each of an agent of its own, numbered from `first`.
fn ask(tx: &mut Tx<'_>, profile: &str, target: &str, first: usize, tasks: &[String]) -> Result<()> {
    let at_ms = now_ms();
    let mut wishes = Vec::new();
    for (number, task) in (first..).zip(tasks) {
        let agent = Agent {
            key: key(number),
            profile_name: profile.to_owned(),
            worker_target: target.to_owned(),
            tags: Vec::new(),
            display_name: format!("Agent {number}"),
            owner_agent_id: None,
            status: AgentStatus::Active,
        };
        roster::put_agent(tx, &agent, &json!({}), at_ms)?;
        wishes.push(wish(tx, number, task, at_ms)?);
    }
    for accepted in enqueue_all(tx, &wishes, at_ms)? {
        assert!(!accepted?.known, "asked twice");
    }
    Ok(())
}

fn all<T: Decode + Send + 'static>(store: &Store, sql: &'static str) -> Vec<T> {
    block_on(store.read(move |rx| rx.all(sql, args![]))).unwrap()
}

fn successes(count: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([("success".to_owned(), count)])
}

/// Each process asks a model of its own, so it is seen who works.
#[test]
fn a_target_for_one_is_served_by_one_and_taken_over_when_that_dies() {
    let second = Thinker::start();
    let hall = Hall::open_with(2, "alone", |worker, home| {
        if worker == 1 {
            second.tell(&home);
        }
        home.with("GUILD_KERNEL_WORKER_TARGETS", ALONE)
    });
    let holder = hall.up(0);
    let service = hall.service();
    let store = service.handle();
    let turns = |first: usize, count: usize| {
        let tasks: Vec<String> = (first..first + count).map(|n| format!("Task {n}")).collect();
        let asked = store.write(move |tx| {
            put_profile(tx, "clerk", ALONE, &[])?;
            ask(tx, "clerk", ALONE, first, &tasks)
        });
        block_on(asked).unwrap();
    };
    turns(0, 1);
    while sum(&ended(&store)) < 1 {
        pause();
    }
    let refused = hall.up(1);
    turns(1, 40);
    while sum(&ended(&store)) < 41 {
        pause();
    }
    assert_eq!((hall.thinker.asked(), second.asked()), (41, 0), "the second one was refused");
    holder.kill();
    turns(41, 5);
    while sum(&ended(&store)) < 46 {
        pause();
    }
    assert_eq!((hall.thinker.asked(), second.asked()), (41, 5), "and took over");
    // Whoever comes back is the one who is refused now.
    let back = hall.up(0);
    turns(46, 20);
    while sum(&ended(&store)) < 66 {
        pause();
    }
    assert_eq!((hall.thinker.asked(), second.asked()), (41, 25));
    assert_eq!(ended(&store), successes(66));
    check(&store);
    service.close();
    assert_eq!((refused.stop(), back.stop()), (0, 0));
}

const KILLS: usize = 12;
const BOSSES_PER_KILL: usize = 3;
const BOSSES: usize = KILLS * BOSSES_PER_KILL;

/// What a boss does: hands one task over and goes on, then hands over three and waits for them.
fn plan() -> String {
    let task =
        |what: &str| json!({ "target_strategy": "new", "target_ref": "hand", "instruction": what });
    let tasks = ["one", "two", "three"].map(task);
    let first = task("alone");
    format!(
        "call {} {first}\ncall {} {}",
        pmo::DELEGATE_ASYNC,
        pmo::FORK_JOIN,
        json!({ "tasks": tasks })
    )
}

#[test]
fn turns_that_ask_for_turns_end_once_while_workers_are_killed() {
    let hall = Hall::open_with(3, "bosses", |_, home| home.with("GUILD_OUTBOX_LEASE_MS", "2000"));
    let mut nodes: Vec<Option<Node>> = (0..3).map(|worker| Some(hall.up(worker))).collect();
    let service = hall.service();
    let store = service.handle();
    let prepared = store.write(|tx| {
        put_profile(tx, "boss", TARGET, &[pmo::DELEGATE_ASYNC, pmo::FORK_JOIN])?;
        put_profile(tx, "hand", TARGET, &[])?;
        pmo::tool_rows(&project()).iter().try_for_each(|row| roster::put_tool(tx, row, now_ms()))
    });
    block_on(prepared).unwrap();
    let dice = Dice::new(7);
    for kill in 0..KILLS {
        // Somebody is always in the middle of something when a worker dies.
        let asked = store.write(move |tx| {
            ask(tx, "boss", TARGET, kill * BOSSES_PER_KILL, &vec![plan(); BOSSES_PER_KILL])
        });
        block_on(asked).unwrap();
        let worker = usize::try_from(dice.below(3)).unwrap();
        if let Some(node) = nodes[worker].take() {
            node.kill();
        }
        nodes[worker] = Some(hall.up(worker));
    }
    let turns = u64::try_from(BOSSES * 5).unwrap();
    while sum(&ended(&store)) < turns {
        pause();
    }
    assert_eq!(ended(&store), successes(turns), "each boss, and four hands of each");
    let agents: Vec<(String, i64)> =
        all(&store, "SELECT profile_name, count(*) FROM project_agents GROUP BY 1 ORDER BY 1");
    let count = i64::try_from(BOSSES).unwrap();
    assert_eq!(agents, [("boss".to_owned(), count), ("hand".to_owned(), 4 * count)], "none twice");
    // Each boss waited for its three, and was told of all of them.
    let told: Vec<(String,)> =
        all(&store, "SELECT content FROM cards WHERE type = 'tool.result' ORDER BY 1");
    let told: Vec<Value> = told.iter().map(|(text,)| serde_json::from_str(text).unwrap()).collect();
    let joined = told.iter().filter(|one| one["result"]["results"].is_array());
    let counts: Vec<usize> =
        joined.map(|one| one["result"]["results"].as_array().unwrap().len()).collect();
    assert_eq!(counts, vec![3; BOSSES], "{told:?}");
    check(&store);
    service.close();
    for node in nodes.into_iter().flatten() {
        assert_eq!(node.stop(), 0);
    }
}

/// A turn that waits for others, each of which waits for a tool that never answers, is stopped through the node. It and
/// they end once, and each of them can be exported and checked.
#[test]
fn a_stop_reaches_whoever_works_for_a_turn() {
    let hall = Hall::open(1, "stopped");
    let node = hall.up(0);
    let service = hall.service();
    let store = service.handle();
    let asked = store.write(|tx| {
        let tool = Tool {
            project_id: project(),
            tool_name: TOOL.to_owned(),
            description: "Looks something up.".to_owned(),
            parameters: json!({ "type": "object", "properties": { "key": { "type": "string" } } }),
            target_subject: Some("cmd.tool.test.look_up".to_owned()),
            after_execution: AfterExecution::Suspend,
            options: json!({ "suspend_timeout_seconds": 3_600 }),
        };
        roster::put_tool(tx, &tool, now_ms())?;
        for row in pmo::tool_rows(&project()) {
            roster::put_tool(tx, &row, now_ms())?;
        }
        put_profile(tx, "boss", TARGET, &[pmo::FORK_JOIN])?;
        put_profile(tx, "hand", TARGET, &[TOOL])?;
        let task = |what: &str| json!({ "target_strategy": "new", "target_ref": "hand", "instruction": what });
        let call = format!("call {TOOL} {{}}");
        let tasks = json!({ "tasks": [task(&call), task(&call)] });
        ask(tx, "boss", TARGET, 0, &[format!("call {} {tasks}", pmo::FORK_JOIN)])
    });
    block_on(asked).unwrap();
    let suspended = "SELECT active_agent_turn_id FROM agent_state_head WHERE status = 'suspended'";
    while all::<(String,)>(&store, suspended).len() < 3 {
        pause();
    }
    let boss: Vec<(String,)> = all(
        &store,
        "SELECT agent_turn_id FROM agent_inbox WHERE message_type = 'turn' AND parent_agent_turn_id IS NULL",
    );
    let home = hall.home(0);
    let (code, told) = home.json(&["turn", "stop", &boss[0].0, "--reason", "enough"]);
    assert_eq!((code, &told["outcome"]), (0, &"stopped".into()), "{told}");
    while sum(&ended(&store)) < 3 {
        pause();
    }
    assert_eq!(ended(&store), BTreeMap::from([("canceled".to_owned(), 3)]));
    let turns: Vec<(String,)> =
        all(&store, "SELECT agent_turn_id FROM agent_inbox WHERE message_type = 'turn'");
    for (id,) in &turns {
        let file = format!("{id}.jsonl");
        assert_eq!(home.run(&["turn", "replay", id, "--output", &file]).code, 0);
        let checked = home.run(&["replay", "verify", &file]);
        assert_eq!(checked.code, 0, "{checked:?}");
        let shown = home.run(&["turn", "show", id]);
        assert!(shown.stdout.contains("canceled (kernel.stopped)"), "{shown:?}");
    }
    let (code, told) = home.json(&["turn", "stop", &boss[0].0]);
    assert_eq!((code, &told["outcome"]), (1, &"over".into()), "{told}");
    check(&store);
    service.close();
    assert_eq!(node.stop(), 0);
}

/// The model has sent half of ten megabytes of arguments when another turn is asked for: that one ends meanwhile.
#[test]
fn a_call_with_far_too_large_arguments_fails_alone() {
    let hall = Hall::open(1, "huge");
    let node = hall.up(0);
    let service = hall.service();
    let store = service.handle();
    let asked = store.write(|tx| {
        let tool = Tool {
            project_id: project(),
            tool_name: TOOL.to_owned(),
            description: "Looks something up.".to_owned(),
            parameters: json!({ "type": "object", "properties": { "key": { "type": "string" } } }),
            target_subject: Some("cmd.tool.test.look_up".to_owned()),
            after_execution: AfterExecution::Suspend,
            options: json!({}),
        };
        roster::put_tool(tx, &tool, now_ms())?;
        put_profile(tx, "caller", TARGET, &[TOOL])?;
        put_profile(tx, "hand", TARGET, &[])?;
        ask(tx, "caller", TARGET, 0, &[format!("call {TOOL} {HUGE}")])
    });
    block_on(asked).unwrap();
    while hall.thinker.asked() == 0 {
        pause();
    }
    let tasks: Vec<String> = (1..21).map(|n| format!("Task {n}")).collect();
    block_on(store.write(move |tx| ask(tx, "hand", TARGET, 1, &tasks))).unwrap();
    while sum(&ended(&store)) < 20 {
        pause();
    }
    let open: Vec<(String,)> = all(
        &store,
        "SELECT agent_id FROM agent_inbox WHERE message_type = 'turn' AND closed_ms IS NULL",
    );
    assert_eq!(open, [("agent-0".to_owned(),)], "all others have ended");
    hall.thinker.open_gate();
    while sum(&ended(&store)) < 21 {
        pause();
    }
    assert_eq!(ended(&store), successes(21), "the turn itself went on");
    let results: Vec<(String,)> =
        all(&store, "SELECT content FROM cards WHERE type = 'tool.result'");
    assert_eq!(results.len(), 1);
    let result: Value = serde_json::from_str(&results[0].0).unwrap();
    assert_eq!(
        (&result["status"], &result["error"]["code"]),
        (&json!("failed"), &json!("kernel.too_large"))
    );
    let sent: Vec<(i64,)> = all(&store, "SELECT count(*) FROM turn_waiting_tools");
    assert_eq!(sent, [(0,)], "nobody was called");
    let largest: Vec<(i64,)> =
        all(&store, "SELECT CAST(max(octet_length(content)) AS BIGINT) FROM cards");
    assert!(largest[0].0 < 100_000, "and nothing of it is kept: {largest:?}");
    check(&store);
    service.close();
    assert_eq!(node.stop(), 0);
}
