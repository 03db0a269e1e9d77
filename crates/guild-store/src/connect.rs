//! One connection outside the pump, for maintenance.

use crate::{Db, Options, Result, Sqlite};

/// What a connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read what is there.
    Read,
    /// Write, and make the database if need be.
    Write,
}

/// Opens one connection. Whoever writes with it must hold the data directory: there is one writer.
pub fn connect(options: &Options, access: Access) -> Result<Box<dyn Db>> {
    let path = options.sqlite_path()?;
    Ok(Box::new(match access {
        Access::Read => Sqlite::open_read_only(&path)?,
        Access::Write => Sqlite::open(&path)?,
    }))
}
