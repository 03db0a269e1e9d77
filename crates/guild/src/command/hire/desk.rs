//! Where orders are taken: the node that runs, or one that is started for it.

use guild_protocol::env::{Clock, Shutdown};
use guild_roles::code::NO_PROVIDER;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::now_ms;
use crate::client::Client;
use crate::config::{Environment, Loaded};
use crate::error::{Error, Result, code};
use crate::node::{Character, Node, NodeFile, Origin};
use crate::real::{SystemClock, runtime};

/// A node that has just started has yet to hear from its relays who offers work.
const MEETING_MS: i64 = 10_000;
/// How long a node that was started for one order waits until its receipt has left.
const FAREWELL_MS: i64 = 5_000;
const LOOK_MS: i64 = 100;

/// A node that takes orders.
pub(super) struct Desk {
    client: Client,
    pauses: Runtime,
    own: Option<Own>,
}

/// The node of this process.
struct Own {
    node: Node,
    shutdown: Shutdown,
    has_relays: bool,
}

impl Desk {
    pub(super) fn open(
        loaded: &Loaded,
        environment: &Environment,
        nodes: &Runtime,
    ) -> Result<Desk> {
        let pauses = runtime()?;
        let data_dir = &loaded.config.data_dir;
        if let Some(node) = NodeFile::of_running(data_dir)? {
            return Ok(Desk { client: Client::new(&node), pauses, own: None });
        }
        let loaded = &loaded.for_a_moment();
        let origin = Origin::Keystore(environment);
        let character = Character { origin, worker: None, metrics: None };
        let shutdown = Shutdown::new();
        let node = nodes.block_on(Box::pin(Node::start(loaded, character, &shutdown)))?;
        let file = NodeFile::of_running(data_dir)?;
        let file = file.ok_or_else(|| Error::new(&code::NODE_UNREACHABLE, "the node is gone"))?;
        let has_relays = !loaded.config.network.relays.0.is_empty();
        let own = Some(Own { node, shutdown, has_relays });
        Ok(Desk { client: Client::new(&file), pauses, own })
    }

    /// Whether the node is still there when this command has ended.
    pub(super) fn stays(&self) -> bool {
        self.own.is_none()
    }

    /// Orders. A node of our own first waits for somebody whom it could hire.
    pub(super) fn hire(&self, order: &Value, interrupted: &Shutdown) -> Result<Value> {
        let meets = self.own.as_ref().is_some_and(|own| own.has_relays);
        let until_ms = now_ms().saturating_add(if meets { MEETING_MS } else { 0 });
        loop {
            match self.client.hire(order) {
                Err(error)
                    if error.code() == &NO_PROVIDER
                        && now_ms() < until_ms
                        && !interrupted.is_triggered() =>
                {
                    self.pause(LOOK_MS);
                }
                told => return told,
            }
        }
    }

    pub(super) fn order(&self, order_id: &str) -> Result<Value> {
        self.client.order(order_id)
    }

    pub(super) fn pause(&self, duration_ms: i64) {
        self.pauses.block_on(SystemClock.sleep(duration_ms));
    }

    /// Ends a node of our own in order, once what it has to say has left.
    pub(super) fn close(self, nodes: &Runtime) -> Result<()> {
        let Some(Own { node, shutdown, .. }) = self.own else { return Ok(()) };
        nodes.block_on(async {
            let until_ms = now_ms().saturating_add(FAREWELL_MS);
            while node.has_mail().await? && now_ms() < until_ms {
                SystemClock.sleep(LOOK_MS).await;
            }
            shutdown.trigger();
            node.run().await
        })
    }
}
