//! What is done inside of a sandbox: commands, files, secrets. Every use counts as activity.

use guild_protocol::hash::Hash;
use guild_sandbox::agent::{Download, ExecId, ExecStream, Secrets};
use guild_store::Tx;
use tokio::io::AsyncRead;

use crate::access::idempotency::{self, Begun, Reply};
use crate::access::{Scope, Token};
use crate::api::{
    Directory, ExecBody, ExecView, FileView, FromQuery, SecretsBody, SecretsView, SignalBody,
    StdinBody,
};
use crate::machine::visit::{Door, Visit};
use crate::{Error, Result, SandboxId};

use super::{Desk, Sent, answer, parse};

/// How long the start of a command may take before somebody else may try the same request again.
const FLIGHT_MS: i64 = 60_000;

/// What a command prints, and the visit that counts it as use.
pub struct Output {
    /// Its frames.
    pub frames: ExecStream,
    /// Who reads them.
    pub visit: Visit,
}

impl Desk {
    pub(super) fn door(&self) -> &Door {
        &self.0.door
    }

    pub(super) async fn enter(&self, token: Token, scope: Scope, id: &str) -> Result<Visit> {
        let caller = self.who(token).await?;
        caller.require(scope)?;
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        self.door().enter(&caller.user_id, &sandbox_id).await
    }

    async fn enter_to_read(&self, token: Token, id: &str) -> Result<Visit> {
        let caller = self.who(token).await?;
        caller.require(Scope::SandboxesExec)?;
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        self.door().enter_to_read(&caller.user_id, &sandbox_id).await
    }

    /// Starts a command: once for each idempotency key, whatever dies in between.
    pub async fn exec(&self, sent: Sent, id: &str, body: ExecBody) -> Result<Reply> {
        body.check()?;
        let caller = self.who(sent.token.clone()).await?;
        caller.require(Scope::SandboxesExec)?;
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        let visit = self.door().enter(&caller.user_id, &sandbox_id).await?;
        let request = sent.request(&caller.user_id)?;
        let now_ms = self.now_ms();
        let begin = move |tx: &mut Tx<'_>| idempotency::begin(tx, &request, FLIGHT_MS, now_ms);
        let ticket = match self.0.store.write::<Begun, Error, _>(begin).await? {
            Begun::Known(answer) => return Ok(Reply { answer, repeated: true }),
            Begun::Go(ticket) => ticket,
        };
        // The id comes from the key: an agent that was asked before starts nothing again.
        let exec_id = exec_id(&ticket.effect_id())?;
        match visit.exec(&body.asked(exec_id)).await {
            Ok(exec_id) => {
                let answer = answer(201, &ExecView { exec_id: exec_id.to_string() })?;
                let kept = answer.clone();
                let finish = move |tx: &mut Tx<'_>| idempotency::finish(tx, &ticket, &kept);
                self.0.store.write::<(), Error, _>(finish).await?;
                Ok(Reply { answer, repeated: false })
            }
            Err(error) => {
                let give_up = move |tx: &mut Tx<'_>| idempotency::give_up(tx, &ticket);
                self.0.store.write::<(), Error, _>(give_up).await?;
                Err(error)
            }
        }
    }

    /// What a command prints, from a frame on.
    pub async fn output(
        &self,
        token: Token,
        id: &str,
        exec: &str,
        from: &FromQuery,
    ) -> Result<Output> {
        let (exec_id, from): (ExecId, u64) = (parse("exec_id", exec)?, from.first()?);
        let visit = self.enter_to_read(token, id).await?;
        Ok(Output { frames: visit.stream(&exec_id, from), visit })
    }

    /// Writes to a command.
    pub async fn stdin(&self, token: Token, id: &str, exec: &str, body: StdinBody) -> Result<()> {
        let exec_id: ExecId = parse("exec_id", exec)?;
        let visit = self.enter(token, Scope::SandboxesExec, id).await?;
        let data = body.data_b64.map(|data| data.0).unwrap_or_default();
        visit.stdin(&exec_id, &data, body.close).await
    }

    /// Sends a command a signal.
    pub async fn signal(&self, token: Token, id: &str, exec: &str, body: SignalBody) -> Result<()> {
        body.check()?;
        let exec_id: ExecId = parse("exec_id", exec)?;
        let visit = self.enter(token, Scope::SandboxesExec, id).await?;
        visit.signal(&exec_id, body.signal).await
    }

    /// Enters a sandbox to write a file: before anything of it is read.
    pub async fn enter_to_write(&self, token: Token, id: &str) -> Result<Visit> {
        self.enter(token, Scope::SandboxesExec, id).await
    }

    /// Writes a file as it comes, if it is as long and has the hash that is said. The same again writes the same.
    pub async fn upload(
        &self,
        visit: &Visit,
        (path, executable): (&str, bool),
        body: &mut (impl AsyncRead + Unpin + Send),
        length: u64,
        hash: Hash,
    ) -> Result<FileView> {
        let written = visit.upload(path, executable, body, length, hash).await?;
        // What took long was use all the while; if it has ended meanwhile, the file is there all the same.
        let _ = visit.touch().await;
        Ok(FileView::of(path, &written))
    }

    /// A file as it comes; also of a sandbox that has stopped, for as long as its files are kept.
    pub async fn download(&self, token: Token, id: &str, path: &str) -> Result<Download> {
        self.enter_to_read(token, id).await?.download(path).await
    }

    /// Removes a file.
    pub async fn delete_file(&self, token: Token, id: &str, path: &str) -> Result<()> {
        self.enter(token, Scope::SandboxesExec, id).await?.delete(path).await
    }

    /// What is in a directory.
    pub async fn directory(&self, token: Token, id: &str, path: &str) -> Result<Directory> {
        let visit = self.enter_to_read(token, id).await?;
        Ok(Directory { entries: visit.list(path).await? })
    }

    /// Releases secrets to a sandbox, once its agent has said that it runs what was bought.
    pub async fn release_secrets(
        &self,
        token: Token,
        id: &str,
        body: SecretsBody,
    ) -> Result<SecretsView> {
        let visit = self.enter(token, Scope::SandboxesWrite, id).await?;
        let secrets = body
            .secrets
            .into_iter()
            .fold(Secrets::new(), |secrets, (name, value)| secrets.with(name, value));
        Ok(SecretsView { names: visit.release_secrets(&secrets).await? })
    }
}

/// The id of a command that is named by its request.
fn exec_id(effect_id: &str) -> Result<ExecId> {
    let digits = effect_id.get(..32).unwrap_or_default();
    Ok(format!("exec_{digits}").parse::<ExecId>()?)
}
