//! The numbers of this process. Whoever counts uses the facade; here is the one who keeps count.

use std::sync::{Arc, OnceLock};

use futures_util::future::{Either, select};
use guild_gateway::{REQUEST_MS, Render};
use guild_protocol::env::{Clock, Shutdown};
use guild_store::Store;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::{Parts, Supervisor};

/// Within what time answers begin, in milliseconds.
const BUCKETS_MS: [f64; 8] = [1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 10_000.0];

/// How often what was observed is put into its buckets. Until then it takes memory.
const UPKEEP_MS: i64 = 5_000;

/// One for the process, however many nodes run in it.
static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Starts to keep count; nothing, if the process already keeps it elsewhere.
fn recorder() -> Option<PrometheusHandle> {
    let install = || {
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(REQUEST_MS.to_owned()), &BUCKETS_MS);
        let installed = builder.and_then(PrometheusBuilder::install_recorder);
        installed.inspect_err(|error| tracing::warn!(%error, "no numbers are kept")).ok()
    };
    RECORDER.get_or_init(install).clone()
}

/// Keeps count while the node runs; what writes the numbers down.
pub(super) fn start(
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Option<Render> {
    let handle = recorder()?;
    let (kept, clock, stop) = (handle.clone(), parts.clock.clone(), shutdown.clone());
    supervisor.start("metrics", async move {
        keep(&kept, &*clock, stop).await;
        Ok(())
    });
    let store = parts.store.clone();
    Some(Arc::new(move || {
        observe(&store);
        handle.render()
    }))
}

async fn keep(handle: &PrometheusHandle, clock: &dyn Clock, shutdown: Shutdown) {
    while let Either::Right(_) = select(shutdown.triggered(), clock.sleep(UPKEEP_MS)).await {
        handle.run_upkeep();
    }
}

/// What is only looked at when somebody asks.
fn observe(store: &Store) {
    let (writes, reads) = store.waiting();
    let count = |calls: usize| f64::from(u32::try_from(calls).unwrap_or(u32::MAX));
    metrics::gauge!("store_waiting_calls", "to" => "write").set(count(writes));
    metrics::gauge!("store_waiting_calls", "to" => "read").set(count(reads));
}
