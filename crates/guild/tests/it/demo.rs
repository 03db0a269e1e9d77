//! The whole market in one command.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::Home;

fn settled(told: &Value) -> Vec<(String, String, i64)> {
    let jobs = told["jobs"].as_array().unwrap().iter();
    let job = |job: &Value| {
        let text = |name: &str| job[name].as_str().unwrap().to_owned();
        (text("provider"), text("state"), job["paid_msat"].as_i64().unwrap())
    };
    jobs.map(job).collect()
}

#[test]
fn honest_work_is_paid_and_cheating_is_not() {
    let home = Home::new();
    let (code, told) = home.json(&["demo"]);
    assert_eq!((code, &told["ok"]), (0, &Value::Bool(true)), "{told}");
    assert_eq!(told["providers"].as_array().unwrap().len(), 3);
    // Three were tested: the good one leads, the slow one is annotated, the cheat is turned away.
    let meetings = told["meetings"].as_array().unwrap();
    let found = |one: &Value, what: &str| one[what].as_str().unwrap_or_default().to_owned();
    let met: Vec<(String, String, bool)> = meetings
        .iter()
        .map(|one| {
            (found(one, "provider"), found(one, "outcome"), one["trust_bp"].as_u64().is_some())
        })
        .collect();
    let is = |name: &str, outcome: &str, trust| (name.to_owned(), outcome.to_owned(), trust);
    assert_eq!(
        met,
        [
            is("Ada", "active", true),
            is("Bruno", "conditional", true),
            is("Cleo", "rejected", false)
        ],
        "{told}"
    );
    assert_eq!(
        (found(&meetings[0], "pace"), found(&meetings[1], "pace")),
        ("STANDARD".into(), "SLOW".into())
    );
    assert!(meetings.iter().all(|one| one["trials"].as_u64() >= Some(3)), "{told}");
    assert_eq!(meetings[0]["tests_passed"], meetings[0]["tests"]);
    let paid = |name: &str, state: &str, msat| (name.to_owned(), state.to_owned(), msat);
    assert_eq!(
        settled(&told),
        [
            paid("Cleo", "withheld", 0),
            paid("Ada", "released", 1_000),
            paid("Ada", "released", 1_000),
            paid("Bruno", "released", 800),
            paid("Cleo", "withheld", 0),
            paid("Ada", "released", 1_000),
            paid("Cleo", "withheld", 0),
            paid("Ada", "released", 1_000),
            paid("Bruno", "released", 800),
        ]
    );
    // Who says that the tests fail is right; who says that they pass never ran them.
    let [.., honest, forged, one, other] = told["jobs"].as_array().unwrap().as_slice() else {
        panic!("{told}")
    };
    assert_eq!(honest["schema_id"], "oa.sandbox_run.v1");
    assert_eq!(
        (&honest["verdict"], &forged["schema_id"]),
        (&"accepted, run again".into(), &honest["schema_id"])
    );
    assert_eq!(forged["verdict"], "NOT accepted, runs[1].exit_code is wrong");
    for replica in [one, other] {
        assert_eq!(replica["verdict"], "accepted, both say the same", "{told}");
    }
    let receipts = told["receipts"].as_array().unwrap();
    assert_eq!(receipts.len(), 9);
    for receipt in receipts {
        assert!(receipt["id"].as_str().unwrap().starts_with("rcpt_"));
        assert_eq!(receipt["verified"], true);
    }
    assert_eq!(told["evidence"]["holds"], true);
    assert!(told["explorer"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    assert!(
        home.contents().len() == 1,
        "nothing is left in the home: {:?}",
        home.contents().keys()
    );
}

#[test]
fn a_person_sees_one_table_and_where_to_look() {
    let home = Home::new();
    let run = home.run(&["demo"]);
    assert_eq!(run.code, 0, "{run:?}");
    run.assert_no_panic();
    // The first table is the ranking.
    let ranked: Vec<Vec<&str>> = run
        .stdout
        .lines()
        .skip_while(|line| !line.starts_with("rank  provider"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    let places: Vec<[&str; 2]> = ranked.iter().map(|row| [row[0], row[1]]).collect();
    assert_eq!(places, [["1", "Ada"], ["2", "Bruno"], ["–", "Cleo"]], "{run:?}");
    assert!(ranked[0].contains(&"ACTIVE"), "{run:?}");
    assert!(ranked[1].contains(&"SLOW") && ranked[1].contains(&"CONDITIONAL"), "{run:?}");
    assert_eq!(ranked[2].last(), Some(&"REJECTED"), "no trust stands behind it: {run:?}");
    let heading = "job  provider";
    let mut lines = run.stdout.lines().skip_while(|line| !line.starts_with(heading));
    assert!(lines.next().unwrap().contains("verdict"), "{run:?}");
    let rows: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), 9, "{run:?}");
    assert!(rows.iter().all(|row| row.ends_with("  verified")), "{run:?}");
    assert!(rows[0].contains("Cleo") && rows[0].contains("NOT accepted"), "{run:?}");
    assert!(rows[0].contains("before tests"), "{run:?}");
    assert!(run.stdout.contains("explorer  http://127.0.0.1:"), "{run:?}");
    assert!(run.stderr.contains("job 2: Ada was hired"), "{run:?}");
}

/// It stays until it is told to go, and serves its pages meanwhile.
#[test]
fn it_can_be_kept() {
    let home = Home::new();
    let mut command = home.command(&["demo", "--keep", "--json"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    let url = told["explorer"].as_str().unwrap();
    let id = told["receipts"][0]["id"].as_str().unwrap();
    let page =
        ureq::get(format!("{url}/receipts/{id}")).call().unwrap().body_mut().read_to_string();
    assert!(page.unwrap().contains(id));
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
