#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A home of its own for the program.
pub(crate) struct Home {
    dir: TempDir,
    variables: Vec<(String, String)>,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home { dir: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The same home with one more environment variable.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Home {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes a file into the home; missing directories are made.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Copies a file of another home to the same place here, for its owner alone.
    pub(crate) fn copy_private(&self, from: &Home, name: &str) {
        let path = self.write(name, fs::read(from.path().join(name)).unwrap());
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_guild"));
        self.surround(command.args(args));
        command
    }

    fn surround(&self, command: &mut Command) {
        command.current_dir(self.path()).env_clear().env("HOME", self.path());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        self.run_with_input(args, b"")
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that refuses early may not read it all.
        let _ = child.stdin.take().unwrap().write_all(input);
        Run::of(child.wait_with_output().unwrap())
    }

    /// Runs in a session of its own, which has no terminal that could be opened.
    pub(crate) fn run_without_terminal(&self, args: &[&str]) -> Run {
        let mut command = Command::new("/usr/bin/setsid");
        command.arg("--wait").arg(env!("CARGO_BIN_EXE_guild")).args(args);
        self.surround(&mut command);
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    }

    /// Runs as a user that has no right to anything here.
    pub(crate) fn run_as_nobody(&self, args: &[&str]) -> Run {
        let mut command = self.command(args);
        if rustix::process::geteuid().is_root() {
            // The build directory may be closed to others; this one is not.
            let program = self.path().join("guild");
            if !program.exists() {
                // By another process: a file that this one has open for writing, or a child forked meanwhile by
                // another test, cannot be run.
                let copied =
                    Command::new("cp").arg(env!("CARGO_BIN_EXE_guild")).arg(&program).status();
                assert!(copied.unwrap().success());
            }
            command = Command::new(program);
            self.surround(command.args(args));
            command.uid(65534).gid(65534);
        }
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    }

    /// Runs with `--json` and reads the one line of the answer.
    pub(crate) fn json(&self, args: &[&str]) -> (i32, Value) {
        let run = self.run(&[args, &["--json"]].concat());
        assert_eq!(run.stdout.lines().count(), 1, "one line: {run:?}");
        let value: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(value["ok"], run.code == 0, "ok says the exit code: {run:?}");
        (run.code, value)
    }

    /// Everything in the home: path, mode, content.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.path().to_owned()];
        while let Some(path) = open.pop() {
            let metadata = path.symlink_metadata().unwrap();
            let mode = metadata.permissions().mode();
            if metadata.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                found.insert(path, (mode, Vec::new()));
            } else {
                // An unreadable file cannot have been changed by a program that cannot read it.
                found.insert(path.clone(), (mode, fs::read(&path).unwrap_or_default()));
            }
        }
        found
    }

    /// A text with what differs from run to run replaced.
    pub(crate) fn stable(&self, text: &str) -> String {
        text.replace(&self.path().display().to_string(), "[HOME]")
    }
}

impl Run {
    fn of(output: std::process::Output) -> Run {
        Run {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Exit code and both streams, as a person sees them.
    pub(crate) fn shown(&self, home: &Home) -> String {
        let mut text = format!("exit {}\n", self.code);
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !stream.is_empty() {
                text.push_str(&format!("--- {name}\n{}", home.stable(stream)));
            }
        }
        text
    }

    pub(crate) fn assert_no_panic(&self) {
        for sign in ["panicked", "internal.bug", "RUST_BACKTRACE"] {
            assert!(!self.stderr.contains(sign) && !self.stdout.contains(sign), "{self:?}");
        }
    }
}
