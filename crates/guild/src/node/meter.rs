//! The numbers of this process. Whoever counts uses the facade; here is the one who keeps count.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use futures_util::future::{Either, select};
use guild_gateway::Render;
use guild_hosting::machine::driver::Counts as Met;
use guild_network::intake::{Counts, Intake};
use guild_protocol::env::{Clock, Shutdown};
use guild_store::Store;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Answers begin within so many milliseconds.
const REQUEST_MS: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 25.0, 100.0, 500.0, 2_000.0, 10_000.0];

/// How often what was observed is put into its buckets. Until then every observation takes memory.
const UPKEEP_MS: i64 = 5_000;

/// One for the process, however many nodes run in it.
static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Begins to keep numbers; how they are read. None if they cannot be kept.
pub(crate) fn start() -> Option<Render> {
    let install = || {
        let matcher = Matcher::Full(guild_gateway::REQUEST_MS.to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(matcher, &REQUEST_MS);
        let installed = builder.and_then(PrometheusBuilder::install_recorder);
        installed.inspect_err(|error| tracing::warn!(%error, "no numbers are kept")).ok()
    };
    let handle = RECORDER.get_or_init(install).clone()?;
    Some(Arc::new(move || handle.render()))
}

/// The same, with what is only looked at when somebody asks.
pub(super) fn with_counts(
    render: Render,
    store: Store,
    intake: Intake,
    hosting: Option<[(&'static str, Met); 2]>,
) -> Render {
    Arc::new(move || {
        for (service, met) in hosting.iter().flatten() {
            // Whoever watches for the worst must see that it has not happened, too.
            let worst: &[&str] = if *service == "meter" { &["failed", "set_aside"] } else { &[] };
            let mut counts: BTreeMap<&str, u64> = worst.iter().map(|what| (*what, 0)).collect();
            counts.extend(met.all());
            for (what, count) in counts {
                metrics::counter!("hosting_met_total", "service" => *service, "what" => what)
                    .absolute(count);
            }
        }
        let (writes, reads) = store.waiting();
        let count = |calls: usize| f64::from(u32::try_from(calls).unwrap_or(u32::MAX));
        metrics::gauge!("store_waiting_calls", "to" => "write").set(count(writes));
        metrics::gauge!("store_waiting_calls", "to" => "read").set(count(reads));
        let Counts { stored, known, not_kept, refused, hostile } = intake.counts();
        for (verdict, count) in [
            ("stored", stored),
            ("known", known),
            ("not_kept", not_kept),
            ("refused", refused),
            ("hostile", hostile),
        ] {
            metrics::counter!("intake_events_total", "verdict" => verdict).absolute(count);
        }
        render()
    })
}

/// Keeps the numbers small until the shutdown, whether or not somebody reads them.
pub(super) async fn keep(clock: Arc<dyn Clock>, shutdown: Shutdown) {
    while let Either::Right(_) = select(shutdown.triggered(), clock.sleep(UPKEEP_MS)).await {
        if let Some(Some(handle)) = RECORDER.get() {
            handle.run_upkeep();
        }
    }
}
