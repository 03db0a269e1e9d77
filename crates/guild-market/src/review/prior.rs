//! What reviews come to, as rows: kept up to date by whoever takes reviews, read by whoever hires.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::unix_s;
use guild_store::{Rx, Tx, args};

use super::seen::{PROVEN_MAX, proven_of, unproven_before};
use super::{Grade, Options, Prior, Record, Said, Seen, grade, weigh};
use crate::judge::Class;
use crate::routing::{Hearsay, Hearsays, TaskType};
use crate::row::page;
use crate::{Result, operator};

/// A prior is computed again after so long: time passes, and reviewers prove right or wrong.
const STALE_MS: i64 = 3_600_000;
/// What was missing is looked for again after so long.
const LOOK_MS: i64 = 600_000;
/// So much is done in one go.
const BATCH: i64 = 100;
/// What is so old weighs nothing that could be seen.
const FORGET_MS: i64 = 720 * 24 * 3_600_000;
/// So many reviews of others are kept.
const ROWS_MAX: i64 = 50_000;
/// So many providers with reviews are looked at when somebody is chosen.
const HEARSAYS_MAX: i64 = 1_000;

const WHOLE_BP: i64 = 10_000;

/// What a reviewer said before, beside what came.
pub fn record_of(rx: &mut Rx<'_>, reviewer: &PublicKey) -> Result<Record> {
    let row: Option<(i64, i64, i64)> = rx.first(
        "SELECT outcomes, brier, base FROM market_reviewer WHERE reviewer = $1",
        args![&reviewer.npub()],
    )?;
    Ok(row.map_or_else(Record::default, |(outcomes, brier, base)| Record { outcomes, brier, base }))
}

/// What is foretold is computed as it is when it is weighed.
const SCORE: &str = "
    INSERT INTO market_reviewer (reviewer, outcomes, brier, base, changed_ms)
    SELECT reviewer, 1, (said - CAST($3 AS BIGINT)) * (said - CAST($3 AS BIGINT)), CAST($4 AS BIGINT),
      CAST($5 AS BIGINT)
    FROM (SELECT reviewer, CASE WHEN trust_bp >= 9000 THEN 10000 ELSE trust_bp * 10 / 9 END AS said
          FROM market_review_seen
          WHERE subject = $1 AND task_type = $2 AND grade IN ('asked', 'done', 'paid')) AS proven
    WHERE true
    ON CONFLICT (reviewer) DO UPDATE SET outcomes = market_reviewer.outcomes + 1,
      brier = market_reviewer.brier + excluded.brier, base = market_reviewer.base + excluded.base,
      changed_ms = excluded.changed_ms";

/// Scores everybody who has said something of a provider that can be looked at, by an outcome of our own. Called in the
/// transaction that writes the outcome, once.
pub fn score(
    tx: &mut Tx<'_>,
    task: &TaskType,
    provider: &PublicKey,
    class: Class,
    now_ms: UnixMs,
) -> Result<()> {
    let came_bp = match class {
        Class::Success => WHOLE_BP,
        Class::Partial => WHOLE_BP.div_euclid(2),
        Class::Failure | Class::Error | Class::SecurityViolation => 0,
    };
    let base: Option<(i64, i64)> = tx.first(
        "SELECT outcomes, good_bp FROM market_review_base WHERE task_type = $1",
        args![task.as_str()],
    )?;
    let (outcomes, good_bp) = base.unwrap_or_default();
    // Half of a good one and half of a bad one were there before anything.
    let usual_bp = good_bp
        .saturating_add(WHOLE_BP.div_euclid(2))
        .checked_div(outcomes.saturating_add(1))
        .unwrap_or(0);
    tx.exec(
        SCORE,
        args![&provider.npub(), task.as_str(), came_bp, square(usual_bp, came_bp), now_ms],
    )?;
    tx.exec(
        "INSERT INTO market_review_base (task_type, outcomes, good_bp) VALUES ($1, 1, $2)
         ON CONFLICT (task_type) DO UPDATE SET outcomes = market_review_base.outcomes + 1,
           good_bp = market_review_base.good_bp + $2",
        args![task.as_str(), came_bp],
    )?;
    Ok(())
}

fn square(said_bp: i64, came_bp: i64) -> i64 {
    let off = said_bp.saturating_sub(came_bp);
    off.saturating_mul(off)
}

/// What reviews of a provider come to, with all that nothing is counted of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weighed {
    /// What they come to.
    pub prior: Prior,
    /// The reviews, the newest first.
    pub seen: Vec<Seen>,
}

/// Weighs what others say of a provider for some work. Nothing is written. With `anew` it is looked again what of it is
/// here, which takes a while for each.
pub fn weighed(
    rx: &mut Rx<'_>,
    options: &Options,
    (subject, task): (&PublicKey, &TaskType),
    (anew, now_ms): (bool, UnixMs),
) -> Result<Weighed> {
    let mut seen = super::seen_of(rx, subject, Some(task), PROVEN_MAX)?;
    for one in seen.iter_mut().filter(|_| anew) {
        let found = grade(rx, &one.reviewer, subject, &one.review.evidence, unix_s(now_ms))?;
        // What was here once was looked at: the archive may have forgotten it since.
        one.grade = if found == Grade::None { one.grade } else { found };
    }
    let said = said_of(rx, &seen, (subject, task))?;
    let heads = heads(rx, &seen, &mut operator::Seen::default())?;
    Ok(Weighed { prior: weigh(&said, options, &behind(&heads), now_ms), seen })
}

/// Who stands behind each reviewer, as far as that shows.
fn heads(
    rx: &mut Rx<'_>,
    seen: &[Seen],
    shown: &mut operator::Seen,
) -> Result<BTreeMap<PublicKey, PublicKey>> {
    let weighs = seen.iter().filter(|one| one.grade.weight_milli() > 0);
    shown.heads(rx, &weighs.map(|one| one.reviewer).collect())
}

fn behind(heads: &BTreeMap<PublicKey, PublicKey>) -> impl Fn(&PublicKey) -> PublicKey {
    move |key| heads.get(key).copied().unwrap_or(*key)
}

fn said_of(
    rx: &mut Rx<'_>,
    seen: &[Seen],
    (subject, task): (&PublicKey, &TaskType),
) -> Result<Vec<Said>> {
    let rows: Vec<(String, i64, i64, i64)> = rx.all(
        "SELECT reviewer, outcomes, brier, base FROM market_reviewer WHERE reviewer IN
           (SELECT reviewer FROM market_review_seen WHERE subject = $1 AND task_type = $2)",
        args![&subject.npub(), task.as_str()],
    )?;
    let mut records = BTreeMap::new();
    for (reviewer, outcomes, brier, base) in rows {
        records.insert(reviewer.parse::<PublicKey>()?, Record { outcomes, brier, base });
    }
    let said = |one: &Seen| Said {
        reviewer: one.reviewer,
        trust_bp: one.review.trust_bp,
        grade: one.grade,
        record: records.get(&one.reviewer).copied().unwrap_or_default(),
        at_ms: one.said_ms(),
    };
    Ok(seen.iter().map(said).collect())
}

/// Computes again what reviews of a provider for some work come to.
pub fn refresh(
    tx: &mut Tx<'_>,
    options: &Options,
    (subject, task): (&PublicKey, &TaskType),
    shown: &mut operator::Seen,
    now_ms: UnixMs,
) -> Result<()> {
    let seen = proven_of(tx, subject, task, PROVEN_MAX)?;
    let said = said_of(tx, &seen, (subject, task))?;
    let heads = heads(tx, &seen, shown)?;
    let Prior { good_milli, bad_milli, .. } = weigh(&said, options, &behind(&heads), now_ms);
    let stored = |milli: u64| i64::try_from(milli).unwrap_or(0);
    if good_milli == 0 && bad_milli == 0 {
        tx.exec(
            "DELETE FROM market_review_prior WHERE subject = $1 AND task_type = $2",
            args![&subject.npub(), task.as_str()],
        )?;
        return Ok(());
    }
    tx.exec(
        "INSERT INTO market_review_prior (subject, task_type, good_milli, bad_milli, at_ms)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (subject, task_type) DO UPDATE SET good_milli = $3, bad_milli = $4, at_ms = $5",
        args![&subject.npub(), task.as_str(), stored(good_milli), stored(bad_milli), now_ms],
    )?;
    Ok(())
}

/// What reviews say of everybody for some work, as it was computed last.
pub fn hearsay(rx: &mut Rx<'_>, task: &TaskType) -> Result<Hearsays> {
    let rows: Vec<(String, i64, i64)> = rx.all(
        "SELECT subject, good_milli, bad_milli FROM market_review_prior WHERE task_type = $1
         ORDER BY subject LIMIT $2",
        args![task.as_str(), HEARSAYS_MAX],
    )?;
    let read = |milli: i64| u64::try_from(milli).unwrap_or(0);
    rows.into_iter()
        .map(|(subject, good, bad)| {
            Ok((subject.parse()?, Hearsay { good_milli: read(good), bad_milli: read(bad) }))
        })
        .collect()
}

/// Does what time brings, a limited number of each at a time: evidence that has come since is found, priors that are
/// old are computed again, and what is too old or too much is forgotten. Whether there may be more to do.
pub fn upkeep(tx: &mut Tx<'_>, options: &Options, now_ms: UnixMs) -> Result<bool> {
    let mut shown = operator::Seen::default();
    let again = look_again(tx, options, &mut shown, now_ms)?;
    let rows: Vec<(String, String)> = tx.all(
        "SELECT subject, task_type FROM market_review_prior WHERE at_ms < $1 ORDER BY at_ms LIMIT $2",
        args![now_ms.saturating_sub(STALE_MS), BATCH],
    )?;
    let many = i64::try_from(rows.len()).unwrap_or(0) >= BATCH;
    for (subject, task) in rows {
        refresh(tx, options, (&subject.parse()?, &task.parse()?), &mut shown, now_ms)?;
    }
    forget(tx, now_ms)?;
    Ok(again || many)
}

/// A result may come after the review of it.
fn look_again(
    tx: &mut Tx<'_>,
    options: &Options,
    shown: &mut operator::Seen,
    now_ms: UnixMs,
) -> Result<bool> {
    let seen = unproven_before(tx, now_ms.saturating_sub(LOOK_MS), BATCH)?;
    let many = i64::try_from(seen.len()).unwrap_or(0) >= BATCH;
    for one in seen {
        let subject = one.review.subject;
        let found = grade(tx, &one.reviewer, &subject, &one.review.evidence, unix_s(now_ms))?;
        // What was here once was looked at: the archive may have forgotten it since.
        let found = if found == Grade::None { one.grade } else { found };
        tx.exec(
            "UPDATE market_review_seen SET grade = $4, graded_ms = $5
             WHERE subject = $1 AND task_type = $2 AND reviewer = $3",
            args![&subject.npub(), one.task.as_str(), &one.reviewer.npub(), found.name(), now_ms],
        )?;
        if found != one.grade {
            refresh(tx, options, (&subject, &one.task), shown, now_ms)?;
        }
    }
    Ok(many)
}

fn forget(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<()> {
    let before_ms = now_ms.saturating_sub(FORGET_MS);
    tx.exec(
        "DELETE FROM market_review_seen WHERE (subject, task_type, reviewer) IN
           (SELECT subject, task_type, reviewer FROM market_review_seen WHERE received_ms < $1
            ORDER BY received_ms LIMIT $2)",
        args![before_ms, page(BATCH)],
    )?;
    tx.exec(
        "DELETE FROM market_reviewer WHERE reviewer IN
           (SELECT reviewer FROM market_reviewer WHERE changed_ms < $1 ORDER BY changed_ms LIMIT $2)",
        args![before_ms, page(BATCH)],
    )?;
    let count: Option<(i64,)> = tx.first("SELECT count(*) FROM market_review_seen", &[])?;
    let over = count.map_or(0, |(count,)| count).saturating_sub(ROWS_MAX);
    if over > 0 {
        // What weighs nothing first, and of that the oldest.
        tx.exec(
            "DELETE FROM market_review_seen WHERE (subject, task_type, reviewer) IN
               (SELECT subject, task_type, reviewer FROM market_review_seen
                ORDER BY CASE WHEN grade IN ('none', 'forged') THEN 0 ELSE 1 END, received_ms LIMIT $1)",
            args![page(over)],
        )?;
    }
    Ok(())
}
