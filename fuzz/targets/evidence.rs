//! Evidence: any bytes are judged, and of a history that holds no line can be missing or stand twice.
#![no_main]

use guild_ledger::evidence::{Calls, Checker, Events, MAX_PROBLEMS, Part, Receipts, Report};
use guild_protocol::hash::{Hash, Hasher};
use guild_protocol::json;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    // A ledger, what was asked, events and a receipt, with a NUL between.
    let mut parts = data.split(|byte| *byte == 0);
    let ledger = lines(parts.next().unwrap_or_default());
    let others: Vec<&[u8]> = parts.collect();
    check(&judged(&ledger, &others));
    let sealed = sealed(&ledger);
    let report = judged(&sealed, &[]);
    check(&report);
    if report.holds() {
        assert!(report.records > 0 || report.heads == 0);
        for i in 0..sealed.len() {
            let mut without = sealed.clone();
            let line = without.remove(i);
            assert!(!judged(&without, &[]).holds(), "line {i} is not missed");
            without.insert(i, line.clone());
            without.insert(i, line);
            assert!(!judged(&without, &[]).holds(), "line {i} stands twice");
        }
    }
});

/// With their line feeds.
fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn judged(ledger: &[Vec<u8>], others: &[&[u8]]) -> Report {
    let mut checker = Checker::new();
    if let Some(text) = others.first() {
        let mut calls = Calls::new();
        lines(text).iter().for_each(|line| calls.line(line));
        checker = checker.with_calls(calls);
    }
    let (mut events, mut receipts) = (Events::new(), Receipts::new());
    lines(others.get(1).unwrap_or(&&b""[..])).iter().for_each(|line| events.line(line));
    others.iter().skip(2).for_each(|receipt| receipts.file("a.json", receipt));
    checker = checker.with_events(events).with_receipts(receipts);
    ledger.iter().for_each(|line| checker.line(line));
    checker.finish()
}

fn check(report: &Report) {
    let parts = [Part::Ledger, Part::Calls, Part::Receipts, Part::Events];
    let found: u64 = parts.into_iter().map(|part| report.found_in(part)).sum();
    assert_eq!(report.holds(), found == 0);
    assert_eq!(report.holds(), report.problems.is_empty());
    assert!(report.problems.len() <= MAX_PROBLEMS);
    let kept = u64::try_from(report.problems.len()).expect("a hundred fit");
    assert_eq!(report.problems_left_out(), found - kept);
    for problem in &report.problems {
        let shown = problem.to_string();
        assert_eq!(shown.lines().count(), 1, "a problem is one line: {shown:?}");
    }
}

/// The fuzzer's lines with the hashes that it would not find: every head is that of the records before it.
fn sealed(ledger: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut head = Hash::from_bytes([0; 32]);
    let mut hasher = after(&head);
    let mut sealed = Vec::with_capacity(ledger.len());
    for line in ledger {
        let mut value: Value = serde_json::from_slice(line).unwrap_or_default();
        match value.get("record").and_then(Value::as_str) {
            Some("head") => {
                head = std::mem::replace(&mut hasher, Hasher::new()).finish();
                hasher = after(&head);
                value["hash"] = head.to_string().into();
            }
            Some("end") => value["head"] = head.to_string().into(),
            Some("account" | "rule" | "transfer") => hasher.update(line),
            _ => {}
        }
        let hashed = matches!(value["record"].as_str(), Some("head" | "end"));
        let canonical = hashed.then(|| json::to_canonical(&value).ok()).flatten();
        sealed.push(canonical.map_or_else(
            || line.clone(),
            |mut line| {
                line.push(b'\n');
                line
            },
        ));
    }
    sealed
}

fn after(head: &Hash) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.update(head.as_bytes());
    hasher
}
