//! Sandboxes of a runtime whose caller goes while they are frozen.

use super::super::frozen::{can_be_dropped, end_with_their_caller, the_killed_are_not_frozen};
use super::{is_root, program, runc};

#[test]
fn a_frozen_sandbox_can_be_dropped() {
    if is_root() {
        can_be_dropped(runc());
    }
}

#[test]
fn what_is_killed_is_not_frozen() {
    if is_root() {
        the_killed_are_not_frozen(runc());
    }
}

#[test]
fn frozen_sandboxes_end_with_their_caller() {
    if is_root() {
        end_with_their_caller(Some(&program("runc")));
    }
}
