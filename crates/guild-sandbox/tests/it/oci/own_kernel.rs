//! gVisor: a second kernel between a program and the host's.

use guild_sandbox::{
    Class, Layer, Limit, Limits, Oci, OciOptions, Result, Sandbox, Spec, Standing,
};

use super::super::support::{launcher, limits, shell};
use super::super::traces::Traces;
use super::{is_root, program, script};

/// With the platform that works on every host.
fn runsc(timeout_ms: u64, runtime: std::path::PathBuf) -> Result<Oci> {
    let platform = Some("ptrace".to_owned());
    Oci::new(OciOptions { timeout_ms, platform, ..OciOptions::new(launcher(), runtime) })
}

#[test]
fn a_program_runs_on_a_kernel_of_its_own() {
    if !is_root() {
        return;
    }
    let sandbox = runsc(20_000, program("runsc")).unwrap();
    let outcome = sandbox.start(&shell("true")).unwrap().wait().unwrap();
    assert!(outcome.succeeded(), "{outcome:?}");
    assert_eq!(outcome.layers[&Layer::UserNamespace], Standing::Enforced);
    assert_eq!(outcome.limits[&Limit::Memory].standing, Standing::Enforced);
    assert_eq!(outcome.limits[&Limit::Pids].standing, Standing::Weaker, "its own are among them");
    let spec = shell("id -u; echo x > /workspace/y; cat /workspace/y /workspace/in; exit 7");
    let collected = sandbox.start(&spec.file("/workspace/in", "in")).unwrap().collect().unwrap();
    assert_eq!(String::from_utf8_lossy(&collected.stdout), "1000\nx\nin", "{collected:?}");
    assert_eq!(collected.outcome.exit_code, Some(7));
    let limits = Limits { wall_ms: 1_000, ..limits() };
    let outcome = sandbox.start(&Spec { limits, ..shell("sleep 1000") }).unwrap().wait().unwrap();
    assert_eq!(outcome.class, Class::WallLimit, "{outcome:?}");
    Traces::now().assert_none();
}

/// As `--platform=kvm` does on some hosts.
#[test]
fn a_second_kernel_that_hangs_is_given_up() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let text =
        "#!/bin/sh\ncase \"$*\" in --version) echo 'runsc version 1' ;; *) sleep 1000 ;; esac\n";
    let error = runsc(500, script(place.path(), text)).map(drop).unwrap_err();
    assert_eq!(error.code().name, "sandbox.runtime");
    assert!(error.to_string().ends_with("create was not done within 500 ms"), "{error}");
    Traces::now().assert_none();
}
