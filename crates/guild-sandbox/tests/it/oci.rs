//! The backend of OCI runtimes. It needs root: as an ordinary user there is only its refusal to try.

mod attack;
mod bad_runtime;
mod commands;
mod frozen;
mod killed;
mod own_kernel;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use guild_sandbox::{
    Bind, Class, Collected, Image, Layer, Limits, Network, Oci, OciOptions, Profile, Sandbox, Spec,
    Standing,
};

use super::support::{launcher, limits, printed, python, shell};
use super::traces::Traces;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program of the host. That it is missing is a failure: `cargo xtask test` installs it.
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "the set-up of a test")]
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push("/usr/sbin".into());
    let found = places.into_iter().map(|place| place.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing; install it with: apt-get install {name}"))
}

/// A script that can be executed. Another process writes it: whoever forks meanwhile must not hold it open.
#[expect(clippy::unwrap_used, reason = "the set-up of a test")]
fn script(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("runtime");
    let write = "printf '%s' \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let status = Command::new("sh").args(["-c", write]).arg(&path).arg(text).status().unwrap();
    assert!(status.success());
    path
}

#[expect(clippy::unwrap_used, reason = "the set-up of a test")]
pub(crate) fn runc() -> &'static Oci {
    static RUNC: OnceLock<Oci> = OnceLock::new();
    RUNC.get_or_init(|| Oci::new(OciOptions::new(launcher(), program("runc"))).unwrap())
}

/// Runs it to its end, and looks whether anything is left.
#[expect(clippy::unwrap_used, reason = "a test stops where nothing runs")]
fn run(spec: &Spec) -> Collected {
    let collected = runc().start(spec).unwrap().collect().unwrap();
    Traces::now().assert_none();
    collected
}

#[test]
fn an_ordinary_user_is_refused_by_the_layer() {
    if is_root() {
        return;
    }
    let error = Oci::new(OciOptions::new(launcher(), "/usr/sbin/runc")).unwrap_err();
    assert_eq!(error.code().name, "sandbox.layer_missing");
    assert!(error.to_string().starts_with("the layer cgroup_memory is required, but only root"));
}

#[test]
fn a_program_runs_and_each_layer_is_told() {
    if !is_root() {
        return;
    }
    let collected = run(&shell("echo hello; echo oops >&2; cat; exit 3"));
    let outcome = &collected.outcome;
    assert_eq!((outcome.class, outcome.exit_code), (Class::Exited, Some(3)), "{outcome:?}");
    assert_eq!((&collected.stdout[..], &collected.stderr[..]), (&b"hello\n"[..], &b"oops\n"[..]));
    let on = [
        Layer::UserNamespace,
        Layer::Namespaces,
        Layer::Seccomp,
        Layer::CgroupMemory,
        Layer::CgroupPids,
        Layer::CgroupCpu,
        Layer::CgroupFreeze,
    ];
    for layer in Layer::ALL {
        let expected = match layer {
            Layer::SeccompNotify => Standing::Weaker,
            layer if on.contains(&layer) => Standing::Enforced,
            _ => Standing::Absent,
        };
        assert_eq!(outcome.layers[&layer], expected, "{layer}");
        assert_eq!(runc().host().standing(layer), expected, "{layer}");
    }
    assert!(outcome.limits.values().all(|report| report.standing == Standing::Enforced));
    assert!(outcome.usage.cpu_us > 0 && outcome.usage.memory_peak_bytes > 100_000, "{outcome:?}");
    assert!(runc().version().0.starts_with("runc version "), "{:?}", runc().version());
}

#[test]
fn a_layer_that_no_runtime_has_is_refused() {
    if !is_root() {
        return;
    }
    let missing = [
        (Layer::Landlock, "not with an OCI runtime"),
        (Layer::SeccompNotify, "not for all calls with an OCI runtime"),
    ];
    for (layer, why) in missing {
        let spec = Spec { require: [layer].into(), ..shell("true") };
        let error = runc().start(&spec).unwrap_err();
        assert_eq!(error.to_string(), format!("the layer {layer} is required, but {why}"));
    }
}

/// What a program sees is the same as with our own launcher.
#[test]
fn a_program_sees_its_own() {
    if !is_root() {
        return;
    }
    let code = "import os, socket\n\
        print(os.getuid(), os.getgid(), os.getgroups(), os.getcwd(), sorted(os.environ), socket.gethostname())\n\
        print(sorted(os.listdir('/')), sorted(os.listdir('/dev')))\n\
        print([p for p in os.listdir('/proc') if p.isdigit()] == [str(os.getpid())], os.getppid())\n\
        print(open('/proc/self/cgroup').read().count('guild'))\n\
        open('/workspace/sub/in', 'a').write('y'); open('/workspace/new', 'w')\n\
        print(open('/workspace/sub/in').read(), oct(os.stat('/workspace/sub/in').st_mode), os.stat('/workspace/sub/in').st_uid)\n";
    let collected = run(&python(code).file("/workspace/sub/in", "x"));
    let expected = "1000 1000 [] /workspace ['HOME', 'LANG', 'PATH', 'TZ'] sandbox\n\
        ['bin', 'dev', 'etc', 'judge', 'lib', 'lib64', 'proc', 'sbin', 'tmp', 'usr', 'workspace'] \
        ['fd', 'full', 'null', 'random', 'shm', 'stderr', 'stdin', 'stdout', 'urandom', 'zero']\n\
        True 1\n0\nxy 0o100644 1000\n";
    assert_eq!(printed(&collected), expected, "{:?}", collected.outcome);
}

#[test]
fn images_and_binds_are_shown() {
    if !is_root() {
        return;
    }
    let top = tempfile::tempdir().unwrap();
    fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (image, shared) = (top.path().join("image"), top.path().join("shared"));
    for directory in [&image, &shared] {
        fs::create_dir(directory).unwrap();
    }
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    for name in ["bin", "lib", "lib64", "usr"] {
        let at = Path::new("/").join(name);
        match fs::read_link(&at) {
            Ok(target) => std::os::unix::fs::symlink(target, image.join(name)).unwrap(),
            Err(_) => fs::create_dir(image.join(name)).unwrap(),
        }
    }
    fs::write(image.join("mark"), "of the image").unwrap();
    let bind =
        |host: &Path, at: &str, writable| Bind { host: host.into(), at: at.into(), writable };
    let spec = Spec {
        image: Image::Directory(image),
        binds: vec![
            bind(Path::new("/usr"), "/usr", false),
            bind(&shared, "/shared", true),
            bind(&shared, "/seen", false),
        ],
        ..shell("cat /mark; echo x > /shared/file; cat /seen/file; echo y > /seen/file; echo $?")
    };
    let collected = run(&spec);
    assert_eq!(
        String::from_utf8_lossy(&collected.stdout),
        "of the imagex\n2\n",
        "{}",
        printed(&collected)
    );
    assert_eq!(fs::read_to_string(shared.join("file")).unwrap(), "x\n");
}

#[test]
fn the_proxy_is_the_only_way_out() {
    use std::io::{Read, Write};
    if !is_root() {
        return;
    }
    let code = "import socket\ns = socket.create_connection(('127.0.0.1', 3128))\n\
                s.sendall(b'hello')\nprint(s.recv(100).decode())\n\
                try: socket.create_connection(('192.0.2.1', 80), 5)\nexcept OSError as error: print(error.errno)\n";
    let spec =
        Spec { network: Network::Proxy { port: 3128 }, profile: Profile::Hosted, ..python(code) };
    let mut running = runc().start(&spec).unwrap();
    let (mut stream, _) = running.proxy.take().unwrap().accept().unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    stream.write_all(b"through the proxy").unwrap();
    drop(stream);
    assert_eq!(printed(&running.collect().unwrap()), "through the proxy\n101\n");
}

#[test]
fn what_cannot_run_is_refused_by_name() {
    if !is_root() {
        return;
    }
    let small = Limits { pids: 4, ..limits() };
    let wrong: [(Spec, &str, &str); 6] = [
        (
            Spec::new(["no-such-program"], limits()),
            "sandbox.not_started",
            "no-such-program: No such file",
        ),
        (Spec::new(["/usr"], limits()), "sandbox.not_started", "/usr: Permission denied"),
        (Spec { cwd: "/nowhere".into(), ..shell("true") }, "sandbox.bad_spec", "cwd: No such file"),
        (
            Spec { limits: small, ..shell("true") },
            "sandbox.bad_limit",
            "limits.pids: an OCI runtime",
        ),
        (
            Spec { image: Image::Directory("/no/such".into()), ..shell("true") },
            "sandbox.no_image",
            "/no/such: ",
        ),
        (shell("true").file("/usr/new", "x"), "sandbox.bad_spec", "files.at: /usr/new: "),
    ];
    for (spec, code, says) in wrong {
        let error = runc().start(&spec).unwrap_err();
        assert_eq!(error.code().name, code, "{error}");
        assert!(error.to_string().starts_with(says), "{error}");
    }
    Traces::now().assert_none();
}
