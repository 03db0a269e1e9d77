//! Sees when the database file is taken away under a running store.
//!
//! SQLite goes on writing into a file that has no name any more, and every write would be answered and lost with the
//! process. So somebody has to look.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use futures_util::future::{Either, select};
use guild_protocol::env::{Clock, Shutdown};

use crate::refusal::at;
use crate::{Error, Result};

const EVERY_MS: i64 = 1_000;

/// Remembers which file was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    path: PathBuf,
    identity: (u64, u64),
}

impl Watch {
    /// Remembers the file that is there now.
    pub fn new(path: &Path) -> Result<Watch> {
        let identity = identity(path).map_err(|e| at(path, &e))?;
        Ok(Watch { path: path.to_owned(), identity })
    }

    /// Refuses with `Gone` if the name leads to nothing or to another file.
    pub fn look(&self) -> Result<()> {
        match identity(&self.path) {
            Ok(identity) if identity == self.identity => Ok(()),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                // Not known is not gone: a directory whose rights are being changed, for one.
                tracing::warn!(path = %self.path.display(), %error, "the database file cannot be looked at");
                Ok(())
            }
            _ => Err(Error::Gone(self.path.display().to_string())),
        }
    }

    /// Looks every second until the shutdown; ends early, with the error, when the file is gone.
    pub async fn run(self, clock: &dyn Clock, shutdown: Shutdown) -> Result<()> {
        loop {
            match select(shutdown.triggered(), clock.sleep(EVERY_MS)).await {
                Either::Left(_) => return Ok(()),
                Either::Right(_) => self.look()?,
            }
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|file| (file.dev(), file.ino()))
}
