//! Disputes: what is held, who decides, what moves, and what nobody gains.

use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, ledger, receivable};
use guild_market::dispute::{
    self, By, Desk, Dispute, DisputeId, Done, Fallback, Filing, Heard, Message, Options, Outcome,
    Parties, Reason, Said, Side, State,
};
use guild_market::job::{self, Taken};
use guild_market::order::{self, NewOrder, Order, OrderId, Waits, wallet};
use guild_market::settle::Keys;
use guild_market::{Result, receipts};
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::Signer;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::receipt_notice::{ReceiptNotice, is_notice};
use guild_protocol::nostr::{Event, EventId, unix_s};
use guild_protocol::receipt::{Receipt, Status};
use guild_protocol::replay;
use guild_store::Tx;

use crate::world::{
    Dice, Node, T0, both, buyer, cheap, claimant, judge, key, new_order, offer, output, provider,
    request_of, result_of, why,
};

mod attacks;
mod compared;
mod envelopes;

/// When something is said.
const SAID: i64 = T0 + 1_000;

fn arbiter() -> SecretKey {
    key(9)
}

fn options() -> Options {
    Options { arbiters: [arbiter().public_key()].into(), ..Options::default() }
}

fn secret(side: Side) -> SecretKey {
    match side {
        Side::Buyer => buyer(),
        Side::Provider => provider(),
        Side::Arbiter => arbiter(),
    }
}

/// An order and the job that it is for its provider: one node is both here, under two keys.
struct Deal {
    order_id: OrderId,
    request: Event,
    output_text: String,
}

impl Deal {
    fn request_id(&self) -> EventId {
        self.request.id
    }

    fn id(&self) -> DisputeId {
        DisputeId::of_request(&self.request.id)
    }
}

/// Ordered and delivered.
fn delivered_by(node: &Node, new: &NewOrder, good: bool) -> Deal {
    let request = request_of(new);
    let taken = node.take(&request, &offer(50), T0 + 1).unwrap();
    assert!(matches!(taken, Taken::Accepted(_)), "{taken:?}");
    let order = node.post(new).unwrap().order().unwrap();
    let by = provider().public_key();
    let text = if good { output(&new.job, &by) } else { cheap(&new.job, &by) }.to_string();
    let result = result_of(&request, &text, &provider(), T0 + 5);
    node.hand_in(&request, &result, T0 + 100).unwrap();
    node.deliver(&result, T0 + 250).unwrap();
    Deal { order_id: order.order_id, request, output_text: text }
}

fn delivered(node: &Node, name: &str, good: bool) -> Deal {
    delivered_by(node, &new_order(name, 100), good)
}

/// The same, and settled by this verdict, which the provider has heard of.
fn settled(node: &Node, name: &str, (good, accepted): (bool, bool)) -> Deal {
    let deal = delivered(node, name, good);
    let job = new_order(name, 100).job;
    let text = match (good, accepted) {
        (true, true) => deal.output_text.clone(),
        (_, false) => String::new(),
        (false, true) => output(&job, &provider().public_key()).to_string(),
    };
    let settled = node.settle(&deal.order_id, &judge(&job, &text), T0 + 300).unwrap();
    node.take_receipt(&settled.receipt.unwrap(), 10_000).unwrap();
    deal
}

fn with<T: Send + 'static>(
    node: &Node,
    side: Side,
    options: &Options,
    run: impl Fn(&mut Tx<'_>, Desk<'_>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let options = options.clone();
    node.write(move |tx| {
        let own = secret(side);
        let keys = Keys { key: &own, random: &Dice };
        run(tx, Desk { keys, options: &options })
    })
}

fn filing(deal: &Deal, reason: Reason) -> Filing {
    Filing {
        request_id: deal.request_id(),
        reason,
        statement: Some("so it is".to_owned()),
        evidence: Vec::new(),
        arbiter: None,
    }
}

fn file_as(node: &Node, side: Side, filing: &Filing, now_ms: i64) -> Result<Done> {
    let filing = filing.clone();
    with(node, side, &options(), move |tx, desk| dispute::file(tx, side, &filing, desk, now_ms))
}

fn file(node: &Node, side: Side, deal: &Deal, reason: Reason) -> Done {
    file_as(node, side, &filing(deal, reason), SAID).unwrap()
}

fn resolve(node: &Node, side: Side, deal: &Deal, outcome: Outcome) -> Result<Done> {
    let id = deal.id();
    with(node, side, &options(), move |tx, desk| {
        dispute::resolve(tx, (&id, side), outcome, None, (desk, SAID + 5))
    })
}

fn advance(node: &Node, side: Side, deal: &Deal, checked: Option<Outcome>, now_ms: i64) -> Done {
    let id = deal.id();
    with(node, side, &options(), move |tx, desk| {
        dispute::advance(tx, (&id, side), checked, desk, now_ms)
    })
    .unwrap()
}

fn hear(node: &Node, side: Side, event: &Event) -> Result<Heard> {
    let (event, message) = (event.clone(), Message::parse(event, Some(&secret(side))).unwrap());
    with(node, side, &options(), move |tx, desk| {
        dispute::hear(tx, side, (&event, &message), desk, SAID + 9)
    })
}

fn of(node: &Node, side: Side, deal: &Deal) -> Dispute {
    let id = deal.id();
    node.read(move |rx| dispute::get(rx, &id, side))
}

fn the_order(node: &Node, deal: &Deal) -> Order {
    node.order(&deal.order_id)
}

/// What the books say: the wallet, what of it is free, what is owed to the provider, what it has booked as owed.
fn books(node: &Node) -> (i64, i64, i64, i64) {
    let (all, free) = node.wallet();
    (all, free, node.payable(), node.receivable())
}

/// What any audit finds.
fn problems(node: &Node) -> Vec<String> {
    let mut problems = node.read(dispute::audit::run).problems;
    problems.extend(node.problems());
    problems
}

fn settle(
    node: &Node,
    deal: &Deal,
    name: &str,
    now_ms: i64,
) -> Result<guild_market::settle::Settled> {
    node.settle(&deal.order_id, &judge(&new_order(name, 100).job, &deal.output_text), now_ms)
}

/// The receipt among what is to be published.
fn receipt_in(done: &Done) -> Receipt {
    let notice = done.events.iter().find(|event| is_notice(event)).unwrap();
    ReceiptNotice::parse(notice, None).unwrap().receipt
}

#[test]
fn what_is_disputed_stays_held_until_the_deadline_and_is_then_settled() {
    both(|node| {
        node.fund(1_000);
        let deal = delivered(node, "a", true);
        let done = file(node, Side::Buyer, &deal, Reason::Copied);
        assert_eq!((done.dispute.state, done.events.len()), (State::Open, 1));
        assert_eq!(why(settle(node, &deal, "a", SAID + 1)), "dispute.open");
        let waiting = |node: &Node| {
            let put_off = std::collections::BTreeSet::new();
            node.read(move |rx| {
                order::waiting(rx, Waits::Verdict, (&claimant(), SAID), &put_off, 10)
            })
        };
        assert!(waiting(node).is_empty(), "nobody even looks");
        assert_eq!(books(node), (1_000, 900, 0, 0), "all of the budget is held");
        let request_id = deal.request_id();
        assert!(node.read(move |rx| dispute::is_open(rx, &request_id)));
        assert_eq!(problems(node), Vec::<String>::new());
        let deadline_ms = done.dispute.deadline_ms;
        let waits = advance(node, Side::Buyer, &deal, None, deadline_ms - 1);
        assert_eq!(waits.dispute.state, State::Open);
        let expired = advance(node, Side::Buyer, &deal, None, deadline_ms).dispute;
        assert_eq!((expired.state, expired.by), (State::Expired, Some(By::Deadline)));
        assert_eq!(expired.outcome, None, "the verdict says so");
        assert!(!node.read(move |rx| dispute::is_open(rx, &request_id)));
        let settled = settle(node, &deal, "a", deadline_ms + 1).unwrap();
        assert_eq!(settled.order.paid, Some(Msat(50)));
        let over = of(node, Side::Buyer, &deal);
        assert_eq!((over.outcome, over.is_lost()), (Some(Outcome::Release), true));
        assert_eq!(books(node), (950, 950, 50, 0));
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn a_hold_never_runs_out_while_its_order_is_disputed() {
    both(|node| {
        node.fund(1_000);
        let deal = delivered(node, "a", true);
        let hold = the_order(node, &deal).hold_id.unwrap();
        let (_, expires_ms) = node.read(move |rx| Ok(ledger::held(rx, &hold)?)).unwrap();
        let forever = Options { window_ms: i64::MAX, ..options() };
        let wanted = filing(&deal, Reason::Other);
        let done = with(node, Side::Buyer, &forever, move |tx, desk| {
            dispute::file(tx, Side::Buyer, &wanted, desk, SAID)
        });
        let deadline_ms = done.unwrap().dispute.deadline_ms;
        assert!(deadline_ms < expires_ms, "{deadline_ms} {expires_ms}");
        advance(node, Side::Buyer, &deal, None, deadline_ms);
        let settled = settle(node, &deal, "a", deadline_ms + 1).unwrap();
        assert_eq!((settled.order.paid, node.payable()), (Some(Msat(50)), 50));
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn work_that_can_be_checked_is_never_held_up() {
    both(|node| {
        node.fund(1_000);
        let deal = delivered(node, "a", true);
        // The buyer says that good work is bad: the verdict says the opposite, at once.
        let done = file(node, Side::Buyer, &deal, Reason::ResultWrong).dispute;
        assert_eq!((done.state, done.by, done.outcome), (State::Decided, Some(By::Rule), None));
        let settled = settle(node, &deal, "a", SAID + 1).unwrap();
        assert_eq!(settled.order.paid, Some(Msat(50)));
        assert!(of(node, Side::Buyer, &deal).is_lost());
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn who_gives_in_decides_against_the_verdict() {
    both(|node| {
        node.fund(1_000);
        // The provider takes nothing for good work.
        let deal = delivered(node, "a", true);
        let filed = file(node, Side::Buyer, &deal, Reason::Copied);
        assert!(matches!(hear(node, Side::Provider, &filed.events[0]), Ok(Heard::Filed(_))));
        let given_in = resolve(node, Side::Provider, &deal, Outcome::Withhold).unwrap();
        assert_eq!(given_in.dispute.by, Some(By::Concession));
        let said = given_in.events.first().unwrap();
        assert!(matches!(hear(node, Side::Buyer, said), Ok(Heard::Decided(_))));
        assert_eq!(hear(node, Side::Buyer, said).unwrap(), Heard::Known);
        let settled = settle(node, &deal, "a", SAID + 10).unwrap();
        assert_eq!(settled.order.state, order::State::Withheld);
        let verdict = settled.order.verdict.clone().unwrap();
        assert!(verdict.contains("\"dispute\"") && verdict.contains("dispute.decided_for_buyer"));
        let file_ = settled.order.replay.clone().unwrap();
        let receipt = settled.receipt.unwrap();
        let report = replay::verify(file_.as_bytes(), Some(receipt.as_bytes())).unwrap();
        assert!(report.is_verified(), "{report}");
        assert_eq!(books(node), (1_000, 1_000, 0, 0));
        // And the buyer pays for bad work.
        let deal = delivered(node, "b", false);
        file(node, Side::Buyer, &deal, Reason::Terms);
        let again = resolve(node, Side::Buyer, &deal, Outcome::Release).unwrap();
        assert_eq!(again.dispute.outcome, Some(Outcome::Release));
        let known = resolve(node, Side::Buyer, &deal, Outcome::Release).unwrap();
        assert!(known.events.is_empty(), "said once");
        assert_eq!(settle(node, &deal, "b", SAID + 11).unwrap().order.paid, Some(Msat(50)));
        assert_eq!(books(node), (950, 950, 50, 0));
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn nobody_decides_in_its_own_favour() {
    both(|node| {
        node.fund(1_000);
        let deal = delivered(node, "a", true);
        let filed = file(node, Side::Buyer, &deal, Reason::Other);
        hear(node, Side::Provider, &filed.events[0]).unwrap();
        let refused = "dispute.not_ours_to_decide";
        assert_eq!(why(resolve(node, Side::Buyer, &deal, Outcome::Withhold)), refused);
        assert_eq!(why(resolve(node, Side::Provider, &deal, Outcome::Release)), refused);
        // Said all the same, it is a claim.
        let parties = Parties {
            buyer: buyer().public_key(),
            provider: provider().public_key(),
            arbiter: None,
        };
        let filing = filed.dispute.filing_id;
        let said = Said::Decided { outcome: Outcome::Release, by: By::Rule, filing };
        let claim = Message::new(deal.request_id(), parties, said);
        let by = provider();
        let claim = claim.draft(&by.public_key(), unix_s(SAID)).unwrap().sign(&by).unwrap();
        assert_eq!(hear(node, Side::Buyer, &claim).unwrap(), Heard::Kept);
        assert_eq!(of(node, Side::Buyer, &deal).state, State::Open);
        let id = deal.id();
        let said = node.read(move |rx| dispute::said_in(rx, &id, Side::Buyer));
        assert_eq!(said.len(), 2, "and it is kept as evidence");
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn an_arbiter_whom_we_accept_decides_and_nobody_else() {
    both(|node| {
        node.fund(1_000);
        let deal = delivered(node, "a", false);
        let named = Filing { arbiter: Some(key(8).public_key()), ..filing(&deal, Reason::Terms) };
        let refused = file_as(node, Side::Buyer, &named, SAID);
        assert_eq!(why(refused), "dispute.arbiter_not_accepted", "our settings do not name it");
        let named = Filing { arbiter: Some(arbiter().public_key()), ..named };
        let filed = file_as(node, Side::Buyer, &named, SAID).unwrap();
        assert_eq!(filed.dispute.arbiter, Some(arbiter().public_key()));
        hear(node, Side::Arbiter, &filed.events[0]).unwrap();
        let decide = |by: &SecretKey, filing: EventId| {
            let parties = Parties {
                buyer: buyer().public_key(),
                provider: provider().public_key(),
                arbiter: Some(by.public_key()),
            };
            let said = Said::Decided { outcome: Outcome::Release, by: By::Arbiter, filing };
            let message = Message::new(deal.request_id(), parties, said);
            message.draft(&by.public_key(), unix_s(SAID)).unwrap().sign(by).unwrap()
        };
        let stranger = decide(&key(8), filed.dispute.filing_id);
        assert_eq!(why(hear(node, Side::Buyer, &stranger)), "dispute.arbiter_not_accepted");
        let other = decide(&arbiter(), EventId::from_bytes([5; 32]));
        assert_eq!(why(hear(node, Side::Buyer, &other)), "dispute.arbiter_not_accepted");
        assert_eq!(of(node, Side::Buyer, &deal).state, State::Open, "nothing has changed");
        let decided = resolve(node, Side::Arbiter, &deal, Outcome::Release).unwrap();
        let heard = hear(node, Side::Buyer, &decided.events[0]).unwrap();
        assert!(matches!(heard, Heard::Decided(_)), "{heard:?}");
        assert_eq!(of(node, Side::Buyer, &deal).by, Some(By::Arbiter));
        assert_eq!(settle(node, &deal, "a", SAID + 9).unwrap().order.paid, Some(Msat(50)));
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn what_was_withheld_wrongly_is_held_again_checked_and_paid_once() {
    both(|node| {
        node.fund(1_000);
        let deal = settled(node, "a", (true, false));
        assert_eq!(books(node), (1_000, 1_000, 0, 0));
        let filed = file(node, Side::Provider, &deal, Reason::VerdictWrong);
        let Ok(Heard::Filed(heard)) = hear(node, Side::Buyer, &filed.events[0]) else { panic!() };
        assert!(heard.is_to_check, "the work is done again first");
        assert_eq!((heard.dispute.held, heard.dispute.stood), (Msat(50), Some(Outcome::Withhold)));
        assert_eq!(books(node), (1_000, 950, 0, 0), "what is due is held meanwhile");
        assert_eq!(problems(node), Vec::<String>::new());
        let done = advance(node, Side::Buyer, &deal, Some(Outcome::Release), SAID + 20);
        assert_eq!((done.dispute.by, done.dispute.moved), (Some(By::Rule), Msat(50)));
        assert_eq!(books(node), (950, 950, 50, 0));
        let receipt = receipt_in(&done);
        let stated = receipt.stated();
        assert_eq!((stated.status, stated.amount.units), (Status::Released, 50));
        let id = receipt.receipt_id().clone();
        let sealed = node.read(move |rx| receipts::replay_of(rx, &id)).unwrap();
        let report = replay::verify(sealed.as_bytes(), Some(receipt.as_bytes())).unwrap();
        assert!(report.is_verified(), "{report}");
        // Again, it is over.
        let again = advance(node, Side::Buyer, &deal, Some(Outcome::Withhold), SAID + 30);
        assert_eq!((again.events.len(), again.dispute), (0, of(node, Side::Buyer, &deal)));
        // The provider hears of it, in any order, and books it once.
        node.take_receipt(&receipt, 0).unwrap();
        node.take_receipt(&receipt, 0).unwrap();
        assert_eq!(books(node), (950, 950, 50, 50));
        let mine = of(node, Side::Provider, &deal);
        assert_eq!((mine.outcome, mine.moved), (Some(Outcome::Release), Msat(50)));
        let said = done.events.iter().find(|event| dispute::is_dispute(event)).unwrap();
        assert_eq!(hear(node, Side::Provider, said).unwrap(), Heard::Kept);
        assert_eq!(the_order(node, &deal).state, order::State::Withheld, "closed stays closed");
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn a_decision_waits_for_the_money_and_is_not_lost() {
    both(|node| {
        node.fund(100);
        let deal = settled(node, "a", (true, false));
        node.write(|tx| spend(tx, "away", true)).unwrap();
        let filed = file(node, Side::Provider, &deal, Reason::VerdictWrong);
        hear(node, Side::Buyer, &filed.events[0]).unwrap();
        assert_eq!(of(node, Side::Buyer, &deal).hold_id, None, "nothing is there to be held");
        let done = advance(node, Side::Buyer, &deal, Some(Outcome::Release), SAID + 20);
        assert!(done.dispute.pending && done.dispute.state == State::Decided);
        assert_eq!(books(node), (0, 0, 0, 0));
        let retry = |node: &Node, now_ms| {
            let id = deal.id();
            with(node, Side::Buyer, &options(), move |tx, desk| {
                dispute::retry(tx, (&id, Side::Buyer), desk, now_ms)
            })
            .unwrap()
        };
        assert!(retry(node, SAID + 30).dispute.pending);
        node.write(|tx| spend(tx, "back", false)).unwrap();
        let due = node.read(|rx| dispute::due(rx, SAID + 200_000, 10));
        assert!(due.contains(&(deal.id(), Side::Buyer)), "it is found by its row: {due:?}");
        let paid = retry(node, SAID + 200_000);
        assert_eq!((paid.dispute.pending, paid.dispute.moved), (false, Msat(50)));
        assert_eq!(receipt_in(&paid).stated().amount.units, 50);
        assert!(retry(node, SAID + 200_001).events.is_empty());
        assert_eq!(books(node), (50, 50, 50, 0));
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

/// Moves 100 out of the wallet, or back.
fn spend(tx: &mut Tx<'_>, name: &str, out: bool) -> Result<()> {
    let outside = Account::new("outside", "main", AssetId::btc_ln(), Limit::None)?.account_id;
    let wallet = wallet()?.account_id;
    let (debit, credit) = if out { (wallet, outside) } else { (outside, wallet) };
    let step = Step::Post { debit, credit, amount: Amount::from(Msat(100)) };
    let transfer = NewTransfer::new(TransferId::named(1, &[name]), step, name)?;
    ledger::book(tx, &[vec![transfer]], SAID)?.remove(0)?;
    Ok(())
}

#[test]
fn what_was_paid_comes_back_only_if_the_provider_agrees_and_then_in_both_books() {
    both(|node| {
        node.fund(1_000);
        let deal = settled(node, "a", (true, true));
        assert_eq!(books(node), (950, 950, 50, 50));
        let filed = file(node, Side::Buyer, &deal, Reason::Copied);
        assert_eq!(filed.dispute.held, Msat(50), "what we owe for it is held");
        hear(node, Side::Provider, &filed.events[0]).unwrap();
        let given_in = resolve(node, Side::Provider, &deal, Outcome::Withhold).unwrap();
        assert_eq!(given_in.dispute.moved, Msat(50));
        hear(node, Side::Buyer, &given_in.events[0]).unwrap();
        assert_eq!(of(node, Side::Buyer, &deal).moved, Msat(50));
        assert_eq!(books(node), (1_000, 1_000, 0, 0), "nothing is lost and nothing is doubled");
        let earned = receivable::revenue(AssetId::btc_ln()).unwrap();
        assert_eq!(node.balance(&earned).0, 0);
        assert_eq!(problems(node), Vec::<String>::new());
    });
    both(|node| {
        node.fund(1_000);
        let deal = settled(node, "a", (true, true));
        let filed = file(node, Side::Buyer, &deal, Reason::Copied);
        hear(node, Side::Provider, &filed.events[0]).unwrap();
        let all_mine = Options { fallback: Fallback::Withhold, ..options() };
        let (id, deadline_ms) = (deal.id(), filed.dispute.deadline_ms);
        let done = with(node, Side::Buyer, &all_mine, move |tx, desk| {
            dispute::advance(tx, (&id, Side::Buyer), None, desk, deadline_ms)
        });
        let done = done.unwrap();
        assert_eq!(done.dispute.outcome, Some(Outcome::Withhold));
        // It says so, and has signed a receipt: what it owes stays owed.
        let said = done.events.iter().find(|event| dispute::is_dispute(event)).unwrap();
        assert_eq!(hear(node, Side::Provider, said).unwrap(), Heard::Kept);
        assert_eq!(books(node), (950, 950, 50, 50));
        assert_eq!(node.job(&deal.request_id()).state, job::State::Paid);
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn a_dispute_between_others_or_about_nothing_changes_nothing() {
    both(|node| {
        node.fund(1_000);
        let deal = delivered(node, "a", true);
        let parties =
            |buyer: PublicKey, provider: PublicKey| Parties { buyer, provider, arbiter: None };
        let said = |request_id, parties: Parties, by: &SecretKey, reason| {
            let message = Message::new(request_id, parties, Said::Filed(reason));
            message.draft(&by.public_key(), unix_s(SAID)).unwrap().sign(by).unwrap()
        };
        let (us, them, thief) = (buyer().public_key(), provider().public_key(), key(7));
        // Somebody claims the result of another.
        let stolen =
            said(deal.request_id(), parties(us, thief.public_key()), &thief, Reason::NotPaid);
        let nowhere =
            said(EventId::from_bytes([6; 32]), parties(us, them), &provider(), Reason::NotPaid);
        for event in [&stolen, &nowhere] {
            assert_eq!(why(hear(node, Side::Buyer, event)), "dispute.nothing_delivered");
        }
        let none: Vec<Dispute> = node.read(|rx| dispute::page_before(rx, None, 10));
        assert_eq!(none, []);
        let late = filing(&deal, Reason::Other);
        let late = file_as(node, Side::Buyer, &late, SAID + Options::default().file_ms);
        assert_eq!(why(late), "dispute.too_late");
        // One of a request, and of what was not delivered none.
        file(node, Side::Buyer, &deal, Reason::Other);
        let other = file_as(node, Side::Buyer, &filing(&deal, Reason::Late), SAID);
        assert_eq!(why(other), "dispute.conflict");
        let again = file(node, Side::Buyer, &deal, Reason::Other);
        assert!(again.events.is_empty(), "filed again it is the same");
        node.post(&new_order("b", 100)).unwrap().order().unwrap();
        let nothing = Filing {
            request_id: request_of(&new_order("b", 100)).id,
            ..filing(&deal, Reason::Other)
        };
        assert_eq!(why(file_as(node, Side::Buyer, &nothing, SAID)), "dispute.nothing_delivered");
    });
}

#[test]
fn what_is_private_is_disputed_between_the_two() {
    both(|node| {
        node.fund(1_000);
        let mut new = new_order("a", 100);
        new.private = true;
        let deal = delivered_by(node, &new, true);
        let named =
            Filing { arbiter: Some(arbiter().public_key()), ..filing(&deal, Reason::Terms) };
        assert_eq!(why(file_as(node, Side::Buyer, &named, SAID)), "dispute.malformed");
        let filed = file(node, Side::Buyer, &deal, Reason::Terms);
        let event = &filed.events[0];
        assert!(!event.content.contains("so it is") && !event.content.contains("terms"));
        let Ok(Heard::Filed(heard)) = hear(node, Side::Provider, event) else { panic!() };
        assert!(heard.dispute.private);
    });
}
