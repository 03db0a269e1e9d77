//! The numbers of this process.

use guild_gateway::Render;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

/// Answers begin within so many milliseconds.
const REQUEST_MS: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 25.0, 100.0, 500.0, 2_000.0, 10_000.0];

/// Begins to keep numbers; how they are read. None if this process keeps them already, or cannot.
pub(crate) fn start() -> Option<Render> {
    let matcher = Matcher::Full(guild_gateway::REQUEST_MS.to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(matcher, &REQUEST_MS).ok()?;
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).ok()?;
    Some(std::sync::Arc::new(move || {
        handle.run_upkeep();
        handle.render()
    }))
}
