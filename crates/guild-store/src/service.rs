//! A store on threads of its own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use guild_protocol::env::UnixMs;

use crate::connect::connect_to;
use crate::db::{Access, Db};
use crate::postgres::redacted;
use crate::pump::{Hooks, Pump, Store, pumps};
use crate::{Error, Migrations, Result};

/// What a URL names.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// A file on this machine.
    SqliteFile(PathBuf),
    /// A server, by its whole URL.
    PostgresServer(String),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password.
        match self {
            Place::SqliteFile(path) => f.debug_tuple("SqliteFile").field(path).finish(),
            Place::PostgresServer(url) => {
                f.debug_tuple("PostgresServer").field(&redacted(url)).finish()
            }
        }
    }
}

/// How a store is opened.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// `sqlite:///absolute/path/to/file.db`, or `postgresql://user@host:port/database`.
    pub url: String,
    /// How many calls may wait; one more is refused with `store.busy`.
    pub queue_max_calls: usize,
    /// How many calls share one commit at most.
    pub commit_max_calls: usize,
    /// How many threads read.
    pub readers: usize,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password.
        f.debug_struct("Options")
            .field("url", &self.shown_url())
            .field("queue_max_calls", &self.queue_max_calls)
            .field("commit_max_calls", &self.commit_max_calls)
            .field("readers", &self.readers)
            .finish()
    }
}

impl Options {
    /// The defaults, on this file.
    pub fn file(path: &Path) -> Options {
        Options::at(&format!("sqlite://{}", path.display()))
    }

    /// The defaults, on the database of this URL.
    pub fn at(url: &str) -> Options {
        Options { url: url.to_owned(), queue_max_calls: 4_096, commit_max_calls: 256, readers: 4 }
    }

    /// What the URL names.
    pub fn place(&self) -> Result<Place> {
        let bad = |reason: &str| {
            Err(Error::BadUrl { url: redacted(&self.url), reason: reason.to_owned() })
        };
        match self.url.split_once("://") {
            Some(("sqlite", path)) if path.starts_with('/') => {
                Ok(Place::SqliteFile(PathBuf::from(path)))
            }
            // A relative path would name another file from every directory, and `file:` would be a URI.
            Some(("sqlite", _)) => bad("the path of the file must be absolute"),
            Some(("postgres" | "postgresql", _)) => Ok(Place::PostgresServer(self.url.clone())),
            _ => bad("it begins with neither sqlite:// nor postgresql://"),
        }
    }

    /// The file, if it is one.
    pub fn sqlite_file(&self) -> Option<PathBuf> {
        match self.place() {
            Ok(Place::SqliteFile(path)) => Some(path),
            _ => None,
        }
    }

    /// The URL without a password: for messages.
    pub fn shown_url(&self) -> String {
        redacted(&self.url)
    }

    fn check(&self) -> Result<()> {
        let counts = [self.queue_max_calls, self.commit_max_calls, self.readers];
        if counts.contains(&0) {
            let message = "store: queue_max_calls, commit_max_calls and readers must be at least 1";
            return Err(Error::BadOptions(message.to_owned()));
        }
        Ok(())
    }
}

/// The threads of a store: one writer, and some readers.
#[derive(Debug)]
pub struct Service {
    store: Store,
    writer: Option<PumpThread>,
    readers: Vec<PumpThread>,
}

impl Service {
    /// Opens the database, brings its schema up to date, and starts the threads.
    pub fn open(
        options: &Options,
        migrations: &Migrations,
        hooks: Hooks,
        now_ms: UnixMs,
    ) -> Result<Service> {
        options.check()?;
        let place = options.place()?;
        let mut writer = connect_to(&place, Access::Write)?;
        let migrations = migrations.clone();
        // On a thread of its own, as PostgreSQL's client demands.
        let (writer, applied) = on_thread("store-migrate", move || {
            let applied = migrations.apply(&mut *writer, now_ms);
            (writer, applied)
        })?;
        if let Err(error) = applied {
            drop_on_thread(writer);
            return Err(error);
        }
        let mut readers = Vec::new();
        for _ in 0..options.readers {
            readers.push(connect_to(&place, Access::Read)?);
        }
        Service::start(options, Some(writer), readers, &hooks)
    }

    /// Opens an existing database for reading only: works beside the process that writes it.
    pub fn open_read_only(options: &Options, migrations: &Migrations) -> Result<Service> {
        options.check()?;
        let mut reader = connect_to(&options.place()?, Access::Read)?;
        let migrations = migrations.clone();
        let (reader, checked) = on_thread("store-check", move || {
            let checked = migrations.check(&mut *reader);
            (reader, checked)
        })?;
        if let Err(error) = checked {
            drop_on_thread(reader);
            return Err(error);
        }
        Service::start(options, None, vec![reader], &Hooks::default())
    }

    fn start(
        options: &Options,
        writer: Option<Box<dyn Db>>,
        readers: Vec<Box<dyn Db>>,
        hooks: &Hooks,
    ) -> Result<Service> {
        let (store, writes, reads) = pumps(options.queue_max_calls, hooks);
        let writer = match writer {
            Some(db) => {
                Some(PumpThread::start("store-writer", writes, db, options.commit_max_calls)?)
            }
            None => {
                store.close_writes();
                None
            }
        };
        let readers =
            readers.into_iter().map(|db| PumpThread::start("store-reader", reads.clone(), db, 1));
        let readers = readers.collect::<Result<_>>()?;
        Ok(Service { store, writer, readers })
    }

    /// The handle that everybody uses.
    pub fn handle(&self) -> Store {
        self.store.clone()
    }

    /// Takes no further calls, finishes those that wait, and ends the threads. Blocks.
    pub fn close(self) {
        self.store.close();
        // The writer's connection is the last to close: only it can bring the write-ahead log home, so that the file
        // alone is the whole database.
        for thread in self.readers.into_iter().chain(self.writer) {
            thread.end();
        }
    }
}

/// A thread that pumps, and keeps its connection until it may let go of it.
#[derive(Debug)]
struct PumpThread {
    thread: JoinHandle<()>,
    let_go: mpsc::Sender<()>,
}

impl PumpThread {
    fn start(name: &str, pump: Pump, mut db: Box<dyn Db>, max_calls: usize) -> Result<PumpThread> {
        let (let_go, may_let_go) = mpsc::channel();
        let body = move || {
            pump.run(&mut *db, max_calls);
            // Told, or nobody is left to tell.
            let _ = may_let_go.recv();
        };
        let thread = spawn(name, body)?;
        Ok(PumpThread { thread, let_go })
    }

    fn end(self) {
        // A panic of the pump has been reported by the panic hook; there is nothing left to save here.
        let _ = self.let_go.send(());
        let _ = self.thread.join();
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|e| Error::Database(format!("no thread could be started: {e}")))
}

fn on_thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    spawn(name, body)?.join().map_err(|_| Error::Panicked)
}

fn drop_on_thread(db: Box<dyn Db>) {
    // Without threads there is no runtime either, and nothing more to do.
    let _ = on_thread("store-close", move || drop(db));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_printed_holds_the_password() {
        let options = Options::at("postgresql://ann:secret@db/guild");
        let shown = format!("{options:?} {:?}", options.place().unwrap());
        assert!(shown.contains("ann@db") && !shown.contains("secret"), "{shown}");
    }
}
