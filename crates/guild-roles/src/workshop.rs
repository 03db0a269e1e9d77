//! Where commands are run: each plan on a thread of its own, so many at once.

use std::sync::Arc;
use std::thread;

use guild_market::job::Refusal;
use guild_market::sandbox_run::{Bounds, Run, Stop, perform};
use guild_protocol::env::BoxFuture;
use guild_sandbox::Sandbox;
use tokio::sync::{Semaphore, oneshot};

use crate::error::code;

/// A sandbox for commands, and what they may use of it.
#[derive(Clone)]
pub struct Workshop {
    /// What is given here.
    pub bounds: Bounds,
    /// Runs what was planned within the bounds.
    pub run: Run,
}

impl Workshop {
    /// Runs plans in this sandbox, so many at once; others wait for their turn.
    pub fn new(sandbox: Arc<dyn Sandbox>, bounds: Bounds, at_once: usize) -> Workshop {
        Workshop { bounds, run: on_threads(sandbox, at_once) }
    }
}

/// Ends a run that nobody waits for any more.
struct Watcher(Stop);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn on_threads(sandbox: Arc<dyn Sandbox>, at_once: usize) -> Run {
    let places = Arc::new(Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS)));
    Arc::new(move |plan| {
        let (sandbox, places) = (sandbox.clone(), places.clone());
        let running = async move {
            let failed = |why: &str| Refusal::new(&code::WORKSHOP, why);
            let place = places.acquire_owned().await.map_err(|_| failed("it is closed"))?;
            let stop = Stop::default();
            let _watcher = Watcher(stop.clone());
            let (answer, answered) = oneshot::channel();
            let thread = thread::Builder::new().name("sandbox-run".to_owned()).spawn(move || {
                let ran = perform(&*sandbox, &plan, &stop);
                // Until here, also if nobody waits any more: what is being cleaned up still needs its place.
                drop(place);
                let _ = answer.send(ran);
            });
            if let Err(error) = thread {
                return Err(failed(&format!("no thread can be started: {error}")));
            }
            let ran = answered.await.map_err(|_| failed("the run broke off"))?;
            ran.map_err(|error| Refusal::new(error.code(), error.to_string()))
        };
        Box::pin(running) as BoxFuture<_>
    })
}
