//! Runs the services of a node. They end together: by the shutdown, or because one of them failed.

use guild_gateway::Services;
use guild_protocol::env::Shutdown;
use tokio::task::JoinSet;

use crate::error::{Error, Result, code};

/// The services of a process.
pub(crate) struct Supervisor {
    services: JoinSet<(&'static str, Result<()>)>,
    /// What runs, for whoever asks whether the node is ready.
    told: Services,
    shutdown: Shutdown,
}

/// A service, for as long as it runs.
struct Running {
    name: &'static str,
    told: Services,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.told.ended(self.name);
    }
}

impl Supervisor {
    pub(crate) fn new(shutdown: Shutdown) -> Supervisor {
        Supervisor { services: JoinSet::new(), told: Services::default(), shutdown }
    }

    /// What runs, for whoever is asked.
    pub(crate) fn services(&self) -> Services {
        self.told.clone()
    }

    /// Starts a service. It must end when the shutdown is triggered, and not before.
    pub(crate) fn start(
        &mut self,
        name: &'static str,
        service: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        let running = Running { name, told: self.told.clone() };
        self.told.running(name);
        self.services.spawn(async move {
            let _running = running;
            (name, service.await)
        });
    }

    /// Waits for all of them. If one ends early, fails or panics, the others are told to end; the first such failure
    /// is the answer.
    pub(crate) async fn run(mut self) -> Result<()> {
        let mut first_failure = Ok(());
        while let Some(joined) = self.services.join_next().await {
            let ended = match joined {
                Ok((name, Ok(()))) if self.shutdown.is_triggered() => {
                    tracing::debug!(service = name, "ended");
                    Ok(())
                }
                Ok((name, Ok(()))) => Err(failed(name, "it ended by itself")),
                Ok((name, Err(error))) => Err(failed(name, &error.to_string())),
                Err(panicked) => Err(failed("service", &panicked.to_string())),
            };
            if let Err(error) = ended {
                tracing::error!(%error, "the node stops");
                self.shutdown.trigger();
                first_failure = first_failure.and(Err(error));
            }
        }
        first_failure
    }
}

fn failed(name: &str, why: &str) -> Error {
    Error::new(&code::NODE_SERVICE_FAILED, format!("{name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: impl FnOnce(&mut Supervisor, &Shutdown)) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let shutdown = Shutdown::new();
            let mut supervisor = Supervisor::new(shutdown.clone());
            start(&mut supervisor, &shutdown);
            supervisor.run().await
        })
    }

    #[test]
    fn a_failure_ends_all_and_is_told() {
        let mut told = None;
        let ended = run(|supervisor, shutdown| {
            let stop = shutdown.triggered();
            supervisor.start("patient", async {
                stop.await;
                Ok(())
            });
            assert_eq!(supervisor.services().problems(), [""; 0]);
            supervisor.start("broken", async { Err(Error::new(&code::IO_FAILED, "no disk")) });
            told = Some(supervisor.services());
        });
        let problems = ["the service broken does not run", "the service patient does not run"];
        assert_eq!(told.unwrap().problems(), problems);
        assert_eq!(ended.unwrap_err().message(), "broken: no disk");
    }

    #[test]
    fn a_service_that_ends_early_is_a_failure_and_a_panic_too() {
        let early = run(|supervisor, _| supervisor.start("lazy", async { Ok(()) }));
        assert_eq!(early.unwrap_err().message(), "lazy: it ended by itself");
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let panicked = run(|supervisor, _| supervisor.start("bad", async { panic!("planted") }));
        std::panic::set_hook(hook);
        assert!(panicked.unwrap_err().message().contains("panic"));
    }

    #[test]
    fn a_shutdown_is_a_good_end() {
        let ended = run(|supervisor, shutdown| {
            let stop = shutdown.triggered();
            supervisor.start("patient", async {
                stop.await;
                Ok(())
            });
            shutdown.trigger();
        });
        assert!(ended.is_ok());
    }
}
