//! Any honest history passes; any changed byte is found.

use std::collections::BTreeMap;

use guild_ledger::evidence::Checker;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::export::{History, account_id};

const OWNERS: [(&str, &str); 5] = [
    ("outside", "none"),
    ("ann", "never_negative"),
    ("bob", "never_negative"),
    ("node", "never_negative"),
    ("debtor", "never_positive"),
];

/// A credit, and a gate with whether it lets running costs through.
type Rule = (Option<i64>, Option<(i64, bool)>);

#[derive(Debug, Clone)]
enum Ask {
    Post(usize, usize, i64),
    Hold(usize, usize, i64, i64),
    Close(usize, usize, i64, i64),
    Rule(usize, Option<i64>, Option<(i64, bool)>),
    Commit,
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let (account, units) = (0..OWNERS.len(), 1..200i64);
    let gate = proptest::option::of((0..100i64, any::<bool>()));
    let ask = prop_oneof![
        6 => (account.clone(), account.clone(), units.clone()).prop_map(|(d, c, u)| Ask::Post(d, c, u)),
        4 => (account.clone(), account.clone(), units.clone(), 11..60i64)
            .prop_map(|(d, c, u, e)| Ask::Hold(d, c, u, e)),
        4 => (0..20usize, 0..3usize, units, 0..90i64).prop_map(|(h, s, u, at)| Ask::Close(h, s, u, at)),
        1 => (account, proptest::option::of(0..100i64), gate).prop_map(|(a, c, g)| Ask::Rule(a, c, g)),
        3 => Just(Ask::Commit),
    ];
    proptest::collection::vec(ask, 0..80)
}

/// An honest ledger, as small as it can be.
#[derive(Default)]
struct Honest {
    history: History,
    /// In, out, in by holds, out by holds.
    balances: [[i64; 4]; OWNERS.len()],
    rules: BTreeMap<usize, Rule>,
    /// Debit, credit, units, expiry; none once closed.
    holds: Vec<Option<(usize, usize, i64, i64)>>,
}

fn id(account: usize) -> String {
    account_id(OWNERS[account].0, "main", "USD_MICRO")
}

impl Honest {
    fn allowed(&self, debit: usize, credit: usize, units: i64) -> bool {
        let [into, out, _, out_held] = self.balances[debit];
        let left = into - out - out_held - units;
        let (most, gate) = self.rules.get(&debit).copied().unwrap_or_default();
        let through = |(reserve, costs): (i64, bool)| {
            left >= reserve || (costs && OWNERS[credit].0 == "node")
        };
        let [credit_in, credit_out, credit_held, _] = self.balances[credit];
        debit != credit
            && (OWNERS[debit].1 != "never_negative" || left >= 0)
            && (OWNERS[credit].1 != "never_positive"
                || credit_in + credit_held + units <= credit_out)
            && gate.is_none_or(through)
            && most.is_none_or(|most| -left <= most)
    }

    fn take(&mut self, ask: &Ask) {
        let name = format!("t{}", self.history.records.len());
        match *ask {
            Ask::Post(debit, credit, units) if self.allowed(debit, credit, units) => {
                self.balances[debit][1] += units;
                self.balances[credit][0] += units;
                self.history.post(&name, &id(debit), &id(credit), units);
            }
            Ask::Hold(debit, credit, units, expires) if self.allowed(debit, credit, units) => {
                self.balances[debit][3] += units;
                self.balances[credit][2] += units;
                self.holds.push(Some((debit, credit, units, expires)));
                let hold = format!("hold-{}", self.holds.len() - 1);
                self.history.hold(&hold, (&id(debit), &id(credit)), units, expires);
            }
            Ask::Close(hold, step, units, at_ms) => self.close(&name, hold, step, units, at_ms),
            Ask::Rule(account, credit, gate) => {
                self.rules.insert(account, (credit, gate));
                let through = |costs: bool| if costs { vec!["main"] } else { vec![] };
                let gate = gate.map(|(reserve, costs)| {
                    json!({"reserve_units": reserve.to_string(), "lets_through": through(costs)})
                });
                self.history.rule(&id(account), credit, gate.unwrap_or(Value::Null));
            }
            Ask::Commit => self.history.commit(),
            Ask::Post(..) | Ask::Hold(..) => {}
        }
    }

    fn close(&mut self, name: &str, hold: usize, step: usize, units: i64, at_ms: i64) {
        let Some(Some((debit, credit, held, expires))) = self.holds.get(hold).copied() else {
            return;
        };
        let (step, units) = match step {
            0 if at_ms < expires => ("settle", units.min(held)),
            1 if at_ms >= expires => ("expire", held),
            2 => ("void", held),
            _ => return,
        };
        self.holds[hold] = None;
        self.balances[debit][3] -= held;
        self.balances[credit][2] -= held;
        if step == "settle" {
            self.balances[debit][1] += units;
            self.balances[credit][0] += units;
        }
        self.history.close(name, step, &format!("hold-{hold}"), units, at_ms);
    }

    fn lines(asks: &[Ask]) -> Vec<String> {
        let mut this = Honest::default();
        for (owner, limit) in OWNERS {
            this.history.account(owner, "main", "USD_MICRO", limit);
        }
        asks.iter().for_each(|ask| this.take(ask));
        this.history.commit();
        this.history.lines()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_honest_history_holds(asks in asks()) {
        let report = super::check(Honest::lines(&asks));
        prop_assert!(report.holds(), "{:#?}", report.problems);
    }

    #[test]
    fn any_changed_byte_is_found(asks in asks(), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let mut bytes = Honest::lines(&asks).concat().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let mut checker = Checker::new();
        bytes.split_inclusive(|b| *b == b'\n').for_each(|line| checker.line(line));
        prop_assert!(!checker.finish().holds(), "byte {at} ^ {flip}");
    }

    #[test]
    fn any_missing_line_is_found(asks in asks(), at in any::<prop::sample::Index>()) {
        let mut lines = Honest::lines(&asks);
        lines.remove(at.index(lines.len()));
        prop_assert!(!super::check(lines).holds());
    }

    #[test]
    fn any_rubbish_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut checker = Checker::new();
        bytes.split_inclusive(|b| *b == b'\n').for_each(|line| checker.line(line));
        prop_assert!(!checker.finish().holds());
    }
}
