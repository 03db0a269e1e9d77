//! Hosting: what somebody has bought, what it costs now, and every minute of it.

mod door;
mod list;
mod sheet;

use guild_hosting::api::{BalanceView, SandboxView, dollars, span};
use guild_hosting::desk::{House, JobPage, Overview, SandboxPage};
use guild_hosting::meter::Sight;
use maud::{Markup, html};

use super::{Area, empty, page, part, text};

pub(crate) use door::{closed, sign_in};
pub(crate) use sheet::statement;

const BUY: &str = "guild job create --budget 2.50usd --ttl 8h";
const API: Option<&str> = Some("/v1");

pub(crate) fn overview(overview: &Overview, now_ms: i64) -> String {
    let operator = overview.user_id.is_none();
    let content = html! {
        (lead(overview.user_id.as_deref()))
        @if let Some(balance) = &overview.balance { (account(balance)) }
        @if let Some(house) = &overview.house { (house_numbers(house)) (clock(house)) }
        section aria-labelledby="open" {
            header {
                h2 id="open" { "Sandboxes" }
                a href="/hosting/statement" { @if operator { "What was earned" } @else { "Statement" } }
            }
            @if overview.open.is_empty() {
                (empty("Nothing runs.", &nothing_runs(overview)))
            } @else {
                (list::sandboxes(&overview.open, operator, now_ms))
            }
        }
        section aria-labelledby="jobs" {
            header { h2 id="jobs" { "Jobs" } }
            @if overview.jobs.is_empty() {
                (empty("No job yet.", &html! {
                    "A job bounds what its sandboxes spend, and until when: " code { (BUY) }
                }))
            } @else {
                (list::jobs(&overview.jobs, operator))
            }
            @if let Some(next) = &overview.next {
                div class="buttons" { (part::more(Some(&format!("/hosting?before={next}")))) }
            }
        }
        @if let Some(house) = overview.house.as_ref().filter(|house| !house.withdrawals.is_empty()) {
            (sheet::withdrawals(&house.withdrawals, now_ms))
        }
        @if !overview.ended.is_empty() {
            section aria-labelledby="ended" {
                header { h2 id="ended" { "Ended lately" } }
                (list::sandboxes(&overview.ended, operator, now_ms))
            }
        }
        (part::legend(&list::legend()))
    };
    page("Hosting", Area::Hosting, API, &content)
}

fn lead(user_id: Option<&str>) -> Markup {
    html! {
        div class="lead" {
            h1 { @if user_id.is_some() { "Your sandboxes" } @else { "Everything that is hosted here" } }
            div class="buttons" {
                @match user_id {
                    Some(user_id) => { span class="sub" { "Signed in as " (part::id(user_id)) } }
                    None => { span class="sub" { "You look as the operator of this node." } }
                }
                form method="post" action="/hosting/sign-out" {
                    button class="button quiet" type="submit" { "Sign out" }
                }
            }
        }
    }
}

fn nothing_runs(overview: &Overview) -> Markup {
    let poor = overview.balance.as_ref().is_some_and(|balance| balance.free_micro_usd == 0);
    html! {
        @match overview.jobs.iter().find(|card| card.job.status == "running") {
            Some(card) => { "Buy one: " code { "guild sandbox create " (card.job.job_id) } }
            None => { "Make a job first: " code { (BUY) } }
        }
        @if poor { " The account is empty: ask the operator of this node for a credit." }
    }
}

/// A number that stands out.
fn stat(value: &Markup, label: &str) -> Markup {
    html! { li class="stat" { b { (value) } span { (label) } } }
}

/// An amount that stands out, its unit less so.
fn money(micro_usd: i64) -> Markup {
    let text = dollars(micro_usd);
    let (amount, unit) = text.split_once(' ').unwrap_or((&text, ""));
    html! { (amount) " " small { (unit) } }
}

/// A span that a script counts down.
fn countdown(ms: i64) -> Markup {
    html! { span class="count" data-left=(ms.max(0)) { (span(ms.max(0))) } }
}

fn account(balance: &BalanceView) -> Markup {
    let lasts = match balance.minutes_left {
        Some(minutes) => html! { (span(minutes.saturating_mul(60_000))) },
        None => html! { "–" },
    };
    html! {
        ul class="stats" aria-label="The account" {
            (stat(&money(balance.free_micro_usd), "free to spend"))
            (stat(&money(balance.burn_micro_usd_per_minute), "a minute, now"))
            (stat(&lasts, if balance.minutes_left.is_some() { "left at this pace" } else { "nothing is spent" }))
            @if balance.held_micro_usd > 0 { (stat(&money(balance.held_micro_usd), "set aside")) }
            (stat(&money(balance.withdrawable_micro_usd), "can be withdrawn"))
        }
    }
}

fn house_numbers(house: &House) -> Markup {
    html! {
        ul class="stats" aria-label="This node" {
            (stat(&html! { (text::grouped(house.live)) }, "sandboxes run"))
            (stat(&money(house.burn), "a minute, now"))
            (stat(&money(house.earned), "earned"))
            @if house.lost > 0 { (stat(&money(house.lost), "ran unpaid")) }
            (stat(&html! { (house.withdrawals.len()) }, "withdrawals to send"))
        }
    }
}

/// What is wrong with the clock, if something is: then nothing is metered.
fn clock(house: &House) -> Markup {
    let by = match house.clock {
        Some((_, Sight::Back { by_ms })) => Some(("ran back", by_ms)),
        Some((_, Sight::Jumped { by_ms })) => Some(("jumped ahead", by_ms)),
        Some((_, Sight::Steady)) | None => None,
    };
    html! {
        @if let Some((how, by_ms)) = by {
            div class="banner bad" {
                strong { "Minutes are not metered." }
                p { "The clock " (how) " by " (span(by_ms)) ". Sandboxes end when what is paid is over." }
                p { "If the time is right now: " code { "guild billing clock --accept" } }
            }
        }
    }
}

pub(crate) fn job(detail: &JobPage, now_ms: i64) -> String {
    let job = &detail.card.job;
    let name = text::clean(&job.name, 60);
    let content = html! {
        div class="lead" {
            a class="back" href="/hosting" { "← Hosting" }
            h1 { bdi { (name) } }
            div class="buttons" { (part::pill(&list::job_state(&job.status))) (part::id(&job.job_id)) }
        }
        ul class="stats" aria-label="The job" {
            (stat(&money(job.spent_micro_usd), "spent"))
            (stat(&money(job.left_micro_usd), "left of the budget"))
            (stat(&money(detail.card.burn), "a minute, now"))
            @if job.ended_ms.is_none() { (stat(&countdown(job.lasts_ms), "time left")) }
        }
        div class="card stack" { (list::bar(job.spent_micro_usd, job.max_spend_micro_usd)) }
        section aria-labelledby="open" {
            header { h2 id="open" { "Its sandboxes" } }
            @if detail.sandboxes.is_empty() {
                (empty("None yet.", &html! { "Buy one: " code { "guild sandbox create " (job.job_id) } }))
            } @else {
                (list::of_job(&detail.sandboxes, now_ms))
            }
        }
        (sheet::minutes(&detail.minutes, "Latest minutes", true))
        section aria-labelledby="facts" {
            header { h2 id="facts" { "The job" } }
            dl class="card facts" {
                dt { "Owner" } dd { (part::id(&detail.card.user_id)) }
                dt { "Made" } dd { (moment(job.created_ms, now_ms)) }
                dt { "Ends" } dd { (text::moment(job.expires_ms)) }
                @if let Some(ended_ms) = job.ended_ms { dt { "Ended" } dd { (moment(ended_ms, now_ms)) } }
                @if let Some(idle_ms) = job.idle_timeout_ms { dt { "Ends unused after" } dd { (span(idle_ms)) } }
                dt { "Used last" } dd { (moment(job.last_activity_ms, now_ms)) }
                @if job.held_micro_usd > 0 {
                    dt { "Held" } dd { (dollars(job.held_micro_usd)) ", for first minutes" }
                }
                @if job.ended_ms.is_none() {
                    dt { "More time or money" } dd { code { "guild job extend " (job.job_id) " --ttl 8h" } }
                    dt { "End it" } dd { code { "guild job stop " (job.job_id) } }
                }
            }
        }
    };
    page(&name, Area::Hosting, API, &content)
}

fn moment(at_ms: i64, now_ms: i64) -> Markup {
    html! { (text::moment(at_ms)) " (" (part::when(now_ms, at_ms)) ")" }
}

pub(crate) fn sandbox(detail: &SandboxPage, now_ms: i64) -> String {
    let (card, sandbox) = (&detail.card, &detail.card.sandbox);
    let state = list::sandbox_state(sandbox);
    let content = html! {
        div class="lead" {
            a class="back" href={ "/hosting/jobs/" (sandbox.job_id) } {
                "← " bdi { (text::clean(&detail.job.name, 60)) }
            }
            h1 { "Sandbox" }
            div class="buttons" { (part::pill(&state)) (part::id(&sandbox.sandbox_id)) }
        }
        @if let Some(why) = list::why(sandbox) {
            div class="banner" {
                strong { "Why it ended" }
                p { (why) }
                @if let Some(words) = &sandbox.words { p { bdi { (text::clean(words, 300)) } } }
            }
        }
        ul class="stats" aria-label="The sandbox" {
            (stat(&money(sandbox.price_micro_usd_per_minute), "a minute"))
            (stat(&money(sandbox.spent_micro_usd), "spent"))
            (stat(&html! { (text::grouped(sandbox.paid_minutes)) }, "minutes paid"))
            @if let Some(ends_ms) = sandbox.ends_ms.filter(|ends_ms| *ends_ms > now_ms) {
                (stat(&countdown(ends_ms.saturating_sub(now_ms)), "paid for"))
            }
            @if matches!(sandbox.status.as_str(), "starting" | "running") {
                (stat(&countdown(sandbox.lasts_ms), "time left"))
            }
        }
        div class="card stack" { (list::bar(sandbox.spent_micro_usd, sandbox.max_spend_micro_usd)) }
        (sheet::minutes(&detail.minutes, "Its minutes", false))
        @if let Some(next) = detail.next {
            (part::more(Some(&format!("/hosting/sandboxes/{}?before={next}", sandbox.sandbox_id))))
        }
        section aria-labelledby="facts" {
            header { h2 id="facts" { "The sandbox" } }
            (facts(sandbox, &card.user_id, now_ms))
        }
    };
    page("Sandbox", Area::Hosting, API, &content)
}

fn facts(sandbox: &SandboxView, user_id: &str, now_ms: i64) -> Markup {
    let (whole, part) = (sandbox.cpu_milli.div_euclid(1_000), sandbox.cpu_milli.rem_euclid(1_000));
    let cpu = format!("{whole}.{part:03}");
    let cpu = cpu.trim_end_matches('0').trim_end_matches('.');
    html! {
        dl class="card facts" {
            dt { "Owner" } dd { (part::id(user_id)) }
            dt { "Shape" } dd {
                (cpu) " vCPU, " (text::grouped(sandbox.ram_mib)) " MiB of memory, "
                (text::grouped(sandbox.disk_mib)) " MiB of disk"
            }
            dt { "Image" } dd { code { (text::clean(&sandbox.image, 200)) } }
            dt { "Ordered" } dd { (moment(sandbox.created_ms, now_ms)) }
            @if let Some(started_ms) = sandbox.started_ms { dt { "Started" } dd { (moment(started_ms, now_ms)) } }
            @if let Some(ends_ms) = sandbox.ends_ms { dt { "Paid until" } dd { (text::moment(ends_ms)) } }
            dt { "Ends at the latest" } dd { (text::moment(sandbox.expires_ms)) }
            @if let Some(idle_ms) = sandbox.idle_timeout_ms { dt { "Ends unused after" } dd { (span(idle_ms)) } }
            dt { "Used last" } dd { (moment(sandbox.last_activity_ms, now_ms)) }
            @if sandbox.status == "running" {
                dt { "Run something" } dd { code { "guild sandbox exec " (sandbox.sandbox_id) " -- uname -a" } }
                dt { "Stop it" } dd { code { "guild sandbox stop " (sandbox.sandbox_id) } }
            }
        }
    }
}
