//! What strangers check of work, offline: evidence of a real market holds, and every way to change it is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use guild_ledger::policy::Bundle;
use guild_market::delegation::State;
use guild_market::dossier::{
    self, About, FILE_MAX_BYTES, Folder, Found, Gathered, MANIFEST, Manifest, Options, Report,
    gather,
};
use guild_market::order::State as OrderState;
use guild_market::review::Options as Reviewing;
use guild_protocol::amount::Msat;
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::json::to_canonical;
use guild_protocol::nostr::job::{Feedback, JobResult, Request, Status as Told};
use guild_protocol::nostr::review::{Form, Review};
use guild_protocol::nostr::{Event, EventId, Filter, Limits, kind};
use guild_protocol::receipt::{Draft, Proof, Receipt};
use guild_protocol::schema::Registry;
use guild_roles::buyer::{self, Choice, Criticality, Wanted};
use guild_roles::provider::{Embedder, Worker};
use guild_store::Store;
use serde_json::{Value, json};

use crate::attacks::Cheat;
use crate::buyer::card;
use crate::town::{PRICE, Town, key, until, until_known, wallet, wish};

mod forge;

use forge::Forged;

const BUYER: u8 = 1;
const LIAR: u8 = 2;
const HONEST: u8 = 4;

fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

/// What came of a day of the market.
pub(crate) struct Day {
    /// Honest work, paid, with a review.
    good: Gathered,
    /// Work that was not accepted.
    bad: Gathered,
    /// Honest work that travelled encrypted.
    private: Gathered,
    /// Five who did the same: two liars, one honest, one slow and one dead.
    council: Gathered,
}

async fn gathered(store: &Store, about: About) -> guild_market::Result<Gathered> {
    store.read(move |rx| gather(rx, &about, true)).await
}

/// One day for all tests of this process.
fn day() -> &'static Day {
    static DAY: OnceLock<Day> = OnceLock::new();
    DAY.get_or_init(lived)
}

fn lived() -> Day {
    let mut town = Town::new();
    let node = town.node();
    let reviews = Reviewing { ours: [who(BUYER)].into(), ..Reviewing::default() };
    let options = buyer::Options { reviews: reviews.clone(), ..buyer::Options::default() };
    let buyer = town.buyer_with(node, key(BUYER), options, Bundle::builtin().unwrap());
    town.reviews(node, key(BUYER), reviews);
    for n in [LIAR, 3, HONEST] {
        let theirs = town.node();
        let honest = n == HONEST;
        let worker: Arc<dyn Worker> = if honest { Arc::new(Embedder) } else { Arc::new(Cheat) };
        town.provider_with(theirs, key(n), Town::offer(), worker);
    }
    let (store, clock, hub) = (town.store(node).clone(), town.clock.clone(), town.hub.clone());
    let lived: Arc<OnceLock<Day>> = Arc::default();
    let out = lived.clone();
    town.tell(async move {
        until(&clock, "the wallet is full", || async { wallet(&store).await > 0 }).await;
        for n in [5, 6] {
            hub.post(card(&key(n), PRICE)).await;
        }
        for n in [LIAR, 3, HONEST, 5, 6] {
            until_known(&clock, &store, who(n)).await;
        }
        let asked = buyer::Wish { budget: Msat(5_000), ..wish("critical", Choice::Best) };
        let asked = Wanted { wish: asked, criticality: Criticality::Critical, fewer_ok: false };
        let council = buyer.delegate(asked).await.unwrap();
        // What is not over has no evidence yet.
        let early = gathered(&store, About::Delegation(council.delegation_id.clone())).await;
        if let Err(error) = early {
            assert_eq!(error.code().name, "dossier.open");
        }
        let course = buyer.wait_for(&council.delegation_id).await.unwrap();
        assert_eq!(course.delegation.state, State::Decided);
        let mut orders = Vec::new();
        for (name, n, private, ended) in [
            ("good", HONEST, false, OrderState::Released),
            ("bad", LIAR, false, OrderState::Withheld),
            ("private", HONEST, true, OrderState::Released),
        ] {
            let asked = buyer::Wish { private, ..wish(name, Choice::Chosen(who(n))) };
            let posted = buyer.hire(asked).await.unwrap();
            assert_eq!(buyer.wait(&posted.order_id).await.unwrap().state, ended);
            orders.push(posted);
        }
        let private = About::Order(orders[2].order_id.clone());
        let refused = store.read(move |rx| gather(rx, &private, false)).await.unwrap_err();
        assert_eq!(refused.code().name, "dossier.private");
        let nobody = About::Request(EventId::from_bytes([7; 32]));
        assert_eq!(gathered(&store, nobody).await.unwrap_err().code().name, "dossier.unknown");
        clock.forward(24 * 3_600_000);
        let said = Filter::kinds([kind::REVIEW]);
        until(&clock, "all are reviewed", || async { hub.published(&said).len() == 3 }).await;
        let of =
            async |n: usize| gathered(&store, About::Request(orders[n].request_id)).await.unwrap();
        let replica = course.replicas[0].1.order.order_id.clone();
        let council = gathered(&store, About::Delegation(council.delegation_id)).await.unwrap();
        assert_eq!(gathered(&store, About::Order(replica)).await.unwrap(), council);
        let day = Day { good: of(0).await, bad: of(1).await, private: of(2).await, council };
        assert!(out.set(day).is_ok());
    });
    Arc::into_inner(lived).and_then(OnceLock::into_inner).unwrap()
}

fn check(folder: &Folder, rerun: bool) -> Report {
    let registry = Registry::builtin();
    dossier::check(folder, Options { registry: &registry, rerun })
}

fn shown(report: &Report) -> Vec<String> {
    report
        .problems()
        .map(|(check, problem)| {
            format!("{} {}: {} [{}]", check.name, check.of, problem.message, problem.code.name)
        })
        .collect()
}

fn names(report: &Report) -> BTreeSet<&'static str> {
    report.checks.iter().map(|check| check.name).collect()
}

#[test]
fn the_evidence_of_a_day_holds() {
    let day = day();
    for (what, gathered) in [
        ("good", &day.good),
        ("bad", &day.bad),
        ("private", &day.private),
        ("council", &day.council),
    ] {
        let report = check(&Folder::of(&gathered.files), true);
        assert_eq!(shown(&report), Vec::<String>::new(), "{what}");
        assert!(report.holds() && report.not_checked.is_empty(), "{what}");
        let mut asked = vec!["file", "event", "request", "input", "result", "verdict", "receipt"];
        asked.extend(["status", "amount", "replay", "rerun", "manifest"]);
        for name in asked {
            assert!(names(&report).contains(name), "{what} lacks {name}");
        }
    }
    let all = |gathered: &Gathered| names(&check(&Folder::of(&gathered.files), false));
    assert!(all(&day.good).is_superset(&["payment", "review", "feedback"].into()));
    assert!(
        all(&day.council).is_superset(&["payment", "review", "votes", "vote", "winner"].into())
    );
    assert_eq!(day.council.manifest.works.len(), 5);
    assert!(!all(&day.good).contains("rerun"));
    let private = check(&Folder::of(&day.private.files), false);
    assert!(private.notes.iter().any(|note| note.contains("the buyer's word")));
}

/// Every file, at many places, with the hashes of the manifest made to fit: somebody has signed for all of it.
#[test]
fn no_byte_of_any_file_can_be_another() {
    let day = day();
    for (what, gathered) in [
        ("good", &day.good),
        ("private", &day.private),
        ("bad", &day.bad),
        ("council", &day.council),
    ] {
        for (path, bytes) in &gathered.files {
            // The budget of a delegation is the buyer's word.
            if what == "council" && path == MANIFEST {
                continue;
            }
            let step = (bytes.len() / 40).max(1);
            for at in (0..bytes.len()).step_by(step) {
                let mut forged = Forged::of(gathered);
                let mut bad = bytes.clone();
                bad[at] ^= 1;
                let as_it_lies = {
                    let mut folder = Folder::of(&gathered.files);
                    folder.put(path, Found::Whole(bad.clone()));
                    check(&folder, false)
                };
                assert!(!as_it_lies.holds(), "{what}: {path}, byte {at}");
                if path == MANIFEST {
                    continue;
                }
                assert!(as_it_lies.problems().any(|(_, one)| one.code.name == "dossier.changed"));
                forged.files.insert(path.clone(), bad);
                assert!(!forged.report(false).holds(), "{what}: {path}, byte {at}");
            }
        }
    }
}

#[test]
fn what_is_missing_or_cannot_be_read_is_named() {
    let good = &day().good;
    for path in good.files.keys() {
        let with = |found: Option<Found>| {
            let mut folder = Folder::of(&good.files);
            match found {
                Some(found) => folder.put(path, found),
                None => folder.remove(path),
            }
            check(&folder, false)
        };
        let long = Found::Whole(vec![b' '; FILE_MAX_BYTES + 1]);
        for (found, code) in [
            (None, "dossier.missing"),
            (Some(Found::NotPlain), "dossier.file_not_plain"),
            (Some(Found::TooLarge), "dossier.file_too_large"),
            (Some(long), "dossier.file_too_large"),
        ] {
            let report = with(found);
            assert!(report.problems().any(|(_, one)| one.code.name == code), "{path}: {code}");
        }
        // Also if the manifest does not name it any more.
        let mut forged = Forged::of(good);
        if forged.files.remove(path).is_some() {
            let codes = forged.codes();
            assert!(codes.contains("dossier.missing"), "{path}: {codes:?}");
        }
    }
    let mut more = Folder::of(&good.files);
    more.put("events/notes.txt", Found::Whole(b"hello".to_vec()));
    more.put("photo.jpg", Found::NotPlain);
    let report = check(&more, false);
    assert!(report.holds());
    assert_eq!(report.not_checked, ["events/notes.txt", "photo.jpg"]);
    let mut behind = Folder::new();
    behind.put(MANIFEST, Found::Whole(good.files[MANIFEST].clone()));
    behind.put("events", Found::NotPlain);
    let report = check(&behind, false);
    assert!(report.problems().any(|(_, one)| one.code.name == "dossier.file_not_plain"));
    for rubbish in ["", "{", "[]", "null", "{\"works\":[]}", "\u{0}"] {
        let mut folder = Folder::of(&good.files);
        folder.put(MANIFEST, Found::Whole(rubbish.as_bytes().to_vec()));
        let report = check(&folder, false);
        assert_eq!(shown(&report).len(), 1, "{rubbish}");
        assert!(shown(&report)[0].ends_with("[dossier.manifest]"), "{rubbish}");
    }
}

/// The table of `docs/formats/dossier.md`: who changes what, and the code that it is seen by. Whoever changes it has
/// made all hashes fit, and where it is the buyer who cheats, has signed anew.
#[test]
fn every_way_to_change_it_has_its_code() {
    type Change = fn(&mut Forged);
    let changes: [(&str, Change); 24] = [
        ("dossier.manifest", forge::file_of_nothing),
        ("dossier.event", forge::event_not_signed),
        ("dossier.request", forge::request_of_somebody_else),
        ("dossier.input", forge::request_for_other_work),
        ("dossier.result", forge::result_by_somebody_else),
        ("dossier.result", forge::result_of_another_request),
        ("dossier.feedback", forge::feedback_by_a_stranger),
        ("dossier.output", forge::verdict_on_another_result),
        ("dossier.verdict", forge::verdict_that_contradicts_itself),
        ("dossier.verdict", forge::verdict_on_somebody_else),
        ("dossier.verdict_hash", forge::verdict_changed_afterwards),
        ("dossier.status", forge::state_that_is_not_so),
        ("dossier.receipt", forge::receipt_for_more),
        ("dossier.receipt", forge::receipt_left_out),
        ("dossier.receipt_other", forge::receipt_of_another_order),
        ("dossier.amount", forge::buyer_signs_for_less),
        ("dossier.payment", forge::buyer_names_another_transfer),
        ("dossier.ledger", forge::slice_with_another_amount),
        ("dossier.ledger", forge::slice_of_another_commit),
        ("dossier.replay", forge::replay_of_another_order),
        ("dossier.replay_other", forge::buyer_signs_for_another_replay),
        ("dossier.review", forge::review_of_another_request),
        ("dossier.review", forge::review_by_a_stranger),
        ("dossier.review", forge::review_with_another_receipt),
    ];
    for (number, (code, change)) in changes.into_iter().enumerate() {
        let mut forged = Forged::of(&day().good);
        change(&mut forged);
        let codes = forged.codes();
        assert!(codes.contains(code), "change {number}, {code}: {codes:?}");
    }
}

#[test]
fn votes_cannot_be_left_out_or_counted_otherwise() {
    type Change = fn(&mut Forged);
    let changes: [(&str, Change); 8] = [
        ("dossier.winner", forge::fewer_are_enough),
        ("dossier.winner", forge::more_were_asked),
        ("dossier.votes", forge::vote_left_out),
        ("dossier.votes", forge::somebody_twice),
        ("dossier.votes", forge::result_says_something_else),
        ("dossier.winner", forge::liars_win),
        ("dossier.amount", forge::smaller_budget),
        ("dossier.votes", forge::one_of_several_alone),
    ];
    for (number, (code, change)) in changes.into_iter().enumerate() {
        let mut forged = Forged::of(&day().council);
        change(&mut forged);
        let codes = forged.codes();
        assert!(codes.contains(code), "change {number}, {code}: {codes:?}");
    }
}

/// A buyer that lies in its verdict and signs for the lie keeps every hash. Whoever judges again sees it.
#[test]
fn a_verdict_that_lies_is_seen_by_judging_again() {
    let mut forged = Forged::of(&day().bad);
    forge::accepted_although_it_is_wrong(&mut forged);
    let report = forged.report(false);
    assert_eq!(shown(&report), Vec::<String>::new(), "nothing else is wrong with it");
    let report = forged.report(true);
    let codes: Vec<&str> = report.problems().map(|(_, problem)| problem.code.name).collect();
    assert_eq!(codes, ["dossier.rerun"]);
}
