//! What orchestration refuses: the turn is told why, and goes on; nothing else is changed.

use guild_kernel::pmo::{self, Handled};
use guild_kernel::turn::{Committed, NewTurn, Parent, Then};
use guild_kernel::{boxes, code, roster};
use guild_store::args;
use guild_store::outbox::{Failure, Message};
use serde_json::{Value, json};

use crate::office::{
    answer, ask, ask_as, both, call, carry_out, command, deliver, handle, refused, take_all,
};
use crate::world::{Node, T0, context_box, key, new_turn, output_box};

fn delegate(more: &Value) -> Value {
    let mut wish = json!({ "target_strategy": "new", "target_ref": "coder", "instruction": "do" });
    for (name, value) in more.as_object().unwrap() {
        wish[name] = value.clone();
    }
    wish
}

fn fork(tasks: &[Value]) -> Value {
    json!({ "tasks": tasks })
}

/// How much was made by commands.
fn made(node: &Node) -> Vec<i64> {
    node.read(|rx| {
        let mut counts = Vec::new();
        for sql in [
            "SELECT count(*) FROM project_agents",
            "SELECT count(*) FROM card_boxes",
            "SELECT count(*) FROM pmo_batches",
            "SELECT count(*) FROM agent_inbox WHERE message_type = 'turn'",
            "SELECT count(*) FROM cards WHERE type = 'meta.parent_pointer'",
        ] {
            counts.push(rx.first::<(i64,)>(sql, args![])?.unwrap().0);
        }
        Ok(counts)
    })
}

#[test]
fn arguments_that_are_wrong_are_refused() {
    let no = json!({});
    let long = "x".repeat(300_000);
    let malformed = code::MALFORMED.name;
    let delegates = [
        (json!(null), malformed),
        (json!([]), malformed),
        (json!("{}"), malformed),
        (json!({}), malformed),
        (delegate(&json!({ "target_strategy": "steal" })), malformed),
        (delegate(&json!({ "target_ref": 7 })), malformed),
        (delegate(&json!({ "target_ref": "" })), malformed),
        (delegate(&json!({ "target_ref": "nil\u{0}" })), malformed),
        (delegate(&json!({ "target_strategy": "reuse", "target_ref": "a.b" })), malformed),
        (delegate(&json!({ "instruction": " \n" })), malformed),
        (delegate(&json!({ "instruction": null })), malformed),
        (delegate(&json!({ "context_box_id": "box_7" })), malformed),
        (delegate(&json!({ "agent_id": "a1" })), malformed),
        (delegate(&json!({ "instruction": long })), code::TOO_LARGE.name),
        (delegate(&json!({ "target_ref": "missing" })), code::UNKNOWN_PROFILE.name),
        (
            delegate(&json!({ "target_strategy": "reuse", "target_ref": "no" })),
            code::UNKNOWN_AGENT.name,
        ),
        (
            delegate(&json!({ "target_strategy": "clone", "target_ref": "no" })),
            code::UNKNOWN_AGENT.name,
        ),
        (delegate(&json!({ "context_box_id": output_box(77) })), code::BOX_DENIED.name),
        (
            delegate(&json!({ "context_box_id": format!("box_{:032x}", 9_999) })),
            code::BOX_DENIED.name,
        ),
    ];
    let forks = [
        (json!({}), malformed),
        (fork(&[]), malformed),
        (fork(&vec![delegate(&no); 9]), malformed),
        (json!({ "tasks": [delegate(&no)], "deadline_seconds": 0 }), malformed),
        (json!({ "tasks": [delegate(&no)], "deadline_seconds": -5 }), malformed),
        (
            json!({ "tasks": [delegate(&no)], "deadline_seconds": 9_007_199_254_740_991_i64 }),
            malformed,
        ),
        (json!({ "tasks": [delegate(&no)], "deadline_seconds": "soon" }), malformed),
        (json!({ "tasks": [delegate(&no)], "fail_fast": "yes" }), malformed),
        (json!({ "tasks": [delegate(&no)], "parallel": true }), malformed),
        (fork(&[delegate(&no), delegate(&json!({ "instruction": "" }))]), malformed),
        (
            fork(&[delegate(&no), delegate(&json!({ "target_ref": "missing" }))]),
            code::UNKNOWN_PROFILE.name,
        ),
        (
            fork(&[delegate(&no), delegate(&json!({ "context_box_id": output_box(77) }))]),
            code::BOX_DENIED.name,
        ),
        (
            fork(&vec![delegate(&json!({ "target_strategy": "reuse", "target_ref": "a6" })); 2]),
            malformed,
        ),
        (
            fork(&[delegate(&json!({ "target_strategy": "reuse", "target_ref": "a1" }))]),
            code::WAITS_FOR_ITSELF.name,
        ),
    ];
    both(|node| {
        node.pack([77]);
        let delegates = delegates.iter().map(|case| (pmo::DELEGATE_ASYNC, case));
        let forks = forks.iter().map(|case| (pmo::FORK_JOIN, case));
        for (n, (tool, (arguments, wanted))) in (1..).zip(delegates.chain(forks)) {
            assert!(n < 77, "turn 77 is a stranger's");
            let asked = ask_as(node, (n, 1, "lead"), tool, arguments.clone());
            let before = made(node);
            carry_out(node, &asked, T0 + 1);
            assert_eq!(refused(node, &asked), *wanted, "{tool} {:.300}", arguments.to_string());
            assert_eq!(made(node), before, "nothing else was done");
            node.stop(&asked.fence.agent_turn_id, T0 + 2).unwrap();
        }
    });
}

#[test]
fn nobody_is_asked_whom_the_policy_does_not_name() {
    let ask_for = |profile: &str| delegate(&json!({ "target_ref": profile }));
    let agent = json!({ "target_strategy": "reuse", "target_ref": "a6" });
    // Who asks; may coders be asked, and judges, and an agent of profile `basic`?
    let cases = [
        ("basic", false, false, false),
        ("coder", false, false, false),
        ("none", false, false, false),
        ("lead", true, true, true),
        ("named", true, false, false),
        ("tagged", false, true, false),
    ];
    both(|node| {
        let mut n = 0;
        for (profile, coder, judge, basic) in cases {
            let tries = [
                (pmo::DELEGATE_ASYNC, ask_for("coder"), coder),
                (pmo::DELEGATE_ASYNC, ask_for("judge"), judge),
                (pmo::DELEGATE_ASYNC, delegate(&agent), basic),
                (
                    pmo::LAUNCH_PRINCIPAL,
                    json!({ "profile_name": "judge", "instruction": "x" }),
                    judge,
                ),
                (pmo::ASK_EXPERT, json!({ "expert_profile": "coder", "question": "x" }), coder),
                (pmo::FORK_JOIN, fork(&[ask_for("judge")]), judge),
                (
                    pmo::PROVISION_AGENT,
                    json!({ "action": "create", "agent_id": format!("made{n}"), "profile_name": "coder" }),
                    coder,
                ),
                (pmo::PROVISION_AGENT, json!({ "action": "derive", "derived_from": "a6" }), basic),
            ];
            for (tool, arguments, allowed) in tries {
                n += 1;
                let asked = ask_as(node, (n, 1, profile), tool, arguments.clone());
                carry_out(node, &asked, T0 + 1);
                if allowed {
                    let told = answer(node, &asked);
                    let fine = told.is_none_or(|told| told["status"] == "success");
                    assert!(fine, "{profile} {tool} {arguments}");
                } else {
                    assert_eq!(
                        refused(node, &asked),
                        code::DELEGATION_DENIED.name,
                        "{profile} {tool}"
                    );
                }
                node.stop(&asked.fence.agent_turn_id, T0 + 2).unwrap();
                node.sweep(T0 + 2);
            }
        }
    });
}

#[test]
fn the_twentieth_turn_asks_nobody() {
    both(|node| {
        node.pack(1..=20);
        let mut parent: Option<guild_kernel::turn::Fence> = None;
        for n in 1..=20 {
            let key =
                guild_kernel::AgentKey { agent_id: format!("deep{n}").parse().unwrap(), ..key(1) };
            let agent = roster::Agent { key: key.clone(), ..crate::world::agent(0) };
            node.write(move |tx| roster::put_agent(tx, &agent, &json!({}), T0)).unwrap();
            let new = NewTurn {
                key,
                profile_name: Some("lead".to_owned()),
                parent: parent.as_ref().map(|fence| Parent {
                    agent_id: fence.key.agent_id.clone(),
                    agent_turn_id: fence.agent_turn_id.clone(),
                    step_id: Some(fence.step_id.clone()),
                    answers: None,
                }),
                ..new_turn(n, 0)
            };
            let id = node.enqueue(&new, T0).unwrap();
            parent = take_all(node, 100 * n, T0).remove(&id);
        }
        let fence = parent.unwrap();
        for (n, (tool, arguments)) in [
            (pmo::DELEGATE_ASYNC, delegate(&json!({}))),
            (pmo::FORK_JOIN, fork(&[delegate(&json!({}))])),
        ]
        .into_iter()
        .enumerate()
        {
            let n = u32::try_from(n).unwrap();
            let fence = take_all(node, 10_000 + 100 * n, T0 + 1)
                .remove(&fence.agent_turn_id)
                .unwrap_or_else(|| fence.clone());
            let before = made(node);
            let asked = crate::office::make(node, &fence, tool, arguments, T0 + 1);
            carry_out(node, &asked, T0 + 1);
            assert_eq!(refused(node, &asked), code::TOO_DEEP.name);
            assert_eq!(made(node), before, "nothing is left of it");
        }
    });
}

#[test]
fn nobody_waits_for_whoever_waits_for_it() {
    both(|node| {
        let reuse = |agent: &str, answers: &str| {
            fork(&[delegate(&json!({
                "target_strategy": "reuse", "target_ref": agent, "instruction": answers,
            }))])
        };
        let set = node.write(|tx| {
            // Agents a2 and a3 may ask too.
            Ok(tx.exec(
                "UPDATE project_agents SET profile_name = 'lead' WHERE agent_id IN ('a2', 'a3')",
                args![],
            )?)
        });
        assert_eq!(set.unwrap(), 2);
        let first = ask(node, 1, pmo::FORK_JOIN, reuse("a2", "down"));
        carry_out(node, &first, T0 + 1);
        let fence = node.take(1, T0 + 1);
        let second = crate::office::make(node, &fence, pmo::FORK_JOIN, reuse("a3", "down"), T0 + 2);
        carry_out(node, &second, T0 + 2);
        let fence = node.take(2, T0 + 2);
        for (n, above) in ["a1", "a2", "a3"].into_iter().enumerate() {
            let n = u32::try_from(n).unwrap();
            let fence = if n == 0 { fence.clone() } else { node.take(10 + n, T0 + 3) };
            let up = crate::office::make(node, &fence, pmo::FORK_JOIN, reuse(above, "up"), T0 + 3);
            carry_out(node, &up, T0 + 3);
            assert_eq!(refused(node, &up), code::WAITS_FOR_ITSELF.name, "{above}");
        }
        // Without waiting it is fine: it is done afterwards.
        let fence = node.take(20, T0 + 4);
        let later = delegate(&json!({ "target_strategy": "reuse", "target_ref": "a1" }));
        let asked = crate::office::make(node, &fence, pmo::DELEGATE_ASYNC, later, T0 + 4);
        carry_out(node, &asked, T0 + 4);
        assert_eq!(answer(node, &asked).unwrap()["status"], "success");
    });
}

#[test]
fn too_many_cards_are_not_handed_over() {
    both(|node| {
        let full = node.write(|tx| {
            let cards: Vec<_> = (20_000..20_999).map(crate::world::instruction).collect();
            guild_kernel::card::put_all(tx, &cards, T0)?;
            let new = boxes::NewBox {
                box_id: context_box(500),
                project_id: "p".parse()?,
                owner_agent_id: Some(key(1).agent_id),
                cards: cards.into_iter().map(|card| card.card_id).collect(),
            };
            boxes::create_all(tx, &[new], T0)
        });
        full.unwrap();
        let arguments = delegate(&json!({ "context_box_id": context_box(500) }));
        let asked = ask(node, 1, pmo::DELEGATE_ASYNC, arguments);
        carry_out(node, &asked, T0 + 1);
        assert_eq!(refused(node, &asked), code::TOO_LARGE.name);
    });
}

#[test]
fn commands_that_cannot_be_read_are_given_up_and_others_are_answered() {
    both(|node| {
        let asked = ask(node, 1, pmo::DELEGATE_ASYNC, delegate(&json!({})));
        let good = command(node, &asked.call);
        let before = node.dump();
        let elsewhere = good.body.replace(pmo::SUBJECT, "cmd.tool.shop.");
        let no_call = good.body.replace(asked.call.as_str(), "call_7");
        for body in ["", "{}", "[]", &elsewhere, &no_call] {
            let bad = Message { body: body.to_owned(), ..good.clone() };
            assert!(matches!(deliver(node, bad, T0 + 1), Err(Failure::Never(_))), "{body:.80}");
        }
        // A call that is not there, or the card of another one.
        let stranger = format!("call_{:032x}", 1);
        let body = good.body.replace(asked.call.as_str(), &stranger);
        assert_eq!(deliver(node, Message { body, ..good.clone() }, T0 + 1), Ok(()));
        assert_eq!(node.dump(), before);
        let card = serde_json::from_str::<Value>(&good.body).unwrap();
        let card = card["payload"]["tool_call_card_id"].as_str().unwrap().to_owned();
        let body = good.body.replace(&card, crate::world::instruction(1).card_id.as_str());
        deliver(node, Message { body, ..good }, T0 + 1).unwrap();
        assert_eq!(refused(node, &asked), code::UNKNOWN_CARD.name);
        // A tool that orchestration does not have, and one under another name.
        let asked = ask(node, 2, "conquer", json!({}));
        carry_out(node, &asked, T0 + 1);
        assert_eq!(refused(node, &asked), code::MALFORMED.name);
        node.pack([3]);
        let new = NewTurn { profile_name: Some("lead".to_owned()), ..new_turn(3, 3) };
        let id = node.enqueue(&new, T0).unwrap();
        let fence = take_all(node, 300, T0).remove(&id).unwrap();
        let mut renamed = call(pmo::FORK_JOIN, fork(&[delegate(&json!({}))]), 1_000);
        renamed.tool_name = "parallel".to_owned();
        let committed = node.commit(&fence, Then::Suspend(vec![renamed]), T0).unwrap();
        let Committed::Suspended { mut calls, .. } = committed else { panic!("{committed:?}") };
        let asked = crate::office::Asked { fence, call: calls.remove(0) };
        carry_out(node, &asked, T0 + 1);
        assert_eq!(refused(node, &asked), code::MALFORMED.name);
    });
}

#[test]
fn a_refusal_comes_after_nothing_that_was_carried_out() {
    both(|node| {
        let asked =
            ask(node, 1, pmo::FORK_JOIN, fork(&[delegate(&json!({ "target_ref": "late" }))]));
        let message = command(node, &asked.call);
        let tried = handle(node, &asked, T0 + 1).unwrap_err();
        assert_eq!(tried.code(), &code::UNKNOWN_PROFILE);
        // Meanwhile the profile is there, and another node has carried the command out.
        node.write(|tx| {
            let profile = roster::Profile {
                project_id: "p".parse()?,
                name: "late".to_owned(),
                worker_target: crate::world::TARGET.to_owned(),
                body: json!({}),
            };
            roster::put_profile(tx, &profile, T0)
        })
        .unwrap();
        assert_eq!(handle(node, &asked, T0 + 2), Ok(Handled::Done));
        let before = node.dump();
        let refusal = node.write(move |tx| pmo::refuse(tx, &message, &tried, T0 + 3));
        assert_eq!(refusal, Ok(Handled::Gone));
        assert_eq!(node.dump(), before);
    });
}
