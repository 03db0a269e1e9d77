use std::collections::BTreeSet;

use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::{Draft, kind};

use super::*;
use crate::client::market_wants;
use crate::marks::Gap;

const NOW_MS: UnixMs = 1_800_000_000_000;

struct Dice;
impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

fn key(n: u64) -> SecretKey {
    format!("{n:064x}").parse().unwrap()
}

fn card(n: u64, created_s: u64) -> Event {
    let tags = vec![vec!["d".to_owned(), n.to_string()]];
    let draft =
        Draft { kind: kind::ANNOUNCEMENT, created_at: created_s, tags, content: n.to_string() };
    draft.sign(&key(7)).unwrap()
}

/// A session and everything it has sent so far.
struct Talk {
    session: Session,
    now_ms: UnixMs,
}

impl Talk {
    fn begin(change: impl FnOnce(&mut Begin)) -> Talk {
        let wants = market_wants(&BTreeSet::new(), &BTreeSet::from([5050]), 3_600);
        let mut begin = Begin {
            url: "ws://relay.example".to_owned(),
            options: Arc::new(Options { hostile_max: 2, nuisance_max: 5, ..Options::default() }),
            signer: Arc::new(key(1)),
            random: Arc::new(Dice),
            information: Information::default(),
            wants: wants.into_iter().take(1).map(|want| (want, None)).collect(),
            follows: true,
            wrongs: None,
            echoes: true,
            counts: Counts::default(),
            now_ms: NOW_MS,
        };
        change(&mut begin);
        Talk { session: Session::new(begin), now_ms: NOW_MS }
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.session.next_effect()).collect()
    }

    /// The messages that were sent.
    fn sent(&mut self) -> Vec<ClientMessage> {
        let sent = self.effects().into_iter().filter_map(|effect| match effect {
            Effect::Send(text) => Some(text),
            _ => None,
        });
        sent.map(|text| ClientMessage::parse(text.as_bytes(), &Limits::DEFAULT).unwrap()).collect()
    }

    /// The verbs of what was sent, with the name of the subscription.
    fn verbs(&mut self) -> Vec<String> {
        let verb = |message: ClientMessage| match message {
            ClientMessage::Event(event) => format!("EVENT {}", event.kind),
            ClientMessage::Req { sub, .. } => format!("REQ {sub}"),
            ClientMessage::Close(sub) => format!("CLOSE {sub}"),
            ClientMessage::Auth(_) => "AUTH".to_owned(),
            other => format!("{other:?}"),
        };
        self.sent().into_iter().map(verb).collect()
    }

    fn says(&mut self, message: &RelayMessage) {
        self.session.text(&message.to_json(), self.now_ms);
    }

    fn event(&mut self, sub: &str, event: &Event) {
        self.says(&RelayMessage::Event { sub: sub.to_owned(), event: Box::new(event.clone()) });
    }

    fn eose(&mut self, sub: &str) {
        self.says(&RelayMessage::Eose(sub.to_owned()));
    }

    fn closed(&mut self, sub: &str, message: &str) {
        self.says(&RelayMessage::Closed { sub: sub.to_owned(), message: message.to_owned() });
    }

    fn ok(&mut self, id: EventId, accepted: bool, message: &str) {
        self.says(&RelayMessage::Ok { id, accepted, message: message.to_owned() });
    }

    /// Lets time pass until there is something to do, and does it.
    fn pass(&mut self) -> i64 {
        let waited_ms = self.session.due_ms() - self.now_ms;
        self.now_ms = self.session.due_ms();
        self.session.tick(self.now_ms);
        waited_ms
    }
}

#[test]
fn a_session_asks_for_what_is_new_and_fetches_the_rest_by_pages() {
    let mut talk = Talk::begin(|begin| {
        begin.information.max_limit = Some(2);
    });
    let sent = talk.sent();
    let [
        ClientMessage::Req { sub: live, filters },
        ClientMessage::Req { sub: page, filters: first },
    ] = &sent[..]
    else {
        panic!("{sent:?}")
    };
    assert_eq!((live.as_str(), page.as_str()), ("live-1", "page-2"));
    let now_s = unix_s(NOW_MS);
    assert_eq!(filters[0].since, Some(now_s - 7_200));
    assert_eq!(
        (first[0].limit, first[0].until, first[0].since),
        (Some(2), Some(now_s + 900), None)
    );

    let (a, b) = (card(1, now_s - 5), card(2, now_s - 9));
    talk.event("page-2", &a);
    talk.event("page-2", &b);
    assert_eq!(talk.effects(), [Effect::Offer(Box::new(a)), Effect::Offer(Box::new(b))]);
    talk.eose("page-2");
    let effects = talk.effects();
    let Effect::Mark(name, mark) = &effects[1] else { panic!("{effects:?}") };
    assert!(name.starts_with("providers:"));
    assert_eq!((mark.until_s, mark.low_s, mark.complete), (now_s, now_s - 9, false));
    assert_eq!(effects[0], Effect::Send(r#"["CLOSE","page-2"]"#.to_owned()));
    let Effect::Send(next) = &effects[2] else { panic!("{effects:?}") };
    assert!(next.contains("page-3") && next.contains(&format!("\"until\":{}", now_s - 9)));

    talk.eose("page-3");
    let effects = talk.effects();
    assert!(matches!(&effects[1], Effect::Mark(_, mark) if mark.complete), "{effects:?}");
    assert!(talk.session.is_fetched());
}

#[test]
fn a_relay_that_allows_one_subscription_gets_one_at_a_time() {
    let mut talk = Talk::begin(|begin| begin.information.max_subscriptions = Some(1));
    assert_eq!(talk.verbs(), ["REQ page-1"]);
    talk.eose("page-1");
    assert_eq!(talk.verbs(), ["CLOSE page-1", "REQ live-2"]);
    talk.closed("page-1", "");
    assert_eq!(talk.session.counts().stray, 0, "it only confirms");
}

#[test]
fn a_storm_of_closed_slows_down_and_never_ends_the_wish() {
    let mut talk = Talk::begin(|_| {});
    talk.eose("page-2");
    talk.effects();
    let (mut sub, mut waits_ms) = ("live-1".to_owned(), Vec::new());
    for _ in 0..10 {
        talk.closed(&sub, "error: too busy");
        assert_eq!(talk.verbs(), Vec::<String>::new(), "not again at once");
        let closed_ms = talk.now_ms;
        while !matches!(talk.session.live_state(), SubState::Asked) {
            talk.pass();
            talk.session.alive(talk.now_ms);
        }
        waits_ms.push(talk.now_ms - closed_ms);
        let asked = talk.verbs();
        let [live, page] = &asked[..] else { panic!("{asked:?}") };
        sub = live.trim_start_matches("REQ ").to_owned();
        // What came meanwhile is fetched.
        talk.eose(page.trim_start_matches("REQ "));
        talk.effects();
    }
    assert_eq!(waits_ms[..4], [500, 1_000, 2_000, 4_000]);
    assert!(waits_ms.iter().all(|wait_ms| *wait_ms <= 5 * 60_000));
    assert_eq!(talk.session.counts().closed, 10);
}

/// All that the market wants.
fn everything(begin: &mut Begin) {
    let us = BTreeSet::from([begin.signer.public_key()]);
    let wants = market_wants(&us, &BTreeSet::from([5050]), 3_600);
    begin.wants = wants.into_iter().map(|want| (want, None)).collect();
}

#[test]
fn what_is_restricted_is_told_and_asked_for_again_in_an_hour() {
    let mut talk = Talk::begin(|_| {});
    talk.eose("page-2");
    talk.effects();
    talk.closed("live-1", "restricted: \u{1b}[2Jmembers only");
    // It may be about a part.
    assert_eq!(talk.verbs(), ["REQ live-3", "REQ live-4"]);
    for part in ["live-3", "live-4"] {
        talk.closed(part, "restricted: \u{1b}[2Jmembers only");
    }
    let SubState::Refused(why) = talk.session.live_state() else { panic!() };
    assert_eq!(why, "restricted:  [2Jmembers only");
    assert!(matches!(talk.session.echo_state().0, EchoState::Refused(_)));
    assert_eq!(talk.verbs(), Vec::<String>::new());
    let refused_ms = talk.now_ms;
    let mut asked = Vec::new();
    while asked.is_empty() {
        talk.pass();
        talk.session.alive(talk.now_ms);
        asked = talk.verbs();
    }
    assert_eq!(talk.now_ms - refused_ms, 3_600_000);
    assert_eq!(asked[..2], ["REQ live-5", "REQ live-6"]);
}

#[test]
fn what_is_refused_of_one_want_holds_up_no_other() {
    let mut talk = Talk::begin(everything);
    assert_eq!(talk.verbs(), ["REQ live-1", "REQ page-2"]);
    talk.eose("page-2");
    // The inbox: refused for good, then for a moment.
    assert_eq!(talk.verbs(), ["CLOSE page-2", "REQ page-3"]);
    talk.closed("page-3", "blocked: name kinds");
    assert_eq!(talk.verbs(), ["REQ page-4"]);
    talk.closed("page-4", "error: busy");
    assert_eq!(talk.verbs(), ["REQ page-5"]);
    talk.eose("page-5");
    assert_eq!(talk.verbs(), ["CLOSE page-5", "REQ page-6"]);
    talk.eose("page-6");
    assert_eq!(talk.verbs(), ["CLOSE page-6", "REQ page-7"]);
    talk.eose("page-7");
    assert_eq!(talk.verbs(), ["CLOSE page-7", "REQ page-8"]);
    talk.eose("page-8");
    assert_eq!(talk.verbs(), ["CLOSE page-8"]);
    assert!(!talk.session.is_fetched());
    talk.eose("live-1");
    talk.effects();
    let (began_ms, mut asked) = (talk.now_ms, Vec::new());
    while asked.len() < 2 {
        talk.pass();
        talk.session.alive(talk.now_ms);
        for verb in talk.verbs().into_iter().filter(|verb| verb.starts_with("REQ")) {
            talk.eose(verb.trim_start_matches("REQ "));
            asked.push((talk.now_ms - began_ms, verb));
        }
    }
    assert_eq!(asked, [(500, "REQ page-9".to_owned()), (3_600_000, "REQ page-10".to_owned())]);
    assert!(talk.session.is_fetched());
}

#[test]
fn what_is_fetched_up_to_its_limit_is_not_fetched_whole_and_goes_on_after_an_hour() {
    let mut talk = Talk::begin(|begin| {
        begin.information.max_limit = Some(2);
        begin.options = Arc::new(Options { fetch_max_events: 2, ..Options::default() });
        begin.echoes = false;
    });
    talk.eose("live-1");
    let now_s = unix_s(NOW_MS);
    talk.event("page-2", &card(1, now_s - 5));
    talk.event("page-2", &card(2, now_s - 9));
    talk.effects();
    talk.eose("page-2");
    let effects = talk.effects();
    let marked = |mark: &Mark| (mark.low_s, mark.complete) == (now_s - 9, false);
    assert!(matches!(&effects[1], Effect::Mark(_, mark) if marked(mark)), "{effects:?}");
    assert_eq!(effects.len(), 2, "no other page");
    assert!(talk.session.is_settled() && !talk.session.is_fetched());
    let began_ms = talk.now_ms;
    let mut asked = Vec::new();
    while asked.is_empty() {
        talk.pass();
        talk.session.alive(talk.now_ms);
        asked = talk.sent();
        asked.retain(|sent| matches!(sent, ClientMessage::Req { .. }));
    }
    assert_eq!(talk.now_ms - began_ms, 3_600_000);
    let ClientMessage::Req { filters, .. } = &asked[0] else { panic!("{asked:?}") };
    assert_eq!(filters[0].until, Some(now_s - 9));
}

#[test]
fn lists_of_relays_are_asked_for_last_and_leave_the_room_of_announcements_alone() {
    let mut talk = Talk::begin(everything);
    talk.effects();
    let mut filters = Vec::new();
    for page in 2..=8 {
        talk.eose(&format!("page-{page}"));
        filters.extend(talk.sent().into_iter().filter_map(|sent| match sent {
            ClientMessage::Req { filters, .. } => filters[0].kinds.clone(),
            _ => None,
        }));
    }
    let lists: Vec<bool> = filters.iter().map(|kinds| kinds.contains(&kind::RELAY_LIST)).collect();
    assert_eq!(lists, [false, false, false, false, false, true]);
    let lists = talk.session.following.last().unwrap();
    assert_eq!(lists.want.filter.kinds, Some([kind::RELAY_LIST].into()), "nothing beside them");
    assert!(lists.want.max_events.is_some_and(|most| most < talk.session.options.fetch_max_events));
}

#[test]
fn a_relay_that_refuses_a_part_of_what_is_new_is_asked_for_the_others() {
    let mut talk = Talk::begin(everything);
    talk.effects();
    talk.closed("live-1", "blocked: too many tags");
    let sent = talk.sent();
    let asked: Vec<(&str, usize)> = sent
        .iter()
        .map(|message| match message {
            ClientMessage::Req { sub, filters } => (sub.as_str(), filters.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    let parts: Vec<String> = (3..=10).map(|n| format!("live-{n}")).collect();
    assert_eq!(asked, parts.iter().map(|part| (part.as_str(), 1)).collect::<Vec<_>>());
    talk.closed("live-4", "blocked: too many tags");
    for part in ["live-3", "live-5", "live-6", "live-7", "live-8", "live-9"] {
        talk.eose(part);
    }
    assert!(matches!(talk.session.live_state(), SubState::Refused(_)), "one is, and that is told");
    assert_eq!(talk.verbs(), Vec::<String>::new());
    talk.eose("live-10");
    assert_eq!(talk.verbs().len(), 1, "our echo");

    // What has no room for parts stays whole.
    let mut talk = Talk::begin(|begin| {
        everything(begin);
        begin.information.max_subscriptions = Some(5);
    });
    talk.effects();
    talk.closed("live-1", "blocked: too many tags");
    assert_eq!(talk.verbs(), Vec::<String>::new());
}

#[test]
fn what_came_between_a_closed_and_the_next_question_is_fetched_before_the_watermark_moves() {
    let mut talk = Talk::begin(|begin| begin.information.max_limit = Some(2));
    talk.eose("page-2");
    talk.eose("live-1");
    let sent = talk.sent();
    let Some(ClientMessage::Event(echo)) = sent.last() else { panic!("{sent:?}") };
    let echo = echo.clone();
    talk.event("live-1", &echo);
    talk.effects();
    talk.now_ms += 60_000;
    let closed_s = unix_s(talk.now_ms);
    talk.closed("live-1", "error: too busy");
    talk.now_ms += 1_000;
    talk.session.tick(talk.now_ms);
    let sent = talk.sent();
    let [ClientMessage::Req { sub: live, .. }, ClientMessage::Req { sub: page, filters }] =
        &sent[..]
    else {
        panic!("{sent:?}")
    };
    assert_eq!((live.as_str(), page.as_str()), ("live-3", "page-4"), "first what is new");
    let since = unix_s(NOW_MS) - 7_200;
    assert_eq!((filters[0].since, filters[0].until), (Some(since), Some(closed_s + 1 + 900)));

    // It stands again, but nobody knows what came meanwhile.
    talk.eose("live-3");
    let sent = talk.sent();
    let [ClientMessage::Event(echo)] = &sent[..] else { panic!("{sent:?}") };
    talk.event("live-3", &echo.clone());
    assert_eq!(talk.effects(), []);
    talk.event("page-4", &card(1, closed_s));
    talk.eose("page-4");
    talk.eose("page-5");
    let marks: Vec<(u64, Option<Gap>)> = talk
        .effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Mark(_, mark) => Some((mark.until_s, mark.gap)),
            _ => None,
        })
        .collect();
    let gap = Gap { since_s: since, until_s: closed_s };
    assert_eq!(marks, [(closed_s + 1, Some(gap)), (closed_s + 1, None)]);
}

#[test]
fn a_relay_with_room_for_one_is_not_vouched_for_after_a_closed() {
    let mut talk = Talk::begin(|begin| begin.information.max_subscriptions = Some(1));
    talk.eose("page-1");
    talk.eose("live-2");
    talk.effects();
    talk.closed("live-2", "error: too busy");
    talk.now_ms += 1_000;
    talk.session.tick(talk.now_ms);
    assert_eq!(talk.verbs(), ["REQ live-3"], "and no page beside it");
    talk.eose("live-3");
    let sent = talk.sent();
    let [ClientMessage::Event(echo)] = &sent[..] else { panic!("{sent:?}") };
    talk.event("live-3", &echo.clone());
    assert_eq!(talk.effects(), [], "the next connection fetches it");
    assert!(talk.session.due_ms() > talk.now_ms + 1_000, "and nothing is tried in vain");
}

#[test]
fn a_key_is_proven_only_when_something_needs_it() {
    let mut talk = Talk::begin(|_| {});
    talk.effects();
    talk.says(&RelayMessage::Auth("prove it".to_owned()));
    assert_eq!(talk.verbs(), Vec::<String>::new());
    talk.closed("live-1", "auth-required: who are you?");
    let sent = talk.sent();
    let [ClientMessage::Auth(proof)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(
        (proof.tag("challenge"), proof.tag("relay")),
        (Some("prove it"), Some("ws://relay.example"))
    );
    assert_eq!((proof.kind, proof.verify()), (kind::AUTH, Ok(())));
    talk.ok(proof.id, true, "");
    assert_eq!(talk.verbs(), ["REQ live-3"]);
    assert_eq!(talk.session.auth_state(), &AuthState::Proven);
}

#[test]
fn a_relay_that_lets_nobody_in_is_told_about_and_not_asked_again() {
    let mut talk = Talk::begin(|begin| begin.information.auth_required = true);
    talk.effects();
    let event = card(1, 1);
    talk.session.publish(&event, NOW_MS);
    talk.ok(event.id, false, "auth-required: who?");
    talk.closed("live-1", "auth-required: who?");
    assert_eq!(talk.verbs(), ["EVENT 31990"]);
    talk.says(&RelayMessage::Auth("c".to_owned()));
    let sent = talk.sent();
    let [ClientMessage::Auth(proof)] = &sent[..] else { panic!("{sent:?}") };
    talk.ok(proof.id, false, "restricted: not you");
    let answer = Answer::Refused { message: "restricted: not you".to_owned(), is_final: false };
    assert_eq!(talk.effects(), [Effect::Answer(event.id, answer)]);
    assert!(matches!(talk.session.live_state(), SubState::Refused(_)));
    for n in 0..100 {
        talk.says(&RelayMessage::Auth(format!("again {n}")));
    }
    assert!(talk.verbs().len() <= 8, "a game of challenges ends");
}

#[test]
fn an_answer_about_a_published_event_means_what_it_says() {
    let mut talk = Talk::begin(|_| {});
    let event = card(1, 1);
    let refused =
        |message: &str, is_final| Answer::Refused { message: message.to_owned(), is_final };
    for (accepted, message, expected) in [
        (true, "", Answer::Accepted(String::new())),
        (false, "duplicate: have it", Answer::Accepted("duplicate: have it".to_owned())),
        (false, "blocked: no", refused("blocked: no", true)),
        (false, "pow: 20 bits", refused("pow: 20 bits", true)),
        (false, "rate-limited: slow", refused("rate-limited: slow", false)),
        (false, "what?", refused("what?", false)),
    ] {
        talk.effects();
        talk.session.publish(&event, NOW_MS);
        talk.ok(event.id, accepted, message);
        let effects = talk.effects();
        assert_eq!(effects.last(), Some(&Effect::Answer(event.id, expected)), "{message}");
        assert_eq!(effects.len(), 2);
    }
    talk.session.publish(&event, NOW_MS);
    talk.effects();
    talk.ok(card(9, 9).id, true, "somebody else's");
    assert_eq!((talk.effects(), talk.session.counts().stray), (vec![], 1));
}

#[test]
fn a_refusal_without_a_name_is_for_the_only_one_that_waits() {
    let mut talk = Talk::begin(|_| {});
    let (one, other) = (card(1, 1), card(2, 2));
    let nameless = RelayMessage::Refused("invalid: too long".to_owned());
    assert_eq!(nameless.to_json(), r#"["OK","",false,"invalid: too long"]"#);
    talk.session.publish(&one, NOW_MS);
    talk.effects();
    talk.says(&nameless);
    let refused = Answer::Refused { message: "invalid: too long".to_owned(), is_final: true };
    assert_eq!(talk.effects(), [Effect::Answer(one.id, refused)]);
    // Of two nobody knows which one is meant; and nobody is meant where none waits.
    talk.session.publish(&one, NOW_MS);
    talk.session.publish(&other, NOW_MS);
    talk.effects();
    talk.says(&nameless);
    assert_eq!((talk.effects(), talk.session.counts().stray), (vec![], 1));
    talk.says(&RelayMessage::Ok { id: one.id, accepted: true, message: String::new() });
    talk.says(&RelayMessage::Ok { id: other.id, accepted: true, message: String::new() });
    talk.says(&nameless);
    assert_eq!(talk.session.counts().stray, 2);
}

#[test]
fn silence_is_an_answer_in_the_end_and_a_large_event_is_not_sent() {
    let mut talk = Talk::begin(|begin| begin.information.max_message_bytes = Some(600));
    talk.effects();
    let event = card(1, 1);
    talk.session.publish(&event, NOW_MS);
    assert_eq!(talk.pass(), 5_000);
    assert!(talk.effects().contains(&Effect::Answer(event.id, Answer::Unanswered)));
    let draft = Draft { kind: 1, created_at: 1, tags: vec![], content: "x".repeat(600) };
    talk.session.publish(&draft.sign(&key(7)).unwrap(), talk.now_ms);
    let effects = talk.effects();
    assert!(
        matches!(&effects[..], [Effect::Answer(_, Answer::Refused { is_final: true, .. })]),
        "{effects:?}"
    );
}

#[test]
fn an_echo_moves_the_watermark_and_a_deaf_relay_is_left() {
    let mut talk = Talk::begin(|_| {});
    talk.eose("page-2");
    talk.effects();
    talk.now_ms += 5_000;
    talk.eose("live-1");
    let sent = talk.sent();
    let [ClientMessage::Event(echo)] = &sent[..] else { panic!("{sent:?}") };
    let forged = Event { content: "other".to_owned(), ..(**echo).clone() };
    talk.now_ms += 20;
    talk.event("live-1", &forged);
    assert_eq!(talk.effects(), []);
    talk.event("live-1", echo);
    let effects = talk.effects();
    let [Effect::Mark(_, mark)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(mark.until_s, unix_s(NOW_MS) + 5);
    assert_eq!(talk.session.echo_state(), (&EchoState::Heard, Some(20)));
    talk.ok(echo.id, true, "");
    assert_eq!(talk.session.counts().stray, 0, "its answer may come later");

    // The next ones do not come back, though the relay answers everything else.
    let mut ended = false;
    for _ in 0..20 {
        talk.pass();
        talk.session.alive(talk.now_ms);
        ended |= talk.effects().contains(&Effect::End(End::Deaf));
    }
    assert!(ended);
}

#[test]
fn a_relay_that_does_not_take_echoes_is_not_deaf() {
    let mut talk = Talk::begin(|_| {});
    talk.effects();
    talk.eose("live-1");
    let sent = talk.sent();
    let [ClientMessage::Event(echo)] = &sent[..] else { panic!("{sent:?}") };
    talk.ok(echo.id, false, "blocked: no such kind");
    for _ in 0..20 {
        talk.pass();
        talk.session.alive(talk.now_ms);
        assert!(!talk.effects().contains(&Effect::End(End::Deaf)));
    }
    assert!(matches!(talk.session.echo_state().0, EchoState::Refused(_)));
}

#[test]
fn silence_ends_the_connection_after_a_ping() {
    let mut talk = Talk::begin(|begin| begin.wants.clear());
    assert_eq!(talk.effects(), []);
    assert_eq!(talk.pass(), 30_000);
    assert_eq!(talk.effects(), [Effect::Ping]);
    talk.session.alive(talk.now_ms);
    talk.pass();
    assert_eq!(talk.effects(), [Effect::Ping]);
    talk.pass();
    assert_eq!(talk.effects(), [Effect::End(End::Silent)]);
}

#[test]
fn a_ping_of_the_relay_is_no_answer_to_ours() {
    let mut talk = Talk::begin(|begin| begin.wants.clear());
    talk.effects();
    talk.pass();
    assert_eq!(talk.effects(), [Effect::Ping]);
    talk.session.pinged(talk.now_ms);
    // It is there, and still owes us the answer: until that comes, nothing that was sent is known to be read.
    assert!(talk.session.pinged_ms.is_some());
    talk.session.alive(talk.now_ms);
    assert_eq!(talk.session.pinged_ms, None);
}

#[test]
fn harm_and_nuisance_end_in_a_ban() {
    let banned = |talk: &mut Talk| {
        talk.effects().iter().any(|effect| matches!(effect, Effect::End(End::Banned(_))))
    };
    let mut talk = Talk::begin(|_| {});
    for _ in 0..2 {
        talk.session.judged(Judged::Hostile, NOW_MS);
    }
    assert!(!banned(&mut talk));
    talk.session.judged(Judged::Hostile, NOW_MS);
    assert!(banned(&mut talk));

    type Nuisance = fn(&mut Talk);
    let nuisances: [(&str, Nuisance); 7] = [
        ("notices", |talk| talk.says(&RelayMessage::Notice("hello".to_owned()))),
        ("rubbish", |talk| talk.session.text("{", NOW_MS)),
        ("binary", |talk| talk.session.binary(7, NOW_MS)),
        ("ends of nothing", |talk| talk.eose("other")),
        ("closings of nothing", |talk| talk.closed("other", "error: busy")),
        ("other kinds", |talk| {
            let draft = Draft { kind: 1, created_at: 1, tags: vec![], content: String::new() };
            talk.event("live-1", &draft.sign(&key(3)).unwrap());
        }),
        ("other subscriptions", |talk| talk.event("other", &card(1, 1))),
    ];
    for (name, nuisance) in nuisances {
        let mut talk = Talk::begin(|_| {});
        (0..5).for_each(|_| nuisance(&mut talk));
        assert!(!banned(&mut talk), "{name}");
        nuisance(&mut talk);
        assert!(banned(&mut talk), "{name}");
        assert_eq!(talk.session.counts().bans, 1);
    }
}

#[test]
fn a_page_without_an_end_is_asked_for_again_later() {
    let mut talk = Talk::begin(|begin| begin.information.max_subscriptions = Some(1));
    talk.effects();
    assert_eq!(talk.pass(), 30_000);
    assert_eq!(talk.verbs(), ["CLOSE page-1"]);
    talk.session.alive(talk.now_ms);
    assert_eq!(talk.pass(), 500);
    assert_eq!(talk.verbs(), ["REQ page-2"]);
}

mod any_text {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_stops_a_session(texts in prop::collection::vec(".{0,40}", 0..20)) {
            let mut talk = Talk::begin(|_| {});
            for text in texts {
                talk.session.text(&text, talk.now_ms);
                talk.pass();
            }
            prop_assert!(talk.session.due_ms() >= talk.now_ms);
        }
    }
}
