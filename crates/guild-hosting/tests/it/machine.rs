//! Machines with real agents and real sandboxes.

mod claim;
mod driver;
mod killed;
mod local;
mod shape;
mod visit;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use guild_hosting::SandboxId;
use guild_hosting::machine::driver::{self as driving, Counts, Driver};
use guild_hosting::machine::image::{Images, Source};
use guild_hosting::machine::link::Link;
use guild_hosting::machine::local::{Local, Options};
use guild_hosting::machine::visit::{self as visiting, Door};
use guild_hosting::machine::{Machine, Order};
use guild_hosting::price::Shape;
use guild_hosting::sandbox::{NewSandbox, Sandbox, Status};
use guild_protocol::env::{BoxFuture, Clock, Random};
use guild_protocol::identity::SecretKey;
use guild_sandbox::agent::{Client, ExecRequest, Health};

use super::world::{Node, new_job, new_sandbox};

const IMAGE: &str = "sandbox-base:v1.2.3";
const OTHER_IMAGE: &str = "sandbox-base:v9.9.9";
const SMALL: Shape = Shape { cpu_milli: 1_000, ram_mib: 256, disk_mib: 64 };
/// How long anything may take before a test gives up. The machine may be busy.
const PATIENCE_MS: i64 = 60_000;

/// The host's own clock and randomness.
#[derive(Debug, Clone, Copy)]
struct Real;

/// A clock that runs faster, from a moment on: agents can be told to have the same.
#[derive(Debug, Clone, Copy)]
struct Fast {
    from_ms: i64,
    times: i64,
}

impl Fast {
    fn new(times: i64) -> Fast {
        Fast { from_ms: Real.now_ms(), times }
    }

    fn environment(self) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
        let pace = format!("{} {}", self.from_ms, self.times);
        vec![("HOSTING_AGENT_PACE".into(), pace.into())]
    }
}

impl Clock for Fast {
    fn now_ms(&self) -> i64 {
        self.from_ms + (Real.now_ms() - self.from_ms) * self.times
    }

    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        Real.sleep(duration_ms.max(0).div_euclid(self.times) + 1)
    }
}

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

impl Random for Real {
    fn fill(&self, bytes: &mut [u8]) {
        fs::File::open("/dev/urandom").unwrap().read_exact(bytes).unwrap();
    }
}

/// A host that sells sandboxes, in a directory of its own. What it has left is removed with it.
struct Host {
    directory: tempfile::TempDir,
    key: Arc<SecretKey>,
}

impl Host {
    fn new() -> Host {
        Host { directory: tempfile::tempdir().unwrap(), key: Arc::new(SecretKey::make(&Real)) }
    }

    fn root(&self) -> std::path::PathBuf {
        self.directory.path().join("sandboxes")
    }

    fn link(&self) -> Link {
        Link::new(self.key.clone(), Arc::new(Real), Arc::new(Real))
    }

    fn options(&self) -> Options {
        Options::new(self.root(), env!("CARGO_BIN_EXE_hosting-agent"))
    }

    /// A machine as a node makes it when it starts: it knows nothing but what is on the disk.
    fn machine(&self) -> Local {
        self.machine_with(self.options())
    }

    fn machine_with(&self, options: Options) -> Local {
        let images = Images::new().with(IMAGE.parse().unwrap(), Source::Host);
        Local::new(options, Arc::new(images), self.link()).unwrap()
    }

    /// The numbers of all agents of this host that are alive.
    fn agents(&self) -> BTreeSet<i32> {
        processes_with(&self.root())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for pid in self.agents() {
            kill(pid);
        }
    }
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// Processes that are alive and have a path below this one in their line.
fn processes_with(root: &Path) -> BTreeSet<i32> {
    let word = root.to_str().unwrap();
    let lives = |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'));
    let pid = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        (String::from_utf8_lossy(&line).contains(word) && lives(&stat)).then_some(pid)
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(pid).collect()
}

fn order() -> Order {
    Order {
        sandbox_id: SandboxId::make(&Real, &Real),
        cpu_milli: 1_000,
        ram_mib: 256,
        disk_mib: 64,
        image: IMAGE.to_owned(),
    }
}

/// Waits until something is so; says what was waited for if it never is.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut waited_ms = 0;
    while !is_so().await {
        assert!(waited_ms < PATIENCE_MS, "it never came to this: {what}");
        Real.sleep(20).await;
        waited_ms += 20;
    }
}

fn shell(code: &str) -> ExecRequest {
    let argv = ["sh", "-c", code].map(str::to_owned).to_vec();
    ExecRequest { argv, ..ExecRequest::default() }
}

/// Runs a command to its end, and gives what it printed.
async fn printed(client: &Client, request: &ExecRequest) -> String {
    let id = client.exec(request).await.unwrap();
    let (out, err, _) = client.stream(&id, 1).collect(1 << 20).await.unwrap();
    String::from_utf8_lossy(&[out, err].concat()).into_owned()
}

/// A node that sells sandboxes on a host: rows, meter, driver. The driver can be killed and started at will.
struct Shop {
    node: Node,
    host: Host,
    clock: Arc<dyn Clock>,
    runtime: tokio::runtime::Runtime,
    driven: std::cell::RefCell<Option<(tokio::task::JoinHandle<()>, Counts)>>,
    options: driving::Options,
    environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

impl Shop {
    fn new() -> Shop {
        Shop::on(Node::sqlite(guild_store::Hooks::default()))
    }

    fn on(node: Node) -> Shop {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        let options = driving::Options {
            tick_ms: 50,
            look_ms: 200,
            backoff_min_ms: 50,
            backoff_max_ms: 500,
            ..driving::Options::default()
        };
        let shop = Shop {
            node,
            host: Host::new(),
            clock: Arc::new(Real),
            runtime,
            driven: std::cell::RefCell::default(),
            options,
            environment: Vec::new(),
        };
        shop.fund();
        shop
    }

    /// The same with a clock that runs so many times as fast, also for the agents.
    fn faster(mut self, times: i64) -> Shop {
        let clock = Fast::new(times);
        self.environment = clock.environment();
        self.clock = Arc::new(clock);
        self
    }

    /// Money and a job for user 1.
    fn fund(&self) {
        self.node.fund(1, 10_000_000);
        self.node.create_job(&new_job(1), self.now_ms()).unwrap();
    }

    fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    fn link(&self) -> Link {
        Link::new(self.host.key.clone(), self.clock.clone(), Arc::new(Real))
    }

    /// A machine that knows nothing but what is on the disk.
    fn machine(&self) -> Local {
        let images = [IMAGE, OTHER_IMAGE]
            .into_iter()
            .fold(Images::new(), |images, name| images.with(name.parse().unwrap(), Source::Host));
        let options = Options { environment: self.environment.clone(), ..self.host.options() };
        Local::new(options, Arc::new(images), self.link()).unwrap()
    }

    /// Starts a driver that knows nothing.
    fn drive(&self) -> Counts {
        self.drive_on(Arc::new(self.machine()))
    }

    fn drive_on(&self, machine: Arc<dyn Machine>) -> Counts {
        self.kill_driver();
        let never: guild_store::outbox::Wake = Box::new(|| Box::pin(std::future::pending()));
        let (store, options) = (self.node.store.clone(), self.options.clone());
        let driver = Driver::new(options, machine, self.link(), store, never).unwrap();
        let counts = driver.counts();
        let task = self.runtime.spawn(driver.run(guild_protocol::env::Shutdown::new()));
        *self.driven.borrow_mut() = Some((task, counts.clone()));
        counts
    }

    /// Ends the driver wherever it is.
    fn kill_driver(&self) {
        if let Some((task, _)) = self.driven.borrow_mut().take() {
            task.abort();
            let _ = self.runtime.block_on(task);
        }
    }

    /// Orders a sandbox of job 1.
    fn order(&self, n: u32) -> SandboxId {
        self.order_as(n, |_| {})
    }

    fn order_as(&self, n: u32, change: impl Fn(&mut NewSandbox)) -> SandboxId {
        let mut new = NewSandbox { image: IMAGE.to_owned(), shape: SMALL, ..new_sandbox(n) };
        change(&mut new);
        self.node.order(&new, self.now_ms());
        new.sandbox_id
    }

    fn row(&self, n: u32) -> Sandbox {
        self.node.sandbox(n)
    }

    /// Waits until a row is so.
    fn until_row(&self, n: u32, what: &str, is_so: impl Fn(&Sandbox) -> bool) -> Sandbox {
        self.until(what, || is_so(&self.row(n)));
        self.row(n)
    }

    fn until_status(&self, n: u32, status: Status) -> Sandbox {
        let row = self.until_row(n, &format!("{n} is {status:?}"), |row| row.status == status);
        assert_eq!(row.status, status);
        row
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let mut waited_ms = 0;
        while !is_so() {
            assert!(waited_ms < PATIENCE_MS, "it never came to this: {what}");
            self.pass(20);
            waited_ms += 20;
        }
    }

    /// Lets time go by.
    fn pass(&self, ms: i64) {
        self.runtime.block_on(async { Real.sleep(ms).await });
    }

    fn client(&self, row: &Sandbox) -> Client {
        let (endpoint, key) = (row.endpoint.as_deref().unwrap(), row.agent_key.as_deref().unwrap());
        self.link().client(&row.sandbox_id, endpoint, key.parse().unwrap()).unwrap()
    }

    fn health(&self, row: &Sandbox) -> Health {
        self.runtime.block_on(self.client(row).health()).unwrap()
    }

    fn door(&self) -> Door {
        Door::new(self.node.store.clone(), self.link(), visiting::Limits::default())
    }

    /// Nothing of any sandbox is left on the host.
    fn assert_nothing_left(&self) {
        self.until("no agent is left", || self.host.agents().is_empty());
        let names = || fs::read_dir(self.host.root()).into_iter().flatten().flatten();
        self.until("no directory is left", || names().next().is_none());
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.kill_driver();
    }
}
