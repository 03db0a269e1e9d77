//! The grammar of EIP-4361: what is read, what is refused and why.

use guild_hosting::access::siwe::{Field, MAX_BYTES, Message, Time};
use guild_protocol::evm::Address;
use proptest::prelude::*;

/// Every field.
const FULL: &str = "https://guild.example:4848 wants you to sign in with your Ethereum account:
0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf

I accept the terms: https://guild.example/tos (v1.0), and so on!

URI: https://guild.example:4848/login?next=%2Fjobs#top
Version: 1
Chain ID: 8453
Nonce: 0123456789abcdefABCDEF
Issued At: 2026-01-15T08:30:00.000Z
Expiration Time: 2026-01-15T09:30:00+01:00
Not Before: 2026-01-15T08:29:59.5Z
Request ID: some-id_1.2~3
Resources:
- ipfs://bafybeiemxf5abjwjbikoz4mc3a3dla6ual3jsgpdr4cjr3oz3evfyavhwq/
- https://guild.example/my-web2-claim.json";

const SHORT: &str = "guild.example wants you to sign in with your Ethereum account:
0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf


URI: https://guild.example
Version: 1
Chain ID: 1
Nonce: 01234567
Issued At: 2026-01-15T08:30:00Z";

#[test]
fn all_fields_are_read_and_written_as_they_were() {
    let full = Message::parse(FULL).unwrap();
    assert_eq!(full.text(), FULL);
    assert_eq!(
        (full.scheme.as_deref(), full.domain.as_str()),
        (Some("https"), "guild.example:4848")
    );
    assert_eq!(full.statement.as_deref(), FULL.lines().nth(3));
    assert_eq!(full.chain_id, 8453);
    assert_eq!(full.nonce.reveal(), "0123456789abcdefABCDEF");
    assert_eq!(full.issued_at, Time::at(1_768_465_800_000).unwrap());
    assert_eq!(full.expiration_time.map(|time| time.at_ms()), Some(1_768_465_800_000));
    assert_eq!(full.not_before.map(|time| time.at_ms()), Some(1_768_465_799_500));
    assert_eq!(full.request_id.as_deref(), Some("some-id_1.2~3"));
    assert_eq!(full.resources.map(|all| all.len()), Some(2));
    let short = Message::parse(SHORT).unwrap();
    assert_eq!(short.text(), SHORT);
    assert_eq!((short.statement, short.resources), (None, None));
}

/// The field that is named when a part of the full message is another one.
fn refused(from: &str, to: &str) -> Field {
    assert!(FULL.contains(from), "{from}");
    match Message::parse(&FULL.replacen(from, to, 1)) {
        Err(malformed) => malformed.field,
        Ok(read) => panic!("{to:?} for {from:?} was read as {read:?}"),
    }
}

#[test]
fn what_the_grammar_does_not_allow_is_refused_by_the_name_of_its_field() {
    use Field::{
        Address, ChainId, Domain, ExpirationTime, IssuedAt, Message, Nonce, NotBefore, RequestId,
        Resources, Scheme, Statement, Uri, Version,
    };
    let cases = [
        ("https://guild", "1https://guild", Scheme),
        ("https://guild", "://guild", Scheme),
        ("guild.example:4848 wants", "user@guild.example wants", Domain),
        ("guild.example:4848 wants", "gu\u{456}ld.example wants", Domain),
        ("guild.example:4848 wants", "guild.example/x wants", Domain),
        ("guild.example:4848 wants", "guild.example:4848  wants", Domain),
        (" wants you to", " wants  you to", Domain),
        ("account:\n", "account:\r\n", Domain),
        ("account:\n", "account: \n", Domain),
        ("0x7E5F", "0x7e5f", Address),
        ("0x7E5F", "0X7E5F", Address),
        ("5Bdf\n", "5Bdf\r\n", Address),
        ("5Bdf\n", "5Bd\n", Address),
        ("5Bdf\n\n", "5Bdf\n", Address),
        ("5Bdf\n\n", "5Bdf\n \n", Address),
        ("I accept", "I\raccept", Statement),
        ("I accept", "I accept\nURI: https://evil.example", Statement),
        ("I accept", "I\u{2028}accept", Statement),
        ("I accept", "I \u{202e}accept", Statement),
        ("I accept", "I \u{0}accept", Statement),
        ("I accept", "I %accept", Statement),
        ("I accept", "I \"accept\"", Statement),
        ("I accept", "Ι accept", Statement),
        ("so on!\n\n", "so on!\n", Statement),
        ("URI: ", "Uri: ", Uri),
        ("URI: ", "URI:", Uri),
        ("URI: ", "URI:  ", Uri),
        ("URI: https:", "URI: ", Uri),
        ("?next=%2F", "?next=%2", Uri),
        ("Version: 1", "Version: 2", Version),
        ("Version: 1", "Version: 1 ", Version),
        ("Version: 1", "Version: 01", Version),
        ("Version: 1\n", "", Version),
        ("Chain ID: 8453", "Chain ID: 08453", ChainId),
        ("Chain ID: 8453", "Chain ID: +8453", ChainId),
        ("Chain ID: 8453", "Chain ID: -1", ChainId),
        ("Chain ID: 8453", "Chain ID: 0x1", ChainId),
        ("Chain ID: 8453", "Chain ID: \u{661}", ChainId),
        ("Chain ID: 8453", "Chain ID: 18446744073709551616", ChainId),
        ("Chain ID: 8453", "Chain ID: ", ChainId),
        ("Nonce: 0123456789abcdefABCDEF", "Nonce: 0123456", Nonce),
        ("Nonce: 0123456789abcdefABCDEF", "Nonce: 01234567-", Nonce),
        ("Nonce: 0123456789abcdefABCDEF", "Nonce: 0123456\u{ff17}8", Nonce),
        ("Nonce: ", "Nonce: 12345678\nNonce: ", Nonce),
        ("Issued At: 2026", "Issued At: 26", IssuedAt),
        ("08:30:00.000Z", "08:30:00.000", IssuedAt),
        ("Issued At: 2026-01-15T08:30:00.000Z\n", "", IssuedAt),
        ("Expiration Time: 2026-01-15T09", "Expiration Time: 2026-01-15 09", ExpirationTime),
        ("Not Before: 2026-01-15", "Not Before: 2026-13-15", NotBefore),
        ("Not Before: ", "Not Before: 2026-01-15T08:30:00Z\nNot Before: ", NotBefore),
        ("Not Before: ", "Expiration Time: 2026-01-15T08:30:00Z\nNot Before: ", ExpirationTime),
        ("Not Before: 2026-01-15T08:29:59.5Z\n", "Issued At: 2026-01-15T08:30:00Z\n", IssuedAt),
        ("Request ID: some", "Request ID: so/me", RequestId),
        ("Request ID: some", "Request ID: so me", RequestId),
        ("Request ID: ", "Request ID: a\nRequest ID: ", RequestId),
        ("Resources:\n", "Resources: \n", Resources),
        ("- ipfs", "- not a uri\n- ipfs", Resources),
        ("- ipfs", "-ipfs", Message),
        ("claim.json", "claim.json\n", Message),
        ("claim.json", "claim.json\r", Resources),
        ("claim.json", "claim.json\nEvil: yes", Message),
        ("claim.json", "claim.json\nResources:\n- https://a.example", Message),
        ("Request ID: ", "Evil: yes\nRequest ID: ", Message),
    ];
    for (from, to, field) in cases {
        assert_eq!(refused(from, to), field, "{to:?} for {from:?}");
    }
    let many = "\n- https://a.example".repeat(31);
    assert_eq!(refused("claim.json", &format!("claim.json{many}")), Resources);
    let long = format!("I {}", "x".repeat(MAX_BYTES));
    assert_eq!(refused("I ", &long), Message);
}

#[test]
fn every_piece_of_a_message_is_no_message() {
    for text in [FULL, SHORT] {
        let cuts = (0..text.len()).filter(|end| Message::parse(&text[..*end]).is_ok());
        let good: Vec<&str> = cuts.map(|end| &text[end..]).collect();
        // Only where a field that may be absent begins, or a value may be shorter.
        for rest in good {
            let whole = rest.starts_with('\n');
            let shorter = [FULL.find("Request ID"), FULL.find("- ipfs")].into_iter().flatten();
            let inside =
                shorter.min().is_some_and(|from| text == FULL && text.len() - rest.len() > from);
            assert!(whole || inside, "{rest:?} was cut off");
        }
    }
}

fn any_time() -> impl Strategy<Value = Time> {
    (0..253_402_300_799_999_i64).prop_map(|ms| Time::at(ms).unwrap())
}

prop_compose! {
    fn any_message()(
        scheme in prop::option::of("[a-zA-Z][a-z0-9+.-]{0,8}"),
        domain in "[a-z0-9.-]{1,20}(:[0-9]{0,5})?",
        address in any::<[u8; 20]>(),
        statement in prop::option::of("[a-zA-Z0-9 :/?#@!$&'()*+,;=._~-]{1,60}"),
        uri in "[a-z][a-z0-9+.-]{0,5}:(//[a-z0-9.]{0,12}(:[0-9]{1,4})?)?(/[a-zA-Z0-9._~%-]{0,9})?",
        chain_id in any::<u64>(),
        nonce in "[a-zA-Z0-9]{8,40}",
        (issued_at, expiration_time, not_before) in
            (any_time(), prop::option::of(any_time()), prop::option::of(any_time())),
        request_id in prop::option::of("[a-zA-Z0-9:@!$&'()*+,;=._~-]{0,20}"),
        resources in prop::option::of(prop::collection::vec("[a-z]{1,5}:[a-z0-9/]{0,9}", 0..5)),
    ) -> Message {
        Message {
            // A per cent sign is followed by two digits.
            uri: uri.replace('%', "%41"),
            scheme, domain, statement, chain_id, issued_at, expiration_time, not_before, request_id, resources,
            address: Address::from_bytes(address),
            nonce: nonce.parse().unwrap(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn what_is_written_is_read_as_the_same(message in any_message()) {
        prop_assert_eq!(Message::parse(&message.text()).unwrap(), message);
    }

    #[test]
    fn rubbish_is_refused_without_a_panic(text in "\\PC{0,200}", lines in "[a-zA-Z0-9:/ \\n-]{0,200}") {
        prop_assert!(Message::parse(&text).is_err());
        prop_assert!(Message::parse(&lines).is_err());
    }

    /// Whatever is read is what was written: nothing is dropped, moved or put right on the way.
    #[test]
    fn what_is_changed_is_refused_or_read_as_it_is(
        message in any_message(), at in any::<prop::sample::Index>(), put in "[\\PC\\n\\r\\t]{0,2}", cut in 0..3_usize,
    ) {
        let text = message.text();
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let rest = chars.iter().skip(at + cut);
        let changed: String = chars.iter().take(at).copied().chain(put.chars()).chain(rest.copied()).collect();
        if let Ok(read) = Message::parse(&changed) {
            prop_assert_eq!(read.text(), changed);
        }
    }
}
