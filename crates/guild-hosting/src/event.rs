//! What happens to jobs, sandboxes and money, as events that others follow.

use guild_protocol::env::UnixMs;
use guild_protocol::json;
use guild_store::Tx;
use guild_store::event::{Appended, NewEvent, append_all};
use serde_json::Value;

use crate::Result;

/// The topic of the events of this crate, and of the bell that tells of them.
pub const TOPIC: &str = "hosting";

/// Something that has happened. `id` names the happening, so it is told once.
pub(crate) struct Told {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) body: Value,
}

/// Tells what has happened, in this order.
pub(crate) fn tell(tx: &mut Tx<'_>, told: &[Told], now_ms: UnixMs) -> Result<()> {
    if told.is_empty() {
        return Ok(());
    }
    let mut bodies = Vec::with_capacity(told.len());
    for told in told {
        bodies.push(String::from_utf8_lossy(&json::to_canonical(&told.body)?).into_owned());
    }
    let mut events = Vec::with_capacity(told.len());
    for (Told { id, kind, .. }, body) in told.iter().zip(&bodies) {
        events.push(NewEvent { topic: TOPIC, id, kind, at_ms: now_ms, body });
    }
    let first = append_all(tx, &events)?.into_iter().find_map(|appended| match appended {
        Appended::New(seq) => Some(seq),
        Appended::Known(_) => None,
    });
    if let Some(seq) = first {
        tx.ring(TOPIC, seq.saturating_sub(1));
    }
    Ok(())
}
