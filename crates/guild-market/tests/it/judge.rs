//! Submissions, honest and not, before a judge with a real sandbox.

mod bad_input;
mod benchmark;
mod channel;
mod forgery;
mod held;
mod plain;
mod pytest;
mod recorded;
mod results;

use std::io::Read;
use std::sync::OnceLock;

use guild_market::judge::{
    Class, Judge, Options, Status, Stopwatch, Submission, Suite, TestResult, Verdict,
};
use guild_protocol::env::Random;
use guild_sandbox::{Ns, Sandbox};
use serde_json::{Value, json};

/// A sandbox with everything that this host has.
fn sandbox() -> &'static Ns {
    static SANDBOX: OnceLock<Ns> = OnceLock::new();
    let launcher = env!("CARGO_BIN_EXE_market-launcher");
    SANDBOX.get_or_init(|| Ns::new(guild_sandbox::Options::new(launcher)).unwrap())
}

/// Real randomness: whether ids can be guessed is what some of the tests are about.
struct Urandom;

impl Random for Urandom {
    fn fill(&self, bytes: &mut [u8]) {
        std::fs::File::open("/dev/urandom").unwrap().read_exact(bytes).unwrap();
    }
}

struct Ticks;

impl Stopwatch for Ticks {
    #[expect(clippy::disallowed_methods, reason = "a sandbox lives in real time")]
    fn now_us(&self) -> u64 {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        let start = START.get_or_init(std::time::Instant::now);
        u64::try_from(start.elapsed().as_micros()).unwrap()
    }
}

/// What is judged, and how it went.
fn judge(suite: &Value, files: &[(&str, &str)]) -> Verdict {
    judge_with(&Options::default(), suite, files).unwrap()
}

fn judge_with(
    options: &Options,
    suite: &Value,
    files: &[(&str, &str)],
) -> guild_market::Result<Verdict> {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
    judge_in(sandbox(), options, suite, &Submission::new(files))
}

fn judge_in(
    sandbox: &dyn Sandbox,
    options: &Options,
    suite: &Value,
    submission: &Submission,
) -> guild_market::Result<Verdict> {
    let suite = Suite::parse(&serde_json::to_vec(suite).unwrap())?;
    let judge = Judge { sandbox, random: &Urandom, stopwatch: &Ticks, options };
    judge.judge(&suite, submission, &mut |_| {})
}

/// A number that stands in no program: a submission that gives it has seen what it must not see.
const SECRET: i64 = 7_364_512_093;

/// Five tests of `double`, a suite that an honest submission passes.
fn doubling() -> Value {
    let test = |id: &str, layer: &str, arg: Value, expect: Value| {
        let mut test = json!({"id": id, "layer": layer, "call": "double"});
        (test["args"], test["expect"]) = (json!([arg]), expect);
        test
    };
    json!({
        "schema_version": 1, "name": "doubling", "language": "python", "entry": "solution.py",
        "call_timeout_ms": 60_000,
        "limits": {"wall_ms": 120_000, "cpu_hard_ms": 10_000, "memory_hard_bytes": 268_435_456,
                   "disk_bytes": 16_777_216, "pids": 30},
        "layers": {"smoke": 1, "correctness": 3, "edge": 1},
        "tests": [
            test("first-smoke", "smoke", json!(2), json!({"value": 4})),
            test("a-secret-one", "correctness", json!(SECRET / 2), json!({"value": SECRET - 1})),
            test("twenty", "correctness", json!(10), json!({"value": 20})),
            test("text", "correctness", json!("ab"), json!({"value": "abab"})),
            test("nothing", "edge", json!(null), json!({"error": "TypeError"})),
        ],
    })
}

const HONEST: &str = "def double(x):\n    return x + x\n";

/// A submission of one file, judged by the suite of doubling.
fn doubled(code: &str) -> Verdict {
    judge(&doubling(), &[("solution.py", code)])
}

/// The class must be this one, and never is anything forged.
fn is(class: Class, code: &str) -> Verdict {
    let verdict = doubled(code);
    assert_eq!(verdict.class, class, "{verdict:#?}");
    verdict
}

/// The one test that ended in an error, and why.
fn error(verdict: &Verdict) -> (&str, &str) {
    let errors: Vec<&TestResult> =
        verdict.tests.iter().filter(|test| test.status == Status::Error).collect();
    let [test] = errors.as_slice() else { panic!("{verdict:#?}") };
    (test.id.as_str(), test.why.as_deref().unwrap_or_default())
}

fn statuses(verdict: &Verdict) -> Vec<&'static str> {
    verdict.tests.iter().map(|test| test.status.name()).collect()
}
