//! One good request and one good result for each built-in schema, with every optional field present, so that the
//! corruption test reaches all of them.

use guild_protocol::schema::SchemaId;
use serde_json::{Value, json};

use super::{NPUB, id};

const HASH: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Schema, request, result.
pub(super) fn all() -> Vec<(SchemaId, Value, Value)> {
    vec![benchmark(), chunk(), rerank(), sandbox(), embedding()]
}

pub(super) fn output(schema: &SchemaId) -> Value {
    all().into_iter().find(|(id, ..)| id == schema).unwrap().2
}

fn verification() -> Value {
    json!({"mode": "subjective", "redundancy": 3, "adjudication": "judge_model", "judge_model": "j"})
}

fn provenance() -> Value {
    json!({"model": "m", "provider_id": NPUB, "token_counts": {"input": 1, "output": 2},
        "sampling_params": {"temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 7, "max_tokens": 9,
            "stop": ["."]},
        "input_sha256": HASH, "output_sha256": HASH, "executed_at": 1_700_000_000, "duration_ms": 12})
}

fn benchmark() -> (SchemaId, Value, Value) {
    let request = json!({
        "benchmark_id": "std-v3", "modules": ["io"], "language": "python3", "entry": "solution.py",
        "functions": [{"module": "io", "name": "encode", "arguments": "text", "text": "Encode it.",
            "settings": {"first": true}, "examples": [{"args": ["a"], "gives": "a1"}]}],
        "commitment": HASH, "answer": "A JSON object."});
    let result = json!({"files": {"solution.py": "x = 1"}, "provenance": provenance()});
    (id("guild.benchmark.v1"), request, result)
}

fn chunk() -> (SchemaId, Value, Value) {
    let request = json!({
        "task": "Find the bug", "user_task": "Make it work",
        "chunk": {"path": "src/lib.rs", "start_line": 1, "end_line": 10, "content": "fn main() {}",
            "language": "rust"},
        "output_constraints": {"max_summary_length": 100, "max_symbols": 1, "max_faults": 2,
            "max_next_probes": 3},
        "verification": verification()});
    let result = json!({
        "summary": "An entry point.",
        "symbols": [{"name": "main", "kind": "function", "line": 1, "description": "starts"}],
        "suspected_faults": [{"line": 1, "severity": "low", "description": "empty", "suggestion": "fill"}],
        "recommended_next_probes": [{"path": "src/a.rs", "reason": "used", "priority": "high"}],
        "confidence": 0.25, "provenance": provenance()});
    (id("oa.code_chunk_analysis.v1"), request, result)
}

fn rerank() -> (SchemaId, Value, Value) {
    let request = json!({
        "user_task": "Find auth code",
        "candidates": [{"id": "1", "content": "login()", "path": "a.rs", "original_score": 0.5,
            "metadata": {"lang": "rust"}}],
        "k": 5, "ranking_rubric": "exactness", "verification": verification()});
    let result = json!({"topk": [{"rank": 1, "id": "1", "score": 0.75, "why": "logs in"}],
        "provenance": provenance()});
    (id("oa.retrieval_rerank.v1"), request, result)
}

fn sandbox() -> (SchemaId, Value, Value) {
    let request = json!({
        "sandbox": {"provider": "docker", "image_digest": HASH, "network_policy": "localhost",
            "resources": {"memory_mb": 1024, "cpus": 1.5, "timeout_secs": 120, "disk_mb": 500}},
        "repo": {"source": "https://example.org/r", "git_ref": "main", "mount_path": "/w"},
        "commands": [{"cmd": "cargo test", "workdir": "crates", "continue_on_fail": true}],
        "env": {"RUST_LOG": "debug"}, "verification": verification()});
    let result = json!({
        "env_info": {"image_digest": HASH, "hostname": "box", "system_info": "Linux"},
        "runs": [{"cmd": "cargo test", "exit_code": 0, "duration_ms": 5, "stdout_sha256": HASH,
            "stderr_sha256": HASH, "stdout_preview": "ok", "stderr_preview": ""}],
        "artifacts": [{"path": "target/app", "sha256": HASH, "size_bytes": 0, "mime_type": "text/plain"}],
        "status": "success", "error": "none", "provenance": provenance()});
    (id("oa.sandbox_run.v1"), request, result)
}

fn embedding() -> (SchemaId, Value, Value) {
    let request = json!({"texts": ["Hello", "World"], "model_hint": "small", "dimensions": 2,
        "verification": verification()});
    let result = json!({"embeddings": [[0.5, 1], [0, -1.5]], "model_id": "small", "dimensions": 2,
        "provenance": provenance()});
    (id("oa.embedding.v1"), request, result)
}
