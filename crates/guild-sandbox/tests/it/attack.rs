//! Hostile programs, each by its name. Every one must get its class, be flagged for what it tried, and leave nothing.

mod archive;
mod command;
mod files;
mod kernel;
mod network;
mod process;
mod resource;
mod upload;

use guild_sandbox::{Class, Collected, Flag, Profile, Spec};

use super::support::{printed, python, run, sandbox};
use super::traces::Traces;

/// Runs a hostile program, and looks whether anything is left.
fn attack(spec: &Spec) -> Collected {
    let collected = run(sandbox(), spec);
    Traces::now().assert_none();
    collected
}

/// System calls by their numbers, for programs that do not ask a library.
const CALL: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    answer = libc.syscall(*args)
    return (answer, ctypes.get_errno())
";

fn calling(code: &str) -> Spec {
    python(&format!("{CALL}\nprint('begin', flush=True)\n{code}\nprint('end', flush=True)\n"))
}

/// The program is ended at this call, which is named.
fn is_killed_for(call: &str, code: &str) -> Flag {
    let collected = attack(&calling(code));
    let outcome = &collected.outcome;
    assert_eq!(outcome.class, Class::SecurityViolation, "{outcome:?} {}", printed(&collected));
    assert_eq!(printed(&collected), "begin\n", "it went on");
    let [flag] = outcome.flags.as_slice() else { panic!("{:?}", outcome.flags) };
    assert_eq!((flag.call.as_str(), flag.fatal), (call, true));
    assert_eq!((outcome.exit_code, outcome.signal), (None, Some(9)));
    flag.clone()
}

/// The program goes on without having got anything; it says so itself, and nothing is flagged.
fn is_refused(code: &str) {
    let collected = attack(&calling(code));
    let outcome = &collected.outcome;
    assert_eq!(printed(&collected), "begin\nend\n", "{outcome:?}");
    assert!(outcome.succeeded(), "{outcome:?}");
}

/// As the program is, for a sandbox that was bought.
fn hosted(spec: Spec) -> Spec {
    Spec { profile: Profile::Hosted, ..spec }
}
