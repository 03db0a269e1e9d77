use std::collections::BTreeMap;

use guild_store::lease::{self, Lease, TTL_MAX_MS};
use guild_store::{Error, Store};
use proptest::prelude::*;

use crate::{Engine, Scratch, block_on};

on_both! {
    a_lease_has_one_holder_until_it_expires_and_the_old_one_is_fenced,
    an_epoch_is_never_given_again,
    a_lease_of_a_wrong_clock_does_not_last_for_ever,
    rubbish_is_refused_and_changes_nothing,
}

fn acquire(store: &Store, holder: &'static str, ttl_ms: i64, now_ms: i64) -> Option<Lease> {
    let token = format!("token of {holder}");
    let taken = store.write(move |tx| lease::acquire(tx, "n", holder, &token, ttl_ms, now_ms));
    block_on(taken).unwrap()
}

fn check(store: &Store, lease: &Lease, now_ms: i64) -> Result<(), Error> {
    let lease = lease.clone();
    block_on(store.write(move |tx| lease::check(tx, &lease, now_ms)))
}

fn release(store: &Store, lease: &Lease) -> bool {
    let lease = lease.clone();
    block_on(store.write(move |tx| lease::release(tx, &lease))).unwrap()
}

fn a_lease_has_one_holder_until_it_expires_and_the_old_one_is_fenced(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    let ann = acquire(&store, "ann", 100, 0).unwrap();
    assert_eq!((ann.epoch, ann.until_ms), (1, 100));
    assert_eq!(acquire(&store, "bob", 100, 99), None);
    assert_eq!(check(&store, &ann, 99), Ok(()));
    assert_eq!(check(&store, &ann, 100), Err(Error::Fenced), "it has expired");
    let again = acquire(&store, "ann", 100, 150).unwrap();
    assert_eq!((again.epoch, again.until_ms), (1, 250), "nobody was there meanwhile");
    let bob = acquire(&store, "bob", 100, 250).unwrap();
    assert_eq!(bob.epoch, 2);
    assert_eq!(check(&store, &again, 200), Err(Error::Fenced), "whatever the clock says");
    let late = block_on(store.write(move |tx| lease::renew(tx, &again, 100, 251)));
    assert_eq!(late, Err(Error::Fenced));
    assert_eq!(check(&store, &bob, 260), Ok(()));
}

fn an_epoch_is_never_given_again(engine: Engine) {
    let mut scratch = Scratch::on(engine);
    let mut epochs = Vec::new();
    for round in 0..3 {
        let lease = acquire(&scratch.store(), "ann", 100, round).unwrap();
        epochs.push(lease.epoch);
        assert!(release(&scratch.store(), &lease));
        assert!(!release(&scratch.store(), &lease), "it is given back once");
        assert_eq!(check(&scratch.store(), &lease, round), Err(Error::Fenced));
        scratch.reopen();
    }
    assert_eq!(epochs, [1, 2, 3]);
}

fn a_lease_of_a_wrong_clock_does_not_last_for_ever(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    let year_ms = 365 * 24 * 3_600 * 1_000;
    let early = acquire(&store, "ann", TTL_MAX_MS, year_ms).unwrap();
    let now = acquire(&store, "bob", 100, 0).unwrap();
    assert_eq!(check(&store, &early, 0), Err(Error::Fenced));
    assert_eq!(check(&store, &now, 0), Ok(()));
    // An hour ahead is as wrong for a lease that is meant to last for a moment, and not for one of an hour.
    let hour_ms = 3_600 * 1_000;
    let again = acquire(&store, "bob", 100, hour_ms).unwrap();
    assert!(acquire(&store, "ann", hour_ms, 1).is_none());
    assert!(acquire(&store, "ann", 1_000, 1).is_some());
    assert_eq!(check(&store, &again, 1), Err(Error::Fenced));
}

fn rubbish_is_refused_and_changes_nothing(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    let long = "x".repeat(201);
    let cases: [(&str, &str, &str, i64); 7] = [
        ("", "h", "t", 1),
        ("n", "", "t", 1),
        ("n", "h", "", 1),
        ("n\n", "h", "t", 1),
        (&long, "h", "t", 1),
        ("n", "h", "t", 0),
        ("n", "h", "t", TTL_MAX_MS + 1),
    ];
    for (name, holder, token, ttl_ms) in
        cases.map(|(a, b, c, d)| (a.to_owned(), b.to_owned(), c.to_owned(), d))
    {
        let refused = store.write(move |tx| lease::acquire(tx, &name, &holder, &token, ttl_ms, 0));
        assert!(matches!(block_on(refused), Err(Error::BadOptions(_))));
    }
    let rows = store.read(|rx| rx.first::<(i64,)>("SELECT count(*) FROM lease", &[]));
    assert_eq!(block_on(rows).unwrap(), Some((0,)));
    let lease = acquire(&store, "ann", 1, 0).unwrap();
    assert!(!format!("{lease:?}").contains("token"), "a token is not shown");
}

/// What somebody may do; time goes on, stands still, or is set back in between.
#[derive(Debug, Clone)]
enum Act {
    Acquire { who: usize, ttl_ms: i64 },
    Renew { who: usize, ttl_ms: i64 },
    Release { who: usize },
    Step { by_ms: i64 },
}

fn any_act() -> impl Strategy<Value = Act> {
    let who = 0..3usize;
    prop_oneof![
        4 => (who.clone(), 1..100i64).prop_map(|(who, ttl_ms)| Act::Acquire { who, ttl_ms }),
        2 => (who.clone(), 1..100i64).prop_map(|(who, ttl_ms)| Act::Renew { who, ttl_ms }),
        1 => who.prop_map(|who| Act::Release { who }),
        4 => (-60..120i64).prop_map(|by_ms| Act::Step { by_ms }),
    ]
}

const NAMES: [&str; 3] = ["ann", "bob", "cas"];

/// What the table must say: who has it, until when, and how often it has changed hands.
#[derive(Default)]
struct Model {
    held: Option<(usize, i64)>,
    epoch: i64,
    known: BTreeMap<usize, Lease>,
}

impl Model {
    fn holds(&self, who: usize, lease: &Lease, now_ms: i64) -> bool {
        self.held.is_some_and(|(holder, until_ms)| {
            holder == who && lease.epoch == self.epoch && now_ms < until_ms
        })
    }

    fn act(&mut self, store: &Store, act: &Act, now_ms: &mut i64) -> Result<(), TestCaseError> {
        match *act {
            Act::Step { by_ms } => *now_ms += by_ms,
            Act::Acquire { who, ttl_ms } => {
                let longest_ms = *now_ms + 10 * ttl_ms;
                let free = self.held.is_none_or(|(holder, until_ms)| {
                    holder == who || until_ms <= *now_ms || until_ms > longest_ms
                });
                let taken = acquire(store, NAMES[who], ttl_ms, *now_ms);
                prop_assert_eq!(taken.is_some(), free);
                if let Some(lease) = taken {
                    self.epoch += i64::from(self.held.is_none_or(|(holder, _)| holder != who));
                    prop_assert_eq!(lease.epoch, self.epoch);
                    self.held = Some((who, *now_ms + ttl_ms));
                    self.known.insert(who, lease);
                }
            }
            Act::Renew { who, ttl_ms } => {
                let Some(lease) = self.known.get(&who).cloned() else { return Ok(()) };
                let holds = self.holds(who, &lease, *now_ms);
                let at_ms = *now_ms;
                let renewed =
                    block_on(store.write(move |tx| lease::renew(tx, &lease, ttl_ms, at_ms)));
                prop_assert_eq!(renewed.is_ok(), holds);
                if let Ok(lease) = renewed {
                    self.held = Some((who, lease.until_ms));
                    self.known.insert(who, lease);
                }
            }
            Act::Release { who } => {
                let Some(lease) = self.known.get(&who) else { return Ok(()) };
                let ours =
                    self.held.is_some_and(|(holder, _)| holder == who) && lease.epoch == self.epoch;
                prop_assert_eq!(release(store, lease), ours);
                if ours {
                    self.held = None;
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_lease_is_what_the_model_says_and_never_two_pass(acts in prop::collection::vec(any_act(), 1..40)) {
        let scratch = Scratch::on(Engine::Sqlite);
        let store = scratch.store();
        let (mut model, mut now_ms) = (Model::default(), 1_000);
        for act in acts {
            model.act(&store, &act, &mut now_ms)?;
            let mut passed = 0;
            for (who, lease) in &model.known {
                let passes = check(&store, lease, now_ms).is_ok();
                prop_assert_eq!(passes, model.holds(*who, lease, now_ms), "{:?}", lease);
                passed += usize::from(passes);
            }
            prop_assert!(passed <= 1);
        }
    }
}
