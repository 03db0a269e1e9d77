//! What others say, and what it is worth.

use std::collections::BTreeSet;

use guild_market::judge::Class;
use guild_market::review::{
    Grade, Record, Seen, Taken, Weighed, grade, hearsay, record_of, score, seen_of, take, upkeep,
    weighed, withdraw,
};
use guild_market::routing::{
    Change, Hearsay, Hearsays, Matrix, Mutation, Policy, Wanted, choose, choose_with,
};
use guild_protocol::env::Random;
use guild_protocol::hash::Hash;
use guild_protocol::id::ReceiptId;
use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::review::Payment;
use guild_protocol::nostr::{Draft, kind, tag};

use super::*;
use crate::world::{both, key};

fn subject() -> SecretKey {
    key(2)
}

fn taken_by(node: &Node, options: &Options, event: &Event, now_ms: i64) -> Taken {
    let (options, event) = (options.clone(), event.clone());
    node.write(move |tx| take(tx, &options, &event, now_ms)).unwrap()
}

fn taken(node: &Node, event: &Event) -> Taken {
    taken_by(node, &Options::default(), event, T0)
}

fn all(node: &Node, of: &SecretKey) -> Vec<Seen> {
    let of = of.public_key();
    node.read(move |rx| seen_of(rx, &of, None, 1_000))
}

fn weighed_by(node: &Node, options: &Options, of: &SecretKey, now_ms: i64) -> Weighed {
    let (of, options) = (of.public_key(), options.clone());
    node.read(move |rx| weighed(rx, &options, (&of, &task()), (true, now_ms)))
}

fn said_of(node: &Node, of: &SecretKey) -> Hearsay {
    let said = node.read(|rx| hearsay(rx, &task()));
    said.get(&of.public_key()).copied().unwrap_or_default()
}

/// Somebody has hired somebody, and says so.
fn proven(node: &Node, by: &SecretKey, of: &SecretKey, trust_bp: u32, at_ms: i64) -> Event {
    let (request, result) = dealt(by, of, "some work");
    keep(node, &[request.clone(), result.clone()]);
    said(by, &of.public_key(), trust_bp, citing(&request, &result), at_ms)
}

fn outcome(node: &Node, of: &SecretKey, class: Class) {
    let of = of.public_key();
    node.write(move |tx| score(tx, &task(), &of, class, T0)).unwrap();
}

#[test]
fn the_newest_of_each_reviewer_counts() {
    both(|node| {
        let (ann, of) = (somebody(1), subject().public_key());
        let at = |s: i64, trust_bp| said(&ann, &of, trust_bp, Evidence::default(), T0 + s * 1_000);
        assert_eq!(taken(node, &at(-10, 5_000)), Taken::New);
        assert_eq!(taken(node, &at(-10, 5_000)), Taken::Older, "it is known");
        assert_eq!(taken(node, &at(-20, 9_000)), Taken::Older);
        assert_eq!(taken(node, &at(-5, 6_000)), Taken::New);
        assert_eq!(taken(node, &at(15 * 60 + 1, 1_000)), Taken::Future);
        assert_eq!(taken(node, &at(15 * 60, 7_000)), Taken::New);
        let seen = all(node, &subject());
        assert_eq!(
            (seen.len(), seen[0].review.trust_bp, seen[0].reviewer),
            (1, 7_000, ann.public_key())
        );
        // All three forms of one review are one; of one second the lowest id.
        let bob = somebody(2);
        let forms =
            Form::ALL.map(|form| said_as(form, &bob, &of, (4_000, Evidence::default()), T0));
        for event in forms.iter().chain(&forms) {
            taken(node, event);
        }
        let seen = all(node, &subject());
        let bobs = seen.iter().find(|seen| seen.reviewer == bob.public_key()).unwrap();
        assert_eq!(
            (seen.len(), bobs.event_id),
            (2, forms.iter().map(|event| event.id).min().unwrap())
        );
        // Nobody reviews itself, and our own are no news.
        let own = said(&subject(), &of, 10_000, Evidence::default(), T0);
        assert_eq!(taken(node, &own), Taken::OfItself);
        let options = Options { ours: [somebody(3).public_key()].into(), ..Options::default() };
        let ours = said(&somebody(3), &of, 10_000, Evidence::default(), T0);
        assert_eq!(taken_by(node, &options, &ours, T0), Taken::Ours);
        // What cannot be read changes nothing.
        let draft =
            Draft { kind: kind::REVIEW, created_at: 1, tags: Vec::new(), content: String::new() };
        let rubbish = draft.sign(&ann).unwrap();
        let refused = node.write(move |tx| take(tx, &Options::default(), &rubbish, T0));
        assert_eq!(crate::world::why(refused), "review.malformed");
        // And who takes it back has said nothing.
        let deletion = |by: &SecretKey| {
            Draft {
                kind: kind::DELETION,
                created_at: unix_s(T0),
                tags: vec![tag::tag(["e", &bobs.event_id.hex()]), tag::tag(["e", "rubbish"])],
                content: String::new(),
            }
            .sign(by)
            .unwrap()
        };
        let (foreign, own) = (deletion(&ann), deletion(&bob));
        let gone = |event: Event| {
            node.write(move |tx| withdraw(tx, &Options::default(), &event, T0)).unwrap()
        };
        assert_eq!((gone(foreign), gone(own.clone()), gone(own)), (0, 1, 0));
        assert_eq!(all(node, &subject()).len(), 1);
    });
}

#[test]
fn evidence_is_what_both_have_signed() {
    both(|node| {
        let (ann, bob, them) = (somebody(1), somebody(2), subject());
        let (request, result) = dealt(&ann, &them, "work");
        let (other_request, other_result) = dealt(&bob, &them, "other work");
        let (elsewhere, by_other) = dealt(&ann, &somebody(3), "elsewhere");
        let (unanswered, _) = dealt(&ann, &them, "never answered");
        let (unseen, _) = dealt(&ann, &them, "not here");
        let here =
            [&request, &result, &other_request, &other_result, &elsewhere, &by_other, &unanswered];
        keep(node, &here.map(Clone::clone));
        let receipt_id = ReceiptId::of(&Hash::of(b"nowhere"));
        let payment = Some(Payment { receipt_id, receipt_hash: Hash::of(b"x") });
        let only =
            |request: &Event| Evidence { request_id: Some(request.id), ..Evidence::default() };
        let table = [
            ("nothing", Evidence::default(), Grade::None),
            ("both", citing(&request, &result), Grade::Done),
            (
                "a receipt that is not here",
                Evidence { payment, ..citing(&request, &result) },
                Grade::Done,
            ),
            ("a request alone", only(&unanswered), Grade::Asked),
            ("a request that is not here", only(&unseen), Grade::None),
            ("somebody else's", citing(&other_request, &other_result), Grade::Forged),
            ("somebody else's result", citing(&request, &other_result), Grade::Forged),
            ("of somebody else", citing(&elsewhere, &by_other), Grade::Forged),
            ("a result as a request", citing(&result, &result), Grade::Forged),
            ("a request as a result", citing(&request, &unanswered), Grade::Forged),
        ];
        for (what, evidence, expected) in table {
            let (ann, them) = (ann.public_key(), them.public_key());
            let found = node.read(move |rx| grade(rx, &ann, &them, &evidence, unix_s(T0)));
            assert_eq!(found, expected, "{what}");
        }
    });
}

#[test]
fn a_result_may_come_after_its_review() {
    both(|node| {
        let (ann, them) = (somebody(1), subject());
        let (request, result) = dealt(&ann, &them, "work");
        taken(node, &said(&ann, &them.public_key(), 9_000, citing(&request, &result), T0));
        assert_eq!(
            (all(node, &them)[0].grade, said_of(node, &them)),
            (Grade::None, Hearsay::default())
        );
        keep(node, &[request, result]);
        let later_ms = T0 + HOUR_MS;
        node.write(move |tx| upkeep(tx, &Options::default(), later_ms)).unwrap();
        assert_eq!(all(node, &them)[0].grade, Grade::Done);
        // A tenth of an outcome, by somebody of whom nothing is known.
        assert_eq!(said_of(node, &them), Hearsay { good_milli: 100, bad_milli: 0 });
    });
}

#[test]
fn a_thousand_reviewers_without_evidence_are_nobody() {
    both(|node| {
        let them = subject();
        for n in 0..1_000 {
            taken(node, &said(&somebody(n), &them.public_key(), 0, Evidence::default(), T0));
        }
        let found = weighed_by(node, &Options::default(), &them, T0);
        assert_eq!((found.prior.good_milli, found.prior.bad_milli), (0, 0));
        assert!(found.prior.why.iter().all(|line| line.weight_milli == 0));
        assert_eq!(said_of(node, &them), Hearsay::default());
        assert_eq!(found.seen.len(), 64, "and only some of them are kept");
        // Somebody who can show something has room all the same.
        assert_eq!(taken(node, &proven(node, &somebody(5_000), &them, 9_000, T0)), Taken::New);
        assert_eq!(said_of(node, &them), Hearsay { good_milli: 100, bad_milli: 0 });
    });
}

#[test]
fn a_thousand_reviewers_with_the_evidence_of_another_are_nobody() {
    both(|node| {
        let them = subject();
        let (request, result) = dealt(&somebody(9_999), &them, "real work");
        keep(node, &[request.clone(), result.clone()]);
        for n in 0..1_000 {
            let forged = said(&somebody(n), &them.public_key(), 0, citing(&request, &result), T0);
            taken(node, &forged);
        }
        let found = weighed_by(node, &Options::default(), &them, T0);
        assert_eq!((found.prior.good_milli, found.prior.bad_milli), (0, 0));
        assert!(found.seen.iter().all(|seen| seen.grade == Grade::Forged));
        assert_eq!(said_of(node, &them), Hearsay::default());
    });
}

#[test]
fn all_who_are_new_are_one_and_operators_count_once() {
    let node = Node::sqlite(Default::default());
    let them = subject();
    for n in 0..30 {
        taken(&node, &proven(&node, &somebody(n), &them, 0, T0));
    }
    assert_eq!(
        said_of(&node, &them),
        Hearsay { good_milli: 0, bad_milli: 990 },
        "30 times a tenth"
    );
    let found = weighed_by(&node, &Options::default(), &them, T0);
    assert_eq!(found.prior.bad_milli, 990, "{:?}", found.prior);
}

/// Somebody announces itself, as this operator does everywhere.
fn announced(node: &Node, by: &SecretKey, words: &str) {
    offered(node, by, "box", words);
}

fn offered(node: &Node, by: &SecretKey, d: &str, words: &str) {
    let mut card = Announcement::new(d);
    card.content.description = Some(words.to_owned());
    card.relays = vec!["wss://one.example".to_owned()];
    keep(node, &[card.draft(unix_s(T0)).unwrap().sign(by).unwrap()]);
}

const FARM: &str = "A thousand boxes of one owner, who says of all of them the same thing.";

#[test]
fn a_thousand_reviewers_of_one_operator_are_one() {
    let node = Node::sqlite(Default::default());
    let them = subject();
    for n in 0..1_000 {
        announced(&node, &somebody(n), FARM);
    }
    for n in 0..400 {
        taken(&node, &proven(&node, &somebody(n), &them, 0, T0));
    }
    assert_eq!(said_of(&node, &them), Hearsay { good_milli: 0, bad_milli: 100 });
    let found = weighed_by(&node, &Options::default(), &them, T0);
    assert!(found.prior.bad_milli <= 100, "{:?}", found.prior);
    // What is due for being computed again comes to the same.
    node.write(|tx| upkeep(tx, &Options::default(), T0 + 2 * HOUR_MS)).unwrap();
    assert_eq!(said_of(&node, &them).bad_milli, 99);
}

#[test]
fn who_is_believed_is_not_drowned_by_copies_of_its_announcement() {
    let node = Node::sqlite(Default::default());
    let (honest, good, unknown) = (somebody(1), key(20), key(21));
    taken(&node, &proven(&node, &honest, &good, 9_000, T0));
    for _ in 0..20 {
        outcome(&node, &good, Class::Success);
    }
    announced(&node, &honest, FARM);
    taken(&node, &proven(&node, &honest, &unknown, 9_000, T0));
    let before = said_of(&node, &unknown);
    for n in 2..200 {
        announced(&node, &somebody(n), FARM);
        taken(&node, &proven(&node, &somebody(n), &unknown, 0, T0));
    }
    assert_eq!(said_of(&node, &unknown), before, "they are counted with it, and weigh less");
}

#[test]
fn nobody_makes_strangers_one_by_copying_all_of_them() {
    let node = Node::sqlite(Default::default());
    let them = subject();
    for n in 1..=5 {
        announced(&node, &somebody(n), &format!("{FARM} But this one is number {n}."));
        taken(&node, &proven(&node, &somebody(n), &them, 0, T0));
    }
    assert_eq!(said_of(&node, &them).bad_milli, 500);
    for n in 1..=5 {
        let words = format!("{FARM} But this one is number {n}.");
        offered(&node, &somebody(99), &format!("copy {n}"), &words);
    }
    taken(&node, &proven(&node, &somebody(99), &them, 0, T0));
    assert_eq!(said_of(&node, &them).bad_milli, 500, "it is one with one of them");
}

#[test]
fn reviewers_are_scored_by_what_comes() {
    both(|node| {
        let them = subject();
        for (n, trust_bp) in [(1, 9_000), (2, 4_500), (3, 0), (4, 8_999), (5, 10_000), (6, 1)] {
            taken(node, &proven(node, &somebody(n), &them, trust_bp, T0));
        }
        taken(node, &said(&somebody(7), &them.public_key(), 9_000, Evidence::default(), T0));
        for class in [Class::Success, Class::Partial, Class::Error] {
            outcome(node, &them, class);
        }
        // The base rate was a half, three quarters, and two thirds.
        let base = 5_000_i64.pow(2) + 2_500_i64.pow(2) + 6_666_i64.pow(2);
        for (n, said) in [(1, 10_000), (2, 5_000), (3, 0), (4, 9_998), (5, 10_000), (6, 1)] {
            let who = somebody(n).public_key();
            let record = node.read(move |rx| record_of(rx, &who));
            let brier = [10_000, 5_000, 0].map(|came: i64| (said - came).pow(2)).iter().sum();
            assert_eq!(record, Record { outcomes: 3, brier, base }, "{n}");
        }
        let silent = somebody(7).public_key();
        assert_eq!(node.read(move |rx| record_of(rx, &silent)), Record::default());
    });
}

#[test]
fn who_was_right_is_believed_and_who_lied_is_not() {
    both(|node| {
        let (honest, liar, new) = (somebody(1), somebody(2), somebody(3));
        let (good, bad, unknown) = (key(20), key(21), key(22));
        for (of, truth) in [(&good, 9_000), (&bad, 500)] {
            taken(node, &proven(node, &honest, of, truth, T0));
            taken(node, &proven(node, &liar, of, 9_500 - truth, T0));
        }
        for _ in 0..20 {
            outcome(node, &good, Class::Success);
            outcome(node, &bad, Class::Failure);
        }
        for (by, trust_bp) in [(&honest, 9_000), (&liar, 0), (&new, 0)] {
            taken(node, &proven(node, by, &unknown, trust_bp, T0));
        }
        let found = weighed_by(node, &Options::default(), &unknown, T0);
        let line = |by: &SecretKey| {
            found.prior.why.iter().find(|line| line.reviewer == by.public_key()).unwrap().clone()
        };
        assert!(line(&honest).calibration_milli > 850, "{:?}", line(&honest));
        assert_eq!((line(&liar).calibration_milli, line(&new).calibration_milli), (0, 100));
        assert!(found.prior.good_milli > 8 * found.prior.bad_milli, "{:?}", found.prior);
        // Time passes: what was said a quarter of a year ago counts half.
        let later = weighed_by(node, &Options::default(), &unknown, T0 + 90 * 24 * HOUR_MS);
        assert!(later.prior.good_milli.abs_diff(found.prior.good_milli / 2) <= 2);
        // Whom we trust is heard also when it was wrong, if it can show something.
        let options = Options { trusted: [liar.public_key()].into(), ..Options::default() };
        let trusting = weighed_by(node, &options, &unknown, T0);
        assert!(trusting.prior.bad_milli >= 500, "{:?}", trusting.prior);
    });
}

fn entry_of(matrix: &mut Matrix, n: u8, good: u32) {
    let provider = key(n).public_key();
    let mut apply = |key: String, mutation| {
        let change = Change { key, task: task(), provider, mutation };
        let effect = matrix.plan(&change, T0).unwrap();
        matrix.apply(effect).unwrap();
    };
    let admitted = Mutation::Admitted {
        d: "main".to_owned(),
        status: guild_market::routing::Status::Active,
        trust_bp: 6_000,
        pace: guild_market::evaluation::Pace::Standard,
        notes: BTreeSet::new(),
    };
    apply(format!("{n}"), admitted);
    for i in 0..good {
        apply(format!("{n}a{i}"), Mutation::Assigned);
        let mutation = Mutation::Outcome {
            class: Class::Success,
            step_bp: 1_000,
            cost_msat: Some(500),
            latency_ms: Some(100),
        };
        apply(format!("{n}o{i}"), mutation);
    }
}

#[test]
fn bombing_an_honest_provider_changes_nobodys_choice() {
    let mut matrix = Matrix::new(Routing::default());
    entry_of(&mut matrix, 30, 20);
    entry_of(&mut matrix, 31, 5);
    entry_of(&mut matrix, 32, 6);
    let bombs: Hearsays = [30, 31, 32]
        .map(|n| (key(n).public_key(), Hearsay { good_milli: 0, bad_milli: 5_000 }))
        .into();
    let (task, except) = (task(), BTreeSet::new());
    // An hour later nobody has had its part.
    let now_ms = T0 + 2 * HOUR_MS;
    let wanted = Wanted { task: &task, except: &except, max_cost_msat: None, now_ms };
    for seed in 0..500 {
        for policy in [Policy::Tiered, Policy::Thompson] {
            let (quiet, loud) = (Fixed(seed), Fixed(seed));
            let before = choose(&matrix, policy, &wanted, &quiet);
            assert_eq!(choose_with(&matrix, policy, &wanted, &bombs, &loud), before);
        }
    }
}

#[test]
fn what_is_said_of_the_new_is_heard_by_thompson_alone() {
    let mut matrix = Matrix::new(Routing::default());
    entry_of(&mut matrix, 30, 0);
    entry_of(&mut matrix, 31, 0);
    let (task, except) = (task(), BTreeSet::new());
    let wanted = Wanted { task: &task, except: &except, max_cost_msat: None, now_ms: T0 + HOUR_MS };
    let said: Hearsays = [
        (key(30).public_key(), Hearsay { good_milli: 5_000, bad_milli: 0 }),
        (key(31).public_key(), Hearsay { good_milli: 0, bad_milli: 5_000 }),
    ]
    .into();
    let share = |policy, said: &Hearsays| {
        let chosen = |seed| choose_with(&matrix, policy, &wanted, said, &Fixed(seed)).chosen;
        let first = (0..500).filter(|seed| chosen(*seed).unwrap().provider == key(30).public_key());
        first.count()
    };
    let none = Hearsays::new();
    assert!((150..350).contains(&share(Policy::Thompson, &none)));
    assert!(share(Policy::Thompson, &said) > 480);
    assert_eq!(share(Policy::Tiered, &said), share(Policy::Tiered, &none));
}

/// The same number each time.
struct Fixed(u64);

impl Random for Fixed {
    fn fill(&self, bytes: &mut [u8]) {
        let mut seed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().into_iter().cycle();
        bytes.iter_mut().for_each(|byte| *byte = seed.next().unwrap());
    }
}
