//! Hostile programs in a sandbox that runc makes. Their classes are those of our own launcher, and so are their flags,
//! but for calls that are in no list.

use guild_sandbox::{
    Class, Collected, Layer, Limit, Limits, Oci, OciOptions, Profile, Sandbox, Spec, Standing,
};

use super::super::support::{launcher, limits, printed, python, shell};
use super::{is_root, program, run, script};

/// The limit ends it, and says so.
fn is_ended(spec: &Spec, limit: Limit, class: Class) {
    let collected = run(spec);
    let outcome = &collected.outcome;
    assert_eq!(outcome.class, class, "{outcome:?} {}", printed(&collected));
    assert!(outcome.limits[&limit].reached, "{outcome:?}");
}

/// The filter ends it, and nobody knows for what.
fn is_killed(collected: &Collected) {
    let outcome = &collected.outcome;
    assert_eq!(
        (outcome.class, outcome.signal),
        (Class::SecurityViolation, Some(31)),
        "{outcome:?}"
    );
    let [flag] = outcome.flags.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((flag.call.as_str(), flag.fatal), ("unknown", true));
}

#[test]
fn fork_bomb() {
    if !is_root() {
        return;
    }
    let code = "import os, time\nn = 0\nfor i in range(1000):\n    try:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\n    except BlockingIOError: break\nprint(n)\n";
    let collected = run(&python(code));
    assert_eq!(printed(&collected), "19\n", "{:?}", collected.outcome);
    assert!(collected.outcome.limits[&Limit::Pids].reached, "{:?}", collected.outcome);
}

#[test]
fn fork_bomb_of_the_shell() {
    if !is_root() {
        return;
    }
    // Which of the two limits comes first is a matter of how busy the host is.
    let limits = Limits { wall_ms: 700, ..limits() };
    let class = run(&Spec { limits, ..shell("f() { f | f & }; f; sleep 5") }).outcome.class;
    assert!([Class::WallLimit, Class::CpuLimit, Class::Exited].contains(&class), "{class:?}");
}

#[test]
fn memory_bomb() {
    if is_root() {
        let code = "x = []\nwhile True: x.append(bytearray(1 << 20))\n";
        is_ended(&python(code), Limit::Memory, Class::MemoryLimit);
    }
}

#[test]
fn memory_bomb_of_children() {
    if is_root() {
        let code = "import os, time\nfor i in range(8):\n    if os.fork() == 0:\n        x = bytearray(40 << 20)\n        for i in range(0, len(x), 4096): x[i] = 1\n        time.sleep(60)\ntime.sleep(60)\n";
        is_ended(&python(code), Limit::Memory, Class::MemoryLimit);
    }
}

#[test]
fn cpu_burn_by_short_lives() {
    if is_root() {
        let code = "import os, time\nwhile True:\n    if os.fork() == 0:\n        end = time.process_time() + 0.05\n        while time.process_time() < end: pass\n        os._exit(0)\n    os.wait()\n";
        is_ended(&python(code), Limit::Cpu, Class::CpuLimit);
    }
}

#[test]
fn fewer_cores_than_the_host_has() {
    if !is_root() {
        return;
    }
    let limits = Limits { cores_milli: 500, ..limits() };
    let code = "import time\nend = time.time() + 0.6\nwhile time.time() < end: pass\n";
    let outcome = run(&Spec { limits, ..python(code) }).outcome;
    assert!(outcome.succeeded() && outcome.usage.cpu_us < 550_000, "{outcome:?}");
}

#[test]
fn disk_and_inode_fill() {
    if !is_root() {
        return;
    }
    let code = "import os\nn = 0\ntry:\n    for i in range(100):\n        for place in ('/tmp', '/workspace', '/dev/shm'):\n            open(f'{place}/{i}', 'wb').write(b'x' * (1 << 20))\n            n += 1\nexcept OSError as error: print(n, error.errno)\n";
    let text = printed(&run(&python(code)));
    assert!(["15 28\n", "16 28\n"].contains(&text.as_str()), "{text}");
    let code = "n = 0\ntry:\n    for i in range(10000):\n        open(f'/tmp/{i}', 'w')\n        n += 1\nexcept OSError as error: print(error.errno, 1900 < n <= 2010)\n";
    assert_eq!(printed(&run(&python(code))), "28 True\n");
}

#[test]
fn sleep_for_ever() {
    if is_root() {
        let limits = Limits { wall_ms: 300, ..limits() };
        is_ended(&Spec { limits, ..shell("sleep 1000") }, Limit::Wall, Class::WallLimit);
    }
}

#[test]
fn output_flood() {
    if !is_root() {
        return;
    }
    let collected = run(&shell("yes"));
    assert_eq!(collected.outcome.class, Class::OutputLimit);
    assert_eq!(collected.stdout.len(), 1 << 20, "no more than the limit is given");
}

#[test]
fn network_attempts() {
    if !is_root() {
        return;
    }
    for family in ["AF_INET", "AF_VSOCK"] {
        let code = format!(
            "import socket\ntry: socket.socket(socket.{family})\nexcept OSError as error: print(error.errno)\n"
        );
        let collected = run(&python(&code));
        let outcome = &collected.outcome;
        assert_eq!(
            (outcome.class, outcome.exit_code),
            (Class::SecurityViolation, Some(0)),
            "{outcome:?}"
        );
        let flag = &outcome.flags[0];
        assert_eq!(
            (flag.call.as_str(), flag.detail.as_str(), flag.fatal),
            ("socket", family, false)
        );
        assert!(outcome.limits[&Limit::Network].reached);
        assert_eq!(printed(&collected), "1\n");
    }
}

#[test]
fn doors_of_the_kernel() {
    if !is_root() {
        return;
    }
    for (name, call) in
        [("unshare", "unshare(0x10000000)"), ("mount", "mount(b'x', b'/tmp', b'tmpfs', 0, None)")]
    {
        let code = format!("import ctypes\nctypes.CDLL(None).{call}\nprint('went on')");
        let collected = run(&python(&code));
        let outcome = &collected.outcome;
        assert_eq!(
            (outcome.class, outcome.signal),
            (Class::SecurityViolation, Some(9)),
            "{outcome:?}"
        );
        assert_eq!((outcome.flags[0].call.as_str(), outcome.flags[0].fatal), (name, true));
        assert_eq!(printed(&collected), "");
    }
    // A child whose parent hides its end.
    let outcome = run(&shell("unshare --user true; exit 0")).outcome;
    assert_eq!(outcome.class, Class::SecurityViolation, "{outcome:?}");
    let strict =
        Spec { profile: Profile::Strict, ..python("import os\nos.fork()\nprint('went on')") };
    is_killed(&run(&strict));
}

/// A runtime that knows nothing of listeners is used without: what would be asked kills.
#[test]
fn an_older_runtime_kills_without_a_name() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *' create '*) grep -q NOTIFY /mnt/bundle/config.json && exit 1 ;; esac\nexec {} \"$@\"\n",
        program("runc").display()
    );
    let older = Oci::new(OciOptions::new(launcher(), script(place.path(), &text))).unwrap();
    let spec = python("import socket\nsocket.socket(socket.AF_INET)\nprint('went on')");
    let collected = older.start(&spec).unwrap().collect().unwrap();
    is_killed(&collected);
    assert_eq!(collected.outcome.layers[&Layer::SeccompNotify], Standing::Absent);
    assert_eq!(printed(&collected), "");
}

#[test]
fn nothing_but_its_own_can_be_written() {
    if !is_root() {
        return;
    }
    let code = "import os\nfor path in ('/x', '/usr/x', '/etc/x', '/dev/x', '/judge/x', '/proc/self/oom_score_adj'):\n    try:\n        with open(path, 'w') as file: file.write('-1000')\n        print('wrote', path)\n    except OSError: pass\nfor path in ('/proc/1/root', '/proc/1/environ', '/proc/sysrq-trigger', '/proc/kcore', '/sys'):\n    if os.path.exists(path): print('sees', path)\n";
    assert_eq!(printed(&run(&python(code))), "");
}

#[test]
fn nobody_is_left_to_be_signalled() {
    if !is_root() {
        return;
    }
    let code = "import os, signal\nfor pid in range(1, 400):\n    if pid == os.getpid(): continue\n    try:\n        os.kill(pid, signal.SIGKILL)\n        print('killed', pid)\n    except OSError: pass\nprint('end')\n";
    assert_eq!(printed(&run(&python(code))), "end\n");
}

#[test]
fn orphans_and_inherited_descriptors() {
    if !is_root() {
        return;
    }
    let code = "import os\nprint(sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')) <= 4)\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        import time\n        time.sleep(1000)\n    os._exit(0)\n";
    let collected = run(&python(code));
    assert_eq!(printed(&collected), "['0', '1', '2'] True\n");
    assert!(collected.outcome.succeeded(), "{:?}", collected.outcome);
}
