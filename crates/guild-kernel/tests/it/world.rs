//! A kernel on a database of its own, with a few agents.

use std::sync::{Arc, Mutex};

use guild_bus::subject::WorkerTarget;
use guild_kernel::boxes::{self, NewBox};
use guild_kernel::card::{self, Card, CardType, NewCard, Role};
use guild_kernel::inbox::{self, InboxRow, Outcome};
use guild_kernel::roster::{self, AfterExecution, Agent, AgentStatus, Profile};
use guild_kernel::turn::head::{self, Head};
use guild_kernel::turn::step::{self, Step, Usage};
use guild_kernel::turn::{
    self, Accepted, Call, Claim, Claimed, Commit, Committed, Fence, Finish, NewTurn, Report,
    Reported, StepCard, Stop, Stopped, Then, sweep,
};
use guild_kernel::{AgentKey, AgentTurnId, BoxId, CardId, LeaseToken, Result, ToolCallId, audit};
use guild_store::{Columns, Decode, Hooks, Migrations, Options, Rx, Service, Store, Tx, args};
use serde_json::{Value, json};

/// When everything begins.
pub(crate) const T0: i64 = 1_768_435_200_000;
/// How long a lease lasts.
pub(crate) const TTL_MS: i64 = 10_000;
/// How long a call is awaited.
pub(crate) const TIMEOUT_MS: i64 = 15_000;
pub(crate) const TARGET: &str = "worker_generic";
const AGENTS: u32 = 8;

pub(crate) fn key(n: u32) -> AgentKey {
    AgentKey { project_id: "p".parse().unwrap(), agent_id: format!("a{n}").parse().unwrap() }
}

fn made(prefix: &str, n: u32) -> String {
    format!("{prefix}_{n:032x}")
}

pub(crate) fn token(n: u32) -> LeaseToken {
    made("lease", n).parse().unwrap()
}

pub(crate) fn context_box(n: u32) -> BoxId {
    made("box", 2 * n).parse().unwrap()
}

pub(crate) fn output_box(n: u32) -> BoxId {
    made("box", 2 * n + 1).parse().unwrap()
}

/// Turn `n` of an agent.
pub(crate) fn new_turn(n: u32, agent: u32) -> NewTurn {
    NewTurn {
        key: key(agent),
        channel_id: "public".parse().unwrap(),
        correlation_id: format!("c{n}"),
        profile_name: None,
        context_box_id: context_box(n),
        output_box_id: output_box(n),
        parent: None,
        trace_id: None,
        metadata: Value::Null,
    }
}

pub(crate) fn instruction(n: u32) -> NewCard {
    NewCard {
        card_id: made("card", n).parse().unwrap(),
        project_id: "p".parse().unwrap(),
        card_type: CardType::Instruction,
        role: Role::User,
        author_id: "user".to_owned(),
        content: json!({ "text": format!("do {n}") }),
        metadata: json!({}),
    }
}

/// The boxes of turn `n`.
pub(crate) fn boxes_of(n: u32) -> [NewBox; 2] {
    let new = |box_id, cards| NewBox {
        box_id,
        project_id: "p".parse().unwrap(),
        owner_agent_id: None,
        cards,
    };
    [new(context_box(n), vec![instruction(n).card_id]), new(output_box(n), vec![])]
}

pub(crate) fn thought(text: &str) -> StepCard {
    StepCard {
        card_type: CardType::Thought,
        role: Role::Assistant,
        content: json!({ "text": text }),
        metadata: json!({}),
        call: None,
    }
}

pub(crate) fn call(place: usize) -> Call {
    Call {
        place,
        tool_name: format!("tool{place}"),
        arguments: json!({ "place": place }),
        model_call_id: Some("call_0".to_owned()),
        after_execution: AfterExecution::Suspend,
        target_subject: Some(format!("cmd.tool.shop.tool{place}")),
        timeout_ms: TIMEOUT_MS,
    }
}

pub(crate) fn commit(fence: &Fence, then: Then) -> Commit {
    Commit {
        fence: fence.clone(),
        cards: vec![thought("hm")],
        usage: Usage {
            prompt_tokens: 10,
            completion_tokens: 3,
            cost_micro_usd: 7,
            cost_unknown: false,
            model: Some("scripted".to_owned()),
        },
        metadata: json!({}),
        then,
    }
}

/// A wish for turns of the usual target, with these tokens.
pub(crate) fn claim(tokens: impl Iterator<Item = u32>) -> Claim {
    Claim {
        targets: vec![WorkerTarget::parse(TARGET).unwrap()],
        holder: "w".to_owned(),
        ttl_ms: TTL_MS,
        tokens: tokens.map(token).collect(),
    }
}

pub(crate) fn success() -> Then {
    Then::Finish(Finish {
        outcome: Outcome::Success,
        deliverable: Some(json!({ "fields": [] })),
        error_code: None,
    })
}

pub(crate) fn report(fence: &Fence, call: &ToolCallId) -> Report {
    Report {
        key: fence.key.clone(),
        agent_turn_id: fence.agent_turn_id.clone(),
        tool_call_id: call.clone(),
        source: "tool.shop".to_owned(),
        status: Outcome::Success,
        after_execution: None,
        result: json!({ "of": call.as_str() }),
        error: Value::Null,
    }
}

/// A whole row, whatever its columns.
struct Any(Vec<String>);

impl Decode for Any {
    fn decode(row: &dyn Columns) -> guild_store::Result<Any> {
        let cells = (0..64).map_while(|i| row.val(i).ok().map(|cell| format!("{cell:?}")));
        Ok(Any(cells.collect()))
    }
}

pub(crate) struct Node {
    pub(crate) store: Store,
    pub(crate) bells: Arc<Mutex<Vec<String>>>,
    pub(crate) options: Options,
    service: Option<Service>,
    _place: Place,
}

#[expect(dead_code, reason = "held only so that it is removed at the end")]
enum Place {
    Directory(tempfile::TempDir),
    Database(testbed::Database),
}

fn tables() -> Migrations {
    Migrations::store().and(guild_kernel::migrations())
}

/// Runs a test on every kind of database.
pub(crate) fn both(test: impl Fn(&Node)) {
    test(&Node::sqlite(Hooks::default()));
    test(&Node::postgres(Hooks::default()));
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

impl Node {
    pub(crate) fn sqlite(hooks: Hooks) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::file(&dir.path().join("node.db"));
        Node::open(&options, hooks, Place::Directory(dir))
    }

    pub(crate) fn postgres(hooks: Hooks) -> Node {
        let database = testbed::Database::copy_of("kernel", |url| {
            Service::open(&Options::at(url), &tables(), Hooks::default(), 0).unwrap().close();
        })
        .unwrap();
        let options = Options::at(&database.url());
        Node::open(&options, hooks, Place::Database(database))
    }

    /// As on SQLite, with an ear for bells.
    pub(crate) fn heard() -> Node {
        let bells: Arc<Mutex<Vec<String>>> = Arc::default();
        let ear = bells.clone();
        let hooks = Hooks::on_ring(move |topic, _| ear.lock().unwrap().push(topic.to_owned()));
        let mut node = Node::sqlite(hooks);
        node.bells = bells;
        node
    }

    fn open(options: &Options, hooks: Hooks, place: Place) -> Node {
        let service = Service::open(options, &tables(), hooks, 0).unwrap();
        let (store, bells) = (service.handle(), Arc::default());
        let options = options.clone();
        let node = Node { store, bells, options, service: Some(service), _place: place };
        node.write(|tx| {
            let profile = Profile {
                project_id: "p".parse()?,
                name: "basic".to_owned(),
                worker_target: TARGET.to_owned(),
                body: json!({}),
            };
            roster::put_profile(tx, &profile, T0)?;
            for n in 0..AGENTS {
                roster::put_agent(tx, &agent(n), &json!({}), T0)?;
            }
            Ok(())
        })
        .unwrap();
        node
    }

    pub(crate) fn write<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        block_on(self.store.write(run))
    }

    pub(crate) fn read<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Rx<'_>) -> Result<T> + Send + 'static,
    ) -> T {
        block_on(self.store.read(run)).unwrap()
    }

    /// Makes the boxes of turns.
    pub(crate) fn pack(&self, turns: impl IntoIterator<Item = u32>) {
        let turns: Vec<u32> = turns.into_iter().collect();
        self.write(move |tx| {
            let cards: Vec<NewCard> = turns.iter().map(|n| instruction(*n)).collect();
            card::put_all(tx, &cards, T0)?;
            let new: Vec<NewBox> = turns.iter().flat_map(|n| boxes_of(*n)).collect();
            boxes::create_all(tx, &new, T0)
        })
        .unwrap();
    }

    pub(crate) fn enqueue_all(&self, new: &[NewTurn], now_ms: i64) -> Vec<Result<Accepted>> {
        let new = new.to_vec();
        self.write(move |tx| turn::enqueue_all(tx, &new, now_ms)).unwrap()
    }

    pub(crate) fn enqueue(&self, new: &NewTurn, now_ms: i64) -> Result<AgentTurnId> {
        let accepted = self.enqueue_all(std::slice::from_ref(new), now_ms).remove(0);
        accepted.map(|accepted| accepted.agent_turn_id)
    }

    /// Makes the boxes of a turn and asks for it.
    pub(crate) fn ask(&self, n: u32, agent: u32, now_ms: i64) -> AgentTurnId {
        self.pack([n]);
        self.enqueue(&new_turn(n, agent), now_ms).unwrap()
    }

    /// Gives turns to a worker that uses these tokens.
    pub(crate) fn claim(&self, tokens: &[u32], now_ms: i64) -> Vec<Claimed> {
        let claim = claim(tokens.iter().copied());
        self.write(move |tx| turn::claim(tx, &claim, now_ms)).unwrap()
    }

    /// Gives the one turn that is due to a worker.
    pub(crate) fn take(&self, token: u32, now_ms: i64) -> Fence {
        let mut claimed = self.claim(&[token], now_ms);
        assert_eq!(claimed.len(), 1);
        claimed.remove(0).fence
    }

    pub(crate) fn commit_all(&self, commits: &[Commit], now_ms: i64) -> Vec<Result<Committed>> {
        let commits = commits.to_vec();
        self.write(move |tx| turn::commit_all(tx, &commits, TTL_MS, now_ms)).unwrap()
    }

    pub(crate) fn commit(&self, fence: &Fence, then: Then, now_ms: i64) -> Result<Committed> {
        self.commit_all(&[commit(fence, then)], now_ms).remove(0)
    }

    /// Suspends a turn with calls at these places.
    pub(crate) fn suspend(&self, fence: &Fence, places: &[usize], now_ms: i64) -> Vec<ToolCallId> {
        let calls = places.iter().map(|place| call(*place)).collect();
        match self.commit(fence, Then::Suspend(calls), now_ms).unwrap() {
            Committed::Suspended { calls, .. } => calls,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn report(&self, report: &Report, now_ms: i64) -> Reported {
        let reports = vec![report.clone()];
        self.write(move |tx| turn::report_all(tx, &reports, now_ms)).unwrap().remove(0).unwrap()
    }

    pub(crate) fn stop(&self, id: &AgentTurnId, now_ms: i64) -> Result<Stopped> {
        let stops = vec![Stop { agent_turn_id: id.clone(), reason: "enough".to_owned() }];
        self.write(move |tx| turn::stop_all(tx, &stops, now_ms)).unwrap().remove(0)
    }

    pub(crate) fn cancel(&self, id: &AgentTurnId, now_ms: i64) -> Result<()> {
        let id = id.clone();
        self.write(move |tx| turn::cancel(tx, &id, now_ms))
    }

    pub(crate) fn heartbeat(&self, fence: &Fence, now_ms: i64) -> Result<i64> {
        let fences = vec![fence.clone()];
        self.write(move |tx| turn::heartbeat_all(tx, &fences, TTL_MS, now_ms)).unwrap().remove(0)
    }

    /// Does all that is due, until nothing is; how much it was.
    pub(crate) fn sweep(&self, now_ms: i64) -> usize {
        let mut count = 0;
        loop {
            let due = self.read(move |rx| sweep::due(rx, now_ms, 100));
            if due.is_empty() {
                return count;
            }
            count += due.len();
            assert!(count < 1_000, "it never ends: {due:?}");
            self.write(move |tx| sweep::settle(tx, &due, now_ms)).unwrap();
        }
    }

    pub(crate) fn head(&self, agent: u32) -> Head {
        self.read(move |rx| Ok(head::find(rx, &key(agent))?.unwrap()))
    }

    pub(crate) fn row(&self, id: &AgentTurnId) -> InboxRow {
        let id = id.clone();
        self.read(move |rx| Ok(inbox::turn(rx, &id)?.unwrap()))
    }

    pub(crate) fn steps(&self, id: &AgentTurnId) -> Vec<Step> {
        let id = id.clone();
        self.read(move |rx| step::of_turn(rx, &id))
    }

    pub(crate) fn deliverable(&self, id: &AgentTurnId) -> Option<Card> {
        let id = id.clone();
        self.read(move |rx| card::deliverable(rx, &id))
    }

    /// The types of the cards in the output box of turn `n`.
    pub(crate) fn output(&self, n: u32) -> Vec<&'static str> {
        let cards = self.read(move |rx| boxes::cards(rx, &output_box(n), 0, 100));
        cards.into_iter().map(|card| card.card_type.as_str()).collect()
    }

    /// What was told of a turn, without its name.
    pub(crate) fn told(&self, id: &AgentTurnId) -> Vec<String> {
        let start = format!("{id}/");
        let events =
            self.read(|rx| Ok(guild_store::event::after(rx, guild_kernel::TOPIC, 0, 10_000)?));
        let told = events.into_iter().filter_map(|e| Some(e.id.strip_prefix(&start)?.to_owned()));
        told.collect()
    }

    /// How a turn ended, and why.
    pub(crate) fn ended(&self, id: &AgentTurnId) -> (Option<Outcome>, Option<String>) {
        let row = self.row(id);
        (row.outcome, row.error_code)
    }

    /// Everything that is stored.
    pub(crate) fn dump(&self) -> String {
        self.read(|rx| {
            let mut dump = String::new();
            let tables = [
                "SELECT * FROM agent_state_head",
                "SELECT * FROM agent_inbox",
                "SELECT * FROM agent_steps",
                "SELECT * FROM turn_waiting_tools",
                "SELECT * FROM execution_edges",
                "SELECT * FROM cards",
                "SELECT * FROM card_boxes",
                "SELECT * FROM card_box_entries",
                "SELECT * FROM event",
                "SELECT * FROM outbox",
                "SELECT * FROM pmo_batches",
                "SELECT * FROM pmo_batch_tasks",
                "SELECT * FROM project_agents",
            ];
            for sql in tables {
                let mut rows: Vec<String> =
                    rx.all::<Any>(sql, args![])?.into_iter().map(|row| row.0.join("|")).collect();
                rows.sort();
                dump.push_str(&format!("{sql}\n{}\n", rows.join("\n")));
            }
            Ok(dump)
        })
    }

    /// What an audit finds wrong.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.read(audit::run).problems
    }

    /// All is well, and nothing waits for anybody.
    pub(crate) fn assert_well(&self) {
        assert_eq!(self.problems(), Vec::<String>::new());
    }

    /// Changes rows as no code of ours would; how many.
    pub(crate) fn plant(&self, sql: &'static str) -> u64 {
        self.write(move |tx| Ok(tx.exec(sql, args![])?)).unwrap()
    }
}

pub(crate) fn agent(n: u32) -> Agent {
    Agent {
        key: key(n),
        profile_name: "basic".to_owned(),
        worker_target: TARGET.to_owned(),
        tags: vec!["test".to_owned()],
        display_name: format!("Agent {n}"),
        owner_agent_id: None,
        status: AgentStatus::Active,
    }
}

pub(crate) fn card_id(n: u32) -> CardId {
    made("card", n).parse().unwrap()
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.close();
        }
    }
}
