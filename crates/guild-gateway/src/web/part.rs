//! Pieces that several pages show.

use guild_roles::explorer::{Party, Standing, Tone};
use maud::{Markup, html};

use super::{icon, text};

/// The longest name that is shown.
const NAME_MAX_CHARS: usize = 60;

const THIS_NODE: &str = "This node";

/// The name to show for somebody: what it says, or its key. Nobody else is called as this node calls itself.
pub(super) fn name(party: &Party) -> String {
    let said = party.name.as_deref().map(|name| text::clean(name, NAME_MAX_CHARS));
    let feigned = |name: &str| !party.ours && name.eq_ignore_ascii_case(THIS_NODE);
    match said.filter(|name| !name.is_empty() && !feigned(name)) {
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

/// A state: its colour, its word, and what the word means.
pub(super) struct State {
    pub(super) class: &'static str,
    pub(super) word: &'static str,
    pub(super) means: &'static str,
}

/// A state as a coloured word.
pub(super) fn pill(state: &State) -> Markup {
    html! { span class={ "pill " (state.class) } title=(state.means) { (state.word) } }
}

/// What the words of a page mean, for whoever wants to know.
pub(super) fn legend(states: &[State]) -> Markup {
    html! {
        details class="legend" {
            summary { "What the words mean" }
            dl class="facts" { @for state in states { dt { (pill(state)) } dd { (state.means) } } }
        }
    }
}

/// How a request stands.
pub(super) fn standing(standing: Standing) -> State {
    let (class, word, means) = match standing {
        Standing::Open => ("busy dot", "Open", "Nobody has answered yet."),
        Standing::Working => ("busy dot", "Working", "A provider says that it has begun."),
        Standing::Delivered => {
            ("busy dot", "Delivered", "There is a result. Nothing is known of a payment.")
        }
        Standing::Paid => ("good", "Paid", "The result was checked, accepted and paid."),
        Standing::Withheld => {
            ("bad", "Withheld", "The result was checked and not accepted. The money went back.")
        }
        Standing::Refused => ("bad", "Refused", "The provider does not do it."),
        Standing::Failed => ("bad", "Failed", "The provider gave it up. Nothing was paid."),
        Standing::Expired => ("", "Expired", "No result came in time. The money went back."),
        Standing::Cancelled => {
            ("", "Cancelled", "The buyer took it back before there was a result.")
        }
    };
    State { class, word, means }
}

/// Every way in which a request stands.
pub(super) const STANDINGS: [Standing; 9] = [
    Standing::Open,
    Standing::Working,
    Standing::Delivered,
    Standing::Paid,
    Standing::Withheld,
    Standing::Refused,
    Standing::Failed,
    Standing::Expired,
    Standing::Cancelled,
];

/// Whether somebody is there.
pub(super) fn liveness(live: bool) -> Markup {
    let (class, word, means) = match live {
        true => ("good dot", "Live", "It was heard within the last 15 minutes."),
        false => ("", "Silent", "It was not heard for 15 minutes."),
    };
    pill(&State { class, word, means })
}

/// The sign of an offer under a name that other keys use too.
pub(super) fn shared_name() -> Markup {
    let means = "Another key offers under this name too. Compare the keys.";
    pill(&State { class: "busy", word: "Shared name", means })
}

/// An id of which the middle is not seen, but is copied with the rest: a click takes all of it.
pub(super) fn id(id: &str) -> Markup {
    match text::ends(id) {
        Some([head, middle, tail]) => html! {
            code class="id" title=(id) { (head) span class="rest" { (middle) } (tail) }
        },
        None => html! { code class="id" { (id) } },
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

/// How somebody gets all that strangers can check of some work. What is private is shown by a command alone.
pub(super) fn evidence(area: &str, id: &str, is_private: bool) -> Markup {
    html! {
        @if is_private {
            code { "guild evidence export " (id) " --reveal-private" }
        } @else {
            a href={ "/api/" (area) "/" (id) "/evidence" } { "all files, as one" }
            span class="sub" {
                " or " code { "guild evidence export " (id) } ", then " code { "guild audit --evidence DIR" }
            }
        }
    }
}
