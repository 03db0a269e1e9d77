//! Rules that a query can break: what it finds, and what is wrong with it. One text for both databases.

/// Each with the words that follow what it finds.
pub(super) const ALL: &[(&str, &str)] = &[
    (
        "SELECT i.agent_turn_id FROM agent_inbox AS i LEFT JOIN agent_state_head AS h
           ON h.project_id = i.project_id AND h.agent_id = i.agent_id
           AND h.active_agent_turn_id = i.agent_turn_id
         WHERE i.message_type = 'turn' AND i.status = 'processing' AND h.agent_id IS NULL LIMIT 50",
        "has begun, and its agent does not work on it",
    ),
    (
        "SELECT h.active_agent_turn_id FROM agent_state_head AS h LEFT JOIN agent_inbox AS i
           ON i.seq = h.seq AND i.inbox_id = h.active_inbox_id AND i.message_type = 'turn'
           AND i.agent_turn_id = h.active_agent_turn_id AND i.project_id = h.project_id
           AND i.agent_id = h.agent_id AND i.status = 'processing'
         WHERE h.status <> 'idle' AND i.seq IS NULL LIMIT 50",
        "is worked on, and its row does not say so",
    ),
    (
        "SELECT active_agent_turn_id FROM agent_state_head WHERE active_agent_turn_id IS NOT NULL
         GROUP BY active_agent_turn_id HAVING count(*) > 1 LIMIT 50",
        "is worked on by several agents",
    ),
    (
        "SELECT agent_turn_id FROM agent_inbox WHERE message_type = 'turn'
         GROUP BY agent_turn_id HAVING count(*) > 1 LIMIT 50",
        "has several rows",
    ),
    (
        "SELECT DISTINCT i.agent_id FROM agent_inbox AS i LEFT JOIN agent_state_head AS h
           ON h.project_id = i.project_id AND h.agent_id = i.agent_id
         WHERE i.status = 'queued' AND coalesce(h.status, 'idle') = 'idle' LIMIT 50",
        "is idle, and turns wait for it",
    ),
    (
        "SELECT i.agent_turn_id FROM agent_inbox AS i LEFT JOIN event AS e
           ON e.topic = 'turns' AND e.id = i.agent_turn_id || '/task' AND e.kind = 'turn.task'
         WHERE i.message_type = 'turn' AND i.closed_ms IS NOT NULL AND e.id IS NULL
           AND NOT EXISTS (SELECT 1 FROM event_forgotten AS f WHERE f.topic = 'turns') LIMIT 50",
        "is over, and no event says so",
    ),
    (
        "SELECT i.agent_turn_id FROM agent_inbox AS i JOIN event AS e
           ON e.topic = 'turns' AND e.id = i.agent_turn_id || '/task'
         WHERE i.message_type = 'turn' AND i.closed_ms IS NULL LIMIT 50",
        "is open, and an event says that it is over",
    ),
    (
        "SELECT substr(id, 1, 37) FROM event WHERE topic = 'turns' AND kind = 'turn.task'
         GROUP BY substr(id, 1, 37) HAVING count(*) > 1 LIMIT 50",
        "has several terminal events",
    ),
    (
        "SELECT e.id FROM event AS e LEFT JOIN agent_inbox AS i
           ON i.message_type = 'turn' AND i.agent_turn_id = substr(e.id, 1, 37)
         WHERE e.topic = 'turns' AND i.seq IS NULL LIMIT 50",
        "is an event of a turn that is not there",
    ),
    (
        "SELECT i.agent_turn_id FROM agent_inbox AS i JOIN event AS e
           ON e.topic = 'turns' AND e.id = i.agent_turn_id || '/task'
         WHERE i.message_type = 'turn' AND i.closed_ms IS NOT NULL
           AND e.body NOT LIKE '%\"status\":\"' || i.outcome || '\"%' LIMIT 50",
        "ended otherwise than its terminal event says",
    ),
    (
        // For each event its turn, never the other way round: a server that has no statistics yet cannot know that only
        // this way has an index.
        "SELECT e.id FROM event AS e WHERE e.topic = 'turns' AND e.seq >
           (SELECT t.seq FROM event AS t
            WHERE t.topic = 'turns' AND t.id = substr(e.id, 1, 37) || '/task') LIMIT 50",
        "is an event after the end of its turn",
    ),
    (
        "SELECT i.agent_turn_id FROM agent_inbox AS i LEFT JOIN cards AS c
           ON c.agent_turn_id = i.agent_turn_id AND c.type = 'task.deliverable'
         WHERE i.message_type = 'turn' AND i.closed_ms IS NOT NULL AND c.card_id IS NULL LIMIT 50",
        "is over, and has delivered nothing",
    ),
    (
        "SELECT i.agent_turn_id FROM agent_inbox AS i JOIN cards AS c
           ON c.agent_turn_id = i.agent_turn_id AND c.type = 'task.deliverable'
         WHERE i.message_type = 'turn' AND i.closed_ms IS NULL LIMIT 50",
        "is open, and has delivered already",
    ),
    (
        "SELECT c.agent_turn_id FROM cards AS c JOIN event AS e
           ON e.topic = 'turns' AND e.id = c.agent_turn_id || '/task'
         WHERE c.type = 'task.deliverable'
           AND e.body NOT LIKE '%\"deliverable_card_id\":\"' || c.card_id || '\"%' LIMIT 50",
        "has delivered another card than its terminal event says",
    ),
    (
        "SELECT w.tool_call_id FROM turn_waiting_tools AS w LEFT JOIN agent_state_head AS h
           ON h.project_id = w.project_id AND h.agent_id = w.agent_id AND h.status = 'suspended'
           AND h.active_agent_turn_id = w.agent_turn_id AND h.active_step_id = w.step_id
         WHERE w.wait_status = 'waiting' AND h.agent_id IS NULL LIMIT 50",
        "is awaited by a turn that does not wait for it",
    ),
    (
        "SELECT h.active_agent_turn_id FROM agent_state_head AS h
         WHERE h.status = 'suspended' AND h.waiting_tool_count <>
           (SELECT count(*) FROM turn_waiting_tools AS w
            WHERE w.step_id = h.active_step_id AND w.wait_status = 'waiting') LIMIT 50",
        "waits for another number of calls than are open",
    ),
    (
        "SELECT h.active_agent_turn_id FROM agent_state_head AS h
         WHERE h.status = 'suspended' AND h.resume_deadline_ms <>
           (SELECT min(w.deadline_ms) FROM turn_waiting_tools AS w
            WHERE w.step_id = h.active_step_id AND w.wait_status = 'waiting') LIMIT 50",
        "has another deadline than the first of its open calls",
    ),
    (
        "SELECT w.tool_call_id FROM turn_waiting_tools AS w LEFT JOIN cards AS c
           ON c.card_id = w.result_card_id AND c.type = 'tool.result'
           AND c.tool_call_id = w.tool_call_id AND c.project_id = w.project_id
         WHERE w.wait_status = 'applied' AND c.card_id IS NULL LIMIT 50",
        "has a result that is not there",
    ),
    (
        "SELECT tool_call_id FROM cards WHERE type = 'tool.result'
         GROUP BY tool_call_id HAVING count(*) > 1 LIMIT 50",
        "has several results",
    ),
    (
        "SELECT w.tool_call_id FROM turn_waiting_tools AS w LEFT JOIN card_box_entries AS e
           ON e.card_id = w.result_card_id
         WHERE w.wait_status = 'applied' AND e.card_id IS NULL LIMIT 50",
        "has a result that is in no box",
    ),
    (
        "SELECT s.step_id FROM agent_steps AS s LEFT JOIN agent_state_head AS h
           ON h.project_id = s.project_id AND h.agent_id = s.agent_id AND h.status = 'running'
           AND h.active_step_id = s.step_id AND h.turn_epoch = s.turn_epoch
         WHERE s.status = 'started' AND h.agent_id IS NULL LIMIT 50",
        "has begun, and nobody does it",
    ),
    (
        "SELECT h.active_agent_turn_id FROM agent_state_head AS h LEFT JOIN agent_steps AS s
           ON s.step_id = h.active_step_id AND s.agent_turn_id = h.active_agent_turn_id
           AND s.status = CASE h.status WHEN 'running' THEN 'started' ELSE 'suspended' END
         WHERE h.status IN ('running', 'suspended') AND s.step_id IS NULL LIMIT 50",
        "is at a step that is not there, or is over",
    ),
    (
        "SELECT h.active_agent_turn_id FROM agent_state_head AS h
         WHERE h.status <> 'idle' AND h.steps_taken <>
           (SELECT count(*) FROM agent_steps AS s WHERE s.agent_turn_id = h.active_agent_turn_id
              AND s.status IN ('completed', 'suspended')) LIMIT 50",
        "has done another number of steps than it says",
    ),
    (
        "SELECT agent_turn_id FROM agent_steps WHERE status <> 'abandoned'
         GROUP BY agent_turn_id, number HAVING count(*) > 1 LIMIT 50",
        "has done a step twice",
    ),
    (
        "SELECT c.card_id FROM cards AS c LEFT JOIN agent_steps AS s ON s.step_id = c.step_id
         WHERE c.step_id IS NOT NULL AND c.type NOT IN ('tool.result', 'task.deliverable')
           AND (s.step_id IS NULL OR s.agent_turn_id <> c.agent_turn_id
             OR s.status NOT IN ('completed', 'suspended', 'failed') OR s.ended_ms <> c.created_ms)
         LIMIT 50",
        "was written without a lease",
    ),
    (
        "SELECT c.card_id FROM cards AS c LEFT JOIN agent_steps AS s ON s.step_id = c.step_id
         WHERE c.step_id IS NOT NULL AND c.type IN ('tool.result', 'task.deliverable')
           AND (s.step_id IS NULL OR s.agent_turn_id <> c.agent_turn_id
             OR s.status NOT IN ('completed', 'suspended', 'failed')) LIMIT 50",
        "belongs to a step that was not done",
    ),
    (
        "SELECT r.correlation_id FROM execution_edges AS r LEFT JOIN execution_edges AS q
           ON q.project_id = r.project_id AND q.correlation_id = r.correlation_id
           AND q.primitive = 'tool_call' AND q.edge_phase = 'request'
           AND q.recursion_depth = r.recursion_depth
         WHERE r.primitive = 'report' AND q.edge_id IS NULL LIMIT 50",
        "is answered, and was not asked at the same depth",
    ),
    ("SELECT edge_id FROM execution_edges WHERE recursion_depth >= 20 LIMIT 50", "is too deep"),
    (
        "SELECT i.agent_turn_id FROM agent_inbox AS i LEFT JOIN execution_edges AS e
           ON e.project_id = i.project_id AND e.correlation_id = i.correlation_id
           AND e.primitive = 'enqueue' AND e.edge_phase = 'request'
           AND e.target_agent_turn_id = i.agent_turn_id
         WHERE i.message_type = 'turn' AND e.edge_id IS NULL LIMIT 50",
        "was asked for by nobody",
    ),
    (
        "SELECT w.tool_call_id FROM turn_waiting_tools AS w LEFT JOIN execution_edges AS e
           ON e.project_id = w.project_id AND e.correlation_id = w.tool_call_id
           AND e.primitive = 'tool_call' AND e.edge_phase = 'request'
         WHERE e.edge_id IS NULL LIMIT 50",
        "is awaited, and was not called",
    ),
    (
        "SELECT w.tool_call_id FROM turn_waiting_tools AS w LEFT JOIN execution_edges AS e
           ON e.project_id = w.project_id AND e.correlation_id = w.tool_call_id
           AND e.primitive = 'report' AND e.edge_phase = 'response'
         WHERE (w.wait_status = 'applied') <> (e.edge_id IS NOT NULL) LIMIT 50",
        "is answered without a report, or reported without an answer",
    ),
    (
        "SELECT w.tool_call_id FROM turn_waiting_tools AS w JOIN cards AS c
           ON c.type = 'tool.call' AND c.tool_call_id = w.tool_call_id AND c.step_id = w.step_id
         WHERE c.content NOT LIKE '%\"target_subject\":' ||
           coalesce('\"' || w.target_subject || '\"', 'null') || '%' LIMIT 50",
        "is awaited elsewhere than it was called",
    ),
    (
        // The first key of the headers, which are canonical. A call whose answer could not be given is due since then.
        "SELECT i.agent_turn_id FROM agent_inbox AS i JOIN turn_waiting_tools AS w
           ON w.tool_call_id = substr(i.context_headers, 26, 37)
           AND w.agent_turn_id = i.parent_agent_turn_id AND w.wait_status = 'waiting'
         WHERE i.message_type = 'turn' AND i.closed_ms < w.deadline_ms
           AND i.context_headers LIKE '{\"answers_tool_call_id\":\"%' AND NOT EXISTS
             (SELECT 1 FROM pmo_batches AS b WHERE b.parent_tool_call_id = w.tool_call_id) LIMIT 50",
        "is over, and the call that it answers still waits",
    ),
    (
        "SELECT c.agent_turn_id FROM agent_inbox AS c JOIN agent_inbox AS p
           ON p.message_type = 'turn' AND p.agent_turn_id = c.parent_agent_turn_id
         LEFT JOIN agent_inbox AS s ON s.message_type = 'stop' AND s.project_id = c.project_id
           AND s.correlation_id = c.agent_turn_id
         WHERE c.message_type = 'turn' AND c.closed_ms IS NULL AND p.closed_ms IS NOT NULL
           AND s.seq IS NULL AND (p.status = 'error'
             OR p.error_code IN ('kernel.stopped', 'kernel.lost_too_often', 'kernel.nothing_awaited')
             OR c.context_headers LIKE '{\"answers_tool_call_id\":\"%') LIMIT 50",
        "goes on, the turn that asked for it is over, and nobody stops it",
    ),
    (
        // The last key of the headers. As above, for each event its turn.
        "SELECT e.id FROM event AS e WHERE e.topic = 'turns' AND e.body NOT LIKE
           (SELECT '%\"traceparent\":\"00-' ||
              substr(i.context_headers, length(i.context_headers) - 33, 32) || '-%'
            FROM agent_inbox AS i
            WHERE i.message_type = 'turn' AND i.agent_turn_id = substr(e.id, 1, 37)
              AND i.context_headers LIKE '%\"trace_id\":\"________________________________\"}' LIMIT 1)
         LIMIT 50",
        "is told under another trace than its turn was asked under",
    ),
    (
        "SELECT b.box_id FROM card_boxes AS b WHERE b.next_place <>
           (SELECT count(*) FROM card_box_entries AS e
            WHERE e.box_id = b.box_id AND e.place < b.next_place) LIMIT 50",
        "has gaps",
    ),
    (
        "SELECT e.box_id FROM card_box_entries AS e LEFT JOIN card_boxes AS b
           ON b.box_id = e.box_id AND e.place < b.next_place
         LEFT JOIN cards AS c ON c.card_id = e.card_id AND c.project_id = b.project_id
         WHERE b.box_id IS NULL OR c.card_id IS NULL LIMIT 50",
        "has a card that it should not have",
    ),
    (
        // What agents write to now, and what they wrote to last: each begins empty.
        "SELECT e.card_id FROM
           (SELECT output_box_id AS box_id FROM agent_state_head WHERE output_box_id IS NOT NULL
            UNION SELECT last_output_box_id FROM agent_state_head
            WHERE last_output_box_id IS NOT NULL) AS o
         JOIN card_box_entries AS e ON e.box_id = o.box_id
         JOIN cards AS c ON c.card_id = e.card_id
         LEFT JOIN agent_inbox AS i ON i.message_type = 'turn' AND i.agent_turn_id = c.agent_turn_id
           AND i.payload LIKE '%\"output_box_id\":\"' || o.box_id || '\"%'
         WHERE i.seq IS NULL LIMIT 50",
        "lies in a box that its turn does not write to",
    ),
    (
        "SELECT c.card_id FROM agent_state_head AS h
         JOIN card_boxes AS b ON b.box_id = h.output_box_id AND b.project_id = h.project_id
         JOIN cards AS c ON c.agent_turn_id = h.active_agent_turn_id AND c.step_id IS NOT NULL
           AND c.type <> 'tool.result'
         LEFT JOIN card_box_entries AS e ON e.box_id = b.box_id AND e.card_id = c.card_id
         WHERE h.status <> 'idle' AND e.card_id IS NULL LIMIT 50",
        "was written by a step and does not lie in the box of its turn",
    ),
    (
        "SELECT i.inbox_id FROM agent_inbox AS i JOIN agent_inbox AS t
           ON t.message_type = 'turn' AND t.agent_turn_id = i.agent_turn_id
         WHERE i.status = 'pending' AND t.closed_ms IS NOT NULL LIMIT 50",
        "is pending for a turn that is over",
    ),
];
