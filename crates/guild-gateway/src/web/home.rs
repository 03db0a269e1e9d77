//! The first page: what happens now.

use guild_protocol::receipt::FILE_NAME;
use guild_roles::explorer::{COUNT_MAX, Counts, Summary};
use maud::{Markup, html};

use super::{Area, empty, page, provider, receipt, request, text};

pub(crate) fn home(summary: &Summary, now_ms: i64) -> String {
    let content = html! {
        div class="lead" {
            h1 { "A market where programs hire programs" }
            p {
                "Somebody asks for work, somebody does it, the result is checked, the money moves, and a signed "
                "receipt proves all of it. This is what this node sees of it now."
            }
        }
        (numbers(&summary.counts))
        section aria-labelledby="requests" {
            header { h2 id="requests" { "Latest requests" } a href="/requests" { "All requests" } }
            @if summary.requests.is_empty() {
                (empty("No request yet.", &html! { "Post one: " code { (HIRE) } }))
            } @else {
                (request::rows(&summary.requests, now_ms))
            }
        }
        section aria-labelledby="providers" {
            header { h2 id="providers" { "Providers at work" } a href="/providers" { "All providers" } }
            @if summary.offers.is_empty() {
                (empty("Nobody is live.", &html! {
                    "A provider counts as live for 15 minutes after its last sign of life. "
                    a href="/providers" { "Everybody who was ever seen" }
                }))
            } @else {
                (provider::cards(&summary.offers, now_ms))
            }
        }
        section aria-labelledby="receipts" {
            header { h2 id="receipts" { "Latest receipts" } a href="/receipts" { "All receipts" } }
            @if summary.receipts.is_empty() {
                (empty("No receipt yet.", &html! { "One is signed when a job of this node is settled." }))
            } @else {
                (receipt::rows(&summary.receipts, now_ms))
            }
        }
        section aria-labelledby="part" {
            header { h2 id="part" { "Take part" } }
            dl class="card facts" {
                dt { "Hire somebody" } dd { code { (HIRE) } }
                dt { "Offer work" } dd { code { "guild up" } " runs a node with a provider that others can hire" }
                dt { "Check a receipt" } dd { code { "guild receipts verify " (FILE_NAME) } ", on any machine" }
            }
        }
    };
    page("Overview", Area::Home, Some("/api/summary"), &content)
}

/// A command that makes something happen here.
pub(super) const HIRE: &str =
    r#"guild hire --schema oa.embedding.v1 --input '{"texts":["hello"]}'"#;

/// A number that is not counted further than so far.
fn counted(number: i64) -> String {
    let more = if number >= COUNT_MAX { "+" } else { "" };
    format!("{}{more}", text::grouped(number))
}

fn numbers(counts: &Counts) -> Markup {
    let stat =
        |value: String, label: &str| html! { li class="stat" { b { (value) } span { (label) } } };
    html! {
        ul class="stats" aria-label="In numbers" {
            (stat(counted(counts.offers_live), "offers live"))
            (stat(counted(counts.requests), "requests seen"))
            (stat(text::grouped(counts.receipts), "receipts"))
            (stat(text::msat(counts.paid_msat), "paid by this node"))
            @if counts.earned_msat != 0 { (stat(text::msat(counts.earned_msat), "earned by this node")) }
        }
    }
}
