//! The bus that the settings ask for.

use std::sync::Arc;

use guild_bus::nats::{Options, Service};
use guild_bus::{Bus, Local, Nats};
use guild_protocol::env::{Clock, Random};

use crate::config::Loaded;
use crate::error::Result;

/// A bus, and the service that connects it if other processes are to hear it.
pub(super) struct Wired {
    pub(super) handle: Arc<dyn Bus>,
    /// Taken by the node that runs it. Whoever is there for one write does without: others find that on their sweep.
    pub(super) service: Option<Service>,
}

/// Where the server of the bus is; `None` if bells stay in this process.
pub(crate) fn nats_options(loaded: &Loaded) -> Option<Options> {
    let bus = &loaded.config.bus;
    let (url, namespace) = (bus.url.clone(), bus.namespace.clone());
    (!url.is_empty()).then(|| Options { url, namespace, ..Options::default() })
}

/// Makes the bus. Nothing is connected yet, so a server that is out of reach is no failure here.
pub(super) fn wire(
    loaded: &Loaded,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
) -> Result<Wired> {
    let Some(options) = nats_options(loaded) else {
        return Ok(Wired { handle: Arc::new(Local::new()), service: None });
    };
    let (nats, service) = Nats::new(&options, clock, random)?;
    Ok(Wired { handle: Arc::new(nats), service: Some(service) })
}

#[cfg(test)]
mod tests {
    use guild_bus::subject::Topic;

    #[test]
    fn every_topic_can_be_carried() {
        for topic in [
            guild_store::audit::TOPIC,
            guild_store::outbox::TOPIC,
            guild_network::archive::TOPIC,
            guild_market::TOPIC,
        ] {
            assert!(Topic::is_valid(topic), "{topic}");
        }
    }
}
