//! The relay between the nodes. It loses nothing that it has taken; whoever reads it may read late, twice, and in
//! another order.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use guild_network::intake::{Intake, Origin, Verdict};
use guild_protocol::env::Clock;
use guild_protocol::nostr::{Event, EventId, Limits};
use guild_store::outbox::{Deliver, Failure, Message};

use super::bug::Bug;
use super::{GENTLE, LEASE_MS, RELAY, Shared, lock};
use crate::executor::Life;
use crate::fault::Kind;
use crate::world::World;

/// Everything that was published.
#[derive(Clone, Default)]
pub(super) struct Hub(Arc<Mutex<Vec<Event>>>);

impl Hub {
    pub(super) fn push(&self, event: Event) {
        let mut events = lock(&self.0);
        if !events.iter().any(|there| there.id == event.id) {
            events.push(event);
        }
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.others(&BTreeSet::new())
    }

    /// All but those that are known.
    fn others(&self, known: &BTreeSet<EventId>) -> Vec<Event> {
        lock(&self.0).iter().filter(|event| !known.contains(&event.id)).cloned().collect()
    }
}

/// What carries the events of a life to the relay.
pub(super) fn sink(shared: &Shared, life: &Life) -> Deliver {
    let (shared, life) = (shared.clone(), life.clone());
    Arc::new(move |message: Message| {
        let (shared, life) = (shared.clone(), life.clone());
        Box::pin(async move { deliver(&shared, &life, &message).await })
    })
}

async fn deliver(shared: &Shared, life: &Life, message: &Message) -> Result<(), Failure> {
    let world = &shared.world;
    let Ok(event) = Event::parse(message.body.as_bytes(), &Limits::DEFAULT) else {
        world.violate("[outbox] what is queued is no event".to_owned());
        return Err(Failure::Never("no event".to_owned()));
    };
    world.sleep(world.below_ms(15)).await;
    let dead = || Err(Failure::Retry("dead".to_owned()));
    // Deliveries are few, so each is as dangerous as elsewhere.
    let meets = |kind| world.fault(Some(life.process()), kind, shared.rates.crash.div_ceil(GENTLE));
    if meets(Kind::CrashBeforeDelivery).is_some() {
        life.die();
        return dead();
    }
    if let Some(mut dice) = meets(Kind::SinkTakesFromTheDead) {
        life.die();
        let hub = shared.hub.clone();
        world.later(dice.below_ms(400), move || hub.push(event));
        return dead();
    }
    if life.meets(Kind::SinkFails).is_some() {
        return Err(Failure::Retry("the relay fails now and then".to_owned()));
    }
    if life.meets(Kind::SinkStalls).is_some() {
        world.sleep(3 * LEASE_MS).await;
    }
    if shared.bug == Some(Bug::RelayForgets) && world.below(6) == 0 {
        return Ok(());
    }
    shared.hub.push(event);
    if life.meets(Kind::SinkAnswersLate).is_some() {
        world.sleep(3 * LEASE_MS).await;
    }
    if meets(Kind::CrashAfterDelivery).is_some() {
        life.die();
    }
    Ok(())
}

/// Reads the relay for one life of a node: everything, from the beginning, in any order, some of it twice.
pub(super) async fn pull(world: World, hub: Hub, intake: Intake) {
    let source = intake.source(&Origin::Relay(RELAY.to_owned()));
    let mut seen: BTreeSet<EventId> = BTreeSet::new();
    loop {
        let mut new = hub.others(&seen);
        while !new.is_empty() {
            let drawn = usize::try_from(world.below(new.len() as u64)).unwrap_or(0);
            let event = new.swap_remove(drawn);
            // Not now: it comes after others.
            if world.below(5) == 0 {
                continue;
            }
            let id = event.id;
            match source.offer(event).await {
                // It may be taken later: a database fails, and a clock shows a time that is not.
                Verdict::Refused(_) => {}
                // Once in a while it comes again.
                _ if world.below(8) == 0 => {}
                _ => {
                    seen.insert(id);
                }
            }
        }
        let pause_ms = 5 + world.below_ms(60);
        world.sleep(pause_ms).await;
    }
}
