//! Every field of every record, changed in every way that comes to mind, with numbers, heads and balances made again.
//! The code that decides is the measure: what it would not have booked must be found, and what it would have booked
//! must pass.

use std::collections::BTreeSet;

use guild_ledger::book::{Book, Entry, Outcome};
use guild_ledger::{Account, AccountId, Gate, Limit, NewTransfer, Rule, Step, StepName};
use guild_protocol::amount::{Amount, AssetId};
use serde_json::{Map, Value, json};

use super::export::{History, account_id, transfer_id};
use super::{check, honest};

/// Whether an honest ledger could have come to this history; `None` if not.
fn could_happen(history: &History) -> Option<()> {
    let mut book = Book::default();
    for (at, record) in history.records.iter().enumerate() {
        let mut fields = Fields(record.as_object()?.clone());
        let seq = i64::try_from(at).unwrap() + 1;
        if let Some(said) = fields.0.remove("seq") {
            (said.as_i64()? == seq).then_some(())?;
        }
        let kind = fields.text("record")?;
        let at_ms = fields.time("at_ms")?;
        match kind.as_str() {
            "account" => open(&mut book, &mut fields, seq)?,
            "rule" => set_rule(&mut book, &mut fields)?,
            "transfer" => {
                book.skip_to(seq - 1);
                apply(&mut book, &mut fields, at_ms)?;
            }
            _ => return None,
        }
        fields.0.is_empty().then_some(())?;
        book.skip_to(seq);
    }
    Some(())
}

fn open(book: &mut Book, fields: &mut Fields, number: i64) -> Option<()> {
    let asset_id = AssetId::new(&fields.text("asset_id")?).ok()?;
    let limit = [Limit::NeverNegative, Limit::NeverPositive, Limit::None];
    let word = fields.text("limit")?;
    let limit = limit.into_iter().find(|limit| limit.as_str() == word)?;
    let account =
        Account::new(&fields.text("owner")?, &fields.text("purpose")?, asset_id, limit).ok()?;
    (account.account_id.as_str() == fields.text("account_id")?).then_some(())?;
    book.entry(&account.account_id).is_none().then_some(())?;
    book.add_account(Entry::opened(account, number));
    Some(())
}

fn set_rule(book: &mut Book, fields: &mut Fields) -> Option<()> {
    let account_id: AccountId = fields.text("account_id")?.parse().ok()?;
    let credit_units = match fields.0.get("credit_units")? {
        Value::Null => fields.0.remove("credit_units").map(|_| None)?,
        _ => Some(fields.units("credit_units").filter(|units| *units >= 0)?),
    };
    let gate = match fields.0.remove("gate")? {
        Value::Null => None,
        Value::Object(gate) => {
            let mut gate = Fields(gate);
            let reserve_units = gate.units("reserve_units").filter(|units| *units >= 0)?;
            let lets_through: Vec<String> =
                serde_json::from_value(gate.0.remove("lets_through")?).ok()?;
            (gate.0.is_empty() && lets_through.len() <= 32).then_some(())?;
            let usd = AssetId::usd_micro;
            let named = |purpose: &String| Account::new("x", purpose, usd(), Limit::None).is_ok();
            lets_through.iter().all(named).then_some(())?;
            Some(Gate { reserve_units, lets_through })
        }
        _ => return None,
    };
    book.set_rule(&account_id, Rule { gate, credit_units }).then_some(())
}

fn apply(book: &mut Book, fields: &mut Fields, at_ms: i64) -> Option<()> {
    let (debit, credit) = (fields.text("debit")?, fields.text("credit")?);
    let units = fields.units("units")?;
    let (hold, expires_ms) = (fields.0.remove("hold")?, fields.0.remove("expires_ms")?);
    let held = || hold.as_str().and_then(|id| id.parse().ok());
    let sides = || {
        let debit: AccountId = debit.parse().ok()?;
        let asset_id = book.entry(&debit)?.account.asset_id.clone();
        Some((debit, credit.parse::<AccountId>().ok()?, Amount::new(asset_id, units)))
    };
    let name = fields.text("step")?;
    let holds_nothing = hold.is_null();
    let step = match (name.as_str(), expires_ms) {
        ("post", Value::Null) if holds_nothing => {
            let (debit, credit, amount) = sides()?;
            Step::Post { debit, credit, amount }
        }
        ("hold", expires) if holds_nothing => {
            let (debit, credit, amount) = sides()?;
            Step::Hold { debit, credit, amount, expires_ms: expires.as_i64()? }
        }
        ("settle", Value::Null) => Step::Settle { hold: held()?, units: Some(units) },
        ("void", Value::Null) => Step::Void { hold: held()? },
        ("expire", Value::Null) => Step::Expire { hold: held()? },
        _ => return None,
    };
    let id = fields.text("transfer_id")?.parse().ok()?;
    let transfer = NewTransfer::new(id, step, &fields.text("memo")?).ok()?;
    let Ok(Outcome::New(booked)) = book.apply(&transfer, at_ms) else { return None };
    let same = booked.debit.account.account_id.as_str() == debit
        && booked.credit.account.account_id.as_str() == credit
        && (booked.units == units || booked.step == StepName::Settle);
    same.then_some(())
}

/// What is left of a record to be read.
struct Fields(Map<String, Value>);

impl Fields {
    fn text(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)?.as_str().map(str::to_owned)
    }

    fn time(&mut self, key: &str) -> Option<i64> {
        self.0.remove(key)?.as_i64().filter(|at_ms| *at_ms >= 0)
    }

    fn units(&mut self, key: &str) -> Option<i64> {
        let text = self.text(key)?;
        text.parse().ok().filter(|units: &i64| units.to_string() == text)
    }
}

/// What stands in a field of any record, and what should stand in none.
fn values(history: &History) -> Vec<Value> {
    let mut all: BTreeSet<String> = BTreeSet::new();
    for record in &history.records {
        for value in record.as_object().unwrap().values() {
            all.insert(value.to_string());
            if let Some(inner) = value.as_object() {
                all.extend(inner.values().map(Value::to_string));
            }
        }
    }
    let made = [
        json!(null),
        json!(true),
        json!({}),
        json!([]),
        json!([""]),
        json!(""),
        json!("0"),
        json!("1"),
        json!("-1"),
        json!("-0"),
        json!("+1"),
        json!(" 1"),
        json!("01"),
        json!("1.0"),
        json!("1e1"),
        json!("٣"),
        json!("24"),
        json!("26"),
        json!("39"),
        json!("41"),
        json!("60"),
        json!("61"),
        json!("9223372036854775807"),
        json!("9223372036854775808"),
        json!("-9223372036854775808"),
        json!("170141183460469231731687303715884105728"),
        json!(0),
        json!(-1),
        json!(1),
        json!(9),
        json!(99),
        json!(101),
        json!(999),
        json!(1_001),
        json!(9_007_199_254_740_991_i64),
        json!(1.5),
        json!("node"),
        json!("nоde"),
        json!("node "),
        json!("Node"),
        json!("a\nb"),
        json!("a\u{7f}b"),
        json!("a\u{202e}b"),
        json!("e\u{301}"),
        json!("x".repeat(200)),
        json!("x".repeat(201)),
        json!(["sandboxes", "main"]),
        json!(["main"]),
        json!({"lets_through": [], "reserve_units": "61"}),
        json!({"lets_through": [], "reserve_units": "60"}),
        json!(account_id("eve", "main", "USD_MICRO")),
        json!(transfer_id("eve")),
        json!(transfer_id("eve").to_uppercase()),
        json!("xfer_"),
        json!("acct_"),
    ];
    all.extend(made.iter().map(Value::to_string));
    all.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

#[derive(Default)]
struct Tally {
    passed: usize,
    found: usize,
}

impl Tally {
    fn compare(&mut self, history: &History, what: impl Fn() -> String) {
        let could = could_happen(history).is_some();
        let report = check(history.lines());
        assert_eq!(report.holds(), could, "{}: {:#?}", what(), report.problems);
        match could {
            true => self.passed += 1,
            false => self.found += 1,
        }
    }
}

/// The places of a record where a value stands.
fn places(record: &Value) -> Vec<String> {
    let mut places = Vec::new();
    for (key, value) in record.as_object().unwrap() {
        places.push(format!("/{key}"));
        let inner = value.as_object().into_iter().flat_map(Map::keys);
        places.extend(inner.map(|below| format!("/{key}/{below}")));
    }
    places
}

#[test]
fn a_changed_field_passes_only_if_it_could_have_happened() {
    let (good, mut tally) = (honest(), Tally::default());
    let values = values(&good);
    assert_eq!(could_happen(&good), Some(()));
    for at in 0..good.records.len() {
        for place in places(&good.records[at]) {
            for value in &values {
                let mut bent = good.clone();
                *bent.records[at].pointer_mut(&place).unwrap() = value.clone();
                tally.compare(&bent, || format!("record {at}: {place} is {value}"));
            }
        }
        for key in good.records[at].as_object().unwrap().keys() {
            let mut bent = good.clone();
            bent.records[at].as_object_mut().unwrap().remove(key);
            tally.compare(&bent, || format!("record {at} without {key}"));
        }
        let mut bent = good.clone();
        bent.records[at]["asset"] = json!("USD_MICRO");
        tally.compare(&bent, || format!("record {at} with another field"));
    }
    assert!(tally.passed > 1_000 && tally.found > 5_000, "{} {}", tally.passed, tally.found);
}

#[test]
fn a_moved_record_passes_only_if_it_could_have_happened() {
    let (good, mut tally) = (honest(), Tally::default());
    let count = good.records.len();
    for from in 0..count {
        let mut without = good.clone();
        let record = without.records.remove(from);
        // All in one commit: where commits end says nothing about what may happen.
        without.commits = vec![count - 1];
        tally.compare(&without, || format!("without {from}"));
        for to in 0..count {
            let mut moved = without.clone();
            moved.records.insert(to, record.clone());
            moved.commits = vec![count];
            tally.compare(&moved, || format!("{from} at {to}"));
            let mut doubled = good.clone();
            doubled.records.insert(to, record.clone());
            doubled.commits = vec![count + 1];
            tally.compare(&doubled, || format!("{from} again at {to}"));
            if record["record"] == "transfer" {
                doubled.records[to]["transfer_id"] = json!(transfer_id("second"));
                tally.compare(&doubled, || format!("{from} again at {to} under another id"));
            }
        }
    }
    assert!(tally.passed > 100 && tally.found > 500, "{} {}", tally.passed, tally.found);
}
