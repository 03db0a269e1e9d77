//! What changes, as a server-sent stream: whoever follows a page asks for it again when something has happened.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::stream::Stream;
use serde_json::json;

use super::Visit;
use crate::events::{Follow, stream};
use crate::{Result, Shared};

/// How often it is looked whether something has changed.
const EVERY_MS: i64 = 2_000;

pub(super) async fn events(
    State(shared): State<Shared>,
    visit: Visit,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    // Whoever may not look is told so before the stream begins.
    let overview = visit.desk.overview(&visit.viewer, None).await?;
    let watch = Watch { shared: shared.clone(), visit, mark: overview.mark(), seq: 0 };
    stream(shared, watch)
}

struct Watch {
    shared: Shared,
    visit: Visit,
    mark: String,
    seq: i64,
}

impl Follow for Watch {
    async fn next(&mut self) -> Result<Vec<Event>> {
        loop {
            if self.seq > 0 {
                self.shared.clock.sleep(EVERY_MS).await;
            }
            let overview = self.visit.desk.overview(&self.visit.viewer, None).await?;
            let mark = overview.mark();
            if self.seq > 0 && mark == self.mark {
                continue;
            }
            (self.mark, self.seq) = (mark, self.seq.saturating_add(1));
            let burn = match (&overview.balance, &overview.house) {
                (Some(balance), _) => balance.burn_micro_usd_per_minute,
                (None, house) => house.as_ref().map_or(0, |house| house.burn),
            };
            let data = json!({
                "burn_micro_usd_per_minute": burn,
                "free_micro_usd": overview.balance.as_ref().map(|balance| balance.free_micro_usd),
                "minutes_left": overview.balance.as_ref().and_then(|balance| balance.minutes_left),
                "open_sandboxes": overview.open.len(),
            });
            return Ok(vec![Event::default().event("hosting").data(data.to_string())]);
        }
    }
}
