//! The machine of a fleet. Its agents run on the time of the world: each keeps the product's own [`Term`], takes only
//! leases that are signed for it, and ends its sandbox when the term is over. What really ran is written down here, and
//! nowhere else: it is what the checker believes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guild_hosting::machine::link::{Line, Link, agent_id};
use guild_hosting::machine::{Abilities, Found, Instance, Machine, Order, Stopped, code};
use guild_hosting::{Error, Result, SandboxId};
use guild_protocol::env::{BoxFuture, Clock, Signer, UnixMs};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_sandbox::Class;
use guild_sandbox::agent::{
    self, Attestation, EndedBy, Health, Lease, LeaseStands, Party, State as Does, Term,
};

use super::Bug;
use crate::clock::ProcessClock;
use crate::fault::Kind;
use crate::rates::Rates;
use crate::world::World;

/// The name of the machine.
pub(super) const NAME: &str = "yard";
/// How often an agent looks whether its time is over, and at least.
const TICK_MS: i64 = 200;
const LOOK_MS: i64 = 2_000;
/// How long an agent may take to end what runs, and how long it waits for its first lease.
const END_MAX_MS: u64 = 700;
const AWAIT_LEASE_MS: i64 = 600_000;
/// How long something takes, and how long if it takes long.
const USUAL_MS: u64 = 150;
const LONG_MS: u64 = 25_000;

/// When a sandbox really ran, by the time of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// Commands were let in.
    pub(super) began_ms: UnixMs,
    /// Nothing ran any more.
    pub(super) ended_ms: Option<UnixMs>,
    /// Why, as its agent knows it. None, if the agent died.
    pub(super) ended_by: Option<EndedBy>,
}

impl Run {
    pub(super) fn ran_ms(&self, now_ms: UnixMs) -> i64 {
        self.ended_ms.unwrap_or(now_ms) - self.began_ms
    }
}

/// What a sandbox may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) cpu_milli: i64,
    pub(super) ram_mib: i64,
}

struct Agent {
    party: Party,
    endpoint: String,
    image: String,
    term: Term,
    /// When the term was last told the time, by the world.
    ticked_ms: UnixMs,
    /// Which look is the next one: earlier ones are not needed any more.
    looks: u64,
    frozen: bool,
    /// What it may use, and what it says.
    shape: Held,
    said: Held,
    ended_by: Option<EndedBy>,
    /// Whether everything inside is gone.
    is_over: bool,
    is_alive: bool,
}

#[derive(Default)]
struct State {
    agents: BTreeMap<SandboxId, Agent>,
    agents_made: u64,
    runs: BTreeMap<SandboxId, Vec<Run>>,
}

/// The machine. Cheap to clone.
#[derive(Clone)]
pub(super) struct Yard {
    world: World,
    rates: Rates,
    clock: Arc<Mutex<ProcessClock>>,
    state: Arc<Mutex<State>>,
    bug: Option<Bug>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Yard {
    pub(super) fn new(world: &World, rates: Rates, bug: Option<Bug>) -> Yard {
        let clock = Arc::new(Mutex::new(ProcessClock::new(world.clone())));
        Yard { world: world.clone(), rates, clock, state: Arc::default(), bug }
    }

    /// The clock of the host is that of a node which runs on it.
    pub(super) fn share_clock(&self, clock: &ProcessClock) {
        *lock(&self.clock) = clock.clone();
    }

    /// All that ever ran.
    pub(super) fn runs(&self) -> BTreeMap<SandboxId, Vec<Run>> {
        lock(&self.state).runs.clone()
    }

    /// Looks at each that ever ran.
    pub(super) fn each_run(&self, mut look: impl FnMut(&SandboxId, &[Run])) {
        lock(&self.state).runs.iter().for_each(|(id, runs)| look(id, runs));
    }

    /// Looks at what each may use that runs.
    pub(super) fn each_shape(&self, mut look: impl FnMut(&SandboxId, Held)) {
        let state = lock(&self.state);
        for (id, agent) in &state.agents {
            let last = state.runs.get(id).and_then(|runs| runs.last());
            if last.is_some_and(|run| run.ended_ms.is_none()) {
                look(id, agent.shape);
            }
        }
    }

    /// What is there.
    pub(super) fn present(&self) -> Vec<SandboxId> {
        lock(&self.state).agents.keys().cloned().collect()
    }

    fn wall_ms(&self) -> UnixMs {
        lock(&self.clock).now_ms()
    }

    /// Does something with an agent that is there, after having told it the time.
    fn with<T>(
        &self,
        id: &SandboxId,
        act: impl FnOnce(&mut Agent, &mut Vec<Run>) -> T,
    ) -> Option<T> {
        let (now_ms, wall_ms) = (self.world.now_ms(), self.wall_ms());
        let mut state = lock(&self.state);
        let State { agents, runs, .. } = &mut *state;
        let agent = agents.get_mut(id)?;
        agent.term.tick(wall_ms, now_ms - agent.ticked_ms);
        agent.ticked_ms = now_ms;
        Some(act(agent, runs.entry(id.clone()).or_default()))
    }

    /// Looks after a sandbox as its agent does: at the tick at which its time is over, and now and then before.
    fn look(&self, id: &SandboxId) {
        let wall_ms = self.wall_ms();
        let next = self.with(id, |agent, _| {
            if agent.ended_by.is_some() {
                return None;
            }
            let left_ms = agent.term.left_ms(wall_ms);
            agent.looks += 1;
            let ticks = left_ms.max(0).saturating_add(TICK_MS - 1) / TICK_MS;
            Some(((ticks * TICK_MS).min(LOOK_MS), agent.looks, left_ms <= 0))
        });
        let Some((wait_ms, number, is_over)) = next.flatten() else { return };
        if is_over && self.bug != Some(Bug::LeaseIgnored) {
            self.end(id, EndedBy::Lease);
            return;
        }
        let wait_ms = wait_ms.max(TICK_MS);
        let (this, id) = (self.clone(), id.clone());
        self.world.later(wait_ms, move || {
            if this.with(&id, |agent, _| agent.looks) == Some(number) {
                this.look(&id);
            }
        });
    }

    /// Ends what runs; a moment later it is gone.
    fn end(&self, id: &SandboxId, by: EndedBy) {
        let first = self.with(id, |agent, _| agent.ended_by.replace(agent.ended_by.unwrap_or(by)));
        if first != Some(None) {
            return;
        }
        let (this, id) = (self.clone(), id.clone());
        self.world.later(self.world.below_ms(END_MAX_MS), move || this.over(&id, Some(by)));
    }

    /// Nothing runs any more.
    fn over(&self, id: &SandboxId, by: Option<EndedBy>) {
        let (now_ms, wall_ms) = (self.world.now_ms(), self.wall_ms());
        self.with(id, |agent, runs| {
            agent.is_over = true;
            agent.term.end(wall_ms);
            if let Some(run) = runs.last_mut().filter(|run| run.ended_ms.is_none()) {
                (run.ended_ms, run.ended_by) = (Some(now_ms), by);
            }
        });
    }

    /// The agent is gone, and with it everything inside.
    fn kill(&self, id: &SandboxId) {
        self.over(id, None);
        self.with(id, |agent, _| {
            agent.is_alive = false;
            agent.ended_by.get_or_insert(EndedBy::Stop);
        });
    }

    fn meets(&self, kind: Kind) -> bool {
        self.world.fault(None, kind, self.rates.one_in(kind)).is_some()
    }

    /// Does something, after a while and not always; its answer may be lost.
    async fn ask<T>(&self, id: Option<SandboxId>, act: impl FnOnce(&Yard) -> T) -> Result<T, ()> {
        let longest_ms = if self.meets(Kind::MachineSlow) { LONG_MS } else { USUAL_MS };
        self.world.sleep(self.world.below_ms(longest_ms)).await;
        if let Some(id) = id.filter(|_| self.meets(Kind::AgentDies)) {
            self.kill(&id);
        }
        if self.meets(Kind::MachineFails) {
            return Err(());
        }
        let done = act(self);
        if self.meets(Kind::MachineAnswerLost) {
            return Err(());
        }
        Ok(done)
    }

    fn make(&self, order: &Order) -> Result<Instance> {
        let sandbox_id = order.sandbox_id.clone();
        let shape = Held { cpu_milli: order.cpu_milli, ram_mib: order.ram_mib };
        let (now_ms, wall_ms) = (self.world.now_ms(), self.wall_ms());
        {
            let mut state = lock(&self.state);
            let is_there = state.agents.get(&sandbox_id).is_some_and(|agent| agent.is_alive);
            if !is_there {
                state.agents_made += 1;
                let number = state.agents_made;
                let party = Party { sandbox_id: agent_id(&sandbox_id)?, agent: key(number) };
                let until_ms = wall_ms.saturating_add(AWAIT_LEASE_MS);
                let agent = Agent {
                    party,
                    endpoint: format!("127.0.0.1:{}", 1_000 + number % 60_000),
                    image: order.image.clone(),
                    term: Term::waiting(until_ms, wall_ms),
                    ticked_ms: now_ms,
                    looks: 0,
                    frozen: false,
                    shape,
                    said: shape,
                    ended_by: None,
                    is_over: false,
                    is_alive: true,
                };
                state.agents.insert(sandbox_id.clone(), agent);
            }
        }
        self.look(&sandbox_id);
        self.instance(&sandbox_id).ok_or_else(failed)
    }

    fn instance(&self, id: &SandboxId) -> Option<Instance> {
        let state = lock(&self.state);
        let agent = state.agents.get(id).filter(|agent| agent.is_alive)?;
        Some(Instance {
            sandbox_id: id.clone(),
            name: id.to_string(),
            endpoint: agent.endpoint.clone(),
            agent_key: agent.party.agent,
        })
    }

    fn health(&self, id: &SandboxId) -> Option<Health> {
        let wall_ms = self.wall_ms();
        self.with(id, |agent, _| Health {
            sandbox_id: agent.party.sandbox_id.clone(),
            state: match (agent.ended_by, agent.frozen) {
                (Some(_), _) => Does::Ended,
                (None, true) => Does::Frozen,
                (None, false) => Does::Running,
            },
            ended_by: agent.ended_by,
            class: agent.is_over.then_some(Class::Signaled),
            image_version: agent.image.clone(),
            run_until_ms: agent.term.run_until_ms(),
            now_ms: wall_ms,
            uptime_ms: agent.term.gone_ms(),
            leased: agent.term.has_begun(),
            ran_ms: agent.term.ran_ms(wall_ms),
            shape: Some(agent::Shape {
                cpu_milli: u32::try_from(agent.said.cpu_milli).unwrap_or(u32::MAX),
                memory_mib: agent.said.ram_mib.unsigned_abs(),
            }),
            execs: 0,
            secrets_released: false,
            version: "sim".to_owned(),
        })
    }

    fn take(
        &self,
        id: &SandboxId,
        controller: &PublicKey,
        lease: &Lease,
    ) -> agent::Result<LeaseStands> {
        let (now_ms, wall_ms) = (self.world.now_ms(), self.wall_ms());
        let stands = self.with(id, |agent, runs| {
            lease.check(&agent.party, controller)?;
            if let Some(by) = agent.ended_by {
                let why = format!("the sandbox has ended ({by:?})");
                return Err(agent::Error::new(&agent::code::ENDED, why));
            }
            let had_begun = agent.term.has_begun();
            let changed = agent.term.accept(lease, wall_ms);
            if !had_begun && agent.term.has_begun() {
                runs.push(Run { began_ms: now_ms, ended_ms: None, ended_by: None });
            }
            Ok(LeaseStands { run_until_ms: agent.term.run_until_ms(), changed })
        });
        self.look(id);
        stands.unwrap_or_else(|| Err(unreachable()))
    }

    /// Another shape for what runs.
    fn give(&self, id: &SandboxId, said: Held) -> Option<()> {
        self.instance(id)?;
        let keeps = self.bug == Some(Bug::ShapeKept);
        let given = self.with(id, |agent, _| {
            if agent.ended_by.is_some() || !agent.term.has_begun() {
                return false;
            }
            let is_less =
                said.cpu_milli < agent.shape.cpu_milli || said.ram_mib < agent.shape.ram_mib;
            agent.said = said;
            if !(keeps && is_less) {
                agent.shape = said;
            }
            true
        });
        self.world.count("shape given");
        given?.then_some(())
    }

    /// As the agent is told to, and then nothing runs.
    async fn stop(&self, id: &SandboxId) -> Stopped {
        if self.instance(id).is_none() {
            self.kill(id);
            return Stopped { ran_ms: None, keeps_files: false };
        }
        self.end(id, EndedBy::Stop);
        while self.with(id, |agent, _| agent.is_over) == Some(false) {
            self.world.sleep(TICK_MS).await;
        }
        let health = self.health(id).filter(|_| self.instance(id).is_some());
        Stopped {
            ran_ms: health.as_ref().map(|health| health.ran_ms),
            keeps_files: health.is_some(),
        }
    }
}

fn key(number: u64) -> PublicKey {
    let mut bytes = [9; 32];
    bytes[24..].copy_from_slice(&number.to_be_bytes());
    match SecretKey::from_bytes(bytes) {
        Ok(secret) => secret.public_key(),
        // Every number that small is a key.
        Err(_) => key(number + 1),
    }
}

fn failed() -> Error {
    Error::refused(&code::MACHINE, "the machine does not answer")
}

fn unreachable() -> agent::Error {
    agent::Error::new(&agent::code::UNREACHABLE, "the agent does not answer")
}

impl Machine for Yard {
    fn name(&self) -> &str {
        NAME
    }

    fn abilities(&self) -> Abilities {
        Abilities { pause: true, resize: true }
    }

    fn create(&self, order: &Order) -> BoxFuture<Result<Instance>> {
        let (yard, order) = (self.clone(), order.clone());
        Box::pin(async move {
            let made = yard.ask(None, |yard| yard.make(&order)).await;
            made.map_err(|()| failed())?
        })
    }

    fn find(&self, id: &SandboxId) -> BoxFuture<Result<Option<Instance>>> {
        let (yard, id) = (self.clone(), id.clone());
        Box::pin(
            async move { yard.ask(None, |yard| yard.instance(&id)).await.map_err(|()| failed()) },
        )
    }

    fn list(&self) -> BoxFuture<Result<Vec<Found>>> {
        let yard = self.clone();
        Box::pin(async move {
            let found = |yard: &Yard| {
                let found = |sandbox_id: SandboxId| Found {
                    instance: yard.instance(&sandbox_id),
                    sandbox_id,
                };
                yard.present().into_iter().map(found).collect()
            };
            yard.ask(None, found).await.map_err(|()| failed())
        })
    }

    fn stop(&self, id: &SandboxId) -> BoxFuture<Result<Stopped>> {
        let (yard, id) = (self.clone(), id.clone());
        Box::pin(async move {
            yard.ask(None, |_| ()).await.map_err(|()| failed())?;
            let stopped = yard.stop(&id).await;
            yard.ask(None, |_| stopped).await.map_err(|()| failed())
        })
    }

    fn destroy(&self, id: &SandboxId) -> BoxFuture<Result<()>> {
        let (yard, id) = (self.clone(), id.clone());
        Box::pin(async move {
            let destroy = |yard: &Yard| {
                yard.kill(&id);
                lock(&yard.state).agents.remove(&id);
            };
            yard.ask(None, destroy).await.map_err(|()| failed())
        })
    }

    fn resize(&self, id: &SandboxId, cpu_milli: i64, ram_mib: i64) -> BoxFuture<Result<()>> {
        let (yard, id, said) = (self.clone(), id.clone(), Held { cpu_milli, ram_mib });
        Box::pin(async move {
            let given = yard.ask(Some(id.clone()), |yard| yard.give(&id, said)).await;
            given.ok().flatten().ok_or_else(failed)
        })
    }

    fn line(&self, link: &Link, instance: &Instance) -> Result<Box<dyn Line>> {
        let (yard, controller) = (self.clone(), link.controller());
        Ok(Box::new(Wire { yard, controller, instance: instance.clone() }))
    }
}

/// The way to one agent.
#[derive(Clone)]
struct Wire {
    yard: Yard,
    controller: PublicKey,
    instance: Instance,
}

impl Wire {
    /// Asks the agent that is meant, if it is there.
    async fn ask<T>(
        self,
        act: impl FnOnce(&Yard, &SandboxId) -> agent::Result<T>,
    ) -> agent::Result<T> {
        let id = self.instance.sandbox_id.clone();
        let asked = self.yard.ask(Some(id.clone()), |yard| {
            match yard.instance(&id).is_some_and(|there| there == self.instance_there()) {
                true => act(yard, &id),
                false => Err(unreachable()),
            }
        });
        asked.await.unwrap_or_else(|()| Err(unreachable()))
    }

    fn instance_there(&self) -> Instance {
        Instance { name: self.instance.sandbox_id.to_string(), ..self.instance.clone() }
    }
}

impl Line for Wire {
    fn attestation(&self) -> BoxFuture<agent::Result<Attestation>> {
        let asked = self.clone().ask(|yard, id| {
            let image_version = yard.with(id, |agent, _| agent.image.clone()).unwrap_or_default();
            Ok(Attestation { mode: "standard".to_owned(), image_version, measurement: None })
        });
        Box::pin(asked)
    }

    fn health(&self) -> BoxFuture<agent::Result<Health>> {
        Box::pin(self.clone().ask(|yard, id| yard.health(id).ok_or_else(unreachable)))
    }

    fn lease(&self, lease: Lease) -> BoxFuture<agent::Result<LeaseStands>> {
        let controller = self.controller;
        Box::pin(self.clone().ask(move |yard, id| yard.take(id, &controller, &lease)))
    }

    fn set_frozen(&self, frozen: bool) -> BoxFuture<agent::Result<()>> {
        Box::pin(self.clone().ask(move |yard, id| {
            yard.with(id, |agent, _| agent.frozen = frozen);
            Ok(())
        }))
    }
}
