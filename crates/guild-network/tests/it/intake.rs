//! From an event that somebody brings to one that is stored.

use std::future::Future;

use futures_util::future::join;
use guild_network::archive;
use guild_network::intake::{Intake, NotKept, Options, Origin, Verdict};
use guild_protocol::env::Shutdown;
use guild_protocol::nostr::Filter;

use crate::support::{NOW_S, Scratch, SetClock, block_on, both, event};

/// Runs a test beside the service of an intake.
fn with_intake<F: Future<Output = ()>>(
    scratch: &Scratch,
    options: Options,
    test: impl FnOnce(Intake) -> F,
) {
    let (intake, service) =
        Intake::new(options, scratch.store.clone(), &*scratch.bus, SetClock::at(NOW_S));
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let test = test(intake);
    let beside = async move {
        test.await;
        stop.trigger();
    };
    block_on(join(service.run(shutdown), beside)).0.unwrap();
}

#[test]
fn an_event_is_stored_once_and_fed_to_whoever_listens() {
    both(|scratch| {
        for workers in [0, 2] {
            let options = Options { workers, ..Options::default() };
            with_intake(scratch, options, async |intake| {
                let mut live = intake.live();
                let content = format!("hello {workers}");
                let note = event(1, 1, NOW_S, &[&["t", "x"]], &content);
                let relay = Origin::Relay("wss://relay.example".to_owned());
                let verdict = intake.offer(&relay, note.clone()).await;
                assert!(matches!(verdict, Verdict::Stored { .. }), "{verdict:?}");
                assert_eq!(intake.offer(&Origin::Own, note.clone()).await, Verdict::Known);
                let fed = live.next().await.unwrap().unwrap();
                assert_eq!((fed.event(), fed.json()), (&note, note.to_json().as_str()));
                let passed = event(1, 20_001, NOW_S, &[], &content);
                let verdict = intake.offer(&Origin::Client(1), passed.clone()).await;
                assert_eq!(verdict, Verdict::NotKept(NotKept::Ephemeral));
                assert_eq!(live.next().await.unwrap().unwrap().event(), &passed);
                assert_eq!(intake.counts().stored, 1);
            });
        }
        let all = [Filter::default()];
        let found = block_on(scratch.store.read(move |rx| archive::query(rx, &all, 9, NOW_S)));
        assert_eq!(found.unwrap().len(), 2);
    });
}
