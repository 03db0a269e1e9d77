//! What the buyer wants done, and what became of it.

use guild_market::order::{Order, State};
use guild_market::sandbox_run;
use guild_roles::explorer::msat;
use serde_json::{Value, json};

/// Whom the buyer asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    /// Whoever is cheapest.
    Cheapest,
    /// The one of this name.
    Named(&'static str),
    /// Two, side by side: only what both say counts.
    Two,
}

/// One thing to be done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) whom: Whom,
    pub(super) private: bool,
    pub(super) work: Work,
}

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// Vectors of these texts.
    Embed([&'static str; 3]),
    /// The same, but nobody computes it again: it is right if those who did it say the same.
    Compare([&'static str; 3]),
    /// The tests of a small program, which has a mistake.
    Test,
}

const ENGLISH: [&str; 3] =
    ["the cat sat on the mat", "a dog slept by the door", "rain fell all night"];
const LETTER: [&str; 3] =
    ["meet me at noon", "bring the red folder", "tell nobody about the price"];

/// Everything the buyer orders, in order.
const JOBS: [Job; 8] = [
    Job { whom: Whom::Cheapest, private: false, work: Work::Embed(ENGLISH) },
    Job { whom: Whom::Named("Ada"), private: false, work: Work::Embed(ENGLISH) },
    Job { whom: Whom::Named("Ada"), private: true, work: Work::Embed(LETTER) },
    Job { whom: Whom::Named("Bruno"), private: false, work: Work::Embed(ENGLISH) },
    Job { whom: Whom::Named("Cleo"), private: true, work: Work::Embed(LETTER) },
    Job { whom: Whom::Named("Ada"), private: false, work: Work::Test },
    Job { whom: Whom::Named("Cleo"), private: false, work: Work::Test },
    Job { whom: Whom::Two, private: false, work: Work::Compare(ENGLISH) },
];

/// Everything the buyer orders here: without a sandbox nobody can run tests, nor check that they were; and nobody was
/// turned away, so that those who work side by side might be anybody.
pub(super) fn jobs(has_sandbox: bool) -> impl Iterator<Item = Job> {
    JOBS.into_iter().filter(move |job| has_sandbox || matches!(job.work, Work::Embed(_)))
}

/// The program, its tests, and what they are to leave behind. It counts one word too many.
const COUNT_SH: &str =
    "words=0\nfor word in $(cat \"$1\"); do words=$((words + 1)); done\necho $((words + 1))\n";
const TEST_SH: &str = "counted=$(sh count.sh text)\necho \"counted $counted\" | tee report.txt\n\
    test \"$counted\" = 6\n";

impl Job {
    pub(super) fn schema_id(&self) -> &'static str {
        match self.work {
            Work::Embed(_) | Work::Compare(_) => "oa.embedding.v1",
            Work::Test => sandbox_run::SCHEMA_ID,
        }
    }

    pub(super) fn input(&self, image_digest: &str) -> Value {
        match self.work {
            Work::Embed(texts) => json!({ "texts": texts, "dimensions": 64 }),
            Work::Compare(texts) => {
                let verification = json!({ "mode": "subjective" });
                json!({ "texts": texts, "dimensions": 64, "verification": verification })
            }
            Work::Test => test_input(image_digest),
        }
    }

    /// What is being waited for.
    pub(super) fn wanted(&self) -> String {
        match self.whom {
            Whom::Cheapest => "the cheapest provider works".to_owned(),
            Whom::Named(name) => format!("{name} works"),
            Whom::Two => "two work side by side".to_owned(),
        }
    }
}

fn test_input(image_digest: &str) -> Value {
    let tree =
        json!({"count.sh": COUNT_SH, "test.sh": TEST_SH, "text": "the cat sat on the mat\n"});
    json!({
        "sandbox": {"image_digest": image_digest, "resources": {"memory_mb": 64, "timeout_secs": 20, "disk_mb": 8}},
        "repo": {"source": "env:TREE"},
        "env": {"TREE": tree.to_string()},
        "commands": [{"cmd": "sh -n count.sh"}, {"cmd": "sh test.sh"}],
    })
}

/// A job with its end.
pub(super) struct Done {
    pub(super) number: usize,
    pub(super) job: Job,
    /// Who did it.
    pub(super) name: &'static str,
    pub(super) order: Order,
}

impl Done {
    pub(super) fn passed(&self) -> bool {
        self.order.state == State::Released
    }

    /// The verdict in a few words.
    pub(super) fn verdict(&self) -> String {
        let document = self.order.verdict.as_deref().unwrap_or_default();
        let document: Value = serde_json::from_str(document).unwrap_or_default();
        let score = document["score"].as_f64();
        match (self.order.state, score) {
            (State::Released, _) if self.job.whom == Whom::Two => {
                "accepted, both say the same".to_owned()
            }
            (State::Released, Some(score)) => format!("accepted, likeness {score:.3}"),
            (State::Released, None) => "accepted, run again".to_owned(),
            (State::Withheld, Some(score)) => format!("NOT accepted, likeness {score:.3}"),
            (State::Withheld, None) => format!("NOT accepted, {} is wrong", wrong(&document)),
            (state, _) => {
                let words = self.order.words.as_deref().unwrap_or_default();
                format!("{}: {words}", state.as_str())
            }
        }
    }

    pub(super) fn paid_msat(&self) -> i64 {
        self.order.paid.map_or(0, |paid| paid.0)
    }

    /// What was to be done, in a word.
    pub(super) fn work(&self) -> &'static str {
        match self.job.work {
            Work::Embed(_) | Work::Compare(_) => "embedding",
            Work::Test => "tests",
        }
    }

    /// What happened, for a person who watches.
    pub(super) fn sentence(&self) -> String {
        let Done { number, name, job, .. } = self;
        let how = match (job.whom, job.private) {
            (Whom::Cheapest, _) => " as the cheapest, by somebody who had tested nobody",
            (Whom::Two, _) => " beside another",
            (_, true) => " in private",
            (_, false) if matches!(job.work, Work::Test) => " to run tests",
            (_, false) => "",
        };
        let paid = match self.paid_msat() {
            0 => "nothing is paid".to_owned(),
            paid => format!("{} paid", msat(paid)),
        };
        format!("job {number}: {name} was hired{how}; {}; {paid}", self.verdict())
    }
}

/// The first thing that a verdict finds wrong.
fn wrong(verdict: &Value) -> String {
    let checks = verdict["checks"].as_array().into_iter().flatten();
    let mut wrong = checks.filter(|check| check["ok"] == json!(false));
    let named =
        |check: &Value| check["field"].as_str().or(check["name"].as_str()).map(str::to_owned);
    wrong.find_map(named).unwrap_or_else(|| "something".to_owned())
}
