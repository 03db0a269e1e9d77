-- Who works in a project.
CREATE TABLE project_agents (
    project_id     TEXT COLLATE "C" NOT NULL,
    agent_id       TEXT COLLATE "C" NOT NULL,
    profile_name   TEXT COLLATE "C" NOT NULL,
    worker_target  TEXT COLLATE "C" NOT NULL,
    tags           TEXT COLLATE "C" NOT NULL,
    display_name   TEXT COLLATE "C" NOT NULL,
    owner_agent_id TEXT COLLATE "C",
    status         TEXT COLLATE "C" NOT NULL CHECK (status IN ('active', 'retired')),
    metadata       TEXT COLLATE "C" NOT NULL,
    created_ms     BIGINT NOT NULL,
    PRIMARY KEY (project_id, agent_id)
);

-- How an agent thinks.
CREATE TABLE profiles (
    project_id    TEXT COLLATE "C" NOT NULL,
    name          TEXT COLLATE "C" NOT NULL,
    worker_target TEXT COLLATE "C" NOT NULL,
    body          TEXT COLLATE "C" NOT NULL,
    updated_ms    BIGINT NOT NULL,
    PRIMARY KEY (project_id, name)
);

-- What agents may call. Without a subject it runs in the worker itself.
CREATE TABLE tools (
    project_id      TEXT COLLATE "C" NOT NULL,
    tool_name       TEXT COLLATE "C" NOT NULL,
    description     TEXT COLLATE "C" NOT NULL,
    parameters      TEXT COLLATE "C" NOT NULL,
    target_subject  TEXT COLLATE "C",
    after_execution TEXT COLLATE "C" NOT NULL CHECK (after_execution IN ('suspend', 'terminate')),
    options         TEXT COLLATE "C" NOT NULL,
    updated_ms      BIGINT NOT NULL,
    PRIMARY KEY (project_id, tool_name)
);

-- What was said, called, answered and delivered. A card never changes.
CREATE TABLE cards (
    card_id       TEXT COLLATE "C" PRIMARY KEY,
    project_id    TEXT COLLATE "C" NOT NULL,
    type          TEXT COLLATE "C" NOT NULL,
    role          TEXT COLLATE "C" NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
    author_id     TEXT COLLATE "C" NOT NULL,
    agent_turn_id TEXT COLLATE "C",
    step_id       TEXT COLLATE "C",
    tool_call_id  TEXT COLLATE "C",
    content       TEXT COLLATE "C" NOT NULL,
    metadata      TEXT COLLATE "C" NOT NULL,
    created_ms    BIGINT NOT NULL,
    CHECK (type <> 'tool.result' OR tool_call_id IS NOT NULL),
    CHECK (type <> 'task.deliverable' OR agent_turn_id IS NOT NULL)
);
CREATE UNIQUE INDEX cards_tool_result ON cards (tool_call_id) WHERE type = 'tool.result';
CREATE UNIQUE INDEX cards_deliverable ON cards (agent_turn_id) WHERE type = 'task.deliverable';

-- Growing lists of cards: nothing in them is rewritten.
CREATE TABLE card_boxes (
    box_id         TEXT COLLATE "C" PRIMARY KEY,
    project_id     TEXT COLLATE "C" NOT NULL,
    owner_agent_id TEXT COLLATE "C",
    next_place     BIGINT NOT NULL CHECK (next_place >= 0),
    created_ms     BIGINT NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE card_box_entries (
    box_id  TEXT COLLATE "C" NOT NULL,
    place   BIGINT NOT NULL CHECK (place >= 0),
    card_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (box_id, place),
    UNIQUE (box_id, card_id)
);

-- What an agent is doing: at most one turn at a time.
CREATE TABLE agent_state_head (
    project_id           TEXT COLLATE "C" NOT NULL,
    agent_id             TEXT COLLATE "C" NOT NULL,
    status               TEXT COLLATE "C" NOT NULL CHECK (status IN ('idle', 'dispatched', 'running', 'suspended')),
    worker_target        TEXT COLLATE "C" NOT NULL,
    -- Counts leases and forced ends of the agent, and never goes back.
    turn_epoch           BIGINT NOT NULL CHECK (turn_epoch >= 0),
    active_agent_turn_id TEXT COLLATE "C",
    active_inbox_id      TEXT COLLATE "C",
    seq                  BIGINT,
    channel_id           TEXT COLLATE "C",
    recursion_depth      BIGINT CHECK (recursion_depth >= 0),
    trace_id             TEXT COLLATE "C",
    parent_step_id       TEXT COLLATE "C",
    answers_tool_call_id TEXT COLLATE "C",
    profile_name         TEXT COLLATE "C",
    context_box_id       TEXT COLLATE "C",
    output_box_id        TEXT COLLATE "C",
    steps_taken          BIGINT NOT NULL CHECK (steps_taken >= 0),
    lost_leases          BIGINT NOT NULL CHECK (lost_leases >= 0),
    due_ms               BIGINT,
    -- The step that runs, or the one whose calls are awaited.
    active_step_id       TEXT COLLATE "C",
    lease_token          TEXT COLLATE "C",
    lease_holder         TEXT COLLATE "C",
    lease_until_ms       BIGINT,
    waiting_tool_count   BIGINT NOT NULL CHECK (waiting_tool_count >= 0),
    resume_deadline_ms   BIGINT,
    -- What its last turn wrote to: its memory.
    last_output_box_id   TEXT COLLATE "C",
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
) WITH (fillfactor = 50);
CREATE INDEX agent_state_head_dispatched ON agent_state_head (worker_target, due_ms, seq)
    WHERE status = 'dispatched';
CREATE INDEX agent_state_head_running ON agent_state_head (lease_until_ms) WHERE status = 'running';
CREATE INDEX agent_state_head_suspended ON agent_state_head (resume_deadline_ms)
    WHERE status = 'suspended';

-- What was asked of agents, in the order in which it came. A turn is its row of type turn.
CREATE TABLE agent_inbox (
    seq                  BIGINT PRIMARY KEY,
    inbox_id             TEXT COLLATE "C" NOT NULL UNIQUE,
    project_id           TEXT COLLATE "C" NOT NULL,
    agent_id             TEXT COLLATE "C" NOT NULL,
    channel_id           TEXT COLLATE "C" NOT NULL,
    message_type         TEXT COLLATE "C" NOT NULL CHECK (message_type IN
        ('turn', 'tool_result', 'timeout', 'stop', 'ui_action', 'command_anchor')),
    correlation_id       TEXT COLLATE "C" NOT NULL,
    agent_turn_id        TEXT COLLATE "C" NOT NULL,
    turn_epoch           BIGINT NOT NULL CHECK (turn_epoch >= 0),
    parent_agent_turn_id TEXT COLLATE "C",
    context_headers      TEXT COLLATE "C" NOT NULL,
    payload              TEXT COLLATE "C" NOT NULL,
    status               TEXT COLLATE "C" NOT NULL CHECK (status IN
        ('queued', 'pending', 'processing', 'deferred', 'consumed', 'error', 'skipped')),
    outcome              TEXT   CHECK (outcome IN ('success', 'failed', 'canceled', 'timeout', 'partial')),
    error_code           TEXT COLLATE "C",
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
    step_id           TEXT COLLATE "C" PRIMARY KEY,
    project_id        TEXT COLLATE "C" NOT NULL,
    agent_id          TEXT COLLATE "C" NOT NULL,
    agent_turn_id     TEXT COLLATE "C" NOT NULL,
    turn_epoch        BIGINT NOT NULL CHECK (turn_epoch > 0),
    number            BIGINT NOT NULL CHECK (number > 0),
    status            TEXT COLLATE "C" NOT NULL CHECK (status IN
        ('started', 'completed', 'suspended', 'failed', 'abandoned')),
    tool_call_ids     TEXT COLLATE "C" NOT NULL,
    error_code        TEXT COLLATE "C",
    prompt_tokens     BIGINT NOT NULL CHECK (prompt_tokens >= 0),
    completion_tokens BIGINT NOT NULL CHECK (completion_tokens >= 0),
    cost_micro_usd    BIGINT NOT NULL CHECK (cost_micro_usd >= 0),
    cost_unknown      BIGINT NOT NULL CHECK (cost_unknown IN (0, 1)),
    model             TEXT COLLATE "C",
    metadata          TEXT COLLATE "C" NOT NULL,
    started_ms        BIGINT NOT NULL,
    ended_ms          BIGINT,
    CHECK ((status = 'started') = (ended_ms IS NULL)),
    CHECK (cost_unknown = 0 OR cost_micro_usd = 0)
);
CREATE INDEX agent_steps_turn ON agent_steps (agent_turn_id, number);

-- Calls that a suspended turn waits for.
CREATE TABLE turn_waiting_tools (
    tool_call_id    TEXT COLLATE "C" PRIMARY KEY,
    project_id      TEXT COLLATE "C" NOT NULL,
    agent_id        TEXT COLLATE "C" NOT NULL,
    agent_turn_id   TEXT COLLATE "C" NOT NULL,
    turn_epoch      BIGINT NOT NULL,
    step_id         TEXT COLLATE "C" NOT NULL,
    tool_name       TEXT COLLATE "C" NOT NULL,
    after_execution TEXT COLLATE "C" NOT NULL CHECK (after_execution IN ('suspend', 'terminate')),
    -- Who runs it: whoever listens there; without one a worker, under the lease of its run.
    target_subject  TEXT COLLATE "C",
    run_token       TEXT COLLATE "C",
    run_until_ms    BIGINT,
    wait_status     TEXT COLLATE "C" NOT NULL CHECK (wait_status IN ('waiting', 'applied', 'dropped')),
    result_status   TEXT   CHECK (result_status IN ('success', 'failed', 'canceled', 'timeout', 'partial')),
    result_card_id  TEXT COLLATE "C",
    deadline_ms     BIGINT NOT NULL,
    created_ms      BIGINT NOT NULL,
    closed_ms       BIGINT,
    CHECK ((wait_status = 'applied') = (result_card_id IS NOT NULL)),
    CHECK ((wait_status = 'applied') = (result_status IS NOT NULL)),
    CHECK ((wait_status = 'waiting') = (closed_ms IS NULL)),
    CHECK ((wait_status = 'waiting' AND target_subject IS NULL) = (run_token IS NOT NULL)),
    CHECK ((run_token IS NULL) = (run_until_ms IS NULL))
);
CREATE INDEX turn_waiting_tools_step ON turn_waiting_tools (step_id);
CREATE INDEX turn_waiting_tools_due ON turn_waiting_tools (deadline_ms) WHERE wait_status = 'waiting';
CREATE INDEX turn_waiting_tools_runs ON turn_waiting_tools (tool_name, run_until_ms)
    WHERE run_until_ms IS NOT NULL;

-- Keys that all processes of this store share.
CREATE TABLE kernel_secrets (
    name       TEXT   PRIMARY KEY,
    secret     TEXT   NOT NULL,
    created_ms BIGINT NOT NULL
);

-- How far something that goes on for ever is.
CREATE TABLE kernel_places (
    name  TEXT   PRIMARY KEY,
    place BIGINT NOT NULL
);

-- Who asked whom, and who answered.
CREATE TABLE execution_edges (
    edge_id              TEXT COLLATE "C" NOT NULL,
    project_id           TEXT COLLATE "C" NOT NULL,
    channel_id           TEXT COLLATE "C" NOT NULL,
    primitive            TEXT COLLATE "C" NOT NULL CHECK (primitive IN ('enqueue', 'report', 'join', 'tool_call')),
    edge_phase           TEXT COLLATE "C" NOT NULL CHECK (edge_phase IN ('request', 'response')),
    source_agent_id      TEXT COLLATE "C",
    source_agent_turn_id TEXT COLLATE "C",
    source_step_id       TEXT COLLATE "C",
    target_agent_id      TEXT COLLATE "C",
    target_agent_turn_id TEXT COLLATE "C",
    correlation_id       TEXT COLLATE "C" NOT NULL,
    recursion_depth      BIGINT NOT NULL CHECK (recursion_depth >= 0),
    trace_id             TEXT COLLATE "C",
    metadata             TEXT COLLATE "C" NOT NULL,
    created_ms           BIGINT NOT NULL,
    PRIMARY KEY (edge_id),
    UNIQUE (project_id, correlation_id, primitive, edge_phase)
);
