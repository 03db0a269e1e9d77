//! The pages of hosting in a real browser, with pictures for people to look at.

use axum::extract::Request as Asked;
use axum::http::HeaderValue;
use axum::middleware::Next;
use guild_hosting::sandbox;
use guild_protocol::hash::Hash;
use serde_json::json;

use super::pages::Customer;
use super::*;
use crate::pictures::look_at;

/// Ids that look like those of a real node, and are the same each time.
#[derive(Default)]
struct Mixed(AtomicI64);
impl Random for Mixed {
    fn fill(&self, bytes: &mut [u8]) {
        let drawn = Hash::of(&self.0.fetch_add(1, Ordering::SeqCst).to_le_bytes());
        bytes
            .iter_mut()
            .zip(drawn.as_bytes().iter().cycle())
            .for_each(|(byte, drawn)| *byte = *drawn);
    }
}

/// A day of somebody who runs benchmarks.
async fn day(host: &Host) -> Customer {
    let customer = host.customer(1, "Nightly benchmarks").await;
    let token = &customer.token;
    let path = format!("/v1/jobs/{}/sandboxes", customer.job_id);
    let large = json!({"image": "sandbox-base:v1.0.0", "cpu_milli": 2000, "ram_mib": 4096,
        "max_spend_micro_usd": 9_000});
    let (_, capped) = host.post(token, &path, "large", &large).await;
    host.start(capped["sandbox_id"].as_str().unwrap()).await;
    let other = json!({"name": "A quick look", "max_spend_micro_usd": 3_000, "ttl_s": 900});
    let (_, other) = host.post(token, "/v1/jobs", "other", &other).await;
    let small = format!("/v1/jobs/{}/sandboxes", other["job_id"].as_str().unwrap());
    let (_, small) = host.post(token, &small, "small", &super::sandbox()).await;
    host.start(small["sandbox_id"].as_str().unwrap()).await;
    for _ in 0..20 {
        host.tick(20_000).await;
    }
    for ended in [&capped, &small] {
        host.end(ended["sandbox_id"].as_str().unwrap()).await;
    }
    let (_, idle) = host.post(token, &path, "idle", &super::sandbox()).await;
    assert_eq!(idle["status"], "starting", "{idle}");
    host.tick(7_000).await;
    customer
}

#[test]
fn a_browser_shows_the_pages_of_hosting() {
    let host = Host::with(Arc::new(Mixed::default()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let customer = runtime.block_on(day(&host));
    let (signed_in, operator) = runtime.block_on(host.cookies());
    let names = [
        ("hosting", "/hosting".to_owned(), "Your sandboxes"),
        ("hosting-job", format!("/hosting/jobs/{}", customer.job_id), "Nightly benchmarks"),
        ("hosting-sandbox", format!("/hosting/sandboxes/{}", customer.sandbox_id), "Its minutes"),
        ("hosting-statement", "/hosting/statement".to_owned(), "credit, "),
    ];
    host.shown_to(&signed_in, &names);
    host.shown_to(
        &operator,
        &[("hosting-operator", "/hosting".to_owned(), "Everything that is hosted here")],
    );
    host.shown_to(
        "",
        &[("hosting-sign-in", "/hosting".to_owned(), "neither a wallet nor a Nostr key")],
    );
}

impl Host {
    /// Its machine says that it has stopped.
    async fn end(&self, sandbox_id: &str) {
        let (id, now_ms) = (sandbox_id.parse().unwrap(), self.clock.now_ms());
        let store = self.scene.store.as_ref().unwrap().handle();
        store.write(move |tx| sandbox::stopped(tx, &id, None, now_ms)).await.unwrap();
    }

    /// Looks at pages as a browser that has this cookie. It cannot be given one, so it comes on the way.
    fn shown_to(&self, cookie: &str, pages: &[(&str, String, &str)]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let home = format!("http://{}", listener.local_addr().unwrap());
        let signed_in = !cookie.is_empty();
        let cookie: HeaderValue = cookie.parse().unwrap();
        let with_cookie = move |mut request: Asked, next: Next| {
            request.headers_mut().insert("cookie", cookie.clone());
            next.run(request)
        };
        let router = self.gateway.router().layer(axum::middleware::from_fn(with_cookie));
        std::thread::spawn(move || {
            runtime.block_on(async { axum::serve(listener, router).await }).unwrap();
        });
        look_at(&home, pages, if signed_in { "/hosting/events" } else { "" });
    }
}
