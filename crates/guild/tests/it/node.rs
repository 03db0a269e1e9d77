#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::key::KEYSTORE;
use crate::support::Home;

/// A node that runs until it is stopped or killed.
pub(crate) struct Node {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) ready: Value,
    url: String,
}

impl Node {
    /// Starts one and waits until it answers.
    pub(crate) fn up(home: &Home, more: &[&str]) -> Node {
        let args = [&["up", "--json", "--quiet"], more].concat();
        Node::start(&mut home.command(&args))
    }

    /// Starts this command and waits until it answers.
    fn start(command: &mut Command) -> Node {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let url = ready["url"].as_str().unwrap().to_owned();
        Node { child, stdout, ready, url }
    }

    /// Starts one whose log can be read.
    pub(crate) fn up_with_log(home: &Home, more: &[&str]) -> (Node, BufReader<ChildStderr>) {
        let mut command = home.command(&[&["up", "--json"], more].concat());
        let mut node = Node::start(command.stderr(Stdio::piped()));
        let log = BufReader::new(node.child.stderr.take().unwrap());
        (node, log)
    }

    /// Its host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// How much memory it has, in kB.
    pub(crate) fn resident_kb(&self) -> u64 {
        self.status_kb("VmRSS:")
    }

    /// How much it had at most, in kB.
    pub(crate) fn peak_kb(&self) -> u64 {
        self.status_kb("VmHWM:")
    }

    fn status_kb(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Stops it where it is, and lets it go on.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn stop(mut self) -> i32 {
        self.signal(Signal::TERM);
        let code = self.child.wait().unwrap().code().unwrap();
        let mut rest = String::new();
        self.stdout.read_line(&mut rest).unwrap();
        code
    }

    /// Waits until it ends by itself; its exit code.
    pub(crate) fn ended(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }

    /// Kills it in the middle of whatever it does.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A test that failed must leave no process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) const ANY_PORT: [&str; 2] = ["--set", "gateway.listen=127.0.0.1:0"];

fn actions(home: &Home) -> Vec<String> {
    let run = home.run(&["log", "tail", "--json", "-n", "100000"]);
    assert_eq!(run.code, 0, "{run:?}");
    run.stdout
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["action"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn a_node_starts_is_alone_answers_and_ends_cleanly() {
    let home = Home::new();
    let node = Node::up(&home, &ANY_PORT);
    let second = home.run(&["up"]);
    assert_eq!(second.code, 2, "{second:?}");
    assert!(
        second.stderr.contains("error[node.running]") && second.stderr.contains(&node.url),
        "{second:?}"
    );
    let (code, written) = home.json(&["log", "append", "test.done", "--detail", r#"{"n":1}"#]);
    assert_eq!((code, &written["seq"]), (0, &json!(2)));
    assert_eq!(node.stop(), 0);
    assert_eq!(actions(&home), ["node.started", "test.done", "node.stopped"]);
    let node_file = home.path().join(".local/share/guildhall/node.json");
    assert!(!node_file.exists(), "a stopped node has no address");
}

#[test]
fn a_killed_node_keeps_what_it_answered_and_its_place_is_free() {
    let home = Home::new();
    for round in 0..3 {
        let node = Node::up(&home, &ANY_PORT);
        for entry in 0..5 {
            let action = format!("round{round}.entry{entry}");
            assert_eq!(home.run(&["log", "append", &action]).code, 0);
        }
        node.kill();
    }
    let stored = actions(&home);
    let wanted: Vec<String> = (0..3)
        .flat_map(|round| {
            std::iter::once("node.started".to_owned())
                .chain((0..5).map(move |entry| format!("round{round}.entry{entry}")))
        })
        .collect();
    assert_eq!(stored, wanted);
}

#[test]
fn a_follower_sees_every_entry_once_across_a_restart() {
    let home = Home::new();
    let node = Node::up(&home, &ANY_PORT);
    let mut command = home.command(&["log", "tail", "--follow", "--json", "-n", "100"]);
    let mut tail = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (seen, numbers) = mpsc::channel();
    let lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let entry: Value = serde_json::from_str(&line).unwrap();
            let _ = seen.send(entry["seq"].as_i64().unwrap());
        }
    });
    assert_eq!(numbers.recv().unwrap(), 1);
    home.run(&["log", "append", "before.kill"]);
    assert_eq!(numbers.recv().unwrap(), 2);
    node.kill();
    // Written while nobody runs: the follower learns of it from the next node.
    assert_eq!(home.run(&["log", "append", "between.nodes"]).code, 0);
    let node = Node::up(&home, &ANY_PORT);
    home.run(&["log", "append", "after.start"]);
    assert_eq!(
        [numbers.recv().unwrap(), numbers.recv().unwrap(), numbers.recv().unwrap()],
        [3, 4, 5]
    );
    tail.kill().unwrap();
    tail.wait().unwrap();
    reader.join().unwrap();
    assert_eq!(numbers.try_iter().count(), 0);
    node.stop();
}

#[test]
fn a_taken_port_is_avoided_unless_it_was_chosen_and_the_new_one_is_kept() {
    // Whether or not something listens on the usual port here, from now on something does.
    let _holder = std::net::TcpListener::bind("127.0.0.1:4848");
    let home = Home::new();
    let chosen = home.run(&["up", "--set", "gateway.listen=127.0.0.1:4848"]);
    assert_eq!(chosen.code, 3, "{chosen:?}");
    assert!(chosen.stderr.contains("error[node.listen]"), "{chosen:?}");
    let first = Node::up(&home, &[]);
    let address = first.url.clone();
    assert_ne!(address, "http://127.0.0.1:4848");
    assert_eq!(first.stop(), 0);
    let second = Node::up(&home, &[]);
    assert_eq!(second.url, address);
    second.stop();
}

#[test]
fn a_database_of_a_newer_program_is_refused_and_left_alone() {
    let home = Home::new();
    assert_eq!(home.run(&["log", "append", "test.done"]).code, 0);
    let file = home.path().join(".local/share/guildhall/node.db");
    let known = guild_store::Migrations::store().and(guild_ledger::migrations());
    let known = known.and(guild_network::migrations()).and(guild_market::migrations());
    let known = known.and(guild_roles::migrations()).and(guild_hosting::migrations());
    let newer = known.and(guild_kernel::migrations()).and([guild_store::Migration {
        area: "store",
        number: 99,
        name: "later",
        sql: "CREATE TABLE later (x BIGINT)".into(),
    }]);
    newer.apply(&mut guild_store::Sqlite::open(&file).unwrap(), 0).unwrap();
    for args in [&["up"][..], &["log", "append", "test.again"], &["log", "tail"]] {
        let run = home.run(args);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains("error[store.newer_schema]"), "{run:?}");
    }
}

/// A keystore that is lost must be put back: under a new key nothing in the database could be signed for.
#[test]
fn a_database_whose_keystore_is_gone_is_not_taken_over_by_a_new_one() {
    let home = Home::new();
    let made = Node::up(&home, &ANY_PORT);
    let npub = made.ready["provider"].clone();
    assert_eq!(made.stop(), 0);
    let keystore = home.path().join(KEYSTORE);
    let kept = home.path().join("kept.json");
    std::fs::rename(&keystore, &kept).unwrap();
    let owner = serde_json::from_slice::<Value>(&std::fs::read(&kept).unwrap()).unwrap();
    let owner = owner["npub"].as_str().unwrap().to_owned();
    let run = home.run(&["up"]);
    insta::assert_snapshot!(run.shown(&home).replace(&owner, "[OWNER]"), @"
    exit 2
    --- stderr
    error[node.other_identity]: the database belongs to [OWNER], whose keystore is not here; no new one was made
      --> [HOME]/.local/share/guildhall/keystore.json
    help: Put the keystore of the identity named into the data directory, or give this node a data directory and a database of its own.
    ");
    assert!(!keystore.exists());
    home.run(&["key", "new"]);
    let run = home.run(&["up"]);
    assert!(run.code == 2 && run.stderr.contains("error[node.other_identity]"), "{run:?}");
    assert!(run.stderr.contains(&owner), "{run:?}");
    std::fs::rename(&kept, &keystore).unwrap();
    let node = Node::up(&home, &ANY_PORT);
    assert_eq!(node.ready["provider"], npub);
    assert_eq!(node.stop(), 0);
}

#[test]
fn many_who_write_at_once_without_a_node_all_succeed() {
    let home = Home::new();
    // A killed node's address lies there, and leads to nobody.
    Node::up(&home, &ANY_PORT).kill();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..6)
            .map(|writer| {
                let action = format!("writer{writer}.wrote");
                let home = &home;
                scope.spawn(move || home.run(&["log", "append", &action]))
            })
            .collect();
        for writer in writers {
            let run = writer.join().unwrap();
            assert_eq!(run.code, 0, "{run:?}");
        }
    });
    let mut stored = actions(&home);
    stored.sort();
    let mut wanted: Vec<String> = (0..6).map(|writer| format!("writer{writer}.wrote")).collect();
    wanted.insert(0, "node.started".to_owned());
    assert_eq!(stored, wanted);
}

#[test]
fn a_node_answers_under_the_address_it_listens_on() {
    let home = Home::new();
    for listen in ["127.0.0.2:0", "0.0.0.0:0"] {
        let node = Node::up(&home, &["--set", &format!("gateway.listen={listen}")]);
        let run = home.run(&["log", "append", "test.done"]);
        assert_eq!(run.code, 0, "{run:?}");
        assert_eq!(node.stop(), 0);
    }
}

#[test]
fn what_others_left_open_does_not_hold_up_the_end() {
    use std::io::Write;
    let home = Home::new();
    let node = Node::up(&home, &ANY_PORT);
    let address = node.url.strip_prefix("http://").unwrap();
    let mut half = std::net::TcpStream::connect(address).unwrap();
    half.write_all(b"GET /healthz HT").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert_eq!(home.run(&["log", "append", "test.done"]).code, 0);
    assert_eq!(node.stop(), 0);
}

#[test]
fn a_long_log_is_shown_whole_from_any_number() {
    let home = Home::new();
    assert_eq!(home.run(&["log", "append", "first.entry"]).code, 0);
    let file = home.path().join(".local/share/guildhall/node.db");
    let mut db = guild_store::Sqlite::open(&file).unwrap();
    let body =
        r#"{"detail":{},"actor":"a","schema_version":"guild.audit_entry.v1","subject":null}"#;
    let fill = format!(
        "INSERT INTO event (topic, id, kind, at_ms, body)
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
         SELECT 'audit', printf('entry_%032x', i), 'many.entries', 0, '{body}' FROM n"
    );
    guild_store::Db::batch(&mut db, &fill).unwrap();
    let numbers = |args: &[&str]| -> Vec<i64> {
        let run = home.run(&[&["log", "tail", "--json"], args].concat());
        assert_eq!(run.code, 0, "{run:?}");
        let seq = |line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_i64().unwrap();
        run.stdout.lines().map(seq).collect()
    };
    assert_eq!(numbers(&["--after", "0"]), (1..=1501).collect::<Vec<_>>());
    assert_eq!(numbers(&["--after", "1499"]), [1500, 1501]);
    assert_eq!(numbers(&["-n", "1"]), [1501]);
    assert_eq!(numbers(&["--after", "5000"]), [0i64; 0]);
}
