//! One turn, from where it is to where it waits or ends.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::future::Abortable;
use futures_util::stream::FuturesUnordered;
use guild_protocol::error::Code;
use serde_json::{Value, json};

use super::ask::Unanswered;
use super::heart::Hold;
use super::profile::Profile;
use super::prompt::{self, Budget, Cards, Seen};
use super::react::{self, Done, Scene};
use super::runs::Run;
use super::toolbox::Toolbox;
use super::{Worker, is_closed};
use crate::card::{CardType, Role};
use crate::turn::step::Usage;
use crate::turn::{self, Claimed, Commit, Committed, Fence, Finish, StepCard, Then, sweep};
use crate::{Error, Result, code};

/// Something to work on.
pub(super) enum Arrival {
    /// A turn that was taken.
    Turn(Box<Loaded>),
    /// A call that is written down.
    Run(Box<Run>),
}

/// A turn that was taken, and all that it needs.
pub(super) struct Loaded {
    pub(super) claimed: Claimed,
    mind: Result<Mind, (&'static Code, String)>,
    cards: Cards,
    warnings: Vec<String>,
}

/// How a turn thinks.
pub(super) struct Mind {
    pub(super) profile: Arc<Profile>,
    pub(super) toolbox: Arc<Toolbox>,
    pub(super) system: String,
}

impl Loaded {
    pub(super) fn new(
        claimed: Claimed,
        mind: Result<Mind, (&'static Code, String)>,
        cards: Cards,
        warnings: Vec<String>,
    ) -> Loaded {
        Loaded { claimed, mind, cards, warnings }
    }
}

impl Worker {
    /// Works on what was taken.
    pub(super) async fn runner(&self) {
        let mut under_way: FuturesUnordered<UnderWay<'_>> = FuturesUnordered::new();
        poll_fn(|cx| {
            loop {
                while let Poll::Ready(arrived) = self.arrivals.poll_take(cx, usize::MAX) {
                    for (hold, arrival) in arrived {
                        under_way.push(Box::pin(self.task(hold, arrival)));
                    }
                }
                match under_way.poll_next_unpin(cx) {
                    Poll::Ready(Some(())) => {}
                    Poll::Ready(None) | Poll::Pending => return Poll::<()>::Pending,
                }
            }
        })
        .await;
    }

    /// Does what has arrived, unless its lease is lost.
    async fn task(&self, (number, registration): Hold, arrival: Arrival) {
        // Whatever ends it, a lease that is lost too: its place is free.
        let _place = Place { worker: self, number };
        let _ = match arrival {
            Arrival::Turn(turn) => Abortable::new(self.work(*turn, number), registration).await,
            Arrival::Run(run) => {
                Abortable::new(self.run_and_report(*run, number), registration).await
            }
        };
    }

    async fn work(&self, loaded: Loaded, number: u64) {
        let Loaded { claimed, mind, mut cards, warnings, .. } = loaded;
        let (mut fence, mut step) = (claimed.fence.clone(), claimed.step_number);
        let mind = match mind {
            Ok(mind) => mind,
            Err((code, message)) => {
                let used = Usage::default();
                return self.give_up(number, fence, used, (code, &message)).await;
            }
        };
        loop {
            let most = mind.profile.max_steps.unwrap_or(self.options.max_steps);
            let scene = self.scene(&claimed, &fence, &mind, &cards, Budget { step, most });
            let (done, usage) = self.step(&claimed, &fence, &mind, &scene).await;
            let Done { cards: written, then, mut metadata } = done;
            add_warnings(&mut metadata, &warnings);
            let seen: Vec<Seen> = match then {
                Then::Continue => written
                    .iter()
                    .map(|card| Seen::of(card, &fence.agent_turn_id, &fence.step_id))
                    .collect(),
                _ => Vec::new(),
            };
            let runs = self.runs_of(&claimed, &fence, &scene, &then);
            let used = usage.clone();
            let commit = Commit { fence: fence.clone(), cards: written, usage, metadata, then };
            match self.commit(number, commit).await {
                Ok(Committed::Suspended { .. }) => return self.begin_runs(runs),
                Ok(Committed::Continued { fence: next, step_number, until_ms }) => {
                    cards.new.extend(seen);
                    (fence, step) = (next, step_number);
                    self.held_until(number, until_ms);
                }
                Ok(_) => return,
                Err(error) if error.code() == &code::FENCED || is_closed(&error) => return,
                Err(error) => {
                    let why = (error.code(), error.to_string());
                    return self.give_up(number, fence, used, (why.0, &why.1)).await;
                }
            }
        }
    }

    /// Ends a turn that cannot go on. What it has used is paid all the same.
    async fn give_up(&self, number: u64, fence: Fence, used: Usage, why: (&'static Code, &str)) {
        let (code, message) = why;
        let commit = Commit {
            fence,
            cards: Vec::new(),
            usage: used,
            metadata: json!({}),
            then: Then::Finish(react::failed(code, message, None)),
        };
        self.counts.add("failed", 1);
        let (fence, clock) = (commit.fence.clone(), self.parts.clock.clone());
        match self.commit(number, commit).await {
            Ok(_) => {}
            Err(error) if error.code() == &code::FENCED || is_closed(&error) => {}
            Err(error) => {
                self.warn(&error, "the end of a turn cannot be written");
                let put = self.parts.store.write(move |tx| {
                    let now_ms = clock.now_ms();
                    let held = turn::put_aside(tx, &fence, &code::UNWRITABLE, now_ms)?;
                    if held {
                        sweep::begin_next(tx, &fence.key, now_ms)?;
                    }
                    Ok::<_, Error>(held)
                });
                // If that cannot be written either its lease runs out, and a sweep deals with it.
                if put.await.unwrap_or(false) {
                    self.counts.add("marked", 1);
                }
            }
        }
    }

    fn scene<'a>(
        &'a self,
        claimed: &'a Claimed,
        fence: &'a Fence,
        mind: &'a Mind,
        cards: &'a Cards,
        budget: Budget,
    ) -> Scene<'a> {
        Scene {
            profile: &mind.profile,
            toolbox: &mind.toolbox,
            cards,
            key: &fence.key,
            channel_id: &claimed.channel_id,
            agent_turn_id: &fence.agent_turn_id,
            step_id: &fence.step_id,
            budget,
            environment: &self.parts.environment,
            suspend_timeout_ms: self.options.suspend_timeout_ms,
        }
    }

    /// One step: what it writes, and what it used.
    async fn step(
        &self,
        claimed: &Claimed,
        fence: &Fence,
        mind: &Mind,
        scene: &Scene<'_>,
    ) -> (Done, Usage) {
        let (cards, turn, budget) = (scene.cards, scene.agent_turn_id, scene.budget);
        let over = react::ended_by_results(cards, turn).or_else(|| {
            let last = || react::last_text(cards, turn);
            (budget.left() < 1).then(|| react::out_of_steps(last()))
        });
        if let Some(finish) = over {
            return (finished(Vec::new(), finish), Usage::default());
        }
        let (profile, toolbox) = (&mind.profile, &mind.toolbox);
        let prompt = prompt::prompt(profile, &mind.system, toolbox, cards, turn, budget);
        match self.ask(claimed, fence, prompt).await {
            Ok(mut reply) => {
                let usage = std::mem::take(&mut reply.usage);
                let thought = react::understand(scene, reply);
                let outcomes = self.run_here(claimed, fence, &thought.calls).await;
                (react::conclude(scene, thought, outcomes), usage)
            }
            Err(Unanswered { code, message, cost_unknown }) => {
                self.counts.add("failed", 1);
                let finish = react::failed(code, &message, react::last_text(cards, turn));
                let usage = Usage { cost_unknown, ..Usage::default() };
                (finished(vec![error_card(code, &message)], finish), usage)
            }
        }
    }
}

fn finished(cards: Vec<StepCard>, finish: Finish) -> Done {
    Done { cards, then: Then::Finish(finish), metadata: json!({}) }
}

fn error_card(code: &Code, message: &str) -> StepCard {
    let message: String = message.chars().take(4_096).collect();
    StepCard {
        card_type: CardType::AgentError,
        role: Role::System,
        content: json!({ "status": "failed", "error": message, "code": code.name }),
        metadata: json!({}),
        call: None,
    }
}

/// So many warnings about what was read are enough.
const WARNINGS_MAX: usize = 50;

/// What was met while the turn was read stands beside what was met while it thought.
fn add_warnings(metadata: &mut Value, warnings: &[String]) {
    let Some(metadata) = metadata.as_object_mut().filter(|_| !warnings.is_empty()) else { return };
    let all = metadata.entry("warnings").or_insert_with(|| json!([]));
    if let Some(all) = all.as_array_mut() {
        all.extend(warnings.iter().take(WARNINGS_MAX).map(|warning| json!(warning)));
    }
}

type UnderWay<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A turn's place among those that the worker works on.
struct Place<'a> {
    worker: &'a Worker,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.worker.let_go(self.number);
    }
}
