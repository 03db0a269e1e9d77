//! Submissions that abuse the channel of answers. None gets a test that it has not answered.

use guild_market::judge::Class;
use serde_json::json;

use super::{HONEST, doubled, doubling, error, is, judge, statuses};

/// Knows the descriptor of answers, which the subject has hidden, and says something on it.
const SAY: &str = "
import os, sys, json, threading, time
OUT = 4
def say(data):
    os.write(OUT, data if isinstance(data, bytes) else data.encode())
";

/// `double` is right; beside it something is said.
fn saying(code: &str) -> String {
    format!("{SAY}\ndef double(x):\n    return x + x\n{code}\n")
}

/// The class is an error, for this reason, and nothing after it counts.
fn is_error(code: &str, says: &str) {
    let verdict = doubled(code);
    assert_eq!(verdict.class, Class::Error, "{verdict:#?}");
    let (id, why) = error(&verdict);
    assert!(why.contains(says), "{id}: {why}");
    let after = statuses(&verdict).into_iter().skip_while(|status| *status != "error").skip(1);
    assert!(after.clone().all(|status| status == "not_run"), "{:?}", after.collect::<Vec<_>>());
}

/// Never answers. A busy host may take a part of the second for what comes before that, which changes nothing.
fn is_late(code: &str) {
    let mut suite = doubling();
    suite["call_timeout_ms"] = json!(1_000);
    let verdict = judge(&suite, &[("solution.py", code)]);
    assert_eq!(error(&verdict), ("first-smoke", "it gave no answer within 1000 ms"));
    assert_eq!((verdict.class, verdict.passed), (Class::Error, 0), "{verdict:#?}");
}

/// It said something that it was not asked for, whenever that was heard; no test is passed.
fn is_noise(code: &str) {
    let verdict = doubled(code);
    let why = error(&verdict).1;
    let noise = ["before it was asked", "more than one answer", "the id of no call", "plain JSON"];
    assert!(noise.iter().any(|says| why.contains(says)), "{why}");
    assert_eq!((verdict.class, verdict.passed), (Class::Error, 0), "{verdict:#?}");
}

#[test]
fn the_channel_can_be_found() {
    // The tests below would prove nothing if what they say came nowhere.
    is_noise(&saying("say('x\\n')"));
}

#[test]
fn answering_before_the_call() {
    is_noise(&saying(r#"say('{"id":"0","ok":4}\n' * 5)"#));
}

#[test]
fn answering_twice() {
    let code = format!(
        "{SAY}\n{}",
        r#"
def double(x):
    frame = sys._getframe(1)
    while 'request' not in frame.f_locals: frame = frame.f_back
    id = frame.f_locals['request']['id']
    say(json.dumps({'id': id, 'ok': x + x}) + '\n')
    return x + x
"#
    );
    let verdict = doubled(&code);
    assert_eq!(verdict.class, Class::Error, "{verdict:#?}");
    // The second is heard with the first, before the next call, or in the place of the next answer.
    let why = error(&verdict).1;
    let heard = ["more than one answer", "before it was asked", "the id of no call"];
    assert!(heard.iter().any(|says| why.contains(says)), "{why}");
    assert!(verdict.passed <= 1);
}

#[test]
fn guessing_ids() {
    let code = saying(
        "import itertools\nfor n in range(1000): say(json.dumps({'id': '%032x' % n, 'ok': 4}) + '\\n')",
    );
    is_noise(&code);
    // Not at the start, but while the call is open.
    let code = saying(
        "def double(x):\n    say(json.dumps({'id': '%032x' % 7, 'ok': x + x}) + '\\n')\n    os._exit(0)",
    );
    is_error(&code, "the id of no call");
}

#[test]
fn repeating_the_id_of_an_earlier_call() {
    let code = saying(
        r#"
old = []
def double(x):
    frame = sys._getframe(1)
    while 'request' not in frame.f_locals: frame = frame.f_back
    old.append(frame.f_locals['request']['id'])
    if len(old) > 1:
        say(json.dumps({'id': old[0], 'ok': x + x}) + '\n')
        time.sleep(10)
    return x + x
"#,
    );
    is_error(&code, "the id of no call");
}

#[test]
fn noise_on_the_channel() {
    for noise in
        ["b'hello\\n'", "b'\\n'", "b'\\0\\0\\n'", "b'\\xff\\xfe\\n'", "b'{}\\n'", "b'null\\n'"]
    {
        let code = saying(&format!("def double(x):\n    say({noise})\n    return x + x"));
        let verdict = doubled(&code);
        assert_eq!(verdict.class, Class::Error, "{noise} {verdict:#?}");
        assert_eq!(verdict.passed, 0, "{noise}");
    }
}

#[test]
fn a_beginning_without_an_end() {
    // What has no end of line becomes a part of the answer, and spoils it.
    is_error(&saying("def double(x):\n    say(' ')\n    say('x')\n    return x + x"), "plain JSON");
}

#[test]
fn speaking_after_the_last_answer() {
    // The subject ends by this, once there is nothing more to answer.
    let code = saying("end = os._exit\nos._exit = lambda code: (say('late\\n'), end(code))");
    let verdict = is(Class::Error, &code);
    assert_eq!(error(&verdict), ("nothing", "it spoke after its last answer"));
    assert_eq!(statuses(&verdict)[..4], ["passed"; 4]);
}

#[test]
fn waiting_to_speak_after_the_last_answer() {
    // Its input ends with the last answer, and then it ends, whatever threads it has.
    let code = saying(
        "calls = []\ndef double(x):\n    calls.append(x)\n    if len(calls) == 5:\n        \
         threading.Thread(target=lambda: (time.sleep(1000), say('late\\n'))).start()\n    return x + x",
    );
    is(Class::Success, &code);
}

#[test]
fn a_hundred_megabytes() {
    is_error(
        &saying("def double(x):\n    while True: say(b'x' * 65536)"),
        "its answer is too long",
    );
    let lines = saying("def double(x):\n    while True: say(b'x\\n' * 30000)");
    is_error(&lines, "it said more than one answer");
    // On the errors it is only too much.
    is_error("import os\nwhile True: os.write(2, b'x' * 65536)\n", "output_bytes");
}

#[test]
fn answers_that_are_huge_or_deep() {
    is_error("def double(x):\n    return 'x' * 5_000_000\n", "its answer is too long");
    let deep = "def double(x):\n    v = []\n    for _ in range(200): v = [v]\n    return v\n";
    is_error(deep, "plain JSON");
    // So deep that Python itself gives up: an answer, and a wrong one.
    let deeper = "def double(x):\n    v = []\n    for _ in range(100_000): v = [v]\n    return v\n";
    is(Class::Failure, deeper);
    let circle = "def double(x):\n    v = []\n    v.append(v)\n    return v\n";
    is(Class::Failure, circle);
}

#[test]
fn closing_the_channel() {
    is_late(&saying("def double(x):\n    os.close(OUT)\n    time.sleep(60)"));
    is_late(&saying("os.closerange(0, 100)\ntime.sleep(60)"));
    let silent = saying("def double(x):\n    os.close(OUT)\n    return x + x");
    is_error(&silent, "it ended without an answer: exit code 1");
}

#[test]
fn ending_at_import() {
    is_error("import os\nos._exit(0)\n", "it ended without an answer");
    is_error("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "signal 9");
    // This end is an exception, which is told as one.
    is_error("import sys\nsys.exit(0)\n", "it could not be loaded: SystemExit");
}

#[test]
fn ending_in_a_call() {
    let verdict = is(
        Class::Error,
        "import os\ndef double(x):\n    return x + x if x == 2 else os._exit(0)\n",
    );
    assert_eq!(statuses(&verdict), ["passed", "error", "not_run", "not_run", "not_run"]);
    assert_eq!(error(&verdict).1, "it ended without an answer");
}

#[test]
fn ending_when_nothing_is_left_to_answer() {
    let mut suite = doubling();
    suite["tests"].as_array_mut().unwrap().truncate(1);
    suite["layers"] = json!({"smoke": 1});
    let code = "import os, threading, time, signal\ndef double(x):\n    \
                threading.Thread(target=lambda: (time.sleep(5), os.kill(os.getpid(), 9))).start()\n    \
                return x + x\n";
    // Its input ends at once after the answer: then it ends by itself.
    assert_eq!(judge(&suite, &[("solution.py", code)]).class, Class::Success);
    let code = "import os, atexit\ndef double(x):\n    os._exit = lambda code: os.kill(os.getpid(), 9)\n    \
                return x + x\n";
    let verdict = judge(&suite, &[("solution.py", code)]);
    assert_eq!(
        (verdict.class, error(&verdict).1),
        (Class::Error, "after its last answer: signal 9")
    );
}

#[test]
fn a_child_that_answers_when_the_parent_is_gone() {
    let code = saying(
        "def double(x):\n    frame = sys._getframe(1)\n    \
         while 'request' not in frame.f_locals: frame = frame.f_back\n    \
         id = frame.f_locals['request']['id']\n    \
         if os.fork() == 0:\n        os.setsid()\n        time.sleep(0.3)\n        \
         say(json.dumps({'id': id, 'ok': x + x}) + '\\n')\n    os._exit(0)",
    );
    is_error(&code, "it ended without an answer");
}

#[test]
fn sleeping_for_ever() {
    is_late("import time\ntime.sleep(1000)\n");
    is_late("def double(x):\n    while True: pass\n");
    let holds_on = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\n\
                    def double(x):\n    while True: signal.pause()\n";
    is_late(holds_on);
}

#[test]
fn not_reading_a_large_call() {
    let mut suite = doubling();
    suite["tests"][0]["args"] = json!([{"$text": {"of": "abcdefgh", "count": 100_000}}]);
    suite["tests"][0]["expect"] = json!({"anything": true});
    assert_eq!(judge(&suite, &[("solution.py", HONEST)]).class, Class::Success);
    // Answers as soon as the call begins to come, of which the subject reads nothing.
    let code = saying(
        "import select\nkept = os.dup(3)\nos.dup2(os.pipe()[0], 3)\n\
         threading.Thread(target=lambda: (select.select([kept], [], []), say('{}\\n'))).start()",
    );
    let verdict = judge(&suite, &[("solution.py", &code)]);
    assert_eq!(error(&verdict), ("first-smoke", "it answered before it had read the call"));
    assert_eq!((verdict.class, verdict.passed), (Class::Error, 0), "{verdict:#?}");
}

/// Randomness that everybody knows.
struct Zeros;

impl guild_protocol::env::Random for Zeros {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

#[test]
fn with_ids_that_can_be_guessed_guessing_wins() {
    // What stops it above is the id, and nothing else.
    let mut suite = doubling();
    suite["tests"].as_array_mut().unwrap().truncate(1);
    suite["layers"] = json!({"smoke": 1});
    let code = saying(
        "def double(x):\n    say(json.dumps({'id': '0' * 32, 'ok': x + x}) + '\\n')\n    time.sleep(60)",
    );
    let files = [("solution.py".to_owned(), code.clone().into_bytes())];
    let parsed = guild_market::judge::Suite::parse(&serde_json::to_vec(&suite).unwrap()).unwrap();
    let guessable = guild_market::judge::Judge {
        sandbox: super::sandbox(),
        random: &Zeros,
        stopwatch: &super::Ticks,
        options: &guild_market::judge::Options::default(),
    };
    let submission = guild_market::judge::Submission::new(files);
    let verdict = guessable.judge(&parsed, &submission, &mut |_| {}).unwrap();
    assert_eq!(verdict.class, Class::Success, "{verdict:#?}");
    assert_eq!(judge(&suite, &[("solution.py", &code)]).class, Class::Error);
}

#[test]
fn closing_the_input() {
    let code = saying("def double(x):\n    os.close(3)\n    return x + x");
    is_error(&code, "it ended without an answer: exit code 1");
    is_late(&saying("os.close(3)\ntime.sleep(60)"));
}
