//! Bad input: a typed error or one row in error, and nobody else is delayed.

use guild_kernel::card::{self, CardType, NewCard};
use guild_kernel::inbox::{InboxStatus, Outcome};
use guild_kernel::roster;
use guild_kernel::turn::{self, Commit, NewTurn, Parent, Stop, Then, sweep};
use guild_kernel::{BoxId, code};
use guild_store::args;
use serde_json::json;

use crate::world::{
    Node, T0, TTL_MS, both, call, commit, context_box, instruction, key, new_turn, output_box,
    success, thought,
};

#[test]
fn a_turn_that_cannot_begin_is_refused_at_once() {
    both(|node| {
        node.pack([1]);
        let no_box: BoxId = format!("box_{:032x}", 999).parse().unwrap();
        let nobody = |n| NewTurn { correlation_id: format!("x{n}"), ..new_turn(1, 1) };
        let bad = [
            (NewTurn { key: key(77), ..nobody(1) }, &code::UNKNOWN_AGENT),
            (NewTurn { profile_name: Some("no".to_owned()), ..nobody(2) }, &code::UNKNOWN_PROFILE),
            (NewTurn { context_box_id: no_box.clone(), ..nobody(3) }, &code::UNKNOWN_BOX),
            (NewTurn { output_box_id: no_box, ..nobody(4) }, &code::UNKNOWN_BOX),
            (NewTurn { correlation_id: String::new(), ..nobody(5) }, &code::MALFORMED),
            (NewTurn { correlation_id: "a\0b".to_owned(), ..nobody(6) }, &code::MALFORMED),
            (NewTurn { correlation_id: "x".repeat(257), ..nobody(7) }, &code::MALFORMED),
            (NewTurn { metadata: json!("x".repeat(10_000_000)), ..nobody(8) }, &code::TOO_LARGE),
            (
                NewTurn {
                    parent: Some(Parent {
                        agent_id: "a2".parse().unwrap(),
                        agent_turn_id: format!("turn_{:032x}", 5).parse().unwrap(),
                        step_id: None,
                        answers: None,
                    }),
                    ..nobody(9)
                },
                &code::PARENT_CLOSED,
            ),
        ];
        let before = node.dump();
        let turns: Vec<NewTurn> = bad.iter().map(|(new, _)| new.clone()).collect();
        let answers = node.enqueue_all(&turns, T0);
        for ((new, code), answer) in bad.iter().zip(answers) {
            assert_eq!(answer.unwrap_err().code(), *code, "{}", new.correlation_id.len());
        }
        assert_eq!(node.dump(), before, "nothing of them was kept");
        let mut mixed = turns;
        mixed.insert(4, new_turn(1, 1));
        assert!(node.enqueue_all(&mixed, T0)[4].is_ok(), "and they take nobody down");
        node.assert_well();
    });
}

#[test]
fn turns_are_nested_only_so_deep() {
    let node = Node::sqlite(Default::default());
    node.write(|tx| {
        for n in 100..121 {
            roster::put_agent(tx, &crate::world::agent(n), &json!({}), T0)?;
        }
        Ok(())
    })
    .unwrap();
    node.pack(100..121);
    let mut parent = None;
    for n in 100..121 {
        let new = NewTurn { parent: parent.clone(), ..new_turn(n, n) };
        let asked = node.enqueue(&new, T0);
        if n == 120 {
            assert_eq!(asked.unwrap_err().code(), &code::TOO_DEEP);
            break;
        }
        parent = Some(Parent {
            agent_id: key(n).agent_id,
            agent_turn_id: asked.unwrap(),
            step_id: None,
            answers: None,
        });
    }
    node.assert_well();
}

/// What became unfit while it waited is closed when it would begin, and the next one begins.
#[test]
fn unfit_rows_are_closed_and_hold_up_nobody() {
    both(|node| {
        let first = node.ask(1, 1, T0);
        node.pack(2..=9);
        let new: Vec<NewTurn> = (2..=9).map(|n| new_turn(n, 1)).collect();
        let ids: Vec<_> = node
            .enqueue_all(&new, T0)
            .into_iter()
            .map(|accepted| accepted.unwrap().agent_turn_id)
            .collect();
        let plants = [
            "UPDATE agent_inbox SET payload = 'no json' WHERE correlation_id = 'c2'",
            "UPDATE agent_inbox SET context_headers = '[]' WHERE correlation_id = 'c3'",
            "UPDATE agent_inbox SET context_headers = '{\"recursion_depth\":20}' WHERE correlation_id = 'c4'",
            "UPDATE agent_inbox SET payload = replace(payload, '\"basic\"', '\"gone\"') WHERE correlation_id = 'c5'",
            "UPDATE agent_inbox SET payload = replace(payload, 'box_0', 'box_f') WHERE correlation_id = 'c6'",
            "UPDATE agent_inbox SET payload = replace(payload, '{', '{\"agent_id\":\"a9\",') WHERE correlation_id = 'c7'",
        ];
        for plant in plants {
            assert_eq!(node.plant(plant), 1, "{plant}");
        }
        let fence = node.take(1, T0 + 1);
        assert_eq!(fence.agent_turn_id, first);
        node.commit(&fence, success(), T0 + 2).unwrap();
        let fence = node.take(2, T0 + 3);
        assert_eq!(fence.agent_turn_id, ids[6], "the first that can begin");
        let codes: Vec<_> = ids[..6].iter().map(|id| node.ended(id).1.unwrap()).collect();
        let wanted = [
            "kernel.malformed_row",
            "kernel.malformed_row",
            "kernel.too_deep",
            "kernel.unknown_profile",
            "kernel.unknown_box",
            "kernel.malformed_row",
        ];
        assert_eq!(codes, wanted);
        for id in &ids[..6] {
            assert_eq!(node.row(id).status, InboxStatus::Error);
            assert!(node.deliverable(id).is_some(), "also these have an end");
            assert_eq!(node.told(id), ["queued", "task"]);
        }
        node.write(|tx| roster::retire(tx, &key(1))).unwrap();
        node.commit(&fence, success(), T0 + 4).unwrap();
        assert_eq!(node.ended(&ids[7]).1.unwrap(), "kernel.unknown_agent");
        node.assert_well();
    });
}

#[test]
fn a_step_of_a_wrong_form_is_refused_whole() {
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let good = || commit(&fence, Then::Continue);
        let with_card = |change: fn(&mut turn::StepCard)| {
            let mut card = thought("x");
            change(&mut card);
            Commit { cards: vec![thought("first"), card], ..good() }
        };
        let with_call = |change: fn(&mut turn::Call)| {
            let mut call = call(0);
            change(&mut call);
            Commit { then: Then::Suspend(vec![call]), ..good() }
        };
        let mut cost = good();
        cost.usage.cost_micro_usd = -1;
        let mut unknown = good();
        unknown.usage.cost_unknown = true;
        let bad = [
            (with_card(|card| card.card_type = CardType::Deliverable), &code::MALFORMED),
            (with_card(|card| card.card_type = CardType::ToolResult), &code::MALFORMED),
            (with_card(|card| card.call = Some(1)), &code::MALFORMED),
            (with_card(|card| card.content = json!("x".repeat(2_000_000))), &code::TOO_LARGE),
            (with_call(|call| call.arguments = json!("x".repeat(10_000_000))), &code::TOO_LARGE),
            (with_call(|call| call.timeout_ms = 0), &code::MALFORMED),
            (with_call(|call| call.place = 64), &code::MALFORMED),
            (with_call(|call| call.model_call_id = Some("\u{7}".to_owned())), &code::MALFORMED),
            (Commit { then: Then::Suspend(vec![call(1), call(1)]), ..good() }, &code::MALFORMED),
            (Commit { cards: vec![thought("x"); 257], ..good() }, &code::TOO_LARGE),
            (cost, &code::MALFORMED),
            (unknown, &code::MALFORMED),
        ];
        let before = node.dump();
        for (bad, code) in bad {
            let refused = node.commit_all(&[bad], T0).remove(0).unwrap_err();
            assert_eq!(refused.code(), code, "{refused}");
        }
        let huge = Commit { metadata: json!(u64::MAX), ..good() };
        let refused = node.commit_all(&[huge], T0).remove(0).unwrap_err();
        assert_eq!(refused.code().name, "json.integer_range");
        assert_eq!(node.dump(), before);
        node.commit(&fence, success(), T0).unwrap();
        node.assert_well();
    });
}

#[test]
fn what_is_asked_of_a_whole_call_has_limits_too() {
    let node = Node::sqlite(Default::default());
    let refused = |answer: guild_kernel::Result<()>| answer.unwrap_err().code().name;
    let many = vec![new_turn(1, 1); turn::SET_MAX + 1];
    let answer = node.write(move |tx| turn::enqueue_all(tx, &many, T0).map(drop));
    assert_eq!(refused(answer), "kernel.too_large");
    for ttl_ms in [0, -1, i64::MAX] {
        let answer = node.write(move |tx| turn::commit_all(tx, &[], ttl_ms, T0).map(drop));
        assert_eq!(refused(answer), "kernel.malformed");
    }
    let answer = node.write(|tx| turn::commit_all(tx, &[], TTL_MS, T0).map(drop));
    assert_eq!(answer, Ok(()));
    let id = node.ask(1, 1, T0);
    let stop = Stop { agent_turn_id: id, reason: "\n".to_owned() };
    let stops = vec![stop];
    let answer = node.write(move |tx| turn::stop_all(tx, &stops, T0)).unwrap().remove(0);
    assert_eq!(answer.unwrap_err().code(), &code::MALFORMED);
}

#[test]
fn cards_of_turns_are_written_by_turns_alone() {
    let node = Node::sqlite(Default::default());
    for card_type in [CardType::ToolCall, CardType::ToolResult, CardType::Deliverable] {
        let card = NewCard { card_type, ..instruction(1) };
        let put = node.write(move |tx| card::put_all(tx, std::slice::from_ref(&card), T0));
        assert_eq!(put.unwrap_err().code(), &code::MALFORMED);
    }
    node.pack([1]);
    let other = NewCard { content: json!("else"), ..instruction(1) };
    let put = node.write(move |tx| card::put_all(tx, std::slice::from_ref(&other), T0));
    assert_eq!(put.unwrap_err().code(), &code::CONFLICT);
    assert_ne!(context_box(1), output_box(1));
}

/// A turn whose row says what no name may say is closed by its place. The one before it ends as it should, and the one
/// behind it begins.
#[test]
fn rows_that_cannot_be_read_harm_no_turn_before_or_behind_them() {
    both(|node| {
        let first = node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let ids: Vec<_> = (2..=8).map(|n| node.ask(n, 1, T0)).collect();
        let plants = [
            "UPDATE agent_inbox SET channel_id = 'a.b' WHERE correlation_id = 'c2'",
            "UPDATE agent_inbox SET inbox_id = 'none' WHERE correlation_id = 'c3'",
            "UPDATE agent_inbox SET parent_agent_turn_id = '?' WHERE correlation_id = 'c4'",
            // Its name is none, so it has no deliverable.
            "UPDATE agent_inbox SET agent_turn_id = 'none' WHERE correlation_id = 'c5'",
            "UPDATE agent_inbox SET channel_id = '' WHERE correlation_id = 'c7'",
        ];
        for plant in plants {
            assert_eq!(node.plant(plant), 1, "{plant}");
        }
        node.commit(&fence, success(), T0 + 1).unwrap();
        assert_eq!(node.ended(&first), (Some(Outcome::Success), None));
        let fence = node.take(2, T0 + 2);
        assert_eq!(fence.agent_turn_id, ids[4], "the first that can be read");
        let told = |n: &'static str| {
            node.read(move |rx| {
                let sql = "SELECT status, coalesce(error_code, '') FROM agent_inbox WHERE correlation_id = $1";
                Ok(rx.first::<(String, String)>(sql, args![n])?.unwrap())
            })
        };
        let (error, code) = ("error".to_owned(), "kernel.malformed_row".to_owned());
        for n in ["c2", "c3", "c4", "c5"] {
            assert_eq!(told(n), (error.clone(), code.clone()), "{n}");
        }
        assert!(node.deliverable(&ids[0]).is_some(), "what has a name has an end");
        node.commit(&fence, success(), T0 + 3).unwrap();
        assert_eq!(told("c7"), (error, code));
        assert_eq!(node.take(3, T0 + 4).agent_turn_id, ids[6]);
        let due = node.read(|rx| sweep::due(rx, T0 + 5, 9));
        assert_eq!(due, vec![]);
    });
}

/// The same for whoever waits for it: it is answered. And for whoever asked for it: it ends as it should.
#[test]
fn a_child_that_cannot_be_read_harms_nobody() {
    both(|node| {
        node.ask(1, 1, T0);
        let waits = node.take(1, T0);
        let awaited = node.suspend(&waits, &[0], T0).remove(0);
        node.ask(2, 2, T0);
        let fence = node.take(2, T0);
        let asked_by = |fence: &turn::Fence, answers| {
            Some(Parent {
                agent_id: fence.key.agent_id.clone(),
                agent_turn_id: fence.agent_turn_id.clone(),
                step_id: Some(fence.step_id.clone()),
                answers,
            })
        };
        node.pack([3, 4, 5, 6]);
        let queued = NewTurn { parent: asked_by(&waits, Some(awaited)), ..new_turn(3, 2) };
        node.enqueue(&queued, T0).unwrap();
        let begun = NewTurn { parent: asked_by(&fence, None), ..new_turn(4, 4) };
        node.enqueue(&begun, T0).unwrap();
        node.enqueue(&new_turn(5, 4), T0).unwrap();
        let plant =
            "UPDATE agent_inbox SET channel_id = 'a.b' WHERE correlation_id IN ('c3', 'c4')";
        assert_eq!(node.plant(plant), 2);
        node.commit(&fence, success(), T0 + 1).unwrap();
        assert_eq!(node.ended(&fence.agent_turn_id), (Some(Outcome::Success), None));
        assert_eq!(node.sweep(T0 + 1), 1, "the answer");
        assert_eq!(node.head(1).status(), "dispatched");
        let at_work: Vec<_> =
            node.claim(&[7, 8], T0 + 2).into_iter().map(|one| one.fence).collect();
        let keys: Vec<_> = at_work.iter().map(|fence| fence.key.clone()).collect();
        assert_eq!(keys, [key(1), key(4)], "what waited behind the child has begun");
        for fence in &at_work {
            node.commit(fence, success(), T0 + 3).unwrap();
        }
    });
}
