//! Receipts, in words and check by check.

use guild_protocol::receipt::{self, Proof, Receipt as Proven, Status};
use guild_protocol::replay;
use guild_protocol::verification::{Check, Verification};
use guild_roles::explorer::{Receipt, Side, Tone};
use maud::{Markup, html};

use super::part::State;
use super::{Area, empty, page, part, text};

pub(crate) fn receipts(receipts: &[Receipt], next: Option<&str>, now_ms: i64) -> String {
    let content = html! {
        div class="lead" {
            h1 { "Receipts" }
            p {
                "Each binds a payment to the job, to what was done, and to the policy that allowed it. "
                "The buyer signs."
            }
        }
        @if receipts.is_empty() {
            (empty("No receipt yet.", &html! {
                "One is signed when a job is settled. To see some at once: " code { "guild demo --keep" }
            }))
        } @else {
            (rows(receipts, now_ms))
        }
        (part::more(next))
        (part::legend(&STATUSES.map(settled)))
    };
    page("Receipts", Area::Receipts, Some("/api/receipts"), &content)
}

/// Receipts as lines.
pub(super) fn rows(receipts: &[Receipt], now_ms: i64) -> Markup {
    html! {
        ul class="rows" {
            @for receipt in receipts {
                li {
                    div {
                        a class="what mono" href={ "/receipts/" (receipt.receipt_id) } {
                            (text::short(&receipt.receipt_id))
                        }
                        span class="sub" {
                            @match receipt.side {
                                Side::Hired => { "taken" }
                                _ => { "given" }
                            }
                            " · " (part::when(now_ms, receipt.at_ms))
                        }
                    }
                    div class="middle deal" {
                        (part::who(&receipt.buyer))
                        span class="to" { (part::arrow("to")) (part::who(&receipt.provider)) }
                    }
                    div class="right" {
                        (part::pill(&settled(receipt.status)))
                        span class="money" { (text::amount(&receipt.amount)) }
                    }
                }
            }
        }
    }
}

const STATUSES: [Status; 4] =
    [Status::Released, Status::Withheld, Status::Prepaid, Status::Refunded];

fn settled(status: Status) -> State {
    let (class, word, means) = match status {
        Status::Released => {
            ("good", "Released", "The result was accepted, and the money was paid.")
        }
        Status::Withheld => (
            "bad",
            "Withheld",
            "The result was not accepted. What was set aside went back to the buyer.",
        ),
        Status::Prepaid => ("busy", "Prepaid", "It was paid before the work was done."),
        Status::Refunded => ("", "Refunded", "The provider gave the money back."),
    };
    State { class, word, means }
}

/// A receipt and what was found when its bytes were checked now.
pub(crate) struct Shown<'a> {
    pub(crate) receipt: &'a Receipt,
    pub(crate) verification: &'a Verification,
    /// What it states; none if it cannot be trusted.
    pub(crate) proven: Option<&'a Proven>,
    pub(crate) has_replay: bool,
}

pub(crate) fn receipt(shown: &Shown<'_>, now_ms: i64) -> String {
    let Shown { receipt, verification, .. } = *shown;
    let path = format!("/api/receipts/{}", receipt.receipt_id);
    let content = html! {
        div class="lead" {
            a class="back" href="/receipts" { "← Receipts" }
            h1 { (headline(receipt)) }
            div class="buttons" {
                (part::pill(&settled(receipt.status)))
                span class="sub" { (part::when(now_ms, receipt.at_ms)) }
            }
        }
        (banner(verification))
        section class="card stack" aria-label="In words" {
            div class="deal" {
                (part::who_link(&receipt.buyer))
                span class="to" { (part::arrow("to")) (part::who_link(&receipt.provider)) }
            }
            p { (in_words(receipt)) }
            @if let Some(request_id) = &receipt.request_id {
                p { a href={ "/requests/" (request_id) } { "Follow the job from request to receipt" } }
            }
        }
        section aria-labelledby="checks" {
            header { h2 id="checks" { "Every check" } }
            p class="hint" { "Made by this node just now, from the receipt's bytes alone." }
            ul class="checks card" { @for check in verification.checks() { (check_line(check)) } }
        }
        (verify_yourself(shown, &path))
        @if let Some(proven) = shown.proven {
            section aria-labelledby="binds" {
                header { h2 id="binds" { "What it binds together" } }
                div class="card" { (bound(proven)) }
            }
        }
    };
    page(
        &format!("Receipt {}", text::short(&receipt.receipt_id)),
        Area::Receipts,
        Some(&path),
        &content,
    )
}

fn headline(receipt: &Receipt) -> String {
    let amount = text::amount(&receipt.amount);
    match receipt.status {
        Status::Released => format!("{amount} paid"),
        Status::Prepaid => format!("{amount} paid in advance"),
        Status::Withheld => format!("{amount} withheld"),
        Status::Refunded => format!("{amount} given back"),
    }
}

/// A sentence. Names stand apart from it, so that one in another script does not turn the words around it.
fn in_words(receipt: &Receipt) -> Markup {
    let named = |party| html! { bdi { (part::called(party)) } };
    let (buyer, provider) = (named(&receipt.buyer), named(&receipt.provider));
    let (amount, at) = (text::amount(&receipt.amount), text::moment(receipt.at_ms));
    html! {
        "On " (at) ", "
        @match receipt.status {
            Status::Released => { (buyer) " accepted the work of " (provider) " and paid " (amount) "." }
            Status::Withheld => {
                (buyer) " did not accept the work of " (provider) ". The " (amount)
                " that were set aside went back."
            }
            Status::Prepaid => { (buyer) " paid " (provider) " " (amount) " before the work was done." }
            Status::Refunded => { (provider) " gave " (amount) " back to " (buyer) "." }
        }
    }
}

fn banner(verification: &Verification) -> Markup {
    let count = verification.checks().len();
    match verification.holds() {
        true => html! {
            div class="banner good" {
                strong { "✓ This receipt holds" }
                p { "All " (count) " checks pass: nothing in it was changed since its buyer signed it." }
            }
        },
        false => html! {
            div class="banner bad" {
                strong { "✕ Do not trust this receipt" }
                p { (verification.problems().count()) " of " (count) " checks fail. Below is what is wrong." }
            }
        },
    }
}

fn check_line(check: &Check) -> Markup {
    let (tone, says) = match &check.outcome {
        Ok(holds) => (Tone::Good, (*holds).to_owned()),
        Err(problem) => (Tone::Bad, format!("Fails: {problem}")),
    };
    html! {
        li {
            (part::knot(tone))
            span class="says" { (text::clean(&says, 300)) " " code { (check.name) } }
        }
    }
}

fn verify_yourself(shown: &Shown<'_>, path: &str) -> Markup {
    let (receipt, replay) = (receipt::FILE_NAME, replay::FILE_NAME);
    html! {
        section aria-labelledby="yourself" {
            header { h2 id="yourself" { "Check it yourself" } }
            div class="card stack" {
                p { "You need not believe this page. Take the files and check them on a machine that you trust:" }
                div class="buttons" {
                    a class="button" href=(path) download=(receipt) { (receipt) }
                    @if shown.has_replay {
                        a class="button" href={ (path) "/replay" } download=(replay) { (replay) }
                    }
                }
                @if !shown.has_replay {
                    p class="sub" {
                        "The replay, which tells what was done, is with the buyer ("
                        code { "guild receipts export" } "). That of private work is not public."
                    }
                }
                pre {
                    code {
                        "guild receipts verify " (receipt)
                        @if shown.has_replay { "\nguild replay verify " (replay) " \\\n    --receipt " (receipt) }
                    }
                }
            }
        }
    }
}

fn bound(proven: &Proven) -> Markup {
    let stated = proven.stated();
    let code = |text: &dyn std::fmt::Display| html! { code class="id" { (text::clean(&text.to_string(), 220)) } };
    html! {
        dl class="facts" {
            dt { "Receipt" } dd { (code(&proven.receipt_id())) }
            dt { "Amount" } dd class="money" { (text::amount(&stated.amount)) }
            dt { "Moved by" } dd { (stated.rail.as_str()) }
            dt { "Payment proof" } dd { (proof(stated.payment_proof.as_ref())) }
            @if let Some(request_id) = &stated.request_id { dt { "Request" } dd { (code(request_id)) } }
            @if let Some(job_hash) = &stated.job_hash { dt { "Job" } dd { (code(job_hash)) } }
            @if let Some(verdict_hash) = &stated.verdict_hash { dt { "Verdict" } dd { (code(verdict_hash)) } }
            dt { "Trajectory" } dd { (code(&stated.trajectory_hash)) }
            dt { "Policy" } dd { (code(&stated.policy_bundle_id)) }
            @if let Some(rule) = &stated.approval_rule_id { dt { "Allowed by" } dd { (code(rule)) } }
            dt { "Buyer, who signs" } dd { (code(&stated.buyer_id)) }
            dt { "Provider" } dd { (code(&stated.provider_id)) }
            dt { "Digest" } dd { (code(proven.digest())) }
        }
    }
}

fn proof(proof: Option<&Proof>) -> Markup {
    let code = |text: &str| html! { code class="id" { (text::clean(text, 220)) } };
    match proof {
        None => html! { "none: no money moved" },
        Some(
            Proof::LightningPreimage(value) | Proof::CashuProof(value) | Proof::OnchainTxid(value),
        ) => code(value),
        Some(Proof::TaprootAssetsProof(hash)) => code(&hash.to_string()),
        Some(Proof::LedgerTransfer { transfer_id, ledger_head }) => html! {
            "transfer " (code(transfer_id)) " in the buyer's book, whose head was then "
            (code(&ledger_head.to_string()))
        },
    }
}
