//! A flood of nonces fills neither the disk nor the door.

use guild_hosting::access::nonce::{self, LIFETIME_MS, Limits};
use guild_hosting::access::{self, Nonce};

use super::{Dice, NOW, Node, both, place, why};

fn ask(node: &Node, from: &str, limits: &Limits, now_ms: i64) -> &'static str {
    let (nonce, from, limits) = (Nonce::make(&Dice), place(from), limits.clone());
    why(node.write(move |tx| nonce::issue(tx, &nonce, from, &limits, now_ms)))
}

#[test]
fn so_many_from_one_place_and_so_many_in_all() {
    both(|node| {
        let limits = Limits { per_place: 3, in_all: 8 };
        let from = |n: usize| format!("2001:db8:0:{n}::{}", n + 1);
        for _ in 0..3 {
            assert_eq!(ask(node, &from(1), &limits, NOW), "nothing");
        }
        assert_eq!(ask(node, &from(1), &limits, NOW), "access.nonce_limit");
        assert_eq!(ask(node, "2001:db8:0:1:ffff::9", &limits, NOW), "access.nonce_limit");
        // A flood from many places gives up the oldest, and fills nothing.
        for n in 2..50 {
            assert_eq!(ask(node, &from(n), &limits, NOW + 1), "nothing");
            assert!(node.rows("access_nonce") <= 8);
        }
        assert_eq!(node.rows("access_nonce"), 8);
        assert_eq!(ask(node, &from(1), &limits, NOW + 1), "nothing", "its own are gone");
        // Time makes room, without a sweep.
        assert_eq!(ask(node, &from(60), &limits, NOW + LIFETIME_MS + 1), "nothing");
        assert_eq!(node.rows("access_nonce"), 1);
    });
}

#[test]
fn nonces_are_long_alphanumeric_and_never_the_same() {
    let all: std::collections::BTreeSet<String> =
        (0..1_000).map(|_| Nonce::make(&Dice).reveal().to_owned()).collect();
    assert_eq!(all.len(), 1_000);
    assert!(all.iter().all(|n| n.len() == 32 && n.bytes().all(|b| b.is_ascii_alphanumeric())));
}

#[test]
fn a_sweep_goes_in_small_steps() {
    both(|node| {
        let limits = Limits { per_place: 1_000, in_all: 1_000 };
        let nonces: Vec<Nonce> = (0..450).map(|_| Nonce::make(&Dice)).collect();
        node.write(move |tx| {
            for nonce in &nonces {
                nonce::issue(tx, nonce, place("192.0.2.1"), &limits, NOW)?;
            }
            Ok(())
        })
        .unwrap();
        let sweep = |now_ms| node.write(move |tx| access::sweep(tx, now_ms)).unwrap();
        assert!(!sweep(NOW + LIFETIME_MS - 1));
        let left: Vec<_> =
            (0..3).map(|_| (sweep(NOW + LIFETIME_MS), node.rows("access_nonce"))).collect();
        assert_eq!(left, [(true, 250), (true, 50), (false, 0)]);
    });
}
