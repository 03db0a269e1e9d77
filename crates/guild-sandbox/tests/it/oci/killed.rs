//! Sandboxes of a runtime that are frozen, stopped and killed, and callers that die.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::Duration;

use guild_sandbox::{Class, Ns, Options, Sandbox};

use super::super::killed::children;
use super::super::support::{LAUNCHER, LOOK, Traces, launcher, shell};
use super::{is_root, program, runc};

#[expect(clippy::disallowed_methods, reason = "a test may wait for another process")]
fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
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

#[test]
fn a_signal_reaches_the_program() {
    if !is_root() {
        return;
    }
    let spec = shell("trap 'echo told; exit 7' USR1; echo ready; while :; do sleep 0.05; done");
    let mut running = runc().start(&spec).unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    running.handle().signal(10).unwrap();
    lines.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), running.wait().unwrap().exit_code), ("ready\ntold\n", Some(7)));
}

#[test]
fn frozen_things_stand_still_and_can_be_killed() {
    if !is_root() {
        return;
    }
    let mut spec = shell("trap 'exit 7' USR1; echo ready; while :; do sleep 0.02; done");
    spec.limits.wall_ms = 3_000;
    let mut running = runc().start(&spec).unwrap();
    running.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let handle = running.handle();
    handle.freeze().unwrap();
    sleep_ms(3_500);
    handle.thaw().unwrap();
    handle.signal(10).unwrap();
    let outcome = running.wait().unwrap();
    assert_eq!((outcome.class, outcome.exit_code), (Class::Exited, Some(7)), "{outcome:?}");
    let running = runc().start(&shell("sleep 1000")).unwrap();
    running.handle().freeze().unwrap();
    running.handle().kill().unwrap();
    assert_eq!(running.wait().unwrap().class, Class::Stopped);
    Traces::now().assert_none();
}

#[test]
fn twenty_are_killed_at_any_moment() {
    if !is_root() {
        return;
    }
    let mut seed = 7u64;
    for turn in 0..20 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let running = runc().start(&shell("while :; do (sleep 0.01 &); echo x; done")).unwrap();
        sleep_ms((seed >> 40) % 30);
        match turn % 2 {
            0 => drop(running),
            _ => {
                running.handle().kill().unwrap();
                assert_eq!(running.wait().unwrap().class, Class::Stopped);
            }
        }
        Traces::now().assert_none();
    }
}

/// A caller and a runtime of other names than those of tests beside this one.
fn own_programs() -> std::io::Result<(tempfile::TempDir, PathBuf, PathBuf)> {
    let place = tempfile::tempdir()?;
    let (caller, runtime) = (place.path().join("caller"), place.path().join("runtime"));
    fs::hard_link(LAUNCHER, &caller).or_else(|_| fs::copy(LAUNCHER, &caller).map(drop))?;
    symlink(program("runc"), &runtime)?;
    Ok((place, caller, runtime))
}

/// A caller that is killed with `kill -9` takes all its sandboxes with it: running, and being made at any step.
#[test]
fn a_caller_that_is_killed_leaves_nothing() {
    if !is_root() {
        return;
    }
    let (place, caller, runtime) = own_programs().unwrap();
    for pause_ms in [0, 7, 20, 45, 90] {
        let mut caller = Command::new(&caller)
            .args(["hold", "2"])
            .arg(&runtime)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(caller.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        assert!(running_from(place.path()).len() > 1);
        sleep_ms(pause_ms);
        caller.kill().unwrap();
        caller.wait().unwrap();
        for turn in 0.. {
            let left = running_from(place.path());
            if left.is_empty() && Traces::now().is_none() {
                break;
            }
            assert!(turn < 200, "{left:?} {:?}", Traces::now());
            sleep_ms(25);
        }
    }
}

/// If even the launchers are killed, the kernel ends everything below them, and the next start of either backend
/// removes the cgroups that the runtime made, in every hierarchy.
#[test]
fn launchers_that_are_killed_are_swept() {
    if !is_root() {
        return;
    }
    let (place, caller, runtime) = own_programs().unwrap();
    let mut caller = Command::new(caller)
        .args(["hold", "2"])
        .arg(runtime)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(caller.stdout.take().unwrap()).read_line(&mut line).unwrap();
    // The nursery of the trial may not be gone yet.
    let nurseries = children(&caller.id().to_string());
    let launchers: Vec<String> = nurseries.iter().flat_map(|pid| children(pid)).collect();
    assert!(launchers.len() >= 2, "{nurseries:?} {launchers:?}");
    let _mess = LOOK.write().unwrap_or_else(PoisonError::into_inner);
    // Those of the trial are gone by now, perhaps.
    for pid in nurseries.iter().chain(&launchers) {
        let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status().unwrap();
    }
    caller.kill().unwrap();
    caller.wait().unwrap();
    for _ in 0..200 {
        // A runtime that is not dead yet may still make cgroups.
        let is_over = running_from(place.path()).is_empty();
        drop(Ns::new(Options::new(launcher())).unwrap());
        if is_over && Traces::seen().is_none() {
            return;
        }
        sleep_ms(25);
    }
    panic!("{:?} {:?}", running_from(place.path()), Traces::seen());
}
