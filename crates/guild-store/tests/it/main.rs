//! One integration binary for the crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Runs the tests named on both databases: what one does the other must do.
macro_rules! on_both {
    ($($test:ident,)+) => {
        mod on_sqlite {
            $(#[test] fn $test() { super::$test(crate::Engine::Sqlite); })+
        }
        mod on_postgres {
            $(#[test] fn $test() { super::$test(crate::Engine::Postgres); })+
        }
    };
}

mod backup;
mod check;
mod clock;
mod disaster;
mod event;
mod killed;
mod lease;
mod migrate;
mod outage;
mod outbox;
mod patient;
mod retention;
mod server;
mod sets;
mod silence;
mod slow;
mod store;

use std::time::Duration;

use guild_store::{Hooks, Migrations, Options, Service, Store};
use testbed::Database;

/// Which database a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Sqlite,
    Postgres,
}

/// An empty database of its own.
struct Place {
    dir: tempfile::TempDir,
    database: Option<Database>,
}

impl Place {
    fn on(engine: Engine) -> Place {
        let database = (engine == Engine::Postgres).then(|| Database::new().unwrap());
        Place { dir: tempfile::tempdir().unwrap(), database }
    }

    fn options(&self) -> Options {
        match &self.database {
            Some(database) => Options::at(&database.url()),
            None => Options::file(&self.dir.path().join("node.db")),
        }
    }

    fn open(&self, hooks: Hooks) -> Service {
        Service::open(&self.options(), &Migrations::store(), hooks, 0).unwrap()
    }
}

/// A store in a database of its own.
struct Scratch {
    place: Place,
    service: Option<Service>,
}

impl Scratch {
    fn on(engine: Engine) -> Scratch {
        let mut this = Scratch { place: Place::on(engine), service: None };
        this.reopen();
        this
    }

    fn options(&self) -> Options {
        self.place.options()
    }

    fn reopen(&mut self) {
        self.close();
        self.service = Some(self.place.open(Hooks::default()));
    }

    fn close(&mut self) {
        if let Some(service) = self.service.take() {
            service.close();
        }
    }

    fn store(&self) -> Store {
        self.service.as_ref().unwrap().handle()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.close();
    }
}

/// No test takes so long, however busy the machine is: what waits longer would wait for ever.
const LONGEST: Duration = Duration::from_secs(600);

#[expect(clippy::disallowed_methods, reason = "a test that hangs must end, in real time")]
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LONGEST, future).await.unwrap() })
}
