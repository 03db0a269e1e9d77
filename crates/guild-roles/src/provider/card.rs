//! What we announce about ourselves.

use guild_market::benchmark;
use guild_market::job::Stability;
use guild_market::sandbox_run::SCHEMA_ID;
use guild_protocol::nostr::announcement::{
    Announcement, Capabilities, Capacity, Content, JobPrices, KindNames, Pricing,
};

use super::Options;

/// The announcement of this offer. How well we do is what our own rows say; before the first job we claim nothing.
pub(super) fn card(options: &Options, models: Vec<String>, stability: &Stability) -> Announcement {
    let kinds: Vec<String> = options.kinds.iter().map(u16::to_string).collect();
    let jobs: Vec<String> = options.prices.keys().map(ToString::to_string).collect();
    let prices = options.prices.iter().map(|(id, price)| (id.to_string(), *price)).collect();
    let runs = options.prices.iter().find(|(id, _)| id.as_str() == SCHEMA_ID);
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let mut card = Announcement::new(options.d.clone());
    card.kinds.clone_from(&kinds);
    card.topics.clone_from(&jobs);
    if jobs.iter().any(|job| job == benchmark::SCHEMA_ID) {
        // As buyers look for it who do not know our schemas.
        card.topics.push(benchmark::TASK_TYPE.to_owned());
    }
    card.relays.clone_from(&options.relays);
    card.content = Content {
        name: text(&options.name),
        description: text(&options.description),
        supported_kinds: Some(KindNames(kinds)),
        capabilities: Some(Capabilities {
            supported_jobs: Some(jobs),
            models: (!models.is_empty()).then_some(models),
            ..Capabilities::default()
        }),
        pricing: Some(Pricing {
            scheme: Some("per-job".to_owned()),
            per_job: Some(JobPrices(prices)),
            sandbox_per_minute: runs.map(|(_, price)| *price),
            ..Pricing::default()
        }),
        capacity: Some(Capacity {
            max_concurrent_jobs: u64::try_from(options.concurrency).ok(),
            ..Capacity::default()
        }),
        stability: stability.announced(),
        supports_encryption: Some(true),
        ..Content::default()
    };
    card
}

/// Whether two announcements say the same of everything that we decide ourselves.
pub(super) fn same_offer(a: &Announcement, b: &Announcement) -> bool {
    let without = |card: &Announcement| {
        let mut card = card.clone();
        card.content.stability = None;
        card.content.other.clear();
        card
    };
    without(a) == without(b)
}
