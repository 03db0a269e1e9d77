//! The clocks of the processes. Each has its own, which can be set to another time while faults happen; when they end,
//! all are right again.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_protocol::env::{BoxFuture, Clock, UnixMs};

use crate::fault::Dice;
use crate::world::World;

/// When the world begins. Late enough that a clock that is days behind shows no time before 1970.
pub const BEGIN_MS: UnixMs = 1_767_225_600_000;

const SECOND_MS: u64 = 1_000;
const DAY_MS: u64 = 24 * 3_600 * SECOND_MS;

/// The clock of one process: the world's time, and how far this clock is off.
#[derive(Clone)]
pub struct ProcessClock {
    world: World,
    off_ms: Arc<AtomicI64>,
}

impl ProcessClock {
    /// A clock that is right.
    pub fn new(world: World) -> ProcessClock {
        ProcessClock { world, off_ms: Arc::default() }
    }

    /// Sets it to another time: seconds to days off, either way.
    pub(crate) fn step(&self, dice: &mut Dice) {
        let longest_ms = [5 * SECOND_MS, 3_600 * SECOND_MS, 3 * DAY_MS][dice.below(3) as usize];
        let off_ms = dice.below_ms(longest_ms);
        let ahead = dice.below(2) == 0;
        self.off_ms.store(if ahead { off_ms } else { -off_ms }, Ordering::SeqCst);
    }

    /// Sets it right.
    pub(crate) fn set_right(&self) {
        self.off_ms.store(0, Ordering::SeqCst);
    }
}

/// A wait is a wait, whatever the clock shows.
impl Clock for ProcessClock {
    fn now_ms(&self) -> UnixMs {
        BEGIN_MS + self.world.now_ms() + self.off_ms.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        self.world.sleep(duration_ms)
    }
}
