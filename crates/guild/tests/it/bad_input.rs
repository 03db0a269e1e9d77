//! Every command that reads a file, against everything that a file can be instead of what is wanted: exit code 2, a
//! stable code, no panic, nothing changed.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::Home;

/// Every command that reads a JSON document; `FILE` is the document.
const JSON_READERS: &[&[&str]] = &[
    &["hash", "FILE"],
    &["hash", "--legacy", "FILE"],
    &["receipts", "verify", "FILE"],
    &["schema", "check", "oa.embedding.v1", "FILE"],
    &["schema", "check", "--output", "oa.embedding.v1", "FILE"],
    &["blueprint", "check", "FILE"],
    &["blueprint", "check", "GOOD", "--measurements", "FILE"],
    &["replay", "verify", "FILE"],
    &["replay", "verify", "REPLAY", "--receipt", "FILE"],
    &["replay", "repair", "FILE"],
    &["replay", "repair", "FILE", "--out", "new.jsonl"],
    &["replay", "repair", "FILE", "--in-place"],
    &["replay", "import", "FILE", "--out", "new.jsonl"],
    &["replay", "export", "FILE", "--out", "new.json"],
];

/// Every command that reads a file of any kind.
const READERS: &[&[&str]] = &[&["cid", "FILE"], &["cid", "--wrap", "FILE"]];

fn readers() -> impl Iterator<Item = Vec<&'static str>> {
    JSON_READERS.iter().chain(READERS).map(|args| args.to_vec())
}

/// The command with the bad file; where a good one belongs beside it, the good one is written.
fn with_file<'a>(home: &Home, args: &[&'a str], file: &'a str) -> Vec<&'a str> {
    if args.contains(&"GOOD") {
        home.write("good.json", crate::checks::BLUEPRINT);
    }
    if args.contains(&"REPLAY") {
        home.write("replay.jsonl", crate::checks::vector("replay.jsonl"));
    }
    let place = |arg: &&'a str| match *arg {
        "FILE" => file,
        "GOOD" => "good.json",
        "REPLAY" => "replay.jsonl",
        arg => arg,
    };
    args.iter().map(place).collect()
}

/// Runs for a program and for a person; the code, which both must name.
fn refused(home: &Home, args: &[&str]) -> String {
    let before = home.contents();
    let (exit, answer) = home.json(args);
    let code = answer["error"]["code"].as_str().unwrap_or_default().to_owned();
    assert_eq!(exit, 2, "{args:?}: {answer}");
    let run = home.run(args);
    run.assert_no_panic();
    assert_eq!(run.code, 2, "{args:?}: {run:?}");
    assert_eq!(run.stdout, "", "{args:?}");
    assert!(run.stderr.starts_with(&format!("error[{code}]: ")), "{args:?}: {run:?}");
    assert!(run.stderr.contains("\nhelp: "), "{args:?}: {run:?}");
    assert!(run.stderr.len() < 2_000, "{args:?}: a message stays short");
    assert_eq!(home.contents(), before, "{args:?}: nothing changed");
    code
}

#[test]
fn what_is_not_strict_json_is_refused() {
    let deep = "[".repeat(50_000);
    let closed = format!("{}1{}", "[".repeat(129), "]".repeat(129));
    let long_key = format!("{{\"{0}\":1,\"{0}\":2}}", "k".repeat(20_000));
    let cases: [(&[u8], &str); 17] = [
        (b"", "json.syntax"),
        (b"   ", "json.syntax"),
        (b"{", "json.syntax"),
        (b"{\"a\":", "json.syntax"),
        (b"{\"a\":1}}", "json.syntax"),
        (b"{'a':1}", "json.syntax"),
        (b"[1,]", "json.syntax"),
        (b"{\"a\":01}", "json.syntax"),
        (b"NaN", "json.syntax"),
        (b"\"\x1b[2J\"", "json.syntax"),
        (b"\"\xff\"", "json.utf8"),
        (b"\"\\ud800\"", "json.lone_surrogate"),
        (b"{\"a\":1,\"a\":2}", "json.duplicate_key"),
        (b"1e999", "json.not_finite"),
        (deep.as_bytes(), "json.depth"),
        (closed.as_bytes(), "json.depth"),
        (long_key.as_bytes(), "json.duplicate_key"),
    ];
    for (text, code) in cases {
        let home = Home::new();
        home.write("bad.json", text);
        for args in JSON_READERS {
            let args = with_file(&home, args, "bad.json");
            let shown = String::from_utf8_lossy(&text[..text.len().min(40)]);
            let found = refused(&home, &args);
            // Some formats have one code of their own for all that is not theirs.
            let own = found == "blueprint.not_json" || found.starts_with("replay.");
            let same = found == code || (own && args.contains(&found.split('.').next().unwrap()));
            assert!(same, "{args:?} of {shown}: {found} is not {code}");
        }
    }
}

#[test]
fn an_integer_that_readers_would_round_is_refused() {
    let home = Home::new();
    home.write("bad.json", "{\"n\":9007199254740992}");
    assert_eq!(refused(&home, &["hash", "bad.json"]), "json.integer_range");
}

#[test]
fn what_is_not_a_readable_file_is_refused() {
    let home = Home::new();
    home.write("dir/inner.json", "{}");
    std::os::unix::fs::symlink("nowhere", home.path().join("dangling")).unwrap();
    std::os::unix::fs::symlink("loop", home.path().join("loop")).unwrap();
    let long = "x".repeat(256);
    for args in readers() {
        assert_eq!(refused(&home, &with_file(&home, &args, "missing.json")), "io.not_found");
        assert_eq!(refused(&home, &with_file(&home, &args, "dangling")), "io.not_found");
        assert_eq!(refused(&home, &with_file(&home, &args, "loop")), "io.not_found");
        assert_eq!(refused(&home, &with_file(&home, &args, &long)), "io.not_found");
        assert_eq!(refused(&home, &with_file(&home, &args, "dir/inner.json/x")), "io.not_found");
        assert_eq!(refused(&home, &with_file(&home, &args, "dir")), "io.not_a_file");
    }
}

#[test]
fn a_file_that_may_not_be_read_is_refused() {
    let home = Home::new();
    let path = home.write("secret.json", "{}");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    for args in readers() {
        let run = home.run_as_nobody(&with_file(&home, &args, "secret.json"));
        assert_eq!(run.code, 2, "{args:?}: {run:?}");
        assert!(run.stderr.starts_with("error[io.denied]: "), "{args:?}: {run:?}");
    }
}

#[test]
fn an_endless_file_is_refused_at_the_limit() {
    let home = Home::new();
    // 300 MB that take no room on the disk.
    let file = fs::File::create(home.path().join("large.json")).unwrap();
    file.set_len(300_000_000).unwrap();
    drop(file);
    for args in JSON_READERS {
        let run = home.run(&with_file(&home, args, "large.json"));
        assert_eq!(run.code, 2, "{args:?}");
        let named = ["error[io.too_large]: ", "error[replay.limit]: ", "error[replay.not_repair"];
        assert!(named.iter().any(|name| run.stderr.starts_with(name)), "{args:?}: {run:?}");
    }
}

#[test]
fn a_hostile_name_cannot_steer_the_terminal() {
    let home = Home::new();
    let run = home.run(&["hash", "\u{1b}[2Jname"]);
    assert_eq!(run.code, 2);
    assert!(!run.stderr.contains('\u{1b}') && run.stderr.contains("\\u{1b}[2Jname"), "{run:?}");
}

/// A name is bytes; an answer in JSON shows it as well as it can.
#[test]
fn a_name_that_is_not_utf8_is_answered_too() {
    use std::os::unix::ffi::OsStrExt;
    let home = Home::new();
    let name = std::ffi::OsStr::from_bytes(b"\xff.json");
    fs::write(home.path().join(name), "{}").unwrap();
    for command in ["hash", "cid"] {
        let output = home.command(&[command, "--json"]).arg(name).output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &answer["ok"]), (Some(0), &true.into()), "{answer}");
        assert_eq!(answer["file"], "\u{fffd}.json");
    }
}

/// What stands in a file must not look like what the program says of it.
#[test]
fn a_hostile_text_stays_on_its_line() {
    let home = Home::new();
    let forged = "x\\n  ok      forged\u{202e}";
    let replay = format!(
        "{{\"event\":\"ReplayHeader\",\"replay_version\":1,\"producer\":\"p@1\",\"created_at\":\"2026-01-15T08:30:00Z\"}}\n\
         {{\"event\":\"SessionStart\",\"t\":\"2026-01-15T08:30:00Z\",\"session_id\":\"{forged}\",\"policy_bundle_id\":\"p\"}}\n"
    );
    home.write("replay.jsonl", replay);
    let run = home.run(&["replay", "verify", "replay.jsonl"]);
    assert!(run.stdout.contains("  session     x\\n  ok      forged\\u{202e}\n"), "{run:?}");
    assert!(!run.stdout.contains("\n  ok      forged"), "{run:?}");
}

#[test]
fn wrong_usage_is_refused() {
    let home = Home::new();
    let cases: &[&[&str]] = &[
        &["nonsense"],
        &["hash"],
        &["hash", "a", "b"],
        &["hash", "--colour", "a"],
        &["cid", "--cid-version", "2", "a"],
        &["cid", "--chunk-bytes", "-1", "a"],
        &["cid", "--chunk-bytes", "99999999999999999999999", "a"],
        &["cid", "--raw-leaves=perhaps", "a"],
        &["key"],
        &["key", "burn"],
        &["key", "show", "--role"],
        &["config", "show", "--docs", "--origin"],
        &["completions", "tcsh"],
        &["doctor", "now"],
        &["generate", "docs"],
    ];
    for args in cases {
        let before = home.contents();
        let (exit, answer) = home.json(args);
        assert_eq!((exit, answer["error"]["code"].as_str()), (2, Some("cli.usage")), "{args:?}");
        let run = home.run(args);
        run.assert_no_panic();
        assert_eq!(run.code, 2, "{args:?}");
        assert_eq!(home.contents(), before);
    }
}
