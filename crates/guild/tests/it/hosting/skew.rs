//! How far a wallet's clock may be off, at a node as it is started.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use guild_hosting::access::siwe::{Message, SKEW_MS, Time};
use guild_protocol::identity::SecretKey;
use serde_json::{Value, json};
use testbed::now_ms;

use super::shop::Shop;
use super::text;

/// Signs in with a message whose times are so far from now.
fn sign_in(shop: &Shop, change: impl Fn(&mut Message, i64)) -> (u16, Value) {
    let key = SecretKey::from_bytes([7; 32]).unwrap();
    let (status, asked) = shop.post("/v1/auth/nonce", &json!({}));
    assert_eq!(status, 200, "{asked}");
    let mut message = Message {
        scheme: None,
        domain: shop.url.strip_prefix("http://").unwrap().to_owned(),
        address: key.address(),
        statement: None,
        uri: shop.url.clone(),
        chain_id: asked["chain_ids"][0].as_u64().unwrap(),
        nonce: text(&asked, "nonce").parse().unwrap(),
        issued_at: Time::at(now_ms()).unwrap(),
        expiration_time: None,
        not_before: None,
        request_id: None,
        resources: None,
    };
    change(&mut message, now_ms());
    let message = message.text();
    let signature = key.sign_message(message.as_bytes()).hex();
    shop.post("/v1/auth/verify", &json!({ "message": message, "signature": signature }))
}

#[test]
fn a_wallet_s_clock_may_be_off_by_a_minute_and_no_more() {
    assert_eq!(SKEW_MS, 60_000);
    let shop = Shop::open(&[]);
    let time = |at_ms| Time::at(at_ms).unwrap();
    let (status, opened) = sign_in(&shop, |message, now_ms| {
        message.expiration_time = Some(time(now_ms - 1_000));
    });
    assert_eq!(status, 200, "{opened}");
    let late = |message: &mut Message, now_ms| {
        message.expiration_time = Some(time(now_ms - SKEW_MS - 1_000));
    };
    // A minute more than may be, because time goes on until it is read.
    let early = |message: &mut Message, now_ms| {
        message.not_before = Some(time(now_ms + 2 * SKEW_MS));
    };
    let future = |message: &mut Message, now_ms| message.issued_at = time(now_ms + 2 * SKEW_MS);
    for (status, refused) in [sign_in(&shop, late), sign_in(&shop, early), sign_in(&shop, future)] {
        assert_eq!(status, 401, "{refused}");
        assert_eq!(text(&refused["error"], "code"), "access.siwe_time");
    }
}
