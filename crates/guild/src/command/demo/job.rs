//! What the buyer wants done, and what became of it.

use guild_market::order::{Order, State};
use guild_roles::explorer::msat;
use serde_json::{Value, json};

/// Whom the buyer asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    /// Whoever is cheapest.
    Cheapest,
    /// The one of this name.
    Named(&'static str),
}

/// One thing to be done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) whom: Whom,
    pub(super) private: bool,
    pub(super) texts: [&'static str; 3],
}

const ENGLISH: [&str; 3] =
    ["the cat sat on the mat", "a dog slept by the door", "rain fell all night"];
const LETTER: [&str; 3] =
    ["meet me at noon", "bring the red folder", "tell nobody about the price"];

/// Everything the buyer orders, in order.
pub(super) const JOBS: [Job; 5] = [
    Job { whom: Whom::Cheapest, private: false, texts: ENGLISH },
    Job { whom: Whom::Named("Ada"), private: false, texts: ENGLISH },
    Job { whom: Whom::Named("Ada"), private: true, texts: LETTER },
    Job { whom: Whom::Named("Bruno"), private: false, texts: ENGLISH },
    Job { whom: Whom::Named("Cleo"), private: true, texts: LETTER },
];

impl Job {
    pub(super) fn input(&self) -> Value {
        json!({ "texts": self.texts, "dimensions": 64 })
    }

    /// What is being waited for.
    pub(super) fn wanted(&self) -> String {
        match self.whom {
            Whom::Cheapest => "the cheapest provider works".to_owned(),
            Whom::Named(name) => format!("{name} works"),
        }
    }
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
            (State::Released, Some(score)) => format!("accepted, likeness {score:.3}"),
            (State::Released, None) => "accepted".to_owned(),
            (State::Withheld, Some(score)) => format!("NOT accepted, likeness {score:.3}"),
            (State::Withheld, None) => "NOT accepted".to_owned(),
            (state, _) => {
                let words = self.order.words.as_deref().unwrap_or_default();
                format!("{}: {words}", state.as_str())
            }
        }
    }

    pub(super) fn paid_msat(&self) -> i64 {
        self.order.paid.map_or(0, |paid| paid.0)
    }

    /// What happened, for a person who watches.
    pub(super) fn sentence(&self) -> String {
        let Done { number, name, job, .. } = self;
        let how = match (job.whom, job.private) {
            (Whom::Cheapest, _) => " as the cheapest",
            (_, true) => " in private",
            (_, false) => "",
        };
        let paid = match self.paid_msat() {
            0 => "nothing is paid".to_owned(),
            paid => format!("{} paid", msat(paid)),
        };
        format!("job {number}: {name} was hired{how}; {}; {paid}", self.verdict())
    }
}
