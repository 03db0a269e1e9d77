//! Two nodes that dealt with each other, their exports, and a stranger who checks both.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::fs;
use std::path::Path;

use guild_ledger::policy::{Bundle, Tier};
use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, ledger};
use guild_market::claim::Claimant;
use guild_market::job::{self, Offer, Shop};
use guild_market::order::{self, NewOrder};
use guild_market::settle::{Keys, settle};
use guild_market::verify::{Options as Strictness, Subject, verify};
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::{Random, Signer};
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::Event;
use guild_protocol::nostr::job::{JobResult, Request};
use guild_protocol::receipt::Receipt;
use guild_protocol::schema::Registry;
use guild_store::{Hooks, Migrations, Options, Service, Tx};
use insta::assert_snapshot;
use serde_json::json;

use crate::support::Home;

const T0: i64 = 1_768_465_800_000;

struct Dice;

impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(4);
    }
}

fn buyer() -> SecretKey {
    "11".repeat(32).parse().unwrap()
}

fn provider() -> SecretKey {
    "22".repeat(32).parse().unwrap()
}

/// Writes into the database of a home.
fn write<T: Send + 'static>(
    home: &Home,
    run: impl Fn(&mut Tx<'_>) -> guild_market::Result<T> + Send + 'static,
) -> T {
    let file = home.path().join(".local/share/guildhall/node.db");
    let all = Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations())
        .and(guild_roles::migrations())
        .and(guild_hosting::migrations())
        .and(guild_kernel::migrations());
    let service = Service::open(&Options::file(&file), &all, Hooks::default(), 0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let done = runtime.block_on(service.handle().write(run));
    service.close();
    done.unwrap()
}

/// A home with a database.
fn home() -> Home {
    let home = Home::new();
    assert_eq!(home.run(&["log", "append", "test.begins"]).code, 0);
    home
}

fn wanted(name: &str) -> NewOrder {
    let id = "oa.embedding.v1".parse().unwrap();
    let payload = json!({"texts": [""], "dimensions": 2});
    NewOrder {
        order_key: name.to_owned(),
        kind: 5050,
        job: Registry::builtin().validate_input(&id, &payload).unwrap(),
        provider: Some(provider().public_key()),
        provider_tier: Tier::Secondary,
        price: Some(Msat(40)),
        budget: Msat(50),
        deadline_ms: T0 + 60_000,
        private: false,
        relays: Vec::new(),
    }
}

fn fund(tx: &mut Tx<'_>) -> guild_market::Result<()> {
    let outside = Account::new("outside", "main", AssetId::btc_ln(), Limit::None)?;
    ledger::open(tx, &outside, T0)?;
    ledger::open(tx, &order::wallet()?, T0)?;
    let credit = order::wallet()?.account_id;
    let step = Step::Post { debit: outside.account_id, credit, amount: Amount::from(Msat(1_000)) };
    let deposit = NewTransfer::new(TransferId::named(T0, &["deposit"]), step, "deposit")?;
    ledger::book(tx, &[vec![deposit]], T0)?.remove(0)?;
    Ok(())
}

/// Orders, and has it done on the other node; the receipt.
fn hire(buyers: &Home, providers: &Home, name: &'static str) -> Receipt {
    let new = wanted(name);
    let request = new.request(&buyer(), &Dice, T0).unwrap();
    let (posted, job) = (request.clone(), new.job.clone());
    write(buyers, move |tx| order::post(tx, &new, &posted, &Bundle::builtin().unwrap(), T0));
    let text = json!({
        "embeddings": [[1, 0]], "model_id": "guild-hash-v1", "dimensions": 2,
        "provenance": {"model": "guild-hash-v1", "provider_id": provider().public_key().npub()},
    })
    .to_string();
    let result = JobResult::answering(&request, &text).unwrap();
    let result = result.draft(1_768_465_801).unwrap().sign(&provider()).unwrap();
    do_it(providers, &request, &result);
    write(buyers, move |tx| {
        let order_id = order::deliver(tx, &result, &buyer(), &claimant(), T0 + 5)?.order.order_id;
        let subject = Subject { job: &job, provider: &provider().public_key(), output_text: &text };
        let verdict = verify(&Registry::builtin(), &Strictness::default(), &subject)?;
        let keys = Keys { key: &buyer(), random: &Dice };
        let claim = order::claim(tx, &order_id, &claimant(), T0 + 6)?.unwrap();
        Ok(settle(tx, &order_id, &claim, &verdict, keys, T0 + 6)?.receipt.unwrap())
    })
}

fn claimant() -> Claimant {
    Claimant { token: "one".to_owned(), ttl_ms: 1_000, at_once: 1 }
}

fn do_it(providers: &Home, request: &Event, result: &Event) {
    let offer = Offer {
        provider: provider().public_key(),
        prices: [("oa.embedding.v1".parse().unwrap(), Msat(40))].into(),
        max_input_bytes: 10_000,
        max_open_jobs: 8,
        credit: Msat(1_000),
        unpaid_ms: 3_600_000,
        max_samples: 0,
        max_samples_of_all: 0,
    };
    let (request, result) = (request.clone(), result.clone());
    write(providers, move |tx| {
        let asked = Request::parse(&request, None)?;
        let registry = &Registry::builtin();
        let claimant = &claimant();
        let shop = Shop { offer: &offer, registry, can_do: &|_| Ok(()), claimant };
        job::take(tx, &request, &asked, &shop, T0 + 1)?;
        let claim = job::claim(tx, &request.id, claimant, T0 + 2)?.unwrap();
        job::deliver(tx, &request.id, &claim, &result, T0 + 2)
    });
}

fn take(providers: &Home, receipt: &Receipt) {
    let receipt = receipt.clone();
    write(providers, move |tx| {
        job::take_receipt(tx, &receipt, &provider().public_key(), Msat(1_000), T0 + 9)
    });
}

fn export(home: &Home, to: &Path) {
    let directory = to.to_str().unwrap();
    let run = home.run(&["ledger", "export", "--evidence", directory, "--force"]);
    assert_eq!(run.code, 0, "{run:?}");
}

#[test]
fn two_nodes_are_checked_together() {
    let (buyers, providers, stranger) = (home(), home(), Home::new());
    write(&buyers, fund);
    let [first, second] = ["first", "second"].map(|name| hire(&buyers, &providers, name));
    take(&providers, &first);
    let [a, b] = ["a", "b"].map(|name| stranger.path().join(name));
    let audit = ["audit", "--evidence", "a", "--evidence", "b"];
    let check = || {
        export(&buyers, &a);
        export(&providers, &b);
        stranger.json(&audit)
    };
    // The second receipt is still on its way.
    let (code, answer) = check();
    let between = &answer["between"];
    assert_eq!((code, &between["problems"][0]["code"]), (1, &json!("evidence.debt_missing")));
    assert_eq!(between["problems"][0]["directory"], "b");
    take(&providers, &second);
    let (code, answer) = check();
    assert_eq!((code, &answer["between"]["receipts"]), (0, &json!(2)), "{answer}");
    assert_snapshot!(stranger.run(&audit).shown(&stranger), @"
    exit 0
    --- stdout
    a: the evidence holds
      ok           ledger.jsonl  5 transfers between 3 accounts, 8 heads
      absent       calls.jsonl
      ok           receipts      2 receipts
      ok           keys.json     the keys of the node
      ok           events.jsonl  1 events, their form only

    b: the evidence holds
      ok           ledger.jsonl  2 transfers between 2 accounts, 4 heads
      absent       calls.jsonl
      ok           receipts      2 receipts
      ok           keys.json     the keys of the node
      ok           events.jsonl  1 events, their form only

    the 2 nodes agree  2 receipts between them
    ");
    // A receipt that is not there any more.
    for directory in [&a, &b] {
        fs::remove_file(directory.join("receipts").join(format!("{}.json", second.receipt_id())))
            .unwrap();
    }
    let run = stranger.run(&audit);
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("the 2 nodes do NOT agree"), "{run:?}");
    assert!(run.stdout.contains("[evidence.debt_unproven]"), "{run:?}");
    // Whoever leaves out who they are has not agreed with anybody.
    for directory in [&a, &b] {
        fs::remove_file(directory.join("keys.json")).unwrap();
        fs::remove_dir_all(directory.join("receipts")).unwrap();
    }
    let (code, answer) = stranger.json(&audit);
    let found = answer["between"]["problems"].as_array().unwrap();
    let nameless: Vec<_> = found.iter().filter(|one| one["code"] == "evidence.keys").collect();
    assert_eq!((code, nameless.len()), (1, 2), "{answer}");
    // One directory twice is one node twice.
    export(&buyers, &a);
    let (code, answer) = stranger.json(&["audit", "--evidence", "a", "--evidence", "a"]);
    assert_eq!((code, &answer["between"]["problems"][0]["code"]), (1, &json!("evidence.keys")));
}
