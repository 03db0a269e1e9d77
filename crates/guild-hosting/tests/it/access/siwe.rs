//! Signing in with a wallet, and the ways to cheat at it.

use guild_hosting::access::siwe::{self, Message, Time};
use guild_hosting::access::{self, Credential, Origin};
use guild_protocol::identity::SecretKey;

use super::{DAY_MS, NOW, Node, block_on, both, message, new_session, policy, said, wallet, why};

/// Signs in with a message that was changed before it was signed; what the node says.
fn changed(node: &Node, change: impl Fn(&mut Message)) -> String {
    let mut changed = message(&wallet(1), &node.nonce());
    change(&mut changed);
    let text = changed.text();
    let signature = wallet(1).sign_message(text.as_bytes()).hex();
    node.try_in(&text, &signature, NOW).map_or_else(said, |_| "in".to_owned())
}

#[test]
fn a_wallet_signs_in_and_its_token_opens_until_it_expires() {
    both(|node| {
        let (session, token) = node.signed_in(&wallet(1));
        let address = wallet(1).evm_address().to_lowercase();
        assert_eq!(session.user_id.as_str(), format!("eip155:{address}"));
        let caller = node.who(&token, NOW).unwrap();
        assert_eq!(caller.user_id, session.user_id);
        assert_eq!(caller.scopes, access::Scopes::ALL);
        assert_eq!(caller.credential, Credential::Session(session.session_id));
        assert!(node.who(&token, NOW + DAY_MS - 1).is_ok());
        assert_eq!(why(node.who(&token, NOW + DAY_MS)), "access.unauthenticated");
        assert_eq!(why(node.who(&new_session().token, NOW)), "access.unauthenticated");
    });
}

#[test]
fn a_message_for_another_site_chain_or_time_is_refused() {
    both(|node| {
        let at = |ms: i64| Some(Time::at(NOW + ms).unwrap());
        let domain = |to: &'static str| move |m: &mut Message| m.domain = to.to_owned();
        let uri = |to: &'static str| move |m: &mut Message| m.uri = to.to_owned();
        let refused = [
            changed(node, domain("evil.example")),
            changed(node, domain("guild.example.evil.example")),
            changed(node, domain("127.0.0.1:4848")),
            changed(node, |m| m.scheme = Some("http".to_owned())),
            changed(node, uri("https://evil.example/login")),
            changed(node, uri("https://guild.example@evil.example/")),
            changed(node, uri("http://guild.example/login")),
            changed(node, |m| m.chain_id = 137),
            changed(node, |m| m.issued_at = at(60_001).unwrap()),
            changed(node, |m| m.issued_at = at(-360_001).unwrap()),
            changed(node, |m| m.expiration_time = at(-60_000)),
            changed(node, |m| m.not_before = at(60_001)),
        ];
        let expected = [
            "access.siwe_mismatch domain: is not that of this node",
            "access.siwe_mismatch domain: is not that of this node",
            "access.siwe_mismatch uri: is not at the domain of the message",
            "access.siwe_mismatch scheme: is not that of this node",
            "access.siwe_mismatch uri: is not at the domain of the message",
            "access.siwe_mismatch uri: is not at the domain of the message",
            "access.siwe_mismatch uri: is not at the domain of the message",
            "access.siwe_mismatch chain-id: is not one whose accounts may sign in",
            "access.siwe_time issued-at: is in the future",
            "access.siwe_time issued-at: is longer ago than a nonce is good",
            "access.siwe_time expiration-time: has passed",
            "access.siwe_time not-before: is in the future",
        ];
        assert_eq!(refused, expected);
        let within_the_skew = [
            changed(node, |m| m.scheme = Some("https".to_owned())),
            changed(node, uri("https://guild.example")),
            changed(node, |m| m.chain_id = 1),
            changed(node, |m| m.issued_at = at(60_000).unwrap()),
            changed(node, |m| m.issued_at = at(-360_000).unwrap()),
            changed(node, |m| m.expiration_time = at(-59_999)),
            changed(node, |m| m.not_before = at(60_000)),
        ];
        assert_eq!(within_the_skew, ["in"; 7]);
        assert_eq!(node.rows("access_session"), 7);
    });
}

#[test]
fn only_the_account_that_the_message_names_can_sign_it() {
    both(|node| {
        let text = || message(&wallet(1), &node.nonce()).text();
        let tried = |text: &str, signature: &str| why(node.try_in(text, signature, NOW));
        let good = |text: &str, by: &SecretKey| by.sign_message(text.as_bytes()).hex();
        let by_another = text();
        assert_eq!(tried(&by_another, &good(&by_another, &wallet(2))), "access.siwe_signature");
        let (one, other) = (text(), text());
        assert_eq!(tried(&one, &good(&other, &wallet(1))), "access.siwe_signature");
        // A contract's signature may have any length, and is not read: the refusal says so.
        let long = text();
        let signature = format!("{}{}", good(&long, &wallet(1)), "6492".repeat(16));
        assert_eq!(tried(&long, &signature), "access.siwe_contract");
        // One that says that the contract was told before, a short one, the compact form of EIP-2098, one byte more.
        for bytes in [0, 1, 64, 66] {
            let signature = format!("0x{}", "0".repeat(2 * bytes));
            let error = node.try_in(&text(), &signature, NOW).unwrap_err();
            assert_eq!(error.code().name, "access.siwe_contract", "{bytes}");
            assert!(error.to_string().contains(&format!("of {bytes} bytes")), "{error}");
        }
        for bad in ["", "0x0", "0xzz", &"0".repeat(132), &format!("0x{}", "0".repeat(130))] {
            assert_eq!(tried(&text(), bad), "access.siwe_signature", "{bad}");
        }
        let small_v = text();
        let mut bytes = wallet(1).sign_message(small_v.as_bytes()).to_bytes();
        bytes[64] -= 27;
        let signature = format!("0x{}", guild_protocol::hash::to_hex(&bytes));
        assert_eq!(tried(&small_v, &signature), "nothing");
        assert_eq!(node.rows("access_session"), 1);
    });
}

#[test]
fn a_nonce_is_good_for_one_try_of_fifty_at_once() {
    both(|node| {
        let text = message(&wallet(1), &node.nonce()).text();
        let signature = wallet(1).sign_message(text.as_bytes()).hex();
        let tries = (0..50)
            .map(|_| {
                let (checked, new) =
                    (siwe::check(&text, &signature, &policy(), NOW), new_session());
                move |tx: &mut guild_store::Tx<'_>| siwe::sign_in(tx, &checked, &new, NOW)
            })
            .collect();
        let outcomes = node.write_all(tries);
        let outcomes: Vec<_> =
            outcomes.into_iter().map(|tried| why(tried.unwrap().session())).collect();
        assert_eq!(outcomes.iter().filter(|why| **why == "nothing").count(), 1);
        assert_eq!(outcomes.iter().filter(|why| **why == "access.nonce_unknown").count(), 49);
        assert_eq!(node.rows("access_session"), 1);
    });
}

/// A signed-in wallet's message, shown to two processes of one database again and again.
#[test]
fn two_processes_take_a_nonce_once() {
    let (one, other) = Node::two();
    let text = message(&wallet(1), &one.nonce()).text();
    let signature = wallet(1).sign_message(text.as_bytes()).hex();
    let tries = |node: &Node| -> Vec<_> {
        let check = || siwe::check(&text, &signature, &policy(), NOW);
        (0..20)
            .map(|_| {
                let (checked, new) = (check(), new_session());
                node.store.write(move |tx| siwe::sign_in(tx, &checked, &new, NOW))
            })
            .collect()
    };
    let waiting = [tries(&one), tries(&other)].into_iter().flatten();
    let outcomes: Vec<_> = waiting.map(|tried| why(block_on(tried).unwrap().session())).collect();
    assert_eq!(outcomes.iter().filter(|why| **why == "nothing").count(), 1);
    assert_eq!(outcomes.iter().filter(|why| **why == "access.nonce_unknown").count(), 39);
    assert_eq!(other.rows("access_session"), 1);
}

#[test]
fn a_try_that_fails_uses_the_nonce_up_too() {
    both(|node| {
        let text = message(&wallet(1), &node.nonce()).text();
        let wrong = wallet(2).sign_message(text.as_bytes()).hex();
        let right = wallet(1).sign_message(text.as_bytes()).hex();
        assert_eq!(why(node.try_in(&text, &wrong, NOW)), "access.siwe_signature");
        assert_eq!(node.rows("access_nonce"), 0);
        assert_eq!(why(node.try_in(&text, &right, NOW)), "access.nonce_unknown");
        // What cannot be read names no nonce.
        let text = message(&wallet(1), &node.nonce()).text();
        assert_eq!(why(node.try_in(&format!("{text}\n"), &right, NOW)), "access.siwe_malformed");
        assert_eq!(node.rows("access_nonce"), 1);
        let right = wallet(1).sign_message(text.as_bytes()).hex();
        assert_eq!(why(node.try_in(&text, &right, NOW)), "nothing");
    });
}

#[test]
fn a_nonce_that_is_foreign_or_old_is_refused() {
    both(|node| {
        let foreign = access::Nonce::make(&super::Dice);
        let text = message(&wallet(1), &foreign).text();
        let signature = wallet(1).sign_message(text.as_bytes()).hex();
        assert_eq!(why(node.try_in(&text, &signature, NOW)), "access.nonce_unknown");
        let text = message(&wallet(1), &node.nonce()).text();
        let signature = wallet(1).sign_message(text.as_bytes()).hex();
        let late_ms = NOW + access::nonce::LIFETIME_MS;
        assert_eq!(why(node.try_in(&text, &signature, late_ms)), "access.nonce_unknown");
        let text = message(&wallet(1), &node.nonce()).text();
        let signature = wallet(1).sign_message(text.as_bytes()).hex();
        // The clock was an hour fast when the nonce was given: it does not live an hour longer.
        assert_eq!(why(node.try_in(&text, &signature, NOW - 3_600_000)), "access.nonce_unknown");
        assert_eq!(node.rows("access_session"), 0);
    });
}

#[test]
fn a_node_without_origins_or_chains_lets_nobody_in() {
    let mut nobody = policy();
    nobody.chain_ids.clear();
    let none = siwe::Policy { origins: Vec::<Origin>::new(), ..policy() };
    both(|node| {
        for policy in [&nobody, &none] {
            let text = message(&wallet(1), &node.nonce()).text();
            let signature = wallet(1).sign_message(text.as_bytes()).hex();
            let (checked, new) = (siwe::check(&text, &signature, policy, NOW), new_session());
            let tried = node.write(move |tx| siwe::sign_in(tx, &checked, &new, NOW)).unwrap();
            assert_eq!(why(tried.session()), "access.siwe_mismatch");
        }
    });
}
