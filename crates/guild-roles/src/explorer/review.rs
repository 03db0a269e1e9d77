//! Reviews for readers: what this node says of providers, what others say, and what that weighs here.

use guild_market::review::{self, Line, ReviewId, Row, Seen};
use guild_market::routing::TaskType;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_protocol::nostr::review::{Review, stars};
use guild_store::Rx;
use serde::Serialize;

use super::page::{Cursor, Listed, Page, cut};
use super::people::People;
use super::view::Party;
use super::words::clipped;
use crate::{Error, Result};

/// The longest text of a stranger's that is given.
const TEXT_MAX_CHARS: usize = 400;
/// So many reviews of one provider are told, of ours and of others each.
const OF_PROVIDER_MAX: i64 = 50;
/// So many kinds of work are weighed.
const TASKS_MAX: usize = 20;

/// What is said in a review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Words {
    /// How many of five stars.
    pub rating: String,
    /// How far that is trusted, in ten-thousandths.
    pub trust_bp: u32,
    /// For people.
    pub summary: Option<String>,
    /// What is good.
    pub strengths: Vec<String>,
    /// What is not.
    pub weaknesses: Vec<String>,
    /// What to do.
    pub recommendation: Option<String>,
    /// Why everybody should know at once.
    pub alert: Option<String>,
    /// The request that it is about.
    pub request_id: Option<String>,
    /// The result.
    pub result_id: Option<String>,
    /// The document of the verdict.
    pub verdict_hash: Option<String>,
    /// The receipt.
    pub receipt_id: Option<String>,
}

impl Words {
    fn of(review: &Review) -> Words {
        let text =
            |text: &Option<String>| text.as_deref().map(|text| clipped(text, TEXT_MAX_CHARS));
        let list = |items: &[String]| {
            items.iter().map(|item| clipped(item, TEXT_MAX_CHARS)).collect::<Vec<_>>()
        };
        let (content, evidence) = (&review.content, &review.evidence);
        Words {
            rating: stars(review.trust_bp),
            trust_bp: review.trust_bp,
            summary: text(&content.summary),
            strengths: list(&content.strengths),
            weaknesses: list(&content.weaknesses),
            recommendation: text(&content.recommendation),
            alert: text(&content.alert),
            request_id: evidence.request_id.map(|id| id.hex()),
            result_id: evidence.result_id.map(|id| id.hex()),
            verdict_hash: evidence.verdict_hash.map(|hash| hash.to_string()),
            receipt_id: evidence.payment.as_ref().map(|payment| payment.receipt_id.to_string()),
        }
    }
}

/// What this node says of a provider, or is about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnReview {
    /// Names it.
    pub review_id: ReviewId,
    /// Of whom.
    pub provider: Party,
    /// Which work.
    pub task: TaskType,
    /// due, held, published or superseded.
    pub state: &'static str,
    /// benchmark, order, change or violation.
    pub reason: &'static str,
    /// How many outcomes it was made of.
    pub outcomes: i64,
    /// When it changed last.
    pub changed_ms: i64,
    /// When it is to be published, or was to be.
    pub due_ms: i64,
    /// When it was published.
    pub published_ms: Option<i64>,
    /// Its events: the review, the set and the label.
    pub events: Vec<EventId>,
    /// What it says.
    #[serde(flatten)]
    pub words: Words,
}

/// What somebody else says of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OtherReview {
    /// Who.
    pub reviewer: Party,
    /// Of whom.
    pub provider: Party,
    /// Which work.
    pub task: TaskType,
    /// When it was said, as its author says.
    pub said_ms: i64,
    /// Its event.
    pub event_id: EventId,
    /// The kind of that.
    pub kind: u16,
    /// What of it can be looked at here: none, forged, asked, done or paid.
    pub evidence: &'static str,
    /// What it weighs here, if whoever reads may know.
    pub weight: Option<Line>,
    /// What it says.
    #[serde(flatten)]
    pub words: Words,
}

/// What all that others say of a provider for some work comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Weighing {
    /// Which work.
    pub task: TaskType,
    /// Good outcomes that others say they had, in thousandths.
    pub good_milli: u64,
    /// Bad ones.
    pub bad_milli: u64,
    /// Our own outcomes of it, beside which these count less and less.
    pub own_outcomes: u64,
    /// The reviews, the heaviest first.
    pub reviews: Vec<OtherReview>,
}

/// What is said of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProviderReviews {
    /// By this node, the newest first.
    pub ours: Vec<OwnReview>,
    /// By others, the newest first.
    pub others: Vec<OtherReview>,
}

fn own(row: &Row, people: &People) -> OwnReview {
    OwnReview {
        review_id: row.review_id.clone(),
        provider: people.party(&row.review.subject),
        task: row.task.clone(),
        state: row.state.as_str(),
        reason: row.reason.name(),
        outcomes: row.outcomes,
        changed_ms: row.changed_ms,
        due_ms: row.due_ms,
        published_ms: row.published_ms,
        events: row.event_ids.clone(),
        words: Words::of(&row.review),
    }
}

fn other(seen: &Seen, people: &People, weight: Option<Line>) -> OtherReview {
    OtherReview {
        reviewer: people.party(&seen.reviewer),
        provider: people.party(&seen.review.subject),
        task: seen.task.clone(),
        said_ms: seen.said_ms(),
        event_id: seen.event_id,
        kind: seen.kind,
        evidence: weight.as_ref().map_or(seen.grade, |line| line.grade).name(),
        weight,
        words: Words::of(&seen.review),
    }
}

/// A page of what this node says; with drafts for those who may see them.
pub(super) fn page(rx: &mut Rx<'_>, page: &Page, with_drafts: bool) -> Result<Listed<OwnReview>> {
    let after = match &page.after {
        None => None,
        Some(cursor) => {
            let id: ReviewId = cursor.id.parse().map_err(|_| Error::Cursor)?;
            Some((cursor.at, id))
        }
    };
    let before = after.as_ref().map(|(at_ms, id)| (*at_ms, id));
    let lines = page.lines();
    let wanted = i64::try_from(lines.saturating_add(1)).unwrap_or(i64::MAX);
    let rows = review::page_before(rx, before, with_drafts, wanted)?;
    let cursor = |row: &Row| Cursor { at: row.changed_ms, id: row.review_id.to_string() };
    let (rows, next) = cut(rows, lines, cursor);
    let people = People::of(rx, rows.iter().map(|row| row.review.subject))?;
    Ok(Listed { items: rows.iter().map(|row| own(row, &people)).collect(), next })
}

/// One of ours.
pub(super) fn get(rx: &mut Rx<'_>, id: &ReviewId, with_drafts: bool) -> Result<Option<OwnReview>> {
    let row = review::find(rx, id)?.filter(|row| with_drafts || !row.state.is_draft());
    let Some(row) = row else { return Ok(None) };
    let people = People::of(rx, [row.review.subject])?;
    Ok(Some(own(&row, &people)))
}

/// A page of what others say.
pub(super) fn others(rx: &mut Rx<'_>, page: &Page) -> Result<Listed<OtherReview>> {
    let after = match &page.after {
        None => None,
        Some(cursor) => {
            let id: EventId = cursor.id.parse().map_err(|_| Error::Cursor)?;
            Some((cursor.at, id))
        }
    };
    let before = after.as_ref().map(|(at_ms, id)| (*at_ms, id));
    let lines = page.lines();
    let wanted = i64::try_from(lines.saturating_add(1)).unwrap_or(i64::MAX);
    let rows = review::seen_page(rx, before, wanted)?;
    let cursor = |seen: &Seen| Cursor { at: seen.received_ms, id: seen.event_id.hex() };
    let (rows, next) = cut(rows, lines, cursor);
    let keys = rows.iter().flat_map(|seen| [seen.reviewer, seen.review.subject]);
    let people = People::of(rx, keys)?;
    Ok(Listed { items: rows.iter().map(|seen| other(seen, &people, None)).collect(), next })
}

/// What is said of a provider; with drafts and weights for those who may see them.
pub(super) fn of_provider(
    rx: &mut Rx<'_>,
    key: &PublicKey,
    options: Option<(&review::Options, i64)>,
) -> Result<ProviderReviews> {
    let mut rows = review::of_provider(rx, key, OF_PROVIDER_MAX)?;
    rows.retain(|row| options.is_some() || !row.state.is_draft());
    let seen = review::seen_of(rx, key, None, OF_PROVIDER_MAX)?;
    let people = People::of(rx, seen.iter().map(|seen| seen.reviewer).chain([*key]))?;
    let others = match options {
        None => seen.iter().map(|seen| other(seen, &people, None)).collect(),
        Some((options, now_ms)) => {
            let all = weighings(rx, (key, None), options, (false, now_ms))?;
            all.into_iter().flat_map(|one| one.reviews).take(seen.len()).collect()
        }
    };
    Ok(ProviderReviews { ours: rows.iter().map(|row| own(row, &people)).collect(), others })
}

/// What all that others say of a provider comes to, for some work or for all.
pub(super) fn weighings(
    rx: &mut Rx<'_>,
    (key, task): (&PublicKey, Option<TaskType>),
    options: &review::Options,
    (anew, now_ms): (bool, i64),
) -> Result<Vec<Weighing>> {
    let tasks: Vec<TaskType> = match task {
        Some(task) => vec![task],
        None => {
            let seen = review::seen_of(rx, key, None, i64::MAX)?;
            let tasks: std::collections::BTreeSet<TaskType> =
                seen.into_iter().map(|seen| seen.task).collect();
            tasks.into_iter().take(TASKS_MAX).collect()
        }
    };
    let mut weighings = Vec::new();
    for task in tasks {
        let weighed = review::weighed(rx, options, (key, &task), (anew, now_ms))?;
        let entry = guild_market::routing::log::latest(rx, &task, key)?;
        let keys = weighed.seen.iter().map(|seen| seen.reviewer).chain([*key]);
        let people = People::of(rx, keys)?;
        let review::Prior { good_milli, bad_milli, why } = weighed.prior;
        let of = |line: Line| {
            let seen = weighed.seen.iter().find(|seen| seen.reviewer == line.reviewer)?;
            Some(other(seen, &people, Some(line)))
        };
        weighings.push(Weighing {
            task,
            good_milli,
            bad_milli,
            own_outcomes: entry.map_or(0, |entry| entry.jobs),
            reviews: why.into_iter().filter_map(of).collect(),
        });
    }
    Ok(weighings)
}
