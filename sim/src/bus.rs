//! Bells between simulated processes: lost, doubled, late and out of order, while faults happen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use guild_bus::{Bus, Listener, Ringer};

use crate::fault::{Dice, Kind};
use crate::rates::Rates;
use crate::world::World;

/// Sees every bell at the moment it is rung.
pub type Witness = Arc<dyn Fn(&str, i64) + Send + Sync>;

/// One bus for all processes, as a bell server would be.
#[derive(Clone)]
pub struct SimBus {
    world: World,
    rates: Rates,
    topics: Arc<Mutex<BTreeMap<String, Vec<Ringer>>>>,
    witness: Witness,
    /// In some worlds no bell is ever heard, also after the faults: everything must come right without.
    mute: bool,
}

impl SimBus {
    /// A bus that tells `witness` of every bell.
    pub fn new(world: World, rates: Rates, witness: Witness) -> SimBus {
        let mute = world.fault(None, Kind::BellsMute, rates.one_in(Kind::BellsMute)).is_some();
        SimBus { world, rates, topics: Arc::default(), witness, mute }
    }

    fn meets(&self, kind: Kind) -> Option<Dice> {
        self.world.fault(None, kind, self.rates.one_in(kind))
    }

    fn deliver(&self, topic: &str, after: i64) {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ringers) = topics.get_mut(topic) {
            ringers.retain(|ringer| ringer.ring(after));
        }
    }
}

impl Bus for SimBus {
    fn ring(&self, topic: &str, after: i64) {
        (self.witness)(topic, after);
        if self.mute || self.meets(Kind::BellLost).is_some() {
            return;
        }
        let copies = if self.meets(Kind::BellDoubled).is_some() { 2 } else { 1 };
        for _ in 0..copies {
            // Late is also out of order: those that ring after it are heard before.
            let late_ms = self.meets(Kind::BellLate).map_or(0, |mut dice| dice.below_ms(80));
            let (this, topic) = (self.clone(), topic.to_owned());
            self.world.later(late_ms, move || this.deliver(&topic, after));
        }
    }

    fn listen(&self, topic: &str) -> Listener {
        let (ringer, listener) = Listener::pair();
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.entry(topic.to_owned()).or_default().push(ringer);
        listener
    }
}
