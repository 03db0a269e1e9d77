//! Many at once for the same money.

use axum::http::StatusCode;
use futures_util::future::{join, join_all};
use guild_hosting::meter;
use serde_json::{Value, json};

use super::routes::Estate;
use super::{Host, both, code, job, request, sandbox};

const PRICE: i64 = 1_110;

async fn units(host: &Host, token: &str) -> (i64, i64) {
    let (_, balance) = host.get(token, "/v1/billing/balance").await;
    (balance["free_micro_usd"].as_i64().unwrap(), balance["held_micro_usd"].as_i64().unwrap())
}

/// What was taken in for minutes, by the statement of whoever paid.
async fn paid(host: &Host, token: &str) -> i64 {
    let (_, statement) = host.get(token, "/v1/billing/statement?limit=200").await;
    let of = |step: &str, line: &&Value| {
        line["step"] == step && line["memo"].to_string().contains("sandbox")
    };
    let lines = statement["lines"].as_array().unwrap();
    let minutes = lines.iter().filter(|line| of("post", line) || of("settle", line));
    -minutes.map(|line| line["amount_micro_usd"].as_i64().unwrap()).sum::<i64>()
}

#[test]
fn of_a_hundred_orders_with_money_for_one_one_is_placed() {
    both(async |host: &Host| {
        let token = host.sign_in(1).await;
        host.credit(&host.user_id(&token).await, PRICE, "wire").await;
        let (_, made) = host.post(&token, "/v1/jobs", "k", &job()).await;
        let path = format!("/v1/jobs/{}/sandboxes", made["job_id"].as_str().unwrap());
        let (path, body) = (&path, &sandbox());
        let order = |n: usize| {
            let token = &token;
            async move { host.post(token, path, &format!("k{n}"), body).await }
        };
        let answers = join_all((0..100).map(order)).await;
        let count = |status| answers.iter().filter(|answer| answer.0 == status).count();
        let unpaid = StatusCode::PAYMENT_REQUIRED;
        assert_eq!((count(StatusCode::CREATED), count(unpaid)), (1, 99));
        let refused = answers.iter().find(|answer| answer.0 == unpaid).unwrap();
        assert_eq!(code(refused), (402, "hosting.insufficient_balance"));
        assert_eq!(units(host, &token).await, (0, PRICE));
        assert_eq!(host.problems().await, Vec::<String>::new());
    });
}

#[test]
fn orders_withdrawals_and_the_meter_never_spend_the_same_money() {
    both(async |host: &Host| {
        let token = host.sign_in(1).await;
        let all = 20 * PRICE;
        host.credit(&host.user_id(&token).await, all, "wire").await;
        let (_, made) = host.post(&token, "/v1/jobs", "k", &job()).await;
        let path = format!("/v1/jobs/{}/sandboxes", made["job_id"].as_str().unwrap());
        // Taken out before anything runs, so no reserve stands in the way of the race.
        let out = json!({"amount_micro_usd": 3 * PRICE, "destination": "there"});
        for n in 0..2 {
            let (_, bought) = host.post(&token, &path, &format!("s{n}"), &sandbox()).await;
            host.start(bought["sandbox_id"].as_str().unwrap()).await;
        }
        let now_ms = host.clock.pass(50_000);
        let acts = (0..60).map(|n| {
            let (host, token, path, out) = (host, &token, &path, &out);
            async move {
                match n % 3 {
                    0 => host.post(token, path, &format!("k{n}"), &sandbox()).await.0,
                    1 => {
                        let key = format!("w{n}");
                        host.post(token, "/v1/billing/withdrawals", &key, out).await.0
                    }
                    _ => {
                        let ticked = host.store().write(move |tx| meter::tick(tx, now_ms, 2)).await;
                        assert!(ticked.is_ok(), "{ticked:?}");
                        StatusCode::OK
                    }
                }
            }
        });
        let statuses = join_all(acts).await;
        assert!(
            statuses.iter().all(|status| [200, 201, 402, 409].contains(&status.as_u16())),
            "{statuses:?}"
        );
        let (free, held) = units(host, &token).await;
        assert!(free >= 0 && held >= 0, "{free} {held}");
        assert_eq!(free + held + paid(host, &token).await, all);
        assert_eq!(host.problems().await, Vec::<String>::new());
    });
}

#[test]
fn money_that_comes_while_everything_is_stopped_is_neither_lost_nor_spent() {
    both(async |host: &Host| {
        let estate = Estate::of(host, 1).await;
        let (free, held) = units(host, &estate.token).await;
        let stop = format!("/v1/jobs/{}/stop", estate.job_id);
        let stops = join_all((0..10).map(|n| {
            let asked = request("POST", &stop, &estate.token, Some(&format!("k{n}")), "");
            host.ask(asked)
        }));
        let credits = join_all((0..10).map(|_| host.credit(&estate.user_id, 777, "late wire")));
        let (stopped, credited) = join(stops, credits).await;
        assert!(stopped.iter().all(|answer| answer.0 == StatusCode::OK));
        assert_eq!(credited.iter().filter(|credit| credit["new"] == true).count(), 1);
        let (free_now, held_now) = units(host, &estate.token).await;
        assert_eq!(free_now + held_now, free + held + 777);
        let (_, sandbox) =
            host.get(&estate.token, &format!("/v1/sandboxes/{}", estate.sandbox_id)).await;
        assert_eq!(sandbox["stop_reason"], "job_stopped");
        assert_eq!(host.problems().await, Vec::<String>::new());
    });
}

#[test]
fn of_many_extensions_of_one_version_one_counts() {
    both(async |host: &Host| {
        let estate = Estate::of(host, 1).await;
        let path = format!("/v1/jobs/{}/extend", estate.job_id);
        let wishes: Vec<Value> =
            (0..24).map(|n| json!({"version": 1, "max_spend_cents": 200 + n % 3})).collect();
        let keys: Vec<String> = (0..24).map(|n| format!("k{n}")).collect();
        let asked =
            wishes.iter().zip(&keys).map(|(wish, key)| host.post(&estate.token, &path, key, wish));
        let answers = join_all(asked).await;
        let granted: Vec<&Value> = answers
            .iter()
            .filter(|answer| answer.0 == StatusCode::OK)
            .map(|answer| &answer.1)
            .collect();
        // The same wish again is harmless, and another one about an old version is refused.
        assert_eq!(granted.len(), 8);
        assert!(granted.iter().all(|one| one == &granted[0]));
        let refused = answers.iter().filter(|answer| answer.0 != StatusCode::OK);
        assert!(
            refused.into_iter().all(|answer| code(answer) == (409, "hosting.version_conflict"))
        );
        let (_, job) = host.get(&estate.token, &format!("/v1/jobs/{}", estate.job_id)).await;
        assert_eq!(job["version"], 2);
    });
}
