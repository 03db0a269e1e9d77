//! From a publisher to a subscriber through a relay: ours, in a process of its own with its database on disk, and
//! another, which does the same for the same generator.
//!
//! `publish` counts events in a second, four publishers with many events on their way. `latency` has one event on its
//! way at a time, and tells how often the 99th percentile of its time fits into a second.

use std::process::ExitCode;
use std::time::Duration;

use testbed::NostrRelay;
use testbed::bench::{self, Arguments, Measured, Watch};

mod generator;
mod node;

use generator::Client;
use node::Node;

/// About so many events either relay takes in a second, so that both are measured for the same time.
const OUR_EVENTS_A_SECOND: u64 = 10_000;
const OTHER_EVENTS_A_SECOND: u64 = 300;
/// Events that are on their way one after another.
const SINGLE_EVENTS_A_SECOND: u64 = 60;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let node = Node::start(&arguments.directory)?;
    let other = NostrRelay::start()?;
    let seconds = arguments.seconds.max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(said)?;
    let urls = [("guild", node.url()), ("nostr-relay", other.url())];
    let mut measured = Vec::new();
    for (name, url) in urls {
        let (per_s, result) = match (arguments.case.as_str(), name) {
            ("publish", "guild") => runtime.block_on(publish(&url, seconds * OUR_EVENTS_A_SECOND)),
            ("publish", _) => runtime.block_on(publish(&url, seconds * OTHER_EVENTS_A_SECOND)),
            ("latency", _) => runtime.block_on(latency(&url, seconds * SINGLE_EVENTS_A_SECOND)),
            (case, _) => Err(format!("there is no case {case:?}")),
        }?;
        measured.push(Measured { name, per_s, result });
    }
    Ok(measured)
}

/// How many events a second reach a subscriber, each acknowledged and received once.
async fn publish(url: &str, count: u64) -> Result<(f64, String), String> {
    const PUBLISHERS: usize = 4;
    const ON_THEIR_WAY: usize = 256;
    let frames = generator::signed(count)?;
    let mut subscriber = Client::connect(url).await?;
    subscriber.subscribe().await?;
    let mut publishers = Vec::new();
    for _ in 0..PUBLISHERS {
        publishers.push(Client::connect(url).await?);
    }
    let watch = Watch::start();
    let share = frames.len().div_ceil(PUBLISHERS);
    let mut tasks = Vec::new();
    for (mut client, frames) in publishers.into_iter().zip(frames.chunks(share)) {
        tasks.push(async move { client.publish(frames, ON_THEIR_WAY).await });
    }
    let published = futures_util::future::try_join_all(tasks);
    futures_util::future::try_join(published, subscriber.receive(frames.len())).await?;
    Ok((watch.per_s(count), "every event acknowledged, and received once".to_owned()))
}

/// How often the time from a publisher to a subscriber fits into a second: the time of which 99 of 100 are shorter.
async fn latency(url: &str, count: u64) -> Result<(f64, String), String> {
    let frames = generator::signed(count)?;
    let (mut subscriber, mut publisher) =
        (Client::connect(url).await?, Client::connect(url).await?);
    subscriber.subscribe().await?;
    let mut times = Vec::new();
    for frame in &frames {
        let watch = Watch::start();
        let sent = publisher.publish(std::slice::from_ref(frame), 1);
        let received = async {
            subscriber.receive(1).await?;
            Ok(watch.elapsed())
        };
        let ((), time) = futures_util::future::try_join(sent, received).await?;
        times.push(time);
    }
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    tell(url, at(50), at(99));
    Ok((1.0 / at(99).as_secs_f64(), "events one after another, each received once".to_owned()))
}

#[expect(clippy::print_stderr, reason = "a benchmark prints")]
fn tell(url: &str, median: Duration, p99: Duration) {
    eprintln!("{url}: median {median:?}, 99 of 100 within {p99:?}");
}

/// What went wrong, in words: a bench that fails measures nothing.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
