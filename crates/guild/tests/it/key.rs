#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use insta::assert_snapshot;

use crate::support::Home;

pub(crate) const KEYSTORE: &str = ".local/share/guildhall/keystore.json";

/// The secret 1: its names are known to everybody.
const ONE: &str = r#"{"schema_version":1,
"npub":"npub10xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqpkge6d",
"evm_address":"0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf",
"secret_hex":"0000000000000000000000000000000000000000000000000000000000000001"}"#;

fn home_with(keystore: &str) -> Home {
    let home = Home::new();
    let path = home.write(KEYSTORE, keystore);
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    home
}

fn refusal(home: &Home, args: &[&str]) -> String {
    let before = home.contents();
    let (code, answer) = home.json(args);
    assert_eq!(code, 2, "{answer}");
    assert_eq!(home.contents(), before, "nothing changed");
    answer["error"]["code"].as_str().unwrap().to_owned()
}

#[test]
fn a_known_key_has_its_known_names() {
    let home = home_with(ONE);
    assert_snapshot!(home.run(&["key", "show"]).shown(&home), @"
    exit 0
    --- stdout
    npub         npub10xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqpkge6d
    public key   79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798
    EVM address  0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf
    keystore     [HOME]/.local/share/guildhall/keystore.json (not encrypted)
    ");
    assert_snapshot!(home.run(&["key", "show", "--role", "provider", "--json"]).shown(&home), @r#"
    exit 0
    --- stdout
    {"ok":true,"role":"provider","npub":"npub1cp9eg20jwd9220268rv9eqmnw7kfch32pakk2q520y7qyr7we9psqf3jp3","public_key":"c04b9429f2734aa53d5a38d85c837377ac9c5e2a0f6d65028a793c020fcec943","evm_address":"0x26eBA42122d1DDb33155A6FEa2c0A9A95151D3bC","keystore":"[HOME]/.local/share/guildhall/keystore.json","encrypted":false}
    "#);
    assert_snapshot!(home.run(&["key", "show", "--secret"]).shown(&home), @"
    exit 0
    --- stdout
    npub         npub10xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqpkge6d
    public key   79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798
    EVM address  0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf
    nsec         nsec1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqsmhltgl
    keystore     [HOME]/.local/share/guildhall/keystore.json (not encrypted)
    --- stderr
    warning: whoever sees the nsec can act as this identity, for ever.
    ");
}

#[test]
fn a_new_key_is_for_its_owner_alone_and_never_overwritten() {
    let home = Home::new();
    let (code, made) = home.json(&["key", "new"]);
    assert_eq!((code, &made["encrypted"]), (0, &false.into()));
    let path = home.path().join(KEYSTORE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let directory = fs::metadata(path.parent().unwrap()).unwrap();
    assert_eq!(directory.permissions().mode() & 0o7777, 0o700);
    let names: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(names.len(), 1, "no temporary file is left");

    let (_, shown) = home.json(&["key", "show"]);
    assert_eq!(made, shown);
    assert_eq!(refusal(&home, &["key", "new"]), "keystore.exists");
    let (_, other) = home.json(&["key", "new", "--data-dir", "second"]);
    assert_ne!(made["npub"], other["npub"]);
}

#[test]
fn a_new_key_tells_what_to_keep() {
    let home = Home::new();
    let run = home.run(&["key", "new"]);
    insta::with_settings!({filters => vec![
        (r"npub1[a-z0-9]{58}", "[NPUB]"), (r"0x[0-9a-fA-F]{40}", "[ADDRESS]"), (r"[0-9a-f]{64}", "[KEY]"),
    ]}, {
        assert_snapshot!(run.shown(&home), @"
        exit 0
        --- stdout
        npub         [NPUB]
        public key   [KEY]
        EVM address  [ADDRESS]
        keystore     [HOME]/.local/share/guildhall/keystore.json (not encrypted)
        --- stderr
        Keep a copy of the keystore: it is the identity, and whoever has it can act as you.
        ");
    });
}

#[test]
fn the_secret_does_not_show_unless_asked_for() {
    let home = home_with(ONE);
    for args in [&["key", "show"][..], &["key", "show", "--role", "buyer"]] {
        let run = home.run(args);
        assert!(!run.stdout.contains("nsec") && !run.stdout.contains(&"0".repeat(60)));
    }
}

#[test]
fn a_passphrase_locks_the_secret_but_not_the_names() {
    let home = Home::new();
    let file = home.write("passphrase", "correct horse\n");
    let home = home.with("GUILD_PASSPHRASE_FILE", &file.display().to_string());
    let (code, made) = home.json(&["key", "new"]);
    assert_eq!((code, &made["encrypted"]), (0, &true.into()));
    let stored = fs::read_to_string(home.path().join(KEYSTORE)).unwrap();
    assert!(stored.contains("ncryptsec1") && !stored.contains("secret_hex"), "{stored}");
    let (_, buyer) = home.json(&["key", "show", "--role", "buyer"]);
    assert_ne!(buyer["npub"], made["npub"]);

    home.write("passphrase", "wrong horse");
    let (code, shown) = home.json(&["key", "show"]);
    assert_eq!((code, &shown["npub"]), (0, &made["npub"]));
    assert_eq!(refusal(&home, &["key", "show", "--secret"]), "key.passphrase_wrong");
    for bad in [&b""[..], b"\n", b"two\nlines\n", b"\xff"] {
        home.write("passphrase", bad);
        assert_eq!(refusal(&home, &["key", "show", "--secret"]), "keystore.no_passphrase");
    }
}

#[test]
fn without_a_terminal_nobody_is_asked() {
    let home = Home::new();
    let before = home.contents();
    let run = home.run_without_terminal(&["key", "new", "--passphrase", "--json"]);
    assert!(run.code == 2 && run.stdout.contains("keystore.no_passphrase"), "{run:?}");
    assert_eq!(home.contents(), before);
}

#[test]
fn a_keystore_that_others_can_read_is_refused_with_the_cure() {
    let home = home_with(ONE);
    let path = home.path().join(KEYSTORE);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert_snapshot!(home.run(&["key", "show"]).shown(&home), @"
    exit 2
    --- stderr
    error[keystore.permissions]: its mode is 0640, so other users can read or change it
      --> [HOME]/.local/share/guildhall/keystore.json
    help: Run `chmod 600 [HOME]/.local/share/guildhall/keystore.json`; if others may have read it, make a new key.
    ");
}

#[test]
fn a_keystore_that_is_not_one_is_refused() {
    let cases = [
        ("", "keystore.malformed"),
        ("{", "keystore.malformed"),
        ("[]", "keystore.malformed"),
        ("{}", "keystore.malformed"),
        (&ONE.replace("\"schema_version\":1", "\"schema_version\":2"), "keystore.version"),
        (&ONE.replace("\"schema_version\":1", "\"schema_version\":\"1\""), "keystore.malformed"),
        (&ONE.replace("secret_hex", "secret"), "keystore.malformed"),
        (&ONE.replace("npub10", "npub11"), "keystore.malformed"),
        (&ONE.replace("\"npub\"", "\"schema_version\":1,\"npub\""), "keystore.malformed"),
        (&ONE.replace("0000001\"", "0000001\",\"ncryptsec\":\"x\""), "keystore.malformed"),
        (&ONE.replace("0000001\"", "0000000\""), "key.secret_malformed"),
        (&ONE.replace("0000001\"", "0000002\""), "keystore.malformed"),
        (&ONE.replace("secret_hex", "ncryptsec"), "key.encrypted_malformed"),
    ];
    for (text, code) in cases {
        let home = home_with(text).with("GUILD_PASSPHRASE_FILE", "passphrase");
        home.write("passphrase", "x");
        assert_eq!(refusal(&home, &["key", "show", "--secret"]), code, "{text}");
    }
    assert_eq!(
        refusal(&home_with(ONE), &["key", "show", "--role", "Not A Role"]),
        "key.role_malformed"
    );
    assert_eq!(refusal(&Home::new(), &["key", "show"]), "keystore.missing");
}

#[test]
fn a_secret_is_not_repeated_in_a_refusal() {
    let (one, secret) = (format!("\"{:064x}\"", 1), "deadbeef".repeat(8));
    for text in [
        ONE.replace(&one, &format!("\"{secret}\"")),
        ONE.replace(&one, &format!("\"{secret}0\"")),
        ONE.replace(&one, &format!("[\"{secret}\"]")),
        ONE.replace(&one, &secret),
        ONE.replace("secret_hex", "npub").replace(&one, &format!("\"{secret}\"")),
    ] {
        let home = home_with(&text);
        let run = home.run(&["key", "show", "--secret"]);
        assert_eq!(run.code, 2);
        assert!(!run.stderr.contains("deadbeef"), "{run:?}");
    }
}
