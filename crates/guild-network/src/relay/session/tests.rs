use guild_protocol::env::Signer;
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::Draft;

use super::*;
use crate::archive::{Stored, Verified};
use crate::intake::LiveEvent;

const NOW_MS: i64 = 1_000_000_000;

fn key(number: u32) -> SecretKey {
    format!("{number:064x}").parse().unwrap()
}

fn event(kind: u16, tags: &[[&str; 2]]) -> Event {
    let tags = tags.iter().map(|pair| tag::tag(*pair)).collect();
    Draft { kind, created_at: 1_000_000, tags, content: String::new() }.sign(&key(7)).unwrap()
}

fn session(change: impl FnOnce(&mut Options)) -> Session {
    let mut options = Options::default();
    change(&mut options);
    Session::new(Arc::new(options), "127.0.0.1:4848", "c".to_owned(), NOW_MS)
}

impl Session {
    fn hear(&mut self, frame: &str) -> Vec<Action> {
        self.take(frame, |_| true, NOW_MS)
    }

    fn publish_json(&mut self, event: &Event) -> Vec<Action> {
        self.hear(&format!(r#"["EVENT",{}]"#, event.to_json()))
    }

    fn prove_key(&mut self, number: u32) {
        let tags = vec![tag::tag(["relay", "ws://127.0.0.1:4848/"]), tag::tag(["challenge", "c"])];
        let proof = Draft { kind: 22_242, created_at: 1_000_000, tags, content: String::new() };
        let proof = proof.sign(&key(number)).unwrap();
        let said = self.hear(&format!(r#"["AUTH",{}]"#, proof.to_json()));
        assert_eq!(said, [ok(proof.id, true, "")]);
    }
}

fn live(seq: Option<i64>, event: Event) -> Arc<LiveEvent> {
    Arc::new(LiveEvent { seq, event: Verified::check(event).unwrap() })
}

fn stored(seq: i64) -> Stored {
    let event = event(1, &[["n", &seq.to_string()]]);
    Stored { seq, event_id: event.id, created_at: event.created_at, json: event.to_json() }
}

fn numbered(seq: i64) -> Arc<LiveEvent> {
    live(Some(seq), event(1, &[["n", &seq.to_string()]]))
}

fn frame(sub: &str, seq: i64) -> String {
    guild_protocol::nostr::message::event_frame(sub, &stored(seq).json)
}

#[test]
fn what_is_stored_and_what_is_new_meet_without_gap_or_repeat() {
    let mut session = session(|_| {});
    let asked = session.hear(r#"["REQ","s",{"kinds":[1]}]"#);
    assert_eq!(asked, [Action::Subscribe { number: 1, filters: vec![Filter::kinds([1])] }]);
    // While the database is asked: 11 is in its answer too, 12 is not.
    assert_eq!(session.delivered(1, &numbered(11)), []);
    assert_eq!(session.delivered(1, &numbered(12)), []);
    // 13 was stored before the answer, and is passed on only after it.
    let answer = Answer { stored: vec![stored(13), stored(11), stored(10)], passed_on: 10 };
    let sent: Vec<String> = session.stored(1, answer).collect();
    let eose = r#"["EOSE","s"]"#.to_owned();
    assert_eq!(sent, [frame("s", 13), frame("s", 11), frame("s", 10), eose, frame("s", 12)]);
    assert_eq!(session.delivered(1, &numbered(13)), []);
    assert_eq!(session.delivered(1, &numbered(14)), [Action::Send(frame("s", 14))]);
    let passing = live(None, event(20_001, &[]));
    assert_eq!(session.delivered(1, &passing).len(), 1, "what is never stored has no number");
    // Closed: whatever still comes is dropped.
    assert_eq!(session.hear(r#"["CLOSE","s"]"#), [Action::Unsubscribe(1)]);
    assert_eq!(session.delivered(1, &numbered(15)), []);
    assert_eq!(session.stored(1, Answer { stored: vec![stored(1)], passed_on: 0 }).count(), 0);
}

#[test]
fn a_name_used_again_is_a_new_subscription() {
    let mut session = session(|_| {});
    session.hear(r#"["REQ","s",{"kinds":[1]}]"#);
    let again = session.hear(r#"["REQ","s",{"kinds":[2]}]"#);
    assert_eq!(
        again,
        [
            Action::Unsubscribe(1),
            Action::Subscribe { number: 2, filters: vec![Filter::kinds([2])] }
        ]
    );
    assert_eq!(session.stored(1, Answer { stored: vec![], passed_on: 0 }).count(), 0);
    assert_eq!(session.stored(2, Answer { stored: vec![], passed_on: 0 }).count(), 1);
    let words = "error: no";
    assert_eq!(session.unanswered(2, words), [Action::Unsubscribe(2), closed("s", words)]);
    assert_eq!(session.unanswered(2, words), []);
}

#[test]
fn what_waits_for_an_answer_is_bounded() {
    let mut session = session(|options| options.queue_max_bytes = 1_000);
    session.hear(r#"["REQ","s",{"kinds":[1]}]"#);
    assert_eq!(session.delivered(1, &numbered(1)), []);
    assert_eq!(session.delivered(1, &numbered(2)), []);
    assert_eq!(session.delivered(1, &numbered(3)), [Action::Unsubscribe(1), closed("s", TOO_SLOW)]);
    session.hear(r#"["REQ","a",{"kinds":[1]}]"#);
    session.hear(r#"["REQ","b",{"kinds":[1]}]"#);
    let ended = session.missed(TOO_SLOW);
    assert_eq!(ended.iter().filter(|action| matches!(action, Action::Send(_))).count(), 2);
    assert_eq!(session.missed(TOO_SLOW), []);
}

#[test]
fn every_limit_is_answered_in_words() {
    let mut session = session(|options| {
        options.subscriptions_max = 2;
        options.filters_max = 1;
        options.values_max = 6;
        options.events_per_minute = 1;
        options.syncs_max = 1;
    });
    let mut said = |frame: &str| match session.hear(frame).pop() {
        Some(Action::Send(said)) => said,
        other => format!("{other:?}"),
    };
    let event = event(1, &[]);
    let publish = format!(r#"["EVENT",{}]"#, event.to_json());
    assert!(said(&publish).starts_with("Some(Offer"));
    assert_eq!(
        said(&publish),
        format!(
            r#"["OK","{}",false,"rate-limited: too many events of this connection"]"#,
            event.id
        )
    );
    assert_eq!(said(r#"["REQ","a",{},{}]"#), r#"["CLOSED","a","invalid: at most 1 filters"]"#);
    assert_eq!(
        said(r#"["REQ","a",{"kinds":[1,2,3,4,5,6]}]"#),
        r#"["CLOSED","a","rate-limited: at most 6 values in all filters"]"#
    );
    said(r#"["REQ","a",{"kinds":[1]}]"#);
    said(r#"["REQ","b",{"kinds":[1]}]"#);
    assert_eq!(
        said(r#"["REQ","c",{"kinds":[1]}]"#),
        r#"["CLOSED","c","rate-limited: at most 2 subscriptions at once"]"#
    );
    said(r#"["NEG-OPEN","n",{},"61"]"#);
    assert_eq!(
        said(r#"["NEG-OPEN","m",{},"61"]"#),
        r#"["NEG-ERR","m","blocked: at most 1 at once"]"#
    );
    assert_eq!(
        said(r#"["NEG-MSG","m","61"]"#),
        r#"["NEG-ERR","m","closed: there is none of this name"]"#
    );
    assert_eq!(said("hello"), r#"["NOTICE","invalid: byte 0: expected a value, but found 'h'"]"#);
}

#[test]
fn whoever_does_not_stop_is_sent_away() {
    let mut session = session(|options| {
        options.frames_per_minute = 5;
        options.strikes_per_minute = 3;
    });
    let ends: Vec<bool> = (0..9)
        .map(|_| session.hear(r#"["CLOSE","x"]"#).contains(&Action::Disconnect("strikes")))
        .collect();
    // Five are heard, three are refused in words.
    assert_eq!(ends, [false, false, false, false, false, false, false, false, true]);
    let long = format!(r#"["CLOSE","{}"]"#, "x".repeat(600_000));
    let mut patient = super::tests::session(|_| {});
    assert_eq!(patient.hear(&long), [notice("invalid: a message has at most 524288 bytes")]);
}

#[test]
fn an_author_who_has_enough_is_refused_whoever_brings_it() {
    let mut session = session(|_| {});
    let event = event(1, &[]);
    let frame = format!(r#"["EVENT",{}]"#, event.to_json());
    let words = "rate-limited: too many events of this author";
    assert_eq!(session.take(&frame, |_| false, NOW_MS), [ok(event.id, false, words)]);
}

#[test]
fn what_needs_a_key_is_given_to_whoever_proves_it() {
    let mut session = session(|options| options.auth_to_write = true);
    let note = event(1, &[]);
    let refusal = "auth-required: prove a key to publish here";
    assert_eq!(session.publish_json(&note), [ok(note.id, false, refusal)]);
    let wraps = r#"["REQ","w",{"kinds":[1059]}]"#;
    let refusal = closed("w", "auth-required: prove the key of whom it is for");
    assert_eq!(session.hear(wraps), [refusal]);
    session.prove_key(8);
    assert_eq!(session.publish_json(&note), [Action::Offer(Box::new(note))]);
    assert!(matches!(session.hear(wraps)[..], [Action::Subscribe { number: 1, .. }]));
    session.stored(1, Answer { stored: vec![], passed_on: 0 }).for_each(drop);
    let to = |n: u32| live(Some(1), event(1059, &[["p", &key(n).public_key().hex()]]));
    assert_eq!(session.delivered(1, &to(9)), []);
    assert_eq!(session.delivered(1, &to(8)).len(), 1);
}

#[test]
fn a_protected_event_comes_from_its_author_alone() {
    let mut session = session(|_| {});
    let own = event(1, &[["-", ""]]);
    let words = "auth-required: only its author may publish this event";
    assert_eq!(session.publish_json(&own), [ok(own.id, false, words)]);
    session.prove_key(7);
    assert_eq!(session.publish_json(&own), [Action::Offer(Box::new(own))]);
    let proof = event(22_242, &[]);
    let words = "invalid: a proof is sent with AUTH";
    assert_eq!(session.publish_json(&proof), [ok(proof.id, false, words)]);
}

#[test]
fn a_reconciliation_has_a_name_and_an_end() {
    let mut session = session(|_| {});
    let opened = session.hear(r#"["NEG-OPEN","n",{"kinds":[1]},"61"]"#);
    assert!(matches!(opened[..], [Action::OpenSync { .. }]));
    let next = Action::Sync { sub: "n".to_owned(), message: "62".to_owned() };
    assert_eq!(session.hear(r#"["NEG-MSG","n","62"]"#), [next]);
    let again = session.hear(r#"["NEG-OPEN","n",{"kinds":[1]},"61"]"#);
    assert!(matches!(again[..], [Action::CloseSync(_), Action::OpenSync { .. }]));
    assert_eq!(session.hear(r#"["NEG-CLOSE","n"]"#), [Action::CloseSync("n".to_owned())]);
    assert_eq!(session.hear(r#"["NEG-CLOSE","n"]"#), []);
    assert!(!session.has_sync("n"));
}

/// Each message of a reconciliation makes the relay compare all its events: they are counted like all others.
#[test]
fn the_messages_of_a_reconciliation_are_counted() {
    let mut session = session(|options| {
        options.frames_per_minute = 4;
        options.strikes_per_minute = 3;
    });
    session.hear(r#"["NEG-OPEN","n",{"kinds":[1]},"61"]"#);
    let next = r#"["NEG-MSG","n","62"]"#;
    let is_heard = |actions: &[Action]| matches!(actions, [Action::Sync { .. }]);
    assert!((0..3).all(|_| is_heard(&session.hear(next))));
    let too_many = || notice("rate-limited: too many messages");
    assert!((0..3).all(|_| session.hear(next) == [too_many()]));
    assert_eq!(session.hear(next), [too_many(), Action::Disconnect("strikes")]);
    // A quarter of a minute gives one back.
    assert!(is_heard(&session.take(next, |_| true, NOW_MS + 15_000)));
}
