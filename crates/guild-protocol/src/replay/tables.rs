//! The fields of every event.

use crate::wire::{Field, Shape, Type, field};

const CHAIN: Field = field("chain", Shape::Text).or_absent();
const EVENT: Field = field("event", Shape::Text);
const T: Field = field("t", Shape::Text);

/// The events of version 1, each with its fields; the part of the name behind the slash is the event's.
pub static WIRE: [Type; 10] = [
    Type {
        schema_version: "guild.replay.v1/Payment",
        fields: &[
            field("amount", Shape::Object).or_absent_abroad(),
            field("amount.asset_id", Shape::Text),
            field("amount.units", Shape::Integer),
            field("amount_msats", Shape::Integer).or_absent(),
            field("asset_id", Shape::Text),
            CHAIN,
            EVENT,
            field("job_hash", Shape::Text).or_null(),
            field("payment_proof", Shape::Any),
            field("rail", Shape::Text),
            field("status", Shape::Text).or_absent_abroad(),
            T,
        ],
    },
    Type {
        schema_version: "guild.replay.v1/PlanStart",
        fields: &[
            CHAIN,
            EVENT,
            field("plan_hash", Shape::Text),
            field("step_count", Shape::Integer),
            T,
        ],
    },
    Type {
        schema_version: "guild.replay.v1/ReplayHeader",
        fields: &[
            CHAIN,
            field("created_at", Shape::Text),
            EVENT,
            field("imported", Shape::Bool).or_absent(),
            field("imported_from", Shape::Text).or_absent(),
            field("producer", Shape::Text),
            field("replay_version", Shape::Integer),
        ],
    },
    Type {
        schema_version: "guild.replay.v1/RuntimeEvent",
        fields: &[
            CHAIN,
            EVENT,
            field("idempotency_key", Shape::Text).or_null(),
            field("payload", Shape::Any),
            field("payload_hash", Shape::Text),
            field("runtime_event_type", Shape::Text),
            field("seq", Shape::Integer),
            field("session_id", Shape::Text),
            T,
        ],
    },
    Type {
        schema_version: "guild.replay.v1/SessionEnd",
        fields: &[
            CHAIN,
            field("confidence", Shape::Number),
            EVENT,
            field("repaired", Shape::Bool).or_absent(),
            field("status", Shape::Text),
            T,
            field("total_latency_ms", Shape::Integer),
            field("total_tool_calls", Shape::Integer),
            field("trajectory_hash", Shape::Text).or_absent(),
            field("trajectory_hash_alg", Shape::Text).or_absent_abroad(),
        ],
    },
    Type {
        schema_version: "guild.replay.v1/SessionStart",
        fields: &[
            CHAIN,
            EVENT,
            field("issue_number", Shape::Integer).or_null(),
            field("policy_bundle_id", Shape::Text),
            field("session_id", Shape::Text),
            T,
        ],
    },
    Type {
        schema_version: "guild.replay.v1/StepComplete",
        fields: &[
            CHAIN,
            EVENT,
            field("iterations", Shape::Integer),
            field("status", Shape::Text),
            field("step_id", Shape::Text),
            T,
        ],
    },
    Type {
        schema_version: "guild.replay.v1/ToolCall",
        fields: &[
            CHAIN,
            EVENT,
            field("id", Shape::Text),
            field("params", Shape::Any),
            field("params_hash", Shape::Text),
            field("step_id", Shape::Text),
            T,
            field("tool", Shape::Text),
        ],
    },
    Type {
        schema_version: "guild.replay.v1/ToolResult",
        fields: &[
            CHAIN,
            EVENT,
            field("exit_code", Shape::Integer).or_null(),
            field("id", Shape::Text),
            field("latency_ms", Shape::Integer),
            field("output_encoding", Shape::Text).or_absent_abroad(),
            field("output_hash", Shape::Text),
            field("step_utility", Shape::Number),
            T,
        ],
    },
    Type {
        schema_version: "guild.replay.v1/Verification",
        fields: &[
            CHAIN,
            field("commands", Shape::Texts),
            EVENT,
            field("exit_codes", Shape::Integers),
            T,
            field("verification_delta", Shape::Integer),
        ],
    },
];

/// The fields of the event with this name.
pub(super) fn of(event: &str) -> Option<&'static Type> {
    let name =
        |wire: &&Type| wire.schema_version.rsplit_once('/').is_some_and(|(_, name)| name == event);
    WIRE.iter().find(name)
}
