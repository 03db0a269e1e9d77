//! What a submission is judged by: a file of tests, and the commitment to it.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::hash::{Hash, Hasher, from_hex};
use guild_protocol::json::{self, Doc};
use guild_sandbox::{Limits, Profile};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::value;
use crate::error::code;
use crate::{Error, Result};

mod file;

/// The version of the format.
pub(super) const SCHEMA_VERSION: u32 = 1;
/// A suite is at most so large.
pub const MAX_SUITE_BYTES: usize = 16 << 20;
/// How many bytes salts have: a length that is fixed, so that no two pairs of salt and suite are one text.
pub const SALT_BYTES: usize = 32;

/// One of the five kinds of tests, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Whether it works at all. The first failure is the end.
    Smoke,
    /// Whether it does what was specified.
    Correctness,
    /// What it does at the boundaries, and with wrong input.
    Edge,
    /// How its time grows, never how long it takes.
    Performance,
    /// What stands in it, and what the kernel saw of it.
    Security,
}

impl Layer {
    /// Every layer.
    pub const ALL: [Layer; 5] =
        [Layer::Smoke, Layer::Correctness, Layer::Edge, Layer::Performance, Layer::Security];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Smoke => "smoke",
            Layer::Correctness => "correctness",
            Layer::Edge => "edge",
            Layer::Performance => "performance",
            Layer::Security => "security",
        }
    }

    /// How many tests of it a full suite has.
    pub fn full_count(self) -> u64 {
        match self {
            Layer::Correctness => 25,
            Layer::Edge => 15,
            Layer::Smoke | Layer::Performance | Layer::Security => 5,
        }
    }
}

/// What submissions are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// A Python module whose functions are called.
    Python,
    /// A program that speaks the line protocol by itself.
    Executable,
    /// Test files that import the submission into their own process.
    Pytest,
}

/// How many tests share a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// All that are not timed.
    #[default]
    PerSuite,
    /// None.
    PerTest,
}

/// A suite that has passed every check.
#[derive(Debug, Clone)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub language: Language,
    /// The file of a submission that is loaded or started, relative to its directory.
    pub entry: String,
    /// How many tests share a process.
    pub isolation: Isolation,
    /// Which system calls the submission may make.
    pub profile: Profile,
    /// Whether a Python submission may import what is installed beside the standard library.
    pub site_packages: bool,
    /// How long an answer may take.
    pub call_timeout_ms: u64,
    /// What each sandbox may use.
    pub limits: Limits,
    /// Layers of isolation without which nothing is judged.
    pub require: BTreeSet<guild_sandbox::Layer>,
    /// Every test.
    pub tests: Vec<Test>,
    /// The test files of a pytest suite.
    pub files: BTreeMap<String, String>,
    canonical: Vec<u8>,
}

/// One test.
#[derive(Debug, Clone)]
pub struct Test {
    /// Its name, which no other has.
    pub id: String,
    /// Its layer.
    pub layer: Layer,
    /// What is done.
    pub check: Check,
}

/// What a test does.
#[derive(Debug, Clone)]
pub enum Check {
    /// Calls once and compares.
    Call(Case),
    /// Calls with two sizes and compares the times as well.
    Ratio(Ratio),
    /// Looks for names in the submission.
    Forbid(Vec<String>),
    /// Looks at what the kernel saw in all runs.
    Kernel,
    /// One of the tests that pytest runs.
    Pytest,
}

/// A call, and what it must give.
#[derive(Debug, Clone)]
pub struct Case {
    /// The function.
    pub call: String,
    /// Its arguments.
    pub args: Vec<Value>,
    /// What it must give.
    pub expect: Expect,
    /// How the two are compared.
    pub compare: Compare,
}

/// What a call must give.
#[derive(Debug, Clone)]
pub enum Expect {
    /// This value.
    Value(Value),
    /// An error of this type.
    Error(String),
    /// Any value.
    Anything,
}

/// How an answer is compared with what is expected.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Compare {
    /// Equal, by the canonical form of both.
    #[default]
    Exact,
    /// Equal, but numbers may differ by this much, or by this part of the larger one.
    Tolerance(f64),
    /// Lists whose elements are the same in any order.
    Unordered,
}

/// Two calls whose times are compared.
#[derive(Debug, Clone)]
pub struct Ratio {
    /// The call of size n.
    pub small: Case,
    /// The call of size 2n.
    pub large: Case,
    /// How many times as long the large one may take, in percent.
    pub max_ratio_percent: u64,
    /// How often each is timed; the quickest counts.
    pub repetitions: u32,
}

impl Suite {
    /// Reads a suite, strictly: what is unknown, missing, out of range or contradictory is refused by its name.
    pub fn parse(text: &[u8]) -> Result<Suite> {
        let limits = json::Limits { max_bytes: MAX_SUITE_BYTES, max_depth: 64 };
        let canonical = Doc::parse_within(text, limits)?.to_canonical();
        let read: file::File = json::decode_within(text, limits)?;
        read.check(canonical)
    }

    /// Names it by its content.
    pub fn hash(&self) -> Hash {
        Hash::of(&self.canonical)
    }

    /// Its canonical bytes: what is hashed.
    pub fn canonical(&self) -> &[u8] {
        &self.canonical
    }

    /// What can be published before the suite is, and proves afterwards that it was this one.
    pub fn commitment(&self, salt: &Salt) -> Hash {
        let mut hasher = Hasher::new();
        hasher.update(&salt.0);
        hasher.update(&self.canonical);
        hasher.finish()
    }

    /// The tests of a layer.
    pub fn of_layer(&self, layer: Layer) -> impl Iterator<Item = (usize, &Test)> {
        self.tests.iter().enumerate().filter(move |(_, test)| test.layer == layer)
    }

    /// Whether it has in every layer as many tests as a full suite.
    pub fn is_full(&self) -> bool {
        let count = |layer| u64::try_from(self.of_layer(layer).count()).unwrap_or(u64::MAX);
        Layer::ALL.into_iter().all(|layer| count(layer) >= layer.full_count())
    }
}

/// What makes a commitment say nothing about the suite: random bytes, kept until the suite is revealed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt([u8; SALT_BYTES]);

impl Salt {
    /// These bytes.
    pub fn new(bytes: [u8; SALT_BYTES]) -> Salt {
        Salt(bytes)
    }

    /// From hex digits.
    pub fn parse(text: &str) -> Result<Salt> {
        let bytes = from_hex(text).and_then(|bytes| bytes.try_into().ok());
        let why = || format!("a salt is {} lower-case hex digits", SALT_BYTES.saturating_mul(2));
        bytes.map(Salt).ok_or_else(|| Error::refused(&code::JUDGE_SALT, why()))
    }

    /// As hex digits.
    pub fn hex(&self) -> String {
        guild_protocol::hash::to_hex(&self.0)
    }
}

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It is a secret until the suite is revealed.
        f.write_str("Salt")
    }
}

impl Case {
    fn check(&self, at: &str) -> Result<()> {
        let plain = |part: &str| {
            let first = part.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            first && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if self.call.len() > 200 || !self.call.split('.').all(plain) {
            return Err(wrong(&format!("{at}.call"), "is not the name of a function"));
        }
        value::expand_all(&self.args).map_err(|why| wrong(&format!("{at}.args"), &why))?;
        match &self.expect {
            Expect::Value(expected) => {
                let expected = value::expand(expected);
                let expected = expected.map_err(|why| wrong(&format!("{at}.expect"), &why))?;
                if self.compare == Compare::Unordered && !expected.is_array() {
                    return Err(wrong(&format!("{at}.compare"), "is for lists"));
                }
            }
            Expect::Error(_) | Expect::Anything => {}
        }
        match self.compare {
            Compare::Tolerance(by) if !(0.0..=1e9).contains(&by) => {
                Err(wrong(&format!("{at}.compare.tolerance"), "is not between 0 and 1e9"))
            }
            _ => Ok(()),
        }
    }
}

fn wrong(field: &str, why: &str) -> Error {
    Error::refused(&code::JUDGE_SUITE, format!("{field} {why}"))
}
