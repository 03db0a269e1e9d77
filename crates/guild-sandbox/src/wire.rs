//! What caller, launcher and init say to each other: frames of JSON over a socket, with bytes and descriptors behind.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cgroup::Places;
use crate::error::Error;
use crate::exec::Ended;
use crate::mac::Module;
use crate::oci::Runtime;
use crate::outcome::{Outcome, Standing};
use crate::spec::{Image, Spec};

/// From the caller to the nursery.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToNursery {
    /// With the launcher's end of its channel.
    Launch,
}

/// From the nursery to the caller.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromNursery {
    /// With a descriptor of the new process.
    Launched,
    Failed(String),
}

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
    /// With the [`crate::exec::Exec`] in a file of memory, the three descriptors, and the command's own channel.
    Exec {
        wall_ms: Option<u64>,
        output_bytes: Option<u64>,
    },
    /// With a channel that a socket of the sandbox's network comes back by, or why not (`Option<Error>`).
    Socket,
    /// With a channel that is answered by nothing, or why not (`Option<Error>`).
    Resize {
        cores_milli: u32,
        memory_bytes: u64,
    },
}

/// From the caller to the launcher about one command, over its own channel. Its end means that nobody wants it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToCommand {
    Signal(i32),
    Kill,
}

/// From the launcher to the caller about one command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromCommand {
    Started,
    Failed(Error),
    Ended(Box<Ended>),
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
    /// It runs; with the workspace and the listener of the proxy, if there is one.
    Started {
        /// Whether no command can look into another.
        keeps_apart: bool,
    },
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
    /// With the [`crate::exec::Exec`] in a file of memory, and the command's three descriptors.
    Exec { command: u64 },
    /// Tells the first process of a command.
    SignalCommand { command: u64, signal: i32 },
    /// Kills a command and everything that it started.
    EndCommand { command: u64 },
    /// With the channel that the socket goes to.
    Socket,
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
    /// With the workspace and the listener of the proxy, if there is one.
    Started {
        notify: Standing,
        landlock: bool,
    },
    Failed(Error),
    /// The program, or a command, tried a system call.
    Tried {
        command: Option<u64>,
        call: String,
        detail: String,
        fatal: bool,
    },
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
    CommandStarted {
        command: u64,
        notify: bool,
    },
    CommandFailed {
        command: u64,
        error: Error,
    },
    CommandEnded {
        command: u64,
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
}

/// From a command's keeper to init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromKeeper {
    /// With a handle of its first process and, if `notify`, the listener of its filter.
    Started {
        pid: u32,
        notify: bool,
    },
    Failed(Error),
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

/// The same, with a tail that nobody has read yet.
pub(crate) struct Begun<'a, T> {
    pub(crate) message: T,
    pub(crate) tail: io::Take<&'a UnixStream>,
    pub(crate) fds: Vec<OwnedFd>,
}

const MAX_MESSAGE_BYTES: usize = 64 << 20;
const MAX_TAIL_BYTES: usize = 64 << 20;
/// How many descriptors go with a frame.
pub(crate) const MAX_FDS: usize = 128;
const HEADER_BYTES: usize = 8;

/// One end of a socket between two of our processes.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    /// Held for the length of a frame: any thread may send.
    sending: Mutex<()>,
}

impl Channel {
    pub(crate) fn pair() -> io::Result<(Channel, Channel)> {
        let (here, there) = UnixStream::pair()?;
        Ok((Channel::over(here), Channel::over(there)))
    }

    fn over(stream: UnixStream) -> Channel {
        Channel { stream, sending: Mutex::default() }
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
        let frame = frame(message, tail)?;
        let _alone = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = self.send_first(&frame, fds, SendFlags::empty())?;
        let mut stream = &self.stream;
        stream.write_all(frame.get(sent..).unwrap_or_default())?;
        tail.iter().try_for_each(|part| stream.write_all(part))
    }

    /// Sends a short frame, or fails if the other side has not read what came before: this never waits.
    pub(crate) fn send_now<T: Serialize>(
        &self,
        message: &T,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let frame = frame(message, &[])?;
        let _alone = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        match self.send_first(&frame, fds, SendFlags::DONTWAIT)? {
            sent if sent == frame.len() => Ok(()),
            // The kernel takes frames of this size whole or not at all.
            _ => Err(io::Error::other("a frame was cut")),
        }
    }

    /// Sends as much as goes at once; the descriptors go with the first byte.
    fn send_first(
        &self,
        frame: &[u8],
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("too many descriptors"));
        }
        // A peer that is gone is an error, not a signal.
        let flags = flags | SendFlags::NOSIGNAL;
        retry(|| sendmsg(&self.stream, &[IoSlice::new(frame)], &mut control, flags))
    }

    /// Waits for a frame; `None` if the other side is gone.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<Received<T>>> {
        let Some(Begun { message, mut tail, fds }) = self.receive_begun()? else {
            return Ok(None);
        };
        let mut bytes = vec![0; usize::try_from(tail.limit()).unwrap_or(usize::MAX)];
        tail.read_exact(&mut bytes)?;
        Ok(Some(Received { message, tail: bytes, fds }))
    }

    /// The same for whoever reads the tail by itself, piece by piece. What it leaves comes before the next frame.
    pub(crate) fn receive_begun<T: DeserializeOwned>(&self) -> io::Result<Option<Begun<'_, T>>> {
        let mut header = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut header)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = match retry(|| recvmsg(&self.stream, &mut parts, &mut control, flags)) {
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
        let mut stream = &self.stream;
        stream.read_exact(&mut header[got..])?;
        let [a, b, c, d, e, f, g, h] = header;
        let message = bounded(u32::from_le_bytes([a, b, c, d]), MAX_MESSAGE_BYTES)?;
        let tail = bounded(u32::from_le_bytes([e, f, g, h]), MAX_TAIL_BYTES)?;
        let mut bytes = vec![0; message];
        stream.read_exact(&mut bytes)?;
        let message = serde_json::from_slice(&bytes).map_err(io::Error::from)?;
        let tail = stream.take(u64::try_from(tail).map_err(io::Error::other)?);
        Ok(Some(Begun { message, tail, fds }))
    }
}

/// The header and the message; the tail only counts.
fn frame<T: Serialize>(message: &T, tail: &[&[u8]]) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER_BYTES];
    serde_json::to_writer(&mut frame, message).map_err(io::Error::from)?;
    let tail_bytes = tail.iter().map(|part| part.len()).sum();
    let lengths = [size(frame.len() - HEADER_BYTES)?, size(tail_bytes)?];
    let (first, second) = (lengths[0].to_le_bytes(), lengths[1].to_le_bytes());
    frame[..4].copy_from_slice(&first);
    frame[4..HEADER_BYTES].copy_from_slice(&second);
    Ok(frame)
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
        self.stream.as_fd()
    }
}

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Channel {
        Channel::over(UnixStream::from(fd))
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> OwnedFd {
        OwnedFd::from(channel.stream)
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
        (&here.stream).write_all(&[0xff; 8]).unwrap();
        assert!(there.receive::<ToInit>().is_err());
        let (here, there) = Channel::pair().unwrap();
        (&here.stream).write_all(&[2, 0, 0, 0, 0, 0, 0, 0, b'{', b'x']).unwrap();
        assert!(there.receive::<ToInit>().is_err());
    }
}
