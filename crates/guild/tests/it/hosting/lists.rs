//! Lists that are longer than a page.

use serde_json::json;

use super::shop::Shop;
use super::{good, text};
use crate::support::Home;

#[test]
fn a_list_goes_on_past_a_page_and_says_where_it_ends() {
    let mut shop = Shop::open(&["--set", "hosting.requests_per_minute=1000000"]);
    let buyer = Home::new();
    good(&buyer, &["key", "new"]);
    good(&buyer, &["login", "--host", &shop.url]);
    // More than a user may have at once: they end and others come.
    let file = buyer.path().join(".local/share/guildhall/hosting.json");
    let session: serde_json::Value =
        serde_json::from_slice(&std::fs::read(file).unwrap_or_default()).unwrap_or_default();
    shop.token = text(&session, "token");
    for n in 0..205 {
        let wanted = json!({"name": format!("job {n}"), "max_spend_cents": 1, "ttl_s": 3600});
        let (status, made) = shop.post("/v1/jobs", &wanted);
        assert_eq!(status, 201, "{made}");
        let stop = format!("/v1/jobs/{}/stop", text(&made, "job_id"));
        assert_eq!(shop.post(&stop, &json!({})).0, 200);
    }
    let count = |args: &[&str]| {
        let list = good(&buyer, args);
        (list["jobs"].as_array().map(Vec::len), list["next"].is_string())
    };
    assert_eq!(count(&["job", "ls", "--limit", "1000"]), (Some(205), false));
    assert_eq!(count(&["job", "ls", "--limit", "204"]), (Some(204), true));
    assert_eq!(count(&["job", "ls"]), (Some(50), true));
    let told = buyer.run(&["job", "ls", "--limit", "3"]);
    assert_eq!((told.code, told.stdout.lines().count()), (0, 4), "{told:?}");
    assert!(told.stderr.contains("there may be older ones"), "{told:?}");
}
