//! Models behind a line.

use std::sync::Arc;

use guild_protocol::env::{BoxFuture, Clock};
use serde_json::Value;

use super::dial::Address;
use super::draft::Draft;
use super::endpoint::{Endpoint, Endpoints};
use super::exchange::Exchange;
use super::frames::{Frames, Piece};
use super::wire::{self, Reader};
use super::{Chunks, Failure, Model, Prompt, Reply, failure};
use crate::{Error, Result};

/// A door to all models that answer at some endpoint.
///
/// It asks once. Whether and when to ask again is its caller's to decide, by what the failure says.
#[derive(Clone)]
pub struct Online(Arc<Door>);

struct Door {
    endpoints: Endpoints,
    exchange: Exchange,
}

impl Online {
    /// A door to these endpoints, which are checked.
    pub fn new(endpoints: Endpoints, clock: Arc<dyn Clock>) -> Result<Online> {
        endpoints.check()?;
        let exchange = Exchange { clock, limits: endpoints.limits };
        Ok(Online(Arc::new(Door { endpoints, exchange })))
    }
}

impl Model for Online {
    fn answer(&self, prompt: Prompt, chunks: Chunks) -> BoxFuture<Result<Reply, Failure>> {
        let door = self.0.clone();
        Box::pin(async move { door.answer(prompt, chunks).await })
    }
}

impl Door {
    async fn answer(&self, prompt: Prompt, chunks: Chunks) -> Result<Reply, Failure> {
        let wanted = match prompt.config.get("model") {
            None | Some(Value::Null) => None,
            Some(Value::String(model)) => Some(model.as_str()),
            Some(_) => return Err(Failure::Refused("the name of a model is a text".to_owned())),
        };
        let refused = |error: Error| Failure::Refused(error.to_string());
        let (endpoint, model) = self.endpoints.choose(wanted).map_err(refused)?;
        let answered = self.ask(endpoint, &model, prompt, chunks).await;
        answered.map_err(|failure| shown(failure, endpoint))
    }

    async fn ask(
        &self,
        endpoint: &Endpoint,
        model: &str,
        prompt: Prompt,
        chunks: Chunks,
    ) -> Result<Reply, Failure> {
        let malformed = |why: &str| Failure::Refused(format!("its url {why}"));
        let address = Address::parse(endpoint.url()).map_err(malformed)?;
        let (ask, mut reader) = wire::ask(endpoint, model, prompt);
        let mut answer = Box::pin(self.exchange.send(&address, ask)).await?;
        if !answer.status.is_success() {
            let body = Box::pin(answer.refusal()).await;
            let now_ms = self.exchange.clock.now_ms();
            return Err(failure::of_status(answer.status, &answer.headers, &body, now_ms));
        }
        let mut draft = Draft::new(chunks, &self.exchange.limits);
        let mut frames = Frames::of(&answer.headers)?;
        while !draft.is_over {
            match answer.next().await {
                Ok(Some(bytes)) => {
                    frames.feed(&bytes, |piece| take(reader.as_mut(), piece, &mut draft))?;
                }
                Ok(None) => break,
                // All was said: that the line broke after it takes nothing away.
                Err(Failure::Busy { .. }) if draft.is_finished => break,
                Err(failure) => return Err(failure),
            }
        }
        if !draft.is_over {
            frames.end(|piece| take(reader.as_mut(), piece, &mut draft))?;
        }
        if !draft.is_finished {
            let message = "the answer was cut off before its end".to_owned();
            return Err(Failure::Busy { message, retry_after_ms: None, cost_unknown: true });
        }
        let price = endpoint.prices.get(model);
        Ok(draft.into_reply(format!("{}/{model}", endpoint.name), price))
    }
}

/// What comes after the end is not looked at.
fn take(reader: &mut dyn Reader, piece: Piece, draft: &mut Draft) -> Result<(), Failure> {
    match piece {
        Piece::Said(piece) if !draft.is_over => reader.take(piece, draft),
        Piece::Done => {
            draft.is_finished = true;
            draft.is_over = true;
            Ok(())
        }
        Piece::Said(_) => Ok(()),
    }
}

/// A failure as it may be shown: who it was, without the key, and not too long.
fn shown(failure: Failure, endpoint: &Endpoint) -> Failure {
    let shown = |message: String| {
        let message = endpoint.redact(&message);
        failure::shortened(&format!("{}: {message}", endpoint.name))
    };
    match failure {
        Failure::Busy { message, retry_after_ms, cost_unknown } => {
            Failure::Busy { message: shown(message), retry_after_ms, cost_unknown }
        }
        Failure::Refused(message) => Failure::Refused(shown(message)),
        Failure::Garbled(message) => Failure::Garbled(shown(message)),
    }
}
