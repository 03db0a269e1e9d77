//! A connection to a port inside a sandbox.

use futures_util::{SinkExt, StreamExt};
use guild_protocol::hash::Hash;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Response};
use tokio_tungstenite::tungstenite::{self, Message};

use super::super::auth::{ANSWER_HEADER, Seal};
use super::super::error::{Error, Result, code};
use super::Client;

/// Bytes to and from a port inside. Dropping it ends the connection.
pub struct Tunnel {
    socket: WebSocketStream<TcpStream>,
    client: Client,
}

fn broken(error: impl ToString) -> Error {
    Error::new(&code::UNREACHABLE, error.to_string())
}

impl Tunnel {
    pub(super) async fn open(client: &Client, port: u16) -> Result<Tunnel> {
        let target = format!("/v1/ports/{port}");
        let pass = client.pass("GET", &target, Hash::of(b""))?;
        let url = format!("ws://{}{target}", client.address);
        let mut request = url.into_client_request().map_err(broken)?;
        let authorization = HeaderValue::from_str(&pass.to_string()).map_err(broken)?;
        request.headers_mut().insert("authorization", authorization);
        let opened = client.within(async {
            let stream = TcpStream::connect(&*client.address).await.map_err(broken)?;
            let _ = stream.set_nodelay(true);
            Ok(tokio_tungstenite::client_async(request, stream).await)
        });
        let check = |seal: Option<&HeaderValue>, status: u16| {
            let unsigned = || Error::new(&code::WRONG_AGENT, "the answer is not signed");
            let seal = seal.and_then(|seal| seal.to_str().ok()).ok_or_else(unsigned)?;
            let seal = Seal::parse(seal)?;
            seal.check(&client.party, pass.nonce, status)?;
            Ok::<Seal, Error>(seal)
        };
        match opened.await? {
            Ok((socket, answer)) => {
                check(answer.headers().get(ANSWER_HEADER), answer.status().as_u16())?;
                Ok(Tunnel { socket, client: client.clone() })
            }
            Err(tungstenite::Error::Http(answer)) => {
                let seal = check(answer.headers().get(ANSWER_HEADER), answer.status().as_u16())?;
                Err(refusal(&answer, &seal))
            }
            Err(error) => Err(broken(error)),
        }
    }

    /// Sends bytes inside.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let sent = self.socket.send(Message::Binary(bytes.to_vec().into()));
        self.client.within(async { sent.await.map_err(broken) }).await
    }

    /// The next bytes from inside; `None` at their end.
    pub async fn receive(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            // The agent says something more often, also if nothing comes from inside.
            let next = self.client.within(async { Ok(self.socket.next().await) }).await?;
            match next {
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes.to_vec())),
                Some(Ok(Message::Close(_))) | None => return Ok(None),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(error)),
            }
        }
    }
}

/// What the agent said. The library reads only what has come with the head, so the words may be missing.
fn refusal(answer: &Response<Option<Vec<u8>>>, seal: &Seal) -> Error {
    let body = answer.body().as_deref().unwrap_or_default();
    match seal.body == Some(Hash::of(body)) {
        true => Error::told(body, answer.status().as_u16()),
        false => {
            Error::new(&code::BAD_ANSWER, format!("an answer with status {}", answer.status()))
        }
    }
}
