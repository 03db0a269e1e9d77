//! The money of a year: the product's envelopes and ledger, and beside them a list that only adds up.

use std::collections::{BTreeMap, BTreeSet};

use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, audit, ledger};
use guild_market::budget::{self, Asked};
use guild_market::order::OrderId;
use guild_market::routing::TaskType;
use guild_market::{Result, code};
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::identity::PublicKey;
use guild_protocol::timestamp::Timestamp;
use guild_store::{Db, Hooks, Migrations, Pump, Rx, Sqlite, Store, Tx, pumps};

use crate::world::{T0, block_on};

/// What there is to spend.
const FUNDS: i64 = 1_000_000_000;
const DAY_MS: i64 = 24 * 3_600_000;

/// What may be spent on a kind of work.
pub(super) struct Envelope {
    pub(super) task: TaskType,
    pub(super) daily: i64,
    pub(super) monthly: i64,
    pub(super) priority: i64,
}

pub(super) struct Books {
    _keeper: Sqlite,
    db: Sqlite,
    store: Store,
    writes: Pump,
    reads: Pump,
    /// What all envelopes together allow on a day and in a month.
    daily: i64,
    monthly: i64,
    /// Whether nothing is charged to the envelopes: a bug that is planted.
    is_free: bool,
    /// What was held or paid for jobs, by the day and the month in which they were posted.
    used: BTreeMap<String, i64>,
    /// The jobs that are open: when they were posted, and what is held for them.
    open: BTreeMap<String, (i64, i64)>,
    /// What each is owed, as whoever judged said.
    owed: BTreeMap<PublicKey, i64>,
    /// Where more was used than all envelopes together allow.
    beyond: BTreeSet<String>,
}

fn account(provider: &PublicKey) -> guild_ledger::Result<Account> {
    Account::new(&provider.npub(), "year", AssetId::btc_ln(), Limit::NeverNegative)
}

fn wallet() -> guild_ledger::Result<Account> {
    Account::new("node", "wallet", AssetId::btc_ln(), Limit::NeverNegative)
}

fn hold_id(order: &str, at_ms: i64) -> TransferId {
    TransferId::named(at_ms, &["year.hold", order])
}

fn one(tx: &mut Tx<'_>, id: TransferId, step: Step, at_ms: i64) -> Result<()> {
    let transfer = NewTransfer::new(id, step, "a job of a year")?;
    ledger::book(tx, &[vec![transfer]], at_ms)?.remove(0)?;
    Ok(())
}

impl Books {
    pub(super) fn new(seed: u64, envelopes: &[Envelope], is_free: bool) -> Books {
        let name = format!("year-{seed}-{:?}", std::thread::current().id());
        let mut keeper = Sqlite::open_memory(&name).unwrap();
        let all = Migrations::store()
            .and(guild_ledger::migrations())
            .and(guild_network::migrations())
            .and(guild_market::migrations());
        all.apply(&mut keeper, T0).unwrap();
        let (store, writes, reads) = pumps(4, &Hooks::default());
        let mut db = Sqlite::open_memory(&name).unwrap();
        // A charge belongs to an order; what a year is about needs none.
        db.batch("PRAGMA foreign_keys = OFF").unwrap();
        let daily = envelopes.iter().map(|one| one.daily).sum();
        let monthly = envelopes.iter().map(|one| one.monthly).sum();
        let mut books = Books {
            _keeper: keeper,
            db,
            store,
            writes,
            reads,
            daily,
            monthly,
            is_free,
            used: BTreeMap::new(),
            open: BTreeMap::new(),
            owed: BTreeMap::new(),
            beyond: BTreeSet::new(),
        };
        let set: Vec<(TaskType, Asked)> = envelopes
            .iter()
            .map(|one| {
                let daily = Some(Msat(one.daily));
                let monthly = Some(Msat(one.monthly));
                let priority = Some(one.priority);
                (one.task.clone(), Asked { daily, monthly, priority, ..Asked::default() })
            })
            .collect();
        let funded = books.write(move |tx| {
            for (task, asked) in &set {
                budget::set(tx, task, asked, T0)?;
            }
            let outside = Account::new("outside", "main", AssetId::btc_ln(), Limit::None)?;
            ledger::open(tx, &outside, T0)?;
            ledger::open(tx, &wallet()?, T0)?;
            let (debit, credit) = (outside.account_id, wallet()?.account_id);
            let step = Step::Post { debit, credit, amount: Amount::from(Msat(FUNDS)) };
            one(tx, TransferId::named(T0, &["funds"]), step, T0)
        });
        funded.unwrap();
        books
    }

    fn write<T: Send + 'static>(
        &mut self,
        run: impl Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let answer = self.store.write(run);
        self.writes.drain(&mut self.db, 1).unwrap();
        block_on(answer)
    }

    fn read<T: Send + 'static>(
        &mut self,
        run: impl Fn(&mut Rx<'_>) -> Result<T> + Send + 'static,
    ) -> T {
        let answer = self.store.read(run);
        self.reads.drain(&mut self.db, 1).unwrap();
        block_on(answer).unwrap()
    }

    /// Charges a job to its envelope and holds what each replica may cost; whether the envelope has so much left.
    pub(super) fn hold(
        &mut self,
        job: &str,
        task: &TaskType,
        replicas: &[(PublicKey, i64)],
        at_ms: i64,
    ) -> bool {
        let name = job.to_owned();
        let (job, task, replicas) = (job.to_owned(), task.clone(), replicas.to_vec());
        let budget: i64 = replicas.iter().map(|(_, price)| *price).sum();
        let is_free = self.is_free;
        let held = self.write(move |tx| {
            if !is_free {
                budget::charge(tx, &OrderId::of_key(&job), task.as_str(), Msat(budget), at_ms)?;
            }
            for (number, (provider, price)) in replicas.iter().enumerate() {
                let to = account(provider)?;
                ledger::open(tx, &to, at_ms)?;
                let step = Step::Hold {
                    debit: wallet()?.account_id,
                    credit: to.account_id,
                    amount: Amount::from(Msat(*price)),
                    expires_ms: at_ms + 30 * DAY_MS,
                };
                one(tx, hold_id(&format!("{job}/{number}"), at_ms), step, at_ms)?;
            }
            Ok(())
        });
        match held {
            Ok(()) => {
                self.open.insert(name, (at_ms, budget));
                self.count(at_ms, budget);
                true
            }
            Err(error) => {
                assert_eq!(error.code(), &code::BUDGET_ENVELOPE, "{error}");
                false
            }
        }
    }

    /// Pays some of the replicas of a job and gives back what was held for the others. Told twice now and then: it
    /// happens once.
    pub(super) fn settle(
        &mut self,
        job: &str,
        replicas: &[(PublicKey, i64)],
        paid: &[usize],
        (at_ms, twice): (i64, bool),
    ) {
        let sum: i64 = paid.iter().map(|number| replicas[*number].1).sum();
        for number in paid {
            *self.owed.entry(replicas[*number].0).or_default() += replicas[*number].1;
        }
        let (posted_ms, held) = self.open.remove(job).unwrap();
        self.count(posted_ms, sum - held);
        for _ in 0..=usize::from(twice) {
            let (job, count, paid) = (job.to_owned(), replicas.len(), paid.to_vec());
            let settled = self.write(move |tx| {
                for number in 0..count {
                    let hold = hold_id(&format!("{job}/{number}"), at_ms);
                    let step = match paid.contains(&number) {
                        true => Step::Settle { hold, units: None },
                        false => Step::Void { hold },
                    };
                    let id = TransferId::named(at_ms, &["year.end", &job, &number.to_string()]);
                    one(tx, id, step, at_ms)?;
                }
                budget::close(tx, &OrderId::of_key(&job), Msat(sum), at_ms)
            });
            settled.unwrap();
        }
    }

    /// What is wrong with the money, if anything is.
    pub(super) fn problems(&mut self) -> Vec<String> {
        let mut problems = self.read(|rx| Ok(audit::run(rx)?)).problems;
        problems.extend(self.beyond.iter().cloned());
        problems.extend(self.months());
        let owed = self.owed.clone();
        let balances = self.read(move |rx| {
            let mut wrong = Vec::new();
            for (provider, owed) in &owed {
                let id = account(provider)?.account_id;
                let entry = ledger::entries(rx, &[id].into())?.into_values().next();
                let has = entry.map_or(0, |entry| entry.balance.free_units());
                if has != *owed {
                    wrong.push(format!("{provider} has {has} msat and was owed {owed}"));
                }
            }
            Ok(wrong)
        });
        problems.extend(balances);
        problems
    }

    /// Adds up what is held and paid for jobs, by the day and the month in which they were posted, whatever the
    /// envelopes say.
    fn count(&mut self, posted_ms: i64, msat: i64) {
        let date = Timestamp::from_ms(posted_ms).unwrap().to_string();
        let (day, month) = (&date[..10], &date[..7]);
        for period in [day, month] {
            *self.used.entry(period.to_owned()).or_default() += msat;
        }
        if self.used[day] > self.daily {
            self.beyond.insert(format!("more than {} msat were used on {day}", self.daily));
        }
    }

    /// Months in which more was paid than all envelopes together allow, with half of what the month before had left,
    /// and never more than a month's.
    fn months(&self) -> Vec<String> {
        let (mut carried, mut problems) = (0, Vec::new());
        for (month, used) in self.used.iter().filter(|(period, _)| period.len() == 7) {
            let most = self.monthly + carried;
            if *used > most {
                problems.push(format!("{used} msat were used in {month}, of {most}"));
            }
            carried = ((most - used) / 2).clamp(0, self.monthly);
        }
        problems
    }
}
