//! A trial: whether the tests by which it was judged are those that were committed to before.

use std::collections::BTreeSet;

use guild_protocol::hash::{Hash, Hasher, from_hex, from_hex_exact};
use guild_protocol::json::{self, Doc, Limits};
use guild_protocol::nostr::tag;

use super::Desk;
use super::work::{Asked, Seat};
use crate::benchmark::{Benchmark, Module, SEED_BYTES, read_answer};
use crate::dossier::{FILE_MAX_BYTES, Problem, Revealed, code, input_at, suite_at, verdict_at};
use crate::judge::Verdict;

/// The parameter of a request that says to what its tests are bound.
const COMMITMENT: &str = "commitment";

pub(super) fn check(desk: &mut Desk<'_>, asked: &Asked, seat: &Seat) {
    let Some(revealed) = seat.work.revealed.clone().filter(|_| seat.work.state == "judged") else {
        let problem = Problem::new(&code::MANIFEST, "a trial was judged and says by what");
        desk.report.record("status", seat.of(), Err(problem));
        return;
    };
    let of = seat.of();
    match &revealed.suite_hash {
        None => {
            let outcome = follows(asked, &revealed);
            desk.report.record("commitment", of, outcome);
            desk.report
                .note("this trial is checked as work of its kind is; no verdict of it is kept");
        }
        Some(suite_hash) => {
            let Some(suite) = desk.bytes(&suite_at(suite_hash)) else { return };
            let commitment = committed(desk, asked, seat);
            let outcome = binds(suite, (suite_hash, commitment), &revealed)
                .and_then(|()| made_from(&revealed, suite_hash));
            desk.report.record("commitment", &of, outcome);
            let program = delivered(asked, seat);
            verdict(desk, seat, suite_hash, program);
        }
    }
}

fn wrong(why: impl Into<String>) -> Problem {
    Problem::new(&code::COMMITMENT, why)
}

/// To what the request says that its tests are bound. Of an encrypted one, what lies beside it says so.
fn committed(desk: &mut Desk<'_>, asked: &Asked, seat: &Seat) -> Option<Hash> {
    let said = match &asked.said {
        Some(said) => said.param(COMMITMENT)?.to_owned(),
        None => {
            let text = desk.bytes(&input_at(&seat.work.request_id))?;
            let spec: serde_json::Value = serde_json::from_slice(text).ok()?;
            spec.get(COMMITMENT)?.as_str()?.to_owned()
        }
    };
    Hash::parse_liberal(&said).ok()
}

/// Whether salt and tests have the hash that was named before anything was delivered.
fn binds(
    suite: &[u8],
    (suite_hash, commitment): (&Hash, Option<Hash>),
    revealed: &Revealed,
) -> Result<(), Problem> {
    let limits = Limits { max_bytes: FILE_MAX_BYTES, max_depth: 64 };
    let doc = Doc::parse_within(suite, limits).map_err(|error| wrong(error.to_string()))?;
    json::require_canonical(suite, &doc).map_err(|error| wrong(error.to_string()))?;
    if Hash::of(suite) != *suite_hash {
        return Err(wrong("the tests have another hash than their name says"));
    }
    let salt = revealed.salt.as_deref().and_then(from_hex);
    let Some(salt) = salt else { return Err(wrong("there is no salt")) };
    let mut hasher = Hasher::new();
    hasher.update(&salt);
    hasher.update(suite);
    let computed = hasher.finish();
    match commitment {
        Some(commitment) if commitment == computed => Ok(()),
        Some(commitment) => Err(wrong(format!(
            "salt and tests have the hash {computed}, the request names {commitment}"
        ))),
        None => Err(wrong("the request commits to nothing")),
    }
}

/// The seed, and the benchmark, as far as they are known here.
fn source(revealed: &Revealed) -> Result<(Benchmark, [u8; SEED_BYTES], BTreeSet<Module>), Problem> {
    let benchmark =
        Benchmark::named(&revealed.benchmark).map_err(|error| wrong(error.to_string()))?;
    let seed = from_hex_exact(&revealed.seed).ok_or_else(|| wrong("the seed is no seed"))?;
    let module = |name: &String| Module::ALL.into_iter().find(|module| module.name() == name);
    let modules: Option<BTreeSet<Module>> = revealed.modules.iter().map(module).collect();
    Ok((benchmark, seed, modules.ok_or_else(|| wrong("a module is not known"))?))
}

/// Whether the tests are those that follow from the seed, and were not chosen by hand.
fn made_from(revealed: &Revealed, suite_hash: &Hash) -> Result<(), Problem> {
    let (benchmark, seed, modules) = source(revealed)?;
    let task = benchmark.task(&seed, &modules).map_err(|error| wrong(error.to_string()))?;
    match task.suite().hash() == *suite_hash {
        true => Ok(()),
        false => Err(wrong("other tests follow from the seed")),
    }
}

/// Whether work without tests of its own is what follows from the seed.
fn follows(asked: &Asked, revealed: &Revealed) -> Result<(), Problem> {
    let (benchmark, seed, _) = source(revealed)?;
    let job = benchmark.job(&seed).map_err(|error| wrong(error.to_string()))?;
    let job = job.ok_or_else(|| wrong("this benchmark has tests, and they are not revealed"))?;
    match &asked.said {
        Some(said) if said.job_hash != Some(job.job_hash()) => {
            Err(wrong("other work follows from the seed"))
        }
        _ => Ok(()),
    }
}

/// What was delivered, as it was judged: what no database holds stands as what nobody writes.
fn delivered(asked: &Asked, seat: &Seat) -> Option<String> {
    match &asked.result {
        Some(result) if !tag::has(&result.tags, "encrypted") => {
            Some(result.content.replace('\0', "\u{fffd}"))
        }
        _ => seat.output.clone(),
    }
}

/// The verdict on a program: whether it follows from its own tests, and is about this suite and this program.
fn verdict(desk: &mut Desk<'_>, seat: &Seat, suite_hash: &Hash, program: Option<String>) {
    let Some(hash) = seat.work.verdict_hash else {
        return desk.report.note("nothing was delivered that could be judged");
    };
    let Some(bytes) = desk.bytes(&verdict_at(&hash)) else { return };
    let outcome = judged(bytes, (&hash, suite_hash), program.as_deref());
    desk.report.record("verdict", seat.of(), outcome);
}

fn judged(
    bytes: &[u8],
    (hash, suite_hash): (&Hash, &Hash),
    output: Option<&str>,
) -> Result<(), Problem> {
    let wrong = |why: String| Problem::new(&code::VERDICT, why);
    let limits = Limits { max_bytes: FILE_MAX_BYTES, max_depth: 16 };
    let doc = Doc::parse_within(bytes, limits).map_err(|error| wrong(error.to_string()))?;
    json::require_canonical(bytes, &doc).map_err(|error| wrong(error.to_string()))?;
    let verdict: Verdict =
        json::decode_within(bytes, limits).map_err(|error| wrong(error.to_string()))?;
    verdict.check().map_err(|error| wrong(error.to_string()))?;
    if Hash::of(bytes) != *hash {
        return Err(wrong("it has another hash than its name says".to_owned()));
    }
    if verdict.suite_hash != *suite_hash {
        return Err(wrong("it judges by other tests".to_owned()));
    }
    let program = output.and_then(|output| read_answer(output).ok());
    match program {
        Some(program) if program.hash() == verdict.submission_hash => Ok(()),
        _ => Err(Problem::new(&code::OUTPUT, "another program was judged than was delivered")),
    }
}

/// The name of the judgement, which a review of a trial cites.
pub(super) fn judgement(desk: &mut Desk<'_>, seat: &Seat, revealed: &Revealed) -> Option<Hash> {
    let bytes = desk.bytes(&verdict_at(&seat.work.verdict_hash?))?;
    let text = std::str::from_utf8(bytes).ok()?;
    let npub = seat.work.provider?.npub();
    json::hash(&(npub.as_str(), revealed.judged_ms?, text)).ok()
}
