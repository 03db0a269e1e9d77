//! Events, jobs and announcements, against events that another implementation signed (`vectors/nostr.json`).

use guild_protocol::env::Random;
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::{Event, Limits};
use proptest::prelude::*;
use serde_json::Value;

mod announcement;
mod crypto;
mod dispute;
mod event;
mod heartbeat;
mod job;
mod receipt_notice;
mod review;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../vectors/nostr.json")).unwrap()
}

/// The JSON text of an event of the vectors.
fn vector_text(name: &str) -> String {
    vectors()["events"][name].to_string()
}

fn vector(name: &str) -> Event {
    Event::parse_verified(vector_text(name).as_bytes(), &Limits::DEFAULT).unwrap()
}

fn secret(of: &str) -> SecretKey {
    vectors()[of]["secret"].as_str().unwrap().parse().unwrap()
}

/// The same bytes every time.
struct Fixed(u8);

impl Random for Fixed {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0);
    }
}

fn cases(n: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(n) }
}

/// Tags whose names mean something, with values that may or may not fit.
fn hostile_tags() -> impl Strategy<Value = Vec<Vec<String>>> {
    let name = prop::sample::select(vec![
        "i",
        "output",
        "param",
        "bid",
        "relays",
        "relay",
        "p",
        "t",
        "e",
        "request",
        "amount",
        "status",
        "encrypted",
        "expiration",
        "content",
        "d",
        "k",
        "alt",
        "",
    ]);
    let value = prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "text",
            "json",
            "url",
            "",
            "wss://a.example",
            "5050",
            "-1",
            "99999999999999999999",
            "schema_id",
            "job_hash",
            "job_type",
            "processing",
            "{}",
            "[[\"status\",\"x\"]]",
            "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798",
        ])
        .prop_map(str::to_owned),
    ];
    let tag = (name, prop::collection::vec(value, 0..5))
        .prop_map(|(name, rest)| std::iter::once(name.to_owned()).chain(rest).collect());
    prop::collection::vec(tag, 0..8)
}
