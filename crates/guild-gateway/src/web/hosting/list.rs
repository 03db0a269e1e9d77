//! Jobs and sandboxes as lines, and what their words mean.

use guild_hosting::api::{SandboxView, dollars, span};
use guild_hosting::desk::{JobCard, SandboxCard};
use maud::{Markup, html};

use super::countdown;
use crate::web::part::{self, State};
use crate::web::text;

/// What is spent of what may be. A screen reader reads the words beside it.
pub(super) fn bar(spent: i64, most: i64) -> Markup {
    let percent = i128::from(spent.max(0)).saturating_mul(100).checked_div(i128::from(most.max(1)));
    html! {
        div class="spent" {
            progress value=(spent.max(0)) max=(most.max(1)) aria-hidden="true" {}
            span class="sub" {
                span class="money" { (dollars(spent)) } " of " (dollars(most)) " (" (percent.unwrap_or(0)) " %)"
            }
        }
    }
}

pub(super) fn jobs(cards: &[JobCard], operator: bool) -> Markup {
    html! {
        ul class="rows wide" {
            @for JobCard { job, user_id, live, burn } in cards {
                li {
                    div {
                        a class="what" href={ "/hosting/jobs/" (job.job_id) } { bdi { (text::clean(&job.name, 60)) } }
                        span class="sub" {
                            @if operator { (text::short(user_id)) } @else { (text::short(&job.job_id)) }
                        }
                    }
                    div class="middle" { (bar(job.spent_micro_usd, job.max_spend_micro_usd)) }
                    div class="right" {
                        (part::pill(&job_state(&job.status)))
                        @if job.ended_ms.is_none() { span class="sub" { (countdown(job.lasts_ms)) " left" } }
                        @if *live > 0 { span class="sub money" { (dollars(*burn)) " a minute" } }
                    }
                }
            }
        }
    }
}

pub(super) fn sandboxes(cards: &[SandboxCard], operator: bool, now_ms: i64) -> Markup {
    html! {
        ul class="rows wide" {
            @for card in cards {
                (line(&card.sandbox, operator.then_some(card.user_id.as_str()), now_ms))
            }
        }
    }
}

/// The same where everybody knows whose they are.
pub(super) fn of_job(sandboxes: &[SandboxView], now_ms: i64) -> Markup {
    html! { ul class="rows wide" { @for sandbox in sandboxes { (line(sandbox, None, now_ms)) } } }
}

fn line(sandbox: &SandboxView, owner: Option<&str>, now_ms: i64) -> Markup {
    html! {
        li {
            div {
                a class="what" href={ "/hosting/sandboxes/" (sandbox.sandbox_id) } {
                    (text::short(&sandbox.sandbox_id))
                }
                span class="sub" {
                    @match owner {
                        Some(owner) => { (text::short(owner)) }
                        None => { "used " (part::when(now_ms, sandbox.last_activity_ms)) }
                    }
                }
            }
            div class="middle" {
                (bar(sandbox.spent_micro_usd, sandbox.max_spend_micro_usd))
                @if let Some(why) = why(sandbox) { span class="sub" { (why) } }
            }
            div class="right" {
                (part::pill(&sandbox_state(sandbox)))
                @if let Some(ends_ms) = sandbox.ends_ms.filter(|ends_ms| *ends_ms > now_ms && runs(sandbox)) {
                    span class="sub" { "paid for " (countdown(ends_ms.saturating_sub(now_ms))) }
                }
                @if matches!(sandbox.status.as_str(), "starting" | "running") {
                    span class="sub" { (countdown(sandbox.lasts_ms)) " left" }
                    span class="sub money" { (dollars(sandbox.burn_micro_usd_per_minute)) " a minute" }
                } @else if let (Some(started_ms), Some(ends_ms)) = (sandbox.started_ms, sandbox.ends_ms) {
                    span class="sub" { "ran " (span(ends_ms.min(now_ms).saturating_sub(started_ms).max(0))) }
                }
            }
        }
    }
}

fn runs(sandbox: &SandboxView) -> bool {
    matches!(sandbox.status.as_str(), "starting" | "running" | "ending")
}

pub(super) fn job_state(status: &str) -> State {
    let (class, word, means) = match status {
        "running" => ("good dot", "Open", "Its sandboxes may run."),
        "stopped" => ("", "Stopped", "Its owner stopped it."),
        "stopped_due_to_budget" => {
            ("bad", "Budget spent", "The next minute was more than its budget had left.")
        }
        "stopped_due_to_balance" => {
            ("bad", "Account empty", "The account did not pay for the next minute.")
        }
        "expired" => ("", "Time over", "Its time was over."),
        "idle" => ("", "Unused", "Nobody used it for as long as its owner allowed."),
        _ => ("", "Unknown", "This page does not know the word."),
    };
    State { class, word, means }
}

pub(super) fn sandbox_state(sandbox: &SandboxView) -> State {
    let status = sandbox.status.as_str();
    if status == "running" && sandbox.paused {
        let means = "Its owner paused it. It stays paid for, because its memory is in use.";
        return State { class: "busy dot", word: "Paused", means };
    }
    word_of(status)
}

fn word_of(status: &str) -> State {
    let (class, word, means) = match status {
        "starting" => {
            ("busy dot", "Starting", "Its first minute is held; it is paid when it starts.")
        }
        "running" => ("good dot", "Running", "Each minute is paid before it begins."),
        "ending" => {
            ("busy", "Ending", "Its end is decided; it runs until what is paid is over at most.")
        }
        "stopped" => ("", "Stopped", "It runs no more. Its files are kept for a while."),
        "destroying" => ("", "Going", "It is being removed, with its files."),
        "destroyed" => ("", "Gone", "Nothing is left of it."),
        "failed" => ("bad", "Failed", "It never ran, or its machine is lost."),
        _ => ("", "Unknown", "This page does not know the word."),
    };
    State { class, word, means }
}

/// What the words of the page mean.
pub(super) fn legend() -> [State; 10] {
    [
        word_of("starting"),
        word_of("running"),
        word_of("ending"),
        word_of("stopped"),
        word_of("destroyed"),
        word_of("failed"),
        job_state("running"),
        job_state("stopped_due_to_budget"),
        job_state("stopped_due_to_balance"),
        job_state("idle"),
    ]
}

/// Why it ended, in words.
pub(super) fn why(sandbox: &SandboxView) -> Option<&'static str> {
    Some(match sandbox.stop_reason.as_deref()? {
        "sandbox_ttl" => "Its time was over.",
        "sandbox_idle" => "It was not used for too long.",
        "job_ttl" => "The time of its job was over.",
        "job_idle" => "Its job was not used for too long.",
        "sandbox_cap" => "Its own budget does not pay for another minute.",
        "job_cap" => "The budget of its job does not pay for another minute.",
        "account" => "The account does not pay for another minute.",
        "meter_gap" => "Nobody metered it in time, so it ended when what was paid was over.",
        "user" => "Its owner stopped it.",
        "job_stopped" => "Its owner stopped its job.",
        "not_started" => "It did not start in time. Nothing was paid.",
        "machine" => "Its machine stopped it, or is lost.",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use guild_hosting::{job, sandbox};

    use super::*;

    #[test]
    fn every_status_has_a_word() {
        for status in sandbox::Status::ALL {
            assert_ne!(word_of(status.as_str()).word, "Unknown", "{status:?}");
        }
        for status in job::Status::ALL {
            assert_ne!(job_state(status.as_str()).word, "Unknown", "{status:?}");
        }
        assert_eq!(word_of("else").word, "Unknown");
    }

    #[test]
    fn a_bar_of_nothing_and_of_too_much_is_drawn() {
        let drawn = |spent, most| bar(spent, most).into_string();
        assert!(drawn(0, 0).contains("(0 %)"));
        assert!(drawn(i64::MAX, 1).contains("922337203685477580700 %"));
        assert!(drawn(1, 2).contains("<progress value=\"1\" max=\"2\""));
    }
}
