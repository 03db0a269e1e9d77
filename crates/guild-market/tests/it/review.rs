//! Reviews: what we say, what others say, and what that is worth.

use guild_market::order::{self, OrderId};
use guild_market::review::{self, Options, ReviewId, Row};
use guild_market::routing::log::{self, Appended};
use guild_market::routing::{Options as Routing, TaskType, work};
use guild_network::archive::{self, Verified};
use guild_protocol::env::Signer;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::job::{Input, JobResult, Request};
use guild_protocol::nostr::review::{Evidence, Form, Review};
use guild_protocol::nostr::{Event, unix_s};

use crate::world::{Node, T0, cheap, judge, new_order, output, provider, result_of};

mod others;
mod ours;

const WORK: &str = "oa.embedding.v1";
const HOUR_MS: i64 = 3_600_000;

fn task() -> TaskType {
    WORK.parse().unwrap()
}

/// Somebody with a key of its own, as many as are needed.
fn somebody(n: u32) -> SecretKey {
    let mut bytes = [9; 32];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    SecretKey::from_bytes(bytes).unwrap()
}

/// The provider of all orders here does one, well or not; what the matrix and the reviews make of it.
fn hired(node: &Node, name: &str, good: bool, now_ms: i64) -> (OrderId, Option<ReviewId>) {
    hired_by(node, &Options::default(), (name, false), good, now_ms)
}

fn hired_by(
    node: &Node,
    options: &Options,
    (name, private): (&str, bool),
    good: bool,
    now_ms: i64,
) -> (OrderId, Option<ReviewId>) {
    let mut new = new_order(name, 100);
    new.private = private;
    let order = node.post(&new).unwrap().order().unwrap();
    let by = provider().public_key();
    let text = if good { output(&new.job, &by) } else { cheap(&new.job, &by) }.to_string();
    let result = result_of(&order.request().unwrap(), &text, &provider(), T0 + 5);
    node.deliver(&result, T0 + 250).unwrap();
    node.settle(&order.order_id, &judge(&new.job, &text), T0 + 300).unwrap();
    let (_, noted) = ended(node, options, &order.order_id, now_ms);
    (order.order_id, noted)
}

fn ended(
    node: &Node,
    options: &Options,
    order_id: &OrderId,
    now_ms: i64,
) -> (Vec<Appended>, Option<ReviewId>) {
    let (order_id, options) = (order_id.clone(), options.clone());
    node.write(move |tx| {
        let order = order::get(tx, &order_id)?;
        let rows = work::ended(tx, &Routing::default(), &order, now_ms)?;
        let noted = review::ended(tx, &options, &order, &rows, now_ms)?;
        Ok((rows, noted))
    })
    .unwrap()
}

fn row(node: &Node, review_id: &ReviewId) -> Row {
    let review_id = review_id.clone();
    node.read(move |rx| review::get(rx, &review_id))
}

fn trust_bp(node: &Node, of: &PublicKey) -> u32 {
    let of = *of;
    node.read(move |rx| log::latest(rx, &task(), &of)).unwrap().trust_bp
}

/// Puts events into the archive, as the intake does.
fn keep(node: &Node, events: &[Event]) {
    let events: Vec<Verified> =
        events.iter().map(|event| Verified::check(event.clone()).unwrap()).collect();
    node.write(move |tx| {
        archive::put(tx, &events, "ws://relay.example", T0)?;
        Ok(())
    })
    .unwrap();
}

/// What somebody asks somebody for, and what comes back.
fn dealt(buyer: &SecretKey, provider: &SecretKey, name: &str) -> (Event, Event) {
    let mut request = Request::new(5050);
    request.inputs.push(Input::text(name));
    request.providers.push(provider.public_key());
    let request = request.draft(unix_s(T0)).unwrap().sign(buyer).unwrap();
    let result = JobResult::answering(&request, "done").unwrap();
    let result = result.draft(unix_s(T0)).unwrap().sign(provider).unwrap();
    (request, result)
}

fn citing(request: &Event, result: &Event) -> Evidence {
    Evidence { request_id: Some(request.id), result_id: Some(result.id), ..Evidence::default() }
}

/// What somebody says of somebody.
fn said(by: &SecretKey, of: &PublicKey, trust_bp: u32, evidence: Evidence, at_ms: i64) -> Event {
    said_as(Form::Review, by, of, (trust_bp, evidence), at_ms)
}

fn said_as(
    form: Form,
    by: &SecretKey,
    of: &PublicKey,
    (trust_bp, evidence): (u32, Evidence),
    at_ms: i64,
) -> Event {
    let review = Review { evidence, ..Review::new(*of, WORK, trust_bp) };
    review.draft(form, unix_s(at_ms)).unwrap().sign(by).unwrap()
}
