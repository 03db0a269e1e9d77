//! Rules about turns that are waited for together. As in [`rules`](super::rules): what a query finds, and what is wrong
//! with it.

/// Each with the words that follow what it finds.
pub(super) const ALL: &[(&str, &str)] = &[
    (
        "SELECT parent_tool_call_id FROM pmo_batches
         GROUP BY parent_tool_call_id HAVING count(*) > 1 LIMIT 50",
        "has several batches",
    ),
    (
        "SELECT b.batch_id FROM pmo_batches AS b LEFT JOIN turn_waiting_tools AS w
           ON w.tool_call_id = b.parent_tool_call_id AND w.wait_status = 'waiting'
           AND w.agent_turn_id = b.parent_agent_turn_id AND w.step_id = b.parent_step_id
         WHERE b.status = 'running' AND w.tool_call_id IS NULL LIMIT 50",
        "runs, and nobody waits for it",
    ),
    (
        "SELECT b.batch_id FROM pmo_batches AS b JOIN turn_waiting_tools AS w
           ON w.tool_call_id = b.parent_tool_call_id
         WHERE b.deadline_ms > w.deadline_ms LIMIT 50",
        "may run longer than it is waited for",
    ),
    (
        // One that was put aside has its answer ready, and its call is due since then.
        "SELECT b.batch_id FROM pmo_batches AS b LEFT JOIN turn_waiting_tools AS w
           ON w.tool_call_id = b.parent_tool_call_id AND (w.result_status = b.status
             OR (w.wait_status = 'waiting' AND w.deadline_ms <= b.closed_ms))
         WHERE b.status NOT IN ('running', 'canceled') AND w.tool_call_id IS NULL LIMIT 50",
        "ended otherwise than its call was told",
    ),
    (
        "SELECT b.batch_id FROM pmo_batches AS b WHERE b.task_count <>
           (SELECT count(*) FROM pmo_batch_tasks AS t
            WHERE t.batch_id = b.batch_id AND t.task_index < b.task_count) LIMIT 50",
        "has another number of tasks than it says",
    ),
    (
        "SELECT t.agent_turn_id FROM pmo_batch_tasks AS t LEFT JOIN pmo_batches AS b
           ON b.batch_id = t.batch_id AND t.task_index < b.task_count
         WHERE b.batch_id IS NULL LIMIT 50",
        "is a task of no batch",
    ),
    (
        // One whose last task was put aside is due since then, and joined by a sweep.
        "SELECT b.batch_id FROM pmo_batches AS b WHERE (b.status = 'running') <> EXISTS
           (SELECT 1 FROM pmo_batch_tasks AS t
            WHERE t.batch_id = b.batch_id AND t.status = 'dispatched')
           AND (b.status <> 'running' OR b.deadline_ms > coalesce(
             (SELECT max(t.closed_ms) FROM pmo_batch_tasks AS t WHERE t.batch_id = b.batch_id), 0))
         LIMIT 50",
        "is over with an open task, or runs without one",
    ),
    (
        "SELECT b.batch_id FROM pmo_batches AS b JOIN
           (SELECT batch_id, count(*) AS tasks,
              sum(CASE WHEN status = 'success' THEN 1 ELSE 0 END) AS well,
              sum(CASE WHEN status IN ('failed', 'canceled') THEN 1 ELSE 0 END) AS broken,
              sum(CASE WHEN status = 'timeout' THEN 1 ELSE 0 END) AS late
            FROM pmo_batch_tasks GROUP BY batch_id) AS t ON t.batch_id = b.batch_id
         WHERE b.status NOT IN ('running', 'canceled') AND b.status <>
           CASE WHEN b.fail_fast = 1 AND t.broken + t.late > 0 THEN 'failed'
             WHEN t.well = t.tasks THEN 'success' WHEN t.well > 0 THEN 'partial'
             WHEN t.broken > 0 THEN 'failed' WHEN t.late > 0 THEN 'timeout' ELSE 'partial' END
         LIMIT 50",
        "ended otherwise than its tasks did",
    ),
    (
        "SELECT b.batch_id FROM pmo_batches AS b JOIN pmo_batch_tasks AS t ON t.batch_id = b.batch_id
         WHERE b.status = 'running' AND b.fail_fast = 1 AND b.deadline_ms > t.closed_ms
           AND t.status IN ('failed', 'canceled', 'timeout') LIMIT 50",
        "runs, and must not have a failure in it",
    ),
    (
        "SELECT t.agent_turn_id FROM pmo_batch_tasks AS t
         JOIN pmo_batches AS b ON b.batch_id = t.batch_id
         LEFT JOIN agent_inbox AS i ON i.message_type = 'turn' AND i.agent_turn_id = t.agent_turn_id
           AND i.agent_id = t.agent_id AND i.project_id = b.project_id
           AND i.parent_agent_turn_id = b.parent_agent_turn_id
         WHERE i.seq IS NULL LIMIT 50",
        "is a task, and no turn that its parent has asked for",
    ),
    (
        "SELECT t.agent_turn_id FROM pmo_batch_tasks AS t JOIN agent_inbox AS i
           ON i.message_type = 'turn' AND i.agent_turn_id = t.agent_turn_id
         WHERE t.status = 'dispatched' AND i.closed_ms IS NOT NULL LIMIT 50",
        "is over, and its batch waits for it",
    ),
    (
        "SELECT t.agent_turn_id FROM pmo_batch_tasks AS t LEFT JOIN agent_inbox AS i
           ON i.message_type = 'turn' AND i.agent_turn_id = t.agent_turn_id
           AND i.closed_ms = t.closed_ms AND coalesce(i.outcome, 'failed') = t.status
         LEFT JOIN cards AS c ON c.card_id = t.deliverable_card_id
           AND c.type = 'task.deliverable' AND c.agent_turn_id = t.agent_turn_id
         WHERE t.deliverable_card_id IS NOT NULL AND (i.seq IS NULL OR c.card_id IS NULL) LIMIT 50",
        "ended otherwise than its batch says",
    ),
    (
        "SELECT t.agent_turn_id FROM pmo_batch_tasks AS t JOIN agent_inbox AS i
           ON i.message_type = 'turn' AND i.agent_turn_id = t.agent_turn_id
         LEFT JOIN agent_inbox AS s ON s.message_type = 'stop'
           AND s.correlation_id = t.agent_turn_id AND s.project_id = i.project_id
         WHERE t.status <> 'dispatched' AND i.closed_ms IS NULL AND s.seq IS NULL LIMIT 50",
        "goes on, its batch is over, and nobody stops it",
    ),
    (
        "SELECT b.batch_id FROM pmo_batches AS b LEFT JOIN execution_edges AS q
           ON q.project_id = b.project_id AND q.correlation_id = b.batch_id
           AND q.primitive = 'join' AND q.edge_phase = 'request'
           AND q.recursion_depth = b.recursion_depth
         LEFT JOIN execution_edges AS r
           ON r.project_id = b.project_id AND r.correlation_id = b.batch_id
           AND r.primitive = 'join' AND r.edge_phase = 'response'
           AND r.recursion_depth = b.recursion_depth
         WHERE q.edge_id IS NULL OR (b.status = 'running') <> (r.edge_id IS NULL) LIMIT 50",
        "has no request or, being over, no response at its depth",
    ),
];
