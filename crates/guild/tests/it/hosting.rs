//! Hosting as a newcomer meets it: a new wallet, its first money, a job, a sandbox, and the end of the budget.

mod certified;
mod commands;
mod hostile;
mod lists;
mod machines;
mod resized;
mod schema;
mod secure;
mod shop;
mod shown;
mod skew;

use std::time::Duration;

use guild_store::{Columns, Db, FromVal, Sqlite, args};
use serde_json::Value;

use crate::node::Node;
use crate::support::Home;

const HOSTING: [&str; 4] = ["--set", "hosting.enabled=true", "--set", "gateway.listen=127.0.0.1:0"];

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no {field}: {value}")).to_owned()
}

fn good(home: &Home, args: &[&str]) -> Value {
    let (code, answer) = home.json(args);
    assert_eq!(code, 0, "{args:?}: {answer}");
    answer
}

#[test]
fn a_new_wallet_buys_a_minute_and_is_stopped_at_its_budget() {
    let (operator, buyer) = (Home::new(), Home::new());
    let node = Node::up(&operator, &HOSTING);
    let url = format!("http://{}", node.address());
    good(&buyer, &["key", "new"]);
    let signed_in = good(&buyer, &["login", "--host", &url]);
    let user_id = text(&signed_in, "user_id");
    let credit = ["billing", "credit", &user_id, "1c", "--reference", "wire 1"];
    assert_eq!(good(&operator, &credit)["new"], true);
    assert_eq!(good(&operator, &credit)["new"], false);

    // A budget for one minute and a half buys one minute.
    let job = good(&buyer, &["job", "create", "--budget", "1500", "--ttl", "1h"]);
    let job_id = text(&job, "job_id");
    let sandbox = good(&buyer, &["sandbox", "create", &job_id, "--ram-mib", "1024"]);
    let id = text(&sandbox, "sandbox_id");
    assert_eq!(text(&sandbox, "status"), "running");
    let run =
        buyer.run(&["sandbox", "exec", &id, "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, "out\n"), "{run:?}");
    assert!(run.stderr.contains("err\n") && run.stderr.contains("exit code 3"), "{run:?}");
    let file = buyer.write("in.txt", "hello");
    let inside = format!("{id}:in.txt");
    good(&buyer, &["sandbox", "cp", file.to_str().unwrap(), &inside]);
    let shout = "tr a-z A-Z < in.txt > out.txt";
    assert_eq!(buyer.run(&["sandbox", "exec", &id, "--", "sh", "-c", shout]).code, 0);
    good(&buyer, &["sandbox", "cp", &format!("{id}:out.txt"), "out.txt"]);
    assert_eq!(std::fs::read(buyer.path().join("out.txt")).unwrap(), b"HELLO");
    let escape = ["sandbox", "cp", file.to_str().unwrap(), &format!("{id}:../../etc/x")];
    assert_ne!(buyer.run(&escape).code, 0);

    // Nobody pays for a second minute: it ends, and its files can still be fetched.
    let ended = until_ended(&buyer, &id);
    // It was granted what its job has left, so its own cap is the one that is met.
    assert_eq!(text(&ended, "stop_reason"), "sandbox_cap");
    assert_eq!((&ended["spent_micro_usd"], &ended["paid_minutes"]), (&1_110.into(), &1.into()));
    ended_exactly(&ended);
    assert_eq!(good(&buyer, &["job", "show", &job_id])["spent_micro_usd"], 1_110);
    let refused = buyer.run(&["sandbox", "exec", &id, "--", "true"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let balance = good(&buyer, &["billing", "balance"]);
    assert_eq!(balance["free_micro_usd"], 10_000 - 1_110);
    let statement = good(&buyer, &["billing", "statement"]);
    let minutes = statement["lines"].as_array().unwrap().iter();
    assert_eq!(minutes.filter(|line| line["step"] == "settle").count(), 1, "{statement}");
    let page = good(&buyer, &["login", "--page"]);
    assert_eq!(text(&page, "url"), format!("{url}/hosting"));
    assert!(text(&page, "token").starts_with("ghk_"), "a key, and no session");
    good(&buyer, &["logout"]);
    assert_eq!(buyer.run(&["job", "ls"]).code, 2);
    node.stop();
    ran_as_paid(&operator, &id, 1);
}

#[test]
fn a_budget_ends_all_that_share_it_though_their_own_caps_would_pay_for_more() {
    let (operator, buyer) = (Home::new(), Home::new());
    let node = Node::up(&operator, &HOSTING);
    let url = format!("http://{}", node.address());
    good(&buyer, &["key", "new"]);
    let user_id = text(&good(&buyer, &["login", "--host", &url]), "user_id");
    good(&operator, &["billing", "credit", &user_id, "1c", "--reference", "wire 1"]);
    // Each may spend all of it, and a minute of both leaves too little for another one.
    let job = good(&buyer, &["job", "create", "--budget", "3000", "--ttl", "1h"]);
    let job_id = text(&job, "job_id");
    let create = ["sandbox", "create", &job_id, "--ram-mib", "1024", "--budget", "3000"];
    let ids = [(); 2].map(|()| text(&good(&buyer, &create), "sandbox_id"));
    let ended = ids.each_ref().map(|id| until_ended(&buyer, id));
    for sandbox in &ended {
        assert_eq!(sandbox["paid_minutes"], 1, "{sandbox}");
        ended_exactly(sandbox);
    }
    assert_eq!(text(&ended[0], "stop_reason"), "job_cap", "{}", ended[0]);
    let job = good(&buyer, &["job", "show", &job_id]);
    assert_eq!(text(&job, "status"), "stopped_due_to_budget", "{job}");
    assert_eq!(job["spent_micro_usd"], 2 * 1_110, "{job}");
    assert_eq!(good(&buyer, &["billing", "balance"])["free_micro_usd"], 10_000 - 2 * 1_110);
    node.stop();
    ids.iter().for_each(|id| ran_as_paid(&operator, id, 1));
}

/// By how much earlier than what is paid the agent ends everything at most: it needs a moment for it.
const MARGIN_MS: i64 = 1_000;

/// It may run exactly as long as is paid, but for the moment in which it is ended.
fn ended_exactly(sandbox: &Value) {
    let number =
        |field: &str| sandbox[field].as_i64().unwrap_or_else(|| panic!("no {field}: {sandbox}"));
    let paid_ms = number("paid_minutes") * 60_000;
    let left_ms = number("started_ms") + paid_ms - number("ends_ms");
    assert!((0..=MARGIN_MS).contains(&left_ms), "{left_ms} ms of what is paid are left: {sandbox}");
}

/// What its agent said that it ran is within what was paid.
fn ran_as_paid(operator: &Home, id: &str, minutes: i64) {
    let ran_ms = ran_ms(operator, id).unwrap_or_else(|error| panic!("{id}: {error}"));
    assert!((1..=minutes * 60_000).contains(&ran_ms), "{id} ran {ran_ms} ms");
}

fn ran_ms(operator: &Home, id: &str) -> guild_store::Result<i64> {
    let file = operator.path().join(".local/share/guildhall/node.db");
    let mut ran_ms = None;
    let mut read = |row: &dyn Columns| {
        ran_ms = i64::from_val(row.val(0)?);
        Ok(())
    };
    let ran = "SELECT ran_ms FROM hosting_sandbox WHERE sandbox_id = $1";
    Sqlite::open(&file)?.query(ran, args![id], &mut read)?;
    Ok(ran_ms.unwrap_or(0))
}

#[expect(clippy::disallowed_methods, reason = "a minute is a minute")]
fn until_ended(buyer: &Home, id: &str) -> Value {
    for _ in 0..600 {
        let sandbox = good(buyer, &["sandbox", "show", id]);
        if text(&sandbox, "status") == "stopped" {
            return sandbox;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    panic!("{id} does not end");
}

/// Changes the database of a home; whether it could.
fn plant(home: &Home, sql: &str) -> bool {
    let file = home.path().join(".local/share/guildhall/node.db");
    Sqlite::open(&file).is_ok_and(|mut database| database.batch(sql).is_ok())
}

#[test]
fn a_clock_that_ran_back_is_accepted_with_a_node_and_without() {
    let home = Home::new();
    assert_eq!(home.run(&["billing", "clock"]).code, 2, "there is no database yet");
    assert_eq!(Node::up(&home, &["--set", "gateway.listen=127.0.0.1:0"]).stop(), 0);
    let (code, answer) = home.json(&["billing", "clock"]);
    assert_eq!((code, &answer["clock"]["sight"]), (0, &"never".into()), "{answer}");

    // The meter has seen a day far ahead.
    let ahead = "INSERT INTO hosting_meter (one, last_ms, suspect_ms, ticks, backs, jumps)
        VALUES (1, 4000000000000, NULL, 7, 0, 0) ON CONFLICT (one) DO UPDATE SET last_ms = excluded.last_ms";
    assert!(plant(&home, ahead));
    let (code, answer) = home.json(&["billing", "clock"]);
    assert_eq!((code, &answer["clock"]["sight"]), (1, &"back".into()), "{answer}");
    let nobody = home.run_without_terminal(&["billing", "clock", "--accept"]);
    assert_eq!(nobody.code, 2, "{nobody:?}");
    assert!(nobody.stderr.contains("say --yes"), "{nobody:?}");
    let accept = ["billing", "clock", "--accept", "--yes"];
    let (code, answer) = home.json(&accept);
    assert_eq!((code, &answer["accepted"]), (0, &true.into()), "{answer}");
    let (code, answer) = home.json(&accept);
    assert_eq!(
        (code, &answer["accepted"]),
        (0, &false.into()),
        "there is nothing to accept: {answer}"
    );

    // The same while a node runs; it also forgets who signed in long ago.
    assert!(plant(&home, ahead));
    let signed_in = "INSERT INTO event (topic, id, kind, at_ms, body) VALUES ('access', 'old', 'x', 1000, '{}')";
    assert!(plant(&home, signed_in));
    let node = Node::up(&home, &HOSTING);
    let (code, answer) = home.json(&["billing", "clock"]);
    assert_eq!((code, &answer["clock"]["sight"]), (1, &"back".into()), "{answer}");
    let (code, answer) = home.json(&accept);
    assert_eq!((code, &answer["clock"]["steady"]), (0, &true.into()), "{answer}");
    let run = home.run(&["billing", "clock"]);
    assert!(run.stdout.contains("is steady"), "{run:?}");
    let gone = "CREATE TEMP TABLE gone (n CHECK (n = 0));
        INSERT INTO gone SELECT count(*) FROM event WHERE id = 'old'";
    while !plant(&home, gone) {}
    assert_eq!(node.stop(), 0);
}

#[test]
fn a_row_that_is_set_aside_is_counted_where_somebody_watches() {
    let (operator, buyer) = (Home::new(), Home::new());
    let node = Node::up(&operator, &HOSTING);
    let url = format!("http://{}", node.address());
    let name = r#"hosting_met_total{service="meter",what="set_aside"}"#;
    let counted = || crate::explorer::counted(&node, name);
    assert_eq!(counted(), Some(0), "whoever watches sees that nothing has happened");
    good(&buyer, &["key", "new"]);
    good(&buyer, &["login", "--host", &url]);
    good(&buyer, &["job", "create", "--budget", "1500", "--ttl", "1h"]);
    // It is due, and whose it is cannot be read.
    while !plant(&operator, "UPDATE hosting_job SET user_id = 'nobody', due_ms = 1") {}
    let seen = (0..600).any(|_| {
        testbed::wait_ms(100);
        counted() == Some(1)
    });
    assert!(seen, "it is not counted");
    assert_eq!(node.stop(), 0);
}

#[test]
fn signing_in_without_a_proof_is_refused_where_others_can_reach() {
    let home = Home::new();
    let own = "gateway.listen=127.0.0.1:0";
    for open in [
        ["gateway.listen=0.0.0.0:0", "hosting.enabled=true"],
        [own, "hosting.trusted_proxies=127.0.0.1"],
        [own, "hosting.origins=https://guild.example.com"],
    ] {
        let sets = ["hosting.sign_in_without_proof=true", open[0], open[1]];
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let run = home.run(&["up"].into_iter().chain(sets).collect::<Vec<_>>());
        assert_eq!(run.code, 2, "{open:?}: {run:?}");
        assert!(run.stderr.contains("access.bypass_exposed"), "{open:?}: {run:?}");
    }
}
