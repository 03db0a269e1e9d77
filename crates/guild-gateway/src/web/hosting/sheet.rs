//! Money, line by line.

use guild_hosting::api::{Line, WithdrawalView, dollars};
use guild_hosting::desk::{Minute, StatementPage};
use maud::{Markup, html};

use super::API;
use crate::web::{Area, empty, page, part, text};

pub(crate) fn statement(statement: &StatementPage) -> String {
    let title = if statement.user_id.is_some() { "Statement" } else { "What was earned" };
    let content = html! {
        div class="lead" {
            a class="back" href="/hosting" { "← Hosting" }
            h1 { (title) }
            p { "Every transfer that touched the account, the newest first, with what was in it afterwards." }
        }
        @if statement.lines.is_empty() {
            (empty("No transfer yet.", &html! {
                "The first is a credit: the operator of this node books what you pay."
            }))
        } @else {
            div class="buttons" {
                a class="button" href="/hosting/statement.csv" { "As CSV" }
                a class="button" href="/hosting/statement.json" { "As JSON" }
                span class="sub" { "a file has the newest 5,000 lines" }
            }
            (lines(&statement.lines))
        }
        @if let Some(next) = &statement.next {
            (part::more(Some(&format!("/hosting/statement?before={next}"))))
        }
    };
    page(title, Area::Hosting, API, &content)
}

fn lines(lines: &[Line]) -> Markup {
    html! {
        div class="card sheet" tabindex="0" role="region" aria-label="The lines" {
            table {
                thead {
                    tr {
                        th scope="col" { "When, UTC" }
                        th scope="col" class="number" { "USD" } th scope="col" class="number" { "Free after" }
                        th scope="col" { "For" } th scope="col" { "Transfer" }
                    }
                }
                tbody {
                    @for line in lines {
                        tr {
                            td { (moment(line.booked_ms)) }
                            td class={ "number " (tone(line)) } { (places(line.amount_micro_usd)) }
                            td class="number" { (places(line.free_micro_usd)) }
                            td { (step(&line.step)) (purpose(&line.memo)) }
                            td { (part::id(&line.transfer_id)) }
                        }
                    }
                }
            }
        }
    }
}

/// Money that comes in stands out; what is only set aside or given back stands back.
fn tone(line: &Line) -> &'static str {
    match line.step.as_str() {
        "hold" | "void" | "expire" => "aside",
        _ if line.amount_micro_usd > 0 => "in",
        _ => "",
    }
}

/// Micro-USD as dollars with all places, so that they stand below each other.
fn places(micro_usd: i64) -> String {
    let (sign, units) = (if micro_usd < 0 { "−" } else { "" }, micro_usd.unsigned_abs());
    format!("{sign}{}.{:06}", units.div_euclid(1_000_000), units.rem_euclid(1_000_000))
}

/// A moment below a heading that says that it is UTC.
fn moment(at_ms: i64) -> String {
    let text = text::moment(at_ms);
    text.strip_suffix(" UTC").unwrap_or(&text).to_owned()
}

/// What a transfer is for: a minute has a link to its sandbox.
fn purpose(memo: &str) -> Markup {
    let mut words = memo.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("sandbox.minute"), Some(id), Some(number)) if is_word(id) && is_word(number) => {
            html! {
                "minute " (number) " of " (link(id))
            }
        }
        (Some("sandbox.hold" | "sandbox.void"), Some(id), None) if is_word(id) => html! {
            "minute 0 of " (link(id))
        },
        (Some("hosting.credit"), ..) => {
            let reference = memo.strip_prefix("hosting.credit ").unwrap_or_default();
            html! { "credit, " bdi { (text::clean(reference, 120)) } }
        }
        _ => html! { bdi { (text::clean(memo, 120)) } },
    }
}

fn link(sandbox_id: &str) -> Markup {
    html! { a href={ "/hosting/sandboxes/" (sandbox_id) } { (text::short(sandbox_id)) } }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// What happened, where it is not a plain payment.
fn step(step: &str) -> &'static str {
    match step {
        "hold" => "set aside: ",
        "void" => "given back: ",
        "expire" => "given back, unused: ",
        _ => "",
    }
}

/// Minutes that are paid, each with the transfer that pays it.
pub(super) fn minutes(minutes: &[Minute], title: &str, of_many: bool) -> Markup {
    html! {
        section aria-labelledby="minutes" {
            header { h2 id="minutes" { (title) } }
            @if minutes.is_empty() {
                (empty("No minute is paid yet.", &html! { "The first is paid when the sandbox starts." }))
            } @else {
                div class="card sheet" tabindex="0" role="region" aria-label=(title) {
                    table {
                        thead {
                            tr {
                                th scope="col" class="number" { "Minute" }
                                @if of_many { th scope="col" { "Sandbox" } }
                                th scope="col" { "Begins, UTC" }
                                th scope="col" class="number" { "Paid, USD" }
                                th scope="col" class="number" { "Ahead" }
                                th scope="col" { "Transfer" }
                            }
                        }
                        tbody { @for minute in minutes { (row(minute, of_many)) } }
                    }
                }
            }
        }
    }
}

fn row(minute: &Minute, of_many: bool) -> Markup {
    html! {
        tr {
            td class="number" { (text::grouped(minute.number)) }
            @if of_many {
                td { (link(&minute.sandbox_id)) }
            }
            td { (moment(minute.begins_ms)) }
            @match minute.booked {
                Some((units, at_ms)) => {
                    td class="number" { (places(units)) }
                    td class="number" { (ahead(minute.begins_ms.saturating_sub(at_ms))) }
                }
                None => { td class="number" { "?" } td class="number" { "?" } }
            }
            td { (part::id(&minute.transfer_id)) }
        }
    }
}

/// How long before it began a minute was paid.
fn ahead(ms: i64) -> String {
    format!("{}.{} s", ms.div_euclid(1_000), ms.rem_euclid(1_000).div_euclid(100))
}

/// Withdrawals that have to be sent.
pub(super) fn withdrawals(all: &[WithdrawalView], now_ms: i64) -> Markup {
    html! {
        section aria-labelledby="out" {
            header { h2 id="out" { "Withdrawals to send" } }
            p class="hint" {
                "When one is sent: " code { "guild billing confirm ID --reference TEXT" } ", and if it cannot be: "
                code { "guild billing fail ID --why TEXT" }
            }
            div class="card sheet" tabindex="0" role="region" aria-label="Withdrawals to send" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Asked" } th scope="col" { "Of" }
                            th scope="col" class="number" { "Amount" }
                            th scope="col" { "To" } th scope="col" { "Withdrawal" }
                        }
                    }
                    tbody {
                        @for one in all {
                            tr {
                                td { (part::when(now_ms, one.requested_ms)) }
                                td { (part::id(&one.user_id)) }
                                td class="number" { (dollars(one.amount_micro_usd)) }
                                td { bdi { (text::clean(&one.destination, 80)) } }
                                td { (part::id(&one.withdrawal_id)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memo_of_a_stranger_makes_no_link() {
        let shown = |memo: &str| purpose(memo).into_string();
        assert!(shown("sandbox.minute sbx_1 7").contains("href=\"/hosting/sandboxes/sbx_1\""));
        for memo in ["sandbox.minute ../x 7", "sandbox.minute \"><script> 7", "hosting.credit <b>"]
        {
            assert!(!shown(memo).contains("href") && !shown(memo).contains("<script>"), "{memo}");
            assert!(!shown(memo).contains("<b>"));
        }
        assert_eq!(ahead(18_250), "18.2 s");
        assert_eq!([places(-1_110), places(i64::MIN)], ["−0.001110", "−9223372036854.775808"]);
    }
}
