//! A relay of another make, between two of our nodes.

use guild_network::client::{EchoState, SubState};
use testbed::NostrRelay;

use super::*;

#[test]
fn events_cross_a_foreign_relay_that_dies_and_comes_back() {
    run(async {
        let mut relay = tokio::task::spawn_blocking(|| NostrRelay::start().unwrap()).await.unwrap();
        let url = relay.url();
        let (a, b) = (Node::start(quick(&[&url])), Node::start(quick(&[&url])));
        for node in [&a, &b] {
            node.until_relay(&url, "live", |relay| relay.live == SubState::Live).await;
        }
        let mut sent = Vec::new();
        for n in 0..60 {
            let event = match n % 2 {
                0 => card(n, 0),
                _ => ours(n),
            };
            a.publish(&event, &[&url]).await;
            sent.push(event);
            if n % 20 == 10 {
                // Gone in the middle, and back with what it had.
                relay.stop();
                a.until_relay(&url, "lost", |relay| relay.state != State::Connected).await;
            }
            if n % 20 == 15 {
                relay = tokio::task::spawn_blocking(|| {
                    relay.resume().unwrap();
                    relay
                })
                .await
                .unwrap();
            }
        }
        b.until_stored(&sent).await;
        for event in &sent {
            a.until("acked", async |node: &Node| {
                matches!(&node.acks(event).await[..], [(state, _)] if state == "acked")
            })
            .await;
        }
        for node in [&a, &b] {
            let stored = node.stored(kind::ANNOUNCEMENT).await.len()
                + node.stored(kind::DEFAULT_REQUEST).await.len();
            assert_eq!(stored, 60);
            assert_eq!(node.relay(&url).counts.hostile, 0);
        }

        // Whoever comes later gets all of it.
        let c = Node::start(quick(&[&url]));
        c.until_stored(&sent).await;
        c.until_relay(&url, "fetched", |relay| relay.fetched).await;
        c.until_relay(&url, "echo", |relay| relay.echo != EchoState::Unknown).await;
        assert_eq!(c.relay(&url).information.name.as_deref(), Some("foreign"));
    });
}
