//! Replays: a sealed one is whole to the last byte, and a repaired one never passes as evidence.
#![no_main]

use guild_protocol::hash::Hash;
use guild_protocol::json::{self, Doc};
use guild_protocol::replay::{
    SessionStatus, Standing, bundle, chain_next, chain_start, repair, verify,
};
use guild_protocol::wire::{canonical_without, text_at};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

static GOOD: &[u8] = include_bytes!("../../crates/guild-protocol/vectors/replay.jsonl");
static RECEIPT: &[u8] = include_bytes!("../../crates/guild-protocol/vectors/replay.receipt.json");

fuzz_target!(|data: &[u8]| {
    check(data);
    if let Some(sealed) = sealed(data) {
        check(&sealed);
    }
});

fn check(file: &[u8]) {
    let verified = verify(file, Some(RECEIPT)).is_ok_and(|report| report.is_verified());
    assert_eq!(verified, file == GOOD, "a receipt signs for one file");
    check_repair(file);
    let Ok(report) = verify(file, None) else { return };
    assert_ne!(report.standing, Standing::Verified, "nobody signed for it");
    if report.standing == Standing::Sealed {
        assert_eq!(report.trajectory_hash, Some(chain_of(file)), "the seal is that of the lines");
        let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
        let cut = lines.split_last().map(|(_, kept)| kept.concat()).unwrap_or_default();
        assert!(repair(&cut, SessionStatus::Failed).is_ok(), "a file without its end is repaired");
    }
    if let Ok(bundle) = bundle::export(file) {
        assert_ne!(report.standing, Standing::Refused, "what breaks a rule is not exported");
        assert!(Doc::parse(&bundle).is_ok(), "what is exported can be read");
    }
}

fn check_repair(file: &[u8]) {
    let Ok(repaired) = repair(file, SessionStatus::Failed) else { return };
    let report = verify(&repaired.bytes, None).expect("a repaired file is a replay");
    assert_eq!(report.standing, Standing::Repaired, "{report}");
    let signed = verify(&repaired.bytes, Some(RECEIPT));
    assert!(!signed.is_ok_and(|report| report.is_verified()), "a repaired file is no evidence");
    assert!(repair(&repaired.bytes, SessionStatus::Failed).is_err(), "nothing is left to repair");
}

/// The end of the chain, by another way than the checker's.
fn chain_of(file: &[u8]) -> Hash {
    let lines = file.strip_suffix(b"\n").expect("the last line is whole").split(|b| *b == b'\n');
    lines.fold(chain_start(), |former, line| {
        let doc = Doc::parse(line).expect("every line is JSON");
        assert_eq!(doc.to_canonical(), line, "every line is canonical");
        let chain = chain_next(&former, &canonical_without(&doc, &["chain", "trajectory_hash"]));
        assert_eq!(text_at(&doc, "chain"), Some(chain.to_string().as_str()));
        chain
    })
}

/// The fuzzer's lines with the chain and the seal that it would not find.
fn sealed(lines: &[u8]) -> Option<Vec<u8>> {
    let mut chain = chain_start();
    let mut file = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let mut members: Map<String, Value> = serde_json::from_slice(line).ok()?;
        members.remove("chain");
        members.remove("trajectory_hash");
        chain = chain_next(&chain, &json::to_canonical(&members).ok()?);
        if members.get("event").is_some_and(|event| event == "SessionEnd") {
            members.insert("trajectory_hash".to_owned(), chain.to_string().into());
        }
        members.insert("chain".to_owned(), chain.to_string().into());
        file.extend(json::to_canonical(&members).ok()?);
        file.push(b'\n');
    }
    Some(file)
}
