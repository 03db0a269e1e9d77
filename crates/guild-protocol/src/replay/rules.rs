//! What may follow what. The same rules hold for the writer and for every reader.

use std::collections::{BTreeMap, BTreeSet};

use super::code;
use super::fields::{SessionStatus, count, moment};
use crate::hash::shorten;
use crate::json::Doc;
use crate::timestamp::Timestamp;
use crate::verification::Problem;
use crate::wire::{Reading, text_at};

/// What the lines so far have said.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) session_id: Option<String>,
    pub(super) policy_bundle_id: Option<String>,
    pub(super) last_t: Option<Timestamp>,
    pub(super) tool_calls: u64,
    pub(super) total_latency_ms: u64,
    pub(super) ended: bool,
    events: u64,
    calls: BTreeMap<String, Call>,
    /// The calls not answered yet, by step.
    unanswered: BTreeMap<String, BTreeSet<String>>,
    completed_steps: BTreeSet<String>,
}

#[derive(Debug)]
struct Call {
    step_id: String,
    answered: bool,
}

impl Rules {
    /// What the line breaks. Nothing is changed.
    pub(super) fn check(&self, doc: &Doc<'_>, reading: Reading) -> Vec<Problem> {
        let event = text_at(doc, "event").unwrap_or_default();
        let order = |message: &str| Problem::new(&code::ORDER, message).at("event");
        let mut problems = Vec::new();
        if self.ended {
            problems.push(order("nothing may follow SessionEnd"));
        }
        match (self.events, event) {
            (0, "ReplayHeader") | (1, "SessionStart") => {}
            (0, _) => problems.push(order("the first line must be ReplayHeader")),
            (1, _) => problems.push(order("the second line must be SessionStart")),
            (_, "ReplayHeader" | "SessionStart") => problems.push(order("stands twice")),
            _ => {}
        }
        let t = text_at(doc, "t").and_then(|text| moment(text, reading).ok());
        if t.zip(self.last_t).is_some_and(|(t, last_t)| t < last_t) {
            problems.push(Problem::new(&code::ORDER, "is before the line above").at("t"));
        }
        match event {
            "ToolCall" => problems.extend(self.check_call(doc)),
            "ToolResult" => problems.extend(self.check_result(doc)),
            "StepComplete" => problems.extend(self.check_step(doc)),
            "RuntimeEvent" => problems.extend(self.check_session(doc)),
            "SessionEnd" => problems.extend(self.check_end(doc, reading)),
            _ => {}
        }
        problems
    }

    fn check_call(&self, doc: &Doc<'_>) -> Vec<Problem> {
        let mut problems = Vec::new();
        if text_at(doc, "id").is_some_and(|id| self.calls.contains_key(id)) {
            problems.push(Problem::new(&code::CALLS, "names two calls").at("id"));
        }
        if text_at(doc, "step_id").is_some_and(|step_id| self.completed_steps.contains(step_id)) {
            problems.push(Problem::new(&code::CALLS, "is complete already").at("step_id"));
        }
        problems
    }

    fn check_result(&self, doc: &Doc<'_>) -> Option<Problem> {
        let message = match self.calls.get(text_at(doc, "id")?) {
            None => "answers no call above",
            Some(call) if call.answered => "is answered already",
            Some(_) => return None,
        };
        Some(Problem::new(&code::CALLS, message).at("id"))
    }

    fn check_step(&self, doc: &Doc<'_>) -> Option<Problem> {
        let step_id = text_at(doc, "step_id")?;
        let open = self.unanswered.get(step_id)?.first()?;
        let message = format!("is complete although its call {:?} is not answered", shorten(open));
        Some(Problem::new(&code::CALLS, message).at("step_id"))
    }

    fn check_session(&self, doc: &Doc<'_>) -> Option<Problem> {
        (text_at(doc, "session_id") != self.session_id.as_deref())
            .then(|| Problem::new(&code::ORDER, "is another session").at("session_id"))
    }

    fn check_end(&self, doc: &Doc<'_>, reading: Reading) -> Vec<Problem> {
        let mut problems = Vec::new();
        let status = text_at(doc, "status").and_then(|word| SessionStatus::read(word, reading));
        let open = self.unanswered.values().find_map(|ids| ids.first());
        if let (Some(SessionStatus::Success), Some(id)) = (status, open) {
            let message = format!("is Success although call {:?} is not answered", shorten(id));
            problems.push(Problem::new(&code::CALLS, message).at("status"));
        }
        for (field, true_total) in
            [("total_tool_calls", self.tool_calls), ("total_latency_ms", self.total_latency_ms)]
        {
            let stated = count(doc, field);
            if stated != true_total {
                let message = format!("is {stated}, but the lines add up to {true_total}");
                problems.push(Problem::new(&code::TOTALS, message).at(field));
            }
        }
        problems
    }

    /// Takes note of the line, whether it kept the rules or not.
    pub(super) fn apply(&mut self, doc: &Doc<'_>, reading: Reading) {
        let text = |key| text_at(doc, key).unwrap_or_default().to_owned();
        self.events = self.events.saturating_add(1);
        if let Some(t) = text_at(doc, "t").and_then(|text| moment(text, reading).ok()) {
            self.last_t = Some(t);
        }
        match text_at(doc, "event").unwrap_or_default() {
            "SessionStart" if self.session_id.is_none() => {
                self.session_id = Some(text("session_id"));
                self.policy_bundle_id = Some(text("policy_bundle_id"));
            }
            "ToolCall" => {
                self.tool_calls = self.tool_calls.saturating_add(1);
                let (id, step_id) = (text("id"), text("step_id"));
                self.unanswered.entry(step_id.clone()).or_default().insert(id.clone());
                self.calls.insert(id, Call { step_id, answered: false });
            }
            "ToolResult" => {
                self.total_latency_ms =
                    self.total_latency_ms.saturating_add(count(doc, "latency_ms"));
                self.answer(&text("id"));
            }
            "StepComplete" => {
                self.completed_steps.insert(text("step_id"));
            }
            "SessionEnd" => self.ended = true,
            _ => {}
        }
    }

    fn answer(&mut self, id: &str) {
        let Some(call) = self.calls.get_mut(id) else { return };
        call.answered = true;
        if let Some(ids) = self.unanswered.get_mut(&call.step_id) {
            ids.remove(id);
            if ids.is_empty() {
                self.unanswered.remove(&call.step_id);
            }
        }
    }
}
