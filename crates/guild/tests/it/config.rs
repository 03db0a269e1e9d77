use insta::assert_snapshot;

use crate::support::Home;

const FILE: &str = ".local/share/guildhall/guild.toml";

#[test]
fn each_layer_wins_over_the_one_below() {
    let home = Home::new()
        .with("GUILD_LOG_LEVEL", "debug")
        .with("GUILD_OUTBOX_MAX_ATTEMPTS", "7")
        .with("GUILD_STORE_URL", "postgres://guild:hunter2@db/guild")
        .with("GUILD_BUS_URL", "nats://guild:hunter2@bells:4222");
    home.write(
        FILE,
        "log = { level = \"warn\", format = \"json\" }\n[outbox]\nmax_attempts = 5\nlease_ms = 2000\n",
    );
    let args = ["config", "show", "--set", "outbox.max_attempts=9"];
    assert_snapshot!(home.run(&args).shown(&home), @r#"
    exit 0
    --- stdout
    # Read [HOME]/.local/share/guildhall/guild.toml
    # data_dir = "[HOME]/.local/share/guildhall"

    [log]
    level = "debug"  # from GUILD_LOG_LEVEL
    format = "json"  # from [HOME]/.local/share/guildhall/guild.toml

    [gateway]
    listen = "127.0.0.1:4848"
    hosts = ""

    [store]
    url = "postgres://guild:***@db/guild"  # from GUILD_STORE_URL
    queue_max_calls = 4096
    keep_events_days = 0
    slow_call_ms = 20

    [bus]
    url = "nats://guild:***@bells:4222"  # from GUILD_BUS_URL
    namespace = "guild"

    [outbox]
    lease_ms = 2000  # from [HOME]/.local/share/guildhall/guild.toml
    max_attempts = 9  # from --set

    [network]
    relays = ""
    polled_relays = ""
    discover_relays = true
    request_kinds = "5000,5050"
    jobs_lookback_hours = 24
    private_hints = false

    [content]
    max_mb = 4000
    public = true
    grace_minutes = 60
    collect_minutes = 60
    peers = ""
    peer_timeout_ms = 15000

    [policy]
    file = ""

    [relay]
    enabled = true
    max_events = 1000000
    max_mb = 2048
    connections_max = 512
    connections_per_address = 128
    frames_per_minute = 12000
    events_per_minute = 6000
    key_events_per_minute = 3000
    auth_to_read = false
    auth_to_write = false

    [provider]
    enabled = true
    name = ""
    price_msat = 1000
    concurrency = 2
    credit_msat = 1000000
    solver = ""

    [buyer]
    live_s = 900
    bid_prices = ""
    bid_price_msat = 2000
    bid_buffer_percent = 0
    bid_max_msat = 1000000
    hidden_rate_bp = 200
    hidden_max_msat = 100000

    [market]
    synonyms = "benchmark-task=benchmark|benchmarking|compute-benchmark|perf-test"
    trusted = ""
    trusted_reviewers = ""
    review_delay_s = 86400
    arbiters = ""
    dispute_s = 259200
    dispute_default = "stands"
    policy = "tiered"
    judge_model = ""
    copies = true
    public = false

    [meeting]
    silent_s = 30
    work_s = 300
    more_s = 60
    result_s = 60
    unresponsive_s = 86400
    budget_msat = 100000
    budget_day_msat = 1000000
    tools = ""

    [sandbox]
    backend = "ns"
    runtime = "runc"
    platform = ""
    timeout_ms = 10000
    image = ""
    require = ""
    mac_profile = ""
    ahead = 0

    [sandbox_run]
    enabled = false
    price_msat = 1000
    at_once = 2
    max_memory_mb = 1024
    max_cores = 2
    max_timeout_s = 600
    max_disk_mb = 512
    images = ""

    [hosting]
    enabled = false
    origins = ""
    chain_ids = "1,8453"
    images = "sandbox-base:v1.0.0=host"
    machine = "local"
    vcpu_micro_usd = 840
    ram_gib_micro_usd = 270
    keep_sign_ins_days = 90
    requests_per_minute = 600
    trusted_proxies = ""
    sign_in_without_proof = false

    [kernel]
    enabled = true
    worker_targets = "worker_generic"
    tasks = 64
    lease_ms = 30000
    max_steps = 8
    suspend_timeout_ms = 30000
    tools = "sandbox_run,ledger_balance"
    tool_env = ""
    hire_max_msat = 10000
    "#);
    let (_, answer) = home.json(&args);
    assert_eq!(answer["config"]["outbox"]["max_attempts"], 9);
    assert_eq!(answer["origins"]["outbox.max_attempts"], "--set");
    assert_eq!(answer["origins"]["log.level"], "GUILD_LOG_LEVEL");
    assert_eq!(answer["origins"].get("gateway.listen"), None);
    assert!(!answer.to_string().contains("hunter2"));
    let (_, all) = home.json(&["config", "show", "--origin"]);
    assert_eq!(all["origins"]["gateway.listen"], "default");
}

#[test]
fn what_is_shown_can_be_used_as_the_file() {
    let home = Home::new();
    let shown = home.run(&["config", "show", "--set", "log.level=trace"]).stdout;
    home.write(FILE, &shown);
    let (code, answer) = home.json(&["config", "show"]);
    assert_eq!((code, &answer["config"]["log"]["level"]), (0, &"trace".into()));
}

#[test]
fn the_data_directory_is_found_in_order() {
    let home = Home::new();
    let dir = |home: &Home, args: &[&str]| {
        let (_, answer) = home.json(&[&["config", "show"], args].concat());
        home.stable(answer["config"]["data_dir"].as_str().unwrap())
    };
    assert_eq!(dir(&home, &[]), "[HOME]/.local/share/guildhall");
    assert_eq!(dir(&home, &["--data-dir", "here"]), "[HOME]/here");
    home.write("other.toml", "data_dir = \"from-file\"\n");
    assert_eq!(dir(&home, &["--config", "other.toml"]), "[HOME]/from-file");
    let home = home.with("XDG_DATA_HOME", "/xdg");
    assert_eq!(dir(&home, &[]), "/xdg/guildhall");
    let home = home.with("GUILD_DATA_DIR", "/from-env");
    assert_eq!(dir(&home, &[]), "/from-env");
    assert_eq!(dir(&home, &["--config", "other.toml"]), "/from-env");
    assert_eq!(dir(&home, &["--set", "data_dir=/set"]), "/set");
}

#[test]
fn without_a_home_the_data_directory_must_be_named() {
    let home = Home::new();
    let output = home.command(&["config", "show", "--json"]).env_remove("HOME").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stdout).unwrap().contains("config.no_data_dir"));
}

#[test]
fn a_slip_gets_a_suggestion() {
    let home = Home::new().with("GUILD_GATEWAY_LISTN", "x");
    assert_snapshot!(home.run(&["config", "show"]).shown(&home), @"
    exit 2
    --- stderr
    error[config.unknown_key]: the environment variable GUILD_GATEWAY_LISTN is none of guild's
    help: Did you mean GUILD_GATEWAY_LISTEN? Otherwise unset it.
    ");
    let home = Home::new();
    home.write(FILE, "[gateway]\nlisten = \"127.0.0.1:1\"\nlisten_port = 5\n");
    assert_snapshot!(home.run(&["config", "show"]).shown(&home), @"
    exit 2
    --- stderr
    error[config.unknown_key]: there is no key gateway.listen_port
      --> [HOME]/.local/share/guildhall/guild.toml
    help: Did you mean gateway.listen?
    ");
    let home = Home::new();
    home.write(FILE, "[gateway]\nlisten = 127.0.0.1:1\n");
    assert_snapshot!(home.run(&["config", "show"]).shown(&home), @"
    exit 2
    --- stderr
    error[config.syntax]: invalid float, expected nothing
      --> [HOME]/.local/share/guildhall/guild.toml, line 2, column 15
    help: Fix the line named.
    ");
}

#[test]
fn bad_settings_are_refused_wherever_they_stand() {
    let cases = [
        ("log.level=loud", "config.bad_value"),
        ("gateway.listen=localhost", "config.bad_value"),
        ("gateway.listen=127.0.0.1:99999", "config.bad_value"),
        ("store.queue_max_calls=0", "config.bad_value"),
        ("store.queue_max_calls=-1", "config.bad_value"),
        ("store.queue_max_calls=99999999999999999999", "config.bad_value"),
        ("store.queue_max_calls=1e3", "config.bad_value"),
        ("outbox.lease_ms=99", "config.bad_value"),
        ("outbox.lease_ms=", "config.bad_value"),
        ("outbox=1", "config.unknown_key"),
        ("=1", "config.unknown_key"),
        ("a.b.c.d=1", "config.unknown_key"),
        ("novalue", "cli.usage"),
    ];
    for (setting, code) in cases {
        let home = Home::new();
        let (exit, answer) = home.json(&["config", "show", "--set", setting]);
        assert_eq!((exit, answer["error"]["code"].as_str().unwrap()), (2, code), "{setting}");
    }
}

#[test]
fn bad_files_are_refused_by_every_command_that_reads_settings() {
    let deep = format!("a = {}{}", "[".repeat(5000), "]".repeat(5000));
    let long = format!("[log]\nlevel = \"{}\"", "x".repeat(2_000_000));
    let cases: [(&[u8], &str); 14] = [
        (b"[log\nlevel = 3", "config.syntax"),
        (b"[log]\nlevel = \"info\"\nlevel = \"debug\"\n", "config.syntax"),
        (b"\xff\xfe", "config.syntax"),
        (b"[store]\nqueue_max_calls = 99999999999999999999", "config.syntax"),
        (deep.as_bytes(), "config.syntax"),
        (long.as_bytes(), "io.too_large"),
        (b"[log]\nlevel = 3", "config.bad_value"),
        (b"[log]\nlevel = [\"info\"]", "config.bad_value"),
        (b"[store]\nqueue_max_calls = \"many\"", "config.bad_value"),
        (b"[store]\nqueue_max_calls = 1.5", "config.bad_value"),
        (b"[store]\nqueue_max_calls = true", "config.bad_value"),
        (b"log = 3", "config.unknown_key"),
        (b"[colour]\nof = \"money\"", "config.unknown_key"),
        (b"data_dir = \"/elsewhere\"", "config.bad_value"),
    ];
    for (text, code) in cases {
        let home = Home::new();
        home.write(FILE, text);
        let before = home.contents();
        for command in [&["config", "show"][..], &["key", "new"], &["key", "show"], &["doctor"]] {
            let (exit, answer) = home.json(command);
            let shown = String::from_utf8_lossy(&text[..text.len().min(80)]);
            assert_eq!((exit, answer["error"]["code"].as_str()), (2, Some(code)), "{shown}");
            home.run(command).assert_no_panic();
        }
        assert_eq!(home.contents(), before);
        // What only looks at the file it is given works all the same.
        assert_eq!(home.run_with_input(&["hash", "-"], b"1").code, 0);
    }
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let home = Home::new();
    let (exit, answer) = home.json(&["config", "show", "--config", "nope.toml"]);
    assert_eq!((exit, answer["error"]["code"].as_str()), (2, Some("io.not_found")));
    let (exit, answer) = home.json(&["config", "show", "--config", "."]);
    assert_eq!((exit, answer["error"]["code"].as_str()), (2, Some("io.not_a_file")));
}

#[test]
fn the_reference_names_every_key() {
    let home = Home::new();
    let (_, answer) = home.json(&["config", "show", "--docs"]);
    let text = home.run(&["config", "show", "--docs"]).stdout;
    let keys = answer["keys"].as_array().unwrap();
    assert!(keys.len() >= 8);
    for key in keys {
        assert!(text.contains(&format!("environment: {}\n", key["env"].as_str().unwrap())));
        assert!(!key["meaning"].as_str().unwrap().is_empty());
    }
}
