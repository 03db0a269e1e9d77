//! Processes that are started to be killed.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// This test binary, started again with one test only: the part of a program that is killed in the middle. Killed with
/// SIGKILL when it is dropped.
#[derive(Debug)]
pub struct Victim(Child);

impl Victim {
    /// Starts `test` (its whole path) in a process of its own. The test learns from the environment that it is meant.
    pub fn start(test: &str, environment: &[(&str, &str)]) -> Result<Victim, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command
            .args(["--exact", test, "--nocapture"])
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().map(Victim).map_err(|e| e.to_string())
    }

    /// Whether it ended by itself, which it is not meant to.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may have ended; there is nothing else to do then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Numbers that differ from run to run: kills are meant to come at ever new moments.
#[derive(Debug)]
pub struct Dice(AtomicU64);

impl Dice {
    /// Dice that no other process has; `salt` keeps those of one process apart.
    pub fn new(salt: u64) -> Dice {
        #[expect(clippy::disallowed_methods, reason = "what differs from run to run is the time")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let now = u64::try_from(now & u128::from(u64::MAX)).unwrap_or(0);
        Dice(AtomicU64::new(now ^ (u64::from(std::process::id()) << 32) ^ salt.rotate_left(17)))
    }

    /// The dice that roll these numbers again.
    pub fn seeded(seed: u64) -> Dice {
        Dice(AtomicU64::new(seed))
    }

    /// The next number.
    pub fn roll(&self) -> u64 {
        let state = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// The next number below a limit of at least 1.
    pub fn below(&self, limit: u64) -> u64 {
        self.roll() % limit.max(1)
    }
}

/// Waits in real time.
#[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
pub fn wait_ms(duration_ms: u64) {
    std::thread::sleep(Duration::from_millis(duration_ms));
}

/// The real time, in milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "real processes share the real clock")]
pub fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    i64::try_from(now).unwrap_or(i64::MAX)
}
