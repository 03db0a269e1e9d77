//! Carries bytes both ways between two sockets.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;

use super::body::Framing;
use super::head::Flaw;
use super::wait::{Stop, Stopped, now_ms};

const PIECE_BYTES: usize = 16 << 10;
/// How long to wait if nothing may pass yet.
const REFILL_MS: u64 = 10;

/// Why nothing more is carried.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// One of the two is gone, or both have been silent too long, or everything is to stop.
    Gone,
    /// The body is not what its head said.
    Flaw(Flaw),
}

impl From<Stopped> for Break {
    fn from(_: Stopped) -> Break {
        Break::Gone
    }
}

/// What the carrying needs of those around it.
pub(super) trait Meter {
    /// How many of the wanted bytes may pass now.
    fn grant(&self, wanted: usize) -> usize;
    /// Takes back what was not used.
    fn give_back(&self, bytes: usize);
    /// Counts what has passed.
    fn passed(&self, up: usize, down: usize);
}

/// One direction.
struct Flow<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    /// What has come and has not gone.
    pending: Vec<u8>,
    sent: usize,
    /// Where it ends by itself; otherwise with the sender.
    framing: Option<Framing>,
    /// Nothing more will come.
    ended: bool,
    done: bool,
}

impl Flow<'_> {
    fn has_pending(&self) -> bool {
        self.sent < self.pending.len()
    }

    fn waits_for(&self, dry: bool) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match (self.has_pending(), self.ended) {
            (true, _) => Some((self.to.as_fd(), PollFlags::OUT)),
            (false, false) if !dry => Some((self.from.as_fd(), PollFlags::IN)),
            _ => None,
        }
    }

    /// Takes what belongs to it of what has come.
    fn accept(&mut self, start: usize) -> Result<(), Break> {
        let Some(framing) = &mut self.framing else { return Ok(()) };
        let came = self.pending.get(start..).unwrap_or_default();
        let kept = framing.take(came).map_err(Break::Flaw)?;
        self.pending.truncate(start + kept);
        self.ended = framing.is_done();
        Ok(())
    }

    /// Reads one piece; says how much came.
    fn pull(&mut self, most: usize) -> Result<usize, Break> {
        self.pending.clear();
        self.sent = 0;
        self.pending.resize(most, 0);
        let read = self.from.read(&mut self.pending);
        self.pending.truncate(read.as_ref().map_or(0, |came| *came));
        match read {
            Ok(0) if self.framing.is_some() => Err(Break::Flaw("the body ends early")),
            Ok(0) => {
                self.ended = true;
                Ok(0)
            }
            Ok(came) => self.accept(0).map(|()| came),
            Err(error) if is_later(&error) => Ok(0),
            Err(_) => Err(Break::Gone),
        }
    }

    /// Writes what can be written; says how much went.
    fn push(&mut self) -> Result<usize, Break> {
        let before = self.sent;
        while self.has_pending() {
            match self.to.write(self.pending.get(self.sent..).unwrap_or_default()) {
                Ok(0) => return Err(Break::Gone),
                Ok(went) => self.sent += went,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_later(&error) => break,
                Err(_) => return Err(Break::Gone),
            }
        }
        if self.ended && !self.has_pending() && !self.done {
            self.done = true;
            // A request that has ended by itself says nothing more; a sender that has ended says so.
            if self.framing.is_none() {
                let _ = self.to.shutdown(Shutdown::Write);
            }
        }
        Ok(self.sent - before)
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// What to carry.
pub(super) struct Carry<'a> {
    pub(super) client: &'a TcpStream,
    pub(super) server: &'a TcpStream,
    /// Our own words to the server, before anything of the client.
    pub(super) head: Vec<u8>,
    /// What the client has already said.
    pub(super) early: Vec<u8>,
    /// How far the client may speak; otherwise as long as it likes.
    pub(super) framing: Option<Framing>,
    pub(super) idle_ms: u64,
}

impl Carry<'_> {
    /// Until both are done, or the answer to the one request is.
    pub(super) fn run(self, stop: &Stop, meter: &impl Meter) -> Result<(), Break> {
        let Carry { client, server, head, early, framing, idle_ms } = self;
        let one_request = framing.is_some();
        let start = head.len();
        let pending = [head, early].concat();
        let (sent, ended, done) = (0, false, false);
        let mut up = Flow { from: client, to: server, pending, sent, framing, ended, done };
        up.accept(start)?;
        let pending = Vec::new();
        let mut down = Flow { from: server, to: client, pending, sent, framing: None, ended, done };
        let mut idle_at = now_ms() + idle_ms;
        loop {
            // Those who never pause must end as well.
            stop.wait(&[], 0)?;
            let before = (up.ended, down.ended);
            let went = (up.push()?, down.push()?);
            meter.passed(went.0, went.1);
            if down.done && (up.done || one_request) {
                return Ok(());
            }
            let (came, dry) = pull_both(&mut up, &mut down, meter)?;
            if came || went != (0, 0) || before != (up.ended, down.ended) {
                idle_at = now_ms() + idle_ms;
                continue;
            }
            let sockets: Vec<_> =
                [up.waits_for(dry), down.waits_for(dry)].into_iter().flatten().collect();
            let until = if dry { now_ms() + REFILL_MS } else { idle_at };
            if !stop.wait(&sockets, until.min(idle_at))? && now_ms() >= idle_at {
                return Err(Break::Gone);
            }
        }
    }
}

/// Reads where there is room; says whether something came, and whether nothing may pass yet.
fn pull_both<'a>(
    up: &mut Flow<'a>,
    down: &mut Flow<'a>,
    meter: &impl Meter,
) -> Result<(bool, bool), Break> {
    let (mut some, mut dry) = (false, false);
    for flow in [up, down] {
        if flow.has_pending() || flow.ended {
            continue;
        }
        let granted = meter.grant(PIECE_BYTES);
        if granted == 0 {
            dry = true;
            continue;
        }
        let came = flow.pull(granted);
        meter.give_back(granted - came.as_ref().map_or(0, |came| (*came).min(granted)));
        some |= came? > 0;
    }
    Ok((some, dry))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    struct Free;

    impl Meter for Free {
        fn grant(&self, wanted: usize) -> usize {
            wanted
        }
        fn give_back(&self, _: usize) {}
        fn passed(&self, _: usize, _: usize) {}
    }

    fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let there = listener.accept().unwrap().0;
        there.set_nonblocking(true).unwrap();
        (here, there)
    }

    /// However much there is to carry: it is not carried first.
    #[test]
    fn a_busy_connection_stops_at_once() {
        let ((mut client, client_side), (mut server, server_side)) = (sockets(), sockets());
        client.write_all(b"busy").unwrap();
        let (stop, holding) = Stop::new().unwrap();
        drop(holding);
        let carry = Carry {
            client: &client_side,
            server: &server_side,
            head: Vec::new(),
            early: b"early".to_vec(),
            framing: None,
            idle_ms: 60_000,
        };
        assert_eq!(carry.run(&stop, &Free), Err(Break::Gone));
        drop((client_side, server_side));
        let mut carried = String::new();
        let _ = server.read_to_string(&mut carried);
        assert_eq!(carried, "");
    }
}
