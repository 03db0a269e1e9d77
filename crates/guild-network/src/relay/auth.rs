//! Who has proven which key (NIP-42), and what only they may see.

use std::collections::BTreeSet;

use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, Filter, kind, tag};

/// How far the proof's time may be from ours.
const NEAR_S: u64 = 600;

/// Checks a proof: that it is one, for this connection, for this relay, made now.
pub(crate) fn check(
    proof: &Event,
    challenge: &str,
    is_ours: impl Fn(&str) -> bool,
    now_s: u64,
) -> Result<PublicKey, &'static str> {
    if proof.kind != kind::AUTH {
        return Err("invalid: a proof is an event of kind 22242");
    }
    if proof.created_at.abs_diff(now_s) > NEAR_S {
        return Err("invalid: the proof was not made within the last ten minutes");
    }
    if proof.tag("challenge") != Some(challenge) {
        return Err("invalid: the proof is not for the challenge of this connection");
    }
    if !proof.tag("relay").and_then(authority).is_some_and(|host| is_ours(&host)) {
        return Err("invalid: the proof is for another relay");
    }
    // Last, because it costs most.
    proof.verify().map_err(|_| "invalid: the id or the signature is wrong")?;
    Ok(proof.pubkey)
}

/// The host and the port that the address of a relay names; neither the scheme nor the path tells two relays apart.
pub(crate) fn authority(url: &str) -> Option<String> {
    let rest = url.strip_prefix("wss://").or_else(|| url.strip_prefix("ws://"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    rest.get(..end).filter(|host| !host.is_empty()).map(plain)
}

/// A host as it is compared: lower case, without the usual ports.
pub(crate) fn plain(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    let bare = host.strip_suffix(":443").or_else(|| host.strip_suffix(":80"));
    bare.map_or(host.clone(), str::to_owned)
}

/// Whether those who have proven these keys may see an event.
pub(crate) fn may_see(event: &Event, keys: &BTreeSet<PublicKey>, private: &BTreeSet<u16>) -> bool {
    if !private.contains(&event.kind) || keys.contains(&event.pubkey) {
        return true;
    }
    tag::values(&event.tags, "p")
        .any(|to| to.parse::<PublicKey>().is_ok_and(|to| keys.contains(&to)))
}

/// Whether nothing but what is private can be in the answer.
pub(crate) fn is_within(filter: &Filter, private: &BTreeSet<u16>) -> bool {
    filter.kinds.as_ref().is_some_and(|kinds| !kinds.is_empty() && kinds.is_subset(private))
}

#[cfg(test)]
mod tests {
    use super::*;
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;
    use guild_protocol::nostr::Draft;

    fn key(number: u32) -> SecretKey {
        format!("{number:064x}").parse().unwrap()
    }

    fn proof(kind: u16, created_at: u64, relay: &str, challenge: &str) -> Event {
        let tags = vec![tag::tag(["relay", relay]), tag::tag(["challenge", challenge])];
        Draft { kind, created_at, tags, content: String::new() }.sign(&key(7)).unwrap()
    }

    fn checked(proof: &Event) -> Result<PublicKey, &'static str> {
        check(proof, "c", |host| host == "127.0.0.1:4848", 10_000)
    }

    #[test]
    fn a_proof_is_for_this_relay_this_connection_and_now() {
        let url = "ws://127.0.0.1:4848/relay";
        assert_eq!(checked(&proof(22_242, 10_000, url, "c")), Ok(key(7).public_key()));
        assert_eq!(checked(&proof(22_242, 9_400, url, "c")), Ok(key(7).public_key()));
        for wrong in [
            proof(22_242, 9_399, url, "c"),
            proof(22_242, 10_601, url, "c"),
            proof(1, 10_000, url, "c"),
            proof(22_242, 10_000, url, "d"),
            proof(22_242, 10_000, "ws://127.0.0.1:4849", "c"),
            proof(22_242, 10_000, "http://127.0.0.1:4848", "c"),
            proof(22_242, 10_000, "", "c"),
        ] {
            assert!(checked(&wrong).unwrap_err().starts_with("invalid: "));
        }
        let mut forged = proof(22_242, 10_000, url, "c");
        forged.pubkey = key(8).public_key();
        assert!(checked(&forged).unwrap_err().contains("signature"));
    }

    #[test]
    fn an_address_names_a_host_however_it_is_written() {
        for same in ["wss://Relay.example", "ws://relay.example:80/", "wss://relay.example:443/x?y"]
        {
            assert_eq!(authority(same).as_deref(), Some("relay.example"), "{same}");
        }
        assert_eq!(authority("wss:///x"), None);
        assert_eq!(authority("relay.example"), None);
    }

    #[test]
    fn private_events_are_for_those_they_name() {
        let private = BTreeSet::from([1059]);
        let wrap = |kind| {
            let tags =
                vec![tag::tag(["p", "rubbish"]), tag::tag(["p", &key(2).public_key().hex()])];
            Draft { kind, created_at: 1, tags, content: String::new() }.sign(&key(1)).unwrap()
        };
        let proven = |n| BTreeSet::from([key(n).public_key()]);
        assert!(may_see(&wrap(1059), &proven(1), &private));
        assert!(may_see(&wrap(1059), &proven(2), &private));
        assert!(!may_see(&wrap(1059), &proven(3), &private));
        assert!(!may_see(&wrap(1059), &BTreeSet::new(), &private));
        assert!(may_see(&wrap(1), &BTreeSet::new(), &private));
    }

    #[test]
    fn a_question_for_nothing_but_private_events_is_seen() {
        let private = BTreeSet::from([4, 1059]);
        let [all, some, only, none] =
            [Filter::default(), Filter::kinds([1, 4]), Filter::kinds([4]), Filter::kinds([])];
        let within = [&all, &some, &only, &none].map(|filter| is_within(filter, &private));
        assert_eq!(within, [false, false, true, false]);
    }
}
