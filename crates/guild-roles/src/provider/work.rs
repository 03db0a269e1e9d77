//! Jobs that were accepted, until each is delivered or given up.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use guild_market::TOPIC;
use guild_market::claim::Claim;
use guild_market::job::{self, Refusal, TakenJob};
use guild_protocol::env::{BoxFuture, Shutdown, UnixMs};
use guild_protocol::json;
use guild_protocol::nostr::{Event, EventId};
use guild_protocol::schema::Job;
use guild_store::Tx;

use super::worker::Task;
use super::{MINUTE_MS, Shared};
use crate::alone::{self, Alone};
use crate::error::code;
use crate::holding::{is_lost, until_lost};
use crate::workbench::Workbench;
use crate::{Error, Result};

/// Works until the shutdown, on several jobs at once.
pub(super) async fn work(shared: Arc<Shared>, shutdown: Shutdown) {
    let bench = Workbench {
        what: "jobs",
        bus: &*shared.node.bus,
        clock: &*shared.node.clock,
        sweep_ms: shared.options.sweep_ms,
        at_once: shared.options.concurrency,
    };
    let waiting = |limit: i64| {
        let shared = shared.clone();
        async move { shared.accepted(limit).await }.boxed()
    };
    let finish = |job: TakenJob| shared.clone().finish(job).boxed();
    bench.work(&shutdown, waiting, |job| job.request_id, finish).await;
}

impl Shared {
    /// Jobs that are to be done here, without those that were put off.
    async fn accepted(&self, limit: i64) -> Result<Vec<TakenJob>> {
        let put_off = self.later.waiting(self.now_ms());
        let limit = limit.saturating_add(i64::try_from(put_off.len()).unwrap_or(i64::MAX));
        let (us, who, now_ms) = (self.us(), self.claimant.clone(), self.now_ms());
        let read = self.node.store.read(move |rx| job::to_do(rx, &us, &who, now_ms, limit));
        let mut jobs = read.await?;
        jobs.retain(|job| !put_off.contains(&job.request_id));
        Ok(jobs)
    }

    /// Does a job, and hands in what came of it. One that could not be handed in is found again by its row. One that
    /// another process takes over is dropped.
    async fn finish(self: Arc<Shared>, job: TakenJob) {
        let request_id = job.request_id;
        let claim = match self.claim(&job).await {
            Ok(Ok(Some(claim))) => claim,
            Ok(Ok(None)) => return self.counts.add("job_claimed_elsewhere"),
            Ok(Err(error)) | Err(error) => return self.not_handed_in(request_id, &error),
        };
        self.counts.add("job_begun");
        let lost = until_lost(&*self.node.clock, &self.claimant, claim.clone(), |claim| {
            self.renew(request_id, claim)
        });
        let done = match select(Box::pin(self.try_work(&job)), Box::pin(lost)).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => {
                self.counts.add("job_lost");
                // It may be its own still: what is begun again is claimed again.
                return self.later.put_off(request_id, None, self.now_ms());
            }
        };
        let handed_in = match self.clone().hand_in(job.clone(), claim.clone(), done).await {
            // It cannot be written down, whatever it is: the buyer is told that there is nothing.
            Ok(Err(error)) => {
                self.shrug("job_not_handed_in", &request_id, &error);
                let excuse = Refusal::new(&code::WORK_FAILED, "it is done, and cannot be sent");
                self.clone().hand_in(job, claim, Err(excuse)).await
            }
            other => other,
        };
        match handed_in {
            Ok(Ok(word)) => {
                self.later.done(&request_id);
                self.counts.add(word);
            }
            Ok(Err(error)) | Err(error) => self.not_handed_in(request_id, &error),
        }
    }

    fn not_handed_in(&self, request_id: EventId, error: &Error) {
        self.shrug("job_not_handed_in", &request_id, error);
        self.later.put_off(request_id, None, self.now_ms());
    }

    /// The right to do a job. Whoever took it has it already, for one try; any other needs a write.
    async fn claim(&self, job: &TakenJob) -> Alone<Option<Claim>> {
        let request_id = job.request_id;
        let held = job.claimed.held_by(&self.claimant);
        let is_fresh = |claim: &Claim| claim.epoch == 1 && claim.until_ms > self.now_ms();
        if let Some(claim) = held.filter(|claim| is_fresh(claim) && !self.later.knows(&request_id))
        {
            return Ok(Ok(Some(claim)));
        }
        let (who, clock) = (self.claimant.clone(), self.node.clock.clone());
        let called = alone::write(&self.node.store, move |tx| {
            Ok(job::claim(tx, &request_id, &who, clock.now_ms())?)
        });
        called.await
    }

    fn renew(&self, request_id: EventId, claim: Claim) -> BoxFuture<Result<Claim>> {
        let (ttl_ms, clock) = (self.claimant.ttl_ms, self.node.clock.clone());
        let called = self.node.store.write(move |tx| {
            let until_ms = clock.now_ms().saturating_add(ttl_ms);
            Ok(job::renew(tx, &request_id, &claim, until_ms)?)
        });
        Box::pin(called)
    }

    /// The output as a text, or why there is none.
    async fn try_work(&self, job: &TakenJob) -> Result<String, Refusal> {
        let refused = |e: guild_protocol::Error| Refusal::new(e.code(), e.to_string());
        let work = self.job_of(job)?;
        let schema_id = work.schema_id().clone();
        let left_ms = job.due_ms.map_or(i64::MAX, |due_ms| due_ms.saturating_sub(self.now_ms()));
        let limit_ms = self.options.job_timeout_ms.min(left_ms);
        if limit_ms <= 0 {
            return Err(too_late(limit_ms));
        }
        let task = Task { job: work, provider: self.us() };
        let time = self.node.clock.sleep(limit_ms);
        let ends = select(time, Box::pin(self.taken_back(job.request_id)));
        // Dropping the work ends it.
        let output = match select(self.worker.work(task), ends).await {
            Either::Left((output, _)) => output?,
            Either::Right((Either::Left(_), _)) => return Err(too_late(limit_ms)),
            Either::Right((Either::Right(_), _)) => {
                return Err(Refusal::new(&code::WORK_CANCELLED, "the buyer took it back"));
            }
        };
        // Nothing leaves under our key that is not even of the right form.
        if let Err(problems) = self.node.registry.validate_output(&schema_id, &output) {
            return Err(refused(problems.into()));
        }
        let text = json::to_canonical(&output).map_err(refused)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Waits until a job is not to be done any more.
    async fn taken_back(&self, request_id: EventId) {
        let mut bell = self.node.bus.listen(TOPIC);
        loop {
            select(bell.hear(), self.node.clock.sleep(self.options.sweep_ms)).await;
            let found = self.node.store.read(move |rx| Ok::<_, Error>(job::find(rx, &request_id)?));
            let is_open = |job: TakenJob| job.state == job::State::Accepted;
            // A database that fails now says nothing about the job.
            if found.await.is_ok_and(|job| !job.is_some_and(is_open)) {
                return;
            }
        }
    }

    fn job_of(&self, job: &TakenJob) -> Result<Job, Refusal> {
        let (Some(schema_id), Some(payload)) = (&job.schema_id, &job.payload) else {
            return Err(Refusal::new(&code::WORK_FAILED, "the job has no input"));
        };
        let read = self.node.registry.validate_input_text(schema_id, payload.as_bytes());
        read.map_err(|problems| {
            let error = guild_protocol::Error::from(problems);
            Refusal::new(error.code(), error.to_string())
        })
    }

    async fn hand_in(
        self: Arc<Shared>,
        job: TakenJob,
        claim: Claim,
        done: Result<String, Refusal>,
    ) -> Alone<&'static str> {
        let this = self.clone();
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let request = job.request()?;
            let closes = Closes { request: &request, job: &job, claim: &claim };
            let word = match &done {
                Ok(text) => match this.result(&request, &job, text, now_ms) {
                    Ok(result) => this.deliver(tx, &closes, result, now_ms),
                    // It is done, and too large to be sent.
                    Err(error) => {
                        let refusal = Refusal::new(error.code(), error.to_string());
                        this.give_up(tx, &closes, &refusal, now_ms)
                    }
                },
                Err(refusal) => this.give_up(tx, &closes, refusal, now_ms),
            };
            match word {
                // Nothing was written: the other process hands it in.
                Err(error) if is_lost(&error) => Ok("job_lost"),
                word => word,
            }
        });
        called.await
    }

    fn deliver(
        &self,
        tx: &mut Tx<'_>,
        closes: &Closes<'_>,
        result: Event,
        now_ms: UnixMs,
    ) -> Result<&'static str> {
        let Closes { request, job, claim } = *closes;
        if job::get(tx, &job.request_id)?.state != job::State::Accepted {
            return Ok("job_known");
        }
        job::deliver(tx, &job.request_id, claim, &result, now_ms)?;
        self.publish(tx, result, request, now_ms)?;
        Ok("job_delivered")
    }

    fn give_up(
        &self,
        tx: &mut Tx<'_>,
        closes: &Closes<'_>,
        refusal: &Refusal,
        now_ms: UnixMs,
    ) -> Result<&'static str> {
        let Closes { request, job, claim } = *closes;
        if job::get(tx, &job.request_id)?.state != job::State::Accepted {
            return Ok("job_known");
        }
        let failed = job::fail(tx, &job.request_id, claim, refusal, now_ms)?;
        let answer = self.error(request, &failed, now_ms)?;
        self.publish(tx, answer, request, now_ms)?;
        Ok("job_failed")
    }
}

/// What is closed, and by which right.
struct Closes<'a> {
    request: &'a Event,
    job: &'a TakenJob,
    claim: &'a Claim,
}

fn too_late(limit_ms: i64) -> Refusal {
    let words = match limit_ms {
        ..=0 => "its time was over before it was begun".to_owned(),
        limit_ms if limit_ms >= 2 * MINUTE_MS => {
            format!("it was not done in {} minutes", limit_ms / MINUTE_MS)
        }
        limit_ms => format!("it was not done in {limit_ms} ms"),
    };
    Refusal::new(&code::WORK_TIMEOUT, words)
}
