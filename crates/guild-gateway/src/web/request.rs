//! Requests, and how one is followed from the first word to the receipt.

use guild_roles::explorer::{Request, RequestDetail, Side, Standing, Step, StepKind};
use maud::{Markup, html};

use super::home::HIRE;
use super::{Area, empty, page, part, text};

/// The longest words of a stranger in a timeline.
const SAYS_MAX_CHARS: usize = 400;
const SHOWN_PROVIDERS_MAX: usize = 3;

pub(crate) fn requests(requests: &[Request], next: Option<&str>, now_ms: i64) -> String {
    let content = html! {
        div class="lead" {
            h1 { "Requests" }
            p {
                "Every request for work that reached this node: those it posted, those it was hired for, "
                "and those it only saw. " a href="/delegations" { "Work that several do" } ". "
                a href="/disputes" { "Disputes" } "."
            }
        }
        @if requests.is_empty() {
            (empty("No request yet.", &html! {
                "Post one: " code { (HIRE) }
            }))
        } @else {
            (rows(requests, now_ms))
        }
        (part::more(next))
        (part::legend(&part::STANDINGS.map(part::standing)))
    };
    page("Requests", Area::Requests, Some("/api/requests"), &content)
}

/// Requests as lines.
pub(super) fn rows(requests: &[Request], now_ms: i64) -> Markup {
    html! {
        ul class="rows" {
            @for request in requests {
                li {
                    div {
                        a class="what" href={ "/requests/" (request.request_id) } {
                            (part::job(request.schema_id.as_deref(), request.kind, request.private))
                        }
                        span class="sub" {
                            (side(request.side))
                            // Where only that is known of it, its name says so.
                            @if request.private && request.schema_id.is_some() { " · private" }
                            " · " (part::when(now_ms, request.created_ms))
                        }
                    }
                    div class="middle deal" { (deal(request)) }
                    div class="right" {
                        (part::pill(&part::standing(request.standing)))
                        @if let Some(bid) = request.bid_msat { span class="money sub" { "up to " (text::msat(bid)) } }
                    }
                }
            }
        }
    }
}

fn side(side: Side) -> &'static str {
    match side {
        Side::Seen => "seen",
        Side::Bought => "ordered here",
        Side::Hired => "asked of this node",
    }
}

fn deal(request: &Request) -> Markup {
    let hidden = request.providers.len().saturating_sub(SHOWN_PROVIDERS_MAX);
    let hidden = hidden.saturating_add(request.more_providers);
    html! {
        (part::who(&request.buyer))
        @if request.providers.is_empty() { span class="to" { (part::arrow("asks")) span class="sub" { "anybody" } } }
        @for provider in request.providers.iter().take(SHOWN_PROVIDERS_MAX) {
            span class="to" { (part::arrow("asks")) (part::who(provider)) }
        }
        @if hidden > 0 { span class="sub" { "and " (hidden) " more" } }
    }
}

pub(crate) fn request(detail: &RequestDetail, now_ms: i64) -> String {
    let request = &detail.request;
    let job = part::job(request.schema_id.as_deref(), request.kind, request.private);
    let content = html! {
        div class="lead" {
            a class="back" href="/requests" { "← Requests" }
            h1 { (job) }
            div class="buttons" {
                (part::pill(&part::standing(request.standing)))
                span class="sub" { (in_words(request.side)) }
            }
        }
        @if let Some(receipt_id) = &detail.receipt_id {
            div class=(if request.standing == Standing::Paid { "banner good" } else { "banner" }) {
                strong { "There is a signed receipt." }
                p { "Anybody can check it without trusting this node." }
                div class="buttons" { a class="button" href={ "/receipts/" (receipt_id) } { "Look at the receipt" } }
            }
        } @else if let Some(reason) = &detail.reason {
            div class="banner bad" { strong { "Why it ended" } p { bdi { (text::clean(reason, SAYS_MAX_CHARS)) } } }
        }
        @if let Some(delegation_id) = &detail.delegation_id {
            div class="banner" {
                strong { "Several do this work." }
                p { "What they say is compared, and decides who of them is paid." }
                div class="buttons" {
                    a class="button" href={ "/delegations/" (delegation_id) } { "Look at all of them" }
                }
            }
        }
        @if let Some((dispute_id, state)) = &detail.dispute {
            div class="banner" {
                strong { "The result " (if matches!(*state, "open" | "answered") { "is" } else { "was" }) " disputed." }
                p { "What both sides say is kept, and what the money did because of it." }
                div class="buttons" { a class="button" href={ "/disputes/" (dispute_id) } { "Look at the dispute" } }
            }
        }
        section aria-labelledby="story" {
            header { h2 id="story" { "What happened" } }
            div class="card" { (timeline(&detail.timeline)) }
        }
        section aria-labelledby="facts" {
            header { h2 id="facts" { "The request" } }
            div class="card" { (facts(detail, now_ms)) }
        }
    };
    page(&job, Area::Requests, Some(&format!("/api/requests/{}", request.request_id)), &content)
}

/// Whether nothing more happens to it: then there is evidence of it.
fn is_over(standing: Standing) -> bool {
    !matches!(standing, Standing::Open | Standing::Working | Standing::Delivered)
}

fn in_words(side: Side) -> &'static str {
    match side {
        Side::Seen => "Seen by this node, which is no part of it.",
        Side::Bought => "Ordered by this node.",
        Side::Hired => "Asked of this node by somebody else.",
    }
}

fn facts(detail: &RequestDetail, now_ms: i64) -> Markup {
    let request = &detail.request;
    html! {
        dl class="facts" {
            dt { "Buyer" } dd { (part::who_link(&request.buyer)) }
            dt { "Addressed to" } dd {
                @if request.providers.is_empty() { "anybody who can do it" }
                div class="deal" { @for provider in &request.providers { (part::who_link(provider)) } }
                @if request.more_providers > 0 { span class="sub" { "and " (request.more_providers) " more" } }
            }
            @if let Some(schema_id) = &request.schema_id {
                dt { "Job schema" } dd { code { (text::clean(schema_id, 100)) } }
            }
            dt { "Input" }
            dd { @if request.private { "encrypted: only buyer and provider can read it" } @else { "in the open" } }
            @if let Some(bid) = request.bid_msat { dt { "At most" } dd class="money" { (text::msat(bid)) } }
            @if let Some(price) = detail.price_msat { dt { "Price agreed" } dd class="money" { (text::msat(price)) } }
            dt { "Made" } dd { (text::moment(request.created_ms)) " (" (part::when(now_ms, request.created_ms)) ")" }
            dt { "Request" } dd { code class="id" { (request.request_id) } }
            @if request.side == Side::Bought && is_over(request.standing) {
                dt { "Evidence" } dd { (part::evidence("requests", &request.request_id, request.private)) }
            }
        }
    }
}

/// The story, top to bottom; every step says how long it took since the one before.
fn timeline(steps: &[Step]) -> Markup {
    let before = steps.iter().map(|step| Some(step.at_ms));
    let before = std::iter::once(None).chain(before);
    html! {
        ol class="timeline" {
            @for (step, before_ms) in steps.iter().zip(before) {
                li {
                    (part::knot(step.tone))
                    div class="head" {
                        h3 { (title(step.kind)) }
                        time datetime=(text::machine_moment(step.at_ms)) title=(text::moment(step.at_ms)) {
                            @match before_ms {
                                Some(before_ms) => { (text::later(before_ms, step.at_ms)) }
                                None => { (text::moment(step.at_ms)) }
                            }
                        }
                    }
                    p class="says" { bdi { (text::clean(&step.text, SAYS_MAX_CHARS)) } }
                    @if step.author.is_some() || step.event_id.is_some() {
                        div class="by" {
                            @if let Some(author) = &step.author { (part::who_link(author)) }
                            @if let Some(event_id) = &step.event_id {
                                span { "event " (part::id(event_id)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn title(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Request => "Asked",
        StepKind::Choice => "Somebody chosen",
        StepKind::Hold => "Money set aside",
        StepKind::Feedback => "A word from the provider",
        StepKind::Result => "Delivered",
        StepKind::Verdict => "Checked",
        StepKind::Payment => "Settled",
        StepKind::Receipt => "Receipt signed",
        StepKind::End => "Ended",
    }
}
