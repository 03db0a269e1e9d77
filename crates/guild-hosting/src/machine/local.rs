//! A machine that is this host: a process `guild sandbox-agent` for each sandbox.
//!
//! The processes do not end with the node. Each has a directory with what is needed to find it again. A node that is
//! started anew takes them over; one that is not does no harm, because the leases end.

mod place;
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guild_protocol::env::BoxFuture;
use rustix::process::Signal;

use super::image::{Images, Source};
use super::link::{Link, agent_id};
use super::{Abilities, Found, Instance, Machine, Order, Stopped, code, resize};
use crate::{Error, Result, SandboxId};
use place::{Known, Place};
use process::{Process, READY_FILE};

/// How often a process is looked at that is waited for.
const LOOK_MS: i64 = 20;
/// How long an agent has to end by itself, and then to be gone.
const END_MS: i64 = 10_000;

/// Where and how agents are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What stands in the rows of its sandboxes.
    pub name: String,
    /// The directory of all sandboxes, with an absolute path; made if it is not there.
    pub root: PathBuf,
    /// The program that is an agent, and the words that make it one.
    pub program: PathBuf,
    /// The words before the agent's own, as `["--data-dir", "/var/lib/guild", "sandbox-agent"]`.
    pub words: Vec<OsString>,
    /// All of the environment that agents get.
    pub environment: Vec<(OsString, OsString)>,
    /// How long an agent may take until it is ready.
    pub ready_ms: i64,
    /// How long an agent waits for its first lease.
    pub await_lease_ms: i64,
    /// How long the files of a stopped sandbox are kept if nobody removes them: at least as long as rows promise.
    pub linger_ms: u32,
}

impl Options {
    /// The usual ones.
    pub fn new(root: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Options {
        Options {
            name: "local".to_owned(),
            root: root.into(),
            program: program.into(),
            words: vec!["sandbox-agent".into()],
            environment: Vec::new(),
            ready_ms: 60_000,
            await_lease_ms: 600_000,
            linger_ms: 31 * 24 * 3_600 * 1_000,
        }
    }
}

/// This host. Cheap to clone.
#[derive(Clone)]
pub struct Local(Arc<Inner>);

struct Inner {
    options: Options,
    images: Arc<Images>,
    link: Link,
    /// Agents that are children of this process, to be waited for when they are gone.
    children: Mutex<BTreeMap<SandboxId, Child>>,
    /// Those that something is being done with: nothing else may be meanwhile.
    busy: Mutex<BTreeSet<SandboxId>>,
}

fn failed(what: &str) -> impl Fn(io::Error) -> Error + '_ {
    move |e| Error::refused(&code::MACHINE, format!("{what}: {e}"))
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding one of these.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps everybody else away from a sandbox.
struct Turn {
    inner: Arc<Inner>,
    sandbox_id: SandboxId,
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.inner.busy).remove(&self.sandbox_id);
    }
}

impl Local {
    /// Sells these images on this host. The root is made now: one that cannot be is an error of the settings.
    pub fn new(options: Options, images: Arc<Images>, link: Link) -> Result<Local> {
        if !options.root.is_absolute() {
            let why = "the directory of sandboxes must have an absolute path";
            return Err(Error::refused(&crate::code::MALFORMED, why));
        }
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let at = options.root.display().to_string();
        builder.recursive(true).create(&options.root).map_err(failed(&at))?;
        let (children, busy) = (Mutex::default(), Mutex::default());
        Ok(Local(Arc::new(Inner { options, images, link, children, busy })))
    }
}

impl Inner {
    fn place(&self, sandbox_id: &SandboxId) -> Place {
        Place::of(&self.options.root, sandbox_id)
    }

    fn turn(self: &Arc<Self>, sandbox_id: &SandboxId) -> Result<Turn> {
        if !lock(&self.busy).insert(sandbox_id.clone()) {
            let why = format!("something is being done with {sandbox_id}");
            return Err(Error::refused(&code::MACHINE, why));
        }
        Ok(Turn { inner: self.clone(), sandbox_id: sandbox_id.clone() })
    }

    async fn create(self: &Arc<Self>, order: &Order) -> Result<Instance> {
        let source = self.images.get(&order.image)?.clone();
        let _turn = self.turn(&order.sandbox_id)?;
        let place = self.place(&order.sandbox_id);
        let before = place.order().map_err(failed("read the order"))?;
        if before.as_ref().is_some_and(|before| before != order) {
            let why = format!("{} was ordered differently", order.sandbox_id);
            return Err(Error::refused(&code::MACHINE, why));
        }
        // Whoever was killed after the start has left a process, known or not.
        let mut process = self.process(&order.sandbox_id, &place)?;
        if process.is_none() {
            place.begin(order).map_err(failed("write the order"))?;
            place.forget_agent().map_err(failed("forget an agent"))?;
            process = Some(self.start(order, &source, &place)?);
        }
        self.ready(&order.sandbox_id, &place, process).await
    }

    /// The agent of a sandbox, if it is alive: the one that is known, or else whoever calls itself so.
    fn process(&self, sandbox_id: &SandboxId, place: &Place) -> Result<Option<Process>> {
        let known = place.known().map_err(failed("read about the agent"))?;
        if let Some(Known { process, .. }) = known {
            return Ok(Some(process).filter(|process| self.is_alive(sandbox_id, process)));
        }
        if place.order().map_err(failed("read the order"))?.is_none() {
            return Ok(None);
        }
        let found = process::below(&self.options.root).remove(&place.ready_file());
        Ok(found.and_then(|found| found.into_iter().next()))
    }

    /// Waits for one that is dead and ours, so that nothing of it is left.
    fn is_alive(&self, sandbox_id: &SandboxId, process: &Process) -> bool {
        let mut children = lock(&self.children);
        if let Some(child) = children.get_mut(sandbox_id)
            && !matches!(child.try_wait(), Ok(None))
        {
            children.remove(sandbox_id);
        }
        process.is_alive()
    }

    fn start(&self, order: &Order, source: &Source, place: &Place) -> Result<Process> {
        let mut command = Command::new(&self.options.program);
        command.args(&self.options.words).args(self.arguments(order, place)?);
        if let Source::Directory { path, .. } = source {
            command.arg("--image").arg(path);
        }
        let environment = self.options.environment.iter().map(|(name, value)| (name, value));
        command.env_clear().envs(environment).current_dir("/").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(place.log().map_err(failed("open the log"))?);
        // What the terminal tells the node is not for the agents.
        let child = command.process_group(0).spawn().map_err(failed("start an agent"))?;
        let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
        // It is our child: nobody else can have its number before we have waited for it.
        let process = Process::now(pid).unwrap_or(Process { pid, start: 0 });
        lock(&self.children).insert(order.sandbox_id.clone(), child);
        Ok(process)
    }

    fn arguments(&self, order: &Order, place: &Place) -> Result<Vec<OsString>> {
        let clock = self.link.clock();
        let wait_until = clock.now_ms().saturating_add(self.options.await_lease_ms);
        let ready_file = place.ready_file();
        let words = [
            ("--listen", "127.0.0.1:0".to_owned()),
            ("--sandbox-id", agent_id(&order.sandbox_id)?.to_string()),
            ("--controller", self.link.controller().npub()),
            ("--image-version", order.image.clone()),
            ("--cpu-milli", order.cpu_milli.to_string()),
            ("--memory-mib", order.ram_mib.to_string()),
            ("--disk-mib", order.disk_mib.to_string()),
            ("--run-until", wait_until.to_string()),
            ("--linger-ms", self.options.linger_ms.to_string()),
        ];
        let words = words.into_iter().flat_map(|(name, value)| [name.into(), value.into()]);
        let last = ["--await-lease".into(), READY_FILE.into(), ready_file.into_os_string()];
        Ok(words.chain(last).collect())
    }

    /// Waits until an agent is ready, and keeps what it says.
    async fn ready(
        &self,
        sandbox_id: &SandboxId,
        place: &Place,
        process: Option<Process>,
    ) -> Result<Instance> {
        let mut waited_ms: i64 = 0;
        loop {
            if let Some(instance) = self.instance(sandbox_id, place)? {
                return Ok(instance);
            }
            let is_gone = process.is_none_or(|process| !self.is_alive(sandbox_id, &process));
            if is_gone || waited_ms >= self.options.ready_ms {
                let what = if is_gone { "ended" } else { "did not get ready" };
                let why = format!("the agent of {sandbox_id} {what}: {}", place.log_tail());
                return Err(Error::refused(&code::MACHINE, why));
            }
            self.link.clock().sleep(LOOK_MS).await;
            waited_ms = waited_ms.saturating_add(LOOK_MS);
        }
    }

    /// The agent of a sandbox, if it is alive and was ready.
    fn instance(&self, sandbox_id: &SandboxId, place: &Place) -> Result<Option<Instance>> {
        let known = match place.known().map_err(failed("read about the agent"))? {
            Some(known) => known,
            None => match self.first_seen(sandbox_id, place)? {
                Some(known) => known,
                None => return Ok(None),
            },
        };
        if !self.is_alive(sandbox_id, &known.process) {
            return Ok(None);
        }
        let Known { address, agent, .. } = known;
        Ok(Some(Instance {
            sandbox_id: sandbox_id.clone(),
            name: sandbox_id.to_string(),
            endpoint: address.to_string(),
            agent_key: agent,
        }))
    }

    /// What an agent says when it is ready, together with the start of its process.
    fn first_seen(&self, sandbox_id: &SandboxId, place: &Place) -> Result<Option<Known>> {
        let Some(ready) = place.ready().map_err(failed("read what the agent says"))? else {
            return Ok(None);
        };
        let process = Process::now(ready.pid);
        let is_it = |process: &Process| process.ready_file() == Some(place.ready_file());
        let Some(process) = process.filter(is_it) else { return Ok(None) };
        if ready.sandbox_id != agent_id(sandbox_id)?.as_str() || !ready.address.ip().is_loopback() {
            let why = format!("the agent of {sandbox_id} says that it is another");
            return Err(Error::refused(&code::MACHINE, why));
        }
        let known = Known { address: ready.address, agent: ready.agent, process };
        place.keep_known(&known).map_err(failed("write about the agent"))?;
        Ok(Some(known))
    }

    fn list(&self) -> Result<Vec<Found>> {
        let root = &self.options.root;
        let mut ids: BTreeSet<SandboxId> = Place::all(root)
            .map_err(failed("read the directory of sandboxes"))?
            .into_iter()
            .collect();
        // Also those whose directory somebody has removed.
        ids.extend(process::below(root).keys().filter_map(|file| {
            let name = file.parent()?.file_name()?.to_str()?;
            name.parse::<SandboxId>().ok()
        }));
        let look = |sandbox_id: SandboxId| {
            let place = self.place(&sandbox_id);
            place.bound_log();
            let instance = self.instance(&sandbox_id, &place).unwrap_or_else(|error| {
                // One that cannot be read is there all the same: whoever looks for leaks must see it.
                tracing::warn!(%sandbox_id, %error, "an agent cannot be looked at");
                None
            });
            Found { sandbox_id, instance }
        };
        Ok(ids.into_iter().map(look).collect())
    }

    async fn stop(self: &Arc<Self>, sandbox_id: &SandboxId) -> Result<Stopped> {
        let _turn = self.turn(sandbox_id)?;
        let place = self.place(sandbox_id);
        if let Some(instance) = self.instance(sandbox_id, &place)? {
            let client = self.link.client_of(&instance)?;
            if let Some(health) = self.link.end(&client, END_MS).await {
                return Ok(Stopped { ran_ms: Some(health.ran_ms), keeps_files: true });
            }
        }
        self.kill(sandbox_id, &place).await?;
        Ok(Stopped { ran_ms: None, keeps_files: false })
    }

    async fn destroy(self: &Arc<Self>, sandbox_id: &SandboxId) -> Result<()> {
        let _turn = self.turn(sandbox_id)?;
        let place = self.place(sandbox_id);
        self.kill(sandbox_id, &place).await?;
        place.remove().map_err(failed("remove the directory of a sandbox"))
    }

    /// Ends all agents of a sandbox, first by a word, then by force.
    async fn kill(&self, sandbox_id: &SandboxId, place: &Place) -> Result<()> {
        for signal in [Signal::TERM, Signal::KILL] {
            let mut waited_ms: i64 = 0;
            while waited_ms < END_MS {
                let left = self.alive(sandbox_id, place);
                if left.is_empty() {
                    return Ok(());
                }
                if waited_ms == 0 {
                    left.iter().for_each(|process| process.signal(signal));
                }
                self.link.clock().sleep(LOOK_MS).await;
                waited_ms = waited_ms.saturating_add(LOOK_MS);
            }
        }
        let why = format!("the agent of {sandbox_id} does not end");
        Err(Error::refused(&code::MACHINE, why))
    }

    fn alive(&self, sandbox_id: &SandboxId, place: &Place) -> Vec<Process> {
        let found = process::below(&self.options.root).remove(&place.ready_file());
        let mut found = found.unwrap_or_default();
        found.retain(|process| self.is_alive(sandbox_id, process));
        found
    }
}

impl Machine for Local {
    fn name(&self) -> &str {
        &self.0.options.name
    }

    fn abilities(&self) -> Abilities {
        Abilities { pause: true, resize: true }
    }

    fn create(&self, order: &Order) -> BoxFuture<Result<Instance>> {
        let (inner, order) = (self.0.clone(), order.clone());
        Box::pin(async move { inner.create(&order).await })
    }

    fn find(&self, sandbox_id: &SandboxId) -> BoxFuture<Result<Option<Instance>>> {
        let (inner, sandbox_id) = (self.0.clone(), sandbox_id.clone());
        Box::pin(async move { inner.instance(&sandbox_id, &inner.place(&sandbox_id)) })
    }

    fn list(&self) -> BoxFuture<Result<Vec<Found>>> {
        let inner = self.0.clone();
        Box::pin(async move { inner.list() })
    }

    fn stop(&self, sandbox_id: &SandboxId) -> BoxFuture<Result<Stopped>> {
        let (inner, sandbox_id) = (self.0.clone(), sandbox_id.clone());
        Box::pin(async move { inner.stop(&sandbox_id).await })
    }

    fn destroy(&self, sandbox_id: &SandboxId) -> BoxFuture<Result<()>> {
        let (inner, sandbox_id) = (self.0.clone(), sandbox_id.clone());
        Box::pin(async move { inner.destroy(&sandbox_id).await })
    }

    fn image_digest(&self, image: &str) -> Result<Option<String>> {
        Ok(match self.0.images.get(image)? {
            Source::Host => None,
            Source::Directory { digest, .. } => Some(digest.to_string()),
        })
    }

    fn resize(
        &self,
        sandbox_id: &SandboxId,
        cpu_milli: i64,
        ram_mib: i64,
    ) -> BoxFuture<Result<()>> {
        let (inner, sandbox_id) = (self.0.clone(), sandbox_id.clone());
        Box::pin(async move {
            let place = inner.place(&sandbox_id);
            let Some(instance) = inner.instance(&sandbox_id, &place)? else {
                let why = format!("the agent of {sandbox_id} is gone");
                return Err(Error::refused(&code::MACHINE, why));
            };
            resize(&inner.link.client_of(&instance)?, cpu_milli, ram_mib).await
        })
    }
}
