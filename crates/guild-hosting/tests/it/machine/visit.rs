//! Commands, files, ports and secrets, for whoever owns a sandbox.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use guild_hosting::machine::visit::{Door, Limits, Visit};
use guild_hosting::sandbox::{self, Status};
use guild_hosting::{Error, Result, SandboxId};
use guild_protocol::env::Clock;
use guild_protocol::hash::Hash;
use guild_sandbox::agent::{ExecRequest, Secrets};

use super::super::world::{sandbox_id, user};
use super::{Real, Shop, shell};

fn code_of<T>(answer: Result<T>) -> &'static str {
    match answer {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.code().name,
    }
}

async fn printed(visit: &Visit, request: &ExecRequest) -> Result<String> {
    let id = visit.exec(request).await?;
    let (out, err, _) = visit.stream(&id, 1).collect(1 << 20).await.map_err(Error::Agent)?;
    Ok(String::from_utf8_lossy(&[out, err].concat()).into_owned())
}

/// A shop with a sandbox that runs.
fn open() -> (Shop, SandboxId) {
    let shop = Shop::new();
    shop.drive();
    let id = shop.order(1);
    let row = shop.until_status(1, Status::Running);
    shop.until("it has its lease", || shop.health(&row).leased);
    (shop, id)
}

#[test]
fn commands_files_and_ports() {
    let (shop, id) = open();
    let door = shop.door();
    let used_ms = shop.row(1).last_activity_ms;
    let port = shop.row(1).endpoint.unwrap().rsplit(':').next().unwrap().parse().unwrap();
    shop.until("a while later", || Real.now_ms() > used_ms + 1_500);
    shop.runtime.block_on(async {
        let visit = door.enter(&user(1), &id).await.unwrap();
        assert_eq!(visit.sandbox().sandbox_id, id);
        assert_eq!(printed(&visit, &shell("echo hello")).await.unwrap(), "hello\n");
        let content = b"line\n".as_slice();
        let written = visit.upload("dir/a.txt", false, &mut { content }, 5, Hash::of(content)).await;
        assert_eq!(written.unwrap().bytes, 5);
        assert_eq!(printed(&visit, &shell("cat dir/a.txt")).await.unwrap(), "line\n");
        let names = visit.list("dir").await.unwrap();
        assert_eq!((names.len(), names[0].name.as_str()), (1, "a.txt"));
        let got = visit.download("dir/a.txt").await.unwrap().whole(100).await.unwrap();
        assert_eq!(got, b"line\n");
        let archive = visit.download_archive("dir").await.unwrap().whole(1 << 20).await.unwrap();
        let (length, hash) = (archive.len() as u64, Hash::of(&archive));
        visit.upload_archive("copy", &mut archive.as_slice(), length, hash).await.unwrap();
        assert_eq!(printed(&visit, &shell("cat copy/a.txt")).await.unwrap(), "line\n");
        visit.delete("dir").await.unwrap();
        let names = visit.list("").await.unwrap();
        assert_eq!(names.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["copy"]);

        // Input, and an end by signal.
        let cat = ExecRequest { stdin_open: true, ..shell("cat") };
        let cat = visit.exec(&cat).await.unwrap();
        visit.stdin(&cat, "a", b"typed", true).await.unwrap();
        assert_eq!(visit.stream(&cat, 1).collect(100).await.unwrap().0, b"typed");
        let sleep = visit.exec(&shell("sleep 1000")).await.unwrap();
        visit.signal(&sleep, "a", 9).await.unwrap();
        assert_eq!(visit.stream(&sleep, 1).collect(100).await.unwrap().2.signal, Some(9));

        // A port of this sandbox, and of nobody else.
        let code = "import socket; s = socket.create_server(('127.0.0.1', 8123)); print('up', flush=True); \
                    c, _ = s.accept(); c.sendall(c.recv(100).upper()); c.close()";
        let argv = ["python3", "-c", code].map(str::to_owned).to_vec();
        let server = visit.exec(&ExecRequest { argv, ..ExecRequest::default() }).await.unwrap();
        visit.stream(&server, 1).next().await.unwrap();
        let mut tunnel = visit.connect(8123).await.unwrap();
        tunnel.send(b"ping").await.unwrap();
        assert_eq!(tunnel.receive().await.unwrap().unwrap(), b"PING");
        // The agent's own port on the host is not one of the sandbox.
        assert_eq!(code_of(visit.connect(port).await), "agent.port_refused");
        visit.touch().await.unwrap();
    });
    assert!(shop.row(1).last_activity_ms > used_ms, "its use was written down");
}

#[test]
fn limits_hold() {
    let (shop, id) = open();
    let limits = Limits {
        timeout_ms: 500,
        timeout_max_ms: 1_000,
        output_max_bytes: 1_000,
        file_max_bytes: 10,
    };
    let door = Door::new(shop.node.store.clone(), shop.link(), limits);
    shop.runtime.block_on(async {
        let visit = door.enter(&user(1), &id).await.unwrap();
        for timeout_ms in [None, Some(1 << 40)] {
            let request = ExecRequest { timeout_ms, ..shell("sleep 1000") };
            let exec = visit.exec(&request).await.unwrap();
            let (_, _, last) = visit.stream(&exec, 1).collect(100).await.unwrap();
            assert!(last.exit_code.is_none(), "{last:?}");
        }
        let request = ExecRequest { max_output: Some(1 << 40), ..shell("yes | head -c 100000") };
        let exec = visit.exec(&request).await.unwrap();
        let (out, _, last) = visit.stream(&exec, 1).collect(1 << 20).await.unwrap();
        assert!(out.len() <= 1_000 && last.truncated, "{} {last:?}", out.len());
        let large = [0_u8; 11];
        let answer = visit.upload("a", false, &mut large.as_slice(), 11, Hash::of(&large)).await;
        assert_eq!(code_of(answer), "hosting.too_large");
        let answer = visit.upload_archive("a", &mut large.as_slice(), 11, Hash::of(&large)).await;
        assert_eq!(code_of(answer), "hosting.too_large");
        for path in ["../a", "/etc/passwd", "a/../../b"] {
            let error = visit.download(path).await.err().unwrap();
            assert_eq!(error.kind().http_status(), 400, "{path}: {error}");
        }
    });
}

#[test]
fn only_the_owner_enters_and_only_what_runs() {
    let (shop, id) = open();
    let door = shop.door();
    let (shop, door) = (&shop, &door);
    let enter = |n: u8, id: &SandboxId| shop.runtime.block_on(door.enter(&user(n), id));
    let read = |n: u8, id: &SandboxId| shop.runtime.block_on(door.enter_to_read(&user(n), id));
    assert_eq!(code_of(enter(2, &id)), "hosting.unknown_sandbox");
    assert_eq!(code_of(read(2, &id)), "hosting.unknown_sandbox");
    assert_eq!(code_of(enter(1, &sandbox_id(99))), "hosting.unknown_sandbox");

    let (pausing, now_ms) = (id.clone(), shop.now_ms());
    shop.node.write(move |tx| sandbox::pause(tx, &user(1), &pausing, now_ms)).unwrap();
    assert_eq!(code_of(enter(1, &id)), "hosting.not_running");
    let resuming = id.clone();
    shop.node.write(move |tx| sandbox::resume(tx, &user(1), &resuming, now_ms)).unwrap();
    let visit = enter(1, &id).unwrap();
    shop.until("it goes on", || {
        let row = shop.row(1);
        shop.health(&row).state == guild_sandbox::agent::State::Running
    });
    let content = b"kept".as_slice();
    let mut body = content;
    let upload = visit.upload("note", false, &mut body, 4, Hash::of(content));
    shop.runtime.block_on(upload).unwrap();

    let (stopping, now_ms) = (id.clone(), shop.now_ms());
    shop.node.write(move |tx| sandbox::stop(tx, &user(1), &stopping, now_ms)).unwrap();
    assert_eq!(code_of(enter(1, &id)), "hosting.not_running");
    shop.until_status(1, Status::Stopped);
    // Whoever was inside is out, and files can be fetched but not written.
    assert_eq!(code_of(shop.runtime.block_on(visit.exec(&shell("true")))), "hosting.not_running");
    assert_eq!(code_of(read(2, &id)), "hosting.unknown_sandbox");
    let visit = read(1, &id).unwrap();
    let got = shop.runtime.block_on(async { visit.download("note").await.unwrap().whole(9).await });
    assert_eq!(got.unwrap(), b"kept");
    let mut body = content;
    let upload = visit.upload("more", false, &mut body, 4, Hash::of(content));
    assert_eq!(code_of(shop.runtime.block_on(upload)), "hosting.not_running");

    let (gone, now_ms) = (id.clone(), shop.now_ms());
    shop.node.write(move |tx| sandbox::destroy(tx, &user(1), &gone, now_ms)).unwrap();
    shop.until_status(1, Status::Destroyed);
    assert_eq!(code_of(read(1, &id)), "hosting.not_running");
}

/// All that is logged while a test runs, at every level.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn secrets_come_after_the_attestation_and_stand_in_no_log() {
    let logged = Logged::default();
    let to = logged.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || to.clone())
        .finish();
    // For all threads of this program, and so for other tests too: they log no secrets either.
    let _ = tracing::subscriber::set_global_default(subscriber);
    let value = "v3ry-secret-value-of-the-test";
    let (shop, id) = open();
    let door = shop.door();
    let mut said = String::new();
    shop.runtime.block_on(async {
        let visit = door.enter(&user(1), &id).await.unwrap();
        let needs_secrets = BTreeSet::from(["TOKEN".to_owned()]);
        let code = "echo \"$TOKEN\"; echo \"$TOKEN\" | base64; \"$TOKEN\"";
        let request = ExecRequest { needs_secrets, ..shell(code) };
        let error = visit.exec(&request).await.unwrap_err();
        assert_eq!(
            (error.code().name, error.kind().http_status()),
            ("hosting.secrets_not_released", 409)
        );
        let secrets = Secrets::new().with("TOKEN", value);
        said += &format!("{secrets:?}");
        assert_eq!(visit.release_secrets(&secrets).await.unwrap(), ["TOKEN"]);
        // The next one who enters sees that they are there.
        let visit = door.enter(&user(1), &id).await.unwrap();
        assert!(visit.sandbox().secrets_ms.is_some());
        let text = printed(&visit, &request).await.unwrap();
        assert!(text.contains("[secret]"), "{text}");
        said += &text;
        let needs_secrets = BTreeSet::from(["OTHER".to_owned()]);
        let error = visit.exec(&ExecRequest { needs_secrets, ..shell("true") }).await.unwrap_err();
        assert_eq!(error.code().name, "hosting.secrets_not_released");
        let error = visit.exec(&ExecRequest { cwd: Some(format!("/{value}")), ..request }).await;
        said += &format!("{0} {0:?}", error.unwrap_err());
        assert_eq!(printed(&visit, &shell("env | grep -c TOKEN")).await.unwrap(), "0\n");
    });
    let directory = shop.host.root().join(id.as_str());
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        said += &std::fs::read_to_string(entry.path()).unwrap_or_default();
    }
    said += &format!("{:?}", shop.row(1));
    said += &String::from_utf8_lossy(&logged.0.lock().unwrap());
    assert!(!said.contains(value) && !said.contains("djNyeS1zZWNyZXQ"), "a secret is shown");
}

#[test]
fn secrets_go_to_nobody_who_is_not_what_was_bought() {
    let (shop, id) = open();
    // The row says that something else was bought than what the agent says it is.
    let sql = "UPDATE hosting_sandbox SET image = 'sandbox-base:v9.9.9'";
    shop.node.write(move |tx| Ok(tx.exec(sql, guild_store::args![]).map(drop)?)).unwrap();
    let answer = shop.runtime.block_on(async {
        let visit = shop.door().enter(&user(1), &id).await.unwrap();
        visit.release_secrets(&Secrets::new().with("TOKEN", "correct horse")).await
    });
    assert_eq!(code_of(answer), "hosting.not_attested");
    assert_eq!(shop.row(1).secrets_ms, None);
    assert!(!shop.health(&shop.row(1)).secrets_released);
}
