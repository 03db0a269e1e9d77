//! What is to be done with a sandbox next. Pure: it follows from its row, what is known of its agent, and the time.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;

use super::Options;
use crate::price::Shape;
use crate::sandbox::{MINUTE_MS, Sandbox, Status};

/// The longest wait before a lease or a stop is tried again.
const URGENT_BACKOFF_MAX_MS: i64 = 2_000;

/// What an agent has that does not say it, and that nobody remembers: nothing that is ever sold, so that it is given
/// once more what it should have.
pub(super) const UNKNOWN_SHAPE: Shape = Shape { cpu_milli: 0, ram_mib: 0, disk_mib: 0 };

/// What is known of an agent, and of what was tried. Nothing of it must be kept: whoever starts anew finds it out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Note {
    /// Until when its lease goes, as it said itself.
    pub leased_ms: Option<UnixMs>,
    /// Whether everything in it stands still, as it said itself.
    pub frozen: Option<bool>,
    /// The shape that it has, as it said itself or its machine did; not known if the machine cannot give another.
    pub shape: Option<Shape>,
    /// What it said that is less than it should have, and the version of its row then. Whoever changes its shape takes
    /// away first and writes afterwards: only what two looks have seen under one version is given back.
    pub less: Option<(i64, Shape)>,
    /// When it last said how it is.
    pub seen_ms: Option<UnixMs>,
    /// What failed the last time. Each waits for itself alone: a look that fails must not hold up a lease.
    pub waits: BTreeMap<Kind, Wait>,
}

/// What failed, and is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// How often in a row.
    pub tries: u32,
    /// It is not tried before.
    pub not_before_ms: UnixMs,
}

impl Note {
    /// It has this shape.
    pub(super) fn has(&mut self, said: Shape, row: &Sandbox, now_ms: UnixMs) {
        let held = row.held_at(now_ms);
        let is_less = said.cpu_milli < held.cpu_milli || said.ram_mib < held.ram_mib;
        let is_more = said.cpu_milli > held.cpu_milli || said.ram_mib > held.ram_mib;
        let seen = Some((row.version, said));
        if is_less && !is_more && said != UNKNOWN_SHAPE && self.less != seen {
            self.less = seen;
        } else {
            (self.shape, self.less) = (Some(said), None);
        }
    }

    /// Something failed: the next try of the same waits, twice as long each time.
    pub(super) fn failed(&mut self, kind: Kind, options: &Options, now_ms: UnixMs) {
        let tries = self.tries(kind);
        let factor = 1_i64.checked_shl(tries.min(20)).unwrap_or(i64::MAX);
        let pause_ms = options.backoff_min_ms.saturating_mul(factor).min(longest_ms(kind, options));
        let wait =
            Wait { tries: tries.saturating_add(1), not_before_ms: now_ms.saturating_add(pause_ms) };
        self.waits.insert(kind, wait);
    }

    /// Something was done.
    pub(super) fn done(&mut self, kind: Kind) {
        self.waits.remove(&kind);
    }

    /// How often in a row it failed.
    pub(super) fn tries(&self, kind: Kind) -> u32 {
        self.waits.get(&kind).map_or(0, |wait| wait.tries)
    }

    fn must_wait(&self, kind: Kind, options: &Options, now_ms: UnixMs) -> bool {
        // A clock that was set back must not make anybody wait for long.
        let latest_ms = now_ms.saturating_add(longest_ms(kind, options));
        let within = |wait: &Wait| wait.not_before_ms > now_ms && wait.not_before_ms <= latest_ms;
        self.waits.get(&kind).is_some_and(within)
    }
}

/// The longest wait. Between the payment of a minute and the end of the lease before it are some seconds only: in
/// these a lease must be tried more than once, and what is over must not run on because a stop failed.
fn longest_ms(kind: Kind, options: &Options) -> i64 {
    match kind {
        Kind::Stop | Kind::Lease => options.backoff_max_ms.min(URGENT_BACKOFF_MAX_MS),
        _ => options.backoff_max_ms,
    }
}

/// The next thing to do. The order is that of urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Its time is over: end everything inside.
    Stop,
    /// It is paid for longer than its agent knows: say so.
    Lease {
        /// Until then.
        until_ms: UnixMs,
    },
    /// Let everything stand still.
    Freeze,
    /// Let everything go on.
    Thaw,
    /// Give it the shape that is paid.
    Resize(Resized),
    /// It was removed, or never ran: let nothing be left.
    Remove,
    /// Ask its agent how it is.
    Look,
    /// Have it made, checked and begun.
    Start,
    /// Nothing now.
    Nothing,
}

/// What sort of act something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// [`Act::Stop`]
    Stop,
    /// [`Act::Lease`]
    Lease,
    /// [`Act::Freeze`] and [`Act::Thaw`]
    Pause,
    /// [`Act::Resize`]
    Resize,
    /// [`Act::Remove`]
    Remove,
    /// [`Act::Look`]
    Look,
    /// [`Act::Start`]
    Start,
}

impl Act {
    /// What sort of act it is; none if there is nothing to do.
    pub fn kind(self) -> Option<Kind> {
        Some(match self {
            Act::Stop => Kind::Stop,
            Act::Lease { .. } => Kind::Lease,
            Act::Freeze | Act::Thaw => Kind::Pause,
            Act::Resize(_) => Kind::Resize,
            Act::Remove => Kind::Remove,
            Act::Look => Kind::Look,
            Act::Start => Kind::Start,
            Act::Nothing => return None,
        })
    }
}

/// A shape to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resized {
    /// In thousandths of a core.
    pub cpu_milli: i64,
    /// Memory.
    pub ram_mib: i64,
}

/// What to do with a sandbox now: the first of what it wants that has not failed just now.
pub fn next_act(sandbox: &Sandbox, note: &Note, options: &Options, now_ms: UnixMs) -> Act {
    let wanted = match sandbox.status {
        Status::Starting => vec![Act::Start],
        Status::Running => while_it_runs(sandbox, note, options, now_ms),
        Status::Ending if sandbox.started_ms.is_none() => vec![Act::Remove],
        Status::Ending => {
            let until_ms = may_run_until(sandbox, options);
            let (lease, look) = (lease(note, until_ms, now_ms), look(note, options, now_ms));
            // At its end the agent stops by itself; it only has to be asked how long it ran.
            match until_ms <= now_ms {
                true => vec![Act::Stop],
                false => lease.into_iter().chain(look).collect(),
            }
        }
        Status::Destroying => vec![Act::Remove],
        Status::Stopped | Status::Destroyed | Status::Failed => Vec::new(),
    };
    let may = |act: &Act| act.kind().is_some_and(|kind| !note.must_wait(kind, options, now_ms));
    wanted.into_iter().find(may).unwrap_or(Act::Nothing)
}

fn while_it_runs(sandbox: &Sandbox, note: &Note, options: &Options, now_ms: UnixMs) -> Vec<Act> {
    let lease = lease(note, may_run_until(sandbox, options), now_ms);
    let pause = match (sandbox.paused, note.frozen) {
        (true, Some(false)) => Some(Act::Freeze),
        (false, Some(true)) => Some(Act::Thaw),
        _ => None,
    };
    let Shape { cpu_milli, ram_mib, .. } = sandbox.held_at(now_ms);
    let is_other = |known: &Shape| (known.cpu_milli, known.ram_mib) != (cpu_milli, ram_mib);
    let resize = note.shape.filter(is_other).map(|_| Act::Resize(Resized { cpu_milli, ram_mib }));
    lease.into_iter().chain(pause).chain(resize).chain(look(note, options, now_ms)).collect()
}

/// A look at an agent that has not said for long how it is.
fn look(note: &Note, options: &Options, now_ms: UnixMs) -> Option<Act> {
    let seen_since = now_ms.saturating_sub(options.look_ms);
    let is_due = note.seen_ms.is_none_or(|seen_ms| seen_ms <= seen_since || seen_ms > now_ms);
    is_due.then_some(Act::Look)
}

/// Until when its lease may go: before what is paid is over, by as much as its agent may take to end it. So it never
/// runs longer than it is paid for.
pub(super) fn may_run_until(sandbox: &Sandbox, options: &Options) -> UnixMs {
    let ends_ms = sandbox.ends_ms.unwrap_or(UnixMs::MIN);
    ends_ms.saturating_sub(options.margin_ms)
}

/// How long it may run in all: as long as is paid, less the same. Where a clock was set to another time, moments say
/// nothing; this still holds.
pub(super) fn may_run_in_all(sandbox: &Sandbox, options: &Options) -> i64 {
    sandbox.paid_minutes.saturating_mul(MINUTE_MS).saturating_sub(options.margin_ms)
}

/// A lease that says more than the last, if it is not over already.
fn lease(note: &Note, until_ms: UnixMs, now_ms: UnixMs) -> Option<Act> {
    let says_more = note.leased_ms.is_none_or(|leased_ms| leased_ms < until_ms);
    (says_more && until_ms > now_ms).then_some(Act::Lease { until_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::row;
    use crate::sandbox::NextShape;

    const NOW: UnixMs = 1_000_000;

    fn running() -> Sandbox {
        Sandbox {
            status: Status::Running,
            started_ms: Some(NOW - 10_000),
            paid_minutes: 1,
            ends_ms: Some(NOW + 50_000),
            ..row()
        }
    }

    /// An agent that was seen just now, with the lease that it should have.
    fn known() -> Note {
        Note {
            leased_ms: Some(NOW + 49_000),
            frozen: Some(false),
            seen_ms: Some(NOW),
            ..Note::default()
        }
    }

    fn act(row: &Sandbox, note: &Note) -> Act {
        next_act(row, note, &Options::default(), NOW)
    }

    #[test]
    fn each_status_wants_something() {
        let of =
            |status, started_ms| Sandbox { status, started_ms, ends_ms: Some(NOW), ..running() };
        let cases = [
            (of(Status::Starting, None), Act::Start),
            (of(Status::Ending, None), Act::Remove),
            (of(Status::Ending, Some(1)), Act::Stop),
            (of(Status::Destroying, Some(1)), Act::Remove),
            (of(Status::Destroying, None), Act::Remove),
            (of(Status::Stopped, Some(1)), Act::Nothing),
            (of(Status::Failed, Some(1)), Act::Nothing),
            (of(Status::Destroyed, Some(1)), Act::Nothing),
        ];
        for (row, expected) in cases {
            assert_eq!(act(&row, &known()), expected, "{row:?}");
        }
    }

    #[test]
    fn a_lease_never_says_as_much_as_is_paid() {
        let lease = Act::Lease { until_ms: NOW + 49_000 };
        assert_eq!(act(&running(), &Note::default()), lease, "nobody knows what it has");
        assert_eq!(act(&running(), &known()), Act::Nothing);
        let shorter = Note { leased_ms: Some(NOW + 1_000), ..known() };
        assert_eq!(act(&running(), &shorter), lease);
        let longer = Note { leased_ms: Some(NOW + 90_000), ..known() };
        assert_eq!(act(&running(), &longer), Act::Nothing, "a lease takes nothing away");
        let over = Sandbox { ends_ms: Some(NOW + 1_000), ..running() };
        let act = act(&over, &Note { leased_ms: None, ..known() });
        assert_eq!(act, Act::Nothing, "what is over gets none: the meter has the word");
    }

    #[test]
    fn what_ends_runs_as_long_as_it_is_paid_and_no_longer() {
        let ending =
            |ends_ms| Sandbox { status: Status::Ending, ends_ms: Some(ends_ms), ..running() };
        let unknown = Note::default();
        assert_eq!(act(&ending(NOW + 5_000), &unknown), Act::Lease { until_ms: NOW + 4_000 });
        assert_eq!(act(&ending(NOW + 5_000), &known()), Act::Nothing);
        let unseen = Note { seen_ms: None, ..known() };
        assert_eq!(act(&ending(NOW + 5_000), &unseen), Act::Look, "it may have ended long ago");
        assert_eq!(act(&ending(NOW + 1_000), &known()), Act::Stop);
        assert_eq!(act(&ending(NOW - 1), &unknown), Act::Stop);
    }

    #[test]
    fn it_is_paused_resized_and_looked_at() {
        let paused = Sandbox { paused: true, ..running() };
        assert_eq!(act(&paused, &known()), Act::Freeze);
        let frozen = Note { frozen: Some(true), ..known() };
        assert_eq!(act(&paused, &frozen), Act::Nothing);
        assert_eq!(act(&running(), &frozen), Act::Thaw);
        let unseen = Note { seen_ms: None, frozen: None, ..known() };
        assert_eq!(act(&paused, &unseen), Act::Look, "nobody knows how it is");
        for seen_ms in [NOW - 15_000, NOW + 1] {
            let act = act(&running(), &Note { seen_ms: Some(seen_ms), ..known() });
            assert_eq!(act, Act::Look, "{seen_ms}");
        }
        let other = Shape { cpu_milli: 1, ram_mib: 2, disk_mib: 3 };
        let resized = Note { shape: Some(other), ..known() };
        let Shape { cpu_milli, ram_mib, .. } = running().shape;
        assert_eq!(act(&running(), &resized), Act::Resize(Resized { cpu_milli, ram_mib }));
        assert_eq!(
            act(&running(), &Note { shape: Some(running().shape), ..known() }),
            Act::Nothing
        );
        // What it gives up it gives up now; what it gets it gets when that is paid and has begun.
        let next = Shape { cpu_milli: 5_000, ram_mib: 128, disk_mib: 64 };
        let next = NextShape { shape: next, price: 1, from_ms: NOW + 1 };
        let soon = Sandbox { next: Some(next), ..running() };
        let note = Note { shape: Some(running().shape), ..known() };
        let ram_mib = 128;
        assert_eq!(act(&soon, &note), Act::Resize(Resized { cpu_milli, ram_mib }));
        let given = Shape { ram_mib, ..running().shape };
        let given = Note { shape: Some(given), ..known() };
        assert_eq!(act(&soon, &given), Act::Nothing);
        let begun = Sandbox { next: Some(NextShape { from_ms: NOW - 1, ..next }), ..running() };
        assert_eq!(act(&begun, &given), Act::Resize(Resized { cpu_milli: 5_000, ram_mib }));
    }

    #[test]
    fn what_fails_waits_twice_as_long_each_time_but_not_for_a_clock_that_was_set_back() {
        let options = Options::default();
        let unseen = Note { seen_ms: None, ..known() };
        let mut note = unseen.clone();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            note.failed(Kind::Look, &options, NOW);
            pauses.push(note.waits[&Kind::Look].not_before_ms - NOW);
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
        assert_eq!(next_act(&running(), &note, &options, NOW), Act::Nothing);
        assert_eq!(next_act(&running(), &note, &options, NOW + 30_000), Act::Look);
        assert_eq!(next_act(&running(), &note, &options, NOW - 1), Act::Look);
        note.done(Kind::Look);
        assert_eq!(note, unseen);
        assert_eq!(next_act(&running(), &note, &options, NOW), Act::Look);
    }

    /// A note of which everything has failed so often, but for what is told.
    fn failed(often: u32, but: &[Kind], note: Note) -> Note {
        let all = [
            Kind::Stop,
            Kind::Lease,
            Kind::Pause,
            Kind::Resize,
            Kind::Remove,
            Kind::Look,
            Kind::Start,
        ];
        let mut note = note;
        for kind in all.into_iter().filter(|kind| !but.contains(kind)) {
            (0..often).for_each(|_| note.failed(kind, &Options::default(), NOW));
        }
        note
    }

    #[test]
    fn a_lease_and_a_stop_wait_for_nothing_else_that_failed() {
        let unleased = Note { leased_ms: None, ..known() };
        let lease = Act::Lease { until_ms: NOW + 49_000 };
        assert_eq!(act(&running(), &failed(9, &[Kind::Lease], unleased.clone())), lease);
        assert_eq!(act(&running(), &failed(9, &[], unleased.clone())), Act::Nothing);
        let over = Sandbox { status: Status::Ending, ends_ms: Some(NOW), ..running() };
        assert_eq!(act(&over, &failed(9, &[Kind::Stop], known())), Act::Stop);
        assert_eq!(act(&over, &failed(9, &[], known())), Act::Nothing);
        // And themselves they are tried often in the seconds that there are.
        let late = failed(9, &[], unleased);
        let options = Options::default();
        assert_eq!(next_act(&running(), &late, &options, NOW + 2_000), lease);
        assert_eq!(next_act(&over, &late, &options, NOW + 2_000), Act::Stop);
    }

    #[test]
    fn what_is_too_much_is_taken_at_once_and_what_is_missing_is_given_when_it_was_seen_twice() {
        let held = running().shape;
        let resize = Act::Resize(Resized { cpu_milli: held.cpu_milli, ram_mib: held.ram_mib });
        let seen = |note: &mut Note, shape, row: &Sandbox| {
            note.has(shape, row, NOW);
            act(row, note)
        };
        let fresh = || Note { shape: Some(held), ..known() };
        let (less, more) = (Shape { ram_mib: 1, ..held }, Shape { ram_mib: 9_999, ..held });
        let both = Shape { cpu_milli: 1, ..more };
        assert_eq!(seen(&mut fresh(), held, &running()), Act::Nothing);
        assert_eq!(seen(&mut fresh(), more, &running()), resize);
        assert_eq!(seen(&mut fresh(), both, &running()), resize);
        for mut note in [fresh(), known()] {
            // Somebody takes away what a write that is under way gives up.
            assert_eq!(seen(&mut note, less, &running()), Act::Nothing);
            let other = Sandbox { version: 2, ..running() };
            assert_eq!(seen(&mut note, less, &other), Act::Nothing, "it was written meanwhile");
            assert_eq!(seen(&mut note, less, &other), resize, "nobody has written for so long");
        }
        // An agent that does not say what it has, and nobody who remembers it.
        assert_eq!(seen(&mut known(), UNKNOWN_SHAPE, &running()), resize);
    }

    #[test]
    fn what_cannot_be_done_holds_up_nothing_else() {
        let other = Some(Shape { cpu_milli: 1, ram_mib: 2, disk_mib: 3 });
        let mut failing = Note { shape: other, frozen: Some(true), seen_ms: None, ..known() };
        let Shape { cpu_milli, ram_mib, .. } = running().shape;
        let mut done = Vec::new();
        for _ in 0..4 {
            let act = act(&running(), &failing);
            done.push(act);
            act.kind().into_iter().for_each(|kind| failing.failed(kind, &Options::default(), NOW));
        }
        let resize = Act::Resize(Resized { cpu_milli, ram_mib });
        assert_eq!(done, [Act::Thaw, resize, Act::Look, Act::Nothing]);
    }

    #[test]
    fn the_most_urgent_comes_first() {
        let mut acts = [Act::Start, Act::Look, Act::Lease { until_ms: 1 }, Act::Remove, Act::Stop];
        acts.sort();
        let expected = [Act::Stop, Act::Lease { until_ms: 1 }, Act::Remove, Act::Look, Act::Start];
        assert_eq!(acts, expected);
    }
}
