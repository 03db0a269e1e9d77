//! What clients ask and are told, in the form of `calls.jsonl`.

use std::collections::BTreeMap;
use std::sync::Arc;

use guild_ledger::book::Booked;
use guild_ledger::evidence::Calls;
use guild_ledger::{NewTransfer, Step, TransferId};
use serde_json::{Value, json};

/// What all clients together know. It outlives every crash.
#[derive(Default)]
pub(super) struct Diary {
    lines: Vec<String>,
    /// What was booked, as it was told the first time.
    pub(super) booked: BTreeMap<TransferId, Arc<Booked>>,
    /// The holds among them, in the order in which they were told.
    pub(super) holds: Vec<TransferId>,
    /// Whether a check has found something: the next ones would only find it again.
    pub(super) alarmed: bool,
    /// How many clients have nothing more to ask.
    pub(super) finished: u64,
}

impl Diary {
    /// Before it is asked.
    pub(super) fn asked(&mut self, chain: &[NewTransfer]) {
        for transfer in chain {
            self.write(&asked(transfer));
            if let Step::Hold { expires_ms, .. } = transfer.step {
                // Whoever asks for a hold asks for its end, too: the node gives it back under an id made from it.
                let words = ["hold.expire", transfer.transfer_id.as_str()];
                let expiry = TransferId::named(expires_ms, &words);
                self.write(&json!({
                    "call": "asked", "step": "expire", "memo": "hold.expire",
                    "hold": transfer.transfer_id.as_str(), "transfer_id": expiry.as_str(),
                }));
            }
        }
    }

    /// A chain was refused.
    pub(super) fn told_refused(&mut self, chain: &[NewTransfer], code: &str) {
        for transfer in chain {
            let id = transfer.transfer_id.as_str();
            self.write(
                &json!({"call": "told", "outcome": "refused", "code": code, "transfer_id": id}),
            );
        }
    }

    /// A transfer was booked. What was told the first time, if this is not it.
    pub(super) fn told_booked(&mut self, booked: &Arc<Booked>) -> Option<Arc<Booked>> {
        let id = booked.transfer_id.as_str();
        self.write(&json!({"call": "told", "outcome": "booked", "transfer_id": id}));
        match self.booked.get(&booked.transfer_id) {
            Some(first) if first == booked => None,
            Some(first) => Some(first.clone()),
            None => {
                if booked.expires_ms.is_some() {
                    self.holds.push(booked.transfer_id.clone());
                }
                self.booked.insert(booked.transfer_id.clone(), booked.clone());
                None
            }
        }
    }

    fn write(&mut self, line: &Value) {
        self.lines.push(format!("{line}\n"));
    }

    /// All of it, for the checker.
    pub(super) fn calls(&self) -> Calls {
        let mut calls = Calls::new();
        self.lines.iter().for_each(|line| calls.line(line.as_bytes()));
        calls
    }
}

fn asked(transfer: &NewTransfer) -> Value {
    let mut line = json!({
        "call": "asked",
        "memo": transfer.memo,
        "step": transfer.step.name().as_str(),
        "transfer_id": transfer.transfer_id.as_str(),
    });
    let mut say = |field: &str, value: Value| line[field] = value;
    match &transfer.step {
        Step::Post { debit, credit, amount } | Step::Hold { debit, credit, amount, .. } => {
            say("debit", json!(debit.as_str()));
            say("credit", json!(credit.as_str()));
            say("units", json!(amount.units.to_string()));
        }
        Step::Settle { hold, units } => {
            say("hold", json!(hold.as_str()));
            if let Some(units) = units {
                say("units", json!(units.to_string()));
            }
        }
        Step::Void { hold } | Step::Expire { hold } => say("hold", json!(hold.as_str())),
    }
    if let Step::Hold { expires_ms, .. } = &transfer.step {
        line["expires_ms"] = json!(expires_ms);
    }
    line
}
