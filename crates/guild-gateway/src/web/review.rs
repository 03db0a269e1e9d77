//! What is said of providers: by this node, and by others.

use guild_roles::explorer::{OtherReview, OwnReview, ProviderReviews, Words};
use maud::{Markup, html};

use super::part::State;
use super::{Area, empty, page, part, text};

/// How much of what somebody wrote is shown.
const SAID_MAX_CHARS: usize = 280;

pub(crate) fn reviews(
    ours: &[OwnReview],
    others: &[OtherReview],
    next: Option<&str>,
    now_ms: i64,
) -> String {
    let content = html! {
        div class="lead" {
            h1 { "Reviews" }
            p {
                "What this node says of providers after it hired or tested them, with what proves it; and what others "
                "say. Keys cost nothing, so a review that proves nothing counts for nothing here."
            }
        }
        section aria-labelledby="ours" {
            header { h2 id="ours" { "By this node" } }
            @if ours.is_empty() {
                (empty("None yet.", &html! {
                    "A day after a job or a test there is one: " code { "guild reviews ls" }
                }))
            } @else {
                (own_rows(ours, now_ms))
            }
            (part::more(next))
        }
        section aria-labelledby="others" {
            header { h2 id="others" { "By others" } }
            @if others.is_empty() {
                (empty("None was heard.", &html! { "They come from the relays of this node." }))
            } @else {
                (other_rows(others, now_ms))
            }
        }
        (part::legend(&GRADES.map(evidence)))
    };
    page("Reviews", Area::Reviews, Some("/api/reviews"), &content)
}

/// The reviews of one provider, on its page.
pub(super) fn of_provider(reviews: &ProviderReviews, now_ms: i64) -> Markup {
    html! {
        @if !reviews.ours.is_empty() || !reviews.others.is_empty() {
            section aria-labelledby="reviews" {
                header { h2 id="reviews" { "What is said of it" } a href="/reviews" { "All reviews" } }
                @if !reviews.ours.is_empty() { h3 { "By this node" } (own_rows(&reviews.ours, now_ms)) }
                @if !reviews.others.is_empty() { h3 { "By others" } (other_rows(&reviews.others, now_ms)) }
            }
        }
    }
}

fn own_rows(reviews: &[OwnReview], now_ms: i64) -> Markup {
    html! {
        ul class="rows" {
            @for review in reviews {
                li {
                    div {
                        (rating(&review.words))
                        span class="sub" { code { (text::clean(review.task.as_str(), 60)) } }
                    }
                    div class="middle" {
                        (part::who_link(&review.provider))
                        (said(&review.words))
                    }
                    div class="right" {
                        (part::pill(&state(review.state)))
                        span class="sub" { @match review.published_ms {
                            Some(at_ms) => (part::when(now_ms, at_ms)),
                            None => { "due " (text::moment(review.due_ms)) }
                        } }
                    }
                }
            }
        }
    }
}

fn other_rows(reviews: &[OtherReview], now_ms: i64) -> Markup {
    html! {
        ul class="rows" {
            @for review in reviews {
                li {
                    div {
                        (rating(&review.words))
                        span class="sub" { code { (text::clean(review.task.as_str(), 60)) } }
                    }
                    div class="middle" {
                        div class="deal" {
                            (part::who(&review.reviewer))
                            span class="to" { (part::arrow("of")) (part::who_link(&review.provider)) }
                        }
                        (said(&review.words))
                    }
                    div class="right" {
                        (part::pill(&evidence(review.evidence)))
                        span class="sub" {
                            (part::when(now_ms, review.said_ms))
                            @if let Some(line) = &review.weight { " · counts " (outcomes(line.counted_milli)) }
                        }
                    }
                }
            }
        }
    }
}

fn rating(words: &Words) -> Markup {
    html! { span class="what" { (words.rating) small { " of 5" } } }
}

/// What somebody wrote, and what can be looked at.
fn said(words: &Words) -> Markup {
    html! {
        @if words.alert.is_some() { p { (part::pill(&ALERT)) } }
        @if let Some(summary) = &words.summary {
            p class="about" { bdi { (text::clean(summary, SAID_MAX_CHARS)) } }
        }
        @if let Some(request_id) = &words.request_id {
            span class="sub" { a href={ "/requests/" (request_id) } { "the job" } }
        }
    }
}

const ALERT: State =
    State { class: "bad", word: "Alert", means: "It is said to have tried what is forbidden." };

/// Thousandths of an outcome.
fn outcomes(milli: u64) -> String {
    format!("{}.{:03}", milli.div_euclid(1_000), milli.rem_euclid(1_000))
}

fn state(word: &str) -> State {
    let (class, word, means) = match word {
        "published" => ("good", "Published", "It is what this node says."),
        "superseded" => ("", "Superseded", "This node has said something newer."),
        "held" => ("busy", "Held", "It waits until a dispute is resolved."),
        _ => ("busy", "Due", "It waits for later outcomes, and is published then."),
    };
    State { class, word, means }
}

const GRADES: [&str; 5] = ["paid", "done", "asked", "none", "forged"];

fn evidence(grade: &str) -> State {
    let (class, word, means) = match grade {
        "paid" => ("good", "Paid", "The request, its result and the receipt are here."),
        "done" => {
            ("good", "Done", "The reviewer's request and the result of the reviewed are here.")
        }
        "asked" => {
            ("busy", "Asked", "The reviewer's request is here, and no result: it counts little.")
        }
        "forged" => ("bad", "Forged", "It names what is not so, and counts for nothing."),
        _ => ("", "Unproven", "It names nothing that is here, and counts for nothing."),
    };
    State { class, word, means }
}
