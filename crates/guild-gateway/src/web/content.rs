//! Directories of content.

use guild_network::content::{Listed, Path};
use guild_protocol::content::Cid;
use maud::{Markup, html};

use super::{Area, part, still, text};
use crate::explore::encoded;

/// So many entries are shown.
const SHOWN_MAX: usize = 2_000;
/// So much of a name is shown.
const NAME_MAX_CHARS: usize = 120;

/// A directory that strangers made: their names are cleaned and escaped, and links go nowhere but below it.
pub(crate) fn directory(path: &Path, cid: &Cid, entries: &[Listed]) -> String {
    let name = path.names.last().map(|name| text::clean(name, NAME_MAX_CHARS));
    let title = name.unwrap_or_else(|| text::short(&cid.to_string()));
    let content = html! {
        div class="lead" {
            h1 { bdi { (title) } }
            p { (crumbs(path)) }
        }
        dl class="facts" {
            dt { "Content id" } dd { (part::id(&cid.to_string())) }
            dt { "Entries" } dd { (entries.len()) }
        }
        div class="card sheet" {
            table {
                thead { tr { th { "Name" } th { "Content id" } th { "Blocks, in bytes" } } }
                tbody {
                    @for entry in entries.iter().take(SHOWN_MAX) { (line(entry)) }
                }
            }
        }
        @if entries.len() > SHOWN_MAX {
            p class="sub" { "And " (entries.len() - SHOWN_MAX) " more." }
        }
    };
    still(&title, Area::Nowhere, None, &content)
}

fn line(entry: &Listed) -> Markup {
    let shown = text::clean(&entry.name, NAME_MAX_CHARS);
    let shown = if shown.is_empty() { "(unreadable)" } else { &shown };
    html! {
        tr {
            // Relative to the directory, and never taken for a scheme or another host.
            td { a href={ "./" (encoded(&entry.name)) } { bdi { (shown) } } }
            td { a href={ "/ipfs/" (entry.cid) } { code { (text::short(&entry.cid.to_string())) } } }
            td { (entry.tree_bytes) }
        }
    }
}

/// The way from the root to here.
fn crumbs(path: &Path) -> Markup {
    let mut links = vec![(format!("/ipfs/{}/", path.root), text::short(&path.root.to_string()))];
    for name in &path.names {
        let above = links.last().map(|(link, _)| link.clone()).unwrap_or_default();
        links.push((format!("{above}{}/", encoded(name)), text::clean(name, NAME_MAX_CHARS)));
    }
    html! {
        @for (i, (link, name)) in links.iter().enumerate() {
            @if i > 0 { " / " }
            a href=(link) { bdi { (name) } }
        }
    }
}
