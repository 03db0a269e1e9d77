//! Using a sandbox: commands, files, ports, secrets. Whoever enters owns it, and it runs; every use is written down, so
//! that what is in use is not idle. What goes in and out is passed on, within limits.
//!
//! The agent that is asked is the one that the sandbox's row names, whatever the caller says: nothing here takes an
//! address from outside, and a port is one of that sandbox alone.

use std::collections::BTreeSet;

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_sandbox::agent::{
    self, Client, Download, Entry, ExecId, ExecRequest, ExecStream, FileWritten, Secrets, Tunnel,
};
use guild_store::Store;
use tokio::io::AsyncRead;

use super::link::Link;
use super::{check_image, client_of_row, code};
use crate::sandbox::{self, Sandbox, Status};
use crate::{Error, Result, SandboxId, UserId};

const MIB: u64 = 1 << 20;

/// What may be asked of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// When a command is ended that names no time, and the longest that one may name.
    pub timeout_ms: u64,
    /// The longest time that a command may name.
    pub timeout_max_ms: u64,
    /// How much a command may print.
    pub output_max_bytes: u64,
    /// The largest file or archive that goes in, if its disk holds so much.
    pub file_max_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            timeout_ms: 3_600_000,
            timeout_max_ms: 24 * 3_600_000,
            output_max_bytes: 1 << 30,
            file_max_bytes: 1 << 40,
        }
    }
}

/// The way in. Cheap to clone.
#[derive(Clone)]
pub struct Door {
    store: Store,
    link: Link,
    limits: Limits,
}

/// Somebody in a sandbox of its own.
pub struct Visit {
    door: Door,
    client: Client,
    sandbox: Sandbox,
}

impl Door {
    /// The way into all sandboxes that this store knows.
    pub fn new(store: Store, link: Link, limits: Limits) -> Door {
        Door { store, link, limits }
    }

    /// A hash that nobody makes who has not the key of this node.
    pub(crate) fn veil(&self, hash: &Hash) -> Result<Hash> {
        self.link.veil(hash)
    }

    /// Enters a sandbox that runs, to use it.
    pub async fn enter(&self, user_id: &UserId, sandbox_id: &SandboxId) -> Result<Visit> {
        let (user_id, sandbox_id) = (user_id.clone(), sandbox_id.clone());
        let clock = self.link.clock().clone();
        let sandbox = self.store.write(move |tx| {
            // Whose it is comes first: of another's sandbox nobody learns whether it runs.
            let sandbox = sandbox::get(tx, &user_id, &sandbox_id)?;
            if sandbox.status != Status::Running {
                let why = format!("{sandbox_id} is {}", sandbox.status.as_str());
                return Err(Error::refused(&code::NOT_RUNNING, why));
            }
            if sandbox.paused {
                return Err(Error::refused(&code::NOT_RUNNING, format!("{sandbox_id} is paused")));
            }
            sandbox::touch(tx, &sandbox.sandbox_id, clock.now_ms())
        });
        self.visit(sandbox.await?)
    }

    /// Enters a sandbox that runs or was stopped, to fetch its files.
    pub async fn enter_to_read(&self, user_id: &UserId, sandbox_id: &SandboxId) -> Result<Visit> {
        let (user, id) = (user_id.clone(), sandbox_id.clone());
        let sandbox = self.store.read(move |rx| sandbox::get(rx, &user, &id)).await?;
        match sandbox.status {
            Status::Ending | Status::Stopped if sandbox.agent_key.is_some() => self.visit(sandbox),
            _ => self.enter(user_id, sandbox_id).await,
        }
    }

    fn visit(&self, sandbox: Sandbox) -> Result<Visit> {
        let client = client_of_row(&self.link, &sandbox)?;
        Ok(Visit { door: self.clone(), client, sandbox })
    }
}

/// What an agent refuses, in the words of hosting where there are any.
fn told(error: agent::Error) -> Error {
    let same = [
        (&agent::code::SECRETS_NOT_RELEASED, &code::SECRETS_NOT_RELEASED),
        (&agent::code::ENDED, &code::NOT_RUNNING),
        (&agent::code::NOT_LEASED, &code::NOT_RUNNING),
        (&agent::code::TOO_LARGE, &code::TOO_LARGE),
    ];
    match same.iter().find(|(agents, _)| error.code() == *agents) {
        Some((_, ours)) => Error::refused(ours, error.to_string()),
        None => Error::Agent(error),
    }
}

impl Visit {
    /// The sandbox as it was when it was entered.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Writes down that it is still in use: for streams and tunnels that take long.
    pub async fn touch(&self) -> Result<Sandbox> {
        let sandbox_id = self.sandbox.sandbox_id.clone();
        self.write(move |tx, now_ms| sandbox::touch(tx, &sandbox_id, now_ms)).await
    }

    /// Gives it another shape, or changes nothing.
    pub async fn resize(&self, cpu_milli: i64, ram_mib: i64) -> Result<()> {
        super::resize(&self.client, cpu_milli, ram_mib).await
    }

    /// Starts a command. The same request with the same id starts one.
    pub async fn exec(&self, request: &ExecRequest) -> Result<ExecId> {
        let limits = &self.door.limits;
        self.require_secrets(&request.needs_secrets)?;
        let timeout_ms = request.timeout_ms.unwrap_or(limits.timeout_ms);
        let max_output = request.max_output.unwrap_or(limits.output_max_bytes);
        let request = ExecRequest {
            timeout_ms: Some(timeout_ms.min(limits.timeout_max_ms)),
            max_output: Some(max_output.min(limits.output_max_bytes)),
            ..request.clone()
        };
        self.client.exec(&request).await.map_err(told)
    }

    fn require_secrets(&self, needed: &BTreeSet<String>) -> Result<()> {
        if needed.is_empty() || self.sandbox.secrets_ms.is_some() {
            return Ok(());
        }
        let why = format!("no secrets have been released to {}", self.sandbox.sandbox_id);
        Err(Error::refused(&code::SECRETS_NOT_RELEASED, why))
    }

    /// What a command prints, from a frame on. Frames break off with an error if the agent cannot be reached for long.
    pub fn stream(&self, id: &ExecId, from: u64) -> ExecStream {
        self.client.stream(id, from)
    }

    /// Writes to a command, and ends its input if `close`. The same under the same name is written once.
    pub async fn stdin(&self, id: &ExecId, name: &str, data: &[u8], close: bool) -> Result<()> {
        self.client.stdin_once(id, name, data, close).await.map_err(told)
    }

    /// Sends a command a signal; 9 ends it with all that it started. The same under the same name is sent once.
    pub async fn signal(&self, id: &ExecId, name: &str, signal: i32) -> Result<()> {
        self.client.signal_once(id, name, signal).await.map_err(told)
    }

    /// Writes a file whose length and hash are known.
    pub async fn upload(
        &self,
        path: &str,
        executable: bool,
        body: &mut (impl AsyncRead + Unpin + Send),
        length: u64,
        hash: Hash,
    ) -> Result<FileWritten> {
        self.require_small(length)?;
        self.client.upload(path, executable, body, length, hash).await.map_err(told)
    }

    /// Unpacks a tar archive whose length and hash are known, all of it or nothing.
    pub async fn upload_archive(
        &self,
        path: &str,
        body: &mut (impl AsyncRead + Unpin + Send),
        length: u64,
        hash: Hash,
    ) -> Result<()> {
        self.require_small(length)?;
        self.client.put_archive(path, body, length, hash).await.map_err(told)
    }

    fn require_small(&self, length: u64) -> Result<()> {
        let disk = u64::try_from(self.sandbox.shape.disk_mib).unwrap_or(0).saturating_mul(MIB);
        let max = self.door.limits.file_max_bytes.min(disk);
        match length <= max {
            true => Ok(()),
            false => {
                let why = format!("{length} bytes are more than {max}");
                Err(Error::refused(&code::TOO_LARGE, why))
            }
        }
    }

    /// A file as it comes.
    pub async fn download(&self, path: &str) -> Result<Download> {
        self.client.get_file(path).await.map_err(told)
    }

    /// A directory as a tar archive, as it comes.
    pub async fn download_archive(&self, path: &str) -> Result<Download> {
        self.client.get_archive(path).await.map_err(told)
    }

    /// What is in a directory.
    pub async fn list(&self, path: &str) -> Result<Vec<Entry>> {
        self.client.list(path).await.map_err(told)
    }

    /// Removes a file, or a directory with all that is in it.
    pub async fn delete(&self, path: &str) -> Result<()> {
        self.client.delete_file(path).await.map_err(told)
    }

    /// A connection to a port on the sandbox's own loopback.
    pub async fn connect(&self, port: u16) -> Result<Tunnel> {
        self.client.connect(port).await.map_err(told)
    }

    /// Releases secrets to the sandbox, after its agent has said that it runs what was bought. They are nowhere but in
    /// the agent's memory. Gives their names; another release replaces them.
    pub async fn release_secrets(&self, secrets: &Secrets) -> Result<Vec<String>> {
        let attested = self.client.attestation().await?;
        check_image(&attested.attestation, &self.sandbox.image)?;
        let names = self.client.release_secrets(secrets, &attested).await.map_err(told)?;
        let sandbox_id = self.sandbox.sandbox_id.clone();
        self.write(move |tx, now_ms| sandbox::secrets_released(tx, &sandbox_id, now_ms)).await?;
        Ok(names)
    }

    async fn write<T: Send + 'static>(
        &self,
        run: impl Fn(&mut guild_store::Tx<'_>, UnixMs) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let clock = self.door.link.clock().clone();
        self.door.store.write(move |tx| run(tx, clock.now_ms())).await
    }
}
