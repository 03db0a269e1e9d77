//! Effects outside of the database: each happens once for each idempotency key, whatever dies in between.

use guild_protocol::error::Kind;
use guild_store::{Store, Tx};

use crate::access::Caller;
use crate::access::idempotency::{self, Answer, Begun, Reply, Request, Ticket};
use crate::{Error, Result};

use super::{Desk, Sent};

/// An effect that is being had. Whoever stops waiting for it lets go of it, so that the same request goes on at once.
struct Flight {
    store: Store,
    ticket: Option<Ticket>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // It is queued at once, and nobody waits for it.
            let release = move |tx: &mut Tx<'_>| idempotency::release(tx, &ticket);
            drop(self.store.write::<(), Error, _>(release));
        }
    }
}

/// Whether it may have happened all the same. A refusal says that it has not.
fn is_unknown(error: &Error) -> bool {
    matches!(error.code().kind, Kind::Unavailable | Kind::Internal | Kind::Corrupt)
}

impl Desk {
    /// Has an effect under an id that is the same for each try of this request, and keeps its answer. What is kept of
    /// the body cannot be guessed by trying: it may have held a secret.
    pub(super) async fn once<F: Future<Output = Result<Answer>>>(
        &self,
        sent: &Sent,
        caller: &Caller,
        flight_ms: i64,
        effect: impl FnOnce(String) -> F,
    ) -> Result<Reply> {
        let Sent { idempotency_key, method, path, query, body_hash, .. } = sent;
        let veiled = self.door().veil(body_hash)?;
        let request =
            Request::of_hash(&caller.user_id, method, path, idempotency_key, query, &veiled)?;
        let (now_ms, store) = (self.now_ms(), self.0.store.clone());
        let begin = move |tx: &mut Tx<'_>| idempotency::begin(tx, &request, flight_ms, now_ms);
        let ticket = match store.write::<Begun, Error, _>(begin).await? {
            Begun::Known(answer) => return Ok(Reply { answer, repeated: true }),
            Begun::Go(ticket) => ticket,
        };
        let mut flight = Flight { store: store.clone(), ticket: Some(ticket.clone()) };
        let had = effect(ticket.effect_id()).await;
        match &had {
            Err(error) if is_unknown(error) => {}
            had => {
                let answer = had.as_ref().ok().cloned();
                let land = move |tx: &mut Tx<'_>| match &answer {
                    Some(answer) => idempotency::finish(tx, &ticket, answer),
                    None => idempotency::give_up(tx, &ticket),
                };
                store.write::<(), Error, _>(land).await?;
                flight.ticket = None;
            }
        }
        Ok(Reply { answer: had?, repeated: false })
    }
}
