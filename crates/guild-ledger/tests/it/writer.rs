use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use futures_util::FutureExt as _;
use futures_util::future::{join, join_all};
use guild_ledger::writer::{Options, Writer};
use guild_ledger::{NewTransfer, ledger};
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_store::{Error as StoreError, Hooks, Point, args};

use crate::{Scratch, block_on, both, post, said};

struct At(UnixMs);

impl Clock for At {
    fn now_ms(&self) -> UnixMs {
        self.0
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

fn writer(s: &Scratch, options: &Options) -> (Writer, impl Future<Output = ()> + use<>) {
    Writer::new(options, s.store.clone(), Arc::new(At(7))).unwrap()
}

fn heads(s: &Scratch) -> i64 {
    let count = s.store.read(|rx| rx.first::<(i64,)>("SELECT count(*) FROM ledger_head", args![]));
    block_on(count).unwrap().unwrap().0
}

fn deposits(s: &Scratch, count: usize) -> Vec<Vec<NewTransfer>> {
    (0..count).map(|n| vec![post(&n.to_string(), &s.ids[0], &s.ids[1], 1)]).collect()
}

#[test]
fn many_callers_share_a_commit_and_each_gets_its_own_answer() {
    both(2, |s| {
        let options = Options { batch_max_transfers: 100, ..Options::default() };
        let (handle, service) = writer(s, &options);
        let before = heads(s);
        let mut chains = deposits(s, 250);
        chains.push(vec![post("too much", &s.ids[2], &s.ids[1], 1)]);
        chains.push(vec![post("7", &s.ids[0], &s.ids[1], 1)]);
        let asked: Vec<_> = chains.into_iter().map(|chain| handle.book(chain)).collect();
        drop(handle);
        let (answers, ()) = block_on(join(join_all(asked), service));
        let said = said(&answers);
        assert_eq!(said[..250], ["new"; 250]);
        assert_eq!(said[250..], ["ledger.overdraft", "known"]);
        assert_eq!((heads(s) - before, s.free(&s.ids[1])), (3, 250));
        assert_eq!(answers[9].as_ref().unwrap()[0].booked().transfer_id, crate::named("9"));
    });
}

#[test]
fn a_chain_is_never_split() {
    both(1, |s| {
        let options = Options { batch_max_transfers: 3, ..Options::default() };
        let (handle, service) = writer(s, &options);
        let before = heads(s);
        let pairs = deposits(s, 8).chunks(2).map(<[_]>::concat).collect::<Vec<_>>();
        let asked: Vec<_> = pairs.into_iter().map(|chain| handle.book(chain)).collect();
        drop(handle);
        let (answers, ()) = block_on(join(join_all(asked), service));
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().len() == 2));
        assert_eq!(heads(s) - before, 2);
    });
}

#[test]
fn a_full_queue_refuses_and_a_dropped_caller_stops_nothing() {
    both(1, |s| {
        let options = Options { queue_max_chains: 2, ..Options::default() };
        let (handle, service) = writer(s, &options);
        let mut chains = deposits(s, 3).into_iter();
        drop(handle.book(chains.next().unwrap()));
        let second = handle.book(chains.next().unwrap());
        let third = block_on(handle.book(chains.next().unwrap())).unwrap_err();
        assert_eq!(third.code().name, "ledger.busy");
        drop(handle);
        let (second, ()) = block_on(join(second, service));
        assert_eq!((said(&[second]), s.free(&s.ids[1])), (vec!["new"], 2));
    });
}

#[test]
fn a_chain_that_the_database_cannot_take_holds_up_no_other() {
    both(2, |s| {
        let spoil = "UPDATE ledger_account SET reserve_units = 1, lets_through = 'x' WHERE owner = 'user-2'";
        block_on(s.store.write(move |tx| tx.exec(spoil, args![]))).unwrap();
        let (handle, service) = writer(s, &Options::default());
        let mut chains = deposits(s, 3);
        chains.insert(1, vec![post("spoilt", &s.ids[0], &s.ids[2], 1)]);
        let asked: Vec<_> = chains.into_iter().map(|chain| handle.book(chain)).collect();
        drop(handle);
        let (answers, ()) = block_on(join(join_all(asked), service));
        assert_eq!(said(&answers), ["new", "store.decode", "new", "new"]);
        assert_eq!(s.free(&s.ids[1]), 3);
    });
}

#[test]
fn who_cannot_be_answered_is_told_so_and_learns_by_asking_again() {
    both(1, |s| {
        let (handle, service) = writer(s, &Options::default());
        let waiting = handle.book(deposits(s, 1).remove(0));
        drop(service);
        for refused in [waiting, handle.book(deposits(s, 1).remove(0))].map(block_on_dyn) {
            assert_eq!(refused, Err("store.closed"));
        }
        let (again, service) = writer(s, &Options::default());
        let asked = again.book(deposits(s, 1).remove(0));
        drop(again);
        let (answer, ()) = block_on(join(asked, service));
        assert_eq!(said(&[answer]), ["new"]);
        assert!(block_on(s.store.read(ledger::head)).unwrap().last_seq == 3);
    });
}

fn block_on_dyn<T>(
    asked: impl Future<Output = Result<T, guild_ledger::Error>>,
) -> Result<(), &'static str> {
    block_on(asked).map(|_| ()).map_err(|error| error.code().name)
}

#[test]
fn settings_that_cannot_work_are_refused() {
    both(0, |s| {
        for options in [
            Options { queue_max_chains: 0, ..Options::default() },
            Options { batch_max_transfers: 0, ..Options::default() },
        ] {
            let refused = Writer::new(&options, s.store.clone(), Arc::new(At(7)));
            assert_eq!(refused.err().unwrap().code().name, "store.bad_options");
        }
    });
}

/// What is in the hands of the store when its writer is stopped may be booked: that is not "no".
#[test]
fn who_was_taken_up_when_the_writer_stopped_is_told_that_nobody_knows() {
    both(1, |s| {
        let busy = Arc::new(Barrier::new(2));
        let theirs = busy.clone();
        let other = s.store.write(move |_| {
            theirs.wait();
            Ok::<_, guild_ledger::Error>(())
        });
        let (handle, service) = writer(s, &Options::default());
        let asked = handle.book(deposits(s, 1).remove(0));
        let left = handle.book(deposits(s, 2).remove(1));
        // One look at what waits, and the writer is gone.
        assert_eq!(Box::pin(service).now_or_never(), None);
        busy.wait();
        block_on(other).unwrap();
        assert_eq!(block_on_dyn(asked), Err("store.commit_unknown"));
        assert_eq!(block_on_dyn(left), Err("store.commit_unknown"));
        let again = s.book(deposits(s, 2));
        assert_eq!(said(&again), ["known", "known"]);
    });
}

#[test]
fn a_chain_that_is_too_long_is_never_queued() {
    both(1, |s| {
        let (handle, service) = writer(s, &Options { queue_max_chains: 1, ..Options::default() });
        let long = deposits(s, 257).concat();
        let refused = block_on_dyn(handle.book(long.clone()));
        assert_eq!(refused, Err("ledger.malformed"));
        let short = handle.book(deposits(s, 1).remove(0));
        drop(handle);
        let (answer, ()) = block_on(join(short, service));
        assert_eq!(said(&[answer]), ["new"], "it took nobody's place");
        assert_eq!(
            said(&s.book(vec![long, deposits(s, 1).remove(0)])),
            ["ledger.malformed", "known"]
        );
    });
}

/// A database that fails every now and then, once it is armed: in the middle, and after the commit without a word.
fn failing(armed: &Arc<AtomicBool>) -> Hooks {
    let (armed, dice) = (armed.clone(), AtomicU64::new(1));
    Hooks::default().with_faults(move |point, _| {
        let thrown = dice.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let fails = match point {
            Point::AfterCommit => thrown.is_multiple_of(3),
            Point::AfterBell => false,
            _ => thrown.is_multiple_of(17),
        };
        let failure = || StoreError::Database("out of order".to_owned());
        (armed.load(Ordering::Relaxed) && fails).then(failure)
    })
}

/// Each chain is asked for until somebody says yes. However often that is, it is booked once, and whole.
#[test]
fn nothing_is_lost_or_doubled_when_the_database_fails() {
    let armed = Arc::new(AtomicBool::new(false));
    let stores =
        [Scratch::sqlite_with, Scratch::postgres_with].map(|open| open(2, failing(&armed)));
    for s in &stores {
        armed.store(true, Ordering::Relaxed);
        let options = Options { batch_max_transfers: 16, ..Options::default() };
        let mut waiting: Vec<Vec<NewTransfer>> = (0..200)
            .map(|n| {
                let (to, on) = (format!("to-{n}"), format!("on-{n}"));
                vec![post(&to, &s.ids[0], &s.ids[1], 3), post(&on, &s.ids[1], &s.ids[2], 2)]
            })
            .collect();
        let mut unknown = 0;
        while !waiting.is_empty() {
            let (handle, service) = writer(s, &options);
            let asked: Vec<_> = waiting.iter().map(|chain| handle.book(chain.clone())).collect();
            drop(handle);
            let (answers, ()) = block_on(join(join_all(asked), service));
            let codes = said(&answers);
            assert!(codes.iter().all(|code| !code.starts_with("ledger.")), "{codes:?}");
            unknown += codes.iter().filter(|code| **code == "store.commit_unknown").count();
            let mut answers = answers.into_iter();
            waiting.retain(|_| answers.next().unwrap().is_err());
        }
        armed.store(false, Ordering::Relaxed);
        assert!(unknown > 0, "the fault was met");
        assert_eq!((s.free(&s.ids[1]), s.free(&s.ids[2])), (200, 400));
        assert_eq!(s.problems(), Vec::<String>::new());
    }
}
