//! Messages that others make and sign: the packages `siwe` and `viem`.

use guild_hosting::access::siwe::{self, Message};

use super::{BASE, NOW, both, new_session, policy, wallet};

/// What the script printed: a message, and its signature by the first wallet.
fn made_by(package: &str, nonce: &str, form: &str) -> (String, String) {
    let key = guild_protocol::hash::to_hex(&wallet(1).to_bytes());
    let arguments =
        [package, &format!("0x{key}"), nonce, &BASE.to_string(), &NOW.to_string(), form];
    let printed = testbed::javascript::run("sign-in.mjs", &arguments).unwrap();
    let printed: serde_json::Value = serde_json::from_str(printed.trim()).unwrap();
    let text = |name: &str| printed[name].as_str().unwrap().to_owned();
    (text("message"), text("signature"))
}

#[test]
fn messages_of_other_programs_are_read_and_their_signers_let_in() {
    both(|node| {
        for package in ["siwe", "viem"] {
            for form in ["short", "full"] {
                let nonce = node.nonce();
                let (text, signature) = made_by(package, nonce.reveal(), form);
                let read = Message::parse(&text).unwrap();
                assert_eq!(read.text(), text, "{package} {form}");
                assert_eq!(read.statement.is_some(), form == "full");
                assert_eq!(
                    read.resources.as_ref().map_or(0, Vec::len),
                    if form == "full" { 2 } else { 0 }
                );
                let ours = wallet(1).sign_message(text.as_bytes()).hex();
                assert_eq!(signature, ours, "{package} {form}: the same key signs the same bytes");
                let (checked, new) =
                    (siwe::check(&text, &signature, &policy(), NOW), new_session());
                let signed = node.write(move |tx| siwe::sign_in(tx, &checked, &new, NOW)).unwrap();
                let session = signed.session().unwrap();
                let address = wallet(1).evm_address().to_lowercase();
                assert_eq!(session.user_id.as_str(), format!("eip155:{address}"));
            }
        }
    });
}

#[test]
fn other_programs_read_our_messages() {
    let nonce = guild_hosting::access::Nonce::make(&super::Dice);
    let mut ours = super::message(&wallet(1), &nonce);
    ours.scheme = Some("https".to_owned());
    ours.expiration_time = Some(siwe::Time::at(NOW + 60_000).unwrap());
    ours.not_before = Some(siwe::Time::at(NOW - 60_000).unwrap());
    ours.request_id = Some("a-request".to_owned());
    ours.resources = Some(vec!["https://guild.example/terms".to_owned()]);
    let text = ours.text();
    let signature = wallet(1).sign_message(text.as_bytes()).hex();
    for package in ["siwe", "viem"] {
        let arguments = [package, "verify", &text, &signature, &NOW.to_string()];
        let printed = testbed::javascript::run("sign-in.mjs", &arguments).unwrap();
        let read: serde_json::Value = serde_json::from_str(printed.trim()).unwrap();
        assert_eq!(read["valid"], true, "{package}");
        assert_eq!(read["address"], wallet(1).evm_address(), "{package}");
        assert_eq!(read["nonce"], nonce.reveal(), "{package}");
        assert_eq!(read["chainId"], BASE, "{package}");
    }
}
