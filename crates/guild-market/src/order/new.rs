//! An order before it is posted, and the request that it becomes.

use guild_ledger::policy::Tier;
use guild_protocol::amount::Msat;
use guild_protocol::env::{Random, UnixMs};
use guild_protocol::hash::Hash;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::json;
use guild_protocol::nostr::job::{Input, InputType, Param, Request};
use guild_protocol::nostr::{Event, is_relay_url, kind, tag, unix_s};
use guild_protocol::schema::Job;

use super::{Order, OrderId};
use crate::error::code;
use crate::meeting::INPUT_HASH;
use crate::{Error, Result};

/// The farthest deadline, from now: 14 days.
pub const MAX_DEADLINE_MS: i64 = 14 * 24 * 3_600 * 1_000;
/// The parameter of a request that says how many seconds after its making the result is due.
pub const TIME_LIMIT: &str = "time-limit";
/// The parameter of a request that names its order. Two orders of the same work in one second are two requests by it.
pub const ORDER_ID: &str = "order_id";

const KEY_MAX_BYTES: usize = 200;
const RELAYS_MAX: usize = 20;

/// What is to be ordered.
#[derive(Debug, Clone, PartialEq)]
pub struct NewOrder {
    /// The caller's name for it: ordering again under one key is the same order.
    pub order_key: String,
    /// The kind of the request's event.
    pub kind: u16,
    /// The work.
    pub job: Job,
    /// Who is to do it; none if it is open to all whose announcement names the schema.
    pub provider: Option<PublicKey>,
    /// How far we trust that one.
    pub provider_tier: Tier,
    /// What it says that it asks for, if it does.
    pub price: Option<Msat>,
    /// The most that is paid.
    pub budget: Msat,
    /// Until when the result must be here.
    pub deadline_ms: UnixMs,
    /// Whether input and result travel encrypted.
    pub private: bool,
    /// Where the request is published, and the answer expected.
    pub relays: Vec<String>,
}

impl NewOrder {
    /// Names it.
    pub fn order_id(&self) -> OrderId {
        OrderId::of_key(&self.order_key)
    }

    /// The request, signed, and encrypted if the order is private. Made outside of the transaction that posts it.
    pub fn request(&self, key: &SecretKey, random: &dyn Random, now_ms: UnixMs) -> Result<Event> {
        self.request_by(None, key, random, now_ms)
    }

    /// The same, where an address is given with a request that only refers to its input: whoever reads it there checks
    /// it by its hash. What is private is never referred to: others could read it there.
    pub fn request_by(
        &self,
        address: Option<&str>,
        key: &SecretKey,
        random: &dyn Random,
        now_ms: UnixMs,
    ) -> Result<Event> {
        let at = unix_s(now_ms);
        // Both sides count from the second of the request to that of the deadline: the provider's is never the later.
        let seconds = unix_s(self.deadline_ms).saturating_sub(at);
        let mut request = Request::new(self.kind);
        let payload = self.payload_text()?;
        match address.filter(|_| !self.private) {
            None => request.inputs.push(Input::text(payload).marked("spec")),
            Some(address) => {
                let hash = Hash::of(payload.as_bytes()).to_string();
                let input = Input { input_type: InputType::Url, ..Input::text(address) };
                request.inputs.push(input.marked("spec"));
                request.params.push(Param::new(INPUT_HASH, hash));
            }
        }
        request.output = Some("application/json".to_owned());
        request.schema_id = Some(self.job.schema_id().to_string());
        request.job_hash = Some(self.job.job_hash());
        request.params.push(Param::new(ORDER_ID, self.order_id().as_str()));
        request.params.push(Param::new(TIME_LIMIT, seconds.to_string()));
        request.bid = Some(self.bid());
        request.relays = self.relays.clone();
        request.providers = self.provider.into_iter().collect();
        request.encrypted = self.private;
        let draft = match self.private {
            true => request.sealed_draft(at, key, random)?,
            false => request.draft(at)?,
        };
        Ok(draft.sign(key)?)
    }

    /// What is bid: the price that the provider announces, if it does. One that has raised it since must refuse, and
    /// not work for less than it asks.
    fn bid(&self) -> Msat {
        self.price.unwrap_or(self.budget)
    }

    /// The payload as it is sent.
    pub fn payload_text(&self) -> Result<String> {
        let bytes = json::to_canonical(self.job.payload())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn check(&self, request: &Event, now_ms: UnixMs) -> Result<()> {
        let malformed = |what: &str| Err(Error::refused(&code::ORDER_MALFORMED, what));
        let key = &self.order_key;
        if key.is_empty() || key.len() > KEY_MAX_BYTES || key.chars().any(char::is_control) {
            return malformed("order_key must be 1 to 200 bytes of plain text");
        }
        if self.private && self.provider.is_none() {
            return malformed("what is private is encrypted to one provider: name it");
        }
        if self.budget.0 < 0 || self.price.is_some_and(|price| price.0 < 0) {
            return malformed("budget and price are zero or more");
        }
        if self.deadline_ms <= now_ms || self.deadline_ms.saturating_sub(now_ms) > MAX_DEADLINE_MS {
            return malformed("deadline_ms must be in the future, by at most 14 days");
        }
        if self.relays.len() > RELAYS_MAX || !self.relays.iter().all(|url| is_relay_url(url)) {
            return malformed("relays must be at most 20 addresses, ws:// or wss://");
        }
        self.check_request(request)?;
        match self.price {
            Some(price) if price.0 > self.budget.0 => {
                let message =
                    format!("{} msat are asked, the budget is {}", price.0, self.budget.0);
                Err(Error::refused(&code::PRICE, message))
            }
            _ => Ok(()),
        }
    }

    /// What is published must be what is paid for.
    fn check_request(&self, request: &Event) -> Result<()> {
        let provider = self.provider.map(|provider| provider.hex());
        let addressed: Vec<&str> = tag::values(&request.tags, "p").collect();
        let bid = self.bid().0.to_string();
        let fits = request.kind == self.kind
            && kind::is_request(self.kind)
            && addressed == provider.as_deref().into_iter().collect::<Vec<_>>()
            && request.tag("bid") == Some(bid.as_str())
            && tag::has(&request.tags, "encrypted") == self.private;
        if !fits {
            return Err(Error::refused(&code::ORDER_MALFORMED, "the request is not of this order"));
        }
        Ok(request.verify()?)
    }

    /// Whether an order that is there is this one.
    pub(super) fn check_same(&self, known: &Order) -> Result<()> {
        let same = known.job_hash == self.job.job_hash()
            && known.is_open == self.provider.is_none()
            && (known.is_open || known.provider == self.provider)
            && known.budget == self.budget
            && known.private == self.private;
        if same {
            return Ok(());
        }
        let message = format!("{:?} is the key of other work", self.order_key);
        Err(Error::refused(&code::ORDER_CONFLICT, message))
    }
}
