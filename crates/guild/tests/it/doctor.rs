use crate::support::Home;

#[test]
fn a_sane_host_can_run_a_node_and_nothing_is_left_behind() {
    let home = Home::new();
    let before = home.contents();
    let (code, answer) = home.json(&["doctor", "--set", "gateway.listen=127.0.0.1:0"]);
    assert_eq!(code, 0, "{answer}");
    assert_eq!(home.contents(), before);
    let names: Vec<_> = answer["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["checks"].as_array().unwrap())
        .map(|check| check["name"].as_str().unwrap().to_owned())
        .collect();
    for name in [
        "data directory",
        "clock",
        "randomness",
        "listener",
        "bus",
        "content",
        "seccomp",
        "landlock",
        "cgroup_pids",
        "backend",
        "a sandbox",
        "runc",
        "runsc",
        "podman",
    ] {
        assert!(names.iter().any(|n| n == name), "{name} is among {names:?}");
    }
}

#[test]
fn what_is_required_and_missing_is_a_no() {
    let home = Home::new();
    let dir = ["--data-dir", "/proc/guild", "--set", "gateway.listen=127.0.0.1:0"];
    let run = home.run(&[&["doctor"], &dir[..]].concat());
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("! missing  data directory"), "{run:?}");
    assert!(run.stdout.ends_with("until the required things above are there.\n"), "{run:?}");
    let (code, answer) = home.json(&[&["doctor"], &dir[..]].concat());
    assert_eq!((code, &answer["ok"]), (1, &false.into()));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("gateway.listen={}", taken.local_addr().unwrap());
    let run = home.run(&["doctor", "--set", &listen]);
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains("is taken, perhaps by a running node"), "{run:?}");
}

#[test]
fn a_bus_that_is_out_of_reach_is_weaker_and_a_wrong_address_is_a_no() {
    let home = Home::new();
    let free = testbed::free_port().unwrap();
    let listen = ["doctor", "--set", "gateway.listen=127.0.0.1:0", "--set"];
    let url = format!("bus.url=nats://guild:secret@127.0.0.1:{free}");
    let run = home.run(&[&listen[..], &[&url]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let found = format!("  weaker   bus             nats://127.0.0.1:{free} is out of reach: ");
    assert!(run.stdout.contains(&found) && !run.stdout.contains("secret"), "{run:?}");
    let url = format!("bus.url={}", testbed::Nats::shared_url().unwrap());
    let run = home.run(&[&listen[..], &[&url]].concat());
    assert!(run.stdout.contains(" is reachable\n"), "{run:?}");
    let run = home.run(&[&listen[..], &["bus.url=http://127.0.0.1"]].concat());
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("! missing  bus"), "{run:?}");
}
