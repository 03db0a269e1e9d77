//! What a verifier found: a list of checks, each one passed or failed, with the field that is wrong.
//!
//! A verification lists *all* problems. Whoever cannot even read the thing gets an [`Error`] instead.

use std::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::Error;
use crate::error::Code;

/// One thing that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The stable code.
    pub code: &'static Code,
    /// The line, counted from 1, where the thing has lines.
    pub line: Option<u64>,
    /// The field that is wrong, as `amount.units`.
    pub field: Option<String>,
    /// One sentence.
    pub message: String,
}

impl Problem {
    /// A problem with this code and a sentence about this very case.
    pub fn new(code: &'static Code, message: impl Into<String>) -> Problem {
        Problem { code, line: None, field: None, message: message.into() }
    }

    /// The same problem, in this field.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Problem {
        self.field = Some(field.into());
        self
    }

    /// The same problem, in this line.
    #[must_use]
    pub fn on_line(mut self, line: u64) -> Problem {
        self.line = Some(line);
        self
    }

    /// `line 3, params.path`, as far as it is known.
    pub fn place(&self) -> Option<String> {
        match (self.line, &self.field) {
            (Some(line), Some(field)) => Some(format!("line {line}, {field}")),
            (Some(line), None) => Some(format!("line {line}")),
            (None, Some(field)) => Some(field.clone()),
            (None, None) => None,
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem {
            code: error.code(),
            line: None,
            field: error.place().map(str::to_owned),
            message: error.message().to_owned(),
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Error {
        let place = problem.place();
        let error = Error::new(problem.code, problem.message);
        match place {
            Some(place) => error.at(place),
            None => error,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(place) => write!(f, "{place}: {} [{}]", self.message, self.code.name),
            None => write!(f, "{} [{}]", self.message, self.code.name),
        }
    }
}

/// One check and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its short, stable name.
    pub name: &'static str,
    /// What is wrong, or what holds.
    pub outcome: Result<&'static str, Problem>,
}

impl Check {
    /// Whether it passed.
    pub fn is_ok(&self) -> bool {
        self.outcome.is_ok()
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let problem = self.outcome.as_ref().err();
        let mut check = to.serialize_struct("Check", 6)?;
        check.serialize_field("name", self.name)?;
        check.serialize_field("ok", &self.is_ok())?;
        check.serialize_field("code", &problem.map(|p| p.code.name))?;
        check.serialize_field("line", &problem.and_then(|p| p.line))?;
        check.serialize_field("field", &problem.and_then(|p| p.field.as_deref()))?;
        let message = match &self.outcome {
            Ok(says) => says,
            Err(problem) => problem.message.as_str(),
        };
        check.serialize_field("message", message)?;
        check.end()
    }
}

/// All checks, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Verification {
    checks: Vec<Check>,
}

impl Verification {
    /// Records a check: passed, saying `holds`, if there are no problems; else failed once for each.
    pub fn record(
        &mut self,
        name: &'static str,
        holds: &'static str,
        problems: impl IntoIterator<Item = Problem>,
    ) {
        let before = self.checks.len();
        self.checks.extend(problems.into_iter().map(|p| Check { name, outcome: Err(p) }));
        if self.checks.len() == before {
            self.checks.push(Check { name, outcome: Ok(holds) });
        }
    }

    /// Every check.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Whether every check passed.
    pub fn holds(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(Check::is_ok)
    }

    /// Everything that does not hold.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.checks.iter().filter_map(|check| check.outcome.as_ref().err())
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            match &check.outcome {
                Ok(holds) => writeln!(f, "ok      {:<16} {holds}", check.name)?,
                Err(problem) => writeln!(f, "FAILED  {:<16} {problem}", check.name)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::code::SHAPE;

    #[test]
    fn nothing_checked_is_not_yes() {
        let mut verification = Verification::default();
        assert!(!verification.holds());
        verification.record("form", "it has its form", []);
        assert!(verification.holds());
        verification.record("sum", "it adds up", [Problem::new(&SHAPE, "no").at("x").on_line(2)]);
        assert!(!verification.holds());
        assert_eq!(
            verification.to_string(),
            "ok      form             it has its form\nFAILED  sum              line 2, x: no [json.shape]\n"
        );
    }
}
