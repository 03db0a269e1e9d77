//! Programs that want more than their share.

use guild_sandbox::{Class, Layer, Limit, Limits, Ns, Sandbox, Spec, Standing};

use super::super::support::{
    limits, printed, python, run, sandbox, sandbox_without_cgroups, shell,
};
use super::super::traces::Traces;
use super::attack;

/// With cgroups and without.
fn both(spec: &Spec, check: impl Fn(&guild_sandbox::Collected)) {
    let without = sandbox_without_cgroups();
    let kinds: [&Ns; 2] = [sandbox(), &without];
    for sandbox in kinds {
        let collected = run(sandbox, spec);
        Traces::now().assert_none();
        check(&collected);
    }
}

fn class(spec: &Spec, limit: Limit, class: Class) {
    both(spec, |collected| {
        let outcome = &collected.outcome;
        assert_eq!(outcome.class, class, "{outcome:?} {}", printed(collected));
        assert!(outcome.limits[&limit].reached, "{outcome:?}");
    });
}

#[test]
fn fork_bomb() {
    let code = "import os, time\nn = 0\nfor i in range(1000):\n    try:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\n    except BlockingIOError: break\nprint(n)\n";
    both(&python(code), |collected| {
        // The limit counts the program itself.
        assert_eq!(printed(collected), "19\n", "{:?}", collected.outcome);
        assert!(collected.outcome.succeeded());
    });
    let outcome = attack(&python(code)).outcome;
    let report = &outcome.limits[&Limit::Pids];
    if report.standing == Standing::Enforced {
        assert!(report.reached && outcome.usage.pids_peak == 20, "{outcome:?}");
    }
}

#[test]
fn fork_bomb_of_the_shell() {
    // Which of the limits comes first is a matter of how busy the host is.
    let spec = Spec {
        limits: Limits { wall_ms: 700, ..limits() },
        ..shell("f() { f | f & }; f; sleep 5")
    };
    both(&spec, |collected| {
        let class = collected.outcome.class;
        let right = [Class::WallLimit, Class::CpuLimit, Class::Exited];
        assert!(right.contains(&class), "{:?}", collected.outcome);
    });
}

#[test]
fn thread_bomb() {
    let code = "import threading, time\nthreading.stack_size(262144)\nn = 0\ntry:\n    for i in range(1000):\n        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n        n += 1\nexcept RuntimeError: pass\nprint(n, flush=True)\nimport os\nos._exit(0)\n";
    both(&python(code), |collected| assert_eq!(printed(collected), "19\n"));
}

#[test]
fn memory_bomb() {
    let code = "x = []\nwhile True: x.append(bytearray(1 << 20))\n";
    let outcome = attack(&python(code)).outcome;
    if outcome.limits[&Limit::Memory].standing == Standing::Enforced {
        assert_eq!(outcome.class, Class::MemoryLimit, "{outcome:?}");
        assert!(outcome.usage.memory_peak_bytes <= 128 << 20, "{outcome:?}");
        assert!(outcome.limits[&Limit::Memory].reached);
    }
    // Without cgroups the program sees its own limit.
    let collected = run(&sandbox_without_cgroups(), &python(code));
    let ended = collected.outcome.class == Class::MemoryLimit;
    assert!(ended || printed(&collected).contains("MemoryError"), "{:?}", collected.outcome);
    assert_eq!(collected.outcome.limits[&Limit::Memory].standing, Standing::Weaker);
}

#[test]
fn memory_bomb_of_children() {
    let code = "import os, time\nfor i in range(8):\n    if os.fork() == 0:\n        x = bytearray(40 << 20)\n        for i in range(0, len(x), 4096): x[i] = 1\n        time.sleep(60)\ntime.sleep(60)\n";
    class(&python(code), Limit::Memory, Class::MemoryLimit);
}

#[test]
fn memory_in_files_without_a_name() {
    let code = "import os\nfd = os.memfd_create('x')\nwhile True: os.write(fd, b'x' * (1 << 20))\n";
    let outcome = attack(&python(code)).outcome;
    let reached = outcome.class == Class::MemoryLimit || outcome.signal == Some(25);
    assert!(reached || outcome.exit_code == Some(1), "{outcome:?}");
    assert!(outcome.usage.memory_peak_bytes <= 128 << 20);
}

#[test]
fn disk_fill() {
    let code = "import os\nn = 0\ntry:\n    for i in range(100):\n        for place in ('/tmp', '/workspace', '/dev/shm'):\n            open(f'{place}/{i}', 'wb').write(b'x' * (1 << 20))\n            n += 1\nexcept OSError as error: print(n, error.errno)\n";
    both(&python(code), |collected| {
        let text = printed(collected);
        assert!(["15 28\n", "16 28\n"].contains(&text.as_str()), "{text}");
    });
}

#[test]
fn inode_fill() {
    let code = "n = 0\ntry:\n    for i in range(10000):\n        open(f'/tmp/{i}', 'w')\n        n += 1\nexcept OSError as error: print(error.errno, 1900 < n <= 2010)\n";
    both(&python(code), |collected| assert_eq!(printed(collected), "28 True\n"));
}

#[test]
fn ten_thousand_tiny_files() {
    let spec = python(
        "import os\nfor i in range(10000): open(f'/tmp/{i}', 'w').write('x')\nprint(len(os.listdir('/tmp')))",
    );
    let limits = Limits { inodes: 11_000, disk_bytes: 64 << 20, ..limits() };
    assert_eq!(printed(&attack(&Spec { limits, ..spec })), "10000\n");
}

#[test]
fn sparse_file() {
    let code = "import os\nf = open('/tmp/x', 'wb')\ntry: f.truncate(1 << 40)\nexcept OSError as error: print(error.errno)\n";
    let collected = attack(&python(code));
    let outcome = &collected.outcome;
    assert!(outcome.signal == Some(25) || printed(&collected) == "27\n", "{outcome:?}");
}

#[test]
fn cpu_burn() {
    class(&python("while True: pass"), Limit::Cpu, Class::CpuLimit);
}

#[test]
fn cpu_burn_across_children() {
    let code = "import os\nfor i in range(4): os.fork()\nwhile True: pass\n";
    let outcome = attack(&python(code)).outcome;
    assert_eq!(outcome.class, Class::CpuLimit);
    assert!((1_000_000..3_000_000).contains(&outcome.usage.cpu_us), "{outcome:?}");
}

#[test]
fn cpu_burn_by_short_lives() {
    let code = "import os, time\nwhile True:\n    if os.fork() == 0:\n        end = time.process_time() + 0.05\n        while time.process_time() < end: pass\n        os._exit(0)\n    os.wait()\n";
    class(&python(code), Limit::Cpu, Class::CpuLimit);
}

#[test]
fn cpu_burn_by_children_that_nobody_waits_for() {
    let code = "import os, time, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True:\n    try: pid = os.fork()\n    except BlockingIOError: pid = 1\n    if pid == 0:\n        end = time.process_time() + 0.05\n        while time.process_time() < end: pass\n        os._exit(0)\n    time.sleep(0.03)\n";
    let counted = sandbox().host().standing(Layer::CgroupFreeze) == Standing::Enforced;
    // Without a cgroup nobody can count them: then the wall clock must do.
    let wall_ms = if counted { 120_000 } else { 2_000 };
    let limits = Limits { wall_ms, ..limits() };
    let outcome = attack(&Spec { limits, ..python(code) }).outcome;
    assert!(outcome.class == Class::CpuLimit || (!counted && outcome.class == Class::WallLimit));
}

#[test]
fn soft_limits_are_only_told() {
    let code = "import time\nx = bytearray(80 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nwhile time.process_time() < 0.45: pass\n";
    let limits = Limits { cpu_hard_ms: 20_000, ..limits() };
    let outcome = attack(&Spec { limits, ..python(code) }).outcome;
    assert!(outcome.succeeded(), "{outcome:?}");
    assert!(outcome.limits[&Limit::Cpu].reached && outcome.limits[&Limit::Memory].reached);
    assert!(!outcome.limits[&Limit::Wall].reached);
}

#[test]
fn sleep_for_ever() {
    let spec = Spec { limits: Limits { wall_ms: 300, ..limits() }, ..shell("sleep 1000") };
    class(&spec, Limit::Wall, Class::WallLimit);
}

#[test]
fn waiting_for_input_that_never_comes() {
    let spec = Spec { limits: Limits { wall_ms: 300, ..limits() }, ..shell("cat") };
    let mut running = sandbox().start(&spec).unwrap();
    let held_open = running.stdin.take();
    let outcome = running.collect().unwrap().outcome;
    assert_eq!((outcome.class, held_open.is_some()), (Class::WallLimit, true));
    Traces::now().assert_none();
}

#[test]
fn output_flood() {
    let collected = attack(&shell("yes"));
    assert_eq!(collected.outcome.class, Class::OutputLimit);
    assert_eq!(collected.stdout.len(), 1 << 20, "no more than the limit is given");
    assert!(collected.outcome.limits[&Limit::Output].reached);
}

#[test]
fn output_flood_on_both_streams_without_lines() {
    let code = "import os\nwhile True:\n    os.write(1, b'\\xff\\x1b[2J' * 999)\n    os.write(2, bytes(9999))\n";
    let collected = attack(&python(code));
    assert_eq!(collected.outcome.class, Class::OutputLimit);
    assert_eq!(collected.stdout.len() + collected.stderr.len(), 1 << 20);
}

#[test]
fn output_flood_that_nobody_reads() {
    let outcome = sandbox().start(&shell("yes")).unwrap().wait().unwrap();
    assert_eq!(outcome.class, Class::OutputLimit);
    Traces::now().assert_none();
}

#[test]
fn too_many_open_files() {
    let code = "n = 0\nfiles = []\ntry:\n    while True:\n        files.append(open('/dev/null'))\nexcept OSError as error: print(error.errno, len(files) < 256)\n";
    assert_eq!(printed(&attack(&python(code))), "24 True\n");
}

#[test]
fn core_dumps() {
    let code = "import os, resource\nprint(resource.getrlimit(resource.RLIMIT_CORE), flush=True)\nos.abort()\n";
    let spec = Spec {
        argv: ["python3", "-I", "/judge/main.py"].map(str::to_owned).into(),
        ..python(code)
    };
    let collected = attack(&spec);
    assert_eq!(printed(&collected), "(0, 0)\n");
    assert_eq!((collected.outcome.class, collected.outcome.signal), (Class::Signaled, Some(6)));
}

#[test]
fn limits_cannot_be_raised() {
    let code = "import resource as r\nfor what in (r.RLIMIT_CPU, r.RLIMIT_NOFILE, r.RLIMIT_NPROC, r.RLIMIT_FSIZE, r.RLIMIT_CORE):\n    soft, hard = r.getrlimit(what)\n    try:\n        r.setrlimit(what, (soft, hard + 1))\n        print('raised', what)\n    except (ValueError, PermissionError): pass\n";
    let spec = Spec {
        argv: ["python3", "-I", "/judge/main.py"].map(str::to_owned).into(),
        ..python(code)
    };
    let collected = attack(&spec);
    assert_eq!(printed(&collected), "");
    assert!(collected.outcome.succeeded());
}

#[test]
fn fewer_cores_than_the_host_has() {
    let limits = Limits { cores_milli: 500, ..limits() };
    let code = "import time\nend = time.time() + 0.6\nwhile time.time() < end: pass\n";
    let outcome = attack(&Spec { limits, ..python(code) }).outcome;
    assert!(outcome.succeeded(), "{outcome:?}");
    let report = &outcome.limits[&Limit::Cores];
    match report.standing {
        // Half of 0.6 s, and what was left of the first periods.
        Standing::Enforced => assert!(outcome.usage.cpu_us < 480_000, "{outcome:?}"),
        _ => assert_eq!(report.by, "pinned to whole cores"),
    }
}
