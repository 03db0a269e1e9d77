//! Boxes: growing lists of cards. A turn reads its context box and writes to its output box; nothing is rewritten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Tx, Val, args};

use crate::card::{self, Card};
use crate::row::{Cells, Field, Int, Statement, Text, page};
use crate::{AgentId, AgentTurnId, BoxId, CardId, Error, ProjectId, Result, code};

/// The most cards that a box begins with.
pub const FIRST_CARDS_MAX: usize = 1_000;

/// A box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardBox {
    /// Its name.
    pub box_id: BoxId,
    /// Whose it is.
    pub project_id: ProjectId,
    /// The agent that it was made for.
    pub owner_agent_id: Option<AgentId>,
    /// How many cards it has: the place of the next one.
    pub next_place: i64,
    /// When it was made.
    pub created_ms: UnixMs,
}

/// A box to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBox {
    /// Its name, made by the writer: making it twice is making it once.
    pub box_id: BoxId,
    /// Whose it is.
    pub project_id: ProjectId,
    /// The agent that it is made for.
    pub owner_agent_id: Option<AgentId>,
    /// What it begins with: cards of the same project, each once.
    pub cards: Vec<CardId>,
}

const FIELDS: [Field; 5] = [
    ("box_id", Text),
    ("project_id", Text),
    ("owner_agent_id", Text),
    ("next_place", Int),
    ("created_ms", Int),
];
const ENTRY: [Field; 3] = [("box_id", Text), ("place", Int), ("card_id", Text)];

static INSERT: LazyLock<Statement> = LazyLock::new(|| Statement::insert("card_boxes", &FIELDS));
static INSERT_ENTRIES: LazyLock<Statement> =
    LazyLock::new(|| Statement::insert("card_box_entries", &ENTRY));
static BY_ID: LazyLock<Statement> =
    LazyLock::new(|| Statement::select("card_boxes", &FIELDS, &[("box_id", Text)], ""));
static GROW: LazyLock<Statement> = LazyLock::new(|| {
    Statement::update("card_boxes", &[("box_id", Text)], &[("next_place", Int)], "")
});

/// What turns ask of these tables again and again.
#[cfg(test)]
pub(crate) fn statements() -> [&'static LazyLock<Statement>; 2] {
    [&BY_ID, &GROW]
}

impl Decode for CardBox {
    fn decode(row: &dyn Columns) -> guild_store::Result<CardBox> {
        let mut cells = Cells::of(row);
        Ok(CardBox {
            box_id: cells.parsed()?,
            project_id: cells.parsed()?,
            owner_agent_id: cells.maybe()?,
            next_place: cells.next()?,
            created_ms: cells.next()?,
        })
    }
}

impl CardBox {
    fn values(&self) -> Vec<Val<'_>> {
        vec![
            self.box_id.as_str().into(),
            self.project_id.as_str().into(),
            self.owner_agent_id.as_ref().map(AgentId::as_str).into(),
            self.next_place.into(),
            self.created_ms.into(),
        ]
    }
}

/// A card at its place in a box.
pub(crate) struct Entry {
    pub(crate) box_id: BoxId,
    pub(crate) place: i64,
    pub(crate) card_id: CardId,
}

/// Makes boxes, all or none. A box that is there already, for the same owner, is left as it is.
pub fn create_all(tx: &mut Tx<'_>, new: &[NewBox], now_ms: UnixMs) -> Result<()> {
    let ids: BTreeSet<&BoxId> = new.iter().map(|new| &new.box_id).collect();
    let mut known: BTreeMap<BoxId, CardBox> = BTreeMap::new();
    known.extend(find_all(tx, ids)?.into_iter().map(|found| (found.box_id.clone(), found)));
    check_cards(tx, new)?;
    let (mut boxes, mut entries) = (Vec::new(), Vec::new());
    for new in new {
        if let Some(there) = known.get(&new.box_id) {
            if there.project_id == new.project_id && there.owner_agent_id == new.owner_agent_id {
                continue;
            }
            let message = format!("{} was made for somebody else", new.box_id);
            return Err(Error::refused(&code::CONFLICT, message));
        }
        let (box_id, mut next_place) = (new.box_id.clone(), 0_i64);
        for card_id in &new.cards {
            let (box_id, card_id) = (box_id.clone(), card_id.clone());
            entries.push(Entry { box_id, place: next_place, card_id });
            next_place = next_place.saturating_add(1);
        }
        let made = CardBox {
            box_id: box_id.clone(),
            project_id: new.project_id.clone(),
            owner_agent_id: new.owner_agent_id.clone(),
            next_place,
            created_ms: now_ms,
        };
        known.insert(box_id, made.clone());
        boxes.push(made);
    }
    let rows: Vec<_> = boxes.iter().map(CardBox::values).collect();
    INSERT.write(tx, &rows)?;
    insert_entries(tx, &entries)
}

/// The cards of a new box are there, in its project, each once.
fn check_cards(rx: &mut Rx<'_>, new: &[NewBox]) -> Result<()> {
    let asked: BTreeSet<&CardId> = new.iter().flat_map(|new| &new.cards).collect();
    let asked: Vec<&CardId> = asked.into_iter().collect();
    let found = card::find_all(rx, &asked)?;
    let projects: BTreeMap<&CardId, &ProjectId> =
        found.iter().map(|card| (&card.card_id, &card.project_id)).collect();
    for new in new {
        if new.cards.len() > FIRST_CARDS_MAX {
            let message = format!("a box begins with at most {FIRST_CARDS_MAX} cards");
            return Err(Error::refused(&code::TOO_LARGE, message));
        }
        if new.cards.iter().collect::<BTreeSet<_>>().len() != new.cards.len() {
            let message = format!("{} names a card twice", new.box_id);
            return Err(Error::refused(&code::MALFORMED, message));
        }
        let stranger =
            new.cards.iter().find(|id| projects.get(id).is_none_or(|of| **of != new.project_id));
        if let Some(card_id) = stranger {
            let message = format!("{} has no card {card_id}", new.project_id);
            return Err(Error::refused(&code::UNKNOWN_CARD, message));
        }
    }
    Ok(())
}

pub(crate) fn insert_entries(tx: &mut Tx<'_>, entries: &[Entry]) -> Result<()> {
    let rows: Vec<Vec<Val<'_>>> = entries
        .iter()
        .map(|e| vec![e.box_id.as_str().into(), e.place.into(), e.card_id.as_str().into()])
        .collect();
    INSERT_ENTRIES.write(tx, &rows)?;
    Ok(())
}

/// Writes down how many cards boxes have.
pub(crate) fn grow(tx: &mut Tx<'_>, places: &[(&BoxId, i64)]) -> Result<()> {
    let rows: Vec<Vec<Val<'_>>> =
        places.iter().map(|(box_id, next)| vec![box_id.as_str().into(), (*next).into()]).collect();
    GROW.write(tx, &rows)?;
    Ok(())
}

/// The boxes with these names, as far as they are there, in any order.
pub(crate) fn find_all<'a>(
    rx: &mut Rx<'_>,
    ids: impl IntoIterator<Item = &'a BoxId>,
) -> Result<Vec<CardBox>> {
    let keys: Vec<Vec<Val<'_>>> = ids.into_iter().map(|id| vec![id.as_str().into()]).collect();
    BY_ID.read(rx, &keys)
}

/// The box with this name.
pub fn find(rx: &mut Rx<'_>, box_id: &BoxId) -> Result<Option<CardBox>> {
    Ok(find_all(rx, [box_id])?.into_iter().next())
}

/// The names of the cards of a box in their order, and one more than `most` if there are more.
pub(crate) fn card_ids(rx: &mut Rx<'_>, box_id: &BoxId, most: usize) -> Result<Vec<CardId>> {
    let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
    let names: Vec<(String,)> = rx.all(
        "SELECT card_id FROM card_box_entries WHERE box_id = $1 ORDER BY place LIMIT $2",
        args![box_id.as_str(), limit],
    )?;
    names.into_iter().map(|(name,)| Ok(name.parse()?)).collect()
}

/// Up to `limit` cards that a turn has written into a box, from this place on, in their order.
pub(crate) fn of_turn(
    rx: &mut Rx<'_>,
    box_id: &BoxId,
    agent_turn_id: &AgentTurnId,
    from_place: i64,
    limit: i64,
) -> Result<Vec<card::Placed>> {
    let (turn, of) = (agent_turn_id.as_str().into(), box_id.as_str().into());
    let args = [turn, of, from_place.into(), page(limit).into()];
    Ok(rx.all(card::OF_TURN.sql(), &args)?)
}

/// Up to `limit` cards of a box from this place on, in their order.
pub fn cards(rx: &mut Rx<'_>, box_id: &BoxId, from_place: i64, limit: i64) -> Result<Vec<Card>> {
    let args = [box_id.as_str().into(), from_place.into(), page(limit).into()];
    Ok(rx.all(card::OF_BOX.sql(), &args)?)
}
