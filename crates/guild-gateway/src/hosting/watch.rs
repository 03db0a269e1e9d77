//! What changes, as a server-sent stream: whoever follows a page asks for it again when something has happened.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::stream::Stream;
use guild_hosting::desk::Follower;
use serde_json::json;

use super::Visit;
use crate::events::{Follow, stream};
use crate::{Result, Shared};

pub(super) async fn events(
    State(shared): State<Shared>,
    visit: Visit,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    // Whoever may not look is told so before the stream begins.
    let follower = visit.desk.follow(visit.viewer).await?;
    stream(shared, follower)
}

impl Follow for Follower {
    async fn next(&mut self) -> Result<Vec<Event>> {
        let overview = Follower::next(self).await?;
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
        Ok(vec![Event::default().event("hosting").data(data.to_string())])
    }
}
