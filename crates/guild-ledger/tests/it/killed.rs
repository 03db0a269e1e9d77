//! Real processes on PostgreSQL, killed at random in the middle of whatever they do. Afterwards the books are checked
//! by the program that strangers use, with a log of what every caller asked and was told.
//!
//! The process that is killed is this test binary, started again with only the test `as_a_bookkeeper`.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::{join, join_all};
use guild_ledger::evidence::{Calls, Checker};
use guild_ledger::{
    Account, AccountId, Error, Gate, Limit, NewTransfer, Rule, Step, TransferId, Writer, export,
    history, ledger, migrations, writer,
};
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_store::{Error as StoreError, Hooks, Migrations, Options, Service, Store};
use serde_json::{Value, json};
use testbed::{Dice, Victim, now_ms, wait_ms};

use crate::{account, block_on, usd};

const STORE_URL: &str = "GUILD_TEST_LEDGER_STORE";
const CALLS: &str = "GUILD_TEST_LEDGER_CALLS";
/// How often processes are killed; `cargo xtask soak kill` asks for more.
const RUNS: &str = "GUILD_TEST_KILL_RUNS";
const DEFAULT_RUNS: u64 = 12;

const PROCESSES: usize = 2;
const CALLERS: usize = 12;
const USERS: usize = 6;

struct Real;

impl Clock for Real {
    fn now_ms(&self) -> UnixMs {
        now_ms()
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "how a test run tells its tests what to do")]
    std::env::var(name).ok()
}

/// Whose books these are: the outside world, the node's fees, a buyer on credit, and users.
struct Names {
    outside: Account,
    fees: Account,
    buyer: Account,
    users: Vec<Account>,
}

impl Names {
    fn new() -> Names {
        let asset_id = usd(1).asset_id;
        let fees = Account::new("node", "fees", asset_id.clone(), Limit::None).unwrap();
        let buyer = Account::new("buyer", "receivable", asset_id, Limit::NeverPositive).unwrap();
        let users = (0..USERS).map(|n| account(&format!("user-{n}"), Limit::NeverNegative));
        Names { outside: account("outside", Limit::None), fees, buyer, users: users.collect() }
    }

    fn all(&self) -> impl Iterator<Item = &Account> {
        [&self.outside, &self.fees, &self.buyer].into_iter().chain(&self.users)
    }
}

fn open(url: &str) -> Service {
    let all = Migrations::store().and(migrations());
    Service::open(&Options::at(url), &all, Hooks::default(), 0).unwrap()
}

/// One line in one write: a process that is killed leaves whole lines.
/// On a line of its own, also behind one that a killed process left unfinished.
fn log(file: &RefCell<File>, line: &Value) {
    file.borrow_mut().write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

fn asked(transfer: &NewTransfer) -> Vec<Value> {
    let mut line =
        json!({"call": "asked", "memo": transfer.memo, "transfer_id": transfer.transfer_id});
    line["step"] = json!(transfer.step.name().as_str());
    let mut lines = Vec::new();
    match &transfer.step {
        Step::Post { debit, credit, amount } => {
            line["debit"] = json!(debit);
            line["credit"] = json!(credit);
            line["units"] = json!(amount.units.to_string());
        }
        Step::Hold { debit, credit, amount, expires_ms } => {
            line["debit"] = json!(debit);
            line["credit"] = json!(credit);
            line["units"] = json!(amount.units.to_string());
            line["expires_ms"] = json!(expires_ms);
            // Whoever sweeps will ask for this, if it is left to run out.
            let words = ["hold.expire", transfer.transfer_id.as_str()];
            let expiry = TransferId::named(*expires_ms, &words);
            lines
                .push(json!({"call": "asked", "hold": transfer.transfer_id, "memo": "hold.expire",
                "step": "expire", "transfer_id": expiry}));
        }
        Step::Settle { hold, units } => {
            line["hold"] = json!(hold);
            if let Some(units) = units {
                line["units"] = json!(units.to_string());
            }
        }
        Step::Void { hold } | Step::Expire { hold } => line["hold"] = json!(hold),
    }
    lines.push(line);
    lines
}

/// A caller of the ledger, with all that it does.
struct Caller<'a> {
    name: String,
    names: &'a Names,
    store: Store,
    writer: Writer,
    calls: &'a RefCell<File>,
    dice: Dice,
    holds: Vec<TransferId>,
    last: Option<Vec<NewTransfer>>,
    made: u64,
}

impl Caller<'_> {
    async fn run(mut self) {
        loop {
            match self.dice.below(20) {
                0 => self.sweep().await,
                1 => self.change_rule().await,
                2 => self.ask_again().await,
                3 => self.ask_for_something_else().await,
                4..8 => self.close_a_hold().await,
                _ => self.ask_for_something_new().await,
            }
        }
    }

    fn new_id(&mut self) -> TransferId {
        self.made += 1;
        TransferId::named(now_ms(), &[&self.name, &self.made.to_string()])
    }

    fn anybody(&self) -> AccountId {
        let accounts: Vec<&Account> = self.names.all().collect();
        let place = usize::try_from(self.dice.below(accounts.len() as u64)).unwrap();
        accounts[place].account_id.clone()
    }

    fn units(&self) -> i64 {
        1 + i64::try_from(self.dice.below(40)).unwrap()
    }

    /// A post or a hold between any two: many are refused, for many reasons.
    fn any_step(&self) -> Step {
        let (debit, credit) = (self.anybody(), self.anybody());
        let amount = usd(self.units());
        match self.dice.below(3) {
            0 => {
                let expires_ms = now_ms() + i64::try_from(self.dice.below(200)).unwrap();
                Step::Hold { debit, credit, amount, expires_ms }
            }
            _ => Step::Post { debit, credit, amount },
        }
    }

    async fn ask_for_something_new(&mut self) {
        let length = if self.dice.below(4) == 0 { 3 } else { 1 };
        let mut chain = Vec::new();
        for _ in 0..length {
            let step = self.any_step();
            chain.push(NewTransfer::new(self.new_id(), step, "kill.test").unwrap());
        }
        if self.ask(chain.clone()).await {
            let holds = chain.iter().filter(|t| matches!(t.step, Step::Hold { .. }));
            self.holds.extend(holds.map(|t| t.transfer_id.clone()));
        }
        self.last = Some(chain);
    }

    async fn close_a_hold(&mut self) {
        let Some(hold) = self.holds.pop() else { return };
        let step = match self.dice.below(3) {
            0 => Step::Void { hold },
            1 => Step::Settle { hold, units: Some(1) },
            _ => Step::Settle { hold, units: None },
        };
        let transfer = NewTransfer::new(self.new_id(), step, "kill.test").unwrap();
        self.ask(vec![transfer]).await;
    }

    async fn ask_again(&mut self) {
        if let Some(chain) = self.last.clone() {
            self.ask(chain).await;
        }
    }

    /// The id of an earlier transfer for another one: refused, unless the earlier one was.
    async fn ask_for_something_else(&mut self) {
        let Some(first) = self.last.as_ref().and_then(|chain| chain.first()) else { return };
        let other = NewTransfer { memo: "kill.other".to_owned(), ..first.clone() };
        self.ask(vec![other]).await;
    }

    /// Asks until it is told; true if it is booked.
    async fn ask(&self, chain: Vec<NewTransfer>) -> bool {
        chain.iter().flat_map(asked).for_each(|line| log(self.calls, &line));
        loop {
            let told = |outcome: &str, code: Option<&str>| {
                for transfer in &chain {
                    let mut line = json!({"call": "told", "outcome": outcome});
                    line["transfer_id"] = json!(transfer.transfer_id);
                    if let Some(code) = code {
                        line["code"] = json!(code);
                    }
                    log(self.calls, &line);
                }
            };
            match self.writer.book(chain.clone()).await {
                Ok(_) => {
                    told("booked", None);
                    return true;
                }
                Err(Error::Refused { code, .. }) => {
                    told("refused", Some(code.name));
                    return false;
                }
                Err(Error::Store(StoreError::Unreachable(_) | StoreError::CommitUnknown(_))) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }

    async fn sweep(&self) {
        let swept = self.store.write(|tx| history::expire_due(tx, now_ms(), 100)).await;
        assert!(!matches!(swept, Err(Error::Refused { .. })), "{swept:?}");
    }

    async fn change_rule(&self) {
        let gated = self.names.users[0].account_id.clone();
        let reserve_units = i64::try_from(self.dice.below(100)).unwrap();
        let gate = Gate { reserve_units, lets_through: vec!["fees".to_owned()] };
        let rule = Rule { gate: Some(gate), credit_units: None };
        let set = self.store.write(move |tx| ledger::set_rule(tx, &gated, &rule, now_ms())).await;
        assert!(!matches!(set, Err(Error::Refused { .. })), "{set:?}");
    }
}

/// Not a test of its own: what the killed process runs.
#[test]
fn as_a_bookkeeper() {
    let (Some(url), Some(calls)) = (variable(STORE_URL), variable(CALLS)) else { return };
    let service = open(&url);
    let store = service.handle();
    let options = writer::Options::default();
    let (writer, service) = Writer::new(&options, store.clone(), Arc::new(Real)).unwrap();
    let calls = RefCell::new(File::options().append(true).open(calls).unwrap());
    let names = Names::new();
    let caller = |n: usize| {
        Caller {
            name: format!("{}-{n}", std::process::id()),
            names: &names,
            store: store.clone(),
            writer: writer.clone(),
            calls: &calls,
            dice: Dice::new(n as u64),
            holds: Vec::new(),
            last: None,
            made: 0,
        }
        .run()
    };
    block_on(join(service, join_all((0..CALLERS).map(caller))));
}

/// The accounts, some money in them, and the buyer's credit.
fn found(store: &Store) -> Vec<NewTransfer> {
    let names = Names::new();
    let accounts: Vec<Account> = names.all().cloned().collect();
    let buyer = names.buyer.account_id.clone();
    let deposits: Vec<NewTransfer> = names
        .users
        .iter()
        .map(|user| {
            let (debit, credit) = (names.outside.account_id.clone(), user.account_id.clone());
            let step = Step::Post { debit, credit, amount: usd(500) };
            NewTransfer::new(TransferId::named(1, &[&user.owner]), step, "deposit").unwrap()
        })
        .collect();
    let chain = deposits.clone();
    let founded = store.write(move |tx| {
        for account in &accounts {
            ledger::open(tx, account, 1)?;
        }
        ledger::set_rule(tx, &buyer, &Rule { gate: None, credit_units: Some(300) }, 1)?;
        ledger::book(tx, std::slice::from_ref(&chain), 1)
    });
    block_on(founded).unwrap();
    deposits
}

/// Exports the books and gives them, with the log of calls, to the checker.
fn check(store: &Store, calls_file: &Path, killed: u64) -> u64 {
    let exported = store.read(|rx| {
        let mut bytes = Vec::new();
        export::export(rx, &mut bytes)?;
        Ok::<_, Error>(bytes)
    });
    let exported = block_on(exported).unwrap();
    let mut calls = Calls::new();
    let lines = std::fs::read(calls_file).unwrap();
    // A write that crosses a page can be cut off by a kill. Whoever was killed in it had not asked yet,
    // or was not told.
    let is_whole = |line: &&[u8]| serde_json::from_slice::<Value>(line).is_ok();
    let written = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let (whole, torn): (Vec<&[u8]>, Vec<&[u8]>) = written.partition(is_whole);
    assert!(torn.len() as u64 <= killed, "{} lines are torn by {killed} kills", torn.len());
    whole.iter().for_each(|line| calls.line(&[line, &b"\n"[..]].concat()));
    let mut checker = Checker::new().with_calls(calls);
    exported.split_inclusive(|byte| *byte == b'\n').for_each(|line| checker.line(line));
    let report = checker.finish();
    assert!(report.holds(), "{:#?}", report.problems);
    let audit = block_on(store.read(guild_ledger::audit::run)).unwrap();
    assert_eq!(audit.problems, Vec::<String>::new());
    report.transfers
}

fn last_seq(store: &Store) -> i64 {
    block_on(store.read(ledger::head)).unwrap().last_seq
}

#[test]
fn books_of_killed_processes_are_whole() {
    let runs = variable(RUNS).map_or(DEFAULT_RUNS, |runs| runs.parse().unwrap());
    let database = testbed::Database::new().unwrap();
    let service = open(&database.url());
    let store = service.handle();
    let directory = tempfile::tempdir().unwrap();
    let calls_file = directory.path().join("calls.jsonl");
    let calls = RefCell::new(File::create(&calls_file).unwrap());
    found(&store).iter().flat_map(asked).for_each(|line| log(&calls, &line));
    let (url, calls_path) = (database.url(), calls_file.display().to_string());
    let environment = [(STORE_URL, url.as_str()), (CALLS, calls_path.as_str())];
    let dice = Dice::new(99);
    let start = || Victim::start("killed::as_a_bookkeeper", &environment).unwrap();
    let mut victims: Vec<Victim> = (0..PROCESSES).map(|_| start()).collect();
    let mut transfers = 0;
    for run in 1..=runs {
        let before = last_seq(&store);
        wait_ms(150 + dice.below(350));
        // On a busy machine it takes them longer to have done anything worth a kill.
        let mut tries = 0;
        while last_seq(&store) < before + 40 {
            tries += 1;
            assert!(tries < 600, "nobody books anything");
            wait_ms(100);
        }
        let unlucky = usize::try_from(dice.below(PROCESSES as u64)).unwrap();
        assert!(!victims[unlucky].has_ended(), "it must live until it is killed");
        victims[unlucky] = start();
        if run % 100 == 0 {
            // Nobody writes while it is looked at: what was asked is logged before it is done.
            victims.clear();
            transfers = check(&store, &calls_file, run * 2);
            victims.extend((0..PROCESSES).map(|_| start()));
        }
    }
    drop(victims);
    let all = check(&store, &calls_file, runs * 2 + PROCESSES as u64);
    assert!(all >= transfers && all > runs * 10, "{all} transfers in {runs} runs");
    println!("{runs} kills, {all} transfers");
    service.close();
}
