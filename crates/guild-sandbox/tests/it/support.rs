//! What the tests share: a sandbox, and a look at what is left when it is gone.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use guild_sandbox::{Collected, Limits, Ns, Options, Sandbox, Spec};

/// The launcher of the tests.
pub(crate) const LAUNCHER: &str = env!("CARGO_BIN_EXE_sandbox-launcher");

/// The launcher beside the tests, where they have been copied for another user.
pub(crate) fn launcher() -> PathBuf {
    let beside = std::env::current_exe().unwrap().with_file_name("sandbox-launcher");
    if beside.is_file() { beside } else { PathBuf::from(LAUNCHER) }
}

/// A sandbox with everything that this host has.
pub(crate) fn sandbox() -> &'static Ns {
    static SANDBOX: OnceLock<Ns> = OnceLock::new();
    SANDBOX.get_or_init(|| Ns::new(Options::new(launcher())).unwrap())
}

/// The same without cgroups, as an ordinary user has it.
pub(crate) fn sandbox_without_cgroups() -> Ns {
    Ns::new(Options { cgroups: false, ..Options::new(launcher()) }).unwrap()
}

/// Small limits: tests are short.
pub(crate) fn limits() -> Limits {
    Limits {
        cpu_soft_ms: 400,
        cpu_hard_ms: 1_000,
        memory_soft_bytes: 64 << 20,
        memory_hard_bytes: 128 << 20,
        pids: 20,
        disk_bytes: 16 << 20,
        inodes: 2_000,
        wall_ms: 120_000,
        output_bytes: 1 << 20,
        ..Limits::judge()
    }
}

/// A Python program with small limits.
pub(crate) fn python(code: &str) -> Spec {
    Spec::new(["python3", "-I", "-S", "/judge/main.py"], limits()).file("/judge/main.py", code)
}

/// A shell script with small limits.
pub(crate) fn shell(code: &str) -> Spec {
    Spec::new(["sh", "-c", code], limits())
}

/// Runs it to its end.
pub(crate) fn run(sandbox: &Ns, spec: &Spec) -> Collected {
    sandbox.start(spec).unwrap().collect().unwrap()
}

/// What it printed, both streams, for messages and comparisons.
pub(crate) fn printed(collected: &Collected) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&collected.stdout), text(&collected.stderr))
}

/// Says back every line that it is told.
pub(crate) const REPEATS: &str = "while read line; do echo \"<$line>\"; done";

/// Talks with [`REPEATS`] by turns, and ends its input.
pub(crate) fn converse(stdin: Option<PipeWriter>, stdout: Option<PipeReader>) {
    let (mut stdin, mut stdout) = (stdin.unwrap(), BufReader::new(stdout.unwrap()));
    for word in ["one", "two"] {
        writeln!(stdin, "{word}").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, format!("<{word}>\n"));
    }
}

/// Lets time pass.
#[expect(clippy::disallowed_methods, reason = "a test may wait for another process")]
pub(crate) fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
