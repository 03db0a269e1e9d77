//! The sandbox-agent over real HTTP, with a real sandbox.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

mod access;
mod commands;
mod files;
mod leases;
mod ports;
mod secrets;

use std::io::Read;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, Signer};
use guild_protocol::identity::SecretKey;
use guild_sandbox::agent::{
    Agent, Client, ExecRequest, FIRST_LEASE_MS, Frame, Options, Party, Result, SandboxId,
};
use guild_sandbox::{Limits, Profile, Sandbox, Spec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::sandbox;

/// The host's own clock.
#[derive(Debug, Clone, Copy)]
struct Real;

impl Clock for Real {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
    fn now_ms(&self) -> i64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        i64::try_from(now.as_millis()).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let duration = Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0));
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A clock that the test sets. Sleepers wake when time has gone by; the clock on the wall may be set on its own.
#[derive(Clone, Default)]
struct Set(Arc<SetState>);

#[derive(Default)]
struct SetState {
    wall_ms: AtomicI64,
    gone_ms: AtomicI64,
    wakers: Mutex<Vec<Waker>>,
}

impl Set {
    fn new(wall_ms: i64) -> Set {
        let clock = Set::default();
        clock.set_wall(wall_ms);
        clock
    }

    fn set_wall(&self, wall_ms: i64) {
        self.0.wall_ms.store(wall_ms, Ordering::SeqCst);
    }

    /// Lets time go by on both clocks.
    fn pass(&self, ms: i64) {
        self.0.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.pass_unseen(ms);
    }

    /// Lets time go by while the clock on the wall stands still.
    fn pass_unseen(&self, ms: i64) {
        self.0.gone_ms.fetch_add(ms, Ordering::SeqCst);
        self.0.wakers.lock().unwrap().drain(..).for_each(Waker::wake);
    }
}

impl Clock for Set {
    fn now_ms(&self) -> i64 {
        self.0.wall_ms.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let state = self.0.clone();
        let until = state.gone_ms.load(Ordering::SeqCst) + duration_ms.max(1);
        Box::pin(std::future::poll_fn(move |cx| {
            // Registered before it is looked at, so that nobody is missed.
            state.wakers.lock().unwrap().push(cx.waker().clone());
            match state.gone_ms.load(Ordering::SeqCst) >= until {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }))
    }
}

/// The system's randomness.
#[derive(Debug, Clone, Copy)]
struct Dice;

impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        std::fs::File::open("/dev/urandom").unwrap().read_exact(bytes).unwrap();
    }
}

/// An agent with its sandbox, and a client of it.
struct World {
    client: Client,
    address: String,
    party: Party,
    controller: Arc<SecretKey>,
    shutdown: Shutdown,
    served: Option<JoinHandle<Result<()>>>,
}

const IMAGE: &str = "sandbox-base:v1.2.3";

fn sandbox_id() -> SandboxId {
    static MADE: AtomicU64 = AtomicU64::new(1);
    format!("sandbox_{:032x}", MADE.fetch_add(1, Ordering::SeqCst)).parse().unwrap()
}

impl World {
    fn new() -> World {
        World::with(Arc::new(Real), FIRST_LEASE_MS)
    }

    fn with(clock: Arc<dyn Clock>, lease_ms: i64) -> World {
        World::of(sandbox(), clock, lease_ms)
    }

    fn of(sandbox: &dyn Sandbox, clock: Arc<dyn Clock>, lease_ms: i64) -> World {
        World::made(sandbox, clock, lease_ms, false)
    }

    fn made(
        sandbox: &dyn Sandbox,
        clock: Arc<dyn Clock>,
        lease_ms: i64,
        awaits_lease: bool,
    ) -> World {
        let limits = Limits::hosted(2_000, 512 << 20, 256 << 20);
        let spec = Spec { profile: Profile::Hosted, ..Spec::stay(limits) };
        let running = sandbox.start(&spec).unwrap();
        let controller = Arc::new(SecretKey::make(&Dice));
        let options = Options {
            sandbox_id: sandbox_id(),
            controller: controller.public_key(),
            image_version: IMAGE.to_owned(),
            run_until_ms: clock.now_ms() + lease_ms,
            awaits_lease,
            file_max_bytes: 200 << 20,
            linger_ms: 60_000,
        };
        let (shutdown, key) = (Shutdown::new(), SecretKey::make(&Dice));
        let random = Arc::new(Dice);
        let agent =
            Agent::new(options, running, key, clock.clone(), random.clone(), shutdown.clone());
        let party = agent.party().clone();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // In a runtime of its own: what a test does cannot hold it up.
        let served = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                agent.run(tokio::net::TcpListener::from_std(listener).unwrap()).await
            })
        });
        let signer: Arc<dyn Signer> = controller.clone();
        let client = Client::new(&address, party.clone(), signer, clock, random);
        World { client, address, party, controller, shutdown, served: Some(served) }
    }

    /// A client with another key, or of another party.
    fn client_as(&self, key: SecretKey, party: &Party) -> Client {
        Client::new(&self.address, party.clone(), Arc::new(key), Arc::new(Real), Arc::new(Dice))
    }

    /// Sends bytes as they are and gives what comes until the connection ends.
    async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = tokio::net::TcpStream::connect(&self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Waits for the agent's end.
    fn ended(mut self) -> Result<()> {
        self.served.take().unwrap().join().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.trigger();
        if let Some(served) = self.served.take() {
            let _ = served.join();
        }
    }
}

fn words(argv: &[&str]) -> ExecRequest {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    ExecRequest { argv, ..ExecRequest::default() }
}

fn shell(code: &str) -> ExecRequest {
    words(&["sh", "-c", code])
}

/// Runs a command to its end: standard output, errors, last frame.
async fn run(client: &Client, request: &ExecRequest) -> (String, String, Frame) {
    let id = client.exec(request).await.unwrap();
    let (out, err, frame) = client.stream(&id, 1).collect(64 << 20).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(out), text(err), frame)
}

fn refused<T>(answer: Result<T>) -> &'static str {
    match answer {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.code().name,
    }
}
