//! What is left when all is over, on both sides, and what must hold of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use guild_store::{Columns, Db, Sqlite, Val};
use serde_json::Value;

use super::town::Town;
use crate::support::Home;

/// The most that `guild relay query` gives.
const EVENTS_MAX: &str = "5000";

/// An order that is over, as the buyer was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) order_id: String,
    pub(super) request_id: String,
    state: String,
    paid_msat: Option<i64>,
    /// Why it ended without a result.
    words: String,
    /// Whether somebody was to do it, or did.
    has_provider: bool,
}

impl Ended {
    pub(super) fn of(order: &Value) -> Ended {
        let text = |name: &str| order[name].as_str().unwrap().to_owned();
        Ended {
            order_id: text("order_id"),
            request_id: text("request_id"),
            state: text("state"),
            paid_msat: order["paid_msat"].as_i64(),
            words: order["words"].as_str().unwrap_or_default().to_owned(),
            has_provider: order["provider"].is_string(),
        }
    }

    pub(super) fn is_paid(&self) -> bool {
        self.state == "released"
    }

    /// What the routing log says of it. An order that was open to all and ran out was nobody's.
    pub(super) fn lesson(&self) -> &'static [&'static str] {
        match self.state.as_str() {
            "released" => &["SUCCESS"],
            "withheld" => &["FAILURE"],
            "expired" if !self.has_provider => &[],
            _ => &["ERROR"],
        }
    }

    /// Whether its time was over, for the buyer or for a provider that came back too late to what it had accepted.
    fn ran_out(&self) -> bool {
        let gave_up = self.state == "failed" && self.words.contains("provider.timeout");
        self.state == "expired" || gave_up
    }
}

/// What both nodes have written down.
#[derive(Debug, Default, Clone)]
pub(super) struct Books {
    pub(super) orders: Vec<Ended>,
    /// How each order ended by the buyer's events, by order.
    pub(super) ends: BTreeMap<String, Vec<String>>,
    /// How each job ended by the provider's events, by request.
    pub(super) job_ends: BTreeMap<String, Vec<String>>,
    /// The requests that the buyer knows; there is nobody else who asks.
    pub(super) requests: Vec<String>,
    /// The provider's results in the buyer's archive, by request.
    pub(super) results: BTreeMap<String, u64>,
    /// What the buyer set aside, each with how often it was closed.
    pub(super) holds: BTreeMap<String, u64>,
    /// What the buyer booked as owed to the provider.
    pub(super) payable: Vec<i64>,
    /// What the provider booked as owed by the buyer.
    pub(super) receivable: Vec<i64>,
}

impl Books {
    pub(super) fn read(town: &Town, provider_key: &str, orders: Vec<Ended>) -> Books {
        let ledgers = [(&town.buyer, "late"), (&town.provider, "late")];
        let [bought, sold] = ledgers.map(|(home, name)| records(&export(home, name)));
        let mut books = Books { orders, ..Books::default() };
        books.ends = ends(&town.buyer, "order", "order_id", &["posted", "delivered"]);
        books.job_ends = ends(&town.provider, "job", "request_id", &["accepted", "delivered"]);
        let results = ["--kind", "6050", "--author", provider_key];
        for event in archived(&town.buyer, &results) {
            *books.results.entry(request_of(&event)).or_default() += 1;
        }
        books.requests = requests(&town.buyer);
        books.payable = entries(&bought, "credit", "payable");
        books.receivable = entries(&sold, "debit", "receivable");
        for record in bought.iter().filter(|record| record["step"] == "hold") {
            books.holds.entry(record["transfer_id"].as_str().unwrap().to_owned()).or_default();
        }
        for hold in bought.iter().filter_map(|record| record["hold"].as_str()) {
            *books.holds.entry(hold.to_owned()).or_default() += 1;
        }
        books
    }

    pub(super) fn count_paid(&self) -> usize {
        self.orders.iter().filter(|order| order.is_paid()).count()
    }

    /// How many orders came to each end.
    pub(super) fn states(&self) -> BTreeMap<&str, u64> {
        let mut states = BTreeMap::new();
        for order in &self.orders {
            *states.entry(order.state.as_str()).or_default() += 1;
        }
        states
    }

    /// What does not hold, in words.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut found: Vec<String> =
            self.orders.iter().flat_map(|order| self.of_order(order)).collect();
        let mut must = |holds: bool, words: &str| {
            if !holds {
                found.push(words.to_owned());
            }
        };
        let asked: BTreeSet<&String> = self.orders.iter().map(|order| &order.request_id).collect();
        let seen: BTreeSet<&String> = self.requests.iter().collect();
        must(asked.len() == self.orders.len(), "two orders have one request");
        must(asked == seen && seen.len() == self.requests.len(), "not one request for each order");
        must(self.ends.len() == self.orders.len(), "not one end for each order");
        must(self.results.keys().all(|id| asked.contains(id)), "a result that nobody asked for");
        must(self.holds.len() == self.orders.len(), "not one hold for each order");
        must(self.holds.values().all(|closed| *closed == 1), "a hold is not closed once");
        let mut paid: Vec<i64> = self.orders.iter().filter_map(|order| order.paid_msat).collect();
        let [mut payable, mut receivable] = [self.payable.clone(), self.receivable.clone()];
        for all in [&mut paid, &mut payable, &mut receivable] {
            all.sort_unstable();
        }
        must(paid.len() == self.count_paid(), "paid and not released, or the other way round");
        must(payable == paid, "the buyer's book is not what the orders say");
        must(receivable == paid, "the provider's book is not what the orders say");
        found
    }

    fn of_order(&self, order: &Ended) -> Vec<String> {
        let mut found = Vec::new();
        if !order.is_paid() && !order.ran_out() {
            found.push(format!("{order:?} had no reason to end so"));
        }
        if self.ends.get(&order.order_id) != Some(&vec![order.state.clone()]) {
            found.push(format!("{order:?} ended as {:?}", self.ends.get(&order.order_id)));
        }
        let job = self.job_ends.get(&order.request_id).cloned().unwrap_or_default();
        if job.len() > 1 || (order.is_paid() && job != ["paid"]) {
            found.push(format!("the job of {order:?} ended as {job:?}"));
        }
        let results = self.results.get(&order.request_id).copied().unwrap_or(0);
        if results > 1 || (order.is_paid() && results == 0) {
            found.push(format!("{results} results for {order:?}"));
        }
        found
    }
}

/// Writes the evidence of a node and says where.
pub(super) fn export(home: &Home, name: &str) -> PathBuf {
    let run = home.run(&["ledger", "export", "--evidence", name]);
    assert_eq!(run.code, 0, "{run:?}");
    home.path().join(name)
}

/// The lines of a ledger.
fn records(evidence: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(evidence.join("ledger.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What was moved, not only held, on this side of accounts with this purpose.
fn entries(records: &[Value], side: &str, purpose: &str) -> Vec<i64> {
    let ids: BTreeSet<&str> = records
        .iter()
        .filter(|record| record["record"] == "account" && record["purpose"] == purpose)
        .map(|record| record["account_id"].as_str().unwrap())
        .collect();
    records
        .iter()
        .filter(|record| record["step"] == "post" || record["step"] == "settle")
        .filter(|record| record[side].as_str().is_some_and(|id| ids.contains(id)))
        .map(|record| record["units"].as_str().unwrap().parse().unwrap())
        .collect()
}

fn archived(home: &Home, more: &[&str]) -> Vec<Value> {
    let run = home.run(&[&["relay", "query", "--json", "--limit", EVENTS_MAX], more].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let event = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].take();
    run.stdout.lines().map(event).collect()
}

/// All requests in the archive of a node, also those that their author has taken back, which its relay no longer gives.
fn requests(home: &Home) -> Vec<String> {
    let rows = rows(home, "SELECT event_id, pubkey FROM nostr_event WHERE kind = 5050");
    rows.into_iter().map(|(id, _)| id).collect()
}

/// What the database of a node has: rows of two texts.
fn rows(home: &Home, sql: &str) -> Vec<(String, String)> {
    let mut db = Sqlite::open(&home.path().join(".local/share/guildhall/node.db")).unwrap();
    let mut found = Vec::new();
    let each = &mut |row: &dyn Columns| {
        if let (Val::Text(a), Val::Text(b)) = (row.val(0)?, row.val(1)?) {
            found.push((a.to_owned(), b.to_owned()));
        }
        Ok(())
    };
    db.query(sql, &[], each).unwrap();
    found
}

/// The request that a result answers.
fn request_of(event: &Value) -> String {
    let tags = event["tags"].as_array().unwrap();
    let tag = tags.iter().find(|tag| tag[0] == "e").unwrap();
    tag[1].as_str().unwrap().to_owned()
}

/// How each thing of a node ended, by its market's events: one state each that is not on the way.
fn ends(home: &Home, thing: &str, id: &str, on_the_way: &[&str]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let told = rows(home, "SELECT kind, body FROM event WHERE topic = 'market' ORDER BY seq");
    for (kind, body) in told {
        let (what, state) = kind.split_once('.').unwrap();
        if what == thing && !on_the_way.contains(&state) {
            let body: Value = serde_json::from_str(&body).unwrap();
            found.entry(body[id].as_str().unwrap().to_owned()).or_default().push(state.to_owned());
        }
    }
    found
}

/// Books of two jobs, one paid and one that ran out.
fn sound() -> Books {
    let order = |n: u8, state: &str, paid_msat| Ended {
        order_id: format!("order_{n}"),
        request_id: format!("{n}"),
        state: state.to_owned(),
        paid_msat,
        words: String::new(),
        has_provider: true,
    };
    let word = |name: &str, words: &[&str]| {
        (name.to_owned(), words.iter().map(|&word| word.to_owned()).collect())
    };
    Books {
        orders: vec![order(1, "released", Some(100)), order(2, "expired", None)],
        ends: [word("order_1", &["released"]), word("order_2", &["expired"])].into(),
        job_ends: [word("1", &["paid"])].into(),
        requests: vec!["1".to_owned(), "2".to_owned()],
        results: [("1".to_owned(), 1), ("2".to_owned(), 1)].into(),
        holds: [("a".to_owned(), 1), ("b".to_owned(), 1)].into(),
        payable: vec![100],
        receivable: vec![100],
    }
}

/// What is wrong, and how it is done.
type Plant<'a> = (&'a str, &'a dyn Fn(&mut Books));

#[test]
fn what_is_wrong_with_books_is_seen() {
    assert_eq!(sound().problems(), Vec::<String>::new());
    let twice = |name: &str| (name.to_owned(), vec!["paid".to_owned(), "failed".to_owned()]);
    let plants: [Plant<'_>; 11] = [
        ("ended twice", &|books| books.ends.extend([twice("order_2")])),
        ("refused", &|books| {
            books.orders[1].state = "failed".to_owned();
            books.ends.extend([("order_2".to_owned(), vec!["failed".to_owned()])]);
        }),
        ("not ended", &|books| books.ends.clear()),
        ("a job ended twice", &|books| books.job_ends.extend([twice("1")])),
        ("two results", &|books| books.results.extend([("2".to_owned(), 2)])),
        ("paid for nothing", &|books| books.results.clear()),
        ("asked twice", &|books| books.requests.push("3".to_owned())),
        ("held twice", &|books| books.holds.extend([("c".to_owned(), 1)])),
        ("still held", &|books| books.holds.extend([("b".to_owned(), 0)])),
        ("booked twice", &|books| books.receivable.push(100)),
        ("not booked", &|books| books.payable.clear()),
    ];
    for (name, plant) in plants {
        let mut books = sound();
        plant(&mut books);
        assert_ne!(books.problems(), Vec::<String>::new(), "{name}");
    }
}
