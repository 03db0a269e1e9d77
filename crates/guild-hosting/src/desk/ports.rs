//! Ways to the ports of a sandbox, for its owner. Each connection goes through the sandbox's agent to its own loopback:
//! there is no way from here to a port of anybody else, of this host or of the node.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use guild_sandbox::agent::Tunnel;

use crate::access::idempotency::Reply;
use crate::access::{Origin, Scope, Token};
use crate::api::{PortBody, PortClosed, PortView, Ports};
use crate::error::code;
use crate::machine::visit::Visit;
use crate::{Error, Result, SandboxId, port};

use super::{Desk, Sent, answer, parse};

/// How many connections go to the ports of one sandbox at once, and to those of all.
const WAYS_OF_SANDBOX: usize = 64;
const WAYS_MAX: usize = 512;
/// How often it is looked whether a connection may go on, and written down that it is used.
const LOOK_MS: i64 = 5_000;

/// Who goes where now.
pub(super) type Ways = Arc<Mutex<BTreeMap<SandboxId, usize>>>;

/// A connection to a port, and who uses it.
pub struct Way {
    /// Bytes to the port and from it.
    pub tunnel: Tunnel,
    /// Says whether it may go on.
    pub pass: Pass,
}

/// The right to use a connection, for a while.
pub struct Pass {
    visit: Visit,
    desk: Desk,
    token: Token,
    port: u16,
    /// Whether the port needs an address.
    exposed: bool,
    looked_ms: AtomicI64,
    _place: Place,
}

/// A place among the ways, given back at the end.
struct Place {
    ways: Ways,
    sandbox_id: SandboxId,
}

impl Place {
    fn take(ways: &Ways, sandbox_id: &SandboxId) -> Result<Place> {
        let mut taken = ways.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = taken.get(sandbox_id).copied().unwrap_or(0);
        let in_all = taken.values().fold(0_usize, |sum, ways| sum.saturating_add(*ways));
        if of_it >= WAYS_OF_SANDBOX || in_all >= WAYS_MAX {
            let message = format!("{of_it} connections to ports of {sandbox_id} are open");
            return Err(Error::refused(&code::TOO_MANY, message));
        }
        taken.insert(sandbox_id.clone(), of_it.saturating_add(1));
        Ok(Place { ways: ways.clone(), sandbox_id: sandbox_id.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let left = taken.get(&self.sandbox_id).map_or(0, |ways| ways.saturating_sub(1));
        match left {
            0 => taken.remove(&self.sandbox_id),
            left => taken.insert(self.sandbox_id.clone(), left),
        };
    }
}

impl Pass {
    /// Notes that the connection was used, and says whether it may go on: not if the sandbox has ended, the port was
    /// closed, or the token of its owner is good no more.
    pub async fn used(&self) -> Result<()> {
        let (now_ms, looked_ms) = (self.desk.now_ms(), self.looked_ms.load(Ordering::Relaxed));
        if (0..LOOK_MS).contains(&now_ms.saturating_sub(looked_ms)) {
            return Ok(());
        }
        self.looked_ms.store(now_ms, Ordering::Relaxed);
        self.stands().await?;
        self.visit.touch().await.map(drop)
    }

    /// Says whether the connection may go on, without a use of it.
    pub async fn stands(&self) -> Result<()> {
        let (token, port, exposed) = (self.token.clone(), self.port, self.exposed);
        let sandbox_id = self.visit.sandbox().sandbox_id.clone();
        let now_ms = self.desk.now_ms();
        let read = self.desk.0.store.read(move |rx| {
            let caller = crate::access::who(rx, &token, now_ms)?;
            caller.require(Scope::SandboxesExec)?;
            match exposed {
                true => port::require(rx, &caller.user_id, &sandbox_id, port),
                false => Ok(()),
            }
        });
        read.await
    }
}

impl Desk {
    fn public_origin(&self) -> Option<Origin> {
        self.0.options.siwe.origins.first().cloned()
    }

    /// Gives a port an address.
    pub async fn expose_port(&self, sent: Sent, id: &str, body: PortBody) -> Result<Reply> {
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        let origin = self.public_origin();
        self.write(sent, Scope::SandboxesExec, move |tx, caller, now_ms| {
            let port = port::expose(tx, &caller.user_id, &sandbox_id, body.port, now_ms)?;
            answer(201, &PortView::of(port, &sandbox_id, origin.as_ref()))
        })
        .await
    }

    /// The ports that have an address.
    pub async fn ports(&self, token: Token, id: &str) -> Result<Ports> {
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        let origin = self.public_origin();
        self.read(token, Scope::SandboxesRead, move |rx, caller, _| {
            let ports = port::list(rx, &caller.user_id, &sandbox_id)?.into_iter();
            let ports = ports.map(|port| PortView::of(port, &sandbox_id, origin.as_ref()));
            Ok(Ports { ports: ports.collect() })
        })
        .await
    }

    /// Takes the address of a port away.
    pub async fn close_port(&self, sent: Sent, id: &str, port: u16) -> Result<Reply> {
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        self.write(sent, Scope::SandboxesExec, move |tx, caller, _| {
            port::close(tx, &caller.user_id, &sandbox_id, port)?;
            answer(200, &PortClosed { port })
        })
        .await
    }

    /// A connection to a port that has an address.
    pub async fn way_to_port(&self, token: Token, id: &str, port: u16) -> Result<Way> {
        self.way(token, id, port, true).await
    }

    /// A connection to any port of a sandbox: whoever may run commands in it could make one from inside.
    pub async fn tunnel(&self, token: Token, id: &str, port: u16) -> Result<Way> {
        self.way(token, id, port, false).await
    }

    async fn way(&self, token: Token, id: &str, port: u16, exposed: bool) -> Result<Way> {
        port::check(port)?;
        let visit = self.enter(token.clone(), Scope::SandboxesExec, id).await?;
        let sandbox_id = visit.sandbox().sandbox_id.clone();
        let _place = Place::take(&self.0.ways, &sandbox_id)?;
        let (desk, looked_ms) = (self.clone(), AtomicI64::new(self.now_ms()));
        let pass = Pass { visit, desk, token, port, exposed, looked_ms, _place };
        pass.stands().await?;
        let tunnel = pass.visit.connect(port).await?;
        Ok(Way { tunnel, pass })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_for_each_sandbox_and_given_back() {
        let id = |n: u32| format!("sbx_{n:032x}").parse::<SandboxId>().unwrap();
        let ways = Ways::default();
        let mut held: Vec<Place> =
            (0..WAYS_OF_SANDBOX).map(|_| Place::take(&ways, &id(1)).unwrap()).collect();
        assert_eq!(Place::take(&ways, &id(1)).err().unwrap().code(), &code::TOO_MANY);
        let other = Place::take(&ways, &id(2)).unwrap();
        held.pop();
        assert!(Place::take(&ways, &id(1)).is_ok());
        drop((held, other));
        assert!(ways.lock().unwrap().is_empty());
        let all: Vec<Place> = (0..u32::try_from(WAYS_MAX).unwrap())
            .map(|n| Place::take(&ways, &id(n)).unwrap())
            .collect();
        assert!(Place::take(&ways, &id(9_999)).is_err());
        drop(all);
    }
}
