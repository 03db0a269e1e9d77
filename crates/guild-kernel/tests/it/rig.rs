//! Workers on a database of their own, with a clock that the test turns and a model that says what the test wants.
//! Everything happens in one thread, one thing after the other: a run can be repeated, and stopped at any point.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use guild_bus::subject::WorkerTarget;
use guild_bus::{Bus, Local};
use guild_kernel::boxes;
use guild_kernel::card::{self, CardType, NewCard, Role};
use guild_kernel::inbox::Outcome;
use guild_kernel::model::{Chunks, Failure, Message, Model, ModelCall, Prompt, Reply};
use guild_kernel::roster::{self, AfterExecution, Profile, Tool as ToolRow};
use guild_kernel::tool::{Effect, Tool, ToolCall, ToolOutcome, Tools};
use guild_kernel::turn::Report;
use guild_kernel::turn::step::Usage;
use guild_kernel::worker::{Counts, Options, Parts, Worker};
use guild_kernel::{AgentKey, AgentTurnId};
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, UnixMs};
use guild_store::{Access, Db, Hooks, Point, Pump, Store, args, connect, pumps};
use serde_json::{Value, json};

use crate::world::{Node, T0, TARGET, new_turn};

/// A clock that stands still until it is turned.
#[derive(Default)]
pub(crate) struct Hands {
    now_ms: AtomicI64,
    asleep: Mutex<BTreeMap<(UnixMs, u64), Waker>>,
    next: AtomicU64,
}

pub(crate) struct Time(pub(crate) Arc<Hands>);

impl Clock for Time {
    fn now_ms(&self) -> UnixMs {
        self.0.now_ms.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let hands = self.0.clone();
        let until_ms = self.now_ms() + duration_ms.max(0);
        let id = hands.next.fetch_add(1, Ordering::SeqCst);
        let mut yielded = false;
        Box::pin(poll_fn(move |cx| {
            if std::mem::replace(&mut yielded, true)
                && hands.now_ms.load(Ordering::SeqCst) >= until_ms
            {
                hands.asleep.lock().unwrap().remove(&(until_ms, id));
                return Poll::Ready(());
            }
            hands.asleep.lock().unwrap().insert((until_ms, id), cx.waker().clone());
            Poll::Pending
        }))
    }
}

impl Hands {
    /// Turns the clock, and wakes whoever is due.
    pub(crate) fn turn_to(&self, now_ms: UnixMs) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
        let mut asleep = self.asleep.lock().unwrap();
        let later = asleep.split_off(&(now_ms + 1, 0));
        let due = std::mem::replace(&mut *asleep, later);
        drop(asleep);
        due.into_values().for_each(Waker::wake);
    }

    pub(crate) fn now_ms(&self) -> UnixMs {
        self.now_ms.load(Ordering::SeqCst)
    }

    pub(crate) fn first_ms(&self) -> Option<UnixMs> {
        self.asleep.lock().unwrap().keys().next().map(|(until_ms, _)| *until_ms)
    }
}

/// Numbers that follow from a seed.
pub(crate) struct Draws(pub(crate) AtomicU64);

impl Random for Draws {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let draw = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
            let mixed = (draw ^ (draw >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            chunk.copy_from_slice(&(mixed ^ (mixed >> 32)).to_le_bytes()[..chunk.len()]);
        }
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Ready at the second look.
pub(crate) fn pause() -> impl Future<Output = ()> {
    let mut looked = false;
    poll_fn(move |cx| {
        if std::mem::replace(&mut looked, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

type Says = dyn Fn(&Prompt) -> Result<Reply, Failure> + Send + Sync;

/// A model that says what the test wants. What it says depends on nothing but what it is asked.
pub(crate) struct Script {
    says: Arc<Says>,
    pub(crate) asked: Mutex<Vec<Prompt>>,
    takes_ms: i64,
    clock: Time,
}

impl Model for Script {
    fn answer(&self, prompt: Prompt, mut chunks: Chunks) -> BoxFuture<Result<Reply, Failure>> {
        let reply = (self.says)(&prompt);
        self.asked.lock().unwrap().push(prompt);
        let slow = (self.takes_ms > 0).then(|| self.clock.sleep(self.takes_ms));
        Box::pin(async move {
            pause().await;
            if let Some(slow) = slow {
                slow.await;
            }
            if let Ok(reply) = &reply {
                chunks(guild_kernel::model::Chunk::Text(reply.text.clone()));
            }
            reply
        })
    }
}

/// How many steps of the turn were done before this question.
pub(crate) fn steps_before(prompt: &Prompt) -> usize {
    let said = prompt.messages.iter().rev();
    said.take_while(|message| !matches!(message, Message::User(_)))
        .filter(|message| matches!(message, Message::Assistant { .. }))
        .count()
}

pub(crate) fn say(text: &str) -> Reply {
    Reply {
        text: text.to_owned(),
        usage: Usage {
            prompt_tokens: 5,
            completion_tokens: 2,
            cost_micro_usd: 3,
            cost_unknown: false,
            model: Some("script".to_owned()),
        },
        ..Reply::default()
    }
}

/// A model's call; the id that it chooses is of no use.
pub(crate) fn call(tool_name: &str, arguments: &str) -> ModelCall {
    ModelCall {
        id: "call_1".to_owned(),
        tool_name: tool_name.to_owned(),
        arguments: arguments.to_owned(),
    }
}

pub(crate) fn calls(calls: &[(&str, &str)]) -> Reply {
    let calls = calls.iter().map(|(name, arguments)| call(name, arguments)).collect();
    Reply { calls, ..say("") }
}

type Runs = dyn Fn(&ToolCall) -> ToolOutcome + Send + Sync;

/// A tool that does what the test wants, and remembers who called it.
pub(crate) struct Scripted {
    effect: Effect,
    runs: Box<Runs>,
    takes_ms: i64,
    clock: Time,
    pub(crate) called: Arc<Mutex<Vec<ToolCall>>>,
}

impl Tool for Scripted {
    fn effect(&self) -> Effect {
        self.effect
    }

    fn run(&self, call: ToolCall) -> BoxFuture<ToolOutcome> {
        let outcome = (self.runs)(&call);
        self.called.lock().unwrap().push(call);
        let slow = (self.takes_ms > 0).then(|| self.clock.sleep(self.takes_ms));
        Box::pin(async move {
            pause().await;
            if let Some(slow) = slow {
                slow.await;
            }
            outcome
        })
    }
}

pub(crate) fn good(result: Value) -> ToolOutcome {
    ToolOutcome {
        status: guild_kernel::inbox::Outcome::Success,
        result,
        error: Value::Null,
        after_execution: None,
    }
}

/// A worker that runs.
pub(crate) struct Running {
    future: Pin<Box<dyn Future<Output = ()>>>,
    flag: Arc<Flag>,
    pub(crate) counts: Counts,
    pub(crate) polls: usize,
    shutdown: Shutdown,
}

impl Running {
    /// Asks it to stop, and lets it.
    pub(crate) fn stop(mut self, rig: &mut Rig<'_>) {
        self.shutdown.trigger();
        let waker = Waker::from(self.flag.clone());
        let mut cx = Context::from_waker(&waker);
        for _ in 0..100 {
            if self.future.as_mut().poll(&mut cx).is_ready() {
                return;
            }
            rig.pump();
        }
        panic!("it does not stop");
    }
}

/// A database, and what workers on it share.
pub(crate) struct Rig<'n> {
    pub(crate) node: &'n Node,
    pub(crate) hands: Arc<Hands>,
    pub(crate) model: Arc<Script>,
    pub(crate) tools: Tools,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) options: Options,
    pub(crate) bus: Arc<Local>,
    /// What the database says instead of carrying out the next statements.
    pub(crate) refusals: Arc<Mutex<VecDeque<guild_store::Error>>>,
    store: Store,
    pumps: [(Pump, Box<dyn Db>); 2],
    seed: u64,
}

impl<'n> Rig<'n> {
    /// Workers whose model says this.
    pub(crate) fn new(
        node: &'n Node,
        says: impl Fn(&Prompt) -> Result<Reply, Failure> + Send + Sync + 'static,
    ) -> Rig<'n> {
        let bus = Arc::new(Local::new());
        let rung = bus.clone();
        let refusals: Arc<Mutex<VecDeque<guild_store::Error>>> = Arc::default();
        let refused = refusals.clone();
        let hooks = Hooks::on_ring(move |topic, after| rung.ring(topic, after)).with_faults(
            move |point, _| match point {
                Point::BeforeStatement => refused.lock().unwrap().pop_front(),
                _ => None,
            },
        );
        let (store, writes, reads) = pumps(1_000, &hooks);
        let writer = connect(&node.options, Access::Write).unwrap();
        let reader = connect(&node.options, Access::Read).unwrap();
        let hands = Arc::new(Hands::default());
        hands.turn_to(T0);
        let model = Script {
            says: Arc::new(says),
            asked: Mutex::default(),
            takes_ms: 0,
            clock: Time(hands.clone()),
        };
        Rig {
            node,
            hands,
            model: Arc::new(model),
            tools: Tools::new(),
            environment: BTreeMap::new(),
            options: Options {
                targets: vec![WorkerTarget::parse(TARGET).unwrap()],
                holder: "rig".to_owned(),
                tasks: 8,
                ..Options::default()
            },
            bus,
            refusals,
            store,
            pumps: [(writes, writer), (reads, reader)],
            seed: 7,
        }
    }

    /// The model takes its time.
    pub(crate) fn slow(mut self, takes_ms: i64) -> Rig<'n> {
        let says = self.model.says.clone();
        let clock = Time(self.hands.clone());
        self.model = Arc::new(Script { says, asked: Mutex::default(), takes_ms, clock });
        self
    }

    /// The model says something else from now on.
    pub(crate) fn saying(
        &mut self,
        says: impl Fn(&Prompt) -> Result<Reply, Failure> + Send + Sync + 'static,
    ) {
        let (says, clock) = (Arc::new(says), Time(self.hands.clone()));
        self.model = Arc::new(Script { says, asked: Mutex::default(), takes_ms: 0, clock });
    }

    /// Adds a tool of this process and its row; who has called it.
    pub(crate) fn tool(
        &mut self,
        tool_name: &str,
        (effect, takes_ms): (Effect, i64),
        runs: impl Fn(&ToolCall) -> ToolOutcome + Send + Sync + 'static,
    ) -> Arc<Mutex<Vec<ToolCall>>> {
        let called = Arc::new(Mutex::new(Vec::new()));
        let tool = Scripted {
            effect,
            runs: Box::new(runs),
            takes_ms,
            clock: Time(self.hands.clone()),
            called: called.clone(),
        };
        self.tools.insert(tool_name.to_owned(), Arc::new(tool));
        self.row(row(tool_name, None));
        called
    }

    /// Stores the row of a tool.
    pub(crate) fn row(&self, tool: ToolRow) {
        self.node.write(move |tx| roster::put_tool(tx, &tool, T0)).unwrap();
    }

    /// Changes how everybody thinks.
    pub(crate) fn profile(&self, body: Value) {
        self.node
            .write(move |tx| {
                let profile = Profile {
                    project_id: "p".parse()?,
                    name: "basic".to_owned(),
                    worker_target: TARGET.to_owned(),
                    body: body.clone(),
                };
                roster::put_profile(tx, &profile, T0)
            })
            .unwrap();
    }

    /// The process dies: what the store was asked for and has not done is never done.
    pub(crate) fn crash(&mut self) {
        let rung = self.bus.clone();
        let hooks = Hooks::on_ring(move |topic, after| rung.ring(topic, after));
        let (store, writes, reads) = pumps(1_000, &hooks);
        self.store = store;
        self.pumps[0].0 = writes;
        self.pumps[1].0 = reads;
    }

    /// A worker that begins now.
    pub(crate) fn worker(&mut self) -> Running {
        self.worker_with(self.options.clone())
    }

    pub(crate) fn worker_with(&mut self, options: Options) -> Running {
        self.seed += 1;
        let parts = Parts {
            store: self.store.clone(),
            bus: self.bus.clone(),
            clock: Arc::new(Time(self.hands.clone())),
            random: Arc::new(Draws(AtomicU64::new(self.seed.wrapping_mul(0xd134_2543_de82_ef95)))),
            model: self.model.clone(),
            tools: self.tools.clone(),
            environment: self.environment.clone(),
            chunks: None,
        };
        let worker = Worker::new(options, parts).unwrap();
        let counts = worker.counts();
        let shutdown = Shutdown::new();
        let future = Box::pin(worker.run(shutdown.clone()));
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        Running { future, flag, counts, polls: 0, shutdown }
    }

    pub(crate) fn now_ms(&self) -> UnixMs {
        self.hands.now_ms.load(Ordering::SeqCst)
    }

    /// Does what the store was asked for; whether there was anything.
    fn pump(&mut self) -> bool {
        let mut any = false;
        for (pump, db) in &mut self.pumps {
            let mut cx = Context::from_waker(Waker::noop());
            if pump.poll_waiting(&mut cx).is_ready() {
                pump.drain(db.as_mut(), 64).unwrap();
                any = true;
            }
        }
        any
    }

    /// Lets workers do what they can without more time; stops after so many looks at the first of them.
    pub(crate) fn work(&mut self, workers: &mut [&mut Running], polls_max: usize) -> bool {
        loop {
            let mut any = false;
            for (at, worker) in workers.iter_mut().enumerate() {
                if !worker.flag.0.swap(false, Ordering::SeqCst) {
                    continue;
                }
                if at == 0 && worker.polls >= polls_max {
                    return false;
                }
                worker.polls += 1;
                let waker = Waker::from(worker.flag.clone());
                assert!(worker.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                any = true;
            }
            any |= self.pump();
            if !any {
                return true;
            }
        }
    }

    /// Lets workers work, and time pass, until this holds.
    pub(crate) fn until(&mut self, workers: &mut [&mut Running], holds: impl FnMut(&Node) -> bool) {
        assert!(self.until_polls(workers, usize::MAX, holds), "stopped");
    }

    /// The same, until the first of them was looked at so often; whether it was reached before.
    pub(crate) fn until_polls(
        &mut self,
        workers: &mut [&mut Running],
        polls_max: usize,
        mut holds: impl FnMut(&Node) -> bool,
    ) -> bool {
        let late_ms = self.now_ms() + 3_600_000;
        while self.work(workers, polls_max) {
            if holds(self.node) {
                return true;
            }
            let next_ms = self.hands.first_ms().unwrap();
            assert!(next_ms < late_ms, "it never happens: {:?}", self.node.dump());
            self.hands.turn_to(next_ms.max(self.now_ms()));
        }
        false
    }

    /// Asks for turn `n` of an agent now.
    pub(crate) fn ask(&mut self, n: u32, agent: u32) -> AgentTurnId {
        self.node.ask(n, agent, self.now_ms())
    }

    /// Asks for turn `n` of an agent, with cards in its context.
    pub(crate) fn ask_with(
        &mut self,
        n: u32,
        agent: u32,
        cards: &[(CardType, Value)],
    ) -> AgentTurnId {
        let now_ms = self.now_ms();
        let mut new = vec![crate::world::instruction(n)];
        for (at, (card_type, content)) in (0_u32..).zip(cards) {
            new.push(NewCard {
                card_id: crate::world::card_id(n * 1_000 + at + 1),
                card_type: *card_type,
                role: Role::System,
                content: content.clone(),
                ..crate::world::instruction(n)
            });
        }
        self.node
            .write(move |tx| {
                card::put_all(tx, &new, now_ms)?;
                let mut boxes = crate::world::boxes_of(n);
                boxes[0].cards = new.iter().map(|card| card.card_id.clone()).collect();
                boxes::create_all(tx, &boxes, now_ms)
            })
            .unwrap();
        self.node.enqueue(&new_turn(n, agent), now_ms).unwrap()
    }

    /// Does one turn with one worker; how it went.
    pub(crate) fn finish(&mut self, id: &AgentTurnId) -> Counts {
        let mut worker = self.worker();
        self.until(&mut [&mut worker], |node| node.row(id).closed_ms.is_some());
        worker.counts.clone()
    }
}

/// The row of a tool that takes anything.
pub(crate) fn row(tool_name: &str, target_subject: Option<&str>) -> ToolRow {
    ToolRow {
        project_id: "p".parse().unwrap(),
        tool_name: tool_name.to_owned(),
        description: format!("Does {tool_name}."),
        parameters: json!({ "type": "object", "properties": { "x": { "type": "integer" } } }),
        target_subject: target_subject.map(str::to_owned),
        after_execution: AfterExecution::Suspend,
        options: json!({}),
    }
}

/// Answers one after the other, by how many steps the turn has done.
pub(crate) fn steps(replies: Vec<Reply>) -> impl Fn(&Prompt) -> Result<Reply, Failure> {
    let replies: VecDeque<Reply> = replies.into();
    move |prompt| {
        let at = steps_before(prompt).min(replies.len() - 1);
        Ok(replies[at].clone())
    }
}

/// A call that somebody elsewhere is to run.
pub(crate) struct Elsewhere {
    pub(crate) report: Report,
    pub(crate) tool_name: String,
}

/// The calls that turns wait for and that no worker runs.
pub(crate) fn elsewhere(node: &Node) -> Vec<Elsewhere> {
    type Row = (String, String, String, String, String);
    let rows: Vec<Row> = node.read(|rx| {
        Ok(rx.all(
            "SELECT project_id, agent_id, agent_turn_id, tool_call_id, tool_name
             FROM turn_waiting_tools WHERE wait_status = 'waiting' AND target_subject IS NOT NULL
             ORDER BY tool_call_id",
            args![],
        )?)
    });
    let call = |(project_id, agent_id, turn, call, tool_name): Row| Elsewhere {
        report: Report {
            key: AgentKey {
                project_id: project_id.parse().unwrap(),
                agent_id: agent_id.parse().unwrap(),
            },
            agent_turn_id: turn.parse().unwrap(),
            tool_call_id: call.parse().unwrap(),
            source: format!("tool.{tool_name}"),
            status: Outcome::Success,
            after_execution: None,
            result: json!(format!("{tool_name} is done")),
            error: Value::Null,
        },
        tool_name,
    };
    rows.into_iter().map(call).collect()
}

/// Answers all calls that are made elsewhere.
pub(crate) fn answer_all(node: &Node, now_ms: UnixMs) {
    for call in elsewhere(node) {
        node.report(&call.report, now_ms);
    }
}

/// Texts without the ids of calls, which follow from time.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("call_") {
        let (before, id) = rest.split_at(at);
        plain.push_str(before);
        let hex = id[5..].bytes().take_while(u8::is_ascii_hexdigit).count();
        plain.push_str(if hex == 32 { "call_*" } else { &id[..5 + hex] });
        rest = &id[5 + hex..];
    }
    plain + rest
}

/// What is in the output box of turn `n`, in no order and without what follows from time.
pub(crate) fn cards_of(node: &Node, n: u32) -> Vec<String> {
    let cards = node.read(move |rx| boxes::cards(rx, &crate::world::output_box(n), 0, 100));
    let mut cards: Vec<String> =
        cards.iter().map(|card| plain(&format!("{} {}", card.card_type, card.content))).collect();
    // Results come in any order.
    cards.sort();
    cards
}

/// A prompt in words.
pub(crate) fn shown(prompt: &Prompt) -> String {
    let mut lines = Vec::new();
    for message in &prompt.messages {
        lines.push(match message {
            Message::System(text) => format!("system: {text}"),
            Message::User(text) => format!("user: {text}"),
            Message::Assistant { text, reasoning, calls } => {
                let reasoning = reasoning.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
                let calls: Vec<String> = calls
                    .iter()
                    .map(|c| format!(" [{} {}({})]", c.id, c.tool_name, c.arguments))
                    .collect();
                format!("assistant:{reasoning} {text}{}", calls.concat())
            }
            Message::Tool { model_call_id, tool_name, text } => {
                format!("tool {model_call_id} {tool_name}: {text}")
            }
        });
    }
    let tools: Vec<&str> = prompt.tools.iter().map(|tool| tool.name.as_str()).collect();
    lines.push(format!("tools: {}", tools.join(", ")));
    lines.push(format!("config: {}, must call: {}", prompt.config, prompt.must_call));
    plain(&lines.join("\n"))
}
