//! The agents of a node: the worker that does their turns, and how it meets tools in other processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guild_bus::mail::{self, Mail};
use guild_bus::subject::{Prefix, WorkerTarget};
use guild_kernel::model::{Endpoints, Online};
use guild_kernel::outside::{
    CallKey, Desk, DeskOptions, Doorbell, Said, Speaker, Teller, TellerOptions, TellerParts, Voice,
    command_sink,
};
use guild_kernel::pmo;
use guild_kernel::tool::Tools;
use guild_kernel::turn::COMMAND_SINK;
use guild_kernel::worker::{ChunkSink, Options, Parts as WorkerParts, Piece, Saying, Worker};
use guild_protocol::amount::Msat;
use guild_protocol::env::Shutdown;
use guild_protocol::hash::to_hex;
use guild_roles::agents::Agents;
use guild_roles::live::Live;
use guild_roles::tools::{NodeTool, Offer};
use guild_store::outbox::Drainer;

use super::{Parts, Supervisor, nats_options};
use crate::config::{Kernel, Loaded};
use crate::error::{Error, Result, code};

/// How the kernel of this node meets others.
pub(super) struct Office {
    mail: Arc<dyn Mail>,
    /// What connects it, if others are to read it.
    service: Option<mail::Service>,
    prefix: Prefix,
    key: CallKey,
}

impl Office {
    pub(super) async fn open(loaded: &Loaded, parts: &Parts) -> Result<Office> {
        let (clock, random) = (parts.clock.clone(), parts.random.clone());
        let prefix = Prefix::of(&loaded.config.bus.namespace)?;
        let key = CallKey::load(&parts.store, &*random, clock.now_ms()).await?;
        let limits = mail::Limits::default();
        let Some(options) = nats_options(loaded) else {
            let mail = Arc::new(mail::Local::new(limits, clock));
            return Ok(Office { mail, service: None, prefix, key });
        };
        let (mail, service) = mail::Nats::new(&options, limits, clock, random)?;
        Ok(Office { mail: Arc::new(mail), service: Some(service), prefix, key })
    }

    /// Commands that turns have written down leave by these.
    pub(super) fn sinks(&self, drainer: Drainer, parts: &Parts) -> Drainer {
        let (mail, prefix, key) = (self.mail.clone(), self.prefix.clone(), self.key.clone());
        let tools = command_sink(mail, prefix, key, parts.clock.clone());
        let turns = pmo::sink(parts.store.clone(), parts.clock.clone());
        drainer.sink(COMMAND_SINK, tools, parts.wake()).sink(pmo::SINK, turns, parts.wake())
    }

    /// The agents of this node, with their tools, and heard by whoever asks for that.
    pub(super) fn agents(&self, offer: Offer, parts: &Parts) -> Agents {
        parts.agents().offering(offer).heard_by(Live::new(self.mail.clone(), self.prefix.clone()))
    }

    fn chunks(&self, parts: &Parts) -> ChunkSink {
        let voice = Voice::new(self.mail.clone(), self.prefix.clone(), parts.clock.clone());
        Arc::new(move |piece: Piece| {
            let Piece { key, channel_id, agent_turn_id, step_id, index, saying } = piece;
            let speaker = Speaker { key, channel_id, agent_turn_id, step_id };
            let said = match &saying {
                Saying::Start => Said::Start,
                Saying::Chunk(chunk) => Said::Chunk(chunk),
                Saying::End(usage) => Said::End(usage),
            };
            voice.say(&speaker, index, said);
        })
    }
}

/// What thinks, and what it can call in this process.
pub(super) struct Mind {
    pub(super) models: Endpoints,
    pub(super) tools: Tools,
    /// What tools may take from the environment.
    pub(super) environment: BTreeMap<String, String>,
}

/// What the settings offer to agents.
pub(super) fn offer(loaded: &Loaded) -> Result<Offer> {
    let settings = &loaded.config.kernel;
    let names = settings.tools.split(',').map(str::trim).filter(|name| !name.is_empty());
    let tools: guild_roles::Result<BTreeSet<NodeTool>> = names.map(str::parse).collect();
    let unknown = |error: guild_roles::Error| {
        Error::new(&code::CONFIG_BAD_VALUE, error.to_string()).at("kernel.tools")
    };
    Ok(Offer {
        tools: tools.map_err(unknown)?,
        run_max_s: loaded.config.sandbox_run.max_timeout_s,
        hire_max: Msat(settings.hire_max_msat.into()),
    })
}

/// Starts all of it, if it is wanted.
pub(super) fn start(
    loaded: &Loaded,
    mind: Mind,
    office: Office,
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Result<()> {
    let settings = &loaded.config.kernel;
    if !settings.enabled {
        return Ok(());
    }
    let mut own = [0; 4];
    parts.random.fill(&mut own);
    let holder = format!("node-{}-{}", std::process::id(), to_hex(&own));
    let environment = mind.environment.clone();
    start_worker(settings, mind, &holder, &office, parts, supervisor, shutdown)?;
    let Office { mail, service, prefix, key } = office;
    let desk = Desk::new(
        DeskOptions::default(),
        parts.store.clone(),
        mail.clone(),
        prefix.clone(),
        key,
        parts.clock.clone(),
    )
    .with_environment(environment);
    let stop = shutdown.clone();
    supervisor.start("tools", async move { Ok(desk.run(stop).await?) });
    // Without a server there is nobody to tell.
    let Some(service) = service else { return Ok(()) };
    let doorbell = Doorbell::new(
        targets(settings)?,
        mail.clone(),
        parts.bus.handle.clone(),
        prefix.clone(),
        parts.clock.clone(),
    );
    let stop = shutdown.clone();
    supervisor.start("doorbell", async move { Ok(doorbell.run(stop).await?) });
    let stop = shutdown.clone();
    supervisor.start("mail", async move {
        service.run(stop).await;
        Ok(())
    });
    let teller = Teller::new(
        TellerOptions { holder, ..TellerOptions::default() },
        TellerParts {
            store: parts.store.clone(),
            bus: parts.bus.handle.clone(),
            mail,
            prefix,
            clock: parts.clock.clone(),
            random: parts.random.clone(),
        },
    );
    let stop = shutdown.clone();
    supervisor.start("teller", async move {
        teller.run(stop).await;
        Ok(())
    });
    Ok(())
}

fn start_worker(
    settings: &Kernel,
    mind: Mind,
    holder: &str,
    office: &Office,
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Result<()> {
    let worker = Worker::new(
        options(settings, holder)?,
        WorkerParts {
            store: parts.store.clone(),
            bus: parts.bus.handle.clone(),
            clock: parts.clock.clone(),
            random: parts.random.clone(),
            model: Arc::new(Online::new(mind.models, parts.clock.clone())?),
            tools: mind.tools,
            environment: mind.environment,
            chunks: Some(office.chunks(parts)),
        },
    )?;
    let stop = shutdown.clone();
    supervisor.start("kernel", async move {
        worker.run(stop).await;
        Ok(())
    });
    Ok(())
}

/// Whose turns this process does.
fn targets(settings: &Kernel) -> Result<Vec<WorkerTarget>> {
    let mut targets = Vec::new();
    for target in settings.worker_targets.split(',').map(str::trim).filter(|t| !t.is_empty()) {
        targets.push(WorkerTarget::parse(target)?);
    }
    Ok(targets)
}

fn options(settings: &Kernel, holder: &str) -> Result<Options> {
    Ok(Options {
        targets: targets(settings)?,
        holder: holder.to_owned(),
        tasks: usize::try_from(settings.tasks).unwrap_or(usize::MAX),
        lease_ms: i64::from(settings.lease_ms),
        max_steps: i64::from(settings.max_steps),
        suspend_timeout_ms: i64::from(settings.suspend_timeout_ms),
        ..Options::default()
    })
}
