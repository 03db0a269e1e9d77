//! The real clock, the real randomness and the real runtime: the only place that makes them.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use guild_market::judge::Stopwatch;
use guild_protocol::env::{BoxFuture, Clock, Random, UnixMs};

use crate::error::{Error, Result, code};

/// The clock of this host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in elsewhere")]
    fn now_ms(&self) -> UnixMs {
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => ms(since),
            Err(before) => -ms(before.duration()),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in elsewhere")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let duration = Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0));
        Box::pin(async move {
            if duration.is_zero() {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(duration).await;
            }
        })
    }
}

/// Time that only goes forward, since the first look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemStopwatch;

impl Stopwatch for SystemStopwatch {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in elsewhere")]
    fn now_us(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The randomness of the operating system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemRandom;

impl SystemRandom {
    /// As [`Random::fill`], but says so when there is no randomness.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the randomness that is passed in elsewhere"
    )]
    pub(crate) fn try_fill(bytes: &mut [u8]) -> rustix::io::Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(filled) => done += filled,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(error) = SystemRandom::try_fill(bytes) {
            // Going on would make keys that can be guessed.
            panic!("the operating system gives no randomness: {error}");
        }
    }
}

/// A runtime for a command that waits for one thing after another.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(&code::IO_FAILED, format!("no runtime could be started: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn randomness_fills_every_byte_and_differs() {
        let (mut a, mut b) = ([0u8; 1000], [0u8; 1000]);
        SystemRandom.fill(&mut a);
        SystemRandom.fill(&mut b);
        assert_ne!(a, b);
        assert!(a.chunks(50).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
    }

    #[test]
    fn the_clock_reads_unix_milliseconds() {
        // 2025-01-01 and 2200-01-01.
        assert!((1_735_689_600_000..7_258_118_400_000).contains(&SystemClock.now_ms()));
    }
}
