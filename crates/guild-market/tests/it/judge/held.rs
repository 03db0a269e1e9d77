//! What the kernel holds and sees, what stands in a submission, and how time grows.

use guild_market::judge::{Class, Options, Status, Submission};
use guild_sandbox::{Limit, Sandbox, Standing};
use serde_json::{Value, json};

use super::{HONEST, doubling, error, is, judge, judge_in, sandbox, statuses};

#[test]
fn a_network_attempt_wins_over_every_score() {
    let code = "import socket\ntry: socket.create_connection(('127.0.0.1', 80))\nexcept OSError: pass\n\
                def double(x):\n    return x + x\n";
    let verdict = is(Class::SecurityViolation, code);
    assert_eq!(
        (verdict.flags[0].call.as_str(), verdict.flags[0].detail.as_str()),
        ("socket", "AF_INET")
    );
    assert!(verdict.limits[&Limit::Network].reached && verdict.trust.blacklist);
}

#[test]
fn an_attempt_that_ends_the_run() {
    let code = "import ctypes\ndef double(x):\n    ctypes.CDLL(None).unshare(0x10000000)\n    return x + x\n";
    let verdict = is(Class::SecurityViolation, code);
    assert_eq!(verdict.flags[0].call, "unshare");
    assert!(error(&verdict).1.contains("it tried unshare"), "{verdict:#?}");
}

#[test]
fn an_attempt_by_a_child_counts() {
    let code = "import os, socket\ndef double(x):\n    pid = os.fork()\n    if pid == 0:\n        \
                try: socket.socket()\n        except OSError: pass\n        os._exit(0)\n    \
                os.waitpid(pid, 0)\n    return x + x\n";
    is(Class::SecurityViolation, code);
}

#[test]
fn too_much_memory() {
    let verdict = is(Class::Error, "def double(x):\n    return len(bytearray(1 << 30))\n");
    let why = error(&verdict).1;
    assert!(why.contains("memory_hard_bytes"), "{why}");
    assert!(verdict.limits[&Limit::Memory].reached);
}

/// What does not fit into its sandbox has been judged all the same: nobody pads a wrong program out of its verdict.
#[test]
fn what_does_not_fit_is_an_error_of_the_submission() {
    let wrong = ("solution.py".to_owned(), b"def double(x):\n    return x\n".to_vec());
    let judged = |limits: &[(&str, u64)], more: (String, Vec<u8>)| {
        let mut suite = doubling();
        limits.iter().for_each(|(name, value)| suite["limits"][*name] = json!(value));
        let submission = Submission::new([wrong.clone(), more]);
        judge_in(sandbox(), &Options::default(), &suite, &submission).unwrap()
    };
    let large = |bytes: usize| ("data".to_owned(), vec![b'x'; bytes]);
    let directory = "d".repeat(250);
    let long = vec![directory.as_str(); 16].join("/");
    let mut padded = vec![
        (judged(&[("disk_bytes", 1 << 20)], large(2 << 20)), "files: "),
        (judged(&[], (format!("{long}/file"), Vec::new())), "files.at: "),
        (judged(&[], ("e".repeat(300), Vec::new())), "files.at: "),
        (judged(&[], ("solution.py/below".to_owned(), Vec::new())), "files.at: "),
    ];
    if sandbox().host().standing(guild_sandbox::Layer::CgroupMemory) == Standing::Enforced {
        let limits = [
            ("memory_soft_bytes", 16 << 20),
            ("memory_hard_bytes", 16 << 20),
            ("disk_bytes", 16 << 20),
        ];
        padded.push((judged(&limits, large((16 << 20) - 8_192)), "limits.memory_hard_bytes: "));
    }
    for (verdict, says) in padded {
        assert_eq!(verdict.class, Class::Error, "{verdict:#?}");
        let (test, why) = error(&verdict);
        let begins = format!("it does not fit into its sandbox: {says}");
        assert!(test == "first-smoke" && why.starts_with(&begins), "{why}");
        assert!(why.len() <= 300, "{why}");
    }
}

#[test]
fn too_many_processes() {
    let code = "import os, time\ndef double(x):\n    n = 0\n    try:\n        while True:\n            \
                if os.fork() == 0: time.sleep(100)\n            n += 1\n    except OSError: pass\n    return x + x\n";
    // It goes on with what it got, and what it left ends with it.
    let verdict = is(Class::Success, code);
    let pids = &verdict.limits[&Limit::Pids];
    assert_eq!(pids.reached, pids.standing == Standing::Enforced, "{verdict:#?}");
}

#[test]
fn a_limit_of_the_whole_run() {
    let mut suite = doubling();
    // The third call is open when the clock of the sandbox, which began before all of them, has run down.
    suite["limits"] = json!({"wall_ms": 3_000});
    suite["call_timeout_ms"] = json!(3_000);
    let slow = "import time\ndef double(x):\n    time.sleep(1.2)\n    return x + x\n";
    let verdict = judge(&suite, &[("solution.py", slow)]);
    assert_eq!(verdict.class, Class::Error);
    let why = "it ended without an answer: the limit of wall_ms was reached";
    assert_eq!(error(&verdict).1, why, "{verdict:#?}");
}

fn with_security(checks: &[Value]) -> Value {
    let mut suite = doubling();
    suite["tests"].as_array_mut().unwrap().extend(checks.iter().cloned());
    suite["layers"]["security"] = json!(checks.len());
    suite
}

#[test]
fn forbidden_names_are_found_before_anything_runs() {
    let suite = with_security(&[
        json!({"id": "names", "layer": "security", "forbid": ["os.system", "eval", "subprocess"]}),
        json!({"id": "kernel", "layer": "security", "kernel": true}),
    ]);
    let verdict = judge(&suite, &[("solution.py", HONEST)]);
    assert_eq!((verdict.class, verdict.passed), (Class::Success, 7), "{verdict:#?}");
    let code = format!("import os as o\nprint('it ran')\ndef never(): o.system('true')\n{HONEST}");
    let verdict = judge(&suite, &[("solution.py", &code)]);
    assert_eq!(verdict.class, Class::SecurityViolation);
    assert_eq!(verdict.tests[5].why.as_deref(), Some("os.system in solution.py, line 3"));
    assert_eq!((verdict.printed.as_str(), verdict.passed), ("", 0), "nothing of it ran");
    assert_eq!(statuses(&verdict)[6], "not_run");
    // What is not written plainly is not found, and harmless here: the kernel holds whatever it starts.
    let hidden = format!("import os\ngetattr(os, 'sys' + 'tem')('true')\n{HONEST}");
    assert_eq!(judge(&suite, &[("solution.py", &hidden)]).class, Class::Success);
}

#[test]
fn the_kernel_is_asked_in_the_end() {
    let suite = with_security(&[json!({"id": "kernel", "layer": "security", "kernel": true})]);
    let code = format!("import socket\ntry: socket.socket()\nexcept OSError: pass\n{HONEST}");
    let verdict = judge(&suite, &[("solution.py", &code)]);
    assert_eq!(verdict.tests[5].why.as_deref(), Some("it tried socket AF_INET"));
    assert_eq!(verdict.class, Class::SecurityViolation);
}

/// A suite whose performance test lets time grow threefold when the size doubles.
fn growing(small: u64) -> Value {
    let side = |n: u64| json!({"args": [n], "expect": {"value": n}});
    json!({
        "schema_version": 1, "name": "growing", "language": "python", "entry": "solution.py",
        "layers": {"smoke": 1, "performance": 1},
        "tests": [
            {"id": "s", "layer": "smoke", "call": "f", "args": [1], "expect": {"value": 1}},
            {"id": "p", "layer": "performance", "call": "f", "small": side(small), "large": side(2 * small),
             "max_ratio_percent": 300, "repetitions": 3},
        ],
    })
}

#[test]
fn time_that_grows_as_it_may() {
    let linear = "def f(n):\n    k = 0\n    for i in range(n): k += 1\n    return k\n";
    let verdict = judge(&growing(1_500_000), &[("solution.py", linear)]);
    assert_eq!(verdict.class, Class::Success, "{verdict:#?}");
    assert!(verdict.tests[1].wall_us.is_some_and(|us| us > 1_000));
}

const QUADRATIC: &str = "
def f(n):
    k = 0
    for i in range(n):
        for j in range(n): k += 1
    return n
";

#[test]
fn time_that_grows_too_fast() {
    let verdict = judge(&growing(1_200), &[("solution.py", QUADRATIC)]);
    assert_eq!(verdict.tests[1].status, Status::Failed, "{verdict:#?}");
    assert_eq!(verdict.class, Class::Failure);
    assert!(verdict.tests[1].why.as_deref().unwrap().contains("more than 300 % of it"));
}

#[test]
fn remembering_earlier_calls_helps_nothing() {
    // In memory, in files, in shared memory: the second time is the first time.
    let code = format!(
        "import os\n{QUADRATIC}\nslow = f\nmemo = {{}}\ndef f(n):\n    \
         for place in ('/tmp', '/workspace', '/dev/shm'):\n        \
         if os.path.exists(f'{{place}}/{{n}}'): return n\n    \
         if n in memo: return n\n    memo[n] = slow(n)\n    \
         for place in ('/tmp', '/workspace', '/dev/shm'): open(f'{{place}}/{{n}}', 'w').close()\n    return n\n"
    );
    let verdict = judge(&growing(1_200), &[("solution.py", &code)]);
    assert_eq!(verdict.tests[1].status, Status::Failed, "{verdict:#?}");
}

#[test]
fn quick_and_wrong_is_wrong() {
    let verdict = judge(&growing(1_200), &[("solution.py", "def f(n):\n    return 1\n")]);
    assert_eq!(verdict.tests[1].why.as_deref(), Some("it gave another value"));
    assert_eq!(verdict.class, Class::Failure);
}

#[test]
fn a_crash_while_it_is_timed() {
    let code = "import os\ndef f(n):\n    return n if n == 1 else os._exit(0)\n";
    let verdict = judge(&growing(1_200), &[("solution.py", code)]);
    assert_eq!((verdict.class, error(&verdict).1), (Class::Error, "it ended without an answer"));
}
