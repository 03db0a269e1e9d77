//! Those who do not do what was asked. The honest provider is hired beside each of them.

use guild_market::meeting::End;
use guild_protocol::amount::Msat;
use guild_protocol::bolt11::{Network, NewInvoice};
use guild_protocol::hash::Hash;
use guild_protocol::nostr::job::{Feedback, Price, Status as Said};

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
        // It was the same request each time.
        assert_eq!(meet.hub.published(&Filter::kinds([5000])).len(), 1);
        let day_ms = 24 * 3_600_000;
        let until_ms = meeting.cooldown_until_ms.unwrap();
        assert!(
            until_ms > meeting.begun_ms + day_ms && until_ms <= meeting.ended_ms.unwrap() + day_ms
        );
        let refused = meet.meetings.meet(wish(them, false)).await.unwrap_err();
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
