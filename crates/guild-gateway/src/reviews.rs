//! Reviews of this node: whoever has its token may have one published.

use axum::Json;
use axum::extract::State;
use guild_roles::reviews::ReviewId;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Error, Result, Shared};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    review_id: String,
    #[serde(default)]
    now: bool,
}

pub(crate) async fn publish(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<Asked>,
) -> Result<Json<Value>> {
    let path = || Error::NoSuchPath("/api/reviews/publish".to_owned());
    let reviews = shared.reviews.as_ref().ok_or_else(path)?;
    let review_id: ReviewId = asked
        .review_id
        .parse()
        .map_err(|_| Error::bad("review_id", "must be the id of a review, review_…"))?;
    let row = reviews.publish(review_id, asked.now).await?;
    Ok(Json(
        json!({ "review_id": row.review_id, "state": row.state.as_str(), "events": row.event_ids }),
    ))
}
