//! Wake-ups by letter: whoever knows that there is work for a target may say so, and is told so.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, LazyLock};

use futures_util::future::{join_all, select};
use guild_bus::mail::{Letter, Mail, Mailbox};
use guild_bus::subject::{Pattern, Prefix, Subject, WorkerTarget};
use guild_bus::{ANYTHING, Bus};
use guild_protocol::env::{Clock, Shutdown, UnixMs};
use guild_store::{Rx, Val};

use super::header::{CHANNEL_ID, KERNEL, PROJECT_ID, SENDER, address, of_kernel};
use crate::row::{Statement, Text};
use crate::{AgentId, ChannelId, ProjectId, Result};

/// Those that hear wake-ups of one target share them: the one that hears it rings for all.
const GROUP: &str = "kernel";
/// However often somebody says so, workers look no more often than this.
const PAUSE_MS: i64 = 10;

/// Hears wake-ups at `{prefix}.{project}.{channel}.cmd.agent.{target}.wakeup` and rings the bell of the target.
pub struct Doorbell {
    targets: Vec<WorkerTarget>,
    mail: Arc<dyn Mail>,
    bus: Arc<dyn Bus>,
    prefix: Prefix,
    clock: Arc<dyn Clock>,
}

impl Doorbell {
    /// A doorbell of the workers that serve these targets.
    pub fn new(
        targets: Vec<WorkerTarget>,
        mail: Arc<dyn Mail>,
        bus: Arc<dyn Bus>,
        prefix: Prefix,
        clock: Arc<dyn Clock>,
    ) -> Doorbell {
        Doorbell { targets, mail, bus, prefix, clock }
    }

    /// Hears until the shutdown.
    pub async fn run(self, shutdown: Shutdown) -> Result<()> {
        let mut rooms = Vec::with_capacity(self.targets.len());
        for target in &self.targets {
            let subject = Subject::Wakeup(target.clone());
            let pattern = Pattern::everywhere(&self.prefix, &subject.to_string())?;
            let mailbox = self.mail.subscribe(pattern, Some(GROUP));
            rooms.push(self.hear(mailbox, subject.topic()?.as_str().to_owned()));
        }
        select(pin!(join_all(rooms)), shutdown.triggered()).await;
        Ok(())
    }

    async fn hear(&self, mut mailbox: Mailbox, topic: String) {
        loop {
            let mut foreign = is_foreign(&mailbox.take().await);
            while let Some(letter) = mailbox.try_take() {
                foreign |= is_foreign(&letter);
            }
            if foreign {
                self.bus.ring(&topic, ANYTHING);
                self.clock.sleep(PAUSE_MS).await;
            }
        }
    }
}

/// Whether somebody else says so: for what the kernel says itself its bells have rung already.
fn is_foreign(letter: &Letter) -> bool {
    letter.headers.get(SENDER) != Some(KERNEL)
}

/// Where there is work: a project, a channel and a target.
pub(super) type Work = (String, String, String);

static DUE: LazyLock<Statement> = LazyLock::new(|| {
    let keys = [("project_id", Text), ("agent_id", Text)];
    let told = [keys[0], ("channel_id", Text), ("worker_target", Text)];
    Statement::select("agent_state_head", &told, &keys, " AND t.status = 'dispatched'")
});

/// Where work of these agents waits for a worker, each once.
pub(super) fn due(
    rx: &mut Rx<'_>,
    agents: &BTreeSet<(ProjectId, AgentId)>,
) -> Result<BTreeSet<Work>> {
    let keys: Vec<Vec<Val<'_>>> = agents
        .iter()
        .map(|(project, agent)| vec![project.as_str().into(), agent.as_str().into()])
        .collect();
    let found: Vec<Work> = DUE.read(rx, &keys)?;
    Ok(found.into_iter().collect())
}

/// The letter that says so.
pub(super) fn wakeup(work: &Work, prefix: &Prefix, now_ms: UnixMs) -> Result<Letter> {
    let (project_id, channel_id, target) = work;
    let (project_id, channel_id): (ProjectId, ChannelId) =
        (project_id.parse()?, channel_id.parse()?);
    let subject = Subject::Wakeup(WorkerTarget::parse(target)?);
    let topic = address(prefix, &project_id, &channel_id, subject)?.topic()?;
    let mut headers = of_kernel("agent.wakeup", now_ms)?;
    headers.set(PROJECT_ID, project_id.as_str())?;
    headers.set(CHANNEL_ID, channel_id.as_str())?;
    Ok(Letter::json(topic, headers, &serde_json::json!({}))?)
}

/// What is asked again and again.
#[cfg(test)]
pub(crate) fn statements() -> [&'static LazyLock<Statement>; 1] {
    [&DUE]
}
