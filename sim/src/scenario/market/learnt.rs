//! What the routing matrix of the buyer must have learnt: of every order that ended how it ended, once, and nothing
//! else.

use std::collections::BTreeMap;

use guild_market::judge::Class;
use guild_market::routing::{Asked, Checked, Logged, Mutation, Options, check, next, rows};
use guild_store::args;

use super::Shared;

/// More than any world has.
const ROWS_MAX: i64 = 1_000;

pub(super) fn check_matrix(shared: &Shared) {
    let world = &shared.world;
    let read = shared.databases[0].read(|rx| {
        let checked = check(rx, &Options::default())?;
        Ok::<_, guild_market::Error>((checked, rows(rx, &Asked::default(), ROWS_MAX)?))
    });
    let (checked, mut rows): (Checked, Vec<Logged>) = match read {
        Ok(read) => read,
        Err(error) => return world.violate(format!("[checker] {error}")),
    };
    for problem in checked.problems {
        world.violate(format!("[routing log] {problem}"));
    }
    rows.reverse();
    check_entries(shared, &rows);
    check_outcomes(shared, &rows);
}

/// Every row follows from the one before it of the same entry, and from what happened.
fn check_entries(shared: &Shared, rows: &[Logged]) {
    let mut entries = BTreeMap::new();
    for row in rows {
        let effect = &row.effect;
        let about = (effect.task.clone(), effect.provider);
        let follows =
            next(&Options::default(), entries.get(&about), &effect.mutation, effect.at_ms);
        if !row.is_whole || follows.as_ref() != Ok(&effect.entry) {
            let words = format!("[replay] row {} is not what follows", effect.seq);
            shared.world.violate(words);
        }
        entries.insert(about, effect.entry.clone());
    }
    for entry in entries.into_values() {
        if shared.is_strict() && entry.open_jobs > 0 {
            shared.world.violate(format!("[replay] {} jobs are open for ever", entry.open_jobs));
        }
    }
}

/// Every order that ended is there once, by what it came to, and was given away before.
fn check_outcomes(shared: &Shared, rows: &[Logged]) {
    let by_key: BTreeMap<&str, &Logged> = rows.iter().map(|row| (row.key.as_str(), row)).collect();
    let sql = "SELECT order_id, state, coalesce(provider, delivered_by, '') FROM market_order";
    let orders: Vec<(String, String, String)> = shared.rows(0, sql, args![]);
    let mut known = 0;
    for (order_id, state, provider) in &orders {
        let found = |what: &str| by_key.get(format!("order:{order_id}:{what}").as_str());
        let (given, ended) = (found("given"), found("ended"));
        known += [given, ended].into_iter().flatten().count();
        let wanted = match state.as_str() {
            _ if provider.is_empty() => None,
            "released" => Some(Class::Success),
            "withheld" => Some(Class::Failure),
            "expired" | "failed" => Some(Class::Error),
            _ => None,
        };
        let class = ended.and_then(|row| match row.effect.mutation {
            Mutation::Outcome { class, .. } => Some(class),
            _ => None,
        });
        if class != wanted {
            let words = format!("[outcome] {order_id} is {state}, the matrix knows of {class:?}");
            shared.world.violate(words);
        }
        let in_order = match (given, ended) {
            (Some(given), Some(ended)) => given.effect.seq < ended.effect.seq,
            (given, None) => given.is_none() || matches!(state.as_str(), "posted" | "delivered"),
            (None, Some(_)) => false,
        };
        if !in_order {
            shared.world.violate(format!("[given] {order_id} ended, and nobody was given it"));
        }
        if class.is_some() {
            shared.world.count("outcomes learnt");
        }
        let is_theirs = |row: &&Logged| row.effect.provider.npub() == *provider;
        if !ended.is_none_or(is_theirs) {
            shared.world.violate(format!("[outcome] {order_id} counts for somebody else"));
        }
    }
    let of_orders = |row: &&Logged| row.key.ends_with(":given") || row.key.ends_with(":ended");
    if rows.iter().filter(of_orders).count() != known {
        shared.world.violate("[outcome] the matrix knows of an order that is none".to_owned());
    }
}
