//! The files of a sandbox, read and written from outside.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{self, Read};
use std::process::Command;

use guild_sandbox::{EntryKind, Exec, Profile, Running, Sandbox, Spec, UnpackLimits, Workspace};

use super::support::{limits, sandbox, sandbox_without_cgroups, shell};

pub(crate) const LIMITS: UnpackLimits = UnpackLimits { bytes: 1 << 20, entries: 100 };

/// A sandbox that stays, with nothing in it, where pipes and sockets can be made.
pub(crate) fn staying() -> Running {
    sandbox().start(&spec()).unwrap()
}

fn spec() -> Spec {
    Spec { profile: Profile::Hosted, ..Spec::stay(limits()) }
}

/// Runs a script in it, which must succeed, and gives what it printed.
pub(crate) fn sh(running: &Running, code: &str) -> String {
    let command = running.handle().exec(&Exec::new(["sh", "-c", code])).unwrap();
    let collected = command.collect().unwrap();
    assert!(collected.ended.succeeded(), "{code}: {collected:?}");
    String::from_utf8_lossy(&collected.stdout).into_owned()
}

/// All paths, with their content.
pub(crate) fn tree(workspace: &Workspace) -> Vec<(String, String)> {
    let read = |path: &str| String::from_utf8(workspace.read(path, 1 << 20).unwrap()).unwrap();
    workspace.walk().unwrap().into_iter().map(|a| (a.path.clone(), read(&a.path))).collect()
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn files_go_in_and_out() {
    for sandbox in [sandbox(), &sandbox_without_cgroups()] {
        let running = sandbox.start(&spec()).unwrap();
        let workspace = running.workspace();
        let written = workspace.write("deep/er/hello.sh", 0o755, &b"echo hello"[..], 100).unwrap();
        assert_eq!(written.size, 10);
        assert_eq!(written.sha256, guild_protocol::hash::Hash::of(b"echo hello"));
        assert_eq!(
            sh(&running, "deep/er/hello.sh; stat -c '%a %u %g' deep deep/er/hello.sh"),
            "hello\n755 1000 1000\n755 1000 1000\n"
        );
        sh(&running, "echo x > deep/x; chmod 600 deep/x; ln -s x deep/link; mkfifo deep/pipe");
        assert_eq!(workspace.read("deep/x", 100).unwrap(), b"x\n");
        let listed = workspace.list("deep").unwrap();
        let listed: Vec<_> =
            listed.iter().map(|e| (e.name.as_str(), e.kind, e.executable)).collect();
        let expected = [
            ("er", EntryKind::Directory, false),
            ("link", EntryKind::Link, false),
            ("pipe", EntryKind::Other, false),
            ("x", EntryKind::File, false),
        ];
        assert_eq!(listed, expected);
        assert_eq!(
            tree(&workspace),
            owned(&[("deep/er/hello.sh", "echo hello"), ("deep/x", "x\n")])
        );
        // Replacing is atomic and leaves nothing else.
        workspace.write("deep/x", 0o644, &b"new"[..], 3).unwrap();
        assert_eq!(
            sh(&running, "cat deep/x; ls -A . deep"),
            "new.:\ndeep\n\ndeep:\ner\nlink\npipe\nx\n"
        );
        workspace.remove("deep").unwrap();
        assert_eq!(workspace.list("").unwrap(), []);
        assert_eq!(workspace.remove("deep").unwrap_err().code().name, "sandbox.no_file");
    }
}

#[test]
fn what_is_left_can_be_read_after_the_end() {
    let running = sandbox().start(&shell("mkdir out; echo 42 > out/answer; sleep 1000 &")).unwrap();
    let workspace = running.workspace();
    assert!(running.wait().unwrap().succeeded());
    super::traces::assert_nothing_is_left();
    assert_eq!(tree(&workspace), owned(&[("out/answer", "42\n")]));
    let artifact = &workspace.walk().unwrap()[0];
    assert_eq!((artifact.size, artifact.executable), (3, false));
    assert_eq!(artifact.sha256, guild_protocol::hash::Hash::of(b"42\n"));
    let clone = workspace.clone();
    drop(workspace);
    let mut text = String::new();
    clone.open_read("out/answer").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "42\n");
}

#[test]
fn limits_are_held() {
    let running = staying();
    let workspace = running.workspace();
    let error = workspace.write("x", 0o644, io::repeat(b'x').take(101), 100).unwrap_err();
    assert_eq!(
        (error.code().name, error.to_string().as_str()),
        ("sandbox.too_large", "x: it has more than 100 bytes")
    );
    workspace.write("x", 0o644, io::repeat(b'x').take(100), 100).unwrap();
    assert_eq!(workspace.read("x", 99).unwrap_err().code().name, "sandbox.too_large");
    assert_eq!(workspace.read("x", 100).unwrap().len(), 100);
    let error = workspace.write("full", 0o644, io::repeat(b'x'), 1 << 40).unwrap_err();
    assert_eq!(error.to_string(), "full: the disk of the sandbox is full");
    let error = workspace.write("x", 0o4755, io::empty(), 1).unwrap_err();
    assert_eq!(error.to_string(), "mode: 4755 is more than 777");
    assert_eq!(sh(&running, "ls -A"), "x\n");
}

#[test]
fn an_error_of_the_source_leaves_the_old_file() {
    struct Broken(usize);
    impl Read for Broken {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| io::Error::other("broken"))?;
            room[0] = b'n';
            Ok(1)
        }
    }
    let running = staying();
    let workspace = running.workspace();
    workspace.write("x", 0o644, &b"old"[..], 100).unwrap();
    assert!(
        workspace.write("x", 0o644, Broken(2), 100).unwrap_err().to_string().contains("broken")
    );
    assert_eq!(tree(&workspace), owned(&[("x", "old")]));
    assert_eq!(sh(&running, "ls -A"), "x\n");
}

#[test]
fn what_is_packed_is_unpacked_the_same() {
    let long = format!("{}/{}", "d".repeat(120), "n".repeat(120));
    let running = staying();
    let workspace = running.workspace();
    for (path, text) in [("a", "1"), ("dir/b", "22"), (long.as_str(), "333"), ("dir/ä", "4")] {
        workspace.write(path, 0o644, text.as_bytes(), 100).unwrap();
    }
    workspace.write("dir/run", 0o755, &b"x"[..], 100).unwrap();
    sh(
        &running,
        "mkdir dir/empty; ln -s /etc/passwd dir/link; mkfifo dir/pipe; dd if=/dev/zero of=big bs=1000 count=200 2>/dev/null",
    );
    let mut archive = Vec::new();
    assert_eq!(workspace.pack("", &mut archive).unwrap(), 9);
    let other = staying();
    let unpacked = other.workspace().unpack(archive.as_slice(), "", LIMITS).unwrap();
    assert_eq!((unpacked.files, unpacked.bytes), (6, 200_008));
    assert_eq!(other.workspace().walk().unwrap(), workspace.walk().unwrap());
    assert_eq!(sh(&other, "ls -A dir; test -x dir/run"), "b\nempty\nrun\nä\n");
    // The same files are the same bytes, wherever they are.
    let mut again = Vec::new();
    other.workspace().pack("", &mut again).unwrap();
    assert_eq!(again, archive);
    // One file alone.
    let mut one = Vec::new();
    assert_eq!(workspace.pack("dir/b", &mut one).unwrap(), 1);
    other.workspace().unpack(one.as_slice(), "new/place", LIMITS).unwrap();
    assert_eq!(other.workspace().read("new/place/b", 10).unwrap(), b"22");
    assert_eq!(workspace.pack("nothing", &mut one).unwrap_err().code().name, "sandbox.no_file");
}

/// Archives that other programs write, and that other programs read.
#[test]
fn other_programs_agree_about_archives() {
    let place = tempfile::tempdir().unwrap();
    let long = "long".repeat(40);
    std::fs::create_dir_all(place.path().join(format!("in/{long}"))).unwrap();
    std::fs::write(place.path().join("in/a"), "1").unwrap();
    std::fs::write(place.path().join(format!("in/{long}/{long}")), "2").unwrap();
    let path = format!("{long}/{long}");
    let expected = owned(&[("a", "1"), (path.as_str(), "2")]);
    for format in ["gnu", "pax", "posix"] {
        let archive = Command::new("tar")
            .current_dir(&place)
            .args(["-C", "in", "--format", format, "-cf", "-", "."])
            .output()
            .unwrap();
        assert!(archive.status.success(), "{archive:?}");
        let running = staying();
        running.workspace().unpack(archive.stdout.as_slice(), "", LIMITS).unwrap();
        assert_eq!(tree(&running.workspace()), expected, "{format}");
        let mut packed = Vec::new();
        running.workspace().pack("", &mut packed).unwrap();
        let out = place.path().join(format!("out-{format}"));
        std::fs::create_dir(&out).unwrap();
        std::fs::write(place.path().join("packed"), packed).unwrap();
        let read =
            Command::new("tar").current_dir(&out).args(["-xf", "../packed"]).output().unwrap();
        assert!(read.status.success(), "{read:?}");
        assert_eq!(std::fs::read_to_string(out.join(&path)).unwrap(), "2");
    }
    let code = "import tarfile, sys\nwith tarfile.open(fileobj=sys.stdout.buffer, mode='w|') as t: t.add('in', 'top')";
    let archive = Command::new("python3").current_dir(&place).args(["-c", code]).output().unwrap();
    let running = staying();
    let unpacked = running.workspace().unpack(archive.stdout.as_slice(), "at", LIMITS);
    assert_eq!(unpacked.map(|unpacked| unpacked.files), Ok(2));
    assert_eq!(running.workspace().read("at/top/a", 10).unwrap(), b"1");
}

#[test]
fn unpacking_replaces_files_and_keeps_the_rest() {
    let from = staying();
    from.workspace().write("dir/a", 0o644, &b"new"[..], 10).unwrap();
    let mut archive = Vec::new();
    from.workspace().pack("", &mut archive).unwrap();
    let running = staying();
    let workspace = running.workspace();
    workspace.write("at/dir/a", 0o644, &b"old"[..], 10).unwrap();
    workspace.write("at/dir/b", 0o644, &b"kept"[..], 10).unwrap();
    workspace.unpack(archive.as_slice(), "at", LIMITS).unwrap();
    assert_eq!(tree(&workspace), owned(&[("at/dir/a", "new"), ("at/dir/b", "kept")]));
    assert_eq!(sh(&running, "ls -A"), "at\n");
    // A directory is not replaced by a file, nor a file by a directory; then nothing is moved.
    for (path, says) in [
        ("at/dir/a/x", "a directory is there"),
        ("at/dir", "something that is no directory is in the way"),
    ] {
        workspace.remove("at").unwrap();
        workspace.write(path, 0o644, &b"mine"[..], 10).unwrap();
        let error = workspace.unpack(archive.as_slice(), "at", LIMITS).unwrap_err();
        assert!(error.to_string().ends_with(says), "{error}");
        assert_eq!(tree(&workspace), owned(&[(path, "mine")]));
        assert_eq!(sh(&running, "ls -A"), "at\n");
    }
}

#[test]
fn a_workspace_is_the_sandbox_s_own_whatever_is_bound_over_it() {
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("secret"), "x").unwrap();
    let bind = guild_sandbox::Bind {
        host: host.path().to_owned(),
        at: "/workspace/bound".to_owned(),
        writable: false,
    };
    let spec = Spec { binds: vec![bind], ..spec() };
    let running = sandbox().start(&spec).unwrap();
    let workspace = running.workspace();
    assert_eq!(workspace.list("bound").unwrap_err().code().name, "sandbox.bad_path");
    assert_eq!(workspace.read("bound/secret", 10).unwrap_err().code().name, "sandbox.bad_path");
    assert!(workspace.write("bound/new", 0o644, io::empty(), 10).is_err());
}
