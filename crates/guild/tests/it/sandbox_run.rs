//! Commands on a tree of files: what they give, whoever they belong to, and how others are hired for them.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::thread;

use guild_market::sandbox_run::{
    ARTIFACTS_MAX, Bounds, Plan, Ran, Status, Stop, frame_bytes, output, perform,
};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use guild_protocol::schema::{Job, Registry};
use guild_sandbox::{Image, Limits, Ns, Options};
use serde_json::{Value, json};

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

const IMAGE: &str = "sha256:host";

fn sandbox() -> Ns {
    Ns::new(Options::new(env!("CARGO_BIN_EXE_guild"))).unwrap()
}

fn job(tree: &Value, commands: &Value) -> Job {
    let input = json!({
        "sandbox": {"image_digest": IMAGE, "resources": {"memory_mb": 128, "timeout_secs": 20, "disk_mb": 16}},
        "repo": {"source": "env:TREE"}, "env": {"TREE": tree.to_string()}, "commands": commands,
    });
    Registry::builtin().validate_input(&"oa.sandbox_run.v1".parse().unwrap(), &input).unwrap()
}

fn plan(tree: &Value, commands: &[&str]) -> Plan {
    let commands: Vec<_> = commands.iter().map(|cmd| json!({"cmd": cmd})).collect();
    let bounds = Bounds { limits: Limits::job(), images: [(IMAGE.to_owned(), Image::Host)].into() };
    Plan::of(&job(tree, &json!(commands)), &bounds).unwrap()
}

fn ran(plan: &Plan) -> Ran {
    perform(&sandbox(), plan, &Stop::default()).unwrap()
}

fn run(commands: &[&str]) -> Ran {
    ran(&plan(&json!({}), commands))
}

fn codes(ran: &Ran) -> Vec<i32> {
    ran.runs.iter().map(|run| run.exit_code).collect()
}

fn made(ran: &Ran) -> Vec<(&str, Hash)> {
    ran.artifacts.iter().map(|one| (one.path.as_str(), one.sha256)).collect()
}

#[test]
fn commands_work_on_the_tree_and_what_they_make_is_named() {
    let tree = json!({"src/a": "one\n", "same": "same\n", "x.sh": {"text": "#!/bin/sh\nwc -l < src/a\n", "executable": true}});
    let ran = ran(&plan(
        &tree,
        &["./x.sh | tee src/count", "echo two >> src/a; cp same copy", "cat missing"],
    ));
    assert_eq!((codes(&ran), ran.status), (vec![0, 0, 1], Status::Failed));
    assert_eq!(ran.runs[0].stdout.head, b"1\n");
    assert_eq!(ran.runs[0].stdout.sha256, Hash::of(b"1\n"));
    assert!(String::from_utf8_lossy(&ran.runs[2].stderr.head).contains("missing"));
    assert_eq!(
        made(&ran),
        [
            ("/workspace/copy", Hash::of(b"same\n")),
            ("/workspace/src/a", Hash::of(b"one\ntwo\n")),
            ("/workspace/src/count", Hash::of(b"1\n")),
        ],
        "what was there before and is as it was is not made"
    );
}

/// What honest hosts must agree about.
#[test]
fn two_runs_agree_about_everything_that_is_compared() {
    let tree =
        json!({"t.py": "import os, time\nprint(hash('x'), sorted(os.environ), time.tzname)\n"});
    let commands = [
        "date -r t.py +%s > time",
        "env | sort > env",
        "ls / > root; ls > list",
        "python3 t.py > py",
    ];
    let plan = plan(&tree, &commands);
    let (a, b) = (ran(&plan), ran(&plan));
    assert_eq!((a.status, &a.artifacts), (Status::Success, &b.artifacts));
    assert!(made(&a).contains(&("/workspace/time", Hash::of(b"315532800\n"))), "{:?}", made(&a));
    let pycache = a.artifacts.iter().find(|one| one.path.contains("pycache"));
    assert_eq!(pycache, None);
}

#[test]
fn a_failure_ends_it_unless_the_job_says_otherwise() {
    let stops = run(&["true", "exit 3", "touch never"]);
    assert_eq!(
        (codes(&stops), stops.status, stops.artifacts.len()),
        (vec![0, 3], Status::Failed, 0)
    );
    let bounds = Bounds { limits: Limits::job(), images: [(IMAGE.to_owned(), Image::Host)].into() };
    let commands = json!([{"cmd": "exit 3", "continue_on_fail": true}, {"cmd": "kill -9 $$"}, {"cmd": "true"}]);
    let goes_on = ran(&Plan::of(&job(&json!({}), &commands), &bounds).unwrap());
    assert_eq!((codes(&goes_on), goes_on.status), (vec![3, 137], Status::Failed));
    let nowhere = json!([{"cmd": "true", "workdir": "no/such/place"}]);
    let nowhere = ran(&Plan::of(&job(&json!({}), &nowhere), &bounds).unwrap());
    assert_eq!((codes(&nowhere), nowhere.status), (vec![127], Status::Failed));
}

#[test]
fn what_takes_too_long_is_a_timeout_without_artifacts() {
    let mut slow = plan(&json!({}), &["touch a", "sleep 100"]);
    slow.limits.wall_ms = 700;
    let ran = ran(&slow);
    assert_eq!((ran.status, codes(&ran), ran.artifacts.len()), (Status::Timeout, vec![0], 0));
}

#[test]
fn output_without_end_ends_the_run() {
    let mut loud = plan(&json!({}), &["yes"]);
    loud.limits.output_bytes = 1 << 20;
    let ran = ran(&loud);
    assert_eq!(
        (ran.status, ran.error.as_deref()),
        (Status::Error, Some("the commands printed too much"))
    );
}

#[test]
fn the_environment_of_the_node_is_not_seen() {
    let ran = run(&["env"]);
    let seen = String::from_utf8_lossy(&ran.runs[0].stdout.head).into_owned();
    assert!(seen.contains("SOURCE_DATE_EPOCH=315532800"), "{seen}");
    for name in ["CARGO", "USER", "TREE"] {
        assert!(!seen.lines().any(|line| line.starts_with(name)), "{name}: {seen}");
    }
}

#[test]
fn nobody_is_reached() {
    let connect = "import socket; socket.create_connection(('127.0.0.1', 4848), 1)";
    let ran = run(&[&format!("python3 -c \"{connect}\"")]);
    assert_ne!(codes(&ran), [0]);
    assert_eq!(ran.status, Status::Failed);
}

#[test]
fn files_that_are_none_are_not_artifacts() {
    let ran =
        run(&["ln -s /etc/passwd link; mkfifo pipe; mkdir dir; touch dir/file; ln -s dir linked"]);
    assert_eq!(ran.status, Status::Success);
    assert_eq!(made(&ran), [("/workspace/dir/file", Hash::of(b""))]);
}

#[test]
fn of_ten_thousand_files_as_many_are_named_as_fit() {
    let ran = run(&["i=0; while [ $i -lt 10000 ]; do : > f$i; i=$((i + 1)); done"]);
    assert_eq!((ran.status, ran.artifacts.len()), (Status::Success, ARTIFACTS_MAX));
    assert_eq!(ran.artifacts[1].path, "/workspace/f1", "the first by their paths");
}

/// Whoever gives its files long names must not make others work for a result that cannot be sent.
#[test]
fn long_names_do_not_make_a_result_too_large() {
    let long = "d=$(printf 'x%.0s' $(seq 200)); mkdir -p $d/$d/$d; i=0; while [ $i -lt 99 ]; do \
        : > \"$d/$d/$d/$(printf '\\001%.0s' $(seq 60))$i\"; i=$((i + 1)); done";
    let job = job(&json!({}), &json!([{"cmd": long}]));
    let plan = plan(&json!({}), &[long]);
    let ran = ran(&plan);
    assert_eq!(ran.status, Status::Success, "{ran:?}");
    assert!((1..99).contains(&ran.artifacts.len()));
    let provider = SecretKey::from_bytes([1; 32]).unwrap().public_key();
    let output = output(&job, &plan, &ran, &provider);
    Registry::builtin().validate_output(job.schema_id(), &output).unwrap();
    assert!(output.to_string().len() <= frame_bytes(&job));
}

#[test]
fn a_name_that_no_result_can_hold_is_an_error_of_the_job() {
    let ran = run(&["touch \"$(printf 'a\\377b')\""]);
    assert_eq!((ran.status, ran.artifacts.len()), (Status::Error, 0));
}

#[test]
fn a_daemon_does_not_outlive_the_run() {
    let ran = run(&["(sleep 1000; touch late) > /dev/null 2>&1 & echo started"]);
    assert_eq!((ran.status, ran.artifacts.len()), (Status::Success, 0));
}

#[test]
fn a_run_that_nobody_waits_for_is_stopped() {
    let stop = Stop::default();
    let stopper = stop.clone();
    let waits =
        thread::spawn(move || perform(&sandbox(), &plan(&json!({}), &["sleep 1000"]), &stop));
    testbed::wait_ms(300);
    stopper.stop();
    assert_eq!(waits.join().unwrap().unwrap_err().code().name, "sandbox.failed");
    let stop = Stop::default();
    stop.stop();
    assert!(perform(&sandbox(), &plan(&json!({}), &["sleep 1000"]), &stop).is_err());
}

/// Whatever was made, the result is one that its schema takes.
#[test]
fn every_end_is_a_valid_result() {
    let provider = SecretKey::from_bytes([1; 32]).unwrap().public_key();
    for line in ["true", "exit 7", "printf '\\001\\377\\000'; yes | head -c 100000", "touch 'a\nb'"]
    {
        let job = job(&json!({}), &json!([{"cmd": line}]));
        let plan = plan(&json!({}), &[line]);
        let output = output(&job, &plan, &ran(&plan), &provider);
        Registry::builtin().validate_output(job.schema_id(), &output).unwrap();
    }
}

pub(crate) fn fund(home: &Home) {
    let fund = ["ledger", "transfer", "--from", "outside/main", "--to", "node/wallet"];
    let run = home.run(&[&fund[..], &["--asset", "BTC_LN", "--units", "10000"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
}

/// Two real processes: one hires, the other runs; and the first runs it again before it pays.
#[test]
fn somebody_is_hired_to_run_tests() {
    let worker = Home::new().with("SECRET_OF_THE_NODE", "hunter2");
    let offers = ["--set", "sandbox_run.enabled=true", "--set", "sandbox_run.price_msat=300"];
    let node = Node::up(&worker, &[&ANY_PORT[..], &offers].concat());
    let relay = format!("ws://{}/relay", node.address());
    let buyer = Home::new().with("GUILD_NETWORK_RELAYS", &relay);
    assert_eq!(Node::up(&buyer, &ANY_PORT).stop(), 0);
    fund(&buyer);
    buyer.write("tree/test.sh", "test \"$(cat data)\" = 7 && echo fine > report\n");
    buyer.write("tree/data", "7\n");
    let hire = ["hire", "--tree", "tree", "--command", "sh test.sh", "--command", "env"];
    let (code, told) = buyer.json(&hire);
    assert_eq!(
        (code, &told["state"], &told["paid_msat"]),
        (0, &"released".into(), &300.into()),
        "{told}"
    );
    let output = &told["output"];
    assert_eq!(
        (&output["status"], &output["runs"][0]["exit_code"]),
        (&"success".into(), &0.into())
    );
    let report =
        json!([{"path": "/workspace/report", "sha256": Hash::of(b"fine\n"), "size_bytes": 5}]);
    assert_eq!(output["artifacts"], report);
    let seen = output["runs"][1]["stdout_preview"].as_str().unwrap();
    assert!(seen.contains("TZ=UTC") && !seen.contains("hunter2"), "{seen}");
    // Bad news is good work: a test that fails is paid, too.
    buyer.write("tree/data", "8\n");
    let (code, told) = buyer.json(&hire);
    assert_eq!((code, &told["output"]["status"]), (0, &"failed".into()), "{told}");
    let (_, images) = buyer.json(&["sandbox", "images"]);
    assert_eq!(images["images"][0]["digest"], output["env_info"]["image_digest"]);
    // What is not given here.
    let beyond = r#"{"sandbox":{"resources":{"timeout_secs":100000}}}"#;
    for (more, name) in [
        (vec!["--input", beyond], "market.unverifiable"),
        (vec!["--image", "sha256:other"], "market.unverifiable"),
        (vec!["--provider", "any"], "buyer.open_run"),
        (vec!["--input", r#"{"commands":[]}"#], "hire.tree"),
        (vec!["--input", r#"{"repo":{"mount_path":"/etc"}}"#], "market.unverifiable"),
    ] {
        let (code, told) = buyer.json(&[&["hire", "--command", "true"], &more[..]].concat());
        assert_eq!((code, told["error"]["code"].as_str()), (2, Some(name)), "{told}");
    }
    let run =
        buyer.run(&["hire", "--tree", "tree", "--schema", "oa.sandbox_run.v1", "--input", "{}"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(node.stop(), 0);
}

/// The processes of this host that were started with this word.
fn running(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok());
    let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let has = |line: &Vec<u8>| line.windows(word.len()).any(|part| part == word.as_bytes());
    processes.filter_map(line).filter(has).count()
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        testbed::wait_ms(50);
    }
    panic!("it never came: {what}");
}

/// A node that is killed while it runs commands leaves nothing of them, does them again when it is back, and is paid
/// once.
#[test]
fn a_node_that_is_killed_in_a_run_does_it_again_and_is_paid_once() {
    let buyer = Home::new();
    let only_buys = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
    let hall = Node::up(&buyer, &only_buys);
    fund(&buyer);
    let relay = format!("ws://{}/relay", hall.address());
    let worker = Home::new().with("GUILD_NETWORK_RELAYS", &relay);
    let offers = ["--set", "sandbox_run.enabled=true", "--set", "relay.enabled=false"];
    let offers = [&ANY_PORT[..], &offers].concat();
    let first = Node::up(&worker, &offers);
    let provider = first.ready["provider"].as_str().unwrap().to_owned();
    wait_until("the provider is known", || {
        let (_, known) = buyer.json(&["providers", "ls", "--schema", "oa.sandbox_run.v1"]);
        known["providers"].as_array().is_some_and(|all| !all.is_empty())
    });
    // In the worker's sandbox alone: the marker is not in the command line of whoever hires.
    let marked = "sleep 4.75312; echo made > made";
    let input =
        json!({"commands": [{"cmd": marked}], "sandbox": {"image_digest": image_of(&buyer)}});
    let input = buyer.write("job.json", input.to_string());
    let hire = ["hire", "--json", "--provider", &provider, "--deadline", "120s"];
    let work = ["--schema", "oa.sandbox_run.v1", "--input", input.to_str().unwrap()];
    let mut command = buyer.command(&[&hire[..], &work].concat());
    let hired = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_until("it runs", || running("4.75312") > 0);
    first.kill();
    wait_until("nothing is left", || running("4.75312") == 0);
    let second = Node::up(&worker, &offers);
    let told = hired.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!((&told["state"], &told["paid_msat"]), (&"released".into(), &1_000.into()), "{told}");
    assert_eq!(told["output"]["artifacts"][0]["path"], "/workspace/made");
    let (_, kept) = buyer.json(&["receipts", "ls"]);
    assert_eq!(kept["receipts"].as_array().unwrap().len(), 1, "{kept}");
    assert_eq!((second.stop(), hall.stop()), (0, 0));
    assert_eq!(running("4.75312"), 0);
}

pub(crate) fn image_of(home: &Home) -> String {
    let (_, images) = home.json(&["sandbox", "images"]);
    images["images"][0]["digest"].as_str().unwrap().to_owned()
}
