//! How partners come and go, on real databases: tests that look like work, who is looked at when, and an audit of it.

use guild_market::delegation;
use guild_market::health::known;
use guild_market::health::probe::{self, Probe, Reason};
use guild_market::health::watch::{self, Looked, Times};
use guild_market::health::{Signal, Stage, audit};
use guild_market::order::{Order, OrderId};
use guild_market::routing::log::{self, Appended};
use guild_market::routing::{Cause, Entry, Mutation, Options, Status, TaskType, work as routed};
use guild_market::verify::Options as Strictness;
use guild_protocol::env::Signer;
use guild_protocol::identity::SecretKey;
use guild_protocol::schema::Registry;
use guild_store::args;

use crate::routing::{admitted, change, outcome, who};
use crate::world::{Node, T0, both, cheap, judge, key, new_order, output, provider, result_of};

const WORK: &str = "oa.embedding.v1";
const DAY_MS: i64 = 24 * 3_600_000;
/// The provider that is tested.
const THEM: u8 = 2;
/// Somebody who did work before.
const BEFORE: u8 = 3;

fn task() -> TaskType {
    WORK.parse().unwrap()
}

fn entry(node: &Node) -> Entry {
    node.read(|rx| log::latest(rx, &task(), &who(THEM))).unwrap()
}

fn append(node: &Node, name: &str, mutation: Mutation, now_ms: i64) -> Entry {
    let change = change(name, WORK, THEM, mutation);
    node.write(move |tx| {
        log::append(tx, &Options::default(), std::slice::from_ref(&change), now_ms)
    })
    .unwrap();
    entry(node)
}

/// Work that was done, checked and paid.
fn paid(node: &Node, name: &str, by: &SecretKey) -> Order {
    let mut new = new_order(name, 100);
    new.provider = Some(by.public_key());
    let posted = node.post(&new).unwrap().order().unwrap();
    let text = output(&new.job, &by.public_key()).to_string();
    node.deliver(&result_of(&posted.request().unwrap(), &text, by, T0 + 5), T0 + 50).unwrap();
    let subject = guild_market::verify::Subject {
        job: &new.job,
        provider: &by.public_key(),
        output_text: &text,
    };
    let verdict =
        guild_market::verify::verify(&Registry::builtin(), &Strictness::default(), &subject)
            .unwrap();
    node.settle(&posted.order_id, &verdict, T0 + 60).unwrap();
    node.order(&posted.order_id)
}

fn learn(node: &Node, order: &Order) -> bool {
    let order = order.clone();
    node.write(move |tx| known::learn(tx, &Registry::builtin(), &order, T0 + 70)).unwrap()
}

fn pick(node: &Node, n: u8) -> Option<OrderId> {
    node.read(move |rx| known::pick(rx, &task(), &who(n), 7)).map(|order| order.order_id)
}

/// A test of the same work that somebody else did, posted as an ordinary order.
fn tested(node: &Node, name: &str, known: &Order, reason: Reason) -> Order {
    let mut new = new_order(name, 100);
    new.job = known.job(&Registry::builtin()).unwrap();
    let (key, known_id) = (name.to_owned(), known.order_id.clone());
    node.write(move |tx| probe::add(tx, &key, (&who(THEM), &task()), reason, (T0, T0))).unwrap();
    let posted = node.post(&new).unwrap().order().unwrap();
    let (key, order_id) = (name.to_owned(), posted.order_id.clone());
    let first = node.write(move |tx| probe::posted(tx, &key, &order_id, Some(&known_id))).unwrap();
    assert!(first);
    posted
}

/// It answers, is judged by what is known, and the matrix learns it.
fn answered(node: &Node, order: &Order, known: &Order, good: bool, now_ms: i64) -> Vec<Appended> {
    let job = known.job(&Registry::builtin()).unwrap();
    let by = provider().public_key();
    let text = if good { output(&job, &by) } else { cheap(&job, &by) }.to_string();
    let result = result_of(&order.request().unwrap(), &text, &provider(), T0 + 5);
    node.deliver(&result, T0 + 300).unwrap();
    let delivered = node.order(&order.order_id);
    let options = (Strictness::default(), delegation::Options::default());
    let verdict = known::verdict(&Registry::builtin(), (&options.0, &options.1), &delivered, known);
    let verdict = verdict.unwrap().unwrap();
    assert_eq!(verdict.passed, good, "{}", verdict.checks);
    assert!(verdict.document.contains("known_answer"), "{}", verdict.document);
    node.settle(&order.order_id, &verdict, T0 + 400).unwrap();
    let settled = node.order(&order.order_id);
    node.write(move |tx| routed::ended(tx, &Options::default(), &settled, now_ms)).unwrap()
}

fn audited(node: &Node) -> Vec<String> {
    node.read(audit::run).problems
}

#[test]
fn only_what_was_paid_and_is_public_becomes_known_once() {
    both(|node| {
        node.fund(10_000);
        let good = paid(node, "good", &key(BEFORE));
        assert!(learn(node, &good) && !learn(node, &good), "once");
        // The same work, by another: it is known already.
        let mut again = new_order("again", 100);
        again.job = good.job(&Registry::builtin()).unwrap();
        let posted = node.post(&again).unwrap().order().unwrap();
        assert!(!learn(node, &posted), "it is not even delivered");
        let bad = new_order("bad", 100);
        let posted = node.post(&bad).unwrap().order().unwrap();
        let text = cheap(&bad.job, &provider().public_key()).to_string();
        let result = result_of(&posted.request().unwrap(), &text, &provider(), T0 + 5);
        node.deliver(&result, T0 + 50).unwrap();
        node.settle(&posted.order_id, &judge(&bad.job, &text), T0 + 60).unwrap();
        assert!(!learn(node, &node.order(&posted.order_id)), "it was not paid");
        let mut private = new_order("private", 100);
        private.private = true;
        let posted = node.post(&private).unwrap().order().unwrap();
        let text = output(&private.job, &provider().public_key()).to_string();
        let result = result_of(&posted.request().unwrap(), &text, &provider(), T0 + 5);
        node.deliver(&result, T0 + 50).unwrap();
        node.settle(&posted.order_id, &judge(&private.job, &text), T0 + 60).unwrap();
        assert!(!learn(node, &node.order(&posted.order_id)), "it is private");
        assert_eq!(node.read(|rx| known::count(rx, &task())), 1);
        // Nobody is asked what it has done itself, or was given.
        assert_eq!(pick(node, BEFORE), None);
        assert_eq!(pick(node, THEM), None, "it was given the same work as `again`");
        assert_eq!(pick(node, 4), Some(good.order_id));
    });
}

#[test]
fn the_pool_has_a_size() {
    both(|node| {
        node.fund(100_000);
        for n in 0..203 {
            assert!(learn(node, &paid(node, &format!("work {n}"), &key(BEFORE))));
        }
        assert_eq!(node.read(|rx| known::count(rx, &task())), 200);
    });
}

#[test]
fn a_wrong_answer_to_what_is_known_leads_further_than_a_failure() {
    both(|node| {
        node.fund(10_000);
        node.announce(&provider());
        let known = paid(node, "known", &key(BEFORE));
        learn(node, &known);
        append(node, "met", admitted(6_000), T0);
        let order = tested(node, "t1", &known, Reason::Hidden);
        assert_eq!(pick(node, THEM), None, "nobody is asked the same twice");
        let rows = answered(node, &order, &known, false, T0 + 400);
        let names: Vec<&str> = rows.iter().map(|row| row.effect.mutation.name()).collect();
        assert_eq!(names, ["assigned", "outcome", "noticed"]);
        let health = entry(node).health;
        assert_eq!((health.stage, health.signal), (Stage::Reduced, Some(Signal::Mismatch)));
        let settled = node.order(&order.order_id);
        assert_eq!(settled.paid, None, "a wrong answer is not paid");
        // Again it is the same.
        let again = node
            .write(move |tx| routed::ended(tx, &Options::default(), &settled, T0 + 900))
            .unwrap();
        assert!(again.iter().all(|row| !row.is_new) && again.len() == 1);
        // What it passes ends that, and is paid like any work.
        let other = paid(node, "other", &key(BEFORE));
        learn(node, &other);
        let order = tested(node, "t2", &other, Reason::Verify);
        answered(node, &order, &other, true, T0 + 500);
        let health = entry(node).health;
        assert_eq!((health.stage, health.signal), (Stage::Well, Some(Signal::Verified)));
        assert!(node.order(&order.order_id).paid.unwrap().0 > 0);
        assert_eq!(node.read(|rx| probe::tally(rx, (&who(THEM), &task()))), (2, 1));
        assert!(!learn(node, &node.order(&order.order_id)), "a test makes no test");
        assert_eq!(audited(node), Vec::<String>::new());
    });
}

#[test]
fn a_test_is_posted_once_and_never_changed() {
    both(|node| {
        node.fund(10_000);
        let known = paid(node, "known", &key(BEFORE));
        learn(node, &known);
        let order = tested(node, "t1", &known, Reason::Heartbeat);
        let (id, known_id) = (order.order_id.clone(), known.order_id.clone());
        let again = node.write(move |tx| probe::posted(tx, "t1", &id, Some(&known_id)));
        assert!(!again.unwrap(), "somebody else posts nothing");
        node.write(|tx| probe::drop_it(tx, "t1", "too late")).unwrap();
        let found: Probe = node.read(move |rx| probe::of_order(rx, &order.order_id)).unwrap();
        assert_eq!((found.words, found.known), (None, Some(known.order_id)));
        assert_eq!(node.read(|rx| probe::due(rx, i64::MAX, 9)), []);
        for sql in [
            "UPDATE market_probe SET reason = 'hidden' WHERE probe_key = 't1'",
            "DELETE FROM market_probe WHERE probe_key = 't1'",
        ] {
            assert!(node.write(move |tx| Ok(tx.exec(sql, &[])?)).is_err(), "{sql}");
        }
    });
}

fn times() -> Times {
    Times::default()
}

fn look(node: &Node, now_ms: i64) -> Option<Looked> {
    let (options, made_up) = (Options::default(), u128::try_from(now_ms).unwrap().to_le_bytes());
    node.write(move |tx| {
        watch::track(tx, &times(), (now_ms, 7))?;
        watch::look(tx, (&options, &times()), (&who(THEM), &task()), &made_up, now_ms)
    })
    .unwrap()
}

fn silent() -> Mutation {
    Mutation::Outcome {
        class: guild_market::judge::Class::Error,
        step_bp: -2_000,
        cost_msat: None,
        latency_ms: None,
    }
}

#[test]
fn everybody_is_looked_at_once_by_whoever_comes_first() {
    both(|node| {
        append(node, "met", admitted(6_000), T0);
        let first = look(node, T0 + 1).unwrap();
        assert_eq!(first, Looked::default(), "nothing is wrong");
        assert_eq!(look(node, T0 + 1), None, "somebody else has looked");
        let row = node.read(|rx| watch::find(rx, (&who(THEM), &task()))).unwrap();
        assert!(row.due_ms <= T0 + 3_600_001 && row.heartbeat_ms < T0 + 7 * DAY_MS + 2);
        assert_eq!(node.read(move |rx| watch::due(rx, row.due_ms, 9)).len(), 1);
    });
}

#[test]
fn a_week_brings_a_heartbeat_and_a_day_of_silence_a_question() {
    both(|node| {
        append(node, "met", admitted(6_000), T0);
        let mut tests = Vec::new();
        let mut at_ms = T0;
        // It is heard every day for six weeks, and then not any more.
        for hour in 1..=45 * 24 {
            at_ms = T0 + hour * 3_600_000;
            if hour % 24 == 0 && hour <= 42 * 24 {
                append(node, &format!("seen{hour}"), Mutation::Verified, at_ms - 1);
            }
            let looked = look(node, at_ms).unwrap_or_default();
            tests.extend(looked.test.map(|reason| (reason, hour)));
        }
        let beats: Vec<i64> = tests
            .iter()
            .filter(|(reason, _)| *reason == Reason::Heartbeat)
            .map(|(_, hour)| *hour)
            .collect();
        assert!((5..=9).contains(&beats.len()), "{tests:?}");
        let apart: Vec<i64> = beats.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(apart.iter().all(|hours| (134..=204).contains(hours)), "{apart:?}");
        assert!(apart.iter().any(|hours| *hours != apart[0]), "nobody can wait for it: {apart:?}");
        let silent = tests.iter().filter(|(reason, _)| *reason == Reason::Silent).count();
        assert!((2..=3).contains(&silent), "one a day: {tests:?}");
        let due = node.read(move |rx| probe::due(rx, at_ms, 100));
        assert_eq!(due.len(), tests.len());
        assert!(due.iter().all(|probe| probe.probe_key.len() == 32), "a key as any order has");
    });
}

#[test]
fn whoever_is_suspended_is_met_again_after_its_pause_and_in_the_end_removed() {
    both(|node| {
        append(node, "other", admitted(6_000), T0);
        let change = change("run", "run", THEM, admitted(6_000));
        node.write(move |tx| {
            log::append(tx, &Options::default(), std::slice::from_ref(&change), T0)
        })
        .unwrap();
        let mut at_ms = T0;
        for round in 1..=6_u32 {
            for n in 0..3 {
                append(node, &format!("silent{round}-{n}"), silent(), at_ms + n);
            }
            let since_ms = entry(node).health.since_ms;
            assert_eq!(entry(node).health.failures, round);
            at_ms = since_ms + [1, 3, 30, 30, 30, 30][usize::try_from(round).unwrap() - 1] * DAY_MS;
            let early = look(node, at_ms - 1).unwrap_or_default();
            assert_eq!(early.meet, None, "round {round}");
            at_ms += 3_600_000;
            let mut looked = look(node, at_ms).unwrap_or_default();
            looked.rows.extend(early.rows);
            match round {
                1..=3 => {
                    let key = looked.meet.unwrap();
                    // Whoever comes again means the same meeting.
                    let again = look(node, at_ms + 2 * 3_600_000).unwrap();
                    assert_eq!(again.meet, Some(key));
                }
                4 | 5 => assert_eq!(looked.meet, None, "it says that it is no other version"),
                _ => {
                    assert_eq!(looked.rows.len(), 2);
                    let gone = entry(node);
                    assert_eq!(
                        (gone.status, gone.cause),
                        (Status::Archived, Some(Cause::Degraded))
                    );
                    assert_eq!(gone.health.stage, Stage::Removed);
                    let run: TaskType = "run".parse().unwrap();
                    let run = node.read(move |rx| log::latest(rx, &run, &who(THEM))).unwrap();
                    assert_eq!(run.status, Status::Blacklisted, "for all other work, too");
                }
            }
            if round < 6 {
                at_ms += DAY_MS;
                append(node, &format!("met{round}"), admitted(6_000), at_ms);
            }
        }
        assert_eq!(audited(node), Vec::<String>::new());
        let report = node.read(audit::run);
        assert_eq!((report.entries, report.steps > 10), (2, true));
    });
}

#[test]
fn a_warning_that_lasts_is_a_second_signal() {
    both(|node| {
        append(node, "met", admitted(6_000), T0);
        append(node, "bad", outcome(guild_market::judge::Class::Failure, -1_000), T0 + 5);
        look(node, T0 + 6);
        let at_ms = T0 + 7 * DAY_MS + 3_600_000;
        append(node, "seen", Mutation::Verified, at_ms - 1);
        let looked = look(node, at_ms).unwrap();
        assert_eq!(looked.rows.len(), 1, "{looked:?}");
        let health = entry(node).health;
        assert_eq!((health.stage, health.signal), (Stage::Reduced, Some(Signal::Sustained)));
        // And then it is asked to show that it is well.
        let looked = look(node, at_ms + 2 * 3_600_000).unwrap();
        assert_eq!(looked.test, Some(Reason::Verify));
    });
}

/// Writes a row of the log that nobody would write.
fn plant(node: &Node, version: i64, mutation: &Mutation, entry: &Entry) {
    let (mutation, entry) =
        (serde_json::to_string(mutation).unwrap(), serde_json::to_string(entry).unwrap());
    node.write(move |tx| {
        let seq = log::head(tx)?.0 + 1;
        tx.exec(
            "INSERT INTO market_route_log
               (seq, change_key, at_ms, task_type, provider, version, mutation, entry, prev_hash, hash)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', '')",
            args![
                seq,
                &format!("planted{version}"),
                T0 + 9,
                WORK,
                &who(THEM).npub(),
                version,
                &mutation,
                &entry
            ],
        )?;
        Ok(())
    })
    .unwrap();
}

#[test]
fn an_audit_sees_what_goes_along_no_path() {
    let suspended = |entry: &Entry| {
        let mut entry = entry.clone();
        entry.health.stage = Stage::Suspended;
        entry.health.signal = Some(Signal::Failed);
        entry.health.since_ms = T0 + 9;
        (entry.status, entry.cause) = (Status::SuspectedDegraded, Some(Cause::Degraded));
        entry
    };
    let bad = outcome(guild_market::judge::Class::Failure, -1_000);
    let check = |what: &str, mutation: &Mutation, change: &dyn Fn(&Entry) -> Entry, says: &str| {
        let node = Node::sqlite(guild_store::Hooks::default());
        append(&node, "met", admitted(6_000), T0);
        let reduced = append(&node, "bad", bad.clone(), T0 + 5);
        assert_eq!((reduced.health.stage, audited(&node)), (Stage::Warned, Vec::new()));
        plant(&node, 3, mutation, &change(&reduced));
        let problems = audited(&node);
        assert_eq!(problems.len(), 1, "{what}: {problems:?}");
        assert!(problems[0].contains(says), "{what}: {problems:?}");
    };
    check("two steps at once", &bad, &suspended, "no path leads from warned to suspended");
    let hired = |entry: &Entry| Entry { status: Status::Active, ..suspended(entry) };
    check("it is hired", &bad, &hired, "it is hired, and suspended");
    let quietly = |entry: &Entry| {
        let mut entry = entry.clone();
        (entry.health.stage, entry.health.signal) = (Stage::Well, Some(Signal::Succeeded));
        entry
    };
    check("nothing happened", &Mutation::Verified, &quietly, "verified cannot say succeeded");
    let by_nothing = |entry: &Entry| {
        let mut entry = entry.clone();
        (entry.health.stage, entry.health.signal) = (Stage::Reduced, None);
        entry
    };
    check("no signal", &bad, &by_nothing, "came to reduced by nothing");
}

/// A provider that cheats in one of ten jobs, and is tested with some of them: after how many ordinary jobs that is
/// found, beside what theory says.
#[test]
fn whoever_cheats_now_and_then_is_found_when_theory_says_so() {
    use guild_market::routing::Draws;
    const RUNS: u64 = 4_000;
    let (cheats_bp, rate_bp) = (1_000_u32, 1_000_u32);
    let mut found_at = Vec::new();
    for run in 0..RUNS {
        let mut draws = Draws::new(run);
        let found = (1..=5_000_u32).find(|_| {
            // It cannot tell the test from work, so it cheats in it as often.
            let tested = probe::is_drawn(rate_bp, draws.any());
            tested && draws.below(10_000) < u64::from(cheats_bp)
        });
        found_at.push(found.unwrap());
    }
    let each = f64::from(cheats_bp) / 10_000.0 * f64::from(rate_bp) / 10_000.0;
    for jobs in [25, 50, 100, 200, 400] {
        let within = found_at.iter().filter(|at| **at <= jobs).count() as f64 / RUNS as f64;
        let theory = 1.0 - (1.0 - each).powi(i32::try_from(jobs).unwrap());
        println!("within {jobs} jobs: found {within:.3}, theory {theory:.3}");
        assert!((within - theory).abs() < 0.025, "{jobs}: {within} beside {theory}");
    }
    let mean = found_at.iter().map(|at| f64::from(*at)).sum::<f64>() / RUNS as f64;
    println!("on average after {mean:.1} jobs, theory {:.1}", 1.0 / each);
    assert!((mean * each - 1.0).abs() < 0.05, "{mean}");
}

#[test]
fn a_known_answer_is_what_its_schema_compares() {
    both(|node| {
        node.fund(10_000);
        let known = paid(node, "known", &key(BEFORE));
        learn(node, &known);
        let order = tested(node, "t1", &known, Reason::Hidden);
        // Of another provider, in another order of its fields, and a little off.
        let job = known.job(&Registry::builtin()).unwrap();
        let mut near = output(&job, &provider().public_key());
        let first = near["embeddings"][0][0].as_f64().unwrap();
        near["embeddings"][0][0] = (first + 1e-6).into();
        let result = result_of(&order.request().unwrap(), &near.to_string(), &provider(), T0 + 5);
        node.deliver(&result, T0 + 300).unwrap();
        let delivered = node.order(&order.order_id);
        let options = (Strictness::default(), delegation::Options::default());
        let verdict =
            known::verdict(&Registry::builtin(), (&options.0, &options.1), &delivered, &known);
        assert!(verdict.unwrap().unwrap().passed);
        // A known answer that says nothing any more judges nobody.
        let broken = Order { output_text: Some("{}".to_owned()), ..known };
        let verdict =
            known::verdict(&Registry::builtin(), (&options.0, &options.1), &delivered, &broken);
        assert_eq!(verdict.unwrap(), None);
    });
}
