//! Carries what a program prints to whoever reads it, and counts it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Result, Step};

const PIECE_BYTES: usize = 64 << 10;

/// One of the two streams.
pub(super) struct Relay {
    /// What the program writes to; `None` after its end.
    from: Option<OwnedFd>,
    /// Where it goes; `None` if nobody reads it.
    to: Option<OwnedFd>,
    /// What has come and has not gone.
    pending: Vec<u8>,
    sent: usize,
    /// Whether nothing more goes out after what is pending.
    is_last: bool,
}

impl Relay {
    pub(super) fn new(from: OwnedFd, to: OwnedFd) -> Result<Relay> {
        for fd in [&from, &to] {
            let flags = rustix::fs::fcntl_getfl(fd).step("read the flags of a pipe")?;
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)
                .step("set the flags of a pipe")?;
        }
        Ok(Relay { from: Some(from), to: Some(to), pending: Vec::new(), sent: 0, is_last: false })
    }

    /// What to wait for: room for what has come, or something new.
    pub(super) fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match (self.has_pending(), &self.to, &self.from) {
            (true, Some(to), _) => Some((to.as_fd(), PollFlags::OUT)),
            (_, _, Some(from)) => Some((from.as_fd(), PollFlags::IN)),
            _ => None,
        }
    }

    /// The same, if nothing new is to be read: its writer waits then.
    pub(super) fn waits_for_room(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.waits_for().filter(|_| self.has_pending() && self.to.is_some())
    }

    /// Whether something has come that nobody has read.
    pub(super) fn has_pending(&self) -> bool {
        self.sent < self.pending.len()
    }

    /// Moves what can be moved now, at most `left` bytes more. Says how much came, which may be more than that.
    pub(super) fn step(&mut self, left: u64) -> u64 {
        self.push();
        if self.has_pending() {
            return 0;
        }
        self.pending.clear();
        self.sent = 0;
        let came = self.pull(left);
        self.push();
        came
    }

    /// Reads one piece. What is beyond the limit is counted and dropped.
    fn pull(&mut self, left: u64) -> u64 {
        let Some(from) = &self.from else { return 0 };
        let start = self.pending.len();
        self.pending.resize(start + PIECE_BYTES, 0);
        let Some(room) = self.pending.get_mut(start..) else { return 0 };
        let came = match rustix::io::read(from, room) {
            Ok(0) => {
                self.from = None;
                0
            }
            Ok(came) => came,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => {
                self.from = None;
                0
            }
        };
        let kept = came.min(usize::try_from(left).unwrap_or(usize::MAX));
        self.pending.truncate(start + kept);
        u64::try_from(came).unwrap_or(u64::MAX)
    }

    /// Moves what has come.
    pub(super) fn push(&mut self) {
        while self.has_pending() {
            let Some(to) = &self.to else {
                self.sent = self.pending.len();
                return;
            };
            let rest = self.pending.get(self.sent..).unwrap_or_default();
            match rustix::io::write(to, rest) {
                Ok(sent) => self.sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Nobody reads it any more.
                Err(_) => self.to = None,
            }
        }
        if self.is_last {
            self.to = None;
        }
    }

    /// After the first process is gone, while others may still print: takes what is in the pipe now. Nothing that comes
    /// later goes out. Says how much that was.
    pub(super) fn finish(&mut self, mut left: u64) -> u64 {
        let there = self.from.as_ref().and_then(|from| rustix::io::ioctl_fionread(from).ok());
        let mut all = 0u64;
        while all < there.unwrap_or(0) {
            let came = self.pull(left);
            all = all.saturating_add(came);
            left = left.saturating_sub(came);
            if came == 0 {
                break;
            }
        }
        self.is_last = true;
        self.hand_over();
        all
    }

    /// After the program is gone: takes what is still in the pipe, which is little. Says how much that was.
    pub(super) fn drain(&mut self, mut left: u64) -> u64 {
        let mut all = 0u64;
        loop {
            let came = self.pull(left);
            all = all.saturating_add(came);
            left = left.saturating_sub(came);
            if came == 0 {
                self.from = None;
                return all;
            }
        }
    }

    /// Hands over the rest at once if the pipe can be made large enough, so that nobody has to wait for a reader.
    pub(super) fn hand_over(&mut self) -> bool {
        if let Some(to) = self.to.as_ref().filter(|_| self.has_pending()) {
            // Not everybody may have large pipes.
            let _ = rustix::pipe::fcntl_setpipe_size(to, self.pending.len() + 4 * PIECE_BYTES);
        }
        self.push();
        !self.has_pending()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};

    use super::*;

    #[test]
    fn output_is_carried_counted_and_cut() {
        let ((from, mut program), (mut reader, to)) = (pipe().unwrap(), pipe().unwrap());
        let mut relay = Relay::new(from.into(), to.into()).unwrap();
        program.write_all(b"hello").unwrap();
        assert_eq!(relay.step(100), 5);
        program.write_all(b"world").unwrap();
        assert_eq!(relay.step(2), 5, "what is too much is counted");
        program.write_all(b"!").unwrap();
        drop(program);
        assert_eq!(relay.drain(100), 1);
        assert!(relay.hand_over() && relay.waits_for().is_none());
        drop(relay);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hellowo!");
    }

    #[test]
    fn a_reader_that_is_gone_does_not_stop_the_program() {
        let ((from, mut program), (reader, to)) = (pipe().unwrap(), pipe().unwrap());
        let mut relay = Relay::new(from.into(), to.into()).unwrap();
        drop(reader);
        for _ in 0..10 {
            program.write_all(&[b'x'; 60_000]).unwrap();
            assert_eq!(relay.step(1 << 30), 60_000);
        }
    }

    #[test]
    fn a_slow_reader_gets_everything() {
        let ((from, mut program), (mut reader, to)) = (pipe().unwrap(), pipe().unwrap());
        let mut relay = Relay::new(from.into(), to.into()).unwrap();
        for _ in 0..3 {
            program.write_all(&[b'x'; 60_000]).unwrap();
            relay.step(1 << 30);
        }
        drop(program);
        relay.drain(1 << 30);
        assert!(relay.hand_over());
        drop(relay);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 180_000);
    }
}
