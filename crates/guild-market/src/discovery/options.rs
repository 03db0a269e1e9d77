//! How the registry works.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::kind;

const DAY_MS: i64 = 24 * 3_600_000;

/// How the registry works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Who gave no sign of life for longer is not live.
    pub silent_ms: i64,
    /// Who was not seen for longer, by its announcement or any sign of life, is quarantined.
    pub quarantine_ms: i64,
    /// Who has been quarantined for longer is archived.
    pub archive_ms: i64,
    /// More offers are not kept.
    pub entries_max: usize,
    /// More offers of one key are not kept.
    pub offers_per_key: usize,
    /// More new offers than this do not come in within an hour by the same relay.
    pub new_per_hour: u32,
    /// A key that announces itself anew more often within an hour is flooding.
    pub versions_per_hour: u32,
    /// Who comes or goes more often within a day is flapping.
    pub flips_per_day: u32,
    /// Other words for a kind of work.
    pub synonyms: BTreeMap<String, BTreeSet<String>>,
    /// The kinds of requests that a kind of work is usually asked by.
    pub kinds: BTreeMap<String, BTreeSet<u16>>,
    /// Whom these keys recommend is let in at once, and comes first.
    pub trusted: BTreeSet<PublicKey>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            silent_ms: 900_000,
            quarantine_ms: 30 * DAY_MS,
            archive_ms: 60 * DAY_MS,
            entries_max: 20_000,
            offers_per_key: 16,
            new_per_hour: 1_000,
            versions_per_hour: 60,
            flips_per_day: 6,
            synonyms: default_synonyms(),
            kinds: [("benchmark-task".to_owned(), [kind::BENCHMARK_REQUEST].into())].into(),
            trusted: BTreeSet::new(),
        }
    }
}

/// What others call a benchmark.
fn default_synonyms() -> BTreeMap<String, BTreeSet<String>> {
    let words = ["benchmark", "benchmarking", "perf-test", "compute-benchmark"];
    [("benchmark-task".to_owned(), words.map(str::to_owned).into())].into()
}
