//! A tool in another process that takes a secret from the environment of the node: it is told, and nobody else.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::Read;

use async_nats::{Client, Message};
use futures_util::StreamExt;
use guild_kernel::Result;
use guild_kernel::roster::{self, AfterExecution, Agent, AgentStatus, Profile, Tool};
use guild_kernel::turn::enqueue_all;
use guild_store::{Tx, args};
use serde_json::{Value, json};
use testbed::{Nats, now_ms};

use crate::turns_killed::{Hall, block_on, check, ended, key, project, wish};

const TARGET: &str = "worker_generic";
const SECRET: &str = "hunter2-of-the-shop";

/// An agent that buys, the row of the shop, and one turn.
fn ask(tx: &mut Tx<'_>) -> Result<String> {
    let at_ms = now_ms();
    let body = json!({
        "system_prompt_template": "Buy.", "allowed_tools": ["buy", "steal"],
        "allowed_internal_tools": [], "llm_config": { "model": "here/thinker" },
    });
    let (name, worker_target) = ("buyer".to_owned(), TARGET.to_owned());
    roster::put_profile(tx, &Profile { project_id: project(), name, worker_target, body }, at_ms)?;
    for (tool_name, variable) in [("buy", "SHOP_KEY"), ("steal", "OTHER_KEY")] {
        let tool = Tool {
            project_id: project(),
            tool_name: tool_name.to_owned(),
            description: "Gets an item.".to_owned(),
            parameters: json!({ "type": "object", "properties": { "item": { "type": "string" } } }),
            target_subject: Some(format!("cmd.tool.shop.{tool_name}")),
            after_execution: AfterExecution::Suspend,
            options: json!({ "envs": { "api_key": variable }, "suspend_timeout_seconds": 600 }),
        };
        roster::put_tool(tx, &tool, at_ms)?;
    }
    let agent = Agent {
        key: key(0),
        profile_name: "buyer".to_owned(),
        worker_target: TARGET.to_owned(),
        tags: Vec::new(),
        display_name: "Buyer".to_owned(),
        owner_agent_id: None,
        status: AgentStatus::Active,
    };
    roster::put_agent(tx, &agent, &json!({}), at_ms)?;
    let task = "call steal {\"item\":\"pear\"}\ncall buy {\"item\":\"apple\"}";
    let wish = wish(tx, 0, task, at_ms)?;
    let accepted = enqueue_all(tx, &[wish], at_ms)?.remove(0)?;
    Ok(accepted.agent_turn_id.to_string())
}

/// Asks the kernel something about a command, as a tool does.
async fn kernel(
    client: &Client,
    prefix: &str,
    command: &Message,
    what: &str,
    said: Value,
) -> Value {
    let subject = format!("{prefix}.p1.public.cmd.sys.kernel.{what}");
    let headers = command.headers.clone().unwrap();
    let answer =
        client.request_with_headers(subject, headers, said.to_string().into()).await.unwrap();
    serde_json::from_slice(&answer.payload).unwrap()
}

#[test]
fn a_secret_of_the_environment_is_told_to_the_tool_and_to_nobody_else() {
    let hall = Hall::open_with(1, "secrets", |_, home| {
        home.with("SHOP_KEY", SECRET)
            .with("OTHER_KEY", "not for tools")
            .with("GUILD_KERNEL_TOOL_ENV", "SHOP_KEY")
            .with("GUILD_LOG_LEVEL", "debug")
    });
    let (node, mut log) = hall.up_with_log(0);
    let log = std::thread::spawn(move || {
        let mut text = String::new();
        log.read_to_string(&mut text).unwrap();
        text
    });
    let service = hall.service();
    let store = service.handle();
    let prefix = format!("secrets_{}.v1", std::process::id());
    let id = block_on(async {
        let client = async_nats::connect(Nats::shared_url().unwrap()).await.unwrap();
        let subject = format!("{prefix}.*.*.cmd.tool.shop.>");
        let mut commands = client.subscribe(subject).await.unwrap();
        client.flush().await.unwrap();
        let id = store.write(ask).await.unwrap();
        let command = commands.next().await.unwrap();
        let told = kernel(&client, &prefix, &command, "call", json!({})).await;
        assert_eq!(told["tool_name"], "buy", "the other one was never called: {told}");
        assert_eq!(told["arguments"], json!({ "item": "apple", "api_key": SECRET }));
        assert!(!String::from_utf8_lossy(&command.payload).contains(SECRET));
        let report = json!({ "status": "success", "result": { "bought": "apple" } });
        let taken = kernel(&client, &prefix, &command, "report", report).await;
        assert_eq!(taken["status"], "applied", "{taken}");
        id
    });
    while ended(&store).is_empty() {
        testbed::wait_ms(30);
    }
    let home = hall.home(0);
    let (code, shown) = home.json(&["turn", "show", &id]);
    assert_eq!((code, &shown["turn"]["outcome"]), (0, &"success".into()), "{shown}");
    let refused: Vec<&Value> = shown["cards"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|card| card["content"]["error"]["code"] == "kernel.missing_environment")
        .collect();
    assert_eq!(refused.len(), 1, "what is not allowed is not there: {shown}");
    let replay = home.run(&["turn", "replay", &id]);
    assert_eq!(replay.code, 0, "{replay:?}");
    let rows: Vec<(String,)> = block_on(store.read(|rx| {
        rx.all(
            "SELECT content || metadata FROM cards UNION ALL SELECT body FROM event
             UNION ALL SELECT body FROM outbox UNION ALL SELECT payload FROM agent_inbox
             UNION ALL SELECT metadata FROM agent_steps",
            args![],
        )
    }))
    .unwrap();
    check(&store);
    service.close();
    assert_eq!(node.stop(), 0);
    let log = log.join().unwrap();
    for text in [shown.to_string(), replay.stdout, log].iter().chain(rows.iter().map(|(row,)| row))
    {
        assert!(!text.contains(SECRET) && !text.contains("not for tools"), "{text}");
    }
}
