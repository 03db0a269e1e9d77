//! Two nodes that deal with each other: honest ones agree, and a bug of every kind is found under its own code.

use guild_ledger::evidence::{Checker, Dealings, Keys, Receipts, Report, Together, compare};
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use guild_protocol::receipt::{Draft, Proof, Rail, Receipt, Status};
use guild_protocol::timestamp::Timestamp;
use serde_json::{Value, json};

use super::export::{History, account_id, transfer_id};
use super::{USD, codes, outside};

/// The codes that this file plants bugs for.
pub(super) const CODES: [&str; 8] = [
    "evidence.debt_amount",
    "evidence.debt_balance",
    "evidence.debt_doubled",
    "evidence.debt_missing",
    "evidence.debt_unpaid",
    "evidence.debt_unproven",
    "evidence.keys",
    "evidence.receipt_payee",
];

fn key(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32]).unwrap()
}

fn buyer() -> SecretKey {
    key(1)
}

fn provider() -> SecretKey {
    key(2)
}

fn wallet() -> String {
    account_id("node", "wallet", USD)
}

fn payable() -> String {
    account_id(&provider().public_key().npub(), "payable", USD)
}

fn receivable() -> String {
    account_id(&buyer().public_key().npub(), "receivable", USD)
}

fn revenue() -> String {
    account_id("node", "revenue", USD)
}

/// A directory with evidence.
#[derive(Clone, Default)]
struct Node {
    ledger: History,
    receipts: Vec<Vec<u8>>,
    keys: Option<Value>,
}

impl Node {
    fn check(&self) -> (Report, Dealings) {
        let mut receipts = Receipts::new();
        for (at, receipt) in self.receipts.iter().enumerate() {
            receipts.file(&format!("{at}.json"), receipt);
        }
        let mut checker = Checker::new().with_receipts(receipts);
        if let Some(keys) = &self.keys {
            checker = checker.with_keys(Keys::file(keys.to_string().as_bytes()));
        }
        self.ledger.lines().iter().for_each(|line| checker.line(line.as_bytes()));
        checker.finish_with_dealings()
    }
}

/// The buyer pays 50 from a hold and 30 at once, and does not accept a third job.
fn buyers() -> History {
    let mut history = History::default();
    history.account("outside", "main", USD, "none");
    history.account("node", "wallet", USD, "never_negative");
    history.account(&provider().public_key().npub(), "payable", USD, "never_negative");
    history.post("deposit", &outside(), &wallet(), 1_000);
    history.commit();
    history.hold("escrow", (&wallet(), &payable()), 60, 1_000);
    history.close("first", "settle", "escrow", 50, 20);
    history.post("second", &wallet(), &payable(), 30);
    history.commit();
    history
}

fn providers(receipts: &[Receipt]) -> History {
    let mut history = History::default();
    history.account(&buyer().public_key().npub(), "receivable", USD, "never_positive");
    history.account("node", "revenue", USD, "never_negative");
    history.commit();
    for receipt in receipts.iter().filter(|receipt| receipt.stated().status == Status::Released) {
        owe(&mut history, receipt, "iou", receipt.stated().amount.units);
    }
    history.commit();
    history
}

fn owe(history: &mut History, receipt: &Receipt, name: &str, units: i64) {
    let receipt_id = receipt.receipt_id();
    history.post(&format!("{name} {receipt_id}"), &receivable(), &revenue(), units);
    if let Some(owed) = history.records.last_mut() {
        owed["memo"] = format!("iou {receipt_id}").into();
    }
}

fn last_head(history: &History) -> Hash {
    let lines = history.lines();
    let end: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    end["head"].as_str().unwrap().parse().unwrap()
}

fn draft(name: &str, units: i64, status: Status) -> Draft {
    let transfer_id = transfer_id(name);
    let proof = Proof::LedgerTransfer { transfer_id, ledger_head: last_head(&buyers()) };
    Draft {
        session_id: name.to_owned(),
        request_id: None,
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "policy".to_owned(),
        job_hash: None,
        payment_proof: (status == Status::Released).then_some(proof),
        rail: Rail::Ledger,
        amount: Amount::new(AssetId::usd_micro(), units),
        provider_id: provider().public_key(),
        buyer_id: buyer().public_key(),
        approval_rule_id: None,
        idempotency_key: name.to_owned(),
        status,
        verdict_hash: None,
        timestamp: Timestamp::from_ms(1_768_465_800_000).unwrap(),
    }
}

fn signed(draft: &Draft) -> Receipt {
    draft.sign(&buyer()).unwrap()
}

fn receipts() -> Vec<Receipt> {
    [
        ("first", 50, Status::Released),
        ("second", 30, Status::Released),
        ("bad", 70, Status::Withheld),
    ]
    .map(|(name, units, status)| signed(&draft(name, units, status)))
    .into()
}

fn keys(of: &SecretKey, role: &str) -> Option<Value> {
    let keys = json!([{"npub": of.public_key().npub(), "role": role}]);
    Some(json!({"schema_version": "guild.evidence_keys.v1", "keys": keys}))
}

/// The two of them.
fn honest() -> [Node; 2] {
    let files: Vec<Vec<u8>> =
        receipts().iter().map(|receipt| receipt.as_bytes().to_vec()).collect();
    [
        Node { ledger: buyers(), receipts: files.clone(), keys: keys(&buyer(), "buyer") },
        Node {
            ledger: providers(&receipts()),
            receipts: files,
            keys: keys(&provider(), "provider"),
        },
    ]
}

fn together(nodes: &[Node; 2]) -> Together {
    let dealings = nodes.each_ref().map(|node| node.check().1);
    compare(&dealings)
}

fn found(nodes: &[Node; 2]) -> Vec<&'static str> {
    together(nodes).problems.iter().map(|found| found.problem.code.name).collect()
}

#[test]
fn honest_nodes_agree() {
    let nodes = honest();
    for node in &nodes {
        let (report, _) = node.check();
        assert!(report.holds(), "{:?}", report.problems);
    }
    let agreed = together(&nodes);
    assert!(agreed.holds(), "{:?}", agreed.problems);
    assert_eq!(agreed.receipts, 3);
    // In any order.
    let [one, other] = nodes;
    let swapped = [other, one];
    assert!(together(&swapped).holds());
    // With strangers there is nothing to compare.
    let stranger = Node { keys: keys(&key(7), "node"), ..Node::default() };
    let [one, _] = swapped;
    assert_eq!(found(&[one, stranger]), ["evidence.debt_unpaid"; 0]);
}

/// Whoever leaves the keys out, or keys and receipts, has not agreed with anybody.
#[test]
fn nodes_that_do_not_say_who_they_are_do_not_agree() {
    let without_keys = honest().map(|node| Node { keys: None, ..node });
    assert_eq!(found(&without_keys), ["evidence.keys"; 2]);
    // Receipts prove keys that are not said.
    let [one, other] = honest();
    let terse = [
        Node { keys: keys(&key(8), "node"), ..one },
        Node { keys: keys(&key(9), "node"), ..other },
    ];
    assert_eq!(found(&terse), ["evidence.keys"; 2]);
    let ledgers = honest().map(|node| Node { ledger: node.ledger, ..Node::default() });
    assert_eq!(found(&ledgers)[..2], ["evidence.keys"; 2]);
    let nobody = json!({"schema_version": "guild.evidence_keys.v1", "keys": []});
    let mut empty = ledgers.map(|node| Node { keys: Some(nobody.clone()), ..node });
    assert_eq!(found(&empty)[..2], ["evidence.keys"; 2]);
    // A node that has never dealt has no keys, and says so.
    empty.iter_mut().for_each(|node| node.ledger = History::default());
    assert_eq!(found(&empty), ["evidence.keys"; 0]);
}

type Bug = (&'static str, fn(&mut [Node; 2]));

const BUGS: &[Bug] = &[
    // The provider never took the second receipt; or it was never given.
    ("evidence.debt_missing", |nodes| {
        nodes[1].ledger = providers(&receipts()[..1]);
    }),
    ("evidence.debt_missing", |nodes| nodes[1].ledger = providers(&[])),
    ("evidence.debt_missing", |nodes| {
        nodes.iter_mut().for_each(|node| drop(node.receipts.remove(1)));
        nodes[1].ledger = providers(&receipts()[..1]);
    }),
    // It took the first one twice; or two receipts for one payment.
    ("evidence.debt_doubled", |nodes| {
        owe(&mut nodes[1].ledger, &receipts()[0], "again", 50);
        nodes[1].ledger.commit();
    }),
    ("evidence.debt_doubled", |nodes| {
        let again =
            signed(&Draft { session_id: "again".into(), ..draft("first", 50, Status::Released) });
        owe(&mut nodes[1].ledger, &again, "iou", 50);
        nodes[1].ledger.commit();
        nodes[1].receipts.push(again.as_bytes().to_vec());
    }),
    // It took another amount; or the receipt states another one.
    ("evidence.debt_amount", |nodes| {
        nodes[1].ledger = providers(&receipts()[..1]);
        owe(&mut nodes[1].ledger, &receipts()[1], "iou", 31);
        nodes[1].ledger.commit();
    }),
    ("evidence.debt_amount", |nodes| {
        let more = signed(&draft("first", 51, Status::Released));
        nodes[1].ledger = providers(&[more.clone(), receipts().remove(1)]);
        nodes.iter_mut().for_each(|node| node.receipts[0] = more.as_bytes().to_vec());
    }),
    // The receipt was forged, or is not there at all.
    ("evidence.debt_unproven", |nodes| {
        for node in nodes {
            let text = String::from_utf8(node.receipts.remove(1)).unwrap();
            node.receipts.push(text.replace("\"units\":30", "\"units\":31").into_bytes());
        }
    }),
    // The buyer's book does not answer for it: no such payment, or to somebody else.
    ("evidence.debt_unpaid", |nodes| {
        let dream = signed(&draft("dream", 20, Status::Released));
        owe(&mut nodes[1].ledger, &dream, "iou", 20);
        nodes[1].ledger.commit();
        nodes[1].receipts.push(dream.as_bytes().to_vec());
    }),
    ("evidence.debt_unpaid", |nodes| {
        owe(&mut nodes[1].ledger, &receipts()[2], "iou", 70);
        nodes[1].ledger.commit();
    }),
    // Paid by another rail on one side only.
    ("evidence.debt_balance", |nodes| {
        nodes[0].ledger.post("paid", &payable(), &outside(), 10);
        nodes[0].ledger.commit();
    }),
    ("evidence.debt_balance", |nodes| {
        nodes[1].ledger.account("outside", "main", USD, "none");
        nodes[1].ledger.post("paid", &outside(), &receivable(), 10);
        nodes[1].ledger.commit();
    }),
    ("evidence.keys", |nodes| nodes[1].keys = keys(&buyer(), "buyer")),
];

#[test]
fn every_bug_between_two_nodes_is_found() {
    for (at, (code, plant)) in BUGS.iter().enumerate() {
        let mut nodes = honest();
        plant(&mut nodes);
        let found = together(&nodes);
        let names: Vec<_> = found.problems.iter().map(|found| found.problem.code.name).collect();
        assert_eq!(names.first(), Some(code), "bug {at}: {found:#?}");
        assert!(names.len() <= 3, "bug {at} drowns: {found:#?}");
    }
}

/// Numbers of transfers are no secrets: somebody else may name one in a receipt of its own.
#[test]
fn the_receipt_of_another_buyer_is_not_that_of_a_payment() {
    let mut nodes = honest();
    let theirs = Draft { buyer_id: key(5).public_key(), ..draft("second", 30, Status::Released) };
    let theirs = theirs.sign(&key(5)).unwrap();
    nodes[0].receipts.remove(1);
    nodes[1].receipts[1] = theirs.as_bytes().to_vec();
    let ledger = &mut nodes[1].ledger;
    *ledger = providers(&receipts()[..1]);
    let npub = key(5).public_key().npub();
    ledger.account(&npub, "receivable", USD, "never_positive");
    owe(ledger, &theirs, "iou", 30);
    ledger.records.last_mut().unwrap()["debit"] = account_id(&npub, "receivable", USD).into();
    ledger.commit();
    assert_eq!(found(&nodes), ["evidence.debt_missing"]);
}

/// What is found in the evidence of one node alone.
fn found_alone(node: &Node) -> Vec<&'static str> {
    codes(&node.check().0)
}

/// A receipt proves a payment only by the book of the one who signed it.
#[test]
fn a_receipt_that_names_a_transfer_of_ours_is_not_ours() {
    let stranger = Draft { buyer_id: key(5).public_key(), ..draft("second", 30, Status::Released) };
    let stranger = stranger.sign(&key(5)).unwrap();
    let [mut node, _] = honest();
    node.receipts = vec![stranger.as_bytes().to_vec()];
    assert_eq!(found_alone(&node), ["evidence.receipt_transfer"]);
    // Nobody can tell as long as the node does not say who it is.
    node.keys = None;
    assert_eq!(found_alone(&node), [""; 0]);
    // What a buyer names may be in the book of its provider, too. What counts there is the debt.
    let [_, mut node] = honest();
    node.ledger.account("outside", "main", USD, "none");
    node.ledger.account("node", "wallet", USD, "never_negative");
    node.ledger.post("second", &outside(), &wallet(), 7);
    node.ledger.commit();
    assert_eq!(found_alone(&node), [""; 0]);
}

/// Nobody else has signed it: what it names must at least be a debt to the one whom it says to have paid.
#[test]
fn a_receipt_of_our_own_is_about_what_we_owe_its_provider() {
    let [mut node, _] = honest();
    let deposit = signed(&draft("deposit", 1_000, Status::Released));
    node.receipts.push(deposit.as_bytes().to_vec());
    assert_eq!(found_alone(&node), ["evidence.receipt_payee"]);
    let other = Draft { provider_id: key(6).public_key(), ..draft("first", 50, Status::Released) };
    node.receipts = vec![signed(&other).as_bytes().to_vec()];
    assert_eq!(found_alone(&node), ["evidence.receipt_payee"]);
}

#[test]
fn what_was_withheld_is_owed_to_nobody() {
    let [_, mut node] = honest();
    let proof = draft("first", 70, Status::Released).payment_proof;
    let withheld = signed(&Draft { payment_proof: proof, ..draft("bad", 70, Status::Withheld) });
    node.receipts.push(withheld.as_bytes().to_vec());
    assert_eq!(found_alone(&node), [""; 0]);
    owe(&mut node.ledger, &withheld, "iou", 70);
    node.ledger.commit();
    assert_eq!(found_alone(&node), ["evidence.receipt_step"]);
}

#[test]
fn a_problem_says_in_whose_evidence_it_is() {
    let mut nodes = honest();
    nodes[1].ledger = providers(&receipts()[..1]);
    let found = together(&nodes);
    let [found] = found.problems.as_slice() else { panic!("{found:#?}") };
    assert_eq!(found.node, 1);
    assert_eq!(
        found.problem.to_string(),
        "receipts/1.json: its provider has not booked what is owed [evidence.debt_missing]"
    );
}

#[test]
fn keys_are_read_strictly() {
    let good = keys(&buyer(), "buyer").unwrap();
    let cases = [
        json!([]),
        json!({"schema_version": "guild.evidence_keys.v2", "keys": []}),
        json!({"schema_version": "guild.evidence_keys.v1", "keys": [{"npub": "npub1x", "role": "buyer"}]}),
        json!({"schema_version": "guild.evidence_keys.v1", "keys": [], "more": 1}),
    ];
    let [mut node, _] = honest();
    for (bad, problems) in
        cases.into_iter().map(|bad| (bad, vec!["evidence.keys"])).chain([(good, vec![])])
    {
        node.keys = Some(bad);
        assert_eq!(codes(&node.check().0), problems);
    }
}
