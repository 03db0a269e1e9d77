//! Sandboxes whose caller goes while they are frozen. In version 1 of cgroups nobody dies who is frozen.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use guild_sandbox::{Class, Running, Sandbox};

use super::support::{launcher, sandbox, sandbox_without_cgroups, shell};

#[expect(clippy::disallowed_methods, reason = "a test may wait for another process")]
fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Waits for a drop that must not need anybody else.
#[expect(clippy::unwrap_used, reason = "a drop does not panic")]
fn assert_drops(running: Running) {
    let dropping = std::thread::spawn(move || drop(running));
    for _ in 0..3_000 {
        if dropping.is_finished() {
            return dropping.join().unwrap();
        }
        sleep_ms(10);
    }
    panic!("it cannot be dropped");
}

#[expect(clippy::unwrap_used, reason = "a test stops where nothing runs")]
pub(crate) fn can_be_dropped(sandbox: &dyn Sandbox) {
    let running = sandbox.start(&shell("sleep 1000 & sleep 1000")).unwrap();
    running.handle().freeze().unwrap();
    assert_drops(running);
}

/// Whoever dies must not be frozen before it is dead.
#[expect(clippy::unwrap_used, reason = "a test stops where nothing runs")]
pub(crate) fn the_killed_are_not_frozen(sandbox: &dyn Sandbox) {
    let running = sandbox.start(&shell("sleep 1000 & sleep 1000")).unwrap();
    let handle = running.handle();
    handle.kill().unwrap();
    handle.freeze().unwrap();
    let waiting = std::thread::spawn(move || running.wait());
    for _ in 0..3_000 {
        if waiting.is_finished() {
            assert_eq!(waiting.join().unwrap().unwrap().class, Class::Stopped);
            return;
        }
        sleep_ms(10);
    }
    panic!("it does not end");
}

/// Who runs a program of this directory.
fn running_from(place: &Path) -> Vec<String> {
    let place = place.display().to_string();
    let words = |entry: fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        words.contains(&place).then_some(words)
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(words).collect()
}

/// Kills a caller whose sandboxes are frozen, and waits for its launchers, which go last.
#[expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]
pub(crate) fn end_with_their_caller(runtime: Option<&Path>) {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("caller");
    let linked = fs::hard_link(launcher(), &program);
    linked.or_else(|_| fs::copy(launcher(), &program).map(drop)).unwrap();
    let mut command = Command::new(&program);
    command.args(["freeze", "2"]).args(runtime).stdout(Stdio::piped());
    let mut caller = command.spawn().unwrap();
    let mut line = [0; 6];
    caller.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"ready\n");
    assert!(running_from(place.path()).len() > 2);
    caller.kill().unwrap();
    caller.wait().unwrap();
    for _ in 0..1_200 {
        if running_from(place.path()).is_empty() {
            return;
        }
        sleep_ms(25);
    }
    panic!("something is left: {:?}", running_from(place.path()));
}

#[test]
fn a_frozen_sandbox_can_be_dropped() {
    can_be_dropped(sandbox());
    can_be_dropped(&sandbox_without_cgroups());
}

#[test]
fn what_is_killed_is_not_frozen() {
    the_killed_are_not_frozen(sandbox());
}

#[test]
fn frozen_sandboxes_end_with_their_caller() {
    end_with_their_caller(None);
}
