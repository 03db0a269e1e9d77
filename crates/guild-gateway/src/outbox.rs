//! The outbox: dead letters can be tried again.

use axum::Json;
use axum::extract::State;
use guild_roles::outbox::{NAMED_MAX, Which};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Error, Result, Shared};

/// Which dead letters: some by their numbers, or all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    #[serde(default)]
    seqs: Vec<i64>,
    #[serde(default)]
    all_dead: bool,
    sink: Option<String>,
}

impl Retry {
    fn which(self) -> Result<Which> {
        match (self.seqs.is_empty(), self.all_dead) {
            (true, true) => Ok(Which::AllDead { sink: self.sink }),
            (false, false) if self.sink.is_some() => Err(Error::bad("sink", "goes with all_dead")),
            (false, false) if self.seqs.len() > NAMED_MAX => {
                Err(Error::bad("seqs", format!("has at most {NAMED_MAX} numbers")))
            }
            (false, false) => Ok(Which::Named(self.seqs)),
            _ => Err(Error::bad("seqs", "must have a number, or all_dead must be true; not both")),
        }
    }
}

pub(crate) async fn retry(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<Retry>,
) -> Result<Json<Value>> {
    let answer = shared.outbox.retry(&asked.which()?).await?;
    Ok(Json(json!({ "retried": answer.retried, "not_dead": answer.not_dead })))
}
