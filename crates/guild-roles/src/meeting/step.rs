//! Meetings whose moment has come, until each is over.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use guild_market::benchmark::read_answer;
use guild_market::claim::Claim;
use guild_market::code::JUDGE_SUBMISSION;
use guild_market::meeting::{
    self, Act, Advanced, Judged, Meeting, MeetingId, Outcome, Stage, State, Trial,
};
use guild_market::operator;
use guild_market::review;
use guild_market::verify::{self, Subject, verify};
use guild_network::archive::{self, Verified};
use guild_protocol::env::{BoxFuture, Shutdown, UnixMs};
use guild_protocol::nostr::{Event, EventId, Filter, kind};
use guild_protocol::schema::{Job, Registry};
use guild_store::Tx;

use super::Shared;
use crate::alone::{self, Alone};
use crate::holding::{is_lost, until_lost};
use crate::reviews::drafted;
use crate::workbench::Workbench;
use crate::{Error, Result};

/// Where an event that relays gave when they were asked is said to come from.
const ASKED: &str = "asked";

/// Looks after meetings until the shutdown, several at once.
pub(super) async fn look_after(shared: Arc<Shared>, shutdown: Shutdown) {
    let bench = Workbench {
        what: "meetings",
        bus: &*shared.node.bus,
        clock: &*shared.node.clock,
        sweep_ms: shared.options.sweep_ms,
        at_once: shared.options.at_once,
    };
    let waiting = |limit: i64| {
        let shared = shared.clone();
        async move { shared.due(limit).await }.boxed()
    };
    let go_on = |meeting_id: MeetingId| shared.clone().go_on(meeting_id).boxed();
    bench.work(&shutdown, waiting, MeetingId::clone, go_on).await;
}

/// What work that is not code is worth, by the check of its schema.
fn checked(meeting: &Meeting, trial: &Trial, job: &Job) -> Result<Judged> {
    let output_text = trial.content.as_deref().unwrap_or_default();
    let subject = Subject { job, provider: &meeting.terms.provider, output_text };
    let verdict = verify(&Registry::builtin(), &verify::Options::default(), &subject)?;
    Ok(Judged::Checked(Box::new(verdict)))
}

/// A meeting at its moment, and the right to go on with it.
struct Held {
    meeting: Meeting,
    /// The last one.
    trial: Trial,
    claim: Claim,
}

/// What is to be done outside of the database.
struct Errand {
    meeting: Meeting,
    request: Event,
    acts: Vec<Act>,
}

impl Shared {
    async fn due(&self, limit: i64) -> Result<Vec<MeetingId>> {
        let put_off = self.later.waiting(self.now_ms());
        let limit = limit.saturating_add(i64::try_from(put_off.len()).unwrap_or(i64::MAX));
        let (who, now_ms) = (self.claimant.clone(), self.now_ms());
        let read = self.node.store.read(move |rx| meeting::due(rx, &who, now_ms, limit));
        let mut due = read.await?;
        due.retain(|meeting_id| !put_off.contains(meeting_id));
        Ok(due)
    }

    /// Does what is next. What could not be done is found again by its row.
    async fn go_on(self: Arc<Shared>, meeting_id: MeetingId) {
        let held = match self.hold(meeting_id.clone()).await {
            Ok(Ok(Some(held))) => held,
            Ok(Ok(None)) => return,
            Ok(Err(error)) | Err(error) => return self.not_done(meeting_id, &error),
        };
        let lost = until_lost(&*self.node.clock, &self.claimant, held.claim.clone(), |claim| {
            self.renew(meeting_id.clone(), claim)
        });
        let stepped = match select(Box::pin(self.step(held)), Box::pin(lost)).await {
            Either::Left((stepped, _)) => Some(stepped),
            Either::Right(_) => None,
        };
        let done = match stepped {
            // What is asked of relays comes behind the step, and needs no right to it.
            Some(Ok(Some(errand))) => self.run(errand).await,
            Some(stepped) => stepped.map(drop),
            None => {
                self.counts.add("meeting_lost");
                return self.later.put_off(meeting_id, None, self.now_ms());
            }
        };
        match done {
            Ok(()) => self.later.done(&meeting_id),
            // The other process goes on.
            Err(error) if is_lost(&error) => self.counts.add("meeting_lost"),
            Err(error) => self.not_done(meeting_id, &error),
        }
    }

    fn not_done(&self, meeting_id: MeetingId, error: &Error) {
        self.shrug("meeting_stuck", &meeting_id, error);
        self.later.put_off(meeting_id, None, self.now_ms());
    }

    async fn hold(&self, meeting_id: MeetingId) -> Alone<Option<Held>> {
        let (who, clock) = (self.claimant.clone(), self.node.clock.clone());
        let called = alone::write(&self.node.store, move |tx| {
            let claimed = meeting::claim(tx, &meeting_id, &who, clock.now_ms())?;
            let Some((meeting, claim)) = claimed else { return Ok(None) };
            let trial = meeting::trials(tx, &meeting_id)?.pop();
            Ok(trial.map(|trial| Held { meeting, trial, claim }))
        });
        called.await
    }

    fn renew(&self, meeting_id: MeetingId, claim: Claim) -> BoxFuture<Result<Claim>> {
        let (ttl_ms, clock) = (self.claimant.ttl_ms, self.node.clock.clone());
        let called = self.node.store.write(move |tx| {
            let until_ms = clock.now_ms().saturating_add(ttl_ms);
            Ok(meeting::renew(tx, &meeting_id, &claim, until_ms)?)
        });
        Box::pin(called)
    }

    async fn step(self: &Arc<Shared>, held: Held) -> Result<Option<Errand>> {
        match (held.meeting.state, held.trial.course.stage) {
            (State::Ended, _) => Ok(None),
            (State::Routing, _) => self.route(held).await.map(|()| None),
            (State::Trying, Stage::Judging) => self.judge(held).await.map(|()| None),
            (State::Trying, Stage::Over) => self.advance(held).await.map(|()| None),
            (State::Trying, _) => self.look(held).await.map(Some),
        }
    }

    /// Looks at what relays said, and at the time.
    async fn look(self: &Arc<Shared>, held: Held) -> Result<Errand> {
        let Held { meeting, trial, claim } = held;
        let request = trial.request()?;
        let verified = Verified::check(request.clone())?;
        let chance = self.node.random.next_u64();
        let (this, of) = (self.clone(), meeting.clone());
        let looked = self.node.store.write(move |tx| {
            let now_ms = this.now_ms();
            let times = &this.options.market.times;
            let acts = meeting::look(tx, &trial, &claim, times, (now_ms, chance))?;
            for act in &acts {
                if let Act::Send(choice) = act {
                    this.send(tx, &of, &verified, *choice, now_ms)?;
                }
            }
            Ok::<_, Error>(acts)
        });
        Ok(Errand { meeting, request, acts: looked.await? })
    }

    /// Does what needs no row: a relay is offered something again, or asked.
    async fn run(&self, errand: Errand) -> Result<()> {
        let Errand { meeting, request, acts } = errand;
        for act in acts {
            match act {
                Act::Resend => {
                    self.counts.add("request_resent");
                    let relays = meeting.choices.last().cloned().unwrap_or_default();
                    (self.node.resend)(request.clone(), relays).await;
                }
                Act::Query => self.query(&meeting, &request).await?,
                Act::Send(_) | Act::Judge | Act::End(_) => {}
            }
        }
        Ok(())
    }

    /// Asks relays for answers that did not come by themselves; they are read like all others.
    async fn query(&self, meeting: &Meeting, request: &Event) -> Result<()> {
        self.counts.add("result_queried");
        let kinds: Vec<u16> = kind::result_of(request.kind).into_iter().collect();
        let filter = Filter {
            authors: Some([meeting.terms.provider].into()),
            ..Filter::kinds(kinds).tag('e', [request.id.hex()])
        };
        let relays = meeting.choices.last().cloned().unwrap_or_default();
        let found = (self.node.query)(filter, relays).await;
        let found: Vec<Verified> =
            found.into_iter().filter_map(|event| Verified::check(event).ok()).collect();
        if found.is_empty() {
            return Ok(());
        }
        let now_ms = self.now_ms();
        let put = self.node.store.write(move |tx| archive::put(tx, &found, ASKED, now_ms));
        Ok(put.await.map(drop)?)
    }

    /// Has a result judged, outside of any transaction.
    async fn judge(self: &Arc<Shared>, held: Held) -> Result<()> {
        let Held { meeting, trial, claim } = held;
        let found = match meeting.terms.benchmark.job(&trial.seed)? {
            Some(job) => checked(&meeting, &trial, &job)?,
            None => self.examined(&meeting, &trial).await?,
        };
        let this = self.clone();
        let written = self.node.store.write(move |tx| {
            Ok::<_, Error>(meeting::judged(tx, &meeting, &trial, &claim, &found, this.now_ms())?)
        });
        written.await?;
        self.counts.add("result_judged");
        Ok(())
    }

    /// What a program that was delivered is worth.
    async fn examined(&self, meeting: &Meeting, trial: &Trial) -> Result<Judged> {
        let content = trial.content.as_deref().unwrap_or_default();
        let submission = match read_answer(content) {
            Ok(submission) => submission,
            Err(error) => return Ok(Judged::Nothing(error.to_string())),
        };
        let Some(examine) = &self.node.examine else {
            let why = "results cannot be judged here: there is no sandbox";
            return Err(Error::refused(&crate::error::code::WORKSHOP, why));
        };
        let suite = meeting.terms.task(&trial.seed)?.suite().clone();
        match examine(suite, submission).await {
            Ok(verdict) => Ok(Judged::Verdict(Box::new(verdict))),
            // What was sent is no program; anything else says nothing about it, and is tried again.
            Err(refusal) if refusal.code == &JUDGE_SUBMISSION => Ok(Judged::Nothing(refusal.words)),
            Err(refusal) => Err(Error::refused(refusal.code, refusal.words)),
        }
    }

    /// The next trial, or the end.
    async fn advance(self: &Arc<Shared>, held: Held) -> Result<()> {
        let Held { meeting, claim, .. } = held;
        let next = self.trial(&meeting.terms).await?;
        let request = Verified::check(next.request.clone())?;
        let this = self.clone();
        let called = self.node.store.write(move |tx| {
            let (now_ms, options) = (this.now_ms(), &this.options.market);
            let advanced = meeting::advance(tx, &meeting, &claim, &next, options, now_ms)?;
            if let Advanced::Next(_) = &advanced {
                this.send(tx, &meeting, &request, 0, now_ms)?;
            }
            Ok::<_, Error>(advanced)
        });
        match called.await? {
            Advanced::Next(_) => self.counts.add("trial_begun"),
            Advanced::Decided(_) => self.counts.add("meeting_decided"),
        }
        Ok(())
    }

    /// Writes down what follows from two results of one request, if there are two; copies of it leave with it.
    pub(super) fn signed_twice(
        &self,
        tx: &mut Tx<'_>,
        request_id: &EventId,
        now_ms: UnixMs,
    ) -> Result<()> {
        let router = &self.node.router;
        let rows = meeting::signed_twice(tx, router.options(), request_id, now_ms)?;
        Ok(router.copy(tx, &rows, now_ms)?)
    }

    /// Tells the routing matrix, once whoever dies, and ends the meeting.
    async fn route(self: &Arc<Shared>, held: Held) -> Result<()> {
        let Held { meeting, claim, .. } = held;
        let router = &self.node.router;
        let matrix = router.current().await?;
        let provider = &meeting.terms.provider;
        let mut changes = meeting::changes(&meeting, &self.options.market.evaluation, &matrix);
        if meeting.outcome == Some(Outcome::Forbidden) {
            // Whoever stands behind this key may have others; what anybody can copy is no proof of it.
            let key = *provider;
            let others = self.node.store.read(move |rx| operator::of_own_node(rx, &key)).await?;
            changes.extend(operator::implicated(&matrix, &others, meeting.meeting_id.as_str()));
        }
        let is_admitted = meeting.outcome.is_some_and(Outcome::is_admitted);
        let told = match (changes.is_empty(), is_admitted && matrix.is_blacklisted(provider)) {
            (_, true) => Some(format!("{provider} is blacklisted, and stays so")),
            (true, false) => None,
            (false, false) => match router.record(changes).await {
                Ok(_) => None,
                // Somebody has blacklisted it meanwhile: that stands.
                Err(error) if error.code() == &guild_market::code::ROUTE_CHANGE => {
                    Some(error.to_string())
                }
                Err(error) => return Err(error),
            },
        };
        let this = self.clone();
        let ended = self.node.store.write(move |tx| {
            let now_ms = this.now_ms();
            // What came while it was decided, or before: who was hired just now may have signed twice.
            for trial in meeting::trials(tx, &meeting.meeting_id)? {
                this.signed_twice(tx, &trial.request_id, now_ms)?;
            }
            let ended = meeting::end(tx, &meeting, &claim, told.as_deref(), now_ms)?;
            drafted(review::met(tx, &this.options.reviews, &ended, now_ms), &this.counts)?;
            Ok::<_, Error>(ended)
        });
        let ended = ended.await?;
        self.counts.add("meeting_ended");
        let outcome = ended.outcome.map_or("", meeting::Outcome::name);
        tracing::info!(meeting_id = %ended.meeting_id, provider = %ended.terms.provider, outcome, "a meeting is over");
        Ok(())
    }
}
