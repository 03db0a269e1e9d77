use proptest::prelude::*;

use super::*;

const ROOM: Room = Room { live: true, polled: true };

fn after(mut standing: Standing, floor: Tier, windows: &[Window]) -> Standing {
    for (now_ms, window) in (1..).zip(windows) {
        standing = decide(&standing, floor, window, ROOM, &Rules::default(), now_ms);
    }
    standing
}

fn hinted() -> Standing {
    Standing::new(Tier::Sampled, "a hint", 0)
}

fn good(news: i64, worth: i64) -> Window {
    Window { is_reached: true, news, worth, events: news + worth, ..Window::default() }
}

#[test]
fn a_relay_rises_by_news_to_be_polled_and_only_by_worth_to_be_live() {
    let polled = after(hinted(), Tier::Sampled, &vec![good(8, 0); 200]);
    assert_eq!(polled.tier, Tier::Polled, "whoever makes keys gets no further: {polled:?}");
    assert_eq!(polled.news_milli / 100, 79);
    let live = after(polled.clone(), Tier::Sampled, &vec![good(0, 2); 6]);
    assert_eq!(live.tier, Tier::Live);
    assert_eq!(live.why, "it is stable and brings what providers say that have answered us");
    let full = Room { live: false, polled: true };
    let mut waits = polled;
    for now_ms in 0..50 {
        waits = decide(&waits, Tier::Sampled, &good(0, 2), full, &Rules::default(), now_ms);
    }
    assert_eq!(waits.tier, Tier::Polled, "there is no room");
}

#[test]
fn one_window_moves_nothing_and_a_bad_hour_does() {
    let live =
        Standing { worth_milli: 2_000, stability_milli: 1_000, ..Standing::new(Tier::Live, "", 0) };
    let lost = Window::default();
    let shaken = after(live.clone(), Tier::Sampled, &vec![lost.clone(); 3]);
    assert_eq!((shaken.tier, shaken.since_ms), (Tier::Live, 0));
    let recovered = after(shaken, Tier::Sampled, &vec![good(0, 2); 9]);
    assert_eq!((recovered.tier, recovered.falling), (Tier::Live, 0));
    let down = after(live.clone(), Tier::Sampled, &vec![lost.clone(); 9]);
    assert_eq!((down.tier, down.why.as_str()), (Tier::Polled, "it is often out of reach"));
    let out = after(live.clone(), Tier::Sampled, &vec![lost.clone(); 40]);
    assert_eq!(out.tier, Tier::Sampled);
    let quiet = after(live.clone(), Tier::Sampled, &vec![good(0, 0); 20]);
    assert_eq!((quiet.tier, quiet.why.as_str()), (Tier::Polled, "others bring the same earlier"));
    for floor in [Tier::Live, Tier::Polled] {
        assert_eq!(after(live.clone(), floor, &vec![lost.clone(); 100]).tier, floor);
    }
}

#[test]
fn a_forger_falls_at_once_and_is_left_alone_for_a_while() {
    let live =
        Standing { worth_milli: 8_000, stability_milli: 1_000, ..Standing::new(Tier::Live, "", 0) };
    let forged = Window { hostile: 1, ..good(8, 8) };
    let banned = after(live.clone(), Tier::Sampled, std::slice::from_ref(&forged));
    assert_eq!((banned.tier, banned.banned_until_ms), (Tier::Sampled, Some(3_600_001)));
    assert!(banned.is_banned(3_600_000) && !banned.is_banned(3_600_001));
    assert!(banned.why.starts_with("banned:"));
    let again = decide(&banned, Tier::Sampled, &good(1, 0), ROOM, &Rules::default(), 3_600_002);
    assert_eq!(again.banned_until_ms, None);
    let ours = after(live, Tier::Live, std::slice::from_ref(&forged));
    assert_eq!((ours.tier, ours.banned_until_ms), (Tier::Live, None), "its connection is banned");
    let polled = after(Standing::new(Tier::Polled, "", 0), Tier::Polled, &[forged]);
    assert!(polled.tier == Tier::Polled && polled.is_banned(2));
}

#[test]
fn a_flood_is_worth_nothing_and_the_first_fetch_is_none() {
    let flood = Window { events: 100_000, ..good(10_000, 0) };
    let farmed = after(hinted(), Tier::Sampled, &vec![flood.clone(); 100]);
    assert_eq!((farmed.tier, farmed.news_milli), (Tier::Sampled, 0));
    let first = Window { is_first: true, ..flood };
    let polled = after(hinted(), Tier::Sampled, &vec![first; 3]);
    assert_eq!(polled.tier, Tier::Polled, "a large relay is large");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_numbers_stay_within_bounds_and_no_relay_falls_below_its_floor(
        seen in prop::collection::vec(
            (any::<bool>(), any::<bool>(), any::<i64>(), any::<i64>(), any::<i64>(), 0_i64..3, any::<bool>()),
            0..60,
        ),
        floor in prop::sample::select(Tier::ALL.to_vec()),
    ) {
        let mut standing = Standing::new(floor, "", 0);
        for (now_ms, (is_reached, is_first, events, news, worth, hostile, is_banned)) in (0..).zip(seen) {
            let connect_ms = is_reached.then_some(events);
            let window = Window { is_reached, is_first, events, news, worth, hostile, is_banned, connect_ms };
            standing = decide(&standing, floor, &window, ROOM, &Rules::default(), now_ms);
            prop_assert!(standing.tier <= floor);
            prop_assert!((0..=1_000).contains(&standing.stability_milli));
            prop_assert!((0..=8_000).contains(&standing.news_milli));
            prop_assert!((0..=8_000).contains(&standing.worth_milli));
        }
    }

    #[test]
    fn places_are_drawn_once_each(all in 0_usize..50, count in 0_usize..60, seed in any::<u64>()) {
        let mut state = seed;
        let drawn = draw(all, count, || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state
        });
        prop_assert_eq!(drawn.len(), count.min(all));
        let each: std::collections::BTreeSet<usize> = drawn.iter().copied().collect();
        prop_assert!(each.len() == drawn.len() && drawn.iter().all(|place| *place < all));
    }
}
