//! Every kind of bug in the ledger itself, with heads made again after it, so that the heads do not give it away.

use std::collections::BTreeSet;

use guild_ledger::evidence::code;
use serde_json::{Value, json};

use super::export::{History, canonical, transfer, transfer_id};
use super::{ann, ann_btc, between, bob, buyer, check, codes, files, honest, outside, owed};

type Plant = (&'static str, fn(&mut History));
type Edit = (&'static str, fn(&mut Vec<String>));

/// Bugs of whoever books.
const BOOKED: &[Plant] = &[
    ("evidence.form", |h| h.named("pay")["extra"] = 1.into()),
    ("evidence.form", |h| h.named("pay")["units"] = 25.into()),
    ("evidence.form", |h| h.named("pay")["units"] = "025".into()),
    ("evidence.form", |h| h.named("pay")["memo"] = "".into()),
    ("evidence.form", |h| h.named("pay")["step"] = "steal".into()),
    ("evidence.form", |h| h.named("pay")["expires_ms"] = 7.into()),
    ("evidence.form", |h| h.named("minute")["hold"] = transfer_id("escrow").into()),
    ("evidence.form", |h| h.named("escrow")["expires_ms"] = Value::Null),
    ("evidence.form", |h| h.named("pay")["at_ms"] = "20".into()),
    ("evidence.form", |h| {
        h.named("pay").as_object_mut().unwrap().remove("memo");
    }),
    ("evidence.form", |h| h.records[1]["limit"] = "sometimes".into()),
    ("evidence.form", |h| h.records[1]["asset_id"] = "USD".into()),
    ("evidence.form", |h| h.records[7]["gate"]["extra"] = 1.into()),
    ("evidence.form", |h| h.records[0]["at_ms"] = (-1).into()),
    ("evidence.form", |h| h.records[7]["at_ms"] = (-1).into()),
    ("evidence.form", |h| h.named("back")["at_ms"] = (-1).into()),
    ("evidence.form", |h| h.records[7]["gate"]["lets_through"] = json!([""])),
    ("evidence.form", |h| h.records[7]["gate"]["lets_through"] = json!(["sandboxes", "a\nb"])),
    ("evidence.form", |h| h.records[7]["gate"]["lets_through"] = vec!["a"; 33].into()),
    ("evidence.gap", |h| h.named("pay")["seq"] = 14.into()),
    ("evidence.gap", |h| h.named("pay")["seq"] = 11.into()),
    ("evidence.id", |h| h.named("minute")["transfer_id"] = "xfer_00".into()),
    ("evidence.id", |h| h.named("minute")["debit"] = ann().to_uppercase().into()),
    ("evidence.account_id", |h| h.records[1]["owner"] = "eve".into()),
    ("evidence.account_id", |h| h.records[1]["purpose"] = "owed".into()),
    ("evidence.reopened", |h| {
        let again = h.records[1].clone();
        h.insert_after("deposit", again);
    }),
    ("evidence.doubled", |h| {
        let again = h.named("deposit").clone();
        h.insert_after("minute", again);
    }),
    ("evidence.doubled", |h| {
        let again = h.named("escrow").clone();
        h.insert_after("pay", again);
    }),
    ("evidence.amount", |h| h.named("minute")["units"] = "0".into()),
    ("evidence.amount", |h| h.named("minute")["units"] = "-50".into()),
    ("evidence.amount", |h| h.named("minute")["units"] = "9223372036854775808".into()),
    ("evidence.amount", |h| h.named("minute")["units"] = "9".repeat(39).into()),
    ("evidence.amount", |h| h.records[7]["gate"]["reserve_units"] = "-1".into()),
    ("evidence.amount", |h| h.records[8]["credit_units"] = "-1".into()),
    ("evidence.unknown_account", |h| {
        let late = h.records.remove(3);
        h.records.push(late);
        h.records.remove(7);
        *h.commits.last_mut().unwrap() -= 1;
    }),
    ("evidence.unknown_account", |h| h.records.swap(2, 10)),
    ("evidence.unknown_account", |h| h.records.swap(1, 7)),
    ("evidence.same_account", |h| h.named("minute")["credit"] = ann().into()),
    ("evidence.asset", |h| h.named("minute")["credit"] = ann_btc().into()),
    ("evidence.overdraft", |h| h.named("repay")["units"] = "81".into()),
    ("evidence.overdraft", |h| h.named("open")["units"] = "76".into()),
    ("evidence.overdraft", |h| h.named("minute")["units"] = "76".into()),
    ("evidence.above_zero", |h| h.named("repay")["units"] = "6".into()),
    ("evidence.above_zero", |h| {
        let held = json!({"step": "hold", "expires_ms": 900});
        merge(h.named("repay"), held);
        let again = transfer("again", "post", (&bob(), &owed()), 1, 10);
        h.insert_after("repay", again);
    }),
    ("evidence.gate", |h| h.named("minute")["credit"] = bob().into()),
    ("evidence.gate", |h| h.named("escrow")["units"] = "71".into()),
    ("evidence.gate", |h| h.records[7]["gate"]["lets_through"] = json!(["rent"])),
    ("evidence.gate", |h| {
        let over = transfer("over", "post", (&ann(), &bob()), 1, 10);
        h.insert_after("minute", over);
    }),
    ("evidence.credit", |h| h.named("credit")["units"] = "51".into()),
    ("evidence.credit", |h| {
        let over = transfer("over", "hold", (&buyer(), &bob()), 1, 10);
        h.insert_after("credit", over);
        h.named("over")["expires_ms"] = 50.into();
    }),
    ("evidence.overflow", |h| {
        h.named("deposit")["units"] = i64::MAX.to_string().into();
        let more = transfer("more", "post", (&outside(), &bob()), 1, 10);
        h.insert_after("deposit", more);
    }),
    ("evidence.unknown_hold", |h| h.named("pay")["hold"] = transfer_id("none").into()),
    ("evidence.unknown_hold", |h| h.named("pay")["hold"] = transfer_id("deposit").into()),
    ("evidence.hold_closed", |h| {
        let mut again = h.named("pay").clone();
        again["transfer_id"] = transfer_id("again").into();
        h.insert_after("pay", again);
    }),
    ("evidence.hold_closed", |h| {
        h.named("back")["hold"] = transfer_id("late").into();
    }),
    ("evidence.held", |h| h.named("pay")["units"] = "41".into()),
    ("evidence.held", |h| h.named("back")["units"] = "9".into()),
    ("evidence.held", |h| h.named("ran-out")["units"] = "21".into()),
    ("evidence.sides", |h| h.named("pay")["credit"] = outside().into()),
    ("evidence.sides", |h| {
        let (debit, credit) = (h.named("pay")["debit"].clone(), h.named("pay")["credit"].clone());
        merge(h.named("pay"), json!({"debit": credit, "credit": debit}));
    }),
    ("evidence.expiry", |h| h.named("pay")["at_ms"] = 1_000.into()),
    ("evidence.expiry", |h| h.named("ran-out")["at_ms"] = 99.into()),
    ("evidence.expiry", |h| h.named("open")["at_ms"] = 5_000.into()),
];

/// Bugs of whoever writes the file.
const WRITTEN: &[Edit] = &[
    ("evidence.form", |l| l[2] = l[2].replace(":", ": ")),
    ("evidence.form", |l| l[2] = l[2].replace("\n", " \n")),
    ("evidence.form", |l| l[2] = "\n".to_owned()),
    ("evidence.form", |l| l[2] = "{\"record\":\"gift\"}\n".to_owned()),
    ("evidence.form", |l| l[2] = "[]\n".to_owned()),
    ("evidence.form", |l| {
        let last = l.last_mut().unwrap();
        last.pop();
    }),
    ("evidence.version", |l| l[0] = l[0].replace("v1", "v2")),
    ("evidence.order", |l| {
        l.remove(0);
    }),
    ("evidence.order", |l| l.insert(5, l[0].clone())),
    ("evidence.order", |l| {
        let end = l.len();
        l.swap(end - 2, end - 3);
    }),
    ("evidence.order", |l| {
        let end = l.len();
        l.insert(end - 2, l[end - 2].clone());
    }),
    ("evidence.order", |l| {
        let end = l.len();
        l.insert(end - 2, l[8].clone());
    }),
    ("evidence.cut", |l| {
        l.pop();
    }),
    ("evidence.cut", |l| l.truncate(8 + 1)),
    ("evidence.trailing", |l| l.push(l[2].clone())),
    ("evidence.trailing", |l| l.push("x".to_owned())),
    ("evidence.end", |l| edit(l.last_mut().unwrap(), |end| end["last_seq"] = 20.into())),
    ("evidence.end", |l| {
        let zeros = format!("sha256:{}", "0".repeat(64));
        edit(l.last_mut().unwrap(), |end| end["head"] = zeros.into());
    }),
    // Only the head gives these away.
    ("evidence.head", |l| edit(&mut l[11], |deposit| deposit["memo"] = "gift".into())),
    ("evidence.head", |l| edit(&mut l[1], |account| account["at_ms"] = 2.into())),
    ("evidence.head", |l| {
        l.remove(8);
    }),
    ("evidence.head", |l| l.insert(9, l[8].clone())),
    ("evidence.head", |l| edit(&mut l[8], |head| head["last_seq"] = 6.into())),
    ("evidence.head", |l| {
        let at = l.iter().rposition(|line| line.contains("\"record\":\"head\"")).unwrap();
        l.remove(at);
    }),
    ("evidence.sum", |l| balance(l, &ann(), "credits_posted", "101")),
    ("evidence.sum", |l| balance(l, &bob(), "debits_pending", "4")),
    ("evidence.balance", |l| {
        balance(l, &ann(), "credits_posted", "101");
        balance(l, &outside(), "debits_posted", "101");
    }),
    ("evidence.balance", |l| {
        let end = l.len();
        l.remove(end - 2);
    }),
    ("evidence.unknown_account", |l| {
        let (end, last_of_all) = (l.len(), format!("acct_{}", "f".repeat(64)));
        edit(&mut l[end - 2], |balance| balance["account_id"] = last_of_all.into());
    }),
];

fn merge(record: &mut Value, with: Value) {
    for (key, value) in with.as_object().unwrap() {
        record[key] = value.clone();
    }
}

fn edit(line: &mut String, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_str(line).unwrap();
    change(&mut value);
    *line = canonical(&value);
}

fn balance(lines: &mut [String], account_id: &str, counter: &str, units: &str) {
    let wanted = |line: &&mut String| line.contains("\"balance\"") && line.contains(account_id);
    let line = lines.iter_mut().find(wanted).unwrap();
    edit(line, |balance| balance[counter] = units.into());
}

#[test]
fn a_bug_of_every_kind_is_found_under_its_own_code() {
    let mut planted = BTreeSet::new();
    let bent = BOOKED.iter().enumerate().map(|(at, (code, plant))| {
        let mut history = honest();
        plant(&mut history);
        (format!("booked {at}"), *code, history.lines())
    });
    let written = WRITTEN.iter().enumerate().map(|(at, (code, plant))| {
        let mut lines = honest().lines();
        plant(&mut lines);
        (format!("written {at}"), *code, lines)
    });
    for (which, code, lines) in bent.chain(written) {
        let report = check(lines);
        assert_eq!(codes(&report).first(), Some(&code), "{which}: {:#?}", report.problems);
        assert!(report.problems.len() <= 6, "{which} drowns: {:#?}", report.problems);
        planted.insert(code);
    }
    planted.extend(between::CODES);
    planted.extend(files::CODES);
    let all: BTreeSet<_> = code::ALL.iter().map(|code| code.name).collect();
    assert_eq!(planted, all, "every code has a bug that it finds");
}

/// The heads were made again: without the rule, nothing would be found.
#[test]
fn only_the_rules_find_what_is_booked_wrongly() {
    for (code, plant) in BOOKED {
        let mut history = honest();
        plant(&mut history);
        let report = check(history.lines());
        assert!(!codes(&report).contains(&"evidence.head"), "{code}: {:#?}", report.problems);
    }
}
