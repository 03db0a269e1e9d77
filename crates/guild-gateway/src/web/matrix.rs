//! What this node believes of providers: the matrix, and how trust went. Curves are drawn on the server, without
//! scripts and without styles in the page.

use guild_roles::explorer::{Belief, Curve, Explained, Point, Sheet, Stance, Work};
use guild_roles::router::Health;
use guild_roles::router::{Candidate, Status};
use maud::{Markup, html};

use super::part::State;
use super::{Area, empty, page, part, text};
use crate::explore::encoded;

pub(crate) fn matrix(sheet: &Sheet, next: Option<&str>) -> String {
    let content = html! {
        div class="lead" {
            h1 { "Who is hired for which work" }
            p {
                "What this node believes of providers, from its own verified outcomes. Every change is a row of a log, "
                "so far " (text::grouped(sheet.log_seq)) "."
            }
        }
        @if sheet.rows.items.is_empty() {
            (empty("Nobody is known for any work yet.", &html! {
                "Whoever does a job for this node, or passes an evaluation, gets an entry: "
                code { "guild hire …" }
            }))
        } @else {
            (works(&sheet.works))
            div class="card sheet" {
                table class="matrix" {
                    thead { tr {
                        th { "Provider" }
                        @for work in &sheet.works { th { (task_link(work.task.as_str())) } }
                    } }
                    tbody {
                        @for row in &sheet.rows.items {
                            tr {
                                th scope="row" { (part::who_link(&row.provider)) }
                                @for cell in &row.cells { td { (stance(cell.as_ref())) } }
                            }
                        }
                    }
                }
            }
            @if sheet.more_works > 0 {
                p class="sub" { "And " (sheet.more_works) " more kinds of work." }
            }
            (part::legend(&STATUSES.map(status)))
        }
        (part::more(next))
    };
    page("Matrix", Area::Matrix, Some("/api/matrix"), &content)
}

fn works(works: &[Work]) -> Markup {
    html! {
        ul class="stats" aria-label="Kinds of work" {
            @for work in works {
                li class="stat" {
                    b { (work.active) small { " of " (work.providers) " active" } }
                    span { (task_link(work.task.as_str())) }
                    @if work.short_of_active > 0 { span { (work.short_of_active) " more should be met" } }
                }
            }
        }
    }
}

fn task_link(task: &str) -> Markup {
    html! { a href={ "/matrix/" (encoded(task)) } { code { (text::clean(task, 60)) } } }
}

fn stance(cell: Option<&Stance>) -> Markup {
    html! {
        @match cell {
            None => { span class="sub" { "–" } }
            Some(stance) => {
                (part::pill(&status(stance.status)))
                span class="sub" {
                    (trust(stance.trust_bp))
                    @if let Some(tier) = stance.tier { ", " (tier.name()) }
                }
            }
        }
    }
}

/// Every status, for the legend.
const STATUSES: [Status; 7] = [
    Status::Active,
    Status::Conditional,
    Status::SuspectedDegraded,
    Status::Unresponsive,
    Status::Quarantined,
    Status::Blacklisted,
    Status::Archived,
];

/// A status: its colour, its word, and what the word means.
pub(super) fn status(status: Status) -> State {
    let (class, word, means) = match status {
        Status::Active => ("good", "Active", "It is hired."),
        Status::Conditional => ("busy", "Conditional", "It is hired from the lowest tier only."),
        Status::SuspectedDegraded => ("bad", "Degraded", "Not hired now: it seems to be worse."),
        Status::Unresponsive => ("", "Unresponsive", "Not hired now: it did not answer."),
        Status::Quarantined => ("bad", "Quarantined", "Not hired now, for a stated reason."),
        Status::Blacklisted => ("bad", "Blacklisted", "It is never hired again."),
        Status::Archived => ("", "Archived", "It is gone."),
    };
    State { class, word, means }
}

/// Ten-thousandths as people read them.
pub(super) fn trust(bp: u32) -> String {
    format!("{}.{:02}", bp / 10_000, bp % 10_000 / 100)
}

fn percent(bp: Option<u32>) -> String {
    bp.map_or_else(|| "–".to_owned(), |bp| format!("{} %", bp / 100))
}

fn took(ms: Option<i64>) -> String {
    match ms {
        None => "–".to_owned(),
        Some(ms) if ms < 10_000 => format!("{} ms", text::grouped(ms)),
        Some(ms) => format!("{} s", text::grouped(ms / 1_000)),
    }
}

fn cost(msat: Option<i64>) -> String {
    msat.map_or_else(|| "–".to_owned(), text::msat)
}

/// What is believed of one provider, and how far it was trusted over time.
pub(super) fn beliefs(beliefs: &[Belief], curves: &[Curve], now_ms: i64) -> Markup {
    html! {
        @for belief in beliefs {
            article class="card stack" {
                div class="between" {
                    (task_link(belief.task.as_str()))
                    (part::pill(&status(belief.entry.status)))
                }
                (facts(belief, now_ms))
                @if let Some(curve) = curves.iter().find(|curve| curve.task == belief.task) {
                    (drawn(curve))
                }
            }
        }
    }
}

fn facts(belief: &Belief, now_ms: i64) -> Markup {
    let entry = &belief.entry;
    html! {
        dl class="facts" {
            dt { "Trust" } dd {
                b { (trust(entry.trust_bp)) }
                @if let Some(tier) = belief.tier { ", " (tier.name()) " tier" }
            }
            @if let Some(cause) = entry.cause {
                dt { "Because" } dd {
                    (cause.name())
                    @if let Some(until_ms) = entry.until_ms { ", until " (text::moment(until_ms)) }
                }
            }
            dt { "Health" } dd { (health(&entry.health, now_ms)) }
            dt { "Jobs" } dd {
                (text::grouped(i64::try_from(entry.jobs).unwrap_or(i64::MAX)))
                ", " (percent(belief.success_rate_30d_bp)) " of those of 30 days done well, "
                (entry.open_jobs) " open"
            }
            dt { "A job" } dd { (cost(belief.cost_msat)) ", " (took(belief.latency_ms)) }
            dt { "Pace" } dd {
                (entry.pace.name())
                @for note in &entry.notes { ", " (note.name()) }
            }
            dt { "Last hour" } dd { (belief.share_jobs) " of " (belief.share_of) " jobs of this work" }
            dt { "Looked at" } dd { (part::when(now_ms, entry.last_verified_ms)) }
        }
    }
}

/// Where it stands, by what, and since when. When it is tested next is not told.
fn health(health: &Health, now_ms: i64) -> Markup {
    html! {
        (health.stage.name())
        @if let Some(signal) = health.signal {
            ": it " (signal.words()) ", " (part::when(now_ms, health.since_ms))
        }
        @if health.cusum.is_alarmed { ". It may have become worse" }
        @if health.failures > 0 { ". It has failed " (health.failures) " times" }
    }
}

/// The size of a drawing, and what is left free around it.
const WIDTH: i64 = 640;
const HEIGHT: i64 = 160;
const LEFT: i64 = 34;
const EDGE: i64 = 10;
const BELOW: i64 = 22;

/// Trust over time, as steps: it holds until the next change.
fn drawn(curve: &Curve) -> Markup {
    let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) else {
        return html! {};
    };
    let span_ms = last.at_ms.saturating_sub(first.at_ms).max(1);
    let x = |point: &Point| {
        let wide = i128::from(WIDTH - LEFT - EDGE);
        let since = i128::from(point.at_ms.saturating_sub(first.at_ms).max(0));
        LEFT + i64::try_from(wide * since / i128::from(span_ms)).unwrap_or(0)
    };
    let line = steps(&curve.points, x);
    let label = format!(
        "Trust for {}: from {} to {} in {} changes",
        curve.task,
        trust(first.trust_bp),
        trust(last.trust_bp),
        curve.points.len()
    );
    html! {
        figure class="curve" {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(label) {
                @for (name, bp) in [("0.9", 9_000), ("0.8", 8_000), ("0.5", 5_000), ("0.3", 3_000), ("0", 0)] {
                    line class="grid" x1=(LEFT) x2=(WIDTH - EDGE) y1=(height(bp)) y2=(height(bp)) {}
                    text class="axis" x=(LEFT - 6) y=(height(bp) + 4) text-anchor="end" { (name) }
                }
                polyline class="trust" points=(line) {}
                @for point in &curve.points {
                    circle class=(dot(point)) cx=(x(point)) cy=(height(point.trust_bp)) r="3.5" {
                        title { (text::moment(point.at_ms)) ": " (point.what) ", " (trust(point.trust_bp)) }
                    }
                }
                text class="axis" x=(LEFT) y=(HEIGHT - 4) { (text::moment(first.at_ms)) }
                @if curve.points.len() > 1 {
                    text class="axis" x=(WIDTH - EDGE) y=(HEIGHT - 4) text-anchor="end" {
                        (text::moment(last.at_ms))
                    }
                }
            }
            figcaption { (label) "." }
        }
    }
}

fn height(trust_bp: u32) -> i64 {
    let high = HEIGHT - EDGE - BELOW;
    HEIGHT - BELOW - high * i64::from(trust_bp.min(10_000)) / 10_000
}

fn dot(point: &Point) -> &'static str {
    match (point.what, point.hired) {
        (_, false) => "out",
        ("SUCCESS" | "PARTIAL", _) => "up",
        ("FAILURE" | "ERROR", _) => "down",
        _ => "else",
    }
}

fn steps(points: &[Point], x: impl Fn(&Point) -> i64) -> String {
    let mut line = String::new();
    let mut level = None;
    for point in points {
        let (across, now) = (x(point), height(point.trust_bp));
        if let Some(before) = level {
            line.push_str(&format!("{across},{before} "));
        }
        line.push_str(&format!("{across},{now} "));
        level = Some(now);
    }
    line.trim_end().to_owned()
}

pub(crate) fn explained(told: &Explained) -> String {
    let explanation = &told.explanation;
    let task = text::clean(explanation.task.as_str(), 100);
    let content = html! {
        div class="lead" {
            a class="back" href="/matrix" { "← Matrix" }
            h1 { (task) }
            p {
                (text::grouped(i64::try_from(explanation.outcomes).unwrap_or(i64::MAX))) " outcomes so far."
                @if explanation.short_of_active > 0 {
                    " " (explanation.short_of_active) " more active providers should be met."
                }
            }
        }
        section aria-labelledby="everybody" {
            header { h2 id="everybody" { "Everybody for this work" } }
            div class="card sheet" {
                table {
                    thead { tr {
                        th { "Provider" } th { "Status" } th { "Tier" } th class="number" { "Trust" }
                        th class="number" { "Score" } th class="number" { "Jobs" } th class="number" { "30 days" }
                        th class="number" { "Cost" } th class="number" { "Time" } th class="number" { "Last hour" }
                    } }
                    tbody {
                        @for (candidate, party) in explanation.candidates.iter().zip(&told.parties) {
                            (candidate_row(candidate, &part::who_link(party)))
                        }
                    }
                }
            }
        }
        section aria-labelledby="choices" {
            header { h2 id="choices" { "Whom each policy would choose now" } }
            div class="stack" {
                @for choice in &explanation.choices { pre { (choice) } }
            }
            p class="hint" { "The same again: " code { "guild route explain " (task) " --seed "
                (explanation.choices.first().map_or(0, |choice| choice.seed)) } }
        }
    };
    let json = format!("/api/matrix/{}", encoded(explanation.task.as_str()));
    page(&task, Area::Matrix, Some(&json), &content)
}

fn candidate_row(candidate: &Candidate, who: &Markup) -> Markup {
    let entry = &candidate.entry;
    html! {
        tr {
            th scope="row" { (who) }
            td {
                (part::pill(&status(entry.status)))
                @if let Some(reason) = candidate.against { span class="sub" { (reason.words()) } }
            }
            td {
                @if let (Some(tier), Some(rank)) = (candidate.tier, candidate.rank) {
                    (tier.name()) " " (rank)
                }
            }
            td class="number" { (trust(entry.trust_bp)) }
            td class="number" { (trust(candidate.score_micro / 100)) }
            td class="number" { (entry.jobs) }
            td class="number" { (percent(candidate.success_rate_30d_bp)) }
            td class="number" { (cost(entry.cost_msat())) }
            td class="number" { (took(entry.latency_ms())) }
            td class="number" { (candidate.share_jobs) "/" (candidate.share_of) }
        }
    }
}
