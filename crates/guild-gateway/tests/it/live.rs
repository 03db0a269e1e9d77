//! What keeps pages fresh, run outside of a browser.

use std::path::Path;
use std::process::Command;

#[test]
fn a_page_follows_the_market_once_per_burst_and_only_while_it_is_looked_at() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut node = Command::new("node");
    node.arg(here.join("tests/it/live.js")).arg(here.join("src/web/live.js"));
    let output = node.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout), @r"
    opened: /api/market/events?last=0 live new 1
    fifty events: newer 2
    in use: 2
    hidden: true
    back: 2 reconnecting
    ");
}
