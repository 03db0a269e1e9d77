//! Sandboxes of a runtime that are frozen, stopped and killed, and callers that die.

use guild_sandbox::{Class, Ns, Options, Sandbox};

use super::super::killed::{
    dies_while_frozen, signals_reach_the_program, stands_still_while_frozen,
};
use super::super::support::{launcher, shell, sleep_ms};
use super::super::traces::{Caller, Traces};
use super::{is_root, program, runc};

#[test]
fn a_signal_reaches_the_program() {
    if is_root() {
        signals_reach_the_program(runc());
    }
}

#[test]
fn frozen_things_stand_still_and_can_be_killed() {
    if is_root() {
        stands_still_while_frozen(runc());
        dies_while_frozen(runc());
    }
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

/// A caller that is killed with `kill -9` takes all its sandboxes with it: running, and being made at any step.
#[test]
fn a_caller_that_is_killed_leaves_nothing() {
    if !is_root() {
        return;
    }
    for pause_ms in [0, 7, 20, 45, 90] {
        let mut caller = Caller::with(2, Some(&program("runc")));
        sleep_ms(pause_ms);
        caller.kill();
        caller.assert_nothing_is_left(|| ());
    }
}

/// If even the launchers are killed, the kernel ends everything below them, and the next start of either backend
/// removes the cgroups that the runtime made, in every hierarchy.
#[test]
fn launchers_that_are_killed_are_swept() {
    if !is_root() {
        return;
    }
    let mut caller = Caller::with(2, Some(&program("runc")));
    assert!(caller.kill_with_launchers() >= 2);
    // A runtime that is not dead yet may still make cgroups, so it is done again and again.
    caller.assert_nothing_is_left(|| drop(Ns::new(Options::new(launcher())).unwrap()));
}
