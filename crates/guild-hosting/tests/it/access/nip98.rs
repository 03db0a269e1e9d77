//! A Nostr key proves itself for one request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use guild_hosting::access::nip98::{self, Asked};
use guild_hosting::access::{Origin, Scopes};
use guild_hosting::{Result, UserId};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::nostr::tag::tag;
use guild_protocol::nostr::{Draft, Event};

use super::{NOW, Node, ORIGIN, both, new_session, wallet, why};

const BODY: &[u8] = br#"{"name":"x"}"#;

fn draft() -> Draft {
    Draft {
        kind: 27235,
        created_at: u64::try_from(NOW / 1000).unwrap(),
        tags: vec![
            tag(["u", "https://guild.example/v1/auth/verify?a=b"]),
            tag(["method", "POST"]),
            tag(["payload", &Hash::of(BODY).hex()]),
        ],
        content: String::new(),
    }
}

fn header_of(event: &Event) -> String {
    format!("Nostr {}", STANDARD.encode(event.to_json()))
}

fn header(draft: Draft) -> String {
    header_of(&draft.sign(&wallet(1)).unwrap())
}

fn checked(header: &str, body: &[u8], now_ms: i64) -> Result<nip98::Proof> {
    let origins: Vec<Origin> = vec!["http://127.0.0.1:4848".parse()?, ORIGIN.parse()?];
    let path_and_query = "/v1/auth/verify?a=b";
    nip98::check(header, &Asked { origins: &origins, method: "POST", path_and_query, body }, now_ms)
}

fn once(node: &Node, header: &str, now_ms: i64) -> Result<UserId> {
    let (proof, new) = (checked(header, BODY, now_ms)?, new_session());
    node.write(move |tx| Ok(nip98::sign_in(tx, &proof, &new, now_ms)?.user_id))
}

#[test]
fn a_key_proves_itself_and_signs_in() {
    both(|node| {
        let header = header(draft());
        let proof = checked(&header, BODY, NOW).unwrap();
        let new = new_session();
        let token = new.token.clone();
        let session = node.write(move |tx| nip98::sign_in(tx, &proof, &new, NOW)).unwrap();
        assert_eq!(session.user_id.as_str(), format!("nostr:{}", wallet(1).public_key().hex()));
        let caller = node.who(&token, NOW).unwrap();
        assert_eq!((caller.user_id, caller.scopes), (session.user_id, Scopes::ALL));
        assert_eq!(why(once(node, &header, NOW)), "access.nip98_replayed");
    });
}

#[test]
fn an_event_opens_once_of_fifty_and_as_long_as_it_is_fresh() {
    both(|node| {
        let header = header(draft());
        let tries = (0..50)
            .map(|_| {
                let (proof, new) = (checked(&header, BODY, NOW).unwrap(), new_session());
                move |tx: &mut guild_store::Tx<'_>| nip98::sign_in(tx, &proof, &new, NOW)
            })
            .collect();
        let outcomes: Vec<_> = node.write_all(tries).into_iter().map(why).collect();
        assert_eq!(outcomes.iter().filter(|why| **why == "nothing").count(), 1);
        assert_eq!(outcomes.iter().filter(|why| **why == "access.nip98_replayed").count(), 49);
        assert_eq!(node.rows("access_session"), 1);
        // It is forgotten only once it is too old, and the clock set back does not help.
        for later_ms in [0, 60_000, -60_000] {
            assert_eq!(why(once(node, &header, NOW + later_ms)), "access.nip98_replayed");
        }
        let sweep =
            |now_ms| node.write(move |tx| guild_hosting::access::sweep(tx, now_ms)).unwrap();
        sweep(NOW + 179_999);
        assert_eq!(why(once(node, &header, NOW)), "access.nip98_replayed");
        sweep(NOW + 180_000);
        assert_eq!(node.rows("access_seen"), 0);
        assert_eq!(why(once(node, &header, NOW + 180_000)), "access.nip98_time");
    });
}

#[test]
fn an_event_about_another_request_is_refused() {
    let with = |change: fn(&mut Draft)| {
        let mut changed = draft();
        change(&mut changed);
        why(checked(&header(changed), BODY, NOW))
    };
    let refused = [
        with(|d| d.tags[0][1] = "https://evil.example/v1/auth/verify?a=b".to_owned()),
        with(|d| d.tags[0][1] = "https://guild.example/v1/auth/verify".to_owned()),
        with(|d| d.tags[0][1] = "https://guild.example/v1/jobs".to_owned()),
        with(|d| d.tags[1][1] = "GET".to_owned()),
        with(|d| d.tags[1][1] = "post".to_owned()),
        with(|d| d.tags[2][1] = Hash::of(b"{}").hex()),
    ];
    assert_eq!(refused, ["access.nip98_mismatch"; 6]);
    let malformed = [
        with(|d| d.kind = 1),
        with(|d| d.tags.truncate(2)),
        with(|d| drop(d.tags.remove(0))),
        with(|d| drop(d.tags.remove(1))),
        with(|d| d.tags.push(d.tags[0].clone())),
        with(|d| d.tags[1].push("GET".to_owned())),
        with(|d| d.tags.push(tag(["u"]))),
        with(|d| d.content = "x".repeat(2_000)),
    ];
    assert_eq!(malformed, ["access.nip98_malformed"; 8]);
    let times = [61, -61, i64::MAX / 2_000].map(|s| {
        let mut changed = draft();
        changed.created_at = u64::try_from(NOW / 1000 + s).unwrap();
        why(checked(&header(changed), BODY, NOW))
    });
    assert_eq!(times, ["access.nip98_time"; 3]);
    let mut other_origin = draft();
    other_origin.tags[0][1] = "http://127.0.0.1:4848/v1/auth/verify?a=b".to_owned();
    assert_eq!(why(checked(&header(other_origin), BODY, NOW)), "nothing");
    assert_eq!(why(checked(&header(draft()), b"", NOW)), "access.nip98_mismatch");
    let mut without = draft();
    without.tags.truncate(2);
    assert_eq!(why(checked(&header(without), b"", NOW)), "nothing");
}

#[test]
fn what_is_forged_or_rubbish_is_refused() {
    let event = draft().sign(&wallet(1)).unwrap();
    let mut other_author = event.clone();
    other_author.pubkey = wallet(2).public_key();
    let mut other_id = event.clone();
    other_id.id = draft().sign(&wallet(2)).unwrap().id;
    let mut other_signature = event.clone();
    other_signature.sig = draft().sign(&wallet(2)).unwrap().sig;
    for forged in [other_author, other_id, other_signature] {
        assert_eq!(why(checked(&header_of(&forged), BODY, NOW)), "access.nip98_malformed");
    }
    let good = header_of(&event);
    let rubbish = [
        String::new(),
        "Nostr ".to_owned(),
        "Nostr !!!".to_owned(),
        good.replace("Nostr", "Bearer"),
        good.replace("Nostr", "nostr"),
        format!("{good}{good}"),
        format!("Nostr {}", STANDARD.encode("[]")),
        format!("Nostr {}", STANDARD.encode(vec![b'['; 6_000])),
        format!("Nostr {}", "A".repeat(100_000)),
    ];
    for bad in rubbish {
        assert_eq!(why(checked(&bad, BODY, NOW)), "access.nip98_malformed");
    }
}
