//! The request of a trial, in the form of NIP-90 and the order of the documents.

use std::collections::BTreeSet;

use guild_protocol::amount::Msat;
use guild_protocol::env::{Random, UnixMs};
use guild_protocol::hash::Hash;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::json;
use guild_protocol::nostr::job::{Input, InputType, Param, Request};
use guild_protocol::nostr::{Event, Tag, kind, unix_s};

use crate::benchmark::{Benchmark, Module, SEED_BYTES, TASK_TYPE, Task};
use crate::error::code;
use crate::{Error, Result};

/// A specification of more bytes is not carried, only referred to: relays take events of 64 KiB, and a sealed one
/// grows by a third.
pub const INLINE_MAX_BYTES: usize = 40 * 1_024;

/// The parameter that says what an input that is only referred to must hash to.
pub const INPUT_HASH: &str = "input-sha256";
/// The parameter that says that a request is a trial, and of which kind.
pub const BENCHMARK_TYPE: &str = "benchmark-type";

/// The whole time that a provider has, in seconds, as it is told.
const TIME_LIMIT_S: u32 = 300;

/// What all requests of a meeting have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Whom it addresses.
    pub provider: PublicKey,
    /// Which benchmark.
    pub benchmark: Benchmark,
    /// Which parts of it.
    pub modules: BTreeSet<Module>,
    /// The kind of the requests.
    pub kind: u16,
    /// Whether what is asked and what is answered travels encrypted.
    pub encrypted: bool,
    /// The most that is paid for one. None probes without a bid: some are silent if a bid is too low for them.
    pub bid: Option<Msat>,
    /// Where answers are read.
    pub relays: Vec<String>,
}

/// A trial that can begin: its task follows from the seed.
#[derive(Debug, Clone)]
pub struct NewTrial {
    /// Which task.
    pub seed: [u8; SEED_BYTES],
    /// The request, signed.
    pub request: Event,
    /// How many tests there are.
    pub tests: u64,
}

/// The kind under which a provider is asked: that of benchmarks if it announces it, by number or by name, or nothing at
/// all; otherwise the usual one if it announces that; otherwise the first that it announces.
///
/// ```
/// use guild_market::meeting::kind_for;
/// let kind = |kinds: &[&str]| kind_for(kinds.iter().copied());
/// assert_eq!((kind(&["5050", "5000"]), kind(&["benchmark-task"]), kind(&[])), (5000, 5000, 5000));
/// assert_eq!((kind(&["5100", "5050"]), kind(&["5300,5301"])), (5050, 5300));
/// ```
pub fn kind_for<'a>(announced: impl Iterator<Item = &'a str>) -> u16 {
    let names: Vec<&str> = announced.flat_map(|k| k.split(',')).map(str::trim).take(256).collect();
    let numbers: Vec<u16> = names
        .iter()
        .filter_map(|name| name.parse().ok())
        .filter(|number| kind::is_request(*number))
        .collect();
    if names.contains(&TASK_TYPE) || numbers.contains(&kind::BENCHMARK_REQUEST) {
        kind::BENCHMARK_REQUEST
    } else if numbers.contains(&kind::DEFAULT_REQUEST) {
        kind::DEFAULT_REQUEST
    } else {
        numbers.first().copied().unwrap_or(kind::BENCHMARK_REQUEST)
    }
}

/// The kind under which work is asked for that is not made for a benchmark: the usual one if it is announced, or
/// nothing is; otherwise the first that is.
pub fn kind_of_work<'a>(announced: impl Iterator<Item = &'a str>) -> u16 {
    let names = announced.flat_map(|k| k.split(',')).map(str::trim).take(256);
    let numbers: Vec<u16> = names
        .filter_map(|name| name.parse().ok())
        .filter(|number| kind::is_request(*number))
        .collect();
    match numbers.first() {
        Some(first) if !numbers.contains(&kind::DEFAULT_REQUEST) => *first,
        _ => kind::DEFAULT_REQUEST,
    }
}

/// What a request of a trial asks for.
struct Asked {
    text: String,
    job_hash: Option<Hash>,
    params: Vec<Param>,
    tests: u64,
}

impl Terms {
    /// The task of a seed.
    pub fn task(&self, seed: &[u8; SEED_BYTES]) -> Result<Task> {
        self.benchmark.task(seed, &self.modules)
    }

    /// The specification of this seed, if it has more than so many bytes: too much to be carried.
    pub fn too_large(&self, seed: &[u8; SEED_BYTES], most_bytes: usize) -> Result<Option<Vec<u8>>> {
        let text = self.asked(seed)?.text;
        // What is sealed is not put where others can read it.
        let refers = !self.encrypted && text.len() > most_bytes;
        Ok(refers.then(|| text.into_bytes()))
    }

    /// A trial of this seed. `elsewhere` is where its specification can be had if it is too large to be carried.
    pub fn trial(
        &self,
        seed: [u8; SEED_BYTES],
        elsewhere: Option<String>,
        (key, random): (&SecretKey, &dyn Random),
        now_ms: UnixMs,
    ) -> Result<NewTrial> {
        let asked = self.asked(&seed)?;
        let mut request = Request::new(self.kind);
        let hash = elsewhere.is_some().then(|| Hash::of(asked.text.as_bytes()));
        request.inputs.push(input(asked.text, elsewhere)?);
        request.output = Some("application/json".to_owned());
        request.schema_id = Some(self.benchmark.schema_id().to_owned());
        request.job_hash = asked.job_hash;
        request.params = asked.params;
        request.params.extend(hash.map(|hash| Param::new(INPUT_HASH, hash.to_string())));
        request.bid = self.bid;
        request.relays.clone_from(&self.relays);
        request.providers = vec![self.provider];
        // What is sealed does not say outside what it is about.
        if !self.encrypted {
            request.topics = vec![TASK_TYPE.to_owned()];
        }
        request.encrypted = self.encrypted;
        let at = unix_s(now_ms);
        let mut draft = match self.encrypted {
            true => request.sealed_draft(at, key, random)?,
            false => request.draft(at)?,
        };
        in_order(&mut draft.tags);
        Ok(NewTrial { seed, request: draft.sign(key)?, tests: asked.tests })
    }

    /// A program for tests that are not shown; or work as anybody orders it, marked as a trial.
    fn asked(&self, seed: &[u8; SEED_BYTES]) -> Result<Asked> {
        if let Some(job) = self.benchmark.job(seed)? {
            return Ok(Asked {
                text: String::from_utf8_lossy(&json::to_canonical(job.payload())?).into_owned(),
                job_hash: Some(job.job_hash()),
                params: vec![
                    Param::new(BENCHMARK_TYPE, "standard"),
                    Param::new("time-limit", TIME_LIMIT_S.to_string()),
                ],
                tests: 1,
            });
        }
        let task = self.task(seed)?;
        Ok(Asked {
            text: task.spec_text()?,
            job_hash: None,
            params: self.params(&task),
            tests: u64::try_from(task.suite().tests.len()).unwrap_or(u64::MAX),
        })
    }

    fn params(&self, task: &Task) -> Vec<Param> {
        vec![
            Param::new(BENCHMARK_TYPE, "standard"),
            Param::new("commitment", task.commitment().to_string()),
            Param::new("iterations", "1"),
            Param::new("language", "python3"),
            Param::new("memory-limit", "256"),
            Param::new("time-limit", TIME_LIMIT_S.to_string()),
        ]
    }
}

/// What is asked, carried or referred to.
fn input(text: String, elsewhere: Option<String>) -> Result<Input> {
    let input = match (text.len() <= INLINE_MAX_BYTES, elsewhere) {
        (true, None) => Input::text(text),
        (_, Some(url)) => {
            Input { data: url, input_type: InputType::Url, relay: None, marker: None }
        }
        (false, None) => {
            let why = format!("{} bytes do not fit into a request", text.len());
            return Err(Error::refused(&code::MEETING_MALFORMED, why));
        }
    };
    Ok(input.marked("spec"))
}

/// The order of the documents: whom, what, settings by name, form, bid, relays; then what they do not name.
fn in_order(tags: &mut [Tag]) {
    let rank = |tag: &Tag| {
        let name = tag.first().map_or("", String::as_str);
        let order = ["p", "d", "i", "param", "output", "bid", "relays"];
        order.iter().position(|known| *known == name).unwrap_or(order.len())
    };
    tags.sort_by(|a, b| {
        let settings = |tag: &Tag| (rank(tag) == 3).then(|| tag.get(1).cloned());
        rank(a).cmp(&rank(b)).then_with(|| settings(a).cmp(&settings(b)))
    });
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::Signer;

    use super::*;

    struct Dice;
    impl Random for Dice {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(4);
        }
    }

    fn key(n: u8) -> SecretKey {
        SecretKey::from_bytes([n; 32]).unwrap()
    }

    fn terms(encrypted: bool) -> Terms {
        Terms {
            provider: key(2).public_key(),
            benchmark: Benchmark::StdV3,
            modules: Benchmark::StdV3.modules(),
            kind: 5000,
            encrypted,
            bid: Some(Msat(1_000)),
            relays: vec!["wss://relay.example".to_owned()],
        }
    }

    #[test]
    fn a_request_has_the_form_of_the_nip_and_the_order_of_the_documents() {
        let trial = terms(false).trial([1; 32], None, (&key(1), &Dice), 1_800_000_000_000).unwrap();
        let names: Vec<String> = trial
            .request
            .tags
            .iter()
            .map(|tag| match tag[0].as_str() {
                "param" => format!("param {}", tag[1]),
                name => name.to_owned(),
            })
            .collect();
        let settings = [
            "benchmark-type",
            "commitment",
            "iterations",
            "language",
            "memory-limit",
            "schema_id",
            "time-limit",
        ];
        let settings = settings.map(|name| format!("param {name}"));
        let before = ["p", "i"].map(str::to_owned).into_iter();
        let behind = ["output", "bid", "relays", "t"].map(str::to_owned);
        assert_eq!(names, before.chain(settings).chain(behind).collect::<Vec<_>>());
        let request = &trial.request;
        assert_eq!((request.kind, request.content.as_str()), (5000, ""));
        assert_eq!(request.tags[1][2..], ["text", "", "spec"]);
        request.verify().unwrap();
        let read = Request::parse(request, None).unwrap();
        assert_eq!(read.output.as_deref(), Some("application/json"));
        assert_eq!((read.bid, read.providers), (Some(Msat(1_000)), vec![key(2).public_key()]));
        // Anybody who asks for the same has the same request; another seed is another one.
        let trial = |n| terms(false).trial([n; 32], None, (&key(1), &Dice), 1_800_000_000_000);
        assert_eq!(trial(1).unwrap().request.id, request.id);
        assert_ne!(trial(2).unwrap().request.id, request.id);
    }

    #[test]
    fn a_sealed_request_shows_nothing_of_what_is_asked() {
        let trial = terms(true).trial([1; 32], None, (&key(1), &Dice), 1_800_000_000_000).unwrap();
        let names: Vec<&str> = trial.request.tags.iter().map(|tag| tag[0].as_str()).collect();
        assert_eq!(names, ["p", "output", "bid", "relays", "encrypted"]);
        let read = Request::parse(&trial.request, Some(&key(2))).unwrap();
        assert_eq!(read.schema_id.as_deref(), Some("guild.benchmark.v1"));
        assert!(read.inputs[0].data.contains("std-v3"));
        assert!(Request::parse(&trial.request, Some(&key(3))).is_err());
    }

    #[test]
    fn work_that_is_not_code_is_asked_for_as_anybody_orders_it() {
        let mut terms = terms(false);
        (terms.benchmark, terms.modules) = (Benchmark::EmbeddingV1, BTreeSet::new());
        let trial = terms.trial([1; 32], None, (&key(1), &Dice), 1_800_000_000_000).unwrap();
        let read = Request::parse(&trial.request, None).unwrap();
        let job = terms.benchmark.job(&[1; 32]).unwrap().unwrap();
        assert_eq!((read.schema_id.as_deref(), trial.tests), (Some("oa.embedding.v1"), 1));
        assert_eq!(
            (read.job_hash, read.param(BENCHMARK_TYPE)),
            (Some(job.job_hash()), Some("standard"))
        );
        let kind = |kinds: &[&str]| kind_of_work(kinds.iter().copied());
        assert_eq!((kind(&[]), kind(&["5000,5050"]), kind(&["5300"])), (5050, 5050, 5300));
    }

    #[test]
    fn what_is_too_large_is_referred_to() {
        let large = "x".repeat(INLINE_MAX_BYTES + 1);
        assert_eq!(input(large.clone(), None).unwrap_err().code().name, "meeting.malformed");
        let url = "http://127.0.0.1:4848/ipfs/bafy/spec.json".to_owned();
        let input = input(large, Some(url.clone())).unwrap();
        assert_eq!((input.input_type, input.data), (InputType::Url, url));
    }
}
