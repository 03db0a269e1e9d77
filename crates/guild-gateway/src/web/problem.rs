//! What a reader sees when something is wrong.

use axum::http::StatusCode;
use guild_protocol::error::Code;
use maud::html;

use super::{Area, page, text};

pub(crate) fn problem(status: StatusCode, code: &Code, message: &str) -> String {
    let title = match status {
        StatusCode::NOT_FOUND => "Nothing is here",
        status if status.is_client_error() => "That cannot be answered",
        _ => "Something went wrong",
    };
    let content = html! {
        div class="lead" {
            h1 { (title) }
            p { bdi { (text::clean(message, 300)) } }
        }
        div class="card stack" {
            p { (code.remedy) }
            p class="sub" { (status.as_u16()) " · " code { (code.name) } }
            div class="buttons" { a class="button" href="/" { "To the overview" } }
        }
    };
    page(title, Area::Nowhere, None, &content)
}
