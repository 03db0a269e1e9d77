//! Disputes: who says what about which result, and what the money did.

use guild_roles::explorer::{DisputeDetail, DisputeView, SaidView};
use maud::{Markup, html};

use super::part::State;
use super::{Area, empty, page, part, text};

/// The longest words of a stranger that are shown.
const SAID_MAX_CHARS: usize = 2_000;
/// The longest reference that is shown.
const REFERENCE_MAX_CHARS: usize = 120;

pub(crate) fn disputes(disputes: &[DisputeView], next: Option<&str>, now_ms: i64) -> String {
    let content = html! {
        div class="lead" {
            a class="back" href="/requests" { "← Requests" }
            h1 { "Disputes" }
            p {
                "Results about which buyer and provider do not agree. The money of an open one stays held until a "
                "check, an arbiter or the deadline decides."
            }
        }
        @if disputes.is_empty() {
            (empty("None yet.", &html! { "File one: " code { "guild disputes file REQUEST --reason other" } }))
        } @else {
            ul class="rows" { @for dispute in disputes { (row(dispute, now_ms)) } }
        }
        (part::more(next))
        (part::legend(&STATES.map(state)))
    };
    page("Disputes", Area::Requests, Some("/api/disputes"), &content)
}

fn row(dispute: &DisputeView, now_ms: i64) -> Markup {
    html! {
        li {
            div {
                a class="what" href={ "/disputes/" (dispute.dispute_id) } { (reason(dispute)) }
                span class="sub" { "this node is the " (dispute.side) " · " (part::when(now_ms, dispute.changed_ms)) }
            }
            div class="middle deal" {
                (part::who(&dispute.buyer))
                span class="to" { (part::arrow("disputes with")) (part::who(&dispute.provider)) }
            }
            div class="right" {
                (part::pill(&state(dispute.state)))
                @if dispute.held_msat > 0 && dispute.outcome.is_none() {
                    span class="money sub" { "holds " (text::msat(dispute.held_msat)) }
                }
            }
        }
    }
}

fn reason(dispute: &DisputeView) -> &'static str {
    match dispute.reason {
        None => "Private",
        Some("result_wrong") => "Not what was ordered",
        Some("verdict_wrong") => "Wrongly not accepted",
        Some("not_paid") => "Not paid",
        Some("late") => "Too late, or not",
        Some("copied") => "The work of somebody else",
        Some("terms") => "Not as agreed",
        Some(_) => "Something else",
    }
}

pub(crate) fn dispute(sides: &[DisputeDetail], now_ms: i64) -> String {
    let title = sides.first().map_or("Dispute", |one| reason(&one.dispute));
    let json = sides.first().map(|one| format!("/api/disputes/{}", one.dispute.dispute_id));
    let content = html! {
        div class="lead" {
            a class="back" href="/disputes" { "← Disputes" }
            h1 { (title) }
        }
        @for side in sides { (of_side(side, now_ms)) }
    };
    page(title, Area::Requests, json.as_deref(), &content)
}

fn of_side(detail: &DisputeDetail, now_ms: i64) -> Markup {
    let dispute = &detail.dispute;
    let (facts_id, said_id) = (format!("facts-{}", dispute.side), format!("said-{}", dispute.side));
    html! {
        section aria-labelledby=(facts_id) {
            header { h2 id=(facts_id) { "As its " (dispute.side) } (part::pill(&state(dispute.state))) }
            div class="card" { (facts(dispute, now_ms)) }
        }
        section aria-labelledby=(said_id) {
            header { h2 id=(said_id) { "What was said" } }
            @if detail.said.is_empty() {
                (empty("It is private.", &html! { "Buyer and provider read it with the token of their node." }))
            } @else {
                ul class="rows" { @for said in &detail.said { (statement(said, now_ms)) } }
            }
        }
    }
}

fn facts(dispute: &DisputeView, now_ms: i64) -> Markup {
    html! {
        dl class="facts" {
            dt { "About" } dd { a href={ "/requests/" (dispute.request_id) } { "the request" } }
            dt { "Buyer" } dd { (part::who_link(&dispute.buyer)) }
            dt { "Provider" } dd { (part::who_link(&dispute.provider)) }
            dt { "Filed by the" } dd { (dispute.filed_by) " (" (part::when(now_ms, dispute.opened_ms)) ")" }
            @if let Some(arbiter) = &dispute.arbiter { dt { "May decide" } dd { (part::who_link(arbiter)) } }
            dt { "Deadline" } dd { (text::moment(dispute.deadline_ms)) }
            @if let Some(outcome) = dispute.outcome {
                dt { "Decided" }
                dd { (outcome_words(outcome)) @if let Some(by) = dispute.by { " (" (by_words(by)) ")" } }
            }
            @if dispute.held_msat > 0 {
                dt { "Held for it" } dd class="money" { (text::msat(dispute.held_msat)) }
            }
            @if dispute.moved_msat > 0 {
                dt { "Moved because of it" } dd class="money" { (text::msat(dispute.moved_msat)) }
            }
            @if dispute.pending {
                dt { "Money" }
                dd {
                    @if dispute.given_up { "is not waited for any more" } @else { "has not followed yet" }
                    @if let Some(why) = dispute.waits_words { ": " (why) }
                }
            }
            @if let Some(receipt_id) = &dispute.receipt_id {
                dt { "Receipt" } dd { a href={ "/receipts/" (receipt_id) } { "what was paid" } }
            }
        }
    }
}

fn statement(said: &SaidView, now_ms: i64) -> Markup {
    html! {
        li {
            div {
                span class="what" { (step(&said.step)) }
                span class="sub" { (part::when(now_ms, said.at_ms)) }
            }
            div class="middle" {
                (part::who_link(&said.author))
                @if let Some(words) = &said.statement {
                    p class="about" { bdi { (text::clean(words, SAID_MAX_CHARS)) } }
                }
                @for reference in &said.evidence {
                    span class="sub" { code { (text::clean(&reference.to_string(), REFERENCE_MAX_CHARS)) } }
                }
            }
            div class="right" { span class="sub" { "event " (part::id(&said.event_id.hex())) } }
        }
    }
}

fn step(step: &str) -> &'static str {
    match step {
        "filed" => "Filed",
        "answered" => "Answered",
        _ => "Decided",
    }
}

fn outcome_words(outcome: &str) -> &'static str {
    match outcome {
        "release" => "the provider is paid",
        _ => "the buyer keeps the money",
    }
}

fn by_words(by: &str) -> &'static str {
    match by {
        "rule" => "by a rule: the work was checked again, or there was no choice",
        "arbiter" => "by the arbiter",
        "concession" => "the other side gave in",
        "deadline" => "nobody decided in time",
        _ => "whoever filed it had lost too many before",
    }
}

const STATES: [&str; 4] = ["open", "answered", "decided", "expired"];

fn state(word: &str) -> State {
    let (class, word, means) = match word {
        "open" => ("busy dot", "Open", "One side has filed it. Its money is held."),
        "answered" => ("busy dot", "Answered", "Both have said something. Its money is held."),
        "decided" => ("good", "Decided", "A check, an arbiter or one of the two has decided."),
        _ => ("", "Expired", "Nobody decided in time, so the default holds."),
    };
    State { class, word, means }
}
