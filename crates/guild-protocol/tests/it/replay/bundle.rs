use guild_protocol::hash::Hash;
use guild_protocol::receipt::Draft;
use guild_protocol::replay::{self, Standing, bundle};
use serde_json::{Value, json};

use super::good;

fn old_bundle() -> Value {
    json!({
        "version": "1.0", "id": "replay_session-7", "created_at": "2026-01-15T08:30:00Z",
        "metadata": {"duration_seconds": 3, "playback_speed": 2.5, "demo_duration_seconds": 1, "model": "m"},
        "timeline": [
            {"t": 0, "type": "phase_start", "data": {"phase": "plan"}},
            {"t": 10, "type": "tool_call", "tool": "Read", "data": {"path": "a"}},
            {"t": 11, "type": "tool_call", "tool": "Edit", "data": {"path": "b"}},
            {"t": 20, "type": "tool_result", "tool": "Edit", "data": "done"},
            {"t": 25, "type": "tool_result", "tool": "Read", "data": {"lines": 3}},
            {"t": 30, "type": "assistant", "data": {"text": "hello"}},
        ],
        "receipts": {"ci_status": "success", "files_changed": 1, "lines_added": 0, "lines_removed": 0},
    })
}

#[test]
fn an_old_bundle_becomes_a_replay_that_is_no_evidence() {
    let file = bundle::import(old_bundle().to_string().as_bytes()).unwrap();
    let report = replay::verify(&file, None).unwrap();
    assert_eq!(report.standing, Standing::Imported, "{report}");
    assert_eq!(report.policy_bundle_id.as_deref(), Some("unknown"));
    // Even a receipt made for it does not turn it into evidence.
    let own = Draft {
        trajectory_hash: report.trajectory_hash.unwrap(),
        policy_bundle_id: bundle::UNKNOWN_POLICY.to_owned(),
        ..crate::receipt::draft()
    };
    let own = own.sign(&crate::receipt::buyer()).unwrap();
    let signed_for = replay::verify(&file, Some(own.as_bytes())).unwrap();
    assert_eq!(signed_for.standing, Standing::Imported, "{signed_for}");
    let lines: Vec<Value> =
        file.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect();
    let paired: Vec<_> = lines
        .iter()
        .filter(|l| l["event"] == "ToolResult")
        .map(|l| {
            (
                l["id"].as_str().unwrap(),
                l["output_encoding"].as_str().unwrap(),
                l["latency_ms"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(paired, [("call_000002", "raw", 9), ("call_000001", "json", 15)]);
    assert_eq!(lines[5]["output_hash"], Hash::of(b"done").to_string());

    // Back again: everything but the outputs, of which a replay keeps only hashes.
    let back: Value = serde_json::from_slice(&bundle::export(&file).unwrap()).unwrap();
    let mut expected = old_bundle();
    expected["created_at"] = "2026-01-15T08:30:00.000Z".into();
    for place in [3, 4] {
        expected["timeline"][place]["data"] = back["timeline"][place]["data"].clone();
    }
    assert_eq!(back, expected);
}

#[test]
fn bundles_with_errors_are_refused() {
    for (pointer, value, place) in [
        ("/version", json!("2.0"), "version"),
        ("/created_at", json!("yesterday"), "created_at"),
        ("/timeline/1/t", json!(i64::MAX / 2048), "timeline[1].t"),
        ("/timeline/2/t", json!(-4), "timeline[2].t"),
        ("/timeline", json!({}), "timeline"),
    ] {
        let mut bundle = old_bundle();
        *bundle.pointer_mut(pointer).unwrap() = value;
        let error = bundle::import(bundle.to_string().as_bytes()).unwrap_err();
        assert_eq!(error.place(), Some(place), "{error}");
    }
}

#[test]
fn an_entry_of_any_type_goes_back() {
    let mut old = old_bundle();
    old["timeline"][5]["type"] = json!("metadata");
    let replay = bundle::import(old.to_string().as_bytes()).unwrap();
    let exported: Value = serde_json::from_slice(&bundle::export(&replay).unwrap()).unwrap();
    assert_eq!(exported["timeline"][5], old["timeline"][5]);
    assert_eq!(exported["metadata"], old["metadata"]);
}

#[test]
fn a_replay_of_ours_exports_to_a_bundle() {
    let (file, _) = good();
    let exported: Value = serde_json::from_slice(&bundle::export(&file).unwrap()).unwrap();
    let types: Vec<_> = exported["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["phase_start", "tool_call", "tool_result", "phase_end"]);
    assert_eq!(exported["id"], "replay_session-7");
    assert_eq!(exported["receipts"]["tests_passed"], 2);
    assert!(bundle::export(&file[..file.len() - 5]).is_err());
}
