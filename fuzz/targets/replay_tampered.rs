//! A good replay with changes: its receipt signs for it only if nothing is changed.
#![no_main]

use guild_fuzz::edits;
use guild_protocol::replay::{SessionStatus, Standing, repair, verify};
use libfuzzer_sys::fuzz_target;

static GOOD: &[u8] = include_bytes!("../../crates/guild-protocol/vectors/replay.jsonl");
static RECEIPT: &[u8] = include_bytes!("../../crates/guild-protocol/vectors/replay.receipt.json");

fuzz_target!(|data: &[u8]| {
    let changed = edits::edited(GOOD, data);
    let verified = verify(&changed, Some(RECEIPT)).is_ok_and(|report| report.is_verified());
    assert_eq!(verified, changed == GOOD, "{}", String::from_utf8_lossy(&changed));

    let Ok(repaired) = repair(&changed, SessionStatus::Failed) else { return };
    let kept = changed.len() - repaired.dropped_bytes;
    assert_eq!(repaired.bytes.get(..kept), changed.get(..kept), "whole lines stay as they were");
    let report = verify(&repaired.bytes, None).expect("a repaired file is a replay");
    assert_eq!(report.standing, Standing::Repaired, "{report}");
});
