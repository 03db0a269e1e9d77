//! What must hold: looked at in the end, from outside of all nodes.

use std::collections::BTreeMap;

use guild_ledger::evidence::{Between, Checker, Dealings, Keys, Receipts, compare};
use guild_ledger::export::export;
use guild_ledger::{audit, ledger, receivable};
use guild_market::order::State;
use guild_market::receipts;
use guild_protocol::amount::AssetId;
use guild_protocol::env::Signer;
use guild_protocol::nostr::kind;
use guild_store::{Decode, Val, args};
use serde_json::json;

use super::learnt::check_matrix;
use super::{CHEAT, CLAIM_MS, FUNDS, Shared, key, lock};
use crate::database::Database;

/// Everything that can be seen once it is over.
pub(super) fn at_the_end(shared: &Shared) {
    let nodes: Vec<Dealings> =
        shared.databases.iter().filter_map(|database| check_evidence(shared, database)).collect();
    check_orders(shared);
    check_answers(shared);
    check_books(shared);
    check_in_time(shared);
    check_claims(shared);
    check_matrix(shared);
    if shared.is_strict() {
        for Between { node, problem } in compare(&nodes).problems {
            shared.world.violate(format!("[{}] node {node}: {problem}", problem.code.name));
        }
    }
}

/// What a node exports, as a stranger would check it; and the audit of its database.
fn check_evidence(shared: &Shared, database: &Database) -> Option<Dealings> {
    let world = &shared.world;
    match database.read(audit::run) {
        Ok(audit) => audit.problems.iter().for_each(|p| world.violate(format!("[audit] {p}"))),
        Err(error) => world.violate(format!("[audit] it cannot be run: {error}")),
    }
    let exported = database.read(|rx| {
        let mut lines = Vec::new();
        export(rx, &mut lines)?;
        let kept = receipts::page_before(rx, None, 1_000)?;
        Ok::<_, guild_market::Error>((lines, kept, receipts::keys(rx)?))
    });
    let (lines, kept, keys) = exported
        .map_err(|error| world.violate(format!("[export] it cannot be exported: {error}")))
        .ok()?;
    let mut receipts = Receipts::new();
    kept.iter().for_each(|kept| {
        receipts.file(&format!("{}.json", kept.receipt_id), kept.text.as_bytes());
    });
    let keys: Vec<_> =
        keys.iter().map(|(role, npub)| json!({"role": role, "npub": npub})).collect();
    let keys = json!({"schema_version": "guild.evidence_keys.v1", "keys": keys}).to_string();
    let mut checker = Checker::new().with_receipts(receipts).with_keys(Keys::file(keys.as_bytes()));
    lines.split_inclusive(|byte| *byte == b'\n').for_each(|line| checker.line(line));
    let (report, dealings) = checker.finish_with_dealings();
    report.problems.iter().for_each(|p| world.violate(format!("[{}] {p}", p.code.name)));
    // The last line holds the last head, which covers all that happened.
    let last = lines.split_inclusive(|byte| *byte == b'\n').next_back().unwrap_or_default();
    world.note_text(&String::from_utf8_lossy(last));
    Some(dealings)
}

/// Each order ended once, as its client was told, and its money went one way.
fn check_orders(shared: &Shared) {
    let world = &shared.world;
    let sql = "SELECT order_id, state, coalesce(paid_units, 0), coalesce(receipt_id, '') FROM market_order";
    let rows: Vec<(String, String, i64, String)> = shared.rows(0, sql, args![]);
    let (mut paid, mut open) = (0, 0);
    for (order_id, state, paid_units, receipt_id) in &rows {
        world.count(state_words(state));
        match state.as_str() {
            "released" if shared.has_runs => world.count("commands paid"),
            "withheld" if shared.has_runs => world.count("commands not paid"),
            _ => {}
        }
        paid += paid_units;
        open += i64::from(matches!(state.as_str(), "posted" | "delivered"));
        if state == "released" && receipt_id.is_empty() && *paid_units > 0 {
            world.violate(format!("[receipt] {order_id} is paid without a receipt"));
        }
        let told = lock(&shared.diary)
            .told
            .iter()
            .find_map(|(id, told)| (id.as_str() == order_id).then_some(*told));
        let was_over = told.is_some_and(|told| !matches!(told, State::Posted | State::Delivered));
        if was_over && told.map(State::as_str) != Some(state) {
            world.violate(format!("[told] {order_id} is {state}, its client was told {told:?}"));
        }
    }
    let free = shared.free_units(0, "node", "wallet");
    if open == 0 && free != FUNDS - paid {
        world.violate(format!("[wallet] {free} are left of {FUNDS}, {paid} were paid"));
    }
}

fn state_words(state: &str) -> &'static str {
    State::parse(state).map_or("?", State::as_str)
}

/// A request has one result of each provider, and one word about what becomes of it.
fn check_answers(shared: &Shared) {
    let mut answers: BTreeMap<(String, String, String), u64> = BTreeMap::new();
    for event in shared.hub.events() {
        let what = match event.kind {
            kind::DEFAULT_RESULT => "result",
            kind::FEEDBACK => event.tag("status").unwrap_or_default(),
            _ => continue,
        };
        let request = event.tag("e").unwrap_or_default().to_owned();
        *answers.entry((request, event.pubkey.hex(), what.to_owned())).or_default() += 1;
    }
    for ((request, provider, what), count) in answers {
        if count > 1 {
            let message =
                format!("[answered twice] {count} × {what} of {provider} about {request}");
            shared.world.violate(message);
        }
    }
}

/// What the buyer owes each provider is what that one has booked, as far as it can know it.
fn check_books(shared: &Shared) {
    let buyer = key(0).public_key();
    for provider in 1..shared.databases.len() {
        let them = key(provider).public_key();
        let payable = shared.free_units(0, &them.npub(), "payable");
        let owed = shared.databases[provider]
            .read(move |rx| receivable::owed_units(rx, &buyer, AssetId::btc_ln()))
            .unwrap_or_else(|error| shared.cannot_ask(&error));
        let agree = if shared.is_strict() { owed == payable } else { owed <= payable };
        if !agree {
            let message =
                format!("[books] {payable} are owed to provider {provider}, which knows of {owed}");
            shared.world.violate(message);
        }
        if provider == CHEAT && shared.has_cheat && payable > 0 {
            shared.world.violate(format!("[cheat] {payable} are owed to a cheat"));
        }
        if owed > 0 {
            shared.world.count("books that agree");
        }
        let sql = "SELECT (SELECT count(*) FROM market_job WHERE state IN ('paid', 'underpaid')),
                          (SELECT count(*) FROM market_receipt WHERE status = 'released')";
        for (booked, receipts) in shared.rows::<(i64, i64)>(provider, sql, args![]) {
            if booked != receipts {
                let message = format!("[jobs] {booked} jobs are paid by {receipts} receipts");
                shared.world.violate(message);
            }
        }
    }
}

/// Whoever worked had the right to, alone.
fn check_claims(shared: &Shared) {
    let world = &shared.world;
    for node in 0..shared.databases.len() {
        let sql = "SELECT what, id, early_ms FROM sim_claim";
        for (what, id, early_ms) in shared.rows::<(String, String, i64)>(node, sql, args![]) {
            if what == "unfenced" {
                world.violate(format!("[unfenced] {id} was closed by one that had lost it"));
                continue;
            }
            world.count("taken over");
            // Where clocks differ, nobody can tell what is early.
            if shared.is_strict() && early_ms > -CLAIM_MS {
                world.violate(format!("[stolen] {id} was taken from one that held it"));
            }
        }
        let sql = "SELECT job_hash, max(claim_epoch) FROM market_job WHERE job_hash IS NOT NULL GROUP BY job_hash";
        for (job_hash, claims) in shared.rows::<(String, i64)>(node, sql, args![]) {
            let begun = lock(&shared.begun).get(&(node, job_hash.clone())).copied().unwrap_or(0);
            if begun > claims {
                world.violate(format!(
                    "[unclaimed] {job_hash} was begun {begun} times by {claims} claims"
                ));
            }
        }
    }
}

/// No order ran out although its result was there in time. Rubbish for an order that is open to all is none.
fn check_in_time(shared: &Shared) {
    let sql =
        "SELECT o.order_id FROM market_order o JOIN index_answer a ON a.request_id = o.request_id
           JOIN nostr_event e ON e.seq = a.seq JOIN sim_ran_out r ON r.order_id = o.order_id
         WHERE o.state = 'expired' AND e.kind = $1 AND e.received_ms < o.deadline_ms
           AND ($2 = 1 OR (e.seq <= r.last_seq AND o.provider IS NOT NULL))
           AND NOT EXISTS (SELECT 1 FROM market_answer m WHERE m.event_id = e.event_id AND m.standing = 'rejected')";
    let kind = i64::from(kind::DEFAULT_RESULT);
    let is_strict = i64::from(shared.is_strict());
    for (order_id,) in shared.rows::<(String,)>(0, sql, args![kind, is_strict]) {
        shared.world.violate(format!("[in time] {order_id} ran out, its result was there"));
    }
}

impl Shared {
    /// The rows of a node. A question that cannot be answered would let anything pass, so it is a violation itself.
    pub(super) fn rows<T: Decode>(&self, node: usize, sql: &str, args: &[Val<'_>]) -> Vec<T> {
        self.databases[node].all(sql, args).unwrap_or_else(|error| {
            self.world.violate(format!("[checker] {error}: {sql}"));
            Vec::new()
        })
    }

    /// What an account holds and is not held for something.
    pub(super) fn free_units(&self, node: usize, owner: &str, purpose: &str) -> i64 {
        let account = guild_ledger::Account::new(
            owner,
            purpose,
            AssetId::btc_ln(),
            guild_ledger::Limit::None,
        );
        let read = account.and_then(|account| {
            self.databases[node]
                .read(move |rx| ledger::entries(rx, &[account.account_id.clone()].into()))
        });
        match read {
            Ok(entries) => entries.into_values().map(|entry| entry.balance.free_units()).sum(),
            Err(error) => self.cannot_ask(&error),
        }
    }

    /// A number that nobody can tell is a violation itself.
    fn cannot_ask(&self, error: &dyn std::fmt::Display) -> i64 {
        self.world.violate(format!("[checker] {error}"));
        0
    }
}
