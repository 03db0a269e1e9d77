//! Many at once: transactions decide, and whoever comes second is refused or finds what is there.

use std::sync::Arc;

use guild_hosting::clamp::{Extend, Policy};
use guild_hosting::money::{self, NewWithdrawal};
use guild_hosting::sandbox::{self, NewSandbox, Placed};
use guild_hosting::{Result, meter};

use crate::world::{
    DAY_MS, MINUTE_MS, Node, PRICE, T0, block_on, both, new_job, new_sandbox, sandbox_id, user,
    wish, withdrawal_id,
};

/// Runs something for each number at once, on as many threads.
fn at_once<T: Send + 'static>(
    node: &Node,
    count: u32,
    run: impl Fn(&mut guild_store::Tx<'_>, u32) -> Result<T> + Send + Sync + 'static,
) -> Vec<Result<T>> {
    let run = Arc::new(run);
    let threads: Vec<_> = (0..count)
        .map(|n| {
            let (store, run) = (node.store.clone(), run.clone());
            std::thread::spawn(move || block_on(store.write(move |tx| run(tx, n))))
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn of_many_orders_with_money_for_one_one_is_placed() {
    both(|node| {
        node.fund(1, PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        let placed =
            at_once(node, 60, |tx, n| sandbox::create(tx, &new_sandbox(n), &Policy::default(), T0));
        let starting =
            placed.iter().filter(|placed| matches!(placed, Ok(Placed::Starting(..)))).count();
        let quoted = placed.iter().filter(|placed| matches!(placed, Ok(Placed::Quoted(_)))).count();
        assert_eq!((starting, quoted), (1, 59));
        assert_eq!((node.balance(1).free, node.balance(1).held), (0, PRICE));
        assert_eq!(node.audit().problems, Vec::<String>::new());
    });
}

#[test]
fn one_order_sixty_times_is_one_order() {
    both(|node| {
        node.fund(1, 100 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        let placed = at_once(node, 60, |tx, n| {
            sandbox::create(tx, &new_sandbox(1), &Policy::default(), T0 + i64::from(n))
        });
        assert!(placed.iter().all(|one| one.is_ok() && *one == placed[0]));
        assert_eq!(node.balance(1).held, PRICE);
    });
}

#[test]
fn meters_at_once_pay_each_minute_once() {
    both(|node| {
        node.fund(1, 1_000 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        for n in 0..10 {
            node.run(&new_sandbox(n), T0);
        }
        for k in 1..=3 {
            let now_ms = T0 + k * MINUTE_MS - 10_000;
            let paid: u64 = at_once(node, 8, move |tx, n| {
                // Their clocks differ, and their batches are small.
                meter::tick(tx, now_ms - i64::from(n) * 100, 4)
            })
            .into_iter()
            .map(|ticked| ticked.unwrap().paid)
            .sum();
            assert_eq!(paid, 10);
        }
        assert_eq!(node.revenue(), 40 * PRICE);
        assert_eq!(node.audit().problems, Vec::<String>::new());
    });
}

#[test]
fn orders_withdrawals_and_the_meter_never_spend_the_same_money() {
    both(|node| {
        node.fund(1, 12 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        for n in 0..4 {
            node.run(&new_sandbox(n), T0);
        }
        // Nothing has to stay: only what is there counts.
        let policy = Policy { reserve_ms: 0, ..Policy::default() };
        let outcomes = at_once(node, 40, move |tx, n| match n % 4 {
            0 => meter::tick(tx, T0 + 50_000, 2).map(|_| ()),
            1 => {
                let new = NewWithdrawal {
                    withdrawal_id: withdrawal_id(n),
                    user_id: user(1),
                    units: PRICE,
                    destination: "there".to_owned(),
                };
                money::withdraw(tx, &new, &policy, T0 + 50_000).map(|_| ())
            }
            2 => sandbox::create(tx, &new_sandbox(n + 100), &policy, T0 + 50_000).map(|_| ()),
            _ => sandbox::stop(tx, &user(1), &sandbox_id(n % 8), T0 + 50_000).map(|_| ()),
        });
        assert_eq!(outcomes.len(), 40);
        let balance = node.balance(1);
        assert!(balance.free >= 0, "{balance:?}");
        assert_eq!(balance.free + balance.held + node.revenue(), 12 * PRICE);
        assert_eq!(node.audit().problems, Vec::<String>::new());
        assert_eq!(node.ledger_problems(), Vec::<String>::new());
    });
}

#[test]
fn of_many_extensions_of_one_version_one_counts() {
    both(|node| {
        node.fund(1, 100 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        node.run(&NewSandbox { cap: PRICE, ..new_sandbox(1) }, T0);
        let extended = at_once(node, 20, |tx, n| {
            let asked = Extend {
                spend: Some(i64::from(n % 4 + 2) * PRICE),
                expires_ms: Some(T0 + DAY_MS),
                ..wish(2)
            };
            sandbox::extend(tx, &user(1), &sandbox_id(1), &asked, &Policy::default(), T0 + 1)
        });
        let granted: Vec<i64> =
            extended.iter().flatten().map(|(_, granted)| granted.spend.granted).collect();
        assert_eq!(granted.len(), 5, "the same wish five times, the others are refused");
        assert!(granted.iter().all(|spend| *spend == node.sandbox(1).cap));
        assert_eq!(node.sandbox(1).version, 3);
    });
}
