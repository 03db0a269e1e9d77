//! The three pipes between a program and whoever started it.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use crate::error::{Result, Step};

/// The caller's ends. Each can be taken out once.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: PipeWriter,
    pub(crate) stdout: PipeReader,
    pub(crate) stderr: PipeReader,
}

/// The program's ends. They must be dropped once it has them: whoever reads waits for the end of all of them.
#[derive(Debug)]
pub(crate) struct Theirs {
    stdin: PipeReader,
    stdout: PipeWriter,
    stderr: PipeWriter,
}

impl Pipes {
    pub(crate) fn new() -> Result<(Pipes, Theirs)> {
        let pipe = || io::pipe().step("make a pipe");
        let (stdin, stdout, stderr) = (pipe()?, pipe()?, pipe()?);
        let ours = Pipes { stdin: stdin.1, stdout: stdout.0, stderr: stderr.0 };
        Ok((ours, Theirs { stdin: stdin.0, stdout: stdout.1, stderr: stderr.1 }))
    }
}

impl Theirs {
    /// As the program will have them: 0, 1 and 2.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [self.stdin.as_fd(), self.stdout.as_fd(), self.stderr.as_fd()]
    }
}

/// All that comes until both have ended. They are read at once: a program may fill either first.
pub(crate) fn drain(
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
) -> Result<(Vec<u8>, Vec<u8>)> {
    let (stdout, stderr) = thread::scope(|scope| {
        let other = scope.spawn(move || drain_one(stderr));
        (drain_one(stdout), other.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
    });
    Ok((stdout.step("read the output")?, stderr.step("read the output")?))
}

fn drain_one(pipe: Option<PipeReader>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
