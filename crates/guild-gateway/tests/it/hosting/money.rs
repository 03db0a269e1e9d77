//! Money in and out, and tricks to get out what must stay.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::routes::Estate;
use super::{Host, both, code, job, request, sandbox};

async fn withdraw(host: &Host, token: &str, key: &str, units: i64) -> (StatusCode, Value) {
    let body = json!({"amount_micro_usd": units, "destination": "bank account 1"});
    host.post(token, "/v1/billing/withdrawals", key, &body).await
}

async fn operator(host: &Host, path: &str, body: Value) -> (StatusCode, Value) {
    host.ask(request("POST", &format!("/v1/operator/{path}"), "secret", None, &body.to_string()))
        .await
}

async fn balance(host: &Host, token: &str) -> [i64; 3] {
    let (_, balance) = host.get(token, "/v1/billing/balance").await;
    ["free_micro_usd", "held_micro_usd", "withdrawable_micro_usd"]
        .map(|field| balance[field].as_i64().unwrap())
}

#[test]
fn a_shape_that_nobody_can_pay_is_a_quote_and_changes_nothing() {
    both(async |host: &Host| {
        let token = host.sign_in(1).await;
        let user_id = host.user_id(&token).await;
        host.credit(&user_id, 2_000, "wire").await;
        let (_, made) = host.post(&token, "/v1/jobs", "j", &job()).await;
        let path = format!("/v1/jobs/{}/sandboxes", made["job_id"].as_str().unwrap());
        let (_, bought) = host.post(&token, &path, "s", &sandbox()).await;
        let id = bought["sandbox_id"].as_str().unwrap().to_owned();
        host.start(&id).await;
        let path = format!("/v1/sandboxes/{id}");
        let (_, before) = host.get(&token, &path).await;
        let wanted = json!({"version": before["version"], "cpu_milli": 4_000});
        let (status, told) = host.post(&token, &format!("{path}/resize"), "r", &wanted).await;
        assert_eq!(status, StatusCode::PAYMENT_REQUIRED, "{told}");
        assert_eq!(told["error"]["code"], "hosting.insufficient_balance");
        let buys = &told["quote"]["buys"];
        assert_eq!((&buys["cpu_milli"], &buys["ram_mib"]), (&json!(4_000), &before["ram_mib"]));
        assert!(told["quote"]["amount_micro_usd"].as_i64().unwrap() > 0, "{told}");
        assert_eq!(host.get(&token, &path).await.1, before);
        // With money it is tried, under the same key; this one has no agent.
        host.credit(&user_id, 1_000_000, "wire 2").await;
        let (status, told) = host.post(&token, &format!("{path}/resize"), "r", &wanted).await;
        assert_ne!(status, StatusCode::PAYMENT_REQUIRED, "{told}");
        // What its job does not leave is no matter of the account.
        let (_, small) = {
            let small = json!({"max_spend_micro_usd": 1_500, "ttl_s": 3_600});
            host.post(&token, "/v1/jobs", "small", &small).await
        };
        let jobs = format!("/v1/jobs/{}/sandboxes", small["job_id"].as_str().unwrap());
        let (_, bought) = host.post(&token, &jobs, "s2", &sandbox()).await;
        let id = bought["sandbox_id"].as_str().unwrap().to_owned();
        host.start(&id).await;
        let (_, shown) = host.get(&token, &format!("/v1/sandboxes/{id}")).await;
        let wanted = json!({"version": shown["version"], "cpu_milli": 4_000});
        let answer = host.post(&token, &format!("/v1/sandboxes/{id}/resize"), "r2", &wanted).await;
        assert_eq!(code(&answer), (409, "hosting.over_budget"));
    });
}

#[test]
fn a_withdrawal_is_sent_and_confirmed_or_fails_and_is_back() {
    both(async |host: &Host| {
        let token = host.sign_in(1).await;
        host.credit(&host.user_id(&token).await, 10_000, "wire").await;
        let (status, sent) = withdraw(host, &token, "k1", 4_000).await;
        assert_eq!((status, &sent["status"]), (StatusCode::CREATED, &json!("requested")));
        let (_, failed) = withdraw(host, &token, "k2", 5_000).await;
        assert_eq!(balance(host, &token).await, [1_000, 9_000, 1_000]);
        let (_, open) = host.get("secret", "/v1/operator/withdrawals").await;
        assert_eq!(open["withdrawals"].as_array().unwrap().len(), 2);

        let at = |wd: &Value, act: &str| {
            format!("withdrawals/{}/{act}", wd["withdrawal_id"].as_str().unwrap())
        };
        let (confirm, fail) = (json!({"reference": "wire 9"}), json!({"words": "no such account"}));
        let (status, confirmed) = operator(host, &at(&sent, "confirm"), confirm.clone()).await;
        assert_eq!((status, &confirmed["status"]), (StatusCode::OK, &json!("confirmed")));
        assert_eq!(confirmed["reference"], "wire 9");
        let (status, back) = operator(host, &at(&failed, "fail"), fail.clone()).await;
        assert_eq!((status, &back["status"]), (StatusCode::OK, &json!("failed")));
        assert_eq!(back["words"], "no such account");
        assert_eq!(balance(host, &token).await, [6_000, 0, 6_000]);

        // The same again changes nothing; what is over cannot be turned into its contrary.
        let before = host.books().await;
        assert_eq!(operator(host, &at(&sent, "confirm"), confirm.clone()).await.1, confirmed);
        assert_eq!(operator(host, &at(&failed, "fail"), fail.clone()).await.1, back);
        for (wd, act, body) in [
            (&sent, "fail", &fail),
            (&failed, "confirm", &confirm),
            (&sent, "confirm", &json!({"reference": "other"})),
        ] {
            let answer = operator(host, &at(wd, act), body.clone()).await;
            assert_eq!(code(&answer), (409, "hosting.withdrawal_closed"), "{act}");
        }
        assert_eq!(host.books().await, before);
        let (_, open) = host.get("secret", "/v1/operator/withdrawals").await;
        assert_eq!(open["withdrawals"], json!([]));
        let path = format!("/v1/billing/withdrawals/{}", sent["withdrawal_id"].as_str().unwrap());
        assert_eq!(host.get(&token, &path).await.1, confirmed);
        assert_eq!(host.problems().await, Vec::<String>::new());
    });
}

#[test]
fn more_than_there_is_and_what_must_stay_does_not_go_out() {
    both(async |host: &Host| {
        let estate = Estate::of(host, 1).await;
        let [free, ..] = balance(host, &estate.token).await;
        let before = host.books().await;
        let answer = withdraw(host, &estate.token, "all", free).await;
        assert_eq!(code(&answer), (409, "ledger.gated"), "it runs: three days must stay");
        let answer = withdraw(host, &estate.token, "more", free + 1).await;
        assert_eq!(answer.0, StatusCode::CONFLICT, "{}", answer.1);
        assert_eq!(host.books().await, before);
        assert_eq!(host.problems().await, Vec::<String>::new());
    });
}

/// Stops everything and asks for all of it: what was typical still counts.
#[test]
fn stopping_everything_before_a_withdrawal_frees_no_reserve() {
    both(async |host: &Host| {
        let mut token = host.sign_in(1).await;
        host.credit(&host.user_id(&token).await, 100_000_000, "wire").await;
        for day in 0..5 {
            let (_, made) = host.post(&token, "/v1/jobs", &format!("j{day}"), &job()).await;
            let job = format!("/v1/jobs/{}", made["job_id"].as_str().unwrap());
            let path = format!("{job}/sandboxes");
            let (_, bought) = host.post(&token, &path, &format!("s{day}"), &sandbox()).await;
            host.start(bought["sandbox_id"].as_str().unwrap()).await;
            let stop = request("POST", &format!("{job}/stop"), &token, Some("stop"), "");
            assert_eq!(host.ask(stop).await.0, StatusCode::OK);
            host.clock.pass(86_400_000);
            token = host.sign_in(1).await;
        }
        let before = host.books().await;
        let [free, held, out] = balance(host, &token).await;
        assert_eq!(held, 0);
        assert!(out < free, "a reserve stays: {free} {out}");
        let answer = withdraw(host, &token, "gamed", free).await;
        assert_eq!(code(&answer), (409, "ledger.gated"));
        assert_eq!(host.books().await, before);
        assert_eq!(withdraw(host, &token, "rest", out).await.0, StatusCode::CREATED);
        assert_eq!(host.problems().await, Vec::<String>::new());
    });
}

#[test]
fn a_deposit_is_booked_once_and_for_one() {
    both(async |host: &Host| {
        let (ours, theirs) = (host.sign_in(1).await, host.sign_in(2).await);
        let (our_id, their_id) = (host.user_id(&ours).await, host.user_id(&theirs).await);
        host.credit(&our_id, 500, "wire 1").await;
        host.credit(&their_id, 1, "wire 2").await;
        let before = host.books().await;
        assert_eq!(host.credit(&our_id, 500, "wire 1").await["new"], false);
        for (user_id, units) in [(&our_id, 501), (&their_id, 500)] {
            let body =
                json!({"user_id": user_id, "amount_micro_usd": units, "reference": "wire 1"});
            let answer = operator(host, "credits", body).await;
            assert_eq!(code(&answer), (409, "hosting.reference_taken"));
        }
        for user_id in ["", "nobody", "eip155:0x00", "nostr:zz", "node", "outside"] {
            let body = json!({"user_id": user_id, "amount_micro_usd": 1, "reference": "wire 3"});
            let answer = operator(host, "credits", body).await;
            assert_eq!(answer.0, StatusCode::BAD_REQUEST, "{user_id}: {}", answer.1);
        }
        assert_eq!(host.books().await, before);
    });
}

#[test]
fn security_is_not_turned_down() {
    both(async |host: &Host| {
        let estate = Estate::of(host, 1).await;
        let path = format!("/v1/jobs/{}/sandboxes", estate.job_id);
        let before = host.books().await;
        for (mode, wanted) in [
            (json!("confidential"), "hosting.not_enabled"),
            (json!("Confidential"), "hosting.malformed"),
            (json!("none"), "hosting.malformed"),
            (json!(""), "hosting.malformed"),
            (json!(["standard"]), "gateway.bad_request"),
        ] {
            let mut body = super::sandbox();
            body["security_mode"] = mode.clone();
            let answer = host.post(&estate.token, &path, "m", &body).await;
            assert_eq!(code(&answer), (400, wanted), "{mode}");
        }
        // Nothing that is there can be asked to become something else.
        let extend = format!("/v1/sandboxes/{}/extend", estate.sandbox_id);
        for field in ["security_mode", "image", "image_digest", "price_micro_usd_per_minute"] {
            let body = json!({"version": 2, field: "standard"});
            let answer = host.post(&estate.token, &extend, field, &body).await;
            assert_eq!(code(&answer), (400, "gateway.bad_request"), "{field}");
        }
        assert_eq!(host.books().await, before);
    });
}
