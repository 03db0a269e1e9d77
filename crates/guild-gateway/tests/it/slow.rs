//! Clients that open many sockets and hardly say anything.

use std::net::SocketAddr;
use std::sync::Arc;

use guild_gateway::{Options, Roles, Service};
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::Scene;

/// Whoever waits for something to move has waited long enough once that is said. Every other wait goes on.
#[derive(Clone)]
struct Patience(watch::Sender<u32>);

impl Patience {
    fn ends(&self) {
        self.0.send_modify(|times| *times += 1);
    }
}

impl Clock for Patience {
    fn now_ms(&self) -> UnixMs {
        0
    }
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let mut said = self.0.subscribe();
        let began = *said.borrow();
        Box::pin(async move {
            if duration_ms == Options::default().idle_max_ms {
                said.wait_for(|now| *now > began).await.unwrap();
            } else {
                std::future::pending::<()>().await;
            }
        })
    }
}

async fn connect(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(from.parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

async fn ask(from: &str, to: SocketAddr, path: &str) -> String {
    let mut socket = connect(from, to).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

const HONEST: &str = "127.0.0.1:0";
const HOSTILE: &str = "127.0.0.2:0";

#[tokio::test]
async fn dripping_sockets_lock_nobody_out_are_ended_and_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let numbers = recorder.handle();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let scene = Scene::new(Options::default());
    let roles = Roles { metrics: Some(Arc::new(move || numbers.render())), ..scene.roles.clone() };
    let patience = Patience(watch::Sender::new(0));
    let options =
        Options { connections_max: 40, connections_per_address: 16, ..Options::default() };
    let (clock, shutdown) = (Arc::new(patience.clone()), scene.shutdown.clone());
    let gateway = Service::new(options, roles, clock, "secret", shutdown);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let clients = async {
        // Five times as many as there is room for, each with half a request and a letter now and then.
        let mut dripping = Vec::new();
        for _ in 0..200 {
            let mut socket = connect(HOSTILE, to).await;
            let _ = socket.write_all(b"GET /healthz HT").await;
            dripping.push(socket);
        }
        for _ in 0..3 {
            for socket in &mut dripping {
                let _ = socket.write_all(b"x").await;
            }
        }
        assert!(ask(HONEST, to, "/healthz").await.starts_with("HTTP/1.1 200"));
        let counted = ask(HONEST, to, "/metrics").await;
        let dropped = "http_connections_dropped_total{why=\"connections_of_address\"} 184";
        assert!(counted.lines().any(|line| line == dropped), "{counted}");
        // What they send is no movement: the rest of them ends too, and their address is served again.
        patience.ends();
        for socket in &mut dripping {
            let mut rest = Vec::new();
            let _ = socket.read_to_end(&mut rest).await;
        }
        let counted = ask(HOSTILE, to, "/metrics").await;
        for line in
            ["http_connections_dropped_total{why=\"no_request\"} 16", "http_connections_open 1"]
        {
            assert!(counted.lines().any(|shown| shown == line), "{line}: {counted}");
        }
        scene.shutdown.trigger();
    };
    let (served, ()) = futures_util::join!(gateway.run(listener), clients);
    served.unwrap();
}
