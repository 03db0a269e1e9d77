//! Tunnels to ports inside.

use guild_sandbox::agent::{Client, Tunnel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{World, refused, words};

/// A server that answers each line in capitals.
const SERVER: &str = "import socketserver\n\
class H(socketserver.StreamRequestHandler):\n\
\x20   def handle(self):\n\
\x20       for line in self.rfile: self.wfile.write(line.upper()); self.wfile.flush()\n\
class S(socketserver.ThreadingTCPServer): allow_reuse_address = True\n\
with S(('127.0.0.1', 7000), H) as s:\n\
\x20   print('ready', flush=True)\n\
\x20   s.serve_forever()\n";

async fn started(client: &Client) {
    let id = client.exec(&words(&["python3", "-c", SERVER])).await.unwrap();
    let ready = client.stream(&id, 1).next().await.unwrap().unwrap();
    assert_eq!(ready.data_b64.0, b"ready\n", "{}", String::from_utf8_lossy(&ready.data_b64.0));
}

async fn read(tunnel: &mut Tunnel, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        bytes.extend(tunnel.receive().await.unwrap().unwrap());
    }
    bytes
}

#[tokio::test]
async fn a_tunnel_carries_both_ways() {
    let world = World::new();
    started(&world.client).await;
    let mut tunnel = world.client.connect(7000).await.unwrap();
    tunnel.send(b"hello\n").await.unwrap();
    assert_eq!(read(&mut tunnel, 6).await, b"HELLO\n");
    let mut other = world.client.connect(7000).await.unwrap();
    let large = [b"x".repeat(1 << 19), b"\n".to_vec()].concat();
    other.send(&large).await.unwrap();
    assert_eq!(read(&mut other, large.len()).await, large.to_ascii_uppercase());
    tunnel.send(b"still here\n").await.unwrap();
    assert_eq!(read(&mut tunnel, 11).await, b"STILL HERE\n");
}

#[tokio::test]
async fn where_nobody_listens_is_said_and_the_host_is_not_reached() {
    let world = World::new();
    assert_eq!(refused(world.client.connect(7001).await), "agent.port_refused");
    // The agent's own port is open on the host, not inside.
    let port = world.address.rsplit(':').next().unwrap().parse().unwrap();
    assert_eq!(refused(world.client.connect(port).await), "agent.port_refused");
}

#[tokio::test]
async fn the_end_of_the_server_ends_the_tunnel() {
    let world = World::new();
    let once = "import socket; s = socket.create_server(('127.0.0.1', 7002)); print('ready', flush=True); \
                c, _ = s.accept(); c.sendall(b'bye'); c.close()";
    let id = world.client.exec(&words(&["python3", "-c", once])).await.unwrap();
    world.client.stream(&id, 1).next().await.unwrap();
    let mut tunnel = world.client.connect(7002).await.unwrap();
    assert_eq!(tunnel.receive().await.unwrap().unwrap(), b"bye");
    assert_eq!(tunnel.receive().await.unwrap(), None);
}

/// Reads to the end, then answers how much that was; or says all at once, then reads to the end and prints it.
const BY_TURNS: &str = "import socket\n\
def all(c):\n\
\x20   n = 0\n\
\x20   while d := c.recv(65536): n += len(d)\n\
\x20   return n\n\
s = socket.create_server(('127.0.0.1', 7003)); print('ready', flush=True)\n\
c, _ = s.accept(); n = all(c)\n\
for _ in range(3): c.sendall(b'%d ' % n * 1000)\n\
c.close()\n\
c, _ = s.accept(); c.sendall(b'first'); c.shutdown(socket.SHUT_WR); print(all(c), flush=True); c.close()\n";

#[tokio::test]
async fn either_side_may_say_all_before_the_other() {
    let world = World::new();
    let id = world.client.exec(&words(&["python3", "-c", BY_TURNS])).await.unwrap();
    let mut printed = world.client.stream(&id, 1);
    assert_eq!(printed.next().await.unwrap().unwrap().data_b64.0, b"ready\n");
    // We have said all: the server learns it, and its answer comes.
    let mut tunnel = world.client.connect(7003).await.unwrap();
    tunnel.write_all(&[7; 300_000]).await.unwrap();
    tunnel.shutdown().await.unwrap();
    assert!(tunnel.write_all(b"more").await.is_err(), "whoever has said all says no more");
    let mut answer = Vec::new();
    tunnel.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"300000 ".repeat(3_000));
    // The server has said all: what we say still arrives.
    let mut tunnel = world.client.connect(7003).await.unwrap();
    let mut answer = Vec::new();
    tunnel.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"first");
    for _ in 0..10 {
        tunnel.write_all(&[7; 50_000]).await.unwrap();
        tunnel.flush().await.unwrap();
    }
    tunnel.shutdown().await.unwrap();
    assert_eq!(printed.next().await.unwrap().unwrap().data_b64.0, b"500000\n");
    assert_eq!(tunnel.receive().await.unwrap(), None);
}
