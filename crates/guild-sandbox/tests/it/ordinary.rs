//! Everything again as an ordinary user, if the tests run as root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Set for the run inside the run.
const INSIDE: &str = "GUILD_SANDBOX_TEST_INSIDE";

#[test]
#[expect(clippy::disallowed_methods, reason = "the test tells itself from its copy by a variable")]
fn everything_works_without_root() {
    if !rustix::process::geteuid().is_root() || std::env::var_os(INSIDE).is_some() {
        return;
    }
    // Where that user can read: the build directory may be private.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (tests, launcher) = (place.path().join("it"), place.path().join("sandbox-launcher"));
    fs::copy(std::env::current_exe().unwrap(), &tests).unwrap();
    fs::copy(super::support::LAUNCHER, &launcher).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "54321", "--regid", "54321", "--clear-groups", "--inh-caps=-all"])
        .arg(&tests)
        .args(["--test-threads", "4"])
        .env(INSIDE, "1")
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let passed = text.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(passed > 100, "only {passed} tests ran");
}
