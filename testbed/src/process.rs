//! A server process that never outlives the one that started it.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Waits for the end of its input, which is the end of the process that started it, and then stops the server, also
/// one that was left frozen. If that process has said nothing before, it is dead, and nobody else will remove what the
/// server leaves.
const KEEPER: &str = r#""$@" & server=$!; word=$(cat); kill -s "$STOP_SIGNAL" $server
    kill -s CONT $server $(cat /proc/$server/task/$server/children); wait $server
    [ "$word" = keep ] || rm -rf "$DIRECTORY""#;

/// Everything of a group at once, the keeper included: nobody gets to say goodbye.
const KILLER: &str = r#"kill -s KILL -- "-$1""#;

/// The user that servers run as when the tests run as root, which PostgreSQL refuses.
const NOBODY: u32 = 65_534;

/// What a server says, in its directory.
const LOG: &str = "server.log";

/// A running server.
#[derive(Debug)]
pub(crate) struct Process {
    keeper: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a server that lives in `directory`, with its output in [`LOG`] there. `stop_signal` ends it.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        stop_signal: &str,
        directory: &Path,
    ) -> Result<Process, String> {
        let (mut command, log) = Process::command(program, arguments, stop_signal, directory)?;
        let keeper = as_ordinary_user(&mut command).spawn().map_err(said)?;
        Ok(Process { keeper, log })
    }

    /// The same as whoever runs the tests, for a program that may be where nobody else looks.
    pub(crate) fn start_as_self(
        program: &Path,
        arguments: &[String],
        stop_signal: &str,
        directory: &Path,
    ) -> Result<Process, String> {
        let (mut command, log) = Process::command(program, arguments, stop_signal, directory)?;
        let keeper = command.spawn().map_err(said)?;
        Ok(Process { keeper, log })
    }

    fn command(
        program: &Path,
        arguments: &[String],
        stop_signal: &str,
        directory: &Path,
    ) -> Result<(Command, PathBuf), String> {
        let log = directory.join(LOG);
        let output = File::options().create(true).append(true).open(&log).map_err(said)?;
        let mut command = Command::new("sh");
        command
            .args(["-c", KEEPER, "keeper"])
            .arg(program)
            .args(arguments)
            .env("STOP_SIGNAL", stop_signal)
            .env("DIRECTORY", directory)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stderr(output.try_clone().map_err(said)?)
            .stdout(output)
            // A Ctrl-C at the terminal ends the tests; the keeper then ends the server in its own way.
            .process_group(0);
        Ok((command, log))
    }

    /// Asks until `ready` says yes; the server's log if it ends or takes too long.
    pub(crate) fn wait_until(&mut self, ready: impl Fn() -> bool) -> Result<(), String> {
        #[expect(clippy::disallowed_methods, reason = "a real server starts in real time")]
        let start = Instant::now();
        while !ready() {
            let ended = self.keeper.try_wait().map_err(said)?.is_some();
            if ended || start.elapsed() > Duration::from_secs(60) {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("the server did not start:\n{log}"));
            }
            #[expect(clippy::disallowed_methods, reason = "a real server starts in real time")]
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Kills the server and its children, as a power cut would. Its directory stays.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        let group = self.keeper.id().to_string();
        let killed = Command::new("sh").args(["-c", KILLER, "killer", &group]).status();
        if !killed.map_err(said)?.success() {
            return Err(format!("the group {group} was not killed"));
        }
        self.keeper.wait().map_err(said).map(drop)
    }

    /// Stops the server and waits for its end. Its directory stays.
    pub(crate) fn stop(&mut self) {
        if let Some(mut input) = self.keeper.stdin.take() {
            // A keeper that is gone reads nothing, and removes nothing.
            let _ = input.write_all(b"keep");
        }
        // It cannot be waited for twice with another outcome, and there is nobody to tell.
        let _ = self.keeper.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Root becomes nobody; everybody else stays who they are.
pub(crate) fn as_ordinary_user(command: &mut Command) -> &mut Command {
    if is_root() { command.uid(NOBODY).gid(NOBODY) } else { command }
}

/// Gives a directory to the user that servers run as.
pub(crate) fn give_to_ordinary_user(path: &Path) -> Result<(), String> {
    if is_root() {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).map_err(said)?;
    }
    Ok(())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

pub(crate) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that waits, in a directory that only its keeper removes.
    fn start() -> (Process, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        give_to_ordinary_user(directory.path()).unwrap();
        let program = Path::new("/bin/sleep");
        let process = Process::start(program, &["1000".to_owned()], "TERM", directory.path());
        (process.unwrap(), directory.keep())
    }

    #[test]
    fn a_server_that_is_stopped_keeps_its_directory_and_one_whose_starter_died_does_not() {
        let (mut stopped, kept) = start();
        stopped.stop();
        assert!(kept.is_dir());
        std::fs::remove_dir_all(kept).unwrap();
        let (mut orphan, removed) = start();
        // As if this process had ended.
        drop(orphan.keeper.stdin.take());
        orphan.keeper.wait().unwrap();
        assert!(!removed.exists());
    }
}
