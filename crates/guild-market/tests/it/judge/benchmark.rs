//! The tasks of benchmarks, before the judge with a real sandbox.

use guild_market::benchmark::{Benchmark, Task, read_answer, reference};
use guild_market::judge::{Class, Judge, Measure, Options, Submission, Verdict};

use super::{Ticks, Urandom, sandbox};

fn task(n: u8) -> Task {
    Benchmark::StdV3.task(&[n; 32], &Benchmark::StdV3.modules()).unwrap()
}

fn judged(task: &Task, submission: &Submission) -> Verdict {
    let options = Options::default();
    let judge =
        Judge { sandbox: sandbox(), random: &Urandom, stopwatch: &Ticks, options: &options };
    judge.judge(task.suite(), submission, &mut |_| {}).unwrap()
}

fn answer(task: &Task) -> Submission {
    read_answer(&reference(task.spec()).unwrap().to_string()).unwrap()
}

#[test]
fn the_answer_that_is_built_in_is_right_whatever_the_seed() {
    for n in [1, 2, 3, 77, 255] {
        let task = task(n);
        let verdict = judged(&task, &answer(&task));
        assert_eq!(verdict.class, Class::Success, "{n}: {verdict:#?}");
        assert_eq!(verdict.suite_hash, task.suite().hash());
    }
}

#[test]
fn the_lines_that_calls_reach_are_counted_if_quality_is_asked_for() {
    let options = Options { quality: true, ..Options::default() };
    let judge =
        Judge { sandbox: sandbox(), random: &Urandom, stopwatch: &Ticks, options: &options };
    let task = task(6);
    let whole = judge.judge(task.suite(), &answer(&task), &mut |_| {}).unwrap();
    // All but one way to write runs: the task asks for the other one.
    let whole = whole.metrics.coverage_bp.value().unwrap();
    assert!((9_001..10_000).contains(&whole), "{whole}");
    let text = String::from_utf8_lossy(&answer(&task).files()["solution.py"]).into_owned();
    let never = "def never(x):\n    if x:\n        return 1\n    return 2\n".repeat(20);
    let padded = read_answer(&format!("{text}\n{never}")).unwrap();
    let verdict = judge.judge(task.suite(), &padded, &mut |_| {}).unwrap();
    assert_eq!(verdict.class, Class::Success);
    let padded = verdict.metrics.coverage_bp.value().unwrap();
    assert!(padded < 7_000, "{padded}");
    // What is not installed is absent, and never counted as passed.
    let pylint = &verdict.metrics.pylint_milli;
    let absent = Measure::Absent("pylint is not installed".to_owned());
    assert!(pylint.value().is_some() || *pylint == absent, "{pylint:?}");
}

#[test]
fn an_answer_to_another_task_is_none() {
    let (one, other) = (task(1), task(2));
    let verdict = judged(&one, &answer(&other));
    assert_eq!(verdict.class, Class::Failure, "{verdict:#?}");
}

#[test]
fn a_program_that_only_knows_the_examples_fails() {
    let task = task(4);
    let mut text = "KNOWN = {}\n".to_owned();
    for function in task.spec()["functions"].as_array().unwrap() {
        let (name, example) = (function["name"].as_str().unwrap(), &function["examples"][0]);
        let given = example["gives"].to_string();
        text += &format!("def {name}(*args):\n    import json\n    return json.loads({given:?})\n");
    }
    let verdict = judged(&task, &read_answer(&text).unwrap());
    assert_eq!(verdict.class, Class::Failure, "{verdict:#?}");
    let smoke = &verdict.layers[&guild_market::judge::Layer::Smoke];
    assert_eq!(smoke.passed, smoke.total, "the examples are right");
}

#[test]
fn a_program_that_reaches_out_is_seen() {
    let task = task(5);
    let files = answer(&task).files().clone();
    let text = String::from_utf8_lossy(&files["solution.py"]).into_owned();
    let verdict = judged(&task, &read_answer(&format!("import socket\n{text}")).unwrap());
    assert_eq!(verdict.class, Class::SecurityViolation, "{verdict:#?}");
}
