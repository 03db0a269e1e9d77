//! Blueprints and measurements: what was read can be written, and the verdict is that of the invariants.
#![no_main]

use guild_protocol::blueprint::{Blueprint, Check, Evaluation, Measured, Measurements, Verdict};
use guild_protocol::json;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // A blueprint, a NUL, and measurements.
    let (document, measured) = match data.iter().position(|byte| *byte == 0) {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &b"{}"[..]),
    };
    let Ok(blueprint) = Blueprint::parse(document) else { return };
    let canonical = json::to_canonical(&blueprint).expect("a blueprint can be written");
    let again = Blueprint::parse(&canonical).expect("what was written can be read");
    assert_eq!(again, blueprint);
    assert_eq!(again.hash(), blueprint.hash());

    let Ok(measured) = Measurements::parse(measured) else { return };
    if let Ok(evaluation) = blueprint.evaluate(&measured) {
        assert_eq!(evaluation.outcomes.len(), blueprint.invariants().len());
        check(&evaluation);
    }
});

fn check(evaluation: &Evaluation) {
    for outcome in &evaluation.outcomes {
        let verdict = match (&outcome.invariant.check, outcome.measured_value) {
            (_, None) => Verdict::NotMeasured,
            (check, Some(measured)) if holds(check, measured) => Verdict::Pass,
            _ => Verdict::Fail,
        };
        assert_eq!(outcome.verdict, verdict, "{outcome:?}");
    }
    let all = evaluation.count(Verdict::Pass) == evaluation.outcomes.len();
    assert_eq!(evaluation.verdict == Verdict::Pass, all);
    assert_eq!(evaluation.verdict == Verdict::Fail, evaluation.count(Verdict::Fail) > 0);
}

fn holds(check: &Check, measured: Measured) -> bool {
    match (check, measured) {
        (Check::Boolean { .. }, Measured::Boolean(value)) => value,
        (Check::Floor { min, .. }, Measured::Number(value)) => !(value < *min),
        (Check::Ceiling { max, .. }, Measured::Number(value)) => !(value > *max),
        (Check::Range { min, max, .. }, Measured::Number(value)) => !(value < *min || value > *max),
        _ => panic!("a measurement of the wrong sort was taken"),
    }
}
