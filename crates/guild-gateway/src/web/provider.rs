//! Who offers work.

use guild_roles::explorer::{Offer, Provider};
use guild_roles::router::{Status, Tier};
use maud::{Markup, html};

use super::{Area, empty, matrix, page, part, receipt, review, text};

/// The longest description that is shown, and the most things in a list of a stranger's.
const ABOUT_MAX_CHARS: usize = 280;
const LISTED_MAX: usize = 12;
/// How many kinds of work are told on a card.
const STANCES_MAX: usize = 4;

/// What a list can be narrowed to.
const STATUSES: [(Status, &str); 4] = [
    (Status::Active, "active"),
    (Status::Conditional, "conditional"),
    (Status::Quarantined, "quarantined"),
    (Status::Blacklisted, "blacklisted"),
];

/// What a list of providers is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) schema_id: Option<String>,
    pub(crate) live: bool,
    pub(crate) status: Option<Status>,
    pub(crate) tier: Option<Tier>,
}

pub(crate) fn providers(
    offers: &[Offer],
    filter: &Filter,
    next: Option<&str>,
    now_ms: i64,
) -> String {
    let schema_id = filter.schema_id.as_deref().unwrap_or_default();
    let content = html! {
        div class="lead" {
            h1 { "Providers" }
            p {
                "Everybody who has announced work to this node. What an announcement says is a claim: "
                "receipts are proof."
            }
        }
        form class="filter" action="/providers" role="search" {
            label { "Job schema" input name="schema" value=(schema_id) placeholder="oa.embedding.v1" maxlength="100"; }
            label class="tick" { input type="checkbox" name="live" value="true" checked[filter.live]; "Only live ones" }
            label { "Status" select name="status" {
                option value="" { "any" }
                @for (value, word) in STATUSES {
                    option value=(value.name()) selected[filter.status == Some(value)] { (word) }
                }
            } }
            label { "Tier" select name="tier" {
                option value="" { "any" }
                @for tier in Tier::ALL {
                    option value=(tier.name()) selected[filter.tier == Some(tier)] { (tier.name()) }
                }
            } }
            button class="button" { "Show" }
        }
        @if offers.is_empty() {
            @if *filter == Filter::default() {
                (empty("Nobody has announced anything yet.", &html! {
                    "Start a provider with " code { "guild up" } ", or connect this node to a relay where some are."
                }))
            } @else {
                (empty("Nobody offers that.", &html! { a href="/providers" { "Show all providers" } }))
            }
        } @else {
            (cards(offers, now_ms))
        }
        (part::more(next))
    };
    page("Providers", Area::Providers, Some("/api/providers"), &content)
}

/// Offers as cards.
pub(super) fn cards(offers: &[Offer], now_ms: i64) -> Markup {
    html! {
        ul class="cards" {
            @for offer in offers {
                li class="card" {
                    div class="between" { (part::who_link(&offer.provider)) (part::liveness(offer.live)) }
                    @if offer.name_shared { p { (part::shared_name()) } }
                    @if let Some(about) = about(offer) { p class="about" { bdi { (about) } } }
                    (schemas(offer))
                    (stances(offer))
                    div class="between" {
                        span class="money" { (price(offer.price_msat)) }
                        span class="sub" { (seen(offer.last_seen_ms, now_ms)) }
                    }
                }
            }
        }
    }
}

fn about(offer: &Offer) -> Option<String> {
    let about = text::clean(offer.about.as_deref()?, ABOUT_MAX_CHARS);
    Some(about).filter(|about| !about.is_empty())
}

fn schemas(offer: &Offer) -> Markup {
    html! {
        @if !offer.schema_ids.is_empty() {
            ul class="tags" aria-label="Job schemas" {
                @for schema_id in offer.schema_ids.iter().take(LISTED_MAX) {
                    li { code { (text::clean(schema_id, 60)) } }
                }
            }
        }
    }
}

/// What is believed of whoever offers, for some kinds of work.
fn stances(offer: &Offer) -> Markup {
    html! {
        @if !offer.routing.is_empty() {
            ul class="tags" aria-label="What this node believes" {
                @for stance in offer.routing.iter().take(STANCES_MAX) {
                    li title=(stance.task) {
                        (part::pill(&matrix::status(stance.status)))
                        " " span class="sub" { (matrix::trust(stance.trust_bp)) }
                    }
                }
            }
        }
    }
}

fn price(msat: Option<i64>) -> String {
    match msat {
        Some(0) => "free".to_owned(),
        Some(msat) => format!("{} per job", text::msat(msat)),
        None => "price on request".to_owned(),
    }
}

fn seen(last_seen_ms: Option<i64>, now_ms: i64) -> Markup {
    match last_seen_ms {
        Some(at_ms) => html! { "seen " (part::when(now_ms, at_ms)) },
        None => html! { "never seen alive" },
    }
}

pub(crate) fn provider(provider: &Provider, now_ms: i64) -> String {
    let name = part::name(&provider.provider);
    let content = html! {
        div class="lead" {
            a class="back" href="/providers" { "← Providers" }
            h1 { bdi { (name) } }
            div class="buttons" {
                (part::liveness(provider.live))
                span class="sub" { (seen(provider.last_seen_ms, now_ms)) }
            }
        }
        section class="card" aria-label="Identity" {
            dl class="facts" {
                dt { "Key" } dd { code class="id" { (provider.provider.npub) } }
                dt { "In hex" } dd { code class="id" { (provider.provider.pubkey) } }
                dt { "Our record" } dd { (record(provider)) }
            }
        }
        section aria-labelledby="offers" {
            header { h2 id="offers" { "What it offers" } }
            @if provider.offers.is_empty() {
                (empty("It has announced nothing.", &html! { "It was seen in a request or a receipt." }))
            } @else {
                div class="stack" { @for offer in &provider.offers { (offer_card(offer, now_ms)) } }
            }
        }
        @if !provider.routing.is_empty() {
            section aria-labelledby="routing" {
                header { h2 id="routing" { "What this node believes of it" } a href="/matrix" { "The matrix" } }
                div class="stack" { (matrix::beliefs(&provider.routing, &provider.trust, now_ms)) }
            }
        }
        (review::of_provider(&provider.reviews, now_ms))
        section aria-labelledby="receipts" {
            header { h2 id="receipts" { "Receipts between it and this node" } }
            @if provider.receipts.is_empty() {
                (empty("None yet.", &html! {
                    "Hire it: " code { "guild hire --provider " (provider.provider.npub) " …" }
                }))
            } @else {
                (receipt::rows(&provider.receipts, now_ms))
            }
        }
    };
    page(
        &name,
        Area::Providers,
        Some(&format!("/api/providers/{}", provider.provider.npub)),
        &content,
    )
}

fn record(provider: &Provider) -> String {
    let record = provider.record;
    if record.released == 0 && record.withheld == 0 {
        return "This node has not hired it yet.".to_owned();
    }
    format!(
        "{} of {} results accepted, {} paid.",
        text::grouped(record.released),
        text::grouped(record.released.saturating_add(record.withheld)),
        text::msat(record.paid_msat)
    )
}

fn offer_card(offer: &Offer, now_ms: i64) -> Markup {
    html! {
        article class="card stack" {
            @if offer.name_shared {
                p { (part::shared_name()) " Another key offers under this name too. Compare the keys." }
            }
            @if let Some(about) = about(offer) { p { bdi { (about) } } }
            dl class="facts" {
                dt { "Price" } dd class="money" { (price(offer.price_msat)) }
                dt { "Job schemas" } dd { @if offer.schema_ids.is_empty() { "none named" } @else { (schemas(offer)) } }
                dt { "Request kinds" } dd {
                    @for (i, kind) in offer.kinds.iter().take(LISTED_MAX).enumerate() {
                        @if i > 0 { ", " } bdi { (text::clean(kind, 40)) }
                    }
                }
                dt { "Private requests" }
                dd { @if offer.private { "yes, encrypted to its key" } @else { "not announced" } }
                dt { "Relays" } dd {
                    @if offer.relays.is_empty() { "none named" }
                    @for relay in offer.relays.iter().take(LISTED_MAX) { code { (text::clean(relay, 120)) } br; }
                }
                dt { "Offer" } dd { bdi { code { (text::clean(&offer.d, 120)) } } }
                dt { "Announced" } dd { (part::when(now_ms, offer.announced_ms)) ", first seen here "
                    (part::when(now_ms, offer.first_seen_ms)) }
                dt { "Event" } dd { code class="id" { (offer.event_id) } }
            }
        }
    }
}
