//! What we say.

use guild_market::judge::Class;
use guild_market::review::{DAY_MS, Disputed, Published, Reason, State, due, publish, undisputed};
use guild_market::routing::{Change, Mutation};
use guild_network::publish::{Destinations, acks};
use guild_protocol::nostr::review::Form;
use guild_protocol::nostr::{EventId, Limits};
use guild_store::outbox;

use super::*;
use crate::world::{both, buyer, why};

const RELAYS: [&str; 2] = ["ws://a.example", "ws://b.example"];

fn to() -> Destinations {
    Destinations::own(&RELAYS.map(str::to_owned))
}

fn publish_now(
    node: &Node,
    review_id: &ReviewId,
    disputed: bool,
    (at_once, now_ms): (bool, i64),
) -> Published {
    let review_id = review_id.clone();
    node.write(move |tx| {
        let answer = |_: &mut guild_store::Rx<'_>, _: &EventId| Ok(disputed);
        let disputed: Disputed<'_> = &answer;
        publish(tx, &review_id, (&buyer(), &to()), disputed, (at_once, now_ms))
    })
    .unwrap()
}

fn is_due(node: &Node, now_ms: i64) -> Vec<ReviewId> {
    node.read(move |rx| due(rx, now_ms, 10))
}

/// Messages that wait to leave.
fn waiting(node: &Node) -> usize {
    node.read(|rx| {
        let filter = outbox::Filter { state: None, sink: Some("relay".to_owned()), after: 0 };
        Ok(outbox::list(rx, &filter, 1_000)?.len())
    })
}

#[test]
fn an_outcome_drafts_a_review_once() {
    both(|node| {
        node.fund(10_000);
        node.announce(&provider());
        let (order_id, noted) = hired(node, "one", true, T0 + 300);
        let noted = noted.unwrap();
        let draft = row(node, &noted);
        assert_eq!((draft.state, draft.reason), (State::Due, Reason::Order));
        assert_eq!((draft.due_ms, draft.outcomes, draft.number), (T0 + 300 + DAY_MS, 1, 1));
        assert_eq!(draft.review.trust_bp, trust_bp(node, &provider().public_key()));
        let order = node.order(&order_id);
        let evidence = &draft.review.evidence;
        assert_eq!(evidence.request_id, Some(order.request_id));
        assert_eq!(
            (evidence.result_id, evidence.job_hash),
            (order.result_id, Some(order.job_hash))
        );
        assert_eq!(
            evidence.payment.as_ref().map(|paid| &paid.receipt_id),
            order.receipt_id.as_ref()
        );
        assert!(evidence.verdict_hash.is_some());
        assert_eq!(draft.review.content.test_score_bp, Some(10_000));
        // The same outcome again is no news.
        assert_eq!(ended(node, &Options::default(), &order_id, T0 + HOUR_MS).1, None);
        assert_eq!(row(node, &noted), draft);
        // A later one changes what is said, and not when.
        let (_, again) = hired(node, "two", false, T0 + HOUR_MS);
        assert_eq!(again.as_ref(), Some(&noted));
        let changed = row(node, &noted);
        assert_eq!((changed.outcomes, changed.due_ms), (2, draft.due_ms));
        assert!(changed.review.trust_bp < draft.review.trust_bp);
        assert_ne!(changed.review.evidence, draft.review.evidence);
        assert!(is_due(node, draft.due_ms - 1).is_empty());
        assert_eq!(is_due(node, draft.due_ms), [noted]);
    });
}

#[test]
fn of_private_work_and_of_ourselves_nothing_is_said() {
    both(|node| {
        node.fund(10_000);
        let (_, noted) = hired_by(node, &Options::default(), ("p", true), true, T0 + 300);
        assert_eq!(noted, None);
        let ours = Options { ours: [provider().public_key()].into(), ..Options::default() };
        assert_eq!(hired_by(node, &ours, ("o", false), true, T0 + 300).1, None);
        assert!(is_due(node, i64::MAX).is_empty());
    });
}

#[test]
fn what_is_published_follows_from_its_row() {
    both(|node| {
        node.fund(10_000);
        let noted = hired(node, "one", true, T0 + 300).1.unwrap();
        let due_ms = row(node, &noted).due_ms;
        assert!(matches!(
            publish_now(node, &noted, false, (false, due_ms - 1)),
            Published::Early(_)
        ));
        assert_eq!(waiting(node), 0);
        // A process dies before the commit: nothing is left, and the next one says the very same.
        let (id, signed) = (noted.clone(), std::sync::Arc::new(std::sync::Mutex::new(Vec::new())));
        let seen = signed.clone();
        let died = node.write(move |tx| {
            let published =
                publish(tx, &id, (&buyer(), &to()), &undisputed, (false, due_ms + 5))?.row();
            *seen.lock().unwrap() = published.event_ids;
            Err::<(), _>(guild_market::Error::refused(&guild_market::code::BUSY, "it died"))
        });
        assert_eq!(why(died), "market.busy");
        assert_eq!((row(node, &noted).state, waiting(node)), (State::Due, 0));
        let Published::New(published) = publish_now(node, &noted, false, (false, due_ms + 60_000))
        else {
            panic!("it is due")
        };
        assert_eq!(published.event_ids, *signed.lock().unwrap());
        assert_eq!((published.state, published.event_ids.len()), (State::Published, 3));
        assert_eq!(published.published_ms, Some(due_ms / 1_000 * 1_000));
        assert_eq!(waiting(node), 3 * RELAYS.len(), "each event once for each relay");
        // Again, by whomever: nothing is new.
        for at_once in [false, true] {
            let again = publish_now(node, &noted, true, (at_once, due_ms + DAY_MS));
            assert_eq!(again, Published::Known(published.clone()));
        }
        assert_eq!(waiting(node), 3 * RELAYS.len());
        for (form, id) in Form::ALL.into_iter().zip(published.event_ids) {
            let event = node.read(move |rx| Ok(archive::event(rx, &id)?)).unwrap();
            assert_eq!((event.kind, event.pubkey), (form.kind(), buyer().public_key()));
            let read = Event::parse_verified(event.to_json().as_bytes(), &Limits::DEFAULT).unwrap();
            assert_eq!(Review::parse(&read).unwrap(), published.review);
            assert_eq!(node.read(move |rx| Ok(acks(rx, &id)?)).len(), RELAYS.len());
        }
    });
}

#[test]
fn the_next_review_waits_a_day_unless_trust_has_moved() {
    both(|node| {
        node.fund(10_000);
        let first = hired(node, "one", true, T0 + 300).1.unwrap();
        let at_ms = T0 + HOUR_MS;
        publish_now(node, &first, false, (true, at_ms));
        let published_ms = row(node, &first).published_ms.unwrap();
        // One success more is no news: a day after the last one.
        let second = hired(node, "two", true, at_ms + 10).1.unwrap();
        let draft = row(node, &second);
        assert_eq!((draft.number, draft.reason), (2, Reason::Order));
        assert_eq!(draft.due_ms, (at_ms + 10 + DAY_MS).max(published_ms + DAY_MS));
        // What goes wrong and wrong is told at once.
        let mut moved = draft;
        for name in ["three", "four", "five"] {
            assert_eq!(hired(node, name, false, at_ms + 20).1.as_ref(), Some(&second));
            moved = row(node, &second);
        }
        assert_eq!((moved.reason, moved.due_ms, moved.outcomes), (Reason::Change, at_ms + 20, 4));
        assert!(matches!(
            publish_now(node, &second, false, (false, at_ms + 30)),
            Published::New(_)
        ));
        // The set is replaced, although both were said within a second or so.
        let (old, new) = (row(node, &first), row(node, &second));
        assert_eq!((old.state, new.state), (State::Superseded, State::Published));
        assert!(new.published_ms > old.published_ms);
    });
}

#[test]
fn what_is_forbidden_is_told_at_once_and_stays_said() {
    both(|node| {
        node.fund(10_000);
        let first = hired(node, "one", true, T0 + 300).1.unwrap();
        assert_eq!(row(node, &first).reason, Reason::Order);
        let order_id = {
            let order = node.post(&new_order("bad", 100)).unwrap().order().unwrap();
            order.order_id
        };
        // No verdict of an order says so today; the matrix knows it from meetings and judges.
        node.write(move |tx| {
            let order = order::get(tx, &order_id)?;
            let mutation = Mutation::Outcome {
                class: Class::SecurityViolation,
                step_bp: 0,
                cost_msat: None,
                latency_ms: None,
            };
            let key = "violation".to_owned();
            let change = Change { key, task: task(), provider: provider().public_key(), mutation };
            let rows = log::append(tx, &Routing::default(), &[change], T0 + 400)?;
            review::ended(tx, &Options::default(), &order, &rows, T0 + 400)
        })
        .unwrap();
        let told = row(node, &first);
        assert_eq!(
            (told.reason, told.due_ms, told.review.trust_bp),
            (Reason::Violation, T0 + 400, 0)
        );
        assert_eq!(told.review.rating(), "1");
        assert_eq!(told.review.content.alert.as_deref(), Some("security_violation"));
        // What it does well later does not take that back.
        hired(node, "good again", true, T0 + 500);
        let told = row(node, &first);
        assert_eq!((told.reason, told.review.trust_bp), (Reason::Violation, 0));
        assert!(matches!(publish_now(node, &first, false, (false, T0 + 600)), Published::New(_)));
    });
}

#[test]
fn a_dispute_holds_a_review() {
    both(|node| {
        node.fund(10_000);
        let noted = hired(node, "one", false, T0 + 300).1.unwrap();
        let due_ms = row(node, &noted).due_ms;
        let Published::Held(held) = publish_now(node, &noted, true, (false, due_ms)) else {
            panic!("it is disputed")
        };
        assert_eq!((held.state, waiting(node)), (State::Held, 0));
        assert!(held.due_ms > due_ms, "it is looked at again, and keeps no other waiting");
        assert!(is_due(node, due_ms).is_empty());
        // A later outcome changes it, and it stays held.
        hired(node, "two", true, T0 + HOUR_MS);
        assert_eq!((row(node, &noted).state, row(node, &noted).outcomes), (State::Held, 2));
        let again = publish_now(node, &noted, true, (false, held.due_ms));
        assert!(matches!(again, Published::Held(_)));
        let later_ms = again.row().due_ms;
        assert!(matches!(publish_now(node, &noted, false, (false, later_ms)), Published::New(_)));
        // Or whoever this node works for says so all the same.
        let other = hired(node, "three", false, T0 + 2 * DAY_MS).1.unwrap();
        assert!(matches!(
            publish_now(node, &other, true, (true, T0 + 2 * DAY_MS)),
            Published::New(_)
        ));
    });
}
