//! A copy of what is significant, kept elsewhere: a private message of the node to itself, on its relays (NIP-17).
//!
//! It is queued in the transaction that writes the rows, so it leaves if and only if they are there. Whoever has the
//! key can open them wherever relays keep them. Nothing here fetches them: `guild route verify --copies` compares those
//! that are in the archive.

use guild_network::archive::Verified;
use guild_network::publish::{self, Destinations};
use guild_protocol::env::{Signer, UnixMs};
use guild_protocol::identity::PublicKey;
use guild_protocol::json;
use guild_protocol::nostr::{Draft, Event, gift, kind, unix_s};
use guild_store::Tx;
use serde::{Deserialize, Serialize};

use super::log::{Appended, SCHEMA_VERSION, canonical};
use super::{Entry, Mutation, TaskType};
use crate::settle::Keys;
use crate::{Error, Result, code};

/// So many rows are in one message: encrypted twice, it still fits.
const ROWS_MAX: usize = 8;

/// One row, as it is copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copied {
    /// Its number.
    pub seq: i64,
    /// When.
    pub at_ms: UnixMs,
    /// Which work.
    pub task_type: TaskType,
    /// Whose entry.
    pub provider: PublicKey,
    /// What happened.
    pub mutation: Mutation,
    /// What the entry is afterwards.
    pub entry: Entry,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Letter {
    schema_version: u32,
    routing: Vec<Copied>,
}

/// Queues copies of those rows that are new and significant; how many messages that makes.
pub fn enqueue(
    tx: &mut Tx<'_>,
    rows: &[Appended],
    keys: &Keys<'_>,
    to: &Destinations,
    now_ms: UnixMs,
) -> Result<usize> {
    let rows: Vec<Copied> =
        rows.iter().filter(|row| row.is_significant()).map(Copied::from).collect();
    let mut count = 0_usize;
    for rows in rows.chunks(ROWS_MAX) {
        let event = letter(rows, keys, now_ms)?;
        publish::enqueue_aside(tx, &Verified::check(event)?, to, now_ms)?;
        count = count.saturating_add(1);
    }
    Ok(count)
}

impl From<&Appended> for Copied {
    fn from(row: &Appended) -> Copied {
        let effect = row.effect.clone();
        Copied {
            seq: effect.seq,
            at_ms: effect.at_ms,
            task_type: effect.task,
            provider: effect.provider,
            mutation: effect.mutation,
            entry: effect.entry,
        }
    }
}

fn letter(rows: &[Copied], keys: &Keys<'_>, now_ms: UnixMs) -> Result<Event> {
    let own = keys.key.public_key();
    let letter = Letter { schema_version: SCHEMA_VERSION, routing: rows.to_vec() };
    let rumor = Draft {
        kind: kind::PRIVATE_MESSAGE,
        created_at: unix_s(now_ms),
        tags: vec![vec!["p".to_owned(), own.hex()]],
        content: canonical(&letter)?,
    };
    Ok(gift::wrap(rumor, keys.key, &own, now_ms, keys.random)?)
}

/// The rows in a message of one's own. What somebody else has written is refused.
pub fn read(event: &Event, keys: &Keys<'_>) -> Result<Vec<Copied>> {
    let rumor = gift::unwrap(event, keys.key)?;
    let letter: Letter = json::decode(rumor.draft.content.as_bytes())?;
    let own = rumor.author == keys.key.public_key() && rumor.draft.kind == kind::PRIVATE_MESSAGE;
    if !own || letter.schema_version != SCHEMA_VERSION {
        let why = "a copy of routing rows is by somebody else, or of another version";
        return Err(Error::refused(&code::ROUTE_SNAPSHOT, why));
    }
    Ok(letter.routing)
}
