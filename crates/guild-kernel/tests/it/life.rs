//! Turns as they should go.

use guild_bus::subject::WorkerTarget;
use guild_kernel::inbox::{InboxStatus, Outcome};
use guild_kernel::roster::{self, Agent};
use guild_kernel::turn::{self, Claim, Committed, Then};
use guild_kernel::{audit, code};
use serde_json::json;

use crate::world::{
    Node, T0, TARGET, TTL_MS, agent, both, boxes_of, commit, context_box, key, new_turn, success,
    token,
};

#[test]
fn a_step_keeps_what_it_used_and_whether_the_cost_is_known() {
    both(|node| {
        let id = node.ask(1, 1, T0);
        let fence = node.claim(&[1], T0).remove(0).fence;
        let known = commit(&fence, Then::Continue);
        let mut unknown = known.usage.clone();
        (unknown.cost_micro_usd, unknown.cost_unknown) = (0, true);
        let used = [known.usage.clone(), unknown.clone()];
        let Committed::Continued { fence, .. } = node.commit_all(&[known], T0).remove(0).unwrap()
        else {
            panic!("it should go on");
        };
        let last = turn::Commit { usage: unknown, ..commit(&fence, success()) };
        node.commit_all(&[last], T0).remove(0).unwrap();
        let kept: Vec<_> = node.steps(&id).into_iter().map(|step| step.usage).collect();
        assert_eq!(kept, used);
    });
}

#[test]
fn a_turn_of_one_step() {
    both(|node| {
        let id = node.ask(1, 1, T0);
        assert_eq!(node.row(&id).status, InboxStatus::Processing, "its agent was idle");
        assert_eq!(node.head(1).status(), "dispatched");
        let claimed = node.claim(&[1, 2], T0 + 5).remove(0);
        assert_eq!(claimed.fence.agent_turn_id, id);
        assert_eq!((claimed.fence.turn_epoch, claimed.step_number), (1, 1));
        assert_eq!(claimed.until_ms, T0 + 5 + TTL_MS);
        let Committed::Finished { deliverable_card_id } =
            node.commit(&claimed.fence, success(), T0 + 9).unwrap()
        else {
            panic!("it should be over");
        };
        assert_eq!(node.deliverable(&id).unwrap().card_id, deliverable_card_id);
        assert_eq!(node.ended(&id), (Some(Outcome::Success), None));
        assert_eq!(node.told(&id), ["queued", "1/running", "task"]);
        assert_eq!(node.output(1), ["agent.thought", "task.deliverable"]);
        let steps = node.steps(&id);
        assert_eq!(steps.len(), 1);
        assert_eq!(steps[0].status.as_str(), "completed");
        assert_eq!((steps[0].usage.prompt_tokens, steps[0].ended_ms), (10, Some(T0 + 9)));
        let head = node.head(1);
        assert_eq!((head.status(), head.turn_epoch), ("idle", 1));
        let report = node.read(audit::run);
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!((report.turns, report.over, report.steps, report.events), (1, 1, 1, 3));
    });
}

#[test]
fn a_turn_of_several_steps_keeps_its_lease() {
    both(|node| {
        let id = node.ask(1, 1, T0);
        let mut fence = node.take(1, T0);
        for n in 1..=3 {
            let now_ms = T0 + n * (TTL_MS - 1);
            let then = node.commit(&fence, Then::Continue, now_ms).unwrap();
            let Committed::Continued { fence: next, step_number, until_ms } = then else {
                panic!("{then:?}");
            };
            assert_eq!((step_number, until_ms), (n + 1, now_ms + TTL_MS));
            assert_eq!(next.turn_epoch, 1, "the same lease");
            // A step is written once: the same again is refused, and so is a worker that repeats itself.
            let again = node.commit(&fence, Then::Continue, now_ms).unwrap_err();
            assert_eq!(again.code(), &code::FENCED);
            fence = next;
        }
        node.commit(&fence, success(), T0 + 40_000).unwrap();
        assert_eq!(
            node.told(&id),
            ["queued", "1/running", "1/step-1", "1/step-2", "1/step-3", "task"]
        );
        let numbers: Vec<i64> = node.steps(&id).iter().map(|step| step.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        assert_eq!(node.output(1).len(), 5);
        node.assert_well();
    });
}

#[test]
fn the_end_of_a_turn_begins_the_next_in_order() {
    both(|node| {
        node.pack(1..=3);
        let new: Vec<_> = (1..=3).map(|n| new_turn(n, 1)).collect();
        let ids: Vec<_> = node
            .enqueue_all(&new, T0)
            .into_iter()
            .map(|accepted| accepted.unwrap().agent_turn_id)
            .collect();
        assert_eq!(node.row(&ids[1]).status, InboxStatus::Queued);
        for (n, id) in (1..).zip(&ids) {
            let fence = node.take(n, T0 + i64::from(n));
            assert_eq!(&fence.agent_turn_id, id);
            assert!(node.claim(&[99], T0 + 100).is_empty(), "one turn of an agent at a time");
            node.commit(&fence, success(), T0 + i64::from(n)).unwrap();
        }
        assert_eq!(node.told(&ids[2]), ["queued", "2/dispatched", "3/running", "task"]);
        assert_eq!(node.head(1).status(), "idle");
        node.assert_well();
    });
}

#[test]
fn turns_are_given_in_the_order_of_time_over_all_targets() {
    both(|node| {
        node.pack(1..=6);
        node.write(|tx| {
            for n in [11, 12] {
                let other = Agent { worker_target: "other".to_owned(), ..agent(n) };
                roster::put_agent(tx, &other, &json!({}), T0)?;
            }
            Ok(())
        })
        .unwrap();
        let order = [(1, 3, T0 + 5), (2, 11, T0 + 3), (3, 2, T0 + 3), (4, 12, T0), (5, 1, T0 + 9)];
        for (n, agent, now_ms) in order {
            node.enqueue(&new_turn(n, agent), now_ms).unwrap();
        }
        let claim = |targets: &[&str], tokens: std::ops::Range<u32>, now_ms| {
            let claim = Claim {
                targets: targets.iter().map(|t| WorkerTarget::parse(t).unwrap()).collect(),
                holder: "w".to_owned(),
                ttl_ms: TTL_MS,
                tokens: tokens.map(token).collect(),
            };
            let claimed = node.write(move |tx| turn::claim(tx, &claim, now_ms)).unwrap();
            claimed.into_iter().map(|one| one.fence.key.agent_id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(claim(&["nobody"], 0..9, T0 + 9), Vec::<String>::new());
        assert_eq!(claim(&[TARGET, "other", TARGET], 1..4, T0 + 8), ["a12", "a11", "a2"]);
        assert_eq!(claim(&[TARGET], 4..9, T0 + 8), ["a3"], "what is not due yet is not given");
        assert_eq!(claim(&[TARGET, "other"], 4..9, T0 + 9), ["a1"]);
        node.assert_well();
    });
}

#[test]
fn the_same_wish_is_the_same_turn() {
    both(|node| {
        node.pack(1..=2);
        let other = turn::NewTurn { correlation_id: "c1".to_owned(), ..new_turn(2, 1) };
        let answers =
            node.enqueue_all(&[new_turn(1, 1), new_turn(1, 1), other.clone(), new_turn(2, 1)], T0);
        let first = answers[0].clone().unwrap();
        assert!(!first.known);
        let again = answers[1].clone().unwrap();
        assert_eq!((again.agent_turn_id.clone(), again.known), (first.agent_turn_id, true));
        assert_eq!(answers[2].clone().unwrap_err().code(), &code::CONFLICT);
        assert!(!answers[3].clone().unwrap().known, "and nobody else is taken down");
        let fence = node.take(1, T0);
        node.commit(&fence, success(), T0).unwrap();
        let before = node.dump();
        let late = node.enqueue_all(&[new_turn(1, 1), other], T0 + 1);
        assert_eq!(late[0].clone().unwrap(), again, "also when it is over");
        assert_eq!(late[1].clone().unwrap_err().code(), &code::CONFLICT);
        assert_eq!(node.dump(), before);
        node.assert_well();
    });
}

#[test]
fn whoever_has_work_is_told_after_the_commit() {
    let node = Node::heard();
    let heard = || std::mem::take(&mut *node.bells.lock().unwrap());
    heard();
    node.ask(1, 1, T0);
    assert!(heard().contains(&"cmd.agent.worker_generic.wakeup".to_owned()));
    node.ask(2, 1, T0);
    let bells = heard();
    assert_eq!(bells, ["turns"], "the agent is busy: nobody can do anything");
    let fence = node.take(1, T0);
    assert_eq!(heard(), ["turns"]);
    node.commit(&fence, success(), T0).unwrap();
    assert!(heard().contains(&"cmd.agent.worker_generic.wakeup".to_owned()), "the next turn");
}

#[test]
fn a_set_is_answered_one_by_one() {
    both(|node| {
        node.pack(1..=4);
        let new: Vec<_> = (1..=4).map(|n| new_turn(n, n)).collect();
        node.enqueue_all(&new, T0);
        let claimed = node.claim(&[1, 2, 3, 4], T0);
        let mut commits: Vec<_> = claimed.iter().map(|one| commit(&one.fence, success())).collect();
        commits[1].fence.token = token(77);
        commits[2].then = Then::Suspend(vec![]);
        let answers = node.commit_all(&commits, T0 + 1);
        let codes: Vec<_> = answers
            .iter()
            .map(|answer| answer.as_ref().map_or_else(|error| error.code().name, |_| "ok"))
            .collect();
        assert_eq!(codes, ["ok", "kernel.fenced", "kernel.malformed", "ok"]);
        assert_eq!(node.output(2), Vec::<&str>::new(), "nothing of it was written");
        let statuses: Vec<_> = (1..=4).map(|n| node.head(n).status()).collect();
        assert_eq!(statuses, ["idle", "running", "running", "idle"]);
        node.assert_well();
    });
}

#[test]
fn what_an_agent_is_cannot_be_changed() {
    both(|node| {
        let put =
            |agent: Agent| node.write(move |tx| roster::put_agent(tx, &agent, &json!({}), T0 + 1));
        assert_eq!(put(agent(1)), Ok(()));
        let other = Agent { worker_target: "elsewhere".to_owned(), ..agent(1) };
        assert_eq!(put(other).unwrap_err().code(), &code::CONFLICT);
        let bad = Agent { worker_target: "a.b".to_owned(), ..agent(99) };
        assert_eq!(put(bad).unwrap_err().code().name, "bus.bad_subject");
        assert_eq!(node.read(|rx| roster::agent(rx, &key(1))).unwrap(), agent(1));
    });
}

#[test]
fn boxes_and_cards_are_made_once() {
    both(|node| {
        node.pack([1]);
        let before = node.dump();
        node.pack([1]);
        assert_eq!(node.dump(), before);
        let [mut stranger, _] = boxes_of(1);
        stranger.owner_agent_id = Some("a1".parse().unwrap());
        let made = node.write(move |tx| {
            guild_kernel::boxes::create_all(tx, std::slice::from_ref(&stranger), T0)
        });
        assert_eq!(made.unwrap_err().code(), &code::CONFLICT);
        let [mut missing, _] = boxes_of(2);
        missing.cards = vec![crate::world::card_id(2)];
        let made = node.write(move |tx| {
            guild_kernel::boxes::create_all(tx, std::slice::from_ref(&missing), T0)
        });
        assert_eq!(made.unwrap_err().code(), &code::UNKNOWN_CARD);
        assert_eq!(node.read(|rx| guild_kernel::boxes::find(rx, &context_box(2))), None);
    });
}
