//! Turns as people and programs read them: what was asked, what was done step by step, what came out.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Val, args};
use serde_json::Value;

use crate::card::Card;
use crate::inbox::{self, InboxRow, InboxStatus, Outcome};
use crate::row::{Cells, Statement, Text, page};
use crate::turn::step::{self, Step};
use crate::turn::wait::{self, Wait};
use crate::turn::{head, step::Usage};
use crate::{
    AgentId, AgentKey, AgentTurnId, BoxId, ChannelId, Error, ProjectId, Result, boxes, card, code,
};

/// A turn that has written more is not shown at all: half of it would look like all of it.
const CARDS_MAX: usize = 100_000;
/// So many cards of what it read are shown.
const CONTEXT_MAX: usize = 10_000;
const CARDS_AT_ONCE: i64 = 256;

/// How far a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It waits for its agent.
    Queued,
    /// It waits for a worker.
    Dispatched,
    /// A worker has it.
    Running,
    /// It waits for results.
    Suspended,
    /// It is over.
    Closed,
}

impl Standing {
    /// As a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Queued => "queued",
            Standing::Dispatched => "dispatched",
            Standing::Running => "running",
            Standing::Suspended => "suspended",
            Standing::Closed => "closed",
        }
    }
}

/// A turn in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its place among all that was asked.
    pub seq: i64,
    /// Its name.
    pub agent_turn_id: AgentTurnId,
    /// Whose.
    pub key: AgentKey,
    /// Where it was asked for.
    pub channel_id: ChannelId,
    /// What whoever asked calls it.
    pub correlation_id: String,
    /// How it thinks.
    pub profile_name: String,
    /// The turn that asked for it.
    pub parent_agent_turn_id: Option<AgentTurnId>,
    /// How far it is.
    pub standing: Standing,
    /// How it went, once it is over.
    pub outcome: Option<Outcome>,
    /// What went wrong, as a code.
    pub error_code: Option<String>,
    /// How many steps were begun.
    pub steps: i64,
    /// What they used together.
    pub usage: Usage,
    /// When it was asked for.
    pub created_ms: UnixMs,
    /// When it was over.
    pub closed_ms: Option<UnixMs>,
}

/// A turn, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Story {
    /// What a list says of it.
    pub summary: Summary,
    /// What whoever asked said beside.
    pub metadata: Value,
    /// What it read.
    pub context: Vec<Card>,
    /// What it wrote, in order; what it delivered is the last, once it is over.
    pub cards: Vec<Card>,
    /// What was done, in order, lost tries too.
    pub steps: Vec<Step>,
    /// What it waited for.
    pub waits: Vec<Wait>,
}

/// Which turns are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those of this project.
    pub project_id: Option<ProjectId>,
    /// Only those of agents with this name.
    pub agent_id: Option<AgentId>,
    /// Only those that are not over.
    pub open: bool,
    /// Only those that were asked for before this one.
    pub before_seq: Option<i64>,
}

const LIST: &str = "SELECT agent_turn_id FROM agent_inbox
    WHERE seq < $1 AND message_type = 'turn' AND ($2 = '' OR project_id = $2)
      AND ($3 = '' OR agent_id = $3) AND ($4 = 0 OR closed_ms IS NULL)
    ORDER BY seq DESC LIMIT $5";

/// What the steps of a turn used.
struct Used {
    agent_turn_id: String,
    steps: i64,
    usage: Usage,
}

impl Decode for Used {
    fn decode(row: &dyn Columns) -> guild_store::Result<Used> {
        let mut cells = Cells::of(row);
        Ok(Used {
            agent_turn_id: cells.next()?,
            steps: cells.next()?,
            usage: Usage {
                prompt_tokens: cells.next()?,
                completion_tokens: cells.next()?,
                cost_micro_usd: cells.next()?,
                cost_unknown: cells.next::<i64>()? != 0,
                model: cells.next()?,
            },
        })
    }
}

static USED: LazyLock<Statement> = LazyLock::new(|| {
    let sums = "SELECT agent_turn_id, count(*), CAST(sum(prompt_tokens) AS BIGINT),
        CAST(sum(completion_tokens) AS BIGINT), CAST(sum(cost_micro_usd) AS BIGINT),
        max(cost_unknown), max(model)
        FROM agent_steps WHERE agent_turn_id";
    let lite = format!("{sums} = $1 GROUP BY agent_turn_id");
    let pg = format!("{sums} = ANY($1::text[]) GROUP BY agent_turn_id");
    Statement::pair(&[Text], lite, pg)
});

/// Up to `limit` turns, the newest first.
pub fn list(rx: &mut Rx<'_>, filter: &Filter, limit: i64) -> Result<Vec<Summary>> {
    let project_id = filter.project_id.as_ref().map_or("", ProjectId::as_str);
    let agent_id = filter.agent_id.as_ref().map_or("", AgentId::as_str);
    let before = filter.before_seq.unwrap_or(i64::MAX);
    let found: Vec<(String,)> =
        rx.all(LIST, args![before, project_id, agent_id, i64::from(filter.open), page(limit)])?;
    let mut ids = Vec::with_capacity(found.len());
    for (id,) in &found {
        ids.push(id.parse::<AgentTurnId>()?);
    }
    let mut rows = inbox::turns(rx, &ids.iter().collect::<Vec<_>>())?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.seq));
    summaries(rx, &rows)
}

fn summaries(rx: &mut Rx<'_>, rows: &[InboxRow]) -> Result<Vec<Summary>> {
    let keys: Vec<Vec<Val<'_>>> =
        rows.iter().map(|row| vec![row.agent_turn_id.as_str().into()]).collect();
    let used: Vec<Used> = USED.read(rx, &keys)?;
    let mut used: BTreeMap<String, Used> =
        used.into_iter().map(|used| (used.agent_turn_id.clone(), used)).collect();
    let mut summaries = Vec::with_capacity(rows.len());
    for row in rows {
        let standing = standing(rx, row)?;
        let used = used.remove(row.agent_turn_id.as_str());
        let (steps, usage) = used.map_or_else(Default::default, |used| (used.steps, used.usage));
        let payload = row.turn_payload();
        summaries.push(Summary {
            seq: row.seq,
            agent_turn_id: row.agent_turn_id.clone(),
            key: row.key.clone(),
            channel_id: row.channel_id.clone(),
            correlation_id: row.correlation_id.clone(),
            profile_name: payload.map(|payload| payload.profile_name).unwrap_or_default(),
            parent_agent_turn_id: row.parent_agent_turn_id.clone(),
            standing,
            outcome: row.outcome,
            error_code: row.error_code.clone(),
            steps,
            usage,
            created_ms: row.created_ms,
            closed_ms: row.closed_ms,
        });
    }
    Ok(summaries)
}

/// What the head of its agent says of a turn that has begun.
fn standing(rx: &mut Rx<'_>, row: &InboxRow) -> Result<Standing> {
    if row.closed_ms.is_some() {
        return Ok(Standing::Closed);
    }
    if row.status == InboxStatus::Queued {
        return Ok(Standing::Queued);
    }
    let head = head::find(rx, &row.key)?;
    let active = head.and_then(|head| head.active);
    let state = active.filter(|active| active.agent_turn_id == row.agent_turn_id);
    Ok(match state.map(|active| active.state) {
        Some(head::State::Running { .. }) => Standing::Running,
        Some(head::State::Suspended { .. }) => Standing::Suspended,
        _ => Standing::Dispatched,
    })
}

/// The turn with this name, whole.
pub fn find(rx: &mut Rx<'_>, agent_turn_id: &AgentTurnId) -> Result<Option<Story>> {
    let Some(row) = inbox::turn(rx, agent_turn_id)? else { return Ok(None) };
    let Some(summary) = summaries(rx, std::slice::from_ref(&row))?.into_iter().next() else {
        return Ok(None);
    };
    let steps = step::of_turn(rx, agent_turn_id)?;
    let waits = wait::of_steps(rx, &steps.iter().map(|step| &step.step_id).collect::<Vec<_>>())?;
    let (mut context, mut cards, mut metadata) = (Vec::new(), Vec::new(), Value::Null);
    if let Some(payload) = row.turn_payload() {
        context = read(rx, &payload.context_box_id)?;
        cards = written(rx, &payload.output_box_id, agent_turn_id)?;
        metadata = payload.metadata;
    }
    // A turn that could not even begin has its end alone, in no box.
    let deliverable = card::deliverable(rx, agent_turn_id)?;
    if let Some(deliverable) = deliverable
        && !cards.iter().any(|card| card.card_id == deliverable.card_id)
    {
        cards.push(deliverable);
    }
    Ok(Some(Story { summary, metadata, context, cards, steps, waits }))
}

/// What a turn wrote, in order, however much its agent has written before and after.
fn written(rx: &mut Rx<'_>, box_id: &BoxId, agent_turn_id: &AgentTurnId) -> Result<Vec<Card>> {
    let mut cards = Vec::new();
    let mut from = 0;
    loop {
        let page = boxes::of_turn(rx, box_id, agent_turn_id, from, CARDS_AT_ONCE)?;
        let Some(last) = page.last() else { return Ok(cards) };
        from = last.place.saturating_add(1);
        cards.extend(page.into_iter().map(|placed| placed.card));
        if cards.len() > CARDS_MAX {
            let message = format!("{agent_turn_id} has written more than {CARDS_MAX} cards");
            return Err(Error::refused(&code::TOO_LARGE, message));
        }
    }
}

/// What a turn read: its box, as far as it is read at all.
fn read(rx: &mut Rx<'_>, box_id: &BoxId) -> Result<Vec<Card>> {
    let mut cards = Vec::new();
    while cards.len() < CONTEXT_MAX {
        let from = i64::try_from(cards.len()).unwrap_or(i64::MAX);
        let page = boxes::cards(rx, box_id, from, CARDS_AT_ONCE)?;
        if page.is_empty() {
            break;
        }
        cards.extend(page);
    }
    Ok(cards)
}

/// What people know turns by: the statements of this module, for the plans.
#[cfg(test)]
pub(crate) fn statements() -> [&'static LazyLock<Statement>; 1] {
    [&USED]
}
