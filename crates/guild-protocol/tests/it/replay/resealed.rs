//! Files that somebody sealed by hand: the chain fits, so only the rules of the fields can refuse them.

use guild_protocol::json as canonical;
use guild_protocol::replay::{
    Checker, MAX_LINE_BYTES, MAX_LINES, Writer, chain_next, chain_start, code, verify,
};
use serde_json::{Value, json};

use super::{Event, Output, call, events, good, start, t, write};

/// The good replay, changed and sealed again.
fn resealed(change: impl FnOnce(&mut Vec<Value>)) -> Vec<u8> {
    let (file, _) = write(&events());
    let mut lines: Vec<Value> = file
        .trim_ascii()
        .split(|b| *b == b'\n')
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    change(&mut lines);
    let mut chain = chain_start();
    let mut sealed = Vec::new();
    for line in &mut lines {
        let members = line.as_object_mut().unwrap();
        members.remove("chain");
        members.remove("trajectory_hash");
        chain = chain_next(&chain, &canonical::to_canonical(members).unwrap());
        members.insert("chain".into(), chain.to_string().into());
        if members["event"] == "SessionEnd" {
            members.insert("trajectory_hash".into(), chain.to_string().into());
        }
        sealed.extend(canonical::to_canonical(members).unwrap());
        sealed.push(b'\n');
    }
    sealed
}

/// The fields that the verifier names.
fn refused(change: impl FnOnce(&mut Vec<Value>)) -> Vec<String> {
    let report = verify(&resealed(change), None).unwrap();
    let problems = report.checks.problems().filter(|p| p.code == &code::FIELD);
    problems.map(|p| format!("{} {}", p.line.unwrap(), p.field.as_deref().unwrap())).collect()
}

#[test]
fn nothing_changed_is_the_same_file() {
    assert_eq!(resealed(|_| ()), good().0);
}

#[test]
fn a_payment_has_the_forms_of_a_receipt() {
    let payment = |change: fn(&mut Value)| refused(|lines| change(&mut lines[7]));
    assert_eq!(payment(|_| ()), [""; 0]);
    assert_eq!(payment(|p| p["payment_proof"] = Value::Null), [""; 0]);
    assert_eq!(payment(|p| p["rail"] = "paypal".into()), ["8 rail"]);
    for proof in [json!(5), json!({}), json!({ "type": "x", "value": 1, "more": 1 }), json!([])] {
        let change = |lines: &mut Vec<Value>| lines[7]["payment_proof"] = proof.clone();
        assert!(refused(change).contains(&"8 payment_proof".to_owned()), "{proof}");
    }
    assert_eq!(payment(|p| p["payment_proof"]["value"] = "x".into()), ["8 payment_proof.value"]);
    assert_eq!(
        payment(|p| p["payment_proof"]["type"] = "favour".into()),
        ["8 payment_proof.type", "8 payment_proof.type"]
    );
    let malformed = |p: &mut Value| {
        p["asset_id"] = "usd".into();
        p["amount"]["asset_id"] = "usd".into();
    };
    assert_eq!(payment(malformed), ["8 amount.asset_id", "8 asset_id"]);
    let negative = |p: &mut Value| {
        p["amount"]["units"] = (-5).into();
        p["amount_msats"] = (-5).into();
    };
    assert_eq!(payment(negative), ["8 amount.units", "8 amount_msats"]);
    assert_eq!(payment(|p| p["amount.units"] = 7.into()), ["8 amount.units"]);
}

#[test]
fn half_a_mark_of_origin_does_not_pass_as_none() {
    assert_eq!(refused(|lines| lines[0]["imported"] = false.into()), ["1 imported"]);
    assert_eq!(refused(|lines| lines[0]["imported_from"] = "x".into()), ["1 imported_from"]);
    assert_eq!(refused(|lines| lines[9]["repaired"] = false.into()), ["10 repaired"]);
}

/// A double that is whole and beyond 2^53 has the canonical text of an integer, which no strict reader takes.
#[test]
fn the_writer_writes_nothing_that_cannot_be_read() {
    let (mut writer, mut file) = Writer::start(&start()).unwrap();
    let with = |params: Value| match call("a") {
        Event::ToolCall { id, tool, step_id, .. } => Event::ToolCall { id, tool, params, step_id },
        other => other,
    };
    let mut deep = json!(1);
    for _ in 0..128 {
        deep = json!([deep]);
    }
    for (params, place) in [(json!({ "n": 1e20 }), "params.n"), (deep, "params[0][0]")] {
        let refused = writer.push(t(1), &with(params)).unwrap_err();
        assert_eq!(refused.code(), &code::LINE);
        assert!(refused.place().unwrap().starts_with(place), "{refused}");
    }
    file.extend(writer.push(t(1), &with(json!({ "n": 1e21, "m": 9e15 }))).unwrap());
    let result = Event::ToolResult {
        id: "a".into(),
        output: Output::Json(json!(1e20)),
        exit_code: None,
        step_utility: 0.0,
        latency_ms: 0,
    };
    file.extend(writer.push(t(1), &result).unwrap());
    let end = writer.finish(t(2), super::SessionStatus::Success, 1.0).unwrap();
    file.extend(end.line);
    assert!(verify(&file, None).unwrap().checks.holds());
}

#[test]
fn every_field_keeps_its_range_and_its_words() {
    let beyond_32_bits = json!(2_147_483_648_i64);
    for (line, key, value) in [
        (3, "step_count", json!(-1)),
        (4, "tool", json!("t".repeat(201))),
        (4, "id", json!("")),
        (5, "exit_code", beyond_32_bits.clone()),
        (5, "latency_ms", json!(-1)),
        (5, "output_encoding", json!("zip")),
        (5, "step_utility", json!(1.5)),
        (6, "iterations", json!(256)),
        (7, "verification_delta", beyond_32_bits.clone()),
        (7, "exit_codes", json!([0, beyond_32_bits])),
        (9, "seq", json!(-1)),
        (10, "confidence", json!(-0.5)),
        (10, "total_latency_ms", json!(-1)),
        (10, "total_tool_calls", json!(-1)),
        (10, "trajectory_hash_alg", json!("guild.chain.v2")),
    ] {
        let change = |lines: &mut Vec<Value>| lines[line - 1][key] = value;
        assert_eq!(refused(change), [format!("{line} {key}")]);
    }
}

/// All that the verifier says: code, line and field.
fn said(file: &[u8]) -> Vec<(&'static str, u64, String)> {
    let report = verify(file, None).unwrap();
    let problems = report.checks.problems();
    problems.map(|p| (p.code.name, p.line.unwrap(), p.field.clone().unwrap())).collect()
}

#[test]
fn content_sessions_and_steps_are_checked_behind_a_good_chain() {
    let one = |code: &'static guild_protocol::error::Code, line, field: &str| {
        vec![(code.name, line, field.to_owned())]
    };
    let payload = |lines: &mut Vec<Value>| lines[8]["payload"] = json!({ "reason": "other" });
    assert_eq!(said(&resealed(payload)), one(&code::HASH, 9, "payload"));
    let session = |lines: &mut Vec<Value>| lines[8]["session_id"] = "other".into();
    assert_eq!(said(&resealed(session)), one(&code::ORDER, 9, "session_id"));
    let late_call = |lines: &mut Vec<Value>| {
        let (mut call, mut result) = (lines[3].clone(), lines[4].clone());
        for (line, t) in [(&mut call, 35), (&mut result, 35)] {
            line["id"] = "late".into();
            line["t"] = super::t(t).to_string().into();
        }
        lines.insert(6, call);
        lines.insert(7, result);
        lines[11]["total_tool_calls"] = 2.into();
        lines[11]["total_latency_ms"] = 90.into();
    };
    assert_eq!(said(&resealed(late_call)), one(&code::CALLS, 7, "step_id"));
}

/// Whoever takes the chain from the first lines alone must not be believed.
#[test]
fn a_file_that_lost_a_part_of_its_chain_is_refused() {
    let (file, _) = good();
    let lines = || file.trim_ascii().split(|b| *b == b'\n').map(<[u8]>::to_vec);
    for (kept, members) in [("chain", ["trajectory_hash", ""]), ("trajectory_hash", ["chain", ""])]
    {
        let mut stripped = Vec::new();
        for (number, line) in lines().enumerate() {
            let mut line: Value = serde_json::from_slice(&line).unwrap();
            let object = line.as_object_mut().unwrap();
            let last = number == 9;
            for member in members.iter().chain((!last).then_some(&kept)) {
                object.remove(*member);
            }
            stripped.extend(format!("{line}\n").into_bytes());
        }
        assert_eq!(said(&stripped), [(code::CHAIN.name, 1, "chain".to_owned())], "{kept}");
    }
}

#[test]
fn problems_are_counted_beyond_those_listed() {
    let (file, _) = good();
    let rubbish = [&file[..], &b"rubbish\n".repeat(150)].concat();
    let report = verify(&rubbish, None).unwrap();
    assert_eq!(report.checks.problems().count(), 101);
    let last = report.checks.problems().last().unwrap();
    assert_eq!(last.message, "50 more problems are not listed");
}

#[test]
fn lines_are_limited_in_number_and_length() {
    const HEADER: &[u8] = b"{\"event\":\"ReplayHeader\",\"replay_version\":1,\"producer\":\"p@1\",\
        \"created_at\":\"2026-01-15T08:30:00Z\"}\n";
    let mut checker = Checker::new();
    checker.line(HEADER).unwrap();
    for _ in 1..MAX_LINES {
        checker.line(b"\n").unwrap();
    }
    assert_eq!(checker.line(b"\n").unwrap_err().code(), &code::LIMIT);

    let mut checker = Checker::new();
    checker.line(HEADER).unwrap();
    checker.line(&vec![b' '; MAX_LINE_BYTES]).unwrap();
    let refused = checker.line(&vec![b' '; MAX_LINE_BYTES + 1]).unwrap_err();
    assert_eq!((refused.code(), refused.place()), (&code::LIMIT, Some("line 3")));
}

#[test]
fn a_seal_that_is_not_the_end_of_the_chain_is_refused() {
    let (file, seal) = write(&events());
    let text = String::from_utf8(file).unwrap();
    let stated = |hash: &str| format!("\"trajectory_hash\":\"{hash}\"");
    let other = guild_protocol::hash::Hash::of(b"other").to_string();
    let forged = text.replace(&stated(&seal.to_string()), &stated(&other));
    assert_eq!(said(forged.as_bytes()), [(code::CHAIN.name, 10, "trajectory_hash".to_owned())]);
}
