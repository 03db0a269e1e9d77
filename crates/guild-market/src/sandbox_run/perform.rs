//! Running a plan: the one effect.

use std::collections::BTreeMap;
use std::io::{self, PipeReader, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use guild_protocol::error::Kind;
use guild_protocol::hash::{Hash, Hasher};
use guild_sandbox::{
    Class, Ended, Error, Exec, Executing, Handle, Limit, Outcome, Profile, Result, Running,
    Sandbox, Spec, Workspace,
};

use serde_json::Value;

use super::{
    ARTIFACTS_MAX, Artifact, Command, CommandRun, PATHS_MAX_BYTES, Plan, Printed, Ran, Status,
};

/// How much of a stream is kept, for previews and for agents.
const HEAD_BYTES: usize = 16 * 1_024;
/// The longest path that a result can name.
const PATH_MAX_BYTES: usize = 1_024;

/// Why a run ended whose processor time was over.
pub(super) const COMPUTED_TOO_LONG: &str = "the commands computed too long";

/// Ends a run from another thread.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Mutex<Stopping>>);

#[derive(Debug, Default)]
struct Stopping {
    stopped: bool,
    handle: Option<Handle>,
}

impl Stop {
    /// Ends the run; one that has not begun ends as soon as it begins.
    pub fn stop(&self) {
        let mut stopping = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stopping.stopped = true;
        if let Some(handle) = &stopping.handle {
            // It may be over already.
            let _ = handle.kill();
        }
    }

    /// From now on this is what is ended.
    fn watch(&self, handle: &Handle) {
        let mut stopping = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stopping.handle = Some(handle.clone());
        if stopping.stopped {
            let _ = handle.kill();
        }
    }
}

/// Runs a plan in one sandbox, which is gone when this returns. It takes as long as the plan may take: call it on a
/// thread of its own. An error means that nothing is known about what the commands would have given.
pub fn perform(sandbox: &dyn Sandbox, plan: &Plan, stop: &Stop) -> Result<Ran> {
    let running = sandbox.start(&spec(plan))?;
    let handle = running.handle();
    stop.watch(&handle);
    let (mut runs, mut through) = (Vec::new(), true);
    for command in &plan.commands {
        let Some(run) = run_one(&handle, command)? else {
            through = false;
            break;
        };
        let failed = run.exit_code != 0;
        runs.push(run);
        if failed && !command.continue_on_fail {
            break;
        }
    }
    finish(running, &handle, plan, (runs, through))
}

fn spec(plan: &Plan) -> Spec {
    Spec {
        env: plan.env.clone(),
        cwd: "/workspace".to_owned(),
        image: plan.image.clone(),
        files: plan.files.clone(),
        profile: Profile::Python,
        ..Spec::stay(plan.limits)
    }
}

/// Runs one command; none if the sandbox ended meanwhile.
fn run_one(handle: &Handle, command: &Command) -> Result<Option<CommandRun>> {
    let exec = Exec {
        cwd: Some(command.cwd.clone()),
        ..Exec::new(["/bin/sh", "-c", command.cmd.as_str()])
    };
    let executing = match handle.exec(&exec) {
        Ok(executing) => executing,
        Err(Error::Ended) => return Ok(None),
        // A directory that is not there is the job's own mistake, as in a shell.
        Err(Error::NotStarted { why, .. }) => return Ok(Some(not_started(command, &why))),
        Err(Error::BadSpec { field, why }) if field == "cwd" => {
            return Ok(Some(not_started(command, &why)));
        }
        Err(error) => return Err(error),
    };
    let (ended, stdout, stderr) = match watch(executing) {
        Err(Error::Ended) => return Ok(None),
        watched => watched?,
    };
    let exit_code = match (ended.class, ended.exit_code, ended.signal) {
        (_, Some(exit_code), _) => exit_code,
        (Class::Signaled | Class::SecurityViolation, _, Some(signal)) => signal.saturating_add(128),
        // A limit of the sandbox: how it ended is told by that.
        _ => return Ok(None),
    };
    let duration_ms = ended.wall_us / 1_000;
    Ok(Some(CommandRun { cmd: command.cmd.clone(), exit_code, duration_ms, stdout, stderr }))
}

/// A command whose directory or shell is not there ends as a shell ends what it cannot start.
fn not_started(command: &Command, why: &str) -> CommandRun {
    let printed = |text: &str| Printed { sha256: Hash::of(text.as_bytes()), head: text.into() };
    CommandRun {
        cmd: command.cmd.clone(),
        exit_code: 127,
        duration_ms: 0,
        stdout: printed(""),
        stderr: printed(why),
    }
}

/// Reads both streams to their ends, of which only the beginnings are kept.
fn watch(mut executing: Executing) -> Result<(Ended, Printed, Printed)> {
    executing.stdin = None;
    let (out, err) = (executing.stdout.take(), executing.stderr.take());
    let printed = thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, move || read(err))?;
        Ok((read(out), other.join().unwrap_or_else(|_| read(None))))
    });
    let (stdout, stderr) = printed.map_err(|error: io::Error| {
        let (step, why) = ("read what is printed".to_owned(), error.to_string());
        Error::Failed { step, why }
    })?;
    Ok((executing.wait()?, stdout, stderr))
}

fn read(pipe: Option<PipeReader>) -> Printed {
    let (mut hasher, mut head, mut piece) = (Hasher::new(), Vec::new(), [0; 16 * 1_024]);
    if let Some(mut pipe) = pipe {
        while let Ok(length) = pipe.read(&mut piece)
            && length > 0
        {
            let piece = piece.get(..length).unwrap_or_default();
            hasher.update(piece);
            let room = HEAD_BYTES.saturating_sub(head.len());
            head.extend_from_slice(piece.get(..room).unwrap_or(piece));
        }
    }
    Printed { sha256: hasher.finish(), head }
}

/// Ends the sandbox and then looks at its files, when nobody is left who could change them.
fn finish(
    running: Running,
    handle: &Handle,
    plan: &Plan,
    (runs, through): (Vec<CommandRun>, bool),
) -> Result<Ran> {
    let workspace = running.workspace();
    handle.kill()?;
    let outcome = running.wait()?;
    let (status, error) = status(&outcome, &runs, through)?;
    // When exactly a limit ended it differs from run to run, and so do the files.
    if matches!(status, Status::Timeout | Status::Error) {
        return Ok(Ran { runs, artifacts: Vec::new(), status, error });
    }
    match artifacts(&workspace, plan) {
        Ok(artifacts) => Ok(Ran { runs, artifacts, status, error }),
        Err(failed) if failed.kind() == Kind::Unavailable => Err(failed),
        // Names that are no text, too many files, holes larger than the disk: the commands' own doing.
        Err(unnamed) => {
            let error = Some(format!("the files cannot be named: {unnamed}"));
            Ok(Ran { runs, artifacts: Vec::new(), status: Status::Error, error })
        }
    }
}

fn status(
    outcome: &Outcome,
    runs: &[CommandRun],
    through: bool,
) -> Result<(Status, Option<String>)> {
    let limit = |what: &str| Ok((Status::Error, Some(format!("the commands {what}"))));
    match outcome.class {
        Class::WallLimit => return Ok((Status::Timeout, None)),
        Class::CpuLimit => return Ok((Status::Error, Some(COMPUTED_TOO_LONG.to_owned()))),
        Class::MemoryLimit => return limit("needed too much memory"),
        Class::OutputLimit => return limit("printed too much"),
        Class::Exited | Class::Signaled | Class::Stopped | Class::SecurityViolation => {}
    }
    let failed = runs.iter().any(|run| run.exit_code != 0);
    // A flag hides which limit ended it.
    let wall = outcome.limits.get(&Limit::Wall).is_some_and(|report| report.reached);
    match (through, outcome.class) {
        (true, _) => {}
        (false, Class::SecurityViolation) if wall => return Ok((Status::Timeout, None)),
        (false, Class::SecurityViolation) => return limit("tried what is forbidden"),
        // Somebody else stopped it before it was through.
        (false, _) => {
            let why = "it was stopped before they were through".to_owned();
            return Err(Error::Failed { step: "run the commands".to_owned(), why });
        }
    }
    Ok((if failed { Status::Failed } else { Status::Success }, None))
}

/// The files that are new or changed, by path: as many as a result can name.
fn artifacts(workspace: &Workspace, plan: &Plan) -> Result<Vec<Artifact>> {
    let before: BTreeMap<&str, Hash> =
        plan.files.iter().map(|file| (file.at.as_str(), Hash::of(&file.bytes))).collect();
    let (mut made, mut bytes) = (Vec::new(), 0usize);
    for file in workspace.walk()? {
        let path = format!("/workspace/{}", file.path);
        if path.len() <= PATH_MAX_BYTES && before.get(path.as_str()) != Some(&file.sha256) {
            bytes = bytes.saturating_add(Value::from(path.as_str()).to_string().len());
            if bytes > PATHS_MAX_BYTES {
                break;
            }
            made.push(Artifact { path, sha256: file.sha256, size_bytes: file.size });
        }
    }
    made.truncate(ARTIFACTS_MAX);
    Ok(made)
}
