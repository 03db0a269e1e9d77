//! What must hold, seen from outside of all nodes: what triggers saw, what the audit of the kernel recomputes, and what
//! clients and tools remember.

use std::sync::atomic::Ordering;

use guild_kernel::code;
use guild_store::{Decode, Val, args};
use serde_json::Value;

use super::{Shared, lock};

/// One of so many changes is audited at once.
const AUDIT_ONE_IN: u64 = 12;

/// Looks at everything, again and again.
pub(super) struct Checker {
    shared: Shared,
    changes: u64,
}

impl Checker {
    pub(super) fn new(shared: &Shared) -> Checker {
        Checker { shared: shared.clone(), changes: 0 }
    }

    fn violate(&self, what: String) {
        self.shared.world.violate(what);
    }

    /// The rows of a query. A question that cannot be answered would let anything pass, so it is a violation itself.
    fn rows<T: Decode>(&self, sql: &str, args: &[Val<'_>]) -> Vec<T> {
        self.shared.database.all(sql, args).unwrap_or_else(|error| {
            self.violate(format!("[checker] {error}: {sql}"));
            Vec::new()
        })
    }

    /// What must hold at every moment.
    pub(super) fn look(&mut self) {
        if !self.shared.changed.swap(false, Ordering::SeqCst) {
            return;
        }
        self.changes += 1;
        self.seen();
        if self.changes.is_multiple_of(AUDIT_ONE_IN) {
            self.audit();
        }
    }

    fn seen(&self) {
        for (what, id) in self.rows::<(String, String)>("SELECT what, id FROM sim_seen", args![]) {
            self.violate(format!("[{what}] {id}"));
        }
    }

    fn audit(&self) {
        match self.shared.database.read(guild_kernel::audit::run) {
            Ok(report) => {
                report.problems.iter().for_each(|p| self.violate(format!("[audit] {p}")));
            }
            Err(error) => self.violate(format!("[audit] it cannot be run: {error}")),
        }
    }

    /// What must hold in the end.
    pub(super) fn at_the_end(&mut self) {
        if self.shared.world.is_violated() {
            return;
        }
        self.seen();
        self.audit();
        self.check_turns();
        self.check_ends();
        self.check_results();
        self.check_batches();
        self.check_effects();
        self.check_commands();
        self.count();
    }

    /// Every turn that was accepted is there, and ended as its client was told.
    fn check_turns(&self) {
        let diary = lock(&self.shared.diary);
        for (wish, id) in &diary.accepted {
            let sql = "SELECT correlation_id, status, coalesce(outcome, '') FROM agent_inbox
                       WHERE message_type = 'turn' AND agent_turn_id = $1";
            let rows: Vec<(String, String, String)> = self.rows(sql, args![id.as_str()]);
            let [(correlation_id, status, outcome)] = rows.as_slice() else {
                self.violate(format!("[gone] {wish} was accepted as {id}: {rows:?}"));
                continue;
            };
            if correlation_id != wish {
                self.violate(format!("[gone] {id} is {correlation_id}, not {wish}"));
            }
            let told = diary.told.get(id).map(|told| told.map_or("", |outcome| outcome.as_str()));
            if told.is_some_and(|told| told != outcome) {
                self.violate(format!("[told] {wish} ended as {outcome:?}, not as {told:?}"));
            }
            self.shared.world.note_text(status);
        }
    }

    /// One terminal event for each turn that is over, none for another.
    fn check_ends(&self) {
        let sql =
            "SELECT i.agent_turn_id, count(e.seq), i.closed_ms IS NOT NULL FROM agent_inbox AS i
                   LEFT JOIN event AS e ON e.topic = 'turns' AND e.kind = 'turn.task'
                     AND json_extract(e.body, '$.agent_turn_id') = i.agent_turn_id
                   WHERE i.message_type = 'turn' GROUP BY i.agent_turn_id, i.closed_ms";
        for (id, events, is_over) in self.rows::<(String, i64, i64)>(sql, args![]) {
            if events != is_over {
                self.violate(format!("[ends] {id} has {events} terminal events"));
            }
        }
    }

    /// A result is one that somebody gave to this very call.
    fn check_results(&self) {
        let sql = "SELECT c.tool_call_id, w.tool_name, c.content FROM cards AS c
                   JOIN turn_waiting_tools AS w ON w.tool_call_id = c.tool_call_id
                   WHERE c.type = 'tool.result' AND w.tool_name IN ('last', 'order', 'strike')";
        for (call, tool_name, content) in self.rows::<(String, String, String)>(sql, args![]) {
            let content: Value = serde_json::from_str(&content).unwrap_or_default();
            let of = content["result"]["of"].as_str();
            if content["status"] == "success" && of != Some(&call) {
                self.violate(format!("[foreign] {call} of {tool_name} has the result {content}"));
            }
        }
    }

    /// Whoever waits for a batch is told of its own.
    fn check_batches(&self) {
        let sql = "SELECT b.batch_id, b.status, coalesce(c.content, '') FROM pmo_batches AS b
                   LEFT JOIN cards AS c ON c.type = 'tool.result' AND c.tool_call_id = b.parent_tool_call_id";
        for (batch, status, content) in self.rows::<(String, String, String)>(sql, args![]) {
            self.shared.world.count(match status.as_str() {
                "success" => "batch that went well",
                "partial" => "batch that went well in part",
                "failed" => "batch that failed",
                "timeout" => "batch that was late",
                "canceled" => "batch that nobody waits for",
                _ => "batch that runs",
            });
            let content: Value = serde_json::from_str(&content).unwrap_or_default();
            let told = !["running", "canceled"].contains(&status.as_str());
            let its_own = content["result"]["batch_id"] == batch.as_str();
            if told != its_own {
                self.violate(format!("[batch] {batch} is {status}, and its call has {content}"));
            }
        }
        let kids = "SELECT coalesce(error_code, outcome, status) FROM agent_inbox
                    WHERE message_type = 'turn' AND parent_agent_turn_id IS NOT NULL";
        for (word,) in self.rows::<(String,)>(kids, args![]) {
            self.shared.world.count(match word.as_str() {
                "kernel.stopped" | "kernel.canceled" => "child that was stopped",
                "success" => "child that went well",
                _ => "child that did not go well",
            });
        }
        let refused = "SELECT card_id FROM cards
                       WHERE type = 'tool.result' AND author_id = 'sys.pmo' AND content LIKE '%\"status\":\"failed\"%'
                         AND content LIKE '%\"result\":null%'";
        self.rows::<(String,)>(refused, args![])
            .iter()
            .for_each(|_| self.shared.world.count("command that was refused"));
    }

    /// What is said to be done was done.
    fn check_effects(&self) {
        let deeds = lock(&self.shared.shop);
        let sql = "SELECT w.tool_call_id FROM turn_waiting_tools AS w JOIN cards AS c
                     ON c.card_id = w.result_card_id
                   WHERE w.tool_name = 'strike' AND w.result_status = 'success' AND c.author_id <> 'tool.shop'";
        for (call,) in self.rows::<(String,)>(sql, args![]) {
            if !deeds.effects.contains_key(&call) {
                self.violate(format!("[no effect] {call} is done, and was not carried out"));
            }
        }
    }

    /// What is closed in the outbox was taken; and where everything comes to its end, all of it.
    fn check_commands(&self) {
        let deeds = lock(&self.shared.shop);
        let sql = "SELECT idempotency_key, state FROM outbox WHERE sink = 'tool'";
        for (call, state) in self.rows::<(String, String)>(sql, args![]) {
            let taken = deeds.taken.contains(&call);
            if !taken {
                self.violate(format!("[not ordered] {call} is {state}, and was never taken"));
            }
        }
    }

    /// What was reached.
    fn count(&self) {
        let world = &self.shared.world;
        let sql = "SELECT coalesce(error_code, outcome, status) FROM agent_inbox WHERE message_type = 'turn'";
        for (word,) in self.rows::<(String,)>(sql, args![]) {
            world.note_text(&word);
            let known = code::ALL.iter().find(|code| code.name == word).map(|code| code.name);
            world.count(known.unwrap_or(match word.as_str() {
                "success" => "success",
                "partial" => "partial",
                "failed" => "failed",
                "timeout" => "timeout",
                _ => "open or otherwise",
            }));
        }
        let abandoned = "SELECT step_id FROM agent_steps WHERE status = 'abandoned'";
        self.rows::<(String,)>(abandoned, args![])
            .iter()
            .for_each(|_| world.count("step that was lost"));
        let late = "SELECT tool_call_id FROM turn_waiting_tools WHERE result_status = 'timeout'";
        self.rows::<(String,)>(late, args![])
            .iter()
            .for_each(|_| world.count("call that timed out"));
    }
}
