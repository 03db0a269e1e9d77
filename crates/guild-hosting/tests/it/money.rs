//! Money in, money out, and what must stay.

use std::sync::Arc;

use guild_hosting::Result;
use guild_hosting::clamp::Policy;
use guild_hosting::job::NewJob;
use guild_hosting::money::{self, NewWithdrawal, Withdrawal, WithdrawalStatus};
use guild_hosting::sandbox::{self, NewSandbox};
use guild_hosting::upkeep::{Options, Upkeep};
use guild_ledger::history::expire_due;
use guild_store::args;

use crate::meter::At;
use crate::world::{
    DAY_MS, HOUR_MS, MINUTE_MS, Node, PRICE, T0, block_on, both, job_id, new_job, new_sandbox,
    sandbox_id, user, withdrawal_id,
};

fn code<T: std::fmt::Debug>(refused: Result<T>) -> &'static str {
    refused.unwrap_err().code().name
}

fn withdraw(node: &Node, n: u32, units: i64, now_ms: i64) -> Result<Withdrawal> {
    let new = NewWithdrawal {
        withdrawal_id: withdrawal_id(n),
        user_id: user(1),
        units,
        destination: "0xabc".to_owned(),
    };
    node.write(move |tx| money::withdraw(tx, &new, &Policy::default(), now_ms))
}

#[test]
fn a_deposit_is_booked_once_for_each_reference() {
    both(|node| {
        let credit = |n: u8, units: i64, reference: &'static str| {
            node.write(move |tx| money::credit(tx, &user(n), units, reference, T0))
        };
        assert_eq!(node.balance(1), money::Balance::default());
        assert_eq!(credit(1, 500, "invoice-7"), Ok(true));
        assert_eq!(credit(1, 500, "invoice-7"), Ok(false));
        assert_eq!(code(credit(1, 501, "invoice-7")), "hosting.reference_taken");
        assert_eq!(code(credit(2, 500, "invoice-7")), "hosting.reference_taken");
        for units in [0, -1, i64::MIN, i64::MAX, 1 << 53] {
            assert_eq!(code(credit(1, units, "bad")), "hosting.malformed", "{units}");
        }
        assert_eq!(code(credit(1, 1, "")), "hosting.malformed");
        assert_eq!(code(credit(1, 1, "a\nb")), "hosting.malformed");
        assert_eq!(credit(1, 1, "invoice-8"), Ok(true));
        assert_eq!((node.balance(1).free, node.balance(2).free), (501, 0));
        assert_eq!(node.balance(1).minutes_left, None, "nothing runs");
        let lines = node.read(|rx| money::statement(rx, &user(1), None, 10));
        let memos: Vec<&str> = lines.iter().map(|line| line.booked.memo.as_str()).collect();
        assert_eq!(memos, ["hosting.credit invoice-8", "hosting.credit invoice-7"]);
        assert!(node.read(|rx| money::statement(rx, &user(3), None, 10)).is_empty());
        assert_eq!(node.events(), ["account.credited", "account.credited"]);
    });
}

#[test]
fn a_balance_has_no_room_for_more_than_64_bits() {
    both(|node| {
        // As much as a deposit can be, a thousand times: close to what fits.
        let most = (1_i64 << 53) - 1;
        node.write(move |tx| {
            for n in 0..1_024 {
                money::credit(tx, &user(1), most, &format!("ref {n}"), T0)?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(node.balance(1).free, most * 1_024);
        let over = node.write(move |tx| money::credit(tx, &user(1), most, "one more", T0));
        assert_eq!(code(over), "ledger.overflow");
        assert_eq!(node.balance(1).free, most * 1_024);
    });
}

#[test]
fn a_withdrawal_is_held_and_then_gone_or_back() {
    both(|node| {
        node.fund(1, 10_000);
        let first = withdraw(node, 1, 4_000, T0).unwrap();
        assert_eq!(first.status, WithdrawalStatus::Requested);
        assert_eq!(withdraw(node, 1, 4_000, T0 + 1).unwrap(), first, "the same again");
        assert_eq!(code(withdraw(node, 1, 4_001, T0)), "hosting.id_taken");
        assert_eq!((node.balance(1).free, node.balance(1).held), (6_000, 4_000));
        withdraw(node, 2, 6_000, T0).unwrap();
        assert_eq!(code(withdraw(node, 3, 1, T0)), "ledger.overdraft");
        for units in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(code(withdraw(node, 4, units, T0)), "hosting.malformed");
        }
        let open = node.read(|rx| money::withdrawals_open(rx, None, 10));
        assert_eq!(open.len(), 2);

        let confirm = |reference: &'static str| {
            node.write(move |tx| money::confirm(tx, &withdrawal_id(1), reference, T0 + 5))
        };
        let gone = confirm("tx 1").unwrap();
        assert_eq!(
            (gone.status, gone.reference.as_deref()),
            (WithdrawalStatus::Confirmed, Some("tx 1"))
        );
        assert_eq!(confirm("tx 1").unwrap(), gone);
        assert_eq!(code(confirm("tx 2")), "hosting.withdrawal_closed");
        let fail = |n| node.write(move |tx| money::fail(tx, &withdrawal_id(n), "refused", T0 + 6));
        assert_eq!(code(fail(1)), "hosting.withdrawal_closed");
        let back = fail(2).unwrap();
        assert_eq!(fail(2).unwrap(), back);
        assert_eq!(code(fail(9)), "hosting.unknown_withdrawal");
        assert_eq!((node.balance(1).free, node.balance(1).held), (6_000, 0));
        assert_eq!(node.units_of(money::outside().unwrap().account_id), -6_000);
        let pages =
            node.read(|rx| money::withdrawals_before(rx, &user(1), Some(&withdrawal_id(2)), 5));
        assert_eq!(pages, [gone]);
        assert_eq!(
            node.events().join(" "),
            "account.credited withdrawal.requested withdrawal.requested withdrawal.confirmed withdrawal.failed"
        );
        assert_eq!(node.ledger_problems(), Vec::<String>::new());
    });
}

/// What the service that keeps the meter does at this time.
fn keeper(node: &Node, now_ms: i64) -> Upkeep {
    Upkeep::new(Options::default(), node.store.clone(), Arc::new(At(now_ms)))
}

#[test]
fn what_nobody_sends_is_closed_when_its_money_goes_back() {
    const HOLD_MS: i64 = 90 * DAY_MS;
    both(|node| {
        node.fund(1, 10_000);
        withdraw(node, 1, 4_000, T0).unwrap();
        withdraw(node, 2, 3_000, T0 + DAY_MS).unwrap();
        let at = |now_ms| {
            let keeper = keeper(node, now_ms);
            block_on(keeper.close_withdrawals()).unwrap()
        };
        let open = || node.read(|rx| money::withdrawals_open(rx, None, 10)).len();
        // One look for the meter; the next is far ahead, and counts when it is seen twice.
        node.tick(T0 + DAY_MS);
        let end_ms = T0 + HOLD_MS - HOUR_MS;
        assert_eq!((at(end_ms), open()), (0, 2), "a glimpse closes nothing");
        (0..2).for_each(|_| {
            node.tick(end_ms - 1);
        });
        assert_eq!((at(end_ms - 1), open()), (0, 2));
        assert_eq!((at(end_ms), open()), (1, 1));
        assert_eq!((node.balance(1).free, node.balance(1).held), (7_000, 3_000));
        // The ledger, which gives back what nobody settles, finds nothing more to do.
        let sweep = |now_ms| {
            let swept = node.store.write(move |tx| expire_due(tx, now_ms, 10));
            block_on(swept).unwrap()
        };
        assert_eq!(sweep(T0 + HOLD_MS), 0);
        let pages = node.read(|rx| money::withdrawals_before(rx, &user(1), None, 5));
        assert_eq!(
            pages.iter().map(|one| one.status).collect::<Vec<_>>(),
            [WithdrawalStatus::Requested, WithdrawalStatus::Failed]
        );
        assert!(pages[1].words.as_deref().unwrap().starts_with("nobody sent it"), "{pages:?}");
        let confirm =
            |n| node.write(move |tx| money::confirm(tx, &withdrawal_id(n), "tx", end_ms + DAY_MS));
        assert_eq!(code(confirm(1)), "hosting.withdrawal_closed");
        let told = node.read(|rx| money::statement(rx, &user(1), None, 10));
        assert!(told[0].booked.memo.starts_with("withdrawal.void"), "{told:?}");

        // Nobody kept the meter, and the ledger has given it back already.
        let later_ms = end_ms + 2 * DAY_MS;
        assert_eq!(sweep(later_ms), 1);
        assert_eq!(open(), 1, "the ledger knows nothing of withdrawals");
        (0..2).for_each(|_| {
            node.tick(later_ms);
        });
        assert_eq!((at(later_ms), open(), at(later_ms)), (1, 0, 0));
        assert_eq!((node.balance(1).free, node.balance(1).held), (10_000, 0));
        assert_eq!(node.events().last().unwrap(), "withdrawal.failed");
        assert_eq!(node.audit().problems, Vec::<String>::new());
        assert_eq!(node.ledger_problems(), Vec::<String>::new());
    });
}

#[test]
fn a_glimpse_of_tomorrow_takes_nothing_away() {
    both(|node| {
        node.tick(T0);
        node.write(|tx| {
            tx.exec(
                "INSERT INTO access_idempotency (user_id, method, path, key, request_hash, state, tries, status, body,
                   created_ms) VALUES ('u', 'POST', '/v1/jobs', 'k', 'h', 'done', 1, 200, '{}', $1)",
                args![T0],
            )?;
            let nonce = "INSERT INTO access_nonce (nonce_hash, place, expires_ms) VALUES ('n', 'p', $1)";
            Ok(tx.exec(nonce, args![T0 + 300_000])?)
        })
        .unwrap();
        let left = || {
            const COUNT: &str = "SELECT (SELECT count(*) FROM access_idempotency)
                                   + (SELECT count(*) FROM access_nonce)";
            let row: Option<(i64,)> = node.read(|rx| Ok(rx.first(COUNT, args![])?));
            row.unwrap().0
        };
        let ahead_ms = T0 + 100 * HOUR_MS;
        let sweep = |now_ms| block_on(keeper(node, now_ms).sweep()).unwrap();
        for time in [ahead_ms, T0 + 1, ahead_ms, T0 - HOUR_MS] {
            // As the service does it: it looks, then it sweeps.
            block_on(keeper(node, time).look()).unwrap();
            sweep(time);
            assert_eq!(left(), 2, "{time}");
        }
        // Seen twice in a row it counts.
        for _ in 0..2 {
            block_on(keeper(node, ahead_ms).look()).unwrap();
        }
        sweep(ahead_ms);
        assert_eq!(left(), 0);
    });
}

#[test]
fn what_keeps_sandboxes_alive_for_three_days_cannot_be_taken_out() {
    both(|node| {
        let reserve = 3 * 24 * 60 * PRICE;
        node.fund(1, reserve + 5 * PRICE);
        node.create_job(&NewJob { max_spend: 1_000_000_000, ..new_job(1) }, T0).unwrap();
        node.run(&new_sandbox(1), T0);
        assert_eq!(node.read(|rx| money::reserve(rx, &user(1), &Policy::default(), T0)), reserve);
        assert_eq!(code(withdraw(node, 1, 4 * PRICE + 1, T0)), "ledger.gated");
        withdraw(node, 1, 4 * PRICE, T0).unwrap();
        // The reserve is for running on.
        node.ticks(T0, T0 + 2 * MINUTE_MS);
        assert_eq!(node.sandbox(1).paid_minutes, 3);
        assert_eq!(code(withdraw(node, 2, 1, T0)), "ledger.gated");
    });
}

#[test]
fn stopping_everything_does_not_free_the_reserve() {
    both(|node| {
        node.fund(1, 1_000_000_000);
        node.create_job(
            &NewJob { max_spend: 1_000_000_000, ttl_ms: 20 * DAY_MS, ..new_job(1) },
            T0,
        )
        .unwrap();
        // Four of seven days with one minute each, and a fifth with more.
        for day in 0..5 {
            let at_ms = T0 + day * DAY_MS;
            let n = u32::try_from(day).unwrap();
            node.order(&NewSandbox { job_id: job_id(1), ..new_sandbox(n) }, at_ms);
            node.started(n, at_ms).unwrap();
            if day == 4 {
                node.tick(at_ms + 50_000);
            }
            node.write(move |tx| sandbox::stop(tx, &user(1), &sandbox_id(n), at_ms + 55_000))
                .unwrap();
        }
        assert_eq!(node.balance(1).burn_per_minute, 0);
        let burn = |now_ms| node.read(move |rx| money::typical_burn(rx, &user(1), now_ms));
        assert_eq!(burn(T0 + 3 * DAY_MS), 0, "three whole days are too few");
        assert_eq!(
            burn(T0 + 4 * DAY_MS),
            1,
            "four of the last seven days cost 1110: a unit a minute, rounded up"
        );
        let now_ms = T0 + 5 * DAY_MS;
        let free = node.balance(1).free;
        assert_eq!(code(withdraw(node, 1, free, now_ms)), "ledger.gated");
        withdraw(node, 1, free - 72 * 60, now_ms).unwrap();
        assert_eq!(burn(T0 + 12 * DAY_MS), 0, "long ago");
        assert_eq!(HOUR_MS * 72, Policy::default().reserve_ms);
    });
}
