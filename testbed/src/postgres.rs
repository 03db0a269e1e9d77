//! PostgreSQL.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use postgres::{Client, NoTls};
use tempfile::TempDir;

use crate::process::{Process, as_ordinary_user, give_to_ordinary_user, said};
use crate::{free_port, wait_ms};

/// Names the server of the whole test run, if somebody has started one.
pub const SHARED_URL: &str = "GUILD_TEST_POSTGRES_URL";

/// How often a database is asked for a copy while somebody is still connected to it.
const COPY_TRIES: u32 = 250;

/// Whether commits reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// They do: for benches, and whenever the server itself is killed.
    Full,
    /// They do not: the server outlives the test, so nothing can be lost.
    Relaxed,
}

/// A cluster of its own.
#[derive(Debug)]
pub struct Postgres {
    directory: TempDir,
    port: u16,
    durability: Durability,
    process: Option<Process>,
}

impl Postgres {
    /// Makes a cluster and starts its server.
    pub fn start(durability: Durability) -> Result<Postgres, String> {
        let directory =
            tempfile::Builder::new().prefix("guild-postgres-").tempdir().map_err(said)?;
        give_to_ordinary_user(directory.path())?;
        let mut initdb = Command::new(program("initdb")?);
        initdb
            .args([
                "--auth=trust",
                "--username=guild",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
            ])
            .arg("--pgdata")
            .arg(directory.path().join("data"));
        // Not the directory of whoever runs the tests: another user may not look into it.
        let made = as_ordinary_user(&mut initdb).current_dir("/").output().map_err(said)?;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr)));
        }
        let mut server = Postgres { directory, port: free_port()?, durability, process: None };
        server.resume()?;
        Ok(server)
    }

    /// Starts the server again after [`Postgres::stop`], on the same port and the same data.
    pub fn resume(&mut self) -> Result<(), String> {
        let durable = if self.durability == Durability::Full { "on" } else { "off" };
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port),
            "unix_socket_directories=".to_owned(),
            "max_connections=200".to_owned(),
            "shared_buffers=256MB".to_owned(),
            "max_wal_size=4GB".to_owned(),
            format!("fsync={durable}"),
            format!("full_page_writes={durable}"),
            format!("synchronous_commit={durable}"),
        ];
        let mut arguments =
            vec!["-D".to_owned(), self.directory.path().join("data").display().to_string()];
        arguments.extend(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
        // INT: end all sessions and shut down in order.
        let directory = self.directory.path();
        let mut process = Process::start(&program("postgres")?, &arguments, "INT", directory)?;
        let url = self.url();
        process.wait_until(|| Client::connect(&url, NoTls).is_ok())?;
        self.process = Some(process);
        Ok(())
    }

    /// Stops the server; its data stay.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Ends the server as a power cut would: nothing more reaches the disk. Its data stay.
    pub fn crash(&mut self) {
        if let Some(number) = self.number() {
            // A server that is gone already has crashed as well.
            let _ = signal("QUIT", &[number]);
        }
        self.stop();
    }

    /// Makes the server fall silent: its port still accepts connections, but no process of it does anything.
    pub fn freeze(&self) -> Result<Frozen, String> {
        let server = self.number().ok_or("the server is not running")?;
        let mut frozen = Frozen { processes: vec![server.clone()] };
        // The first is the one that makes the others: after it there are no new ones.
        signal("STOP", &frozen.processes)?;
        wait_for_standstill(&frozen.processes)?;
        // One that ends from here on stays in the list: nobody takes note of its end.
        frozen.processes.extend(children(&server)?);
        signal("STOP", &frozen.processes)?;
        wait_for_standstill(&frozen.processes)?;
        Ok(frozen)
    }

    /// Of its first process.
    fn number(&self) -> Option<String> {
        let file = std::fs::read_to_string(self.directory.path().join("data/postmaster.pid"));
        Some(file.ok()?.lines().next()?.to_owned())
    }

    /// The maintenance database.
    pub fn url(&self) -> String {
        format!("postgresql://guild@127.0.0.1:{}/postgres", self.port)
    }

    /// A new empty database.
    pub fn database(&self) -> Result<Database, String> {
        Database::create(&self.url())
    }
}

/// A server that is silent for as long as this lives.
#[derive(Debug)]
pub struct Frozen {
    processes: Vec<String>,
}

impl Frozen {
    /// Lets the server go on.
    pub fn thaw(self) {}
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // One that has been killed meanwhile cannot go on.
        let _ = signal("CONT", &self.processes);
    }
}

fn children(number: &str) -> Result<Vec<String>, String> {
    let file = format!("/proc/{number}/task/{number}/children");
    let children = std::fs::read_to_string(file).map_err(said)?;
    Ok(children.split_whitespace().map(str::to_owned).collect())
}

/// A signal that is sent has not arrived yet.
fn wait_for_standstill(numbers: &[String]) -> Result<(), String> {
    for number in numbers {
        loop {
            let status = std::fs::read_to_string(format!("/proc/{number}/status")).map_err(said)?;
            if ["State:\tT", "State:\tZ"].iter().any(|still| status.contains(still)) {
                break;
            }
            wait_ms(1);
        }
    }
    Ok(())
}

fn signal(name: &str, numbers: &[String]) -> Result<(), String> {
    let done = Command::new("kill").args(["-s", name]).args(numbers).status().map_err(said)?;
    done.success().then_some(()).ok_or_else(|| format!("kill -s {name} {numbers:?}: {done}"))
}

/// A database of its own, dropped with this handle.
#[derive(Debug)]
pub struct Database {
    server_url: String,
    name: String,
}

impl Database {
    /// A new empty database on the server that the test run shares, or that this process now starts.
    pub fn new() -> Result<Database, String> {
        Database::create(&shared_url()?)
    }

    /// A new database on the same server, with what `prepare` has put into the first one of this name. That one is made
    /// once in a process: tables take longer to make than to copy. Whoever prepares it leaves no connection behind.
    pub fn copy_of(name: &'static str, prepare: impl FnOnce(&str)) -> Result<Database, String> {
        static MODELS: Mutex<BTreeMap<&'static str, Database>> = Mutex::new(BTreeMap::new());
        let mut models = MODELS.lock().unwrap_or_else(PoisonError::into_inner);
        let model = match models.entry(name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(empty) => {
                let model = Database::new()?;
                prepare(&model.url());
                empty.insert(model)
            }
        };
        let copy = Database::named(&model.server_url);
        let sql = format!("CREATE DATABASE {} TEMPLATE {}", copy.name, model.name);
        // A connection that was closed is gone a moment later.
        for _ in 0..COPY_TRIES {
            match admin(&copy.server_url, &sql) {
                Err(error) if error.contains("being accessed by other users") => wait_ms(20),
                done => return done.map(|()| copy),
            }
        }
        Err(format!("{} is never left alone", model.name))
    }

    fn create(server_url: &str) -> Result<Database, String> {
        let database = Database::named(server_url);
        admin(server_url, &format!("CREATE DATABASE {}", database.name))?;
        Ok(database)
    }

    /// One that is not there yet.
    fn named(server_url: &str) -> Database {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{}_{count}", std::process::id());
        Database { server_url: server_url.to_owned(), name }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        match self.server_url.rsplit_once('/') {
            Some((server, _)) => format!("{server}/{}", self.name),
            None => self.server_url.clone(),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A server that is stopped takes its databases with it.
        let _ =
            admin(&self.server_url, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// On a thread of its own: the client cannot be used inside a runtime, and a test may be in one.
fn admin(url: &str, sql: &str) -> Result<(), String> {
    let (url, sql) = (url.to_owned(), sql.to_owned());
    let run = move || Client::connect(&url, NoTls)?.batch_execute(&sql);
    let done = std::thread::spawn(run).join();
    done.map_err(|_| "the PostgreSQL client panicked".to_owned())?.map_err(said)
}

fn shared_url() -> Result<String, String> {
    static OWN: Mutex<Option<Postgres>> = Mutex::new(None);
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
        *own = Some(Postgres::start(Durability::Relaxed)?);
    }
    own.as_ref().map(Postgres::url).ok_or_else(|| "no server".to_owned())
}

/// A program of the newest PostgreSQL on this machine. Debian keeps them off the path.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = debian
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    versions.sort();
    let newest = versions.into_iter().rev().map(|(_, path)| path.join("bin").join(name));
    let elsewhere = [Path::new("/usr/bin"), Path::new("/usr/local/bin")].map(|dir| dir.join(name));
    newest.chain(elsewhere).find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "{name} is missing; install with: apt-get install postgresql, or run: cargo xtask test"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_frozen_server_does_nothing_and_one_that_was_left_so_can_be_stopped() {
        let mut server = Postgres::start(Durability::Relaxed).unwrap();
        let url = server.url();
        let frozen = server.freeze().unwrap();
        let (answered, answer) = mpsc::channel();
        std::thread::spawn(move || answered.send(admin(&url, "SELECT 1")));
        let silent = answer.recv_timeout(Duration::from_millis(300));
        assert_eq!(silent, Err(mpsc::RecvTimeoutError::Timeout));
        frozen.thaw();
        assert_eq!(answer.recv(), Ok(Ok(())));
        // As if the test had been killed before it could thaw it.
        std::mem::forget(server.freeze().unwrap());
        server.stop();
        assert_eq!(server.number(), None, "it has ended in order");
    }
}
