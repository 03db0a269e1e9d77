//! Announcements that are meant to harm: each is counted and seen, and the honest provider is found as before.

use guild_network::intake::Verdict;
use guild_protocol::env::Clock;
use guild_protocol::nostr::Event;
use guild_protocol::nostr::announcement::{Announcement, KindNames};
use guild_roles::discovery::{Options, Standing, State, Wanted, discrepancies};

use super::{HOUR_MS, Hall, WORK, both, card, priced, raw, until, who};

/// Who, which tags, which content.
type Case<'a> = (u64, &'a [&'a [&'a str]], &'a str);

/// An honest provider that is there and live.
async fn honest(hall: &Hall) {
    hall.announce(1, &priced("a", 500), "ws://honest").await;
    // A sign of somebody who is not known yet is heard at the next look.
    until(async || hall.entry(1, "a").is_some()).await;
    hall.pass(30_000).await;
    until(async || hall.entry(1, "a").is_some_and(|entry| entry.life.is_live)).await;
}

#[test]
fn an_announcement_from_the_future_is_refused_and_counted() {
    both(&Options::default(), async |hall| {
        honest(&hall).await;
        for (n, ahead_s) in [(2, 901), (3, 86_400 * 365), (4, 1 << 50)] {
            let draft = card("a").draft(hall.now_s().saturating_add(ahead_s)).unwrap();
            let verdict = hall.bring(draft.sign(&super::key(n)).unwrap(), "ws://evil").await;
            assert!(matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
        }
        // A clock that is a little ahead is no attack, and gives nobody a longer life.
        let skewed = card("a").draft(hall.now_s() + 890).unwrap().sign(&super::key(5)).unwrap();
        assert!(matches!(hall.bring(skewed, "ws://evil").await, Verdict::Stored { .. }));
        until(async || hall.entry(5, "a").is_some()).await;
        hall.pass(30_000).await;
        until(async || hall.counted("network.event_from_the_future").await == 3).await;
        until(async || hall.entry(5, "a").is_some_and(|one| one.life.heard_ms.is_some())).await;
        let heard_ms = hall.entry(5, "a").unwrap().life.heard_ms;
        assert!(heard_ms.is_some_and(|at| at <= hall.clock.now_ms()), "{heard_ms:?}");
        assert_eq!(hall.found(WORK).first(), Some(&who(1)));
        assert_eq!(hall.found(WORK).len(), 2);
        assert!(hall.is_sound());
    });
}

#[test]
fn whoever_flaps_is_flagged_and_not_found() {
    both(&Options::default(), async |hall| {
        hall.announce(2, &priced("b", 1), "ws://evil").await;
        honest(&hall).await;
        let is_flapping = || {
            let now_ms = hall.clock.now_ms();
            hall.entry(2, "b").is_some_and(|entry| entry.is_flapping(&Options::default(), now_ms))
        };
        'bursts: for _ in 0..6 {
            for _ in 0..12 {
                hall.beat(2).await;
                let at_ms = hall.clock.now_ms();
                hall.pass(60_000).await;
                until(async || {
                    hall.entry(2, "b").is_some_and(|entry| entry.life.heard_ms == Some(at_ms))
                })
                .await;
                if is_flapping() {
                    break 'bursts;
                }
                if hall.entry(2, "b").unwrap().life.is_live {
                    break;
                }
            }
            hall.pass(1_000_000).await;
            until(async || !hall.entry(2, "b").unwrap().life.is_live).await;
        }
        assert!(is_flapping());
        assert_eq!(hall.found(WORK), [who(1)]);
        hall.beat(1).await;
        hall.beat(2).await;
        assert_eq!(hall.hired("while it flaps").await, who(1), "the other one is cheaper");
        // Nor by a new name.
        hall.announce(2, &priced("new", 1), "ws://evil").await;
        assert_eq!(hall.hired("by another name").await, who(1));
        assert_eq!(hall.discovery.summary().unwrap().flapping, 1);
        // A day of calm, and it is as before.
        hall.pass(25 * HOUR_MS).await;
        until(async || hall.found(WORK).contains(&who(2))).await;
        assert_eq!(hall.entry(2, "b").unwrap().state, State::Listed);
    });
}

#[test]
fn whoever_lies_about_its_kinds_comes_after_the_honest() {
    both(&Options::default(), async |hall| {
        let mut liar = Announcement::new("b");
        liar.kinds.extend(["5050".to_owned(), "5100".to_owned()]);
        liar.content.supported_kinds = Some(KindNames(vec!["5200".to_owned(), "5100".to_owned()]));
        hall.announce(2, &liar, "ws://evil").await;
        honest(&hall).await;
        until(async || hall.found("5050").len() == 2).await;
        assert_eq!(hall.found("5050"), [who(1), who(2)]);
        let wanted = Wanted { task: "5050", live_only: false, least_bp: 9_500, limit: 9 };
        assert_eq!(hall.discovery.find(&wanted).len(), 1, "only who is sure");
        let claims = hall.entry(2, "b").unwrap().card.claims;
        let standing: Vec<String> =
            claims.iter().map(|(claim, standing)| format!("{claim} {standing:?}")).collect();
        assert_eq!(standing, ["5050 Disputed", "5100 Confirmed", "5200 Disputed"]);
        assert_eq!(claims.iter().filter(|(_, s)| *s == Standing::Confirmed).count(), 1);
        until(async || hall.health().await.discrepancies == 2).await;
        let logged = hall.store.read(|rx| discrepancies(rx, &who(2))).await.unwrap();
        let logged: Vec<(&str, &str)> =
            logged.iter().map(|one| (one.what.as_str(), one.value.as_str())).collect();
        assert_eq!(logged, [("only_content", "5200"), ("only_tag", "5050")]);
        // It mends its ways, and nothing is held against it.
        liar.content.supported_kinds = None;
        hall.pass(1_000).await;
        hall.announce(2, &liar, "ws://evil").await;
        until(async || hall.health().await.discrepancies == 0).await;
    });
}

#[test]
fn malformed_announcements_are_counted_by_reason() {
    both(&Options::default(), async |hall| {
        honest(&hall).await;
        let long = "d".repeat(300);
        let large = format!("{{\"name\":\"{}\"}}", "x".repeat(70 * 1_024));
        let many: Vec<String> = (0..1_500).map(|n| format!("kind-{n}")).collect();
        let many: Vec<[&str; 2]> = many.iter().map(|name| ["k", name]).collect();
        let mut many: Vec<&[&str]> = many.iter().map(|tag| tag.as_slice()).collect();
        many.push(&["d", "b"]);
        let nul = "a\0b";
        let cases: [Case<'_>; 9] = [
            (10, &[&["d", "b"], &["k", "5050"]], "not json"),
            (11, &[&["d", "b"], &["k", "5050"]], "[1, 2]"),
            (12, &[&["d", "b"], &["k", "5050"]], "{\"name\": 1, \"name\": 2}"),
            (13, &[&["d", "b"], &["k", "5050"]], &large),
            (14, &[&["d", &long], &["k", "5050"]], ""),
            (15, &[&["d", nul], &["k", "5050"]], ""),
            (16, &[&["k", "1"], &["k", "30023"]], ""),
            (17, &[&[], &["k"], &["d"], &["k", ""], &["k", ",,,"], &["relays"]], "{}"),
            (18, &many, ""),
        ];
        for (n, tags, content) in cases {
            let verdict = hall.bring(raw(&hall, n, tags, content), "ws://evil").await;
            assert!(matches!(verdict, Verdict::Stored { .. }), "{n}: {verdict:?}");
        }
        // Larger than anything that is kept.
        let huge = format!("{{\"name\":\"{}\"}}", "x".repeat(300 * 1_024));
        let larger = Event { content: huge, ..raw(&hall, 19, &[&["d", "b"]], "") };
        let verdict = hall.bring(larger, "ws://evil").await;
        assert!(matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
        hall.pass(30_000).await;
        until(async || hall.counted("announcement.content_malformed").await == 4).await;
        until(async || hall.counted("no_work").await == 2).await;
        assert_eq!(hall.counted("announcement.d_unusable").await, 2);
        // With the one that was too large.
        until(async || hall.health().await.counts.iter().map(|one| one.count).sum::<i64>() == 9)
            .await;
        // What has too much of everything is kept as far as it is read.
        until(async || hall.entry(18, "b").is_some()).await;
        let entry = hall.entry(18, "b").unwrap();
        assert_eq!(entry.card.claims.iter().count(), 64);
        assert_eq!(hall.found(WORK), [who(1)]);
        assert!(hall.is_sound());
    });
}

#[test]
fn letters_that_deceive_are_seen_through() {
    both(&Options::default(), async |hall| {
        honest(&hall).await;
        let honest_d = hall.entry(1, "a").unwrap().card;
        assert_eq!(hall.discovery.ask(|registry, _| registry.shown(&honest_d)).unwrap(), "a");
        // A Cyrillic letter, one that turns the direction, one without width.
        for (n, d) in [(2, "\u{430}"), (3, "\u{202e}a"), (4, "a\u{200b}")] {
            let event = raw(
                &hall,
                n,
                &[&["d", d], &["k", "5050"], &["t", WORK]],
                "{\"name\":\"Honest a\"}",
            );
            assert!(matches!(hall.bring(event, "ws://evil").await, Verdict::Stored { .. }));
            until(async || hall.entry(n, d).is_some()).await;
            // Byte for byte it is another offer.
            assert!(hall.entry(n, "a").is_none());
        }
        assert_eq!(hall.discovery.summary().unwrap().collisions, 1);
        let shown = hall.discovery.ask(|registry, _| {
            registry.iter().map(|entry| registry.shown(&entry.card)).collect::<Vec<_>>()
        });
        let shown = shown.unwrap();
        assert!(shown.iter().all(|name| name.starts_with("npub1")), "{shown:?}");
        // Nobody takes the name of a kind of work by letters that cannot be seen.
        let hidden = format!("{WORK}\u{2066}");
        let event = raw(&hall, 5, &[&["d", "z"], &["k", &hidden]], "");
        hall.bring(event, "ws://evil").await;
        until(async || hall.counted("no_work").await == 1).await;
        assert_eq!(hall.found(WORK).first(), Some(&who(1)), "it was there first, and is live");
        assert!(hall.is_sound());
    });
}
