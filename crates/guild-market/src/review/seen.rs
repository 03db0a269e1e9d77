//! What others say: the newest of each reviewer about one provider and kind of work.

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::review::Review;
use guild_protocol::nostr::{Event, EventId, tag, unix_s};
use guild_store::{Columns, Decode, Rx, Tx, args};

use super::{Grade, Options, grade, record_of, refresh};
use crate::routing::TaskType;
use crate::row::{Cells, page, unreadable};
use crate::{Result, operator};

/// How far a clock may go ahead of ours. What is said later than that would stand for ever.
const FUTURE_S: u64 = 15 * 60;
/// So many reviewers of one provider and kind of work are kept of whom nothing can be looked at,
const UNPROVEN_MAX: i64 = 64;
/// and so many others, beside those of whom something is known.
pub(super) const PROVEN_MAX: i64 = 512;

/// What somebody else said last of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Who.
    pub reviewer: PublicKey,
    /// Which work.
    pub task: TaskType,
    /// What.
    pub review: Review,
    /// Its event.
    pub event_id: EventId,
    /// The kind of that.
    pub kind: u16,
    /// When it was said, as its author says.
    pub created_at: u64,
    /// When it came.
    pub received_ms: UnixMs,
    /// What of it could be looked at,
    pub grade: Grade,
    /// and when that was.
    pub graded_ms: UnixMs,
}

impl Seen {
    /// When it was said: at the latest when it came.
    pub fn said_ms(&self) -> UnixMs {
        let said_ms = i64::try_from(self.created_at).unwrap_or(i64::MAX).saturating_mul(1_000);
        said_ms.min(self.received_ms)
    }
}

impl Decode for Seen {
    fn decode(row: &dyn Columns) -> guild_store::Result<Seen> {
        let mut cells = Cells::of(row);
        let subject: PublicKey = cells.parsed()?;
        let task: TaskType = cells.parsed()?;
        let reviewer = cells.parsed()?;
        let event_id = cells.parsed()?;
        let kind = u16::try_from(cells.next::<i64>()?).map_err(unreadable)?;
        let created_at = u64::try_from(cells.next::<i64>()?).map_err(unreadable)?;
        let received_ms = cells.next()?;
        let trust_bp = u32::try_from(cells.next::<i64>()?).map_err(unreadable)?;
        let grade = Grade::named(&cells.next::<String>()?)
            .ok_or_else(|| unreadable("a review has an unknown grade"))?;
        let graded_ms = cells.next()?;
        let review = Review::new(subject, task.as_str(), trust_bp);
        let review = review.with_content(&cells.next::<String>()?).map_err(unreadable)?;
        Ok(Seen {
            reviewer,
            task,
            review,
            event_id,
            kind,
            created_at,
            received_ms,
            grade,
            graded_ms,
        })
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT subject, task_type, reviewer, event_id, kind, created_at, received_ms, trust_bp, grade, graded_ms,
               content FROM market_review_seen ",
            $rest
        )
    };
}

/// What became of a review of somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is what its reviewer says now.
    New,
    /// Its reviewer has said so, or something newer.
    Older,
    /// It is our own.
    Ours,
    /// Somebody reviews itself.
    OfItself,
    /// It is of a time to come.
    Future,
    /// There are enough of its sort.
    Full,
}

impl Taken {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Taken::New => "review_taken",
            Taken::Older => "review_older",
            Taken::Ours => "review_ours",
            Taken::OfItself => "review_of_itself",
            Taken::Future => "review_of_the_future",
            Taken::Full => "review_full",
        }
    }
}

/// Takes a review of somebody else, whose signature was checked. One that cannot be read is refused, and changes
/// nothing.
pub fn take(tx: &mut Tx<'_>, options: &Options, event: &Event, now_ms: UnixMs) -> Result<Taken> {
    if options.ours.contains(&event.pubkey) {
        return Ok(Taken::Ours);
    }
    let review = Review::parse(event)?;
    if review.subject == event.pubkey {
        return Ok(Taken::OfItself);
    }
    let now_s = unix_s(now_ms);
    if event.created_at > now_s.saturating_add(FUTURE_S) {
        return Ok(Taken::Future);
    }
    let task: TaskType = review.task.parse()?;
    let known = seen(tx, &review.subject, &task, &event.pubkey)?;
    // Of one second the lowest id wins, as everywhere.
    let is_newer = |known: &Seen| {
        event.created_at > known.created_at
            || (event.created_at == known.created_at && event.id < known.event_id)
    };
    if known.as_ref().is_some_and(|known| !is_newer(known)) {
        return Ok(Taken::Older);
    }
    let grade = grade(tx, &event.pubkey, &review.subject, &review.evidence, now_s)?;
    if known.is_none() && !has_room(tx, options, (&review.subject, &task), (&event.pubkey, grade))?
    {
        return Ok(Taken::Full);
    }
    write(tx, event, &review, grade, now_ms)?;
    let shown = &mut operator::Seen::default();
    refresh(tx, options, (&review.subject, &task), shown, now_ms)?;
    Ok(Taken::New)
}

fn seen(
    rx: &mut Rx<'_>,
    subject: &PublicKey,
    task: &TaskType,
    reviewer: &PublicKey,
) -> Result<Option<Seen>> {
    Ok(rx.first(
        select!("WHERE subject = $1 AND task_type = $2 AND reviewer = $3"),
        args![&subject.npub(), task.as_str(), &reviewer.npub()],
    )?)
}

/// Whether one more is kept. Whoever was right before, or is trusted, always has room.
fn has_room(
    rx: &mut Rx<'_>,
    options: &Options,
    (subject, task): (&PublicKey, &TaskType),
    (reviewer, grade): (&PublicKey, Grade),
) -> Result<bool> {
    if options.trusted.contains(reviewer) {
        return Ok(true);
    }
    let is_proven = grade.weight_milli() > 0;
    if is_proven && record_of(rx, reviewer)?.outcomes > 0 {
        return Ok(true);
    }
    let (sql, most) = match is_proven {
        true => (
            "SELECT count(*) FROM market_review_seen
             WHERE subject = $1 AND task_type = $2 AND grade IN ('asked', 'done', 'paid')",
            PROVEN_MAX,
        ),
        false => (
            "SELECT count(*) FROM market_review_seen
             WHERE subject = $1 AND task_type = $2 AND grade IN ('none', 'forged')",
            UNPROVEN_MAX,
        ),
    };
    let count: Option<(i64,)> = rx.first(sql, args![&subject.npub(), task.as_str()])?;
    Ok(count.map_or(0, |(count,)| count) < most)
}

fn write(
    tx: &mut Tx<'_>,
    event: &Event,
    review: &Review,
    grade: Grade,
    now_ms: UnixMs,
) -> Result<()> {
    // PostgreSQL keeps no NUL in a text; in canonical JSON one is written as an escape anyway.
    tx.exec(
        "INSERT INTO market_review_seen (subject, task_type, reviewer, event_id, kind, created_at, received_ms,
           trust_bp, grade, graded_ms, content)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $7, $10)
         ON CONFLICT (subject, task_type, reviewer) DO UPDATE SET event_id = $4, kind = $5, created_at = $6,
           received_ms = $7, trust_bp = $8, grade = $9, graded_ms = $7, content = $10",
        args![
            &review.subject.npub(),
            &review.task,
            &event.pubkey.npub(),
            &event.id.hex(),
            i64::from(event.kind),
            i64::try_from(event.created_at).unwrap_or(i64::MAX),
            now_ms,
            i64::from(review.trust_bp),
            grade.name(),
            &review.content_text()?
        ],
    )?;
    Ok(())
}

/// A reviewer takes back what it said (NIP-09); how many reviews that were.
pub fn withdraw(
    tx: &mut Tx<'_>,
    options: &Options,
    deletion: &Event,
    now_ms: UnixMs,
) -> Result<usize> {
    const MOST: usize = 32;
    let (mut count, mut shown) = (0_usize, operator::Seen::default());
    let ids = tag::values(&deletion.tags, "e").filter_map(|id| id.parse::<EventId>().ok());
    for id in ids.take(MOST) {
        let found: Option<Seen> = tx.first(
            select!("WHERE event_id = $1 AND reviewer = $2"),
            args![&id.hex(), &deletion.pubkey.npub()],
        )?;
        let Some(found) = found else { continue };
        tx.exec(
            "DELETE FROM market_review_seen WHERE event_id = $1 AND reviewer = $2",
            args![&id.hex(), &deletion.pubkey.npub()],
        )?;
        refresh(tx, options, (&found.review.subject, &found.task), &mut shown, now_ms)?;
        count = count.saturating_add(1);
    }
    Ok(count)
}

/// What others say of a provider, for some work or for all, the newest first.
pub fn seen_of(
    rx: &mut Rx<'_>,
    subject: &PublicKey,
    task: Option<&TaskType>,
    limit: i64,
) -> Result<Vec<Seen>> {
    let task = task.map(TaskType::as_str).unwrap_or_default();
    Ok(rx.all(
        select!(
            "WHERE subject = $1 AND ($2 = '' OR task_type = $2) ORDER BY received_ms DESC, event_id DESC LIMIT $3"
        ),
        args![&subject.npub(), task, page(limit)],
    )?)
}

/// Those of a provider and kind of work of which something can be looked at, the newest first.
pub(super) fn proven_of(
    rx: &mut Rx<'_>,
    subject: &PublicKey,
    task: &TaskType,
    limit: i64,
) -> Result<Vec<Seen>> {
    Ok(rx.all(
        select!(
            "WHERE subject = $1 AND task_type = $2 AND grade IN ('asked', 'done', 'paid')
             ORDER BY received_ms DESC, event_id DESC LIMIT $3"
        ),
        args![&subject.npub(), task.as_str(), page(limit)],
    )?)
}

/// Those that were looked at longest ago, before this moment, and of which something was missing then.
pub(super) fn unproven_before(rx: &mut Rx<'_>, before_ms: UnixMs, limit: i64) -> Result<Vec<Seen>> {
    Ok(rx.all(
        select!("WHERE graded_ms < $1 AND grade IN ('none', 'asked') ORDER BY graded_ms LIMIT $2"),
        args![before_ms, page(limit)],
    )?)
}

/// A page of what others say, the newest first: those before this one, or the newest of all.
pub fn seen_page(
    rx: &mut Rx<'_>,
    before: Option<(UnixMs, &EventId)>,
    limit: i64,
) -> Result<Vec<Seen>> {
    let (at_ms, id) = before.map_or((i64::MAX, String::new()), |(at_ms, id)| (at_ms, id.hex()));
    Ok(rx.all(
        select!(
            "WHERE received_ms < $1 OR (received_ms = $1 AND event_id < $2)
             ORDER BY received_ms DESC, event_id DESC LIMIT $3"
        ),
        args![at_ms, &id, page(limit)],
    )?)
}
