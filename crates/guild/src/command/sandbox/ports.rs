//! Ports of a sandbox: `guild sandbox ports`, and a way there from this host: `guild sandbox forward`.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use guild_network::client::{Trust, Wire, reach};
use guild_protocol::env::{Clock, Shutdown};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{self, Message};

use super::super::Context;
use super::super::hosted::{self, word};
use super::super::table::{self, Column};
use super::super::up::{node_runtime, stop_on_signal};
use super::hosted::host;
use crate::error::{Error, Result, code};
use crate::host::Host;
use crate::output::Answer;
use crate::real::SystemClock;

/// How many connections are carried at once; further ones wait.
const CONNECTIONS_MAX: usize = 64;
const PIECE_BYTES: usize = 16 << 10;

/// Give ports of a sandbox an address at the node, for whoever has your token
#[derive(Debug, clap::Args)]
pub(crate) struct PortsArgs {
    /// The sandbox
    sandbox_id: String,
    #[command(subcommand)]
    what: PortsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PortsCommand {
    /// Give a port an address; HTTP and WebSocket are passed on
    Expose(PortArgs),
    /// List the ports that have an address
    Ls,
    /// Take the address of a port away
    Close(PortArgs),
}

#[derive(Debug, clap::Args)]
struct PortArgs {
    /// Its number
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
}

pub(super) fn ports(args: &PortsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let host = host(cx)?;
    let path = format!("/v1/sandboxes/{}/ports", word(&args.sandbox_id)?);
    let told = match &args.what {
        PortsCommand::Expose(PortArgs { port }) => host.post(&path, &json!({ "port": port }))?,
        PortsCommand::Close(PortArgs { port }) => host.delete(&format!("{path}/{port}"))?,
        PortsCommand::Ls => return list(&host.get(&path)?, cx),
    };
    if cx.out.json() {
        cx.out.object(true, told)?;
    } else if let Some(url) = told["url"].as_str() {
        cx.out.line(url)?;
    } else {
        cx.out.line(&format!("port {} has no address any more", told["port"]))?;
    }
    if !cx.out.json() {
        hosted::remark_pace(&host, &args.sandbox_id, cx.out);
    }
    Ok(Answer::Yes)
}

fn list(page: &Value, cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, page)?;
        return Ok(Answer::Yes);
    }
    let row = |port: &Value| [port["port"].to_string(), hosted::text(port, "url")];
    let rows: Vec<_> = page["ports"].as_array().into_iter().flatten().map(row).collect();
    table::print([Column::Right("port"), Column::Left("address")], &rows, cx.out)?;
    Ok(Answer::Yes)
}

/// Reach a port of a sandbox at a port of this host
///
/// Listens on 127.0.0.1 until it is stopped, and carries each connection to the port inside, whatever is spoken there.
#[derive(Debug, clap::Args)]
pub(crate) struct ForwardArgs {
    /// The sandbox
    sandbox_id: String,
    /// The port here and the port there, as 8080:80; 0 here is a free one
    #[arg(value_name = "LOCAL:REMOTE")]
    ports: Pair,
}

/// A port here and a port there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    local: u16,
    remote: u16,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Pair, String> {
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        match (local.parse(), remote.parse()) {
            (Ok(local), Ok(remote)) if remote > 0 => Ok(Pair { local, remote }),
            _ => Err("write LOCAL:REMOTE, as 8080:80".to_owned()),
        }
    }
}

pub(super) fn forward(args: &ForwardArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let host = host(cx)?;
    let id = word(&args.sandbox_id)?;
    let Pair { local, remote } = args.ports;
    // What is not there or not ours is told now, not with the first connection.
    let sandbox = host.get(&format!("/v1/sandboxes/{id}"))?;
    let far = Far::new(&host, &format!("/v1/sandboxes/{id}/tunnels/{remote}"));
    node_runtime()?.block_on(async {
        let shutdown = Shutdown::new();
        stop_on_signal(&shutdown)?;
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, local));
        let unheard = |e: std::io::Error| Error::new(&code::NODE_LISTEN, format!("{at}: {e}"));
        let listener = TcpListener::bind(at).await.map_err(unheard)?;
        let address = listener.local_addr().map_err(unheard)?.to_string();
        if cx.out.json() {
            cx.out.object(true, json!({ "address": address, "port": remote }))?;
        } else {
            cx.out.line(&format!("{address} is port {remote} of {id}; Ctrl-C stops it"))?;
            cx.out.remark(&format!("{}, {} left", hosted::burn(&sandbox), hosted::lasts(&sandbox)));
        }
        cx.out.flush()?;
        let serving = std::pin::pin!(serve(&listener, &far, cx));
        select(serving, shutdown.triggered()).await;
        Ok::<_, Error>(())
    })?;
    Ok(Answer::Yes)
}

/// Carries every connection that comes.
async fn serve(listener: &TcpListener, far: &Far, cx: &mut Context<'_>) {
    let mut carried = FuturesUnordered::new();
    loop {
        let has_room = carried.len() < CONNECTIONS_MAX;
        let accept = std::pin::pin!(async {
            match has_room {
                true => listener.accept().await,
                false => std::future::pending().await,
            }
        });
        let ended = std::pin::pin!(async {
            match carried.is_empty() {
                true => std::future::pending().await,
                false => carried.next().await,
            }
        });
        match select(accept, ended).await {
            Either::Left((Ok((near, _)), _)) => carried.push(far.carry(near)),
            // One that was gone before it was taken.
            Either::Left((Err(_), _)) => SystemClock.sleep(10).await,
            Either::Right((Some(Err(why)), _)) => cx.out.remark(&why),
            Either::Right(_) => {}
        }
    }
}

/// Where the tunnels begin.
struct Far {
    url: String,
    authorization: String,
    trust: Option<Trust>,
}

impl Far {
    fn new(host: &Host, path: &str) -> Far {
        let url = format!("{}{path}", host.url().replacen("http", "ws", 1));
        let authorization = host.authorization().unwrap_or_default().to_owned();
        Far { url, authorization, trust: host.trust().cloned() }
    }

    async fn open(&self) -> Result<WebSocketStream<Wire>, String> {
        let mut request = self.url.as_str().into_client_request().map_err(|e| e.to_string())?;
        let value = HeaderValue::from_str(&self.authorization).map_err(|e| e.to_string())?;
        request.headers_mut().insert("authorization", value);
        let wire = reach(&self.url, self.trust.as_ref()).await.map_err(|e| e.to_string())?;
        match tokio_tungstenite::client_async(request, wire).await {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::Error::Http(answer)) => {
                Err(refusal(answer.status().as_u16(), answer.body()))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Carries one connection. A message without bytes says that its side has said all; when both have, the node ends
    /// it.
    async fn carry(&self, near: TcpStream) -> Result<(), String> {
        let _ = near.set_nodelay(true);
        let (mut to_far, mut from_far) = self.open().await?.split();
        let (mut from_near, mut to_near) = near.into_split();
        let outwards = std::pin::pin!(async {
            let mut piece = vec![0; PIECE_BYTES];
            while let Ok(length) = from_near.read(&mut piece).await {
                let piece = piece.get(..length).unwrap_or_default().to_vec();
                if to_far.send(Message::Binary(piece.into())).await.is_err() {
                    return;
                }
                if length == 0 {
                    // It has asked all; what it asked for may still come.
                    std::future::pending::<()>().await;
                }
            }
        });
        let inwards = std::pin::pin!(async {
            while let Some(Ok(message)) = from_far.next().await {
                match message {
                    Message::Binary(bytes) if bytes.is_empty() => drop(to_near.shutdown().await),
                    Message::Binary(bytes) if to_near.write_all(&bytes).await.is_err() => break,
                    Message::Close(_) => break,
                    _ => {}
                }
            }
        });
        select(outwards, inwards).await;
        Ok(())
    }
}

/// The words of a refusal, if they have come with its head.
fn refusal(status: u16, body: &Option<Vec<u8>>) -> String {
    let body: Option<Value> = body.as_deref().and_then(|body| serde_json::from_slice(body).ok());
    let message = body.as_ref().and_then(|body| body["error"]["message"].as_str());
    message.map_or_else(|| format!("the node refuses with status {status}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ports_are_read() {
        let pair = |text: &str| text.parse::<Pair>().ok().map(|pair| (pair.local, pair.remote));
        assert_eq!(pair("8080:80"), Some((8080, 80)));
        assert_eq!(pair("8000"), Some((8000, 8000)));
        assert_eq!(pair("0:80"), Some((0, 80)));
        for bad in ["", ":", "80:", ":80", "0", "80:0", "70000:1", "a:b", "1:2:3", "-1:2"] {
            assert_eq!(pair(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_its_own_words() {
        let body = br#"{"error":{"message":"nobody listens"}}"#.to_vec();
        assert_eq!(refusal(503, &Some(body)), "nobody listens");
        assert_eq!(refusal(503, &None), "the node refuses with status 503");
    }
}
