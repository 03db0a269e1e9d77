//! Running a plan: the one effect.

use guild_sandbox::{Handle, Result, Sandbox};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Plan, Ran};

/// Ends a run from another thread.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Mutex<Stopping>>);

#[derive(Debug, Default)]
struct Stopping {
    stopped: bool,
    handle: Option<Handle>,
}

impl Stop {
    /// Ends the run; one that has not begun ends as soon as it begins.
    pub fn stop(&self) {
        let mut stopping = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stopping.stopped = true;
        if let Some(handle) = &stopping.handle {
            // It may be over already.
            let _ = handle.kill();
        }
    }
}

/// Runs a plan in one sandbox.
pub fn perform(_sandbox: &dyn Sandbox, _plan: &Plan, _stop: &Stop) -> Result<Ran> {
    todo!()
}
