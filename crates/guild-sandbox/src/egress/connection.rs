//! One connection of a program: what it wants, whether it may, and then the bytes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::carry::{Break, Carry, Meter};
use super::head::Request;
use super::hello::{Hello, MAX_HELLO_BYTES};
use super::host::Host;
use super::report::{Entry, Reason};
use super::wait::{Stopped, now_ms};
use super::{Shared, Slot};

const PIECE_BYTES: usize = 4 << 10;
/// How many addresses of one name are tried.
const MAX_ADDRESSES: usize = 8;
/// How long the end of a refused client is waited for, so that it reads why.
const FAREWELL_MS: u64 = 500;
const FAREWELL_BYTES: usize = 256 << 10;
const RESOLVER_STACK_BYTES: usize = 1 << 20;
/// How often a thread that waits for a name looks whether everything is to stop.
const LOOK_MS: u64 = 20;
/// A fatal alert of TLS: access denied.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

/// Why a connection ends before it carries anything.
enum End {
    /// The client is gone without having asked, or everything is to stop.
    Gone,
    No(Reason, String),
}

impl From<Stopped> for End {
    fn from(_: Stopped) -> End {
        End::Gone
    }
}

type Step<T> = Result<T, End>;

fn no<T>(reason: Reason, detail: impl Into<String>) -> Step<T> {
    Err(End::No(reason, detail.into()))
}

/// Serves one client until it is done.
pub(super) fn serve(shared: &Arc<Shared>, client: &TcpStream) {
    let connection = Connection { shared, client };
    let (request, rest) = match connection.request() {
        Ok(asked) => asked,
        Err(End::Gone) => return,
        Err(End::No(reason, detail)) => return connection.refuse(None, reason, detail),
    };
    let (host, port) = request.target();
    let target = (host.to_string(), port);
    let server = match connection.reach(host, port) {
        Ok(server) => server,
        Err(End::Gone) => return,
        Err(End::No(reason, detail)) => return connection.refuse(Some(target), reason, detail),
    };
    match request {
        Request::Forward { head, body, .. } => {
            let framing = Some(body.framing());
            connection.carry(&server, target, head, rest, framing);
        }
        Request::Tunnel { host, port } => match connection.greeted(&host, port, rest) {
            Ok(early) => connection.carry(&server, target, Vec::new(), early, None),
            Err(End::Gone) => {}
            Err(End::No(reason, detail)) => {
                connection.record(Some(target), reason, detail);
                connection.say(&ALERT);
            }
        },
    }
}

/// Tells a client that there is no room for it.
pub(super) fn turn_away(shared: &Shared, client: &TcpStream) {
    let detail = format!("at most {} at once", shared.options.connections);
    let answer = answer(Reason::TooMany, &detail);
    shared.log().stopped(String::new(), 0, Reason::TooMany, detail);
    let mut client = client;
    // It is not waited for: whoever floods gets no thread and no time.
    let _ = client.write(answer.as_bytes());
}

/// What a program reads that is refused. It names nobody but the reason.
fn answer(reason: Reason, detail: &str) -> String {
    let text = format!("{}: {detail}\n", reason.name());
    format!(
        "HTTP/1.1 {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        reason.status(),
        text.len()
    )
}

struct Connection<'a> {
    shared: &'a Arc<Shared>,
    client: &'a TcpStream,
}

impl Connection<'_> {
    /// Reads the head of a request, and what came behind it.
    fn request(&self) -> Step<(Request, Vec<u8>)> {
        let options = &self.shared.options;
        let until_ms = now_ms() + options.head_ms;
        let mut bytes = Vec::new();
        loop {
            let end = match Request::end(&bytes) {
                Ok(end) => end.filter(|end| *end <= options.head_bytes),
                Err(flaw) => return no(Reason::BadRequest, flaw),
            };
            if let Some(end) = end {
                let rest = bytes.split_off(end);
                return match Request::parse(&bytes) {
                    Ok(request) => Ok((request, rest)),
                    Err(flaw) => no(Reason::BadRequest, flaw),
                };
            }
            if bytes.len() >= options.head_bytes {
                return no(Reason::TooLarge, format!("more than {} bytes", options.head_bytes));
            }
            match self.more(&mut bytes, until_ms)? {
                true => {}
                false if bytes.is_empty() => return Err(End::Gone),
                false => return no(Reason::BadRequest, "the head ends early"),
            }
        }
    }

    /// Reads a piece; says whether there was one before the end.
    fn more(&self, bytes: &mut Vec<u8>, until_ms: u64) -> Step<bool> {
        let mut piece = [0; PIECE_BYTES];
        loop {
            // Every time, and not only while nothing comes: a drop now and then is slow too.
            if now_ms() >= until_ms {
                return no(Reason::TooSlow, "it did not come in time");
            }
            let mut client = self.client;
            match client.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(length) => {
                    bytes.extend(piece.get(..length).unwrap_or_default());
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.shared.stop.wait(&[(self.client.as_fd(), PollFlags::IN)], until_ms)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(End::Gone),
            }
        }
    }

    /// Judges a target, and connects to it.
    fn reach(&self, host: &Host, port: u16) -> Step<TcpStream> {
        let shared = self.shared;
        if !shared.allow.names(host, port) {
            return no(Reason::NotListed, "no rule names it");
        }
        let until_ms = now_ms() + shared.options.connect_ms;
        let addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.addresses(name, until_ms)?,
        };
        let (mut refused, mut failed) = (None, None);
        for address in addresses.into_iter().take(MAX_ADDRESSES) {
            let own = shared.options.outside.is_own(address);
            match shared.allow.reaches(address, port, own) {
                // The very address that was judged: the name is not asked for again.
                Ok(()) => match self.connect(SocketAddr::new(address, port), until_ms)? {
                    Ok(server) => return Ok(server),
                    Err(error) => failed = Some(error.to_string()),
                },
                Err(kind) => refused = Some(format!("{address} is {}", kind.name())),
            }
        }
        match (failed, refused) {
            (Some(error), _) => no(Reason::Unreachable, error),
            (None, Some(detail)) => no(Reason::SpecialAddress, detail),
            (None, None) => no(Reason::Unresolved, "the name has no address"),
        }
    }

    /// Asks for the addresses of a name on a thread of its own, because nobody can interrupt that.
    fn addresses(&self, name: &str, until_ms: u64) -> Step<Vec<IpAddr>> {
        let shared = self.shared;
        let Some(slot) = Slot::take(&shared.resolving, shared.options.connections) else {
            return no(Reason::TooMany, "too many names are being asked for");
        };
        let (outside, asked) = (shared.options.outside.clone(), name.to_owned());
        let (sender, answers) = mpsc::channel();
        let thread = thread::Builder::new().stack_size(RESOLVER_STACK_BYTES);
        let spawned = thread.name("egress-name".to_owned()).spawn(move || {
            let answer = outside.addresses(&asked);
            drop(slot);
            // Whoever asked may have gone.
            let _ = sender.send(answer);
        });
        if let Err(error) = spawned {
            return no(Reason::Unresolved, error.to_string());
        }
        loop {
            match answers.recv_timeout(Duration::from_millis(LOOK_MS)) {
                Ok(Ok(addresses)) => return Ok(addresses),
                Ok(Err(error)) => return no(Reason::Unresolved, error.to_string()),
                Err(RecvTimeoutError::Timeout) if now_ms() < until_ms => {
                    self.shared.stop.wait(&[], 0)?;
                }
                Err(_) => return no(Reason::Unresolved, "there is no answer"),
            }
        }
    }

    fn connect(&self, address: SocketAddr, until_ms: u64) -> Step<io::Result<TcpStream>> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match socket_with(family, SocketType::STREAM, flags, None) {
            Ok(socket) => socket,
            Err(errno) => return Ok(Err(errno.into())),
        };
        match connect(&socket, &address) {
            Ok(()) => return Ok(Ok(TcpStream::from(socket))),
            Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Ok(Err(errno.into())),
        }
        if !self.shared.stop.wait(&[(socket.as_fd(), PollFlags::OUT)], until_ms)? {
            return Ok(Err(io::ErrorKind::TimedOut.into()));
        }
        Ok(match sockopt::socket_error(&socket) {
            Ok(Ok(())) => Ok(TcpStream::from(socket)),
            Ok(Err(errno)) | Err(errno) => Err(errno.into()),
        })
    }

    /// Lets a tunnel begin. To a port of TLS, the server that the greeting names must be the one that was judged.
    fn greeted(&self, host: &Host, port: u16, mut early: Vec<u8>) -> Step<Vec<u8>> {
        if !self.say(ESTABLISHED) {
            return Err(End::Gone);
        }
        let Host::Name(wanted) = host else { return Ok(early) };
        if !self.shared.options.tls_ports.contains(&port) {
            return Ok(early);
        }
        let until_ms = now_ms() + self.shared.options.head_ms;
        loop {
            match Hello::read(&early) {
                Hello::Name(name) if name == *wanted => return Ok(early),
                Hello::Name(name) => return no(Reason::OtherServerName, name),
                Hello::Nameless => return no(Reason::NoServerName, "the greeting names nobody"),
                Hello::Wrong(flaw) => return no(Reason::NotTls, flaw),
                Hello::More if early.len() > 2 * MAX_HELLO_BYTES => {
                    return no(Reason::TooLarge, "the greeting is too long");
                }
                Hello::More => match self.more(&mut early, until_ms)? {
                    true => {}
                    // Whoever opens a tunnel and says nothing wanted nothing.
                    false if early.is_empty() => return Err(End::Gone),
                    false => return no(Reason::NotTls, "the greeting ends early"),
                },
            }
        }
    }

    fn carry(
        &self,
        server: &TcpStream,
        target: (String, u16),
        head: Vec<u8>,
        early: Vec<u8>,
        framing: Option<super::body::Framing>,
    ) {
        let entry = self.shared.log().allowed(target.0.clone(), target.1);
        let idle_ms = self.shared.options.idle_ms;
        let carry = Carry { client: self.client, server, head, early, framing, idle_ms };
        let counted = Counted { shared: self.shared, entry };
        if let Err(Break::Flaw(flaw)) = carry.run(&self.shared.stop, &counted) {
            self.record(Some(target), Reason::BadRequest, flaw.to_owned());
        }
    }

    fn record(&self, target: Option<(String, u16)>, reason: Reason, detail: String) {
        let (host, port) = target.unwrap_or_default();
        self.shared.log().stopped(host, port, reason, detail);
    }

    /// Records a refusal, tells the client, and lets it read that.
    fn refuse(&self, target: Option<(String, u16)>, reason: Reason, detail: String) {
        let said = answer(reason, &detail);
        self.record(target, reason, detail);
        if !self.say(said.as_bytes()) {
            return;
        }
        let _ = self.client.shutdown(Shutdown::Write);
        // A socket that is closed with something unread in it takes back what it said.
        let until_ms = now_ms() + FAREWELL_MS;
        let mut rest = Vec::new();
        while rest.len() < FAREWELL_BYTES && matches!(self.more(&mut rest, until_ms), Ok(true)) {}
    }

    /// Says something short to the client; whether it went.
    fn say(&self, bytes: &[u8]) -> bool {
        let mut client = self.client;
        client.write_all(bytes).is_ok()
    }
}

/// Counts for one attempt, at the pace of all.
struct Counted<'a> {
    shared: &'a Shared,
    entry: Entry,
}

impl Meter for Counted<'_> {
    fn grant(&self, wanted: usize) -> usize {
        self.shared.pace().as_mut().map_or(wanted, |pace| pace.take(wanted, now_ms()))
    }

    fn give_back(&self, bytes: usize) {
        if let Some(pace) = self.shared.pace().as_mut() {
            pace.give_back(bytes);
        }
    }

    fn passed(&self, up: usize, down: usize) {
        if (up, down) != (0, 0) {
            let count = |bytes| u64::try_from(bytes).unwrap_or(u64::MAX);
            self.shared.log().moved(self.entry, count(up), count(down));
        }
    }
}
