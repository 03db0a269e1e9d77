//! Turns that ended in every way, exported and verified as a stranger does.

use guild_kernel::inbox::Outcome::{Canceled, Failed, Success};
use guild_kernel::turn::{LOST_LEASES_MAX, Stopped, Then};
use guild_kernel::{AgentTurnId, code, replay};
use guild_protocol::replay::{Standing, verify};
use serde_json::Value;

use crate::office::{fork, furnish};
use crate::world::{Node, T0, TTL_MS, both, report, success};

/// A turn that is over can be exported, whatever it holds, and whoever gets that can verify it.
pub(crate) fn exported(node: &Node, id: &AgentTurnId) -> String {
    let id = id.clone();
    let sealed = node.read(move |rx| replay::export(rx, &id, "test"));
    let report = verify(sealed.text.as_bytes(), None).unwrap();
    assert_eq!(report.standing, Standing::Sealed, "{}", sealed.text);
    sealed.text
}

/// What happened, each in a word; the end of the session with how it ended.
fn story(text: &str) -> Vec<String> {
    let word = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let of = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let status = of("status").to_lowercase();
        match of("event").as_str() {
            "RuntimeEvent" => of("runtime_event_type"),
            "StepComplete" => format!("step {status}"),
            "SessionEnd" => format!("end {status}"),
            other => other.to_owned(),
        }
    };
    text.lines().skip(2).map(word).collect()
}

#[test]
fn a_turn_that_called_tools_is_exported_with_calls_and_results() {
    both(|node| {
        let id = node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let calls = node.suspend(&fence, &[0, 1], T0 + 1);
        for call in calls.iter().rev() {
            node.report(&report(&fence, call), T0 + 2);
        }
        let fence = node.take(2, T0 + 3);
        node.commit(&fence, success(), T0 + 4).unwrap();
        let text = exported(node, &id);
        assert_eq!(
            story(&text),
            [
                "task.instruction",
                "agent.thought",
                "ToolCall",
                "ToolCall",
                "ToolResult",
                "ToolResult",
                "step",
                "step success",
                "agent.thought",
                "step",
                "step success",
                "task.deliverable",
                "end success",
            ]
        );
        // A byte of it that is changed is seen.
        let forged = text.replace("do 1", "do 2");
        let believed = verify(forged.as_bytes(), None);
        assert!(!believed.is_ok_and(|report| report.standing == Standing::Sealed));
    });
}

/// Stopped while it waits for a call of its own and for turns of others: it, and they, are exported as they ended.
#[test]
fn a_turn_that_was_stopped_is_exported_with_its_children() {
    both(|node| {
        furnish(node);
        let forked = fork(node, 1, 2, serde_json::json!({}));
        let parent = forked.asked.fence.agent_turn_id.clone();
        assert_eq!(node.stop(&parent, T0 + 3), Ok(Stopped::Stopped));
        node.sweep(T0 + 3);
        for id in forked.turns.iter().chain([&parent]) {
            assert_eq!(node.ended(id), (Some(Canceled), Some(code::STOPPED.name.to_owned())));
            let told = story(&exported(node, id));
            assert_eq!(told.last().unwrap(), "end cancelled", "{told:?}");
        }
        let told = story(&exported(node, &parent));
        assert!(told.contains(&"ToolCall".to_owned()) && !told.contains(&"ToolResult".to_owned()));
        node.assert_well();
    });
}

/// Steps whose workers were lost are told as skipped, and the turn as it ended: done by the next one, or given up.
#[test]
fn a_turn_whose_steps_were_lost_is_exported() {
    both(|node| {
        let mut now_ms = T0;
        let mut lose = |node: &Node| {
            now_ms += TTL_MS + 1;
            node.sweep(now_ms);
            now_ms
        };
        let id = node.ask(1, 1, T0);
        node.take(1, T0);
        let at_ms = lose(node);
        let fence = node.take(2, at_ms);
        node.commit(&fence, Then::Continue, at_ms).unwrap();
        let at_ms = lose(node);
        let fence = node.take(3, at_ms);
        node.commit(&fence, success(), at_ms).unwrap();
        assert_eq!(node.ended(&id).0, Some(Success));
        let told = story(&exported(node, &id));
        let count = |told: &[String], wanted: &str| told.iter().filter(|w| *w == wanted).count();
        assert_eq!(
            (count(&told, "step skipped"), count(&told, "step success")),
            (2, 2),
            "{told:?}"
        );
        assert_eq!(told.last().unwrap(), "end success");

        let id = node.ask(2, 2, at_ms);
        let mut at_ms = at_ms;
        for token in 10.. {
            if node.row(&id).closed_ms.is_some() {
                break;
            }
            node.take(token, at_ms);
            at_ms = lose(node);
        }
        assert_eq!(node.ended(&id), (Some(Failed), Some(code::LOST_TOO_OFTEN.name.to_owned())));
        let told = story(&exported(node, &id));
        assert_eq!(
            count(&told, "step skipped"),
            usize::try_from(LOST_LEASES_MAX).unwrap(),
            "{told:?}"
        );
        assert!(told.last().unwrap().starts_with("end fail"), "{told:?}");
        node.assert_well();
    });
}

/// What an agent writes later lies in the same box, and pushes nothing of an earlier turn out of its replay: neither
/// by its number, nor when the clock had gone back.
#[test]
fn a_turn_is_exported_whole_however_much_its_agent_wrote_since() {
    both(|node| {
        let id = node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let calls = node.suspend(&fence, &[0, 1], T0 + 1);
        for call in &calls {
            node.report(&report(&fence, call), T0 + 2);
        }
        let fence = node.take(2, T0 + 3);
        node.commit(&fence, success(), T0 + 4).unwrap();
        let before = story(&exported(node, &id));
        assert_eq!(before.len(), 13, "{before:?}");
        let later = "INSERT INTO cards (card_id, project_id, type, role, author_id, agent_turn_id, content,
              metadata, created_ms)
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10300)
            SELECT 'card_0000000000000000000000' || CAST(1000000000 + n AS TEXT), 'p', 'agent.thought',
              'assistant', 'a1', 'turn_00000000000000000000000000000009', '{}', '{}', 7 FROM numbers";
        assert_eq!(node.plant(later), 10_300);
        let entries = "INSERT INTO card_box_entries (box_id, place, card_id)
            SELECT b.box_id, b.next_place + c.n, c.card_id FROM
              (SELECT card_id, row_number() OVER (ORDER BY card_id) - 1 AS n FROM cards
               WHERE agent_turn_id = 'turn_00000000000000000000000000000009') AS c
            CROSS JOIN card_boxes AS b WHERE b.box_id = 'box_00000000000000000000000000000003'";
        assert_eq!(node.plant(entries), 10_300);
        let grown = "UPDATE card_boxes SET next_place = next_place + 10300
            WHERE box_id = 'box_00000000000000000000000000000003'";
        assert_eq!(node.plant(grown), 1);
        assert_eq!(story(&exported(node, &id)), before);
    });
}
