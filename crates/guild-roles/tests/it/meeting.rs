//! Providers that are met: honest ones, and those who are not. What judges is played by the test, by the real tests'
//! names and the answer that is built in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use guild_market::benchmark::{self, Benchmark};
use guild_market::evaluation::{Dimension, Note};
use guild_market::job::Refusal;
use guild_market::judge::{
    Class, Count, Finding, Measure, Metrics, Mode, Status as TestStatus, Submission, Suite, Tally,
    TestResult, Verdict,
};
use guild_market::meeting::{Options as MarketOptions, Stage, Times};
use guild_market::routing::Status;
use guild_protocol::env::{BoxFuture, Clock, Signer};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::job::{JobResult, Request};
use guild_protocol::nostr::{Event, Filter, kind, unix_s};
use guild_roles::meeting::{
    Examine, MeetingId, Meetings, Options, Outcome, Query, State, Story, Wish,
};
use guild_roles::provider::{self, Solver};
use guild_roles::router::{Entry, Matrix, Options as RouterOptions, Router, TaskType};
use guild_store::Store;

mod attacks;
mod evidence;
mod schema;
mod shared;

use crate::town::{Hand, Hold, Hub, RELAY, Town, key, until, until_known};

/// As in the world: a test that does not want to wait puts the clock forward.
fn options() -> Options {
    let times = Times { look_ms: 20, ..Times::default() };
    let mut market = MarketOptions { times, ..MarketOptions::default() };
    // How long somebody takes here is the machine's doing.
    (market.evaluation.slow_pct, market.evaluation.exceptional_pct) = (1_000_000, 0);
    Options { market, ..Options::default() }
}

/// Nobody answers.
fn nobody() -> Query {
    Arc::new(|_, _| Box::pin(std::future::ready(Vec::new())))
}

/// How often something was judged.
type Judged = Arc<Mutex<BTreeMap<String, usize>>>;

/// A judge who knows good programs when it sees one.
fn examine(judged: &Judged) -> Examine {
    let judged = judged.clone();
    Arc::new(move |suite: Suite, submission: Submission| {
        *judged.lock().unwrap().entry(suite.hash().to_string()).or_default() += 1;
        let found = verdict(&suite, &submission);
        Box::pin(std::future::ready(Ok(found))) as BoxFuture<Result<Verdict, Refusal>>
    })
}

fn verdict(suite: &Suite, submission: &Submission) -> Verdict {
    let text = String::from_utf8_lossy(&submission.files()["solution.py"]).into_owned();
    let good = text.contains("The functions of std-v3.");
    let status = if good { TestStatus::Passed } else { TestStatus::Failed };
    let test = |test: &guild_market::judge::Test| TestResult {
        id: test.id.clone(),
        layer: test.layer,
        status,
        why: None,
        wall_us: Some(10),
    };
    let tests: Vec<TestResult> = suite.tests.iter().map(test).collect();
    let mut layers: BTreeMap<_, Count> = BTreeMap::new();
    for test in &tests {
        let count = layers.entry(test.layer).or_default();
        count.total += 1;
        count.passed += u64::from(good);
    }
    let forbidden = text.contains("import socket").then(|| Finding {
        file: "solution.py".to_owned(),
        line: 1,
        name: "socket".to_owned(),
    });
    let tally = Tally::of(&tests, forbidden.is_some());
    let absent = || Measure::Absent("not asked for".to_owned());
    Verdict {
        schema_version: 1,
        suite: suite.name.clone(),
        suite_hash: suite.hash(),
        submission_hash: submission.hash(),
        class: tally.class(),
        mode: Mode::Trusted,
        passed: tally.passed,
        total: tally.total,
        full: false,
        layers,
        tests,
        flags: Vec::new(),
        findings: forbidden.into_iter().collect(),
        trust: tally.trust(),
        metrics: Metrics {
            wall_us: 1_000,
            cpu_us: 1_000,
            memory_peak_bytes: 1 << 20,
            coverage_bp: Measure::Value(9_200),
            pylint_milli: Measure::Value(8_000),
            bandit_milli: absent(),
            mypy_milli: absent(),
        },
        limits: BTreeMap::new(),
        isolation: BTreeMap::new(),
        printed: String::new(),
    }
}

fn wish(provider: PublicKey, encrypted: bool) -> Wish {
    Wish {
        provider,
        task: None,
        benchmark: Benchmark::StdV3,
        modules: BTreeSet::new(),
        encrypted,
        bid: None,
        idempotency_key: None,
    }
}

fn task() -> TaskType {
    "benchmark-task".parse().unwrap()
}

/// The matrix of a node.
async fn matrix(store: &Store, town: &Meet) -> Arc<Matrix> {
    let router = Router::open(
        RouterOptions::default(),
        store.clone(),
        town.clock.clone(),
        Arc::new(crate::town::Dice::default()),
        None,
    );
    router.await.unwrap().current().await.unwrap()
}

/// What the matrix of a node believes of somebody.
async fn believed(store: &Store, town: &Meet, provider: PublicKey) -> Option<Entry> {
    matrix(store, town).await.entry(&task(), &provider).cloned()
}

/// What a provider of our own offers, benchmarks among it.
fn offer() -> provider::Options {
    provider::Options {
        kinds: vec![5000],
        prices: [(benchmark::SCHEMA_ID.parse().unwrap(), guild_protocol::amount::Msat(0))].into(),
        ..Town::offer()
    }
}

/// Who meets, and what it meets with.
struct Meet {
    meetings: Meetings,
    store: Store,
    clock: Arc<Hand>,
    hub: Hub,
    judged: Judged,
    /// Whether relays have what they are asked for.
    finds: bool,
}

impl Meet {
    fn in_town(town: &mut Town, node: usize) -> Meet {
        Meet::with(town, node, nobody(), false)
    }

    fn with(town: &mut Town, node: usize, query: Query, finds: bool) -> Meet {
        let judged = Judged::default();
        let means = (examine(&judged), query);
        let meetings = town.meetings(node, key(1), options(), means, Hold::default());
        let (store, clock) = (town.store(node).clone(), town.clock.clone());
        Meet { meetings, store, clock, hub: town.hub.clone(), judged, finds }
    }

    async fn meet(&self, wish: Wish) -> Story {
        let begun = self.meetings.meet(wish).await.unwrap();
        self.meetings.wait(&begun.meeting_id).await.unwrap()
    }

    /// Puts the clock forward to each moment at which somebody must look, until something holds.
    async fn fly_until(&self, meeting_id: &MeetingId, holds: impl Fn(&Story) -> bool) -> Story {
        let mut flown_ms = None;
        for _ in 0..6_000 {
            let story = self.meetings.story(meeting_id.clone()).await.unwrap();
            if holds(&story) {
                return story;
            }
            let stage = story.trials.last().map(|(trial, _)| trial.course.stage);
            if stage == Some(Stage::Recovering) && self.finds {
                // What was asked for is on its way.
                self.clock.sleep(10).await;
                continue;
            }
            let due_ms = story.meeting.due_ms;
            let ahead_ms = due_ms - self.clock.now_ms();
            if ahead_ms > 0 && flown_ms != Some(due_ms) {
                flown_ms = Some(due_ms);
                self.clock.forward(ahead_ms);
            }
            self.clock.sleep(10).await;
        }
        panic!("it never came");
    }

    async fn fly_to_the_end(&self, meeting_id: &MeetingId) -> Story {
        self.fly_until(meeting_id, |story| story.meeting.state == State::Ended).await
    }

    async fn until_counted(&self, word: &str, times: u64) {
        until(&self.clock, word, || async { self.meetings.counts().of(word) >= times }).await;
    }

    /// The honest one is met as if nobody else were there.
    async fn honest_is_hired(&self, honest: PublicKey) {
        until_known(&self.clock, &self.store, honest).await;
        let story = self.meet(wish(honest, false)).await;
        assert_eq!(story.meeting.outcome, Some(Outcome::Active), "{story:?}");
        let entry = believed(&self.store, self, honest).await.unwrap();
        assert_eq!((entry.status, entry.trust_bp), (Status::Active, 6_000));
    }
}

/// A provider that the test plays.
struct Stranger {
    key: SecretKey,
    hub: Hub,
    clock: Arc<Hand>,
}

impl Stranger {
    fn new(n: u8, meet: &Meet) -> Stranger {
        Stranger { key: key(n), hub: meet.hub.clone(), clock: meet.clock.clone() }
    }

    fn public_key(&self) -> PublicKey {
        self.key.public_key()
    }

    async fn announce(&self, meet: &Meet) {
        let mut card = Announcement::new("stranger");
        card.kinds.push("5000".to_owned());
        card.relays.push(RELAY.to_owned());
        let at = unix_s(self.clock.now_ms());
        self.hub.post(card.draft(at).unwrap().sign(&self.key).unwrap()).await;
        let us = self.public_key();
        until(&self.clock, "the stranger is known", || async {
            let read = meet.store.read(move |rx| guild_network::index::provider(rx, &us));
            !read.await.unwrap().is_empty()
        })
        .await;
    }

    /// The n-th request that asks this one, when it comes.
    async fn asked(&self, n: usize) -> Event {
        let filter = Filter::kinds([kind::BENCHMARK_REQUEST]).tag('p', [self.public_key().hex()]);
        until(&self.clock, "a request", || async { self.hub.published(&filter).len() > n }).await;
        let mut all = self.hub.published(&filter);
        // In the order in which they were first seen.
        let seen = self.hub.seen.lock().unwrap();
        let place = |event: &Event| seen.iter().position(|other| other.id == event.id);
        all.sort_by_key(place);
        all.remove(n)
    }

    fn solution(&self, request: &Event) -> String {
        let read = Request::parse(request, Some(&self.key)).unwrap();
        let spec = serde_json::from_str(&read.inputs[0].data).unwrap();
        benchmark::reference(&spec).unwrap().to_string()
    }

    fn result(&self, request: &Event, content: &str) -> Event {
        let result = JobResult::answering(request, content).unwrap();
        result.draft(request.created_at).unwrap().sign(&self.key).unwrap()
    }

    async fn answer(&self, request: &Event) {
        let content = self.solution(request);
        self.hub.post(self.result(request, &content)).await;
    }
}

fn an_honest_provider_is_met(encrypted: bool, mut town: Town, nodes: (usize, usize)) {
    let meet = Meet::in_town(&mut town, nodes.0);
    let provider = town.provider_with(nodes.1, key(2), offer(), Arc::new(Solver::Reference));
    town.tell(async move {
        let them = provider.public_key();
        until_known(&meet.clock, &meet.store, them).await;
        let mut wanted = wish(them, encrypted);
        wanted.idempotency_key = Some("once".to_owned());
        let story = meet.meet(wanted.clone()).await;
        let meeting = &story.meeting;
        assert_eq!(meeting.outcome, Some(Outcome::Active), "{story:?}");
        assert_eq!((meeting.terms.kind, meeting.d.as_str()), (5000, "guild"));
        assert_eq!(story.trials.len(), 3);
        for (trial, words) in &story.trials {
            assert_eq!((trial.class, trial.passed), (Some(Class::Success), trial.total));
            let said: Vec<&str> = words.iter().map(|word| word.standing.as_str()).collect();
            assert_eq!(said, ["feedback", "delivered"]);
            assert_eq!(words[0].words.as_deref(), Some("processing"));
        }
        // What the judge measured is in the evaluation: a quarter less for nobody to compare with.
        let found = meeting.evaluation.as_ref().unwrap();
        assert_eq!(found.parts[&Dimension::Quality].score_bp, 8_000);
        assert_eq!(found.score_bp, (50 * 10_000 + 15 * 10_000 + 10 * 8_000) / 75);
        assert_eq!(found.notes, BTreeSet::from([Note::Efficient, Note::Thorough]));
        let entry = believed(&meet.store, &meet, them).await.unwrap();
        assert_eq!((entry.status, entry.trust_bp, entry.version), (Status::Active, 6_000, 1));
        assert_eq!(entry.notes, found.notes);
        // A copy of what is significant left with it, for ourselves alone.
        let copies = Filter::kinds([kind::GIFT_WRAP]).tag('p', [key(1).public_key().hex()]);
        until(&meet.clock, "a copy", || async { !meet.hub.published(&copies).is_empty() }).await;
        assert_eq!(meet.hub.published(&copies).len(), 1);
        // Each trial asked for something else, and each result was judged once.
        let judged: Vec<usize> = meet.judged.lock().unwrap().values().copied().collect();
        assert_eq!(judged, [1, 1, 1]);
        let requests = meet.hub.published(&Filter::kinds([5000]));
        assert_eq!(requests.len(), 3);
        let sealed = |event: &Event| guild_protocol::nostr::tag::has(&event.tags, "encrypted");
        assert!(requests.iter().all(|request| sealed(request) == encrypted));
        // Asking again under the same key is the same meeting.
        assert_eq!(meet.meetings.meet(wanted).await.unwrap(), story.meeting);
        assert_eq!(meet.hub.published(&Filter::kinds([5000])).len(), 3);
    });
}

#[test]
fn an_honest_provider_is_hired() {
    let mut town = Town::new();
    let nodes = (town.node(), town.node());
    an_honest_provider_is_met(false, town, nodes);
}

#[test]
fn an_honest_provider_is_hired_in_private_on_a_server() {
    let mut town = Town::new();
    let nodes = (town.node_on_postgres(), town.node_on_postgres());
    an_honest_provider_is_met(true, town, nodes);
}

#[test]
fn who_is_not_known_is_not_met() {
    let mut town = Town::new();
    let node = town.node();
    let meet = Meet::in_town(&mut town, node);
    town.tell(async move {
        let refused = meet.meetings.meet(wish(key(9).public_key(), false)).await.unwrap_err();
        assert_eq!(refused.code().name, "meeting.provider_unheard");
    });
}
