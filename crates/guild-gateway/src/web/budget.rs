//! How much may be spent on which kind of work, and how much of it is.

use guild_roles::budget::{Change, Layer, Period, Standing, What};
use guild_roles::explorer::Budgets;
use maud::{Markup, html};

use super::{Area, empty, page, part, text};

const NAME_MAX_CHARS: usize = 60;

pub(crate) fn budgets(budgets: &Budgets, now_ms: i64) -> String {
    let content = html! {
        div class="lead" {
            h1 { "What may be spent on which work" }
            p {
                "An order is held in the envelope of its work, today and this month, until it is paid or given back. "
                "Where it does not fit, others lend what is missing, or it is refused."
            }
        }
        @if budgets.envelopes.is_empty() {
            (empty("No envelope is set, so nothing is limited.", &html! {
                "Set one with " code { "guild budget set TASK --daily 10sat --monthly 100sat" } "."
            }))
        } @else {
            ul class="rows wide" { @for one in &budgets.envelopes { (row(one)) } }
        }
        @if !budgets.changes.is_empty() {
            h2 { "What changed" }
            ul class="rows" { @for change in &budgets.changes { (changed(change, now_ms)) } }
        }
    };
    page("Budgets", Area::Budgets, Some("/api/budgets"), &content)
}

fn row(one: &Standing) -> Markup {
    let terms = &one.envelope.terms;
    html! {
        li {
            div {
                span class="what mono" { (name(one.envelope.task.as_str())) }
                span class="sub" {
                    "priority " (terms.priority) " · lends " (percent(terms.lends_bp)) " % · carries over "
                    (percent(terms.rolls_bp)) " %"
                }
            }
            div class="middle" { (bar("Today", &one.today)) }
            div class="middle" { (bar("This month", &one.month)) }
        }
    }
}

/// What is held and spent of what may be. A screen reader reads the words beside it.
fn bar(when: &str, at: &Period) -> Markup {
    let (used, most) = (at.held.saturating_add(at.spent), at.most());
    html! {
        div class="spent" {
            progress value=(used.max(0)) max=(most.max(1)) aria-hidden="true" {}
            span class="sub" {
                (when) ": " span class="money" { (text::msat(used)) } " of " (text::msat(most))
                @for (units, word) in
                    [(at.held, "held"), (at.rolled, "carried over"), (at.borrowed, "borrowed"), (at.lent, "lent")]
                {
                    @if units > 0 { ", " (text::msat(units)) " " (word) }
                }
            }
        }
    }
}

fn changed(change: &Change, now_ms: i64) -> Markup {
    let task = name(change.task.as_str());
    html! {
        li {
            div {
                span class="what mono" { (task) }
                span class="sub" { (part::when(now_ms, change.at_ms)) }
            }
            div class="middle" {
                @match &change.what {
                    What::Set(terms) => {
                        "allows " (text::msat(terms.daily.0)) " a day and " (text::msat(terms.monthly.0)) " a month"
                    }
                    What::Removed => { "was taken away" }
                    What::Lent { borrower, layer, period, msat, .. } => {
                        "lent " (text::msat(*msat)) " to " code { (name(borrower.as_str())) } " for the "
                        (match layer { Layer::Day => "day ", Layer::Month => "month " }) (period)
                    }
                    What::Rolled { period, msat } => { "carried " (text::msat(*msat)) " into " (period) }
                }
            }
        }
    }
}

fn name(task: &str) -> String {
    match task {
        "*" => "* (all other work)".to_owned(),
        task => text::clean(task, NAME_MAX_CHARS),
    }
}

fn percent(bp: i64) -> i64 {
    bp / 100
}

#[cfg(test)]
mod tests {
    use guild_protocol::amount::Msat;
    use guild_roles::budget::{Envelope, Terms};

    use super::*;

    #[test]
    fn an_envelope_is_shown_with_what_is_used_and_what_changed_it() {
        let terms = Terms {
            daily: Msat(1_000),
            monthly: Msat(5_000),
            priority: 3,
            lends_bp: 3_000,
            rolls_bp: 5_000,
        };
        let task: guild_roles::budget::TaskType = "<b>.v1".parse().unwrap();
        let at = |period: &str| Period {
            period: period.to_owned(),
            limit: 1_000,
            borrowed: 200,
            held: 300,
            spent: 400,
            ..Period::default()
        };
        let envelope =
            Envelope { task: task.clone(), terms, version: 1, changed_ms: 5, is_set: true };
        let standing = Standing { envelope, today: at("2026-01-15"), month: at("2026-01") };
        let lent = What::Rolled { period: "2026-01".to_owned(), msat: 77 };
        let change = Change { log_id: "x".to_owned(), at_ms: 5, task, what: lent };
        let shown = budgets(&Budgets { envelopes: vec![standing], changes: vec![change] }, 10);
        for part in [
            "&lt;b&gt;.v1",
            "700 msat",
            "1,200 msat",
            "200 msat borrowed",
            "priority 3",
            "lends 30 %",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(
            shown.contains("carried 77 msat into 2026-01") && !shown.contains("<b>"),
            "{shown}"
        );
        let nothing = budgets(&Budgets { envelopes: Vec::new(), changes: Vec::new() }, 10);
        assert!(nothing.contains("nothing is limited"));
    }
}
