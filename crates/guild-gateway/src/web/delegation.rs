//! Work that several do, side by side: what each says, what it is worth, and who is paid.

use guild_roles::explorer::{Delegated, DelegatedDetail, ReplicaView};
use maud::{Markup, html};

use super::part::State;
use super::{Area, empty, page, part, text};

/// The longest words in a card.
const SAYS_MAX_CHARS: usize = 400;

pub(crate) fn delegations(rows: &[Delegated], next: Option<&str>, now_ms: i64) -> String {
    let content = html! {
        div class="lead" {
            a class="back" href="/requests" { "← Requests" }
            h1 { "Delegations" }
            p { "Work that matters is done by several, of distinct operators. What they say is compared." }
        }
        @if rows.is_empty() {
            (empty("Nothing was delegated yet.", &html! {
                "Have several do it: " code { "guild hire --criticality high …" }
            }))
        } @else {
            ul class="rows" { @for row in rows { li { (line(row, now_ms)) } } }
        }
        (part::more(next))
        (part::legend(&["open", "decided", "undecided", "cancelled"].map(state)))
    };
    page("Delegations", Area::Requests, Some("/api/delegations"), &content)
}

fn line(row: &Delegated, now_ms: i64) -> Markup {
    html! {
        div {
            a class="what" href={ "/delegations/" (row.delegation_id) } { (job(row)) }
            span class="sub" { (row.criticality) " · " (part::when(now_ms, row.posted_ms)) }
        }
        div class="middle" {
            span { (row.replicas) " do it, " (row.needed) " must say the same" }
            @if let Some(why) = &row.why { span class="sub" { bdi { (text::clean(why, SAYS_MAX_CHARS)) } } }
        }
        div class="right" {
            (part::pill(&state(row.state)))
            span class="money sub" { "up to " (text::msat(row.budget_msat)) }
        }
    }
}

fn job(row: &Delegated) -> String {
    match &row.schema_id {
        Some(schema_id) => text::job_name(schema_id),
        None => "Private job".to_owned(),
    }
}

fn state(word: &str) -> State {
    let (class, word, means) = match word {
        "decided" => ("good", "Decided", "Enough said the same, or a judge chose."),
        "undecided" => ("bad", "Undecided", "Nobody agreed on an answer. Nobody was paid."),
        "cancelled" => ("", "Cancelled", "The buyer gave it up before there was a result."),
        _ => ("busy dot", "Open", "Some are at it, or it is being compared."),
    };
    State { class, word, means }
}

fn standing(word: &str) -> State {
    let (class, word, means) = match word {
        "agrees" => ("good", "Agrees", "Its answer is the one that counts: it is paid."),
        "differs" => ("bad", "Differs", "It delivered something else: it is not paid."),
        "failed" => ("bad", "Failed", "It delivered nothing that could be checked."),
        "late" => ("", "Late", "Its result came when nobody waited for it any more."),
        "cancelled" => ("", "Cancelled", "It was told to stop: the others were enough."),
        _ => ("busy dot", "Waiting", "It is not decided yet."),
    };
    State { class, word, means }
}

pub(crate) fn delegation(detail: &DelegatedDetail, now_ms: i64) -> String {
    let row = &detail.delegation;
    let words = ["waiting", "agrees", "differs", "failed", "late", "cancelled"];
    let content = html! {
        div class="lead" {
            a class="back" href="/delegations" { "← Delegations" }
            h1 { (job(row)) }
            div class="buttons" {
                (part::pill(&state(row.state)))
                span class="sub" { (row.criticality) ", " (rule(row)) }
            }
        }
        @if let Some(why) = &row.why {
            div class=(if row.state == "decided" { "banner good" } else { "banner" }) {
                strong { "How it ended" }
                p { bdi { (text::clean(why, SAYS_MAX_CHARS)) } }
            }
        }
        section aria-labelledby="replicas" {
            header { h2 id="replicas" { "Those who do it" } }
            ul class="cards" {
                @for one in &detail.replicas { li class="card" { (card(one, row)) } }
            }
        }
        section aria-labelledby="facts" {
            header { h2 id="facts" { "The work" } }
            div class="card" { (facts(detail, now_ms)) }
        }
        (part::legend(&words.map(standing)))
    };
    let json = format!("/api/delegations/{}", row.delegation_id);
    page(&job(row), Area::Requests, Some(&json), &content)
}

fn rule(row: &Delegated) -> String {
    match row.consensus {
        "first_success" => "the first that passes its check wins".to_owned(),
        _ => format!("{} of {} must say the same", row.needed, row.replicas),
    }
}

fn card(one: &ReplicaView, row: &Delegated) -> Markup {
    html! {
        div class="between" {
            (part::who_link(&one.provider))
            (part::pill(&standing(one.standing)))
        }
        dl class="facts" {
            dt { "Asked" } dd { (asked(one.reason)) }
            @if one.cluster != one.provider.npub {
                dt { "Operator" } dd { bdi { (text::clean(&one.cluster, 100)) } }
            }
            dt { "Its order" } dd { a href={ "/requests/" (one.request_id) } { (one.order_state) } }
            @if let Some(took_ms) = one.took_ms { dt { "Took" } dd { (text::grouped(took_ms)) " ms" } }
            @if let Some(passed) = one.passed {
                dt { "Own check" } dd { @if passed { "passed" } @else { "NOT passed" } }
            }
            @if let Some(says) = one.vote.as_ref().or(one.says.as_ref()) {
                dt { @if one.vote.is_some() { "Vote" } @else { "Says" } }
                dd {
                    (part::id(says))
                    @if row.winner.is_some() && one.vote == row.winner { " · the answer" }
                }
            }
            dt { "Set aside" } dd class="money" { (text::msat(one.budget_msat)) }
            dt { "Paid" } dd class="money" { (text::msat(one.paid_msat.unwrap_or(0))) }
            @if let Some(receipt_id) = &one.receipt_id {
                dt { "Receipt" } dd { a href={ "/receipts/" (receipt_id) } { "signed" } }
            }
            @if let Some(words) = &one.words {
                dt { "Words" } dd { bdi { (text::clean(words, SAYS_MAX_CHARS)) } }
            }
        }
    }
}

fn asked(reason: &str) -> &'static str {
    match reason {
        "hedge" => "as one more, because others were slow",
        "replacement" => "as one more, because others had failed",
        _ => "from the beginning",
    }
}

fn facts(detail: &DelegatedDetail, now_ms: i64) -> Markup {
    let row = &detail.delegation;
    html! {
        dl class="facts" {
            @if let Some(schema_id) = &row.schema_id {
                dt { "Job schema" } dd { code { (text::clean(schema_id, 100)) } }
            }
            dt { "Input" }
            dd { @if row.private { "encrypted, to each of them" } @else { "in the open" } }
            dt { "Budget" } dd class="money" { (text::msat(row.budget_msat)) ", for all of them together" }
            dt { "Paid" } dd class="money" { (text::msat(detail.paid_msat)) }
            @if detail.held_msat > 0 { dt { "Set aside" } dd class="money" { (text::msat(detail.held_msat)) } }
            @if let Some(by) = row.decided_by {
                dt { "Decided by" } dd { @if by == "judge" { "a judge model" } @else { "their votes" } }
            }
            @if let Some(winner) = &row.winner { dt { "The answer" } dd { (part::id(winner)) } }
            dt { "Posted" } dd { (text::moment(row.posted_ms)) " (" (part::when(now_ms, row.posted_ms)) ")" }
            dt { "Results until" } dd { (text::moment(row.deadline_ms)) }
            dt { "Delegation" } dd { code class="id" { (row.delegation_id) } }
            @if row.state != "open" {
                dt { "Evidence" } dd { (part::evidence("delegations", &row.delegation_id, row.private)) }
            }
        }
    }
}
