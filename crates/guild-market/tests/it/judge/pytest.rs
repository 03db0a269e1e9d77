//! Suites of pytest, and what can be seen of forgeries there. Four attacks that a process can play on itself are played
//! here and, in the other files, on the runner that holds its tests outside: there they all fail.

use guild_market::judge::{Class, Measure, Mode, Options, Verdict};
use serde_json::{Value, json};

use super::{doubling, error, judge, judge_with, statuses};

const TESTS: &str = "
from solution import double
import pytest

def test_number(): assert double(2) == 4
def test_text(): assert double('a') == 'aa'
@pytest.mark.parametrize('n', [1, 2])
def test_many(n): assert double(n) == n + n
def test_error():
    with pytest.raises(TypeError): double(None)
";

const GOOD: &str = "def double(x):\n    return x + x\n";
const BAD: &str = "def double(x):\n    return 5\n";

fn options() -> Options {
    Options { tools: Some(testbed::judge_tools::directory().unwrap()), ..Options::default() }
}

/// Tools that hide what the image of this host may have of its own.
fn without(names: &[&str]) -> (tempfile::TempDir, Options) {
    let place = tempfile::tempdir().unwrap();
    let hides: String =
        names.iter().map(|name| format!("import sys; sys.modules[{name:?}] = None\n")).collect();
    std::fs::write(place.path().join("sitecustomize.py"), hides).unwrap();
    let tools = Some(place.path().to_owned());
    (place, Options { tools, ..Options::default() })
}

fn suite() -> Value {
    let test =
        |name: &str, layer: &str| json!({"id": format!("test_it.py::{name}"), "layer": layer});
    json!({
        "schema_version": 1, "name": "by pytest", "language": "pytest", "entry": "solution.py",
        "layers": {"smoke": 1, "correctness": 3, "edge": 1},
        "tests": [test("test_number", "smoke"), test("test_text", "correctness"),
            test("test_many[1]", "correctness"), test("test_many[2]", "correctness"), test("test_error", "edge")],
        "files": {"test_it.py": TESTS},
    })
}

fn pytest(files: &[(&str, &str)]) -> Verdict {
    let verdict = judge_with(&options(), &suite(), files).unwrap();
    assert_eq!(verdict.mode, Mode::TamperEvident);
    verdict
}

#[test]
fn a_good_one_succeeds() {
    let verdict = pytest(&[("solution.py", GOOD)]);
    assert_eq!((verdict.class, verdict.passed), (Class::Success, 5), "{verdict:#?}");
    assert_eq!(verdict.metrics.coverage_bp, Measure::Value(10_000));
}

#[test]
fn a_bad_one_fails() {
    let verdict = pytest(&[("solution.py", BAD)]);
    assert_eq!(verdict.class, Class::Failure, "{verdict:#?}");
    assert_eq!(statuses(&verdict)[0], "failed");
    let half = "def double(x):\n    if x == 7:\n        return 1\n    return x + x\n";
    let covered = pytest(&[("solution.py", half)]).metrics.coverage_bp.value().unwrap();
    assert!((5_000..10_000).contains(&covered), "{covered}");
}

/// Also here nobody pads a wrong program out of its verdict.
#[test]
fn what_does_not_fit_is_an_error_of_the_submission() {
    let long = "e".repeat(300);
    let verdict = pytest(&[("solution.py", BAD), (long.as_str(), "")]);
    assert_eq!((verdict.class, statuses(&verdict)[0]), (Class::Error, "error"), "{verdict:#?}");
    let why = verdict.tests[0].why.as_deref().unwrap_or_default();
    assert!(why.starts_with("it does not fit into its sandbox: files.at: "), "{why}");
}

#[test]
fn hooks_of_the_submission_are_not_read() {
    let hooks = "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n    \
                 outcome = yield\n    outcome.get_result().outcome = 'passed'\n";
    let files = [
        ("solution.py", BAD),
        ("conftest.py", hooks),
        ("pytest.ini", "[pytest]\naddopts = --deselect test_it.py\n"),
        ("setup.cfg", "[tool:pytest]\naddopts = -k nothing\n"),
        ("sitecustomize.py", "import os\nos._exit(0)\n"),
        ("pytest.py", "import os\nos._exit(0)\n"),
    ];
    assert_eq!(pytest(&files).class, Class::Failure);
}

#[test]
fn an_end_without_a_word_is_an_error() {
    let code = "import os\nfor place in ('/tmp/junit.xml', '/workspace/junit.xml'):\n    \
                open(place, 'w').write('<testsuite tests=\"5\" failures=\"0\"/>')\nos._exit(0)\n";
    let verdict = pytest(&[("solution.py", code)]);
    assert_eq!((verdict.class, verdict.passed), (Class::Error, 0), "{verdict:#?}");
    assert!(verdict.tests[0].why.as_deref().unwrap().contains("ended without telling"));
    let later = "import os\ndef double(x):\n    os._exit(0)\n";
    assert_eq!(pytest(&[("solution.py", later)]).class, Class::Error);
}

#[test]
fn what_it_says_without_the_word_of_the_run_is_an_error() {
    let code = "import os, json\ntold = json.dumps({'word': '0', 'code': 0, 'coverage': None, \
                'told': {'test_it.py::test_number': ['passed', '']}}) + '\\n'\n\
                for fd in range(3, 10):\n    try: os.write(fd, told.encode())\n    except OSError: pass\nos._exit(0)\n";
    let verdict = pytest(&[("solution.py", code)]);
    assert_eq!((verdict.class, verdict.passed), (Class::Error, 0), "{verdict:#?}");
}

#[test]
fn what_shares_a_process_can_forge_and_the_verdict_says_so() {
    // Both win here, which is why this mode has its name ...
    let equal = "class Any:\n    def __eq__(self, other): return True\n\
                 def double(x):\n    if x is None: raise TypeError()\n    return Any()\n";
    let patched =
        format!("import _pytest.python as p\np.Function.runtest = lambda self: None\n{BAD}");
    for code in [equal, patched.as_str()] {
        let verdict = pytest(&[("solution.py", code)]);
        assert_eq!(
            (verdict.class, verdict.mode),
            (Class::Success, Mode::TamperEvident),
            "{verdict:#?}"
        );
        // ... and neither where the runner compares.
        assert_ne!(judge(&doubling(), &[("solution.py", code)]).class, Class::Success);
    }
}

#[test]
fn tests_that_are_not_told_of_fail() {
    let mut suite = suite();
    suite["tests"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": "test_it.py::test_lost", "layer": "edge"}));
    suite["layers"]["edge"] = json!(2);
    let verdict = judge_with(&options(), &suite, &[("solution.py", GOOD)]).unwrap();
    assert_eq!(verdict.tests[5].why.as_deref(), Some("pytest told nothing about it"));
    assert_eq!(verdict.class, Class::Partial);
}

#[test]
fn a_test_that_the_suite_does_not_name() {
    let mut suite = suite();
    suite["files"]["test_more.py"] = json!("def test_more(): pass\n");
    let verdict = judge_with(&options(), &suite, &[("solution.py", GOOD)]).unwrap();
    assert_eq!(verdict.class, Class::Error);
    assert!(
        verdict.tests[0].why.as_deref().unwrap().contains("which the suite does not name"),
        "{verdict:#?}"
    );
}

#[test]
fn no_test_at_all() {
    let mut suite = suite();
    suite["files"] = json!({"test_it.py": "x = 1\n"});
    let verdict = judge_with(&options(), &suite, &[("solution.py", GOOD)]).unwrap();
    assert_eq!(
        (verdict.class, error(&verdict).1),
        (Class::Error, "pytest found no test"),
        "{verdict:#?}"
    );
}

#[test]
fn a_submission_that_skips_or_breaks_the_tests() {
    let skips = "import pytest\npytest.skip('not today', allow_module_level=True)\n";
    let verdict = pytest(&[("solution.py", skips)]);
    assert_ne!(verdict.class, Class::Success, "{verdict:#?}");
    assert_eq!(verdict.passed, 0);
    let breaks = pytest(&[("solution.py", "def double(x: return\n")]);
    assert_eq!((breaks.class, breaks.passed), (Class::Error, 0), "{breaks:#?}");
    let skips_each = "import pytest\ndef double(x):\n    pytest.skip('no')\n";
    assert_eq!(pytest(&[("solution.py", skips_each)]).class, Class::Failure);
}

#[test]
fn the_kernel_is_heard_here_too() {
    let code = format!("import socket\ntry: socket.socket()\nexcept OSError: pass\n{GOOD}");
    assert_eq!(pytest(&[("solution.py", &code)]).class, Class::SecurityViolation);
}

#[test]
fn without_pytest_nothing_is_judged() {
    let (_place, options) = without(&["pytest"]);
    let error = judge_with(&options, &suite(), &[("solution.py", GOOD)]).unwrap_err();
    assert_eq!(error.code().name, "judge.tool_missing");
    assert!(error.to_string().contains("pytest is not installed where submissions run"), "{error}");
}

#[test]
fn quality_is_measured_where_the_tools_are() {
    let options = Options { quality: true, ..options() };
    let code = "\"\"\"A module.\"\"\"\nimport subprocess\n\n\ndef double(x: int) -> str:\n    \
                subprocess.call(x, shell=True)\n    return x + x\n";
    let hostile = [
        ("solution.py", code),
        (".pylintrc", "[MAIN]\ninit-hook=import os; os._exit(0)\n"),
        ("pyproject.toml", "[tool.pylint]\nscore = false\n[tool.mypy]\nignore_errors = true\n"),
        ("setup.cfg", "[mypy]\nignore_errors = True\n"),
        (".bandit", "[bandit]\nskips = B404,B602\n"),
    ];
    let metrics = judge_with(&options, &doubling(), &hostile).unwrap().metrics;
    let score = |measure: &Measure| measure.value().unwrap_or_else(|| panic!("{metrics:#?}"));
    assert!((1_000..9_999).contains(&score(&metrics.pylint_milli)), "{metrics:#?}");
    assert!(score(&metrics.bandit_milli) <= 5_000, "{metrics:#?}");
    assert!(score(&metrics.mypy_milli) < 10_000, "{metrics:#?}");
    let (_place, none) = without(&["mypy"]);
    let none = Options { quality: true, ..none };
    let metrics = judge_with(&none, &doubling(), &[("solution.py", GOOD)]).unwrap().metrics;
    assert_eq!(metrics.mypy_milli, Measure::Absent("mypy is not installed".to_owned()));
}
