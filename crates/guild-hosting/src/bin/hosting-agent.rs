//! A program that is nothing but a sandbox-agent, for tests: it understands the words that `guild sandbox-agent` does.
//! As in `guild`, the same program is its own launcher.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown};
use guild_protocol::identity::SecretKey;
use guild_sandbox::agent::{self, Agent};
use guild_sandbox::{Image, Limits, Ns, Options, Profile, Sandbox, Spec, launcher};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    if launcher::is_asked_for() {
        return launcher::main();
    }
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), error.to_string().as_bytes());
            ExitCode::from(3)
        }
    }
}

type Failure = Box<dyn std::error::Error>;

/// The host's own randomness, and its clock, which runs faster from a moment on if a test wants that.
#[derive(Clone, Copy)]
struct Real;

/// The moment and how many times as fast, by the variable that tests set.
fn pace() -> (i64, i64) {
    #[expect(clippy::disallowed_methods, reason = "a test says how it wants its agents")]
    let said = std::env::var("HOSTING_AGENT_PACE").unwrap_or_default();
    let numbers = said.split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    numbers.unwrap_or((0, 1))
}

impl Clock for Real {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
    fn now_ms(&self) -> i64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
        let (from, times) = pace();
        from.saturating_add(now.saturating_sub(from).saturating_mul(times))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let duration_us = duration_ms.saturating_mul(1_000).checked_div(pace().1).unwrap_or(0);
        let duration = Duration::from_micros(u64::try_from(duration_us).unwrap_or(0));
        Box::pin(tokio::time::sleep(duration))
    }
}

impl Random for Real {
    fn fill(&self, bytes: &mut [u8]) {
        let filled = std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(bytes));
        if filled.is_err() {
            // A key that is not random must never be used.
            std::process::abort();
        }
    }
}

/// The words behind `sandbox-agent`: options with one value each, but for the one that has none.
fn options() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut words = std::env::args().skip_while(|word| word != "sandbox-agent").skip(1);
    while let Some(name) = words.next() {
        let value =
            if name == "--await-lease" { String::new() } else { words.next().unwrap_or_default() };
        found.insert(name, value);
    }
    found
}

fn serve() -> Result<(), Failure> {
    let words = options();
    let word = |name: &str| words.get(name).ok_or_else(|| format!("{name} is missing"));
    let number = |name: &str| Ok::<u64, Failure>(word(name)?.parse()?);
    let mib = |name: &str| number(name).map(|mib| mib << 20);
    let limits =
        Limits::hosted(word("--cpu-milli")?.parse()?, mib("--memory-mib")?, mib("--disk-mib")?);
    let mut spec = Spec { profile: Profile::Hosted, ..Spec::stay(limits) };
    if let Some(path) = words.get("--image") {
        spec.image = Image::Directory(path.into());
    }
    let running = Ns::new(Options::new("/proc/self/exe"))?.start(&spec)?;
    let options = agent::Options {
        sandbox_id: word("--sandbox-id")?.parse()?,
        controller: word("--controller")?.parse()?,
        image_version: word("--image-version")?.clone(),
        run_until_ms: word("--run-until")?.parse()?,
        awaits_lease: words.contains_key("--await-lease"),
        file_max_bytes: mib("--disk-mib")?,
        linger_ms: word("--linger-ms")?.parse()?,
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let key = SecretKey::make(&Real);
        let sandbox_id = options.sandbox_id.clone();
        let agent =
            Agent::new(options, running, key, Arc::new(Real), Arc::new(Real), shutdown.clone());
        let listener = tokio::net::TcpListener::bind(word("--listen")?).await?;
        let ready = serde_json::json!({
            "address": listener.local_addr()?,
            "sandbox_id": sandbox_id,
            "agent": agent.party().agent,
            "pid": std::process::id(),
        });
        let path = word("--ready-file")?;
        std::fs::write(format!("{path}.draft"), ready.to_string())?;
        std::fs::rename(format!("{path}.draft"), path)?;
        let served = std::pin::pin!(agent.run(listener));
        let ended = std::pin::pin!(async {
            terminate.recv().await;
            shutdown.trigger();
            std::future::pending::<()>().await;
        });
        futures_util::future::select(served, ended).await;
        Ok(())
    })
}
