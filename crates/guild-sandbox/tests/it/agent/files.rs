//! Files of the workspace, in and out.

use guild_protocol::hash::Hash;

use super::{World, refused, run, shell, words};

#[tokio::test]
async fn a_file_goes_in_and_comes_out() {
    let world = World::new();
    let client = &world.client;
    let written = client.put_file("dir/in it/a+b&c=é", false, b"hello").await.unwrap();
    assert_eq!((written.bytes, written.sha256), (5, Hash::of(b"hello")));
    assert_eq!(run(client, &words(&["cat", "/workspace/dir/in it/a+b&c=é"])).await.0, "hello");
    client.put_file("run.sh", true, b"#!/bin/sh\necho ran\n").await.unwrap();
    assert_eq!(run(client, &words(&["./run.sh"])).await.0, "ran\n");
    run(client, &shell("echo made > made; ln -s /etc/passwd link; mkfifo pipe; chmod 600 made"))
        .await;
    assert_eq!(client.get_file("made").await.unwrap().whole(100).await.unwrap(), b"made\n");
    let names: Vec<_> = client.list("").await.unwrap();
    let names: Vec<_> =
        names.iter().map(|e| (e.name.as_str(), e.kind.as_str(), e.executable)).collect();
    let expected = [
        ("dir", "directory", false),
        ("link", "link", false),
        ("made", "file", false),
        ("pipe", "other", false),
        ("run.sh", "file", true),
    ];
    assert_eq!(names, expected);
    client.delete_file("made").await.unwrap();
    client.delete_file("dir").await.unwrap();
    assert_eq!(refused(client.get_file("made").await), "sandbox.no_file");
    assert_eq!(refused(client.delete_file("made").await), "sandbox.no_file");
}

#[tokio::test]
async fn no_path_leads_out_of_the_workspace() {
    let world = World::new();
    let client = &world.client;
    run(
        client,
        &shell("ln -s /etc etc; ln -s /etc/passwd passwd; ln -s .. up; mkdir d; mkfifo fifo"),
    )
    .await;
    let long = "x".repeat(5_000);
    let deep = "d/".repeat(3_000);
    let paths = [
        "../etc/passwd",
        "/etc/passwd",
        "d/../../etc/passwd",
        "d/..",
        ".",
        "..",
        "a\0b",
        "",
        "//etc/passwd",
        "etc/passwd",
        "passwd",
        "up/etc/passwd",
        "./made",
        "d//x",
        "d/./x",
        &long,
        &deep,
    ];
    for path in paths {
        for answer in [
            client.get_file(path).await.map(drop),
            client.put_file(path, false, b"x").await.map(drop),
            client.delete_file(path).await,
        ] {
            // A link itself may be replaced or removed; it is never followed.
            if ["passwd"].contains(&path) && answer.is_ok() {
                continue;
            }
            let code = refused(answer);
            assert!(code.starts_with("sandbox."), "{path:?}: {code}");
        }
    }
    for path in ["etc", "up", "../", "/", "fifo", "passwd/x"] {
        let code = refused(client.list(path).await);
        assert!(code.starts_with("sandbox."), "{path:?}: {code}");
        let code = refused(client.get_archive(path).await.map(drop));
        assert!(code.starts_with("sandbox."), "{path:?}: {code}");
    }
    assert_eq!(refused(client.get_file("fifo").await), "sandbox.not_a_file");
    assert_eq!(refused(client.get_file("d").await), "sandbox.not_a_file");
}

/// Random bytes that are the same every time.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[tokio::test]
async fn fifty_megabytes_go_in_and_out_whole() {
    let world = World::new();
    let client = &world.client;
    let bytes = noise(50 << 20);
    let hash = Hash::of(&bytes);
    let written = client.put_file("large", false, &bytes).await.unwrap();
    assert_eq!((written.bytes, written.sha256), (50 << 20, hash));
    let (out, _, _) = run(client, &words(&["sha256sum", "large"])).await;
    assert!(out.starts_with(&hash.hex()), "{out}");
    let mut download = client.get_file("large").await.unwrap();
    assert_eq!(download.bytes, Some(50 << 20));
    let mut hasher = guild_protocol::hash::Hasher::new();
    while let Some(piece) = download.piece().await.unwrap() {
        hasher.update(&piece);
    }
    assert_eq!(hasher.finish(), hash);
}

#[tokio::test]
async fn a_body_that_is_not_what_was_signed_changes_nothing() {
    let world = World::new();
    let client = &world.client;
    client.put_file("kept", false, b"old").await.unwrap();
    let other = Hash::of(b"something else");
    let large = noise(3 << 20);
    for body in [b"new".as_slice(), &large] {
        let length = u64::try_from(body.len()).unwrap();
        let answer = client.upload("kept", false, &mut &*body, length, other).await;
        assert_eq!(refused(answer), "agent.body_changed");
        assert_eq!(client.get_file("kept").await.unwrap().whole(10).await.unwrap(), b"old");
    }
    // It breaks off in the middle.
    let answer =
        client.upload("kept", false, &mut &large[..1 << 20], 3 << 20, Hash::of(&large)).await;
    assert_eq!(refused(answer), "agent.bad_request");
    assert_eq!(client.get_file("kept").await.unwrap().whole(10).await.unwrap(), b"old");
    // The agent notices only after us that no more comes.
    let mut names = String::new();
    for _ in 0..200 {
        names = run(client, &words(&["ls", "-A"])).await.0;
        if names == "kept\n" {
            break;
        }
    }
    assert_eq!(names, "kept\n", "nothing of it is left");
}

#[tokio::test]
async fn more_than_the_limit_or_the_disk_is_refused_and_leaves_nothing() {
    let world = World::new();
    let client = &world.client;
    run(client, &shell("head -c 200000000 /dev/zero > filler")).await;
    let large = noise(100 << 20);
    assert_eq!(refused(client.put_file("large", false, &large).await), "sandbox.too_large");
    assert_eq!(run(client, &words(&["ls", "-A"])).await.0, "filler\n");
    run(client, &words(&["rm", "filler"])).await;
    client.put_file("large", false, &large).await.unwrap();
}

/// A tar archive, as `tar` writes it inside.
async fn packed(world: &World, code: &str) -> Vec<u8> {
    let (_, err, _) = run(
        &world.client,
        &shell(&format!("cd /tmp && mkdir t && cd t && {code} > /workspace/t.tar")),
    )
    .await;
    assert_eq!(err, "");
    let tar = world.client.get_file("t.tar").await.unwrap().whole(10 << 20).await.unwrap();
    world.client.delete_file("t.tar").await.unwrap();
    tar
}

#[tokio::test]
async fn a_tree_goes_in_and_comes_out_as_tar() {
    let world = World::new();
    let client = &world.client;
    let code =
        "mkdir -p a/b && echo one > a/one && echo two > a/b/two && chmod +x a/b/two && tar cf - a";
    let tar = packed(&world, code).await;
    let length = u64::try_from(tar.len()).unwrap();
    client.put_archive("tree", &mut &*tar, length, Hash::of(&tar)).await.unwrap();
    let (out, _, _) =
        run(client, &shell("cd tree && cat a/one a/b/two && test -x a/b/two && echo x")).await;
    assert_eq!(out, "one\ntwo\nx\n");
    let back = client.get_archive("tree").await.unwrap().whole(10 << 20).await.unwrap();
    let length = u64::try_from(back.len()).unwrap();
    client.put_archive("again", &mut &*back, length, Hash::of(&back)).await.unwrap();
    assert_eq!(run(client, &words(&["diff", "-r", "tree", "again"])).await.2.exit_code, Some(0));
}

#[tokio::test]
async fn an_archive_that_leads_out_or_was_changed_leaves_nothing() {
    let world = World::new();
    let client = &world.client;
    let tar = packed(&world, "echo x > x && ln -s /etc l && tar cf - x l").await;
    let length = u64::try_from(tar.len()).unwrap();
    let answer = client.put_archive("tree", &mut &*tar, length, Hash::of(&tar)).await;
    assert_eq!(refused(answer), "sandbox.bad_archive");
    run(client, &shell("rm -rf /tmp/t")).await;
    let good = packed(&world, "echo x > x && tar cf - x").await;
    // Whoever changes what is sent can also end the archive early.
    let mut changed = good.clone();
    changed.extend_from_slice(&[0; 4096]);
    for body in [changed, good.iter().map(|byte| byte ^ u8::from(*byte == b'x')).collect()] {
        let length = u64::try_from(body.len()).unwrap();
        let answer = client.put_archive("tree", &mut &*body, length, Hash::of(&good)).await;
        assert!(["agent.body_changed", "sandbox.bad_archive"].contains(&refused(answer)));
    }
    assert_eq!(run(client, &words(&["ls", "-A"])).await.0, "");
}
