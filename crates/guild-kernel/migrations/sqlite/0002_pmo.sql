-- Turns that one call waits for together.
CREATE TABLE pmo_batches (
    batch_id             TEXT   PRIMARY KEY,
    project_id           TEXT   NOT NULL,
    channel_id           TEXT   NOT NULL,
    parent_agent_id      TEXT   NOT NULL,
    parent_agent_turn_id TEXT   NOT NULL,
    parent_step_id       TEXT   NOT NULL,
    parent_tool_call_id  TEXT   NOT NULL,
    recursion_depth      BIGINT NOT NULL CHECK (recursion_depth >= 0),
    trace_id             TEXT,
    task_count           BIGINT NOT NULL CHECK (task_count BETWEEN 1 AND 8),
    fail_fast            BIGINT NOT NULL CHECK (fail_fast IN (0, 1)),
    -- Canceled: whoever asked has ended, or has another answer.
    status               TEXT   NOT NULL CHECK (status IN
        ('running', 'success', 'failed', 'canceled', 'timeout', 'partial')),
    deadline_ms          BIGINT NOT NULL,
    created_ms           BIGINT NOT NULL,
    closed_ms            BIGINT,
    CHECK ((status = 'running') = (closed_ms IS NULL))
) WITHOUT ROWID;
CREATE UNIQUE INDEX pmo_batches_call ON pmo_batches (parent_tool_call_id);
CREATE INDEX pmo_batches_due ON pmo_batches (deadline_ms) WHERE status = 'running';
CREATE INDEX pmo_batches_step ON pmo_batches (parent_step_id) WHERE status = 'running';

-- The turns of a batch, each with how it ended as far as the batch is concerned.
CREATE TABLE pmo_batch_tasks (
    batch_id            TEXT   NOT NULL,
    task_index          BIGINT NOT NULL CHECK (task_index BETWEEN 0 AND 7),
    agent_id            TEXT   NOT NULL,
    agent_turn_id       TEXT   NOT NULL UNIQUE,
    context_box_id      TEXT   NOT NULL,
    output_box_id       TEXT   NOT NULL,
    status              TEXT   NOT NULL CHECK (status IN
        ('dispatched', 'success', 'failed', 'canceled', 'timeout', 'partial')),
    error_code          TEXT,
    -- What its turn has delivered; null if the batch was over first.
    deliverable_card_id TEXT,
    closed_ms           BIGINT,
    PRIMARY KEY (batch_id, task_index),
    CHECK ((status = 'dispatched') = (closed_ms IS NULL)),
    CHECK (status <> 'dispatched' OR deliverable_card_id IS NULL),
    CHECK (status <> 'success' OR deliverable_card_id IS NOT NULL)
) WITHOUT ROWID;
