//! How a sandbox's agent is asked: with the node's key, and only the agent whose key is known.

use std::net::SocketAddr;
use std::sync::Arc;

use guild_protocol::env::{BoxFuture, Clock, Random, Signer, UnixMs};
use guild_protocol::hash::{Hash, Hasher};
use guild_protocol::identity::PublicKey;
use guild_sandbox::agent::{
    self, Attestation, Client, Health, Lease, LeaseStands, Party, SandboxId as AgentSandboxId,
    State,
};

use super::{Instance, code};
use crate::{Error, Result, SandboxId};

/// How often an agent that ends its sandbox is asked whether it has, and how long.
const LOOK_MS: i64 = 50;

/// How an agent is asked by whoever drives its machine. It is a [`Client`], unless the machine knows a shorter way to
/// its agents than the network.
pub trait Line: Send + Sync {
    /// What it says that it is.
    fn attestation(&self) -> BoxFuture<agent::Result<Attestation>>;

    /// How it is.
    fn health(&self) -> BoxFuture<agent::Result<Health>>;

    /// Brings it a lease.
    fn lease(&self, lease: Lease) -> BoxFuture<agent::Result<LeaseStands>>;

    /// Lets everything in its sandbox stand still, or go on.
    fn set_frozen(&self, frozen: bool) -> BoxFuture<agent::Result<()>>;
}

impl Line for Client {
    fn attestation(&self) -> BoxFuture<agent::Result<Attestation>> {
        let client = self.clone();
        Box::pin(async move { Ok(Client::attestation(&client).await?.attestation) })
    }

    fn health(&self) -> BoxFuture<agent::Result<Health>> {
        let client = self.clone();
        Box::pin(async move { Client::health(&client).await })
    }

    fn lease(&self, lease: Lease) -> BoxFuture<agent::Result<LeaseStands>> {
        let client = self.clone();
        Box::pin(async move { client.send_lease(&lease).await })
    }

    fn set_frozen(&self, frozen: bool) -> BoxFuture<agent::Result<()>> {
        let client = self.clone();
        Box::pin(async move { if frozen { client.freeze().await } else { client.thaw().await } })
    }
}

/// What every question to an agent needs.
#[derive(Clone)]
pub struct Link {
    signer: Arc<dyn Signer>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// The id of a sandbox as its agent knows it: the same digits, under the agent's own word.
pub fn agent_id(sandbox_id: &SandboxId) -> Result<AgentSandboxId> {
    let digits = sandbox_id.as_str().trim_start_matches(SandboxId::PREFIX);
    let id = format!("{}{digits}", AgentSandboxId::PREFIX);
    id.parse().map_err(|e: guild_protocol::Error| Error::refused(&code::MACHINE, e.to_string()))
}

impl Link {
    /// Questions are signed with this key, whose public half agents are started with.
    pub fn new(signer: Arc<dyn Signer>, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Link {
        Link { signer, clock, random }
    }

    /// Whom agents listen to.
    pub fn controller(&self) -> PublicKey {
        self.signer.public_key()
    }

    /// The time of all questions.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// A hash that nobody makes who has not our key: what it is of cannot be guessed by trying.
    pub fn veil(&self, hash: &Hash) -> Result<Hash> {
        let mut hasher = Hasher::new();
        hasher.update(b"guildhall/hosting/veil/v1\n");
        hasher.update(hash.as_bytes());
        let digest = hasher.finish();
        // Signing twice gives the same bytes.
        Ok(Hash::of(self.signer.sign_digest(digest.as_bytes())?.as_bytes()))
    }

    /// A client of one agent. The endpoint is an address with its port, never a name that somebody could point
    /// elsewhere.
    pub fn client(
        &self,
        sandbox_id: &SandboxId,
        endpoint: &str,
        agent: PublicKey,
    ) -> Result<Client> {
        let nowhere = |_| Error::refused(&code::MACHINE, "the endpoint is not an address");
        let address = endpoint.parse::<SocketAddr>().map_err(nowhere)?.to_string();
        let party = Party { sandbox_id: agent_id(sandbox_id)?, agent };
        let (signer, clock, random) =
            (self.signer.clone(), self.clock.clone(), self.random.clone());
        Ok(Client::new(&address, party, signer, clock, random))
    }

    /// A client of what a machine has made.
    pub fn client_of(&self, instance: &Instance) -> Result<Client> {
        self.client(&instance.sandbox_id, &instance.endpoint, instance.agent_key)
    }

    /// Signs that the sandbox of this agent may run until a moment, and no longer than so long in all.
    pub fn sign_lease(
        &self,
        instance: &Instance,
        run_until_ms: UnixMs,
        run_max_ms: i64,
    ) -> Result<Lease> {
        let (sandbox_id, agent) = (agent_id(&instance.sandbox_id)?, instance.agent_key);
        let (party, now_ms) = (Party { sandbox_id, agent }, self.clock.now_ms());
        Ok(Lease::within(&party, run_until_ms, run_max_ms, now_ms, &*self.signer)?)
    }

    /// Tells an agent to end its sandbox, and waits until everything inside is gone. `None` if it could not be told,
    /// or did not within `patience_ms`.
    pub async fn end(&self, client: &Client, patience_ms: i64) -> Option<Health> {
        let mut waited_ms: i64 = 0;
        loop {
            // Told again each time: a word that is older than the last one, by a clock that was set, counts for
            // nothing. One that has ended already refuses; what counts is what it says afterwards.
            if let Err(error) = client.stop().await {
                tracing::debug!(%error, "the agent could not be told to stop");
            }
            let health = client.health().await.ok()?;
            if health.state == State::Ended && health.class.is_some() {
                return Some(health);
            }
            if waited_ms >= patience_ms {
                return None;
            }
            self.clock.sleep(LOOK_MS).await;
            waited_ms = waited_ms.saturating_add(LOOK_MS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_veiled_is_the_same_for_one_key_and_nobody_else_makes_it() {
        struct Still;
        impl Clock for Still {
            fn now_ms(&self) -> UnixMs {
                0
            }
            fn sleep(&self, _: i64) -> BoxFuture<()> {
                Box::pin(std::future::pending())
            }
        }
        impl Random for Still {
            fn fill(&self, bytes: &mut [u8]) {
                bytes.fill(0);
            }
        }
        let link = |secret: u8| {
            let key = guild_protocol::identity::SecretKey::from_bytes([secret; 32]).unwrap();
            Link::new(Arc::new(key), Arc::new(Still), Arc::new(Still))
        };
        let hash = Hash::of(b"1234");
        let veiled = link(1).veil(&hash).unwrap();
        assert_eq!(link(1).veil(&hash).unwrap(), veiled);
        assert_ne!(link(2).veil(&hash).unwrap(), veiled);
        assert_ne!(link(1).veil(&Hash::of(b"1235")).unwrap(), veiled);
        assert_ne!(veiled, hash);
    }

    #[test]
    fn an_agent_knows_its_sandbox_by_the_same_digits() {
        let id: SandboxId = format!("sbx_{:032x}", 77).parse().unwrap();
        assert_eq!(agent_id(&id).unwrap().as_str(), format!("sandbox_{:032x}", 77));
    }
}
