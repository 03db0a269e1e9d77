-- Who works in a project.
CREATE TABLE project_agents (
    project_id     TEXT   NOT NULL,
    agent_id       TEXT   NOT NULL,
    profile_name   TEXT   NOT NULL,
    worker_target  TEXT   NOT NULL,
    tags           TEXT   NOT NULL,
    display_name   TEXT   NOT NULL,
    owner_agent_id TEXT,
    status         TEXT   NOT NULL CHECK (status IN ('active', 'retired')),
    metadata       TEXT   NOT NULL,
    created_ms     BIGINT NOT NULL,
    PRIMARY KEY (project_id, agent_id)
) WITHOUT ROWID;

-- How an agent thinks.
CREATE TABLE profiles (
    project_id    TEXT   NOT NULL,
    name          TEXT   NOT NULL,
    worker_target TEXT   NOT NULL,
    body          TEXT   NOT NULL,
    updated_ms    BIGINT NOT NULL,
    PRIMARY KEY (project_id, name)
) WITHOUT ROWID;

-- What agents may call. Without a subject it runs in the worker itself.
CREATE TABLE tools (
    project_id      TEXT   NOT NULL,
    tool_name       TEXT   NOT NULL,
    description     TEXT   NOT NULL,
    parameters      TEXT   NOT NULL,
    target_subject  TEXT,
    after_execution TEXT   NOT NULL CHECK (after_execution IN ('suspend', 'terminate')),
    options         TEXT   NOT NULL,
    updated_ms      BIGINT NOT NULL,
    PRIMARY KEY (project_id, tool_name)
) WITHOUT ROWID;

-- What was said, called, answered and delivered. A card never changes.
CREATE TABLE cards (
    card_id       TEXT   PRIMARY KEY,
    project_id    TEXT   NOT NULL,
    type          TEXT   NOT NULL,
    role          TEXT   NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
    author_id     TEXT   NOT NULL,
    agent_turn_id TEXT,
    step_id       TEXT,
    tool_call_id  TEXT,
    content       TEXT   NOT NULL,
    metadata      TEXT   NOT NULL,
    created_ms    BIGINT NOT NULL,
    CHECK (type <> 'tool.result' OR tool_call_id IS NOT NULL),
    CHECK (type <> 'task.deliverable' OR agent_turn_id IS NOT NULL)
);
CREATE UNIQUE INDEX cards_tool_result ON cards (tool_call_id) WHERE type = 'tool.result';
CREATE UNIQUE INDEX cards_deliverable ON cards (agent_turn_id) WHERE type = 'task.deliverable';

-- Growing lists of cards: nothing in them is rewritten.
CREATE TABLE card_boxes (
    box_id         TEXT   PRIMARY KEY,
    project_id     TEXT   NOT NULL,
    owner_agent_id TEXT,
    next_place     BIGINT NOT NULL CHECK (next_place >= 0),
    created_ms     BIGINT NOT NULL
) WITHOUT ROWID;
CREATE TABLE card_box_entries (
    box_id  TEXT   NOT NULL,
    place   BIGINT NOT NULL CHECK (place >= 0),
    card_id TEXT   NOT NULL,
    PRIMARY KEY (box_id, place),
    UNIQUE (box_id, card_id)
) WITHOUT ROWID;

-- What an agent is doing: at most one turn at a time.
CREATE TABLE agent_state_head (
    project_id           TEXT   NOT NULL,
    agent_id             TEXT   NOT NULL,
    status               TEXT   NOT NULL CHECK (status IN ('idle', 'dispatched', 'running', 'suspended')),
    worker_target        TEXT   NOT NULL,
    -- Counts leases and forced ends of the agent, and never goes back.
    turn_epoch           BIGINT NOT NULL CHECK (turn_epoch >= 0),
    active_agent_turn_id TEXT,
    active_inbox_id      TEXT,
    seq                  BIGINT,
    channel_id           TEXT,
    recursion_depth      BIGINT CHECK (recursion_depth >= 0),
    trace_id             TEXT,
    parent_step_id       TEXT,
    answers_tool_call_id TEXT,
    profile_name         TEXT,
    context_box_id       TEXT,
    output_box_id        TEXT,
    steps_taken          BIGINT NOT NULL CHECK (steps_taken >= 0),
    lost_leases          BIGINT NOT NULL CHECK (lost_leases >= 0),
    due_ms               BIGINT,
    -- The step that runs, or the one whose calls are awaited.
    active_step_id       TEXT,
    lease_token          TEXT,
    lease_holder         TEXT,
    lease_until_ms       BIGINT,
    waiting_tool_count   BIGINT NOT NULL CHECK (waiting_tool_count >= 0),
    resume_deadline_ms   BIGINT,
    -- What its last turn wrote to: its memory.
    last_output_box_id   TEXT,
    updated_ms           BIGINT NOT NULL,
    PRIMARY KEY (project_id, agent_id),
    CHECK ((status = 'idle') = (active_agent_turn_id IS NULL)),
    CHECK ((status = 'idle') = (active_inbox_id IS NULL)),
    CHECK ((status = 'idle') = (seq IS NULL)),
    CHECK ((status = 'idle') = (channel_id IS NULL)),
    CHECK ((status = 'idle') = (recursion_depth IS NULL)),
    CHECK ((status = 'idle') = (profile_name IS NULL)),
    CHECK ((status = 'idle') = (context_box_id IS NULL)),
    CHECK ((status = 'idle') = (output_box_id IS NULL)),
    CHECK ((status = 'dispatched') = (due_ms IS NOT NULL)),
    CHECK ((status = 'running') = (lease_token IS NOT NULL)),
    CHECK ((status = 'running') = (lease_holder IS NOT NULL)),
    CHECK ((status = 'running') = (lease_until_ms IS NOT NULL)),
    CHECK ((status IN ('running', 'suspended')) = (active_step_id IS NOT NULL)),
    CHECK ((status = 'suspended') = (waiting_tool_count > 0)),
    CHECK ((status = 'suspended') = (resume_deadline_ms IS NOT NULL))
) WITHOUT ROWID;
CREATE INDEX agent_state_head_dispatched ON agent_state_head (worker_target, due_ms, seq)
    WHERE status = 'dispatched';
CREATE INDEX agent_state_head_running ON agent_state_head (lease_until_ms) WHERE status = 'running';
CREATE INDEX agent_state_head_suspended ON agent_state_head (resume_deadline_ms)
    WHERE status = 'suspended';

-- What was asked of agents, in the order in which it came. A turn is its row of type turn.
CREATE TABLE agent_inbox (
    seq                  INTEGER PRIMARY KEY,
    inbox_id             TEXT   NOT NULL UNIQUE,
    project_id           TEXT   NOT NULL,
    agent_id             TEXT   NOT NULL,
    channel_id           TEXT   NOT NULL,
    message_type         TEXT   NOT NULL CHECK (message_type IN
        ('turn', 'tool_result', 'timeout', 'stop', 'ui_action', 'command_anchor')),
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
    CHECK ((outcome IS NOT NULL) = (message_type = 'turn' AND status = 'consumed')),
    CHECK ((status IN ('consumed', 'error', 'skipped')) = (closed_ms IS NOT NULL)),
    CHECK (status <> 'error' OR error_code IS NOT NULL),
    CHECK (status <> 'queued' OR message_type = 'turn'),
    CHECK ((message_type = 'stop' AND status = 'pending') = (next_retry_ms IS NOT NULL))
);
CREATE UNIQUE INDEX agent_inbox_turn ON agent_inbox (agent_turn_id) WHERE message_type = 'turn';
CREATE INDEX agent_inbox_queued ON agent_inbox (project_id, agent_id, seq) WHERE status = 'queued';
CREATE INDEX agent_inbox_pending ON agent_inbox (agent_turn_id) WHERE status = 'pending';
CREATE INDEX agent_inbox_stops ON agent_inbox (next_retry_ms) WHERE next_retry_ms IS NOT NULL;
CREATE INDEX agent_inbox_children ON agent_inbox (parent_agent_turn_id)
    WHERE parent_agent_turn_id IS NOT NULL AND status IN ('queued', 'processing');

-- What a worker did under one lease, step by step.
CREATE TABLE agent_steps (
    step_id           TEXT   PRIMARY KEY,
    project_id        TEXT   NOT NULL,
    agent_id          TEXT   NOT NULL,
    agent_turn_id     TEXT   NOT NULL,
    turn_epoch        BIGINT NOT NULL CHECK (turn_epoch > 0),
    number            BIGINT NOT NULL CHECK (number > 0),
    status            TEXT   NOT NULL CHECK (status IN
        ('started', 'completed', 'suspended', 'failed', 'abandoned')),
    tool_call_ids     TEXT   NOT NULL,
    error_code        TEXT,
    prompt_tokens     BIGINT NOT NULL CHECK (prompt_tokens >= 0),
    completion_tokens BIGINT NOT NULL CHECK (completion_tokens >= 0),
    cost_micro_usd    BIGINT NOT NULL CHECK (cost_micro_usd >= 0),
    cost_unknown      BIGINT NOT NULL CHECK (cost_unknown IN (0, 1)),
    model             TEXT,
    metadata          TEXT   NOT NULL,
    started_ms        BIGINT NOT NULL,
    ended_ms          BIGINT,
    CHECK ((status = 'started') = (ended_ms IS NULL)),
    CHECK (cost_unknown = 0 OR cost_micro_usd = 0)
) WITHOUT ROWID;
CREATE INDEX agent_steps_turn ON agent_steps (agent_turn_id, number);

-- Calls that a suspended turn waits for.
CREATE TABLE turn_waiting_tools (
    tool_call_id    TEXT   PRIMARY KEY,
    project_id      TEXT   NOT NULL,
    agent_id        TEXT   NOT NULL,
    agent_turn_id   TEXT   NOT NULL,
    turn_epoch      BIGINT NOT NULL,
    step_id         TEXT   NOT NULL,
    tool_name       TEXT   NOT NULL,
    after_execution TEXT   NOT NULL CHECK (after_execution IN ('suspend', 'terminate')),
    -- Who runs it: whoever listens there; without one a worker, under the lease of its run.
    target_subject  TEXT,
    run_token       TEXT,
    run_until_ms    BIGINT,
    wait_status     TEXT   NOT NULL CHECK (wait_status IN ('waiting', 'applied', 'dropped')),
    result_status   TEXT   CHECK (result_status IN ('success', 'failed', 'canceled', 'timeout', 'partial')),
    result_card_id  TEXT,
    deadline_ms     BIGINT NOT NULL,
    created_ms      BIGINT NOT NULL,
    closed_ms       BIGINT,
    CHECK ((wait_status = 'applied') = (result_card_id IS NOT NULL)),
    CHECK ((wait_status = 'applied') = (result_status IS NOT NULL)),
    CHECK ((wait_status = 'waiting') = (closed_ms IS NULL)),
    CHECK ((wait_status = 'waiting' AND target_subject IS NULL) = (run_token IS NOT NULL)),
    CHECK ((run_token IS NULL) = (run_until_ms IS NULL))
) WITHOUT ROWID;
CREATE INDEX turn_waiting_tools_step ON turn_waiting_tools (step_id);
CREATE INDEX turn_waiting_tools_due ON turn_waiting_tools (deadline_ms) WHERE wait_status = 'waiting';
CREATE INDEX turn_waiting_tools_runs ON turn_waiting_tools (tool_name, run_until_ms)
    WHERE run_until_ms IS NOT NULL;

-- Keys that all processes of this store share.
CREATE TABLE kernel_secrets (
    name       TEXT   PRIMARY KEY,
    secret     TEXT   NOT NULL,
    created_ms BIGINT NOT NULL
) WITHOUT ROWID;

-- How far something that goes on for ever is.
CREATE TABLE kernel_places (
    name  TEXT   PRIMARY KEY,
    place BIGINT NOT NULL
) WITHOUT ROWID;

-- Who asked whom, and who answered.
CREATE TABLE execution_edges (
    edge_id              TEXT   NOT NULL,
    project_id           TEXT   NOT NULL,
    channel_id           TEXT   NOT NULL,
    primitive            TEXT   NOT NULL CHECK (primitive IN ('enqueue', 'report', 'join', 'tool_call')),
    edge_phase           TEXT   NOT NULL CHECK (edge_phase IN ('request', 'response')),
    source_agent_id      TEXT,
    source_agent_turn_id TEXT,
    source_step_id       TEXT,
    target_agent_id      TEXT,
    target_agent_turn_id TEXT,
    correlation_id       TEXT   NOT NULL,
    recursion_depth      BIGINT NOT NULL CHECK (recursion_depth >= 0),
    trace_id             TEXT,
    metadata             TEXT   NOT NULL,
    created_ms           BIGINT NOT NULL,
    PRIMARY KEY (edge_id),
    UNIQUE (project_id, correlation_id, primitive, edge_phase)
) WITHOUT ROWID;
