//! Sandboxes for others, by the minute: the desk where they are bought, the meter, and this host as the machine that
//! they run on.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use guild_hosting::access::{Origin, Reach, bypass_allowed, nonce, rate, session, siwe};
use guild_hosting::api::ClockView;
use guild_hosting::clamp::Policy;
use guild_hosting::desk::{self, Desk, Options};
use guild_hosting::machine::claim::{Claim, MachineName};
use guild_hosting::machine::driver::{self, Counts, Driver};
use guild_hosting::machine::image::{Images, Source, tree_digest};
use guild_hosting::machine::link::Link;
use guild_hosting::machine::local::{self, Local};
use guild_hosting::machine::pins;
use guild_hosting::machine::visit::{Door, Limits};
use guild_hosting::machine::{Abilities, Machine};
use guild_hosting::price::Rates;
use guild_hosting::upkeep::{self, Upkeep};
use guild_protocol::env::{BoxFuture, Shutdown};
use guild_protocol::identity::SecretKey;
use guild_store::outbox::Wake;

use super::{Parts, Supervisor};
use crate::config::{HostedSource, Hosting, Loaded};
use crate::error::{Error, Result};
use crate::sandbox::THIS_PROGRAM;

const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// What is open.
pub(super) struct Open {
    pub(super) desk: Desk,
    /// What its services meet, by their names.
    pub(super) counts: [(&'static str, Counts); 2],
}

/// Starts all of it, if the settings want it.
pub(super) async fn start(
    loaded: &Loaded,
    key: SecretKey,
    address: SocketAddr,
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Result<Option<Open>> {
    let settings = &loaded.config.hosting;
    let has_proxies = !settings.trusted_proxies.0.is_empty();
    let set = if settings.sign_in_without_proof { origins(settings)? } else { Vec::new() };
    let reach = Reach { address, has_proxies, origins: &set };
    let bypass = bypass_allowed(settings.sign_in_without_proof, reach)?;
    if !settings.enabled {
        return Ok(None);
    }
    if !bypass {
        // Whoever signed in without a proof while that was switched on has proven nothing.
        parts.store.write(session::end_bypassed).await?;
    }
    let link = Link::new(Arc::new(key), parts.clock.clone(), parts.random.clone());
    let root = loaded.config.data_dir.join("sandboxes");
    let root = std::path::absolute(&root).map_err(|e| Error::io(&root, &e))?;
    let images = Arc::new(images(settings, &root)?);
    let data_dir = loaded.config.data_dir.clone().into_os_string();
    let name: MachineName = settings.machine.parse()?;
    let claim = claim(name.clone(), &root, parts).await?;
    let machine = local::Options {
        name: name.to_string(),
        words: vec!["--data-dir".into(), data_dir, "sandbox-agent".into()],
        ..local::Options::new(root, THIS_PROGRAM)
    };
    let machine = Local::new(machine, images.clone(), link.clone())?;
    let abilities = machine.abilities();
    let driver = Driver::new(
        driver::Options::default(),
        Arc::new(machine),
        link.clone(),
        parts.store.clone(),
        wake(parts),
    )?
    .claiming(claim);
    let (driven, stop) = (driver.counts(), shutdown.clone());
    supervisor.start("machine", async move {
        driver.run(stop).await;
        Ok(())
    });
    let meter = match parts.database_clock {
        Some(_) => upkeep::Options::on_server(),
        None => upkeep::Options::default(),
    };
    let meter = Upkeep::new(meter, parts.store.clone(), parts.clock.clone());
    let (metered, stop) = (meter.counts(), shutdown.clone());
    supervisor.start("meter", async move {
        meter.run(stop).await;
        Ok(())
    });
    let door = Door::new(parts.store.clone(), link, Limits::default());
    let options = options(settings, name, address, abilities, bypass)?;
    let (clock, random) = (parts.clock.clone(), parts.random.clone());
    let (store, bus) = (parts.store.clone(), parts.bus.handle.clone());
    let desk = Desk::new(options, images, door, store, bus, clock, random);
    Ok(Some(Open { desk, counts: [("machine", driven), ("meter", metered)] }))
}

/// Those that were set.
fn origins(settings: &Hosting) -> Result<Vec<Origin>> {
    let texts = settings.origins.split(',').map(str::trim).filter(|text| !text.is_empty());
    Ok(texts.map(str::parse).collect::<std::result::Result<_, _>>()?)
}

fn options(
    settings: &Hosting,
    machine: MachineName,
    address: SocketAddr,
    abilities: Abilities,
    bypass: bool,
) -> Result<Options> {
    let mut origins = origins(settings)?;
    if origins.is_empty() {
        for host in ["127.0.0.1", "localhost"] {
            origins.push(format!("http://{host}:{}", address.port()).parse()?);
        }
    }
    let rates = Rates {
        vcpu: i64::from(settings.vcpu_micro_usd),
        ram_gib: i64::from(settings.ram_gib_micro_usd),
    };
    Ok(Options {
        policy: Policy { rates, ..Policy::default() },
        siwe: siwe::Policy {
            origins,
            chain_ids: settings.chain_ids.0.clone(),
            skew_ms: siwe::SKEW_MS,
        },
        session_ms: DAY_MS,
        rate: requests(settings.requests_per_minute),
        nonces: nonce::Limits::default(),
        machine: machine.to_string(),
        abilities,
        bypass,
    })
}

/// The right of this data directory to its machine: another that has it drives what runs there.
async fn claim(name: MachineName, root: &Path, parts: &Parts) -> Result<Claim> {
    let claim = Claim::of(name, root, &*parts.random)?;
    let (taken, clock) = (claim.clone(), parts.clock.clone());
    parts.store.write(move |tx| taken.require(tx, clock.now_ms())).await?;
    Ok(claim)
}

/// How many requests pass: so many of one token, twice as many from one place, and a burst of a fifth of that. Whoever
/// signs in leaves rows behind: a twentieth.
fn requests(per_minute: u32) -> rate::Options {
    let rate = |per_minute: u32| rate::Rate { per_minute, burst: (per_minute / 5).max(1) };
    rate::Options {
        per_token: rate(per_minute),
        per_place: rate(per_minute.saturating_mul(2)),
        sign_ins: rate::Rate {
            per_minute: (per_minute / 20).max(1),
            burst: (per_minute / 20).max(1),
        },
        ..rate::Options::default()
    }
}

/// The images that are sold. A directory is read once now: what is sold is what was meant, and what it was before.
fn images(settings: &Hosting, root: &Path) -> Result<Images> {
    let mut images = Images::new();
    for (name, source) in &settings.images.0 {
        let source = match source {
            HostedSource::Host => Source::Host,
            HostedSource::Directory(path, wanted) => {
                let digest = tree_digest(path).map_err(|e| Error::io(path, &e))?;
                if wanted.is_some_and(|wanted| wanted != digest) {
                    let why = format!("{name}: {} has the digest {digest}", path.display());
                    let changed = &guild_hosting::machine::code::IMAGE_CHANGED;
                    return Err(guild_hosting::Error::refused(changed, why).into());
                }
                tracing::info!(image = name, %digest, "an image is offered");
                Source::Directory { path: path.clone(), digest }
            }
        };
        images = images.with(name.parse()?, source);
    }
    pins::keep(root, &images)?;
    Ok(images)
}

impl Parts {
    /// The operator says that the present time is right, while no node runs.
    pub(crate) async fn accept_clock(&self) -> Result<ClockView> {
        Ok(desk::accept_clock(&self.store, &*self.clock).await?)
    }
}

/// Ready when a bell of hosting rings.
fn wake(parts: &Parts) -> Wake {
    let mut listener = parts.bus.handle.listen(guild_hosting::TOPIC);
    Box::new(move || {
        let bell = listener.hear();
        Box::pin(async move {
            bell.await;
        }) as BoxFuture<()>
    })
}
