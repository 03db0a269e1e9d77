//! What is offered for some work, if whoever asks for it does not say.

use guild_ledger::quote::Quote;
use guild_market::bid::{self, Bid, Wanted};
use guild_market::order::{self, OrderId};
use guild_protocol::amount::Msat;
use guild_protocol::schema::SchemaId;

use super::Buyer;
use crate::{Error, Result};

/// For what a bid is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enquiry {
    /// What kind of work.
    pub schema_id: SchemaId,
    /// What is wanted of it.
    pub wanted: Wanted,
    /// The caller's name for the order.
    pub idempotency_key: Option<String>,
}

/// What is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proposed {
    /// By the formula.
    Bid(Box<Bid>),
    /// What was offered when the order was made, or a guardian was asked about it: asking again changes nothing.
    Before(Msat),
}

impl Proposed {
    /// How much.
    pub fn budget(&self) -> Msat {
        match self {
            Proposed::Bid(bid) => bid.budget(),
            Proposed::Before(budget) => *budget,
        }
    }

    /// The bid, if it was made now.
    pub fn bid(&self) -> Option<&Bid> {
        match self {
            Proposed::Bid(bid) => Some(bid),
            Proposed::Before(_) => None,
        }
    }
}

impl Buyer {
    /// What to offer for some work: by the formula, from the settings and from how the latest orders went.
    pub async fn propose(&self, ask: Enquiry) -> Result<Proposed> {
        let options = self.0.options.bid.clone();
        let read = self.0.node.store.read(move |rx| {
            if let Some(key) = &ask.idempotency_key {
                let order_id = OrderId::of_key(key);
                if let Some(order) = order::find(rx, &order_id)? {
                    return Ok(Proposed::Before(order.budget));
                }
                if let Some(Quote { terms, .. }) = order::quoted(rx, &order_id)? {
                    return Ok(Proposed::Before(Msat(terms.wanted.amount.units)));
                }
            }
            let schema_id = ask.schema_id.as_str();
            let history = bid::history(rx, schema_id)?;
            let bid = bid::bid(schema_id, &options, ask.wanted, &history);
            Ok::<_, Error>(Proposed::Bid(Box::new(bid)))
        });
        read.await
    }
}
