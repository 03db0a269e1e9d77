//! Ten thousand users with a job each, and ten sandboxes in each job, all in their first minute.

use guild_hosting::price::{Rates, Shape, per_minute};
use guild_hosting::sandbox::MINUTE_MS;
use guild_hosting::{Result, UserId, money};
use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, ledger};
use guild_protocol::amount::{Amount, AssetId};
use guild_store::{Column, Hooks, Options, Service, Sql, Store, Tx};

use crate::hall::{self, T0};
use crate::said;

/// How many sandboxes run.
pub(crate) const SANDBOXES: usize = 100_000;
const OF_A_JOB: usize = 10;
const FUNDS: i64 = 1_000_000_000;
const SHAPE: Shape = Shape { cpu_milli: 1_000, ram_mib: 1_024, disk_mib: 1_024 };

pub(crate) struct Fleet(Service);

/// A sandbox that runs: its number is all.
struct One(usize);

impl One {
    fn sandbox_id(&self) -> String {
        format!("sbx_{:032x}", self.0)
    }

    fn job(&self) -> usize {
        self.0 / OF_A_JOB
    }

    /// They began within nine seconds.
    fn started_ms(&self) -> i64 {
        T0 + i64::try_from(self.0 * 7 % 9_000).unwrap_or(0)
    }
}

fn job_id(job: usize) -> String {
    format!("job_{job:032x}")
}

fn user(job: usize) -> UserId {
    let mut address = [0; 20];
    address[..8].copy_from_slice(&(job as u64).to_be_bytes());
    UserId::of_wallet(address)
}

fn price() -> i64 {
    per_minute(&Rates::default(), &SHAPE).unwrap_or(1)
}

impl Fleet {
    pub(crate) fn open(
        options: &Options,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<Fleet, String> {
        let service =
            Service::open(options, &hall::migrations(), Hooks::default(), T0).map_err(said)?;
        let store = service.handle();
        let jobs = SANDBOXES / OF_A_JOB;
        runtime
            .block_on(async {
                for from in (0..jobs).step_by(500) {
                    let until = jobs.min(from + 500);
                    store.write(move |tx| fill(tx, from, until)).await?;
                }
                Ok::<_, guild_hosting::Error>(())
            })
            .map_err(said)?;
        Ok(Fleet(service))
    }

    pub(crate) fn store(&self) -> Store {
        self.0.handle()
    }

    pub(crate) fn close(self) {
        self.0.close();
    }

    /// What the ledger books alone: as much, between as many accounts, named as long.
    pub(crate) fn transfers(&self) -> Result<Vec<NewTransfer>, String> {
        let rest = Account::new("node", "bench", AssetId::usd_micro(), Limit::NeverNegative)
            .map_err(said)?;
        let one = |n: usize| -> Result<NewTransfer> {
            let memo = format!("bench.minutes {} 1", One(n).sandbox_id());
            let debit = money::account(&user(One(n).job()))?.account_id;
            let amount = Amount::new(AssetId::usd_micro(), price());
            let step = Step::Post { debit, credit: rest.account_id.clone(), amount };
            let begins_ms = One(n).started_ms() + MINUTE_MS;
            Ok(NewTransfer::new(TransferId::named(begins_ms, &["bench", &memo]), step, &memo)?)
        };
        (0..SANDBOXES).map(one).collect::<Result<_>>().map_err(said)
    }
}

/// Makes the users, jobs and sandboxes of these jobs, as orders and starts would have left them.
fn fill(tx: &mut Tx<'_>, from: usize, until: usize) -> Result<()> {
    let revenue = money::revenue()?;
    let rest = Account::new("node", "bench", AssetId::usd_micro(), Limit::NeverNegative)?;
    for account in [&revenue, &rest] {
        ledger::open(tx, account, T0)?;
    }
    for job in from..until {
        money::credit(tx, &user(job), FUNDS, &format!("funds {job}"), T0)?;
    }
    let minutes: Vec<Vec<NewTransfer>> = (from * OF_A_JOB..until * OF_A_JOB)
        .map(|n| {
            let debit = money::account(&user(One(n).job()))?.account_id;
            let amount = Amount::new(AssetId::usd_micro(), price());
            let step = Step::Post { debit, credit: revenue.account_id.clone(), amount };
            let memo = format!("sandbox.minute {} 0", One(n).sandbox_id());
            Ok(vec![NewTransfer::new(TransferId::named(T0, &["first", &memo]), step, &memo)?])
        })
        .collect::<Result<_>>()?;
    for outcome in ledger::book(tx, &minutes, T0)? {
        outcome?;
    }
    insert(tx, from, until)
}

const ANSWER: &str = r#"{"asked":{"version":0,"spend":null,"expires_ms":null,"idle_timeout_ms":null},"granted":{"spend":{"requested":1,"granted":1,"bound":"requested"},"expires_ms":{"requested":1,"granted":1,"bound":"requested"}}}"#;

fn insert(tx: &mut Tx<'_>, from: usize, until: usize) -> Result<()> {
    const JOB: Sql = Sql {
        lite: "INSERT INTO hosting_job (job_id, user_id, name, status, max_spend, spent, created_ms, expires_ms,
                 last_activity_ms, due_ms, answer)
               VALUES ($1, $2, 'bench', 'running', 1000000000, $3, $4, $5, $4, $5, $6)",
        pg: "INSERT INTO hosting_job (job_id, user_id, name, status, max_spend, spent, created_ms, expires_ms,
               last_activity_ms, due_ms, answer)
             SELECT j, u, 'bench', 'running', 1000000000, s, c, e, c, e, a
             FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
               AS n (j, u, s, c, e, a)",
    };
    let jobs: Vec<(String, String)> =
        (from..until).map(|job| (job_id(job), user(job).to_string())).collect();
    let ids: Vec<&str> = jobs.iter().map(|(id, _)| id.as_str()).collect();
    let users: Vec<&str> = jobs.iter().map(|(_, user)| user.as_str()).collect();
    let many = |value: i64| vec![value; jobs.len()];
    let spent = many(price() * i64::try_from(OF_A_JOB).unwrap_or(0));
    let (created_ms, expires_ms) = (many(T0), many(T0 + 86_400_000));
    let answers = vec![ANSWER; jobs.len()];
    tx.exec_set(
        JOB,
        &[
            Column::Texts(&ids),
            Column::Texts(&users),
            Column::Ints(&spent),
            Column::Ints(&created_ms),
            Column::Ints(&expires_ms),
            Column::Texts(&answers),
        ],
    )?;
    insert_sandboxes(tx, from, until)
}

fn insert_sandboxes(tx: &mut Tx<'_>, from: usize, until: usize) -> Result<()> {
    const SANDBOX: Sql = Sql {
        lite: "INSERT INTO hosting_sandbox (sandbox_no, sandbox_id, job_id, user_id, status, cpu_milli, ram_mib,
                 disk_mib, price, created_ms, expires_ms, last_activity_ms, image, image_digest, security_mode,
                 machine, instance, endpoint, agent_key, answer)
               VALUES ($1, $2, $3, $4, 'running', 1000, 1024, 1024, $5, $6, $6 + 80000000, $6, 'sandbox-base:v1.0.0',
                 'sha256:00', 'standard', 'local', $2, 'http://127.0.0.1:4999', 'key', $7)",
        pg: "INSERT INTO hosting_sandbox (sandbox_no, sandbox_id, job_id, user_id, status, cpu_milli, ram_mib,
               disk_mib, price, created_ms, expires_ms, last_activity_ms, image, image_digest, security_mode,
               machine, instance, endpoint, agent_key, answer)
             SELECT n, i, j, u, 'running', 1000, 1024, 1024, p, s, s + 80000000, s, 'sandbox-base:v1.0.0',
               'sha256:00', 'standard', 'local', i, 'http://127.0.0.1:4999', 'key', a
             FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[])
               AS x (n, i, j, u, p, s, a)",
    };
    const RUN: Sql = Sql {
        lite: "INSERT INTO hosting_run (sandbox_no, cap, spent, paid_minutes, started_ms, ends_ms, due_ms)
               VALUES ($1, 100000000, $2, 1, $3, $3 + 60000, $3 + 40000)",
        pg: "INSERT INTO hosting_run (sandbox_no, cap, spent, paid_minutes, started_ms, ends_ms, due_ms)
             SELECT n, 100000000, p, 1, s, s + 60000, s + 40000
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS x (n, p, s)",
    };
    let rows: Vec<(String, String, String, i64)> = (from * OF_A_JOB..until * OF_A_JOB)
        .map(|n| {
            let one = One(n);
            (one.sandbox_id(), job_id(one.job()), user(one.job()).to_string(), one.started_ms())
        })
        .collect();
    let ids: Vec<&str> = rows.iter().map(|row| row.0.as_str()).collect();
    let jobs: Vec<&str> = rows.iter().map(|row| row.1.as_str()).collect();
    let users: Vec<&str> = rows.iter().map(|row| row.2.as_str()).collect();
    let started_ms: Vec<i64> = rows.iter().map(|row| row.3).collect();
    let numbers: Vec<i64> = (1..).skip(from * OF_A_JOB).take(rows.len()).collect();
    let (prices, answers) = (vec![price(); rows.len()], vec![ANSWER; rows.len()]);
    tx.exec_set(
        SANDBOX,
        &[
            Column::Ints(&numbers),
            Column::Texts(&ids),
            Column::Texts(&jobs),
            Column::Texts(&users),
            Column::Ints(&prices),
            Column::Ints(&started_ms),
            Column::Texts(&answers),
        ],
    )?;
    tx.exec_set(RUN, &[Column::Ints(&numbers), Column::Ints(&prices), Column::Ints(&started_ms)])?;
    Ok(())
}
