//! What is done inside of a sandbox: commands, files, secrets. Every use counts as activity.

use guild_sandbox::agent::{Download, ExecId, ExecStream, FileWritten, Secrets};
use tokio::io::AsyncRead;

use crate::access::idempotency::{Answer, Reply};
use crate::access::{Caller, Scope, Token};
use crate::api::{
    Directory, ExecBody, ExecView, FileView, FromQuery, SecretsBody, SecretsView, SignalBody,
    StdinBody,
};
use crate::machine::visit::{Door, Visit};
use crate::{Result, SandboxId, sandbox};

use super::{Desk, Sent, answer, parse};

/// How long a change may take before somebody else may try the same request again, if nobody lets go of it.
const FLIGHT_MS: i64 = 60_000;
/// As slow as a file may come in.
const UPLOAD_BYTES_PER_MS: u64 = 16;

/// What a command prints, and the visit that counts it as use.
pub struct Output {
    /// Its frames.
    pub frames: ExecStream,
    /// Who reads them.
    pub visit: Visit,
}

/// Somebody who may write into a sandbox.
pub struct Writer {
    caller: Caller,
    sandbox_id: SandboxId,
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

    /// Changes something inside of a sandbox that runs, once for each idempotency key: also if it has ended meanwhile,
    /// a repeat has the answer of the first time.
    async fn change_inside<F: Future<Output = Result<Answer>>>(
        &self,
        sent: &Sent,
        (scope, id): (Scope, &str),
        effect: impl FnOnce(Visit, String) -> F,
    ) -> Result<Reply> {
        let caller = self.who(sent.token.clone()).await?;
        caller.require(scope)?;
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        let had = self.once(sent, &caller, FLIGHT_MS, async |effect_id| {
            let visit = self.door().enter(&caller.user_id, &sandbox_id).await?;
            effect(visit, effect_id).await
        });
        had.await
    }

    /// Starts a command.
    pub async fn exec(&self, sent: Sent, id: &str, body: ExecBody) -> Result<Reply> {
        body.check()?;
        self.change_inside(&sent, (Scope::SandboxesExec, id), async |visit, effect_id| {
            // The id comes from the key: an agent that was asked before starts nothing again.
            let exec_id = visit.exec(&body.asked(exec_id(&effect_id)?)).await?;
            answer(201, &ExecView { exec_id: exec_id.to_string() })
        })
        .await
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
    pub async fn stdin(&self, sent: Sent, id: &str, exec: &str, body: StdinBody) -> Result<Reply> {
        let exec_id: ExecId = parse("exec_id", exec)?;
        let data = body.data_b64.map(|data| data.0).unwrap_or_default();
        self.change_inside(&sent, (Scope::SandboxesExec, id), async |visit, effect_id| {
            visit.stdin(&exec_id, &effect_id, &data, body.close).await?;
            Answer::new(204, "")
        })
        .await
    }

    /// Sends a command a signal.
    pub async fn signal(
        &self,
        sent: Sent,
        id: &str,
        exec: &str,
        body: SignalBody,
    ) -> Result<Reply> {
        body.check()?;
        let exec_id: ExecId = parse("exec_id", exec)?;
        self.change_inside(&sent, (Scope::SandboxesExec, id), async |visit, effect_id| {
            visit.signal(&exec_id, &effect_id, body.signal).await?;
            Answer::new(204, "")
        })
        .await
    }

    /// Who may write a file into a sandbox: before anything of it is read.
    pub async fn enter_to_write(&self, token: Token, id: &str) -> Result<Writer> {
        let caller = self.who(token).await?;
        caller.require(Scope::SandboxesExec)?;
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        let (user_id, id) = (caller.user_id.clone(), sandbox_id.clone());
        self.0.store.read(move |rx| sandbox::get(rx, &user_id, &id)).await?;
        Ok(Writer { caller, sandbox_id })
    }

    /// Writes a file as it comes, if it is as long and has the hash that is said.
    pub async fn upload(
        &self,
        writer: &Writer,
        sent: &Sent,
        (path, executable): (&str, bool),
        body: &mut (impl AsyncRead + Unpin + Send),
        length: u64,
    ) -> Result<Reply> {
        let hash = sent.body_hash;
        let view = answer(200, &FileView::of(path, &FileWritten { bytes: length, sha256: hash }))?;
        // A slow sender is at work for long.
        let takes_ms = i64::try_from(length / UPLOAD_BYTES_PER_MS).unwrap_or(i64::MAX);
        let flight_ms = FLIGHT_MS.saturating_add(takes_ms);
        self.once(sent, &writer.caller, flight_ms, async |_| {
            let visit = self.door().enter(&writer.caller.user_id, &writer.sandbox_id).await?;
            visit.upload(path, executable, body, length, hash).await?;
            // What took long was use all the while; if it has ended meanwhile, the file is there all the same.
            let _ = visit.touch().await;
            Ok(view)
        })
        .await
    }

    /// A file as it comes; also of a sandbox that has stopped, for as long as its files are kept.
    pub async fn download(&self, token: Token, id: &str, path: &str) -> Result<Download> {
        self.enter_to_read(token, id).await?.download(path).await
    }

    /// Removes a file.
    pub async fn delete_file(&self, sent: Sent, id: &str, path: &str) -> Result<Reply> {
        self.change_inside(&sent, (Scope::SandboxesExec, id), async |visit, _| {
            visit.delete(path).await?;
            Answer::new(204, "")
        })
        .await
    }

    /// What is in a directory.
    pub async fn directory(&self, token: Token, id: &str, path: &str) -> Result<Directory> {
        let visit = self.enter_to_read(token, id).await?;
        Ok(Directory { entries: visit.list(path).await? })
    }

    /// Releases secrets to a sandbox, once its agent has said that it runs what was bought.
    pub async fn release_secrets(&self, sent: Sent, id: &str, body: SecretsBody) -> Result<Reply> {
        self.change_inside(&sent, (Scope::SandboxesWrite, id), async |visit, _| {
            let secrets = body
                .secrets
                .into_iter()
                .fold(Secrets::new(), |secrets, (name, value)| secrets.with(name, value));
            answer(200, &SecretsView { names: visit.release_secrets(&secrets).await? })
        })
        .await
    }
}

/// The id of a command that is named by its request.
fn exec_id(effect_id: &str) -> Result<ExecId> {
    let digits = effect_id.get(..32).unwrap_or_default();
    Ok(format!("exec_{digits}").parse::<ExecId>()?)
}
