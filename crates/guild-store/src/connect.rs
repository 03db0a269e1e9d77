//! One connection to what a URL names.

use std::path::Path;

use crate::Result;
use crate::db::{Access, Db};
use crate::postgres::Postgres;
use crate::service::{Options, Place};
use crate::sqlite::Sqlite;

/// One connection outside the pump, for maintenance. A file is opened now, a server at its first use. Whoever writes
/// with it must hold the data directory. Not inside a runtime: PostgreSQL's client does not bear that.
pub fn connect(options: &Options, access: Access) -> Result<Box<dyn Db>> {
    connect_to(&options.place()?, access)
}

pub(crate) fn connect_to(place: &Place, access: Access) -> Result<Box<dyn Db>> {
    Ok(match (place, access) {
        (Place::SqliteFile(path), _) => Box::new(open_file(path, access)?),
        (Place::PostgresServer(url), Access::Read) => Box::new(Postgres::new(url)?),
        (Place::PostgresServer(url), Access::Write) => Box::new(Postgres::new(url)?.for_writes()),
    })
}

fn open_file(path: &Path, access: Access) -> Result<Sqlite> {
    match access {
        Access::Read => Sqlite::open_read_only(path),
        Access::Write => Sqlite::open(path),
    }
}
