//! Programs that look for the host's files, or for a way to change what is not theirs.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use guild_sandbox::{Bind, Image, Sandbox, Spec};
use tempfile::TempDir;

use super::super::support::{printed, python, sandbox, shell};
use super::{attack, hosted, is_refused};

/// A directory of the host into which anybody may write.
fn open_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    directory
}

/// A program that sees a directory of the host.
fn beside(host: &TempDir, at: &str, writable: bool, spec: Spec) -> Spec {
    let bind = Bind { host: host.path().to_owned(), at: at.to_owned(), writable };
    Spec { binds: vec![bind], ..spec }
}

/// Writing there fails.
fn cannot_write(path: &str) {
    is_refused(&format!(
        "try: open({path:?}, 'w').write('x')\nexcept OSError: pass\nelse: print('written')"
    ));
}

#[test]
fn the_system_is_read_only() {
    cannot_write("/usr/bin/sh");
    cannot_write("/usr/new");
}

#[test]
fn the_root_is_read_only() {
    cannot_write("/new");
    cannot_write("/etc/passwd");
    cannot_write("/dev/new");
}

#[test]
fn its_own_code_is_read_only() {
    cannot_write("/judge/main.py");
    is_refused("try: os.unlink('/judge/main.py')\nexcept OSError: pass\nelse: print('gone')");
}

#[test]
fn the_host_s_files_are_not_there() {
    let code = "for path in ('/root', '/home', '/var', '/srv', '/boot', '/run', '/mnt', '/etc/shadow', '/sys', '/opt'):\n    if os.path.lexists(path): print(path)";
    is_refused(code);
}

#[test]
fn devices_are_few() {
    let code = "assert sorted(os.listdir('/dev')) == ['fd', 'full', 'null', 'random', 'shm', 'stderr', 'stdin', 'stdout', 'urandom', 'zero'], os.listdir('/dev')";
    is_refused(code);
}

#[test]
fn devices_cannot_be_made() {
    let code = "import stat\nfor place in ('/tmp/x', '/dev/shm/x'):\n    try: os.mknod(place, stat.S_IFBLK | 0o666, os.makedev(8, 0))\n    except OSError: continue\n    print('made')";
    is_refused(code);
}

#[test]
fn links_lead_nowhere() {
    let code = "os.symlink('/../../../../etc/shadow', '/tmp/link')\ntry: open('/tmp/link').read()\nexcept FileNotFoundError: pass\nelse: print('read')";
    is_refused(code);
}

#[test]
fn hard_links_to_the_system_cannot_be_made() {
    is_refused(
        "try: os.link('/usr/bin/sh', '/tmp/sh')\nexcept OSError: pass\nelse: print('linked')",
    );
}

#[test]
fn root_of_init_is_hidden() {
    let code = "for name in ('root', 'cwd', 'exe', 'mem', 'environ', 'maps', 'fd'):\n    path = f'/proc/1/{name}'\n    try: os.listdir(path) if name in ('root', 'cwd', 'fd') else open(path, 'rb').read(1)\n    except OSError: continue\n    print(path)";
    is_refused(code);
}

#[test]
fn memory_of_init_cannot_be_written() {
    cannot_write("/proc/1/mem");
    cannot_write("/proc/1/oom_score_adj");
}

#[test]
fn own_program_cannot_be_overwritten() {
    cannot_write("/proc/self/exe");
}

#[test]
fn settings_of_the_kernel_are_not_there() {
    is_refused("assert not os.path.exists('/proc/sys') and not os.path.exists('/proc/kcore')");
    is_refused(
        "assert not os.path.exists('/proc/sysrq-trigger') and not os.path.exists('/proc/kallsyms')",
    );
}

#[test]
fn settings_of_the_kernel_are_read_only_in_a_bought_sandbox() {
    let code = "import os\nfor path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/sys/vm/drop_caches'):\n    try: open(path, 'w').write('x')\n    except OSError: continue\n    print(path)\n";
    assert_eq!(printed(&attack(&hosted(python(code)))), "");
}

#[test]
fn cgroups_cannot_be_reached() {
    let code = "assert not os.path.exists('/sys/fs/cgroup')\nfor line in open('/proc/self/cgroup'): assert line.rstrip().endswith((':/', ':/..')) or '/../' not in line, line";
    is_refused(code);
}

#[test]
fn mounts_of_the_host_are_not_seen() {
    let code = "text = open('/proc/self/mountinfo').read()\nassert 'cgroup' not in text and '/sys/' not in text, text";
    is_refused(code);
}

#[test]
fn setuid_programs_give_nothing() {
    let code = "import stat, shutil, subprocess\nfor name in ('su', 'mount', 'passwd', 'newgrp', 'chsh'):\n    path = f'/usr/bin/{name}'\n    if os.path.exists(path): break\nshutil.copy('/usr/bin/id', '/tmp/id')\nos.chmod('/tmp/id', 0o6755)\nassert subprocess.check_output(['/tmp/id', '-u']) == b'1000\\n'\nassert 'NoNewPrivs:\\t1' in open('/proc/self/status').read()";
    is_refused(code);
}

#[test]
fn it_has_no_capabilities() {
    let code = "for line in open('/proc/self/status'):\n    if line.startswith(('CapInh', 'CapPrm', 'CapEff', 'CapAmb')): assert int(line.split()[1], 16) == 0, line";
    is_refused(code);
}

#[test]
fn inherited_descriptors() {
    use std::os::fd::AsRawFd;
    // Somebody in the caller's process has left a descriptor open for children.
    let secret = tempfile::tempfile().unwrap();
    rustix::io::fcntl_setfd(&secret, rustix::io::FdFlags::empty()).unwrap();
    assert!(secret.as_raw_fd() > 2);
    let collected = attack(&shell("ls /proc/self/fd | wc -l; ls -l /proc/self/fd"));
    let text = printed(&collected);
    // The three, and the directory that is read.
    assert!(text.starts_with("4\n"), "{text}");
    assert!(!text.contains("socket") && !text.contains("seccomp"), "{text}");
}

#[test]
fn a_read_only_bind_is_read_only_in_depth() {
    let host = open_directory();
    fs::create_dir(host.path().join("deep")).unwrap();
    fs::set_permissions(host.path().join("deep"), fs::Permissions::from_mode(0o777)).unwrap();
    let code = "import os\nfor path in ('/data/here/x', '/data/here/deep/x', '/data/x'):\n    try: open(path, 'w')\n    except OSError as error: print(error.errno)\n";
    let collected = attack(&beside(&host, "/data/here", false, python(code)));
    assert!(
        printed(&collected).lines().all(|errno| ["13", "30"].contains(&errno)),
        "{}",
        printed(&collected)
    );
    assert_eq!(fs::read_dir(host.path().join("deep")).unwrap().count(), 0);
}

#[test]
fn a_writable_bind_is_the_only_thing_outside_that_changes() {
    let host = open_directory();
    symlink("/etc", host.path().join("out")).unwrap();
    let code = "import os\nopen('/data/x', 'w').write('7')\nprint(os.path.exists('/data/out/hostname'), os.path.exists('/data/../etc/shadow'))";
    let collected = attack(&beside(&host, "/data", true, python(code)));
    assert_eq!(printed(&collected), "False False\n");
    assert_eq!(fs::read_to_string(host.path().join("x")).unwrap(), "7");
}

#[test]
fn links_in_an_image_do_not_lead_to_the_host() {
    let image = tempfile::tempdir().unwrap();
    for name in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), image.path().join(name)).unwrap();
    }
    symlink("/", image.path().join("host")).unwrap();
    symlink("../../../../../..", image.path().join("up")).unwrap();
    fs::create_dir(image.path().join("usr")).unwrap();
    fs::write(image.path().join("plain"), "x").unwrap();
    let usr = Bind { host: "/usr".into(), at: "/usr".to_owned(), writable: false };
    let spec = shell("ls /; ls /host/ /up/ | sort -u | tr '\\n' ' '");
    let collected = attack(&Spec {
        image: Image::Directory(image.path().to_owned()),
        binds: vec![usr],
        ..spec
    });
    let text = printed(&collected);
    assert!(!text.contains("root") && !text.contains("var") && text.contains("plain"), "{text}");
}

#[test]
fn files_are_not_put_through_links() {
    let (host, outside) = (open_directory(), open_directory());
    symlink(outside.path(), host.path().join("link")).unwrap();
    let spec = beside(&host, "/data", true, shell("true")).file("/data/link/x", "x");
    let error = sandbox().start(&spec).unwrap_err();
    assert_eq!(error.code().name, "sandbox.bad_spec", "{error}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}
