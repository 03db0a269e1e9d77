//! Triggers that see what passes by: a look at the rows afterwards would not tell that it was ever so.

use guild_store::{Migration, Sql};

/// What was seen stands in `sim_seen`: its kind, and what it is about.
const WITNESS: &str = "
CREATE TABLE sim_seen (what TEXT NOT NULL, id TEXT NOT NULL);

-- A lease passes from one holder to another only through a turn that waits for a worker.
CREATE TRIGGER sim_sees_a_theft AFTER UPDATE OF lease_token ON agent_state_head
WHEN OLD.status = 'running' AND NEW.status = 'running' AND NEW.lease_token <> OLD.lease_token
BEGIN INSERT INTO sim_seen VALUES ('stolen', NEW.active_agent_turn_id); END;

-- By the time of whoever takes it, the lease is over; unless its step is done and all results are there already, or
-- its holder gives it back: then it does not count as lost.
CREATE TRIGGER sim_sees_an_eviction AFTER UPDATE OF status ON agent_state_head
WHEN OLD.status = 'running' AND NEW.status = 'dispatched' AND NEW.steps_taken = OLD.steps_taken
  AND NEW.lost_leases <> OLD.lost_leases
  AND OLD.active_agent_turn_id = NEW.active_agent_turn_id AND OLD.lease_until_ms > NEW.updated_ms
BEGIN INSERT INTO sim_seen VALUES ('evicted', NEW.active_agent_turn_id); END;

CREATE TRIGGER sim_sees_an_epoch AFTER UPDATE ON agent_state_head
WHEN NEW.turn_epoch < OLD.turn_epoch
  OR (NEW.status = 'running' AND OLD.status <> 'running' AND NEW.turn_epoch <= OLD.turn_epoch)
BEGIN INSERT INTO sim_seen VALUES ('epoch', coalesce(NEW.active_agent_turn_id, NEW.agent_id)); END;

CREATE TRIGGER sim_sees_a_beginning AFTER UPDATE OF status ON agent_inbox
WHEN NEW.message_type = 'turn' AND NEW.status = 'processing' AND OLD.status = 'queued'
  AND EXISTS (SELECT 1 FROM agent_inbox AS i WHERE i.project_id = NEW.project_id AND i.agent_id = NEW.agent_id
    AND i.status = 'queued' AND i.seq < NEW.seq)
BEGIN INSERT INTO sim_seen VALUES ('order', NEW.agent_turn_id); END;
CREATE TRIGGER sim_sees_a_new_beginning AFTER INSERT ON agent_inbox
WHEN NEW.message_type = 'turn' AND NEW.status = 'processing'
  AND EXISTS (SELECT 1 FROM agent_inbox AS i WHERE i.project_id = NEW.project_id AND i.agent_id = NEW.agent_id
    AND i.status = 'queued' AND i.seq < NEW.seq)
BEGIN INSERT INTO sim_seen VALUES ('order', NEW.agent_turn_id); END;

CREATE TRIGGER sim_sees_a_return AFTER UPDATE ON agent_inbox
WHEN OLD.closed_ms IS NOT NULL AND (NEW.status <> OLD.status OR NEW.outcome IS NOT OLD.outcome)
BEGIN INSERT INTO sim_seen VALUES ('reopened', NEW.agent_turn_id); END;

CREATE TRIGGER sim_sees_a_second_result AFTER UPDATE ON turn_waiting_tools
WHEN OLD.wait_status <> 'waiting'
  AND (NEW.wait_status <> OLD.wait_status OR NEW.result_card_id IS NOT OLD.result_card_id)
BEGIN INSERT INTO sim_seen VALUES ('answered again', NEW.tool_call_id); END;

-- A turn that ends with a result has it at the moment of its end.
CREATE TRIGGER sim_sees_a_late_answer AFTER UPDATE OF wait_status ON turn_waiting_tools
WHEN NEW.wait_status = 'applied' AND EXISTS
  (SELECT 1 FROM agent_inbox AS i WHERE i.message_type = 'turn' AND i.agent_turn_id = NEW.agent_turn_id
  AND i.closed_ms <> NEW.closed_ms)
BEGIN INSERT INTO sim_seen VALUES ('answered after its end', NEW.tool_call_id); END;

CREATE TRIGGER sim_sees_a_second_join AFTER UPDATE ON pmo_batches
WHEN OLD.status <> 'running'
BEGIN INSERT INTO sim_seen VALUES ('joined again', NEW.batch_id); END;
CREATE TRIGGER sim_sees_a_second_end AFTER UPDATE ON pmo_batch_tasks
WHEN OLD.status <> 'dispatched'
BEGIN INSERT INTO sim_seen VALUES ('ended again', NEW.agent_turn_id); END;

-- Whoever begins a turn of a target for one has the lease of that target.
CREATE TRIGGER sim_sees_a_second_worker AFTER UPDATE OF status ON agent_state_head
WHEN NEW.status = 'running' AND OLD.status = 'dispatched' AND substr(NEW.worker_target, 1, 5) = 'svc1_'
  AND NOT EXISTS (SELECT 1 FROM lease AS l WHERE l.name = 'kernel.worker.' || NEW.worker_target
    AND l.holder = NEW.lease_holder)
BEGIN INSERT INTO sim_seen VALUES ('second worker', NEW.active_agent_turn_id); END;

-- Whoever puts a turn aside closes it first and then delivers, in one transaction; there is one deliverable anyway.
CREATE TRIGGER sim_sees_a_late_card AFTER INSERT ON cards
WHEN NEW.type <> 'task.deliverable' AND EXISTS
  (SELECT 1 FROM agent_inbox AS i WHERE i.message_type = 'turn' AND i.agent_turn_id = NEW.agent_turn_id
  AND i.closed_ms IS NOT NULL)
BEGIN INSERT INTO sim_seen VALUES ('late', NEW.card_id); END;
CREATE TRIGGER sim_sees_another_card AFTER UPDATE ON cards
BEGIN INSERT INTO sim_seen VALUES ('rewritten', NEW.card_id); END;
";

fn numbered(number: i64, name: &'static str, sql: &'static str) -> Migration {
    Migration { area: "sim", number, name, sql: Sql { lite: sql, pg: sql } }
}

pub(super) fn migration() -> Migration {
    numbered(1, "witness", WITNESS)
}

/// A trigger that does what it should not.
pub(super) fn bug(sql: &'static str) -> Migration {
    numbered(2, "bug", sql)
}
