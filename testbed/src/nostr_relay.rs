//! A Nostr relay of another make: `nostr-relay`, in Python on SQLite.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::free_port;
use crate::process::{Process, said};

/// What it needs, each in its exact version.
pub const REQUIREMENTS: &str = include_str!("../nostr-relay.txt");

/// A relay of its own.
#[derive(Debug)]
pub struct NostrRelay {
    directory: TempDir,
    port: u16,
    process: Option<Process>,
}

impl NostrRelay {
    /// Starts a relay without events.
    pub fn start() -> Result<NostrRelay, String> {
        let directory = tempfile::Builder::new().prefix("guild-relay-").tempdir().map_err(said)?;
        let port = free_port()?;
        let config = config(directory.path(), port);
        std::fs::write(directory.path().join("config.yaml"), config).map_err(said)?;
        let mut relay = NostrRelay { directory, port, process: None };
        relay.resume()?;
        Ok(relay)
    }

    /// Starts the relay again after [`NostrRelay::stop`] or [`NostrRelay::kill`], on the same port and the same events.
    pub fn resume(&mut self) -> Result<(), String> {
        let (port, directory) = (self.port, self.directory.path());
        let arguments = [
            // It puts a socket there.
            format!("HOME={}", directory.display()),
            program()?.display().to_string(),
            "-c".to_owned(),
            directory.join("config.yaml").display().to_string(),
            "serve".to_owned(),
        ];
        // QUIT: at once, whoever is connected.
        let env = Path::new("/usr/bin/env");
        let mut process = Process::start_as_self(env, &arguments, "QUIT", directory)?;
        process.wait_until(|| answers(port))?;
        self.process = Some(process);
        Ok(())
    }

    /// Stops the relay and with it every connection; its events stay.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Kills the relay in the middle of whatever it does. What it had not written is lost.
    pub fn kill(&mut self) -> Result<(), String> {
        self.process.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.port)
    }
}

fn config(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    format!(
        "relay_name: foreign
storage:
  sqlalchemy.url: sqlite+aiosqlite:///{directory}/events.db
  validators:
    - nostr_relay.validators.is_not_too_large
    - nostr_relay.validators.is_signed
gunicorn:
  bind: 127.0.0.1:{port}
  workers: 1
  loglevel: info
  graceful_timeout: 1
"
    )
}

/// Whether a relay says what it is on this port.
fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET / HTTP/1.0\r\nAccept: application/nostr+json\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("supported_nips"))
}

/// Where `cargo xtask test` and `cargo xtask services` install it: in the directory `python` of the build directory, in
/// which this program is.
pub fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(said)?;
    let found = own.ancestors().map(|up| up.join("python/bin/nostr-relay")).find(|p| p.is_file());
    found.ok_or_else(|| {
        "nostr-relay is missing; install with: cargo xtask services -- true".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_stops_and_comes_back_on_its_port() {
        let mut relay = NostrRelay::start().unwrap();
        assert!(answers(relay.port));
        relay.stop();
        assert!(!answers(relay.port));
        relay.resume().unwrap();
        assert!(answers(relay.port));
        relay.kill().unwrap();
        assert!(!answers(relay.port));
        relay.resume().unwrap();
        assert!(answers(relay.port));
    }
}
