//! Machines with real agents and real sandboxes.

mod local;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use guild_hosting::SandboxId;
use guild_hosting::machine::Order;
use guild_hosting::machine::image::{Images, Source};
use guild_hosting::machine::link::Link;
use guild_hosting::machine::local::{Local, Options};
use guild_protocol::env::{BoxFuture, Clock, Random};
use guild_protocol::identity::SecretKey;
use guild_sandbox::agent::{Client, ExecRequest};

const IMAGE: &str = "sandbox-base:v1.2.3";
/// How long anything may take before a test gives up. The machine may be busy.
const PATIENCE_MS: i64 = 60_000;

/// The host's own clock and randomness.
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
