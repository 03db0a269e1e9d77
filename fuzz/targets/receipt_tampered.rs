//! A good receipt with changes: it holds only if nothing is changed.
#![no_main]

use guild_fuzz::edits;
use guild_protocol::receipt::verify;
use libfuzzer_sys::fuzz_target;

static GOOD: &[u8] = include_bytes!("../../crates/guild-protocol/vectors/replay.receipt.json");

fuzz_target!(|data: &[u8]| {
    let changed = edits::edited(GOOD, data);
    let holds = verify(&changed).is_ok_and(|verification| verification.holds());
    assert_eq!(holds, changed == GOOD, "{}", String::from_utf8_lossy(&changed));
});
