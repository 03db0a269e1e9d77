//! Cards: what was said, called, answered and delivered. A card never changes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Tx, Val};
use serde_json::Value;

use crate::row::{Cells, Field, Int, Statement, Text, check_text, to_json, words};
use crate::{AgentTurnId, CardId, Error, ProjectId, Result, StepId, ToolCallId, code};

/// The largest content of a card, and the largest metadata.
pub const CARD_MAX_BYTES: usize = 1024 * 1024;
/// The longest name of an author.
pub(crate) const AUTHOR_MAX_BYTES: usize = 256;

words! {
    /// What a card is about.
    pub CardType {
        /// What is to be done.
        Instruction = "task.instruction",
        /// Which fields the result has.
        ResultFields = "task.result_fields",
        /// What a turn delivers: one for each turn, written when it ends.
        Deliverable = "task.deliverable",
        /// What a model said.
        Thought = "agent.thought",
        /// What went wrong in a turn.
        AgentError = "agent.error",
        /// A call of a tool.
        ToolCall = "tool.call",
        /// The result of a call: one for each call.
        ToolResult = "tool.result",
        /// A profile.
        Profile = "sys.profile",
        /// A prompt as it was sent.
        RenderedPrompt = "sys.rendered_prompt",
        /// The tools that were offered.
        Tools = "sys.tools",
        /// A reminder that the turn must end with a certain tool.
        MustEndWith = "sys.must_end_with_required",
        /// What a judge said.
        JudgeFeedback = "sys.judge_feedback",
        /// Who asked.
        ParentPointer = "meta.parent_pointer",
    }
}

words! {
    /// Who speaks in a card, as models see it.
    pub Role {
        /// The system.
        System = "system",
        /// Whoever asks.
        User = "user",
        /// The agent.
        Assistant = "assistant",
        /// A tool.
        Tool = "tool",
    }
}

/// A stored card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Its name.
    pub card_id: CardId,
    /// Whose it is.
    pub project_id: ProjectId,
    /// What it is about.
    pub card_type: CardType,
    /// Who speaks.
    pub role: Role,
    /// Who wrote it.
    pub author_id: String,
    /// The turn in which it was written.
    pub agent_turn_id: Option<AgentTurnId>,
    /// The step in which it was written, or whose call it answers.
    pub step_id: Option<StepId>,
    /// The call that it makes or answers.
    pub tool_call_id: Option<ToolCallId>,
    /// Canonical JSON.
    pub content: String,
    /// Canonical JSON.
    pub metadata: String,
    /// When it was written.
    pub created_ms: UnixMs,
}

const FIELDS: [Field; 11] = [
    ("card_id", Text),
    ("project_id", Text),
    ("type", Text),
    ("role", Text),
    ("author_id", Text),
    ("agent_turn_id", Text),
    ("step_id", Text),
    ("tool_call_id", Text),
    ("content", Text),
    ("metadata", Text),
    ("created_ms", Int),
];

static INSERT: LazyLock<Statement> = LazyLock::new(|| Statement::insert("cards", &FIELDS));
static BY_ID: LazyLock<Statement> =
    LazyLock::new(|| Statement::select("cards", &FIELDS, &[("card_id", Text)], ""));
static RESULTS: LazyLock<Statement> = LazyLock::new(|| {
    let keys = [("tool_call_id", Text)];
    Statement::select("cards", &FIELDS, &keys, " AND t.type = 'tool.result'")
});
static DELIVERABLES: LazyLock<Statement> = LazyLock::new(|| {
    let keys = [("agent_turn_id", Text)];
    Statement::select("cards", &FIELDS, &keys, " AND t.type = 'task.deliverable'")
});
pub(crate) static OF_BOX: LazyLock<Statement> = LazyLock::new(|| {
    let columns = FIELDS.map(|(name, _)| format!("t.{name}")).join(", ");
    let text = format!(
        "SELECT {columns} FROM card_box_entries AS e JOIN cards AS t ON t.card_id = e.card_id
         WHERE e.box_id = $1 AND e.place >= $2 ORDER BY e.place LIMIT $3"
    );
    Statement::pair(&[Text, Int, Int], text.clone(), text)
});

/// SQLite reads what is crossed in this order: the cards of the turn, and not all of the box.
pub(crate) static OF_TURN: LazyLock<Statement> = LazyLock::new(|| {
    let columns = FIELDS.map(|(name, _)| format!("t.{name}")).join(", ");
    let text = format!(
        "SELECT e.place, {columns}
         FROM cards AS t CROSS JOIN card_box_entries AS e
         WHERE t.agent_turn_id = $1 AND e.box_id = $2 AND e.card_id = t.card_id AND e.place >= $3
         ORDER BY e.place LIMIT $4"
    );
    Statement::pair(&[Text, Text, Int, Int], text.clone(), text)
});

/// What turns ask of this table again and again.
#[cfg(test)]
pub(crate) fn statements() -> [&'static LazyLock<Statement>; 5] {
    [&BY_ID, &RESULTS, &DELIVERABLES, &OF_BOX, &OF_TURN]
}

impl Decode for Card {
    fn decode(row: &dyn Columns) -> guild_store::Result<Card> {
        Card::read(&mut Cells::of(row))
    }
}

/// A card, and where it lies.
pub(crate) struct Placed {
    pub(crate) place: i64,
    pub(crate) card: Card,
}

impl Decode for Placed {
    fn decode(row: &dyn Columns) -> guild_store::Result<Placed> {
        let mut cells = Cells::of(row);
        Ok(Placed { place: cells.next()?, card: Card::read(&mut cells)? })
    }
}

impl Card {
    fn read(cells: &mut Cells<'_>) -> guild_store::Result<Card> {
        Ok(Card {
            card_id: cells.parsed()?,
            project_id: cells.parsed()?,
            card_type: cells.parsed()?,
            role: cells.parsed()?,
            author_id: cells.next()?,
            agent_turn_id: cells.maybe()?,
            step_id: cells.maybe()?,
            tool_call_id: cells.maybe()?,
            content: cells.next()?,
            metadata: cells.next()?,
            created_ms: cells.next()?,
        })
    }

    fn values(&self) -> Vec<Val<'_>> {
        vec![
            self.card_id.as_str().into(),
            self.project_id.as_str().into(),
            self.card_type.as_str().into(),
            self.role.as_str().into(),
            (&self.author_id).into(),
            self.agent_turn_id.as_ref().map(AgentTurnId::as_str).into(),
            self.step_id.as_ref().map(StepId::as_str).into(),
            self.tool_call_id.as_ref().map(ToolCallId::as_str).into(),
            (&self.content).into(),
            (&self.metadata).into(),
            self.created_ms.into(),
        ]
    }
}

/// A card that is written outside of a turn: an instruction, a pointer to whoever asks, and the like.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCard {
    /// Its name, made by the writer: putting it twice is putting it once.
    pub card_id: CardId,
    /// Whose it is.
    pub project_id: ProjectId,
    /// What it is about. Calls, results and deliverables are written by turns alone.
    pub card_type: CardType,
    /// Who speaks.
    pub role: Role,
    /// Who writes it.
    pub author_id: String,
    /// What it says.
    pub content: Value,
    /// What is said about it.
    pub metadata: Value,
}

impl NewCard {
    fn checked(&self, now_ms: UnixMs) -> Result<Card> {
        if matches!(
            self.card_type,
            CardType::ToolCall | CardType::ToolResult | CardType::Deliverable
        ) {
            let message = format!("a card of type {} is written by a turn", self.card_type);
            return Err(Error::refused(&code::MALFORMED, message));
        }
        check_text("author_id", &self.author_id, AUTHOR_MAX_BYTES)?;
        Ok(Card {
            card_id: self.card_id.clone(),
            project_id: self.project_id.clone(),
            card_type: self.card_type,
            role: self.role,
            author_id: self.author_id.clone(),
            agent_turn_id: None,
            step_id: None,
            tool_call_id: None,
            content: to_json("content", &self.content, CARD_MAX_BYTES)?,
            metadata: to_json("metadata", &self.metadata, CARD_MAX_BYTES)?,
            created_ms: now_ms,
        })
    }
}

/// Stores cards, all or none. The same card again is the same card; another one under its name is refused.
pub fn put_all(tx: &mut Tx<'_>, new: &[NewCard], now_ms: UnixMs) -> Result<()> {
    let ids: Vec<&CardId> = new.iter().map(|card| &card.card_id).collect();
    let mut known: BTreeMap<CardId, Card> = BTreeMap::new();
    for card in find_all(tx, &ids)? {
        known.insert(card.card_id.clone(), card);
    }
    let mut stored = Vec::new();
    for new in new {
        let card = new.checked(now_ms)?;
        match known.get(&card.card_id) {
            None => {
                known.insert(card.card_id.clone(), card.clone());
                stored.push(card);
            }
            Some(there) if *there == (Card { created_ms: there.created_ms, ..card.clone() }) => {}
            Some(_) => {
                let message = format!("{} is stored with other content", card.card_id);
                return Err(Error::refused(&code::CONFLICT, message));
            }
        }
    }
    insert_all(tx, &stored)
}

pub(crate) fn insert_all(tx: &mut Tx<'_>, cards: &[Card]) -> Result<()> {
    let rows: Vec<_> = cards.iter().map(Card::values).collect();
    INSERT.write(tx, &rows)?;
    Ok(())
}

/// The cards with these names, as far as they are there, in any order.
pub fn find_all(rx: &mut Rx<'_>, ids: &[&CardId]) -> Result<Vec<Card>> {
    let keys: Vec<_> = ids.iter().map(|id| vec![id.as_str().into()]).collect();
    BY_ID.read(rx, &keys)
}

/// The results of these calls, as far as they are there, in any order.
pub fn results(rx: &mut Rx<'_>, calls: &[&ToolCallId]) -> Result<Vec<Card>> {
    let keys: Vec<_> = calls.iter().map(|id| vec![id.as_str().into()]).collect();
    RESULTS.read(rx, &keys)
}

/// What a turn has delivered.
pub fn deliverable(rx: &mut Rx<'_>, agent_turn_id: &AgentTurnId) -> Result<Option<Card>> {
    let found = DELIVERABLES.read(rx, &[vec![agent_turn_id.as_str().into()]])?;
    Ok(found.into_iter().next())
}
