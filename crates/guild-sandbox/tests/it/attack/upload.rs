//! Programs that lie in wait for whoever reads or writes their files from outside.
#![expect(clippy::expect_used, reason = "a test stops where its set-up fails")]

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use guild_sandbox::{Error, Exec, Limits, Profile, Running, Sandbox, Spec, Workspace};

use super::super::support::{limits, sandbox};
use super::super::workspace::{LIMITS, sh, staying};

/// Everything that takes a path refuses this one, and nothing changes.
fn is_refused(running: &Running, path: &str, code: &str) {
    let workspace = running.workspace();
    let refusals: [(&str, Result<(), Error>); 7] = [
        ("read", workspace.read(path, 100).map(drop)),
        ("open_read", workspace.open_read(path).map(drop)),
        ("write", workspace.write(path, 0o644, &b"x"[..], 100).map(drop)),
        ("list", workspace.list(path).map(drop)),
        ("remove", workspace.remove(path).map(drop)),
        ("pack", workspace.pack(path, io::sink()).map(drop)),
        ("unpack", workspace.unpack(&[0; 1_024][..], path, LIMITS).map(drop)),
    ];
    for (what, refused) in refusals {
        // The top itself can be listed, packed and unpacked into.
        if path.is_empty() && ["list", "pack", "unpack"].contains(&what) {
            continue;
        }
        let error = refused.expect_err(what);
        assert_eq!(error.code().name, code, "{what} {path:?}: {error}");
    }
}

#[test]
fn paths_that_lead_out() {
    let running = staying();
    let deep = "d/".repeat(100) + "x";
    let long = "n".repeat(300);
    let longer = "n".repeat(10_000);
    for path in [
        "..",
        "../x",
        "../../etc/passwd",
        "a/../../x",
        "/etc/passwd",
        "/",
        "a//b",
        "./a",
        "a/.",
        "a/",
        "",
        "a\0b",
        "\0",
        &deep,
        &long,
        &longer,
    ] {
        is_refused(&running, path, "sandbox.bad_path");
    }
    assert_eq!(sh(&running, "ls -A"), "");
}

#[test]
fn encoded_paths_are_names_like_others() {
    let running = staying();
    let workspace = running.workspace();
    for path in ["%2e%2e", "..\\..\\x", "%2e%2e%2fetc", "..%00", "C:\\x", "~", "$HOME", "a;b"] {
        workspace.write(path, 0o644, path.as_bytes(), 100).unwrap();
        assert_eq!(workspace.read(path, 100).unwrap(), path.as_bytes());
    }
    assert_eq!(sh(&running, "ls -A | wc -l; ls -A .. | grep -c %; true"), "8\n0\n");
}

#[test]
fn links_are_not_followed() {
    let running = staying();
    let workspace = running.workspace();
    let code = "ln -s /etc/passwd file; ln -s /etc dir; ln -s .. up; ln -s /proc/self/root root; ln -s file again; mkdir real; ln -s /etc real/in; ln -s loop loop";
    sh(&running, code);
    for path in ["file", "again", "dir/passwd", "up/x", "root/etc/passwd", "real/in/passwd", "loop"]
    {
        assert_eq!(
            workspace.read(path, 100).unwrap_err().code().name,
            "sandbox.bad_path",
            "{path}"
        );
    }
    for path in ["dir/x", "up/x", "root/tmp/x", "real/in/x", "loop/x"] {
        let error = workspace.write(path, 0o644, &b"x"[..], 100).unwrap_err();
        assert_eq!(error.code().name, "sandbox.bad_path", "{path}");
    }
    for path in ["dir", "up", "real/in"] {
        assert!(workspace.list(path).is_err() && workspace.pack(path, io::sink()).is_err());
        assert!(workspace.unpack(&[0; 1_024][..], path, LIMITS).is_err());
    }
    // A link at the very place is replaced, not written through; removing removes the link.
    workspace.write("file", 0o644, &b"mine"[..], 100).unwrap();
    assert_eq!(workspace.read("file", 100).unwrap(), b"mine");
    workspace.remove("dir").unwrap();
    workspace.remove("real").unwrap();
    assert_eq!(sh(&running, "head -c 4 /etc/passwd; ls"), "rootagain\nfile\nloop\nroot\nup\n");
    assert_eq!(workspace.walk().unwrap().len(), 1);
}

/// A pipe, a socket and whatever else is no file is neither read nor waited for.
#[test]
fn pipes_and_sockets_do_not_hold_the_collector() {
    let running = staying();
    let workspace = running.workspace();
    sh(
        &running,
        "mkdir d; mkfifo pipe d/pipe; echo x > d/file; python3 -I -S -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"",
    );
    let error = workspace.read("pipe", 100).unwrap_err();
    assert_eq!(
        (error.code().name, error.to_string().as_str()),
        ("sandbox.not_a_file", "pipe: it is a pipe")
    );
    for path in ["sock", "d"] {
        assert_eq!(
            workspace.read(path, 100).unwrap_err().code().name,
            "sandbox.not_a_file",
            "{path}"
        );
    }
    assert_eq!(workspace.walk().unwrap().len(), 1);
    assert_eq!(workspace.pack("", io::sink()).unwrap(), 2);
    assert!(workspace.pack("pipe", io::sink()).is_err());
    // Writing replaces it; nobody waits for its reader.
    workspace.write("pipe", 0o644, &b"x"[..], 100).unwrap();
    assert_eq!(workspace.read("pipe", 100).unwrap(), b"x");
}

#[test]
fn a_lease_on_a_file_does_not_hold_the_collector() {
    let running = staying();
    let code = "import fcntl, signal, time\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\nopen('x', 'w').write('x')\nf = open('x', 'r+')\nfcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nprint('ready', flush=True)\ntime.sleep(1000)\n";
    let mut command =
        running.handle().exec(&Exec::new(["python3", "-I", "-S", "-c", code])).unwrap();
    command.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let error = running.workspace().read("x", 100).unwrap_err();
    assert_eq!(error.to_string(), "x: a program in the sandbox keeps it busy");
    running.workspace().write("x", 0o644, &b"mine"[..], 100).unwrap();
    assert_eq!(running.workspace().read("x", 100).unwrap(), b"mine");
}

/// A file can claim any length without holding anything.
#[test]
fn files_with_holes() {
    let running = staying();
    let workspace = running.workspace();
    sh(&running, "truncate -s 1T huge");
    assert_eq!(workspace.read("huge", 1 << 20).unwrap_err().code().name, "sandbox.too_large");
    for error in [workspace.walk().unwrap_err(), workspace.pack("", io::sink()).unwrap_err()] {
        let says = "huge: the files claim to hold more than the disk";
        assert_eq!((error.code().name, error.to_string().as_str()), ("sandbox.too_large", says));
    }
}

#[test]
fn very_deep_directories() {
    let running = staying();
    let workspace = running.workspace();
    sh(
        &running,
        "python3 -I -S -c \"import os\nfor i in range(500): os.mkdir('d'); os.chdir('d')\"",
    );
    for error in [workspace.walk().unwrap_err(), workspace.remove("d").unwrap_err()] {
        assert_eq!(error.code().name, "sandbox.too_large", "{error}");
    }
}

#[test]
fn very_many_files() {
    let limits =
        Limits { inodes: 200_000, memory_hard_bytes: 1 << 30, cpu_hard_ms: 60_000, ..limits() };
    let running =
        sandbox().start(&Spec { profile: Profile::Hosted, ..Spec::stay(limits) }).unwrap();
    let workspace = running.workspace();
    sh(
        &running,
        "python3 -I -S -c \"import os\nos.mkdir('d')\nfor i in range(100001): os.mknod(f'd/{i}')\"",
    );
    assert_eq!(workspace.list("d").unwrap_err().code().name, "sandbox.too_large");
    assert_eq!(workspace.walk().unwrap_err().code().name, "sandbox.too_large");
}

#[test]
fn names_that_are_no_text() {
    let running = staying();
    let workspace = running.workspace();
    sh(
        &running,
        "python3 -I -S -c \"open(b'\\xff\\xfe', 'w').write('x'); open('a\\nb\\x1b[31m', 'w')\"",
    );
    assert_eq!(workspace.walk().unwrap_err().code().name, "sandbox.bad_path");
    assert_eq!(workspace.list("").unwrap().len(), 2);
}

#[test]
fn files_that_nobody_may_read() {
    let running = staying();
    let workspace = running.workspace();
    sh(&running, "echo x > x; chmod 000 x; mkdir d; chmod 000 d");
    // As the sandbox's own user, whoever we are.
    assert_eq!(workspace.read("x", 100).unwrap_err().code().name, "sandbox.not_a_file");
    assert_eq!(workspace.list("d").unwrap_err().code().name, "sandbox.not_a_file");
    assert_eq!(
        workspace.write("d/x", 0o644, io::empty(), 1).unwrap_err().code().name,
        "sandbox.not_a_file"
    );
    workspace.write("x", 0o644, &b"new"[..], 100).unwrap();
    assert_eq!(workspace.read("x", 100).unwrap(), b"new");
}

/// `at` is a directory, then a link to the outside, then nothing, whatever else is done to it.
const SWAP: &str = r"
import os, shutil
def fill():
    with open('at/file', 'w') as file: file.write('mine')
def steps(outside):
    return [
        lambda: shutil.rmtree('old', ignore_errors=True),
        lambda: os.rename('at', 'old'),
        lambda: os.symlink(outside, 'at'),
        lambda: os.unlink('at'),
        lambda: os.mkdir('at'),
        fill,
    ]
";

/// While we write and read, the program swaps directories for links that lead out, as fast as it can.
#[test]
fn swapping_directories_for_links() {
    let limits = Limits { cpu_hard_ms: 60_000, ..limits() };
    let running =
        sandbox().start(&Spec { profile: Profile::Hosted, ..Spec::stay(limits) }).unwrap();
    let workspace = running.workspace();
    // A directory of the host that the sandbox's user could write into, if anybody led us there.
    let host = tempfile::tempdir().unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(host.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(host.path().join("file"), "secret").unwrap();
    let outside = host.path().to_str().unwrap();
    let code = format!(
        "{SWAP}\nprint('ready', flush=True)\nwhile True:\n    for step in steps({outside:?}):\n        try: step()\n        except OSError: pass\n"
    );
    let mut command =
        running.handle().exec(&Exec::new(["python3", "-I", "-S", "-c", &code])).unwrap();
    command.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let met = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (workspace, met) = (workspace.clone(), &met);
            scope.spawn(move || {
                for turn in 0..50_000 {
                    if turn > 500 && met.load(Ordering::Relaxed) {
                        return;
                    }
                    let path = format!("at/new{number}");
                    match workspace.write(&path, 0o644, &b"x"[..], 10) {
                        Ok(_) => {}
                        Err(Error::BadPath { .. }) => met.store(true, Ordering::Relaxed),
                        Err(Error::NoFile { .. } | Error::NotAFile { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                    if let Ok(bytes) = workspace.read("at/file", 100) {
                        assert_ne!(bytes, b"secret", "read through a link");
                    }
                    if turn % 50 == 0 {
                        let archive = super::archive::archive(&[super::archive::file("in", "x")]);
                        let _ = workspace.unpack(archive.as_slice(), "at", LIMITS);
                        let _ = workspace.remove(&path);
                    }
                }
            });
        }
    });
    let left: Vec<_> =
        std::fs::read_dir(host.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["file"], "something was written outside");
    assert_eq!(std::fs::read_to_string(host.path().join("file")).unwrap(), "secret");
    assert!(met.load(Ordering::Relaxed), "the race never happened");
}

/// The program takes away what is being written, and puts other things there.
#[test]
fn stealing_what_is_being_written() {
    let limits = Limits { cpu_hard_ms: 60_000, ..limits() };
    let running =
        sandbox().start(&Spec { profile: Profile::Hosted, ..Spec::stay(limits) }).unwrap();
    let workspace = running.workspace();
    let code = "import os\nprint('ready', flush=True)\nwhile True:\n    for name in os.listdir('.'):\n        if name.startswith('.guild'):\n            try:\n                os.rename(name, 'stolen')\n                os.symlink('/etc/passwd', name)\n            except OSError: pass\n";
    let mut command =
        running.handle().exec(&Exec::new(["python3", "-I", "-S", "-c", code])).unwrap();
    command.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    for _ in 0..20 {
        let _ = workspace.remove("stolen");
        let from = UntilStolen(&workspace).chain(&b"mine"[..]);
        match workspace.write("x", 0o644, from, 10) {
            Ok(_) | Err(Error::NoFile { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
        // What is there now is the program's own link, which is not followed, or what was written.
        match workspace.read("x", 100) {
            Ok(bytes) => assert_eq!(bytes, b"mine"),
            Err(Error::BadPath { .. } | Error::NoFile { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Gives nothing, but only when what is being written has been taken away.
struct UntilStolen<'a>(&'a Workspace);

impl Read for UntilStolen<'_> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        for _ in 0..200_000 {
            let listed = self.0.list("").map_err(io::Error::other)?;
            if listed.iter().any(|entry| entry.name == "stolen") {
                return Ok(0);
            }
        }
        Err(io::Error::other("nothing was ever stolen"))
    }
}
