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
                // For the next one. If it fails, that one fails as well and says why.
                let _ = sandbox.prepare();
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use guild_market::sandbox_run::Plan;
    use guild_sandbox::{Error, Host, Image, Limits, Result, Running, Spec};

    use super::*;

    /// Starts nothing, and says when it is told to make something ahead.
    struct Idle(Host, mpsc::SyncSender<()>);

    impl Sandbox for Idle {
        fn host(&self) -> &Host {
            &self.0
        }

        fn prepare(&self) -> Result<()> {
            let _ = self.1.send(());
            Ok(())
        }

        fn start(&self, _: &Spec) -> Result<Running> {
            Err(Error::Ended)
        }
    }

    #[tokio::test]
    async fn after_each_run_the_next_is_prepared() {
        let (told, hears) = mpsc::sync_channel(1);
        let bounds = Bounds { limits: Limits::job(), images: [].into() };
        let workshop = Workshop::new(Arc::new(Idle(Host::probe(), told)), bounds, 1);
        let plan = Plan {
            image_digest: String::new(),
            image: Image::Host,
            limits: Limits::job(),
            env: [].into(),
            mount: "/workspace".to_owned(),
            files: Vec::new(),
            commands: Vec::new(),
        };
        for _ in 0..2 {
            assert!((workshop.run)(plan.clone()).await.is_err());
            assert!(hears.recv().is_ok());
        }
    }
}
