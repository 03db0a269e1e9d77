//! Who stands behind several keys, as far as that shows.
//!
//! | sign | from |
//! |---|---|
//! | text | name and description of an announcement, letters and digits alone |
//! | relays | all that it names |
//! | beat | the second of the minute in which it was heard last, by its own clock |
//! | payee | the node that signed an invoice of its |
//!
//! Keys are of one operator if they have the same payee, or text, relays and beat are all the same. Less is not enough:
//! relays are shared by strangers, a text is copied easily, and one second in sixty is the same by chance. It is used
//! where mistaking two for one costs little: no two replicas of a delegation go to one operator. Whoever is shut out
//! because of another key has a way back, if it has done well here ([`implicated`]): all but an invoice can be copied
//! from whoever one wants to harm, and an invoice can be asked for.

use std::collections::{BTreeMap, BTreeSet};

use guild_network::index;
use guild_protocol::bolt11::Invoice;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::job::Feedback;
use guild_protocol::nostr::{Event, Limits};
use guild_store::{Rx, args};

use crate::Result;
use crate::delegation::{Clusters, cluster_of};
use crate::routing::{Cause, Change, Matrix, Mutation, Status};

/// A shorter text is said by many.
const TEXT_MIN_CHARS: usize = 40;
const TEXT_MAX_CHARS: usize = 2_000;
/// So many offers are compared, and so many invoices looked at.
const OFFERS_MAX: usize = 2_000;
const INVOICES_MAX: i64 = 500;
/// Whoever has done so many jobs, and is trusted so far, is looked at before it is shut out because of another key.
const KNOWN_JOBS: u64 = 20;
const KNOWN_TRUST_BP: u32 = 6_000;

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

/// Which keys belong together; whoever is not named is alone. An operator is named by its lowest key.
pub fn clusters(all: &[Signs]) -> Clusters {
    let mut groups: BTreeMap<String, Vec<PublicKey>> = BTreeMap::new();
    for signs in all {
        if let Some(payee) = &signs.payee {
            groups.entry(format!("payee\n{payee}")).or_default().push(signs.provider);
        }
        if let (Some(text), Some(beat_s), false) =
            (&signs.text, signs.beat_s, signs.relays.is_empty())
        {
            let relays: Vec<&str> = signs.relays.iter().map(String::as_str).collect();
            let key = format!("card\n{text}\n{}\n{beat_s}", relays.join("\n"));
            groups.entry(key).or_default().push(signs.provider);
        }
    }
    let mut least: BTreeMap<PublicKey, PublicKey> = BTreeMap::new();
    // Each group makes its members one with all that they were one with before.
    for members in groups.values() {
        let roots: BTreeSet<PublicKey> = members.iter().map(|key| root(&least, key)).collect();
        let Some(first) = roots.first().copied() else { continue };
        for key in roots.iter().chain(members) {
            least.insert(*key, first);
        }
    }
    let count = |of: &PublicKey| least.keys().filter(|key| root(&least, key) == *of).count();
    let named = least.keys().map(|key| (*key, root(&least, key)));
    named.filter(|(_, first)| count(first) > 1).map(|(key, first)| (key, first.npub())).collect()
}

fn root(least: &BTreeMap<PublicKey, PublicKey>, key: &PublicKey) -> PublicKey {
    let mut at = *key;
    while let Some(next) = least.get(&at).filter(|next| **next != at) {
        at = *next;
    }
    at
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
    let payees = payees(rx)?;
    let of = |one: index::Provider| {
        let content = &one.card.content;
        let said = [content.name.as_deref(), content.description.as_deref()];
        let text = said.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let heard_s = one.heard_ms.map(|at_ms| at_ms.div_euclid(1_000).rem_euclid(60));
        Signs {
            provider: one.pubkey,
            text: content.description.as_deref().and_then(|_| plain(&text)),
            relays: one.card.relays.iter().cloned().collect(),
            beat_s: heard_s.and_then(|second| u8::try_from(second).ok()),
            payee: payees.get(&one.pubkey).cloned(),
        }
    };
    let mut found = index::providers(rx, &wanted)?;
    let seen: BTreeSet<PublicKey> = found.iter().map(|one| one.pubkey).collect();
    for key in asked.difference(&seen) {
        found.extend(index::provider(rx, key)?);
    }
    Ok(found.into_iter().map(of).collect())
}

/// Who signed the latest invoice of each that has sent one.
fn payees(rx: &mut Rx<'_>) -> Result<BTreeMap<PublicKey, String>> {
    let rows: Vec<(String,)> = rx.all(
        "SELECT json FROM market_word WHERE standing = 'unpaid' ORDER BY received_ms DESC, event_id LIMIT $1",
        args![INVOICES_MAX],
    )?;
    let mut found = BTreeMap::new();
    for (json,) in rows {
        let Ok(event) = Event::parse(json.as_bytes(), &Limits::DEFAULT) else { continue };
        // What is encrypted is not looked into.
        let Ok(said) = Feedback::parse(&event, None) else { continue };
        let text = said.price.and_then(|price| price.bolt11);
        if let Some(Ok(invoice)) = text.as_deref().map(Invoice::parse) {
            found.entry(event.pubkey).or_insert_with(|| invoice.payee());
        }
    }
    Ok(found)
}

/// Who is not hired because of those who are shut out: they themselves, and keys of the same operators of which nothing
/// good is known here. A new key of somebody who was shut out is no way back.
pub fn tainted(
    matrix: &Matrix,
    clusters: &Clusters,
    shut_out: &BTreeSet<PublicKey>,
) -> BTreeSet<PublicKey> {
    let of_them: BTreeSet<String> =
        shut_out.iter().map(|provider| cluster_of(clusters, provider)).collect();
    let others = clusters.iter().filter(|(_, cluster)| of_them.contains(*cluster));
    let unknown = others.map(|(key, _)| *key).filter(|key| !has_done_well(matrix, key));
    unknown.chain(shut_out.iter().copied()).collect()
}

fn has_done_well(matrix: &Matrix, key: &PublicKey) -> bool {
    matrix.tasks_of(key).any(|task| {
        let entry = matrix.entry(task, key);
        entry.is_some_and(|one| one.jobs >= KNOWN_JOBS && one.trust_bp >= KNOWN_TRUST_BP)
    })
}

/// The changes for the other keys of somebody who tried what is forbidden: they are shut out too. Whoever of them has
/// done well here is not hired until somebody has looked at it.
pub fn implicated(
    matrix: &Matrix,
    clusters: &Clusters,
    provider: &PublicKey,
    reason: &str,
) -> Vec<Change> {
    let cluster = cluster_of(clusters, provider);
    let others = clusters.iter().filter(|(key, of)| **of == cluster && *key != provider);
    let mut changes = Vec::new();
    for (key, _) in others {
        if !has_done_well(matrix, key) {
            changes.extend(matrix.blacklisting(&[*key], reason));
            continue;
        }
        for task in matrix.tasks_of(key) {
            if matrix.entry(task, key).is_some_and(|entry| entry.status.is_hireable()) {
                let (status, cause) = (Status::Quarantined, Some(Cause::Forbidden));
                changes.push(Change {
                    key: format!("implicated:{reason}:{task}:{key}"),
                    task: task.clone(),
                    provider: *key,
                    mutation: Mutation::Moved { status, cause, until_ms: None },
                });
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;

    use super::*;
    use crate::evaluation::Pace;
    use crate::judge::Class;
    use crate::routing::Options;

    fn who(n: u8) -> PublicKey {
        SecretKey::from_bytes([n; 32]).unwrap().public_key()
    }

    fn signs(n: u8, text: &str, relay: &str, beat_s: u8, payee: Option<&str>) -> Signs {
        Signs {
            provider: who(n),
            text: Some(text.to_owned()),
            relays: BTreeSet::from([relay.to_owned()]),
            beat_s: Some(beat_s),
            payee: payee.map(str::to_owned),
        }
    }

    #[test]
    fn one_sign_is_not_enough_and_all_are() {
        let all = [
            signs(1, "same", "ws://a", 7, None),
            signs(2, "same", "ws://a", 7, None),
            // Two of three: others have the same.
            signs(3, "same", "ws://a", 8, None),
            signs(4, "same", "ws://b", 7, None),
            signs(5, "other", "ws://a", 7, None),
        ];
        let found = clusters(&all);
        assert_eq!(
            found.keys().copied().collect::<BTreeSet<_>>(),
            BTreeSet::from([who(1), who(2)])
        );
        assert_eq!(cluster_of(&found, &who(1)), cluster_of(&found, &who(2)));
        assert_eq!(cluster_of(&found, &who(3)), who(3).npub());
        assert!(clusters(&[]).is_empty());
    }

    #[test]
    fn whoever_is_paid_at_one_place_is_one_and_what_touches_becomes_one() {
        let all = [
            signs(1, "a", "ws://a", 1, Some("node")),
            signs(2, "b", "ws://b", 2, Some("node")),
            signs(3, "b", "ws://b", 2, None),
            signs(4, "d", "ws://d", 4, Some("elsewhere")),
            signs(5, "e", "ws://e", 5, Some("elsewhere")),
        ];
        let found = clusters(&all);
        let of = |n| cluster_of(&found, &who(n));
        assert_eq!((of(1), of(2)), (of(2), of(3)));
        assert_eq!(of(4), of(5));
        assert_ne!(of(1), of(4));
        // The order in which they are read decides nothing.
        let mut turned = all.to_vec();
        turned.reverse();
        assert_eq!(clusters(&turned), found);
    }

    #[test]
    fn the_other_keys_are_shut_out_but_who_has_done_well_is_looked_at() {
        let mut matrix = Matrix::new(Options::default());
        let mut tell = |n: u8, mutation: Mutation| {
            let task = "embed".parse().unwrap();
            let change = Change { key: "k".to_owned(), task, provider: who(n), mutation };
            matrix.apply(matrix.plan(&change, 5).unwrap()).unwrap();
        };
        for n in 1..=4 {
            tell(
                n,
                Mutation::Admitted {
                    d: "main".to_owned(),
                    status: Status::Active,
                    trust_bp: 7_000,
                    pace: Pace::Standard,
                    notes: BTreeSet::new(),
                },
            );
        }
        for _ in 0..20 {
            let (class, step_bp) = (Class::Success, 1_500);
            tell(3, Mutation::Outcome { class, step_bp, cost_msat: None, latency_ms: None });
        }
        let all = [1, 2, 3].map(|n| signs(n, "same", "ws://a", 7, None));
        let changes = implicated(&matrix, &clusters(&all), &who(1), "meeting_1");
        let moved: BTreeMap<PublicKey, Status> = changes
            .iter()
            .filter_map(|change| match change.mutation {
                Mutation::Moved { status, .. } => Some((change.provider, status)),
                _ => None,
            })
            .collect();
        let expected = [(who(2), Status::Blacklisted), (who(3), Status::Quarantined)];
        assert_eq!(moved, BTreeMap::from(expected));
        assert!(implicated(&matrix, &clusters(&all), &who(4), "m").is_empty(), "it is alone");
        // A new key of the same operator is not hired, whoever has done well is looked at.
        let shut_out = BTreeSet::from([who(1)]);
        let all = [1, 2, 3, 9].map(|n| signs(n, "same", "ws://a", 7, None));
        let found = tainted(&matrix, &clusters(&all), &shut_out);
        assert_eq!(found, BTreeSet::from([who(1), who(2), who(9)]));
    }
}
