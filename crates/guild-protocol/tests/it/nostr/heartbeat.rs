use guild_protocol::nostr::heartbeat::{Heartbeat, MAX_INTERVAL_S, code};
use guild_protocol::nostr::{Draft, Event, kind, tag};
use proptest::prelude::*;

use super::{cases, hostile_tags, secret};

fn beat(tags: Vec<Vec<String>>) -> Event {
    let draft = Draft { kind: kind::HEARTBEAT, created_at: 7, tags, content: String::new() };
    draft.sign(&secret("provider")).unwrap()
}

#[test]
fn a_heartbeat_in_the_wild_is_read() {
    // What another program sends: words of its own, no interval.
    let foreign = beat(vec![
        tag::tag(["s", "still beating"]),
        tag::tag(["d", "box"]),
        tag::tag(["k", "5050"]),
    ]);
    let read = Heartbeat::parse(&foreign).unwrap();
    assert_eq!((read.d.as_str(), read.interval_s, read.open_jobs), ("box", 300, None));
    assert_eq!(read.other_tags.len(), 2);
    assert!(read.is_live_at(100, 1_000) && !read.is_live_at(100, 1_001));
    assert!(read.is_live_at(u64::MAX, 5), "the future is somebody else's matter");
    assert_eq!(Heartbeat::parse(&beat(Vec::new())).unwrap(), Heartbeat::default());
    for (written, seconds) in
        [("0", 300), ("-5", 300), ("x", 300), ("99999999", MAX_INTERVAL_S), ("60", 60)]
    {
        let read = Heartbeat::parse(&beat(vec![tag::tag(["interval", written])])).unwrap();
        assert_eq!(read.interval_s, seconds, "{written}");
    }
}

#[test]
fn what_may_not_be_sent_is_refused() {
    let good = Heartbeat { d: "box".into(), open_jobs: Some(0), ..Heartbeat::default() };
    let tags = good.draft(7).unwrap().tags;
    assert_eq!(tags, [vec!["d", "box"], vec!["interval", "300"], vec!["open_jobs", "0"]]);
    let bad = [
        Heartbeat { d: "x".repeat(257), ..good.clone() },
        Heartbeat { interval_s: 0, ..good.clone() },
        Heartbeat { interval_s: MAX_INTERVAL_S + 1, ..good.clone() },
        Heartbeat { other_tags: vec![tag::tag(["interval", "1"])], ..good.clone() },
        Heartbeat { other_tags: vec![Vec::new()], ..good },
    ];
    for beat in bad {
        assert_eq!(beat.draft(7).unwrap_err().code(), &code::BAD_VALUE, "{beat:?}");
    }
    let other = Draft { kind: 1, created_at: 7, tags: Vec::new(), content: String::new() };
    let other = other.sign(&secret("provider")).unwrap();
    assert_eq!(Heartbeat::parse(&other).unwrap_err().code(), &code::WRONG_KIND);
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn what_was_read_and_may_be_sent_is_read_again_as_the_same(tags in hostile_tags()) {
        let read = Heartbeat::parse(&beat(tags)).unwrap();
        if let Ok(draft) = read.draft(7) {
            let again = Heartbeat::parse(&draft.sign(&secret("provider")).unwrap()).unwrap();
            prop_assert_eq!(again, read);
        }
    }
}
