//! Reviews of ours as rows.

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_protocol::nostr::review::Review;
use guild_store::{Columns, Decode, Rx, args};

use super::{Last, Reason, ReviewId};
use crate::error::code;
use crate::routing::TaskType;
use crate::row::{Cells, page, unreadable};
use crate::{Error, Result};

/// Where a review stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is a draft, and published when it is due.
    Due,
    /// It is a draft, and waits for a dispute to be resolved.
    Held,
    /// It is what we say.
    Published,
    /// It is what we said before.
    Superseded,
}

impl State {
    /// All of them.
    pub const ALL: [State; 4] = [State::Due, State::Held, State::Published, State::Superseded];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Due => "due",
            State::Held => "held",
            State::Published => "published",
            State::Superseded => "superseded",
        }
    }

    /// Whether it is not published yet.
    pub fn is_draft(self) -> bool {
        matches!(self, State::Due | State::Held)
    }
}

/// A review of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Names it.
    pub review_id: ReviewId,
    /// The so-manieth of its provider and kind of work.
    pub number: i64,
    /// Where it stands.
    pub state: State,
    /// Why there is one.
    pub reason: Reason,
    /// When it was begun.
    pub drafted_ms: UnixMs,
    /// When it changed last.
    pub changed_ms: UnixMs,
    /// When it is to be published, or was; of a held one, when it is looked at again.
    pub due_ms: UnixMs,
    /// How many outcomes it was made of.
    pub outcomes: i64,
    /// Which work.
    pub task: TaskType,
    /// What it says.
    pub review: Review,
    /// When it was published, as its events say.
    pub published_ms: Option<UnixMs>,
    /// Its events: the review, the set and the label.
    pub event_ids: Vec<EventId>,
}

impl Decode for Row {
    fn decode(row: &dyn Columns) -> guild_store::Result<Row> {
        let mut cells = Cells::of(row);
        let review_id = cells.parsed()?;
        let provider: PublicKey = cells.parsed()?;
        let task: TaskType = cells.parsed()?;
        let number = cells.next()?;
        let state = cells.next::<String>()?;
        let reason = cells.next::<String>()?;
        let drafted_ms = cells.next()?;
        let changed_ms = cells.next()?;
        let due_ms = cells.next()?;
        let outcomes = cells.next()?;
        let trust_bp = u32::try_from(cells.next::<i64>()?).map_err(unreadable)?;
        let relay: Option<String> = cells.next()?;
        let review = Review { relay, ..Review::new(provider, task.as_str(), trust_bp) };
        let review = review.with_content(&cells.next::<String>()?).map_err(unreadable)?;
        let published_ms = cells.next()?;
        let mut event_ids = Vec::new();
        for _ in 0..3 {
            event_ids.extend(cells.parsed_or_none::<EventId>()?);
        }
        Ok(Row {
            review_id,
            number,
            state: State::ALL
                .into_iter()
                .find(|known| known.as_str() == state)
                .ok_or_else(|| unreadable("a review has an unknown state"))?,
            reason: Reason::ALL
                .into_iter()
                .find(|known| known.name() == reason)
                .ok_or_else(|| unreadable("a review has an unknown reason"))?,
            drafted_ms,
            changed_ms,
            due_ms,
            outcomes,
            task,
            review,
            published_ms,
            event_ids,
        })
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT review_id, provider, task_type, number, state, reason, drafted_ms, changed_ms, due_ms, outcomes,
               trust_bp, relay, content, published_ms, event_id, set_id, label_id FROM market_review ",
            $rest
        )
    };
}

/// The review with this id, if there is one.
pub fn find(rx: &mut Rx<'_>, review_id: &ReviewId) -> Result<Option<Row>> {
    Ok(rx.first(select!("WHERE review_id = $1"), args![review_id.as_str()])?)
}

/// The review with this id.
pub fn get(rx: &mut Rx<'_>, review_id: &ReviewId) -> Result<Row> {
    let unknown = || Error::refused(&code::REVIEW_UNKNOWN, format!("there is no {review_id}"));
    find(rx, review_id)?.ok_or_else(unknown)
}

/// The draft of a provider for some work, if there is one.
pub(super) fn draft_of(
    rx: &mut Rx<'_>,
    provider: &PublicKey,
    task: &TaskType,
) -> Result<Option<Row>> {
    Ok(rx.first(
        select!("WHERE provider = $1 AND task_type = $2 AND state IN ('due', 'held')"),
        args![&provider.npub(), task.as_str()],
    )?)
}

/// How many reviews of a provider for some work there are, and what was said last.
pub(super) fn last_of(
    rx: &mut Rx<'_>,
    provider: &PublicKey,
    task: &TaskType,
) -> Result<(i64, Option<Last>)> {
    let (npub, task) = (provider.npub(), task.as_str());
    let number: Option<(i64,)> = rx.first(
        "SELECT number FROM market_review WHERE provider = $1 AND task_type = $2
         ORDER BY number DESC LIMIT 1",
        args![&npub, task],
    )?;
    let last: Option<(i64, i64)> = rx.first(
        "SELECT trust_bp, published_ms FROM market_review
         WHERE provider = $1 AND task_type = $2 AND published_ms IS NOT NULL
         ORDER BY number DESC LIMIT 1",
        args![&npub, task],
    )?;
    let last = last.map(|(trust_bp, published_ms)| Last {
        trust_bp: u32::try_from(trust_bp).unwrap_or(0),
        published_ms,
    });
    Ok((number.map_or(0, |(number,)| number), last))
}

/// What we have published of a provider that cites this request, the oldest first.
pub fn of_request(rx: &mut Rx<'_>, provider: &PublicKey, request_id: &EventId) -> Result<Vec<Row>> {
    Ok(rx.all(
        select!(
            "WHERE provider = $1 AND request_id = $2 AND published_ms IS NOT NULL
             ORDER BY published_ms, review_id"
        ),
        args![&provider.npub(), &request_id.hex()],
    )?)
}

/// A page of reviews, those that changed last first: those before this one, or the newest of all; with drafts, or
/// without.
pub fn page_before(
    rx: &mut Rx<'_>,
    before: Option<(UnixMs, &ReviewId)>,
    with_drafts: bool,
    limit: i64,
) -> Result<Vec<Row>> {
    let (at_ms, id) = before.map_or((i64::MAX, ""), |(at_ms, id)| (at_ms, id.as_str()));
    Ok(rx.all(
        select!(
            "WHERE (changed_ms < $1 OR (changed_ms = $1 AND review_id < $2))
               AND (CAST($3 AS BIGINT) = 1 OR published_ms IS NOT NULL)
             ORDER BY changed_ms DESC, review_id DESC LIMIT $4"
        ),
        args![at_ms, id, i64::from(with_drafts), page(limit)],
    )?)
}

/// What we say of a provider, and are about to, the newest first.
pub fn of_provider(rx: &mut Rx<'_>, provider: &PublicKey, limit: i64) -> Result<Vec<Row>> {
    Ok(rx.all(
        select!("WHERE provider = $1 ORDER BY changed_ms DESC, review_id DESC LIMIT $2"),
        args![&provider.npub(), page(limit)],
    )?)
}
