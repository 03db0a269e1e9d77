//! Measured values against a blueprint.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{Blueprint, Check, Invariant, MAX_BYTES, code};
use crate::hash::shorten;
use crate::json::{self, Limits};
use crate::problems::{Gathered, Place, Problems};
use crate::{Error, Result};

/// One measured value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Measured {
    /// For BOOLEAN.
    Boolean(bool),
    /// For FLOOR, CEILING and RANGE; finite.
    Number(#[serde(serialize_with = "super::plainly")] f64),
}

/// Measured values by the id of their invariant.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct Measurements(BTreeMap<String, Measured>);

impl Measurements {
    /// Nothing measured yet.
    pub fn new() -> Measurements {
        Measurements::default()
    }

    /// Reads an object of ids and values, such as `{"TEST-001": 91.5, "BUILD-001": true}`.
    pub fn parse(text: &[u8]) -> Result<Measurements, Problems> {
        let limits = Limits { max_bytes: MAX_BYTES, max_depth: 2 };
        let values: BTreeMap<String, Value> = json::decode_within(text, limits)?;
        let mut gathered = Gathered::default();
        let mut measurements = Measurements::new();
        for (id, value) in values {
            let taken = match &value {
                Value::Bool(value) => measurements.insert(&id, Measured::Boolean(*value)),
                Value::Number(number) => {
                    measurements.insert(&id, Measured::Number(number.as_f64().unwrap_or(f64::NAN)))
                }
                _ => Err(refuse(&id, "must be a number, true or false")),
            };
            if let Err(problem) = taken {
                gathered.push(problem);
            }
        }
        gathered.unless_any(measurements)
    }

    /// Takes one value. A number that is not finite is refused, and so is a second value for one id.
    pub fn insert(&mut self, id: &str, measured: Measured) -> Result<()> {
        if let Measured::Number(number) = measured
            && !number.is_finite()
        {
            return Err(refuse(id, format!("{number} is not a finite number")));
        }
        if self.0.contains_key(id) {
            return Err(refuse(id, "is measured twice"));
        }
        self.0.insert(id.to_owned(), measured);
        Ok(())
    }

    /// The value measured for an invariant.
    pub fn get(&self, id: &str) -> Option<Measured> {
        self.0.get(id).copied()
    }
}

fn refuse(id: &str, message: impl Into<String>) -> Error {
    Place::Member(&Place::Top, id).of(Error::new(&code::MEASUREMENT, message))
}

/// Whether something holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds.
    Pass,
    /// It does not hold.
    Fail,
    /// Nobody has measured it.
    NotMeasured,
}

/// What became of one invariant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The invariant, with its thresholds.
    #[serde(flatten)]
    pub invariant: Invariant,
    /// The value measured.
    pub measured_value: Option<Measured>,
    /// Whether it holds.
    pub verdict: Verdict,
}

/// What became of a blueprint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// One failure fails the whole; otherwise one missing measurement leaves it open.
    pub verdict: Verdict,
    /// Each invariant, in the order of the blueprint.
    pub outcomes: Vec<Outcome>,
}

impl Evaluation {
    /// How many invariants have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.verdict == verdict).count()
    }
}

impl Blueprint {
    /// Compares measured values with the thresholds. A value for an unknown id, or of the wrong sort, is refused:
    /// the measurements then belong to another blueprint.
    pub fn evaluate(&self, measurements: &Measurements) -> Result<Evaluation, Problems> {
        let mut gathered = Gathered::default();
        let outcomes: Vec<Outcome> = self
            .invariants
            .iter()
            .map(|invariant| {
                let measured_value = measurements.get(&invariant.id);
                let verdict = judge(&invariant.check, measured_value).unwrap_or_else(|message| {
                    gathered.push(refuse(&invariant.id, message));
                    Verdict::NotMeasured
                });
                Outcome { invariant: invariant.clone(), measured_value, verdict }
            })
            .collect();
        let known = |id: &String| self.invariants.iter().any(|invariant| invariant.id == *id);
        for id in measurements.0.keys().filter(|id| !known(id)) {
            let message = format!("the blueprint has no invariant {:?}", shorten(id));
            gathered.push(refuse(id, message));
        }
        let any = |verdict| outcomes.iter().any(|outcome| outcome.verdict == verdict);
        let verdict = if any(Verdict::Fail) {
            Verdict::Fail
        } else if any(Verdict::NotMeasured) {
            Verdict::NotMeasured
        } else {
            Verdict::Pass
        };
        gathered.unless_any(Evaluation { verdict, outcomes })
    }
}

fn judge(check: &Check, measured: Option<Measured>) -> Result<Verdict, String> {
    let holds = match (check, measured) {
        (_, None) => return Ok(Verdict::NotMeasured),
        (Check::Boolean { .. }, Some(Measured::Boolean(value))) => value,
        (Check::Floor { min, .. }, Some(Measured::Number(value))) => value >= *min,
        (Check::Ceiling { max, .. }, Some(Measured::Number(value))) => value <= *max,
        (Check::Range { min, max, .. }, Some(Measured::Number(value))) => {
            *min <= value && value <= *max
        }
        (Check::Boolean { .. }, Some(_)) => {
            return Err("BOOLEAN is measured with true or false".to_owned());
        }
        (_, Some(_)) => return Err(format!("{} is measured with a number", check.type_name())),
    };
    Ok(if holds { Verdict::Pass } else { Verdict::Fail })
}
