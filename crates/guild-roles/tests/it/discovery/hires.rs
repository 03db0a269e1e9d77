//! Work goes to the honest provider while others attack what it is found by.

use guild_protocol::nostr::Event;
use guild_protocol::nostr::announcement::{Announcement, Capabilities, KindNames};
use guild_roles::discovery::{Footing, Options, Standing};

use super::flood::pour;
use super::{Hall, WORK, both, key, priced, until, who};

/// More offers than are compared.
const MANY: u64 = 1_100;
/// The key of somebody who announces very much.
const LOUD: u64 = 2;

/// Announcements of the same work, each by a key of its own.
fn by_many(hall: &Hall, price: impl Fn(u64) -> i64) -> Vec<Event> {
    let one = |n: u64| {
        let card = priced("x", price(n));
        card.draft(hall.now_s()).unwrap().sign(&key(1_000_000 + n)).unwrap()
    };
    (0..MANY).map(one).collect()
}

#[test]
fn one_key_with_very_many_offers_hides_nobody() {
    both(&Options::default(), async |hall| {
        hall.announce(1, &priced("a", 500), "ws://honest").await;
        hall.admit(1, "a").await;
        // A stranger who asks for less than everybody who comes later.
        hall.announce(3, &priced("c", 400), "ws://honest").await;
        hall.pass(1_000).await;
        let offer = |n: u64| priced(&format!("x{n}"), 450).draft(hall.now_s()).unwrap();
        let flood = (0..MANY).map(|n| offer(n).sign(&key(LOUD)).unwrap()).collect();
        pour(&hall, flood).await;
        for round in 0..3 {
            // One sign of life brings all of its offers back.
            hall.pass(5_000).await;
            hall.beat(LOUD).await;
            let hired = hall.hired(&format!("round {round}")).await;
            assert_eq!(hired, who(1), "the matrix knows it, and it is there");
        }
        hall.pass(901_000).await;
        hall.beat(3).await;
        hall.pass(60_000).await;
        hall.beat(LOUD).await;
        // Nobody who is known is there: among strangers each key has its part, and the price decides.
        assert_eq!(hall.hired("nobody is known").await, who(3));
    });
}

/// An announcement with all that it is known by.
fn signed_by_words(d: &str, price: i64, words: &str) -> Announcement {
    let mut card = priced(d, price);
    card.content.name = Some("Quick box".to_owned());
    card.content.description = Some(words.to_owned());
    card.relays = vec!["wss://quick.example".to_owned()];
    card
}

const WORDS: &str = "Embeddings, done with care, by day and by night, for everybody.";

async fn shut_out(hall: &Hall, n: u64) {
    let matrix = hall.router.current().await.unwrap();
    hall.router.record(matrix.blacklisting(&[who(n)], "a test")).await.unwrap();
}

#[test]
fn another_key_of_whoever_is_shut_out_is_seen_behind_a_flood() {
    both(&Options::default(), async |hall| {
        // One operator by all signs; its second key is cheap, and comes when the first one is shut out.
        hall.announce(2, &signed_by_words("a", 500, WORDS), "ws://honest").await;
        hall.announce(1, &priced("c", 500), "ws://honest").await;
        hall.admit(2, "a").await;
        shut_out(&hall, 2).await;
        hall.pass(60_000).await;
        hall.announce(3, &signed_by_words("b", 1, WORDS), "ws://honest").await;
        assert_eq!(hall.hired("before").await, who(1));
        hall.pass(1_000).await;
        // More than are compared, heard later.
        let dear = |n: u64| {
            priced("x", 900).draft(hall.now_s()).unwrap().sign(&key(1_000_000 + n)).unwrap()
        };
        pour(&hall, (0..2 * MANY).map(dear).collect()).await;
        assert_eq!(hall.hired("after").await, who(1));
        // Whatever the first key shows by now: what counts is what it showed.
        hall.announce(2, &priced("a", 500), "ws://honest").await;
        assert_eq!(hall.hired("changed").await, who(1));
        // An evaluation is the way in, as for every newcomer.
        hall.admit(3, "b").await;
        assert_eq!(hall.hired("evaluated").await, who(3));
    });
}

#[test]
fn nobody_is_shut_out_by_a_copy_of_its_signs() {
    both(&Options::default(), async |hall| {
        hall.announce(1, &signed_by_words("a", 5, WORDS), "ws://honest").await;
        hall.announce(4, &priced("c", 500), "ws://honest").await;
        // A copy of all that can be copied, by a key that is then shut out on purpose.
        hall.announce(2, &signed_by_words("a", 500, WORDS), "ws://evil").await;
        hall.admit(2, "a").await;
        shut_out(&hall, 2).await;
        assert_eq!(hall.hired("copied before").await, who(1), "it was there before");
        // Somebody comes whom nobody could copy before; it is copied afterwards.
        let other = "Another box, with other words: embeddings for a very small price, always.";
        hall.pass(60_000).await;
        hall.announce(3, &signed_by_words("b", 1, other), "ws://honest").await;
        hall.pass(60_000).await;
        hall.announce(2, &signed_by_words("a", 500, other), "ws://evil").await;
        hall.beat(2).await;
        hall.beat(3).await;
        assert_eq!(hall.hired("copied after").await, who(3));
    });
}

#[test]
fn very_many_keys_hide_nobody_who_is_known() {
    both(&Options::default(), async |hall| {
        hall.announce(1, &priced("a", 500), "ws://honest").await;
        hall.admit(1, "a").await;
        hall.pass(1_000).await;
        pour(&hall, by_many(&hall, |_| 1)).await;
        assert_eq!(hall.hired("one").await, who(1));
    });
}

#[test]
fn whoever_was_there_before_a_flood_of_keys_is_still_compared() {
    both(&Options::default(), async |hall| {
        hall.announce(1, &priced("a", 500), "ws://honest").await;
        hall.pass(1_000).await;
        pour(&hall, by_many(&hall, |_| 900)).await;
        assert_eq!(hall.hired("one").await, who(1), "it is the cheapest");
    });
}

#[test]
fn whom_the_registry_did_not_let_in_comes_after_whoever_is_listed() {
    both(&Options { new_per_hour: 1, ..Options::default() }, async |hall| {
        hall.announce(1, &priced("a", 500), "ws://honest").await;
        // One of them is let in, and is dear; the others are cheap, and over the budget of their relay.
        hall.announce(3, &priced("c", 900), "ws://flood").await;
        until(async || hall.entry(1, "a").is_some() && hall.entry(3, "c").is_some()).await;
        pour(&hall, by_many(&hall, |_| 1)).await;
        hall.pass(30_000).await;
        until(async || hall.entry(1, "a").is_some_and(|entry| entry.life.is_live)).await;
        assert_eq!(hall.hired("one").await, who(1));
    });
}

#[test]
fn whoever_contradicts_itself_about_the_work_comes_after_the_honest() {
    both(&Options::default(), async |hall| {
        // Its tags name other work than its content.
        let mut liar = priced("b", 1);
        (liar.topics, liar.kinds) = (Vec::new(), vec!["5100".to_owned()]);
        let jobs = vec![WORK.to_owned()];
        liar.content.supported_kinds = Some(KindNames(jobs.clone()));
        liar.content.capabilities =
            Some(Capabilities { supported_jobs: Some(jobs), ..Capabilities::default() });
        let mut draft = liar.draft(hall.now_s()).unwrap();
        draft.tags.retain(|tag| tag[0] != "t");
        hall.bring(draft.sign(&key(LOUD)).unwrap(), "ws://evil").await;
        hall.announce(1, &priced("a", 500), "ws://honest").await;
        until(async || hall.entry(1, "a").is_some() && hall.entry(LOUD, "b").is_some()).await;
        hall.pass(30_000).await;
        let is_live = |n, d| hall.entry(n, d).is_some_and(|entry| entry.life.is_live);
        until(async || is_live(1, "a") && is_live(LOUD, "b")).await;
        let footing = |n, d| {
            hall.discovery.ask(|registry, now_ms| registry.footing(&who(n), d, WORK, now_ms))
        };
        assert_eq!(footing(LOUD, "b"), Some(Footing::Disputed));
        let claims = hall.entry(LOUD, "b").unwrap().card.claims;
        assert!(claims.iter().any(|(_, standing)| standing == Standing::Disputed));
        assert_eq!(hall.hired("one").await, who(1));
        // Where there is nobody else it is asked: what is wrong with a claim is no proof.
        hall.pass(901_000).await;
        hall.beat(LOUD).await;
        assert_eq!(hall.hired("two").await, who(LOUD));
    });
}

#[test]
fn whoever_is_quarantined_is_not_hired_before_it_was_seen_again() {
    both(&Options::default(), async |hall| {
        hall.announce(1, &priced("a", 500), "ws://honest").await;
        hall.announce(LOUD, &priced("b", 1), "ws://honest").await;
        until(async || hall.entry(1, "a").is_some() && hall.entry(LOUD, "b").is_some()).await;
        // Everybody is gone for long, and one is back.
        for _ in 0..2 {
            hall.pass(31 * 24 * super::HOUR_MS).await;
            until(async || hall.discovery.summary().is_some_and(|sum| sum.listed == 0)).await;
        }
        hall.beat(1).await;
        hall.pass(30_000).await;
        until(async || hall.found(WORK) == [who(1)]).await;
        let footing = |n, d| {
            hall.discovery.ask(|registry, now_ms| registry.footing(&who(n), d, WORK, now_ms))
        };
        // It is heard, and the registry has not looked since.
        hall.beat(LOUD).await;
        assert_eq!(footing(LOUD, "b"), Some(Footing::Unfit));
        assert_eq!(hall.hired("one").await, who(1));
    });
}
