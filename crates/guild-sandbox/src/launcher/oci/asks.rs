//! The listeners of filters that a runtime installs: it connects to a socket and hands each out, with the process that
//! the filter is for.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::Deserialize;

use crate::error::{Result, Step};

/// What a runtime may say about a process.
const MAX_STATE_BYTES: usize = 256 << 10;

/// Where the runtime hands them out.
pub(super) struct Asks {
    socket: UnixListener,
    /// By process, until somebody wants them.
    handed_out: BTreeMap<u32, OwnedFd>,
}

/// What is said with a listener, so far as it is of use.
#[derive(Deserialize)]
struct State {
    pid: u32,
}

impl Asks {
    pub(super) fn listen(path: &str) -> Result<Asks> {
        let socket = UnixListener::bind(path).step("listen to the runtime")?;
        socket.set_nonblocking(true).step("listen to the runtime")?;
        Ok(Asks { socket, handed_out: BTreeMap::new() })
    }

    /// The listener of a process. The runtime has handed it out before it says that the process is there.
    pub(super) fn take(&mut self, pid: u32) -> io::Result<Option<OwnedFd>> {
        self.hear()?;
        Ok(self.handed_out.remove(&pid))
    }

    /// Lets go of all that nobody has wanted, and says whose they were.
    pub(super) fn forget(&mut self) -> Vec<u32> {
        // What cannot be heard is not there.
        let _ = self.hear();
        std::mem::take(&mut self.handed_out).into_keys().collect()
    }

    fn hear(&mut self) -> io::Result<()> {
        loop {
            match self.socket.accept() {
                Ok((stream, _)) => self.handed_out.extend(receive(&stream)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// One message: words about a process, and the descriptor.
fn receive(stream: &UnixStream) -> io::Result<Option<(u32, OwnedFd)>> {
    // Whoever connects has sent everything before the runtime goes on; nobody is waited for.
    stream.set_nonblocking(true)?;
    let mut bytes = vec![0; MAX_STATE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            fds.extend(more);
        }
    }
    let state = serde_json::from_slice::<State>(bytes.get(..got).unwrap_or_default()).ok();
    Ok(state.map(|state| state.pid).zip(fds.into_iter().next()))
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, pipe};
    use std::os::fd::AsFd;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    #[test]
    fn listeners_are_told_apart_by_their_processes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("asks").display().to_string();
        let mut asks = Asks::listen(&path).unwrap();
        assert!(asks.take(7).unwrap().is_none());
        let hand_out = |text: &str| {
            let stream = UnixStream::connect(&path).unwrap();
            let (reader, _writer) = pipe().unwrap();
            let fds = [reader.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            let words = [IoSlice::new(text.as_bytes())];
            sendmsg(&stream, &words, &mut control, SendFlags::empty()).unwrap();
        };
        hand_out(r#"{"ociVersion":"1.0.2","fds":["seccompFd"],"pid":8,"state":{"id":"box"}}"#);
        hand_out(r#"{"pid":7}"#);
        hand_out("nonsense");
        assert!(asks.take(7).unwrap().is_some());
        assert!(asks.take(7).unwrap().is_none());
        assert!(asks.take(8).unwrap().is_some() && asks.handed_out.is_empty());
        hand_out(r#"{"pid":9}"#);
        assert_eq!(asks.forget(), [9]);
        assert!(asks.take(9).unwrap().is_none());
    }
}
