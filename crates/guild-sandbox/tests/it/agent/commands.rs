//! Commands: started once, streamed, resumed, told, ended.

use guild_sandbox::Class;
use guild_sandbox::agent::{Bytes64, ExecId, ExecRequest, Frame, Stream};

use super::{World, refused, run, shell, words};

#[tokio::test]
async fn a_command_runs_and_its_streams_are_told_apart() {
    let world = World::new();
    let request = ExecRequest {
        env: [("A".to_owned(), "b c".to_owned())].into(),
        cwd: Some("/tmp".to_owned()),
        ..shell("echo \"$A\"; pwd; echo oops >&2; exit 3")
    };
    let (out, err, last) = run(&world.client, &request).await;
    assert_eq!((out.as_str(), err.as_str()), ("b c\n/tmp\n", "oops\n"));
    assert_eq!((last.exit_code, last.signal, last.class), (Some(3), None, Some(Class::Exited)));
    assert!(!last.truncated);
    let health = world.client.health().await.unwrap();
    assert_eq!((health.execs, health.state), (0, guild_sandbox::agent::State::Running));
}

#[tokio::test]
async fn words_are_words_and_no_line_for_a_shell() {
    let world = World::new();
    let (out, _, _) = run(&world.client, &words(&["echo", "$HOME; ls", "`id`", ""])).await;
    assert_eq!(out, "$HOME; ls `id` \n");
}

#[tokio::test]
async fn what_cannot_be_started_is_named_and_starts_nothing() {
    let world = World::new();
    let client = &world.client;
    let cases = [
        (words(&[]), "sandbox.bad_spec"),
        (words(&["no-such-program"]), "sandbox.not_started"),
        (words(&["a\0b"]), "sandbox.bad_spec"),
        (ExecRequest { cwd: Some("relative".to_owned()), ..words(&["true"]) }, "sandbox.bad_spec"),
        (ExecRequest { timeout_ms: Some(0), ..words(&["true"]) }, "sandbox.bad_spec"),
    ];
    for (request, code) in cases {
        assert_eq!(refused(client.exec(&request).await), code, "{request:?}");
    }
    let unknown = format!("exec_{:032x}", 7).parse::<ExecId>().unwrap();
    assert_eq!(refused(client.stream(&unknown, 1).next().await), "agent.no_such_exec");
    assert_eq!(refused(client.signal(&unknown, 15).await), "agent.no_such_exec");
    assert_eq!(refused(client.stdin(&unknown, b"x", true).await), "agent.no_such_exec");
    assert_eq!(client.health().await.unwrap().execs, 0);
}

#[tokio::test]
async fn the_same_id_starts_one_command() {
    let world = World::new();
    let id = format!("exec_{:032x}", 9).parse::<ExecId>().unwrap();
    let request =
        ExecRequest { id: Some(id.clone()), ..shell("echo x >> count; sleep 0.2; cat count") };
    let calls = (0..8).map(|_| world.client.exec(&request));
    let ids = futures_util::future::join_all(calls).await;
    assert!(ids.into_iter().all(|answer| answer.unwrap() == id));
    let (out, _, _) = world.client.stream(&id, 1).collect(100).await.unwrap();
    assert_eq!(out, b"x\n");
    assert_eq!(world.client.exec(&request).await.unwrap(), id, "also after its end");
    let other = ExecRequest { id: Some(id), ..shell("true") };
    assert_eq!(refused(world.client.exec(&other).await), "agent.exec_differs");
}

#[tokio::test]
async fn input_comes_with_the_start_and_later() {
    let world = World::new();
    let client = &world.client;
    let first = ExecRequest { stdin_b64: Some(Bytes64(b"abc".to_vec())), ..words(&["cat"]) };
    assert_eq!(run(client, &first).await.0, "abc");
    assert_eq!(run(client, &words(&["cat"])).await.0, "", "without input there is its end");
    let request = ExecRequest { stdin_open: true, ..first };
    let id = client.exec(&request).await.unwrap();
    client.stdin(&id, b" def", false).await.unwrap();
    client.stdin(&id, b" ghi", true).await.unwrap();
    let (out, _, _) = client.stream(&id, 1).collect(100).await.unwrap();
    assert_eq!(out, b"abc def ghi");
    assert_eq!(refused(client.stdin(&id, b"x", false).await), "agent.exec_ended");
    // More than a pipe takes, so the command reads while it is sent.
    let large = vec![b'z'; 3 << 20];
    let request = ExecRequest { stdin_b64: Some(Bytes64(large)), ..words(&["wc", "-c"]) };
    assert_eq!(run(client, &request).await.0.trim(), (3 << 20).to_string());
}

#[tokio::test]
async fn input_and_signals_with_a_name_come_once() {
    let world = World::new();
    let client = &world.client;
    let id = client.exec(&ExecRequest { stdin_open: true, ..words(&["cat"]) }).await.unwrap();
    for _ in 0..3 {
        client.stdin_once(&id, "a", b"one ", false).await.unwrap();
    }
    // More of it than was said the first time, as after an answer that was lost on the way.
    client.stdin_once(&id, "a", b"one two ", false).await.unwrap();
    client.stdin_once(&id, "b", b"one ", false).await.unwrap();
    client.stdin_once(&id, "a", b"one two ", false).await.unwrap();
    for _ in 0..2 {
        client.stdin_once(&id, "c", b"end", true).await.unwrap();
    }
    let (out, _, _) = client.stream(&id, 1).collect(100).await.unwrap();
    assert_eq!(out, b"one two one end");
    client.stdin_once(&id, "c", b"end", true).await.unwrap();
    assert_eq!(refused(client.stdin_once(&id, "d", b"x", false).await), "agent.exec_ended");
    assert_eq!(refused(client.stdin_once(&id, "a b", b"x", false).await), "agent.bad_request");

    let code = "n=0; trap 'n=$((n+1)); echo $n' USR1; trap 'exit 4' TERM; echo ready; \
                while :; do sleep 0.05; done";
    let trap = client.exec(&shell(code)).await.unwrap();
    let mut stream = client.stream(&trap, 1);
    assert_eq!(stream.next().await.unwrap().unwrap().data_b64.0, b"ready\n");
    for name in ["a", "a", "b", "a", "b"] {
        client.signal_once(&trap, name, 10).await.unwrap();
        if name == "a" {
            // Two of a kind at once are one to the kernel.
            client.signal_once(&trap, name, 10).await.unwrap();
        }
        super::super::support::sleep_ms(200);
    }
    assert_eq!(refused(client.signal_once(&trap, "c", 99).await), "sandbox.bad_spec");
    client.signal_once(&trap, "c", 15).await.unwrap();
    let (out, _, last) = stream.collect(100).await.unwrap();
    assert_eq!((out.as_slice(), last.exit_code), (&b"1\n2\n"[..], Some(4)));
    client.signal_once(&trap, "c", 15).await.unwrap();
    assert_eq!(refused(client.signal_once(&trap, "d", 15).await), "agent.exec_ended");
}

#[tokio::test]
async fn signals_and_time_limits_end_one_command_and_leave_the_others() {
    let world = World::new();
    let client = &world.client;
    let other = client.exec(&words(&["sleep", "1000"])).await.unwrap();
    let code = "trap 'echo got; exit 4' TERM; echo ready; while :; do sleep 0.05; done";
    let trap = client.exec(&shell(code)).await.unwrap();
    let mut stream = client.stream(&trap, 1);
    assert_eq!(stream.next().await.unwrap().unwrap().data_b64.0, b"ready\n");
    client.signal(&trap, 15).await.unwrap();
    let (out, _, last) = stream.collect(100).await.unwrap();
    assert_eq!((out.as_slice(), last.exit_code), (&b"got\n"[..], Some(4)));
    assert_eq!(refused(client.signal(&trap, 15).await), "agent.exec_ended");
    let slow = ExecRequest { timeout_ms: Some(150), ..words(&["sleep", "1000"]) };
    assert_eq!(run(client, &slow).await.2.class, Some(Class::WallLimit));
    assert_eq!(client.health().await.unwrap().execs, 1);
    assert_eq!(refused(client.signal(&other, 99).await), "sandbox.bad_spec");
    client.signal(&other, 9).await.unwrap();
    let (_, _, last) = client.stream(&other, 1).collect(0).await.unwrap();
    assert_eq!(last.class, Some(Class::Stopped));
}

#[tokio::test]
async fn too_much_output_ends_it_and_is_told() {
    let world = World::new();
    let request = ExecRequest { max_output: Some(1_000), ..shell("yes") };
    let (out, _, last) = run(&world.client, &request).await;
    assert_eq!((last.class, last.truncated), (Some(Class::OutputLimit), true));
    assert!(out.len() <= 1_000, "{}", out.len());
}

/// Prints many numbered lines, faster than anybody reads.
const LINES: &str = "i=0; while [ $i -lt 60000 ]; do echo line number $i of many; i=$((i+1)); done";

fn expected_lines() -> Vec<u8> {
    (0..60_000).map(|i| format!("line number {i} of many\n")).collect::<String>().into_bytes()
}

#[tokio::test]
async fn cut_off_again_and_again_a_reader_loses_no_frame() {
    let world = World::new();
    let id = world.client.exec(&shell(LINES)).await.unwrap();
    let mut stream = world.client.stream(&id, 1);
    let (mut out, mut next, mut cuts) = (Vec::new(), 1, 0);
    while let Some(frame) = stream.next().await.unwrap() {
        assert_eq!(frame.seq, next, "no number is missing or twice");
        next += 1;
        out.extend_from_slice(&frame.data_b64.0);
        if frame.seq % 7 == 0 {
            stream.disconnect();
            cuts += 1;
        }
    }
    // More was printed than is kept, so the command has waited for its reader.
    assert!(out.len() > 1 << 20 && cuts > 5, "{} {cuts}", out.len());
    assert_eq!(out, expected_lines());
}

#[tokio::test]
async fn several_read_the_same_and_a_late_one_reads_what_is_kept() {
    let world = World::new();
    let id =
        world.client.exec(&shell("for i in 1 2 3; do echo $i; sleep 0.05; done")).await.unwrap();
    let readers = (0..4).map(|_| world.client.stream(&id, 1).collect(100));
    for read in futures_util::future::join_all(readers).await {
        assert_eq!(read.unwrap().0, b"1\n2\n3\n");
    }
    assert_eq!(world.client.stream(&id, 1).collect(100).await.unwrap().0, b"1\n2\n3\n");
    // On a busy host all three lines may be one frame.
    let (rest, _, last) = world.client.stream(&id, 2).collect(100).await.unwrap();
    assert!(rest.len() < 6 && last.stream == Stream::Exit);
    // Behind the end there is nothing, and nobody waits for it.
    for from in [last.seq + 1, u64::MAX] {
        let refused = world.client.stream(&id, from).next().await.unwrap_err();
        assert_eq!(refused.code().name, "agent.bad_request");
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_holds_up_nobody_for_long_and_is_told_of_the_gap() {
    let clock = super::Set::new(1_000_000);
    let world = World::with(std::sync::Arc::new(clock.clone()), 1 << 40);
    let client = world.client.clone();
    // More than the buffers of two sockets and the agent hold together.
    let id = client
        .exec(&shell("head -c 40000000 /dev/zero; echo done > /workspace/done"))
        .await
        .unwrap();
    let mut stream = client.stream(&id, 1);
    let first: Frame = stream.next().await.unwrap().unwrap();
    assert_eq!(first.seq, 1);
    // It waits for its reader as long as that is thought to be there …
    let probe = words(&["ls", "/workspace"]);
    assert_eq!(run(&client, &probe).await.0, "");
    // … and then goes on without it.
    let mut done = false;
    for _ in 0..600 {
        clock.pass(200);
        if run(&client, &probe).await.0 == "done\n" {
            done = true;
            break;
        }
    }
    assert!(done, "the command was held up");
    stream.disconnect();
    let mut gaps = 0;
    while let Some(frame) = stream.next().await.unwrap() {
        gaps += u32::from(frame.stream == Stream::Gap);
    }
    assert_eq!(gaps, 1);
}

#[tokio::test]
async fn there_are_only_so_many_at_once() {
    let world = World::new();
    let mut ids = Vec::new();
    for _ in 0..64 {
        ids.push(world.client.exec(&words(&["sleep", "1000"])).await.unwrap());
    }
    assert_eq!(world.client.health().await.unwrap().execs, 64);
    assert_eq!(refused(world.client.exec(&words(&["true"])).await), "agent.too_many");
    world.client.signal(&ids[7], 9).await.unwrap();
    world.client.stream(&ids[7], 1).collect(0).await.unwrap();
    assert_eq!(run(&world.client, &words(&["echo", "x"])).await.0, "x\n");
}

#[tokio::test]
async fn frozen_is_frozen() {
    let world = World::new();
    let client = &world.client;
    let id = client.exec(&shell("while :; do echo x; sleep 0.02; done")).await.unwrap();
    let mut stream = client.stream(&id, 1);
    stream.next().await.unwrap();
    client.freeze().await.unwrap();
    assert_eq!(client.health().await.unwrap().state, guild_sandbox::agent::State::Frozen);
    assert_eq!(refused(client.exec(&words(&["true"])).await), "sandbox.busy");
    client.thaw().await.unwrap();
    stream.next().await.unwrap().unwrap();
    assert_eq!(client.health().await.unwrap().state, guild_sandbox::agent::State::Running);
    client.signal(&id, 9).await.unwrap();
}

#[tokio::test]
async fn the_end_leaves_nothing() {
    let world = World::new();
    let id = world.client.exec(&shell("sleep 1000 & sleep 1000")).await.unwrap();
    world.client.shutdown().await.unwrap();
    let client = world.client.clone();
    world.ended().unwrap();
    assert_eq!(refused(client.signal(&id, 9).await), "agent.unreachable");
    super::super::traces::Traces::now().assert_none();
}
