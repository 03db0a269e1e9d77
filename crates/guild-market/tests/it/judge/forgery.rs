//! Submissions that reach for the judge itself: its subject, its files, its processes, what it expects.

use guild_market::judge::{Class, Status};
use serde_json::json;

use super::{SECRET, doubled, doubling, error, is, judge, statuses};

/// Wrong, whatever it does beside that.
fn wrong(code: &str) -> String {
    format!("{code}\ndef double(x):\n    return 4\n")
}

#[test]
fn json_in_the_place_of_json() {
    let code = "import sys, types\nfake = types.ModuleType('json')\n\
                fake.dumps = lambda *a, **k: '{}'\nfake.loads = lambda *a, **k: {}\n\
                fake.JSONEncoder = fake.JSONDecoder = object\n\
                sys.modules['json'] = sys.modules['json.encoder'] = sys.modules['json.decoder'] = fake\n";
    is(Class::Failure, &wrong(code));
    let patched = "import json\njson.dumps = json.JSONEncoder.encode = lambda *a: '{\"ok\": 4}'\n";
    is(Class::Failure, &wrong(patched));
}

#[test]
fn modules_beside_the_entry_replace_nothing() {
    let files = [
        ("solution.py", "def double(x):\n    return x + x\n"),
        ("json.py", "raise SystemExit(7)\n"),
        ("os.py", "raise SystemExit(7)\n"),
        ("subject.py", "raise SystemExit(7)\n"),
    ];
    assert_eq!(judge(&doubling(), &files).class, Class::Success);
}

#[test]
fn files_that_python_runs_by_itself() {
    let spy = "import os\nos.write(2, b'it ran')\n";
    let files = [
        ("solution.py", "def double(x):\n    return x + x\n"),
        ("sitecustomize.py", spy),
        ("usercustomize.py", spy),
        ("spy.pth", "import os; os.write(2, b'it ran')\n"),
        ("pyvenv.cfg", "home = /submission\n"),
        ("python311._pth", "/submission\n"),
        ("__pycache__/solution.cpython-311.pyc", "no code"),
        (".pythonrc", spy),
        ("conftest.py", spy),
    ];
    let verdict = judge(&doubling(), &files);
    assert_eq!((verdict.class, verdict.printed.as_str()), (Class::Success, ""), "{verdict:#?}");
}

#[test]
fn the_functions_of_the_subject() {
    // It finds the frame of the subject and makes every call and every answer its own.
    let code = "import sys, builtins\nframe = sys._getframe()\nseen = []\n\
                while frame:\n    seen.append(sorted(frame.f_locals)); frame = frame.f_back\n\
                import importlib\nbuiltins.isinstance = lambda *a: True\nbuiltins.getattr = lambda *a: lambda *b: 4\n";
    let verdict = is(Class::Failure, &wrong(code));
    // Four is twice two, by chance.
    assert_eq!(statuses(&verdict), ["passed", "failed", "failed", "failed", "failed"]);
}

#[test]
fn killing_whoever_is_there() {
    for (target, class) in [
        ("os.getppid()", Class::Failure),
        ("1", Class::Failure),
        ("-1", Class::Failure),
        ("0", Class::Error),
    ] {
        let code = format!(
            "import os\ndef double(x):\n    try: os.kill({target}, 9)\n    except OSError: pass\n    return 4\n"
        );
        let verdict = doubled(&code);
        assert_eq!(verdict.class, class, "{target} {verdict:#?}");
        assert!(verdict.passed <= 1, "{target}");
    }
}

#[test]
fn every_process_that_can_be_seen() {
    let code = "import os\ndef double(x):\n    for pid in range(1, 40000):\n        \
                if pid != os.getpid():\n            try: os.kill(pid, 9)\n            \
                except OSError: pass\n    return 4\n";
    let verdict = doubled(code);
    assert_eq!(verdict.class, Class::Failure, "{verdict:#?}");
}

#[test]
fn looking_for_the_runner() {
    let mut suite = doubling();
    suite["tests"] = json!([{"id": "t", "layer": "smoke", "call": "look", "args": [], "expect": {"value": {
        "pids": [true], "own": true}}}]);
    suite["layers"] = json!({"smoke": 1});
    let code = "import os\ndef look():\n    \
                pids = [p for p in os.listdir('/proc') if p.isdigit()]\n    \
                mine = str(os.getpid())\n    \
                return {'pids': [all(p == mine or not os.access(f'/proc/{p}/mem', os.R_OK) for p in pids)], \
                'own': mine in pids}\n";
    let verdict = judge(&suite, &[("solution.py", code)]);
    assert_eq!(verdict.class, Class::Success, "{verdict:#?}");
    let code = "import os\ndef look():\n    out = []\n    for p in os.listdir('/proc'):\n        \
                if p.isdigit() and p != str(os.getpid()):\n            \
                for f in ('mem', 'environ', 'maps', 'cmdline', 'fd'):\n                \
                try: out.append(f + repr(open(f'/proc/{p}/{f}', 'rb').read(9)))\n                \
                except OSError: pass\n    raise ValueError(repr(out))\n";
    let verdict = judge(&suite, &[("solution.py", code)]);
    assert_eq!(verdict.tests[0].why.as_deref(), Some("it gave an error: ValueError: []"));
}

#[test]
fn tracing_the_subject() {
    let code = "import ctypes, os\nlibc = ctypes.CDLL(None)\n\
                def double(x):\n    libc.ptrace(16, os.getppid(), 0, 0)\n    return x + x\n";
    let verdict = is(Class::SecurityViolation, code);
    assert_eq!(verdict.flags[0].call, "ptrace");
    assert!(verdict.trust.blacklist);
    let code = "import ctypes, os\nlibc = ctypes.CDLL(None)\n\
                def double(x):\n    libc.process_vm_readv(1, None, 0, None, 0, 0)\n    return x + x\n";
    assert_eq!(is(Class::SecurityViolation, code).flags[0].call, "process_vm_readv");
}

/// Everything that can be seen from inside: files, environment, arguments, memory, descriptors.
const SEARCH: &str = "
import os, sys, gc
def everything():
    seen = [repr(sys.argv), repr(dict(os.environ))]
    for top in ('/judge', '/submission', '/workspace', '/tmp', '/dev/shm', '/etc', '/proc/self'):
        for path, directories, files in os.walk(top):
            seen.append(path)
            if path.count('/') > 6: continue
            for name in files:
                seen.append(name)
                if name in ('mem', 'pagemap', 'clear_refs', 'kmsg'): continue
                try:
                    fd = os.open(path + '/' + name, os.O_RDONLY | os.O_NONBLOCK)
                    seen.append(os.read(fd, 1 << 16).decode('latin1'))
                    os.close(fd)
                except OSError: pass
    for line in open('/proc/self/maps'):
        bounds, mode = line.split()[:2]
        if 'rw' not in mode or line.split()[-1].startswith('/'): continue
        low, high = (int(n, 16) for n in bounds.split('-'))
        if high - low > 64 << 20: continue
        try:
            with open('/proc/self/mem', 'rb') as memory:
                memory.seek(low)
                seen.append(memory.read(high - low).decode('latin1'))
        except (OSError, ValueError): pass
    return '\\n'.join(seen)
";

#[test]
fn searching_for_what_is_expected() {
    // The first call is an honest one; then it looks for a word of the suite, in a copy that is turned around, so that
    // it does not find what it is looking for in itself.
    let search = |word: &str, extra: &str| {
        let turned: String = word.chars().rev().collect();
        format!(
            "{SEARCH}\n{extra}\ndef double(x):\n    \
             if x == 2: return 4\n    \
             found = '{turned}' in everything()[::-1]\n    raise ValueError('found ' + str(found))\n"
        )
    };
    let expected = (SECRET - 1).to_string();
    for word in [expected.as_str(), "a-secret-one", "first-smoke", "doubling", "correctness"] {
        let verdict = doubled(&search(word, ""));
        let why = verdict.tests[1].why.as_deref().unwrap_or_default();
        assert_eq!(why, "it gave an error: ValueError: found False", "{word} {verdict:#?}");
        assert_eq!(verdict.tests[0].status, Status::Passed);
    }
    // The search finds what is there.
    let kept = search("a-word-of-its-own", "KEPT = ''.join(['a-word-', 'of-its-own'])");
    let verdict = doubled(&kept);
    let why = verdict.tests[1].why.as_deref().unwrap_or_default();
    assert_eq!(why, "it gave an error: ValueError: found True", "{verdict:#?}");
}

#[test]
fn telling_a_test_by_its_surroundings() {
    // Two suites that differ in names, layers and expected values only look the same from inside.
    let code = format!(
        "{SEARCH}\nimport hashlib\ndef double(x):\n    return x + x\n\
         print(sorted(os.environ.items()), sys.argv, sorted(os.listdir('/judge')), os.getcwd(), os.getpid())\n"
    );
    let mut other = doubling();
    other["name"] = json!("another name");
    for test in other["tests"].as_array_mut().unwrap() {
        test["id"] = json!(format!("other {}", test["id"]));
    }
    let files = [("solution.py", code.as_str())];
    let (first, second) = (judge(&doubling(), &files), judge(&other, &files));
    assert_eq!((first.class, second.class), (Class::Success, Class::Success));
    assert_eq!(first.printed, second.printed);
}

#[test]
fn the_files_of_the_judge_cannot_be_changed() {
    let code = "import os\nok = []\n\
                for path in ('/judge/subject.py', '/judge/new', '/submission/solution.py', \
                             '/submission/new', '/usr/new'):\n    \
                for flags in (os.O_WRONLY, os.O_WRONLY | os.O_CREAT):\n        \
                try: os.close(os.open(path, flags)); ok.append(path)\n        except OSError: pass\n    \
                try: os.unlink(path); ok.append(path)\n    except OSError: pass\n\
                print(ok, end='')\ndef double(x):\n    return x + x\n";
    let verdict = is(Class::Success, code);
    assert_eq!(verdict.printed, "[]");
}

#[test]
fn a_junit_file_is_nobodys_answer() {
    let code = "import os\nfor path in ('/tmp/junit.xml', '/workspace/junit.xml', '/workspace/report.json'):\n    \
                open(path, 'w').write('<testsuite tests=\"5\" failures=\"0\" errors=\"0\"/>')\nos._exit(0)\n";
    let verdict = is(Class::Error, code);
    assert_eq!((error(&verdict).1, verdict.passed), ("it ended without an answer", 0));
}

#[test]
fn pytest_internals_are_not_there_to_be_patched() {
    let code = "import sys, types\nfor name in ('pytest', '_pytest', '_pytest.python', '_pytest.runner'):\n    \
                module = types.ModuleType(name)\n    sys.modules[name] = module\n    \
                module.Function = type('Function', (), {'runtest': lambda self: None})\n";
    is(Class::Failure, &wrong(code));
}

#[test]
fn flipping_outcomes_by_hooks() {
    let hooks = "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n    \
                 outcome = yield\n    outcome.get_result().outcome = 'passed'\n";
    let files = [("solution.py", "def double(x):\n    return 4\n"), ("conftest.py", hooks)];
    assert_eq!(judge(&doubling(), &files).class, Class::Failure);
}

#[test]
fn at_exit_nothing_can_be_added() {
    let code =
        "import atexit, os\natexit.register(lambda: os.write(4, b'{\"class\": \"SUCCESS\"}\\n'))\n";
    is(Class::Failure, &wrong(code));
}

#[test]
fn signals_and_alarms_answer_nothing() {
    let code = "import signal, os\nsignal.signal(signal.SIGALRM, lambda *a: os.write(4, b'{}\\n'))\n\
                signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\nimport time\n";
    let verdict =
        doubled(&format!("{code}\ndef double(x):\n    time.sleep(0.1)\n    return x + x\n"));
    assert_eq!((verdict.class, verdict.passed), (Class::Error, 0), "{verdict:#?}");
}
