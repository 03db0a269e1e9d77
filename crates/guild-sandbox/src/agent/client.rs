//! The other side: asks an agent, and notices if somebody else answers.

mod follow;
mod http;
mod tunnel;

use std::sync::Arc;

use futures_util::future::{Either, select};
use guild_protocol::env::{Clock, Random, Signer, UnixMs};
use guild_protocol::hash::Hash;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::auth::{ANSWER_HEADER, Asked, Nonce, Party, Pass, Seal};
use super::error::{Error, Result, code};
use super::execs::MAX_FIRST_INPUT_BYTES;
use super::lease::Lease;
use super::secrets::Secrets;
use super::wire::{
    Attestation, Bytes64, Entry, ExecId, ExecRequest, ExecStarted, FileWritten, Health,
    LeaseStands, Listing, ResizeRequest, SecretsReleased, SignalRequest, StdinRequest, StdinTaken,
};
use http::{Body, Connection, Head};

pub use follow::ExecStream;
pub use tunnel::Tunnel;

/// How long a step may take: to connect, to begin an answer, to send or get the next piece.
const ANSWER_MS: i64 = 30_000;
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// How much input is sent at once.
/// The name of the input that did not fit into the request that starts a command.
const REST: &str = "rest";
const STDIN_BYTES: usize = 1 << 20;

/// Talks to one agent. Cheap to clone; every call is a connection of its own.
#[derive(Clone)]
pub struct Client {
    address: Arc<str>,
    party: Party,
    signer: Arc<dyn Signer>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// An attestation, and what secrets can be released for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attested {
    /// What the agent says.
    pub attestation: Attestation,
    /// Names this attestation.
    pub nonce: Nonce,
}

/// A file or archive as it comes.
pub struct Download {
    body: Body,
    client: Client,
    /// How large it is, if that is known.
    pub bytes: Option<u64>,
}

impl Download {
    /// The next piece; `None` behind the last. One that breaks off or stands still is an error.
    pub async fn piece(&mut self) -> Result<Option<Vec<u8>>> {
        self.client.within(self.body.piece()).await
    }

    /// All of it, if it is not more than this.
    pub async fn whole(mut self, max_bytes: usize) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece().await? {
            whole.extend_from_slice(&piece);
            if whole.len() > max_bytes {
                let why = format!("there are more than {max_bytes} bytes");
                return Err(Error::new(&code::BAD_ANSWER, why));
            }
        }
        Ok(whole)
    }
}

/// Who asks what.
struct Ask<'a> {
    method: &'a str,
    target: &'a str,
    hash: Hash,
    length: u64,
}

/// An answer of the right agent, that is no refusal.
struct Answer {
    head: Head,
    seal: Seal,
    body: Body,
    nonce: Nonce,
}

impl Client {
    /// A client of the agent at `address`, as `127.0.0.1:4849`. `signer` has the controller's key.
    pub fn new(
        address: &str,
        party: Party,
        signer: Arc<dyn Signer>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Client {
        Client { address: address.into(), party, signer, clock, random }
    }

    /// Whom it talks to.
    pub fn party(&self) -> &Party {
        &self.party
    }

    /// What the sandbox does.
    pub async fn health(&self) -> Result<Health> {
        self.get("/v1/health").await
    }

    /// What the agent says that it is. Check it before releasing secrets.
    pub async fn attestation(&self) -> Result<Attested> {
        let answer = self.ask_empty("GET", "/v1/attestation").await?;
        let nonce = answer.nonce;
        Ok(Attested { attestation: self.read(answer).await?, nonce })
    }

    /// Releases secrets, sealed to the agent's key, for one attestation. Gives their names.
    pub async fn release_secrets(
        &self,
        secrets: &Secrets,
        attested: &Attested,
    ) -> Result<Vec<String>> {
        let release = secrets.seal(&self.party.agent, attested.nonce, &*self.random)?;
        let released: SecretsReleased = self.post("/v1/release-secrets", &release).await?;
        Ok(released.names)
    }

    /// Lets the sandbox run until a moment, unless it may already run longer.
    pub async fn lease(&self, run_until_ms: UnixMs) -> Result<LeaseStands> {
        let now_ms = self.clock.now_ms();
        self.send_lease(&Lease::until(&self.party, run_until_ms, now_ms, &*self.signer)?).await
    }

    /// Stops the sandbox by a signed lease; the agent stays for a while, so that files can be fetched.
    pub async fn stop(&self) -> Result<LeaseStands> {
        let now_ms = self.clock.now_ms();
        self.send_lease(&Lease::stop(&self.party, now_ms, &*self.signer)?).await
    }

    /// Brings a lease that somebody has signed.
    pub async fn send_lease(&self, lease: &Lease) -> Result<LeaseStands> {
        self.post("/v1/lease", lease).await
    }

    /// Gives the sandbox another shape, or changes nothing: where the host cannot, or more memory is in use.
    pub async fn resize(&self, cpu_milli: u32, memory_mib: u64) -> Result<()> {
        let body = encode(&ResizeRequest { cpu_milli, memory_mib })?;
        self.ask_bytes("POST", "/v1/resize", &body).await.map(drop)
    }

    /// Stops everything where it is.
    pub async fn freeze(&self) -> Result<()> {
        self.ask_empty("POST", "/v1/freeze").await.map(drop)
    }

    /// Lets everything go on.
    pub async fn thaw(&self) -> Result<()> {
        self.ask_empty("POST", "/v1/thaw").await.map(drop)
    }

    /// Ends the sandbox and its agent.
    pub async fn shutdown(&self) -> Result<()> {
        self.ask_empty("POST", "/v1/shutdown").await.map(drop)
    }

    /// Starts a command. If the answer is lost it is asked again, and still started once.
    pub async fn exec(&self, request: &ExecRequest) -> Result<ExecId> {
        let id = request.id.clone();
        let id = id.unwrap_or_else(|| ExecId::make(&*self.clock, &*self.random));
        let mut request = ExecRequest { id: Some(id), ..request.clone() };
        let first = request.stdin_b64.take().unwrap_or_default().0;
        let (now, later) = first.split_at(first.len().min(MAX_FIRST_INPUT_BYTES));
        let stays_open = request.stdin_open;
        request.stdin_b64 = (!now.is_empty()).then(|| Bytes64(now.to_vec()));
        request.stdin_open |= !later.is_empty();
        let started: Result<ExecStarted> = self.post("/v1/exec", &request).await;
        let started = match started {
            Err(error) if error.code() == &code::UNREACHABLE => {
                self.post("/v1/exec", &request).await?
            }
            started => started?,
        };
        if !later.is_empty() {
            self.stdin_once(&started.id, REST, later, !stays_open).await?;
        }
        Ok(started.id)
    }

    /// What a command prints, from a frame on; 1 is the first. It goes on by itself after a broken connection.
    pub fn stream(&self, id: &ExecId, from: u64) -> ExecStream {
        ExecStream::new(self.clone(), id.clone(), from)
    }

    /// Writes all of `data` to a command, waiting while it does not read; then ends its input if `close`.
    pub async fn stdin(&self, id: &ExecId, data: &[u8], close: bool) -> Result<()> {
        self.input(id, None, data, close).await
    }

    /// The same under a name of its own: however often it is asked for, each byte is written once.
    pub async fn stdin_once(
        &self,
        id: &ExecId,
        name: &str,
        data: &[u8],
        close: bool,
    ) -> Result<()> {
        self.input(id, Some(name), data, close).await
    }

    async fn input(&self, id: &ExecId, name: Option<&str>, data: &[u8], close: bool) -> Result<()> {
        let target = format!("/v1/exec/{id}/stdin");
        let (mut rest, mut from) = (data, 0_u64);
        loop {
            let piece = rest.get(..rest.len().min(STDIN_BYTES)).unwrap_or_default();
            let is_last = piece.len() == rest.len();
            let request = StdinRequest {
                id: name.map(str::to_owned),
                from: if name.is_some() { from } else { 0 },
                data_b64: Bytes64(piece.to_vec()),
                close: close && is_last,
            };
            let taken: StdinTaken = self.post(&target, &request).await?;
            from = from.saturating_add(u64::try_from(taken.written).unwrap_or(u64::MAX));
            rest = rest.get(taken.written..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends a command a signal; 9 ends it with all that it started.
    pub async fn signal(&self, id: &ExecId, signal: i32) -> Result<()> {
        self.send_signal(id, &SignalRequest { id: None, signal }).await
    }

    /// The same under a name of its own: however often it is asked for, it is sent once.
    pub async fn signal_once(&self, id: &ExecId, name: &str, signal: i32) -> Result<()> {
        self.send_signal(id, &SignalRequest { id: Some(name.to_owned()), signal }).await
    }

    async fn send_signal(&self, id: &ExecId, request: &SignalRequest) -> Result<()> {
        let target = format!("/v1/exec/{id}/signal");
        self.ask_bytes("POST", &target, &encode(request)?).await.map(drop)
    }

    /// Writes a file of the workspace; directories above it are made.
    pub async fn put_file(
        &self,
        path: &str,
        executable: bool,
        bytes: &[u8],
    ) -> Result<FileWritten> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.upload(path, executable, &mut &*bytes, length, Hash::of(bytes)).await
    }

    /// As [`Client::put_file`], from a stream whose length and hash are known: it is signed before it is sent.
    pub async fn upload(
        &self,
        path: &str,
        executable: bool,
        body: &mut (impl AsyncRead + Unpin + Send),
        length: u64,
        hash: Hash,
    ) -> Result<FileWritten> {
        let path = encode_query(path);
        let target = match executable {
            true => format!("/v1/files?path={path}&executable=true"),
            false => format!("/v1/files?path={path}"),
        };
        let ask = Ask { method: "PUT", target: &target, hash, length };
        self.read(self.ask(ask, body).await?).await
    }

    /// A file of the workspace.
    pub async fn get_file(&self, path: &str) -> Result<Download> {
        self.download(&format!("/v1/files?path={}", encode_query(path))).await
    }

    /// Removes a file, or a directory with all that is in it.
    pub async fn delete_file(&self, path: &str) -> Result<()> {
        let target = format!("/v1/files?path={}", encode_query(path));
        self.ask_empty("DELETE", &target).await.map(drop)
    }

    /// What is in a directory of the workspace; an empty path is the workspace itself.
    pub async fn list(&self, path: &str) -> Result<Vec<Entry>> {
        let target = format!("/v1/files/list?path={}", encode_query(path));
        Ok(self.get::<Listing>(&target).await?.entries)
    }

    /// Unpacks a tar archive below a directory of the workspace. If anything of it is refused, nothing is changed.
    pub async fn put_archive(
        &self,
        path: &str,
        body: &mut (impl AsyncRead + Unpin + Send),
        length: u64,
        hash: Hash,
    ) -> Result<()> {
        let target = format!("/v1/files/archive?path={}", encode_query(path));
        self.ask(Ask { method: "POST", target: &target, hash, length }, body).await.map(drop)
    }

    /// A directory of the workspace as a tar archive.
    pub async fn get_archive(&self, path: &str) -> Result<Download> {
        self.download(&format!("/v1/files/archive?path={}", encode_query(path))).await
    }

    /// A tunnel to a port on the sandbox's own loopback.
    pub async fn connect(&self, port: u16) -> Result<Tunnel> {
        Tunnel::open(self, port).await
    }

    async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T> {
        self.read(self.ask_empty("GET", target).await?).await
    }

    async fn post<T: DeserializeOwned>(&self, target: &str, body: &impl Serialize) -> Result<T> {
        self.read(self.ask_bytes("POST", target, &encode(body)?).await?).await
    }

    async fn download(&self, target: &str) -> Result<Download> {
        let answer = self.ask_empty("GET", target).await?;
        let bytes = answer.head.header("content-length").and_then(|text| text.parse().ok());
        Ok(Download { body: answer.body, client: self.clone(), bytes })
    }

    async fn ask_empty(&self, method: &str, target: &str) -> Result<Answer> {
        self.ask_bytes(method, target, b"").await
    }

    async fn ask_bytes(&self, method: &str, target: &str, body: &[u8]) -> Result<Answer> {
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        self.ask(Ask { method, target, hash: Hash::of(body), length }, &mut &*body).await
    }

    /// Signs a request.
    fn pass(&self, method: &str, target: &str, hash: Hash) -> Result<Pass> {
        let asked = Asked { method, path_and_query: target };
        let (at_ms, nonce) = (self.clock.now_ms(), Nonce::make(&*self.random));
        Pass::sign(&self.party, &asked, hash, at_ms, nonce, &*self.signer)
    }

    /// Asks, and checks who answers before anything of the answer is believed.
    async fn ask(
        &self,
        ask: Ask<'_>,
        body: &mut (impl AsyncRead + Unpin + Send),
    ) -> Result<Answer> {
        let pass = self.pass(ask.method, ask.target, ask.hash)?;
        let mut connection = self.within(Connection::open(&self.address)).await?;
        let authorization = pass.to_string();
        let Ask { method, target, length, .. } = ask;
        let head = connection.ask(method, target, &self.address, &authorization, length);
        self.within(head).await?;
        self.send(&mut connection, body, length).await?;
        let head = self.within(connection.head()).await?;
        let seal = self.check(&head, pass.nonce)?;
        let body = connection.body(&head)?;
        let answer = Answer { head, seal, body, nonce: pass.nonce };
        if (200..300).contains(&answer.head.status) {
            return Ok(answer);
        }
        let status = answer.head.status;
        Err(Error::told(&self.whole(answer).await?, status))
    }

    /// Sends a body of this length.
    async fn send(
        &self,
        connection: &mut Connection,
        body: &mut (impl AsyncRead + Unpin + Send),
        length: u64,
    ) -> Result<()> {
        let mut left = length;
        let mut piece = vec![0; http::PIECE_BYTES];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(http::PIECE_BYTES);
            let read = body.read(piece.get_mut(..most).unwrap_or_default()).await;
            let read = read.map_err(http::broken)?;
            if read == 0 {
                return Err(Error::bad("body", "there is less to send than was said"));
            }
            let sent = connection.send(piece.get(..read).unwrap_or_default());
            if !self.within(sent).await? {
                return Ok(());
            }
            left = left.saturating_sub(u64::try_from(read).unwrap_or(0));
        }
        Ok(())
    }

    /// The body of an answer whose hash the agent has signed.
    async fn whole(&self, answer: Answer) -> Result<Vec<u8>> {
        let signed = answer.seal.body;
        let body = Download { body: answer.body, client: self.clone(), bytes: None };
        let body = body.whole(MAX_ANSWER_BYTES).await?;
        if signed != Some(Hash::of(&body)) {
            let why = "the answer is not the one that was signed";
            return Err(Error::new(&code::WRONG_AGENT, why));
        }
        Ok(body)
    }

    async fn read<T: DeserializeOwned>(&self, answer: Answer) -> Result<T> {
        let body = self.whole(answer).await?;
        serde_json::from_slice(&body).map_err(|e| Error::new(&code::BAD_ANSWER, e.to_string()))
    }

    /// Whether the pinned agent answered this request.
    fn check(&self, head: &Head, nonce: Nonce) -> Result<Seal> {
        let unsigned = || Error::new(&code::WRONG_AGENT, "the answer is not signed");
        let seal = Seal::parse(head.header(ANSWER_HEADER).ok_or_else(unsigned)?)?;
        seal.check(&self.party, nonce, head.status)?;
        Ok(seal)
    }

    /// Waits, but not for ever.
    async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        match select(std::pin::pin!(work), self.clock.sleep(ANSWER_MS)).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => {
                let why = format!("there was no answer within {ANSWER_MS} ms");
                Err(Error::new(&code::UNREACHABLE, why))
            }
        }
    }
}

fn encode(body: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(body).map_err(|e| Error::bad("body", e.to_string()))
}

/// Percent-encodes everything that could mean something in a query.
fn encode_query(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match plain(byte) {
            true => encoded.push(char::from(byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
