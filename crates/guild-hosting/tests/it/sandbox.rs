//! The life of a sandbox.

use guild_hosting::sandbox::{self, Reason, Status};

use crate::world::{MINUTE_MS, PRICE, T0, both, new_job, new_sandbox, sandbox_id, user};

#[test]
fn a_sandbox_lives_from_order_to_removal() {
    both(|node| {
        node.fund(1, 10 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        let (sandbox, granted) = node.order(&new_sandbox(1), T0);
        assert_eq!((sandbox.status, sandbox.price), (Status::Starting, PRICE));
        assert_eq!(granted.spend.granted, 1_000_000);
        let balance = node.balance(1);
        assert_eq!((balance.free, balance.held), (9 * PRICE, PRICE));
        assert_eq!((balance.burn_per_minute, balance.minutes_left), (PRICE, Some(9)));
        assert_eq!((node.job(1).held, node.job(1).spent), (PRICE, 0));

        let sandbox = node.started(1, T0 + 5_000).unwrap();
        assert_eq!((sandbox.status, sandbox.spent), (Status::Running, PRICE));
        assert_eq!(sandbox.ends_ms, Some(T0 + 5_000 + MINUTE_MS));
        assert_eq!(node.started(1, T0 + 9_000).unwrap(), sandbox, "the same again");
        assert_eq!((node.job(1).held, node.job(1).spent), (0, PRICE));
        assert_eq!((node.balance(1).held, node.revenue()), (0, PRICE));

        node.ticks(T0 + 6_000, T0 + 3 * MINUTE_MS);
        let sandbox = node.sandbox(1);
        assert_eq!((sandbox.paid_minutes, sandbox.spent), (4, 4 * PRICE));
        assert_eq!((node.job(1).spent, node.revenue()), (4 * PRICE, 4 * PRICE));

        let now_ms = T0 + 3 * MINUTE_MS;
        let id = sandbox_id(1);
        let ending = node.write(move |tx| sandbox::stop(tx, &user(1), &id, now_ms)).unwrap();
        assert_eq!((ending.status, ending.stop_reason), (Status::Ending, Some(Reason::User)));
        assert_eq!(ending.ends_ms, Some(now_ms), "at once, though more is paid");
        let id = sandbox_id(1);
        let stopped =
            node.write(move |tx| sandbox::stopped(tx, &id, Some(175_000), now_ms + 100)).unwrap();
        assert_eq!(
            (stopped.status, stopped.ran_ms, stopped.lost_units),
            (Status::Stopped, 175_000, 0)
        );
        let id = sandbox_id(1);
        let gone = node.write(move |tx| sandbox::destroy(tx, &user(1), &id, now_ms + 200)).unwrap();
        assert_eq!(gone.status, Status::Destroying);
        let id = sandbox_id(1);
        let gone = node.write(move |tx| sandbox::destroyed(tx, &id, None, now_ms + 300)).unwrap();
        assert_eq!(gone.status, Status::Destroyed);
        assert_eq!(node.balance(1).free, 6 * PRICE);
        assert_eq!(
            node.events().join(" "),
            "account.credited job.running sandbox.starting sandbox.running sandbox.ending sandbox.stopped \
             sandbox.destroying sandbox.destroyed"
        );
        assert_eq!(node.ledger_problems(), Vec::<String>::new());
    });
}
