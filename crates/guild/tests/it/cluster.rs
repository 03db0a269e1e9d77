//! Two nodes, two data directories, one PostgreSQL database and one NATS server.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use guild_store::{Columns, Db, Val};
use serde_json::Value;
use testbed::{Database, Nats};

use crate::key::KEYSTORE;
use crate::node::{ANY_PORT, Node};
use crate::support::Home;

fn home(database: &Database, namespace: &str) -> Home {
    Home::new()
        .with("GUILD_STORE_URL", &database.url())
        .with("GUILD_BUS_URL", &Nats::shared_url().unwrap())
        .with("GUILD_BUS_NAMESPACE", namespace)
}

#[test]
fn two_nodes_see_each_other_s_entries_and_share_one_ledger() {
    let database = Database::new().unwrap();
    let namespace = format!("cluster_{}", std::process::id());
    let homes = [home(&database, &namespace), home(&database, &namespace)];
    // They are one to others, so they have one identity.
    assert_eq!(homes[0].run(&["key", "new"]).code, 0);
    homes[1].copy_private(&homes[0], KEYSTORE);
    let nodes = homes.each_ref().map(|home| Node::up(home, &ANY_PORT));
    let mut command = homes[1].command(&["log", "tail", "--follow", "--json", "--after", "0"]);
    let mut tail = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || {
        let entry: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        (entry["seq"].as_i64().unwrap(), entry["action"].as_str().unwrap().to_owned())
    };
    for seq in 1..=2 {
        assert_eq!(next(), (seq, "node.started".to_owned()));
    }
    // Written at either node, followed at the second.
    for (seq, home) in (3..9).zip(homes.iter().cycle()) {
        let action = format!("test.entry{seq}");
        assert_eq!(home.run(&["log", "append", &action]).code, 0);
        assert_eq!(next(), (seq, action));
    }
    tail.kill().unwrap();
    tail.wait().unwrap();

    let did = |home: &Home, args: &[&str]| {
        let (code, answer) = home.json(&[&["ledger"], args].concat());
        assert_eq!(code, 0, "{args:?}: {answer}");
        answer
    };
    did(&homes[0], &["open", "outside", "main", "--asset", "BTC_LN", "--limit", "none"]);
    did(&homes[1], &["open", "ann", "main", "--asset", "BTC_LN"]);
    let id = format!("xfer_{:032x}", 9);
    let pay =
        ["transfer", "--from", "outside/main", "--to", "ann/main", "--units", "5", "--id", &id];
    assert_eq!(did(&homes[0], &pay)["outcome"], "new");
    assert_eq!(did(&homes[1], &pay)["outcome"], "known");
    for node in nodes {
        assert_eq!(node.stop(), 0);
    }
    // Without a node, too.
    assert_eq!(did(&homes[0], &pay)["outcome"], "known");
    assert_eq!(homes[1].run(&["ledger", "audit"]).code, 0);
    assert_eq!(homes[1].run(&["ledger", "export", "--evidence", "proof"]).code, 0);
    assert_eq!(homes[1].run(&["audit", "--evidence", "proof"]).code, 0);
}

/// Another keystore on the same database would deliver, pay and be paid under the wrong name.
#[test]
fn a_node_with_another_keystore_is_refused_and_leaves_the_database_alone() {
    let database = Database::new().unwrap();
    let [first, second] = [(); 2].map(|()| Home::new().with("GUILD_STORE_URL", &database.url()));
    Node::up(&first, &ANY_PORT).stop();
    let run = second.run(&["up"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("error[node.other_identity]"), "{run:?}");
    // Not even a keystore was made.
    assert!(!second.path().join(KEYSTORE).exists());
    assert_eq!(second.run(&["key", "new"]).code, 0);
    let (code, answer) = second.json(&["up"]);
    assert_eq!((code, &answer["error"]["code"]), (2, &"node.other_identity".into()), "{answer}");
    std::fs::remove_file(second.path().join(KEYSTORE)).unwrap();
    second.copy_private(&first, KEYSTORE);
    assert_eq!(Node::up(&second, &ANY_PORT).stop(), 0);
}

#[test]
fn the_doctor_says_which_server_and_whether_it_answers() {
    let database = Database::new().unwrap();
    let home = Home::new().with("GUILD_STORE_URL", &database.url());
    let doctor = ["doctor", "--set", "gateway.listen=127.0.0.1:0"];
    let run = home.run(&doctor);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("is reachable; `guild up` will apply "), "{run:?}");
    assert_eq!(home.run(&["log", "append", "test.done"]).code, 0);
    let run = home.run(&doctor);
    assert!(run.stdout.contains("is reachable; its schema is up to date\n"), "{run:?}");
    let free = testbed::free_port().unwrap();
    let url = format!("store.url=postgresql://guild:secret@127.0.0.1:{free}/guild");
    let run = Home::new().run(&[&doctor[..], &["--set", &url]].concat());
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stdout.contains("! missing  database") && !run.stdout.contains("secret"),
        "{run:?}"
    );
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_told_from_one_that_is_slow() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let place = silent.local_addr().unwrap();
    let url = format!("postgresql://guild:secret@{place}/guild?connect_timeout=1");
    let home = Home::new().with("GUILD_STORE_URL", &url);
    let said = format!("{place} accepted the connection but did not answer within 1 s");
    for args in [&["up"][..], &["ledger", "accounts"], &["log", "append", "test.done"]] {
        let run = home.run(args);
        assert_eq!(run.code, 3, "{args:?}: {run:?}");
        assert!(run.stderr.contains(&said) && !run.stderr.contains("secret"), "{run:?}");
    }
    let run = home.run(&["doctor", "--set", "gateway.listen=127.0.0.1:0"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains(&said) && !run.stdout.contains("secret"), "{run:?}");
}

#[test]
fn a_call_that_keeps_the_others_waiting_is_reported_with_its_place() {
    let database = Database::new().unwrap();
    let home = Home::new().with("GUILD_STORE_URL", &database.url());
    let (node, log) = Node::up_with_log(&home, &ANY_PORT);
    let mut other = guild_store::Postgres::new(&database.url()).unwrap();
    other.batch("BEGIN; LOCK TABLE event IN EXCLUSIVE MODE").unwrap();
    std::thread::scope(|scope| {
        let appended = scope.spawn(|| home.run(&["log", "append", "test.done"]));
        let waiting =
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'event'::regclass";
        let mut waits = 0;
        while waits == 0 {
            let count = &mut |row: &dyn Columns| {
                if let Val::Int(count) = row.val(0)? {
                    waits = count;
                }
                Ok(())
            };
            other.query(waiting, &[], count).unwrap();
        }
        testbed::wait_ms(50);
        other.batch("COMMIT").unwrap();
        assert_eq!(appended.join().unwrap().code, 0);
    });
    // Others may have waited too, for the same lock.
    let mut reported = log.lines().map_while(Result::ok);
    assert!(
        reported
            .any(|line| { line.contains("kept the database") && line.contains("audit_log.rs") })
    );
    assert_eq!(node.stop(), 0);
}
