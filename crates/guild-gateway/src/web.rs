//! The explorer's pages, made on the server. Everything can be read without JavaScript, on a phone and in the dark;
//! nothing is fetched from anywhere else. Whatever strangers wrote goes through [`text::clean`] and is escaped.

mod api;
pub(crate) mod asset;
mod budget;
mod content;
mod delegation;
mod dispute;
mod home;
pub(crate) mod hosting;
mod icon;
mod matrix;
mod part;
mod problem;
mod provider;
mod receipt;
mod relay;
mod request;
mod review;
#[cfg(test)]
mod tests;
mod text;

use maud::{DOCTYPE, Markup, html};

pub(crate) use api::api;
pub(crate) use budget::budgets;
pub(crate) use content::directory;
pub(crate) use delegation::{delegation, delegations};
pub(crate) use dispute::{dispute, disputes};
pub(crate) use home::home;
pub(crate) use matrix::{explained, matrix};
pub(crate) use problem::problem;
pub(crate) use provider::{Filter, provider, providers};
pub(crate) use receipt::{Shown, receipt, receipts};
pub(crate) use relay::relays;
pub(crate) use request::{request, requests};
pub(crate) use review::reviews;

/// Which entry of the menu a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Area {
    Home,
    Providers,
    Matrix,
    Budgets,
    Requests,
    Receipts,
    Reviews,
    Relays,
    Hosting,
    Nowhere,
}

const MENU: [(Area, &str, &str); 9] = [
    (Area::Home, "/", "Overview"),
    (Area::Providers, "/providers", "Providers"),
    (Area::Matrix, "/matrix", "Matrix"),
    (Area::Budgets, "/budgets", "Budgets"),
    (Area::Requests, "/requests", "Requests"),
    (Area::Receipts, "/receipts", "Receipts"),
    (Area::Reviews, "/reviews", "Reviews"),
    (Area::Relays, "/relays", "Relays"),
    (Area::Hosting, "/hosting", "Hosting"),
];

/// A whole page around its content. `json` is where a program finds the same.
fn page(title: &str, area: Area, json: Option<&str>, content: &Markup) -> String {
    whole((title, area, true), json, content)
}

/// The same for a page about which there is no news.
fn still(title: &str, area: Area, json: Option<&str>, content: &Markup) -> String {
    whole((title, area, false), json, content)
}

fn whole((title, area, live): (&str, Area, bool), json: Option<&str>, content: &Markup) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · Guildhall" }
                link rel="icon" type="image/svg+xml" href=(asset::icon().path());
                link rel="stylesheet" href=(asset::style().path());
                @if live { script defer src=(asset::live().path()) {} }
                @if area == Area::Hosting { script defer src=(asset::hosting().path()) {} }
            }
            body {
                a class="skip" href="#main" { "Skip to the content" }
                header class="top" {
                    div class="wrap" {
                        a class="brand" href="/" { (icon::mark()) "Guildhall" }
                        nav aria-label="Main" {
                            @for (of, path, name) in MENU {
                                a href=(path) aria-current=[(of == area).then_some("page")] { (name) }
                            }
                        }
                        span id="live" class="live" role="status" data-events=[events(area)] hidden {}
                    }
                }
                main id="main" class="wrap" { (content) }
                footer {
                    div class="wrap" {
                        span { "Guildhall " (env!("CARGO_PKG_VERSION")) }
                        @if area == Area::Hosting {
                            span { "A minute is paid before it begins, or it does not run" }
                        } @else {
                            span { "1 sat is 1,000 msat, a hundred millionth of a bitcoin" }
                        }
                        @if let Some(json) = json {
                            span { "For programs: " a href=(json) { code { (json) } } }
                        }
                    }
                }
            }
        }
    };
    markup.into_string()
}

/// The stream that says when a page is to be asked for again, if it is not that of the market.
fn events(area: Area) -> Option<&'static str> {
    (area == Area::Hosting).then_some("/hosting/events")
}

/// What stands in for an empty list: what it would show, and how to get there.
fn empty(what: &str, next: &Markup) -> Markup {
    html! { div class="empty" { strong { (what) } p { (next) } } }
}
