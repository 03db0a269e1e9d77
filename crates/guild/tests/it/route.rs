//! `guild route`
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::BTreeSet;

use guild_market::evaluation::{Note, Pace};
use guild_market::judge::Class;
use guild_market::routing::{Change, Mutation, Options as Routing, Status, TaskType, log};
use guild_protocol::env::Signer;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_store::{Hooks, Migrations, Options, Service};

use crate::support::Home;

fn who(n: u8) -> PublicKey {
    SecretKey::from_bytes([n; 32]).unwrap().public_key()
}

fn task() -> TaskType {
    "oa.embedding.v1".parse().unwrap()
}

/// A good one, a slow one under conditions, and one that cheated.
fn changes() -> Vec<Change> {
    let admitted = |status, trust_bp, pace, notes: &[Note]| Mutation::Admitted {
        d: "main".to_owned(),
        status,
        trust_bp,
        pace,
        notes: notes.iter().copied().collect::<BTreeSet<_>>(),
    };
    let outcome = |class, step_bp| Mutation::Outcome {
        class,
        step_bp,
        cost_msat: Some(500),
        latency_ms: Some(1_200),
    };
    let all = [
        (1, admitted(Status::Active, 7_500, Pace::Fast, &[Note::Fast, Note::Reliable])),
        (2, admitted(Status::Conditional, 4_500, Pace::Slow, &[])),
        (3, admitted(Status::Active, 6_000, Pace::Standard, &[])),
        (1, outcome(Class::Success, 1_500)),
        (3, outcome(Class::SecurityViolation, 0)),
    ];
    let change = |(place, (n, mutation)): (usize, (u8, Mutation))| Change {
        key: format!("change {place}"),
        task: task(),
        provider: who(n),
        mutation,
    };
    all.into_iter().enumerate().map(change).collect()
}

fn home_with_matrix() -> Home {
    let home = Home::new();
    assert_eq!(home.run(&["log", "append", "test.done"]).code, 0);
    let file = home.path().join(".local/share/guildhall/node.db");
    let all = Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations())
        .and(guild_roles::migrations())
        .and(guild_hosting::migrations())
        .and(guild_kernel::migrations());
    let service = Service::open(&Options::file(&file), &all, Hooks::default(), 0).unwrap();
    let written =
        service.handle().write(|tx| log::append(tx, &Routing::default(), &changes(), 1_000));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(written).unwrap();
    service.close();
    home
}

#[test]
fn a_route_is_explained() {
    let home = home_with_matrix();
    let run = home.run(&["route", "explain", "oa.embedding.v1", "--seed", "7"]);
    assert_eq!(run.code, 0, "{run:?}");
    let lines: Vec<&str> = run.stdout.lines().collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // The one glance: the good one leads, the slow one is annotated, the cheat is out.
    assert_eq!(words(lines[1])[1..5], ["primary", "1", "0.90", "0.83"]);
    assert!(lines[2].contains("tertiary") && lines[2].contains("SLOW"), "{}", run.stdout);
    assert!(lines[3].contains("is BLACKLISTED (forbidden)"), "{}", run.stdout);
    assert!(run.stdout.contains(&format!("tiered: {}", who(1))), "{}", run.stdout);
    assert!(run.stdout.contains("short of 2 active providers"), "{}", run.stdout);
    assert!(run.stderr.contains("--seed 7"), "{}", run.stderr);
    // The same seed gives the same, but for the time.
    let again = home.run(&["route", "explain", "oa.embedding.v1", "--seed", "7"]);
    assert_eq!(again.stdout, run.stdout);
    let (code, answer) = home.json(&["route", "explain", "oa.embedding.v1", "--seed", "7"]);
    assert_eq!((code, &answer["ok"]), (0, &serde_json::json!(true)));
    assert_eq!(answer["candidates"][0]["entry"]["trust_bp"], 9_000);
    assert_eq!(answer["candidates"][2]["entry"]["status"], "BLACKLISTED");
    assert_eq!(answer["choices"][0]["seed"], "7");
}

#[test]
fn work_that_nobody_does_has_no_route() {
    let home = home_with_matrix();
    let run = home.run(&["route", "explain", "benchmark-task"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("nobody was ever admitted for benchmark-task"), "{run:?}");
    let run = home.run(&["route", "explain", "two words"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("visible ASCII"), "{run:?}");
}
