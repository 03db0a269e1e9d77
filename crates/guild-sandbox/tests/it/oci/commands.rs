//! Commands in a sandbox of a runtime that stays, and its files seen from outside.

use std::io::{BufRead, BufReader, Read, Write};

use std::time::Duration;

use guild_sandbox::{Class, Exec, ExecCollected, Oci, OciOptions, Profile, Running, Sandbox, Spec};

use super::super::support::{launcher, limits};
use super::super::traces::Traces;
use super::{is_root, program, runc, script};

#[expect(clippy::disallowed_methods, reason = "a test may wait for another process")]
fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]
fn stay(profile: Profile) -> Running {
    let limits = guild_sandbox::Limits { pids: 60, ..limits() };
    runc().start(&Spec { profile, ..Spec::stay(limits) }).unwrap()
}

fn shell(code: &str) -> Exec {
    Exec::new(["sh", "-c", code])
}

#[expect(clippy::unwrap_used, reason = "a test stops where nothing runs")]
fn run(running: &Running, exec: &Exec) -> ExecCollected {
    running.handle().exec(exec).unwrap().collect().unwrap()
}

#[test]
fn commands_come_and_go() {
    if !is_root() {
        return;
    }
    let running = stay(Profile::Python);
    let workspace = running.workspace();
    workspace.write("in", 0o644, &b"from outside\n"[..], 1 << 20).unwrap();
    let mut exec = shell(
        "cat in; echo $NAME; id -u; echo more >> in; grep -c . /proc/self/status > out; exit 3",
    );
    exec.env.insert("NAME".to_owned(), "value".to_owned());
    let collected = run(&running, &exec);
    assert_eq!(
        String::from_utf8_lossy(&collected.stdout),
        "from outside\nvalue\n1000\n",
        "{collected:?}"
    );
    assert_eq!((collected.ended.class, collected.ended.exit_code), (Class::Exited, Some(3)));
    assert_eq!(workspace.read("in", 100).unwrap(), b"from outside\nmore\n");
    let error = running.handle().exec(&Exec::new(["no-such-program"])).map(drop).unwrap_err();
    assert_eq!(error.code().name, "sandbox.not_started", "{error}");
    let status =
        run(&running, &shell("grep -E 'Seccomp:|NoNewPrivs|CapBnd|CapEff' /proc/self/status"));
    let status = String::from_utf8_lossy(&status.stdout).replace('\t', " ");
    assert_eq!(
        status,
        "CapEff: 0000000000000000\nCapBnd: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n"
    );
    let handle = running.handle();
    drop(running);
    assert_eq!(handle.exec(&shell("true")).map(drop).unwrap_err().code().name, "sandbox.ended");
    assert_eq!(workspace.read("in", 100).unwrap(), b"from outside\nmore\n");
    Traces::now().assert_none();
}

#[test]
fn several_at_once_and_each_with_its_own_end() {
    if !is_root() {
        return;
    }
    let running = stay(Profile::Python);
    let late = Exec { wall_ms: Some(1_500), ..shell("sleep 1000 & sleep 1000") };
    let late = running.handle().exec(&late).unwrap();
    let mut cat = running.handle().exec(&Exec::new(["cat"])).unwrap();
    let mut stdin = cat.stdin.take().unwrap();
    let mut stdout = BufReader::new(cat.stdout.take().unwrap());
    for word in ["one\n", "two\n"] {
        stdin.write_all(word.as_bytes()).unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, word);
    }
    let told = running
        .handle()
        .exec(&shell("trap 'exit 7' USR1; echo ready; while :; do sleep 0.05; done"));
    let mut told = told.unwrap();
    told.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    told.handle().signal(10).unwrap();
    assert_eq!(told.wait().unwrap().exit_code, Some(7));
    let killed = running.handle().exec(&shell("sleep 1000")).unwrap();
    killed.handle().kill().unwrap();
    assert_eq!(killed.wait().unwrap().class, Class::Stopped);
    assert_eq!(late.wait().unwrap().class, Class::WallLimit);
    drop(stdin);
    assert!(cat.wait().unwrap().succeeded());
    running.handle().kill().unwrap();
    assert_eq!(running.wait().unwrap().class, Class::Stopped);
    Traces::now().assert_none();
}

#[test]
fn what_a_command_tries_is_flagged() {
    if !is_root() {
        return;
    }
    let running = stay(Profile::Python);
    let ended = run(&running, &Exec::new(["unshare", "--user", "true"])).ended;
    assert_eq!((ended.class, ended.signal), (Class::SecurityViolation, Some(9)), "{ended:?}");
    assert_eq!((ended.flags[0].call.as_str(), ended.flags[0].fatal), ("unshare", true));
    assert!(run(&running, &shell("true")).ended.succeeded(), "the others go on");
    running.handle().kill().unwrap();
    assert_eq!(running.wait().unwrap().class, Class::SecurityViolation);
}

#[test]
fn a_port_inside_can_be_reached() {
    if !is_root() {
        return;
    }
    let running = stay(Profile::Hosted);
    let code = "import socket\ns = socket.create_server(('127.0.0.1', 8080))\nprint('ready', flush=True)\n\
                c, _ = s.accept()\nc.sendall(b'hello')\n";
    let mut server = running.handle().exec(&Exec::new(["python3", "-I", "-c", code])).unwrap();
    server.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let mut text = String::new();
    running.handle().connect(8080).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    assert_eq!(running.handle().connect(8081).unwrap_err().code().name, "sandbox.refused");
}

/// A command whose start was given up, though the runtime had started it, ends like any other.
#[test]
fn what_was_started_in_vain_does_not_run_on() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let runc = program("runc").display().to_string();
    let slow = format!(
        "#!/bin/sh\ncase \"$*\" in *' exec '*) {runc} \"$@\"; exec sleep 1000 ;; esac\nexec {runc} \"$@\"\n"
    );
    let options = OciOptions::new(launcher(), script(place.path(), &slow));
    let sandbox = Oci::new(OciOptions { timeout_ms: 20_000, ..options }).unwrap();
    let limits = guild_sandbox::Limits { pids: 60, cpu_hard_ms: 60_000, ..limits() };
    let running = sandbox.start(&Spec::stay(limits)).unwrap();
    let beats = shell("while :; do echo x >> /workspace/beats; sleep 0.02; done");
    let beats = Exec { wall_ms: Some(6_000), ..beats };
    let ended = running.handle().exec(&beats).unwrap().collect().unwrap().ended;
    assert_eq!(ended.class, Class::WallLimit, "{ended:?}");
    let count = || running.workspace().read("beats", 1 << 20).unwrap().len();
    let before = count();
    assert!(before > 0, "it has never run");
    sleep_ms(500);
    assert_eq!(count(), before, "it runs on");
}
