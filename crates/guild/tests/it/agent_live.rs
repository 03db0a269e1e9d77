//! What a model says, told while it says it.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use serde_json::Value;

use crate::node::{ANY_PORT, Node};
use crate::support::Home;
use crate::thinker::{Thinker, WORDS};

const PROFILE: &str =
    "name = \"talker\"\nsystem_prompt = \"Talk.\"\nmodel = \"here/thinker\"\ntools = []\n";

fn args(home: &Home) -> Vec<String> {
    let profile = home.write("talker.toml", PROFILE);
    let profile = profile.to_str().unwrap();
    ["agent", "run", "--profile", profile, "--task", "talk"].map(str::to_owned).to_vec()
}

/// Through a node that runs, for a program: the events come before the end, and the answer is the last line.
#[test]
fn a_program_hears_pieces_before_the_answer() {
    let (home, thinker) = (Home::new(), Thinker::start());
    thinker.tell(&home);
    let node = Node::up(&home, &ANY_PORT);
    let args = args(&home);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--json", "--events"]).collect();
    let mut child = home.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut heard = 0;
    let mut last = Value::Null;
    // The model speaks until it is told to stop, so these can only come while it does.
    for line in lines.by_ref() {
        assert!(!line.contains('\u{1b}'), "{line}");
        last = serde_json::from_str(&line).unwrap();
        if last["event"] == "chunk" && last["chunk"]["chunk_type"] == "content" {
            assert_eq!(last["chunk"]["content"], WORDS);
            heard += 1;
            if heard == 3 {
                thinker.open_gate();
            }
        }
    }
    assert!(heard >= 3, "{heard}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(
        (&last["ok"], &last["turn"]["outcome"]),
        (&true.into(), &"success".into()),
        "{last}"
    );
    let text = last["deliverable"]["text"].as_str().unwrap();
    assert!(text.len() >= 3 * WORDS.len() && text.starts_with(WORDS), "{text:?}");
    // Whoever does not ask for events gets the answer alone.
    let id = last["turn"]["agent_turn_id"].as_str().unwrap();
    let (code, again) = home.json(&["turn", "watch", id]);
    assert_eq!((code, &again["deliverable"]), (0, &last["deliverable"]));
    assert_eq!(node.stop(), 0);
}

/// For a person, without a node: words appear while they are said, once, at one column, and steer no terminal.
#[test]
fn a_person_sees_words_as_they_come() {
    let (home, thinker) = (Home::new(), Thinker::start());
    thinker.tell(&home);
    let args = args(&home);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut child =
        home.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    assert!(first.ends_with("agent.thought      la\n"), "{first:?}");
    thinker.open_gate();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let mut remarks = String::new();
    child.stderr.take().unwrap().read_to_string(&mut remarks).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}\n{remarks}");
    assert!(!rest.contains('\u{1b}') && !first.contains('\u{1b}'), "{rest:?}");
    assert!(!rest.contains("agent.thought"), "it is told once: {rest}");
    let (thought, delivered) = rest.split_once("  task.deliverable   ").unwrap();
    let column = " ".repeat(first.find("la").unwrap());
    for line in thought.lines().filter(|line| !line.contains('Z')) {
        assert!(line.starts_with(&column), "{line:?} in {rest}");
    }
    assert!(delivered.lines().skip(1).all(|line| line.starts_with(&column)), "{rest}");
    assert!(remarks.contains("success after 1 step, 15 tokens"), "{remarks}");
}
