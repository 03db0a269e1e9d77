//! The clients: each opens its accounts and then asks for one thing after the other.

use futures_util::future::{Either, select};
use guild_ledger::book::Outcome;
use guild_ledger::{
    Account, AccountId, Error, Gate, Limit, NewTransfer, Rule, Step, TransferId, code, ledger,
};
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::Clock;

use super::{Bug, Door, Shared, lock};
use crate::clock::BEGIN_MS;
use crate::fault::Dice;

const ASKS: u64 = 7;
const PATIENCE_MS: i64 = 400;
/// A refusal may be gone in a moment: somebody deposits, a hold runs out.
const REFUSALS_MAX: u32 = 3;

/// The accounts that all share, and those of one client.
#[derive(Clone, Copy)]
enum Name {
    Outside,
    Fees,
    Owed,
    Main(u64),
    Tab(u64),
}

fn account(name: Name) -> Option<Account> {
    let node = |purpose, limit| Account::new("node", purpose, AssetId::usd_micro(), limit);
    let own = |number: u64, purpose, limit| {
        Account::new(&format!("client-{number}"), purpose, AssetId::usd_micro(), limit)
    };
    let account = match name {
        Name::Outside => node("outside", Limit::None),
        Name::Fees => node("fees", Limit::NeverNegative),
        Name::Owed => node("owed", Limit::NeverPositive),
        Name::Main(number) => own(number, "main", Limit::NeverNegative),
        // What it may owe is set by its rule.
        Name::Tab(number) => own(number, "tab", Limit::None),
    };
    account.ok()
}

/// How many accounts there are with so many clients.
pub(super) fn accounts_of_all(clients: u64) -> u64 {
    3 + 2 * clients
}

/// Something to ask for.
enum Wish {
    Book(Vec<NewTransfer>),
    SetRule(AccountId, Rule),
}

/// What a client learned from asking once.
#[derive(PartialEq, Eq)]
enum Answer {
    Booked,
    Refused,
    /// Nothing, or that nobody knows.
    Silence,
    /// Nobody was there to be asked, or too many asked.
    TryAgain,
}

/// Everything a client does.
pub(super) async fn live(shared: Shared, number: u64) {
    for name in [Name::Outside, Name::Fees, Name::Owed, Name::Main(number), Name::Tab(number)] {
        if let Some(account) = account(name) {
            open(&shared, account).await;
        }
    }
    for turn in 0..ASKS {
        // What is asked for depends on nothing but the seed, as far as possible: not on the faults.
        let mut dice = Dice::new(&[shared.seed, 0x6173_6b73, number, turn]);
        shared.world.sleep(dice.below_ms(60)).await;
        match wish(&shared, number, turn, &mut dice) {
            Some(Wish::Book(chain)) => insist(&shared, &chain, &mut dice).await,
            Some(Wish::SetRule(account_id, rule)) => set_rule(&shared, account_id, rule).await,
            None => shared.world.violate("a client made a malformed transfer".to_owned()),
        }
    }
    lock(&shared.diary).finished += 1;
}

/// The number of the account that money goes to: a client's own or another's.
fn other(shared: &Shared, number: u64, dice: &mut Dice) -> Name {
    match dice.below(3) {
        0 => Name::Fees,
        _ => Name::Main((number + 1 + dice.below(shared.clients - 1)) % shared.clients),
    }
}

fn wish(shared: &Shared, number: u64, turn: u64, dice: &mut Dice) -> Option<Wish> {
    let made = Made { number, turn };
    let main = Name::Main(number);
    // First of all a deposit: without money everything is refused.
    let chain = match if turn == 0 { 0 } else { dice.below(24) } {
        0..3 => vec![made.post(0, Name::Outside, main, 10 + dice.below(90))?],
        3..8 => vec![made.post(0, main, other(shared, number, dice), 1 + dice.below(60))?],
        8..13 => vec![made.hold(shared, 0, main, other(shared, number, dice), dice)?],
        13..17 => vec![made.close(shared, number, dice)?],
        17..19 => vec![
            made.post(0, Name::Outside, main, 1 + dice.below(20))?,
            made.hold(shared, 1, main, other(shared, number, dice), dice)?,
            made.post(2, main, Name::Fees, 1 + dice.below(30))?,
        ],
        19 => return Some(Wish::SetRule(account(main)?.account_id, gate(dice))),
        20 => {
            let credit_units = i64::try_from(dice.below(40)).ok().filter(|units| *units < 30);
            let rule = Rule { gate: None, credit_units };
            return Some(Wish::SetRule(account(Name::Tab(number))?.account_id, rule));
        }
        21..23 => {
            vec![made.post(
                0,
                Name::Tab(number),
                other(shared, number, dice),
                1 + dice.below(30),
            )?]
        }
        _ => vec![
            made.post(0, Name::Owed, main, 1 + dice.below(30))?,
            made.post(1, main, Name::Owed, 1 + dice.below(40))?,
        ],
    };
    Some(Wish::Book(chain))
}

fn gate(dice: &mut Dice) -> Rule {
    let reserve_units = i64::try_from(dice.below(60)).unwrap_or(0);
    let lets_through = if dice.below(2) == 0 { vec!["fees".to_owned()] } else { Vec::new() };
    let gate = (dice.below(4) > 0).then_some(Gate { reserve_units, lets_through });
    Rule { gate, credit_units: None }
}

/// Makes the transfers of one turn of a client: their ids are the same however often they are asked for.
struct Made {
    number: u64,
    turn: u64,
}

impl Made {
    fn transfer(&self, link: u64, step: Step) -> Option<NewTransfer> {
        let words = [self.number, self.turn, link].map(|n| n.to_string());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let at_ms = BEGIN_MS + i64::try_from(self.turn).ok()?;
        NewTransfer::new(TransferId::named(at_ms, &words), step, "sim").ok()
    }

    fn post(&self, link: u64, debit: Name, credit: Name, units: u64) -> Option<NewTransfer> {
        let (debit, credit) = (account(debit)?.account_id, account(credit)?.account_id);
        let amount = Amount::new(AssetId::usd_micro(), i64::try_from(units).ok()?);
        self.transfer(link, Step::Post { debit, credit, amount })
    }

    fn hold(
        &self,
        shared: &Shared,
        link: u64,
        debit: Name,
        credit: Name,
        dice: &mut Dice,
    ) -> Option<NewTransfer> {
        let (debit, credit) = (account(debit)?.account_id, account(credit)?.account_id);
        let amount = Amount::new(AssetId::usd_micro(), 1 + i64::try_from(dice.below(50)).ok()?);
        // By the right time; the process that books may go by another.
        let expires_ms = BEGIN_MS + shared.world.now_ms() + 1 + dice.below_ms(1_200);
        self.transfer(link, Step::Hold { debit, credit, amount, expires_ms })
    }

    /// Closes a hold that somebody made; a deposit, as long as there is none.
    fn close(&self, shared: &Shared, number: u64, dice: &mut Dice) -> Option<NewTransfer> {
        let holds = lock(&shared.diary).holds.clone();
        if holds.is_empty() {
            return self.post(0, Name::Outside, Name::Main(number), 10);
        }
        // Mostly a new one: old ones are closed.
        let back = dice.below((holds.len() as u64).min(3));
        let hold = holds[holds.len() - 1 - usize::try_from(back).unwrap_or(0)].clone();
        let units = (dice.below(2) == 0).then(|| 1 + dice.below_ms(30));
        self.transfer(
            0,
            match dice.below(6) {
                0..4 => Step::Settle { hold, units },
                4 => Step::Void { hold },
                _ => Step::Expire { hold },
            },
        )
    }
}

/// Asks until it is answered; then, perhaps, once more, and with other content under the same ids.
async fn insist(shared: &Shared, chain: &[NewTransfer], dice: &mut Dice) {
    let (mut refusals, mut silences) = (0, 0);
    loop {
        match ask(shared, chain, silences).await {
            Answer::Booked => break,
            Answer::Refused => {
                refusals += 1;
                if refusals == REFUSALS_MAX {
                    return;
                }
            }
            Answer::Silence => {
                silences += 1;
                shared.world.count("ask without an answer");
            }
            Answer::TryAgain => {}
        }
        shared.world.sleep(5 + shared.world.below_ms(60)).await;
    }
    if dice.below(3) == 0 {
        shared.world.count("ask repeated after its answer");
        if ask(shared, chain, 0).await == Answer::Refused {
            let what = format!("[forgotten] {} was booked and is refused now", ids(chain));
            shared.world.violate(what);
        }
    }
    if dice.below(4) == 0
        && let Some(changed) = with_other_content(chain)
        && ask(shared, &changed, 0).await == Answer::Booked
    {
        let what = format!("[conflict] {} was booked with other content", ids(&changed));
        shared.world.violate(what);
    }
}

fn ids(chain: &[NewTransfer]) -> String {
    let ids: Vec<&str> = chain.iter().map(|transfer| transfer.transfer_id.as_str()).collect();
    ids.join(" and ")
}

fn with_other_content(chain: &[NewTransfer]) -> Option<Vec<NewTransfer>> {
    let mut changed = chain.to_vec();
    let last = changed.last_mut()?;
    match &mut last.step {
        Step::Post { amount, .. } | Step::Hold { amount, .. } => amount.units += 1,
        _ => last.memo = "other".to_owned(),
    }
    Some(changed)
}

/// The planted bug.
fn with_other_ids(chain: &[NewTransfer], silences: u64) -> Vec<NewTransfer> {
    let other = |transfer: &NewTransfer| {
        let words = [transfer.transfer_id.as_str(), &silences.to_string()];
        NewTransfer { transfer_id: TransferId::named(BEGIN_MS, &words), ..transfer.clone() }
    };
    chain.iter().map(other).collect()
}

/// Asks one process once, and writes down what it says.
async fn ask(shared: &Shared, chain: &[NewTransfer], silences: u64) -> Answer {
    let Some(Door { writer, .. }) = shared.door() else { return Answer::TryAgain };
    lock(&shared.diary).asked(chain);
    let sent = match shared.bug {
        Some(Bug::NewIdAfterSilence) if silences > 0 => with_other_ids(chain, silences),
        _ => chain.to_vec(),
    };
    let booking = std::pin::pin!(writer.book(sent));
    match select(booking, shared.world.sleep(PATIENCE_MS)).await {
        Either::Right(_) => Answer::Silence,
        Either::Left((Ok(outcomes), _)) => {
            outcomes.iter().for_each(|outcome| take_down(shared, outcome));
            Answer::Booked
        }
        Either::Left((Err(Error::Refused { code, .. }), _)) => {
            shared.world.count(code.name);
            lock(&shared.diary).told_refused(chain, code.name);
            if code.name == code::BUSY.name { Answer::TryAgain } else { Answer::Refused }
        }
        Either::Left((Err(Error::Store(error)), _)) => {
            shared.world.note_text(error.code().name);
            Answer::Silence
        }
    }
}

fn take_down(shared: &Shared, outcome: &Outcome) {
    let booked = outcome.booked();
    shared.world.note(booked.seq.unsigned_abs());
    shared.world.count(match outcome {
        Outcome::New(_) => booked.step.as_str(),
        Outcome::Known(_) => "known",
    });
    if let Some(first) = lock(&shared.diary).told_booked(booked) {
        let (id, first, now) = (&booked.transfer_id, first.seq, booked.seq);
        shared.world.violate(format!("[answer] {id} was booked as {first}, then as {now}"));
    }
}

async fn open(shared: &Shared, account: Account) {
    let opening = |door: Door| {
        let (account, clock) = (account.clone(), door.clock.clone());
        door.store.write(move |tx| ledger::open(tx, &account, clock.now_ms()))
    };
    until_answered(shared, opening).await;
}

async fn set_rule(shared: &Shared, account_id: AccountId, rule: Rule) {
    shared.world.count("rule");
    let setting = |door: Door| {
        let (account_id, rule, clock) = (account_id.clone(), rule.clone(), door.clock.clone());
        door.store.write(move |tx| ledger::set_rule(tx, &account_id, &rule, clock.now_ms()))
    };
    until_answered(shared, setting).await;
}

/// Asks one process after the other until one has done it, or refused.
async fn until_answered<F>(shared: &Shared, ask: impl Fn(Door) -> F)
where
    F: Future<Output = guild_ledger::Result<()>>,
{
    loop {
        if let Some(door) = shared.door() {
            let asking = std::pin::pin!(ask(door));
            let answer = select(asking, shared.world.sleep(PATIENCE_MS)).await;
            if let Either::Left((Ok(()) | Err(Error::Refused { .. }), _)) = answer {
                return;
            }
        }
        shared.world.sleep(5 + shared.world.below_ms(40)).await;
    }
}
