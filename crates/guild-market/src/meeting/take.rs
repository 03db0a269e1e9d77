//! What a provider says about a request: taken once, and only from the one who was asked.

use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::json;
use guild_protocol::nostr::job::{Feedback, JobResult, Status, correlates, feedback_correlates};
use guild_protocol::nostr::{EventId, tag, unix_s};
use guild_store::{Rx, Tx, args};

use super::{
    Act, Course, Event, Meeting, Options, PublicKey, Purse, SecretKey, Sign, Trial, consider, get,
    kind, plain, set_course, tell_trial, trial_of,
};
use crate::Result;
use crate::row::unreadable;

const DAY_MS: i64 = 24 * 3_600_000;
/// How many words about one request are kept. A provider that says more has said enough.
const WORDS_MAX: i64 = 32;

/// What something that a provider signed was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It says how it goes.
    Feedback,
    /// It wants money that it does not get.
    Unpaid,
    /// It is the result that counts.
    Delivered,
    /// It is a result that came when nobody waited for it any more.
    Late,
    /// It says what the result that counts says.
    Repeated,
    /// It says something else than the result that counts: the provider has signed both.
    Equivocation,
}

impl Standing {
    /// All of them.
    pub const ALL: [Standing; 6] = [
        Standing::Feedback,
        Standing::Unpaid,
        Standing::Delivered,
        Standing::Late,
        Standing::Repeated,
        Standing::Equivocation,
    ];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Feedback => "feedback",
            Standing::Unpaid => "unpaid",
            Standing::Delivered => "delivered",
            Standing::Late => "late",
            Standing::Repeated => "repeated",
            Standing::Equivocation => "equivocation",
        }
    }

    pub(super) fn parse(word: &str) -> guild_store::Result<Standing> {
        let found = Standing::ALL.into_iter().find(|standing| standing.as_str() == word);
        found.ok_or_else(|| unreadable("a word has an unknown standing"))
    }
}

/// What became of something that was said.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// What it was good for.
    pub standing: Standing,
    /// Whether it was heard before.
    pub known: bool,
    /// Whether it is kept as evidence.
    pub kept: bool,
    /// What is to be done now.
    pub acts: Vec<Act>,
}

/// The request that an answer is about, if it is one of ours. Some providers name it inside of the ciphertext alone.
pub fn is_asked(rx: &mut Rx<'_>, event: &Event, key: &SecretKey) -> Result<Option<EventId>> {
    let named = match tag::value(&event.tags, "e") {
        Some(id) => id.parse().ok(),
        None if event.kind == kind::FEEDBACK && tag::has(&event.tags, "encrypted") => {
            match is_met(rx, &event.pubkey)? {
                true => Feedback::parse(event, Some(key)).ok().map(|said| said.request.id),
                false => None,
            }
        }
        None => None,
    };
    let Some(request_id) = named else { return Ok(None) };
    Ok(trial_of(rx, &request_id)?.map(|trial| trial.request_id))
}

fn is_met(rx: &mut Rx<'_>, provider: &PublicKey) -> Result<bool> {
    let row: Option<(i64,)> = rx.first(
        "SELECT begun_ms FROM market_meeting WHERE provider = $1 AND state = 'trying' LIMIT 1",
        args![&provider.npub()],
    )?;
    Ok(row.is_some())
}

/// Takes what somebody says about a request. Anybody can say anything about it, so it is checked here: it must be
/// signed by the provider that was asked, name this request, have the right kind, and open with our key if it is
/// encrypted. Else it is refused and changes nothing.
pub fn take(
    tx: &mut Tx<'_>,
    request_id: &EventId,
    event: &Event,
    key: &SecretKey,
    options: &Options,
    now_ms: UnixMs,
) -> Result<Option<Heard>> {
    let Some(trial) = trial_of(tx, request_id)? else { return Ok(None) };
    let meeting = get(tx, &trial.meeting_id)?;
    let said = match event.kind {
        kind::FEEDBACK => feedback(tx, (&meeting, &trial), event, key, options, now_ms)?,
        _ => result(&meeting, &trial, event, key)?,
    };
    let known: Option<(String,)> =
        tx.first("SELECT standing FROM market_word WHERE event_id = $1", args![&event.id.hex()])?;
    if let Some((standing,)) = known {
        let standing = Standing::parse(&standing)?;
        return Ok(Some(Heard { standing, known: true, kept: true, acts: Vec::new() }));
    }
    let kept = keep(tx, &trial, event, &said, now_ms)?;
    let mut acts = Vec::new();
    if let Some(sign) = said.sign {
        let (mut course, follows) = trial.course.after(&options.times, sign, now_ms, 0);
        course.due_msat = said.due_msat.or(course.due_msat);
        apply(tx, &trial, &course, &said, event, now_ms)?;
        acts = follows;
    }
    Ok(Some(Heard { standing: said.standing, known: false, kept, acts }))
}

/// What may be paid for a trial of this meeting: no more than was bid for it, and than is left of the budgets.
fn purse(
    rx: &mut Rx<'_>,
    (meeting, trial): (&Meeting, &Trial),
    options: &Options,
    now_ms: UnixMs,
) -> Result<Purse> {
    let (mut own, mut all) = (0_i64, 0_i64);
    let rows: Vec<(String, String)> = rx.all(
        "SELECT meeting_id, course FROM market_trial
         WHERE request_id <> $1 AND course LIKE '%\"due_msat\"%' AND (begun_ms > $2 OR meeting_id = $3)",
        args![
            &trial.request_id.hex(),
            now_ms.saturating_sub(DAY_MS),
            meeting.meeting_id.as_str()
        ],
    )?;
    for (meeting_id, course) in rows {
        let course: Course = json::decode(course.as_bytes())?;
        let due = course.due_msat.unwrap_or(0);
        all = all.saturating_add(due);
        if meeting_id == meeting.meeting_id.as_str() {
            own = own.saturating_add(due);
        }
    }
    let left = options.budget.0.saturating_sub(own).min(options.budget_day.0.saturating_sub(all));
    Ok(Purse {
        bid: meeting.terms.bid.unwrap_or(Msat(0)),
        left: Msat(left.max(0)),
        network: options.network,
        has_rail: options.has_rail,
    })
}

/// Something that was said, and what it means.
struct Said {
    standing: Standing,
    /// What it means for the course; none if it comes too late to mean anything.
    sign: Option<Sign>,
    words: Option<String>,
    /// The content of the result that counts.
    content: Option<String>,
    /// What is to be paid for it.
    due_msat: Option<i64>,
}

fn feedback(
    rx: &mut Rx<'_>,
    (meeting, trial): (&Meeting, &Trial),
    event: &Event,
    key: &SecretKey,
    options: &Options,
    now_ms: UnixMs,
) -> Result<Said> {
    let said = Feedback::parse(event, Some(key))?;
    feedback_correlates(&trial.request()?, &[meeting.terms.provider], event, &said)?;
    let info = said.info.as_deref().unwrap_or_default();
    let told = |status: &str| plain(&format!("{status} {info}")).trim_end().to_owned();
    let words = Some(told(said.status.as_str()));
    let mut heard =
        Said { standing: Standing::Feedback, sign: None, words, content: None, due_msat: None };
    heard.sign = Some(match said.status {
        Status::Processing => Sign::Processing,
        Status::Success => Sign::Done,
        Status::Error => Sign::Failed,
        Status::Partial | Status::Other(_) => Sign::Word,
        Status::PaymentRequired => {
            let purse = purse(rx, (meeting, trial), options, now_ms)?;
            match consider(said.price.as_ref(), &purse, unix_s(now_ms)) {
                // Whoever adds a rail pays here, and says Paid when it has. It counts from now on.
                Ok(invoice) => {
                    heard.due_msat = invoice.amount.map(|amount| amount.0);
                    Sign::Word
                }
                Err(why) => {
                    heard.standing = Standing::Unpaid;
                    heard.words = Some(plain(&format!("{}: {}", why.name(), why.words())));
                    Sign::Unpaid
                }
            }
        }
    });
    heard.sign = heard.sign.filter(|_| !trial.course.is_settled());
    Ok(heard)
}

fn result(meeting: &Meeting, trial: &Trial, event: &Event, key: &SecretKey) -> Result<Said> {
    correlates(&trial.request()?, &[meeting.terms.provider], event)?;
    let parsed = JobResult::parse(event, Some(key))?;
    // PostgreSQL keeps no NUL in a text. No program of Python holds one either.
    let content = parsed.content.replace('\0', "\u{fffd}");
    let (standing, sign) = match &trial.content {
        None if trial.course.is_settled() => (Standing::Late, None),
        None => (Standing::Delivered, Some(Sign::Result)),
        Some(first) if *first == content => (Standing::Repeated, None),
        Some(_) => (Standing::Equivocation, None),
    };
    Ok(Said { standing, sign, words: None, content: Some(content), due_msat: None })
}

/// Keeps it as it was signed, as long as there is room. A result that counts, and one that contradicts it, always have.
fn keep(
    tx: &mut Tx<'_>,
    trial: &Trial,
    event: &Event,
    said: &Said,
    now_ms: UnixMs,
) -> Result<bool> {
    let must =
        matches!(said.standing, Standing::Delivered | Standing::Unpaid | Standing::Equivocation);
    let room = if must { WORDS_MAX.saturating_mul(2) } else { WORDS_MAX };
    let kept = tx.exec(
        "INSERT INTO market_word (event_id, request_id, standing, words, json, received_ms)
         SELECT $1, $2, $3, $4, $5, $6
         WHERE (SELECT count(*) FROM market_word WHERE request_id = $2) < $7",
        args![
            &event.id.hex(),
            &trial.request_id.hex(),
            said.standing.as_str(),
            said.words.as_ref(),
            &event.to_json().replace('\0', "\u{fffd}"),
            now_ms,
            room
        ],
    )?;
    Ok(kept == 1)
}

fn apply(
    tx: &mut Tx<'_>,
    trial: &Trial,
    course: &Course,
    said: &Said,
    event: &Event,
    now_ms: UnixMs,
) -> Result<()> {
    if said.standing == Standing::Delivered {
        let from_ms = trial.course.measured_from_ms(trial.begun_ms);
        tx.exec(
            "UPDATE market_trial SET result_id = $2, content = $3, latency_ms = $4
             WHERE request_id = $1 AND result_id IS NULL",
            args![
                &trial.request_id.hex(),
                &event.id.hex(),
                said.content.as_ref(),
                now_ms.saturating_sub(from_ms).max(0)
            ],
        )?;
    } else if said.words.is_some() {
        tx.exec(
            "UPDATE market_trial SET words = $2 WHERE request_id = $1",
            args![&trial.request_id.hex(), said.words.as_ref()],
        )?;
    }
    set_course(tx, trial, course)?;
    let what = match said.standing {
        Standing::Delivered => "delivered",
        _ => "answered",
    };
    tell_trial(tx, trial, what, now_ms)
}
