//! Commands in sandboxes that stay, or beside a program.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use guild_sandbox::{
    Class, Error, Exec, ExecCollected, Handle, Limits, Profile, Running, Sandbox, Spec,
};

use super::support::{
    REPEATS, converse, limits, sandbox, sandbox_without_cgroups, shell, sleep_ms,
};
use super::traces::assert_nothing_is_left;

/// Room for many commands: where no cgroup counts, what processes share is counted for each.
fn roomy() -> Limits {
    Limits { pids: 300, memory_hard_bytes: 1 << 30, ..limits() }
}

fn staying() -> Running {
    sandbox().start(&Spec::stay(roomy())).unwrap()
}

fn hosted() -> Running {
    let spec = Spec::stay(roomy());
    let limits = Limits { cpu_hard_ms: 60_000, ..spec.limits };
    sandbox().start(&Spec { profile: Profile::Hosted, limits, ..spec }).unwrap()
}

fn sh(code: &str) -> Exec {
    Exec::new(["sh", "-c", code])
}

fn run(handle: &Handle, code: &str) -> ExecCollected {
    handle.exec(&sh(code)).unwrap().collect().unwrap()
}

fn printed(collected: &ExecCollected) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&collected.stdout), text(&collected.stderr))
}

#[test]
fn commands_come_and_go() {
    for sandbox in [sandbox(), &sandbox_without_cgroups()] {
        let running = sandbox.start(&Spec::stay(limits())).unwrap();
        assert!(running.stdin.is_none() && running.stdout.is_none() && running.stderr.is_none());
        let handle = running.handle();
        assert_eq!(printed(&run(&handle, "echo x > kept; pwd")), "/workspace\n");
        let second = run(&handle, "cat kept; echo oops >&2; exit 3");
        assert_eq!(
            (second.stdout.as_slice(), second.stderr.as_slice()),
            (&b"x\n"[..], &b"oops\n"[..])
        );
        let ended = &second.ended;
        assert_eq!((ended.class, ended.exit_code, ended.signal), (Class::Exited, Some(3), None));
        assert!(ended.wall_us > 0 && ended.flags.is_empty() && !ended.succeeded());
        handle.kill().unwrap();
        let outcome = running.wait().unwrap();
        assert_eq!((outcome.class, outcome.exit_code), (Class::Stopped, None));
        assert_eq!(outcome.usage.output_bytes, 18);
        assert_nothing_is_left();
    }
}

#[test]
fn a_command_has_every_layer_of_the_program() {
    let running = staying();
    let code = "grep -E '^(NoNewPrivs|Seccomp|CapEff|Uid):' /proc/self/status; ls /proc/self/fd | wc -l; ulimit -c; (echo x > /new) 2>/dev/null || echo refused";
    let text = printed(&run(&running.handle(), code));
    let expected = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n4\n0\nrefused\n";
    assert_eq!(text, expected);
}

#[test]
fn environment_and_directory() {
    let running = staying();
    let env = [("GREETING", "hello"), ("HOME", "/workspace")];
    let env = env.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let exec = Exec { env, cwd: Some("/tmp".to_owned()), ..sh("echo $GREETING $HOME $TZ; pwd") };
    let collected = running.handle().exec(&exec).unwrap().collect().unwrap();
    assert_eq!(printed(&collected), "hello /workspace UTC\n/tmp\n");
    let nowhere = Exec { cwd: Some("/nowhere".to_owned()), ..sh("true") };
    let error = running.handle().exec(&nowhere).unwrap_err();
    assert_eq!(error.to_string(), "cwd: No such file or directory (os error 2)");
}

#[test]
fn a_missing_program_is_named_and_changes_nothing() {
    let running = staying();
    let error = running.handle().exec(&Exec::new(["no-such-program"])).unwrap_err();
    assert_eq!(error.code().name, "sandbox.not_started");
    assert_eq!(error.to_string(), "no-such-program: No such file or directory (os error 2)");
    assert!(run(&running.handle(), "true").ended.succeeded());
}

#[test]
fn input_and_output_are_streamed() {
    let running = staying();
    let mut command = running.handle().exec(&sh(REPEATS)).unwrap();
    converse(command.stdin.take(), command.stdout.take());
    assert!(command.wait().unwrap().succeeded());
}

#[test]
fn much_output_is_whole() {
    let running = staying();
    let collected = run(&running.handle(), "head -c 700000 /dev/zero");
    assert_eq!(collected.stdout.len(), 700_000);
}

#[test]
fn many_at_once_from_many_threads() {
    let running = staying();
    let handle = running.handle();
    std::thread::scope(|scope| {
        for number in 0..40 {
            let handle = &handle;
            scope.spawn(move || {
                let collected = run(handle, &format!("sleep 0.0{number:02}; echo {number}"));
                assert_eq!(printed(&collected), format!("{number}\n"));
            });
        }
    });
}

#[test]
fn too_many_are_refused() {
    let running = staying();
    let handle = running.handle();
    let mut commands: Vec<_> = (0..64).map(|_| handle.exec(&sh("sleep 1000")).unwrap()).collect();
    let error = handle.exec(&sh("true")).unwrap_err();
    assert_eq!(error.code().name, "sandbox.busy");
    let last = commands.pop().unwrap();
    last.kill().unwrap();
    last.wait().unwrap();
    assert!(run(&handle, "true").ended.succeeded());
}

#[test]
fn a_signal_reaches_the_command_alone() {
    let running = staying();
    let handle = running.handle();
    let code = "trap 'echo told; exit 7' USR1; echo ready; while :; do sleep 0.02; done";
    let (mut one, other) = (handle.exec(&sh(code)).unwrap(), handle.exec(&sh(code)).unwrap());
    let mut lines = BufReader::new(one.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    one.signal(10).unwrap();
    assert_eq!(one.signal(65).unwrap_err().code().name, "sandbox.bad_spec");
    lines.read_line(&mut line).unwrap();
    let ended = one.wait().unwrap();
    assert_eq!((line.as_str(), ended.exit_code), ("ready\ntold\n", Some(7)));
    other.signal(15).unwrap();
    let ended = other.wait().unwrap();
    assert_eq!((ended.class, ended.signal), (Class::Signaled, Some(15)));
}

#[test]
fn the_time_of_one_leaves_the_others() {
    let running = hosted();
    let handle = running.handle();
    let mut other = handle.exec(&sh("read line; echo $line")).unwrap();
    let short = Exec { wall_ms: Some(150), ..sh("sleep 4321 & sleep 4321") };
    let ended = handle.exec(&short).unwrap().wait().unwrap();
    assert_eq!((ended.class, ended.signal), (Class::WallLimit, Some(9)));
    assert!(ended.wall_us >= 150_000);
    writeln!(other.stdin.take().unwrap(), "alive").unwrap();
    assert_eq!(printed(&other.collect().unwrap()), "alive\n");
    wait_for_sleepers(&handle, 4_321, 0);
}

#[test]
fn the_output_of_one_leaves_the_others() {
    let running = staying();
    let handle = running.handle();
    let loud = Exec { output_bytes: Some(10_000), ..sh("yes") };
    let collected = handle.exec(&loud).unwrap().collect().unwrap();
    assert_eq!((collected.ended.class, collected.stdout.len()), (Class::OutputLimit, 10_000));
    let exact = Exec { output_bytes: Some(3), ..sh("printf abc") };
    assert!(handle.exec(&exact).unwrap().collect().unwrap().ended.succeeded());
    let more = Exec { output_bytes: Some(2), ..sh("printf abc") };
    let collected = handle.exec(&more).unwrap().collect().unwrap();
    assert_eq!((collected.ended.class, printed(&collected)), (Class::OutputLimit, "ab".into()));
}

/// How many sleep for so long.
fn sleepers(handle: &Handle, seconds: u32) -> usize {
    let code = "import os, sys\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n    try: words = open(f'/proc/{pid}/cmdline').read().split('\\0')\n    except OSError: continue\n    if words[:2] == ['sleep', sys.argv[1]]: print(pid)\n";
    let exec = Exec::new(["python3", "-I", "-S", "-c", code, &seconds.to_string()]);
    let collected = handle.exec(&exec).unwrap().collect().unwrap();
    assert!(collected.ended.succeeded(), "{collected:?}");
    printed(&collected).lines().count()
}

/// Waits until so many sleep, because a shell needs a moment to start them.
fn wait_for_sleepers(handle: &Handle, seconds: u32, count: usize) {
    for _ in 0..200 {
        if sleepers(handle, seconds) == count {
            return;
        }
    }
    assert_eq!(sleepers(handle, seconds), count);
}

const DAEMONS: &str = "(setsid sh -c 'setsid sleep 1234 & setsid sleep 1234' &) ; sleep 1234 & echo ready; sleep 1234";

#[test]
fn killing_a_command_takes_its_daemons() {
    // Seen from inside: in a bought sandbox, whose commands see each other.
    let running = hosted();
    let handle = running.handle();
    let commands = [
        |command: guild_sandbox::Executing| drop(command),
        |command: guild_sandbox::Executing| {
            command.kill().unwrap();
            assert_eq!(command.wait().unwrap().class, Class::Stopped);
        },
    ];
    for end in commands {
        let mut command = handle.exec(&sh(DAEMONS)).unwrap();
        command.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        wait_for_sleepers(&handle, 1_234, 4);
        end(command);
        wait_for_sleepers(&handle, 1_234, 0);
    }
}

#[test]
fn what_a_command_leaves_goes_on() {
    let running = hosted();
    let handle = running.handle();
    let code = "(while :; do echo x; sleep 0.01; done) & sleep 777 & echo end";
    let collected = run(&handle, code);
    assert!(collected.ended.succeeded(), "{collected:?}");
    assert!(printed(&collected).contains("end\n"));
    wait_for_sleepers(&handle, 777, 1);
    // Another command may end it.
    assert!(
        run(
            &handle,
            "kill $(pgrep -x sleep -a | grep 777 | cut -d' ' -f1) || pkill -f 'sleep 777'"
        )
        .ended
        .succeeded()
    );
    wait_for_sleepers(&handle, 777, 0);
}

#[test]
fn commands_beside_a_program() {
    let mut running = sandbox().start(&shell("read line; echo $line; exit 4")).unwrap();
    let handle = running.handle();
    assert_eq!(printed(&run(&handle, "echo beside")), "beside\n");
    let asleep = handle.exec(&sh("sleep 1000")).unwrap();
    writeln!(running.stdin.take().unwrap(), "go").unwrap();
    assert_eq!(running.wait().unwrap().exit_code, Some(4));
    let ended = asleep.wait().unwrap();
    assert_eq!((ended.class, ended.signal), (Class::Stopped, Some(9)));
    assert_nothing_is_left();
}

#[test]
fn after_the_end_nothing_is_started() {
    let running = staying();
    let handle = running.handle();
    handle.kill().unwrap();
    running.wait().unwrap();
    let error = handle.exec(&sh("true")).unwrap_err();
    assert_eq!(
        (error.code().name, error.to_string().as_str()),
        ("sandbox.ended", "the sandbox has ended")
    );
    let running = staying();
    let handle = running.handle();
    drop(running);
    assert_eq!(handle.exec(&sh("true")).unwrap_err().code().name, "sandbox.ended");
}

/// Whoever asks while the sandbox ends gets an answer.
#[test]
fn commands_that_meet_the_end_are_answered() {
    for turn in 0..10u32 {
        let running = staying();
        let handle = running.handle();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        match handle.exec(&sh("echo x; sleep 0.01")) {
                            Ok(command) => {
                                let ended = command.wait();
                                let class = ended.map(|ended| ended.class);
                                assert!(
                                    matches!(class, Ok(Class::Exited | Class::Stopped)),
                                    "{class:?}"
                                );
                            }
                            Err(error) => {
                                assert_eq!(error.code().name, "sandbox.ended", "{error}");
                                break;
                            }
                        }
                    }
                });
            }
            let pause = format!("sleep 0.0{turn}");
            let _ = handle.exec(&sh(&pause)).unwrap().wait();
            handle.kill().unwrap();
            assert_eq!(running.wait().unwrap().class, Class::Stopped);
        });
    }
    assert_nothing_is_left();
}

#[test]
fn killing_everything_with_commands_running() {
    for sandbox in [sandbox(), &sandbox_without_cgroups()] {
        let running = sandbox.start(&Spec::stay(roomy())).unwrap();
        let handle = running.handle();
        let commands: Vec<_> = (0..8).map(|_| handle.exec(&sh(DAEMONS)).unwrap()).collect();
        handle.kill().unwrap();
        assert_eq!(running.wait().unwrap().class, Class::Stopped);
        for command in commands {
            assert_eq!(command.wait().unwrap().class, Class::Stopped);
        }
        assert_nothing_is_left();
    }
}

#[test]
fn dropping_everything_with_commands_running() {
    let running = staying();
    let command = running.handle().exec(&sh(DAEMONS)).unwrap();
    drop(running);
    assert_eq!(command.wait().unwrap_err().code().name, "sandbox.ended");
    assert_nothing_is_left();
}

#[test]
fn a_limit_of_the_sandbox_names_itself_to_its_commands() {
    let running = sandbox().start(&Spec::stay(Limits { wall_ms: 4_000, ..limits() })).unwrap();
    let command = running.handle().exec(&sh("sleep 1000")).unwrap();
    assert_eq!(command.wait().unwrap().class, Class::WallLimit);
    assert_eq!(running.wait().unwrap().class, Class::WallLimit);
}

#[test]
fn a_frozen_sandbox_takes_no_commands_and_its_clocks_stand_still() {
    for sandbox in [sandbox(), &sandbox_without_cgroups()] {
        let spec = Spec { profile: Profile::Hosted, ..Spec::stay(limits()) };
        let running = sandbox.start(&spec).unwrap();
        let handle = running.handle();
        let exec = Exec {
            wall_ms: Some(5_000),
            ..sh("trap 'exit 7' USR1; echo ready; while :; do sleep 0.02; done")
        };
        let mut command = handle.exec(&exec).unwrap();
        command.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        handle.freeze().unwrap();
        assert_eq!(handle.exec(&sh("true")).unwrap_err().code().name, "sandbox.busy");
        assert_eq!(handle.connect(80).unwrap_err().code().name, "sandbox.busy");
        // However often it is told, nobody waits for it.
        for _ in 0..20_000 {
            command.signal(12).unwrap();
        }
        drop(command);
        handle.thaw().unwrap();
        // It has to hear all that first.
        let busy = |error: &Error| error.code().name == "sandbox.busy";
        let mut tries = (0..10_000).map(|_| {
            sleep_ms(2);
            handle.exec(&sh("true"))
        });
        let command = tries.find(|started| !started.as_ref().is_err_and(busy)).unwrap().unwrap();
        assert!(command.wait().unwrap().succeeded());
    }
}

#[test]
fn connections_go_to_the_sandbox_s_own_loopback() {
    let running = hosted();
    let handle = running.handle();
    let code = "import socket\ns = socket.create_server(('127.0.0.1', 8080))\nprint('ready', flush=True)\nwhile True:\n    c = s.accept()[0]\n    c.sendall(c.recv(100).upper())\n    c.close()\n";
    let mut server = handle.exec(&Exec::new(["python3", "-I", "-S", "-c", code])).unwrap();
    server.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    for _ in 0..3 {
        let mut stream: TcpStream = handle.connect(8_080).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "HELLO");
    }
    // A port of the host is none of the sandbox.
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let error = handle.connect(port).unwrap_err();
    assert_eq!(error.code().name, "sandbox.refused");
    assert_eq!(error.to_string(), format!("port {port}: Connection refused (os error 111)"));
    handle.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(handle.connect(8_080).unwrap_err().code().name, "sandbox.ended");
}

#[test]
fn only_bought_sandboxes_have_a_loopback() {
    let running = staying();
    let error = running.handle().connect(80).unwrap_err();
    assert_eq!(error.to_string(), "profile: only the profile hosted may open sockets");
}
