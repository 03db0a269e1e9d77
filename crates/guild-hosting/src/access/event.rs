//! What happens to sessions and keys, as events that others follow.

use guild_protocol::env::UnixMs;
use guild_store::Tx;
use guild_store::event::{Appended, NewEvent, append};
use serde_json::Value;

use crate::{Result, UserId};

/// The topic of the events of this module, and of the bell that tells of them.
pub const TOPIC: &str = "access";

/// Tells that something has happened to a session or a key. `id` names the happening, so it is told once. The body
/// holds ids and names, never a token.
pub(super) fn tell(
    tx: &mut Tx<'_>,
    id: &str,
    kind: &str,
    user_id: &UserId,
    about: Value,
    now_ms: UnixMs,
) -> Result<()> {
    let body = serde_json::json!({"about": about, "user_id": user_id.as_str()}).to_string();
    let event = NewEvent { topic: TOPIC, id, kind, at_ms: now_ms, body: &body };
    if let Appended::New(seq) = append(tx, &event)? {
        tx.ring(TOPIC, seq.saturating_sub(1));
    }
    Ok(())
}
