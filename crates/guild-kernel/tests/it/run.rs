//! Runs of tools by workers: one holder at a time, and the first result counts.

use guild_bus::subject::WorkerTarget;
use guild_kernel::turn::{
    self, Committed, Fence, PickedUp, Report, Reported, RunFence, Then, wait,
};
use guild_kernel::{LeaseToken, Result, ToolCallId, code};
use serde_json::json;

use crate::world::{Node, T0, TARGET, TIMEOUT_MS, TTL_MS, both, call, report, token};

fn suspend_here(node: &Node, fence: &Fence) -> ToolCallId {
    let calls = vec![turn::Call { target_subject: None, ..call(0) }];
    match node.commit(fence, Then::Suspend(calls), T0).unwrap() {
        Committed::Suspended { calls, .. } => calls[0].clone(),
        other => panic!("{other:?}"),
    }
}

fn due(node: &Node, target: &str, now_ms: i64) -> Vec<ToolCallId> {
    let targets = [WorkerTarget::parse(target).unwrap()];
    node.read(move |rx| turn::runs_due(rx, &["tool0", "other"], &targets, now_ms, 10))
}

fn pick_up(node: &Node, call: &ToolCallId, token: LeaseToken, now_ms: i64) -> Option<PickedUp> {
    let asked = [RunFence { tool_call_id: call.clone(), token }];
    node.write(move |tx| turn::pick_up(tx, &asked, TTL_MS, now_ms)).unwrap().remove(0)
}

fn renew(node: &Node, call: &ToolCallId, token: LeaseToken, ttl_ms: Option<i64>) -> Result<i64> {
    let fences = [RunFence { tool_call_id: call.clone(), token }];
    node.write(move |tx| turn::renew_runs(tx, &fences, ttl_ms, T0 + 1)).unwrap().remove(0)
}

fn report_run(node: &Node, token: LeaseToken, report: &Report, now_ms: i64) -> Result<Reported> {
    let reports = [(token, report.clone())];
    node.write(move |tx| turn::report_runs(tx, &reports, now_ms)).unwrap().remove(0)
}

#[test]
fn a_run_has_one_holder() {
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let call = suspend_here(node, &fence);
        let found = call.clone();
        let run = node.read(move |rx| wait::find_all(rx, &[&found])).remove(0).run.unwrap();
        assert_eq!(
            (run.token, run.until_ms),
            (token(1), T0 + TTL_MS / 2),
            "whoever wrote it runs it"
        );
        let now_ms = T0 + TTL_MS / 2;
        assert_eq!(due(node, TARGET, now_ms - 1), []);
        assert_eq!(pick_up(node, &call, token(8), now_ms - 1), None);
        assert_eq!(due(node, "worker_other", now_ms), []);
        assert_eq!(due(node, TARGET, now_ms), std::slice::from_ref(&call));
        let picked = pick_up(node, &call, token(9), now_ms).unwrap();
        assert_eq!(picked.until_ms, now_ms + TTL_MS);
        assert_eq!(
            (picked.arguments, picked.deadline_ms),
            (json!({ "place": 0 }), T0 + TIMEOUT_MS)
        );
        assert_eq!(pick_up(node, &call, token(10), now_ms), None);
        let said = report(&fence, &call);
        let before = node.dump();
        assert_eq!(renew(node, &call, token(1), Some(TTL_MS)).unwrap_err().code(), &code::FENCED);
        assert_eq!(report_run(node, token(1), &said, now_ms).unwrap_err().code(), &code::FENCED);
        assert_eq!(node.dump(), before, "nothing under a lost lease");
        let applied = report_run(node, token(9), &said, now_ms).unwrap();
        assert_eq!(applied, Reported::Applied { resumed: true });
        assert_eq!(report_run(node, token(9), &said, now_ms).unwrap(), Reported::Known);
        assert_eq!(renew(node, &call, token(9), Some(TTL_MS)).unwrap_err().code(), &code::FENCED);
        node.assert_well();
    });
}

#[test]
fn a_run_can_be_given_back_and_ends_with_its_turn() {
    both(|node| {
        let id = node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let call = suspend_here(node, &fence);
        assert_eq!(renew(node, &call, token(1), Some(60_000)), Ok(T0 + 60_001));
        assert_eq!(due(node, TARGET, T0 + TTL_MS), []);
        assert_eq!(renew(node, &call, token(1), None), Ok(T0 + 1));
        assert_eq!(due(node, TARGET, T0 + 1), std::slice::from_ref(&call));
        assert_eq!(due(node, TARGET, T0 + TIMEOUT_MS), [], "nobody waits so long");
        node.stop(&id, T0 + 2).unwrap();
        assert_eq!(due(node, TARGET, T0 + 2), []);
        assert_eq!(pick_up(node, &call, token(9), T0 + 2), None);
        node.assert_well();
    });
}

#[test]
fn turns_are_given_back() {
    both(|node| {
        node.ask(1, 1, T0);
        let fence = node.take(1, T0);
        let stale = Fence { token: token(5), ..fence.clone() };
        let fences = [stale, fence.clone()];
        node.write(move |tx| turn::give_back_all(tx, &fences, T0 + 1)).unwrap();
        assert_eq!(node.head(1).status(), "dispatched");
        assert_eq!(node.heartbeat(&fence, T0 + 1).unwrap_err().code(), &code::FENCED);
        let next = node.take(2, T0 + 1);
        assert_eq!((next.turn_epoch, &next.agent_turn_id), (2, &fence.agent_turn_id));
        node.assert_well();
    });
}
