//! Durable state: transactions, migrations, the event table, the outbox and its drainer, leases, retention, backup and
//! check. No policy.
//!
//! A write is a *synchronous, re-runnable* closure, so no foreign wait can stand inside a transaction:
//!
//! ```
//! # use guild_store::{Hooks, Migrations, Options, Service, args};
//! # let dir = tempfile::tempdir().unwrap();
//! # let options = Options::file(&dir.path().join("node.db"));
//! let service = Service::open(&options, &Migrations::store(), Hooks::default(), 0).unwrap();
//! let store = service.handle();
//! let written = store.write(|tx| tx.exec("DELETE FROM outbox WHERE seq = $1", args![7]));
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! assert_eq!(written.await.unwrap(), 0);
//! # });
//! service.close();
//! ```
//!
//! `write` only queues a call. One pump drains the queue: BEGIN, the calls, COMMIT, bells, answers. In
//! production a thread runs the pump, in simulation a task does: that is the whole difference.

pub mod audit;
pub mod backup;
pub mod check;
mod clock;
mod connect;
mod db;
mod error;
pub mod event;
pub mod lease;
pub mod migrate;
pub mod outbox;
mod postgres;
mod pump;
mod refusal;
pub mod retention;
mod service;
mod sqlite;
mod tx;
mod watch;

pub use clock::DatabaseClock;
pub use connect::connect;
pub use db::{Access, Column, Columns, Db, Decode, Engine, FromVal, Sql, Val};
pub use error::{Error, Result, code};
pub use migrate::{Migration, Migrations};
pub use postgres::Postgres;
pub use pump::{Hooks, Point, Pump, Store, pumps};
pub use service::{Options, Place, Service};
pub use sqlite::Sqlite;
pub use tx::{Rx, Tx};
pub use watch::Watch;
