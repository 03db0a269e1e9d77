#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use guild_protocol::amount::Msat;
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::receipt::{Draft, Proof, Rail, Status};
use guild_protocol::replay::{
    self, Event, Output, SessionStatus, Standing, Start, StepStatus, Writer, code,
};
use guild_protocol::tamper;
use guild_protocol::timestamp::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

mod bundle;
mod repair;
mod resealed;

const START_MS: i64 = 1_768_465_800_000;

fn t(ms: i64) -> Timestamp {
    Timestamp::from_ms(START_MS + ms).unwrap()
}

fn start() -> Start {
    Start {
        producer: "guild@0.1.0".to_owned(),
        t: t(0),
        session_id: "session-7".to_owned(),
        issue_number: Some(42),
        policy_bundle_id: "policy.default".to_owned(),
    }
}

fn call(id: &str) -> Event {
    Event::ToolCall {
        id: id.to_owned(),
        tool: "file_read".to_owned(),
        params: json!({ "path": "src/lib.rs", "lines": [1, 20] }),
        step_id: "step-1".to_owned(),
    }
}

fn result(id: &str) -> Event {
    Event::ToolResult {
        id: id.to_owned(),
        output: Output::Raw(b"fn main() {}\n".to_vec()),
        exit_code: None,
        step_utility: 0.8,
        latency_ms: 45,
    }
}

fn events() -> Vec<Event> {
    vec![
        Event::PlanStart { plan_hash: Hash::of(b"plan"), step_count: 1 },
        call("tc_001"),
        result("tc_001"),
        Event::StepComplete {
            step_id: "step-1".to_owned(),
            status: StepStatus::Success,
            iterations: 1,
        },
        Event::Verification {
            runs: vec![("cargo check".to_owned(), 0), ("cargo test".to_owned(), 0)],
            verification_delta: 3,
        },
        Event::Payment {
            rail: Rail::Ledger,
            amount: Msat(2_500).into(),
            payment_proof: Some(Proof::LedgerTransfer {
                transfer_id: "transfer-3".to_owned(),
                ledger_head: Hash::of(b"head"),
            }),
            job_hash: Some(Hash::of(b"job")),
            status: Status::Released,
        },
        Event::RuntimeEvent {
            seq: 9,
            runtime_event_type: "worker.stopped".to_owned(),
            payload: json!({ "reason": "done" }),
            idempotency_key: None,
        },
    ]
}

/// A whole replay and its seal.
fn write(events: &[Event]) -> (Vec<u8>, Hash) {
    let (mut writer, mut file) = Writer::start(&start()).unwrap();
    for (number, event) in events.iter().enumerate() {
        file.extend(writer.push(t(10 * i64::try_from(number).unwrap()), event).unwrap());
    }
    let end = writer.finish(t(1_000), SessionStatus::Success, 0.92).unwrap();
    file.extend(end.line);
    (file, end.trajectory_hash)
}

fn receipt_for(trajectory_hash: Hash) -> Vec<u8> {
    let draft = Draft { trajectory_hash, ..super::receipt::draft() };
    draft.sign(&super::receipt::buyer()).unwrap().as_bytes().to_vec()
}

fn good() -> (Vec<u8>, Vec<u8>) {
    let (file, seal) = write(&events());
    (file, receipt_for(seal))
}

/// What the verifier says of the good replay with one text replaced.
fn said_of(from: &str, to: &str) -> String {
    let (file, receipt) = good();
    let text = String::from_utf8(file).unwrap();
    assert!(text.contains(from), "{from}");
    match replay::explain(text.replacen(from, to, 1).as_bytes(), Some(&receipt)) {
        Ok(report) => report.to_string(),
        Err(error) => format!("cannot be read: {error} [{}]", error.code().name),
    }
}

#[test]
fn a_written_replay_verifies_with_its_receipt() {
    let (file, receipt) = good();
    let report = replay::verify(&file, Some(&receipt)).unwrap();
    assert!(report.is_verified());
    assert_eq!((report.lines, report.tool_calls), (10, 1));
    assert_eq!(report.signed_by, Some(super::receipt::buyer().public_key()));
    insta::assert_snapshot!(report, @r#"
    verified: sealed, and signed for by its receipt
    ok      lines            every line is JSON of its form
    ok      fields           every event has its fields
    ok      order            calls, results and totals add up
    ok      hashes           the stated hashes are those of the content
    ok      chain            every line continues the chain up to the seal
    ok      receipt          the receipt holds
    ok      trajectory_hash  the seal is the one the receipt names
    ok      session_id       of one session
    ok      policy_bundle_id under one policy
    ok      origin           not marked as repaired or imported
    "#);
    let alone = replay::verify(&file, None).unwrap();
    assert_eq!(alone.standing, Standing::Sealed);
    assert!(!alone.is_verified() && alone.checks.holds());
    assert_eq!(alone.signed_by, None);
}

#[test]
fn the_receipt_of_another_session_does_not_fit() {
    let (file, seal) = write(&events());
    let other = |draft: Draft| {
        let receipt = draft.sign(&super::receipt::buyer()).unwrap();
        let report = replay::verify(&file, Some(receipt.as_bytes())).unwrap();
        assert_eq!((report.standing, report.signed_by), (Standing::Refused, None));
        report
            .checks
            .problems()
            .map(|p| (p.code.name, p.field.clone().unwrap()))
            .collect::<Vec<_>>()
    };
    let fits = || Draft { trajectory_hash: seal, ..super::receipt::draft() };
    let mismatch = |field: &str| vec![(code::RECEIPT.name, field.to_owned())];
    assert_eq!(other(super::receipt::draft()), mismatch("trajectory_hash"));
    assert_eq!(other(Draft { session_id: "x".into(), ..fits() }), mismatch("session_id"));
    assert_eq!(
        other(Draft { policy_bundle_id: "x".into(), ..fits() }),
        mismatch("policy_bundle_id")
    );
}

#[test]
fn typical_changes_are_named_by_line_and_field() {
    insta::assert_snapshot!(said_of("src/lib.rs", "src/lib.rt"), @r#"
    refused
    ok      lines            every line is JSON of its form
    ok      fields           every event has its fields
    ok      order            calls, results and totals add up
    FAILED  hashes           line 4, params: does not have the hash in params_hash [replay.hash_mismatch]
    FAILED  chain            line 4, params.path: was changed after it was written [replay.chain_broken]
    ok      receipt          the receipt holds
    ok      trajectory_hash  the seal is the one the receipt names
    ok      session_id       of one session
    ok      policy_bundle_id under one policy
    ok      origin           not marked as repaired or imported
    "#);
    insta::assert_snapshot!(said_of(r#""latency_ms":45"#, r#""latency_ms":15"#), @r#"
    refused
    ok      lines            every line is JSON of its form
    ok      fields           every event has its fields
    FAILED  order            line 10, total_latency_ms: is 45, but the lines add up to 15 [replay.totals]
    ok      hashes           the stated hashes are those of the content
    FAILED  chain            line 5, latency_ms: was changed after it was written [replay.chain_broken]
    ok      receipt          the receipt holds
    ok      trajectory_hash  the seal is the one the receipt names
    ok      session_id       of one session
    ok      policy_bundle_id under one policy
    ok      origin           not marked as repaired or imported
    "#);
    insta::assert_snapshot!(said_of(r#""status":"Success","step_id""#, r#""status":"Skipped","step_id""#), @r#"
    refused
    ok      lines            every line is JSON of its form
    ok      fields           every event has its fields
    ok      order            calls, results and totals add up
    ok      hashes           the stated hashes are those of the content
    FAILED  chain            line 6: was changed in more than one byte, or lines were added or removed [replay.chain_broken]
    ok      receipt          the receipt holds
    ok      trajectory_hash  the seal is the one the receipt names
    ok      session_id       of one session
    ok      policy_bundle_id under one policy
    ok      origin           not marked as repaired or imported
    "#);
    insta::assert_snapshot!(said_of(r#""replay_version":1"#, r#""replay_version":2"#), @r#"cannot be read: line 1, replay_version: must be 1 [replay.unknown_version]"#);
    let (file, _) = good();
    let text = String::from_utf8(file).unwrap();
    let third = text.lines().nth(2).unwrap();
    insta::assert_snapshot!(said_of(&format!("{third}\n"), ""), @r#"
    refused
    ok      lines            every line is JSON of its form
    ok      fields           every event has its fields
    ok      order            calls, results and totals add up
    ok      hashes           the stated hashes are those of the content
    FAILED  chain            line 3: was changed in more than one byte, or lines were added or removed [replay.chain_broken]
    ok      receipt          the receipt holds
    ok      trajectory_hash  the seal is the one the receipt names
    ok      session_id       of one session
    ok      policy_bundle_id under one policy
    ok      origin           not marked as repaired or imported
    "#);
    let link = &third[10..40];
    insta::assert_snapshot!(said_of(link, &link.replace(&link[20..21], "f")), @r#"
    refused
    ok      lines            every line is JSON of its form
    ok      fields           every event has its fields
    ok      order            calls, results and totals add up
    ok      hashes           the stated hashes are those of the content
    FAILED  chain            line 3, chain: was changed: the lines around it fit without it [replay.chain_broken]
    ok      receipt          the receipt holds
    ok      trajectory_hash  the seal is the one the receipt names
    ok      session_id       of one session
    ok      policy_bundle_id under one policy
    ok      origin           not marked as repaired or imported
    "#);
}

fn leaf_at(leaves: &[tamper::Leaf], text: &[u8], offset: usize) -> Option<String> {
    let inside = |leaf: &&tamper::Leaf| {
        let quoted = text[leaf.span.start] == b'"';
        let border = offset == leaf.span.start || offset + 1 == leaf.span.end;
        leaf.span.contains(&offset) && !(quoted && border)
    };
    leaves.iter().find(inside).map(|leaf| leaf.path.clone())
}

#[test]
fn every_change_of_every_byte_is_refused_and_line_and_field_are_named() {
    let (good, receipt) = good();
    let mut changed = good.clone();
    let (mut line, mut line_start, mut searched) = (1, 0, 0);
    let mut text = good.split_inclusive(|b| *b == b'\n').next().unwrap();
    for offset in 0..good.len() {
        if offset >= line_start + text.len() {
            line_start += text.len();
            text = good[line_start..].split_inclusive(|b| *b == b'\n').next().unwrap();
            line += 1;
        }
        let leaves = tamper::leaves(text);
        let path = leaf_at(&leaves, text, offset - line_start);
        for replacement in [good[offset] ^ 1, b'0', b'z', b'"', b'\\', b'\n', 0xff] {
            if replacement == good[offset] {
                continue;
            }
            changed[offset] = replacement;
            let place = format!("byte {offset}, line {line}, {path:?} as {replacement}");
            // The chain alone refuses it; that the receipt adds to it is seen once for each byte.
            let receipt = (replacement == good[offset] ^ 1).then_some(&receipt[..]);
            let report = match replay::verify(&changed, receipt) {
                Ok(report) => report,
                Err(error) => {
                    assert!(
                        error.place().unwrap_or_default().starts_with("line 1"),
                        "{place}: {error}"
                    );
                    assert_eq!(line, 1, "{place}: {error}");
                    continue;
                }
            };
            assert_eq!(report.standing, Standing::Refused, "{place}");
            assert!(report.checks.problems().any(|p| p.line == Some(line)), "{place}: {report}");
            let Some(path) = &path else { continue };
            let names = |report: &replay::Report| {
                report
                    .checks
                    .problems()
                    .any(|p| p.line == Some(line) && p.field.as_ref() == Some(path))
            };
            if !names(&report) {
                // Only the chain shows it. Searching takes its time, so not all of them are.
                searched += 1;
                if searched % 32 == 0 {
                    let explained = replay::explain(&changed, None).unwrap();
                    assert!(names(&explained), "{place}: {explained}");
                }
            }
        }
        changed[offset] = good[offset];
    }
    assert!(searched > 500, "{searched}");
}

#[test]
fn a_rewritten_chain_is_caught_by_the_receipt() {
    let (_, receipt) = good();
    let mut other = events();
    other[1] = call("tc_001");
    if let Event::ToolCall { params, .. } = &mut other[1] {
        params["path"] = "/etc/passwd".into();
    }
    let (forged, _) = write(&other);
    assert_eq!(replay::verify(&forged, None).unwrap().standing, Standing::Sealed);
    let report = replay::verify(&forged, Some(&receipt)).unwrap();
    let problems: Vec<_> = report.checks.problems().map(|p| p.code.name).collect();
    assert_eq!(problems, [code::RECEIPT.name]);
}

/// A replay as another system might write it: event first, seconds, lower-case status, no nulls, no chain.
fn foreign(lines: &[Value]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{line}\r\n").into_bytes()).collect()
}

fn foreign_lines() -> Vec<Value> {
    let params = json!({ "scale": 1.0 });
    vec![
        json!({"event": "ReplayHeader", "replay_version": 1, "producer": "adjutant@1.2.3", "created_at": "2026-01-15T08:30:00Z"}),
        json!({"event": "SessionStart", "session_id": "s", "policy_bundle_id": "p", "t": "2026-01-15T08:30:00Z", "mood": "good"}),
        json!({"event": "ToolCall", "id": "a", "tool": "x", "params": params, "step_id": "a", "t": "2026-01-15T09:30:00.123456+01:00",
            "params_hash": guild_protocol::json::legacy::hash_text(br#"{"scale":1.0}"#).unwrap()}),
        json!({"event": "ToolResult", "id": "a", "output_hash": "ab".repeat(32), "step_utility": 0, "latency_ms": 5, "t": "2026-01-15T08:31:00Z"}),
        json!({"event": "Weather", "t": "2026-01-15T08:31:00Z"}),
        json!({"event": "SessionEnd", "status": "success", "confidence": 1, "total_tool_calls": 1, "total_latency_ms": 5, "t": "2026-01-15T08:31:00Z"}),
    ]
}

#[test]
fn foreign_files_are_valid_but_never_verified() {
    let file = foreign(&foreign_lines());
    let report = replay::verify(&file, None).unwrap();
    insta::assert_snapshot!(report, @r#"
    valid but not sealed: it proves nothing
    ok      lines            every line is JSON of its form
    ok      fields           every event has its fields
    ok      order            calls, results and totals add up
    ok      hashes           the stated hashes are those of the content
    ok      origin           not marked as repaired or imported
    "#);
    assert!(!report.is_verified());
    let with_receipt = replay::verify(&file, Some(&good().1)).unwrap();
    assert_eq!(with_receipt.standing, Standing::Refused);
    assert!(with_receipt.checks.problems().any(|p| p.code == &code::UNSEALED));
}

#[test]
fn every_rule_of_order_is_kept() {
    let broken = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut lines = foreign_lines();
        change(&mut lines);
        let report = replay::verify(&foreign(&lines), None).unwrap();
        let problem = report.checks.problems().next().map(|p| (p.code.name, p.place().unwrap()));
        problem.unwrap_or(("none", report.standing.sentence().to_owned()))
    };
    type Change<'a> = &'a dyn Fn(&mut Vec<Value>);
    let cases: [(Change<'_>, _, &str); 21] = [
        (&|l| drop(l.remove(1)), &code::ORDER, "line 2, event"),
        (&|l| l.insert(2, l[1].clone()), &code::ORDER, "line 3, event"),
        (&|l| l.push(l[4].clone()), &code::ORDER, "line 7, event"),
        (&|l| drop(l.pop()), &code::ORDER, "line 5"),
        (&|l| l.insert(3, l[2].clone()), &code::CALLS, "line 4, id"),
        (&|l| l.insert(4, l[3].clone()), &code::CALLS, "line 5, id"),
        (&|l| l.swap(2, 3), &code::CALLS, "line 3, id"),
        (&|l| drop(l.remove(3)), &code::CALLS, "line 5, status"),
        (&|l| l[3]["id"] = "b".into(), &code::CALLS, "line 4, id"),
        (&|l| l[5]["total_tool_calls"] = 2.into(), &code::TOTALS, "line 6, total_tool_calls"),
        (&|l| l[5]["total_latency_ms"] = 9.into(), &code::TOTALS, "line 6, total_latency_ms"),
        (&|l| l[5]["confidence"] = json!(1.5), &code::FIELD, "line 6, confidence"),
        (&|l| l[5]["status"] = "great".into(), &code::FIELD, "line 6, status"),
        (&|l| l[3]["step_utility"] = json!(-1.01), &code::FIELD, "line 4, step_utility"),
        (&|l| l[3]["output_hash"] = "sha256:unknown".into(), &code::FIELD, "line 4, output_hash"),
        (&|l| l[3]["latency_ms"] = (-5).into(), &code::FIELD, "line 4, latency_ms"),
        (&|l| l[2]["params"] = json!({}), &code::HASH, "line 3, params"),
        (&|l| l[4]["t"] = "2026-01-15T08:30:59Z".into(), &code::ORDER, "line 5, t"),
        (
            &|l| l[4] = json!({"event": "Verification", "commands": ["a"], "exit_codes": [], "verification_delta": 0, "t": l[3]["t"]}),
            &code::FIELD,
            "line 5, exit_codes",
        ),
        (
            &|l| {
                l.insert(3, json!({"event": "StepComplete", "step_id": "a", "status": "Success", "iterations": 1, "t": l[2]["t"]}));
            },
            &code::CALLS,
            "line 4, step_id",
        ),
        (&|l| l[5]["chain"] = "x".into(), &code::FIELD, "line 6, chain"),
    ];
    for (change, code, place) in cases {
        assert_eq!(broken(change), (code.name, place.to_owned()));
    }
    assert_eq!(broken(&|_| ()).0, "none");
    // An unanswered call is no contradiction in a session that failed.
    let failed: Change<'_> = &|l| {
        l.remove(3);
        l[4]["status"] = "failure".into();
        l[4]["total_latency_ms"] = 0.into();
    };
    assert_eq!(broken(failed).0, "none");
}

#[test]
fn the_writer_refuses_what_a_reader_would_and_stays_usable() {
    let (mut writer, mut file) = Writer::start(&start()).unwrap();
    let bad = [
        (result("tc_001"), &code::CALLS),
        (Event::Verification { runs: vec![("x".into(), 0)], verification_delta: 0 }, &code::ORDER),
        (
            Event::ToolCall {
                id: String::new(),
                tool: "x".into(),
                params: json!({}),
                step_id: "s".into(),
            },
            &code::FIELD,
        ),
    ];
    for (event, code) in &bad {
        let moment = if *code == &code::ORDER { t(-1) } else { t(1) };
        assert_eq!(writer.push(moment, event).unwrap_err().code(), *code);
    }
    file.extend(writer.push(t(1), &call("a")).unwrap());
    assert_eq!(writer.finish(t(2), SessionStatus::Success, 1.0).unwrap_err().code(), &code::CALLS);
    assert_eq!(
        writer.finish(t(2), SessionStatus::Failed, f64::NAN).unwrap_err().code(),
        &code::FIELD
    );
    file.extend(writer.finish(t(2), SessionStatus::Timeout, 0.0).unwrap().line);
    assert_eq!(writer.push(t(3), &call("b")).unwrap_err().code(), &code::ORDER);
    assert_eq!(replay::verify(&file, None).unwrap().standing, Standing::Sealed);
}

#[test]
fn the_writer_refuses_values_that_no_reader_takes() {
    let (mut writer, _) = Writer::start(&start()).unwrap();
    let deep = (0..127).fold(json!(0), |inner, _| json!([inner]));
    for (params, fits) in [(deep.clone(), true), (json!([deep]), false), (json!(1e20), false)] {
        let id = format!("call-{fits}-{}", params.to_string().len());
        let event = Event::ToolCall { id, tool: "x".into(), params, step_id: "s".into() };
        let written = writer.push(t(0), &event);
        assert_eq!(
            written.map_err(|e| e.code().name).err(),
            (!fits).then_some("replay.line_malformed")
        );
    }
}

#[test]
fn what_is_not_a_replay_is_an_error() {
    let header = r#"{"event":"ReplayHeader","replay_version":9,"producer":"x@1","created_at":"2026-01-15T08:30:00Z"}"#;
    for (bytes, code) in [
        (&b""[..], &code::NOT_A_REPLAY),
        (b"{}\n", &code::NOT_A_REPLAY),
        (b"nonsense\n", &code::LINE),
        (b"\n", &code::LINE),
        (header.as_bytes(), &code::UNKNOWN_VERSION),
    ] {
        assert_eq!(replay::verify(bytes, None).unwrap_err().code(), code);
    }
    let (file, _) = good();
    assert!(replay::verify(&file, Some(b"not a receipt")).is_err());
    let endless = [&file[..], &vec![b' '; replay::MAX_LINE_BYTES + 1]].concat();
    assert_eq!(replay::verify(&endless, None).unwrap_err().code(), &code::LIMIT);
}

#[test]
fn the_vectors_for_strangers_are_what_is_written() {
    let (file, receipt) = good();
    let text = std::str::from_utf8(&file).unwrap();
    assert_eq!(include_str!("../../vectors/replay.jsonl"), text, "\n{text}");
    assert!(include_str!("../../../../docs/formats/replay.md").contains(text));
    let receipt = std::str::from_utf8(&receipt).unwrap();
    assert_eq!(include_str!("../../vectors/replay.receipt.json"), receipt, "\n{receipt}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_session_verifies_and_no_change_of_it_does(
        calls in prop::collection::vec(("[ -~é]{0,20}", any::<u16>(), -1.0f64..=1.0), 0..5),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let events: Vec<_> = calls.iter().enumerate().flat_map(|(number, (text, latency_ms, utility))| {
            let id = format!("call-{number}");
            [
                Event::ToolCall { id: id.clone(), tool: "t".into(), params: json!({ "text": text }), step_id: "s".into() },
                Event::ToolResult {
                    id, output: Output::Json(json!(text)), exit_code: Some(0), step_utility: *utility,
                    latency_ms: (*latency_ms).into(),
                },
            ]
        }).collect();
        let (file, seal) = write(&events);
        let receipt = receipt_for(seal);
        prop_assert!(replay::verify(&file, Some(&receipt)).unwrap().is_verified());
        let mut changed = file;
        let place = place.index(changed.len());
        prop_assume!(changed[place] != byte);
        changed[place] = byte;
        prop_assert!(!replay::verify(&changed, Some(&receipt)).is_ok_and(|r| r.is_verified()));
        changed.remove(place);
        prop_assert!(!replay::verify(&changed, Some(&receipt)).is_ok_and(|r| r.is_verified()));
    }

    #[test]
    fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in any::<prop::sample::Index>()) {
        prop_assert!(replay::explain(&bytes, None).is_err());
        prop_assert!(replay::bundle::import(&bytes).is_err());
        // Rubbish behind a good beginning.
        let (file, _) = good();
        let mixed = [&file[..cut.index(file.len())], &bytes].concat();
        if let Ok(report) = replay::explain(&mixed, None) {
            prop_assert_ne!(report.standing, Standing::Verified);
        }
        let _ = replay::repair(&mixed, SessionStatus::Failed);
        let _ = replay::bundle::export(&mixed);
    }
}
