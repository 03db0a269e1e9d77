//! Getting to know providers: the role, and what it needs of this node.

use std::sync::Arc;

use guild_market::{judge, meeting as market};
use guild_network::client::{Pool, ask};
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Clock, Shutdown};
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::{Event, Filter};
use guild_roles::meeting::{self, Meetings, Query, Resend};
use guild_roles::router::Router;

use super::market::{Means, refer};
use super::{Parts, Supervisor, reviews};
use crate::real::SystemStopwatch;

/// How long one relay is asked, or told, before the next one is.
const RELAY_MS: i64 = 5_000;
/// How many answers of one relay are looked at.
const ANSWERS_MAX: usize = 32;

/// Starts it, under the key that hires: whoever is met is asked by the one who will ask it for work.
pub(super) fn start(
    means: &Means<'_>,
    (key, router): (SecretKey, Router),
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Meetings {
    let settings = &means.loaded.config.meeting;
    let seconds = |number: u32| i64::from(number).saturating_mul(1_000);
    let times = market::Times {
        silent_ms: seconds(settings.silent_s),
        work_ms: seconds(settings.work_s),
        more_ms: seconds(settings.more_s),
        result_ms: seconds(settings.result_s),
        unresponsive_ms: seconds(settings.unresponsive_s),
        ..market::Times::default()
    };
    let options = meeting::Options {
        relays: means.pool.relays(),
        market: market::Options {
            times,
            budget: Msat(settings.budget_msat.into()),
            budget_day: Msat(settings.budget_day_msat.into()),
            ..market::Options::default()
        },
        reviews: reviews::options(means.loaded, &means.ours),
        ..meeting::Options::default()
    };
    let examine = means.judge_in.clone().map(|sandbox| {
        let tools = (parts.random.clone(), Arc::new(SystemStopwatch) as Arc<dyn judge::Stopwatch>);
        // What is not installed is absent, and takes no part in the score.
        let judging = judge::Options {
            quality: true,
            tools: (!settings.tools.is_empty()).then(|| means.loaded.data_file(&settings.tools)),
            ..judge::Options::default()
        };
        meeting::examiner(sandbox, tools, judging, options.at_once)
    });
    let node = meeting::Node {
        store: parts.store.clone(),
        bus: parts.bus.handle.clone(),
        clock: parts.clock.clone(),
        random: parts.random.clone(),
        router,
        refer: Some(refer(means, parts)),
        examine,
        resend: resend(means.pool.clone()),
        query: query(means.pool.clone(), parts.clock.clone()),
    };
    let (meetings, service) = Meetings::new(options, key, node);
    let stop = shutdown.clone();
    supervisor.start("meetings", async move {
        service.run(stop).await;
        Ok(())
    });
    meetings
}

/// Offers an event again to whoever of these can be reached now.
fn resend(pool: Pool) -> Resend {
    Arc::new(move |event: Event, relays: Vec<String>| {
        let pool = pool.clone();
        Box::pin(async move {
            let sent = relays.iter().map(|relay| pool.publish(relay, &event));
            // Whoever did not take it is offered it by the outbox.
            let _ = futures_util::future::join_all(sent).await;
        }) as BoxFuture<()>
    })
}

/// Asks those of these relays that are our own choice: nobody else makes this node dial.
fn query(pool: Pool, clock: Arc<dyn Clock>) -> Query {
    Arc::new(move |filter: Filter, relays: Vec<String>| {
        let (own, clock) = (pool.relays(), clock.clone());
        Box::pin(async move {
            let filters = [filter];
            let mut found = Vec::new();
            for relay in relays.iter().filter(|relay| own.contains(relay)) {
                match ask(relay, &filters, ANSWERS_MAX, RELAY_MS, &*clock).await {
                    Ok(answered) => found.extend(answered.events),
                    Err(error) => tracing::debug!(%error, relay, "a relay does not answer"),
                }
            }
            found
        }) as BoxFuture<Vec<Event>>
    })
}
