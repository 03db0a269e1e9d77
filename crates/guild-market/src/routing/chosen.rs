//! Why an order went to whom it went, kept beside it.

use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx, args};
use serde_json::Value;

use super::Choice;
use super::log::canonical;
use crate::Result;
use crate::order::OrderId;

/// So much of an explanation is kept.
const WORDS_MAX_CHARS: usize = 4_000;

/// Why somebody was hired.
#[derive(Debug, Clone, PartialEq)]
pub struct Why {
    /// When it was decided.
    pub at_ms: UnixMs,
    /// By what: the name of a policy, or `cheapest`.
    pub how: String,
    /// For people.
    pub words: String,
    /// For programs: the choice, if a policy made it.
    pub document: Option<Value>,
}

impl Why {
    /// The words and the document of a choice.
    pub fn of(choice: &Choice) -> Why {
        Why {
            at_ms: choice.at_ms,
            how: choice.policy.name().to_owned(),
            words: choice.to_string(),
            document: serde_json::to_value(choice).ok(),
        }
    }
}

/// Keeps why an order went to its provider. What is there stays: it was decided once.
pub fn keep(tx: &mut Tx<'_>, order_id: &OrderId, why: &Why) -> Result<()> {
    let words: String = why.words.chars().take(WORDS_MAX_CHARS).collect();
    let document = why.document.as_ref().map(canonical).transpose()?;
    tx.exec(
        "INSERT INTO market_choice (order_id, at_ms, how, words, document)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (order_id) DO NOTHING",
        args![order_id.as_str(), why.at_ms, &why.how, &words, document.as_ref()],
    )?;
    Ok(())
}

/// Why an order went to its provider, if that was decided here and not by whoever ordered.
pub fn find(rx: &mut Rx<'_>, order_id: &OrderId) -> Result<Option<Why>> {
    let row: Option<(i64, String, String, Option<String>)> = rx.first(
        "SELECT at_ms, how, words, document FROM market_choice WHERE order_id = $1",
        args![order_id.as_str()],
    )?;
    Ok(row.map(|(at_ms, how, words, document)| {
        let document = document.and_then(|text| serde_json::from_str(&text).ok());
        Why { at_ms, how, words, document }
    }))
}
