#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use guild_protocol::receipt::{Draft, Proof, Rail, Status};
use guild_protocol::timestamp::Timestamp;
use insta::assert_snapshot;

use crate::support::Home;

const AUDIT: [&str; 3] = ["audit", "--evidence", "evidence"];
const LEDGER: &str = "evidence/ledger.jsonl";
/// The settled escrow of the example, and the head after it.
const PAID: &str = "xfer_019bc0c69b4474b2827777d4dd1fc61c";
const HEAD: &str = "sha256:7f64436483484c378f5709b07f0bb24953967dac947ecf615e1f9dc91dd03e80";

/// A file of the example that the documentation explains.
fn example(name: &str) -> String {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guild-ledger/vectors/evidence");
    fs::read_to_string(vectors.join(name)).unwrap()
}

fn home_with(ledger: impl AsRef<[u8]>) -> Home {
    let home = Home::new();
    home.write(LEDGER, ledger);
    home
}

fn receipt(units: i64) -> Vec<u8> {
    let buyer: SecretKey = "11".repeat(32).parse().unwrap();
    let draft = Draft {
        session_id: "session".to_owned(),
        request_id: None,
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "policy".to_owned(),
        job_hash: None,
        payment_proof: Some(Proof::LedgerTransfer {
            transfer_id: PAID.to_owned(),
            ledger_head: HEAD.parse().unwrap(),
        }),
        rail: Rail::Ledger,
        amount: Amount::new(AssetId::usd_micro(), units),
        provider_id: buyer.public_key(),
        buyer_id: buyer.public_key(),
        approval_rule_id: None,
        idempotency_key: "pay".to_owned(),
        status: Status::Released,
        verdict_hash: None,
        timestamp: Timestamp::from_ms(1_768_465_800_004).unwrap(),
    };
    draft.sign(&buyer).unwrap().as_bytes().to_vec()
}

#[test]
fn honest_evidence_holds() {
    let home = home_with(example("ledger.jsonl"));
    home.write("evidence/calls.jsonl", example("calls.jsonl"));
    home.write("evidence/events.jsonl", "{\"seq\":1}\n{\"seq\":4}\n");
    home.write("evidence/receipts/a.json", receipt(250));
    home.write("evidence/receipts/notes.txt", "");
    home.write("evidence/photo.jpg", "");
    let before = home.contents();
    assert_snapshot!(home.run(&AUDIT).shown(&home), @"
    exit 0
    --- stdout
    evidence: the evidence holds
      ok           ledger.jsonl  3 transfers between 3 accounts, 4 heads
      ok           calls.jsonl   4 calls
      ok           receipts      1 receipts, nobody says whose
      absent       keys.json
      ok           events.jsonl  2 events, their form only
      not checked  photo.jpg
      not checked  receipts/notes.txt
    ");
    let (code, answer) = home.json(&AUDIT);
    assert_eq!((code, &answer["transfers"], &answer["receipts"]), (0, &3.into(), &1.into()));
    assert_eq!(answer["not_checked"], serde_json::json!(["photo.jpg", "receipts/notes.txt"]));
    assert_eq!(home.contents(), before, "nothing is written");
}

#[test]
fn every_problem_is_shown_with_its_place() {
    let home = home_with(example("ledger.jsonl").replace("\"units\":\"250\"", "\"units\":\"251\""));
    home.write("evidence/receipts/a.json", receipt(250));
    assert_snapshot!(home.run(&AUDIT).shown(&home), @"
    exit 1
    --- stdout
    evidence: the evidence does NOT hold
      FAILED       ledger.jsonl  3 transfers between 3 accounts, 4 heads, 3 problems
      absent       calls.jsonl
      FAILED       receipts      1 receipts, nobody says whose, 1 problems
      absent       keys.json
      absent       events.jsonl

      ledger.jsonl:12 (seq 7): the records it covers make sha256:db6058b4fef0045bc91933f94bad0d3f71a115023b7a7434b9ce78c6fc226724
          [evidence.head] A head is not the hash of the records it covers, or records have no head.
      ledger.jsonl:14: acct_290061b011129f4d49ea82804d1579c4280134a876d559e9b38190d941da3026 is stated as 250 in and 0 out, 0 and 0 held, its transfers make 251 in and 0 out, 0 and 0 held
          [evidence.balance] The balance of an account is missing, or is not what its transfers make.
      ledger.jsonl:15: acct_7b58c1b80b574a2108aaa5f9ef9615e25a48ee8702498aeb398ce158e993b441 is stated as 1000 in and 250 out, 0 and 0 held, its transfers make 1000 in and 251 out, 0 and 0 held
          [evidence.balance] The balance of an account is missing, or is not what its transfers make.
      receipts/a.json: it states 250 USD_MICRO, xfer_019bc0c69b4474b2827777d4dd1fc61c is 251 USD_MICRO
          [evidence.receipt_amount] A receipt states another amount than its transfer.
    ");
    let (code, answer) = home.json(&AUDIT);
    let problem = &answer["problems"][0];
    assert_eq!((code, &problem["code"]), (1, &"evidence.head".into()));
    assert_eq!(
        (&problem["file"], &problem["line"], &problem["seq"]),
        (&"ledger.jsonl".into(), &12.into(), &7.into())
    );
}

/// The first problem that is found in this ledger.
fn first_problem(home: &Home) -> String {
    let run = home.run(&AUDIT);
    run.assert_no_panic();
    assert!(run.stdout.len() < 40_000, "an answer stays short");
    let (code, answer) = home.json(&AUDIT);
    assert_eq!((code, run.code), (1, 1), "{run:?}");
    answer["problems"][0]["code"].as_str().unwrap().to_owned()
}

#[test]
fn rubbish_in_a_file_is_a_problem() {
    assert_eq!(first_problem(&home_with("")), "evidence.cut");
    assert_eq!(first_problem(&home_with("\n\n\n")), "evidence.form");
    assert_eq!(
        first_problem(&home_with([0xff, 0x00, 0x1b, 0x5b, 0x32, 0x4a].repeat(500_000))),
        "evidence.form"
    );
    assert_eq!(first_problem(&home_with("{\"\u{202e}\":1}\n".repeat(5_000))), "evidence.form");
    let home = home_with(example("ledger.jsonl"));
    home.write("evidence/calls.jsonl", "x\n".repeat(5_000));
    assert_eq!(first_problem(&home), "evidence.unasked");
    home.write("evidence/receipts/huge.json", "{".repeat(70_000));
    home.write("evidence/events.jsonl", [0xff; 100]);
    home.write("evidence/keys.json", "[".repeat(70_000));
    let (_, answer) = home.json(&AUDIT);
    for part in answer["parts"].as_array().unwrap() {
        assert!(part["problems"].as_u64().unwrap() > 0, "{part}");
    }
}

/// A line of 300 MB, which takes no room on the disk and must take none in memory.
#[test]
fn an_endless_line_is_skipped() {
    let home = home_with("{\"record\":\"");
    let file = fs::File::options().write(true).open(home.path().join(LEDGER)).unwrap();
    file.set_len(300_000_000).unwrap();
    drop(file);
    assert_eq!(first_problem(&home), "evidence.form");
}

#[test]
fn a_directory_without_a_ledger_is_bad_input() {
    let home = Home::new();
    fs::create_dir(home.path().join("evidence")).unwrap();
    home.write("file", "");
    let named = |args: &[&str]| {
        let (code, answer) = home.json(args);
        assert_eq!(code, 2, "{answer}");
        answer["error"]["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(named(&AUDIT), "audit.no_ledger");
    assert_eq!(named(&["audit", "--evidence", "nowhere"]), "io.not_found");
    assert_eq!(named(&["audit", "--evidence", "file"]), "io.not_found");
}

#[test]
fn what_is_no_plain_file_is_not_opened() {
    let places =
        ["ledger.jsonl", "calls.jsonl", "events.jsonl", "keys.json", "receipts/a.json", "receipts"];
    for place in places {
        let home = home_with(example("ledger.jsonl"));
        home.write("real", example("ledger.jsonl"));
        home.write("evidence/receipts/b.json", receipt(250));
        let path = home.path().join("evidence").join(place);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            let _ = fs::remove_file(&path);
        }
        let real = home.path().join("real");
        for target in ["/dev/zero", "nowhere", real.to_str().unwrap()] {
            symlink(target, &path).unwrap();
            let (code, answer) = home.json(&AUDIT);
            assert_eq!(
                (code, &answer["error"]["code"]),
                (3, &"audit.unreadable".into()),
                "{place}"
            );
            fs::remove_file(&path).unwrap();
        }
        // Nobody writes into this pipe: opening it must not wait.
        let pipe = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(pipe.success());
        assert_eq!(home.json(&AUDIT).0, 3, "{place}");
    }
    let home = home_with(example("ledger.jsonl"));
    symlink("/dev/zero", home.path().join("evidence/other")).unwrap();
    let (code, answer) = home.json(&AUDIT);
    assert_eq!((code, &answer["not_checked"][0]), (0, &"other".into()));
}

#[test]
fn what_may_not_be_read_leaves_the_question_open() {
    for (place, mode) in [(LEDGER, 0o000), ("evidence/receipts", 0o000), ("evidence", 0o000)] {
        let home = home_with(example("ledger.jsonl"));
        home.write("evidence/receipts/a.json", receipt(250));
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = home.path().join(place);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let run = home.run_as_nobody(&AUDIT);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(run.code, 3, "{place}: {run:?}");
        assert!(run.stderr.starts_with("error[audit.unreadable]: Permission denied\n"), "{run:?}");
    }
}
