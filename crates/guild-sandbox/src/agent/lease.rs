//! How long a sandbox may run. The controller signs it; the agent ends the workload by itself when it is over.

use guild_protocol::env::{Signer, UnixMs};
use guild_protocol::identity::{PublicKey, Signature};
use serde::{Deserialize, Serialize};

use super::auth::{Party, SandboxId};
use super::error::{Error, Result, code};

const LEASE: &str = "guildhall/sandbox-agent/lease/v1";
/// One that also says how long it may run in all.
const BOUNDED_LEASE: &str = "guildhall/sandbox-agent/lease/v2";

/// The controller's word that a sandbox is paid for until a moment, or that it must stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The key of its agent: another agent for the same sandbox needs another lease.
    pub agent: PublicKey,
    /// It may run until then.
    pub run_until_ms: UnixMs,
    /// When this was signed, by the controller's clock. Of two leases the later one counts.
    pub issued_ms: UnixMs,
    /// Whether it must stop now, whatever was said before.
    pub stop: bool,
    /// How long it may run in all, whatever any clock shows; without it, as long as was said before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_max_ms: Option<i64>,
    /// The controller's, over all of the above.
    pub signature: Signature,
}

impl Lease {
    /// Signs that `party` may run until a moment.
    pub fn until(
        party: &Party,
        run_until_ms: UnixMs,
        issued_ms: UnixMs,
        controller: &dyn Signer,
    ) -> Result<Lease> {
        Lease::sign(party, run_until_ms, issued_ms, (false, None), controller)
    }

    /// As [`Lease::until`], and no longer than this in all. Whoever sells time says both: a clock that is set back
    /// gives away nothing then.
    pub fn within(
        party: &Party,
        run_until_ms: UnixMs,
        run_max_ms: i64,
        issued_ms: UnixMs,
        controller: &dyn Signer,
    ) -> Result<Lease> {
        Lease::sign(party, run_until_ms, issued_ms, (false, Some(run_max_ms)), controller)
    }

    /// Signs that `party` must stop.
    pub fn stop(party: &Party, issued_ms: UnixMs, controller: &dyn Signer) -> Result<Lease> {
        Lease::sign(party, issued_ms, issued_ms, (true, None), controller)
    }

    fn sign(
        party: &Party,
        run_until_ms: UnixMs,
        issued_ms: UnixMs,
        (stop, run_max_ms): (bool, Option<i64>),
        controller: &dyn Signer,
    ) -> Result<Lease> {
        let digest = digest(party, run_until_ms, issued_ms, stop, run_max_ms);
        let signature = controller.sign_digest(&digest)?;
        let Party { sandbox_id, agent } = party.clone();
        Ok(Lease { sandbox_id, agent, run_until_ms, issued_ms, stop, run_max_ms, signature })
    }

    /// Whether the controller signed it, for this party.
    pub fn check(&self, party: &Party, controller: &PublicKey) -> Result<()> {
        let digest = digest(party, self.run_until_ms, self.issued_ms, self.stop, self.run_max_ms);
        let signed = controller.verify(&digest, &self.signature).is_ok();
        if signed && self.sandbox_id == party.sandbox_id && self.agent == party.agent {
            return Ok(());
        }
        let why = "the lease is not signed by the controller for this sandbox and agent";
        Err(Error::new(&code::WRONG_SIGNATURE, why))
    }
}

fn digest(
    party: &Party,
    run_until_ms: UnixMs,
    issued_ms: UnixMs,
    stop: bool,
    run_max_ms: Option<i64>,
) -> [u8; 32] {
    let numbers = [run_until_ms.to_string(), issued_ms.to_string(), stop.to_string()];
    let [until, issued, stop] = numbers.each_ref().map(String::as_str);
    match run_max_ms {
        None => party.digest(LEASE, &[until, issued, stop]),
        Some(most) => party.digest(BOUNDED_LEASE, &[until, issued, stop, &most.to_string()]),
    }
}

/// The time that is left. It is over when the clock on the wall says so, or when so much time has gone by as there was,
/// or when it ran as long as it may in all: a clock that is set back gives nobody more.
#[derive(Debug)]
pub struct Term {
    run_until_ms: UnixMs,
    issued_ms: UnixMs,
    /// How much time has gone by since the start, as far as can be told: never less than what was slept.
    gone_ms: i64,
    /// The moment of `gone_ms` at which it is over.
    over_at_gone_ms: i64,
    /// How long it may run in all, if anybody has said so.
    run_max_ms: Option<i64>,
    wall_ms: UnixMs,
    stopped: bool,
    /// The moment of the time gone by at which commands were let in, and at which everything had ended.
    began_at_gone_ms: Option<i64>,
    ended_at_gone_ms: Option<i64>,
}

impl Term {
    /// A term that has begun.
    pub fn new(run_until_ms: UnixMs, now_ms: UnixMs) -> Term {
        let left = run_until_ms.saturating_sub(now_ms);
        Term {
            run_until_ms,
            issued_ms: UnixMs::MIN,
            gone_ms: 0,
            over_at_gone_ms: left,
            run_max_ms: None,
            wall_ms: now_ms,
            stopped: false,
            began_at_gone_ms: Some(0),
            ended_at_gone_ms: None,
        }
    }

    /// A term that begins with the first lease, and waits for it no longer than until then.
    pub fn waiting(run_until_ms: UnixMs, now_ms: UnixMs) -> Term {
        Term { began_at_gone_ms: None, ..Term::new(run_until_ms, now_ms) }
    }

    /// Whether commands may run.
    pub fn has_begun(&self) -> bool {
        self.began_at_gone_ms.is_some()
    }

    /// Takes note that everything has ended.
    pub fn end(&mut self, now_ms: UnixMs) {
        let gone_ms = self.gone_until(now_ms);
        self.ended_at_gone_ms.get_or_insert(gone_ms);
    }

    /// How long commands could run.
    pub fn ran_ms(&self, now_ms: UnixMs) -> i64 {
        let until = self.ended_at_gone_ms.unwrap_or_else(|| self.gone_until(now_ms));
        self.began_at_gone_ms.map_or(0, |began| until.saturating_sub(began))
    }

    /// The time gone by, to the millisecond: what was ticked, and what the wall says since.
    fn gone_until(&self, now_ms: UnixMs) -> i64 {
        self.gone_ms.saturating_add(now_ms.saturating_sub(self.wall_ms).max(0))
    }

    /// Until when it goes by the clock on the wall.
    pub fn run_until_ms(&self) -> UnixMs {
        self.run_until_ms
    }

    /// How long the agent has run.
    pub fn gone_ms(&self) -> i64 {
        self.gone_ms
    }

    /// Takes note that `slept_ms` have gone by at least, and what the clock on the wall says now.
    pub fn tick(&mut self, now_ms: UnixMs, slept_ms: i64) {
        let step = now_ms.saturating_sub(self.wall_ms).max(slept_ms);
        self.gone_ms = self.gone_ms.saturating_add(step);
        self.wall_ms = now_ms;
    }

    /// Takes a lease that was checked. A stale one changes nothing, nor does one that would shorten the time without
    /// being a stop. Says whether anything changed.
    pub fn accept(&mut self, lease: &Lease, now_ms: UnixMs) -> bool {
        if self.stopped || lease.issued_ms <= self.issued_ms {
            return false;
        }
        if lease.stop {
            (self.stopped, self.issued_ms) = (true, lease.issued_ms);
            self.run_until_ms = self.run_until_ms.min(lease.run_until_ms);
            return true;
        }
        if self.has_begun() && lease.run_until_ms <= self.run_until_ms {
            return false;
        }
        // If the two clocks differ, the later one leaves less time.
        let left = lease.run_until_ms.saturating_sub(now_ms.max(lease.issued_ms));
        if !self.has_begun() && left <= 0 {
            // It came too late: what is over must not begin.
            return false;
        }
        (self.run_until_ms, self.issued_ms) = (lease.run_until_ms, lease.issued_ms);
        self.run_max_ms = lease.run_max_ms.max(self.run_max_ms);
        if !self.has_begun() {
            // The time to wait for it was no time to run: the first lease may well say less.
            self.began_at_gone_ms = Some(self.gone_until(now_ms));
            self.over_at_gone_ms = self.gone_ms.saturating_add(left);
            return true;
        }
        self.over_at_gone_ms = self.over_at_gone_ms.max(self.gone_ms.saturating_add(left));
        true
    }

    /// Whether it is over.
    pub fn is_over(&self, now_ms: UnixMs) -> bool {
        self.left_ms(now_ms) <= 0
    }

    /// How much is left of it: by the wall, or by the time gone by if that leaves less.
    pub fn left_ms(&self, now_ms: UnixMs) -> i64 {
        let by_wall = self.run_until_ms.saturating_sub(now_ms);
        let by_time = self.over_at_gone_ms.saturating_sub(self.gone_ms);
        let in_all =
            self.run_max_ms.zip(self.began_at_gone_ms).map_or(i64::MAX, |(most, began)| {
                began.saturating_add(most).saturating_sub(self.gone_ms)
            });
        if self.stopped { 0 } else { by_wall.min(by_time).min(in_all) }
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::identity::SecretKey;

    use super::*;

    fn key(n: u8) -> SecretKey {
        format!("{n:064x}").parse().unwrap()
    }

    fn party() -> Party {
        let sandbox_id = format!("sandbox_{:032x}", 1).parse().unwrap();
        Party { sandbox_id, agent: key(2).public_key() }
    }

    fn until(run_until_ms: i64, issued_ms: i64) -> Lease {
        Lease::until(&party(), run_until_ms, issued_ms, &key(1)).unwrap()
    }

    fn within(run_until_ms: i64, run_max_ms: i64, issued_ms: i64) -> Lease {
        Lease::within(&party(), run_until_ms, run_max_ms, issued_ms, &key(1)).unwrap()
    }

    #[test]
    fn only_the_controller_signs_for_this_sandbox_and_agent() {
        let (good, controller) = (until(10, 5), key(1).public_key());
        good.check(&party(), &controller).unwrap();
        for wrong in [
            Lease { run_until_ms: 11, ..good.clone() },
            Lease { issued_ms: 6, ..good.clone() },
            Lease { stop: true, ..good.clone() },
            Lease { run_max_ms: Some(5), ..good.clone() },
            Lease { run_max_ms: None, ..within(10, 5, 5) },
            Lease { agent: key(3).public_key(), ..good.clone() },
            Lease::until(&party(), 10, 5, &key(3)).unwrap(),
        ] {
            assert_eq!(
                wrong.check(&party(), &controller).unwrap_err().code(),
                &code::WRONG_SIGNATURE
            );
        }
        let other = Party { agent: key(3).public_key(), ..party() };
        assert!(good.check(&other, &controller).is_err());
        let text = serde_json::to_string(&good).unwrap();
        assert_eq!(serde_json::from_str::<Lease>(&text).unwrap(), good);
    }

    #[test]
    fn it_only_moves_forward_unless_it_is_a_stop() {
        let mut term = Term::new(1_000, 0);
        assert!(term.accept(&until(5_000, 10), 10));
        assert!(!term.accept(&until(5_000, 10), 11), "a repeated one changes nothing");
        assert!(!term.accept(&until(9_000, 9), 11), "nor does an older one, though it says more");
        assert!(!term.accept(&until(4_000, 20), 20), "nor does a shorter one");
        assert_eq!(term.run_until_ms(), 5_000);
        assert!(term.accept(&until(6_000, 21), 21));
        assert!(!term.is_over(5_999) && term.is_over(6_000));
        let stop = Lease::stop(&party(), 30, &key(1)).unwrap();
        assert!(term.accept(&stop, 30) && term.is_over(30));
        assert!(!term.accept(&until(9_000, 40), 40), "what was stopped stays so");
        assert!(term.is_over(40));
    }

    #[test]
    fn a_term_that_waits_begins_with_the_first_lease_however_short() {
        let mut term = Term::waiting(600_000, 0);
        term.tick(2_000, 200);
        assert!(!term.has_begun() && !term.is_over(2_000));
        assert_eq!(term.ran_ms(2_100), 0);
        assert!(term.accept(&until(5_000, 2_100), 2_100) && term.has_begun());
        assert_eq!((term.run_until_ms(), term.ran_ms(2_150)), (5_000, 50));
        assert!(!term.accept(&until(4_000, 2_200), 2_200), "from then on it only moves forward");
        assert!(!term.is_over(4_999) && term.is_over(5_000));
        for _ in 0..15 {
            term.tick(2_200, 200);
        }
        assert!(term.is_over(2_200), "also if the wall stands still");
        let mut late = Term::waiting(600_000, 0);
        assert!(!late.accept(&until(5_000, 1_000), 5_000) && !late.has_begun());
        assert!(late.accept(&until(9_000, 1_001), 5_000), "the next one may be in time");
        let mut unheard = Term::waiting(1_000, 0);
        unheard.tick(1_000, 200);
        assert!(unheard.is_over(1_000) && !unheard.has_begun());
    }

    #[test]
    fn what_ran_is_counted_from_the_first_lease_to_the_end() {
        let mut term = Term::waiting(600_000, 0);
        assert!(term.accept(&until(60_000, 1_000), 1_000));
        term.tick(31_000, 200);
        term.end(31_050);
        term.tick(90_000, 200);
        term.end(95_000);
        assert_eq!(term.ran_ms(99_000), 30_050);
    }

    #[test]
    fn a_clock_that_is_set_back_gives_no_time_and_one_set_forward_takes_it() {
        let mut term = Term::new(1_000, 0);
        for _ in 0..4 {
            term.tick(-1_000_000, 200);
            assert!(!term.is_over(-1_000_000));
        }
        term.tick(-1_000_000, 200);
        assert!(term.is_over(-1_000_000));
        let mut term = Term::new(1_000, 0);
        term.tick(1_000, 200);
        assert!(term.is_over(1_000));
        // The process stood still for long: what the wall says counts, also when it is set back afterwards.
        let mut term = Term::new(10_000, 0);
        term.tick(9_000, 200);
        term.tick(0, 200);
        assert!(!term.is_over(0));
        term.tick(800, 200);
        assert!(term.is_over(800));
    }

    #[test]
    fn what_may_run_in_all_holds_whatever_the_clocks_show() {
        within(10, 7, 5).check(&party(), &key(1).public_key()).unwrap();
        // Both clocks are set back by half a minute between the start and the first lease.
        let mut term = Term::waiting(600_000, 0);
        term.tick(-29_000, 200);
        assert!(term.accept(&within(59_000, 59_000, -29_000), -29_000));
        for _ in 0..294 {
            term.tick(-29_000, 200);
        }
        assert!(!term.is_over(-29_000));
        term.tick(-29_000, 200);
        assert!(term.is_over(-29_000), "59 seconds were paid, not 88");
        // The next minute is paid: it may run longer in all. A word that says nothing of it changes nothing of it.
        let mut term = Term::waiting(600_000, 0);
        assert!(term.accept(&within(59_000, 59_000, 1), 1));
        assert!(term.accept(&within(119_000, 119_000, 2), 2));
        assert!(term.accept(&until(900_000, 3), 3));
        term.tick(118_900, 200);
        assert!(!term.is_over(118_900));
        term.tick(119_002, 200);
        assert!(term.is_over(119_002));
    }

    #[test]
    fn clocks_that_differ_leave_less_time() {
        // Here it is an hour earlier than at the controller.
        let mut term = Term::new(1_000, 0);
        assert!(term.accept(&until(3_660_000, 3_600_000), 0));
        for _ in 0..300 {
            term.tick(0, 200);
        }
        assert!(term.is_over(0), "a minute was given, not an hour and a minute");
    }
}
