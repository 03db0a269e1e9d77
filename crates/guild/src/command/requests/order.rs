//! What this node bought: the result, and giving it up.

use std::str::FromStr;

use guild_market::order::{self, Order, OrderId, State};
use guild_protocol::nostr::EventId;
use serde_json::{Value, json};

use crate::command::hire::desk::Desk;
use crate::command::{Context, reading, up};
use crate::config::Loaded;
use crate::error::Result;
use crate::node;
use crate::output::Answer;
use crate::real::runtime;

/// Print the result of a request that this node bought
///
/// The exit code is 0 if the result was accepted, 1 if it was not, or if there is none, and 3 if nobody knows yet.
#[derive(Debug, clap::Args)]
pub(crate) struct ResultArgs {
    /// The id of the request, or of its order
    id: Named,
}

/// Give up a request that this node bought, as long as no result has come
///
/// The money that was set aside is free again, and everybody is asked to forget the request. Giving it up again changes
/// nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// The id of the request, or of its order
    id: Named,
}

/// How people name an order.
#[derive(Debug, Clone)]
enum Named {
    Request(EventId),
    Order(OrderId),
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        if let Ok(order_id) = text.parse() {
            return Ok(Named::Order(order_id));
        }
        let request_id = text.parse::<EventId>();
        request_id.map(Named::Request).map_err(|_| {
            "write 64 lower-case hex digits for a request, or the id of an order".to_owned()
        })
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Named::Request(id) => id.fmt(f),
            Named::Order(id) => id.fmt(f),
        }
    }
}

fn find(loaded: &Loaded, id: &Named) -> Result<Order> {
    let service = node::open_read_only(loaded)?;
    let named = id.clone();
    let found = runtime().map(|runtime| {
        runtime.block_on(service.handle().read(move |rx| match &named {
            Named::Request(request_id) => order::of_request(rx, request_id),
            Named::Order(order_id) => order::find(rx, order_id),
        }))
    });
    service.close();
    found??.ok_or_else(|| reading::unknown("order", id, "requests"))
}

pub(super) fn result(args: &ResultArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let order = find(&cx.config()?, &args.id)?;
    let answer = match order.state {
        State::Released => Answer::Yes,
        State::Posted | State::Delivered => Answer::Open,
        _ => Answer::No,
    };
    let output = order.output_text.as_deref().map(|text| {
        // What is not accepted need not be JSON.
        serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
    });
    if cx.out.json() {
        let body = json!({
            "order_id": order.order_id, "request_id": order.request_id, "state": order.state.as_str(),
            "output": output,
        });
        cx.out.object(answer == Answer::Yes, body)?;
        return Ok(answer);
    }
    if let Some(output) = &output {
        cx.out.document(output)?;
    }
    match order.state {
        State::Released => {}
        State::Withheld => cx.out.remark("this result was not accepted, and not paid"),
        State::Delivered => cx.out.remark("this result is not judged yet"),
        state => cx.out.remark(&format!("there is no result: the order is {}", state.as_str())),
    }
    Ok(answer)
}

pub(super) fn cancel(args: &CancelArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config_in_peace()?;
    let order = find(&loaded, &args.id)?;
    let runtime = up::node_runtime()?;
    let mut desk = Desk::open(&loaded, cx.environment, &runtime)?;
    let told = desk.cancel(order.order_id.as_str());
    let closed = desk.close();
    let told = told?;
    closed?;
    if cx.out.json() {
        cx.out.object(true, &told)?;
        return Ok(Answer::Yes);
    }
    let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    let request_id = text("request_id");
    cx.out.line(&format!("{request_id} is {}; the money is free again", text("state")))?;
    Ok(Answer::Yes)
}
