use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_store::DatabaseClock;

use crate::{Engine, Scratch, block_on};

/// The real clock, set wrong by so much.
struct Wrong(AtomicI64);

impl Clock for Wrong {
    #[expect(
        clippy::disallowed_methods,
        reason = "PostgreSQL's clock is real, so this one must be"
    )]
    fn now_ms(&self) -> UnixMs {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        i64::try_from(now).unwrap() + self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn processes_whose_clocks_differ_agree_by_the_database() {
    let scratch = Scratch::on(Engine::Postgres);
    for wrong_ms in [3_600_000, -86_400_000, 0] {
        let own = Arc::new(Wrong(AtomicI64::new(wrong_ms)));
        let clock = DatabaseClock::new(own);
        block_on(clock.correct(&scratch.store())).unwrap();
        // Both are on this machine, so whatever remains is the journey.
        assert!((clock.ahead_ms() + wrong_ms).abs() <= 1_000, "{}", clock.ahead_ms());
    }
}

/// A clock by which everything takes two seconds.
struct Slow(AtomicI64);

impl Clock for Slow {
    fn now_ms(&self) -> UnixMs {
        self.0.fetch_add(2_000, Ordering::SeqCst)
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn a_database_that_is_too_slow_to_tell_its_time_corrects_no_clock() {
    let scratch = Scratch::on(Engine::Postgres);
    let clock = DatabaseClock::new(Arc::new(Slow(AtomicI64::new(0))));
    let refused = block_on(clock.correct(&scratch.store())).unwrap_err();
    assert_eq!(refused.code().name, "store.unreachable");
    assert_eq!(clock.ahead_ms(), 0);
}

#[test]
fn a_file_has_the_clock_of_its_machine() {
    let scratch = Scratch::on(Engine::Sqlite);
    let clock = DatabaseClock::new(Arc::new(Wrong(AtomicI64::new(-1_000_000))));
    block_on(clock.correct(&scratch.store())).unwrap();
    assert_eq!(clock.ahead_ms(), 0);
}
