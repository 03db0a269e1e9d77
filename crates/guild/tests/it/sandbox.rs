//! `guild sandbox run`

use serde_json::Value;

use crate::support::Home;

/// Runs in a sandbox and reads the answer: what follows the program is the program's.
#[expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]
fn json(home: &Home, args: &[&str]) -> (i32, Value) {
    let run = home.run(&[&["sandbox", "run", "--json"], args].concat());
    assert_eq!(run.stdout.lines().count(), 1, "{run:?}");
    (run.code, serde_json::from_str(&run.stdout).unwrap())
}

#[test]
fn a_program_runs_and_its_end_is_told() {
    let home = Home::new();
    let run = home
        .run_with_input(&["sandbox", "run", "--", "sh", "-c", "cat; echo oops >&2"], b"hello\n");
    assert_eq!((run.code, run.stdout.as_str()), (0, "hello\n"), "{run:?}");
    assert!(run.stderr.starts_with("oops\nexited with 0; "), "{run:?}");
    let run = home.run(&["sandbox", "run", "--", "sh", "-c", "exit 4"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.starts_with("exited with 4; "), "{run:?}");
}

#[test]
fn the_outcome_is_one_object() {
    let home = Home::new();
    let (code, answer) = json(&home, &["--", "echo", "hello"]);
    assert_eq!(
        (code, answer["class"].as_str(), answer["exit_code"].as_i64()),
        (0, Some("exited"), Some(0))
    );
    assert_eq!(answer["stdout"], "hello\n");
    assert_eq!(answer["usage"]["output_bytes"], 6);
    assert_eq!(answer["limits"]["wall"]["standing"], "enforced");
    assert_eq!(answer["layers"]["seccomp"], "enforced");
    let (code, answer) = json(&home, &["--limit", "wall_ms=200", "--", "sleep", "100"]);
    assert_eq!((code, answer["class"].as_str()), (1, Some("wall_limit")));
    assert_eq!(answer["limits"]["wall"]["reached"], true);
}

#[test]
fn what_is_forbidden_is_named() {
    let home = Home::new();
    let run = home.run(&["sandbox", "run", "--", "unshare", "--user", "true"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("tried unshare flags 0x10000000 1 times: ended for it"), "{run:?}");
}

#[test]
fn mistakes_are_named() {
    let home = Home::new();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--image", "/no/such/image", "--", "true"], 2, "sandbox.no_image"),
        (&["--", "no-such-program"], 2, "sandbox.not_started"),
        (&["--limit", "wall_ms=0", "--", "true"], 2, "sandbox.bad_limit"),
        (&["--limit", "walls=7", "--", "true"], 2, "cli.usage"),
        (&["--cwd", "here", "--", "true"], 2, "sandbox.bad_spec"),
        (&["--require", "mac", "--", "true"], 2, "sandbox.layer_missing"),
    ];
    for (args, exit, name) in cases {
        let (code, answer) = json(&home, args);
        assert_eq!((code, answer["error"]["code"].as_str()), (exit, Some(name)), "{answer}");
    }
    let (code, answer) = json(&home, &["--require", "magic", "--", "true"]);
    assert_eq!((code, answer["error"]["code"].as_str()), (2, Some("cli.usage")));
}

/// As root: an ordinary user is refused, by the layer.
#[test]
fn the_backend_is_chosen_by_flag_and_by_setting() {
    let home = Home::new();
    let set = |setting: &str, args: &[&str]| {
        let run = home.run(&[&["--json", "--set", setting, "sandbox", "run"], args].concat());
        (run.code, serde_json::from_str::<Value>(&run.stdout).unwrap())
    };
    let root = rustix::process::geteuid().is_root();
    for (code, answer) in [
        json(&home, &["--backend", "oci", "--", "true"]),
        set("sandbox.backend=oci", &["--", "true"]),
    ] {
        let expected = if root { &answer["layers"]["landlock"] } else { &answer["error"]["code"] };
        let says = if root { (0, "absent") } else { (2, "sandbox.layer_missing") };
        assert_eq!((code, expected.as_str()), (says.0, Some(says.1)), "{answer}");
    }
    let (code, answer) = set("sandbox.require=mac", &["--", "true"]);
    assert_eq!((code, answer["error"]["code"].as_str()), (2, Some("sandbox.layer_missing")));
    let (code, answer) = set("sandbox.require=magic", &["--", "true"]);
    assert_eq!((code, answer["error"]["code"].as_str()), (2, Some("config.bad_value")), "{answer}");
    let (code, answer) = set("sandbox.image=/no/such/image", &["--", "true"]);
    assert_eq!((code, answer["error"]["code"].as_str()), (2, Some("sandbox.no_image")));
    let (code, answer) =
        set("sandbox.runtime=no-such-runtime", &["--backend", "oci", "--", "true"]);
    assert_eq!((code, answer["error"]["code"].as_str()), (3, Some("sandbox.runtime")), "{answer}");
}
