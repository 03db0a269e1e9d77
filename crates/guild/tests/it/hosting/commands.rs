//! What is done inside of a sandbox, over HTTP: input, signals, directories, pauses, secrets.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use serde_json::json;

use super::shop::Shop;
use super::{HOSTING, good, text};
use crate::node::Node;
use crate::support::Home;

const SECRET: &str = "correct-horse-battery-staple-4711";

#[test]
fn input_signals_directories_and_pauses() {
    let shop = Shop::open(&[]);
    let (_, sandbox) = shop.sandbox();
    // Input comes with the start and later, and ends when it is closed.
    let body = json!({"argv": ["cat"], "stdin_b64": "b25lCg==", "stdin_open": true});
    let exec = shop.exec(&sandbox, &body);
    assert_eq!(shop.post(&format!("{exec}/stdin"), &json!({"data_b64": "dHdvCg=="})).0, 204);
    assert_eq!(shop.post(&format!("{exec}/stdin"), &json!({"close": true})).0, 204);
    let mut frames = shop.frames(&exec);
    assert_eq!(frames.pop().unwrap()["exit_code"], 0);
    let printed: Vec<u8> =
        frames.iter().flat_map(|frame| decoded(&text(frame, "data_b64"))).collect();
    assert_eq!(String::from_utf8(printed).unwrap(), "one\ntwo\n");
    let late = shop.refused("POST", &format!("{exec}/stdin"), br#"{"data_b64":"eA=="}"#);
    assert_eq!(late, (409, "agent.exec_ended".to_owned()));

    // A command that prints nothing yet has a reader already.
    let exec = shop.exec(&sandbox, &json!({"argv": ["cat"], "stdin_open": true}));
    let quiet = shop.opened(&exec);
    assert_eq!(shop.post(&format!("{exec}/stdin"), &json!({"close": true})).0, 204);
    assert_eq!(quiet.last().unwrap()["exit_code"], 0);
    let unknown = format!("{sandbox}/exec/exec_{:032x}", 1);
    assert_eq!(shop.refused("GET", &unknown, b""), (404, "agent.no_such_exec".to_owned()));

    let exec = shop.exec(&sandbox, &json!({"argv": ["sleep", "1000"]}));
    for bad in [r#"{"signal":0}"#, r#"{"signal":65}"#, r#"{"signal":-9}"#] {
        let refused = shop.refused("POST", &format!("{exec}/signal"), bad.as_bytes());
        assert_eq!(refused, (400, "hosting.malformed".to_owned()), "{bad}");
    }
    assert_eq!(shop.post(&format!("{exec}/signal"), &json!({"signal": 15})).0, 204);
    let last = shop.frames(&exec).pop().unwrap();
    assert_eq!(last["signal"], 15, "{last}");

    for path in ["a.txt", "deep/b.txt"] {
        let (status, _) = shop.ask("PUT", &format!("{sandbox}/files?path={path}"), b"hello");
        assert_eq!(status, 200, "{path}");
    }
    let (status, listed) = shop.get(&format!("{sandbox}/directory"));
    assert_eq!(status, 200, "{listed}");
    let entries = listed["entries"].as_array().unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a.txt", "deep"], "{listed}");
    assert_eq!(shop.ask("DELETE", &format!("{sandbox}/files?path=deep"), b"").0, 204);
    assert_eq!(
        shop.ask("GET", &format!("{sandbox}/files?path=a.txt"), b""),
        (200, b"hello".to_vec())
    );
    assert_eq!(shop.ask("GET", &format!("{sandbox}/files?path=deep/b.txt"), b"").0, 404);

    // Paused it stands still, and nobody gets in; it goes on where it was.
    let (status, paused) = shop.post(&format!("{sandbox}/pause"), &json!({}));
    assert_eq!((status, &paused["paused"]), (200, &json!(true)), "{paused}");
    let refused = shop.refused("POST", &format!("{sandbox}/exec"), br#"{"argv":["true"]}"#);
    assert_eq!(refused, (409, "hosting.not_running".to_owned()));
    let (status, resumed) = shop.post(&format!("{sandbox}/resume"), &json!({}));
    assert_eq!((status, &resumed["paused"]), (200, &json!(false)), "{resumed}");
    // The machine thaws it a moment later, and may freeze it before that.
    let start = || shop.post(&format!("{sandbox}/exec"), &json!({"argv": ["cat", "a.txt"]}));
    let mut started = (0..600).map(|_| start()).inspect(|_| testbed::wait_ms(100));
    let (status, started) = started.find(|(status, _)| *status != 503).unwrap();
    assert_eq!(status, 201, "{started}");
    let exec = format!("{sandbox}/exec/{}", text(&started, "exec_id"));
    assert_eq!(shop.frames(&exec).pop().unwrap()["exit_code"], 0);
    shop.close();
}

#[test]
fn a_repeat_changes_nothing_inside() {
    let shop = Shop::open(&[]);
    let (_, sandbox) = shop.sandbox();
    let mismatch = |answer: (u16, Vec<u8>)| {
        let body: serde_json::Value = serde_json::from_slice(&answer.1).unwrap();
        assert_eq!(
            (answer.0, &body["error"]["code"]),
            (422, &json!("access.idempotency_mismatch"))
        );
    };
    // Input is written once, also if the command has ended when it is asked for again.
    let exec = shop.exec(&sandbox, &json!({"argv": ["cat"], "stdin_open": true}));
    let (stdin, one) = (format!("{exec}/stdin"), br#"{"data_b64":"b25lCg=="}"#);
    for _ in 0..3 {
        assert_eq!(shop.ask_as("a", "POST", &stdin, one), (204, Vec::new()));
    }
    mismatch(shop.ask_as("a", "POST", &stdin, br#"{"data_b64":"dHdvCg=="}"#));
    assert_eq!(shop.ask_as("b", "POST", &stdin, one).0, 204);
    assert_eq!(shop.ask_as("c", "POST", &stdin, br#"{"close":true}"#).0, 204);
    let mut frames = shop.frames(&exec);
    assert_eq!(frames.pop().unwrap()["exit_code"], 0);
    let printed: Vec<u8> =
        frames.iter().flat_map(|frame| decoded(&text(frame, "data_b64"))).collect();
    assert_eq!(String::from_utf8(printed).unwrap(), "one\none\n");
    assert_eq!(shop.ask_as("a", "POST", &stdin, one).0, 204);

    // So is a signal.
    let exec = shop.exec(&sandbox, &json!({"argv": ["sleep", "1000"]}));
    let (signal, ends) = (format!("{exec}/signal"), br#"{"signal":15}"#);
    assert_eq!(shop.ask_as("a", "POST", &signal, ends).0, 204);
    assert_eq!(shop.frames(&exec).pop().unwrap()["signal"], 15);
    assert_eq!(shop.ask_as("a", "POST", &signal, ends), (204, Vec::new()));
    mismatch(shop.ask_as("a", "POST", &signal, br#"{"signal":9}"#));

    // A file that came late comes no second time, and one that is gone is not removed again.
    let file = format!("{sandbox}/files?path=a.txt");
    let put = |key: &str, content: &[u8]| shop.ask_as(key, "PUT", &file, content);
    let first = put("a", b"first");
    assert_eq!((first.0, put("b", b"second").0), (200, 200));
    assert_eq!(put("a", b"first"), first);
    mismatch(put("a", b"other"));
    assert_eq!(shop.ask("GET", &file, b""), (200, b"second".to_vec()));
    assert_eq!(shop.ask_as("a", "DELETE", &file, b""), (204, Vec::new()));
    assert_eq!(shop.ask("GET", &file, b"").0, 404);
    assert_eq!(put("c", b"third").0, 200);
    assert_eq!(shop.ask_as("a", "DELETE", &file, b"").0, 204);
    assert_eq!(shop.ask("GET", &file, b""), (200, b"third".to_vec()));

    // Secrets that were replaced do not come back.
    let release = format!("{sandbox}/secrets");
    let secret = |value: &str| json!({"secrets": {"TOKEN": value}}).to_string();
    for (key, value) in [("a", "12345678"), ("b", "123456789"), ("a", "12345678")] {
        let (status, names) = shop.ask_as(key, "POST", &release, secret(value).as_bytes());
        assert_eq!((status, names.as_slice()), (200, &br#"{"names":["TOKEN"]}"#[..]), "{key}");
    }
    mismatch(shop.ask_as("a", "POST", &release, secret("87654321").as_bytes()));
    let asks = json!({"argv": ["sh", "-c", "[ ${#TOKEN} = 9 ]"], "needs_secrets": ["TOKEN"]});
    let exec = shop.exec(&sandbox, &asks);
    assert_eq!(shop.frames(&exec).pop().unwrap()["exit_code"], 0, "it is the later one");

    // With the sandbox everything ends, but for what was answered.
    assert_eq!(shop.post(&format!("{sandbox}/stop"), &json!({})).0, 200);
    assert_eq!(put("a", b"first"), first);
    assert_eq!(put("d", b"first").0, 409);
    shop.close();
}

/// What is written in base64.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=').bytes();
    let values = digits.map(|digit| DIGITS.iter().position(|one| *one == digit).unwrap());
    let bits: Vec<bool> =
        values.flat_map(|value| (0..6).rev().map(move |bit| value >> bit & 1 == 1)).collect();
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    bits.chunks_exact(8).map(byte).collect()
}

#[test]
fn secrets_come_after_their_release_and_stand_nowhere() {
    let shop = Shop::open(&[]);
    let (_, sandbox) = shop.sandbox();
    let needs = json!({"argv": ["bash", "-c", "echo $TOKEN; [ ${#TOKEN} = 33 ]"], "needs_secrets": ["TOKEN"]});
    let early = shop.refused("POST", &format!("{sandbox}/exec"), needs.to_string().as_bytes());
    assert_eq!(early, (409, "hosting.secrets_not_released".to_owned()));
    let (status, released) =
        shop.post(&format!("{sandbox}/secrets"), &json!({"secrets": {"TOKEN": SECRET}}));
    assert_eq!((status, &released), (200, &json!({"names": ["TOKEN"]})));
    assert_eq!(shop.get(&sandbox).1["secrets_released"], true);
    // The command has it, and whoever reads what it prints does not.
    let exec = shop.exec(&sandbox, &needs);
    let mut frames = shop.frames(&exec);
    assert_eq!(frames.pop().unwrap()["exit_code"], 0);
    let printed: Vec<u8> =
        frames.iter().flat_map(|frame| decoded(&text(frame, "data_b64"))).collect();
    assert!(!String::from_utf8_lossy(&printed).contains("horse"), "it is printed");
    // Another command does not have it; a refusal does not repeat what was sent.
    let (_, last) = shop.shell(&sandbox, "[ -z \"$TOKEN\" ]");
    assert_eq!(last["exit_code"], 0);
    for bad in [
        json!({"secrets": {"1 BAD=": SECRET}}),
        json!({"secrets": {"A": [SECRET]}}),
        json!([SECRET]),
    ] {
        let (status, answer) =
            shop.ask("POST", &format!("{sandbox}/secrets"), bad.to_string().as_bytes());
        assert_eq!(status, 400, "{bad}");
        assert!(!String::from_utf8_lossy(&answer).contains("horse"), "it is repeated");
    }
    let token = shop.token.clone();
    let (said, operator) = shop.close();
    let secrets = [SECRET, token.trim_start_matches("ghs_")];
    assert_nowhere(&secrets, "the log", said.as_bytes());
    for (path, (_, bytes)) in operator.contents() {
        assert_nowhere(&secrets, &path.display().to_string(), &bytes);
    }
}

fn assert_nowhere(secrets: &[&str], place: &str, bytes: &[u8]) {
    for secret in secrets {
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "a secret is in {place}");
    }
}

#[test]
fn a_secret_that_is_somewhere_is_found() {
    let caught = std::panic::catch_unwind(|| assert_nowhere(&["abc"], "here", b"--abc--"));
    assert!(caught.is_err());
}

#[test]
fn a_nostr_key_signs_in_and_has_an_account_of_its_own() {
    let (operator, buyer) = (Home::new(), Home::new());
    let node = Node::up(&operator, &HOSTING);
    let url = format!("http://{}", node.address());
    let made = good(&buyer, &["key", "new"]);
    let wallet = text(&good(&buyer, &["login", "--host", &url]), "user_id");
    let nostr = text(&good(&buyer, &["login", "--host", &url, "--nostr"]), "user_id");
    assert_eq!(nostr, format!("nostr:{}", text(&made, "public_key")));
    assert!(wallet.starts_with("eip155:0x"));
    good(&operator, &["billing", "credit", &nostr, "1c", "--reference", "wire 1"]);
    assert_eq!(good(&buyer, &["billing", "balance"])["free_micro_usd"], 10_000);
    good(&buyer, &["job", "create", "--budget", "1500", "--ttl", "1h"]);
    good(&buyer, &["login", "--host", &url]);
    assert_eq!(good(&buyer, &["billing", "balance"])["free_micro_usd"], 0);
    assert_eq!(good(&buyer, &["job", "ls"])["jobs"], json!([]));
    // A node that says it is another one gets no proof that is good there.
    let port = node.address().rsplit_once(':').unwrap().1;
    let other = format!("http://[::ffff:127.0.0.1]:{port}");
    assert_ne!(buyer.run(&["login", "--host", &other, "--nostr"]).code, 0);
    node.stop();
}
