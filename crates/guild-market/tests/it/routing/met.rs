//! What a meeting tells the matrix, of whoever is known and of whoever is not.

use std::collections::BTreeSet;

use guild_market::benchmark::Benchmark;
use guild_market::claim::Claimed;
use guild_market::evaluation::Options as EvaluationOptions;
use guild_market::health::Stage;
use guild_market::meeting::{Meeting, MeetingId, Outcome, State, Terms, changes};
use guild_market::routing::{Cause, Change, Entry, Matrix, Options, Status, log, over};

use super::{admitted, change, task, who};
use crate::world::{Node, T0, both};

const COOLDOWN_MS: i64 = T0 + 86_400_000;

fn meeting(n: u8, outcome: Outcome) -> Meeting {
    Meeting {
        meeting_id: MeetingId::of_key(&format!("{n} {}", outcome.name())),
        terms: Terms {
            provider: who(n),
            benchmark: Benchmark::StdV3,
            modules: Benchmark::StdV3.modules(),
            kind: 5000,
            encrypted: false,
            bid: None,
            relays: Vec::new(),
        },
        d: "main".to_owned(),
        task: task("embed"),
        choices: Vec::new(),
        begun_ms: T0,
        state: State::Routing,
        due_ms: T0,
        outcome: Some(outcome),
        evaluation: None,
        words: None,
        cooldown_until_ms: Some(COOLDOWN_MS),
        ended_ms: None,
        claimed: Claimed::default(),
    }
}

fn matrix(node: &Node) -> Matrix {
    node.read(|rx| log::replay(rx, &Options::default()))
}

fn append(node: &Node, changes: &[Change], now_ms: i64) {
    let changes = changes.to_vec();
    node.write(move |tx| log::append(tx, &Options::default(), &changes, now_ms)).unwrap();
}

/// Tells the matrix of a meeting, twice; what the entry is then.
fn told(node: &Node, n: u8, outcome: Outcome) -> Option<Entry> {
    for _ in 0..2 {
        let all = changes(&meeting(n, outcome), &EvaluationOptions::default(), &matrix(node));
        append(node, &all, T0 + 1);
    }
    matrix(node).entry(&task("embed"), &who(n)).cloned()
}

/// Four who are known, each for two kinds of work.
fn known(node: &Node) {
    for n in 1..=4 {
        append(node, &[change(&format!("a{n}"), "embed", n, admitted(6_000))], T0);
        append(node, &[change(&format!("b{n}"), "run", n, admitted(6_000))], T0);
    }
}

#[test]
fn who_fails_or_is_silent_is_left_alone_and_comes_back_by_a_fresh_evaluation() {
    both(|node| {
        known(node);
        let rejected = told(node, 1, Outcome::Rejected).unwrap();
        assert_eq!((rejected.status, rejected.cause), (Status::Quarantined, Some(Cause::Rejected)));
        let silent = told(node, 2, Outcome::Unresponsive).unwrap();
        assert_eq!((silent.status, silent.cause), (Status::Unresponsive, Some(Cause::Silent)));
        assert_eq!((rejected.until_ms, silent.until_ms), (Some(COOLDOWN_MS), Some(COOLDOWN_MS)));
        for outcome in [Outcome::Undelivered, Outcome::Unpaid] {
            assert_eq!(
                told(node, 3, outcome).unwrap().status,
                Status::Active,
                "it is not to blame"
            );
        }
        // Nobody is written down for having failed before it was known.
        for outcome in [Outcome::Rejected, Outcome::Unresponsive, Outcome::Unpaid] {
            assert_eq!(told(node, 9, outcome), None);
        }
        assert_eq!(over(&matrix(node), i64::MAX), [], "time alone brings nobody back");
        for n in [1, 2] {
            let failed = matrix(node).entry(&task("embed"), &who(n)).unwrap().health.clone();
            assert_eq!((failed.stage, failed.failures), (Stage::Suspended, 1));
            let back = told(node, n, Outcome::Conditional).unwrap();
            assert_eq!((back.status, back.until_ms), (Status::Conditional, None));
            assert_eq!((back.health.stage, back.health.failures), (Stage::Well, 1));
        }
    });
}

#[test]
fn who_tries_what_is_forbidden_is_shut_out_of_everything_known_or_not() {
    both(|node| {
        known(node);
        let bad = told(node, 1, Outcome::Forbidden).unwrap();
        assert_eq!((bad.status, bad.cause), (Status::Blacklisted, Some(Cause::Forbidden)));
        let after = matrix(node);
        let other = after.entry(&task("run"), &who(1)).unwrap();
        assert_eq!(other.status, Status::Blacklisted, "also for other work");
        // In its first meeting, too.
        let stranger = told(node, 9, Outcome::Forbidden).unwrap();
        assert_eq!((stranger.status, stranger.trust_bp), (Status::Blacklisted, 0));
        let after = matrix(node);
        let shut_out: BTreeSet<u8> = (1..=9).filter(|n| after.is_blacklisted(&who(*n))).collect();
        assert_eq!(shut_out, BTreeSet::from([1, 9]));
        assert!(after.problems().is_empty());
        // Nobody lets it in again: no better meeting, and no time.
        assert_eq!(told(node, 9, Outcome::Active).unwrap().status, Status::Blacklisted);
        let elsewhere = Meeting { task: task("other"), ..meeting(9, Outcome::Active) };
        assert_eq!(changes(&elsewhere, &EvaluationOptions::default(), &after), []);
        assert_eq!(over(&after, i64::MAX), []);
    });
}
