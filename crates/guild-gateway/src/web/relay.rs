//! The relays of others: how closely each is followed, and why.

use guild_network::client::tier::Tier;
use guild_network::client::{RelayStatus, State as Connection};
use guild_network::roster::Known;
use maud::{Markup, html};

use super::part::State;
use super::{Area, empty, part, still, text};

/// So many are shown; a program gets all.
const SHOWN_MAX: usize = 500;
const URL_MAX_CHARS: usize = 120;
const WHY_MAX_CHARS: usize = 200;

pub(crate) fn relays(status: &[RelayStatus], known: &[Known], now_ms: i64) -> String {
    let content = html! {
        div class="lead" {
            h1 { "Relays" }
            p {
                "Where this node hears of providers. A relay comes closer when it brings what others do not, and "
                "falls back when it does not."
            }
        }
        @if known.is_empty() {
            (empty("No relay of others is known.", &html! {
                "Name some in " code { "network.relays" } " or " code { "network.polled_relays" } "."
            }))
        } @else {
            ul class="rows" {
                @for one in known.iter().take(SHOWN_MAX) {
                    (row(one, status.iter().find(|status| status.url == one.relay), now_ms))
                }
            }
        }
        (part::legend(&Tier::ALL.map(tier)))
    };
    still("Relays", Area::Relays, Some("/api/relays"), &content)
}

fn row(known: &Known, status: Option<&RelayStatus>, now_ms: i64) -> Markup {
    let Known { standing, tally, .. } = known;
    html! {
        li {
            div {
                span class="what mono" { (text::clean(&known.relay, URL_MAX_CHARS)) }
                span class="sub" {
                    (text::clean(&standing.why, WHY_MAX_CHARS)) " · " (part::when(now_ms, standing.since_ms))
                }
                @if let Some(error) = &tally.last_error {
                    span class="sub" { bdi { (text::clean(error, WHY_MAX_CHARS)) } }
                }
            }
            div class="middle" {
                span class="sub" {
                    "stable " (percent(standing.stability_milli)) " %"
                    " · new announcers " (tally.news) " · of worth " (tally.worth)
                    @if let Some(latency_ms) = standing.latency_ms { " · " (latency_ms) " ms" }
                    @if tally.hostile > 0 { " · forged " (tally.hostile) }
                    @if tally.floods > 0 { " · floods " (tally.floods) }
                }
                span class="sub" {
                    @match tally.last_ms {
                        Some(at_ms) => { "asked " (part::when(now_ms, at_ms)) }
                        None => { "not asked yet" }
                    }
                }
            }
            div class="right" {
                @if standing.is_banned(now_ms) || status.is_some_and(|s| s.state == Connection::Banned) {
                    (part::pill(&banned()))
                }
                (part::pill(&tier(standing.tier)))
            }
        }
    }
}

fn percent(milli: i64) -> i64 {
    milli / 10
}

fn banned() -> State {
    State { class: "bad", word: "Banned", means: "It did harm, and is left alone for a while." }
}

fn tier(tier: Tier) -> State {
    let (class, word, means) = match tier {
        Tier::Live => ("good dot", "Live", "A socket to it stays open."),
        Tier::Polled => ("busy dot", "Polled", "It is asked every few minutes."),
        Tier::Sampled => ("", "Sampled", "It is asked now and then, when it is drawn."),
    };
    State { class, word, means }
}

#[cfg(test)]
mod tests {
    use guild_network::client::tier::Standing;
    use guild_network::roster::{Source, Tally};

    use super::*;

    fn known(tier: Tier) -> Known {
        let standing =
            Standing { latency_ms: Some(41), ..Standing::new(tier, "an announcement names it", 0) };
        let last_error = Some("<script>\u{202e}\u{1b}[2J".to_owned());
        Known {
            relay: "wss://a.example".to_owned(),
            source: Source::Hint,
            named_by: None,
            known_ms: 0,
            due_ms: None,
            standing,
            tally: Tally { news: 4, hostile: 2, last_error, ..Tally::default() },
        }
    }

    #[test]
    fn a_page_says_how_closely_each_is_followed_and_why_and_nothing_that_a_stranger_wrote_acts() {
        let shown = relays(&[], &[known(Tier::Sampled), known(Tier::Live)], 90_000);
        for part in [
            "wss://a.example",
            "an announcement names it",
            "stable 50 %",
            "new announcers 4",
            "forged 2",
            "41 ms",
            "Sampled",
            "Live",
            "not asked yet",
            "&lt;script&gt;",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("<script>\u{202e}") && !shown.contains('\u{1b}'));
        assert!(relays(&[], &[], 0).contains("No relay of others is known."));
        let mut banned = known(Tier::Polled);
        banned.standing.banned_until_ms = Some(90_001);
        assert!(relays(&[], &[banned], 90_000).contains("Banned"));
    }
}
