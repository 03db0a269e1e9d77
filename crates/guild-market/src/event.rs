//! What happens on the market, as events that others follow.

use guild_protocol::env::UnixMs;
use guild_protocol::json;
use guild_store::Tx;
use guild_store::event::{Appended, NewEvent, append};
use serde_json::Value;

use crate::Result;

/// The topic of the events of this crate, and of the bell that tells of them.
pub const TOPIC: &str = "market";

/// Tells that something has happened to an order or a job. `id` names the happening, so it is told once.
pub(crate) fn tell(
    tx: &mut Tx<'_>,
    id: &str,
    kind: &str,
    body: &Value,
    now_ms: UnixMs,
) -> Result<()> {
    let body = String::from_utf8_lossy(&json::to_canonical(body)?).into_owned();
    let event = NewEvent { topic: TOPIC, id, kind, at_ms: now_ms, body: &body };
    if let Appended::New(seq) = append(tx, &event)? {
        tx.ring(TOPIC, seq.saturating_sub(1));
    }
    Ok(())
}
