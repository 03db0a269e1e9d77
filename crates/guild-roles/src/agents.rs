//! Agents as their operator sees them: what they are asked, how far they are, what came out.

use std::collections::BTreeMap;
use std::sync::Arc;

use guild_kernel::boxes::{self, NewBox};
use guild_kernel::card::{self, CardType, NewCard, Role};
use guild_kernel::replay::{self, Sealed};
use guild_kernel::roster::{self, Agent, AgentStatus, Profile};
use guild_kernel::story::{self, Filter, Story, Summary};
use guild_kernel::turn::{self, NewTurn, Stop};
use guild_kernel::{AgentId, BoxId, CardId, ChannelId, ProjectId};
use guild_protocol::env::{Clock, Random};
use guild_protocol::hash::Hash;
use guild_store::{Store, Tx};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Result;
use crate::live::{Listening, Live};
use crate::tools::Offer;

pub use guild_kernel::turn::Stopped;
pub use guild_kernel::{AgentKey, AgentTurnId};

/// Who asks, in cards.
const AUTHOR: &str = "operator";

/// Something that an agent is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// In which project.
    pub project_id: ProjectId,
    /// Who. An agent that is not there yet is made, with the profile.
    pub agent_id: AgentId,
    /// Where.
    pub channel_id: ChannelId,
    /// Whose workers do it.
    pub worker_target: String,
    /// The name of the profile.
    pub profile_name: String,
    /// What the profile says. Without it the profile must be there already.
    #[serde(default)]
    pub profile: Option<Value>,
    /// What is to be done.
    pub instruction: String,
    /// The fields that the result must have, each with what it means.
    #[serde(default)]
    pub result_fields: BTreeMap<String, String>,
    /// Asking twice under one name is asking once.
    pub correlation_id: String,
}

/// The handle of the agents of a node.
#[derive(Clone)]
pub struct Agents {
    store: Store,
    clock: Arc<dyn Clock>,
    /// What a project has from its node.
    offer: Option<Arc<Offer>>,
    /// Where it is heard what models say.
    live: Option<Live>,
}

/// So many projects get their tools in one transaction.
const PROJECTS_AT_ONCE: i64 = 50;

impl Agents {
    /// The agents of this store.
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Agents {
        Agents { store, clock, offer: None, live: None }
    }

    /// The same agents, who have these tools from their node: every project that is asked for something knows them.
    #[must_use]
    pub fn offering(self, offer: Offer) -> Agents {
        Agents { offer: Some(Arc::new(offer)), ..self }
    }

    /// The same agents, whose models can be listened to.
    #[must_use]
    pub fn heard_by(self, live: Live) -> Agents {
        Agents { live: Some(live), ..self }
    }

    /// Lets the projects that are there know the tools of this node, as far as nobody else has written their rows.
    pub async fn offer_tools(&self) -> Result<()> {
        let Some(offer) = &self.offer else { return Ok(()) };
        let mut after = String::new();
        loop {
            let (from, offer, clock) = (after.clone(), offer.clone(), self.clock.clone());
            let told = self.store.write(move |tx| {
                let projects = roster::projects(tx, &from, PROJECTS_AT_ONCE)?;
                for project_id in &projects {
                    offer.put(tx, project_id, clock.now_ms())?;
                }
                Ok::<_, guild_kernel::Error>(projects)
            });
            let Some(last) = told.await?.pop() else { return Ok(()) };
            after = last.as_str().to_owned();
        }
    }

    /// What the model of an agent says from now on. Nothing, if nobody carries it here.
    pub fn listen(&self, key: &AgentKey) -> Result<Option<Listening>> {
        self.live.as_ref().map(|live| live.listen(key)).transpose()
    }

    /// A name for a task that nobody has used.
    pub fn correlation(random: &dyn Random) -> String {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        format!("task-{}", guild_protocol::hash::to_hex(&bytes))
    }

    /// Asks for a turn; its name. The same task under the same correlation is the same turn.
    pub async fn ask(&self, task: Task) -> Result<AgentTurnId> {
        let (clock, offer) = (self.clock.clone(), self.offer.clone());
        let asked = self.store.write(move |tx| {
            let now_ms = clock.now_ms();
            if let Some(offer) = &offer {
                offer.put(tx, &task.project_id, now_ms)?;
            }
            ask(tx, &task, now_ms)
        });
        Ok(asked.await?)
    }

    /// Up to `limit` turns, the newest first.
    pub async fn turns(&self, filter: Filter, limit: i64) -> Result<Vec<Summary>> {
        Ok(self.store.read(move |rx| story::list(rx, &filter, limit)).await?)
    }

    /// A turn, whole.
    pub async fn turn(&self, id: AgentTurnId) -> Result<Option<Story>> {
        Ok(self.store.read(move |rx| story::find(rx, &id)).await?)
    }

    /// Ends a turn, in whatever state it is.
    pub async fn stop(&self, agent_turn_id: AgentTurnId, reason: String) -> Result<Stopped> {
        let (clock, stop) = (self.clock.clone(), Stop { agent_turn_id, reason });
        let stopped = self.store.write(move |tx| {
            let stopped = turn::stop_all(tx, std::slice::from_ref(&stop), clock.now_ms())?;
            stopped.into_iter().next().unwrap_or(Ok(Stopped::Over))
        });
        Ok(stopped.await?)
    }

    /// The replay of a turn that is over.
    pub async fn replay(&self, id: AgentTurnId, policy_bundle_id: String) -> Result<Sealed> {
        Ok(self.store.read(move |rx| replay::export(rx, &id, &policy_bundle_id)).await?)
    }
}

fn ask(tx: &mut Tx<'_>, task: &Task, now_ms: i64) -> guild_kernel::Result<AgentTurnId> {
    let Task { project_id, agent_id, profile_name, worker_target, .. } = task;
    if let Some(body) = &task.profile {
        let profile = Profile {
            project_id: project_id.clone(),
            name: profile_name.clone(),
            worker_target: worker_target.clone(),
            body: body.clone(),
        };
        roster::put_profile(tx, &profile, now_ms)?;
    }
    let key = AgentKey { project_id: project_id.clone(), agent_id: agent_id.clone() };
    if roster::agent(tx, &key)?.is_none() {
        let agent = Agent {
            key: key.clone(),
            profile_name: profile_name.clone(),
            worker_target: worker_target.clone(),
            tags: Vec::new(),
            display_name: agent_id.as_str().to_owned(),
            owner_agent_id: None,
            status: AgentStatus::Active,
        };
        roster::put_agent(tx, &agent, &json!({}), now_ms)?;
    }
    let [context_box_id, output_box_id] = put_boxes(tx, task, &key, now_ms)?;
    let wish = NewTurn {
        key,
        channel_id: task.channel_id.clone(),
        correlation_id: task.correlation_id.clone(),
        profile_name: Some(profile_name.clone()),
        context_box_id,
        output_box_id,
        parent: None,
        trace_id: None,
        metadata: json!({}),
    };
    match turn::enqueue_all(tx, &[wish], now_ms)?.into_iter().next() {
        Some(accepted) => Ok(accepted?.agent_turn_id),
        None => Err(guild_store::Error::Closed.into()),
    }
}

/// What the turn reads and what it writes to, named by the task: the same task has the same boxes.
fn put_boxes(
    tx: &mut Tx<'_>,
    task: &Task,
    key: &AgentKey,
    now_ms: i64,
) -> guild_kernel::Result<[BoxId; 2]> {
    let id = |prefix: &str, what: &str| {
        let words = format!("{}\0{}\0{what}", key.project_id, task.correlation_id);
        let digest = Hash::of(words.as_bytes()).to_string();
        let hex = digest.rsplit(':').next().unwrap_or_default();
        let hex: String = hex.chars().take(32).collect();
        format!("{prefix}_{hex}")
    };
    let mut cards = vec![NewCard {
        card_id: id("card", "instruction").parse::<CardId>()?,
        project_id: key.project_id.clone(),
        card_type: CardType::Instruction,
        role: Role::User,
        author_id: AUTHOR.to_owned(),
        content: json!({ "text": task.instruction }),
        metadata: json!({}),
    }];
    if !task.result_fields.is_empty() {
        let fields: Vec<Value> = task
            .result_fields
            .iter()
            .map(|(name, description)| json!({ "name": name, "description": description }))
            .collect();
        cards.push(NewCard {
            card_id: id("card", "fields").parse::<CardId>()?,
            project_id: key.project_id.clone(),
            card_type: CardType::ResultFields,
            role: Role::System,
            author_id: AUTHOR.to_owned(),
            content: json!({ "fields": fields }),
            metadata: json!({}),
        });
    }
    card::put_all(tx, &cards, now_ms)?;
    let [context, output] =
        [id("box", "context").parse::<BoxId>()?, id("box", "output").parse::<BoxId>()?];
    let new = |box_id: &BoxId, cards: Vec<CardId>| NewBox {
        box_id: box_id.clone(),
        project_id: key.project_id.clone(),
        owner_agent_id: Some(key.agent_id.clone()),
        cards,
    };
    let read = cards.into_iter().map(|card| card.card_id).collect();
    boxes::create_all(tx, &[new(&context, read), new(&output, Vec::new())], now_ms)?;
    Ok([context, output])
}
