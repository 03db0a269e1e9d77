//! Bells between simulated processes: lost, doubled, late and out of order, while faults happen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use guild_bus::{Bus, Listener, Ringer};

use crate::world::World;

/// Sees every bell at the moment it is rung.
pub type Witness = Arc<dyn Fn(&str, i64) + Send + Sync>;

/// One bus for all processes, as a bell server would be.
#[derive(Clone)]
pub struct SimBus {
    world: World,
    topics: Arc<Mutex<BTreeMap<String, Vec<Ringer>>>>,
    witness: Witness,
    /// In some worlds no bell is ever heard, also after the faults: everything must come right without.
    mute: bool,
}

impl SimBus {
    /// A bus that tells `witness` of every bell.
    pub fn new(world: World, witness: Witness) -> SimBus {
        let mute = world.below(8) == 0;
        SimBus { world, topics: Arc::default(), witness, mute }
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
        if self.mute || self.world.fault(8) {
            return;
        }
        let copies = if self.world.fault(8) { 2 } else { 1 };
        for _ in 0..copies {
            let late_ms = if self.world.fault(4) { self.world.below(80) } else { 0 };
            let (this, topic) = (self.clone(), topic.to_owned());
            let wait_ms = i64::try_from(late_ms).unwrap_or(0);
            self.world.later(wait_ms, move || this.deliver(&topic, after));
        }
    }

    fn listen(&self, topic: &str) -> Listener {
        let (ringer, listener) = Listener::pair();
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.entry(topic.to_owned()).or_default().push(ringer);
        listener
    }
}
