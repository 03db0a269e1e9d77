//! Bundles of earlier systems: an import is a good replay, is marked as one, and goes back with every entry.
#![no_main]

use guild_protocol::replay::{Standing, bundle, verify};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

static RECEIPT: &[u8] = include_bytes!("../../crates/guild-protocol/vectors/replay.receipt.json");

fuzz_target!(|data: &[u8]| {
    let Ok(replay) = bundle::import(data) else { return };
    let report = verify(&replay, None).expect("an import is a replay");
    assert_eq!(report.standing, Standing::Imported, "{report}");
    let signed = verify(&replay, Some(RECEIPT));
    assert!(!signed.is_ok_and(|report| report.is_verified()), "an import is no evidence");

    let exported = bundle::export(&replay).expect("an import can be exported");
    assert_eq!(entries(&exported), entries(data), "every entry goes back");
    let again = bundle::import(&exported).expect("what is exported can be imported");
    assert_eq!(verify(&again, None).map(|report| report.standing), Ok(Standing::Imported));
});

/// The type of every entry of the timeline, with its moment.
fn entries(bundle: &[u8]) -> Vec<(Option<i64>, Option<String>)> {
    let bundle: Value = serde_json::from_slice(bundle).expect("a bundle is JSON");
    let timeline = bundle["timeline"].as_array().cloned().unwrap_or_default();
    let entry = |entry: &Value| (entry["t"].as_i64(), entry["type"].as_str().map(str::to_owned));
    timeline.iter().map(entry).collect()
}
