//! Sandboxes as they are stored.

use guild_protocol::env::UnixMs;
use guild_store::{Column, Columns, Decode, FromVal, Rx, Sql, args};

use super::{MINUTE_MS, Reason, SandboxId, Status};
use crate::clamp::Answer;
use crate::error::code;
use crate::price::Shape;
use crate::row::{Cells, page};
use crate::{Error, HostingJobId, Result, UserId};

/// Another shape, from a minute on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextShape {
    /// What it becomes.
    pub shape: Shape,
    /// What a minute costs then, in micro-USD.
    pub price: i64,
    /// When the first such minute begins.
    pub from_ms: UnixMs,
}

/// A sandbox as it is stored. Money is in micro-USD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Its short name inside one database.
    pub(crate) sandbox_no: i64,
    /// Names it.
    pub sandbox_id: SandboxId,
    /// The job that pays for it.
    pub job_id: HostingJobId,
    /// Whose it is.
    pub user_id: UserId,
    /// Where it stands.
    pub status: Status,
    /// Why it ended.
    pub stop_reason: Option<Reason>,
    /// The same in words, if a machine said any.
    pub words: Option<String>,
    /// What was bought; [`Sandbox::shape_at`] says what it is now.
    pub shape: Shape,
    /// What a minute of that costs.
    pub price: i64,
    /// What it becomes.
    pub next: Option<NextShape>,
    /// What it may spend.
    pub cap: i64,
    /// What it has spent.
    pub spent: i64,
    /// How many minutes are paid.
    pub paid_minutes: i64,
    /// When it was ordered.
    pub created_ms: UnixMs,
    /// When its first minute began.
    pub started_ms: Option<UnixMs>,
    /// When it ends at the latest.
    pub expires_ms: UnixMs,
    /// After how long without use it ends.
    pub idle_timeout_ms: Option<i64>,
    /// When it was used last.
    pub last_activity_ms: UnixMs,
    /// Until when it may run: never beyond what is paid. This is what a lease says.
    pub ends_ms: Option<UnixMs>,
    /// How long it ran, as its agent says.
    pub ran_ms: i64,
    /// What it ran without being paid, which we bear.
    pub lost_units: i64,
    /// Its image, by version.
    pub image: String,
    /// What that version was when it was bought.
    pub image_digest: String,
    /// What it runs on.
    pub machine: String,
    /// What the machine calls it.
    pub instance: Option<String>,
    /// Where its agent listens.
    pub endpoint: Option<String>,
    /// The key that its agent answers with.
    pub agent_key: Option<String>,
    /// When its secrets were released to it.
    pub secrets_ms: Option<UnixMs>,
    /// Whether its owner paused it. It stays paid for: its memory is in use.
    pub paused: bool,
    pub(crate) answer: Answer,
    /// Counts its changes; an extension names the one that it is about. Minutes are no change.
    pub version: i64,
}

impl Sandbox {
    /// Until when it is paid.
    pub fn paid_until_ms(&self) -> Option<UnixMs> {
        let paid_ms = self.paid_minutes.saturating_mul(MINUTE_MS);
        self.started_ms.map(|started_ms| started_ms.saturating_add(paid_ms))
    }

    /// What it is at a time: the shape changes when the first minute begins that is paid at the new price.
    pub fn shape_at(&self, now_ms: UnixMs) -> Shape {
        match &self.next {
            Some(next) if next.from_ms <= now_ms && self.is_paid(next.from_ms) => next.shape,
            _ => self.shape,
        }
    }

    /// What it is to have at a time: as [`Sandbox::shape_at`], but what it gives up it gives up at once. Memory that is
    /// in use cannot be taken away later, and nobody keeps what the next minute does not pay.
    pub fn held_at(&self, now_ms: UnixMs) -> Shape {
        let present = self.shape_at(now_ms);
        match &self.next {
            Some(next) if next.from_ms > now_ms => present.smaller(&next.shape),
            _ => present,
        }
    }

    /// Whether another shape is paid already that begins later: until then it gets no third one.
    pub(crate) fn is_resizing(&self, now_ms: UnixMs) -> bool {
        self.next.is_some_and(|next| next.from_ms > now_ms && self.is_paid(next.from_ms))
    }

    /// What the next minute costs.
    pub fn next_price(&self) -> i64 {
        self.next.map_or(self.price, |next| next.price)
    }

    pub(crate) fn is_paid(&self, minute_ms: UnixMs) -> bool {
        self.paid_until_ms().is_some_and(|paid_until_ms| paid_until_ms > minute_ms)
    }
}

impl Decode for Sandbox {
    fn decode(row: &dyn Columns) -> guild_store::Result<Sandbox> {
        let mut cells = Cells::of(row);
        Ok(Sandbox {
            sandbox_no: cells.next()?,
            sandbox_id: cells.parsed()?,
            job_id: cells.parsed()?,
            user_id: cells.parsed()?,
            status: cells.word(Status::parse)?,
            stop_reason: cells.next::<Option<String>>()?.and_then(|word| Reason::parse(&word)),
            words: cells.next()?,
            shape: shape(&mut cells)?,
            price: cells.next()?,
            next: next_shape(&mut cells)?,
            cap: cells.next()?,
            spent: cells.next()?,
            paid_minutes: cells.next()?,
            created_ms: cells.next()?,
            started_ms: cells.next()?,
            expires_ms: cells.next()?,
            idle_timeout_ms: cells.next()?,
            last_activity_ms: cells.next()?,
            ends_ms: cells.next()?,
            ran_ms: cells.next()?,
            lost_units: cells.next()?,
            image: cells.next()?,
            image_digest: cells.next()?,
            machine: cells.next()?,
            instance: cells.next()?,
            endpoint: cells.next()?,
            agent_key: cells.next()?,
            secrets_ms: cells.next()?,
            paused: cells.next::<i64>()? != 0,
            answer: cells.json()?,
            version: cells.next()?,
        })
    }
}

fn shape(cells: &mut Cells<'_>) -> guild_store::Result<Shape> {
    Ok(Shape { cpu_milli: cells.next()?, ram_mib: cells.next()?, disk_mib: cells.next()? })
}

fn next_shape(cells: &mut Cells<'_>) -> guild_store::Result<Option<NextShape>> {
    let (cpu_milli, ram_mib, disk_mib): (Option<i64>, Option<i64>, Option<i64>) =
        (cells.next()?, cells.next()?, cells.next()?);
    let (price, from_ms): (Option<i64>, Option<i64>) = (cells.next()?, cells.next()?);
    let next = || {
        let shape = Shape { cpu_milli: cpu_milli?, ram_mib: ram_mib?, disk_mib: disk_mib? };
        Some(NextShape { shape, price: price?, from_ms: from_ms? })
    };
    Ok(next())
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT s.sandbox_no, sandbox_id, job_id, user_id, status, stop_reason, words, cpu_milli, ram_mib, disk_mib,
               price, next_cpu_milli, next_ram_mib, next_disk_mib, next_price, next_from_ms, cap, spent, paid_minutes,
               created_ms, started_ms, expires_ms, idle_timeout_ms, last_activity_ms, ends_ms, ran_ms, lost_units,
               image, image_digest, machine, instance, endpoint, agent_key, secrets_ms, paused, answer, version
             FROM hosting_sandbox AS s JOIN hosting_run AS r ON r.sandbox_no = s.sandbox_no ",
            $rest
        )
    };
}

/// The sandbox with this id, whoever owns it.
pub fn find(rx: &mut Rx<'_>, sandbox_id: &SandboxId) -> Result<Option<Sandbox>> {
    Ok(rx.first(select!("WHERE sandbox_id = $1"), args![sandbox_id.as_str()])?)
}

/// The sandbox with this id, if this user owns it. That of another user is as unknown as one that is not there.
pub fn get(rx: &mut Rx<'_>, user_id: &UserId, sandbox_id: &SandboxId) -> Result<Sandbox> {
    let found = find(rx, sandbox_id)?.filter(|sandbox| sandbox.user_id == *user_id);
    found.ok_or_else(|| unknown(sandbox_id))
}

/// The same for whoever drives the machines: any user's.
pub(crate) fn known(rx: &mut Rx<'_>, sandbox_id: &SandboxId) -> Result<Sandbox> {
    find(rx, sandbox_id)?.ok_or_else(|| unknown(sandbox_id))
}

fn unknown(sandbox_id: &SandboxId) -> Error {
    Error::refused(&code::UNKNOWN_SANDBOX, format!("you have no sandbox {sandbox_id}"))
}

/// No id is beyond this text.
const LAST: &str = "sbx_g";

/// A page of a user's sandboxes, the newest first: those before this one, or the newest of all.
pub fn page_before(
    rx: &mut Rx<'_>,
    user_id: &UserId,
    before: Option<&SandboxId>,
    limit: i64,
) -> Result<Vec<Sandbox>> {
    let before = before.map_or(LAST, SandboxId::as_str);
    Ok(rx.all(
        select!("WHERE user_id = $1 AND sandbox_id < $2 ORDER BY sandbox_id DESC LIMIT $3"),
        args![user_id.as_str(), before, page(limit)],
    )?)
}

/// The same of one job. Whether it is the user's is the caller's to ask, by [`crate::job::get`].
pub fn page_of_job(
    rx: &mut Rx<'_>,
    job_id: &HostingJobId,
    before: Option<&SandboxId>,
    limit: i64,
) -> Result<Vec<Sandbox>> {
    let before = before.map_or(LAST, SandboxId::as_str);
    Ok(rx.all(
        select!("WHERE job_id = $1 AND sandbox_id < $2 ORDER BY sandbox_id DESC LIMIT $3"),
        args![job_id.as_str(), before, page(limit)],
    )?)
}

/// A page of all sandboxes, the newest first: for the operator of this node.
pub fn page_of_all(
    rx: &mut Rx<'_>,
    before: Option<&SandboxId>,
    limit: i64,
) -> Result<Vec<Sandbox>> {
    let before = before.map_or(LAST, SandboxId::as_str);
    let sql = select!("WHERE sandbox_id < $1 ORDER BY sandbox_id DESC LIMIT $2");
    Ok(rx.all(sql, args![before, page(limit)])?)
}

/// The newest of a user's that start, run or end; of everybody's, if no user is named.
pub(crate) fn open_of_user(
    rx: &mut Rx<'_>,
    user_id: Option<&UserId>,
    limit: i64,
) -> Result<Vec<Sandbox>> {
    match user_id {
        Some(user_id) => Ok(rx.all(
            select!(
                "WHERE user_id = $1 AND status IN ('starting', 'running', 'ending')
                 ORDER BY sandbox_id DESC LIMIT $2"
            ),
            args![user_id.as_str(), page(limit)],
        )?),
        None => Ok(rx.all(OPEN_OF_ALL, args![LAST, page(limit)])?),
    }
}

/// The words are those of the index, so that it is used.
pub(crate) const OPEN_OF_ALL: &str = select!(
    "WHERE sandbox_id < $1 AND status IN ('starting', 'running', 'ending', 'destroying')
       AND status <> 'destroying' ORDER BY sandbox_id DESC LIMIT $2"
);

/// The same.
pub(crate) const BURN_OF_ALL: &str =
    "SELECT count(*), CAST(coalesce(sum(coalesce(next_price, price)), 0) AS BIGINT) FROM hosting_sandbox
     WHERE sandbox_id < $1 AND status IN ('starting', 'running', 'ending', 'destroying')
       AND status IN ('starting', 'running')";

/// How many sandboxes start or run, whoever owns them, and what their next minute costs.
pub(crate) fn burn_of_all(rx: &mut Rx<'_>) -> Result<(i64, i64)> {
    let row: Option<(i64, i64)> = rx.first(BURN_OF_ALL, args![LAST])?;
    Ok(row.unwrap_or_default())
}

/// How many sandboxes of these jobs start or run, and what their next minute costs.
pub(crate) fn burns(rx: &mut Rx<'_>, job_ids: &[&str]) -> Result<Vec<(String, i64, i64)>> {
    const BURNS: Sql = Sql {
        lite: "SELECT job_id, count(*), CAST(sum(coalesce(next_price, price)) AS BIGINT) FROM hosting_sandbox
               WHERE job_id = $1 AND status IN ('starting', 'running') GROUP BY job_id",
        pg: "SELECT job_id, count(*), CAST(sum(coalesce(next_price, price)) AS BIGINT) FROM hosting_sandbox
             WHERE job_id = ANY ($1::text[]) AND status IN ('starting', 'running') GROUP BY job_id",
    };
    Ok(rx.all_set(BURNS, &[Column::Texts(job_ids)])?)
}

/// Those that start, run, end or are being destroyed, in the order of their ids, after this one: for whoever drives
/// the machines.
pub fn open_after(rx: &mut Rx<'_>, after: Option<&SandboxId>, limit: i64) -> Result<Vec<Sandbox>> {
    Ok(rx.all(OPEN, args![after.map_or("", SandboxId::as_str), page(limit)])?)
}

pub(crate) const OPEN: &str = select!(
    "WHERE sandbox_id > $1 AND status IN ('starting', 'running', 'ending', 'destroying')
     ORDER BY sandbox_id LIMIT $2"
);

/// A row as far as it can be read: what it says, or its id.
struct Readable(std::result::Result<Sandbox, String>);

impl Decode for Readable {
    fn decode(row: &dyn Columns) -> guild_store::Result<Readable> {
        const ID: usize = 1;
        let id = || String::from_val(row.val(ID).ok()?);
        Ok(Readable(Sandbox::decode(row).map_err(|_| id().unwrap_or_default())))
    }
}

/// A page of open sandboxes.
pub(crate) struct Opened {
    /// Those that can be read.
    pub(crate) rows: Vec<Sandbox>,
    /// The ids of those that cannot.
    pub(crate) unreadable: Vec<String>,
    /// Where the next page begins; none behind the last.
    pub(crate) last: Option<String>,
}

/// As [`open_after`]: one row that cannot be read must not hide all others from whoever drives the machines.
pub(crate) fn opened_after(rx: &mut Rx<'_>, after: &str, limit: i64) -> Result<Opened> {
    let all: Vec<Readable> = rx.all(OPEN, args![after, page(limit)])?;
    let last = all.last().map(|Readable(row)| match row {
        Ok(row) => row.sandbox_id.to_string(),
        Err(id) => id.clone(),
    });
    let (mut rows, mut unreadable) = (Vec::new(), Vec::new());
    for Readable(row) in all {
        match row {
            Ok(row) => rows.push(row),
            Err(id) => unreadable.push(id),
        }
    }
    Ok(Opened { rows, unreadable, last })
}

/// Those of a job that start or run.
pub(crate) fn live_of_job(rx: &mut Rx<'_>, job_id: &HostingJobId) -> Result<Vec<Sandbox>> {
    Ok(rx.all(
        select!("WHERE job_id = $1 AND status IN ('starting', 'running') ORDER BY sandbox_id"),
        args![job_id.as_str()],
    )?)
}

/// How many of a job start or run.
pub(crate) fn count_live(rx: &mut Rx<'_>, job_id: &HostingJobId) -> Result<i64> {
    let sql = "SELECT count(*) FROM hosting_sandbox WHERE job_id = $1 AND status IN ('starting', 'running')";
    let count: Option<(i64,)> = rx.first(sql, args![job_id.as_str()])?;
    Ok(count.map_or(0, |(count,)| count))
}

/// Those with these ids.
pub(crate) fn with_ids(rx: &mut Rx<'_>, ids: &[&str]) -> Result<Vec<Sandbox>> {
    const WITH_IDS: Sql = Sql {
        lite: select!("WHERE sandbox_id = $1"),
        pg: select!("WHERE sandbox_id = ANY ($1::text[]) ORDER BY sandbox_id"),
    };
    Ok(rx.all_set(WITH_IDS, &[Column::Texts(ids)])?)
}

/// Every sandbox after this one, in the order of their ids.
pub(crate) fn all_after(rx: &mut Rx<'_>, after: &str, limit: i64) -> Result<Vec<Sandbox>> {
    let sql = select!("WHERE sandbox_id > $1 ORDER BY sandbox_id LIMIT $2");
    Ok(rx.all(sql, args![after, page(limit)])?)
}

#[cfg(test)]
mod tests {
    use guild_store::{Hooks, Migrations, Options, Service, Tx};

    use super::*;
    use crate::clamp::Policy;
    use crate::job::{self, NewJob};
    use crate::money::{self, HostingQuoteId};
    use crate::sandbox::{NewSandbox, SecurityMode, create};

    const T0: UnixMs = 1_768_435_200_000;

    fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(prefix: &str, n: u32) -> T {
        format!("{prefix}_{n:032x}").parse().unwrap()
    }

    /// Three sandboxes that start, and nobody knows whose the second is.
    fn order_three(tx: &mut Tx<'_>) -> Result<()> {
        let (user_id, policy) = (UserId::of_wallet([1; 20]), Policy::default());
        money::credit(tx, &user_id, 1_000_000, "wire", T0)?;
        let new_job = NewJob {
            job_id: id("job", 1),
            user_id: user_id.clone(),
            name: "job".to_owned(),
            max_spend: 1_000_000,
            ttl_ms: 3_600_000,
            idle_timeout_ms: None,
        };
        job::create(tx, &new_job, &policy, T0)?;
        for n in 1..=3 {
            let quote_id: HostingQuoteId = id("quote", n);
            let new = NewSandbox {
                sandbox_id: id("sbx", n),
                quote_id,
                job_id: id("job", 1),
                user_id: user_id.clone(),
                shape: Shape { cpu_milli: 1_000, ram_mib: 1_024, disk_mib: 64 },
                cap: 10_000,
                ttl_ms: 3_600_000,
                idle_timeout_ms: None,
                image: "sandbox-base:v1.0.0".to_owned(),
                image_digest: "host".to_owned(),
                security_mode: SecurityMode::Standard,
                machine: "local".to_owned(),
            };
            create(tx, &new, &policy, T0)?;
        }
        tx.exec("UPDATE hosting_sandbox SET user_id = 'nobody' WHERE sandbox_no = 2", args![])?;
        Ok(())
    }

    #[test]
    fn a_row_that_cannot_be_read_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let all = Migrations::store().and(guild_ledger::migrations()).and(crate::migrations());
        let options = Options::file(&dir.path().join("node.db"));
        let service = Service::open(&options, &all, Hooks::default(), 0).unwrap();
        let opened = service.handle().write(|tx| {
            order_three(tx)?;
            let first = opened_after(tx, "", 2)?;
            let then = opened_after(tx, first.last.as_deref().unwrap_or_default(), 2)?;
            Ok::<_, Error>((first, then))
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (first, then) = runtime.block_on(opened).unwrap();
        service.close();
        let ids = |opened: &Opened| {
            opened.rows.iter().map(|row| row.sandbox_id.clone()).collect::<Vec<SandboxId>>()
        };
        let bad: SandboxId = id("sbx", 2);
        assert_eq!(ids(&first), [id("sbx", 1)]);
        assert_eq!(
            (&first.unreadable[..], &first.last),
            (&[bad.to_string()][..], &Some(bad.to_string()))
        );
        assert_eq!((ids(&then), then.unreadable.len()), (vec![id("sbx", 3)], 0));
    }
}
