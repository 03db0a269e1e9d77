//! What is another one's is unknown, on every route.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::routes::{Estate, Need, ROUTES};
use super::{Host, both, code};

/// What is said of a name that one does not have.
fn unknown(path: &str) -> Option<&'static str> {
    [
        ("{job_id}", "hosting.unknown_job"),
        ("{sandbox_id}", "hosting.unknown_sandbox"),
        ("{key_id}", "access.key_unknown"),
        ("{withdrawal_id}", "hosting.unknown_withdrawal"),
        ("{quote_id}", "hosting.unknown_quote"),
    ]
    .into_iter()
    .find_map(|(part, code)| path.contains(part).then_some(code))
}

/// The same names with another digit each: nobody has these.
fn nowhere(text: &str) -> String {
    text.replace("_0", "_f")
}

#[test]
fn another_one_s_names_are_unknown_on_every_route() {
    both(async |host: &Host| {
        let (ours, theirs) = (Estate::of(host, 1).await, Estate::of(host, 2).await);
        let before = host.books().await;
        let mut tried = 0;
        for route in ROUTES.iter().filter(|route| route.need != Need::Node) {
            let Some(wanted) = unknown(route.path) else { continue };
            let answer = host.ask(route.ask(&ours, &theirs.token, "steal")).await;
            assert_eq!(code(&answer), route.refusal(404, wanted), "{}", route.is());
            // It is said in the same words of what is nowhere: nobody learns that it exists.
            let key = (route.method != "GET").then_some("steal");
            let path = nowhere(&ours.path(route.path));
            let nothing = super::request(route.method, &path, &theirs.token, key, route.body);
            let (status, body) = host.ask(nothing).await;
            assert_eq!((status, body.to_string()), (answer.0, nowhere(&answer.1.to_string())));
            tried += 1;
        }
        assert!(tried >= 24, "{tried}");
        assert_eq!(host.books().await, before);
        // All of it is there for its owner, so the refusals say something.
        for route in ROUTES.iter().filter(|route| route.method == "GET") {
            if unknown(route.path).is_some() && !route.path.contains("exec") {
                let answer = host.ask(route.ask(&ours, &ours.token, "")).await;
                if route.path.contains("{port}") {
                    // Nothing listens there, but the sandbox is known.
                    assert_ne!(code(&answer).1, "hosting.unknown_sandbox", "{}", route.is());
                    continue;
                }
                let inside = route.path.ends_with("files") || route.path.ends_with("directory");
                let wanted = if inside { StatusCode::CONFLICT } else { StatusCode::OK };
                assert_eq!(answer.0, wanted, "{}: {}", route.is(), answer.1);
            }
        }
    });
}

#[test]
fn lists_show_only_one_s_own_wherever_they_begin() {
    both(async |host: &Host| {
        let (ours, theirs) = (Estate::of(host, 1).await, Estate::of(host, 2).await);
        let lists = ROUTES.iter().filter(|route| {
            route.method == "GET"
                && !route.path.contains('{')
                && matches!(route.need, Need::Scope(_))
        });
        let mut seen = 0;
        for route in lists {
            let begins = ours.names().map(|name| format!("{}?before={name}", route.path));
            for path in begins.into_iter().chain([route.path.to_owned()]) {
                let answer = host.get(&theirs.token, &path).await;
                let text = answer.1.to_string();
                // A name that is no cursor of this list is repeated nowhere.
                assert!(ours.names().iter().all(|name| !text.contains(name)), "{path}: {text}");
            }
            let own = host.get(&ours.token, route.path).await;
            assert_eq!(own.0, StatusCode::OK, "{}", route.is());
            seen += 1;
        }
        assert_eq!(seen, 6);
    });
}

#[test]
fn a_job_of_one_takes_no_sandbox_of_another() {
    both(async |host: &Host| {
        let (ours, theirs) = (Estate::of(host, 1).await, Estate::of(host, 2).await);
        let before = host.books().await;
        // Neither by the path, nor by a field that says so.
        let path = format!("/v1/jobs/{}/sandboxes", ours.job_id);
        let answer = host.post(&theirs.token, &path, "k1", &super::sandbox()).await;
        assert_eq!(code(&answer), (404, "hosting.unknown_job"));
        let own = format!("/v1/jobs/{}/sandboxes", theirs.job_id);
        for (field, name) in
            [("job_id", &ours.job_id), ("user_id", &ours.user_id), ("sandbox_id", &ours.sandbox_id)]
        {
            let mut body = super::sandbox();
            body[field] = json!(name);
            let answer = host.post(&theirs.token, &own, field, &body).await;
            assert_eq!(code(&answer), (400, "gateway.bad_request"), "{field}");
        }
        assert_eq!(host.books().await, before);
        // The sandboxes of a job are those of its owner.
        let (_, list) = host.get(&ours.token, &path).await;
        let users: Vec<&Value> = list["sandboxes"].as_array().unwrap().iter().collect();
        assert_eq!(users.len(), 1);
        assert_eq!(users[0]["sandbox_id"], json!(ours.sandbox_id));
    });
}
