//! Who stands behind several keys, as far as that shows.
//!
//! | sign | from |
//! |---|---|
//! | text | name and description of an announcement, letters and digits alone |
//! | relays | all that it names |
//! | beat | the second of the minute in which it was heard last, by its own clock |
//! | payee | the node that signed an invoice of its |
//! | own node | the same, if that invoice says whose it is ([`Signs::node`]) |
//!
//! Keys are alike if they have the same payee, or text, relays and beat are all the same. Less is not enough: relays
//! are shared by strangers, a text is copied easily, and one second in sixty is the same by chance. But all of it can
//! be copied from whoever one wants to harm, and an invoice can be asked for. So keys that are alike are
//! [counted together](clusters) where mistaking two for one costs little: no two replicas of a delegation go to them,
//! and their reviews count once. Nobody is shut out for being like somebody: see [`refused`] and [`implicated`].

use std::collections::{BTreeMap, BTreeSet};

use guild_network::index;
use guild_protocol::bolt11::Invoice;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::job::Feedback;
use guild_protocol::nostr::{Event, Limits};
use guild_store::{Rx, args};

use crate::Result;
use crate::delegation::Clusters;

mod shut_out;
mod together;

pub use shut_out::{implicated, of_own_node, refused};
pub(crate) use shut_out::{migration, remember};
pub use together::clusters;

/// A shorter text is said by many.
const TEXT_MIN_CHARS: usize = 40;
const TEXT_MAX_CHARS: usize = 2_000;
/// So many offers are compared, and so many invoices looked at.
const OFFERS_MAX: usize = 2_000;
const INVOICES_MAX: i64 = 500;
const INVOICES_OF_ONE_MAX: i64 = 20;
/// How the mark of whom somebody is paid by begins.
const PAYEE: &str = "payee:";
/// How an invoice begins that says whose node made it, before the key of that provider.
const OWN_NODE: &str = "provider ";

/// What shows of who stands behind a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signs {
    /// The key.
    pub provider: PublicKey,
    /// What it says of itself, without what is easily changed; none if that is too short.
    pub text: Option<String>,
    /// The relays that it names.
    pub relays: BTreeSet<String>,
    /// The second of the minute in which it was heard.
    pub beat_s: Option<u8>,
    /// Who is paid.
    pub payee: Option<String>,
    /// The node that vouches for this key: in an event of the key, an invoice that the node signed and that names the
    /// key. Nobody else can make either of the two.
    pub node: Option<String>,
}

impl Signs {
    /// What makes it like others, each in a word that fits a row: what anybody can copy.
    pub(crate) fn marks(&self) -> Vec<String> {
        let payee = self.payee.iter().map(|payee| format!("{PAYEE}{payee}"));
        let card = match (&self.text, self.beat_s) {
            (Some(text), Some(beat_s)) if !self.relays.is_empty() => {
                let relays: Vec<&str> = self.relays.iter().map(String::as_str).collect();
                let card = format!("{text}\n{}\n{beat_s}", relays.join("\n"));
                Some(format!("card:{}", Hash::of(card.as_bytes()).hex()))
            }
            _ => None,
        };
        payee.chain(card).collect()
    }
}

/// The letters and digits of a text, if there are enough.
///
/// ```
/// use guild_market::operator::plain;
/// let one = "Fast box: embeddings, done with care, day and night.";
/// assert_eq!(plain(one), plain("fast BOX embeddings done with care day and night"));
/// assert_eq!(plain("a provider"), None);
/// ```
pub fn plain(text: &str) -> Option<String> {
    let kept = text.chars().take(TEXT_MAX_CHARS).filter(|c| c.is_alphanumeric());
    let kept: String = kept.flat_map(char::to_lowercase).collect();
    (kept.chars().count() >= TEXT_MIN_CHARS.saturating_mul(3).div_euclid(4)).then_some(kept)
}

/// What shows of all who announce some work; of all, if none is named. Those who were heard last, as many as are
/// compared, and these keys in any case: who is asked about must not be hidden by how much others announce.
pub fn signs(
    rx: &mut Rx<'_>,
    schema_id: Option<&str>,
    asked: &BTreeSet<PublicKey>,
) -> Result<Vec<Signs>> {
    let wanted = index::Wanted {
        schema_id: schema_id.map(str::to_owned),
        limit: OFFERS_MAX,
        ..index::Wanted::default()
    };
    let paid = Paid::read(rx)?;
    let found = index::providers(rx, &wanted)?;
    let seen: BTreeSet<PublicKey> = found.iter().map(|one| one.pubkey).collect();
    let mut signs: Vec<Signs> = found.into_iter().map(|one| paid.signs(one)).collect();
    for key in asked.difference(&seen) {
        signs.extend(index::provider(rx, key)?.into_iter().map(|one| paid.signs(one)));
    }
    Ok(signs)
}

/// What shows of keys, each read once however often it is asked for.
#[derive(Debug, Default)]
pub struct Seen(BTreeMap<PublicKey, Vec<Signs>>);

impl Seen {
    /// What shows of a key: of each of its announcements, and of how it is paid.
    pub fn of(&mut self, rx: &mut Rx<'_>, key: &PublicKey) -> Result<&[Signs]> {
        if !self.0.contains_key(key) {
            let paid = Paid::of(rx, key)?;
            let offers = index::provider(rx, key)?;
            let mut signs: Vec<Signs> = offers.into_iter().map(|one| paid.signs(one)).collect();
            if signs.is_empty() {
                signs.extend(paid.alone(key));
            }
            self.0.insert(*key, signs);
        }
        Ok(self.0.get(key).map(Vec::as_slice).unwrap_or_default())
    }

    /// Who stands behind each of these keys: the lowest of those that are alike. Whoever is not named is alone.
    ///
    /// Each key is like others by one mark, who is paid before what is announced: otherwise one key with a copy of what
    /// each of many strangers announces would make all of them one, and silence all but one of them.
    pub fn heads(
        &mut self,
        rx: &mut Rx<'_>,
        keys: &BTreeSet<PublicKey>,
    ) -> Result<BTreeMap<PublicKey, PublicKey>> {
        let mut lowest: BTreeMap<String, PublicKey> = BTreeMap::new();
        let mut found = BTreeMap::new();
        for key in keys {
            let marks = self.of(rx, key)?.iter().flat_map(Signs::marks);
            if let Some(mark) = marks.min_by_key(|mark| (!mark.starts_with(PAYEE), mark.clone())) {
                found.insert(*key, *lowest.entry(mark).or_insert(*key));
            }
        }
        Ok(found)
    }
}

/// Who is paid, by the invoices that were sent here.
#[derive(Debug, Default)]
struct Paid {
    /// Who signed the latest invoice of each.
    payees: BTreeMap<PublicKey, String>,
    /// Which node vouches for each.
    nodes: BTreeMap<PublicKey, String>,
}

impl Paid {
    /// By the invoices that came last, whoever sent them.
    fn read(rx: &mut Rx<'_>) -> Result<Paid> {
        let rows: Vec<(String,)> = rx.all(
            "SELECT json FROM market_word WHERE standing = 'unpaid' ORDER BY received_ms DESC, event_id LIMIT $1",
            args![INVOICES_MAX],
        )?;
        Ok(Paid::by(rows))
    }

    /// By the invoices of one key.
    fn of(rx: &mut Rx<'_>, key: &PublicKey) -> Result<Paid> {
        let rows: Vec<(String,)> = rx.all(
            "SELECT w.json FROM market_meeting m JOIN market_trial t ON t.meeting_id = m.meeting_id
             JOIN market_word w ON w.request_id = t.request_id
             WHERE m.provider = $1 AND w.standing = 'unpaid'
             ORDER BY w.received_ms DESC, w.event_id LIMIT $2",
            args![&key.npub(), INVOICES_OF_ONE_MAX],
        )?;
        Ok(Paid::by(rows))
    }

    fn by(rows: Vec<(String,)>) -> Paid {
        let mut paid = Paid::default();
        for (json,) in rows {
            let Ok(event) = Event::parse(json.as_bytes(), &Limits::DEFAULT) else { continue };
            // What is encrypted is not looked into.
            let Ok(said) = Feedback::parse(&event, None) else { continue };
            let text = said.price.and_then(|price| price.bolt11);
            let Some(Ok(invoice)) = text.as_deref().map(Invoice::parse) else { continue };
            if vouches(&invoice, &event.pubkey) {
                paid.nodes.entry(event.pubkey).or_insert_with(|| invoice.payee());
            }
            paid.payees.entry(event.pubkey).or_insert_with(|| invoice.payee());
        }
        paid
    }

    fn signs(&self, one: index::Provider) -> Signs {
        let content = &one.card.content;
        let said = [content.name.as_deref(), content.description.as_deref()];
        let text = said.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let heard_s = one.heard_ms.map(|at_ms| at_ms.div_euclid(1_000).rem_euclid(60));
        Signs {
            provider: one.pubkey,
            text: content.description.as_deref().and_then(|_| plain(&text)),
            relays: one.card.relays.iter().cloned().collect(),
            beat_s: heard_s.and_then(|second| u8::try_from(second).ok()),
            payee: self.payees.get(&one.pubkey).cloned(),
            node: self.nodes.get(&one.pubkey).cloned(),
        }
    }

    /// What shows of a key that announces nothing; nothing if it was never paid either.
    fn alone(&self, key: &PublicKey) -> Option<Signs> {
        let payee = self.payees.get(key)?;
        Some(Signs {
            provider: *key,
            text: None,
            relays: BTreeSet::new(),
            beat_s: None,
            payee: Some(payee.clone()),
            node: self.nodes.get(key).cloned(),
        })
    }
}

/// Whether the node that signed an invoice says in it that it is that of this provider.
fn vouches(invoice: &Invoice, provider: &PublicKey) -> bool {
    let said = invoice.description.as_deref().and_then(|text| text.strip_prefix(OWN_NODE));
    said.and_then(|rest| rest.split_whitespace().next()) == Some(provider.npub().as_str())
}

#[cfg(test)]
mod tests {
    use guild_protocol::amount::Msat;
    use guild_protocol::bolt11::{Network, NewInvoice};
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;

    use super::*;

    pub(super) fn key(n: u8) -> SecretKey {
        SecretKey::from_bytes([n; 32]).unwrap()
    }

    pub(super) fn who(n: u8) -> PublicKey {
        key(n).public_key()
    }

    pub(super) fn signs(n: u8, text: &str, relay: &str, beat_s: u8, payee: Option<&str>) -> Signs {
        Signs {
            provider: who(n),
            text: Some(text.to_owned()),
            relays: BTreeSet::from([relay.to_owned()]),
            beat_s: Some(beat_s),
            payee: payee.map(str::to_owned),
            node: None,
        }
    }

    #[test]
    fn a_node_vouches_for_the_provider_that_its_invoice_names_and_for_nobody_else() {
        let invoice = |description: String| {
            let new = NewInvoice {
                network: Network::Bitcoin,
                amount: Some(Msat(900)),
                created_s: 1_700_000_000,
                expiry_s: 60,
                payment_hash: Hash::of(b"x"),
                description,
            };
            Invoice::parse(&new.sign(&key(9)).unwrap()).unwrap()
        };
        let own = who(1).npub();
        for (description, says_so) in [
            (format!("provider {own}"), true),
            (format!("provider {own} for a job"), true),
            // An invoice that somebody asked for, with whatever that one wanted in it.
            ("a job".to_owned(), false),
            (format!("for {own}"), false),
            (format!("a job of provider {own}"), false),
            (format!("provider {own}x"), false),
            (format!("provider {}", who(2)), false),
            (String::new(), false),
        ] {
            assert_eq!(vouches(&invoice(description.clone()), &who(1)), says_so, "{description}");
        }
    }
}
