//! Files that somebody sealed by hand: the chain fits, so only the rules of the fields can refuse them.

use guild_protocol::json as canonical;
use guild_protocol::replay::{Writer, chain_next, chain_start, code, verify};
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
