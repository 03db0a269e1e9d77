//! Jobs: what they are granted, and what ends with them.

use guild_hosting::Result;
use guild_hosting::clamp::{Bound, Extend, Granted, Policy};
use guild_hosting::job::{self, Job, NewJob, Status};
use guild_hosting::sandbox::{self, Reason};

use crate::world::{
    DAY_MS, HOUR_MS, MINUTE_MS, Node, PRICE, T0, both, job_id, new_job, new_sandbox, user, wish,
};

fn extend(node: &Node, asked: Extend, now_ms: i64) -> Result<(Job, Granted)> {
    node.write(move |tx| job::extend(tx, &user(1), &job_id(1), &asked, &Policy::default(), now_ms))
}

fn code<T: std::fmt::Debug>(refused: Result<T>) -> &'static str {
    refused.unwrap_err().code().name
}

#[test]
fn a_job_is_granted_what_the_policy_allows() {
    both(|node| {
        let (job, granted) = node.create_job(&new_job(1), T0).unwrap();
        assert_eq!(
            (job.status, job.max_spend, job.left()),
            (Status::Running, 1_000_000, 1_000_000)
        );
        assert_eq!((granted.spend.bound, job.expires_ms), (Bound::Requested, T0 + DAY_MS));
        assert_eq!(node.create_job(&new_job(1), T0 + 5).unwrap(), (job, granted), "the same again");
        let large = NewJob { max_spend: 1 << 50, ttl_ms: 365 * DAY_MS, ..new_job(2) };
        let (job, granted) = node.create_job(&large, T0).unwrap();
        assert_eq!(
            (granted.spend.bound, granted.expires_ms.bound),
            (Bound::PolicyCap, Bound::PolicyCap)
        );
        assert_eq!((job.max_spend, job.expires_ms), (1_000_000_000, T0 + 30 * DAY_MS));
        assert_eq!(granted.spend.requested, 1 << 50);
        let theirs = NewJob { user_id: user(2), ..new_job(1) };
        assert_eq!(code(node.create_job(&theirs, T0)), "hosting.id_taken");
    });
}

#[test]
fn jobs_that_cannot_be_meant_are_refused() {
    both(|node| {
        let good = new_job(1);
        for bad in [
            NewJob { max_spend: 0, ..good.clone() },
            NewJob { max_spend: -1, ..good.clone() },
            NewJob { max_spend: i64::MIN, ..good.clone() },
            NewJob { max_spend: 1 << 53, ..good.clone() },
            NewJob { ttl_ms: 0, ..good.clone() },
            NewJob { ttl_ms: i64::MIN, ..good.clone() },
            NewJob { ttl_ms: i64::MAX, ..good.clone() },
            NewJob { idle_timeout_ms: Some(999), ..good.clone() },
            NewJob { name: String::new(), ..good.clone() },
            NewJob { name: "a\u{7}".to_owned(), ..good.clone() },
            NewJob { name: "x".repeat(101), ..good.clone() },
        ] {
            assert_eq!(code(node.create_job(&bad, T0)), "hosting.malformed", "{bad:?}");
        }
        assert_eq!(code(node.create_job(&good, i64::MAX)), "hosting.malformed");
        let one = Policy { jobs_max: 1, ..Policy::default() };
        node.create_job(&good, T0).unwrap();
        let second = node.write(move |tx| job::create(tx, &new_job(2), &one, T0));
        assert_eq!(code(second), "hosting.too_many");
        assert_eq!(node.events(), ["job.running"]);
    });
}

#[test]
fn an_extended_job_lets_its_sandboxes_go_on() {
    both(|node| {
        node.fund(1, 100 * PRICE);
        let short = NewJob { max_spend: 2 * PRICE, ttl_ms: 100_000, ..new_job(1) };
        node.create_job(&short, T0).unwrap();
        node.run(&new_sandbox(1), T0);
        node.ticks(T0, T0 + 70_000);
        assert_eq!(
            node.sandbox(1).ends_ms,
            Some(T0 + 100_000),
            "two minutes are paid, the job is shorter"
        );
        let asked = Extend { spend: Some(9 * PRICE), expires_ms: Some(T0 + HOUR_MS), ..wish(1) };
        let (job, granted) = extend(node, asked, T0 + 70_000).unwrap();
        assert_eq!((job.max_spend, job.expires_ms, job.version), (9 * PRICE, T0 + HOUR_MS, 2));
        assert_eq!(extend(node, asked, T0 + 71_000).unwrap(), (job, granted), "the same again");
        let of_sandbox =
            Extend { spend: Some(9 * PRICE), expires_ms: Some(T0 + HOUR_MS), ..wish(2) };
        node.write(move |tx| {
            let id = crate::world::sandbox_id(1);
            sandbox::extend(tx, &user(1), &id, &of_sandbox, &Policy::default(), T0 + 72_000)
        })
        .unwrap();
        assert_eq!(node.sandbox(1).ends_ms, Some(T0 + 2 * MINUTE_MS));
        node.ticks(T0 + 72_000, T0 + 20 * MINUTE_MS);
        assert_eq!(node.sandbox(1).paid_minutes, 9);
        assert_eq!(node.job(1).status, Status::Running, "the cap of its sandbox came first");
        for (bad, name) in [
            (Extend { spend: Some(9 * PRICE - 1), ..wish(2) }, "hosting.shrinks"),
            (Extend { expires_ms: Some(T0 + HOUR_MS - 1), ..wish(2) }, "hosting.shrinks"),
            (Extend { spend: Some(-1), ..wish(2) }, "hosting.malformed"),
            (Extend { expires_ms: Some(i64::MAX), ..wish(2) }, "hosting.malformed"),
            (Extend { spend: Some(10 * PRICE), ..wish(1) }, "hosting.version_conflict"),
            (Extend { spend: Some(10 * PRICE), ..wish(3) }, "hosting.version_conflict"),
        ] {
            assert_eq!(code(extend(node, bad, T0 + 20 * MINUTE_MS)), name, "{bad:?}");
        }
        let late = Extend { spend: Some(10 * PRICE), ..wish(2) };
        assert_eq!(code(extend(node, late, T0 + HOUR_MS)), "hosting.job_ended");
    });
}

#[test]
fn a_stopped_job_takes_its_sandboxes_along() {
    both(|node| {
        node.fund(1, 100 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        node.run(&new_sandbox(1), T0);
        node.order(&new_sandbox(2), T0);
        let stop =
            |who: u8, now_ms| node.write(move |tx| job::stop(tx, &user(who), &job_id(1), now_ms));
        assert_eq!(code(stop(2, T0 + 1)), "hosting.unknown_job");
        let job = stop(1, T0 + 10_000).unwrap();
        assert_eq!((job.status, job.held, job.spent), (Status::Stopped, 0, PRICE));
        assert_eq!(stop(1, T0 + 20_000).unwrap(), job, "the same again");
        for n in [1, 2] {
            let sandbox = node.sandbox(n);
            assert_eq!(
                (sandbox.status, sandbox.stop_reason),
                (sandbox::Status::Ending, Some(Reason::JobStopped))
            );
            assert_eq!(sandbox.ends_ms, Some(T0 + 10_000));
        }
        assert_eq!((node.balance(1).free, node.balance(1).held), (99 * PRICE, 0));
        assert_eq!(code(extend(node, wish(job.version), T0 + 30_000)), "hosting.job_ended");
        assert_eq!(code(node.place(&new_sandbox(3), T0 + 30_000)), "hosting.job_ended");
        node.ticks(T0 + 30_000, T0 + 3 * MINUTE_MS);
        assert_eq!(node.balance(1).free, 99 * PRICE);
    });
}

#[test]
fn pages_go_by_id_and_show_only_ones_own() {
    both(|node| {
        for n in 1..=5 {
            node.create_job(&NewJob { user_id: user(1 + u8::from(n == 3)), ..new_job(n) }, T0)
                .unwrap();
        }
        let ids = |page: Vec<Job>| page.into_iter().map(|job| job.job_id).collect::<Vec<_>>();
        let newest = node.read(|rx| job::page_before(rx, &user(1), None, 3));
        assert_eq!(ids(newest), [job_id(5), job_id(4), job_id(2)]);
        let next = node.read(|rx| job::page_before(rx, &user(1), Some(&job_id(2)), 3));
        assert_eq!(ids(next), [job_id(1)]);
        let refused = node.write(|tx| job::get(tx, &user(1), &job_id(3)));
        assert_eq!(code(refused), "hosting.unknown_job");
    });
}
