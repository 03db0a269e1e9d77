//! Waiting for sockets, until it is time or everything is to stop.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of a clock that never goes back.
pub(super) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (s, ns) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    s.unwrap_or(0).saturating_mul(1_000).saturating_add(ns.unwrap_or(0) / 1_000_000)
}

/// Everything is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stopped;

/// What every thread watches: a pipe that ends when all are to end.
#[derive(Debug)]
pub(super) struct Stop(PipeReader);

impl Stop {
    /// With the end to hold; dropping that stops everybody.
    pub(super) fn new() -> io::Result<(Stop, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        Ok((Stop(reader), writer))
    }

    /// Waits until one of the sockets is ready or this time has come; says whether one is.
    pub(super) fn wait(
        &self,
        sockets: &[(BorrowedFd<'_>, PollFlags)],
        until_ms: u64,
    ) -> Result<bool, Stopped> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        fds.extend(sockets.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
        loop {
            let left = until_ms.saturating_sub(now_ms());
            let left = Timespec {
                tv_sec: i64::try_from(left / 1_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(left % 1_000).unwrap_or(0) * 1_000_000,
            };
            match poll(&mut fds, Some(&left)) {
                Err(Errno::INTR) => {}
                // Without memory to wait with there is nothing better to do than to end.
                Err(_) => return Err(Stopped),
                Ok(_) if fds.first().is_some_and(|stop| !stop.revents().is_empty()) => {
                    return Err(Stopped);
                }
                Ok(ready) => return Ok(ready > 0),
            }
        }
    }
}
