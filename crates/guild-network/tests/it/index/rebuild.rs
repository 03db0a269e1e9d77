//! The index follows from the archive alone: made again, whatever has happened, it is the same.

use guild_network::archive::{self, Bounds};
use guild_network::index;
use guild_protocol::env::Signer;
use guild_protocol::nostr::job::Status;
use guild_protocol::nostr::{Event, kind};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{card, feedback, heartbeat, recommendation, request, result, stammering};
use crate::support::{NOW_S, Scratch, block_on, both, event, key};

type ProviderRow = (i64, String, String, String, Option<String>, Option<String>, i64, i64);
type RequestRow = (i64, Option<String>, Option<i64>, String, i64);
type AnswerRow = (i64, String, Option<String>, Option<i64>);

/// All rows that follow from the archive, as texts.
fn rows(scratch: &Scratch) -> Vec<String> {
    let read = scratch.store.read(|rx| {
        let mut rows: Vec<String> = Vec::new();
        let providers: Vec<ProviderRow> = rx.all(
            "SELECT seq, pubkey, d, canonical_d, name, canonical_name, first_ms, last_ms
             FROM index_provider ORDER BY seq",
            &[],
        )?;
        rows.extend(providers.iter().map(|row| format!("{row:?}")));
        let schemas: Vec<(String, i64)> =
            rx.all("SELECT schema_id, seq FROM index_schema ORDER BY seq, schema_id", &[])?;
        rows.extend(schemas.iter().map(|row| format!("{row:?}")));
        let requests: Vec<RequestRow> = rx.all(
            "SELECT seq, schema_id, bid_msat, providers, private FROM index_request ORDER BY seq",
            &[],
        )?;
        rows.extend(requests.iter().map(|row| format!("{row:?}")));
        let answers: Vec<AnswerRow> = rx.all(
            "SELECT seq, request_id, status, price_msat FROM index_answer ORDER BY seq",
            &[],
        )?;
        rows.extend(answers.iter().map(|row| format!("{row:?}")));
        let recommendations: Vec<(String, i64, String)> = rx.all(
            "SELECT provider, seq, author FROM index_recommendation ORDER BY seq, provider",
            &[],
        )?;
        rows.extend(recommendations.iter().map(|row| format!("{row:?}")));
        Ok::<_, guild_store::Error>(rows)
    });
    block_on(read).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Card {
        author: u64,
        d: usize,
        schemas: usize,
        at: u64,
    },
    Request {
        buyer: u64,
        to: Option<u64>,
        at: u64,
    },
    /// Of the nth event before it, if that is a request.
    Answer {
        of: usize,
        provider: u64,
        is_result: bool,
        at: u64,
    },
    Delete {
        of: usize,
    },
    Heartbeat {
        author: u64,
        at: u64,
    },
    Recommend {
        author: u64,
        providers: Vec<u64>,
        at: u64,
    },
    Pin {
        of: usize,
    },
    Sweep {
        max_events: i64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let of = 0..30usize;
    let at = 0..5u64;
    prop_oneof![
        4 => (1..4u64, 0..2usize, 0..4usize, at.clone())
            .prop_map(|(author, d, schemas, at)| Step::Card { author, d, schemas, at }),
        3 => (1..4u64, proptest::option::of(1..4u64), at.clone())
            .prop_map(|(buyer, to, at)| Step::Request { buyer, to, at }),
        4 => (of.clone(), 1..4u64, any::<bool>(), at.clone())
            .prop_map(|(of, provider, is_result, at)| Step::Answer { of, provider, is_result, at }),
        2 => of.clone().prop_map(|of| Step::Delete { of }),
        1 => (1..4u64, at.clone()).prop_map(|(author, at)| Step::Heartbeat { author, at }),
        1 => (1..4u64, proptest::collection::vec(1..4u64, 0..4), at)
            .prop_map(|(author, providers, at)| Step::Recommend { author, providers, at }),
        1 => of.prop_map(|of| Step::Pin { of }),
        1 => (0..12i64).prop_map(|max_events| Step::Sweep { max_events }),
    ]
}

/// The event of a step, or none if it is another sort of step.
fn made(step: &Step, n: u64, before: &[Event]) -> Option<Event> {
    let at = |at: &u64| NOW_S + at;
    match step {
        Step::Card { author, d, schemas: 3, at: t } => {
            Some(stammering(*author, ["x", "y"][*d], at(t)))
        }
        Step::Card { author, d, schemas, at: t } => {
            Some(card(*author, ["x", "y"][*d], &["a.v1", "b.v1"][..*schemas], at(t)))
        }
        Step::Request { buyer, to, at: t } => Some(request(*buyer, *to, at(t) + 10 * n)),
        Step::Answer { of, provider, is_result, at: t } => {
            let asked = before.get(*of).filter(|event| kind::is_request(event.kind))?;
            Some(if *is_result {
                result(asked, *provider, at(t))
            } else {
                feedback(asked, *provider, Status::Processing, at(t))
            })
        }
        Step::Delete { of } => {
            let target = before.get(*of)?;
            let id = target.id.hex();
            let author = (1..4).find(|n| key(*n).public_key() == target.pubkey)?;
            Some(event(author, kind::DELETION, NOW_S + 9, &[&["e", &id]], ""))
        }
        Step::Heartbeat { author, at: t } => Some(heartbeat(*author, "x", at(t))),
        Step::Recommend { author, providers, at: t } => {
            Some(recommendation(*author, "5050", providers, at(t)))
        }
        Step::Pin { .. } | Step::Sweep { .. } => None,
    }
}

fn follow(scratch: &Scratch, steps: &[Step]) {
    let mut events: Vec<Event> = Vec::new();
    for (n, step) in (0..).zip(steps) {
        if let Some(event) = made(step, n, &events) {
            scratch.put_at(std::slice::from_ref(&event), NOW_S + n);
            events.push(event);
        }
        match step {
            Step::Pin { of } => {
                if let Some(id) = events.get(*of).map(|event| event.id) {
                    block_on(scratch.store.write(move |tx| archive::pin(tx, &id))).unwrap();
                }
            }
            Step::Sweep { max_events } => {
                let bounds = Bounds { max_events: *max_events, max_bytes: i64::MAX };
                let sweep = scratch.store.write(move |tx| archive::sweep(tx, NOW_S, &bounds));
                block_on(sweep).unwrap();
            }
            _ => {}
        }
    }
}

fn rebuild(scratch: &Scratch) {
    block_on(scratch.store.write(index::rebuild)).unwrap();
}

fn equals_its_rebuild(scratch: &Scratch, cases: u32) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&proptest::collection::vec(step(), 1..30), |steps| {
            scratch.clear();
            follow(scratch, &steps);
            let before = rows(scratch);
            rebuild(scratch);
            prop_assert_eq!(before, rows(scratch));
            // Nobody is remembered as heard who offers nothing.
            let strangers = "SELECT count(*) FROM index_heartbeat h WHERE NOT EXISTS (
                SELECT 1 FROM index_provider p WHERE p.pubkey = h.pubkey AND (p.d = h.d OR h.d = ''))";
            prop_assert_eq!(scratch.number(strangers), 0);
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_index_equals_its_rebuild_after_anything_on_sqlite() {
    equals_its_rebuild(&Scratch::sqlite(), 150);
}

#[test]
fn the_index_equals_its_rebuild_after_anything_on_postgres() {
    equals_its_rebuild(&Scratch::postgres(), 8);
}

#[test]
fn a_row_that_is_wrong_is_seen_and_repaired_by_a_rebuild() {
    both(|scratch| {
        let asked = request(1, Some(2), NOW_S);
        scratch.put(&[card(1, "x", &["a.v1"], 1), asked.clone(), result(&asked, 2, NOW_S)]);
        scratch.put(&[recommendation(2, "5050", &[1], NOW_S)]);
        let right = rows(scratch);
        for damage in [
            "UPDATE index_provider SET first_ms = 7",
            "DELETE FROM index_schema",
            "UPDATE index_request SET bid_msat = 1",
            "DELETE FROM index_answer",
            "DELETE FROM index_recommendation",
        ] {
            block_on(scratch.store.write(move |tx| tx.exec(damage, &[]))).unwrap();
            assert_ne!(rows(scratch), right, "{damage}");
            rebuild(scratch);
            assert_eq!(rows(scratch), right, "{damage}");
        }
    });
}
