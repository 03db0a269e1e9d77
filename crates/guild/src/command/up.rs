//! `guild up`

use guild_protocol::env::Shutdown;
use guild_roles::explorer::msat;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::Context;
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::node::{Character, Node, Origin, start_meter};
use crate::output::Answer;

/// Run this node until it is told to stop
///
/// Holds the data directory, answers on the listener, and ends cleanly on Ctrl-C or a terminate signal. A second
/// `guild up` on the same data directory is refused with the address of the first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

#[derive(Serialize)]
struct Ready<'a> {
    url: &'a str,
    data_dir: &'a std::path::Path,
    /// The server that carries its bells; it may be out of reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    bus: Option<&'a str>,
    /// Where strangers publish and read, if they may.
    #[serde(skip_serializing_if = "Option::is_none")]
    relay: Option<String>,
    /// Under which key it works for others, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    pid: u32,
}

pub(crate) fn run(_: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let origin = Origin::Keystore(cx.environment);
    let sandbox = crate::sandbox::open(&loaded.config, cx.environment);
    let models = crate::models::read(&loaded, cx.environment)?;
    let tool_env = crate::models::tool_env(&loaded, cx.environment);
    let metrics = start_meter();
    let character = Character { origin, worker: None, sandbox, models, tool_env, metrics };
    let runtime = node_runtime()?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        // Before anybody can know that there is something to stop.
        stop_on_signal(&shutdown)?;
        let node = Node::start(&loaded, character, &shutdown).await?;
        let ready = Ready {
            url: node.url(),
            data_dir: &loaded.config.data_dir,
            bus: node.bus_address(),
            relay: loaded.config.relay.enabled.then(|| relay_of(node.url())),
            provider: node.handles().provider.as_ref().map(|one| one.public_key().npub()),
            pid: std::process::id(),
        };
        if cx.out.json() {
            cx.out.object(true, ready)?;
        } else {
            greet(&ready, &loaded, cx)?;
        }
        cx.out.flush()?;
        node.run().await
    })?;
    if !cx.out.json() {
        cx.out.line("stopped")?;
    }
    Ok(Answer::Yes)
}

/// The first words of a node: where it is, what it does, how it ends.
fn greet(ready: &Ready<'_>, loaded: &Loaded, cx: &mut Context<'_>) -> Result<()> {
    cx.out.line(&format!("Guildhall is ready at {}", ready.url))?;
    cx.out.line(&format!("data in {}", ready.data_dir.display()))?;
    if let Some(bus) = ready.bus {
        cx.out.line(&format!("bells over {bus}"))?;
    }
    if let Some(relay) = &ready.relay {
        cx.out.line(&format!("relay at {relay}"))?;
    }
    if let Some(npub) = &ready.provider {
        let price = msat(loaded.config.provider.price_msat.into());
        cx.out.line(&format!("works for others at {price} a job, as {npub}"))?;
    }
    cx.out.line("Ctrl-C stops it")
}

fn relay_of(url: &str) -> String {
    format!("{}/relay", url.replacen("http", "ws", 1))
}

/// A runtime for a process that is a node.
pub(super) fn node_runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(&code::IO_FAILED, format!("no runtime could be started: {e}")))
}

/// Triggers the shutdown on the first signal. A second one, of either kind, ends the process at once, as if there were
/// no handler: what was answered is in the database.
#[expect(
    clippy::disallowed_methods,
    reason = "waits for the operating system, beside all services; and ends at once when asked twice"
)]
pub(super) fn stop_on_signal(shutdown: &Shutdown) -> Result<()> {
    let failed = |e: std::io::Error| Error::new(&code::IO_FAILED, format!("signals: {e}"));
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut stream = signal(kind).map_err(failed)?;
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if shutdown.is_triggered() {
                    tracing::warn!("stopped at once");
                    std::process::exit(128 + kind.as_raw_value());
                }
                shutdown.trigger();
            }
        });
    }
    Ok(())
}
