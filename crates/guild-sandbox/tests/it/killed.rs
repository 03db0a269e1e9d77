//! Sandboxes that are frozen, stopped and killed, and callers that die.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;

use guild_sandbox::{Class, Ns, Options, Sandbox};

use super::support::{
    REPEATS, converse, launcher, printed, run, sandbox, sandbox_without_cgroups, shell, sleep_ms,
};
use super::traces::{Caller, assert_nothing_is_left, children};

#[test]
fn a_handle_kills_everything() {
    for sandbox in [sandbox(), &sandbox_without_cgroups()] {
        let running = sandbox.start(&shell("sleep 1000 & sleep 1000")).unwrap();
        let handle = running.handle();
        let waiting = std::thread::spawn(move || running.wait());
        handle.kill().unwrap();
        let outcome = waiting.join().unwrap().unwrap();
        assert_eq!((outcome.class, outcome.signal), (Class::Stopped, Some(9)));
        assert_nothing_is_left();
        // Later words reach nobody, which is no error.
        handle.kill().unwrap();
        handle.freeze().unwrap();
    }
}

#[test]
fn dropping_kills_everything() {
    drop(sandbox().start(&shell("sleep 1000 & sleep 1000")).unwrap());
    assert_nothing_is_left();
}

/// A program hears a signal, and ends as it likes.
pub(crate) fn signals_reach_the_program(sandbox: &dyn Sandbox) {
    let spec = shell("trap 'echo told; exit 7' USR1; echo ready; while :; do sleep 0.05; done");
    let mut running = sandbox.start(&spec).unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    running.handle().signal(10).unwrap();
    assert_eq!(running.handle().signal(0).unwrap_err().code().name, "sandbox.bad_spec");
    lines.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), running.wait().unwrap().exit_code), ("ready\ntold\n", Some(7)));
}

#[test]
fn a_signal_reaches_the_program() {
    signals_reach_the_program(sandbox());
}

/// While frozen the wall clock stands still: after a longer time than it allows, the program goes on and answers.
pub(crate) fn stands_still_while_frozen(sandbox: &dyn Sandbox) {
    let mut spec = shell("trap 'exit 7' USR1; echo ready; while :; do sleep 0.02; done");
    spec.limits.wall_ms = 3_000;
    let mut running = sandbox.start(&spec).unwrap();
    running.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let handle = running.handle();
    handle.freeze().unwrap();
    sleep_ms(3_500);
    handle.thaw().unwrap();
    handle.signal(10).unwrap();
    let outcome = running.wait().unwrap();
    assert_eq!((outcome.class, outcome.exit_code), (Class::Exited, Some(7)), "{outcome:?}");
    assert!(outcome.usage.wall_us < 3_000_000, "{outcome:?}");
}

#[test]
fn frozen_things_stand_still() {
    stands_still_while_frozen(sandbox());
    stands_still_while_frozen(&sandbox_without_cgroups());
}

/// In version 1 the frozen do not die, so they are thawed first.
pub(crate) fn dies_while_frozen(sandbox: &dyn Sandbox) {
    let running = sandbox.start(&shell("sleep 1000")).unwrap();
    running.handle().freeze().unwrap();
    running.handle().kill().unwrap();
    assert_eq!(running.wait().unwrap().class, Class::Stopped);
    assert_nothing_is_left();
}

#[test]
fn a_frozen_sandbox_can_be_killed() {
    dies_while_frozen(sandbox());
}

#[test]
fn input_and_output_are_streamed() {
    let mut running = sandbox().start(&shell(REPEATS)).unwrap();
    converse(running.stdin.take(), running.stdout.take());
    assert!(running.wait().unwrap().succeeded());
}

#[test]
fn output_can_be_read_after_the_end() {
    let mut running = sandbox().start(&shell("head -c 100000 /dev/zero")).unwrap();
    let mut stdout = running.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        sleep_ms(300);
        let mut all = Vec::new();
        stdout.read_to_end(&mut all).unwrap();
        all.len()
    });
    assert!(running.wait().unwrap().succeeded());
    assert_eq!(reader.join().unwrap(), 100_000);
}

/// Sandboxes that are killed at any moment, also while they are being made, leave nothing.
#[test]
fn two_hundred_are_killed_at_any_moment() {
    let sandbox = Ns::new(Options { ahead: 2, ..Options::new(launcher()) }).unwrap();
    let mut seed = 7u64;
    for turn in 0..200 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if turn % 3 == 0 {
            sandbox.prepare().unwrap();
        }
        let spec = shell("while :; do (sleep 0.01 &); echo x; done");
        let running = sandbox.start(&spec).unwrap();
        sleep_ms((seed >> 40) % 12);
        match turn % 4 {
            0 => drop(running),
            1 => {
                running.handle().kill().unwrap();
                assert_eq!(running.wait().unwrap().class, Class::Stopped);
            }
            2 => {
                running.handle().freeze().unwrap();
                running.handle().kill().unwrap();
                drop(running);
            }
            _ => {
                let handle = running.handle();
                let waiting = std::thread::spawn(move || running.wait());
                handle.kill().unwrap();
                waiting.join().unwrap().unwrap();
            }
        }
    }
    drop(sandbox);
    assert_nothing_is_left();
}

/// A caller that is killed with `kill -9` takes all its sandboxes with it: running, waiting and being made.
#[test]
fn a_caller_that_is_killed_leaves_nothing() {
    for pause_ms in [0, 3, 10, 40] {
        let mut caller = Caller::with(6, None);
        sleep_ms(pause_ms);
        caller.kill();
        caller.assert_nothing_is_left(|| ());
    }
}

/// If even the launchers are killed, the kernel ends the sandboxes, and the next start removes their cgroups.
#[test]
fn launchers_that_are_killed_are_swept() {
    let mut caller = Caller::with(3, None);
    assert!(caller.kill_with_launchers() >= 3);
    // Looks for what the dead have left, and removes it.
    caller.assert_nothing_is_left(|| drop(Ns::new(Options::new(launcher())).unwrap()));
}

#[test]
fn launchers_made_ahead_are_used_once() {
    let sandbox = Ns::new(Options { ahead: 2, ..Options::new(launcher()) }).unwrap();
    sandbox.prepare().unwrap();
    for _ in 0..3 {
        let collected = run(&sandbox, &shell("ls /tmp /workspace; echo x > /tmp/x; echo $$"));
        // Nothing of the one before; always the second process of new ones.
        assert_eq!(printed(&collected), "/tmp:\n\n/workspace:\n2\n");
    }
    sandbox.prepare().unwrap();
    drop(sandbox);
    assert_nothing_is_left();
}

/// What runs goes on when the nursery is killed, and the next start has a new one.
#[test]
fn a_nursery_that_is_killed_is_replaced() {
    let sandbox = Ns::new(Options::new(launcher())).unwrap();
    let spec = shell("read line; echo \"<$line>\"");
    let mut running = sandbox.start(&spec).unwrap();
    let ours = |pid: &&String| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.ends_with("\0__sandbox\0") && !children(pid).is_empty()
    };
    // Others have nurseries too; killing theirs must do no harm either.
    let nurseries = children(&std::process::id().to_string());
    let nurseries: Vec<&String> = nurseries.iter().filter(ours).collect();
    assert!(!nurseries.is_empty());
    for pid in nurseries {
        assert!(Command::new("kill").args(["-9", pid]).status().unwrap().success());
    }
    assert_eq!(printed(&run(&sandbox, &shell("echo again"))), "again\n");
    running.stdin.take().unwrap().write_all(b"still\n").unwrap();
    let collected = running.collect().unwrap();
    assert_eq!(printed(&collected), "<still>\n");
    drop(sandbox);
    assert_nothing_is_left();
}

/// A caller that starts nothing more has no dead children for long.
#[test]
fn launchers_are_waited_for() {
    let sandbox = Ns::new(Options::new(launcher())).unwrap();
    run(&sandbox, &shell("true"));
    let own = std::process::id();
    let zombies = || {
        let children = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
            let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            status.contains(&format!("PPid:\t{own}\n")) && status.contains("State:\tZ")
        });
        children.map(|entry| entry.file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    // Others run beside: a zombie of theirs is not the same for long.
    let mut stubborn = zombies();
    for _ in 0..200 {
        if stubborn.is_empty() {
            return;
        }
        sleep_ms(10);
        stubborn = stubborn.intersection(&zombies()).cloned().collect();
    }
    panic!("not waited for: {stubborn:?}");
}

#[test]
fn many_at_once() {
    let sandbox = sandbox();
    std::thread::scope(|scope| {
        for number in 0..50 {
            scope.spawn(move || {
                let collected = run(sandbox, &shell(&format!("echo {number}")));
                assert_eq!(printed(&collected), format!("{number}\n"));
            });
        }
    });
    assert_nothing_is_left();
}
