//! A repeated write has one effect and one answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_hosting::access::idempotency::{
    self, Answer, Begun, KEEP_MS, MAX_FLIGHT_MS, Reply, Request, Ticket,
};
use guild_hosting::access::{self, Token, TokenKind, code};
use guild_hosting::{Error, Result, UserId};
use guild_store::{Error as StoreError, Hooks, Point, Tx, args};

use super::{Dice, NOW, Node, both, why};

fn user(n: u8) -> UserId {
    UserId::of_wallet([n; 20])
}

fn request(key: &str, body: &str) -> Request {
    Request::new(&user(1), "POST", "/v1/jobs", key, "", body.as_bytes()).unwrap()
}

/// The effect: a row in a table that has nothing to do with answers.
fn effect(tx: &mut Tx<'_>, status: u16) -> Result<Answer> {
    tx.exec(
        "INSERT INTO access_seen (event_id, expires_ms)
         SELECT 'effect ' || count(*), 0 FROM access_seen",
        args![],
    )?;
    let effects: Option<(i64,)> = tx.first("SELECT count(*) FROM access_seen", args![])?;
    Answer::new(status, format!("{{\"effect\":{}}}", effects.unwrap_or((0,)).0))
}

fn run(node: &Node, request: &Request) -> Result<Reply> {
    let request = request.clone();
    node.write(move |tx| idempotency::run(tx, &request, NOW, |tx| effect(tx, 201)))
}

fn effects(node: &Node) -> i64 {
    node.rows("access_seen")
}

#[test]
fn the_same_request_again_gets_the_same_answer() {
    both(|node| {
        let first = run(node, &request("a", "{}")).unwrap();
        assert_eq!((first.answer.status(), first.answer.body()), (201, "{\"effect\":1}"));
        assert!(!first.repeated);
        for _ in 0..3 {
            let again = run(node, &request("a", "{}")).unwrap();
            assert_eq!((again.answer, again.repeated), (first.answer.clone(), true));
        }
        assert_eq!(effects(node), 1);
        assert!(!run(node, &request("b", "{}")).unwrap().repeated);
        assert_eq!(effects(node), 2);
    });
}

#[test]
fn another_body_or_query_under_the_key_is_refused() {
    both(|node| {
        run(node, &request("a", "{\"n\":1}")).unwrap();
        let error = run(node, &request("a", "{\"n\":2}")).unwrap_err();
        assert_eq!(
            (error.code(), access::http_status(error.code())),
            (&code::IDEMPOTENCY_MISMATCH, 422)
        );
        let other = Request::new(&user(1), "POST", "/v1/jobs", "a", "x=1", b"{\"n\":1}").unwrap();
        assert_eq!(why(run(node, &other)), "access.idempotency_mismatch");
        // The parts cannot be moved from one to the other.
        let moved = Request::new(&user(1), "POST", "/v1/jobs", "a", "{\"n\":1}", b"").unwrap();
        assert_eq!(why(run(node, &moved)), "access.idempotency_mismatch");
        assert_eq!(effects(node), 1);
    });
}

#[test]
fn a_key_belongs_to_a_user_a_method_and_a_path() {
    both(|node| {
        let new = |n, method, path| Request::new(&user(n), method, path, "k", "", b"{}").unwrap();
        for one in [
            new(1, "POST", "/v1/jobs"),
            new(2, "POST", "/v1/jobs"),
            new(1, "DELETE", "/v1/jobs"),
            new(1, "POST", "/v1/jobs/x"),
        ] {
            assert!(!run(node, &one).unwrap().repeated, "{one:?}");
            assert!(run(node, &one).unwrap().repeated);
        }
        assert_eq!(effects(node), 4);
    });
}

#[test]
fn fifty_at_once_have_one_effect() {
    both(|node| {
        let tries = (0..50)
            .map(|_| {
                let request = request("a", "{}");
                move |tx: &mut Tx<'_>| idempotency::run(tx, &request, NOW, |tx| effect(tx, 201))
            })
            .collect();
        let replies: Vec<Reply> = node.write_all(tries).into_iter().map(Result::unwrap).collect();
        assert_eq!(replies.iter().filter(|reply| !reply.repeated).count(), 1);
        assert!(replies.iter().all(|reply| reply.answer.body() == "{\"effect\":1}"));
        assert_eq!(effects(node), 1);
    });
}

#[test]
fn what_was_refused_may_be_tried_again() {
    both(|node| {
        let refused = |error: fn() -> Error| {
            node.write(move |tx| {
                idempotency::run(tx, &request("a", "{}"), NOW, |tx| {
                    effect(tx, 201)?;
                    Err(error())
                })
            })
        };
        let poor = || Error::refused(&code::SCOPE_MISSING, "no");
        assert_eq!(why(refused(poor)), "access.scope_missing");
        assert_eq!(why(refused(|| StoreError::Decode("bug".to_owned()).into())), "store.decode");
        assert_eq!((effects(node), node.rows("access_idempotency")), (0, 0));
        // A refusal of which something stays: what the effect wrote is there, the answer is not kept.
        let quoted = node.write(|tx| {
            idempotency::run(tx, &request("a", "{}"), NOW, |tx| {
                effect(tx, 201)?;
                Answer::refusal(402, "{\"quote_id\":\"quote_1\"}")
            })
        });
        let quoted: Reply = quoted.unwrap();
        assert_eq!((quoted.answer.status(), quoted.repeated), (402, false));
        assert_eq!((effects(node), node.rows("access_idempotency")), (1, 0));
        let paid = run(node, &request("a", "{}")).unwrap();
        assert_eq!((paid.answer.status(), paid.repeated), (201, false));
    });
}

#[test]
fn a_key_is_1_to_255_visible_characters() {
    let new = |key: &str| Request::new(&user(1), "POST", "/v1/jobs", key, "", b"");
    assert!(new("!").is_ok() && new(&"~".repeat(255)).is_ok());
    for bad in ["", " ", "a b", "a\n", "a\0", "é", "a\u{7f}", "\u{202e}a", &"x".repeat(256)] {
        assert_eq!(why(new(bad)), "access.idempotency_malformed", "{bad:?}");
    }
    for (method, path) in [("", "/"), ("POST", ""), ("PO ST", "/"), ("POST", "/\n"), ("POST", "/é")]
    {
        let refused = Request::new(&user(1), method, path, "k", "", b"");
        assert_eq!(why(refused), "access.idempotency_malformed");
    }
    assert!(Request::new(&user(1), "POST", &"/".repeat(1_025), "k", "", b"").is_err());
}

#[test]
fn an_answer_that_may_not_be_kept_is_refused_and_its_effect_undone() {
    both(|node| {
        let token = Token::make(TokenKind::Key, &Dice);
        let bodies = [
            format!("{{\"token\":\"{}\"}}", token.reveal()),
            "x".repeat(64 * 1024 + 1),
            "a\0b".to_owned(),
        ];
        for body in bodies {
            let unfit = node.write(move |tx| {
                idempotency::run(tx, &request("a", "{}"), NOW, |tx| {
                    effect(tx, 201)?;
                    Answer::new(201, body.clone())
                })
            });
            assert_eq!(why(unfit), "access.answer_unfit");
        }
        assert_eq!((effects(node), node.rows("access_idempotency")), (0, 0));
    });
    for status in [0, 100, 199, 302, 400, 500] {
        assert_eq!(why(Answer::new(status, "")), "access.answer_unfit");
    }
    for status in [200, 302, 399, 500] {
        assert_eq!(why(Answer::refusal(status, "")), "access.answer_unfit");
    }
}

#[test]
fn what_is_shown_once_is_not_shown_again() {
    both(|node| {
        let token = Token::make(TokenKind::Key, &Dice);
        let make = || {
            let token = token.clone();
            node.write(move |tx| {
                idempotency::run(tx, &request("a", "{}"), NOW, |_| -> Result<Answer> {
                    let shown =
                        format!("{{\"key_id\":\"key_1\",\"token\":\"{}\"}}", token.reveal());
                    Answer::shown_once(201, shown, "{\"key_id\":\"key_1\",\"token\":null}")
                })
            })
            .unwrap()
        };
        let first = make();
        assert!(first.answer.body().contains(token.reveal()));
        assert!(!format!("{first:?}").contains(token.reveal()));
        let again = make();
        assert_eq!(again.answer.body(), "{\"key_id\":\"key_1\",\"token\":null}");
        assert!(again.repeated);
    });
}

#[test]
fn answers_are_kept_for_a_day_and_swept_in_small_steps() {
    both(|node| {
        node.write(|tx| {
            for n in 0..450 {
                let request = request(&n.to_string(), "{}");
                idempotency::run(tx, &request, NOW, |_| Answer::new(200, "{}"))?;
            }
            Ok(())
        })
        .unwrap();
        let sweep = |now_ms| node.write(move |tx| access::sweep(tx, now_ms)).unwrap();
        const { assert!(KEEP_MS >= 24 * 3_600 * 1_000) }
        assert!(!sweep(NOW + KEEP_MS - 1));
        assert_eq!(node.rows("access_idempotency"), 450);
        let left: Vec<_> =
            (0..3).map(|_| (sweep(NOW + KEEP_MS), node.rows("access_idempotency"))).collect();
        assert_eq!(left, [(true, 250), (true, 50), (false, 0)]);
        assert!(!run(node, &request("7", "{}")).unwrap().repeated);
    });
}

/// Whatever statement or commit the process dies at, the request that is repeated has had one effect in the end, and
/// one answer.
#[test]
fn a_crash_anywhere_leaves_both_or_neither() {
    let (mut nothing_done, mut answer_lost) = (0, 0);
    for dies_at in 0..24 {
        let reached = Arc::new(AtomicU64::new(u64::MAX));
        let counted = Arc::clone(&reached);
        let hooks = Hooks::default().with_faults(move |point, _| {
            // Nothing is counted before the test begins.
            let armed = counted.load(Ordering::SeqCst) != u64::MAX && point != Point::AfterBell;
            let here = armed && counted.fetch_add(1, Ordering::SeqCst) == dies_at;
            here.then(|| StoreError::Database("the disk is gone".to_owned()))
        });
        let node = Node::sqlite(hooks);
        reached.store(0, Ordering::SeqCst);
        let first = run(&node, &request("a", "{}"));
        reached.store(u64::MAX, Ordering::SeqCst);
        let again = run(&node, &request("a", "{}")).unwrap();
        assert_eq!(again.answer.body(), "{\"effect\":1}", "died at {dies_at}");
        match first {
            Ok(first) => assert_eq!((first.answer, again.repeated), (again.answer, true)),
            Err(_) if again.repeated => answer_lost += 1,
            Err(_) => nothing_done += 1,
        }
        assert_eq!((effects(&node), node.rows("access_idempotency")), (1, 1));
    }
    assert!(nothing_done > 5 && answer_lost > 0, "{nothing_done} and {answer_lost}");
}

fn begin(node: &Node, key: &str, now_ms: i64) -> Result<Begun> {
    let request = request(key, "{}");
    node.write(move |tx| idempotency::begin(tx, &request, 30_000, now_ms))
}

fn go(begun: Result<Begun>) -> Ticket {
    match begun.unwrap() {
        Begun::Go(ticket) => ticket,
        Begun::Known(answer) => panic!("it was answered with {answer:?}"),
    }
}

fn finish(node: &Node, ticket: &Ticket, answer: Answer) -> Result<()> {
    let ticket = ticket.clone();
    node.write(move |tx| idempotency::finish(tx, &ticket, &answer))
}

#[test]
fn an_effect_in_flight_is_not_had_again() {
    both(|node| {
        let ticket = go(begin(node, "a", NOW));
        assert!(!ticket.is_again());
        assert_eq!(ticket.effect_id().len(), 32);
        let error = begin(node, "a", NOW + 29_999).unwrap_err();
        assert_eq!(
            (error.code(), access::http_status(error.code())),
            (&code::IDEMPOTENCY_IN_FLIGHT, 409)
        );
        assert_eq!(why(run(node, &request("a", "{}"))), "access.idempotency_in_flight");
        let other_body = request("a", "{\"other\":1}");
        let begun = node.write(move |tx| idempotency::begin(tx, &other_body, 1, NOW));
        assert_eq!(why(begun), "access.idempotency_mismatch");
        finish(node, &ticket, Answer::new(200, "{\"exit_code\":0}").unwrap()).unwrap();
        let known = begin(node, "a", NOW + 1).unwrap();
        assert_eq!(known, Begun::Known(Answer::new(200, "{\"exit_code\":0}").unwrap()));
        assert_eq!(
            why(finish(node, &ticket, Answer::new(200, "{}").unwrap())),
            "access.idempotency_lost"
        );
    });
}

#[test]
fn whoever_takes_over_has_the_same_effect_and_the_last_word() {
    both(|node| {
        let dead = go(begin(node, "a", NOW));
        let next = go(begin(node, "a", NOW + 30_000));
        assert!(next.is_again());
        assert_eq!(next.effect_id(), dead.effect_id());
        assert_ne!(next.effect_id(), go(begin(node, "b", NOW)).effect_id());
        // The first one was only slow.
        let late = finish(node, &dead, Answer::new(200, "{\"late\":1}").unwrap());
        assert_eq!(why(late), "access.idempotency_lost");
        finish(node, &next, Answer::new(200, "{}").unwrap()).unwrap();
        assert_eq!(begin(node, "a", NOW).unwrap(), Begun::Known(Answer::new(200, "{}").unwrap()));
        // The clock was wrong when it began: nobody waits for that hour.
        go(begin(node, "c", NOW + 2 * MAX_FLIGHT_MS));
        assert!(go(begin(node, "c", NOW)).is_again());
    });
}

#[test]
fn an_effect_that_was_refused_gives_its_key_back() {
    both(|node| {
        let ticket = go(begin(node, "a", NOW));
        finish(node, &ticket, Answer::refusal(409, "{}").unwrap()).unwrap();
        assert_eq!(node.rows("access_idempotency"), 0);
        let again = go(begin(node, "a", NOW + 1));
        assert!(!again.is_again());
        assert_ne!(again.effect_id(), ticket.effect_id());
        // Whoever gave up has no say in the second try.
        for answer in [Answer::refusal(409, "{}"), Answer::new(200, "{}")] {
            assert_eq!(why(finish(node, &ticket, answer.unwrap())), "access.idempotency_lost");
        }
    });
}

#[test]
fn an_effect_of_which_nobody_knows_is_gone_on_with_at_once() {
    both(|node| {
        let release = |ticket: &Ticket| {
            let ticket = ticket.clone();
            node.write(move |tx| idempotency::release(tx, &ticket)).unwrap();
        };
        let lost = go(begin(node, "a", NOW));
        release(&lost);
        let next = go(begin(node, "a", NOW));
        assert!(next.is_again());
        assert_eq!(next.effect_id(), lost.effect_id());
        // Whoever let go lets nobody else go.
        release(&lost);
        assert_eq!(why(begin(node, "a", NOW)), "access.idempotency_in_flight");
        finish(node, &next, Answer::new(200, "{}").unwrap()).unwrap();
        release(&next);
        assert_eq!(begin(node, "a", NOW).unwrap(), Begun::Known(Answer::new(200, "{}").unwrap()));
    });
}
