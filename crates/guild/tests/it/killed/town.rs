//! Those who take part: their homes, which stay, and their processes, which come and go.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use testbed::{NostrRelay, now_ms, wait_ms};

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

/// How long anything may take, with everybody back; more than enough.
const PATIENCE_MS: i64 = 120_000;
const LOOK_MS: u64 = 15;

/// Somebody who can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Buyer,
    Provider,
    Relay,
}

impl Who {
    pub(super) const ALL: [Who; 3] = [Who::Buyer, Who::Provider, Who::Relay];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Who::Buyer => "buyer",
            Who::Provider => "provider",
            Who::Relay => "relay",
        }
    }
}

/// One kill.
#[derive(Debug)]
pub(super) struct Blow {
    /// So long after the job was ordered for the first time.
    pub(super) at_ms: u64,
    pub(super) whom: Who,
    /// How long until it is started again.
    pub(super) down_ms: u64,
}

/// The homes of the two nodes. All they know of each other comes over the relay.
pub(super) struct Town {
    pub(super) buyer: Home,
    pub(super) provider: Home,
}

impl Town {
    pub(super) fn new(relay: &NostrRelay) -> Town {
        let home = || {
            let home = Home::new().with("GUILD_NETWORK_RELAYS", &relay.url());
            // Every order here is one that the test knows of.
            home.with("GUILD_BUYER_HIDDEN_RATE_BP", "0")
        };
        let buyer = home().with("GUILD_PROVIDER_ENABLED", "false");
        // So little that nobody's credit ends, however often it is run.
        let provider = home().with("GUILD_PROVIDER_PRICE_MSAT", "100");
        Town { buyer, provider }
    }

    /// Gives the buyer something to spend.
    pub(super) fn fund(&self) {
        let fund = ["ledger", "transfer", "--from", "outside/main", "--to", "node/wallet"];
        let run =
            self.buyer.run(&[&fund[..], &["--asset", "BTC_LN", "--units", "10000000"]].concat());
        assert_eq!(run.code, 0, "{run:?}");
    }

    /// Orders, again and again under the same key, until somebody answers.
    pub(super) fn hire(&self, wish: &Value) -> Value {
        until("an answer to the order", || match ask(&self.buyer, "/api/orders", Some(wish)) {
            Some((201, order)) => Some(order),
            // It has not heard yet who offers work.
            Some((_, told)) if told["error"]["code"] == "buyer.no_provider" => None,
            Some(told) => panic!("{told:?}"),
            None => None,
        })
    }

    pub(super) fn until_over(&self, order_id: &str) -> Value {
        let path = format!("/api/orders/{order_id}");
        until("the end of the order", || match ask(&self.buyer, &path, None) {
            Some((200, order)) => {
                let goes_on = order["state"] == "posted" || order["state"] == "delivered";
                (!goes_on).then_some(order)
            }
            Some(told) => panic!("{told:?}"),
            None => None,
        })
    }

    pub(super) fn until_booked(&self, request_id: &str) {
        let path = format!("/api/requests/{request_id}");
        until("the receipt at the provider", || match ask(&self.provider, &path, None) {
            Some((200, story)) => (story["request"]["standing"] == "paid").then_some(()),
            Some(told) => panic!("{told:?}"),
            None => None,
        });
    }
}

/// Looks until it is so.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until_ms = now_ms() + PATIENCE_MS;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now_ms() < until_ms, "not within {PATIENCE_MS} ms: {what}");
        wait_ms(LOOK_MS);
    }
}

/// Asks the node of a home, as its owner; none if it does not answer, or not to the end.
fn ask(home: &Home, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    let file = fs::read(home.path().join(".local/share/guildhall/node.json")).ok()?;
    let file: Value = serde_json::from_slice(&file).ok()?;
    let url = format!("{}{path}", file["url"].as_str()?);
    let token = format!("Bearer {}", file["token"].as_str()?);
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent: ureq::Agent = config.timeout_global(Some(Duration::from_secs(10))).build().into();
    let answer = match body {
        Some(body) => agent.post(&url).header("authorization", token).send_json(body),
        None => agent.get(&url).header("authorization", token).call(),
    };
    let mut answer = answer.ok()?;
    Some((answer.status().as_u16(), answer.body_mut().read_json().ok()?))
}

/// What runs.
pub(super) struct Processes<'a> {
    town: &'a Town,
    buyer: Option<Node>,
    provider: Option<Node>,
    relay: NostrRelay,
    relay_is_up: bool,
}

impl<'a> Processes<'a> {
    pub(super) fn start(town: &'a Town, relay: NostrRelay) -> Processes<'a> {
        let (buyer, provider) = (None, None);
        let mut all = Processes { town, buyer, provider, relay, relay_is_up: true };
        all.raise(Who::Buyer);
        all.raise(Who::Provider);
        all
    }

    /// The key of the one that works.
    pub(super) fn provider_key(&self) -> String {
        self.provider.as_ref().unwrap().ready["provider"].as_str().unwrap().to_owned()
    }

    /// Kills and starts again, each at its time; who was hit, and what `stage` said then. In the end all are there.
    pub(super) fn suffer<T>(&mut self, blows: &[Blow], stage: impl Fn() -> T) -> Vec<(Who, T)> {
        let kills = blows.iter().map(|blow| (blow.at_ms, false, blow.whom));
        let starts = blows.iter().map(|blow| (blow.at_ms + blow.down_ms, true, blow.whom));
        let mut acts: Vec<(u64, bool, Who)> = kills.chain(starts).collect();
        acts.sort_by_key(|(at_ms, is_start, _)| (*at_ms, *is_start));
        let begin_ms = now_ms();
        let mut hit = Vec::new();
        for (at_ms, is_start, who) in acts {
            let due_ms = begin_ms + i64::try_from(at_ms).unwrap();
            wait_ms(u64::try_from(due_ms - now_ms()).unwrap_or(0));
            if is_start {
                self.raise(who);
            } else if self.kill(who) {
                hit.push((who, stage()));
            }
        }
        hit
    }

    /// Whether it ran.
    fn kill(&mut self, who: Who) -> bool {
        match who {
            Who::Buyer => self.buyer.take().map(Node::kill).is_some(),
            Who::Provider => self.provider.take().map(Node::kill).is_some(),
            Who::Relay => {
                self.relay.kill().unwrap();
                std::mem::replace(&mut self.relay_is_up, false)
            }
        }
    }

    fn raise(&mut self, who: Who) {
        match who {
            Who::Buyer => {
                self.buyer.get_or_insert_with(|| Node::up(&self.town.buyer, &ANY_PORT));
            }
            Who::Provider => {
                self.provider.get_or_insert_with(|| Node::up(&self.town.provider, &ANY_PORT));
            }
            Who::Relay if self.relay_is_up => {}
            Who::Relay => {
                self.relay.resume().unwrap();
                self.relay_is_up = true;
            }
        }
    }

    /// Ends both nodes in order.
    pub(super) fn stop(self) {
        for node in [self.buyer, self.provider].into_iter().flatten() {
            assert_eq!(node.stop(), 0);
        }
    }
}
