//! Agents of one's own: tasks, turns, replays.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use serde_json::Value;

use crate::node::{ANY_PORT, Node};
use crate::support::Home;
use crate::thinker::Thinker;

const PROFILE: &str = r#"
name = "writer"
system_prompt = "You are {display_name}. Answer in one sentence."
model = "here/thinker"
tools = []
"#;

fn run_task(home: &Home, more: &[&str]) -> (i32, Value) {
    let profile = home.write("writer.toml", PROFILE);
    let profile = profile.to_str().unwrap().to_owned();
    let args = ["agent", "run", "--profile", &profile, "--task", "Say something."];
    home.json(&[&args[..], more].concat())
}

#[test]
fn a_task_is_done_told_exported_and_checked_without_a_node() {
    let (home, thinker) = (Home::new(), Thinker::start());
    thinker.tell(&home);
    let (code, answer) = run_task(&home, &["--key", "once", "--set", "gateway.listen=127.0.0.1:0"]);
    assert_eq!(code, 0, "{answer}");
    assert_eq!(answer["deliverable"]["text"], "It is done.", "{answer}");
    let turn = &answer["turn"];
    assert_eq!(turn["outcome"], "success");
    assert_eq!(turn["cost_micro_usd"], 20, "ten tokens for one micro-dollar each, five for two");
    let id = turn["agent_turn_id"].as_str().unwrap();

    // The same task under the same name is not done again.
    let (code, again) = run_task(&home, &["--key", "once", "--set", "gateway.listen=127.0.0.1:0"]);
    assert_eq!((code, &again["turn"]["agent_turn_id"]), (0, &turn["agent_turn_id"]));
    assert_eq!(thinker.asked(), 1);

    let (code, listed) = home.json(&["turn", "ls"]);
    assert_eq!((code, listed["turns"].as_array().unwrap().len()), (0, 1), "{listed}");
    let shown = home.run(&["turn", "show", id]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.stdout.contains("task.deliverable   It is done."), "{shown:?}");
    let watched = home.run(&["turn", "watch", id]);
    assert!(watched.stderr.contains("success after 1 step, 15 tokens"), "{watched:?}");

    let replay = home.path().join("REPLAY.jsonl");
    let replay = replay.to_str().unwrap();
    assert_eq!(home.run(&["turn", "replay", id, "--output", replay]).code, 0);
    let checked = home.run(&["replay", "verify", replay]);
    assert_eq!(checked.code, 0, "{checked:?}");
    // From rows alone: the same bytes.
    let printed = home.run(&["turn", "replay", id]);
    assert_eq!(printed.stdout.as_bytes(), std::fs::read(replay).unwrap());

    let (code, stopped) = home.json(&["turn", "stop", id]);
    assert_eq!((code, &stopped["outcome"]), (1, &"over".into()), "{stopped}");
    assert_eq!(home.run(&["audit"]).code, 0);
}

#[test]
fn a_running_node_does_the_task_and_goes_on_with_it_after_a_kill() {
    let (home, thinker) = (Home::new(), Thinker::start());
    thinker.tell(&home);
    let node = Node::up(&home, &ANY_PORT);
    let (code, answer) = run_task(&home, &[]);
    assert_eq!((code, &answer["turn"]["outcome"]), (0, &"success".into()), "{answer}");
    // Asked of a node that dies before anybody worked on it.
    node.pause();
    let profile = home.write("writer.toml", PROFILE);
    let args = ["agent", "run", "--profile", profile.to_str().unwrap(), "--task", "More."];
    let mut asking = home.command(&[&args[..], &["--json"], &ANY_PORT].concat());
    let asking = asking.stdout(std::process::Stdio::piped()).spawn().unwrap();
    node.go_on();
    node.kill();
    // Whoever asks becomes the node, if none comes back.
    let told = asking.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["turn"]["outcome"], "success", "{told}");
    let (_, listed) = home.json(&["turn", "ls"]);
    assert_eq!(listed["turns"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(home.run(&["audit"]).code, 0);
}

#[test]
fn rubbish_is_refused_with_what_to_do() {
    let home = Home::new();
    let missing = home.run(&["agent", "run", "--profile", "nowhere.toml", "--task", "x"]);
    assert_eq!(missing.code, 2, "{missing:?}");
    let bad = home.write("bad.toml", "name = 7");
    let run = home.run(&["agent", "run", "--profile", bad.to_str().unwrap(), "--task", "x"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("error[agent.profile_malformed]"), "{run:?}");
    home.write(
        ".local/share/guildhall/models.toml",
        "[[endpoint]]\nname = \"a\"\nprovider = \"nobody\"\n",
    );
    let run = home.run(&["up", "--set", "gateway.listen=127.0.0.1:0"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("is no provider of models"), "{run:?}");
    let turn = format!("turn_{:032x}", 7);
    for args in [["turn", "show"], ["turn", "stop"], ["turn", "replay"], ["turn", "watch"]] {
        let run = home.run(&[&args[..], &[&turn]].concat());
        assert!(run.code == 2 || run.code == 3, "{args:?}: {run:?}");
        assert!(run.stderr.contains("error["), "{args:?}: {run:?}");
        run.assert_no_panic();
    }
}

/// A newcomer is told what to write, and nothing is made before it is there.
#[test]
fn without_models_it_is_said_what_to_write() {
    let home = Home::new();
    let profile = home.write("writer.toml", PROFILE);
    let before = home.contents();
    let run = home.run(&["agent", "run", "--profile", profile.to_str().unwrap(), "--task", "x"]);
    insta::assert_snapshot!(run.shown(&home), @r#"
    exit 2
    --- stderr
    error[models.none]: nothing says where models are
      --> [HOME]/.local/share/guildhall/models.toml
    help: Write the file named, as in the example; a running node reads it at its next start.
        # one for each service; docs/models.md has all of them
        endpoint = [{ name = "local", provider = "ollama", default_model = "qwen3" }]
    "#);
    let (code, told) = run_task(&home, &[]);
    assert_eq!((code, told["error"]["example"].as_array().unwrap().len()), (2, 2), "{told}");
    let listed = home.run(&["turn", "ls"]);
    insta::assert_snapshot!(listed.shown(&home), @"
    exit 2
    --- stderr
    error[node.no_database]: there is no database yet
      --> [HOME]/.local/share/guildhall/node.db
    help: The first `guild agent run` makes one, with or without a node; so does `guild up`.
    ");
    assert_eq!(home.contents(), before);
}

/// Nobody to think: the turn ends with a code, and delivers why.
#[test]
fn without_a_model_a_task_ends_with_the_reason() {
    let home = Home::new();
    home.write(".local/share/guildhall/models.toml", "");
    let (code, answer) = run_task(&home, &["--set", "gateway.listen=127.0.0.1:0"]);
    assert_eq!(code, 1, "{answer}");
    assert_eq!(answer["turn"]["outcome"], "failed", "{answer}");
    assert!(answer["turn"]["error_code"].as_str().unwrap().starts_with("kernel."), "{answer}");
    assert_eq!(answer["deliverable"]["kind"], "fallback_deliverable", "{answer}");
}
