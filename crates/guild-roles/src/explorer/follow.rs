//! What happens on the market, as it happens.

use futures_util::future::select;
use guild_bus::Listener;
use guild_market::TOPIC;
use guild_store::event;
use serde::Serialize;
use serde_json::Value;

use super::Explorer;
use super::words::{SAID_MAX_CHARS, clipped};
use crate::Result;

/// How many happenings are read at once.
const READ_MAX: i64 = 100;

/// Something that happened on the market: an order or a job went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Happening {
    /// Its number; later ones have larger numbers.
    pub seq: i64,
    /// Names it by what it is.
    pub id: String,
    /// What sort of thing.
    pub kind: String,
    /// When.
    pub at_ms: i64,
    /// All that is said about it.
    pub body: Value,
}

impl Explorer {
    /// The number before the last `count` happenings.
    pub async fn before_last(&self, count: i64) -> Result<i64> {
        Ok(self.turns.read(move |rx| event::before_last(rx, TOPIC, count)).await?)
    }

    /// Every happening after number `after`, in order, as they come.
    pub fn follow(&self, after: i64) -> Follower {
        // Listening begins before the first read, so nothing falls between the two.
        Follower { listener: self.bus.listen(TOPIC), explorer: self.clone(), after }
    }

    async fn happenings(&self, after: i64) -> Result<Vec<Happening>> {
        let events = self.turns.read(move |rx| event::after(rx, TOPIC, after, READ_MAX)).await?;
        Ok(events.into_iter().map(happening).collect())
    }
}

fn happening(event: event::Event) -> Happening {
    let event::Event { seq, id, kind, at_ms, body } = event;
    // Written as JSON by whoever decided; a text that is none is shown as it is.
    let mut body = serde_json::from_str(&body).unwrap_or(Value::String(body));
    if let Some(Value::String(words)) = body.get_mut("words") {
        *words = clipped(words, SAID_MAX_CHARS);
    }
    Happening { seq, id, kind, at_ms, body }
}

/// Follows the market from a number on. Each happening comes once, in order.
pub struct Follower {
    explorer: Explorer,
    listener: Listener,
    after: i64,
}

impl Follower {
    /// The next happenings; waits until there are any. A bell only shortens the wait.
    pub async fn next(&mut self) -> Result<Vec<Happening>> {
        loop {
            let happenings = self.explorer.happenings(self.after).await?;
            if let Some(last) = happenings.last() {
                self.after = last.seq;
                return Ok(happenings);
            }
            let sleep = self.explorer.clock.sleep(self.explorer.options.sweep_ms);
            select(self.listener.hear(), sleep).await;
        }
    }
}
