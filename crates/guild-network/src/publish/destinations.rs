//! Where an event goes.

use guild_protocol::identity::PublicKey;

use crate::client::relay_url;

/// The relays that an event is for: our own, and some that others are said to read. Addresses that are none are left
/// out, and each stands once.
///
/// ```
/// use guild_network::publish::Destinations;
/// # let somebody = "0000000000000000000000000000000000000000000000000000000000000001"
/// #     .parse::<guild_protocol::identity::SecretKey>().unwrap();
/// # use guild_protocol::env::Signer;
/// let own = Destinations::own(&["ws://a.example".to_owned()]);
/// let hints = ["ws://A.example/", "rubbish", "wss://b.example", "wss://c.example"];
/// let to = own.and_of(&somebody.public_key(), hints, 1);
/// assert_eq!(to.urls(), ["ws://a.example", "wss://b.example"]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Destinations {
    own: Vec<String>,
    /// Each with who named it.
    guests: Vec<(String, PublicKey)>,
}

impl Destinations {
    /// All of these, which are our own.
    pub fn own(relays: &[String]) -> Destinations {
        let mut to = Destinations::default();
        for url in relays.iter().filter_map(|url| relay_url(url).ok()) {
            if !to.own.contains(&url) {
                to.own.push(url);
            }
        }
        to
    }

    /// And at most `max` others of those that somebody names.
    #[must_use]
    pub fn and_of<'a>(
        mut self,
        somebody: &PublicKey,
        hints: impl IntoIterator<Item = &'a str>,
        max: usize,
    ) -> Destinations {
        let most = self.guests.len().saturating_add(max);
        for url in hints.into_iter().filter_map(|url| relay_url(url).ok()) {
            if self.guests.len() >= most {
                break;
            }
            if !self.own.contains(&url) && !self.guests.iter().any(|(known, _)| *known == url) {
                self.guests.push((url, *somebody));
            }
        }
        self
    }

    /// All addresses.
    pub fn urls(&self) -> Vec<String> {
        self.own.iter().chain(self.guests.iter().map(|(url, _)| url)).cloned().collect()
    }

    pub(super) fn own_urls(&self) -> &[String] {
        &self.own
    }

    pub(super) fn guests(&self) -> &[(String, PublicKey)] {
        &self.guests
    }
}
