//! Somebody who asks over HTTP, over and over, on a few connections, and takes the time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use testbed::bench::Watch;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Makes the how-manieth request.
pub(crate) type Make<'a> = &'a (dyn Fn(u64) -> String + Sync);

pub(crate) fn get(path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n")
}

pub(crate) fn create_job(token: &str, key: &str) -> String {
    const BODY: &str = r#"{"name":"bench","max_spend_cents":100,"ttl_s":3600}"#;
    format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    )
}

/// A connection that is kept.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Connection, String> {
        let stream = TcpStream::connect(address).await.map_err(said)?;
        stream.set_nodelay(true).map_err(said)?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// The body of the answer. One that is no success ends the bench: a refusal is fast.
    pub(crate) async fn ask(&mut self, request: &str) -> Result<Vec<u8>, String> {
        self.0.get_mut().write_all(request.as_bytes()).await.map_err(said)?;
        let (mut status, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.map_err(said)?;
            let line = line.trim_end().to_ascii_lowercase();
            if status.is_empty() {
                status = line;
            } else if let Some(bytes) = line.strip_prefix("content-length:") {
                length = bytes.trim().parse().map_err(said)?;
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.map_err(said)?;
        match status.contains(" 20") {
            true => Ok(body),
            false => Err(format!("{status}: {}", String::from_utf8_lossy(&body))),
        }
    }
}

/// How long each answer took, the shortest first, and how long all of it.
pub(crate) struct Times {
    pub(crate) times: Vec<Duration>,
    pub(crate) took: Duration,
}

impl Times {
    pub(crate) fn per_s(&self) -> f64 {
        self.times.len() as f64 / self.took.as_secs_f64()
    }

    /// The time within which so many of a hundred were answered.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let at = self.times.len() * percent / 100;
        self.times.get(at).or(self.times.last()).copied().unwrap_or(Duration::MAX)
    }

    #[expect(clippy::print_stderr, reason = "a benchmark prints")]
    pub(crate) fn tell(&self, what: &str) {
        let (p50, p99) = (self.percentile(50), self.percentile(99));
        eprintln!("{what}: {:.0} a second, p50 {p50:?}, p99 {p99:?}", self.per_s());
    }
}

/// Asks on so many connections for as long as this says.
pub(crate) async fn ask(
    address: SocketAddr,
    connections: usize,
    goes_on: &(dyn Fn() -> bool + Sync),
    make: Make<'_>,
) -> Result<Times, String> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let one = || async {
        let mut connection = Connection::open(address).await?;
        let mut times = Vec::new();
        while goes_on() {
            let request = make(NUMBER.fetch_add(1, Ordering::Relaxed));
            let watch = Watch::start();
            connection.ask(&request).await?;
            times.push(watch.elapsed());
        }
        Ok::<_, String>(times)
    };
    let watch = Watch::start();
    let times = try_join_all((0..connections).map(|_| one())).await?;
    let took = watch.elapsed();
    let mut times: Vec<Duration> = times.into_iter().flatten().collect();
    times.sort_unstable();
    Ok(Times { times, took })
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
