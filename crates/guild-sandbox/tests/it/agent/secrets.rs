//! Secrets reach the command that names them, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_protocol::env::Signer;
use guild_protocol::hash::to_hex;
use guild_protocol::identity::SecretKey;
use guild_sandbox::agent::{Client, ExecRequest, Nonce, Secrets};

use super::super::oci::{is_root, runc};
use super::{Dice, FIRST_LEASE_MS, IMAGE, Real, World, refused, run, shell, words};

const VALUE: &str = "s3cr3t/Value+with \"marks\"&more=é";

fn secrets() -> Secrets {
    Secrets::new().with("TOKEN", VALUE).with("OTHER", "another value")
}

fn needing(names: &[&str], request: ExecRequest) -> ExecRequest {
    let needs_secrets: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    ExecRequest { needs_secrets, ..request }
}

async fn release(client: &Client) {
    let attested = client.attestation().await.unwrap();
    assert_eq!(client.release_secrets(&secrets(), &attested).await.unwrap(), ["OTHER", "TOKEN"]);
}

#[tokio::test]
async fn the_attestation_is_exactly_three_fields() {
    let world = World::new();
    let attested = world.client.attestation().await.unwrap();
    let text = serde_json::to_string(&attested.attestation).unwrap();
    let expected = format!(r#"{{"mode":"standard","image_version":"{IMAGE}","measurement":null}}"#);
    assert_eq!(text, expected);
}

#[tokio::test]
async fn a_command_that_needs_them_is_refused_before_they_are_released() {
    let world = World::new();
    let client = &world.client;
    let request = needing(&["TOKEN"], shell("echo ${#TOKEN} > /workspace/length"));
    assert_eq!(refused(client.exec(&request).await), "agent.secrets_not_released");
    assert!(!client.health().await.unwrap().secrets_released);
    release(client).await;
    assert!(client.health().await.unwrap().secrets_released);
    assert_eq!(run(client, &request).await.2.exit_code, Some(0));
    let (out, _, _) = run(client, &words(&["cat", "/workspace/length"])).await;
    assert_eq!(out.trim(), VALUE.len().to_string());
    let unknown = needing(&["NOBODY"], shell("true"));
    assert_eq!(refused(client.exec(&unknown).await), "agent.secrets_not_released");
}

#[tokio::test]
async fn they_are_released_once_for_each_attestation() {
    let world = World::new();
    let client = &world.client;
    let attested = client.attestation().await.unwrap();
    let never = guild_sandbox::agent::Attested { nonce: Nonce::make(&Dice), ..attested.clone() };
    assert_eq!(refused(client.release_secrets(&secrets(), &never).await), "agent.not_attested");
    client.release_secrets(&secrets(), &attested).await.unwrap();
    assert_eq!(refused(client.release_secrets(&secrets(), &attested).await), "agent.not_attested");
    let again = client.attestation().await.unwrap();
    let fewer = Secrets::new().with("NEW", "a new value");
    assert_eq!(client.release_secrets(&fewer, &again).await.unwrap(), ["NEW"]);
    // What was released before is gone for commands, and still masked.
    let old = needing(&["TOKEN"], shell("true"));
    assert_eq!(refused(client.exec(&old).await), "agent.secrets_not_released");
    let echo =
        ExecRequest { env: [("X".to_owned(), VALUE.to_owned())].into(), ..shell("echo \"$X\"") };
    assert_eq!(run(client, &echo).await.0, "[secret]\n");
}

#[tokio::test]
async fn what_is_sealed_for_another_agent_cannot_be_opened() {
    let world = World::new();
    let attested = world.client.attestation().await.unwrap();
    let other = SecretKey::make(&Dice).public_key();
    let release = secrets().seal(&other, attested.nonce, &Dice).unwrap();
    let body = serde_json::to_string(&release).unwrap();
    assert!(!body.contains("s3cr3t"));
    let too_short = Secrets::new().with("PIN", "1234");
    assert_eq!(
        refused(world.client.release_secrets(&too_short, &attested).await),
        "agent.bad_request"
    );
}

/// A runtime gives no landlock, so every command could read what others were given.
#[tokio::test]
async fn where_commands_are_not_kept_apart_nobody_gets_them() {
    if !is_root() {
        return;
    }
    let world = World::of(runc(), Arc::new(Real), FIRST_LEASE_MS);
    let client = &world.client;
    release(client).await;
    let request = needing(&["TOKEN"], shell("touch /workspace/ran"));
    assert_eq!(refused(client.exec(&request).await), "sandbox.layer_missing");
    assert_eq!(run(client, &shell("ls /workspace; echo other")).await.0, "other\n");
}

#[tokio::test]
async fn only_the_one_command_has_them() {
    let world = World::new();
    let client = &world.client;
    release(client).await;
    let holder = needing(&["TOKEN"], shell("[ -n \"$TOKEN\" ] && echo has && exec sleep 1000"));
    let id = client.exec(&holder).await.unwrap();
    assert_eq!(client.stream(&id, 1).next().await.unwrap().unwrap().data_b64.0, b"has\n");
    let (out, _, _) = run(client, &shell("echo \"[$TOKEN$OTHER]\"; env")).await;
    assert!(out.starts_with("[]\n") && !out.contains("TOKEN"), "{out}");
    let (out, _, _) = run(client, &needing(&["OTHER"], shell("echo \"[$TOKEN]\""))).await;
    assert_eq!(out, "[]\n");
    // Nothing stands in the words of a process, nor in a file.
    let (out, _, _) = run(client, &shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).await;
    assert!(!out.contains("s3cr3t"), "{out}");
    let argv = words(&["echo", VALUE]);
    assert_eq!(refused(client.exec(&argv).await), "agent.bad_request");
    let (out, _, _) = run(client, &shell("grep -rl 's3cr3t/V' /workspace /tmp /dev/shm")).await;
    assert_eq!(out, "");
}

#[tokio::test]
async fn they_are_masked_in_every_form_that_a_command_prints() {
    let world = World::new();
    let client = &world.client;
    release(client).await;
    let code = "import os, sys, base64, json, urllib.parse as u, time\n\
        t = os.environ['TOKEN']; b = t.encode()\n\
        forms = [t, b.hex(), b.hex().upper(), base64.b64encode(b).decode(), base64.urlsafe_b64encode(b).decode(),\n\
        \x20 base64.b64encode(b'user:' + b + b'@host').decode(), base64.encodebytes(b * 3).decode(),\n\
        \x20 u.quote(t), u.quote_plus(t), u.quote(t, safe=''), json.dumps({'t': t}), json.dumps(t, ensure_ascii=False)]\n\
        for f in forms: print(f)\n\
        for f in forms: print(f, file=sys.stderr)\n\
        for c in t: sys.stdout.write(c); sys.stdout.flush(); time.sleep(0.002)\n\
        print()\n\
        raise SystemExit('failed with ' + t)\n";
    let (out, err, last) = run(client, &needing(&["TOKEN"], words(&["python3", "-c", code]))).await;
    assert_eq!(last.exit_code, Some(1), "{err}");
    let all = format!("{out}{err}");
    assert!(all.matches("[secret]").count() >= 26, "{all}");
    for form in every_form() {
        assert!(!all.contains(&form), "{form} stands in {all}");
    }
}

/// What must not stand anywhere.
pub(super) fn every_form() -> Vec<String> {
    let hex = to_hex(VALUE.as_bytes());
    let base64 = "czNjcjN0L1ZhbHVlK3dpdGggIm1hcmtzIiZtb3JlPc";
    let plain =
        ["s3cr3t/Value", "s3cr3t%2FValue", "s3cr3t%2fValue", "marks\\\"&more", "marks%22%26more"];
    let mut all: Vec<String> = plain.iter().map(|form| (*form).to_owned()).collect();
    all.extend([hex.clone(), hex.to_uppercase(), base64.to_owned(), base64[..20].to_owned()]);
    all
}

#[tokio::test]
async fn refusals_do_not_repeat_them() {
    let world = World::new();
    let client = &world.client;
    release(client).await;
    let cases = [
        ExecRequest { cwd: Some(format!("/tmp/{VALUE}")), ..words(&["true"]) },
        ExecRequest { cwd: Some(VALUE.to_owned()), ..words(&["true"]) },
        words(&[&format!("/bin/{VALUE}")]),
        ExecRequest { env: [(format!("{VALUE}=x"), String::new())].into(), ..words(&["true"]) },
    ];
    for request in cases {
        let error = client.exec(&request).await.unwrap_err().to_string();
        assert!(every_form().iter().all(|form| !error.contains(form)), "{error}");
    }
    let error = client.get_file(&format!("none/{VALUE}")).await.err().unwrap().to_string();
    assert!(every_form().iter().all(|form| !error.contains(form)), "{error}");
}

#[tokio::test]
async fn nothing_is_given_after_the_end() {
    let world = World::new();
    release(&world.client).await;
    world.client.stop().await.unwrap();
    assert!(!world.client.health().await.unwrap().secrets_released);
    let attested = world.client.attestation().await.unwrap();
    assert_eq!(refused(world.client.release_secrets(&secrets(), &attested).await), "agent.ended");
}
