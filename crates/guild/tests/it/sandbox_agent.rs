//! `guild sandbox-agent`, as the process that it is.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use guild_protocol::env::{BoxFuture, Clock, Random, Signer};
use guild_protocol::hash::to_hex;
use guild_protocol::identity::SecretKey;
use guild_sandbox::agent::{Client, ExecRequest, Party, Secrets};
use serde_json::Value;

use crate::support::Home;

const SANDBOX: &str = "sandbox_0192345678907abc8def0123456789ab";

struct Real;

impl Clock for Real {
    fn now_ms(&self) -> i64 {
        testbed::now_ms()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0))))
    }
}

impl Random for Real {
    fn fill(&self, bytes: &mut [u8]) {
        fs::File::open("/dev/urandom").unwrap().read_exact(bytes).unwrap();
    }
}

/// An agent that runs.
struct Running {
    process: Child,
    ready: Value,
    client: Client,
}

fn start(home: &Home, more: &[&str]) -> Running {
    let controller = SecretKey::make(&Real);
    let npub = controller.public_key().npub();
    let args = ["sandbox-agent", "--sandbox-id", SANDBOX, "--controller", &npub, "-vvvv"];
    let mut command = home.command(&[&args, more].concat());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // To a file: nobody reads a pipe meanwhile.
    let log = fs::File::create(home.path().join("agent.log")).unwrap();
    let mut process = command.stderr(log).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let agent = ready["agent"].as_str().unwrap().parse().unwrap();
    let party = Party { sandbox_id: SANDBOX.parse().unwrap(), agent };
    let address = ready["address"].as_str().unwrap();
    let client = Client::new(address, party, Arc::new(controller), Arc::new(Real), Arc::new(Real));
    Running { process, ready, client }
}

fn shell(code: &str) -> ExecRequest {
    let argv = ["sh", "-c", code].map(str::to_owned).to_vec();
    ExecRequest { argv, ..ExecRequest::default() }
}

async fn printed(client: &Client, request: &ExecRequest) -> String {
    let id = client.exec(request).await.unwrap();
    let (out, err, _) = client.stream(&id, 1).collect(1 << 20).await.unwrap();
    String::from_utf8_lossy(&[out, err].concat()).into_owned()
}

/// Processes with this word in their line.
fn with_word(word: &str) -> Vec<String> {
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(word)).collect()
}

/// Starts something that would stay for long, known by a word of its own.
async fn linger(client: &Client, word: &str) {
    let code = format!("sleep {word} & setsid sleep {word} & echo ready; exec sleep {word}");
    let id = client.exec(&shell(&code)).await.unwrap();
    client.stream(&id, 1).next().await.unwrap();
    assert!(!with_word(word).is_empty());
}

async fn all_gone(word: &str) -> bool {
    for _ in 0..500 {
        if with_word(word).is_empty() {
            return true;
        }
        Real.sleep(20).await;
    }
    false
}

#[tokio::test]
async fn it_says_where_it_is_and_ends_on_a_signal_with_everything() {
    let home = Home::new();
    let mut agent = start(&home, &["--image-version", "sandbox-base:v1.0.0"]);
    assert_eq!(
        (agent.ready["ok"].as_bool(), agent.ready["sandbox_id"].as_str()),
        (Some(true), Some(SANDBOX))
    );
    let said = agent.client.attestation().await.unwrap().attestation;
    assert_eq!(
        (said.mode.as_str(), said.image_version.as_str()),
        ("standard", "sandbox-base:v1.0.0")
    );
    assert_eq!(printed(&agent.client, &shell("echo hello")).await, "hello\n");
    linger(&agent.client, "98765.4301").await;
    let pid = rustix::process::Pid::from_child(&agent.process);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(agent.process.wait().unwrap().success());
    assert!(with_word("98765.4301").is_empty(), "all is gone when it is");
}

#[tokio::test]
async fn killed_it_leaves_nothing() {
    let home = Home::new();
    let mut agent = start(&home, &[]);
    linger(&agent.client, "98765.4302").await;
    agent.process.kill().unwrap();
    agent.process.wait().unwrap();
    assert!(all_gone("98765.4302").await);
}

#[tokio::test]
async fn at_the_end_of_its_lease_it_ends_by_itself() {
    let home = Home::new();
    let until = (Real.now_ms() + 3_000).to_string();
    let mut agent = start(&home, &["--run-until", &until, "--linger-ms", "0"]);
    linger(&agent.client, "98765.4303").await;
    assert!(all_gone("98765.4303").await);
    assert!(agent.process.wait().unwrap().success());
}

#[tokio::test]
async fn no_log_and_no_output_shows_a_secret() {
    let value = "v3ry secret/value+é";
    let home = Home::new();
    let mut agent = start(&home, &[]);
    let client = &agent.client;
    let attested = client.attestation().await.unwrap();
    let secrets = Secrets::new().with("TOKEN", value);
    client.release_secrets(&secrets, &attested).await.unwrap();
    let needs_secrets = BTreeSet::from(["TOKEN".to_owned()]);
    let code = "echo \"$TOKEN\"; echo \"$TOKEN\" | base64; printf %s \"$TOKEN\" | od -An -tx1 | tr -d ' \\n'; \"$TOKEN\"";
    let text =
        printed(client, &ExecRequest { needs_secrets: needs_secrets.clone(), ..shell(code) }).await;
    let wrong = ExecRequest { needs_secrets, cwd: Some(format!("/{value}")), ..shell("true") };
    let error = client.exec(&wrong).await.unwrap_err().to_string();
    let refused = client.get_file(value).await.err().unwrap().to_string();
    client.shutdown().await.unwrap();
    assert!(agent.process.wait().unwrap().success());
    let log = fs::read_to_string(home.path().join("agent.log")).unwrap();
    assert!(log.contains("secrets were released"), "{log}");
    let forms =
        [value, "v3ry secret", "djNyeSBzZWNyZXQvdmFsdWUr", &to_hex(value.as_bytes()), "v3ry%20"];
    for place in [&text, &error, &refused, &log] {
        for form in forms {
            assert!(!place.contains(form), "{form} stands in {place}");
        }
    }
    assert!(text.matches("[secret]").count() >= 4, "{text}");
}

#[tokio::test]
async fn large_files_pass_through_little_memory() {
    let home = Home::new();
    let agent = start(&home, &["--disk-mib", "300", "--memory-mib", "600"]);
    let bytes: Vec<u8> = (0..200u32 << 18).flat_map(u32::to_be_bytes).collect();
    let written = agent.client.put_file("large", false, &bytes).await.unwrap();
    assert_eq!(written.bytes, 200 << 20);
    let mut download = agent.client.get_file("large").await.unwrap();
    let mut read = 0;
    while let Some(piece) = download.piece().await.unwrap() {
        assert_eq!(piece, bytes[read..read + piece.len()]);
        read += piece.len();
    }
    assert_eq!(read, bytes.len());
    let status = fs::read_to_string(format!("/proc/{}/status", agent.process.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib < 100 << 10, "{peak_kib} KiB");
    agent.client.shutdown().await.unwrap();
}

#[tokio::test]
async fn its_key_stays_in_its_file() {
    let home = Home::new();
    let mut first = start(&home, &["--key-file", "agent.key"]);
    first.client.shutdown().await.unwrap();
    first.process.wait().unwrap();
    let path = home.path().join("agent.key");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut second = start(&home, &["--key-file", "agent.key"]);
    assert_eq!(first.ready["agent"], second.ready["agent"]);
    second.client.shutdown().await.unwrap();
    second.process.wait().unwrap();
}

#[test]
fn mistakes_are_named() {
    let home = Home::new();
    let key = home.write("open.key", "11".repeat(32));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let good = SecretKey::make(&Real).public_key().hex();
    let run = |args: &[&str]| {
        let (code, answer) = home.json(&[&["sandbox-agent"], args].concat());
        (code, answer["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    let with =
        |more: &[&str]| run(&[&["--sandbox-id", SANDBOX, "--controller", &good], more].concat());
    let usage = (2, "cli.usage".to_owned());
    assert_eq!(run(&["--sandbox-id", SANDBOX]), usage);
    assert_eq!(run(&["--sandbox-id", "box", "--controller", &good]), usage);
    assert_eq!(run(&["--sandbox-id", SANDBOX, "--controller", "npub1x"]), usage);
    assert_eq!(with(&["--listen", "nowhere"]), usage);
    assert_eq!(with(&["--image", "/no/such/image"]), (2, "sandbox.no_image".to_owned()));
    assert_eq!(with(&["--memory-mib", "0"]), (2, "sandbox.bad_limit".to_owned()));
    assert_eq!(with(&["--key-file", "open.key"]), (2, "keystore.permissions".to_owned()));
    assert_eq!(with(&["--listen", "192.0.2.1:1"]), (3, "node.listen".to_owned()));
}

#[tokio::test]
async fn it_awaits_its_lease_and_writes_where_it_is() {
    let home = Home::new();
    let mut agent = start(&home, &["--await-lease", "--ready-file", "ready.json"]);
    let path = home.path().join("ready.json");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let written: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for field in ["address", "sandbox_id", "agent", "pid"] {
        assert_eq!(written[field], agent.ready[field], "{field}");
    }
    let refused = agent.client.exec(&shell("true")).await.unwrap_err();
    assert_eq!(refused.code().name, "agent.not_leased");
    agent.client.lease(Real.now_ms() + 60_000).await.unwrap();
    assert_eq!(printed(&agent.client, &shell("echo hello")).await, "hello\n");
    agent.client.shutdown().await.unwrap();
    assert!(agent.process.wait().unwrap().success());
}
