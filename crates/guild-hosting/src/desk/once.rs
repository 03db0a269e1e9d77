//! Effects outside of the database: each happens once for each idempotency key, whatever dies in between.

use guild_protocol::error::Kind;
use guild_store::{Store, Tx};

use crate::access::idempotency::{self, Answer, Begun, Reply, Request, Ticket};
use crate::access::{self, Caller};
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
        let who = caller.clone();
        let begin = move |tx: &mut Tx<'_>| {
            // Again, in this transaction: it may have been revoked since.
            access::check_still(tx, &who, now_ms)?;
            idempotency::begin(tx, &request, flight_ms, now_ms)
        };
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU8, Ordering};

    use guild_protocol::env::{BoxFuture, Clock, Random, UnixMs};
    use guild_protocol::hash::Hash;
    use guild_protocol::identity::SecretKey;
    use guild_store::{Hooks, Migrations, Options, Service};

    use super::*;
    use crate::UserId;
    use crate::access::session::{self, NewSession, Via};
    use crate::access::{nonce, rate, siwe};
    use crate::clamp::Policy;
    use crate::desk;
    use crate::machine::Abilities;
    use crate::machine::image::Images;
    use crate::machine::link::Link;
    use crate::machine::visit::{Door, Limits};

    const NOW: UnixMs = 1_768_435_200_000;

    #[derive(Default)]
    struct Fixed(AtomicU8);

    impl Clock for Fixed {
        fn now_ms(&self) -> UnixMs {
            NOW
        }

        fn sleep(&self, _: i64) -> BoxFuture<()> {
            Box::pin(std::future::pending())
        }
    }

    impl Random for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0.fetch_add(1, Ordering::SeqCst));
        }
    }

    fn desk(store: &Store, fixed: &Arc<Fixed>) -> Desk {
        let options = desk::Options {
            policy: Policy::default(),
            siwe: siwe::Policy { origins: vec![], chain_ids: BTreeSet::new(), skew_ms: 0 },
            session_ms: 60_000,
            rate: rate::Options::default(),
            nonces: nonce::Limits::default(),
            machine: "local".to_owned(),
            abilities: Abilities { pause: true, resize: false },
            bypass: false,
        };
        let key = Arc::new(SecretKey::from_bytes([9; 32]).unwrap());
        let link = Link::new(key, fixed.clone(), fixed.clone());
        let door = Door::new(store.clone(), link, Limits::default());
        let bus = Arc::new(guild_bus::Local::new());
        let (clock, random) = (fixed.clone(), fixed.clone());
        Desk::new(options, Arc::new(Images::new()), door, store.clone(), bus, clock, random)
    }

    /// Whoever was known a moment ago, and has been thrown out since.
    #[test]
    fn a_token_that_has_ended_meanwhile_has_no_effect() {
        let dir = tempfile::tempdir().unwrap();
        let all = Migrations::store().and(guild_ledger::migrations()).and(crate::migrations());
        let options = Options::file(&dir.path().join("node.db"));
        let service = Service::open(&options, &all, Hooks::default(), 0).unwrap();
        let (store, fixed) = (service.handle(), Arc::new(Fixed::default()));
        let desk = desk(&store, &fixed);
        let new = NewSession::make(&*fixed, &*fixed, 60_000);
        let token = new.token.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let user_id = UserId::of_wallet([1; 20]);
            let opened =
                move |tx: &mut Tx<'_>| session::open(tx, &user_id, Via::Siwe, &new, NOW).map(drop);
            store.write::<(), Error, _>(opened).await.unwrap();
            let caller = desk.who(token.clone()).await.unwrap();
            let sent = |key: &str| Sent {
                token: token.clone(),
                idempotency_key: key.to_owned(),
                method: "POST".to_owned(),
                path: "/v1/x".to_owned(),
                query: String::new(),
                body_hash: Hash::of(b""),
            };
            let had = Cell::new(0);
            let effect = async |_: String| {
                had.set(had.get() + 1);
                Answer::new(200, "{}")
            };
            assert!(!desk.once(&sent("a"), &caller, 1_000, effect).await.unwrap().repeated);
            assert!(desk.once(&sent("a"), &caller, 1_000, effect).await.unwrap().repeated);
            desk.sign_out(token.clone()).await.unwrap();
            for key in ["a", "b"] {
                let error = desk.once(&sent(key), &caller, 1_000, effect).await.unwrap_err();
                assert_eq!(error.code(), &access::code::UNAUTHENTICATED);
            }
            assert_eq!(had.get(), 1);
        });
        service.close();
    }
}
