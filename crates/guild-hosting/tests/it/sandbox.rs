//! Ordering a sandbox, using it and getting rid of it.

use guild_hosting::clamp::{Bound, Extend, Policy};
use guild_hosting::job::NewJob;
use guild_hosting::money::{self, Buys};
use guild_hosting::price::Shape;
use guild_hosting::sandbox::{self, NewSandbox, Reason, Sandbox, SecurityMode, Status};
use guild_hosting::{Result, SandboxId, UserId};
use guild_store::Tx;

use crate::world::{
    DAY_MS, HOUR_MS, MINUTE_MS, Node, PRICE, SHAPE, T0, both, job_id, new_job, new_sandbox,
    quote_id, sandbox_id, user, wish,
};

type Act = fn(&mut Tx<'_>, &UserId, &SandboxId, i64) -> Result<Sandbox>;

/// The owner of sandbox 1 does something with it.
fn owner(node: &Node, act: Act, now_ms: i64) -> Result<Sandbox> {
    node.write(move |tx| act(tx, &user(1), &sandbox_id(1), now_ms))
}

fn extend(
    node: &Node,
    asked: Extend,
    now_ms: i64,
) -> Result<(Sandbox, guild_hosting::clamp::Granted)> {
    node.write(move |tx| {
        sandbox::extend(tx, &user(1), &sandbox_id(1), &asked, &Policy::default(), now_ms)
    })
}

fn code<T: std::fmt::Debug>(refused: Result<T>) -> &'static str {
    refused.unwrap_err().code().name
}

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
        assert_eq!(node.order(&new_sandbox(1), T0 + 1), (sandbox, granted), "the same again");

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
        let ending = owner(node, sandbox::stop, now_ms).unwrap();
        assert_eq!((ending.status, ending.stop_reason), (Status::Ending, Some(Reason::User)));
        assert_eq!(ending.ends_ms, Some(now_ms), "at once, though more is paid");
        let stopped = move |tx: &mut Tx<'_>| {
            sandbox::stopped(tx, &sandbox_id(1), Some(175_000), now_ms + 100)
        };
        let first = node.write(stopped).unwrap();
        assert_eq!((first.status, first.ran_ms, first.lost_units), (Status::Stopped, 175_000, 0));
        assert_eq!(node.write(stopped).unwrap(), first, "the same again");
        let gone = owner(node, sandbox::destroy, now_ms + 200).unwrap();
        assert_eq!(gone.status, Status::Destroying);
        let destroyed =
            move |tx: &mut Tx<'_>| sandbox::destroyed(tx, &sandbox_id(1), None, now_ms + 300);
        let gone = node.write(destroyed).unwrap();
        assert_eq!(gone.status, Status::Destroyed);
        assert_eq!(node.write(destroyed).unwrap(), gone, "the same again");
        assert_eq!(node.balance(1).free, 6 * PRICE);
        assert_eq!(
            node.events().join(" "),
            "account.credited job.running sandbox.starting sandbox.running sandbox.ending sandbox.stopped \
             sandbox.destroying sandbox.destroyed"
        );
        assert_eq!(node.ledger_problems(), Vec::<String>::new());
    });
}

#[test]
fn what_never_ran_costs_nothing() {
    both(|node| {
        node.fund(1, 10 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        node.order(&new_sandbox(1), T0);
        let ending = owner(node, sandbox::stop, T0 + 1).unwrap();
        assert_eq!((ending.status, ending.started_ms), (Status::Ending, None));
        assert_eq!(
            code(node.started(1, T0 + 2)),
            "hosting.sandbox_ended",
            "too late: it was stopped"
        );
        node.order(&new_sandbox(2), T0);
        let failed = |tx: &mut Tx<'_>| sandbox::failed(tx, &sandbox_id(2), "no\nroom", T0 + 3);
        let first = node.write(failed).unwrap();
        assert_eq!((first.status, first.words.as_deref()), (Status::Failed, Some("no room")));
        assert_eq!(node.write(failed).unwrap(), first, "the same again");
        node.order(&new_sandbox(3), T0);
        node.write(|tx| sandbox::destroy(tx, &user(1), &sandbox_id(3), T0 + 4)).unwrap();
        let balance = node.balance(1);
        assert_eq!((balance.free, balance.held, balance.burn_per_minute), (10 * PRICE, 0, 0));
        assert_eq!((node.job(1).held, node.job(1).spent, node.revenue()), (0, 0, 0));
        let late = node.order(&NewSandbox { ttl_ms: 5_000, ..new_sandbox(4) }, T0).0;
        assert_eq!(code(node.started(4, late.expires_ms)), "hosting.sandbox_ended");
    });
}

#[test]
fn a_lost_machine_ends_the_payments() {
    both(|node| {
        node.fund(1, 10 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        node.run(&new_sandbox(1), T0);
        let failed =
            node.write(|tx| sandbox::failed(tx, &sandbox_id(1), "gone", T0 + 30_000)).unwrap();
        assert_eq!(failed.stop_reason, Some(Reason::Machine));
        assert_eq!(failed.ends_ms, Some(T0 + 30_000));
        node.run(&new_sandbox(2), T0);
        let stopped =
            node.write(|tx| sandbox::stopped(tx, &sandbox_id(2), None, T0 + 40_000)).unwrap();
        assert_eq!((stopped.status, stopped.stop_reason), (Status::Stopped, Some(Reason::Machine)));
        node.ticks(T0 + 40_000, T0 + 2 * MINUTE_MS);
        assert_eq!(node.balance(1).free, 8 * PRICE);
    });
}

#[test]
fn whoever_cannot_pay_gets_a_quote_and_nothing_is_held() {
    both(|node| {
        node.fund(1, PRICE - 1);
        node.create_job(&new_job(1), T0).unwrap();
        let quote = node.quoted(&new_sandbox(1), T0);
        assert_eq!(quote.buys, Buys { shape: SHAPE, price: PRICE, minutes: 60 });
        assert_eq!(quote.units, 60 * PRICE - (PRICE - 1));
        assert_eq!(quote.expires_ms, T0 + money::QUOTE_LIFETIME_MS);
        assert_eq!(node.quoted(&new_sandbox(1), T0 + 1), quote, "the same again");
        let kept = node.read(|rx| money::find_quote(rx, &quote_id(1)));
        assert_eq!(kept, Some(quote));
        assert!(node.read(|rx| sandbox::find(rx, &sandbox_id(1))).is_none());
        assert_eq!((node.balance(1).held, node.job(1).held), (0, 0));
        // What a cap or an end allows is less than an hour.
        let small = NewSandbox { cap: 3 * PRICE, ..new_sandbox(2) };
        assert_eq!(node.quoted(&small, T0).buys.minutes, 3);
        let short = NewSandbox { ttl_ms: 61_000, ..new_sandbox(3) };
        assert_eq!(node.quoted(&short, T0).buys.minutes, 2);
        node.fund(1, 1);
        node.order(&new_sandbox(1), T0 + 2);
        assert_eq!(node.tick(T0 + 3).paid, 0);
        let forgotten =
            |now_ms| node.write(move |tx| money::forget_quotes(tx, now_ms, 10)).unwrap();
        assert_eq!((forgotten(T0), forgotten(T0 + DAY_MS)), (0, 3));
    });
}

#[test]
fn what_is_granted_is_the_smallest_and_says_which() {
    both(|node| {
        node.fund(1, 1_000 * PRICE);
        let job = NewJob { max_spend: 10 * PRICE, ttl_ms: HOUR_MS, ..new_job(1) };
        node.create_job(&job, T0).unwrap();
        let (_, granted) =
            node.order(&NewSandbox { cap: 10 * PRICE, ttl_ms: HOUR_MS, ..new_sandbox(1) }, T0);
        assert_eq!(
            (granted.spend.bound, granted.expires_ms.bound),
            (Bound::Requested, Bound::Requested)
        );
        // One minute is held: nine are left.
        let (sandbox, granted) =
            node.order(&NewSandbox { cap: 10 * PRICE, ttl_ms: HOUR_MS, ..new_sandbox(2) }, T0 + 1);
        assert_eq!((granted.spend.granted, granted.spend.bound), (9 * PRICE, Bound::JobRemaining));
        assert_eq!(
            (granted.expires_ms.granted, granted.expires_ms.requested),
            (T0 + HOUR_MS, T0 + HOUR_MS + 1)
        );
        assert_eq!((sandbox.cap, sandbox.expires_ms), (9 * PRICE, T0 + HOUR_MS));
        let policy = Policy { sandbox_cap_max: PRICE, sandbox_ttl_max_ms: 7, ..Policy::default() };
        let placed =
            node.write(move |tx| sandbox::create(tx, &new_sandbox(3), &policy, T0)).unwrap();
        let sandbox::Placed::Starting(sandbox, granted) = placed else { panic!("{placed:?}") };
        assert_eq!(
            (granted.spend.bound, granted.expires_ms.bound),
            (Bound::PolicyCap, Bound::PolicyCap)
        );
        assert_eq!((sandbox.cap, sandbox.expires_ms), (PRICE, T0 + 7));
    });
}

#[test]
fn orders_that_cannot_be_meant_are_refused_and_change_nothing() {
    both(|node| {
        node.fund(1, 1_000 * PRICE);
        node.create_job(&NewJob { max_spend: 10 * PRICE, ..new_job(1) }, T0).unwrap();
        let good = new_sandbox(1);
        let shape = |cpu_milli, ram_mib, disk_mib| Shape { cpu_milli, ram_mib, disk_mib };
        for (bad, name) in [
            (NewSandbox { cap: 0, ..good.clone() }, "hosting.malformed"),
            (NewSandbox { cap: -1, ..good.clone() }, "hosting.malformed"),
            (NewSandbox { cap: i64::MIN, ..good.clone() }, "hosting.malformed"),
            (NewSandbox { cap: i64::MAX, ..good.clone() }, "hosting.malformed"),
            (NewSandbox { ttl_ms: 0, ..good.clone() }, "hosting.malformed"),
            (NewSandbox { ttl_ms: -1, ..good.clone() }, "hosting.malformed"),
            (NewSandbox { ttl_ms: i64::MAX, ..good.clone() }, "hosting.malformed"),
            (NewSandbox { idle_timeout_ms: Some(0), ..good.clone() }, "hosting.malformed"),
            (NewSandbox { idle_timeout_ms: Some(i64::MAX), ..good.clone() }, "hosting.malformed"),
            (NewSandbox { image: String::new(), ..good.clone() }, "hosting.malformed"),
            (NewSandbox { image: "a\nb".to_owned(), ..good.clone() }, "hosting.malformed"),
            (NewSandbox { machine: "x".repeat(101), ..good.clone() }, "hosting.malformed"),
            (NewSandbox { shape: shape(0, 1_024, 1_024), ..good.clone() }, "hosting.bad_shape"),
            (NewSandbox { shape: shape(-1, 1_024, 1_024), ..good.clone() }, "hosting.bad_shape"),
            (
                NewSandbox { shape: shape(1_000, i64::MAX, 1_024), ..good.clone() },
                "hosting.bad_shape",
            ),
            (
                NewSandbox { shape: shape(1_000, 1_024, i64::MIN), ..good.clone() },
                "hosting.bad_shape",
            ),
            (
                NewSandbox { shape: shape(16_000, 65_536, 1_024), ..good.clone() },
                "hosting.over_budget",
            ),
            (NewSandbox { cap: PRICE - 1, ..good.clone() }, "hosting.over_budget"),
            (
                NewSandbox { security_mode: SecurityMode::Confidential, ..good.clone() },
                "hosting.not_enabled",
            ),
            (NewSandbox { user_id: user(2), ..good.clone() }, "hosting.unknown_job"),
            (NewSandbox { job_id: job_id(9), ..good.clone() }, "hosting.unknown_job"),
        ] {
            assert_eq!(code(node.place(&bad, T0)), name, "{bad:?}");
        }
        assert_eq!(code(node.place(&good, T0 + DAY_MS)), "hosting.job_ended");
        assert_eq!(code(node.place(&good, -1)), "hosting.malformed");
        let few = Policy { sandboxes_max: 1, ..Policy::default() };
        node.order(&good, T0);
        let second = node.write(move |tx| sandbox::create(tx, &new_sandbox(2), &few, T0));
        assert_eq!(code(second), "hosting.too_many");
        node.fund(2, 100 * PRICE);
        node.create_job(&NewJob { user_id: user(2), ..new_job(2) }, T0).unwrap();
        let taken = NewSandbox { user_id: user(2), job_id: job_id(2), ..good };
        assert_eq!(code(node.place(&taken, T0)), "hosting.id_taken");
        assert_eq!((node.job(1).held, node.balance(1).held), (PRICE, PRICE));
        assert_eq!((node.job(2).held, node.balance(2).held), (0, 0));
    });
}

#[test]
fn an_extension_is_absolute_and_the_same_again_changes_nothing() {
    both(|node| {
        node.fund(1, 1_000 * PRICE);
        node.create_job(&NewJob { max_spend: 50 * PRICE, ..new_job(1) }, T0).unwrap();
        node.run(&NewSandbox { cap: 2 * PRICE, ttl_ms: 100_000, ..new_sandbox(1) }, T0);
        let asked = Extend {
            spend: Some(60 * PRICE),
            expires_ms: Some(T0 + HOUR_MS),
            idle_timeout_ms: Some(90_000),
            ..wish(2)
        };
        let (sandbox, granted) = extend(node, asked, T0 + 1_000).unwrap();
        // What it has spent, and what its job has left.
        assert_eq!((granted.spend.granted, granted.spend.bound), (50 * PRICE, Bound::JobRemaining));
        assert_eq!(
            (sandbox.cap, sandbox.expires_ms, sandbox.version),
            (50 * PRICE, T0 + HOUR_MS, 3)
        );
        assert_eq!(sandbox.idle_timeout_ms, Some(90_000));
        assert_eq!(extend(node, asked, T0 + 2_000).unwrap(), (sandbox.clone(), granted));
        let other = Extend { spend: Some(61 * PRICE), ..asked };
        assert_eq!(code(extend(node, other, T0 + 2_000)), "hosting.version_conflict");
        for (bad, name) in [
            (Extend { spend: Some(PRICE - 1), ..wish(3) }, "hosting.shrinks"),
            (Extend { spend: Some(0), ..wish(3) }, "hosting.malformed"),
            (Extend { spend: Some(-5), ..wish(3) }, "hosting.malformed"),
            (Extend { spend: Some(i64::MAX), ..wish(3) }, "hosting.malformed"),
            (Extend { expires_ms: Some(T0 + HOUR_MS - 1), ..wish(3) }, "hosting.shrinks"),
            (Extend { expires_ms: Some(-1), ..wish(3) }, "hosting.malformed"),
            (Extend { expires_ms: Some(i64::MAX), ..wish(3) }, "hosting.malformed"),
            (Extend { idle_timeout_ms: Some(-1), ..wish(3) }, "hosting.malformed"),
        ] {
            assert_eq!(code(extend(node, bad, T0 + 3_000)), name, "{bad:?}");
        }
        assert_eq!(node.sandbox(1), sandbox, "nothing was changed");
        let less = Extend { spend: Some(2 * PRICE), ..wish(3) };
        assert_eq!(
            extend(node, less, T0 + 4_000).unwrap().0.cap,
            2 * PRICE,
            "less, but not below what is spent"
        );
        node.ticks(T0 + 5_000, T0 + 3 * MINUTE_MS);
        assert_eq!(node.sandbox(1).stop_reason, Some(Reason::SandboxIdle));
        let late = Extend { spend: Some(9 * PRICE), ..wish(node.sandbox(1).version) };
        assert_eq!(code(extend(node, late, T0 + 3 * MINUTE_MS)), "hosting.sandbox_ended");
        assert_eq!(
            extend(node, less, T0 + HOUR_MS).unwrap().1.spend.granted,
            2 * PRICE,
            "the answer stays"
        );
    });
}

#[test]
fn a_lease_that_ran_out_is_not_revived() {
    both(|node| {
        node.fund(1, 100 * PRICE);
        node.create_job(&NewJob { ttl_ms: 50_000, ..new_job(1) }, T0).unwrap();
        node.run(&NewSandbox { ttl_ms: 40_000, ..new_sandbox(1) }, T0);
        node.run(&new_sandbox(2), T0);
        let now_ms = T0 + 45_000;
        let later = Extend { expires_ms: Some(T0 + HOUR_MS), ..wish(2) };
        assert_eq!(code(extend(node, later, now_ms)), "hosting.sandbox_ended");
        let touched = node.write(move |tx| sandbox::touch(tx, &sandbox_id(1), now_ms));
        assert_eq!(code(touched), "hosting.sandbox_ended");
        let later = Extend { version: 1, ..later };
        node.write(move |tx| {
            guild_hosting::job::extend(tx, &user(1), &job_id(1), &later, &Policy::default(), now_ms)
        })
        .unwrap();
        assert_eq!(node.sandbox(1).ends_ms, Some(T0 + 40_000), "it was over");
        assert_eq!(
            node.sandbox(2).ends_ms,
            Some(T0 + 50_000),
            "its own time was granted within the old one"
        );
        node.write(move |tx| {
            let later = Extend { version: 2, ..later };
            sandbox::extend(tx, &user(1), &sandbox_id(2), &later, &Policy::default(), now_ms)
        })
        .unwrap();
        assert_eq!(node.sandbox(2).ends_ms, Some(T0 + MINUTE_MS), "as far as it is paid");
    });
}

#[test]
fn only_the_owner_acts_and_every_use_counts() {
    both(|node| {
        node.fund(1, 10 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        node.run(&new_sandbox(1), T0);
        let acts: [Act; 4] = [sandbox::stop, sandbox::destroy, sandbox::pause, sandbox::resume];
        for act in acts {
            let refused = node.write(move |tx| act(tx, &user(2), &sandbox_id(1), T0 + 5));
            assert_eq!(code(refused), "hosting.unknown_sandbox");
        }
        let theirs = node.read(|rx| sandbox::page_before(rx, &user(2), None, 10));
        assert!(theirs.is_empty());
        let paused = owner(node, sandbox::pause, T0 + 2_000).unwrap();
        assert_eq!((paused.paused, paused.last_activity_ms), (true, T0 + 2_000));
        assert_eq!(owner(node, sandbox::pause, T0 + 3_000).unwrap(), paused);
        assert!(!owner(node, sandbox::resume, T0 + 4_000).unwrap().paused);
        let touched = node.write(|tx| sandbox::touch(tx, &sandbox_id(1), T0 + 4_500)).unwrap();
        assert_eq!(touched.last_activity_ms, T0 + 4_000, "soon after another use");
        node.write(|tx| sandbox::touch(tx, &sandbox_id(1), T0 + 9_000)).unwrap();
        node.write(|tx| sandbox::touch(tx, &sandbox_id(1), T0 + 1)).unwrap();
        assert_eq!(node.sandbox(1).last_activity_ms, T0 + 9_000, "never back");
        assert_eq!(node.job(1).last_activity_ms, T0 + 9_000);
        let released =
            node.write(|tx| sandbox::secrets_released(tx, &sandbox_id(1), T0 + 9_500)).unwrap();
        assert_eq!(released.secrets_ms, Some(T0 + 9_500));
        owner(node, sandbox::stop, T0 + 10_000).unwrap();
        for act in [sandbox::pause, sandbox::resume] {
            assert_eq!(code(owner(node, act, T0 + 11_000)), "hosting.sandbox_ended");
        }
        let touched = node.write(|tx| sandbox::touch(tx, &sandbox_id(1), T0 + 11_000));
        assert_eq!(code(touched), "hosting.sandbox_ended");
    });
}

#[test]
fn pages_go_by_id() {
    both(|node| {
        node.fund(1, 10 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        for n in 1..=5 {
            node.order(&new_sandbox(n), T0);
        }
        let ids = |page: Vec<Sandbox>| -> Vec<SandboxId> {
            page.into_iter().map(|sandbox| sandbox.sandbox_id).collect()
        };
        let newest = node.read(|rx| sandbox::page_before(rx, &user(1), None, 2));
        assert_eq!(ids(newest), [sandbox_id(5), sandbox_id(4)]);
        let next = node.read(|rx| sandbox::page_of_job(rx, &job_id(1), Some(&sandbox_id(4)), 2));
        assert_eq!(ids(next), [sandbox_id(3), sandbox_id(2)]);
        node.write(|tx| sandbox::failed(tx, &sandbox_id(4), "no", T0)).unwrap();
        let open = node.read(|rx| sandbox::open_after(rx, Some(&sandbox_id(2)), 10));
        assert_eq!(ids(open), [sandbox_id(3), sandbox_id(5)]);
        assert!(node.read(|rx| sandbox::page_before(rx, &user(1), None, -1)).is_empty());
        node.write(|tx| sandbox::placed(tx, &sandbox_id(5), "host-7")).unwrap();
        assert_eq!(node.sandbox(5).instance.as_deref(), Some("host-7"));
    });
}
