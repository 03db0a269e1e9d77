//! What caller, launcher and init say to each other: frames of JSON over a socket, with bytes and descriptors behind.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cgroup::Places;
use crate::error::Error;
use crate::mac::Module;
use crate::oci::Runtime;
use crate::outcome::Outcome;
use crate::spec::{Image, Spec};

/// From the caller to the launcher. The first is `Prepare`, then comes `Run`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToLauncher<S = Spec> {
    Prepare(Preparation),
    /// With the descriptors for standard input, output and errors.
    Run(Order<S>),
    Freeze,
    Thaw,
    Kill,
    Signal(i32),
}

/// What can be done before the spec is known.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Preparation {
    pub(crate) image: Image,
    pub(crate) places: Places,
    pub(crate) cores_milli: u32,
    /// Who makes the sandbox, if it is not the launcher itself.
    pub(crate) runtime: Option<Runtime>,
}

/// A spec; the bytes of its files follow the frame.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order<S = Spec> {
    pub(crate) spec: S,
    pub(crate) sizes: Vec<usize>,
}

/// From the launcher to the caller.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromLauncher {
    /// The program runs; with the listener of the proxy, if there is one.
    Started,
    Ended(Box<Outcome>),
    Failed(Error),
}

/// From the launcher to init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToInit<S = Spec> {
    /// Its users are mapped and it is in its cgroups: it may go on. With the trees of the image, if `opened`.
    Placed { parts: Vec<Part>, opened: bool },
    /// With the three descriptors of the program and, if `opened`, the trees of the binds.
    Run { order: Order<S>, opened: bool, weak: Weak },
    /// Tells the program, or everybody.
    Signal { signal: i32, all: bool },
}

/// A part of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Below the root, without a slash in front.
    pub(crate) at: String,
    pub(crate) kind: PartKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PartKind {
    /// A symbolic link, as it stands in the image.
    Link(String),
    /// A directory or file of the host.
    Tree { host: PathBuf, is_dir: bool },
}

/// What the program's own process must do: hold limits that no cgroup holds, and ask for its profile.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Weak {
    pub(crate) memory: bool,
    pub(crate) pids: bool,
    /// So many cores of those that the launcher may use.
    pub(crate) cores: Option<usize>,
    /// Who is to be asked for the profile of the spec, if anybody.
    pub(crate) mac: Option<Module>,
}

/// From init to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromInit {
    /// With the listener of the proxy, if there is one.
    Started {
        notify: bool,
        landlock: bool,
    },
    Failed(Error),
    /// The program tried a system call.
    Tried {
        call: String,
        detail: String,
        fatal: bool,
    },
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
}

/// What came with a frame.
pub(crate) struct Received<T> {
    pub(crate) message: T,
    pub(crate) tail: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

const MAX_MESSAGE_BYTES: usize = 64 << 20;
const MAX_TAIL_BYTES: usize = 64 << 20;
const MAX_FDS: usize = 128;
const HEADER_BYTES: usize = 8;

/// One end of a socket between two of our processes.
#[derive(Debug)]
pub(crate) struct Channel(UnixStream);

impl Channel {
    pub(crate) fn pair() -> io::Result<(Channel, Channel)> {
        let (here, there) = UnixStream::pair()?;
        Ok((Channel(here), Channel(there)))
    }

    pub(crate) fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        self.send_all(message, &[], &[])
    }

    /// Sends a frame; the descriptors go with its first byte.
    pub(crate) fn send_all<T: Serialize>(
        &self,
        message: &T,
        tail: &[&[u8]],
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut frame = vec![0; HEADER_BYTES];
        serde_json::to_writer(&mut frame, message).map_err(io::Error::from)?;
        let tail_bytes = tail.iter().map(|part| part.len()).sum();
        let lengths = [size(frame.len() - HEADER_BYTES)?, size(tail_bytes)?];
        let (first, second) = (lengths[0].to_le_bytes(), lengths[1].to_le_bytes());
        frame[..4].copy_from_slice(&first);
        frame[4..HEADER_BYTES].copy_from_slice(&second);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("too many descriptors"));
        }
        // A peer that is gone is an error, not a signal.
        let flags = SendFlags::NOSIGNAL;
        let sent = retry(|| sendmsg(&self.0, &[IoSlice::new(&frame)], &mut control, flags))?;
        let mut stream = &self.0;
        stream.write_all(&frame[sent..])?;
        tail.iter().try_for_each(|part| stream.write_all(part))
    }

    /// Waits for a frame; `None` if the other side is gone.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<Received<T>>> {
        let mut header = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut header)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = match retry(|| recvmsg(&self.0, &mut parts, &mut control, flags)) {
            Ok(got) => got.bytes,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error),
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                fds.extend(more);
            }
        }
        if got == 0 {
            return Ok(None);
        }
        let mut stream = &self.0;
        stream.read_exact(&mut header[got..])?;
        let [a, b, c, d, e, f, g, h] = header;
        let message = bounded(u32::from_le_bytes([a, b, c, d]), MAX_MESSAGE_BYTES)?;
        let tail = bounded(u32::from_le_bytes([e, f, g, h]), MAX_TAIL_BYTES)?;
        let mut bytes = vec![0; message];
        stream.read_exact(&mut bytes)?;
        let mut rest = vec![0; tail];
        stream.read_exact(&mut rest)?;
        let message = serde_json::from_slice(&bytes).map_err(io::Error::from)?;
        Ok(Some(Received { message, tail: rest, fds }))
    }
}

fn retry<T>(call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    rustix::io::retry_on_intr(call).map_err(io::Error::from)
}

fn size(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes).map_err(io::Error::other)
}

fn bounded(length: u32, most: usize) -> io::Result<usize> {
    let length = usize::try_from(length).map_err(io::Error::other)?;
    if length > most { Err(io::Error::other("a frame is too long")) } else { Ok(length) }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Channel {
        Channel(UnixStream::from(fd))
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> OwnedFd {
        OwnedFd::from(channel.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_carry_words_bytes_and_descriptors() {
        let (here, there) = Channel::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let message: ToInit = ToInit::Signal { signal: 9, all: true };
        let placed: ToInit = ToInit::Placed { parts: Vec::new(), opened: false };
        here.send_all(&message, &[b"ab", b"c"], &[writer.as_fd()]).unwrap();
        here.send(&placed).unwrap();
        drop((writer, here));
        let first = there.receive::<ToInit>().unwrap().unwrap();
        assert!(matches!(first.message, ToInit::Signal { signal: 9, all: true }));
        assert_eq!((first.tail.as_slice(), first.fds.len()), (b"abc".as_slice(), 1));
        let mut writer = io::PipeWriter::from(first.fds.into_iter().next().unwrap());
        writer.write_all(b"x").unwrap();
        drop(writer);
        let mut text = String::new();
        let mut reader = reader;
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        let second = there.receive::<ToInit>().unwrap().unwrap();
        assert!(matches!(second.message, ToInit::Placed { .. }) && second.fds.is_empty());
        assert!(there.receive::<ToInit>().unwrap().is_none());
    }

    #[test]
    fn nonsense_is_an_error() {
        let (here, there) = Channel::pair().unwrap();
        (&here.0).write_all(&[0xff; 8]).unwrap();
        assert!(there.receive::<ToInit>().is_err());
        let (here, there) = Channel::pair().unwrap();
        (&here.0).write_all(&[2, 0, 0, 0, 0, 0, 0, 0, b'{', b'x']).unwrap();
        assert!(there.receive::<ToInit>().is_err());
    }
}
