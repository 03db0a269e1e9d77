//! The meter.

use guild_hosting::job;
use guild_hosting::sandbox::{NewSandbox, Reason, Status};

use crate::world::{MINUTE_MS, PRICE, T0, both, new_job, new_sandbox};

#[test]
fn a_cap_ends_a_sandbox_at_the_exact_minute() {
    both(|node| {
        node.fund(1, 100 * PRICE);
        node.create_job(&new_job(1), T0).unwrap();
        node.run(&NewSandbox { cap: 3 * PRICE + PRICE / 2, ..new_sandbox(1) }, T0);
        node.ticks(T0, T0 + 10 * MINUTE_MS);
        let sandbox = node.sandbox(1);
        assert_eq!(
            (sandbox.status, sandbox.stop_reason),
            (Status::Ending, Some(Reason::SandboxCap))
        );
        assert_eq!((sandbox.paid_minutes, sandbox.spent), (3, 3 * PRICE));
        assert_eq!(sandbox.ends_ms, Some(T0 + 3 * MINUTE_MS));
        assert_eq!(node.job(1).status, job::Status::Running, "the job goes on");
    });
}
