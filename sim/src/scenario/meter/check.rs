//! What must hold, seen from what really ran and what is really booked: nothing of the code that decided it is used.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use guild_hosting::SandboxId;
use guild_protocol::env::{Clock, UnixMs};
use guild_sandbox::agent::EndedBy;
use guild_store::{Columns, Decode, Error, FromVal, Result, args};

use super::yard::{Held, Run};
use super::{Shared, lock};
use crate::clock::BEGIN_MS;

const MINUTE_MS: i64 = 60_000;
/// How much earlier than it is paid a sandbox may end where nothing goes wrong: the margin of its lease, a tick.
const EARLY_MS: i64 = 1_300;

/// So long before its end it is decided that a job ends.
const GRACE_MS: i64 = 3_000;

/// What is booked for a sandbox.
#[derive(Debug, Clone, Default)]
struct Paid {
    minutes: i64,
    units: i64,
    /// Of each minute.
    each: Vec<i64>,
    started_ms: UnixMs,
}

/// Looks at everything, again and again.
pub(super) struct Checker {
    shared: Shared,
    /// How far the history was read.
    seq: i64,
    /// When the last minute was paid, by the clock of who paid it.
    paid_ms: UnixMs,
    paid: BTreeMap<String, Paid>,
}

/// A sandbox, as its row says.
struct Row {
    id: String,
    job_id: String,
    status: String,
    reason: String,
    started_ms: Option<UnixMs>,
    expires_ms: UnixMs,
    cap: i64,
    next_price: i64,
    job_status: String,
    job_expires_ms: UnixMs,
    job_left: i64,
}

impl Decode for Row {
    fn decode(row: &dyn Columns) -> Result<Row> {
        Ok(Row {
            id: cell(row, 0)?,
            job_id: cell(row, 1)?,
            status: cell(row, 2)?,
            reason: cell(row, 3)?,
            started_ms: cell(row, 4)?,
            expires_ms: cell(row, 5)?,
            cap: cell(row, 6)?,
            next_price: cell(row, 7)?,
            job_status: cell(row, 8)?,
            job_expires_ms: cell(row, 9)?,
            job_left: cell(row, 10)?,
        })
    }
}

fn cell<T: FromVal>(row: &dyn Columns, at: usize) -> Result<T> {
    T::from_val(row.val(at)?).ok_or_else(|| Error::Decode(format!("column {at}")))
}

const ROWS: &str =
    "SELECT s.sandbox_id, s.job_id, s.status, coalesce(s.stop_reason, ''), r.started_ms, s.expires_ms,
       r.cap, coalesce(s.next_price, s.price), j.status, j.expires_ms, j.max_spend - j.spent - j.held
     FROM hosting_sandbox AS s JOIN hosting_run AS r ON r.sandbox_no = s.sandbox_no
       JOIN hosting_job AS j ON j.job_id = s.job_id";

impl Checker {
    pub(super) fn new(shared: &Shared) -> Checker {
        Checker { shared: shared.clone(), seq: 0, paid_ms: 0, paid: BTreeMap::new() }
    }

    fn violate(&self, what: String) {
        self.shared.world.violate(what);
    }

    /// What must hold at every moment.
    pub(super) fn look(&mut self) {
        if self.shared.changed.swap(false, Ordering::SeqCst) && self.read_history() {
            self.check_balances();
            self.check_caps();
        }
        self.check_runs();
        self.check_shapes();
    }

    /// Reads on in the history. Whether there was anything new.
    fn read_history(&mut self) -> bool {
        const NEW: &str = "SELECT t.seq, t.step, t.units, t.memo, t.at_ms, d.owner, c.purpose
             FROM ledger_transfer AS t JOIN ledger_account AS d ON d.account_no = t.debit_no
               JOIN ledger_account AS c ON c.account_no = t.credit_no
             WHERE t.seq > $1 ORDER BY t.seq";
        type New = (i64, String, i64, String, i64, String, String);
        let new: Vec<New> = match self.shared.database.all(NEW, args![self.seq]) {
            Ok(new) => new,
            Err(error) => {
                self.violate(format!("[history] it cannot be read: {error}"));
                return false;
            }
        };
        for (seq, step, units, memo, at_ms, payer, to) in &new {
            self.seq = *seq;
            let moves = matches!(step.as_str(), "post" | "settle");
            if moves && to == "hosting_revenue" {
                self.take(*units, memo, *at_ms, payer);
            }
        }
        !new.is_empty()
    }

    fn take(&mut self, units: i64, memo: &str, at_ms: UnixMs, payer: &str) {
        let words: Vec<&str> = memo.split(' ').collect();
        // An agent whose clock was set forward cannot tell that from having stood still while all else went on: we bear
        // what may have run.
        if words.first() == Some(&"sandbox.loss") && payer == "node" && !self.shared.is_strict() {
            return self.shared.world.count("loss by a clock");
        }
        let ["sandbox.minute", id, number] = words.as_slice() else {
            return self.violate(format!("[unknown] {payer} pays {units} for {memo:?}"));
        };
        let Ok(number) = number.parse::<i64>() else {
            return self.violate(format!("[unknown] {memo:?}"));
        };
        self.shared.world.count("minute");
        let paid = self.paid.entry((*id).to_owned()).or_default();
        let expected = paid.minutes;
        paid.minutes += 1;
        paid.units += units;
        paid.each.push(units);
        if number < expected {
            self.violate(format!("[twice] minute {number} of {id} is paid again"));
        } else if number > expected {
            self.violate(format!("[gap] minute {number} of {id} is paid, not {expected}"));
        }
        if number > 0 {
            self.check_moment(id, number, at_ms);
        }
        self.check_price(id, number, units);
    }

    /// A minute costs what the shape costs that it has in it.
    fn check_price(&mut self, id: &str, number: i64, units: i64) {
        type Shapes = (Option<i64>, i64, i64, Option<i64>, Option<i64>, Option<i64>);
        const SHAPES: &str =
            "SELECT r.started_ms, s.cpu_milli, s.ram_mib, s.next_cpu_milli, s.next_ram_mib,
               s.next_from_ms
             FROM hosting_sandbox AS s JOIN hosting_run AS r ON r.sandbox_no = s.sandbox_no
             WHERE s.sandbox_id = $1";
        let shapes: Vec<Shapes> = self.shared.database.all(SHAPES, args![id]).unwrap_or_default();
        let Some((started_ms, cpu_milli, ram_mib, next_cpu, next_ram, from_ms)) =
            shapes.into_iter().next()
        else {
            return self.violate(format!("[unknown] {id} is paid and has no row"));
        };
        let started_ms = started_ms.unwrap_or(0);
        if let Some(paid) = self.paid.get_mut(id) {
            paid.started_ms = started_ms;
        }
        let begins_ms = started_ms + number * MINUTE_MS;
        let shape = match (next_cpu, next_ram, from_ms) {
            (Some(cpu_milli), Some(ram_mib), Some(from_ms)) if from_ms <= begins_ms => {
                Held { cpu_milli, ram_mib }
            }
            _ => Held { cpu_milli, ram_mib },
        };
        let price = price_of(shape);
        if units != price {
            self.violate(format!(
                "[price] minute {number} of {id} is paid with {units}, {shape:?} costs {price}"
            ));
        }
    }

    /// Nothing has more than the minute pays for in which it is. While things go wrong, what gives and takes may be
    /// dead for as long as it likes.
    fn check_shapes(&self) {
        let now_ms = self.shared.world.now_ms();
        let is_settled = now_ms > self.shared.world.faults_until_ms() + MINUTE_MS;
        if !self.shared.is_strict() || !(self.shared.is_calm || is_settled) {
            return;
        }
        let mut unpaid = Vec::new();
        self.shared.yard.each_shape(|id, shape| {
            let Some(paid) = self.paid.get(id.as_str()) else { return };
            let minute = (BEGIN_MS + now_ms - paid.started_ms).div_euclid(MINUTE_MS);
            let units = usize::try_from(minute).ok().and_then(|minute| paid.each.get(minute));
            if let Some(units) = units.filter(|units| **units < price_of(shape)) {
                unpaid
                    .push(format!("[shape] {id} has {shape:?}, its minute {minute} pays {units}"));
            }
        });
        unpaid.into_iter().for_each(|what| self.violate(what));
    }

    /// A minute is paid before it begins; and no meter goes by an earlier time than another before it.
    fn check_moment(&mut self, id: &str, number: i64, at_ms: UnixMs) {
        if at_ms < self.paid_ms && self.shared.world.now_ms() < self.shared.world.faults_until_ms()
        {
            let back_ms = self.paid_ms - at_ms;
            self.violate(format!(
                "[clock] minute {number} of {id} is paid {back_ms} ms before the last"
            ));
        }
        self.paid_ms = at_ms;
        if !self.shared.is_strict() {
            return;
        }
        let started = "SELECT r.started_ms FROM hosting_run AS r JOIN hosting_sandbox AS s
                         ON s.sandbox_no = r.sandbox_no WHERE s.sandbox_id = $1";
        let started: Option<i64> = self.shared.database.one(started, args![id]).ok().flatten();
        let begins_ms = started.unwrap_or(0) + number * MINUTE_MS;
        let now_ms = BEGIN_MS + self.shared.world.now_ms();
        if now_ms >= begins_ms {
            let late_ms = now_ms - begins_ms;
            self.violate(format!(
                "[late] minute {number} of {id} is paid {late_ms} ms after it began"
            ));
        }
    }

    fn check_balances(&self) {
        const ALL: &str =
            "SELECT owner, balance_limit, credits_posted - debits_posted, debits_pending
             FROM ledger_account";
        let all: Vec<(String, String, i64, i64)> =
            self.shared.database.all(ALL, args![]).unwrap_or_default();
        let sum: i64 = all.iter().map(|(_, _, units, _)| units).sum();
        if sum != 0 {
            self.violate(format!("[sum] all accounts together hold {sum}"));
        }
        for (owner, limit, units, held) in all {
            if limit == "never_negative" && units - held < 0 {
                self.violate(format!("[negative] {owner} has {units}, of which {held} are held"));
            }
        }
    }

    fn check_caps(&self) {
        const CAPS: &str = "SELECT s.sandbox_id, s.job_id, r.cap, j.max_spend, j.status,
               s.status IN ('starting', 'running')
             FROM hosting_sandbox AS s JOIN hosting_run AS r ON r.sandbox_no = s.sandbox_no
               JOIN hosting_job AS j ON j.job_id = s.job_id";
        let rows: Vec<(String, String, i64, i64, String, i64)> =
            self.shared.database.all(CAPS, args![]).unwrap_or_default();
        let mut jobs: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for (id, job_id, cap, budget, job_status, is_live) in &rows {
            let spent = self.paid.get(id).map_or(0, |paid| paid.units);
            let job = jobs.entry(job_id).or_insert((0, *budget));
            job.0 += spent;
            if is_live == &1 && job_status != "running" {
                self.violate(format!("[job] {id} runs, {job_id} is {job_status}"));
            }
            if spent > *cap {
                self.violate(format!("[cap] {id} has spent {spent} of {cap}"));
            }
        }
        for (job_id, (spent, budget)) in jobs {
            if spent > budget {
                self.violate(format!("[budget] {job_id} has spent {spent} of {budget}"));
            }
        }
    }

    /// What runs now is paid now.
    fn check_runs(&self) {
        let now_ms = self.shared.world.now_ms();
        let mut unpaid = Vec::new();
        self.shared.yard.each_run(|id, runs| {
            let Some(last) = runs.last() else { return };
            if last.ended_ms.is_some_and(|ended_ms| ended_ms < now_ms - MINUTE_MS) {
                return;
            }
            let ran_ms: i64 = runs.iter().map(|run| run.ran_ms(now_ms)).sum();
            let minutes = self.paid.get(id.as_str()).map_or(0, |paid| paid.minutes);
            if ran_ms > minutes * MINUTE_MS || runs.len() > 1 {
                unpaid.push(format!(
                    "[unpaid] {id} ran {ran_ms} ms in {} runs, {minutes} minutes are paid",
                    runs.len()
                ));
            }
        });
        unpaid.into_iter().for_each(|what| self.violate(what));
    }

    /// What must hold in the end.
    pub(super) fn at_the_end(&mut self) {
        if self.shared.world.is_violated() {
            return;
        }
        self.look();
        self.audit();
        let rows: Vec<Row> = self.shared.database.all(ROWS, args![]).unwrap_or_default();
        let runs = self.shared.yard.runs();
        for row in &rows {
            let runs = row.id.parse::<SandboxId>().ok().and_then(|id| runs.get(&id));
            let run = runs.and_then(|runs| runs.last()).copied();
            self.check_end(row, run);
        }
        let words: String = rows.iter().map(|row| format!("{} {} ", row.id, row.status)).collect();
        self.shared.world.note_text(&words);
    }

    fn audit(&self) {
        match self.shared.database.read(guild_hosting::audit::run) {
            Ok(report) => {
                report.problems.iter().for_each(|p| self.violate(format!("[audit] {p}")));
                if self.shared.is_strict() && (report.lost_units, report.overrun_ms) != (0, 0) {
                    self.violate(format!("[loss] {report:?}"));
                }
            }
            Err(error) => self.violate(format!("[audit] it cannot be run: {error}")),
        }
        match self.shared.database.read(guild_ledger::audit::run) {
            Ok(report) => {
                report.problems.iter().for_each(|p| self.violate(format!("[ledger] {p}")));
            }
            Err(error) => self.violate(format!("[ledger] it cannot be audited: {error}")),
        }
    }

    /// A sandbox that ended, ended in time; and not before, where nothing went wrong.
    fn check_end(&self, row: &Row, run: Option<Run>) {
        self.shared.world.count(reason_words(&row.reason));
        let paid = self.paid.get(&row.id).cloned().unwrap_or_default();
        let Some(started_ms) = row.started_ms else { return };
        let Some(run) = run else { return self.check_unused(row, started_ms) };
        if !self.shared.is_strict() {
            return;
        }
        let ended_ms = BEGIN_MS + run.ended_ms.unwrap_or(UnixMs::MAX - BEGIN_MS);
        let paid_until_ms = started_ms + paid.minutes * MINUTE_MS;
        let until_ms = paid_until_ms.min(row.expires_ms).min(row.job_expires_ms);
        if ended_ms > until_ms {
            let late_ms = ended_ms - until_ms;
            self.violate(format!("[time] {} ran {late_ms} ms too long ({})", row.id, row.reason));
        }
        self.check_reason(row, &paid, (ended_ms, until_ms, paid_until_ms), run);
    }

    /// What is paid runs, unless its end was too near or somebody ended it at once.
    fn check_unused(&self, row: &Row, started_ms: UnixMs) {
        let most_ms = row.expires_ms.min(row.job_expires_ms) - started_ms;
        let unwanted = lock(&self.shared.unwanted).contains(&row.id) || row.reason == "job_stopped";
        if self.shared.is_calm && most_ms > EARLY_MS && !unwanted {
            self.violate(format!("[never ran] {} is paid and never ran", row.id));
        }
    }

    fn check_reason(
        &self,
        row: &Row,
        paid: &Paid,
        (ended_ms, until_ms, paid_until_ms): (UnixMs, UnixMs, UnixMs),
        run: Run,
    ) {
        let Row { id, reason, .. } = row;
        let wrong = match reason.as_str() {
            "sandbox_cap" => paid.units + row.next_price <= row.cap,
            "job_cap" => {
                row.job_left >= row.next_price && row.job_status != "stopped_due_to_budget"
            }
            "sandbox_ttl" => row.expires_ms > paid_until_ms,
            // A job ends a moment before its time, when the last stop that is in time must be given. If nobody metered
            // for long, it is the first to be seen.
            "job_ttl" => self.shared.is_calm && row.job_expires_ms > paid_until_ms + GRACE_MS,
            _ => false,
        };
        if wrong {
            self.violate(format!("[reason] {id} did not end by {reason}"));
        }
        if !self.shared.is_calm {
            return;
        }
        let unwanted = lock(&self.shared.unwanted).contains(id);
        let by_itself = !unwanted && reason != "job_stopped";
        if matches!(reason.as_str(), "meter_gap" | "machine" | "not_started") {
            let left_ms = until_ms - ended_ms;
            let why = format!(
                "{reason}, {left_ms} ms early, though nothing went wrong: {run:?} {paid:?}"
            );
            self.violate(format!("[calm] {id} ended by {why}"));
        } else if by_itself && ended_ms < until_ms - EARLY_MS {
            let early_ms = until_ms - ended_ms;
            let job_id = &row.job_id;
            self.violate(format!("[early] {id} of {job_id} ended {early_ms} ms early ({reason})"));
        } else if by_itself
            && run.ended_by != Some(EndedBy::Lease)
            && run.ended_by != Some(EndedBy::Stop)
        {
            self.violate(format!("[calm] {id} ended by {:?}", run.ended_by));
        }
    }
}

/// What a minute of a shape costs: 840 for each processor and 270 for each GiB, rounded half up.
fn price_of(shape: Held) -> i64 {
    const WHOLE: i64 = 1_000 * 1_024;
    let units = shape.cpu_milli * 840 * 1_024 + shape.ram_mib * 270 * 1_000;
    ((units + WHOLE / 2) / WHOLE).max(1)
}

fn reason_words(reason: &str) -> &'static str {
    guild_hosting::sandbox::Reason::parse(reason).map_or("no reason", |reason| reason.as_str())
}
