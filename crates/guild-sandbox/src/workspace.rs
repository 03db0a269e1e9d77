//! The files of a sandbox, seen from outside.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::Result;

/// The directory `/workspace` of a sandbox, from outside.
#[derive(Debug, Clone)]
pub struct Workspace {
    top: Arc<OwnedFd>,
}

impl Workspace {
    pub(crate) fn new(top: OwnedFd) -> Result<Workspace> {
        Ok(Workspace { top: Arc::new(top) })
    }
}
