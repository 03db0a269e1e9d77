//! One integration binary for the crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod backup;
mod check;
mod disaster;
mod event;
mod lease;
mod migrate;
mod outbox;
mod retention;
mod store;

use guild_store::{Hooks, Migrations, Options, Service, Store};

/// A store in a directory of its own.
struct Scratch {
    dir: tempfile::TempDir,
    service: Option<Service>,
}

impl Scratch {
    fn new() -> Scratch {
        let mut this = Scratch { dir: tempfile::tempdir().unwrap(), service: None };
        this.reopen();
        this
    }

    fn options(&self) -> Options {
        Options::file(&self.dir.path().join("node.db"))
    }

    fn reopen(&mut self) {
        self.close();
        let service = Service::open(&self.options(), &Migrations::store(), Hooks::default(), 0);
        self.service = Some(service.unwrap());
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

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
