//! The only way out of a sandbox: a proxy with a list of whom it may reach.
//!
//! A sandbox with [`Network::Proxy`] has nobody to talk to but the listener that [`crate::Running::proxy`] is. An
//! [`Egress`] accepts there and speaks HTTP: `CONNECT host:port` for tunnels, `GET http://host/…` for plain requests.
//! Each connection is one attempt, judged by itself:
//!
//! 1. The head is read strictly ([`Request`]); what two readers could understand differently is refused.
//! 2. A rule of the list ([`Allow`]) must name the host and port; otherwise not even its address is asked for.
//! 3. The host's resolver gives addresses. Those that are special (loopback, private, the host's own, …) are refused
//!    unless a rule means them; the proxy connects to an address that was judged, and never asks for the name again.
//! 4. Through a tunnel to a port of TLS the greeting ([`Hello`]) must name the server that was judged.
//!
//! What is inside TLS the proxy does not see. Everything is bounded: connections, heads, waits, records. Nothing on the
//! wire tells a server that there is a proxy.
//!
//! ```no_run
//! use guild_sandbox::egress::{self, Allow, Egress};
//! # use guild_sandbox::{Limits, Sandbox, Spec};
//! # fn run(sandbox: &dyn Sandbox) -> guild_sandbox::Result<()> {
//! let allow = Allow::parse(&["example.org:443".to_owned()])?;
//! let spec = egress::through_proxy(Spec::new(["curl", "https://example.org"], Limits::job()));
//! let mut running = sandbox.start(&spec)?;
//! if let Some(listener) = running.proxy.take() {
//!     let egress = Egress::serve(listener, allow, egress::Options::default())?;
//!     running.wait()?;
//!     assert_eq!(egress.finish().refused, 0);
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::io::PipeWriter;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::PollFlags;

use crate::error::{Error, Result, Step};
use crate::spec::{Network, Profile, Spec};

mod address;
mod allow;
mod body;
mod carry;
mod connection;
#[cfg(test)]
mod greeting;
mod head;
mod hello;
mod host;
mod outside;
mod pace;
mod report;
mod wait;

pub use address::Special;
pub use allow::Allow;
pub use head::{Body, Flaw, Request};
pub use hello::Hello;
pub use host::Host;
pub use outside::{Outside, System};
pub use report::{Attempt, Reason, Refusal, Report, Verdict};

use pace::Pace;
use report::Log;
use wait::{Stop, now_ms};

/// Where the proxy listens inside, unless somebody says otherwise.
pub const PORT: u16 = 3128;
/// The variables by which programs find a proxy.
const VARIABLES: [&str; 4] = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];
/// Loopback is the sandbox's own, and no proxy leads there.
const DIRECT: [&str; 2] = ["no_proxy", "NO_PROXY"];
const LOOPBACK: &str = "localhost,127.0.0.1,::1";
const STACK_BYTES: usize = 256 << 10;
/// How long nothing is accepted if nothing can be.
const PAUSE_MS: u64 = 100;

/// How a proxy behaves.
#[derive(Clone)]
pub struct Options {
    /// The network it reaches.
    pub outside: Arc<dyn Outside>,
    /// Connections at once.
    pub connections: usize,
    /// What the head of a request may weigh.
    pub head_bytes: usize,
    /// How long a head, and a greeting, may take to come.
    pub head_ms: u64,
    /// How long finding and reaching a server may take.
    pub connect_ms: u64,
    /// How long a connection may be silent.
    pub idle_ms: u64,
    /// How much may pass in a second, all connections and both directions together.
    pub bytes_per_s: Option<u64>,
    /// Ports where a tunnel to a name must begin with a greeting of TLS for that name.
    pub tls_ports: BTreeSet<u16>,
    /// How many attempts are kept for the report.
    pub attempts: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            outside: Arc::new(System),
            connections: 128,
            head_bytes: 16 << 10,
            head_ms: 10_000,
            connect_ms: 10_000,
            idle_ms: 300_000,
            bytes_per_s: None,
            tls_ports: BTreeSet::from([443]),
            attempts: 256,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// The same program, with a proxy at [`PORT`] as its only way out, told to it by the usual variables. Those that are
/// set already stay.
#[must_use]
pub fn through_proxy(mut spec: Spec) -> Spec {
    spec.network = Network::Proxy { port: PORT };
    spec.profile = Profile::Hosted;
    let proxy = format!("http://127.0.0.1:{PORT}");
    let proxies = VARIABLES.into_iter().map(|name| (name, proxy.as_str()));
    for (name, value) in proxies.chain(DIRECT.into_iter().map(|name| (name, LOOPBACK))) {
        spec.env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    spec
}

/// A proxy at work. Dropping it closes all its connections and ends all its threads, but for those that wait for the
/// host's name service, which go when that answers.
#[derive(Debug)]
pub struct Egress {
    shared: Arc<Shared>,
    /// Closing it stops everybody.
    running: Option<(PipeWriter, JoinHandle<()>)>,
}

/// What the threads of a proxy share.
#[derive(Debug)]
struct Shared {
    allow: Allow,
    options: Options,
    log: Mutex<Log>,
    pace: Mutex<Option<Pace>>,
    open: Arc<AtomicUsize>,
    resolving: Arc<AtomicUsize>,
    stop: Stop,
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> MutexGuard<'_, Option<Pace>> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of a bounded number; dropping it makes room.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Slot> {
        let more = |taken: usize| (taken < most).then(|| taken + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Slot(count.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Egress {
    /// Accepts on a listener and lets through what the list allows.
    pub fn serve(listener: TcpListener, allow: Allow, options: Options) -> Result<Egress> {
        if options.connections == 0 || options.bytes_per_s == Some(0) {
            return Err(Error::spec("egress", "a proxy for nothing is no proxy"));
        }
        listener.set_nonblocking(true).step("prepare the proxy")?;
        let (stop, writer) = Stop::new().step("prepare the proxy")?;
        let pace = options.bytes_per_s.map(|rate| Pace::new(rate, now_ms()));
        let shared = Arc::new(Shared {
            allow,
            log: Mutex::new(Log::new(options.attempts)),
            pace: Mutex::new(pace),
            open: Arc::default(),
            resolving: Arc::default(),
            stop,
            options,
        });
        let accepts = shared.clone();
        let thread = thread::Builder::new().name("egress".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || accept(&accepts, &listener)).step("start a thread")?;
        Ok(Egress { shared, running: Some((writer, thread)) })
    }

    /// What was tried so far.
    pub fn report(&self) -> Report {
        self.shared.log().report()
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Acquire)
    }

    /// Stops, and says what was tried.
    pub fn finish(mut self) -> Report {
        self.stop();
        self.report()
    }

    fn stop(&mut self) {
        if let Some((writer, thread)) = self.running.take() {
            drop(writer);
            // A thread that has panicked is gone too.
            let _ = thread.join();
        }
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Accepts until everything is to stop, and then waits for every connection to be gone.
fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut until_ms = u64::MAX;
    loop {
        let clients = [(listener.as_fd(), PollFlags::IN)];
        let clients = if until_ms == u64::MAX { &clients[..] } else { &[] };
        if shared.stop.wait(clients, until_ms).is_err() {
            break;
        }
        until_ms = match listener.accept() {
            Ok((client, _)) => {
                threads.retain(|thread| !thread.is_finished());
                threads.extend(admit(shared, client));
                u64::MAX
            }
            // Nobody is there, or whoever was is gone; without descriptors it would be asked again at once.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => u64::MAX,
            Err(_) => now_ms() + PAUSE_MS,
        };
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Gives a client a thread, if there is room.
fn admit(shared: &Arc<Shared>, client: TcpStream) -> Option<JoinHandle<()>> {
    client.set_nonblocking(true).ok()?;
    let Some(slot) = Slot::take(&shared.open, shared.options.connections) else {
        connection::turn_away(shared, &client);
        return None;
    };
    let serves = shared.clone();
    let thread = thread::Builder::new().name("egress".to_owned()).stack_size(STACK_BYTES);
    let spawned = thread.spawn(move || {
        connection::serve(&serves, &client);
        drop((client, slot));
    });
    spawned.ok()
}
