//! Signing in with what was used, changed, or meant for others.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures_util::future::join_all;
use guild_hosting::access::nip98;
use guild_protocol::env::Signer;
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::tag::tag;
use guild_protocol::nostr::{Draft, kind};
use serde_json::{Value, json};

use super::{Host, T0, both, code, request};

fn key(n: u64) -> SecretKey {
    format!("{n:064x}").parse().unwrap()
}

async fn nonce(host: &Host) -> String {
    let (status, asked) = host.ask(request("POST", "/v1/auth/nonce", "", None, "")).await;
    assert_eq!(status, StatusCode::OK, "{asked}");
    asked["nonce"].as_str().unwrap().to_owned()
}

#[test]
fn of_thirty_at_once_with_one_nonce_one_gets_in() {
    both(async |host: &Host| {
        let key = key(7);
        let message = host.message(&key, &nonce(host).await);
        let tries = join_all((0..30).map(|_| host.verify(&key, &message))).await;
        let (good, bad): (Vec<_>, Vec<_>) =
            tries.into_iter().partition(|answer| answer.0 == StatusCode::OK);
        assert_eq!(good.len(), 1);
        assert!(bad.iter().all(|answer| code(answer) == (401, "access.nonce_unknown")));
    });
}

#[test]
fn a_message_that_was_altered_lets_nobody_in() {
    both(async |host: &Host| {
        let key = key(7);
        let before = host.books().await;
        let address = key.address().to_string();
        let lower = address.to_lowercase();
        let late = "\nExpiration Time: 2020-01-01T00:00:00Z";
        let to_come = "\nNot Before: 2040-01-01T00:00:00Z";
        for (what, from, to, wanted) in [
            ("domain", "127.0.0.1:4848 wants", "evil.example wants", "access.siwe_mismatch"),
            ("port", "127.0.0.1:4848 wants", "127.0.0.1:4849 wants", "access.siwe_mismatch"),
            (
                "uri",
                "URI: http://127.0.0.1:4848",
                "URI: http://evil.example",
                "access.siwe_mismatch",
            ),
            (
                "uri",
                "URI: http://127.0.0.1:4848",
                "URI: http://127.0.0.1:4848@evil.example",
                "access.siwe_mismatch",
            ),
            (
                "scheme",
                "127.0.0.1:4848 wants",
                "https://127.0.0.1:4848 wants",
                "access.siwe_mismatch",
            ),
            ("chain", "Chain ID: 8453", "Chain ID: 5", "access.siwe_mismatch"),
            ("version", "Version: 1", "Version: 2", "access.siwe_malformed"),
            ("checksum", address.as_str(), lower.as_str(), "access.siwe_malformed"),
            ("CRLF", "\n", "\r\n", "access.siwe_malformed"),
            ("CR", "Sign in", "Sign\rin", "access.siwe_malformed"),
            (
                "two statements",
                "Sign in to buy sandboxes.",
                "Sign in.\n\nURI: http://evil.example",
                "access.siwe_malformed",
            ),
            ("expired", "$", late, "access.siwe_time"),
            ("to come", "$", to_come, "access.siwe_time"),
            ("old", "2027-01-15", "2027-01-14", "access.siwe_time"),
            ("new", "2027-01-15", "2027-01-16", "access.siwe_time"),
        ] {
            let message = host.message(&key, &nonce(host).await);
            let altered = match from {
                "$" => format!("{message}{to}"),
                from => message.replace(from, to),
            };
            assert_ne!(message, altered, "{what}");
            let answer = host.verify(&key, &altered).await;
            assert_eq!(code(&answer).1, wanted, "{what}: {}", answer.1);
        }
        assert_eq!(host.books().await, before);
    });
}

#[test]
fn a_signature_that_is_not_of_the_account_lets_nobody_in() {
    both(async |host: &Host| {
        let (ours, theirs) = (key(7), key(8));
        let before = host.books().await;
        let verify = async |message: &str, signature: &str| {
            let body = json!({"message": message, "signature": signature}).to_string();
            host.ask(request("POST", "/v1/auth/verify", "", None, &body)).await
        };
        // Signed by another account; for another message; not at all.
        let message = host.message(&ours, &nonce(host).await);
        let foreign = theirs.sign_message(message.as_bytes()).hex();
        assert_eq!(code(&verify(&message, &foreign).await), (401, "access.siwe_signature"));
        let message = host.message(&ours, &nonce(host).await);
        let other = ours.sign_message(host.message(&ours, &nonce(host).await).as_bytes()).hex();
        assert_eq!(code(&verify(&message, &other).await), (401, "access.siwe_signature"));
        let zero = format!("0x{}", "00".repeat(65));
        let (short, long) = (format!("0x{}", "00".repeat(64)), format!("0x{}", "00".repeat(97)));
        for (signature, wanted) in [
            ("", "access.siwe_signature"),
            (&zero, "access.siwe_signature"),
            (&"f".repeat(132), "access.siwe_signature"),
            // Wallets that are contracts sign as they like; nobody here asks them.
            ("0x", "access.siwe_contract"),
            ("0x00", "access.siwe_contract"),
            (&short, "access.siwe_contract"),
            (&long, "access.siwe_contract"),
        ] {
            let message = host.message(&ours, &nonce(host).await);
            let answer = verify(&message, signature).await;
            assert_eq!(code(&answer), (401, wanted), "{signature}");
        }
        // The other half of the curve: the same signature, written in a second way.
        let message = host.message(&ours, &nonce(host).await);
        let good = ours.sign_message(message.as_bytes()).hex();
        let malleable = high_s(&good);
        let answer = verify(&message, &malleable).await;
        assert_eq!(code(&answer), (401, "access.siwe_signature"), "high s");
        assert_eq!(host.books().await, before);
    });
}

/// The same signature with s on the other side of the order, and the other parity.
fn high_s(hex: &str) -> String {
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xfe, 0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36,
        0x41, 0x41,
    ];
    let digits = hex.trim_start_matches("0x");
    let byte = |n: usize| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).unwrap();
    let mut bytes: Vec<u8> = (0..65).map(byte).collect();
    let mut borrow = 0_i16;
    for n in (0..32).rev() {
        let difference = i16::from(ORDER[n]) - i16::from(bytes[32 + n]) - borrow;
        borrow = i16::from(difference < 0);
        bytes[32 + n] = u8::try_from(difference.rem_euclid(256)).unwrap();
    }
    bytes[64] = if bytes[64] == 27 { 28 } else { 27 };
    format!("0x{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[test]
fn a_nonce_that_is_old_or_made_up_lets_nobody_in() {
    both(async |host: &Host| {
        let key = key(7);
        let before = host.books().await;
        let answer = host.verify(&key, &host.message(&key, &"ab".repeat(16))).await;
        assert_eq!(code(&answer), (401, "access.nonce_unknown"));
        let old = nonce(host).await;
        host.clock.pass(5 * 60_000);
        let answer = host.verify(&key, &host.message(&key, &old)).await;
        assert_eq!(code(&answer), (401, "access.nonce_unknown"));
        for rubbish in ["", "{}", "[]", r#"{"message":1,"signature":2}"#, "\u{0}"] {
            let answer = host.ask(request("POST", "/v1/auth/verify", "", None, rubbish)).await;
            assert_eq!(code(&answer), (400, "gateway.bad_request"), "{rubbish:?}");
        }
        assert_eq!(host.books().await, before);
    });
}

/// A request to sign in with a Nostr key, by a header for this address, method and body.
fn nostr(key: &SecretKey, url: &str, method: &str, at_ms: i64, body: &str) -> String {
    let draft = Draft {
        created_at: u64::try_from(at_ms / 1_000).unwrap(),
        kind: kind::HTTP_AUTH,
        tags: vec![tag(["u", url]), tag(["method", method])],
        content: body.to_owned(),
    };
    nip98::header(&draft.sign(key).unwrap())
}

fn with_header(header: &str, body: &str) -> Request<Body> {
    let mut asked = request("POST", "/v1/auth/verify", "", None, body);
    asked.headers_mut().insert("authorization", header.parse().unwrap());
    asked
}

#[test]
fn a_nostr_event_opens_once_here_and_now() {
    both(async |host: &Host| {
        let key = key(7);
        let url = "http://127.0.0.1:4848/v1/auth/verify";
        let good = nostr(&key, url, "POST", T0, "");
        let tries = join_all((0..20).map(|_| host.ask(with_header(&good, "")))).await;
        let (opened, refused): (Vec<_>, Vec<_>) =
            tries.into_iter().partition(|answer| answer.0 == StatusCode::OK);
        assert_eq!(opened.len(), 1);
        assert_eq!(opened[0].1["user_id"], json!(format!("nostr:{}", key.public_key().hex())));
        assert!(refused.iter().all(|answer| code(answer) == (401, "access.nip98_replayed")));
        let before = host.books().await;
        for (header, body, wanted) in [
            (
                nostr(&key, "http://evil.example/v1/auth/verify", "POST", T0, "a"),
                "",
                "access.nip98_mismatch",
            ),
            (
                nostr(&key, "http://127.0.0.1:4848/v1/jobs", "POST", T0, "b"),
                "",
                "access.nip98_mismatch",
            ),
            (nostr(&key, url, "GET", T0, "c"), "", "access.nip98_mismatch"),
            (nostr(&key, url, "POST", T0 - 61_000, "d"), "", "access.nip98_time"),
            (nostr(&key, url, "POST", T0 + 61_000, "e"), "", "access.nip98_time"),
            (nostr(&key, url, "POST", T0, "f"), "{}", "access.nip98_malformed"),
            ("Nostr !!!".to_owned(), "", "access.nip98_malformed"),
            ("Nostr ".to_owned(), "", "access.nip98_malformed"),
        ] {
            let answer = host.ask(with_header(&header, body)).await;
            assert_eq!(code(&answer), (401, wanted), "{}", answer.1);
        }
        assert_eq!(host.books().await, before);
    });
}

#[tokio::test]
async fn nobody_signs_in_without_a_proof() {
    let host = Host::new();
    let before = host.books().await;
    for user_id in ["nostr:00", "eip155:0x0000000000000000000000000000000000000000", "node", ""] {
        let body = json!({"user_id": user_id}).to_string();
        let answer = host.ask(request("POST", "/v1/auth/bypass", "", None, &body)).await;
        assert_eq!(code(&answer), (403, "hosting.bypass_off"), "{user_id}");
    }
    assert_eq!(host.books().await, before);
    assert_eq!(host.get("", "/v1/auth/me").await.1["error"]["field"], Value::Null);
}
