//! What it means for others that somebody was shut out.
//!
//! What it showed then is written down with it ([`remember`]): whatever it shows later says nothing, of whomever it
//! copies that. Against others it is used as follows.
//!
//! | the other | what follows |
//! |---|---|
//! | the same node vouches for both | shut out as well; if it has done well here, quarantined until somebody looks |
//! | is alike, and came after that | a newcomer like any other, but not hired before an evaluation has taken it |
//! | is alike, and was there before | nothing: it may have been copied |

use std::collections::{BTreeMap, BTreeSet};

use guild_network::index;
use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_store::{Migration, Rx, Sql, Tx, args};

use super::{Paid, Seen, Signs};
use crate::Result;
use crate::routing::{Cause, Change, Matrix, Mutation, Status};

/// Whoever has done so many jobs, and is trusted so far, is looked at before it is shut out because of another key.
const KNOWN_JOBS: u64 = 20;
const KNOWN_TRUST_BP: u32 = 6_000;

/// The tables of this module.
pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../../migrations/sqlite/0019_shut_out.sql"),
        pg: include_str!("../../migrations/postgres/0019_shut_out.sql"),
    };
    Migration { area: "market", number: 19, name: "shut_out", sql }
}

fn node_mark(signs: &Signs) -> Option<String> {
    signs.node.as_ref().map(|node| format!("node:{node}"))
}

/// Writes down what somebody shows who is shut out now, once. Called in the transaction that shuts it out.
pub(crate) fn remember(tx: &mut Tx<'_>, provider: &PublicKey, now_ms: UnixMs) -> Result<()> {
    let npub = provider.npub();
    let is_new = tx.exec(
        "INSERT INTO market_shut_out (provider, at_ms) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        args![&npub, now_ms],
    )?;
    if is_new == 0 {
        return Ok(());
    }
    let mut seen = Seen::default();
    let shown = seen.of(tx, provider)?;
    let marks = shown.iter().flat_map(|signs| signs.marks().into_iter().chain(node_mark(signs)));
    let marks: BTreeSet<String> = marks.collect();
    for mark in &marks {
        tx.exec(
            "INSERT INTO market_shut_out_mark (provider, mark) VALUES ($1, $2)",
            args![&npub, mark],
        )?;
    }
    Ok(())
}

/// What those showed who are shut out, and since when that counts.
struct Shown(BTreeMap<String, UnixMs>);

impl Shown {
    fn read(rx: &mut Rx<'_>) -> Result<Shown> {
        let rows: Vec<(String, i64)> = rx.all(
            "SELECT mark, min(at_ms) FROM market_shut_out_mark m
             JOIN market_shut_out s ON s.provider = m.provider GROUP BY mark",
            &[],
        )?;
        Ok(Shown(rows.into_iter().collect()))
    }

    /// How somebody is like them.
    fn likeness(&self, shown: &[Signs]) -> Likeness {
        if shown.iter().filter_map(node_mark).any(|mark| self.0.contains_key(&mark)) {
            return Likeness::OneNode;
        }
        let marks = shown.iter().flat_map(Signs::marks);
        let since_ms = marks.filter_map(|mark| self.0.get(&mark)).min();
        since_ms.map_or(Likeness::None, |since_ms| Likeness::Alike { since_ms: *since_ms })
    }
}

/// How somebody is like those who are shut out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Likeness {
    /// Not at all.
    None,
    /// It shows what one of them showed when it was shut out at this moment: what anybody can copy.
    Alike {
        /// When.
        since_ms: UnixMs,
    },
    /// A node vouches for it that vouched for one of them: only whoever has that node can do that.
    OneNode,
}

/// What is known of somebody by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    /// When it announced itself first.
    first_ms: Option<UnixMs>,
    /// Whether an evaluation has taken it, and nothing was against it since.
    is_taken: bool,
    /// Whether it has done well here for long.
    has_done_well: bool,
}

/// Whether somebody is not hired because of others.
fn is_refused(likeness: Likeness, known: Known) -> bool {
    match likeness {
        Likeness::None => false,
        Likeness::OneNode => !known.has_done_well,
        // Whoever was there before was copied, or had no need of a new key.
        Likeness::Alike { since_ms } => {
            !known.is_taken && known.first_ms.is_none_or(|first_ms| first_ms > since_ms)
        }
    }
}

/// Who of these is not hired: whoever is shut out, those for whom the same node vouches, and those who came later, are
/// like them, and were not evaluated yet. A new key of somebody who was shut out is no way back.
pub fn refused(
    rx: &mut Rx<'_>,
    matrix: &Matrix,
    asked: &BTreeSet<PublicKey>,
) -> Result<BTreeSet<PublicKey>> {
    let mut refused: BTreeSet<PublicKey> =
        asked.iter().filter(|key| matrix.is_blacklisted(key)).copied().collect();
    let shown = Shown::read(rx)?;
    if shown.0.is_empty() {
        return Ok(refused);
    }
    let mut seen = Seen::default();
    for key in asked {
        let likeness = shown.likeness(seen.of(rx, key)?);
        if likeness == Likeness::None {
            continue;
        }
        let known = Known {
            first_ms: index::first_heard_ms(rx, key)?,
            is_taken: is_taken(matrix, key),
            has_done_well: has_done_well(matrix, key),
        };
        if is_refused(likeness, known) {
            refused.insert(*key);
        }
    }
    Ok(refused)
}

fn is_taken(matrix: &Matrix, key: &PublicKey) -> bool {
    let mut entries = matrix.tasks_of(key).filter_map(|task| matrix.entry(task, key));
    entries.any(|entry| entry.status.is_hireable())
}

fn has_done_well(matrix: &Matrix, key: &PublicKey) -> bool {
    matrix.tasks_of(key).any(|task| {
        let entry = matrix.entry(task, key);
        entry.is_some_and(|one| one.jobs >= KNOWN_JOBS && one.trust_bp >= KNOWN_TRUST_BP)
    })
}

/// The other keys for which the node vouches that vouches for this one.
pub fn of_own_node(rx: &mut Rx<'_>, provider: &PublicKey) -> Result<BTreeSet<PublicKey>> {
    let Paid { nodes, .. } = Paid::read(rx)?;
    let Some(own) = nodes.get(provider) else { return Ok(BTreeSet::new()) };
    let others = nodes.iter().filter(|(key, node)| *key != provider && *node == own);
    Ok(others.map(|(key, _)| *key).collect())
}

/// The changes for the [other keys](of_own_node) of somebody who tried what is forbidden: they are shut out too.
/// Whoever of them has done well here is not hired until somebody has looked at it.
pub fn implicated(matrix: &Matrix, others: &BTreeSet<PublicKey>, reason: &str) -> Vec<Change> {
    let mut changes = Vec::new();
    for key in others {
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
    use proptest::prelude::*;

    use super::super::tests::{signs, who};
    use super::*;
    use crate::evaluation::Pace;
    use crate::judge::Class;
    use crate::routing::Options;

    /// What somebody showed who was shut out at this moment.
    fn shown(signs: &Signs, at_ms: UnixMs) -> Shown {
        Shown(signs.marks().into_iter().chain(node_mark(signs)).map(|mark| (mark, at_ms)).collect())
    }

    fn known(first_ms: UnixMs, is_taken: bool) -> Known {
        Known { first_ms: Some(first_ms), is_taken, has_done_well: false }
    }

    #[test]
    fn a_likeness_costs_whoever_comes_later_an_evaluation_and_nobody_else_anything() {
        let rogue = signs(1, "same", "ws://a", 7, Some("custodian"));
        let shown = shown(&rogue, 100);
        let alike = Likeness::Alike { since_ms: 100 };
        assert_eq!(shown.likeness(&[signs(2, "same", "ws://a", 7, None)]), alike);
        // Many are paid by the same custodian: its node says of none of them who it is.
        assert_eq!(shown.likeness(&[signs(3, "other", "ws://b", 8, Some("custodian"))]), alike);
        assert_eq!(shown.likeness(&[signs(4, "same", "ws://a", 8, None)]), Likeness::None);
        assert_eq!(shown.likeness(&[]), Likeness::None);
        assert!(is_refused(alike, known(101, false)), "a new key of it, or a copy");
        assert!(!is_refused(alike, known(101, true)), "it was evaluated since");
        assert!(!is_refused(alike, known(99, false)), "it was there before");
        assert!(!is_refused(alike, known(100, false)));
    }

    #[test]
    fn one_node_is_one_operator_whoever_was_there_first() {
        let node = Some("0279be".to_owned());
        let of = |n, text: &str| {
            let mut one = signs(n, text, "ws://a", 7, Some("0279be"));
            one.node = node.clone();
            one
        };
        let shown = shown(&of(1, "a"), 100);
        let other = shown.likeness(&[of(2, "b")]);
        assert_eq!(other, Likeness::OneNode);
        assert!(is_refused(other, known(5, true)));
        assert!(!is_refused(other, Known { has_done_well: true, ..known(5, true) }));
        // The invoice of that node alone can be had by everybody who buys something there.
        let copied = signs(3, "c", "ws://c", 8, Some("0279be"));
        assert_eq!(shown.likeness(&[copied]), Likeness::Alike { since_ms: 100 });
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

        #[test]
        fn nobody_who_was_there_before_is_refused_for_what_can_be_copied(
            text in 0_u8..3, beat_s in 0_u8..3, payee in 0_u8..3,
            at_ms in any::<i64>(), before_ms in 0..i64::MAX, is_taken in any::<bool>(),
        ) {
            let payee = format!("node {payee}");
            let honest = signs(2, &text.to_string(), "ws://a", beat_s, Some(&payee));
            // Everything that it shows, and more, is copied.
            let mut rogue = Signs { provider: who(1), ..honest.clone() };
            rogue.node = Some("its own".to_owned());
            let likeness = shown(&rogue, at_ms).likeness(&[honest]);
            prop_assert_eq!(likeness, Likeness::Alike { since_ms: at_ms });
            let first_ms = at_ms.saturating_sub(before_ms);
            prop_assert!(!is_refused(likeness, known(first_ms, is_taken)));
        }
    }

    #[test]
    fn the_other_keys_of_a_node_are_shut_out_but_who_has_done_well_is_looked_at() {
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
        let changes = implicated(&matrix, &BTreeSet::from([who(2), who(3)]), "meeting_1");
        let moved: BTreeMap<PublicKey, Status> = changes
            .iter()
            .filter_map(|change| match change.mutation {
                Mutation::Moved { status, .. } => Some((change.provider, status)),
                _ => None,
            })
            .collect();
        let expected = [(who(2), Status::Blacklisted), (who(3), Status::Quarantined)];
        assert_eq!(moved, BTreeMap::from(expected));
        assert!(implicated(&matrix, &BTreeSet::new(), "m").is_empty(), "it is alone");
        assert!(is_taken(&matrix, &who(4)) && !has_done_well(&matrix, &who(4)));
        assert!(has_done_well(&matrix, &who(3)) && !is_taken(&matrix, &who(9)));
    }
}
