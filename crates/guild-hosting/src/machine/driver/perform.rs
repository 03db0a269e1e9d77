//! Doing it: asking the machine and the agent, and writing down what came of it.

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_sandbox::agent::{self, EndedBy, Health, State};
use guild_store::{Tx, lease};

use super::act::{Kind, UNKNOWN_SHAPE, may_run_in_all, may_run_until};
use super::{Act, Driver, Resized};
use crate::machine::link::Line;
use crate::machine::{Instance, Order, check_image, code, instance_of_row};
use crate::price::Shape;
use crate::sandbox::{self, Sandbox};
use crate::{Error, Result};

/// What ends so much earlier than its row says did not end because its time was over.
const EARLY_MS: i64 = 5_000;

/// What became of something that was tried.
enum Done {
    /// It is done; the next look at the row says what follows.
    Well,
    /// The agent is gone, or the sandbox in it.
    Lost(String),
}

/// What the rows or the agent say so plainly that trying again changes nothing.
fn is_final(error: &Error) -> bool {
    let finals = [&code::NO_SUCH_IMAGE, &code::IMAGE_CHANGED, &code::NOT_ATTESTED, &code::UNABLE];
    finals.contains(&error.code())
}

impl Driver {
    /// Does one thing. What fails is tried again later, by what the row says then.
    pub(super) async fn perform(&self, act: Act, row: &Sandbox) {
        let done = match act {
            Act::Start => self.start(row).await,
            Act::Lease { until_ms } => self.lease(row, until_ms).await,
            Act::Freeze => self.set_frozen(row, true).await,
            Act::Thaw => self.set_frozen(row, false).await,
            Act::Resize(to) => self.resize(row, to).await,
            Act::Look => self.look(row).await,
            Act::Stop => self.stop(row).await,
            Act::Remove => self.remove(row).await,
            Act::Nothing => Ok(Done::Well),
        };
        let Some(kind) = act.kind() else { return };
        let done = match done {
            Ok(Done::Lost(words)) => self.lost(row, &words).await,
            Ok(Done::Well) => Ok(()),
            Err(error) => Err(error),
        };
        let now_ms = self.now_ms();
        match done {
            Ok(()) => self.note(&row.sandbox_id, |note| note.done(kind)),
            // Somebody else decided otherwise meanwhile: the row says what.
            Err(error) if error.code() == &crate::code::SANDBOX_ENDED => {
                self.note(&row.sandbox_id, |note| note.failed(kind, &self.options, now_ms));
                tracing::debug!(sandbox_id = %row.sandbox_id, %error, "the row has changed");
            }
            Err(error) => {
                self.counts.add("error");
                self.note(&row.sandbox_id, |note| note.failed(kind, &self.options, now_ms));
                tracing::warn!(
                    sandbox_id = %row.sandbox_id, ?act, %error, code = error.code().name,
                    "a sandbox could not be looked after; it is tried again"
                );
            }
        }
    }

    /// Makes it, checks what it says that it is, lets its first minute be paid, and only then lets it run.
    async fn start(&self, row: &Sandbox) -> Result<Done> {
        let instance = match self.make(row).await {
            Ok(instance) => instance,
            Err(error) => return self.not_started(row, error).await,
        };
        let sandbox_id = row.sandbox_id.clone();
        let (endpoint, key) = (instance.endpoint.clone(), instance.agent_key.hex());
        let started = self.write(move |tx, now_ms| {
            let before = sandbox::find(tx, &sandbox_id)?.map(|row| row.version);
            let started = sandbox::started(tx, &sandbox_id, &endpoint, &key, now_ms)?;
            Ok((before != Some(started.version), started))
        });
        let (is_new, started) = started.await?;
        if is_new {
            self.counts.add("started");
        }
        if self.machine.abilities().resize {
            // Nobody gives another one before the first lease.
            self.note(&row.sandbox_id, |note| note.shape = Some(row.shape));
        }
        let until_ms = may_run_until(&started, &self.options);
        // An agent takes its first lease whatever it says; what is over before it began must not begin.
        if until_ms <= self.now_ms() {
            return Ok(Done::Well);
        }
        self.lease(&started, until_ms).await
    }

    async fn make(&self, row: &Sandbox) -> Result<Instance> {
        let order = Order {
            sandbox_id: row.sandbox_id.clone(),
            cpu_milli: row.shape.cpu_milli,
            ram_mib: row.shape.ram_mib,
            disk_mib: row.shape.disk_mib,
            image: row.image.clone(),
        };
        // What was bought is what runs, also if the machine was started anew with other files since.
        if let Some(digest) = self.machine.image_digest(&row.image)?
            && digest != row.image_digest
        {
            let why = format!(
                "{} was {} when it was bought, and is {digest}",
                row.image, row.image_digest
            );
            return Err(Error::refused(&code::IMAGE_CHANGED, why));
        }
        let instance = self.machine.create(&order).await?;
        let line = self.machine.line(&self.link, &instance)?;
        check_image(&line.attestation().await?, &row.image)?;
        if line.health().await?.state == State::Ended {
            // It waited too long for its first lease. Nobody pays for that: the next try makes another.
            self.machine.destroy(&row.sandbox_id).await?;
            let why = format!("{} had ended before it was started", row.sandbox_id);
            return Err(Error::refused(&code::MACHINE, why));
        }
        Ok(instance)
    }

    /// Tries again, unless that was tried often enough or is in vain.
    async fn not_started(&self, row: &Sandbox, error: Error) -> Result<Done> {
        let mut tries = 0;
        self.note(&row.sandbox_id, |note| tries = note.tries(Kind::Start).saturating_add(1));
        if !is_final(&error) && tries < self.options.start_tries {
            return Err(error);
        }
        self.machine.destroy(&row.sandbox_id).await?;
        let (sandbox_id, words) = (row.sandbox_id.clone(), error.to_string());
        self.write(move |tx, now_ms| sandbox::failed(tx, &sandbox_id, &words, now_ms)).await?;
        self.counts.add("failed");
        tracing::warn!(sandbox_id = %row.sandbox_id, %error, "a sandbox could not be started");
        Ok(Done::Well)
    }

    async fn lease(&self, row: &Sandbox, until_ms: UnixMs) -> Result<Done> {
        let instance = instance_of_row(row)?;
        let line = self.machine.line(&self.link, &instance)?;
        let run_max_ms = may_run_in_all(row, &self.options);
        let lease = self.link.sign_lease(&instance, until_ms, run_max_ms)?;
        match line.lease(lease).await {
            Ok(stands) => {
                self.counts.add("leased");
                // If the clock was set back, the word is older than the last one and counts for nothing: again later.
                self.note(&row.sandbox_id, |note| note.leased_ms = Some(stands.run_until_ms));
                Ok(Done::Well)
            }
            Err(error) => self.unheard(row, &*line, error).await,
        }
    }

    async fn set_frozen(&self, row: &Sandbox, frozen: bool) -> Result<Done> {
        let line = self.line(row)?;
        match line.set_frozen(frozen).await {
            Ok(()) => {
                self.note(&row.sandbox_id, |note| note.frozen = Some(frozen));
                Ok(Done::Well)
            }
            Err(error) => self.unheard(row, &*line, error).await,
        }
    }

    async fn resize(&self, row: &Sandbox, to: Resized) -> Result<Done> {
        let shape = Shape { cpu_milli: to.cpu_milli, ram_mib: to.ram_mib, ..row.shape };
        let resized = self.machine.resize(&row.sandbox_id, to.cpu_milli, to.ram_mib).await;
        self.note(&row.sandbox_id, |note| match &resized {
            Ok(()) => note.shape = Some(shape),
            // It may have been done all the same: its agent is asked.
            Err(_) => note.seen_ms = None,
        });
        resized.map(|()| Done::Well)
    }

    async fn look(&self, row: &Sandbox) -> Result<Done> {
        let line = self.line(row)?;
        match line.health().await {
            Ok(health) => Ok(self.seen(row, &health)),
            Err(error) => self.unheard(row, &*line, error).await,
        }
    }

    /// Notes how it is. What has ended by itself is lost, unless its time was over: then the meter has the word.
    fn seen(&self, row: &Sandbox, health: &Health) -> Done {
        let now_ms = self.now_ms();
        self.note(&row.sandbox_id, |note| {
            note.seen_ms = Some(now_ms);
            note.frozen = Some(health.state == State::Frozen);
            note.leased_ms = health.leased.then_some(health.run_until_ms);
            if self.machine.abilities().resize {
                note.has(shape_of(health, row, note.shape), row, now_ms);
            }
        });
        let until_ms = may_run_until(row, &self.options);
        let is_paid_longer = health.run_until_ms < until_ms;
        // It ran as long as it may in all, and the row shows a later end: a clock was set to another time meanwhile.
        let ends_later = until_ms > now_ms.saturating_add(EARLY_MS);
        match health.ended_by {
            None => Done::Well,
            Some(EndedBy::Lease) if !is_paid_longer && !ends_later => Done::Well,
            Some(by) => Done::Lost(format!("it has ended by itself ({by:?}, {:?})", health.class)),
        }
    }

    /// The agent refused or did not answer. If it is gone, the sandbox is lost; if not, it is tried again.
    async fn unheard(&self, row: &Sandbox, line: &dyn Line, error: agent::Error) -> Result<Done> {
        if error.code() == &agent::code::ENDED {
            let health = line.health().await?;
            return Ok(self.seen(row, &health));
        }
        let is_there = self.machine.find(&row.sandbox_id).await?;
        let is_there = is_there.is_some_and(|instance| is_of(row, &instance));
        match is_there {
            true => Err(error.into()),
            false => Ok(Done::Lost("its agent is gone".to_owned())),
        }
    }

    /// A sandbox that runs no more though it should. What is left of it is ended, and its files are kept if they are
    /// still there.
    async fn lost(&self, row: &Sandbox, words: &str) -> Result<()> {
        let stopped = self.machine.stop(&row.sandbox_id).await?;
        self.counts.add("lost");
        tracing::warn!(sandbox_id = %row.sandbox_id, words, "a sandbox is lost");
        if stopped.keeps_files {
            return self.note_stopped(row, stopped.ran_ms).await;
        }
        let (sandbox_id, words) = (row.sandbox_id.clone(), words.to_owned());
        self.write(move |tx, now_ms| sandbox::failed(tx, &sandbox_id, &words, now_ms)).await?;
        self.machine.destroy(&row.sandbox_id).await
    }

    async fn stop(&self, row: &Sandbox) -> Result<Done> {
        let stopped = self.machine.stop(&row.sandbox_id).await?;
        self.note_stopped(row, stopped.ran_ms).await?;
        Ok(Done::Well)
    }

    async fn note_stopped(&self, row: &Sandbox, ran_ms: Option<i64>) -> Result<()> {
        let ran_ms = self.believed(row, ran_ms);
        let sandbox_id = row.sandbox_id.clone();
        let stopped = self.write(move |tx, now_ms| {
            let before = sandbox::find(tx, &sandbox_id)?.map(|row| row.status);
            let stopped = sandbox::stopped(tx, &sandbox_id, ran_ms, now_ms)?;
            Ok(before != Some(stopped.status))
        });
        // The answer to a write that was done may be lost, and it is done again: once is counted.
        if stopped.await? {
            self.counts.add("stopped");
        }
        Ok(())
    }

    async fn remove(&self, row: &Sandbox) -> Result<Done> {
        // How long it ran must be asked before nobody is left to say it.
        let ran_ms = match row.started_ms {
            Some(_) => self.machine.stop(&row.sandbox_id).await?.ran_ms,
            None => None,
        };
        self.machine.destroy(&row.sandbox_id).await?;
        let ran_ms = self.believed(row, ran_ms);
        let (sandbox_id, is_ending) =
            (row.sandbox_id.clone(), row.status == sandbox::Status::Ending);
        let removed = self.write(move |tx, now_ms| {
            let before = sandbox::find(tx, &sandbox_id)?.map(|row| row.status);
            let removed = match is_ending {
                true => sandbox::stopped(tx, &sandbox_id, ran_ms, now_ms)?,
                false => sandbox::destroyed(tx, &sandbox_id, ran_ms, now_ms)?,
            };
            Ok(before != Some(removed.status))
        });
        if removed.await? {
            self.counts.add("removed");
        }
        Ok(Done::Well)
    }

    /// What an agent says of its time, if there was so much: nonsense must not keep a sandbox from ending.
    fn believed(&self, row: &Sandbox, ran_ms: Option<i64>) -> Option<i64> {
        let existed_ms = self.now_ms().saturating_sub(row.created_ms);
        ran_ms.filter(|ran_ms| (0..=existed_ms).contains(ran_ms))
    }

    /// The agent that the row names, at the place that it names.
    fn line(&self, row: &Sandbox) -> Result<Box<dyn Line>> {
        self.machine.line(&self.link, &instance_of_row(row)?)
    }

    pub(in crate::machine) async fn write<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Tx<'_>, UnixMs) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (clock, fence) = (self.link.clock().clone(), self.fence()?);
        let write = self.store.write(move |tx| {
            let now_ms = clock.now_ms();
            if let Some(lease) = &fence {
                lease::check(tx, lease, now_ms)?;
            }
            run(tx, now_ms)
        });
        write.await
    }
}

/// The shape that a sandbox has: what its agent says counts. Of one that says nothing, what was known before; and if
/// nothing was, it is given once more what it should have.
fn shape_of(health: &Health, row: &Sandbox, known: Option<Shape>) -> Shape {
    let said = health.shape.and_then(|said| {
        let ram_mib = i64::try_from(said.memory_mib).ok()?;
        Some(Shape { cpu_milli: i64::from(said.cpu_milli), ram_mib, ..row.shape })
    });
    said.or(known).unwrap_or(UNKNOWN_SHAPE)
}

/// Whether what a machine has is what the row says.
pub(in crate::machine) fn is_of(row: &Sandbox, instance: &Instance) -> bool {
    let key = row.agent_key.as_deref().and_then(|key| key.parse::<PublicKey>().ok());
    key == Some(instance.agent_key) && row.endpoint.as_deref() == Some(&instance.endpoint)
}
