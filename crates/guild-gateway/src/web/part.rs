//! Pieces that several pages show.

use guild_roles::explorer::{Party, Standing, Tone};
use maud::{Markup, html};

use super::{icon, text};

/// The longest name that is shown.
const NAME_MAX_CHARS: usize = 60;

const THIS_NODE: &str = "This node";

/// The name to show for somebody: what it says, or its key.
pub(super) fn name(party: &Party) -> String {
    let said = party.name.as_deref().map(|name| text::clean(name, NAME_MAX_CHARS));
    match said.filter(|name| !name.is_empty()) {
        Some(name) => name,
        None if party.ours => THIS_NODE.to_owned(),
        None => text::short(&party.npub),
    }
}

/// The same in the middle of a sentence.
pub(super) fn called(party: &Party) -> String {
    let name = name(party);
    if party.ours && name == THIS_NODE { name.to_lowercase() } else { name }
}

/// Somebody, with picture, name and key. The key is always there: a name proves nothing.
fn face(party: &Party) -> Markup {
    let key = text::short(&party.npub);
    let name = name(party);
    html! {
        (icon::identicon(&party.pubkey))
        span {
            bdi class="who-name" { (name) }
            @if name != key { small { (key) } }
        }
    }
}

/// Somebody, inside something that is a link itself.
pub(super) fn who(party: &Party) -> Markup {
    html! { span class="who" { (face(party)) } }
}

/// Somebody, with a link to what is known of them.
pub(super) fn who_link(party: &Party) -> Markup {
    html! { a class="who" href={ "/providers/" (party.npub) } { (face(party)) } }
}

/// From one to the other.
pub(super) fn arrow(word: &str) -> Markup {
    html! { span class="arrow" role="img" aria-label=(word) { "→" } }
}

/// A moment as a span from now, with the moment itself behind it.
pub(super) fn when(now_ms: i64, at_ms: i64) -> Markup {
    html! {
        time datetime=(text::machine_moment(at_ms)) title=(text::moment(at_ms)) { (text::ago(now_ms, at_ms)) }
    }
}

/// How a request stands, as a coloured word.
pub(super) fn standing(standing: Standing) -> Markup {
    let (class, word) = match standing {
        Standing::Open => ("pill busy dot", "Open"),
        Standing::Working => ("pill busy dot", "Working"),
        Standing::Delivered => ("pill busy dot", "Delivered"),
        Standing::Paid => ("pill good", "Paid"),
        Standing::Withheld => ("pill bad", "Withheld"),
        Standing::Refused => ("pill bad", "Refused"),
        Standing::Failed => ("pill bad", "Failed"),
        Standing::Expired => ("pill", "Expired"),
        Standing::Cancelled => ("pill", "Cancelled"),
    };
    html! { span class=(class) { (word) } }
}

/// Whether somebody is there.
pub(super) fn liveness(live: bool) -> Markup {
    match live {
        true => html! { span class="pill good dot" { "Live" } },
        false => html! { span class="pill" { "Silent" } },
    }
}

/// The sign at a step or a check; the words beside it say the same.
pub(super) fn knot(tone: Tone) -> Markup {
    let (class, sign) = match tone {
        Tone::Good => ("knot good", "✓"),
        Tone::Bad => ("knot bad", "✕"),
        Tone::Plain => ("knot", "•"),
    };
    html! { span class=(class) aria-hidden="true" { (sign) } }
}

/// What a job is called.
pub(super) fn job(schema_id: Option<&str>, kind: u16, private: bool) -> String {
    match schema_id {
        Some(schema_id) => text::job_name(schema_id),
        None if private => "Private job".to_owned(),
        None => format!("Job of kind {kind}"),
    }
}

/// The link to the next page of a list, if there is one.
pub(super) fn more(link: Option<&str>) -> Markup {
    html! { @if let Some(link) = link { a class="button more" rel="next" href=(link) { "Older" } } }
}
