//! `guild sandbox-agent`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use guild_protocol::env::{Clock, Shutdown, Signer};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_sandbox::agent::{self, Agent, FIRST_LEASE_MS, SandboxId};
use guild_sandbox::{Image, Limits, Profile, Running, Spec};
use serde::Serialize;
use tokio::net::TcpListener;

use super::Context;
use super::up::{node_runtime, stop_on_signal};
use crate::error::{Error, Result, code};
use crate::input::{Existing, write_whole};
use crate::keystore::{OWNER_ONLY, refuse_readable_by_others};
use crate::output::Answer;
use crate::real::{SystemClock, SystemRandom};

const MIB: u64 = 1 << 20;

/// Serve one sandbox over HTTP to the controller whose key is given
///
/// Starts a sandbox that stays, and takes commands, files, secrets and leases for it, each signed by the controller.
/// When it is ready it prints one line of JSON with its address and its key. It stops the sandbox when its lease is
/// over, on a terminate signal, and when it is killed. docs/sandbox-agent.md says what it serves.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The sandbox's id, as sandbox_ and 32 hex digits
    #[arg(long, value_name = "ID", value_parser = sandbox_id)]
    sandbox_id: SandboxId,
    /// The public key that signs requests and leases, as npub or hex
    #[arg(long, value_name = "KEY", value_parser = controller)]
    controller: PublicKey,
    /// Show the directories below DIR instead of the host's /usr
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// What the image is called in the attestation
    #[arg(long, value_name = "NAME", default_value = "host")]
    image_version: String,
    /// How much it may compute at once, in thousandths of a core
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    cpu_milli: u32,
    /// How much memory it has; its files count
    #[arg(long, value_name = "MIB", default_value_t = 1_024)]
    memory_mib: u64,
    /// How much it can write
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    disk_mib: u64,
    /// Until when it may run without a lease, in Unix milliseconds [default: ten minutes from now]
    #[arg(long, value_name = "MS")]
    run_until: Option<i64>,
    /// Let nothing run before the first lease; --run-until says how long to wait for it
    #[arg(long)]
    await_lease: bool,
    /// How long files can be fetched after the sandbox has ended
    #[arg(long, value_name = "MS", default_value_t = 60_000)]
    linger_ms: u32,
    /// The agent's own secret key; made if there is none [default: a new one, in memory]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Write the line that says that it is ready into a file too, whole or not at all
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

fn sandbox_id(text: &str) -> Result<SandboxId, String> {
    text.parse().map_err(|e: guild_protocol::Error| e.to_string())
}

fn controller(text: &str) -> Result<PublicKey, String> {
    text.parse().map_err(|e: guild_protocol::Error| e.to_string())
}

/// What a program that started it must know.
#[derive(Serialize)]
struct Ready<'a> {
    address: String,
    sandbox_id: &'a SandboxId,
    agent: &'a PublicKey,
    image_version: &'a str,
    run_until_ms: i64,
    pid: u32,
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    cx.config()?;
    let key = key(args.key_file.as_deref())?;
    // Nobody reads its memory, and it leaves none behind when it fails.
    let hidden = rustix::process::DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(hidden)
        .map_err(|e| Error::new(&code::IO_FAILED, format!("memory cannot be hidden: {e}")))?;
    let running = start(args, cx)?;
    let options = agent::Options {
        sandbox_id: args.sandbox_id.clone(),
        controller: args.controller,
        image_version: args.image_version.clone(),
        run_until_ms: args.run_until.unwrap_or_else(|| SystemClock.now_ms() + FIRST_LEASE_MS),
        awaits_lease: args.await_lease,
        file_max_bytes: args.disk_mib.saturating_mul(MIB),
        linger_ms: i64::from(args.linger_ms),
    };
    let run_until_ms = options.run_until_ms;
    node_runtime()?.block_on(async {
        let shutdown = Shutdown::new();
        stop_on_signal(&shutdown)?;
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let agent = Agent::new(options, running, key, clock, random, shutdown);
        let unheard =
            |e: std::io::Error| Error::new(&code::NODE_LISTEN, format!("{}: {e}", args.listen));
        let listener = TcpListener::bind(args.listen).await.map_err(unheard)?;
        let address = listener.local_addr().map_err(unheard)?.to_string();
        let ready = Ready {
            address,
            sandbox_id: &args.sandbox_id,
            agent: &agent.party().agent.clone(),
            image_version: &args.image_version,
            run_until_ms,
            pid: std::process::id(),
        };
        if let Some(path) = &args.ready_file {
            let line = serde_json::to_vec(&ready)
                .map_err(|e| Error::new(&code::IO_FAILED, e.to_string()))?;
            write_whole(path, &line, OWNER_ONLY, Existing::Replace)?;
        }
        cx.out.object(true, ready)?;
        cx.out.flush()?;
        Ok::<_, Error>(agent.run(listener).await?)
    })?;
    Ok(Answer::Yes)
}

fn start(args: &Args, cx: &Context<'_>) -> Result<Running> {
    let memory = args.memory_mib.saturating_mul(MIB);
    let limits = Limits::hosted(args.cpu_milli, memory, args.disk_mib.saturating_mul(MIB));
    let mut spec = Spec { profile: Profile::Hosted, ..Spec::stay(limits) };
    if let Some(image) = &args.image {
        let image = std::path::absolute(image).map_err(|e| Error::io(image, &e))?;
        spec.image = Image::Directory(image);
    }
    let config = cx.config_in_peace()?.config;
    Ok(crate::sandbox::open(&config, cx.environment)?.start(&spec)?)
}

/// The key in the file, which is made if it is not there.
fn key(path: Option<&Path>) -> Result<SecretKey> {
    let Some(path) = path else { return Ok(SecretKey::make(&SystemRandom)) };
    match std::fs::read_to_string(path) {
        Ok(text) => {
            refuse_readable_by_others(path)?;
            text.trim().parse().map_err(|e| Error::from(e).in_file(path))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let key = SecretKey::make(&SystemRandom);
            let text = guild_protocol::hash::to_hex(&key.to_bytes());
            write_whole(path, text.as_bytes(), OWNER_ONLY, Existing::Keep)?;
            tracing::info!(agent = %key.public_key(), "a key was made");
            Ok(key)
        }
        Err(e) => Err(Error::io(path, &e)),
    }
}
