//! NATS.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use crate::free_port;
use crate::process::{Process, give_to_ordinary_user, said};

/// Names the server of the whole test run, if somebody has started one.
pub const SHARED_URL: &str = "GUILD_TEST_NATS_URL";

/// A server of its own. What it keeps goes away with it.
#[derive(Debug)]
pub struct Nats {
    directory: TempDir,
    port: u16,
    /// Whether it keeps what it is told to keep.
    keeps: bool,
    process: Option<Process>,
}

impl Nats {
    /// Starts a server that keeps nothing.
    pub fn start() -> Result<Nats, String> {
        Nats::start_as(false)
    }

    /// Starts a server with streams (JetStream), which survive a stop.
    pub fn start_with_streams() -> Result<Nats, String> {
        Nats::start_as(true)
    }

    fn start_as(keeps: bool) -> Result<Nats, String> {
        let directory = tempfile::Builder::new().prefix("guild-nats-").tempdir().map_err(said)?;
        give_to_ordinary_user(directory.path())?;
        let mut server = Nats { directory, port: free_port()?, keeps, process: None };
        server.resume()?;
        Ok(server)
    }

    /// Starts the server again after [`Nats::stop`], on the same port.
    pub fn resume(&mut self) -> Result<(), String> {
        let port = self.port;
        let mut arguments = vec!["--addr", "127.0.0.1", "--port"];
        let (number, place) = (port.to_string(), self.directory.path().display().to_string());
        arguments.push(&number);
        if self.keeps {
            arguments.extend(["--jetstream", "--store_dir", &place]);
        }
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let mut process = Process::start(&program()?, &arguments, "TERM", self.directory.path())?;
        process.wait_until(|| greets(port))?;
        self.process = Some(process);
        Ok(())
    }

    /// Stops the server and with it every connection.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The server that the test run shares, or that this process now starts. Whoever uses it keeps to subjects of
    /// its own.
    pub fn shared_url() -> Result<String, String> {
        static OWN: Mutex<Option<Nats>> = Mutex::new(None);
        #[expect(
            clippy::disallowed_methods,
            reason = "how a test run tells its tests where the server is"
        )]
        if let Ok(url) = std::env::var(SHARED_URL) {
            return Ok(url);
        }
        // Nothing drops a static: the keeper stops the server when this process ends.
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        if own.is_none() {
            *own = Some(Nats::start()?);
        }
        own.as_ref().map(Nats::url).ok_or_else(|| "no server".to_owned())
    }
}

/// Whether a NATS server speaks on this port: it is the one that speaks first.
fn greets(port: u16) -> bool {
    let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let mut line = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
        && BufReader::new(stream).read_line(&mut line).is_ok()
        && line.starts_with("INFO ")
}

/// The server's program. Debian keeps it where only root looks.
pub fn program() -> Result<PathBuf, String> {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/sbin"];
    let found = places.map(|place| Path::new(place).join("nats-server"));
    found.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        "nats-server is missing; install with: apt-get install nats-server, or run: cargo xtask test"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_stops_and_comes_back_on_its_port() {
        let mut server = Nats::start().unwrap();
        let url = server.url();
        assert!(greets(server.port));
        server.stop();
        assert!(!greets(server.port));
        server.resume().unwrap();
        assert!(greets(server.port));
        assert_eq!(server.url(), url);
    }
}
