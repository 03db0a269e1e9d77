//! No check may wait for ever: what takes too long, or says nothing for too long, is killed, and told by name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Result, workspace};

/// How long something may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// From its beginning to its end.
    pub(crate) whole: Duration,
    /// From one line to the next, of a command that is listened to.
    pub(crate) silent: Duration,
}

/// How often it is looked whether the time is over.
const TICK: Duration = Duration::from_millis(200);
/// How many tests and processes are named, and how much of a command line.
const NAMED: usize = 12;
const NAME_CHARS: usize = 140;

/// What is heard of work that goes on.
#[derive(Debug, Default)]
pub(crate) struct Pulse(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    /// When the last line came; none while nobody is listened to.
    last: Option<Instant>,
    /// Tests that have said that they take long, and have not ended.
    slow: BTreeSet<String>,
}

impl Heard {
    /// A line that a test program prints.
    fn line(&mut self, line: &str) {
        let Some(test) = line.trim_end().strip_prefix("test ") else { return };
        if let Some((name, _)) = test.split_once(" has been running for over ") {
            self.slow.insert(name.to_owned());
        } else if let Some((name, _)) = test.split_once(" ... ") {
            self.slow.remove(name);
        }
    }

    /// Why the work must end now, if it must.
    fn overdue(&self, limits: Limits, start: Instant, now: Instant) -> Option<String> {
        if now.duration_since(start) >= limits.whole {
            return Some(format!("it was not done after {}", minutes(limits.whole)));
        }
        let last = self.last?;
        let silent = now.duration_since(last) >= limits.silent;
        silent.then(|| format!("it said nothing for {}", minutes(limits.silent)))
    }
}

fn minutes(time: Duration) -> String {
    format!("{} min", time.as_secs() / 60)
}

impl Pulse {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a program with its output visible; every line of it is a sign of life.
    pub(crate) fn listen(&self, command: &mut Command) -> Result {
        let shown = workspace::shown(command);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{shown} did not start: {e}"))?;
        let (line, lines) = channel();
        if let Some(output) = child.stdout.take() {
            // By a thread of its own: whoever has inherited the pipe may hold it for ever.
            std::thread::spawn(move || {
                let mut output = BufReader::new(output);
                let mut bytes = Vec::new();
                while output.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
                    if line.send(String::from_utf8_lossy(&bytes).into_owned()).is_err() {
                        break;
                    }
                    bytes.clear();
                }
            });
        }
        self.heard().last = Some(Instant::now());
        let mut ended = None;
        loop {
            match lines.recv_timeout(TICK) {
                Ok(line) => {
                    print!("{line}");
                    let mut heard = self.heard();
                    heard.last = Some(Instant::now());
                    heard.line(&line);
                }
                Err(RecvTimeoutError::Timeout) if ended.is_none() => {
                    ended = child.try_wait().map_err(|e| format!("{shown}: {e}"))?;
                }
                Err(_) => break,
            }
        }
        let status = ended.map_or_else(|| child.wait(), Ok).map_err(|e| format!("{shown}: {e}"))?;
        self.heard().last = None;
        if status.success() { Ok(()) } else { Err(format!("{shown} failed: {status}")) }
    }
}

/// Does the work. When its time is over `end` must end whatever it waits for, and says what that was.
pub(crate) fn guard(
    limits: Limits,
    end: impl Fn() -> Vec<String> + Send,
    work: impl FnOnce(&Pulse) -> Result,
) -> Result {
    let pulse = Pulse::default();
    let (working, done) = channel();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&pulse, limits, end, done));
        let result = work(&pulse);
        drop(working);
        match watcher.join() {
            Ok(Some(why)) => Err(why),
            _ => result,
        }
    })
}

fn watch(
    pulse: &Pulse,
    limits: Limits,
    end: impl Fn() -> Vec<String>,
    done: Receiver<()>,
) -> Option<String> {
    let start = Instant::now();
    while done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let (why, slow) = {
            let heard = pulse.heard();
            let slow = heard.slow.iter().map(|name| format!("test {name}")).collect::<Vec<_>>();
            (heard.overdue(limits, start, Instant::now()), slow)
        };
        if let Some(why) = why {
            let running = [slow, end()].concat();
            return Some(format!("{why} and was killed; still running: {}", named(&running)));
        }
    }
    None
}

fn named(running: &[String]) -> String {
    let mut text = String::new();
    for name in running.iter().take(NAMED) {
        text.push_str("\n    ");
        text.extend(name.chars().take(NAME_CHARS));
    }
    match running.len().saturating_sub(NAMED) {
        0 if running.is_empty() => "nothing that has a name".to_owned(),
        0 => text,
        more => format!("{text}\n    and {more} more"),
    }
}

/// A process, as the kernel tells.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// Its command line; empty for one that has ended and was not waited for.
    command: String,
}

/// Kills everything that this process has started, and what that has started. The names of the programs.
pub(crate) fn kill_below(root: u32) -> Vec<String> {
    let all = processes();
    let below = below(root, &all, |_| false);
    let mut killer = Command::new("sh");
    killer.args(["-c", r#"kill -s KILL "$@""#, "killer"]);
    // Some may have ended by themselves meanwhile, which is as good.
    let _ = killer.args(below.iter().map(u32::to_string)).stderr(Stdio::null()).status();
    // Servers stand below a shell that keeps them: they are not what was waited for.
    let worth_a_name =
        crate::deadline::below(root, &all, |process| process.command.starts_with("sh -c"));
    let command = |pid: &u32| all.get(pid).map(|process| process.command.clone());
    worth_a_name.iter().filter_map(command).filter(|command| !command.is_empty()).collect()
}

/// The processes below one, without those that are left out and what is below them.
fn below(root: u32, all: &BTreeMap<u32, Process>, left_out: impl Fn(&Process) -> bool) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = all.iter().filter(|(_, p)| p.parent == parent && !left_out(p));
        let children: Vec<u32> =
            children.map(|(pid, _)| *pid).filter(|p| !found.contains(p)).collect();
        found.extend(children);
        next += 1;
    }
    found.remove(0);
    found
}

fn processes() -> BTreeMap<u32, Process> {
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, process(pid)?))).collect()
}

fn process(pid: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&words).replace('\0', " ").trim_end().to_owned();
    Some(Process { parent: parent(&stat)?, command })
}

/// The name of a program stands in parentheses and may hold anything.
fn parent(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const SHORT: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(600);

    fn sh(script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    /// Runs a script below a guard that may end only what that script has started.
    fn guarded(limits: Limits, script: &str) -> Result {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("echo $$ > {}; {script}", file.display());
        let root = || std::fs::read_to_string(&file).unwrap().trim().parse::<u32>().unwrap();
        let end = || {
            let mut named = kill_below(root());
            named.sort();
            named
        };
        guard(limits, end, |pulse| pulse.listen(&mut sh(&script)))
    }

    #[test]
    fn what_hangs_is_killed_and_named() {
        let limits = Limits { whole: SHORT, silent: LONG };
        let why = guarded(limits, "sleep 1001 & sleep 1002 & wait; exit 7").unwrap_err();
        let told = "it was not done after 0 min and was killed; still running: \n    sleep 1001\n    sleep 1002";
        assert_eq!(why, told);
    }

    #[test]
    fn what_says_nothing_is_killed_and_its_slow_test_is_named() {
        let limits = Limits { whole: LONG, silent: SHORT };
        let script = "echo 'test a::b has been running for over 60 seconds'; sleep 1003; true";
        let why = guarded(limits, script).unwrap_err();
        let told = "it said nothing for 0 min and was killed; still running: \n    test a::b\n    sleep 1003";
        assert_eq!(why, told);
    }

    #[test]
    fn what_ends_in_time_has_its_own_outcome() {
        let limits = Limits { whole: LONG, silent: LONG };
        assert_eq!(guarded(limits, "echo a; echo b"), Ok(()));
        let failed = guarded(limits, "echo a; exit 7").unwrap_err();
        assert!(failed.ends_with("failed: exit status: 7"), "{failed}");
        // Somebody who keeps the output open is not waited for.
        assert_eq!(guarded(limits, "sleep 20 & echo a"), Ok(()));
    }

    #[test]
    fn work_that_is_not_listened_to_may_be_silent() {
        let limits = Limits { whole: LONG, silent: Duration::ZERO };
        let ended = AtomicU32::new(0);
        let end = || {
            ended.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        };
        let work = |_: &Pulse| workspace::run(&mut sh("sleep 0.5"));
        assert_eq!((guard(limits, end, work), ended.into_inner()), (Ok(()), 0));
    }

    #[test]
    fn a_slow_test_that_ends_is_slow_no_longer() {
        let mut heard = Heard::default();
        heard.line("test a has been running for over 60 seconds\n");
        heard.line("test b has been running for over 60 seconds\n");
        heard.line("test a ... ok\n");
        heard.line("running 2 tests\n");
        assert_eq!(heard.slow.into_iter().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn the_tree_of_processes_is_walked_without_what_is_left_out() {
        assert_eq!(parent("12 (a) b) S 7 12 12 0"), Some(7));
        let process = |parent, command: &str| Process { parent, command: command.to_owned() };
        let all = BTreeMap::from([
            (2, process(1, "cargo test")),
            (3, process(2, "it")),
            (4, process(2, "sh -c keeper")),
            (5, process(4, "postgres")),
            (6, process(9, "somebody else")),
        ]);
        assert_eq!(below(2, &all, |_| false), [3, 4, 5]);
        assert_eq!(below(2, &all, |p| p.command.starts_with("sh -c")), [3]);
    }

    #[test]
    fn long_lists_are_cut() {
        let many: Vec<String> = (0..NAMED + 2).map(|n| format!("p{n}")).collect();
        assert!(named(&many).ends_with("\n    p11\n    and 2 more"));
        assert_eq!(named(&[]), "nothing that has a name");
    }
}
