//! The routing matrix: its log, its snapshots, and what is chosen from it.

mod killed;
mod met;
mod model;
mod regret;
mod store;
mod work;

use std::collections::BTreeSet;

use guild_market::evaluation::Pace;
use guild_market::judge::Class;
use guild_market::routing::{Change, Matrix, Mutation, Status, TaskType};
use guild_protocol::env::Signer;
use guild_protocol::identity::PublicKey;

use crate::world::key;

pub(crate) fn task(name: &str) -> TaskType {
    name.parse().unwrap()
}

pub(crate) fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

pub(crate) fn admitted(trust_bp: u32) -> Mutation {
    Mutation::Admitted {
        d: "main".to_owned(),
        status: Status::Active,
        trust_bp,
        pace: Pace::Standard,
        notes: BTreeSet::new(),
    }
}

pub(crate) fn outcome(class: Class, step_bp: i64) -> Mutation {
    Mutation::Outcome { class, step_bp, cost_msat: Some(700), latency_ms: Some(900) }
}

pub(crate) fn change(key: &str, name: &str, n: u8, mutation: Mutation) -> Change {
    Change { key: key.to_owned(), task: task(name), provider: who(n), mutation }
}

/// Lets something happen to a matrix that has no log.
pub(crate) fn happen(matrix: &mut Matrix, name: &str, n: u8, mutation: Mutation, now_ms: i64) {
    let effect = matrix.plan(&change("any", name, n, mutation), now_ms).unwrap();
    matrix.apply(effect).unwrap();
}
