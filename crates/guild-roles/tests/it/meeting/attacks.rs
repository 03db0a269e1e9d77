//! Those who do not do what was asked. The honest provider is hired beside each of them.

use std::sync::atomic::Ordering;

use guild_market::meeting::End;
use guild_network::delivery;
use guild_protocol::amount::Msat;
use guild_protocol::bolt11::{Network, NewInvoice};
use guild_protocol::hash::Hash;
use guild_protocol::nostr::job::{Feedback, Price, Status as Said};
use guild_roles::router::Cause;

use super::*;

/// An attack on a meeting with a stranger, beside an honest provider.
fn beside_an_honest_one<F>(attack: impl FnOnce(Arc<Meet>, Arc<Stranger>) -> F)
where
    F: Future<Output = ()>,
{
    let mut town = Town::new();
    let (node, other) = (town.node(), town.node());
    let meet = Arc::new(Meet::in_town(&mut town, node));
    let honest = town.provider_with(other, key(2), offer(), Arc::new(Solver::Reference));
    let stranger = Arc::new(Stranger::new(7, &meet));
    let attack = attack(meet.clone(), stranger.clone());
    town.tell(async move {
        stranger.announce(&meet).await;
        attack.await;
        meet.honest_is_hired(honest.public_key()).await;
    });
}

#[test]
fn who_is_silent_is_asked_again_and_then_left_alone() {
    beside_an_honest_one(|meet, stranger| async move {
        let them = stranger.public_key();
        let begun = meet.meetings.meet(wish(them, false)).await.unwrap();
        let story = meet.fly_to_the_end(&begun.meeting_id).await;
        let meeting = &story.meeting;
        assert_eq!(meeting.outcome, Some(Outcome::Unresponsive), "{story:?}");
        let [(trial, words)] = story.trials.as_slice() else { panic!("{story:?}") };
        assert_eq!((trial.course.end, words.len()), (Some(End::Unresponsive), 0));
        assert_eq!((trial.course.retries, meet.meetings.counts().of("request_resent")), (3, 3));
        // The relay that took it may have dropped it: silence speaks against it.
        let now_ms = meet.clock.now_ms();
        let seen = meet.store.read(move |rx| delivery::of_provider(rx, &them, now_ms));
        let seen = seen.await.unwrap();
        let [(relay, quality)] = seen.as_slice() else { panic!("{seen:?}") };
        assert_eq!((relay.as_str(), quality.unanswered > 900), (RELAY, true), "{quality:?}");
        // It was the same request each time.
        assert_eq!(meet.hub.published(&Filter::kinds([5000])).len(), 1);
        let day_ms = 24 * 3_600_000;
        let until_ms = meeting.cooldown_until_ms.unwrap();
        assert!(
            until_ms > meeting.begun_ms + day_ms && until_ms <= meeting.ended_ms.unwrap() + day_ms
        );
        let refused = meet.meetings.meet(wish(them, false)).await.unwrap_err();
        assert_eq!(refused.code().name, "meeting.cooling_down");
        // Not for other work either.
        let other = Wish { task: Some("other-work".parse().unwrap()), ..wish(them, false) };
        let refused = meet.meetings.meet(other).await.unwrap_err();
        assert_eq!(refused.code().name, "meeting.cooling_down");
        assert!(believed(&meet.store, &meet, them).await.is_none());
        // A day later it may try again, and what it sends late until then changes nothing.
        stranger.answer(&trial.request().unwrap()).await;
        meet.until_counted("result_late", 1).await;
        meet.clock.forward(day_ms);
        assert!(meet.meetings.meet(wish(them, false)).await.is_ok());
    });
}

#[test]
fn a_result_of_somebody_else_is_nobodys() {
    beside_an_honest_one(|meet, stranger| async move {
        let begun = meet.meetings.meet(wish(stranger.public_key(), false)).await.unwrap();
        let forger = Stranger::new(8, &meet);
        for n in 0..3 {
            let request = stranger.asked(n).await;
            // First the forger: with its own key, and with the stranger's name and a signature of its own.
            forger.hub.post(forger.result(&request, "x = 1")).await;
            let mut fake = forger.result(&request, "x = 2");
            fake.pubkey = stranger.public_key();
            fake.id = fake.compute_id();
            forger.hub.post(fake).await;
            // A result of the right one under the wrong kind, too.
            let mut wrong = JobResult::answering(&request, "x = 3").unwrap();
            wrong.kind = 6050;
            let wrong = wrong.draft(request.created_at).unwrap().sign(&stranger.key).unwrap();
            stranger.hub.post(wrong).await;
            meet.until_counted("answer_refused", 2 * (u64::try_from(n).unwrap() + 1)).await;
            stranger.answer(&request).await;
        }
        let story = meet.meetings.wait(&begun.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Active), "{story:?}");
        for (_, words) in &story.trials {
            assert_eq!(words.len(), 1, "what others sent is not even evidence");
        }
        // It is counted, for `guild doctor --market`.
        let health = meet.store.read(|rx| guild_roles::discovery::health(rx, 9)).await.unwrap();
        let answers = health.counts.iter().filter(|one| one.what.starts_with("answer:"));
        assert!(answers.map(|one| one.count).sum::<i64>() >= 6, "{:?}", health.counts);
    });
}

#[test]
fn a_replayed_result_is_of_the_request_that_it_names() {
    beside_an_honest_one(|meet, stranger| async move {
        let begun = meet.meetings.meet(wish(stranger.public_key(), false)).await.unwrap();
        let first = stranger.asked(0).await;
        let good = stranger.solution(&first);
        let result = stranger.result(&first, &good);
        stranger.hub.post(result.clone()).await;
        let second = stranger.asked(1).await;
        // The same event again answers nothing; the same program does not fit the next task, which a judge would see.
        stranger.hub.post(result.clone()).await;
        let mut renamed = result;
        for tag in &mut renamed.tags {
            if tag[0] == "e" {
                tag[1] = second.id.hex();
            }
        }
        stranger.hub.post(renamed).await;
        assert_ne!(good, stranger.solution(&second));
        stranger.answer(&second).await;
        let third = stranger.asked(2).await;
        stranger.answer(&third).await;
        let story = meet.meetings.wait(&begun.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Active));
        for (trial, words) in &story.trials {
            assert_eq!(words.len(), 1);
            let request = trial.request().unwrap();
            assert_eq!(trial.content.as_deref(), Some(stranger.solution(&request).as_str()));
        }
    });
}

#[test]
fn who_signs_two_results_leaves_evidence() {
    beside_an_honest_one(|meet, stranger| async move {
        let begun = meet.meetings.meet(wish(stranger.public_key(), false)).await.unwrap();
        for n in 0..3 {
            let request = stranger.asked(n).await;
            // The bad one first: what is first counts.
            stranger.hub.post(stranger.result(&request, "x = 1")).await;
            meet.until_counted("result_delivered", u64::try_from(n).unwrap() + 1).await;
            stranger.answer(&request).await;
            stranger.hub.post(stranger.result(&request, "x = 1")).await;
            meet.until_counted("result_equivocation", u64::try_from(n).unwrap() + 1).await;
        }
        let story = meet.meetings.wait(&begun.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Rejected), "{story:?}");
        let thirty_days_ms = 30 * 24 * 3_600_000;
        assert!(story.meeting.cooldown_until_ms.unwrap() > story.meeting.begun_ms + thirty_days_ms);
        for (trial, words) in &story.trials {
            assert_eq!(trial.class, Some(Class::Failure));
            let said: Vec<&str> = words.iter().map(|word| word.standing.as_str()).collect();
            assert_eq!(said, ["delivered", "equivocation"]);
            for word in words {
                // Anybody can check it.
                let event = Event::parse_verified(
                    word.json.as_bytes(),
                    &guild_protocol::nostr::Limits::DEFAULT,
                );
                assert_eq!(event.unwrap().pubkey, stranger.public_key());
            }
        }
    });
}

/// Asks to be paid 900 msat by an invoice that a test changes; what the meeting says of it.
fn unpaid(bid: Option<i64>, tag_msat: i64, change: impl Fn(&mut NewInvoice) + 'static) -> String {
    let told: Arc<Mutex<String>> = Arc::default();
    let said = told.clone();
    beside_an_honest_one(move |meet, stranger| async move {
        let mut wanted = wish(stranger.public_key(), false);
        wanted.bid = bid.map(Msat);
        let begun = meet.meetings.meet(wanted).await.unwrap();
        let request = stranger.asked(0).await;
        let now_s = unix_s(meet.clock.now_ms());
        let mut invoice = NewInvoice {
            network: Network::Bitcoin,
            amount: Some(Msat(900)),
            created_s: now_s,
            expiry_s: 600,
            payment_hash: Hash::of(b"x"),
            description: "a benchmark".to_owned(),
        };
        change(&mut invoice);
        let mut feedback = Feedback::about(&request, Said::PaymentRequired);
        let bolt11 = Some(invoice.sign(&stranger.key).unwrap());
        feedback.price = Some(Price { msat: Msat(tag_msat), bolt11 });
        let event = feedback.draft(now_s).unwrap().sign(&stranger.key).unwrap();
        stranger.hub.post(event).await;
        let story = meet.meetings.wait(&begun.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Unpaid), "{story:?}");
        let [(trial, words)] = story.trials.as_slice() else { panic!("{story:?}") };
        assert_eq!((trial.course.end, words[0].standing.as_str()), (Some(End::Unpaid), "unpaid"));
        *said.lock().unwrap() = story.meeting.words.clone().unwrap();
    });
    let told = told.lock().unwrap();
    told.split(':').next().unwrap_or_default().to_owned()
}

#[test]
fn no_invoice_is_paid_that_is_not_right_in_everything() {
    assert_eq!(unpaid(Some(1_000), 900, |_| {}), "no_rail");
    assert_eq!(unpaid(Some(899), 900, |_| {}), "above_bid");
    assert_eq!(unpaid(None, 900, |_| {}), "above_bid");
    assert_eq!(unpaid(Some(1_000), 900, |new| new.amount = Some(Msat(5_000))), "above_bid");
    assert_eq!(unpaid(Some(1_000), 900, |new| new.amount = Some(Msat(901))), "other_amount");
    assert_eq!(unpaid(Some(1_000), 900, |new| new.network = Network::Testnet), "other_network");
    assert_eq!(unpaid(Some(1_000), 900, |new| new.created_s -= 601), "invoice_expired");
}

#[test]
fn who_works_in_silence_is_as_slow_as_it_was() {
    beside_an_honest_one(|meet, stranger| async move {
        // The relay passes the request on, and does not say so.
        meet.hub.withholds.store(true, Ordering::SeqCst);
        let begun = meet.meetings.meet(wish(stranger.public_key(), false)).await.unwrap();
        let request = stranger.asked(0).await;
        meet.clock.forward(8_000);
        let said = Feedback::about(&request, Said::Processing);
        let said = said.draft(request.created_at).unwrap().sign(&stranger.key).unwrap();
        stranger.hub.post(said).await;
        stranger.answer(&request).await;
        meet.hub.withholds.store(false, Ordering::SeqCst);
        for n in 1..3 {
            stranger.answer(&stranger.asked(n).await).await;
        }
        let story = meet.meetings.wait(&begun.meeting_id).await.unwrap();
        let latency_ms = story.trials[0].0.latency_ms.unwrap();
        assert!(latency_ms >= 8_000, "{latency_ms}");
    });
}

#[test]
fn words_that_mean_nothing_extend_nothing() {
    beside_an_honest_one(|meet, stranger| async move {
        let begun = meet.meetings.meet(wish(stranger.public_key(), false)).await.unwrap();
        for n in 0..3 {
            meet.fly_until(&begun.meeting_id, |story| story.trials.len() > n).await;
            let request = stranger.asked(n).await;
            for (status, info) in
                [("pong", "\u{202e}hi\u{7}"), ("subscription-required", ""), ("partial", "1")]
            {
                let mut event =
                    Feedback::about(&request, Said::Processing).draft(request.created_at).unwrap();
                event.tags[0] = vec!["status".to_owned(), status.to_owned(), info.to_owned()];
                stranger.hub.post(event.sign(&stranger.key).unwrap()).await;
            }
            meet.until_counted("feedback", 3 * (u64::try_from(n).unwrap() + 1)).await;
        }
        let story = meet.fly_to_the_end(&begun.meeting_id).await;
        assert_eq!(story.meeting.outcome, Some(Outcome::Rejected), "{story:?}");
        for (trial, words) in &story.trials {
            assert_eq!((trial.course.end, trial.course.extended), (Some(End::Timeout), 0));
            assert_eq!(words.len(), 3);
            let all = words.iter().filter_map(|word| word.words.clone()).collect::<String>();
            assert!(!all.chars().any(char::is_control), "{all:?}");
        }
    });
}

#[test]
fn what_cannot_be_a_program_has_failed() {
    beside_an_honest_one(|meet, stranger| async move {
        let begun = meet.meetings.meet(wish(stranger.public_key(), false)).await.unwrap();
        for (n, content) in ["{}", "{\"files\":{\"../x\":\"y\"}}", "\0"].iter().enumerate() {
            let request = stranger.asked(n).await;
            stranger.hub.post(stranger.result(&request, content)).await;
        }
        let story = meet.meetings.wait(&begun.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Rejected), "{story:?}");
        assert!(story.trials.iter().all(|(trial, _)| trial.class == Some(Class::Failure)));
    });
}

#[test]
fn who_tries_what_is_forbidden_is_neither_met_nor_hired_again() {
    let mut town = Town::new();
    let (node, other) = (town.node(), town.node());
    let meet = Meet::in_town(&mut town, node);
    let buyer = town.buyer(node, key(1));
    let honest = town.provider_with(other, key(2), offer(), Arc::new(Solver::Reference));
    town.tell(async move {
        let stranger = Stranger::new(7, &meet);
        stranger.announce(&meet).await;
        let them = stranger.public_key();
        let begun = meet.meetings.meet(wish(them, false)).await.unwrap();
        let request = stranger.asked(0).await;
        stranger.hub.post(stranger.result(&request, "import socket\n")).await;
        let story = meet.meetings.wait(&begun.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Forbidden), "at once: {story:?}");
        // Nobody knew it before, and its key is known from now on.
        let entry = believed(&meet.store, &meet, them).await.unwrap();
        assert_eq!((entry.status, entry.trust_bp), (Status::Blacklisted, 0));
        let again = [
            wish(them, false),
            Wish { task: Some("other-work".parse().unwrap()), ..wish(them, false) },
            Wish { benchmark: Benchmark::EmbeddingV1, ..wish(them, false) },
        ];
        for wanted in again {
            let refused = meet.meetings.meet(wanted).await.unwrap_err();
            assert_eq!(refused.code().name, "route.blacklisted");
        }
        let order = crate::town::wish("work", guild_roles::buyer::Choice::Chosen(them));
        let refused = buyer.hire(order).await.unwrap_err();
        assert_eq!(refused.code().name, "route.blacklisted");
        meet.honest_is_hired(honest.public_key()).await;
    });
}

/// What becomes of invoices over 900 msat each, one for each trial, with these budgets and a rail.
fn paid_within(budget: i64, budget_day: i64) -> Vec<Option<String>> {
    let mut town = Town::new();
    let node = town.node();
    let judged = Judged::default();
    let mut options = options();
    (options.market.has_rail, options.market.budget) = (true, Msat(budget));
    options.market.budget_day = Msat(budget_day);
    let means = (examine(&judged), nobody());
    let meetings = town.meetings(node, key(1), options, means, Hold::default());
    let (store, clock, hub) = (town.store(node).clone(), town.clock.clone(), town.hub.clone());
    let meet = Meet { meetings, store, clock, hub, judged, finds: false };
    let told: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let said = told.clone();
    town.tell(async move {
        for n in [7, 8] {
            let stranger = Stranger::new(n, &meet);
            stranger.announce(&meet).await;
            let wanted = Wish { bid: Some(Msat(1_000)), ..wish(stranger.public_key(), false) };
            let begun = meet.meetings.meet(wanted).await.unwrap();
            for n in 0..3 {
                let request = stranger.asked(n).await;
                let heard = meet.meetings.counts();
                let heard = heard.of("feedback") + heard.of("unpaid");
                stranger.hub.post(invoice(&stranger, &request, &meet)).await;
                until(&meet.clock, "the invoice is read", || async {
                    let counts = meet.meetings.counts();
                    counts.of("feedback") + counts.of("unpaid") > heard
                })
                .await;
                stranger.answer(&request).await;
                let story = meet.meetings.story(begun.meeting_id.clone()).await.unwrap();
                let unpaid = story.trials[n].0.course.end == Some(End::Unpaid);
                let why = story.trials[n].0.words.clone().filter(|_| unpaid);
                said.lock().unwrap().push(why);
                if unpaid {
                    break;
                }
            }
            meet.meetings.wait(&begun.meeting_id).await.unwrap();
        }
    });
    let told = told.lock().unwrap().clone();
    let short = |words: String| words.split(':').next().unwrap_or_default().to_owned();
    told.into_iter().map(|words| words.map(short)).collect()
}

fn invoice(stranger: &Stranger, request: &Event, meet: &Meet) -> Event {
    let now_s = unix_s(meet.clock.now_ms());
    let new = NewInvoice {
        network: Network::Bitcoin,
        amount: Some(Msat(900)),
        created_s: now_s,
        expiry_s: 600,
        payment_hash: Hash::of(b"x"),
        description: "a benchmark".to_owned(),
    };
    let mut feedback = Feedback::about(request, Said::PaymentRequired);
    let bolt11 = Some(new.sign(&stranger.key).unwrap());
    feedback.price = Some(Price { msat: Msat(900), bolt11 });
    feedback.draft(now_s).unwrap().sign(&stranger.key).unwrap()
}

#[test]
fn no_more_is_paid_than_a_meeting_or_a_day_may_cost() {
    let no = || Some("no_budget".to_owned());
    assert_eq!(paid_within(899, 10_000), [no(), no()]);
    // Two trials of each meeting; of a day all that there is room for.
    assert_eq!(paid_within(1_800, 10_000), [None, None, no(), None, None, no()]);
    assert_eq!(paid_within(10_000, 3_600), [None, None, None, None, no()]);
}

#[test]
fn who_signs_a_bad_result_behind_a_good_one_is_not_hired_for_a_day() {
    beside_an_honest_one(|meet, stranger| async move {
        let them = stranger.public_key();
        let begun = meet.meetings.meet(wish(them, false)).await.unwrap();
        for n in 0..3 {
            let request = stranger.asked(n).await;
            stranger.answer(&request).await;
            meet.until_counted("result_delivered", u64::try_from(n).unwrap() + 1).await;
            if n == 1 {
                stranger.hub.post(stranger.result(&request, "x = 1")).await;
                meet.until_counted("result_equivocation", 1).await;
            }
        }
        let story = meet.meetings.wait(&begun.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Active), "{story:?}");
        let entry = believed(&meet.store, &meet, them).await.unwrap();
        assert_eq!((entry.status, entry.cause), (Status::Quarantined, Some(Cause::Forbidden)));
        let day_ms = 24 * 3_600_000;
        assert!(entry.until_ms.unwrap() > story.meeting.begun_ms + day_ms);
    });
}

#[test]
fn feedback_inside_of_ciphertext_counts_as_any_other() {
    beside_an_honest_one(|meet, stranger| async move {
        let begun = meet.meetings.meet(wish(stranger.public_key(), true)).await.unwrap();
        let us = key(1).public_key();
        let dice = crate::town::Dice::default();
        for (n, status) in [Said::Success, Said::Error, Said::Error].into_iter().enumerate() {
            let request = stranger.asked(n).await;
            let is_done = status == Said::Success;
            let mut feedback = Feedback::about(&request, status);
            feedback.info = Some("said in private".to_owned());
            let draft = feedback.sealed_draft(request.created_at, &stranger.key, &dice).unwrap();
            let event = draft.sign(&stranger.key).unwrap();
            assert!(!event.to_json().contains("said in private"), "only {us} reads it");
            stranger.hub.post(event).await;
            meet.until_counted("feedback", u64::try_from(n).unwrap() + 1).await;
            if is_done {
                let story = meet.meetings.story(begun.meeting_id.clone()).await.unwrap();
                assert_eq!(story.trials[0].0.course.stage, Stage::Finishing);
                stranger.hub.post(sealed(&stranger, &request, "x = 1")).await;
            }
        }
        let story = meet.meetings.wait(&begun.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Rejected), "{story:?}");
        let ends: Vec<Option<End>> = story.trials.iter().map(|(one, _)| one.course.end).collect();
        assert_eq!(ends, [None, Some(End::Failed), Some(End::Failed)]);
        assert_eq!(story.trials[1].0.words.as_deref(), Some("error said in private"));
    });
}

/// A result that only who asked can read.
fn sealed(stranger: &Stranger, request: &Event, content: &str) -> Event {
    let result = JobResult::answering(request, content).unwrap();
    let dice = crate::town::Dice::default();
    let draft = result.sealed_draft(request.created_at, &stranger.key, &dice).unwrap();
    draft.sign(&stranger.key).unwrap()
}
