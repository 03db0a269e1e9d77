//! Where orders are taken: the node that runs, or one that is started for it.

use guild_market::code::DELEGATION_TOO_FEW;
use guild_protocol::env::{Clock, Shutdown};
use guild_protocol::error::Code;
use guild_roles::code::NO_PROVIDER;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::client::Client;
use crate::config::{Environment, Loaded};
use crate::error::{Error, Result, code};
use crate::node::{Character, Node, NodeFile, Origin};
use crate::real::{SystemClock, runtime};

/// How long somebody else may be at the data directory before it is given up.
const BUSY_WAIT_MS: i64 = 5_000;
/// How long a node that is gone may take to come back, before this process becomes the node: one that is being
/// restarted must find its place free.
const RETURN_MS: i64 = 5_000;
/// A node that has just started has yet to hear from its relays who offers work.
const MEETING_MS: i64 = 10_000;
/// How long a node that was started for one order waits until its receipt has left.
const FAREWELL_MS: i64 = 5_000;
const LOOK_MS: i64 = 100;

/// What may be otherwise in a moment: the node ends, starts again, has another token by now, or is busy.
const PASSING: [&Code; 5] = [
    &code::NODE_RUNNING,
    &code::NODE_UNREACHABLE,
    &guild_gateway::code::NO_TOKEN,
    &guild_gateway::code::TOO_SLOW,
    &guild_store::code::CLOSED,
];

/// A node that takes orders. It may be another one from question to question: the node that runs may be restarted, and
/// one that another command started for itself ends with that command. Whatever is asked here can be asked again.
pub(in crate::command) struct Desk<'a> {
    loaded: &'a Loaded,
    environment: &'a Environment,
    nodes: &'a Runtime,
    pauses: Runtime,
    client: Option<Client>,
    own: Option<Own>,
    /// When the node that ran was last there.
    seen_ms: Option<i64>,
}

/// The node of this process.
struct Own {
    node: Node,
    shutdown: Shutdown,
    has_relays: bool,
}

impl<'a> Desk<'a> {
    pub(in crate::command) fn open(
        loaded: &'a Loaded,
        environment: &'a Environment,
        nodes: &'a Runtime,
    ) -> Result<Desk<'a>> {
        let pauses = runtime()?;
        let (client, own, seen_ms) = (None, None, None);
        let mut desk = Desk { loaded, environment, nodes, pauses, client, own, seen_ms };
        let until_ms = now_ms().saturating_add(BUSY_WAIT_MS);
        desk.ask(until_ms, &Shutdown::new(), |_| Ok(()))?;
        Ok(desk)
    }

    /// Asks, and asks again for as long as the node is only away for a moment.
    pub(in crate::command) fn ask<T>(
        &mut self,
        until_ms: i64,
        interrupted: &Shutdown,
        ask: impl Fn(&Client) -> Result<T>,
    ) -> Result<T> {
        loop {
            match self.reach().and_then(&ask) {
                Err(error)
                    if PASSING.contains(&error.code())
                        && now_ms() < until_ms
                        && !interrupted.is_triggered() =>
                {
                    if self.own.is_none() {
                        self.client = None;
                    }
                    self.pause(LOOK_MS);
                }
                answer => {
                    self.seen_ms = self.own.is_none().then(now_ms);
                    return answer;
                }
            }
        }
    }

    /// The node that runs. If there is none, and none that was there is expected back, this process becomes it.
    fn reach(&mut self) -> Result<&Client> {
        if self.client.is_none() {
            let running = NodeFile::of_running(&self.loaded.config.data_dir)?;
            let away = self.seen_ms.is_some_and(|at| now_ms() < at.saturating_add(RETURN_MS));
            self.client = match running {
                Some(node) => Some(Client::new(&node)),
                None if away => None,
                None => Some(self.start()?),
            };
        }
        self.client.as_ref().ok_or_else(|| Error::new(&code::NODE_UNREACHABLE, "the node is gone"))
    }

    fn start(&mut self) -> Result<Client> {
        let loaded = &self.loaded.for_a_moment();
        let origin = Origin::Keystore(self.environment);
        let sandbox = crate::sandbox::open(&loaded.config, self.environment);
        let models = crate::models::read(loaded, self.environment)?;
        let tool_env = crate::models::tool_env(loaded, self.environment);
        let metrics = None;
        let character = Character { origin, worker: None, sandbox, models, tool_env, metrics };
        let shutdown = Shutdown::new();
        let node = self.nodes.block_on(Box::pin(Node::start(loaded, character, &shutdown)))?;
        let has_relays = !loaded.config.network.relays.0.is_empty();
        let client = Client::new(node.file());
        self.own = Some(Own { node, shutdown, has_relays });
        Ok(client)
    }

    /// Whether the node is still there when this command has ended.
    pub(in crate::command) fn stays(&self) -> bool {
        self.own.is_none()
    }

    /// Orders, until a moment. A node of our own first waits for somebody whom it could hire. The order must have a
    /// key: an answer may be lost, and nobody is to be hired twice.
    pub(super) fn hire(
        &mut self,
        order: &Value,
        until_ms: i64,
        interrupted: &Shutdown,
    ) -> Result<Value> {
        let meeting_ms = now_ms().saturating_add(MEETING_MS);
        loop {
            let several = order.get("criticality").is_some();
            let told = self.ask(until_ms, interrupted, |client| match several {
                true => client.delegate(order),
                false => client.hire(order),
            });
            let meets = self.own.as_ref().is_some_and(|own| own.has_relays);
            match told {
                Err(error)
                    if [&NO_PROVIDER, &DELEGATION_TOO_FEW].contains(&error.code())
                        && meets
                        && now_ms() < meeting_ms
                        && !interrupted.is_triggered() =>
                {
                    self.pause(LOOK_MS);
                }
                told => return told,
            }
        }
    }

    /// An order as it stands; asks until a moment.
    pub(super) fn order(
        &mut self,
        order_id: &str,
        until_ms: i64,
        interrupted: &Shutdown,
    ) -> Result<Value> {
        self.ask(until_ms, interrupted, |client| client.order(order_id))
    }

    /// Gives an order up.
    pub(in crate::command) fn cancel(&mut self, order_id: &str) -> Result<Value> {
        let until_ms = now_ms().saturating_add(BUSY_WAIT_MS).saturating_add(RETURN_MS);
        self.ask(until_ms, &Shutdown::new(), |client| client.cancel(order_id))
    }

    pub(in crate::command) fn pause(&self, duration_ms: i64) {
        self.pauses.block_on(SystemClock.sleep(duration_ms));
    }

    /// Ends a node of our own in order, once what it has to say has left.
    pub(in crate::command) fn close(self) -> Result<()> {
        let Some(Own { node, shutdown, .. }) = self.own else { return Ok(()) };
        self.nodes.block_on(async {
            let until_ms = now_ms().saturating_add(FAREWELL_MS);
            while node.has_mail().await? && now_ms() < until_ms {
                SystemClock.sleep(LOOK_MS).await;
            }
            shutdown.trigger();
            node.run().await
        })
    }
}

/// Now, for those who wait.
pub(in crate::command) fn now_ms() -> i64 {
    SystemClock.now_ms()
}
