//! A store on threads of its own.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use guild_protocol::env::UnixMs;

use crate::pump::{Hooks, Pump, Store, pumps};
use crate::sqlite::Sqlite;
use crate::{Error, Migrations, Result};

/// How a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `sqlite:///absolute/path/to/file.db`.
    pub url: String,
    /// How many calls may wait; one more is refused with `store.busy`.
    pub queue_max_calls: usize,
    /// How many calls share one commit at most.
    pub commit_max_calls: usize,
    /// How many threads read.
    pub readers: usize,
}

impl Options {
    /// The defaults, on this file.
    pub fn file(path: &Path) -> Options {
        Options {
            url: format!("sqlite://{}", path.display()),
            queue_max_calls: 4_096,
            commit_max_calls: 256,
            readers: 2,
        }
    }

    /// The SQLite file that the URL names.
    pub fn sqlite_path(&self) -> Result<PathBuf> {
        match self.url.strip_prefix("sqlite://") {
            // A relative path would name another file from every directory, and `file:` would be a URI.
            Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
            _ => Err(Error::BadUrl(self.url.clone())),
        }
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
    writer: Option<JoinHandle<Sqlite>>,
    readers: Vec<JoinHandle<Sqlite>>,
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
        let path = options.sqlite_path()?;
        let mut writer = Sqlite::open(&path)?;
        migrations.apply(&mut writer, now_ms)?;
        let mut readers = Vec::new();
        for _ in 0..options.readers {
            readers.push(Sqlite::open_read_only(&path)?);
        }
        Service::start(options, Some(writer), readers, &hooks)
    }

    /// Opens an existing database for reading; every write is refused. Works beside the process that writes it.
    pub fn open_read_only(options: &Options, migrations: &Migrations) -> Result<Service> {
        options.check()?;
        let mut reader = Sqlite::open_read_only(&options.sqlite_path()?)?;
        migrations.check(&mut reader)?;
        Service::start(options, None, vec![reader], &Hooks::default())
    }

    fn start(
        options: &Options,
        writer: Option<Sqlite>,
        readers: Vec<Sqlite>,
        hooks: &Hooks,
    ) -> Result<Service> {
        let (store, writes, reads) = pumps(options.queue_max_calls, hooks);
        let writer = match writer {
            Some(db) => Some(pump_thread("store-writer", writes, db, options.commit_max_calls)?),
            None => {
                store.close_writes();
                None
            }
        };
        let readers =
            readers.into_iter().map(|db| pump_thread("store-reader", reads.clone(), db, 1));
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
            // A panic of the pump has been reported by the panic hook; there is nothing left to save here.
            drop(thread.join());
        }
    }
}

fn pump_thread(
    name: &str,
    pump: Pump,
    mut db: Sqlite,
    max_calls: usize,
) -> Result<JoinHandle<Sqlite>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            pump.run(&mut db, max_calls);
            db
        })
        .map_err(|e| Error::Database(format!("no thread could be started: {e}")))
}
