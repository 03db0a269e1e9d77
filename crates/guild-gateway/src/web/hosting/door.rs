//! Before somebody is known.

use maud::html;

use super::{API, BUY};
use crate::web::{Area, still, text};

/// Where somebody signs in; `wrong` says what was wrong with the last try.
pub(crate) fn sign_in(wrong: Option<&str>) -> String {
    let content = html! {
        div class="lead" {
            h1 { "Sandboxes by the minute" }
            p {
                "Each minute is paid before it begins, or it does not run. Sign in to see your jobs, your sandboxes, "
                "what they cost now, and every minute that was paid."
            }
        }
        @if let Some(wrong) = wrong {
            div class="banner bad" role="alert" {
                strong { "That is not taken." }
                p { bdi { (text::clean(wrong, 300)) } }
            }
        }
        section aria-labelledby="here" {
            header { h2 id="here" { "Sign in" } }
            div class="card stack" id="doors" {
                div class="buttons" {
                    button class="button" id="by-wallet" type="button" hidden { "With a wallet" }
                    button class="button" id="by-nostr" type="button" hidden { "With a Nostr key" }
                    span class="sub" id="said" role="status" {}
                }
                form class="filter" method="post" action="/hosting/sign-in" {
                    label {
                        "A key that only reads"
                        input name="token" type="password" required autocomplete="off" spellcheck="false"
                            placeholder="ghk_…";
                    }
                    button class="button" type="submit" { "Look" }
                }
                p class="sub" { "Pages only read, and this browser keeps nothing that could change anything." }
            }
        }
        section aria-labelledby="key" {
            header { h2 id="key" { "How to get in" } }
            dl class="card facts" {
                dt { "From a terminal" } dd { code { "guild login --host URL" } ", then " code { "guild login --page" }
                    " gives you such a key" }
                dt { "The operator" } dd { "on this host: the " code { "token" } " in " code { "node.json" }
                    " of the data directory" }
                dt { "Buy something" } dd { code { (BUY) } }
                dt { "For programs" } dd { a href="/v1" { code { "/v1" } } }
            }
        }
    };
    still("Sign in", Area::Hosting, API, &content)
}

/// A node that sells nothing.
pub(crate) fn closed() -> String {
    let content = html! {
        div class="lead" {
            h1 { "This node sells no sandboxes" }
            p { "It could: each minute would be paid before it begins, or it would not run." }
        }
        div class="card stack" {
            p { "Its operator opens the shop with " code { "guild up --set hosting.enabled=true" } }
        }
    };
    still("Hosting", Area::Hosting, None, &content)
}
