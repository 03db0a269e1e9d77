//! Looking at everybody who is hired: the role, and what it needs of this node.

use guild_protocol::env::Shutdown;
use guild_roles::buyer::Buyer;
use guild_roles::lifecycle::{Lifecycle, Node, Options};
use guild_roles::meeting::Meetings;

use super::{Parts, Supervisor};

/// Starts it.
pub(super) fn start(
    (buyer, meetings): (&Buyer, &Meetings),
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) {
    let node = Node {
        store: parts.store.clone(),
        clock: parts.clock.clone(),
        random: parts.random.clone(),
        buyer: buyer.clone(),
        meetings: Some(meetings.clone()),
    };
    let (lifecycle, stop) = (Lifecycle::new(Options::default(), node), shutdown.clone());
    supervisor.start("lifecycle", async move {
        lifecycle.run(stop).await;
        Ok(())
    });
}
