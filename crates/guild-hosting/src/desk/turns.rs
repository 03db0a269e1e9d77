//! One at a time for each sandbox.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::lock::{Mutex as Turn, OwnedMutexGuard};

use crate::SandboxId;

/// Lets whoever does something with a sandbox in several steps end it before the next one begins.
#[derive(Default)]
pub(super) struct Turns(Mutex<BTreeMap<SandboxId, Arc<Turn<()>>>>);

impl Turns {
    /// Waits for the turn; it lasts as long as what this gives.
    pub(super) async fn of(&self, sandbox_id: &SandboxId) -> OwnedMutexGuard<()> {
        let turn = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever has its turn, or waits for it, holds it too.
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            all.entry(sandbox_id.clone()).or_default().clone()
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn one_goes_after_the_other_and_nobody_waits_for_another_sandbox() {
        let id = |n: u32| format!("sbx_{n:032x}").parse::<SandboxId>().unwrap();
        let (turns, one) = (Turns::default(), id(1));
        let first = turns.of(&one).now_or_never().unwrap();
        let mut second = Box::pin(turns.of(&one));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(turns.of(&id(2)).now_or_never().is_some());
        drop(first);
        drop(second.now_or_never().unwrap());
        drop(turns.of(&id(3)).now_or_never());
        assert_eq!(turns.0.lock().unwrap().len(), 1, "what is over is forgotten");
    }
}
