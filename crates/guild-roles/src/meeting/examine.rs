//! Judging what was delivered, on a thread of its own.

use std::sync::Arc;
use std::thread;

use guild_market::job::Refusal;
use guild_market::judge::{self, Judge, Stopwatch, Submission, Suite, Verdict};
use guild_protocol::env::{BoxFuture, Random};
use guild_sandbox::Sandbox;
use tokio::sync::{Semaphore, oneshot};

use crate::error::code;

/// Judges a submission by a suite. An error says that nothing is known about it.
pub type Examine =
    Arc<dyn Fn(Suite, Submission) -> BoxFuture<Result<Verdict, Refusal>> + Send + Sync>;

/// Judges in this sandbox, so many at once.
pub fn examiner(
    sandbox: Arc<dyn Sandbox>,
    (random, stopwatch): (Arc<dyn Random>, Arc<dyn Stopwatch>),
    options: judge::Options,
    at_once: usize,
) -> Examine {
    let places = Arc::new(Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS)));
    Arc::new(move |suite, submission| {
        let (sandbox, options, places) = (sandbox.clone(), options.clone(), places.clone());
        let (random, stopwatch) = (random.clone(), stopwatch.clone());
        Box::pin(async move {
            let failed = |why: &str| Refusal::new(&code::WORKSHOP, why);
            let place = places.acquire_owned().await.map_err(|_| failed("it is closed"))?;
            let (answer, answered) = oneshot::channel();
            let judging = move || {
                let judge = Judge {
                    sandbox: &*sandbox,
                    random: &*random,
                    stopwatch: &*stopwatch,
                    options: &options,
                };
                let found = judge.judge(&suite, &submission, &mut |_| {});
                drop(place);
                let _ = answer.send(found);
            };
            let thread = thread::Builder::new().name("judge".to_owned()).spawn(judging);
            if let Err(error) = thread {
                return Err(failed(&format!("no thread can be started: {error}")));
            }
            let found = answered.await.map_err(|_| failed("the judge broke off"))?;
            found.map_err(|error| Refusal::new(error.code(), error.to_string()))
        })
    })
}
