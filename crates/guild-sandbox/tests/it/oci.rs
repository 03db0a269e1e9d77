//! The backend of OCI runtimes. As an ordinary user there is only its refusal to try.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use guild_sandbox::{
    Bind, Class, Collected, Error, Image, Layer, Limit, Limits, Network, Oci, OciOptions, Profile,
    Sandbox, Spec, Standing,
};

use super::support::{Traces, launcher, limits, printed, python, shell};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program of the host. Missing ones are a failure: `cargo xtask test` installs them.
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where its set-up fails")]
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push("/usr/sbin".into());
    let found = places.into_iter().map(|place| place.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing; install it with: apt-get install {name}"))
}

#[expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]
fn runc() -> &'static Oci {
    static RUNC: OnceLock<Oci> = OnceLock::new();
    RUNC.get_or_init(|| Oci::new(OciOptions::new(launcher(), program("runc"))).unwrap())
}

#[expect(clippy::unwrap_used, reason = "a test stops where nothing runs")]
fn run(spec: &Spec) -> Collected {
    let collected = runc().start(spec).unwrap().collect().unwrap();
    Traces::now().assert_none();
    collected
}

#[test]
fn a_program_runs() {
    if !is_root() {
        return;
    }
    let collected = run(&shell("echo hello; echo oops >&2; cat; exit 3"));
    let outcome = &collected.outcome;
    assert_eq!((outcome.class, outcome.exit_code), (Class::Exited, Some(3)), "{outcome:?} {}", printed(&collected));
    assert_eq!(printed(&collected), "hello\noops\n");
    eprintln!("{outcome:#?}");
}
