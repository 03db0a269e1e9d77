//! Jobs that were accepted, until each is delivered or given up.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use guild_market::TOPIC;
use guild_market::job::{self, Refusal, TakenJob};
use guild_protocol::env::{Shutdown, UnixMs};
use guild_protocol::json;
use guild_protocol::nostr::{Event, EventId};
use guild_protocol::schema::Job;
use guild_store::Tx;

use super::worker::Task;
use super::{MINUTE_MS, Shared};
use crate::alone::{self, Alone};
use crate::error::code;
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
    /// Jobs that are to be done, without those that were put off.
    async fn accepted(&self, limit: i64) -> Result<Vec<TakenJob>> {
        let put_off = self.later.waiting(self.now_ms());
        let limit = limit.saturating_add(i64::try_from(put_off.len()).unwrap_or(i64::MAX));
        let us = self.us();
        let mut jobs = self.node.store.read(move |rx| job::accepted(rx, &us, limit)).await?;
        jobs.retain(|job| !put_off.contains(&job.request_id));
        Ok(jobs)
    }

    /// Does a job, and hands in what came of it. One that could not be handed in is found again by its row.
    async fn finish(self: Arc<Shared>, job: TakenJob) {
        let request_id = job.request_id;
        let done = self.try_work(&job).await;
        let handed_in = match self.clone().hand_in(job.clone(), done).await {
            // It cannot be written down, whatever it is: the buyer is told that there is nothing.
            Ok(Err(error)) => {
                self.shrug("job_not_handed_in", &request_id, &error);
                let excuse = Refusal::new(&code::WORK_FAILED, "it is done, and cannot be sent");
                self.clone().hand_in(job, Err(excuse)).await
            }
            other => other,
        };
        match handed_in {
            Ok(Ok(word)) => {
                self.later.done(&request_id);
                self.counts.add(word);
            }
            Ok(Err(error)) | Err(error) => {
                self.shrug("job_not_handed_in", &request_id, &error);
                self.later.put_off(request_id, None, self.now_ms());
            }
        }
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
        done: Result<String, Refusal>,
    ) -> Alone<&'static str> {
        let this = self.clone();
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let request = job.request()?;
            match &done {
                Ok(text) => match this.result(&request, &job, text, now_ms) {
                    Ok(result) => this.deliver(tx, &request, &job, result, now_ms),
                    // It is done, and too large to be sent.
                    Err(error) => {
                        let refusal = Refusal::new(error.code(), error.to_string());
                        this.give_up(tx, &request, &job, &refusal, now_ms)
                    }
                },
                Err(refusal) => this.give_up(tx, &request, &job, refusal, now_ms),
            }
        });
        called.await
    }

    fn deliver(
        &self,
        tx: &mut Tx<'_>,
        request: &Event,
        job: &TakenJob,
        result: Event,
        now_ms: UnixMs,
    ) -> Result<&'static str> {
        if job::get(tx, &job.request_id)?.state != job::State::Accepted {
            return Ok("job_known");
        }
        job::deliver(tx, &job.request_id, &result, now_ms)?;
        self.publish(tx, result, request, now_ms)?;
        Ok("job_delivered")
    }

    fn give_up(
        &self,
        tx: &mut Tx<'_>,
        request: &Event,
        job: &TakenJob,
        refusal: &Refusal,
        now_ms: UnixMs,
    ) -> Result<&'static str> {
        if job::get(tx, &job.request_id)?.state != job::State::Accepted {
            return Ok("job_known");
        }
        let failed = job::fail(tx, &job.request_id, refusal, now_ms)?;
        let answer = self.error(request, &failed, now_ms)?;
        self.publish(tx, answer, request, now_ms)?;
        Ok("job_failed")
    }
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
