//! The commands of a sandbox: started once, read as often as somebody likes, forgotten in the end.

use std::collections::BTreeMap;
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;

use guild_protocol::hash::Hash;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::net::unix::pipe;
use tokio::sync::OwnedMutexGuard;
use zeroize::Zeroize;

use super::error::{Error, Result, code};
use super::once::{Names, Taken};
use super::output::Output;
use super::redact::{Forms, Redactor};
use super::secrets::Given;
use super::wire::{Bytes64, ExecId, ExecRequest, Stream};
use crate::exec::{Exec, ExecHandle, Executing};
use crate::running::Handle;

/// How many commands run at once.
pub(crate) const MAX_RUNNING: usize = 64;
/// How many that have ended are remembered.
const MAX_ENDED: usize = 256;
/// How much all of them together have printed.
const MAX_ENDED_BYTES: usize = 32 << 20;
/// How much of what one printed is kept.
const MAX_KEPT_BYTES: usize = 1 << 20;
/// What an empty pipe takes without waiting, unless its user has so many that the kernel makes them small.
pub(crate) const MAX_FIRST_INPUT_BYTES: usize = 64 << 10;
const PIECE_BYTES: usize = 16 << 10;

/// A command.
pub(crate) struct Command {
    /// What was asked, to tell a repeated request from another one.
    asked: Hash,
    /// The how many-th it was.
    number: u64,
    pub(crate) handle: ExecHandle,
    pub(crate) stdin: Input,
    pub(crate) output: Arc<Output>,
    pub(crate) inputs: Mutex<Names<Taken>>,
    pub(crate) signals: Mutex<Names<bool>>,
}

/// The input of a command while it is open. Whoever writes holds it.
type Input = Arc<tokio::sync::Mutex<Option<pipe::Sender>>>;

/// All commands.
#[derive(Default)]
pub(crate) struct Execs {
    all: Mutex<Table>,
    /// Held while one is started, so that two requests with the same id start one command.
    starting: Mutex<()>,
}

#[derive(Default)]
struct Table {
    commands: BTreeMap<ExecId, Arc<Command>>,
    started: u64,
    /// Whether nobody is waited for, also not for the output of a command that comes late.
    hurried: bool,
}

/// What a command is started with.
pub(crate) struct Start {
    pub(crate) id: ExecId,
    pub(crate) asked: Hash,
    pub(crate) request: ExecRequest,
    pub(crate) given: Given,
    pub(crate) forms: Arc<RwLock<Forms>>,
    pub(crate) now_ms: i64,
}

impl Execs {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &ExecId) -> Result<Arc<Command>> {
        let unknown = || Error::new(&code::NO_SUCH_EXEC, format!("there is no command {id}"));
        self.table().commands.get(id).cloned().ok_or_else(unknown)
    }

    pub(crate) fn running(&self) -> usize {
        self.table().commands.values().filter(|one| !one.output.is_ended()).count()
    }

    /// Starts a command, unless it was started already. Blocks until it runs.
    pub(crate) fn start(&self, handle: &Handle, start: Start) -> Result<()> {
        let _one_at_a_time = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.table().commands.get(&start.id) {
            return match known.asked == start.asked {
                true => Ok(()),
                false => {
                    let why = format!("{} was started with other words", start.id);
                    Err(Error::new(&code::EXEC_DIFFERS, why))
                }
            };
        }
        if self.running() >= MAX_RUNNING {
            let why = format!("{MAX_RUNNING} commands run, which is the limit");
            return Err(Error::new(&code::TOO_MANY, why));
        }
        let mut order = order(&start);
        let executing = handle.exec(&order);
        order.env.values_mut().for_each(Zeroize::zeroize);
        let mut executing = executing?;
        let stdin = executing.stdin.take().map(OwnedFd::from);
        let (stdin, rest) = first_input(stdin, &start.request).map_err(failed)?;
        let output = Arc::new(Output::new(MAX_KEPT_BYTES, start.now_ms));
        let command = Command {
            asked: start.asked,
            number: 0,
            handle: executing.handle(),
            stdin,
            output: output.clone(),
            inputs: Mutex::default(),
            signals: Mutex::default(),
        };
        let forms = start.forms.clone();
        let carry = move || carry(executing, rest, &output, &forms);
        thread::Builder::new().name("sandbox-exec".to_owned()).spawn(carry).map_err(failed)?;
        self.add(start.id, command);
        Ok(())
    }

    fn add(&self, id: ExecId, mut command: Command) {
        let mut table = self.table();
        table.started += 1;
        command.number = table.started;
        if table.hurried {
            command.output.hurry();
        }
        table.commands.insert(id, Arc::new(command));
        // The oldest of those that have ended go.
        let ended = |(id, one): (&ExecId, &Arc<Command>)| {
            one.output.is_ended().then(|| (one.number, one.output.bytes(), id.clone()))
        };
        let mut ended: Vec<_> = table.commands.iter().filter_map(ended).collect();
        ended.sort();
        let (mut count, mut bytes) = (0, 0);
        for (_, kept, id) in ended.into_iter().rev() {
            (count, bytes) = (count + 1, bytes + kept);
            if count > MAX_ENDED || bytes > MAX_ENDED_BYTES {
                table.commands.remove(&id);
            }
        }
    }

    /// Gives up on readers who do not read.
    pub(crate) fn expire(&self, now_ms: i64) {
        self.table().commands.values().for_each(|one| one.output.expire(now_ms));
    }

    /// The sandbox has ended: nobody is waited for.
    pub(crate) fn hurry(&self) {
        let mut table = self.table();
        table.hurried = true;
        table.commands.values().for_each(|one| one.output.hurry());
    }
}

fn failed(error: io::Error) -> Error {
    Error::from(crate::Error::failed("start a command", error))
}

fn order(start: &Start) -> Exec {
    let ExecRequest { argv, env, cwd, timeout_ms, max_output, .. } = &start.request;
    let mut env = env.clone();
    env.extend(start.given.iter().map(|(name, value)| (name.clone(), value.to_string())));
    Exec {
        argv: argv.clone(),
        env,
        cwd: cwd.clone(),
        wall_ms: *timeout_ms,
        output_bytes: *max_output,
    }
}

/// Writes what is read first, and gives the input, with what the pipe had no room for.
fn first_input(
    stdin: Option<OwnedFd>,
    request: &ExecRequest,
) -> io::Result<(Input, Option<FirstInput>)> {
    let stdin = stdin.map(pipe::Sender::from_owned_fd).transpose()?;
    let input = Arc::new(tokio::sync::Mutex::new(stdin));
    let bytes = request.stdin_b64.as_ref().map_or(&[][..], |Bytes64(bytes)| bytes);
    let held = input.clone().try_lock_owned().map_err(io::Error::other)?;
    let first = FirstInput { held, bytes: bytes.to_vec(), stays_open: request.stdin_open };
    Ok((input, first.write()))
}

/// What is read first, so far as it is not written. Nobody else writes meanwhile.
struct FirstInput {
    held: OwnedMutexGuard<Option<pipe::Sender>>,
    bytes: Vec<u8>,
    /// Whether more follows.
    stays_open: bool,
}

impl FirstInput {
    /// Writes what there is room for; gives itself back if something is left.
    fn write(mut self) -> Option<FirstInput> {
        let Some(pipe) = &*self.held else { return None };
        while !self.bytes.is_empty() {
            match rustix::io::write(pipe, &self.bytes) {
                Ok(written) => drop(self.bytes.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Some(self),
                // Whoever does not read has closed it.
                Err(_) => break,
            }
        }
        if !self.stays_open {
            *self.held = None;
        }
        None
    }
}

/// Carries what a command prints until it has ended.
fn carry(
    mut executing: Executing,
    mut first: Option<FirstInput>,
    output: &Output,
    forms: &RwLock<Forms>,
) {
    let out = executing.stdout.take().map(|pipe| (pipe, Stream::Stdout));
    let err = executing.stderr.take().map(|pipe| (pipe, Stream::Stderr));
    let mut open: Vec<_> =
        [out, err].into_iter().flatten().map(|(pipe, stream)| Source::new(pipe, stream)).collect();
    while !open.is_empty() {
        let ready: Vec<bool> = {
            let mut fds: Vec<_> =
                open.iter().map(|source| PollFd::new(&source.pipe, PollFlags::IN)).collect();
            let input = first.as_ref().and_then(|first| first.held.as_ref());
            fds.extend(input.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
            if rustix::io::retry_on_intr(|| poll(&mut fds, None)).is_err() {
                break;
            }
            fds.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        first = match ready.get(open.len()) {
            Some(true) => first.and_then(FirstInput::write),
            _ => first,
        };
        let mut ready = ready.into_iter();
        open.retain_mut(|source| !ready.next().unwrap_or_default() || source.carry(output, forms));
    }
    drop(first);
    match executing.wait() {
        Ok(ended) => output.end(Some(&ended)),
        Err(error) => {
            tracing::warn!(code = error.code().name, "nothing is known of how a command ended");
            output.end(None);
        }
    }
}

/// A pipe of a command.
struct Source {
    pipe: PipeReader,
    stream: Stream,
    redactor: Redactor,
    piece: Vec<u8>,
}

impl Source {
    fn new(pipe: PipeReader, stream: Stream) -> Source {
        Source { pipe, stream, redactor: Redactor::default(), piece: vec![0; PIECE_BYTES] }
    }

    /// Carries what is there; false at the end.
    fn carry(&mut self, output: &Output, forms: &RwLock<Forms>) -> bool {
        let length = self.pipe.read(&mut self.piece).unwrap_or(0);
        let printed = {
            let forms = forms.read().unwrap_or_else(PoisonError::into_inner);
            match self.piece.get(..length) {
                Some(piece) if length > 0 => self.redactor.take(&forms, piece),
                _ => self.redactor.rest(&forms),
            }
        };
        if !printed.is_empty() {
            output.print(self.stream, printed);
        }
        length > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe as small as the kernel makes them for whoever has many.
    #[tokio::test]
    async fn what_a_small_pipe_cannot_take_is_written_later() {
        for stdin_open in [false, true] {
            let (mut reader, writer) = io::pipe().unwrap();
            rustix::pipe::fcntl_setpipe_size(&writer, 8 << 10).unwrap();
            let sent: Vec<u8> = (0..60_000u32).map(|n| n.to_le_bytes()[0]).collect();
            let request = serde_json::json!({"argv": ["cat"], "stdin_open": stdin_open});
            let mut request: ExecRequest = serde_json::from_value(request).unwrap();
            request.stdin_b64 = Some(Bytes64(sent.clone()));
            let (input, mut rest) = first_input(Some(writer.into()), &request).unwrap();
            assert!(rest.is_some() && input.try_lock().is_err(), "it is written first");
            let mut read = Vec::new();
            while let Some(more) = rest {
                let mut piece = [0; 4 << 10];
                let length = reader.read(&mut piece).unwrap();
                read.extend(&piece[..length]);
                rest = more.write();
            }
            assert_eq!(input.try_lock().unwrap().is_some(), stdin_open);
            drop(input);
            reader.read_to_end(&mut read).unwrap();
            assert!(read == sent, "{} bytes came", read.len());
        }
    }
}
