//! Extensions that would give or take too much, and clocks that lie.

use axum::http::StatusCode;
use guild_hosting::meter::{self, Sight};
use guild_protocol::env::Clock;
use serde_json::json;

use super::routes::Estate;
use super::{Host, both, code, request};

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 86_400_000;

#[test]
fn an_extension_neither_shrinks_nor_revives_nor_goes_beyond_the_job() {
    both(async |host: &Host| {
        let estate = Estate::of(host, 1).await;
        let (job, sandbox) =
            (format!("/v1/jobs/{}", estate.job_id), format!("/v1/sandboxes/{}", estate.sandbox_id));
        let shown = host.get(&estate.token, &sandbox).await.1;
        let (version, expires_ms) = (&shown["version"], shown["expires_ms"].as_i64().unwrap());
        let before = host.books().await;
        let now_ms = host.clock.now_ms();
        for (n, (asked, wanted)) in [
            (json!({"version": version, "max_spend_micro_usd": 1}), (409, "hosting.shrinks")),
            (json!({"version": version, "expires_ms": expires_ms - 1}), (409, "hosting.shrinks")),
            (json!({"version": version, "expires_ms": now_ms - DAY_MS}), (409, "hosting.shrinks")),
            (json!({"version": version, "expires_ms": 0}), (409, "hosting.shrinks")),
            (json!({"version": version, "expires_ms": -1}), (400, "hosting.malformed")),
            (json!({"version": version, "max_spend_micro_usd": -1}), (400, "hosting.malformed")),
            (
                json!({"version": 1, "max_spend_micro_usd": 5_000}),
                (409, "hosting.version_conflict"),
            ),
            (
                json!({"version": 99, "max_spend_micro_usd": 5_000}),
                (409, "hosting.version_conflict"),
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let answer = host
                .post(&estate.token, &format!("{sandbox}/extend"), &format!("k{n}"), &asked)
                .await;
            assert_eq!(code(&answer), wanted, "{asked}");
        }
        assert_eq!(host.books().await, before);
        // Far beyond its job: it gets what the job has, and is told so.
        let far = json!({"version": version, "expires_ms": expires_ms + 90 * DAY_MS});
        let (status, granted) =
            host.post(&estate.token, &format!("{sandbox}/extend"), "far", &far).await;
        assert_eq!(status, StatusCode::OK, "{granted}");
        let job_ends = &host.get(&estate.token, &job).await.1["expires_ms"];
        assert_eq!(&granted["expires_ms"], job_ends);
        assert_eq!(granted["granted"]["expires_ms"]["bound_by"], "job_remaining");
        // The same again, under a new key, is the same answer.
        let again = host.post(&estate.token, &format!("{sandbox}/extend"), "far2", &far).await;
        assert_eq!(again, (StatusCode::OK, granted));

        host.ask(request("POST", &format!("{sandbox}/stop"), &estate.token, Some("s"), "")).await;
        host.ask(request("POST", &format!("{job}/stop"), &estate.token, Some("s"), "")).await;
        let (job_now, sandbox_now) =
            (host.get(&estate.token, &job).await.1, host.get(&estate.token, &sandbox).await.1);
        let before = host.books().await;
        for (path, version, wanted) in [
            (&job, &job_now["version"], "hosting.job_ended"),
            (&sandbox, &sandbox_now["version"], "hosting.sandbox_ended"),
        ] {
            let more = json!({"version": version, "max_spend_cents": 500});
            let answer = host.post(&estate.token, &format!("{path}/extend"), "late", &more).await;
            assert_eq!(code(&answer), (409, wanted));
        }
        for act in ["pause", "resume"] {
            let path = format!("{sandbox}/{act}");
            let answer = host.ask(request("POST", &path, &estate.token, Some("p"), "")).await;
            assert_eq!(code(&answer), (409, "hosting.sandbox_ended"), "{act}");
        }
        let answer =
            host.post(&estate.token, &format!("{job}/sandboxes"), "n", &super::sandbox()).await;
        assert_eq!(code(&answer), (409, "hosting.job_ended"));
        assert_eq!(host.books().await, before);
    });
}

async fn look(host: &Host, later_ms: i64) -> Sight {
    let now_ms = host.clock.pass(later_ms);
    host.store().write(move |tx| meter::tick(tx, now_ms, 100)).await.unwrap().clock
}

#[test]
fn a_clock_that_lies_bills_nobody() {
    both(async |host: &Host| {
        let estate = Estate::of(host, 1).await;
        assert_eq!(look(host, 1_000).await, Sight::Steady);
        let money = |books: super::books::Books| format!("{:?}", books.accounts());
        let before = money(host.books().await);
        // Back by an hour, as often as one likes: nothing is metered.
        assert_eq!(look(host, -60 * MINUTE_MS).await, Sight::Back { by_ms: 60 * MINUTE_MS });
        assert_eq!(look(host, 30 * MINUTE_MS).await, Sight::Back { by_ms: 30 * MINUTE_MS });
        assert_eq!(money(host.books().await), before);
        // The answers of then are no excuse to ask for more: the job is as old as it is.
        let path = format!("/v1/jobs/{}", estate.job_id);
        assert_eq!(host.get(&estate.token, &path).await.1["status"], "running");
        // Ahead by a day: not believed at once, and never billed for.
        let jump = look(host, DAY_MS).await;
        assert!(matches!(jump, Sight::Jumped { .. }), "{jump:?}");
        assert_eq!(money(host.books().await), before);
        assert_eq!(look(host, 1_000).await, Sight::Steady);
        assert_eq!(money(host.books().await), before);
        let path = format!("/v1/sandboxes/{}", estate.sandbox_id);
        let (_, token) = (0, host.sign_in(1).await);
        let (_, ended) = host.get(&token, &path).await;
        assert_ne!(ended["status"], "running", "{ended}");
        assert_eq!(ended["paid_minutes"], 1);
        assert_eq!(host.problems().await, Vec::<String>::new());
    });
}

#[test]
fn a_session_and_a_key_end_when_they_say() {
    both(async |host: &Host| {
        let token = host.sign_in(1).await;
        let wanted = json!({"name": "short", "scopes": ["jobs:read"], "lifetime_s": 60});
        let (_, made) = host.post(&token, "/v1/keys", "k", &wanted).await;
        let key = made["token"].as_str().unwrap();
        host.clock.pass(59_999);
        assert_eq!(host.get(key, "/v1/jobs").await.0, StatusCode::OK);
        host.clock.pass(1);
        assert_eq!(code(&host.get(key, "/v1/jobs").await), (401, "access.unauthenticated"));
        assert_eq!(host.get(&token, "/v1/jobs").await.0, StatusCode::OK);
        host.clock.pass(DAY_MS - 60_000);
        assert_eq!(code(&host.get(&token, "/v1/jobs").await), (401, "access.unauthenticated"));
    });
}
