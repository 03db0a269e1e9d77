//! The meter: what it pays, what it ends, and what it never does.

use std::sync::Arc;

use guild_hosting::clamp::Policy;
use guild_hosting::job::{self, NewJob};
use guild_hosting::meter::{self, Sight};
use guild_hosting::money;
use guild_hosting::price::Shape;
use guild_hosting::sandbox::{self, NewSandbox, Reason, Sandbox, Status};
use guild_hosting::upkeep::{Options, STRIKES_MAX, Upkeep};

use crate::world::{
    DAY_MS, HOUR_MS, MINUTE_MS, Node, PRICE, SHAPE, T0, block_on, both, new_job, new_sandbox,
    sandbox_id, user, wish,
};

fn ended(sandbox: &Sandbox) -> (Status, Option<Reason>, i64, Option<i64>) {
    let after_ms = sandbox.ends_ms.map(|ends_ms| ends_ms - T0);
    (sandbox.status, sandbox.stop_reason, sandbox.paid_minutes, after_ms)
}

fn fund_and_job(node: &Node, minutes: i64, job: &NewJob) {
    node.fund(1, minutes * PRICE);
    node.create_job(job, T0).unwrap();
}

#[test]
fn a_cap_ends_a_sandbox_at_the_exact_minute() {
    both(|node| {
        fund_and_job(node, 100, &new_job(1));
        node.run(&NewSandbox { cap: 3 * PRICE + PRICE / 2, ..new_sandbox(1) }, T0);
        node.run(&NewSandbox { cap: 4 * PRICE, ..new_sandbox(2) }, T0);
        node.ticks(T0, T0 + 10 * MINUTE_MS);
        let cap = Some(Reason::SandboxCap);
        assert_eq!(ended(&node.sandbox(1)), (Status::Ending, cap, 3, Some(3 * MINUTE_MS)));
        assert_eq!(ended(&node.sandbox(2)), (Status::Ending, cap, 4, Some(4 * MINUTE_MS)));
        assert_eq!(node.sandbox(1).spent, 3 * PRICE);
        assert_eq!(node.job(1).status, job::Status::Running, "the job goes on");
        assert_eq!(node.balance(1).free, 93 * PRICE);
    });
}

#[test]
fn the_budget_of_a_job_ends_all_its_sandboxes() {
    both(|node| {
        fund_and_job(node, 100, &NewJob { max_spend: 7 * PRICE + 1, ..new_job(1) });
        node.run(&new_sandbox(1), T0);
        node.run(&new_sandbox(2), T0 + 10_000);
        node.ticks(T0, T0 + 10 * MINUTE_MS);
        let cap = Some(Reason::JobCap);
        // Seven minutes: four of the first, three of the second.
        assert_eq!(ended(&node.sandbox(1)), (Status::Ending, cap, 4, Some(4 * MINUTE_MS)));
        assert_eq!(ended(&node.sandbox(2)), (Status::Ending, cap, 3, Some(10_000 + 3 * MINUTE_MS)));
        let job = node.job(1);
        assert_eq!((job.status, job.spent), (job::Status::StoppedDueToBudget, 7 * PRICE));
        assert!(node.place(&new_sandbox(3), T0 + 11 * MINUTE_MS).is_err());
    });
}

#[test]
fn what_the_account_cannot_pay_ends_and_a_deposit_in_time_saves_it() {
    both(|node| {
        fund_and_job(node, 2, &new_job(1));
        node.run(&new_sandbox(1), T0);
        node.ticks(T0, T0 + 2 * MINUTE_MS - 10_000);
        assert_eq!(node.sandbox(1).status, Status::Running);
        assert_eq!(node.balance(1).free, 0);
        node.fund(1, PRICE);
        node.ticks(T0 + 2 * MINUTE_MS - 10_000, T0 + 10 * MINUTE_MS);
        let account = Some(Reason::Account);
        assert_eq!(ended(&node.sandbox(1)), (Status::Ending, account, 3, Some(3 * MINUTE_MS)));
        assert_eq!(node.job(1).status, job::Status::StoppedDueToBalance);
        assert_eq!((node.balance(1).free, node.revenue()), (0, 3 * PRICE));
    });
}

#[test]
fn of_two_that_one_minute_is_left_for_the_first_gets_it() {
    both(|node| {
        fund_and_job(node, 3, &new_job(1));
        node.run(&new_sandbox(1), T0);
        node.run(&new_sandbox(2), T0);
        let ticked = node.tick(T0 + MINUTE_MS - 3_000);
        assert_eq!((ticked.paid, ticked.waiting, ticked.ended), (1, 0, 1));
        assert_eq!(node.sandbox(1).paid_minutes, 2);
        assert_eq!(node.sandbox(2).stop_reason, Some(Reason::Account));
        assert_eq!(node.job(1).status, job::Status::Running, "its first one runs");
    });
}

#[test]
fn times_end_sandboxes_and_jobs() {
    both(|node| {
        fund_and_job(node, 100, &NewJob { ttl_ms: 5 * MINUTE_MS, ..new_job(1) });
        let (sandbox, granted) = node.order(&NewSandbox { ttl_ms: 150_000, ..new_sandbox(1) }, T0);
        assert_eq!(granted.expires_ms.granted, T0 + 150_000);
        assert_eq!(sandbox.expires_ms, T0 + 150_000);
        node.started(1, T0).unwrap();
        node.run(&new_sandbox(2), T0 + 30_000);
        assert_eq!(node.sandbox(2).expires_ms, T0 + 5 * MINUTE_MS, "no later than its job");
        node.ticks(T0, T0 + 149_000);
        let ttl = Some(Reason::SandboxTtl);
        assert_eq!(ended(&node.sandbox(1)), (Status::Ending, ttl, 3, Some(150_000)));
        node.ticks(T0 + 149_000, T0 + 10 * MINUTE_MS);
        assert_eq!(ended(&node.sandbox(2)), (Status::Ending, ttl, 5, Some(5 * MINUTE_MS)));
        assert_eq!(node.job(1).status, job::Status::Expired);
        assert_eq!(node.balance(1).free, 92 * PRICE);
    });
}

#[test]
fn the_end_of_a_job_is_the_end_of_a_sandbox_that_would_go_on() {
    both(|node| {
        fund_and_job(node, 100, &NewJob { ttl_ms: 90_000, ..new_job(1) });
        node.run(&new_sandbox(1), T0);
        let later = guild_hosting::clamp::Extend { expires_ms: Some(T0 + HOUR_MS), ..wish(2) };
        let (_, granted) = node
            .write(move |tx| {
                sandbox::extend(tx, &user(1), &sandbox_id(1), &later, &Policy::default(), T0 + 1)
            })
            .unwrap();
        assert_eq!(granted.expires_ms.bound, guild_hosting::clamp::Bound::JobRemaining);
        node.ticks(T0, T0 + 5 * MINUTE_MS);
        let (status, _, minutes, ends) = ended(&node.sandbox(1));
        assert_eq!((status, minutes, ends), (Status::Ending, 2, Some(90_000)));
    });
}

#[test]
fn idle_sandboxes_end_unless_they_are_used() {
    both(|node| {
        fund_and_job(node, 100, &new_job(1));
        let idle = Some(100_000);
        node.run(&NewSandbox { idle_timeout_ms: idle, ..new_sandbox(1) }, T0);
        node.run(&NewSandbox { idle_timeout_ms: idle, ..new_sandbox(2) }, T0);
        node.ticks(T0, T0 + 90_000);
        node.write(|tx| sandbox::touch(tx, &sandbox_id(2), T0 + 90_000)).unwrap();
        node.ticks(T0 + 90_000, T0 + 10 * MINUTE_MS);
        // Idle after 100 s, so the minute that begins at 120 s is not bought; the other is used at 90 s.
        let reason = Some(Reason::SandboxIdle);
        assert_eq!(ended(&node.sandbox(1)), (Status::Ending, reason, 2, Some(2 * MINUTE_MS)));
        assert_eq!(ended(&node.sandbox(2)), (Status::Ending, reason, 4, Some(4 * MINUTE_MS)));
    });
}

#[test]
fn an_idle_job_ends_with_all_its_sandboxes() {
    both(|node| {
        fund_and_job(node, 100, &NewJob { idle_timeout_ms: Some(150_000), ..new_job(1) });
        node.run(&new_sandbox(1), T0);
        node.run(&new_sandbox(2), T0);
        node.order(&new_sandbox(3), T0);
        node.ticks(T0, T0 + 100_000);
        // The use of one counts for the job of both.
        node.write(|tx| sandbox::touch(tx, &sandbox_id(2), T0 + 100_000)).unwrap();
        node.ticks(T0 + 100_000, T0 + 10 * MINUTE_MS);
        assert_eq!(node.job(1).status, job::Status::Idle);
        let reason = Some(Reason::JobIdle);
        assert_eq!(ended(&node.sandbox(1)), (Status::Ending, reason, 5, Some(5 * MINUTE_MS)));
        assert_eq!(ended(&node.sandbox(2)), (Status::Ending, reason, 5, Some(5 * MINUTE_MS)));
        let third = node.sandbox(3);
        assert_eq!((third.status, third.paid_minutes), (Status::Ending, 0));
        assert_eq!((node.balance(1).held, node.balance(1).free), (0, 90 * PRICE));
    });
}

#[test]
fn a_job_without_sandboxes_ends_too() {
    both(|node| {
        node.create_job(&NewJob { ttl_ms: 5_000, ..new_job(1) }, T0).unwrap();
        node.create_job(&NewJob { idle_timeout_ms: Some(3_000), ..new_job(2) }, T0).unwrap();
        assert_eq!(node.tick(T0 + 2_999).jobs_ended, 0);
        assert_eq!(node.tick(T0 + 5_000).jobs_ended, 2);
        assert_eq!(node.job(1).status, job::Status::Expired);
        assert_eq!(node.job(2).status, job::Status::Idle);
        assert_eq!(node.job(1).ended_ms, Some(T0 + 5_000));
    });
}

#[test]
fn what_does_not_start_in_time_fails_and_costs_nothing() {
    both(|node| {
        fund_and_job(node, 2, &new_job(1));
        node.order(&new_sandbox(1), T0);
        for now_ms in [T0, T0 + sandbox::START_MAX_MS / 2] {
            assert_eq!(
                (node.tick(now_ms).clock, node.tick(now_ms).not_started),
                (Sight::Steady, 0)
            );
        }
        let ticked = node.tick(T0 + sandbox::START_MAX_MS);
        assert_eq!(ticked.not_started, 1);
        let sandbox = node.sandbox(1);
        assert_eq!(
            (sandbox.status, sandbox.stop_reason),
            (Status::Failed, Some(Reason::NotStarted))
        );
        assert_eq!((node.balance(1).free, node.balance(1).held), (2 * PRICE, 0));
        assert_eq!((node.job(1).held, node.job(1).spent), (0, 0));
        assert!(node.started(1, T0 + sandbox::START_MAX_MS + 1).is_err());
        assert_eq!(node.revenue(), 0);
    });
}

#[test]
fn what_nobody_metered_is_not_billed_but_borne() {
    both(|node| {
        fund_and_job(node, 100, &new_job(1));
        node.run(&new_sandbox(1), T0);
        node.ticks(T0, T0 + MINUTE_MS);
        // Down for seven minutes; the first look after a gap only notes it.
        let back_ms = T0 + 8 * MINUTE_MS;
        assert!(
            matches!(node.tick(back_ms).clock, Sight::Jumped { by_ms } if by_ms > 6 * MINUTE_MS)
        );
        assert_eq!(node.sandbox(1).status, Status::Running);
        let ticked = node.tick(back_ms + 1_000);
        assert_eq!((ticked.clock, ticked.paid, ticked.ended), (Sight::Steady, 0, 1));
        let gap = Some(Reason::MeterGap);
        assert_eq!(ended(&node.sandbox(1)), (Status::Ending, gap, 2, Some(2 * MINUTE_MS)));
        // An agent that did not keep its lease ran on for half a minute and a bit.
        let now_ms = back_ms + 2_000;
        let stopped = node
            .write(move |tx| sandbox::stopped(tx, &sandbox_id(1), Some(150_001), now_ms))
            .unwrap();
        assert_eq!((stopped.spent, stopped.lost_units), (2 * PRICE, 556));
        let loss = node.units_of(money::loss().unwrap().account_id);
        assert_eq!((loss, node.revenue()), (-556, 2 * PRICE + 556));
        assert_eq!(node.balance(1).free, 98 * PRICE, "never the user's");
        // Reported again, and a little more.
        node.write(move |tx| sandbox::reported(tx, &sandbox_id(1), 150_001, now_ms)).unwrap();
        node.write(move |tx| sandbox::reported(tx, &sandbox_id(1), 180_000, now_ms)).unwrap();
        assert_eq!(node.sandbox(1).lost_units, PRICE);
        for bad in [-1, i64::MIN, i64::MAX, 24 * HOUR_MS] {
            let refused = node
                .write(move |tx| sandbox::reported(tx, &sandbox_id(1), bad, now_ms))
                .unwrap_err();
            assert_eq!(refused.code().name, "hosting.malformed");
        }
    });
}

#[test]
fn a_clock_that_steps_is_seen() {
    both(|node| {
        fund_and_job(node, 100, &new_job(1));
        node.run(&new_sandbox(1), T0);
        node.ticks(T0, T0 + 45_000);
        assert_eq!(node.sandbox(1).paid_minutes, 2);
        // Back: nothing is done, whatever is due.
        assert_eq!(node.tick(T0 - HOUR_MS).clock, Sight::Back { by_ms: HOUR_MS + 44_000 });
        // A day ahead, once: nothing is done, and nothing is lost when it was a mistake.
        assert!(matches!(node.tick(T0 + DAY_MS).clock, Sight::Jumped { .. }));
        assert_eq!(node.sandbox(1).status, Status::Running);
        node.ticks(T0 + 45_000, T0 + 3 * MINUTE_MS);
        assert_eq!(node.sandbox(1).paid_minutes, 4);
        let seen = node.read(meter::seen).unwrap();
        assert_eq!((seen.backs, seen.jumps, seen.suspect_ms), (1, 1, None));
        // Two meters whose clocks differ a little.
        assert_eq!(node.tick(T0 + 3 * MINUTE_MS - 1_500).clock, Sight::Steady);
        // The operator knows better than a meter that has seen the future.
        node.tick(T0 + 12 * HOUR_MS);
        node.tick(T0 + 12 * HOUR_MS + 1_000);
        assert!(matches!(node.tick(T0 + HOUR_MS).clock, Sight::Back { .. }));
        node.write(|tx| meter::accept_clock(tx, T0 + HOUR_MS)).unwrap();
        assert_eq!(node.tick(T0 + HOUR_MS).clock, Sight::Steady);
        assert_eq!(node.sandbox(1).stop_reason, Some(Reason::MeterGap));
        assert_eq!(node.sandbox(1).paid_minutes, 4, "nothing was billed for the gap");
        let refused = node.write(|tx| meter::tick(tx, -1, 10)).unwrap_err();
        assert_eq!(refused.code().name, "hosting.malformed");
    });
}

#[test]
fn small_batches_come_to_the_same() {
    both(|node| {
        node.fund(1, 1_000 * PRICE);
        node.create_job(&NewJob { max_spend: 1_000_000_000, ..new_job(1) }, T0).unwrap();
        for n in 0..23 {
            node.run(&new_sandbox(n), T0 + i64::from(n % 3));
        }
        let mut batches = 0;
        while node.write(move |tx| meter::tick(tx, T0 + 50_000, 7)).unwrap().more {
            batches += 1;
        }
        assert_eq!(batches, 3);
        assert_eq!(node.revenue(), 46 * PRICE);
        assert_eq!(node.tick(T0 + 50_000).paid, 0, "the same tick again pays nothing");
    });
}

#[test]
fn another_shape_is_paid_from_the_next_unpaid_minute_on() {
    const LARGE: Shape = Shape { cpu_milli: 2_000, ram_mib: 2_048, disk_mib: 1_024 };
    let resize = |node: &Node, shape: Shape, version, now_ms| {
        node.write(move |tx| {
            let policy = Policy::default();
            sandbox::resize(tx, &user(1), &sandbox_id(1), version, &shape, &policy, now_ms)
        })
    };
    both(|node| {
        fund_and_job(node, 100, &new_job(1));
        node.run(&new_sandbox(1), T0);
        node.ticks(T0, T0 + 45_000);
        // Minute 1 is paid already, at the old price.
        let sandbox = resize(node, LARGE, 2, T0 + 45_000).unwrap();
        assert_eq!((sandbox.price, sandbox.next_price()), (PRICE, 2 * PRICE));
        assert_eq!(sandbox.next.unwrap().from_ms, T0 + 2 * MINUTE_MS);
        assert_eq!(node.balance(1).burn_per_minute, 2 * PRICE);
        assert_eq!(resize(node, LARGE, 2, T0 + 46_000).unwrap(), sandbox, "the same again");
        let stale = resize(node, SHAPE, 2, T0 + 46_000).unwrap_err();
        assert_eq!(stale.code().name, "hosting.version_conflict");
        assert_eq!(sandbox.shape_at(T0 + 2 * MINUTE_MS), SHAPE, "that minute is not paid yet");
        node.ticks(T0 + 46_000, T0 + 110_000);
        let sandbox = node.sandbox(1);
        assert_eq!((sandbox.paid_minutes, sandbox.spent), (3, 4 * PRICE));
        assert_eq!(sandbox.shape_at(T0 + 2 * MINUTE_MS - 1), SHAPE);
        assert_eq!(sandbox.shape_at(T0 + 2 * MINUTE_MS), LARGE);
        let soon = resize(node, SHAPE, sandbox.version, T0 + 110_000).unwrap_err();
        assert_eq!(soon.code().name, "hosting.resizing");
        node.ticks(T0 + 110_000, T0 + 170_000);
        let sandbox = node.sandbox(1);
        assert_eq!((sandbox.shape, sandbox.price, sandbox.next), (LARGE, 2 * PRICE, None));
        assert_eq!(sandbox.spent, 6 * PRICE);
        // And back, twice before the minute is paid: the last word counts.
        let middle = Shape { cpu_milli: 1_500, ..LARGE };
        let sandbox = resize(node, middle, sandbox.version, T0 + 171_000).unwrap();
        let sandbox = resize(node, SHAPE, sandbox.version, T0 + 172_000).unwrap();
        assert_eq!((sandbox.shape, sandbox.next.unwrap().shape), (LARGE, SHAPE));
        node.ticks(T0 + 172_000, T0 + 5 * MINUTE_MS);
        assert_eq!(node.sandbox(1).spent, 6 * PRICE + 2 * PRICE);
        let giant = Shape { cpu_milli: i64::MAX, ..SHAPE };
        let refused = resize(node, giant, node.sandbox(1).version, T0 + 5 * MINUTE_MS).unwrap_err();
        assert_eq!(refused.code().name, "hosting.bad_shape");
    });
}

#[test]
fn kept_files_are_removed_in_the_end() {
    both(|node| {
        fund_and_job(node, 100, &new_job(1));
        node.run(&NewSandbox { ttl_ms: 10 * MINUTE_MS, ..new_sandbox(1) }, T0);
        node.write(|tx| sandbox::stop(tx, &user(1), &sandbox_id(1), T0 + 1_000)).unwrap();
        node.write(|tx| sandbox::stopped(tx, &sandbox_id(1), Some(900), T0 + 1_100)).unwrap();
        let mut now_ms = T0 + 1_100;
        while now_ms + 200_000 < T0 + 1_100 + sandbox::KEEP_MS {
            now_ms += 200_000;
            assert_eq!(node.tick(now_ms).forgotten, 0);
        }
        assert_eq!(node.tick(T0 + 1_100 + sandbox::KEEP_MS).forgotten, 1);
        assert_eq!(node.sandbox(1).status, Status::Destroying);
        assert_eq!(node.sandbox(1).stop_reason, Some(Reason::User));
    });
}

/// A clock that a test sets.
pub(crate) struct At(pub(crate) i64);

impl guild_protocol::env::Clock for At {
    fn now_ms(&self) -> i64 {
        self.0
    }

    fn sleep(&self, _: i64) -> guild_protocol::env::BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn a_row_that_cannot_be_metered_is_set_aside_and_all_others_are_metered() {
    both(|node| {
        fund_and_job(node, 100, &new_job(1));
        (1..=4).for_each(|n| {
            node.run(&new_sandbox(n), T0);
        });
        // Its owner has no name that can be read: not even its account can be found.
        node.write(|tx| {
            let bad = "UPDATE hosting_sandbox SET user_id = 'nobody' WHERE sandbox_no = 2";
            assert_eq!(tx.exec(bad, guild_store::args![])?, 1);
            Ok(())
        })
        .unwrap();
        let options = Options { batch_min: 3, batch_max: 3, ..Options::default() };
        let at = T0 + MINUTE_MS - 10_000;
        let keeper = Upkeep::new(options, node.store.clone(), Arc::new(At(at)));
        for look in 1..=STRIKES_MAX {
            assert_eq!(block_on(keeper.look()).unwrap(), Sight::Steady);
            assert_eq!(keeper.counts().of("failed"), u64::from(look));
        }
        assert_eq!(keeper.counts().of("set_aside"), 1);
        block_on(keeper.look()).unwrap();
        assert_eq!(keeper.counts().of("failed"), u64::from(STRIKES_MAX), "it is in nobody's way");
        for n in [1, 3, 4] {
            let sandbox = node.sandbox(n);
            assert_eq!((sandbox.status, sandbox.paid_minutes), (Status::Running, 2), "{n}");
        }
        type Row = (String, String, String, i64, Option<i64>, Option<i64>);
        let row: Row = node.read(|rx| {
            let sql = "SELECT s.status, s.stop_reason, s.words, r.paid_minutes, r.ends_ms, r.due_ms
                    FROM hosting_sandbox AS s JOIN hosting_run AS r ON r.sandbox_no = s.sandbox_no
                    WHERE s.sandbox_no = 2";
            Ok(rx.first(sql, guild_store::args![])?.unwrap())
        });
        let (status, reason, words, minutes, ends_ms, due_ms) = row;
        assert_eq!((status.as_str(), reason.as_str()), ("ending", "meter_gap"));
        assert!(words.starts_with("a user is"), "{words}");
        assert_eq!((minutes, ends_ms, due_ms), (1, Some(T0 + MINUTE_MS), None), "as it is paid");
        let told: Option<(String,)> = node.read(|rx| {
            Ok(rx.first(
                "SELECT body FROM event WHERE kind = 'meter.set_aside'",
                guild_store::args![],
            )?)
        });
        assert!(told.is_some_and(|(body,)| body.contains(sandbox_id(2).as_str())));
    });
}

#[test]
fn a_job_that_cannot_be_ended_keeps_nobody_else_from_it() {
    both(|node| {
        node.fund(1, 100 * PRICE);
        for n in [1, 2] {
            node.create_job(&NewJob { ttl_ms: MINUTE_MS, ..new_job(n) }, T0).unwrap();
        }
        node.order(&new_sandbox(1), T0);
        // What is held for its sandbox is not written down: it cannot be given back.
        node.write(|tx| {
            tx.exec("UPDATE hosting_job SET held = 0 WHERE held > 0", guild_store::args![])?;
            Ok(())
        })
        .unwrap();
        let keeper =
            Upkeep::new(Options::default(), node.store.clone(), Arc::new(At(T0 + MINUTE_MS)));
        (0..STRIKES_MAX).for_each(|_| {
            block_on(keeper.look()).unwrap();
        });
        assert_eq!(keeper.counts().of("set_aside"), 1);
        assert_eq!(node.job(1).status, job::Status::Running, "somebody has to look at it");
        assert_eq!(node.job(2).status, job::Status::Expired);
    });
}
