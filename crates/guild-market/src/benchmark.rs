//! What providers are tested by: tasks with tests that they do not see.
//!
//! A [`Task`] follows from its seed: what is asked for, the tests, and a salt. A provider gets the [`Task::spec`],
//! which names the [commitment](crate::judge::Suite::commitment) to the tests, and answers with the files of a program;
//! the [judge](crate::judge) decides. Two tasks of one benchmark ask for programs that differ in their details, so an
//! answer that was kept from before is not one.
//!
//! ```
//! use guild_market::benchmark::{self, Benchmark};
//! let task = Benchmark::StdV3.task(&[7; 32], &Benchmark::StdV3.modules()).unwrap();
//! let answer = benchmark::reference(task.spec()).unwrap();
//! assert_eq!(benchmark::read_answer(&answer.to_string()).unwrap().files().len(), 1);
//! assert_eq!(task.suite().commitment(task.salt()), task.commitment());
//! ```

use std::collections::BTreeSet;

use guild_protocol::hash::{Hash, Hasher};
use guild_protocol::json::{self, Limits};
use guild_protocol::schema::{Job, SchemaId};
use serde::Deserialize;
use serde_json::Value;

use crate::error::code;
use crate::judge::{SALT_BYTES, Salt, Submission, Suite};
use crate::routing::TaskType;
use crate::{Error, Result};

mod embedding;
mod expected;
mod standard;

pub use standard::reference;

/// The schema of the work that a benchmark asks for.
pub const SCHEMA_ID: &str = "guild.benchmark.v1";
/// The kind of work of all benchmarks, as providers announce it.
pub const TASK_TYPE: &str = "benchmark-task";
/// The file that an answer must hold.
pub const ENTRY: &str = "solution.py";

/// How many bytes the seed of a task has.
pub const SEED_BYTES: usize = 32;
const ANSWER_MAX_BYTES: usize = 256 * 1_024;
const ANSWER_MAX_FILES: usize = 32;
const PATH_MAX_BYTES: usize = 200;

/// A benchmark that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Benchmark {
    /// `std-v3`: computation, memory and io, in Python.
    StdV3,
    /// `embedding-v1`: vectors of texts, which are computed again.
    EmbeddingV1,
}

impl Benchmark {
    /// All of them.
    pub const ALL: [Benchmark; 2] = [Benchmark::StdV3, Benchmark::EmbeddingV1];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Benchmark::StdV3 => "std-v3",
            Benchmark::EmbeddingV1 => "embedding-v1",
        }
    }

    /// The schema of the requests.
    pub fn schema_id(self) -> &'static str {
        match self {
            Benchmark::StdV3 => SCHEMA_ID,
            Benchmark::EmbeddingV1 => embedding::SCHEMA_ID,
        }
    }

    /// The work for which somebody is hired by it, unless other work is named.
    pub fn task_type(self) -> &'static str {
        match self {
            Benchmark::StdV3 => TASK_TYPE,
            Benchmark::EmbeddingV1 => embedding::SCHEMA_ID,
        }
    }

    /// Whether it says something about this work. What has a schema is tested by that schema's own check; programs say
    /// something about work that is named by a word, and about that of schemas for code.
    ///
    /// ```
    /// use guild_market::benchmark::Benchmark;
    /// let fits = |one: Benchmark, task: &str| one.fits(&task.parse().unwrap());
    /// assert!(fits(Benchmark::StdV3, "benchmark-task") && fits(Benchmark::StdV3, "oa.code_chunk_analysis.v1"));
    /// assert!(fits(Benchmark::EmbeddingV1, "oa.embedding.v1"));
    /// assert!(!fits(Benchmark::StdV3, "oa.embedding.v1") && !fits(Benchmark::StdV3, "oa.sandbox_run.v1"));
    /// assert!(!fits(Benchmark::EmbeddingV1, "benchmark-task"));
    /// ```
    pub fn fits(self, task: &TaskType) -> bool {
        let schema_id = task.as_str().parse::<SchemaId>();
        match self {
            Benchmark::EmbeddingV1 => task.as_str() == embedding::SCHEMA_ID,
            Benchmark::StdV3 => schema_id.is_err() || is_code(task.as_str()),
        }
    }

    /// The benchmark that says something about this work.
    pub fn of_task(task: &TaskType) -> Result<Benchmark> {
        let fitting = Benchmark::ALL.into_iter().find(|one| one.fits(task));
        fitting.ok_or_else(|| {
            let why = format!("no benchmark says anything about {task}");
            Error::refused(&code::MEETING_NO_BENCHMARK, why)
        })
    }

    /// The work of this seed, if it is checked as its schema says; none if there are tests for a program.
    pub fn job(self, seed: &[u8; SEED_BYTES]) -> Result<Option<Job>> {
        match self {
            Benchmark::StdV3 => Ok(None),
            Benchmark::EmbeddingV1 => embedding::job(seed).map(Some),
        }
    }

    /// The benchmark of that name.
    pub fn named(name: &str) -> Result<Benchmark> {
        let known = Benchmark::ALL.into_iter().find(|one| one.name() == name);
        let refused = || {
            let names = Benchmark::ALL.map(Benchmark::name).join(", ");
            Error::refused(&code::BENCHMARK_UNKNOWN, format!("there is {names}, and no other"))
        };
        known.ok_or_else(refused)
    }

    /// What it looks at.
    pub fn modules(self) -> BTreeSet<Module> {
        match self {
            Benchmark::StdV3 => Module::ALL.into(),
            Benchmark::EmbeddingV1 => BTreeSet::new(),
        }
    }

    /// The memory that a program may use, where there is one.
    pub fn memory_limit_bytes(self) -> Option<u64> {
        match self {
            Benchmark::StdV3 => Some(standard::MEMORY_BYTES),
            Benchmark::EmbeddingV1 => None,
        }
    }

    /// One sentence for people.
    pub fn purpose(self) -> &'static str {
        match self {
            Benchmark::StdV3 => {
                "Six small functions in Python; their details change from task to task."
            }
            Benchmark::EmbeddingV1 => {
                "Vectors of texts that nobody has seen; they are computed again."
            }
        }
    }

    /// The task of this seed, of these modules.
    pub fn task(self, seed: &[u8; SEED_BYTES], modules: &BTreeSet<Module>) -> Result<Task> {
        if self != Benchmark::StdV3 {
            let why = format!("{} has no tests: what comes back is computed again", self.name());
            return Err(Error::refused(&code::BENCHMARK_NO_TESTS, why));
        }
        if modules.is_empty() {
            return Err(Error::refused(&code::BENCHMARK_UNKNOWN, "a task has at least one module"));
        }
        standard::task(seed, modules)
    }
}

/// Whether a schema is of work on code.
fn is_code(schema_id: &str) -> bool {
    let word = schema_id.split('.').nth(1).unwrap_or_default();
    schema_id == SCHEMA_ID || word == "code" || word.starts_with("code_")
}

/// What a part of a benchmark looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Module {
    /// Arithmetic and searching.
    Computation,
    /// Keeping state.
    Memory,
    /// Reading and writing text.
    Io,
}

impl Module {
    /// All of them.
    pub const ALL: [Module; 3] = [Module::Computation, Module::Memory, Module::Io];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Module::Computation => "computation",
            Module::Memory => "memory",
            Module::Io => "io",
        }
    }
}

/// One task, with what its provider must not see.
#[derive(Debug, Clone)]
pub struct Task {
    spec: Value,
    suite: Suite,
    salt: Salt,
    commitment: Hash,
}

impl Task {
    /// What the provider gets.
    pub fn spec(&self) -> &Value {
        &self.spec
    }

    /// The same as a text.
    pub fn spec_text(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&json::to_canonical(&self.spec)?).into_owned())
    }

    /// The tests.
    pub fn suite(&self) -> &Suite {
        &self.suite
    }

    /// What hides the tests until they are revealed.
    pub fn salt(&self) -> &Salt {
        &self.salt
    }

    /// What the provider can hold us to.
    pub fn commitment(&self) -> Hash {
        self.commitment
    }
}

/// What follows from a seed for one purpose, and says nothing about what follows for another.
fn derived(seed: &[u8; SEED_BYTES], purpose: &str) -> [u8; SALT_BYTES] {
    let mut hasher = Hasher::new();
    hasher.update(b"guild.benchmark.v1\n");
    hasher.update(purpose.as_bytes());
    hasher.update(b"\n");
    hasher.update(seed);
    *hasher.finish().as_bytes()
}

#[derive(Deserialize)]
struct Answer {
    files: std::collections::BTreeMap<String, String>,
}

/// The program that an answer holds: the files of a JSON object, or, as models write, a text that is a program or has
/// one between fences. Whatever it is, the judge decides what it is worth.
pub fn read_answer(content: &str) -> Result<Submission> {
    let refused = |why: &str| Err(Error::refused(&code::BENCHMARK_ANSWER, why));
    if content.len() > ANSWER_MAX_BYTES {
        return refused("the answer is larger than 256 KiB");
    }
    let limits = Limits { max_bytes: ANSWER_MAX_BYTES, max_depth: 16 };
    let files = match json::decode_within::<Answer>(content.as_bytes(), limits) {
        Ok(answer) => answer.files,
        Err(_) if content.trim_start().starts_with('{') => {
            return refused("the answer is no JSON object with files");
        }
        Err(_) => [(ENTRY.to_owned(), program(content).to_owned())].into(),
    };
    if files.len() > ANSWER_MAX_FILES || files.keys().any(|path| !is_plain(path)) {
        return refused("the answer has too many files, or a path that is not plain");
    }
    if files.get(ENTRY).is_none_or(|text| text.trim().is_empty()) {
        return refused("the answer has no solution.py");
    }
    Ok(Submission::new(files.into_iter().map(|(path, text)| (path, text.into_bytes()))))
}

fn is_plain(path: &str) -> bool {
    let odd = |part: &str| part.is_empty() || part.starts_with('.') || part.contains('\0');
    path.len() <= PATH_MAX_BYTES && !path.split('/').any(odd)
}

/// What stands between the first fences, or all of it.
fn program(text: &str) -> &str {
    let inside = text.split_once("```").and_then(|(_, rest)| rest.split_once("```"));
    match inside {
        // The first line names the language.
        Some((inside, _)) => inside.split_once('\n').map_or(inside, |(_, code)| code),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(n: u8) -> Task {
        Benchmark::StdV3.task(&[n; SEED_BYTES], &Benchmark::StdV3.modules()).unwrap()
    }

    #[test]
    fn a_task_follows_from_its_seed_and_shows_no_test() {
        let (one, same, other) = (task(1), task(1), task(2));
        assert_eq!(one.spec_text().unwrap(), same.spec_text().unwrap());
        assert_eq!(one.suite().hash(), same.suite().hash());
        assert_ne!(one.suite().hash(), other.suite().hash());
        assert_ne!(one.spec_text().unwrap(), other.spec_text().unwrap());
        assert_ne!(one.commitment(), one.suite().hash());
        assert_eq!(one.spec()["commitment"], one.commitment().to_string());
        let spec = one.spec_text().unwrap();
        assert!(spec.len() < 16 * 1_024, "{}", spec.len());
        assert!(!spec.contains(&one.salt().hex()));
        // Smoke tests are the examples; nothing else of the suite is shown.
        for test in &one.suite().tests {
            let crate::judge::Check::Call(case) = &test.check else { continue };
            let args = serde_json::to_string(&case.args).unwrap();
            let hidden = test.layer == crate::judge::Layer::Correctness && args.len() > 20;
            assert!(!hidden || !spec.contains(&args), "{} is shown", test.id);
        }
    }

    #[test]
    fn a_task_may_have_some_modules_only() {
        let only = Benchmark::StdV3.task(&[1; 32], &[Module::Io].into()).unwrap();
        assert_eq!(only.spec()["modules"], serde_json::json!(["io"]));
        assert!(only.suite().tests.len() < task(1).suite().tests.len());
        assert!(Benchmark::StdV3.task(&[1; 32], &BTreeSet::new()).is_err());
        assert_eq!(Benchmark::named("std-v2").unwrap_err().code().name, "benchmark.unknown");
        let none = Benchmark::EmbeddingV1.task(&[1; 32], &BTreeSet::new()).unwrap_err();
        assert_eq!(none.code().name, "benchmark.no_tests");
        let of = |task: &str| Benchmark::of_task(&task.parse().unwrap());
        assert_eq!(of("oa.embedding.v1").unwrap(), Benchmark::EmbeddingV1);
        assert_eq!(of("benchmark-task").unwrap(), Benchmark::StdV3);
        assert_eq!(of("oa.sandbox_run.v1").unwrap_err().code().name, "meeting.no_benchmark");
    }

    #[test]
    fn answers_are_read_as_models_write_them() {
        let read = |text: &str| read_answer(text).map(|read| read.files()[ENTRY].clone());
        for text in [
            r#"{"files":{"solution.py":"x = 1\n"}}"#,
            "x = 1\n",
            "Here you are:\n```python\nx = 1\n```\nGood luck!",
        ] {
            assert_eq!(read(text).unwrap(), b"x = 1\n", "{text}");
        }
        let large = "x".repeat(ANSWER_MAX_BYTES + 1);
        for text in [
            "",
            "  \n",
            "{}",
            r#"{"files":{}}"#,
            r#"{"files":{"../solution.py":"x"}}"#,
            r#"{"files":{"solution.py":7}}"#,
            r#"{"files":{"solution.py":"x","/etc/passwd":"y"}}"#,
            &large,
        ] {
            assert_eq!(read(text).unwrap_err().code().name, "benchmark.bad_answer");
        }
    }
}
