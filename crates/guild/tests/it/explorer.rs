//! The pages and numbers of a real node.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use serde_json::Value;

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

pub(crate) fn get(node: &Node, path: &str) -> (u16, String) {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut answer = agent.get(format!("http://{}{path}", node.address())).call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

/// A number of a node, if it is there.
pub(crate) fn counted(node: &Node, number: &str) -> Option<u64> {
    let (status, numbers) = get(node, "/metrics");
    assert_eq!(status, 200);
    let mut lines = numbers.lines().filter_map(|line| line.rsplit_once(' '));
    lines.find(|(name, _)| *name == number).map(|(_, value)| value.parse().unwrap())
}

#[test]
fn a_node_is_ready_shows_its_pages_and_counts_what_it_is_asked() {
    let home = Home::new();
    let alone = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
    let node = Node::up(&home, &alone);
    let (status, ready) = get(&node, "/readyz");
    assert_eq!((status, ready.as_str()), (200, r#"{"ok":true,"reasons":[]}"#));
    let (status, page) = get(&node, "/");
    assert_eq!(status, 200);
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Nobody is live."));
    let (_, summary) = get(&node, "/api/summary");
    assert_eq!(serde_json::from_str::<Value>(&summary).unwrap()["counts"]["requests"], 0);
    assert_eq!(get(&node, "/requests/nothing").0, 400);
    for (number, value) in [
        (r#"http_requests_total{route="/",method="GET",status="200"}"#, 1),
        (r#"http_requests_total{route="/requests/{id}",method="GET",status="400"}"#, 1),
        (r#"intake_events_total{verdict="stored"}"#, 0),
        (r#"intake_events_total{verdict="hostile"}"#, 0),
        (r#"http_request_ms_bucket{route="/",le="10000"}"#, 1),
    ] {
        assert_eq!(counted(&node, number), Some(value), "{number}");
    }
    // Its services write when they want.
    assert!(counted(&node, r#"store_waiting_calls{to="write"}"#).is_some());
    assert_eq!(node.stop(), 0);
}
