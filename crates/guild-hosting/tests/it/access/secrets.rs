//! No token, signature or nonce is in a `Debug`, an error, an event or a table.

use guild_hosting::access::idempotency::{self, Answer, Request};
use guild_hosting::access::nip98::{self, Asked};
use guild_hosting::access::siwe::{self, Message};
use guild_hosting::access::{Nonce, Scopes, Token};
use guild_hosting::access::{key::NewKey, nonce};
use guild_protocol::evm::Signature;
use guild_store::event;

use super::{Dice, NOW, Node, both, message, new_session, place, policy, wallet};

/// Everything that the tables of this module and its events hold, as text.
fn stored(node: &Node) -> String {
    let tables = [
        "SELECT nonce_hash || ' ' || place FROM access_nonce",
        "SELECT event_id FROM access_seen",
        "SELECT session_id || ' ' || token_hash || ' ' || user_id || ' ' || via FROM access_session",
        "SELECT key_id || ' ' || token_hash || ' ' || user_id || ' ' || name || ' ' || scopes FROM access_key",
        "SELECT user_id || ' ' || path || ' ' || key || ' ' || request_hash || ' ' || body FROM access_idempotency",
    ];
    node.read(move |rx| {
        let mut all = String::new();
        for table in tables {
            let rows: Vec<(String,)> = rx.all(table, &[])?;
            assert!(!rows.is_empty(), "nothing to look at: {table}");
            rows.iter().for_each(|(row,)| all.push_str(row));
        }
        let events = event::after(rx, guild_hosting::access::TOPIC, 0, 100)?;
        assert_eq!(events.len(), 3);
        all.push_str(&format!("{events:?}"));
        Ok(all)
    })
    .unwrap()
}

/// What must not be there, said so that it is found in any case.
fn assert_none(secrets: &[&str], text: &str) {
    let text = text.to_lowercase();
    for secret in secrets {
        let bare =
            secret.trim_start_matches("0x").trim_start_matches("ghs_").trim_start_matches("ghk_");
        assert!(!text.contains(&bare.to_lowercase()), "a secret is in {text}");
    }
}

#[test]
fn a_planted_secret_is_found() {
    let caught = std::panic::catch_unwind(|| assert_none(&["ghs_ABCDEF"], "…abcdef…"));
    assert!(caught.is_err());
}

#[test]
fn tables_and_events_hold_only_hashes() {
    both(|node| {
        let (_, session_token) = node.signed_in(&wallet(1));
        let caller = node.who(&session_token, NOW).unwrap();
        let (_, key_token) = node.make_key(&caller, "jobs:read", NOW + 1_000).unwrap();
        let unused = node.nonce();
        let token = key_token.clone();
        node.write(move |tx| {
            let request = Request::new(&caller.user_id, "POST", "/v1/keys", "k", "", b"{}")?;
            let shown = format!("{{\"token\":\"{}\"}}", token.reveal());
            idempotency::run(tx, &request, NOW, |_| {
                Answer::shown_once(201, shown.clone(), "{\"token\":null}")
            })
        })
        .unwrap();
        let header = nostr_header();
        let proof = nip98::check(&header, &asked(), NOW).unwrap();
        let new = new_session();
        let nostr_token = new.token.clone();
        node.write(move |tx| nip98::sign_in(tx, &proof, &new, NOW)).unwrap();
        let tokens = [&session_token, &key_token, &nostr_token].map(Token::reveal);
        assert_none(&tokens, &stored(node));
        assert_none(&[unused.reveal(), &nostr_event().sig.hex()], &stored(node));
    });
}

fn asked() -> Asked<'static> {
    static ORIGINS: std::sync::LazyLock<Vec<guild_hosting::access::Origin>> =
        std::sync::LazyLock::new(|| vec![super::ORIGIN.parse().unwrap()]);
    Asked { origins: &ORIGINS, method: "GET", path_and_query: "/v1/jobs", body: b"" }
}

fn nostr_event() -> guild_protocol::nostr::Event {
    use guild_protocol::nostr::{Draft, tag::tag};
    let tags = vec![tag(["u", "https://guild.example/v1/jobs"]), tag(["method", "GET"])];
    let created_at = u64::try_from(NOW / 1000).unwrap();
    Draft { kind: 27235, created_at, tags, content: String::new() }.sign(&wallet(1)).unwrap()
}

fn nostr_header() -> String {
    use base64::Engine as _;
    let text = nostr_event().to_json();
    format!("Nostr {}", base64::engine::general_purpose::STANDARD.encode(text))
}

#[test]
fn what_is_formatted_shows_no_secret() {
    let (session, nonce) = (new_session(), Nonce::make(&Dice));
    let key = NewKey::make(&Dice, &Dice, "name", Scopes::ALL, NOW + 1);
    let read: Message = message(&wallet(1), &nonce);
    let signature: Signature = wallet(1).sign_message(read.text().as_bytes());
    let checked = siwe::check(&read.text(), &signature.hex(), &policy(), NOW);
    let proof = nip98::check(&nostr_header(), &asked(), NOW).unwrap();
    let shown = format!("{{\"token\":\"{}\"}}", key.token.reveal());
    let answer = Answer::shown_once(201, shown, "{}").unwrap();
    let begun = idempotency::Begun::Known(answer.clone());
    let formatted = format!(
        "{session:?} {session:#?} {nonce:?} {nonce:#?} {key:?} {key:#?} {read:?} {read:#?} {signature:?} {checked:?} \
         {checked:#?} {proof:?} {answer:?} {answer:#?} {begun:?}"
    );
    let (hex, event_signature) = (signature.hex(), nostr_event().sig.hex());
    let secrets =
        [session.token.reveal(), key.token.reveal(), nonce.reveal(), &hex, &event_signature];
    assert_none(&secrets, &formatted);
    assert!(formatted.contains("Token(ghs_…)") && formatted.contains("Nonce(…)"));
}

#[test]
fn no_error_repeats_what_was_sent() {
    let nonce = Nonce::make(&Dice);
    let text = message(&wallet(1), &nonce).text();
    let signature = wallet(2).sign_message(text.as_bytes()).hex();
    let token = Token::make(guild_hosting::access::TokenKind::Session, &Dice);
    let mut said = String::new();
    let mut say = |error: guild_hosting::Error| said.push_str(&format!("{error} {error:?}\n"));
    let node = Node::sqlite(guild_store::Hooks::default());
    say(node.try_in(&text, &signature, NOW).unwrap_err());
    let issued = nonce.clone();
    node.write(move |tx| {
        nonce::issue(tx, &issued, place("192.0.2.1"), &nonce::Limits::default(), NOW)
    })
    .unwrap();
    say(node.try_in(&text, &signature, NOW).unwrap_err());
    say(node.try_in(&format!("{text}\nNonce: {}", nonce.reveal()), &signature, NOW).unwrap_err());
    say(node.try_in(&text.replace("Nonce: ", "Nonce: -"), &signature, NOW).unwrap_err());
    for bad in [format!("{}0", token.reveal()), token.reveal().to_uppercase()] {
        say(bad.parse::<Token>().unwrap_err());
    }
    say(node.who(&token, NOW).unwrap_err());
    say(nip98::check(&format!("{}x", nostr_header()), &asked(), NOW).unwrap_err());
    say(nip98::check(&nostr_header(), &asked(), NOW + 100_000).unwrap_err());
    // The second time the row is there already: the database itself complains.
    let (again, limits) = (nonce.clone(), nonce::Limits::default());
    let twice = node.write(move |tx| {
        nonce::issue(tx, &again, place("192.0.2.1"), &limits, NOW)?;
        nonce::issue(tx, &again, place("192.0.2.1"), &limits, NOW)
    });
    say(twice.unwrap_err());
    assert_eq!(said.lines().count(), 10);
    let header = nostr_header();
    let body = header.trim_start_matches("Nostr ");
    assert_none(
        &[nonce.reveal(), &signature, token.reveal(), body, &nostr_event().sig.hex()],
        &said,
    );
}
