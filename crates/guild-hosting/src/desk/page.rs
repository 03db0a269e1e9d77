//! What the pages show: each is one snapshot, for a user or for the operator of this node. Nothing is changed here.

use std::collections::BTreeMap;

use guild_ledger::{AccountId, TransferId, ledger};
use guild_protocol::env::UnixMs;
use guild_store::Rx;

use crate::access::nip98::Asked;
use crate::access::{Scopes, Token, code};
use crate::api::{BalanceView, JobView, Line, Proof, SandboxView, WithdrawalView, next_of};
use crate::clamp::Policy;
use crate::job::Job;
use crate::meter::{self, Seen, Sight};
use crate::pace::{Pace, Paces};
use crate::sandbox::{self, MINUTE_MS, Sandbox, minute_words, start_id};
use crate::{Error, HostingJobId, Result, SandboxId, UserId, job, money};

use super::{Desk, parse};

/// How many jobs, ended sandboxes and minutes a page has.
const JOBS: i64 = 25;
const OPEN_MAX: i64 = 100;
const ENDED: i64 = 10;
const MINUTES: i64 = 60;
const LINES: i64 = 50;
/// How many lines of a statement a file has at most.
const FILE_LINES: usize = 5_000;
const FILE_STEP: i64 = 1_000;

/// How a browser proves who looks.
pub enum Browser<'a> {
    /// A wallet has signed a message.
    Wallet(Proof),
    /// A Nostr key has signed this header, for this request.
    Nostr(&'a str, Asked<'a>),
}

/// Who looks.
#[derive(Debug, Clone)]
pub enum Viewer {
    /// Whoever has this token, which may read and nothing else: the cookie of a page, or an API key.
    User(Token),
    /// Whoever runs this node: everything of everybody.
    Operator,
}

/// A job among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCard {
    /// The job.
    pub job: JobView,
    /// Whose it is.
    pub user_id: String,
    /// How many of its sandboxes start or run.
    pub live: i64,
    /// What the next minute of these costs, in micro-USD.
    pub burn: i64,
}

/// A sandbox among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxCard {
    /// The sandbox.
    pub sandbox: SandboxView,
    /// Whose it is.
    pub user_id: String,
}

/// What only the operator sees, in micro-USD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct House {
    /// How many sandboxes start or run.
    pub live: i64,
    /// What their next minute costs.
    pub burn: i64,
    /// What was earned.
    pub earned: i64,
    /// What ran without being paid.
    pub lost: i64,
    /// Withdrawals that have to be sent, the oldest first.
    pub withdrawals: Vec<WithdrawalView>,
    /// What the meter saw of the clock, and what it makes of the present time.
    pub clock: Option<(Seen, Sight)>,
}

/// The first page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// Who looks; nobody in particular, if it is the operator.
    pub user_id: Option<String>,
    /// How the account stands.
    pub balance: Option<BalanceView>,
    /// How the house stands.
    pub house: Option<House>,
    /// The newest first.
    pub jobs: Vec<JobCard>,
    /// Where the next page of jobs begins.
    pub next: Option<String>,
    /// Those that start, run or end, the newest first.
    pub open: Vec<SandboxCard>,
    /// The newest of the others.
    pub ended: Vec<SandboxCard>,
}

impl Overview {
    /// Everything in it that changes by what happens, and not by time passing: whoever follows compares it.
    pub fn mark(&self) -> String {
        let jobs = self.jobs.iter().map(|card| {
            (
                &card.job.status,
                card.job.version,
                card.job.spent_micro_usd,
                card.job.last_activity_ms,
            )
        });
        let sandboxes = self.open.iter().chain(&self.ended).map(|card| {
            let sandbox = &card.sandbox;
            (&sandbox.status, sandbox.version, sandbox.paid_minutes, sandbox.last_activity_ms)
        });
        let (jobs, sandboxes) = (jobs.collect::<Vec<_>>(), sandboxes.collect::<Vec<_>>());
        let house = self.house.as_ref().map(|house| {
            (house.earned, house.lost, house.burn, house.withdrawals.len(), sight(house))
        });
        format!("{:?} {house:?} {jobs:?} {sandboxes:?}", self.balance)
    }
}

fn sight(house: &House) -> Option<bool> {
    house.clock.map(|(_, sight)| sight == Sight::Steady)
}

/// A minute that is paid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Minute {
    /// Of which sandbox.
    pub sandbox_id: String,
    /// Its number, from 0.
    pub number: i64,
    /// When it begins.
    pub begins_ms: UnixMs,
    /// The transfer that pays it.
    pub transfer_id: String,
    /// What that moved, and when, if the ledger knows it.
    pub booked: Option<(i64, UnixMs)>,
}

/// The page of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPage {
    /// The job.
    pub card: JobCard,
    /// Its sandboxes, the newest first.
    pub sandboxes: Vec<SandboxView>,
    /// The newest paid minutes of these.
    pub minutes: Vec<Minute>,
}

/// The page of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPage {
    /// The sandbox.
    pub card: SandboxCard,
    /// The job that pays for it.
    pub job: JobView,
    /// Its paid minutes, the newest first.
    pub minutes: Vec<Minute>,
    /// The number before which the next page begins.
    pub next: Option<i64>,
}

/// A page of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementPage {
    /// Whose; nobody in particular, if it is what this node has earned.
    pub user_id: Option<String>,
    /// The newest first.
    pub lines: Vec<Line>,
    /// The number before which the next page begins.
    pub next: Option<String>,
}

impl Desk {
    /// Who looks, if its token is good and may read and nothing more: a browser keeps no token that could do harm.
    pub async fn look(&self, token: Token) -> Result<String> {
        Ok(self
            .user_of(&Viewer::User(token))
            .await?
            .map(|user| user.to_string())
            .unwrap_or_default())
    }

    async fn user_of(&self, viewer: &Viewer) -> Result<Option<UserId>> {
        let Viewer::User(token) = viewer else { return Ok(None) };
        let caller = self.who(token.clone()).await?;
        if caller.scopes == Scopes::READ {
            return Ok(Some(caller.user_id));
        }
        let message = format!("pages take a token with {} and nothing else", Scopes::READ);
        Err(Error::refused(&code::SCOPE_MISSING, message))
    }

    async fn view<T: Send + 'static>(
        &self,
        viewer: &Viewer,
        read: impl Fn(&mut Rx<'_>, Option<&UserId>, UnixMs) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let user_id = self.user_of(viewer).await?;
        let now_ms = self.now_ms();
        self.0.store.read(move |rx| read(rx, user_id.as_ref(), now_ms)).await
    }

    /// The first page; `before` is where the page of jobs before ended.
    pub async fn overview(&self, viewer: &Viewer, before: Option<&str>) -> Result<Overview> {
        let before: Option<HostingJobId> = before.map(|id| parse("before", id)).transpose()?;
        let policy = self.0.options.policy.clone();
        let read = move |rx: &mut Rx<'_>, user_id: Option<&UserId>, now_ms| {
            overview(rx, user_id, before.as_ref(), &policy, now_ms)
        };
        self.view(viewer, read).await
    }

    /// The page of a job.
    pub async fn job_page(&self, viewer: &Viewer, id: &str) -> Result<JobPage> {
        let job_id: HostingJobId = parse("job_id", id)?;
        let read = move |rx: &mut Rx<'_>, user_id: Option<&UserId>, now_ms| {
            let job = find_job(rx, user_id, &job_id)?;
            let sandboxes = sandbox::page_of_job(rx, &job_id, None, OPEN_MAX)?;
            let mut minutes: Vec<Minute> =
                sandboxes.iter().flat_map(|sandbox| minutes_of(sandbox, None)).collect();
            minutes.sort_by_key(|minute| std::cmp::Reverse((minute.begins_ms, minute.number)));
            minutes.truncate(usize::try_from(MINUTES).unwrap_or(0));
            let pace = Pace::of(rx, &job.user_id)?;
            let card = cards(rx, &[job], now_ms)?.pop().ok_or_else(|| unknown_job(&job_id))?;
            let minutes = with_transfers(rx, minutes)?;
            let sandboxes =
                sandboxes.iter().map(|one| SandboxView::of(one, &pace, now_ms)).collect();
            Ok(JobPage { card, sandboxes, minutes })
        };
        self.view(viewer, read).await
    }

    /// The page of a sandbox, with its minutes before this number.
    pub async fn sandbox_page(
        &self,
        viewer: &Viewer,
        id: &str,
        before: Option<i64>,
    ) -> Result<SandboxPage> {
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        let read = move |rx: &mut Rx<'_>, user_id: Option<&UserId>, now_ms| {
            let sandbox = match user_id {
                Some(user_id) => sandbox::get(rx, user_id, &sandbox_id)?,
                None => sandbox::known(rx, &sandbox_id)?,
            };
            let job = find_job(rx, user_id, &sandbox.job_id)?;
            let minutes = with_transfers(rx, minutes_of(&sandbox, before))?;
            let next = minutes.last().map(|minute| minute.number).filter(|number| *number > 0);
            let pace = Pace::of(rx, &sandbox.user_id)?;
            let card = sandbox_card(&sandbox, &pace, now_ms);
            Ok(SandboxPage { card, job: JobView::of(&job, &pace, now_ms), minutes, next })
        };
        self.view(viewer, read).await
    }

    /// A page of the statement: of the user's account, or of what this node has earned.
    pub async fn statement_page(
        &self,
        viewer: &Viewer,
        before: Option<i64>,
    ) -> Result<StatementPage> {
        let read = move |rx: &mut Rx<'_>, user_id: Option<&UserId>, _| {
            let lines = lines(rx, &account_of(user_id)?, before, LINES)?;
            let next = next_of(&lines, LINES, |line| line.seq.to_string());
            Ok(StatementPage { user_id: user_id.map(ToString::to_string), lines, next })
        };
        self.view(viewer, read).await
    }

    /// The statement for a file: its newest lines, at most 5,000.
    pub async fn statement_file(&self, viewer: &Viewer) -> Result<Vec<Line>> {
        let read = move |rx: &mut Rx<'_>, user_id: Option<&UserId>, _| {
            let account_id = account_of(user_id)?;
            let mut all: Vec<Line> = Vec::new();
            while all.len() < FILE_LINES {
                let before = all.last().map(|line| line.seq);
                let more = lines(rx, &account_id, before, FILE_STEP)?;
                let is_last = more.len() < usize::try_from(FILE_STEP).unwrap_or(0);
                all.extend(more);
                if is_last {
                    break;
                }
            }
            Ok(all)
        };
        self.view(viewer, read).await
    }
}

fn account_of(user_id: Option<&UserId>) -> Result<AccountId> {
    let account = match user_id {
        Some(user_id) => money::account(user_id)?,
        None => money::revenue()?,
    };
    Ok(account.account_id)
}

fn lines(
    rx: &mut Rx<'_>,
    account_id: &AccountId,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<Line>> {
    let lines = money::statement_of(rx, account_id, before, limit)?;
    Ok(lines.iter().map(|line| Line::of(line, account_id)).collect())
}

fn unknown_job(job_id: &HostingJobId) -> Error {
    Error::refused(&crate::code::UNKNOWN_JOB, format!("you have no job {job_id}"))
}

/// That of another user is as unknown as one that is not there.
fn find_job(rx: &mut Rx<'_>, user_id: Option<&UserId>, job_id: &HostingJobId) -> Result<Job> {
    match user_id {
        Some(user_id) => job::get(rx, user_id, job_id),
        None => job::find(rx, job_id)?.ok_or_else(|| unknown_job(job_id)),
    }
}

fn overview(
    rx: &mut Rx<'_>,
    user_id: Option<&UserId>,
    before: Option<&HostingJobId>,
    policy: &Policy,
    now_ms: UnixMs,
) -> Result<Overview> {
    let (jobs, newest) = match user_id {
        Some(user_id) => (
            job::page_before(rx, user_id, before, JOBS)?,
            sandbox::page_before(rx, user_id, None, ENDED)?,
        ),
        None => (job::page_of_all(rx, before, JOBS)?, sandbox::page_of_all(rx, None, ENDED)?),
    };
    let next = next_of(&jobs, JOBS, |job| job.job_id.to_string());
    let open = sandbox::open_of_user(rx, user_id, OPEN_MAX)?;
    let is_open = |one: &Sandbox| open.iter().any(|other| other.sandbox_id == one.sandbox_id);
    let ended: Vec<Sandbox> = newest.into_iter().filter(|one| !is_open(one)).collect();
    let mut paces = Paces::default();
    let mut shown = |rx: &mut Rx<'_>, all: &[Sandbox]| -> Result<Vec<SandboxCard>> {
        all.iter().map(|one| Ok(sandbox_card(one, paces.of(rx, &one.user_id)?, now_ms))).collect()
    };
    let (open, ended) = (shown(rx, &open)?, shown(rx, &ended)?);
    let (balance, house) = match user_id {
        Some(user_id) => {
            let reserve = money::reserve(rx, user_id, policy, now_ms)?;
            let balance = money::balance(rx, user_id)?;
            (Some(BalanceView::of(user_id, &balance, reserve)), None)
        }
        None => (None, Some(house(rx, now_ms)?)),
    };
    Ok(Overview {
        user_id: user_id.map(ToString::to_string),
        balance,
        house,
        jobs: cards(rx, &jobs, now_ms)?,
        next,
        open,
        ended,
    })
}

fn house(rx: &mut Rx<'_>, now_ms: UnixMs) -> Result<House> {
    let (live, burn) = sandbox::burn_of_all(rx)?;
    let (revenue, loss) = (money::revenue()?.account_id, money::loss()?.account_id);
    let entries = ledger::entries(rx, &[revenue.clone(), loss.clone()].into())?;
    let units = |account: &AccountId| entries.get(account).map_or(0, |entry| entry.balance.units());
    let withdrawals = money::withdrawals_open(rx, None, JOBS)?;
    let seen = meter::seen(rx)?;
    Ok(House {
        live,
        burn,
        earned: units(&revenue),
        lost: units(&loss).saturating_neg(),
        withdrawals: withdrawals.iter().map(WithdrawalView::of).collect(),
        clock: seen.map(|seen| (seen, meter::sight(Some(&seen), now_ms).0)),
    })
}

fn sandbox_card(sandbox: &Sandbox, pace: &Pace, now_ms: UnixMs) -> SandboxCard {
    let view = SandboxView::of(sandbox, pace, now_ms);
    SandboxCard { sandbox: view, user_id: sandbox.user_id.to_string() }
}

fn cards(rx: &mut Rx<'_>, jobs: &[Job], now_ms: UnixMs) -> Result<Vec<JobCard>> {
    let ids: Vec<&str> = jobs.iter().map(|job| job.job_id.as_str()).collect();
    let burns: BTreeMap<String, (i64, i64)> = sandbox::burns(rx, &ids)?
        .into_iter()
        .map(|(job_id, live, burn)| (job_id, (live, burn)))
        .collect();
    let mut paces = Paces::default();
    let mut card = |job: &Job| -> Result<JobCard> {
        let (live, burn) = burns.get(job.job_id.as_str()).copied().unwrap_or_default();
        let job_view = JobView::of(job, paces.of(rx, &job.user_id)?, now_ms);
        Ok(JobCard { job: job_view, user_id: job.user_id.to_string(), live, burn })
    };
    jobs.iter().map(&mut card).collect()
}

/// The paid minutes of a sandbox before a number, the newest first, with the ids of the transfers that pay them.
fn minutes_of(sandbox: &Sandbox, before: Option<i64>) -> Vec<Minute> {
    let Some(started_ms) = sandbox.started_ms else { return Vec::new() };
    let end = before.unwrap_or(i64::MAX).clamp(0, sandbox.paid_minutes);
    let first = end.saturating_sub(MINUTES).max(0);
    let minute = |number: i64| {
        let begins_ms = started_ms.saturating_add(number.saturating_mul(MINUTE_MS));
        let id = &sandbox.sandbox_id;
        let transfer_id = match number {
            0 => start_id(id, sandbox.created_ms),
            _ => TransferId::named(begins_ms, &minute_words(id.as_str(), &number.to_string())),
        };
        let (sandbox_id, transfer_id) = (id.to_string(), transfer_id.to_string());
        Minute { sandbox_id, number, begins_ms, transfer_id, booked: None }
    };
    (first..end).rev().map(minute).collect()
}

/// The same with what the ledger says of each transfer.
fn with_transfers(rx: &mut Rx<'_>, mut minutes: Vec<Minute>) -> Result<Vec<Minute>> {
    let ids: std::result::Result<Vec<TransferId>, _> =
        minutes.iter().map(|minute| minute.transfer_id.parse()).collect();
    let booked = ledger::booked(rx, &ids?)?;
    let booked: BTreeMap<&str, (i64, UnixMs)> =
        booked.iter().map(|(id, booked)| (id.as_str(), (booked.units, booked.at_ms))).collect();
    for minute in &mut minutes {
        minute.booked = booked.get(minute.transfer_id.as_str()).copied();
    }
    Ok(minutes)
}
