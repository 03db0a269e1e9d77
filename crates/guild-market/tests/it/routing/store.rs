use std::collections::BTreeSet;

use guild_market::evaluation::Note;
use guild_market::judge::Class;
use guild_market::routing::log::{self, Appended};
use guild_market::routing::snapshot::{self, Snapshot};
use guild_market::routing::{
    Cause, Change, Live, Matrix, Mutation, Options, Status, copy, explain, revalidate,
};
use guild_market::settle::Keys;
use guild_market::{Result, code};
use guild_network::publish::Destinations;
use guild_protocol::env::Signer;
use guild_protocol::nostr::{Event, Limits};
use guild_store::args;

use super::{admitted, change, outcome, task, who};
use crate::world::{Dice, Node, T0, both, buyer, provider, why};

fn append(node: &Node, changes: &[Change], now_ms: i64) -> Result<Vec<Appended>> {
    let changes = changes.to_vec();
    node.write(move |tx| log::append(tx, &Options::default(), &changes, now_ms))
}

fn replayed(node: &Node) -> Matrix {
    node.read(|rx| log::replay(rx, &Options::default()))
}

fn recovered(node: &Node) -> snapshot::Recovered {
    node.read(|rx| snapshot::recover(rx, &Options::default()))
}

fn save(node: &Node, matrix: &Matrix) -> Result<bool> {
    let saved = Snapshot::of(matrix)?;
    node.write(move |tx| snapshot::write(tx, &saved, T0))
}

/// Three providers, two task types, and what became of some jobs.
fn story() -> Vec<Change> {
    let mut story = vec![
        change("a1", "embed", 1, admitted(6_000)),
        change("a2", "embed", 2, admitted(7_500)),
        change("a3", "embed", 3, admitted(4_500)),
        change("a4", "run", 1, admitted(6_000)),
    ];
    for n in 0..10 {
        // Not thrice in a row: that would suspend it.
        let is_bad = n % 3 == 2 && n != 5;
        let (class, step) = if is_bad { (Class::Failure, -1_200) } else { (Class::Success, 1_300) };
        story.push(change(&format!("given{n}"), "embed", 1 + n % 3, Mutation::Assigned));
        story.push(change(&format!("done{n}"), "embed", 1 + n % 3, outcome(class, step)));
    }
    story
}

#[test]
fn what_happened_is_written_once_and_replayed() {
    both(|node| {
        let rows = append(node, &story(), T0).unwrap();
        assert!(rows.iter().all(|row| row.is_new));
        assert_eq!(rows.last().unwrap().effect.seq, 24);
        let matrix = replayed(node);
        assert_eq!((matrix.seq(), matrix.problems()), (24, Vec::<String>::new()));
        let entry = matrix.entry(&task("embed"), &who(1)).unwrap();
        // Given and done four times each, after it was admitted; successes only.
        assert_eq!((entry.version, entry.jobs, entry.streak, entry.open_jobs), (9, 4, 4, 0));
        assert_eq!(entry.trust_bp, 6_000 + 1_300 + 800 + 300 + 100);
        assert_eq!(matrix.tasks_of(&who(1)).count(), 2);
        assert_eq!(matrix.providers_of(&task("embed")).count(), 3);
        // Again, all of it and a part of it: nothing is new, and nothing changes.
        let again = append(node, &story(), T0 + 9).unwrap();
        assert!(again.iter().all(|row| !row.is_new));
        assert_eq!(
            again.iter().map(|row| &row.effect).collect::<Vec<_>>(),
            rows.iter().map(|row| &row.effect).collect::<Vec<_>>()
        );
        assert_eq!(replayed(node), matrix);
        // Other content under a known key, and what cannot happen: nothing of the call is kept.
        let other = change("done0", "embed", 1, Mutation::Verified);
        let good = change("new", "embed", 1, Mutation::Verified);
        assert_eq!(why(append(node, &[good.clone(), other], T0)), code::ROUTE_CONFLICT.name);
        let unknown = change("x", "run", 3, Mutation::Assigned);
        assert_eq!(why(append(node, &[good, unknown], T0)), code::ROUTE_UNKNOWN.name);
        assert_eq!(replayed(node), matrix);
        let history = node.read(|rx| log::history(rx, &task("embed"), &who(3), 100));
        assert_eq!(history.first().unwrap().entry, *matrix.entry(&task("embed"), &who(3)).unwrap());
        assert_eq!(history.len(), 7);
    });
}

#[test]
fn what_is_significant_is_known() {
    both(|node| {
        let rows = append(node, &story(), T0).unwrap();
        assert!(rows[..4].iter().all(Appended::is_significant), "somebody came");
        let steps = ["done0", "given0"].map(|key| {
            let at = story().iter().position(|change| change.key == key).unwrap();
            rows[at].is_significant()
        });
        assert_eq!(steps, [true, false]);
        assert!(!append(node, &story(), T0).unwrap().iter().any(Appended::is_significant));
        let moved = Mutation::Moved {
            status: Status::Quarantined,
            cause: Some(Cause::Operator),
            until_ms: Some(T0 + 5),
        };
        let rows = append(node, &[change("q", "run", 1, moved)], T0).unwrap();
        assert!(rows[0].is_significant());
    });
}

#[test]
fn a_matrix_catches_up_and_notices_what_was_changed() {
    both(|node| {
        let story = story();
        append(node, &story[..7], T0).unwrap();
        let mut matrix = replayed(node);
        append(node, &story[7..], T0 + 1).unwrap();
        let (caught_up, count) = {
            let behind = matrix.clone();
            node.read(move |rx| {
                let mut matrix = behind.clone();
                let count = log::catch_up(rx, &mut matrix)?;
                Ok((matrix, count))
            })
        };
        matrix = caught_up;
        assert_eq!((count, &matrix), (17, &replayed(node)));
        // The database lets nobody change a row; who does it all the same is noticed.
        let changed = "UPDATE market_route_log SET at_ms = at_ms + 1 WHERE seq = 5";
        assert!(node.write(move |tx| Ok(tx.exec(changed, &[])?)).is_err());
        assert!(node.write(|tx| Ok(tx.exec("DELETE FROM market_route_log", &[])?)).is_err());
        let dropped = guild_store::Sql {
            lite: "DROP TRIGGER market_route_log_is_fixed",
            pg: "DROP TRIGGER market_route_log_is_fixed ON market_route_log",
        };
        node.write(move |tx| Ok(tx.exec(dropped, &[])?)).unwrap();
        node.write(move |tx| Ok(tx.exec(changed, &[])?)).unwrap();
        let read = node.write(|tx| log::replay(tx, &Options::default()));
        assert_eq!(why(read), code::ROUTE_LOG.name);
    });
}

#[test]
fn a_start_takes_the_newest_snapshot_that_is_whole() {
    both(|node| {
        let story = story();
        assert!(!save(node, &replayed(node)).unwrap(), "there is nothing to save");
        for (part, end) in [5, 9, 14, 20].into_iter().enumerate() {
            append(node, &story[..end], T0 + i64::try_from(part).unwrap()).unwrap();
            assert!(save(node, &replayed(node)).unwrap());
            assert!(!save(node, &replayed(node)).unwrap(), "once for each state");
        }
        append(node, &story, T0 + 10).unwrap();
        let found = recovered(node);
        assert_eq!((found.snapshot_seq, found.replayed, &found.damaged), (Some(20), 4, &vec![]));
        assert_eq!(found.matrix, replayed(node));
        assert_eq!(node.read(snapshot::newest), Some((T0, 20)));
        // The newest is damaged, the next one is of another log, the oldest that is kept is whole.
        let damage = |seq: i64, from: &'static str, to: &'static str| {
            let sql =
                "UPDATE market_route_snapshot SET text = replace(text, $2, $3) WHERE seq = $1";
            let changed = node.write(move |tx| Ok(tx.exec(sql, args![seq, from, to])?)).unwrap();
            assert_eq!(changed, 1);
        };
        damage(20, "\"outcomes\":8", "\"outcomes\":9");
        let mut elsewhere = Matrix::new(Options::default());
        (0..14).for_each(|n| {
            super::happen(&mut elsewhere, "embed", 1 + n % 3, admitted(6_000), T0);
        });
        let text = Snapshot::of(&elsewhere).unwrap().text;
        let sql = "UPDATE market_route_snapshot SET text = $1 WHERE seq = 14";
        node.write(move |tx| Ok(tx.exec(sql, args![&text])?)).unwrap();
        let found = recovered(node);
        let damaged: Vec<i64> = found.damaged.iter().map(|(seq, _)| *seq).collect();
        assert_eq!((found.snapshot_seq, damaged), (Some(9), vec![20, 14]));
        assert_eq!(found.matrix, replayed(node));
        // Without any snapshot the log has everything.
        damage(9, "{", "[");
        let found = recovered(node);
        assert_eq!((found.snapshot_seq, found.replayed, found.damaged.len()), (None, 24, 3));
        assert_eq!(found.matrix, replayed(node));
    });
}

#[test]
fn no_snapshot_is_ahead_of_the_log() {
    both(|node| {
        append(node, &story(), T0).unwrap();
        let mut ahead = replayed(node);
        super::happen(&mut ahead, "embed", 1, Mutation::Assigned, T0);
        assert_eq!(why(save(node, &ahead)), code::ROUTE_SNAPSHOT.name);
        assert_eq!(recovered(node).snapshot_seq, None);
    });
}

fn live(n: u8, names: &[&str], seen_ms: i64) -> Live {
    let tasks = names.iter().map(|name| task(name)).collect();
    Live { provider: who(n), d: "main".to_owned(), tasks, seen_ms }
}

#[test]
fn who_is_gone_is_quarantined_and_taken_back() {
    both(|node| {
        append(node, &story(), T0).unwrap();
        let matrix = replayed(node);
        let later = T0 + 3_600_000;
        assert_eq!(revalidate(&matrix, None, later), [], "nobody could look");
        let month_ms = matrix.options().stale_ms;
        // The first is there for one of its two kinds of work, the second is old, the third is there.
        let seen = [
            live(1, &["embed"], later),
            live(2, &["embed"], later - month_ms),
            live(3, &["embed", "other"], later),
        ];
        let changes = revalidate(&matrix, Some(&seen), later);
        let named: BTreeSet<_> =
            changes.iter().map(|change| (change.task.as_str(), change.provider)).collect();
        assert_eq!(named, BTreeSet::from([("run", who(1)), ("embed", who(2))]));
        append(node, &changes, later).unwrap();
        let matrix = replayed(node);
        let stale = matrix.entry(&task("embed"), &who(2)).unwrap();
        assert_eq!((stale.status, stale.cause), (Status::Quarantined, Some(Cause::Stale)));
        assert_eq!(revalidate(&matrix, Some(&seen), later), [], "once");
        // It is back: under conditions. Those who were there are looked at again after a day.
        let day_ms = 24 * 3_600_000;
        let seen = [1, 2, 3].map(|n| live(n, &["embed"], later + day_ms));
        append(node, &revalidate(&matrix, Some(&seen), later + day_ms), later + day_ms).unwrap();
        let matrix = replayed(node);
        let of = |n| matrix.entry(&task("embed"), &who(n)).unwrap();
        assert_eq!((of(2).status, of(2).cause), (Status::Conditional, None));
        assert_eq!(
            (of(1).last_verified_ms, of(3).last_verified_ms),
            (later + day_ms, later + day_ms)
        );
        let run = matrix.entry(&task("run"), &who(1)).unwrap();
        assert_eq!(run.status, Status::Quarantined, "nobody offers it");
        assert_eq!(matrix.short_of(), [(&task("embed"), 1), (&task("run"), 3)].into());
    });
}

#[test]
fn a_violation_ends_everything_of_a_provider() {
    both(|node| {
        append(node, &story(), T0).unwrap();
        append(node, &[change("v", "embed", 1, outcome(Class::SecurityViolation, 0))], T0).unwrap();
        let rest = replayed(node).blacklisting(&[who(1)], "v");
        assert_eq!(rest.len(), 1, "the other kind of work");
        append(node, &rest, T0).unwrap();
        let matrix = replayed(node);
        let statuses: Vec<Status> = matrix
            .tasks_of(&who(1))
            .map(|task| matrix.entry(task, &who(1)).unwrap().status)
            .collect();
        assert_eq!(statuses, [Status::Blacklisted; 2]);
        assert_eq!(matrix.blacklisting(&[who(1)], "again"), []);
    });
}

#[test]
fn an_explanation_names_everybody_in_order() {
    both(|node| {
        append(node, &story(), T0).unwrap();
        let quarantined = Mutation::Moved {
            status: Status::Quarantined,
            cause: Some(Cause::Operator),
            until_ms: None,
        };
        append(node, &[change("q", "embed", 2, quarantined)], T0).unwrap();
        let matrix = replayed(node);
        assert_eq!(explain(&matrix, &task("other"), T0, 1), None);
        let told = explain(&matrix, &task("embed"), T0 + 1, 1).unwrap();
        let order: Vec<_> = told.candidates.iter().map(|one| (one.provider, one.rank)).collect();
        assert_eq!(order[0], (who(1), Some(1)));
        assert_eq!(order[2], (who(2), None));
        assert_eq!((told.log_seq, told.outcomes, told.short_of_active), (25, 10, 1));
        assert_eq!(told.choices.len(), 2);
        // The same seed chooses the same, and it says so in words and in JSON.
        assert_eq!(explain(&matrix, &task("embed"), T0 + 1, 1), Some(told.clone()));
        for choice in &told.choices {
            let text = choice.to_string();
            let chosen = choice.chosen.as_ref().unwrap();
            assert!(
                text.contains(&chosen.provider.to_string()) && text.contains("tiers:"),
                "{text}"
            );
            assert!(text.contains("short of 1 active"), "{text}");
        }
        let json = serde_json::to_value(&told).unwrap();
        assert_eq!(json["candidates"][2]["against"], "status");
        assert_eq!(json["choices"][0]["seed"], "1");
    });
}

#[test]
fn what_is_significant_leaves_as_a_private_message_with_its_rows() {
    both(|node| {
        let relays = Destinations::own(&["ws://relay.example".to_owned()]);
        let told = |changes: Vec<Change>, fail: bool| {
            let relays = relays.clone();
            node.write(move |tx| {
                let rows = log::append(tx, &Options::default(), &changes, T0)?;
                let keys = Keys { key: &buyer(), random: &Dice };
                let count = copy::enqueue(tx, &rows, &keys, &relays, T0)?;
                if fail {
                    return Err(guild_market::Error::refused(&code::ROUTE_CHANGE, "undone"));
                }
                Ok(count)
            })
        };
        let queued = || {
            node.read(|rx| Ok(rx.all::<(String,)>("SELECT body FROM outbox ORDER BY seq", &[])?))
        };
        // Rows that are not kept tell nobody.
        assert!(told(story(), true).is_err());
        assert_eq!(queued().len(), 0);
        assert_eq!(told(story()[..4].to_vec(), false).unwrap(), 1);
        assert_eq!(told(story()[..4].to_vec(), false).unwrap(), 0, "nothing of it is new");
        let messages = queued();
        assert_eq!(messages.len(), 1);
        let (body,) = &messages[0];
        assert!(!body.contains("embed") && !body.contains(&buyer().public_key().npub()));
        let event = Event::parse_verified(body.as_bytes(), &Limits::DEFAULT).unwrap();
        let keys = Keys { key: &buyer(), random: &Dice };
        let rows = copy::read(&event, &keys).unwrap();
        let known: Vec<_> = rows.iter().map(|row| (row.seq, row.provider)).collect();
        assert_eq!(known, [(1, who(1)), (2, who(2)), (3, who(3)), (4, who(1))]);
        let matrix = replayed(node);
        assert_eq!(&rows[1].entry, matrix.entry(&task("embed"), &who(2)).unwrap());
        let other = provider();
        assert!(copy::read(&event, &Keys { key: &other, random: &Dice }).is_err());
    });
}

#[test]
fn the_largest_entries_fit_into_messages() {
    let node = Node::sqlite(guild_store::Hooks::default());
    let mut changes = Vec::new();
    for n in 1..=20 {
        let mut large = change(&format!("a{n}"), "embed", n, admitted(9_000));
        if let Mutation::Admitted { d, notes, .. } = &mut large.mutation {
            *d = "\"".repeat(256);
            *notes = [Note::Fast, Note::Reliable, Note::Efficient, Note::Thorough].into();
        }
        changes.push(large);
    }
    append(&node, &changes, T0).unwrap();
    for day in 0..30 {
        let done: Vec<Change> = (1..=20)
            .map(|n| change(&format!("{day}:{n}"), "embed", n, outcome(Class::Success, 1_000)))
            .collect();
        append(&node, &done, T0 + day * 86_400_000).unwrap();
    }
    let failed: Vec<Change> = (1..=20)
        .map(|n| change(&format!("f{n}"), "embed", n, outcome(Class::Error, -2_000)))
        .collect();
    let count = node.write(move |tx| {
        let rows = log::append(tx, &Options::default(), &failed, T0 + 31 * 86_400_000)?;
        let keys = Keys { key: &buyer(), random: &Dice };
        copy::enqueue(tx, &rows, &keys, &Destinations::own(&["ws://a.example".to_owned()]), T0)
    });
    assert_eq!(count.unwrap(), 3);
}
