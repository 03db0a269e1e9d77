//! Writes exports by the contract, with heads and balances of its own reckoning.

use std::collections::BTreeMap;

use guild_protocol::hash::{Hash, Hasher};
use guild_protocol::json;
use serde_json::{Value, json};

/// A history that can be bent before it is written.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// Without `seq`, unless it shall be a wrong one.
    pub(super) records: Vec<Value>,
    /// How many records each commit holds.
    pub(super) commits: Vec<usize>,
}

pub(super) fn account_id(owner: &str, purpose: &str, asset_id: &str) -> String {
    let name = format!("guild.account.v1\n{owner}\n{purpose}\n{asset_id}");
    format!("acct_{}", Hash::of(name.as_bytes()).hex())
}

pub(super) fn transfer_id(name: &str) -> String {
    format!("xfer_{}", &Hash::of(name.as_bytes()).hex()[..32])
}

pub(super) fn canonical(value: &Value) -> String {
    let bytes = json::to_canonical(value).unwrap();
    format!("{}\n", String::from_utf8(bytes).unwrap())
}

impl History {
    pub(super) fn account(&mut self, owner: &str, purpose: &str, asset_id: &str, limit: &str) {
        self.records.push(json!({
            "record": "account", "account_id": account_id(owner, purpose, asset_id), "asset_id": asset_id,
            "at_ms": 1, "limit": limit, "owner": owner, "purpose": purpose,
        }));
    }

    pub(super) fn rule(&mut self, account_id: &str, credit_units: Option<i64>, gate: Value) {
        self.records.push(json!({
            "record": "rule", "account_id": account_id, "at_ms": 1,
            "credit_units": credit_units.map(|units| units.to_string()), "gate": gate,
        }));
    }

    pub(super) fn post(&mut self, name: &str, debit: &str, credit: &str, units: i64) {
        self.records.push(transfer(name, "post", (debit, credit), units, 10));
    }

    pub(super) fn hold(&mut self, name: &str, sides: (&str, &str), units: i64, expires_ms: i64) {
        let mut hold = transfer(name, "hold", sides, units, 10);
        hold["expires_ms"] = expires_ms.into();
        self.records.push(hold);
    }

    /// Closes the hold of this name.
    pub(super) fn close(&mut self, name: &str, step: &str, hold: &str, units: i64, at_ms: i64) {
        let held = self.named(hold).clone();
        let sides = (held["debit"].as_str().unwrap(), held["credit"].as_str().unwrap());
        let mut closing = transfer(name, step, sides, units, at_ms);
        closing["hold"] = held["transfer_id"].clone();
        self.records.push(closing);
    }

    /// Everything since the last commit is one.
    pub(super) fn commit(&mut self) {
        let before: usize = self.commits.iter().sum();
        if self.records.len() > before {
            self.commits.push(self.records.len() - before);
        }
    }

    /// The transfer with this memo.
    pub(super) fn named(&mut self, memo: &str) -> &mut Value {
        self.records.iter_mut().find(|record| record["memo"] == memo).unwrap()
    }

    /// Puts a record behind the transfer with this memo, into its commit.
    pub(super) fn insert_after(&mut self, memo: &str, record: Value) {
        let at = self.records.iter().position(|record| record["memo"] == memo).unwrap();
        self.records.insert(at + 1, record);
        let mut end = 0;
        for commit in &mut self.commits {
            end += *commit;
            if end > at {
                *commit += 1;
                return;
            }
        }
    }

    /// The whole file.
    pub(super) fn lines(&self) -> Vec<String> {
        let header = json!({"record": "export", "schema_version": "guild.ledger_export.v1"});
        let mut lines = vec![canonical(&header)];
        let mut head = Hash::from_bytes([0; 32]);
        let (mut last_seq, mut records) = (0, self.records.iter());
        for commit in &self.commits {
            let mut hasher = Hasher::new();
            hasher.update(head.as_bytes());
            for record in records.by_ref().take(*commit) {
                let mut record = record.clone();
                if record.get("seq").is_none() {
                    record["seq"] = json!(last_seq + 1);
                }
                last_seq = record["seq"].as_i64().unwrap();
                let line = canonical(&record);
                hasher.update(line.as_bytes());
                lines.push(line);
            }
            head = hasher.finish();
            lines.push(canonical(&json!({"record": "head", "hash": head, "last_seq": last_seq})));
        }
        lines.extend(self.balances());
        lines.push(canonical(&json!({"record": "end", "head": head, "last_seq": last_seq})));
        lines
    }

    fn balances(&self) -> Vec<String> {
        let mut all: BTreeMap<String, BTreeMap<&str, i128>> = BTreeMap::new();
        let mut held: BTreeMap<String, i128> = BTreeMap::new();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for record in &self.records {
            if record["record"] == "account" {
                all.entry(text(&record["account_id"])).or_default();
            }
        }
        for record in self.records.iter().filter(|record| record["record"] == "transfer") {
            let units: i128 = text(&record["units"]).parse().unwrap_or(0);
            let mut freed = || held.remove(&text(&record["hold"])).unwrap_or(0);
            let (posted, pending) = match text(&record["step"]).as_str() {
                "post" => (units, 0),
                "hold" => {
                    held.insert(text(&record["transfer_id"]), units);
                    (0, units)
                }
                "settle" => (units, -freed()),
                _ => (0, -freed()),
            };
            for (side, posted_name, pending_name) in [
                ("debit", "debits_posted", "debits_pending"),
                ("credit", "credits_posted", "credits_pending"),
            ] {
                if let Some(counters) = all.get_mut(&text(&record[side])) {
                    *counters.entry(posted_name).or_default() += posted;
                    *counters.entry(pending_name).or_default() += pending;
                }
            }
        }
        let line = |(id, counters): (&String, &BTreeMap<&str, i128>)| {
            let said = |name| counters.get(name).copied().unwrap_or(0).to_string();
            canonical(&json!({
                "record": "balance", "account_id": id,
                "credits_pending": said("credits_pending"), "credits_posted": said("credits_posted"),
                "debits_pending": said("debits_pending"), "debits_posted": said("debits_posted"),
            }))
        };
        all.iter().map(line).collect()
    }
}

pub(super) fn transfer(
    name: &str,
    step: &str,
    sides: (&str, &str),
    units: i64,
    at_ms: i64,
) -> Value {
    json!({
        "record": "transfer", "transfer_id": transfer_id(name), "step": step, "debit": sides.0,
        "credit": sides.1, "units": units.to_string(), "hold": null, "expires_ms": null,
        "memo": name, "at_ms": at_ms,
    })
}
