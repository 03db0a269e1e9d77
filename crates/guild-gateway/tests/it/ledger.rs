//! Money over HTTP.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use guild_gateway::Options;
use serde_json::{Value, json};

use crate::{Scene, post_to};

fn ask(path: &str, body: &Value) -> Request<Body> {
    post_to(&format!("/api/ledger/{path}"), &body.to_string(), Some("secret"))
}

fn post(id: u64, units: &Value) -> Value {
    json!({ "transfers": [{
        "transfer_id": format!("xfer_{id:032x}"), "step": "post", "debit": "outside/main", "credit": "ann/main",
        "asset_id": "USD_MICRO", "units": units, "memo": "deposit",
    }]})
}

/// A scene with an account of the outside world and one of Ann.
async fn scene() -> Scene {
    let scene = Scene::new(Options::default());
    for (owner, limit, seq) in [("outside", "none", 1), ("ann", "never_negative", 2)] {
        let body =
            json!({ "owner": owner, "purpose": "main", "asset_id": "USD_MICRO", "limit": limit });
        let (status, answer) = scene.ask(ask("account", &body)).await;
        assert_eq!(
            (status, &answer["outcome"], &answer["seq"]),
            (StatusCode::CREATED, &json!("new"), &json!(seq))
        );
        let (status, again) = scene.ask(ask("account", &body)).await;
        assert_eq!(
            (status, &again["outcome"], &again["seq"]),
            (StatusCode::OK, &json!("known"), &json!(null))
        );
        assert_eq!(again["account_id"], answer["account_id"]);
    }
    scene
}

#[tokio::test]
async fn a_transfer_is_booked_once_and_a_repeat_says_so() {
    let scene = scene().await;
    let (status, first) = scene.ask(ask("transfer", &post(1, &json!(100)))).await;
    let told = json!({ "transfer_id": "xfer_00000000000000000000000000000001", "outcome": "new", "seq": 3, "units": "100" });
    assert_eq!((status, &first["transfers"][0]), (StatusCode::CREATED, &told));
    // The same as text, by id: the same transfer.
    let mut same = post(1, &json!("100"));
    same["transfers"][0]["credit"] =
        json!("acct_7b58c1b80b574a2108aaa5f9ef9615e25a48ee8702498aeb398ce158e993b441");
    let (status, again) = scene.ask(ask("transfer", &same)).await;
    assert_eq!((status, &again["transfers"][0]["outcome"]), (StatusCode::OK, &json!("known")));
    let (status, other) = scene.ask(ask("transfer", &post(1, &json!(101)))).await;
    assert_eq!(
        (status, &other["error"]["code"]),
        (StatusCode::CONFLICT, &json!("ledger.transfer_conflict"))
    );
}

#[tokio::test]
async fn a_chain_holds_settles_and_stands_or_falls_as_one() {
    let scene = scene().await;
    let step = |id: u64, more: Value| {
        let mut all = json!({ "transfer_id": format!("xfer_{id:032x}"), "memo": "x" });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let hold = step(
        7,
        json!({ "step": "hold", "debit": "ann/main", "credit": "outside/main",
        "asset_id": "USD_MICRO", "units": "60", "expires_ms": 2_000 }),
    );
    let settle = step(
        8,
        json!({ "step": "settle", "hold": "xfer_00000000000000000000000000000007", "units": 50 }),
    );
    let chain = json!({ "transfers": [hold, settle] });
    let (status, refused) = scene.ask(ask("transfer", &chain)).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (StatusCode::CONFLICT, &json!("ledger.overdraft"))
    );
    scene.ask(ask("transfer", &post(1, &json!(100)))).await;
    let (status, answer) = scene.ask(ask("transfer", &chain)).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let units: Vec<&str> = answer["transfers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["units"].as_str().unwrap())
        .collect();
    assert_eq!(units, ["60", "50"]);
    let void = step(9, json!({ "step": "void", "hold": "xfer_00000000000000000000000000000007" }));
    let (status, closed) = scene.ask(ask("transfer", &json!({ "transfers": [void] }))).await;
    assert_eq!(
        (status, &closed["error"]["code"]),
        (StatusCode::CONFLICT, &json!("ledger.hold_closed"))
    );
}

#[tokio::test]
async fn a_rule_is_changed_in_parts_and_holds() {
    let scene = scene().await;
    scene.ask(ask("transfer", &post(1, &json!(100)))).await;
    let rule = |more: Value| {
        let mut all = json!({ "account": "ann/main", "asset_id": "USD_MICRO" });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask("rule", &all)
    };
    let gate = json!({ "gate": { "reserve_units": "80", "lets_through": ["fees"] } });
    let (status, answer) = scene.ask(rule(gate.clone())).await;
    assert_eq!((status, &answer["gate"]), (StatusCode::CREATED, &gate["gate"]));
    let (status, answer) = scene.ask(rule(json!({ "credit_units": 5 }))).await;
    assert_eq!((status, &answer["gate"]), (StatusCode::CREATED, &gate["gate"]), "the gate stays");
    let (status, answer) = scene.ask(rule(gate)).await;
    assert_eq!((status, &answer["outcome"]), (StatusCode::OK, &json!("known")));
    let mut back = post(2, &json!(21));
    let transfer = back["transfers"][0].as_object_mut().unwrap();
    let (debit, credit) = (transfer["debit"].clone(), transfer["credit"].clone());
    transfer.insert("debit".to_owned(), credit);
    transfer.insert("credit".to_owned(), debit);
    let (status, refused) = scene.ask(ask("transfer", &back)).await;
    assert_eq!((status, &refused["error"]["code"]), (StatusCode::CONFLICT, &json!("ledger.gated")));
    let (_, answer) = scene.ask(rule(json!({ "clear": true }))).await;
    assert_eq!((&answer["gate"], &answer["credit_units"]), (&json!(null), &json!(null)));
    let (status, _) = scene.ask(ask("transfer", &back)).await;
    assert_eq!(status, StatusCode::CREATED);
    let unknown = json!({ "account": "zoe/main", "asset_id": "USD_MICRO", "clear": true });
    let (status, refused) = scene.ask(ask("rule", &unknown)).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (StatusCode::NOT_FOUND, &json!("ledger.unknown_account"))
    );
}

#[tokio::test]
async fn rubbish_moves_nothing() {
    let scene = scene().await;
    for (path, body) in
        [("account", json!({})), ("transfer", post(1, &json!(1))), ("rule", json!({}))]
    {
        let request = post_to(&format!("/api/ledger/{path}"), &body.to_string(), None);
        let (status, answer) = scene.ask(request).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (StatusCode::FORBIDDEN, &json!("gateway.no_token"))
        );
    }
    let with = |field: &str, value: Value| {
        let mut body = post(1, &json!(1));
        body["transfers"][0][field] = value;
        body
    };
    for (body, code) in [
        (post(1, &json!(1.5)), "gateway.bad_request"),
        (post(1, &json!("1e3")), "gateway.bad_request"),
        (post(1, &json!("9223372036854775808")), "gateway.bad_request"),
        (post(1, &json!(null)), "gateway.bad_request"),
        (post(1, &json!(0)), "ledger.bad_amount"),
        (post(1, &json!("-5")), "ledger.bad_amount"),
        (with("step", json!("expire")), "gateway.bad_request"),
        (with("hold", json!("xfer_00000000000000000000000000000007")), "gateway.bad_request"),
        (with("debit", json!("nobody")), "gateway.bad_request"),
        (with("credit", json!("outside/main")), "ledger.same_account"),
        (with("credit", json!("zoe/main")), "ledger.unknown_account"),
        (with("memo", json!("")), "ledger.malformed"),
        (with("colour", json!(1)), "gateway.bad_request"),
        (with("transfer_id", json!("xfer_1")), "gateway.bad_request"),
        (json!({ "transfers": [] }), "gateway.bad_request"),
        (json!([]), "gateway.bad_request"),
    ] {
        let (status, answer) = scene.ask(ask("transfer", &body)).await;
        assert!(status.is_client_error(), "{body}");
        assert_eq!(answer["error"]["code"], code, "{body}");
    }
    let (status, answer) = scene
        .ask(ask(
            "account",
            &json!({ "owner": "ann", "purpose": "main", "asset_id": "USD_MICRO", "limit": "none" }),
        ))
        .await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::CONFLICT, &json!("ledger.account_conflict"))
    );
    for body in [
        json!({ "owner": "", "purpose": "main", "asset_id": "USD_MICRO" }),
        json!({ "owner": "zoe", "purpose": "main", "asset_id": "USD" }),
        json!({ "owner": "zoe", "purpose": "main", "asset_id": "USD_MICRO", "limit": "never" }),
    ] {
        assert_eq!(scene.ask(ask("account", &body)).await.0, StatusCode::BAD_REQUEST, "{body}");
    }
    let nothing = json!({ "account": "ann/main", "asset_id": "USD_MICRO" });
    assert_eq!(scene.ask(ask("rule", &nothing)).await.0, StatusCode::BAD_REQUEST);
    let (_, first) = scene.ask(ask("transfer", &post(1, &json!(1)))).await;
    assert_eq!(first["transfers"][0]["seq"], 3, "nothing of all that is in the history");
}
