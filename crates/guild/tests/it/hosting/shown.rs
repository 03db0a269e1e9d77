//! What a person sees at the terminal: what a minute costs before it is bought, and beside every answer what goes each
//! minute and how long that lasts.

use super::{HOSTING, good, text};
use crate::node::Node;
use crate::support::{Home, Run};

/// What was printed, with names and times that are the same in every run.
fn shown(run: &Run, ids: &[(&str, &str)]) -> String {
    assert_eq!(run.code, 0, "{run:?}");
    let mut all = format!("{}----\n{}", run.stdout, run.stderr);
    for (id, name) in ids {
        all = all.replace(id, name);
    }
    let lines = all.lines().map(|line| match line.split_once("time left") {
        Some((before, span)) if !span.trim().is_empty() => {
            format!("{before}time left  {}", rough(span))
        }
        _ => match line.strip_suffix(" left").and_then(|line| line.rsplit_once(", ")) {
            Some((before, span)) => format!("{before}, {} left", rough(span)),
            None => line.to_owned(),
        },
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// How long, roughly: seconds go by while a test runs.
fn rough(span: &str) -> &'static str {
    match span.split_whitespace().nth(1) {
        Some("s") => "(seconds)",
        Some("min") => "(minutes)",
        Some("h") => "(hours)",
        _ => "(unknown)",
    }
}

#[test]
fn burn_and_time_left_are_always_seen() {
    let (operator, buyer) = (Home::new(), Home::new());
    let node = Node::up(&operator, &HOSTING);
    let url = format!("http://{}", node.address());
    good(&buyer, &["key", "new"]);
    let user_id = text(&good(&buyer, &["login", "--host", &url]), "user_id");
    good(&operator, &["billing", "credit", &user_id, "10c", "--reference", "wire 1"]);
    let made =
        good(&buyer, &["job", "create", "--budget", "1500", "--ttl", "2h", "--name", "small"]);
    let job_id = text(&made, "job_id");
    assert_eq!(
        (&made["burn_micro_usd_per_minute"], &made["lasts_ms"]),
        (&0.into(), &made["left_ms"])
    );
    let created = buyer.run(&["sandbox", "create", &job_id, "--ram-mib", "1024"]);
    let list = good(&buyer, &["sandbox", "ls"]);
    let sandbox = &list["sandboxes"][0];
    let id = text(sandbox, "sandbox_id");
    let ids = [(job_id.as_str(), "JOB"), (id.as_str(), "SANDBOX")];
    let mut all = shown(&created, &ids);

    // An hour and more is left on the clock, and less than a minute is paid.
    let (left_ms, lasts_ms) = (sandbox["left_ms"].as_i64(), sandbox["lasts_ms"].as_i64());
    assert!(left_ms > Some(3_600_000), "{sandbox}");
    assert!(lasts_ms <= Some(60_000), "{sandbox}");
    let job = good(&buyer, &["job", "show", &job_id]);
    assert_eq!(job["burn_micro_usd_per_minute"], 1_110);
    assert!(job["lasts_ms"].as_i64() <= Some(60_000), "{job}");

    // Their columns are as wide as what stands in them, and that is a time.
    for args in [["job", "ls"], ["sandbox", "ls"]] {
        let list = buyer.run(&args);
        let (head, row) = list.stdout.split_once('\n').unwrap_or_default();
        assert!(head.contains("a minute") && head.ends_with("time left"), "{list:?}");
        assert!(row.contains(" 0.00111 USD ") && row.trim_end().ends_with(" s"), "{list:?}");
    }
    let mut run = |args: &[&str]| {
        all.push_str("\n\n");
        all.push_str(&shown(&buyer.run(args), &ids));
    };
    run(&["job", "show", &job_id]);
    run(&["sandbox", "exec", &id, "--", "echo", "hello"]);
    buyer.write("in.txt", "hello");
    run(&["sandbox", "cp", "in.txt", &format!("{id}:in.txt")]);
    run(&["job", "extend", &job_id, "--budget", "5c"]);
    run(&["sandbox", "extend", &id, "--budget", "4c"]);
    let exec = buyer.run(&["--json", "sandbox", "exec", &id, "--", "true"]);
    let exec: serde_json::Value = serde_json::from_str(&exec.stdout).unwrap_or_default();
    assert_eq!(exec["burn_micro_usd_per_minute"], 1_110);
    assert!(exec["lasts_ms"].as_i64() > Some(60_000), "{exec}");
    run(&["job", "stop", &job_id]);
    insta::assert_snapshot!(all, @"
    sandbox    SANDBOX
    status     running
    spent      0.00111 USD of 0.0015 USD
    burns      0.00111 USD a minute
    time left  (seconds)
    ----
    a minute costs 0.00111 USD

    job        JOB
    name       small
    status     running
    spent      0.00111 USD of 0.0015 USD
    burns      0.00111 USD a minute
    time left  (seconds)
    ----

    hello
    ----
    SANDBOX: 0.00111 USD a minute, (seconds) left

    5 bytes to SANDBOX:in.txt
    ----
    SANDBOX: 0.00111 USD a minute, (seconds) left

    job        JOB
    name       small
    status     running
    spent      0.00111 USD of 0.05 USD
    burns      0.00111 USD a minute
    time left  (minutes)
    ----

    sandbox    SANDBOX
    status     running
    spent      0.00111 USD of 0.04 USD
    burns      0.00111 USD a minute
    time left  (minutes)
    ----

    job        JOB
    name       small
    status     stopped
    spent      0.00111 USD of 0.05 USD
    burns      0.00 USD a minute
    time left  (seconds)
    ----
    ");
    node.stop();
}
