-- A turn that is over has an outcome, also one that could not be done; and what nobody handles is no message. SQLite
-- cannot change a CHECK, so the table is made anew.
CREATE TABLE agent_inbox_anew (
    seq                  INTEGER PRIMARY KEY,
    inbox_id             TEXT   NOT NULL UNIQUE,
    project_id           TEXT   NOT NULL,
    agent_id             TEXT   NOT NULL,
    channel_id           TEXT   NOT NULL,
    message_type         TEXT   NOT NULL CHECK (message_type IN ('turn', 'tool_result', 'timeout', 'stop')),
    correlation_id       TEXT   NOT NULL,
    agent_turn_id        TEXT   NOT NULL,
    turn_epoch           BIGINT NOT NULL CHECK (turn_epoch >= 0),
    parent_agent_turn_id TEXT,
    context_headers      TEXT   NOT NULL,
    payload              TEXT   NOT NULL,
    status               TEXT   NOT NULL CHECK (status IN
        ('queued', 'pending', 'processing', 'deferred', 'consumed', 'error', 'skipped')),
    outcome              TEXT   CHECK (outcome IN ('success', 'failed', 'canceled', 'timeout', 'partial')),
    error_code           TEXT,
    retry_count          BIGINT NOT NULL CHECK (retry_count >= 0),
    next_retry_ms        BIGINT,
    created_ms           BIGINT NOT NULL,
    closed_ms            BIGINT,
    UNIQUE (project_id, message_type, correlation_id),
    CHECK ((outcome IS NOT NULL) = (message_type = 'turn' AND closed_ms IS NOT NULL)),
    CHECK ((status IN ('consumed', 'error', 'skipped')) = (closed_ms IS NOT NULL)),
    CHECK (status <> 'error' OR error_code IS NOT NULL),
    CHECK (status <> 'queued' OR message_type = 'turn'),
    CHECK ((message_type = 'stop' AND status = 'pending') = (next_retry_ms IS NOT NULL))
);
INSERT INTO agent_inbox_anew (seq, inbox_id, project_id, agent_id, channel_id, message_type, correlation_id,
    agent_turn_id, turn_epoch, parent_agent_turn_id, context_headers, payload, status, outcome, error_code,
    retry_count, next_retry_ms, created_ms, closed_ms)
SELECT seq, inbox_id, project_id, agent_id, channel_id, message_type, correlation_id,
    agent_turn_id, turn_epoch, parent_agent_turn_id, context_headers, payload, status,
    CASE WHEN message_type = 'turn' AND closed_ms IS NOT NULL THEN coalesce(outcome, 'failed') ELSE outcome END,
    error_code, retry_count, next_retry_ms, created_ms, closed_ms
FROM agent_inbox WHERE message_type NOT IN ('ui_action', 'command_anchor');
DROP TABLE agent_inbox;
ALTER TABLE agent_inbox_anew RENAME TO agent_inbox;
CREATE UNIQUE INDEX agent_inbox_turn ON agent_inbox (agent_turn_id) WHERE message_type = 'turn';
CREATE INDEX agent_inbox_queued ON agent_inbox (project_id, agent_id, seq) WHERE status = 'queued';
CREATE INDEX agent_inbox_pending ON agent_inbox (agent_turn_id) WHERE status = 'pending';
CREATE INDEX agent_inbox_stops ON agent_inbox (next_retry_ms) WHERE next_retry_ms IS NOT NULL;
CREATE INDEX agent_inbox_children ON agent_inbox (parent_agent_turn_id)
    WHERE parent_agent_turn_id IS NOT NULL AND status IN ('queued', 'processing');

-- A turn ends once, whatever the event is called.
CREATE UNIQUE INDEX event_turn_task ON event (substr(id, 1, 37)) WHERE topic = 'turns' AND kind = 'turn.task';
