//! A store, a bus and a worker, as a process has them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::{Either, select};
use guild_bus::nats::{Nats, Options as NatsOptions};
use guild_bus::subject::WorkerTarget;
use guild_bus::{Bus, Local};
use guild_kernel::boxes::{self, NewBox};
use guild_kernel::card::{self, CardType, NewCard, Role};
use guild_kernel::roster::{self, AfterExecution, Agent, AgentStatus, Profile};
use guild_kernel::turn::{NewTurn, enqueue_all};
use guild_kernel::worker::{Counts, Options as WorkerOptions, Parts, Worker};
use guild_kernel::{AgentKey, BoxId, CardId, ProjectId, Result, TASK, audit};
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, UnixMs};
use guild_store::{Hooks, Migrations, Options, Point, Service, Store, Tx, args};
use serde_json::json;
use testbed::bench::{Arguments, Watch};
use tokio::runtime::Runtime;

use crate::mind::{LookUp, Quick, TOOL};
use crate::said;

/// So many agents have work.
const AGENTS: u64 = 400;
/// So many turns are asked for in one call.
const WISHES: usize = 250;
/// So many turns may be asked for and not done.
const AHEAD: u64 = 4_000;

/// The time of this machine.
struct Real;

impl Clock for Real {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn now_ms(&self) -> UnixMs {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX))
    }

    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let duration = Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0));
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Different numbers, one after another.
#[derive(Default)]
struct Counted(AtomicU64);

impl Random for Counted {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

pub(crate) struct Hall {
    runtime: Runtime,
    service: Service,
    bus: Arc<dyn Bus>,
    /// The server of the bus, for as long as it is needed.
    _server: Option<testbed::Nats>,
    clock: Arc<Real>,
    random: Arc<Counted>,
    commits: Arc<AtomicU64>,
}

impl Hall {
    pub(crate) fn open(database: &str, arguments: &Arguments) -> Result<Hall, String> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(said)?;
        let (clock, random) = (Arc::new(Real), Arc::new(Counted::default()));
        let mut bus_server = None;
        let (options, bus): (_, Arc<dyn Bus>) = match database {
            "sqlite" => {
                (Options::file(&arguments.directory.join("node.db")), Arc::new(Local::new()))
            }
            "postgres" => {
                let server = testbed::Nats::start()?;
                let nats = NatsOptions { url: server.url(), ..NatsOptions::default() };
                let (bus, service) =
                    Nats::new(&nats, clock.clone(), random.clone()).map_err(said)?;
                runtime.spawn(service.run(Shutdown::new()));
                bus_server = Some(server);
                (Options::at(arguments.postgres_url()?), Arc::new(bus))
            }
            other => return Err(format!("there is no case {other:?}")),
        };
        let ringing = bus.clone();
        let commits = Arc::new(AtomicU64::new(0));
        let counted = commits.clone();
        // Nothing fails here: the points are only counted.
        let hooks = Hooks::on_ring(move |topic, after| ringing.ring(topic, after)).with_faults(
            move |point, _| {
                if point == Point::AfterCommit {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                None
            },
        );
        let migrations = Migrations::store().and(guild_kernel::migrations());
        let service = Service::open(&options, &migrations, hooks, clock.now_ms()).map_err(said)?;
        Ok(Hall { runtime, service, bus, _server: bus_server, clock, random, commits })
    }

    pub(crate) fn close(self) {
        self.service.close();
    }

    /// Has `count` turns of this profile done, and looks at all that there is; how many in a second.
    pub(crate) fn run(&self, profile: &str, project: &str, count: u64) -> Result<f64, String> {
        let before = self.ended()?;
        let per_s = self.work(profile, project, count)?;
        self.all_ended_once(before + count)?;
        Ok(per_s)
    }

    /// Has `count` turns of this profile done; how many in a second, from the first wish to the last terminal event.
    #[expect(clippy::print_stderr, reason = "a benchmark prints")]
    pub(crate) fn work(&self, profile: &str, project: &str, count: u64) -> Result<f64, String> {
        let commits_before = self.commits.load(Ordering::Relaxed);
        let per_s = self.while_working(profile, project, async |working| {
            let watch = Watch::start();
            working.ask(count).await?;
            working.until(count).await;
            Ok(watch.per_s(count))
        })?;
        let commits = self.commits.load(Ordering::Relaxed) - commits_before;
        eprintln!("{count} turns ({profile}) took {commits} commits");
        Ok(per_s)
    }

    /// Does something while a worker works for the agents of this project.
    pub(crate) fn while_working<T>(
        &self,
        profile: &str,
        project: &str,
        work: impl AsyncFnOnce(&Working) -> Result<T, String>,
    ) -> Result<T, String> {
        let project: ProjectId = project.parse().map_err(said)?;
        let (store, now_ms) = (self.service.handle(), self.clock.now_ms());
        let (to, name) = (project.clone(), profile.to_owned());
        let settled = store.write(move |tx| settle(tx, &to, &name, now_ms));
        self.runtime.block_on(settled).map_err(said)?;
        let parts = Parts {
            store: store.clone(),
            bus: self.bus.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            model: Arc::new(Quick),
            tools: BTreeMap::from([(TOOL.to_owned(), Arc::new(LookUp) as _)]),
            environment: BTreeMap::new(),
            chunks: None,
        };
        let targets = vec![WorkerTarget::parse(&target(profile)).map_err(said)?];
        let options = WorkerOptions { targets, tasks: 1_024, ..WorkerOptions::default() };
        let worker = Worker::new(options, parts).map_err(said)?;
        let working =
            Working { store, project, clock: self.clock.clone(), counts: worker.counts() };
        let shutdown = Shutdown::new();
        self.runtime.block_on(async {
            let (worker, work) = (pin!(worker.run(shutdown)), pin!(work(&working)));
            match select(work, worker).await {
                Either::Left((done, _)) => done,
                Either::Right(_) => Err("the worker ended".to_owned()),
            }
        })
    }

    pub(crate) fn bus(&self) -> &dyn Bus {
        &*self.bus
    }

    fn ended(&self) -> Result<u64, String> {
        let counted = self.runtime.block_on(self.service.handle().read(|rx| {
            rx.first::<(i64,)>("SELECT count(*) FROM event WHERE kind = $1", args![TASK])
        }));
        let counted = counted.map_err(said)?.map_or(0, |(count,)| count);
        u64::try_from(counted).map_err(said)
    }

    /// Demands that so many turns have ended, each once.
    pub(crate) fn all_ended_once(&self, count: u64) -> Result<(), String> {
        let ended = self.ended()?;
        assert_eq!(ended, count, "terminal events");
        let report = self.runtime.block_on(self.service.handle().read(audit::run)).map_err(said)?;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        Ok(())
    }
}

fn target(profile: &str) -> String {
    format!("worker_{profile}")
}

/// The agents of a project.
fn settle(tx: &mut Tx<'_>, project: &ProjectId, profile: &str, now_ms: UnixMs) -> Result<()> {
    let body = json!({
        "system_prompt_template": "Answer in one sentence.",
        "allowed_tools": if profile == "tool" { json!([TOOL]) } else { json!([]) },
        "allowed_internal_tools": [],
        "llm_config": { "model": "quick" },
    });
    let worker_target = target(profile);
    let (project_id, name) = (project.clone(), profile.to_owned());
    let new = Profile { project_id, name, worker_target: worker_target.clone(), body };
    roster::put_profile(tx, &new, now_ms)?;
    let tool = roster::Tool {
        project_id: project.clone(),
        tool_name: TOOL.to_owned(),
        description: "Looks something up.".to_owned(),
        parameters: json!({ "type": "object", "properties": { "key": { "type": "string" } } }),
        target_subject: None,
        after_execution: AfterExecution::Suspend,
        options: json!({}),
    };
    roster::put_tool(tx, &tool, now_ms)?;
    for number in 0..AGENTS {
        let agent = Agent {
            key: key(project, number)?,
            profile_name: profile.to_owned(),
            worker_target: worker_target.clone(),
            tags: Vec::new(),
            display_name: format!("Agent {number}"),
            owner_agent_id: None,
            status: AgentStatus::Active,
        };
        roster::put_agent(tx, &agent, &json!({}), now_ms)?;
    }
    Ok(())
}

fn key(project: &ProjectId, number: u64) -> Result<AgentKey> {
    let agent_id = format!("agent-{}", number % AGENTS).parse()?;
    Ok(AgentKey { project_id: project.clone(), agent_id })
}

/// What can be done while a worker works.
pub(crate) struct Working {
    store: Store,
    project: ProjectId,
    clock: Arc<Real>,
    counts: Counts,
}

impl Working {
    /// How many turns have ended.
    pub(crate) fn finished(&self) -> u64 {
        self.counts.of("finished")
    }

    /// Asks for turns, each with an instruction of its own, no further ahead than a queue should be.
    async fn ask(&self, count: u64) -> Result<(), String> {
        let numbers: Vec<u64> = (0..count).collect();
        for some in numbers.chunks(WISHES) {
            while some.first().is_some_and(|first| first.saturating_sub(self.finished()) > AHEAD) {
                self.clock.sleep(1).await;
            }
            self.ask_for(some).await?;
        }
        Ok(())
    }

    /// Asks for the turns with these numbers.
    pub(crate) async fn ask_for(&self, numbers: &[u64]) -> Result<(), String> {
        let (project, some, now_ms) = (self.project.clone(), numbers.to_vec(), self.clock.now_ms());
        let asked = self.store.write(move |tx| ask_some(tx, &project, &some, now_ms));
        for accepted in asked.await.map_err(said)? {
            accepted.map_err(said)?;
        }
        Ok(())
    }

    /// Waits until so many turns have ended.
    pub(crate) async fn until(&self, finished: u64) {
        while self.finished() < finished {
            self.clock.sleep(1).await;
        }
    }
}

fn ask_some(
    tx: &mut Tx<'_>,
    project: &ProjectId,
    numbers: &[u64],
    now_ms: UnixMs,
) -> Result<Vec<Result<guild_kernel::turn::Accepted>>> {
    let (mut cards, mut boxes, mut turns) = (Vec::new(), Vec::new(), Vec::new());
    for number in numbers {
        let id = |what: u128| (u128::from(*number) << 8) | what | (0x7 << 76) | (0b10 << 62);
        let card_id: CardId = format!("card_{:032x}", id(1) ^ mark(project)).parse()?;
        let context_box_id: BoxId = format!("box_{:032x}", id(2) ^ mark(project)).parse()?;
        let output_box_id: BoxId = format!("box_{:032x}", id(3) ^ mark(project)).parse()?;
        let key = key(project, *number)?;
        cards.push(NewCard {
            card_id: card_id.clone(),
            project_id: project.clone(),
            card_type: CardType::Instruction,
            role: Role::User,
            author_id: "bench".to_owned(),
            content: json!({ "text": "x".repeat(200) }),
            metadata: json!({}),
        });
        for (box_id, cards) in [(&context_box_id, vec![card_id]), (&output_box_id, Vec::new())] {
            let owner_agent_id = Some(key.agent_id.clone());
            let (box_id, project_id) = (box_id.clone(), project.clone());
            boxes.push(NewBox { box_id, project_id, owner_agent_id, cards });
        }
        turns.push(NewTurn {
            key,
            channel_id: "public".parse()?,
            correlation_id: format!("turn-{number}"),
            profile_name: None,
            context_box_id,
            output_box_id,
            parent: None,
            trace_id: None,
            metadata: json!({}),
        });
    }
    card::put_all(tx, &cards, now_ms)?;
    boxes::create_all(tx, &boxes, now_ms)?;
    enqueue_all(tx, &turns, now_ms)
}

/// Keeps the ids of projects apart.
fn mark(project: &ProjectId) -> u128 {
    let bytes = project.as_str().bytes().fold(0_u128, |sum, byte| (sum << 8) | u128::from(byte));
    (bytes & 0xffff_ffff) << 96
}
