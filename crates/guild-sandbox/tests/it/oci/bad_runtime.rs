//! Runtimes that are missing, hang, fail, or do not do as they are told. None of them gets to run anything.

use std::path::Path;

use guild_sandbox::{Error, Oci, OciOptions, Sandbox};

use super::super::support::{launcher, shell};
use super::super::traces::Traces;
use super::{is_root, program, script};

#[expect(clippy::unwrap_used, reason = "a test stops where nothing is refused")]
fn refused(runtime: &Path, timeout_ms: u64) -> Error {
    let options = OciOptions { timeout_ms, ..OciOptions::new(launcher(), runtime) };
    let error = Oci::new(options).map(drop).unwrap_err();
    Traces::now().assert_none();
    error
}

/// A runtime that changes its bundle by these lines of Python before it obeys.
fn changed_by(directory: &Path, change: &str) -> std::path::PathBuf {
    let runc = program("runc").display().to_string();
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *' create '*) python3 -c \"\nimport json\n\
         path = '/mnt/bundle/config.json'\nbundle = json.load(open(path))\n{change}\n\
         json.dump(bundle, open(path, 'w'))\n\" ;; esac\nexec {runc} \"$@\"\n"
    );
    script(directory, &text)
}

#[test]
fn a_runtime_that_is_missing() {
    if !is_root() {
        return;
    }
    let error = refused(Path::new("/no/such/runtime"), 1_000);
    assert_eq!(error.code().name, "sandbox.runtime");
    assert!(error.to_string().starts_with("/no/such/runtime: No such file"), "{error}");
}

#[test]
fn a_program_that_is_no_runtime() {
    if !is_root() {
        return;
    }
    let error = refused(Path::new("/bin/cat"), 5_000).to_string();
    assert!(error.contains("cat") && error.starts_with("/bin/cat: "), "{error}");
    let error = refused(Path::new("/bin/true"), 5_000).to_string();
    assert_eq!(error, "/bin/true: it does not say its version, so it is no OCI runtime");
}

#[test]
fn a_runtime_that_hangs_at_once() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let runtime = script(place.path(), "#!/bin/sh\nsleep 1000 &\nsleep 1000\n");
    let error = refused(&runtime, 300);
    assert_eq!(error.code().name, "sandbox.runtime");
    assert!(error.to_string().ends_with("--version was not done within 300 ms"), "{error}");
    assert_nobody_runs(place.path());
}

#[test]
fn a_runtime_that_hangs_when_it_is_needed() {
    if !is_root() {
        return;
    }
    for word in ["create", "start"] {
        let place = tempfile::tempdir().unwrap();
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *' {word} '*) setsid sleep 1000 & sleep 1000 ;; esac\nexec {} \"$@\"\n",
            program("runc").display()
        );
        let runtime = script(place.path(), &text);
        let error = refused(&runtime, 4_000);
        assert!(
            error.to_string().ends_with(&format!("{word} was not done within 4000 ms")),
            "{error}"
        );
        assert_nobody_runs(place.path());
    }
}

/// Nobody runs a program of this directory.
fn assert_nobody_runs(place: &Path) {
    let place = place.display().to_string();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        assert!(!words.contains(&place), "{:?} is left: {words}", entry.file_name());
    }
}

#[test]
fn a_runtime_that_fails_is_quoted() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let runtime = changed_by(place.path(), "bundle['root']['path'] = '/no/such'");
    let error = refused(&runtime, 10_000);
    assert_eq!(error.code().name, "sandbox.runtime");
    assert!(error.to_string().contains("/no/such"), "{error}");
    let place = tempfile::tempdir().unwrap();
    let silent = "#!/bin/sh\ncase \"$*\" in --version) echo 'x version 1' ;; *) exit 7 ;; esac\n";
    let error = refused(&script(place.path(), silent), 10_000).to_string();
    assert!(error.ends_with(": create failed and said nothing"), "{error}");
}

/// Planted bugs, each caught before anybody's program could run with it.
#[test]
fn a_runtime_that_ignores_what_it_is_told() {
    if !is_root() {
        return;
    }
    let process = "bundle['process']";
    let planted = [
        ("del bundle['linux']['resources']".to_owned(), "cgroup_memory"),
        ("del bundle['linux']['resources']['memory']".to_owned(), "cgroup_memory"),
        ("del bundle['linux']['resources']['pids']".to_owned(), "cgroup_pids"),
        ("bundle['linux']['resources']['pids']['limit'] += 1".to_owned(), "cgroup_pids"),
        ("bundle['linux']['cgroupsPath'] = '/guild-test-elsewhere'".to_owned(), "cgroup_memory"),
        ("del bundle['linux']['seccomp']".to_owned(), "seccomp"),
        (format!("{process}['capabilities']['bounding'] = ['CAP_SYS_ADMIN']"), "user_namespace"),
        (
            "bundle['linux']['namespaces'] = [n for n in bundle['linux']['namespaces'] if n['type'] != 'user']\n\
             del bundle['linux']['uidMappings'], bundle['linux']['gidMappings']"
                .to_owned(),
            "user_namespace",
        ),
    ];
    for (change, layer) in planted {
        let place = tempfile::tempdir().unwrap();
        let error = refused(&changed_by(place.path(), &change), 10_000);
        let says = format!("the layer {layer} is required, but the runtime ");
        assert!(error.to_string().starts_with(&says), "{change}: {error}");
        let left: Vec<_> = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten().collect();
        let left =
            left.iter().find(|hierarchy| hierarchy.path().join("guild-test-elsewhere").exists());
        assert!(left.is_none(), "{left:?}");
    }
    // Without any bug the same script is a runtime.
    let place = tempfile::tempdir().unwrap();
    let runtime = changed_by(place.path(), "pass");
    let oci = Oci::new(OciOptions::new(launcher(), runtime)).unwrap();
    assert!(oci.start(&shell("true")).unwrap().wait().unwrap().succeeded());
}
