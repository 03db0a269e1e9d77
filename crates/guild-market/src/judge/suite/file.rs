//! A suite as it is written, and what must hold of it.

use std::collections::{BTreeMap, BTreeSet};

use guild_sandbox::{Limits, Profile};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Case, Check, Compare, Expect, Isolation, Language, Layer, Ratio, SCHEMA_VERSION, Suite, Test,
    wrong,
};
use crate::Result;
use crate::judge::pattern;

const MAX_TESTS: usize = 1_000;
const MAX_FILES: usize = 200;
const MAX_NAME: usize = 100;
const MAX_TEST_ID: usize = 300;
const MAX_PATTERNS: usize = 200;
const MAX_REPETITIONS: u32 = 9;
const MAX_RATIO_PERCENT: u64 = 100_000;
const DEFAULT_CALL_TIMEOUT_MS: u64 = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    schema_version: u32,
    name: String,
    language: Language,
    entry: String,
    #[serde(default)]
    isolation: Isolation,
    profile: Option<Profile>,
    #[serde(default)]
    site_packages: bool,
    call_timeout_ms: Option<u64>,
    #[serde(default)]
    limits: BTreeMap<String, u64>,
    #[serde(default)]
    require: BTreeSet<guild_sandbox::Layer>,
    layers: BTreeMap<Layer, u64>,
    tests: Vec<Entry>,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// A test: which fields belong together is decided by its layer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    layer: Layer,
    call: Option<String>,
    args: Option<Vec<Value>>,
    expect: Option<Value>,
    compare: Option<Value>,
    small: Option<Side>,
    large: Option<Side>,
    max_ratio_percent: Option<u64>,
    repetitions: Option<u32>,
    forbid: Option<Vec<String>>,
    kernel: Option<bool>,
}

/// One of the two calls of a performance test.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Side {
    args: Vec<Value>,
    expect: Value,
}

/// What a call must give, as it is written.
fn expect(written: &Value, at: &str) -> Result<Expect> {
    let members = written.as_object().filter(|members| members.len() == 1);
    match members.and_then(|members| members.iter().next()) {
        Some((name, value)) if name == "value" => Ok(Expect::Value(value.clone())),
        Some((name, Value::String(kind))) if name == "error" => Ok(Expect::Error(kind.clone())),
        Some((name, Value::Bool(true))) if name == "anything" => Ok(Expect::Anything),
        _ => {
            let why = "has not one of value, error (a text) and anything (true)";
            Err(wrong(&format!("{at}.expect"), why))
        }
    }
}

/// How the two are compared, as it is written.
fn compare(written: Option<&Value>, at: &str) -> Result<Compare> {
    let Some(written) = written else { return Ok(Compare::Exact) };
    let tolerance = written.as_object().filter(|members| members.len() == 1);
    let tolerance = tolerance.and_then(|members| members.get("tolerance")?.as_f64());
    match (written.as_str(), tolerance) {
        (Some("exact"), _) => Ok(Compare::Exact),
        (Some("unordered"), _) => Ok(Compare::Unordered),
        (None, Some(by)) => Ok(Compare::Tolerance(by)),
        _ => {
            let why = "is not exact, unordered or an object with a tolerance";
            Err(wrong(&format!("{at}.compare"), why))
        }
    }
}

impl File {
    pub(super) fn check(self, canonical: Vec<u8>) -> Result<Suite> {
        if self.schema_version != SCHEMA_VERSION {
            return Err(wrong("schema_version", &format!("is not {SCHEMA_VERSION}")));
        }
        if self.name.is_empty() || self.name.len() > MAX_NAME {
            return Err(wrong("name", &format!("has not between 1 and {MAX_NAME} bytes")));
        }
        check_entry(self.language, &self.entry)?;
        let call_timeout_ms = self.call_timeout_ms.unwrap_or(DEFAULT_CALL_TIMEOUT_MS);
        let limits = limits(&self.limits)?;
        if !(1..=limits.wall_ms).contains(&call_timeout_ms) {
            let why = format!("is not between 1 and limits.wall_ms, {}", limits.wall_ms);
            return Err(wrong("call_timeout_ms", &why));
        }
        let profile = profile(self.language, self.profile)?;
        let tests = tests(self.language, self.tests)?;
        check_counts(&self.layers, &tests)?;
        check_files(self.language, &self.files)?;
        Ok(Suite {
            name: self.name,
            language: self.language,
            entry: self.entry,
            isolation: self.isolation,
            profile,
            site_packages: self.site_packages,
            call_timeout_ms,
            limits,
            require: self.require,
            tests,
            files: self.files,
            canonical,
        })
    }
}

/// A path below a directory: plain names only.
pub(super) fn is_plain_path(path: &str) -> bool {
    let odd = |part: &str| part.is_empty() || part.starts_with('.') || part.contains('\0');
    path.len() <= 200 && !path.split('/').any(odd)
}

fn check_entry(language: Language, entry: &str) -> Result<()> {
    if !is_plain_path(entry) {
        return Err(wrong("entry", "is not a plain path below the submission"));
    }
    let module = entry.strip_suffix(".py").unwrap_or_default();
    let word = |part: &str| {
        let starts = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        starts && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if language != Language::Executable && !module.split('/').all(word) {
        return Err(wrong("entry", "is not the file of a Python module"));
    }
    Ok(())
}

/// The judge's limits, some of them made smaller. Larger ones would not be the judge's.
fn limits(changes: &BTreeMap<String, u64>) -> Result<Limits> {
    let judge = Limits::judge();
    let mut fields = serde_json::to_value(judge).unwrap_or_default();
    for (name, value) in changes {
        let field = format!("limits.{name}");
        let Some(place) = fields.get_mut(name) else {
            return Err(wrong(&field, "is no limit"));
        };
        let most = place.as_u64().unwrap_or(0);
        if *value > most {
            return Err(wrong(&field, &format!("is {value}; a judge enforces at most {most}")));
        }
        *place = Value::from(*value);
    }
    let set = |name: &str| changes.contains_key(name);
    let mut limits: Limits =
        serde_json::from_value(fields).map_err(|e| wrong("limits", &e.to_string()))?;
    // Whoever lowers a hard limit only need not say that the soft one is no higher.
    if !set("cpu_soft_ms") {
        limits.cpu_soft_ms = limits.cpu_soft_ms.min(limits.cpu_hard_ms);
    }
    if !set("memory_soft_bytes") {
        limits.memory_soft_bytes = limits.memory_soft_bytes.min(limits.memory_hard_bytes);
    }
    if !set("disk_bytes") {
        limits.disk_bytes = limits.disk_bytes.min(limits.memory_hard_bytes);
    }
    limits.check()?;
    Ok(limits)
}

fn profile(language: Language, asked: Option<Profile>) -> Result<Profile> {
    match (language, asked) {
        (_, Some(Profile::Hosted)) => Err(wrong("profile", "is strict or python")),
        (Language::Executable, asked) => Ok(asked.unwrap_or(Profile::Strict)),
        (_, None | Some(Profile::Python)) => Ok(Profile::Python),
        (_, Some(Profile::Strict)) => Err(wrong("profile", "is python for Python")),
    }
}

fn tests(language: Language, entries: Vec<Entry>) -> Result<Vec<Test>> {
    if entries.is_empty() {
        return Err(wrong("tests", "is empty: a suite without tests decides nothing"));
    }
    if entries.len() > MAX_TESTS {
        return Err(wrong("tests", &format!("has more than {MAX_TESTS} tests")));
    }
    let mut ids = BTreeSet::new();
    let mut tests = Vec::with_capacity(entries.len());
    for (number, entry) in entries.into_iter().enumerate() {
        let at = format!("tests[{number}]");
        if entry.id.is_empty() || entry.id.len() > MAX_TEST_ID {
            return Err(wrong(&format!("{at}.id"), "is empty or too long"));
        }
        if !ids.insert(entry.id.clone()) {
            return Err(wrong(&format!("{at}.id"), "is the id of an earlier test"));
        }
        tests.push(entry.test(language, &at)?);
    }
    Ok(tests)
}

impl Entry {
    /// The fields that are there, by name.
    fn given(&self) -> Vec<&'static str> {
        let all = [
            ("call", self.call.is_some()),
            ("args", self.args.is_some()),
            ("expect", self.expect.is_some()),
            ("compare", self.compare.is_some()),
            ("small", self.small.is_some()),
            ("large", self.large.is_some()),
            ("max_ratio_percent", self.max_ratio_percent.is_some()),
            ("repetitions", self.repetitions.is_some()),
            ("forbid", self.forbid.is_some()),
            ("kernel", self.kernel.is_some()),
        ];
        all.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }

    /// Only these fields may be there.
    fn only(&self, at: &str, fields: &[&str]) -> Result<()> {
        match self.given().into_iter().find(|name| !fields.contains(name)) {
            Some(name) => {
                let why = format!("does not belong into this test of {}", self.layer.name());
                Err(wrong(&format!("{at}.{name}"), &why))
            }
            None => Ok(()),
        }
    }

    fn test(self, language: Language, at: &str) -> Result<Test> {
        let (id, layer) = (self.id.clone(), self.layer);
        let check = match (language, layer) {
            (_, Layer::Security) if self.forbid.is_some() => self.forbidden(at)?,
            (_, Layer::Security) => self.kernel(at)?,
            (Language::Pytest, _) => {
                self.only(at, &[])?;
                Check::Pytest
            }
            (_, Layer::Performance) => self.ratio(at)?,
            (_, Layer::Smoke | Layer::Correctness | Layer::Edge) => self.case(at)?,
        };
        Ok(Test { id, layer, check })
    }

    fn case(self, at: &str) -> Result<Check> {
        self.only(at, &["call", "args", "expect", "compare"])?;
        let missing = |name: &str| wrong(&format!("{at}.{name}"), "is missing");
        let case = Case {
            call: self.call.ok_or_else(|| missing("call"))?,
            args: self.args.ok_or_else(|| missing("args"))?,
            expect: expect(&self.expect.ok_or_else(|| missing("expect"))?, at)?,
            compare: compare(self.compare.as_ref(), at)?,
        };
        case.check(at)?;
        Ok(Check::Call(case))
    }

    fn ratio(self, at: &str) -> Result<Check> {
        self.only(at, &["call", "small", "large", "compare", "max_ratio_percent", "repetitions"])?;
        let missing = |name: &str| wrong(&format!("{at}.{name}"), "is missing");
        let call = self.call.ok_or_else(|| missing("call"))?;
        let compare = compare(self.compare.as_ref(), at)?;
        let case = |side: Option<Side>, name: &str| {
            let side = side.ok_or_else(|| missing(name))?;
            let expect = expect(&side.expect, &format!("{at}.{name}"))?;
            Ok::<_, crate::Error>(Case { call: call.clone(), args: side.args, expect, compare })
        };
        let ratio = Ratio {
            small: case(self.small, "small")?,
            large: case(self.large, "large")?,
            max_ratio_percent: self
                .max_ratio_percent
                .ok_or_else(|| missing("max_ratio_percent"))?,
            repetitions: self.repetitions.unwrap_or(3),
        };
        ratio.small.check(&format!("{at}.small"))?;
        ratio.large.check(&format!("{at}.large"))?;
        for (side, name) in [(&ratio.small, "small"), (&ratio.large, "large")] {
            if !matches!(side.expect, Expect::Value(_)) {
                // Whoever need not compute is quick.
                return Err(wrong(&format!("{at}.{name}.expect"), "must be a value"));
            }
        }
        if !(100..=MAX_RATIO_PERCENT).contains(&ratio.max_ratio_percent) {
            let why = format!("is not between 100 and {MAX_RATIO_PERCENT}");
            return Err(wrong(&format!("{at}.max_ratio_percent"), &why));
        }
        if !(1..=MAX_REPETITIONS).contains(&ratio.repetitions) {
            let why = format!("is not between 1 and {MAX_REPETITIONS}");
            return Err(wrong(&format!("{at}.repetitions"), &why));
        }
        Ok(Check::Ratio(ratio))
    }

    fn forbidden(self, at: &str) -> Result<Check> {
        self.only(at, &["forbid"])?;
        let patterns = self.forbid.unwrap_or_default();
        let at = format!("{at}.forbid");
        if patterns.is_empty() || patterns.len() > MAX_PATTERNS {
            return Err(wrong(&at, &format!("has not between 1 and {MAX_PATTERNS} names")));
        }
        match patterns.iter().find(|name| !pattern::is_name(name)) {
            Some(name) => Err(wrong(&at, &format!("has {name:?}, which is no dotted name"))),
            None => Ok(Check::Forbid(patterns)),
        }
    }

    fn kernel(self, at: &str) -> Result<Check> {
        self.only(at, &["kernel"])?;
        match self.kernel {
            Some(true) => Ok(Check::Kernel),
            Some(false) => Err(wrong(&format!("{at}.kernel"), "is true or left out")),
            None => Err(wrong(at, "has neither forbid nor kernel")),
        }
    }
}

/// The file says how many tests each layer has, so that one that lost some is noticed.
fn check_counts(stated: &BTreeMap<Layer, u64>, tests: &[Test]) -> Result<()> {
    for layer in Layer::ALL {
        let there = tests.iter().filter(|test| test.layer == layer).count();
        let there = u64::try_from(there).unwrap_or(u64::MAX);
        let said = stated.get(&layer).copied().unwrap_or(0);
        if there != said {
            let field = format!("layers.{}", layer.name());
            return Err(wrong(&field, &format!("is {said}, but there are {there} such tests")));
        }
    }
    Ok(())
}

fn check_files(language: Language, files: &BTreeMap<String, String>) -> Result<()> {
    if (language == Language::Pytest) == files.is_empty() {
        return Err(wrong("files", "is there exactly if the language is pytest"));
    }
    if files.len() > MAX_FILES {
        return Err(wrong("files", &format!("has more than {MAX_FILES} files")));
    }
    match files.keys().find(|path| !is_plain_path(path)) {
        Some(path) => Err(wrong("files", &format!("has {path:?}, which is no plain path"))),
        None => Ok(()),
    }
}
