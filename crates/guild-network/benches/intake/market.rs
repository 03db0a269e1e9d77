//! The events of a busy market: for every request feedback and a result.

use guild_protocol::amount::Msat;
use guild_protocol::env::Signer;
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::job::{Feedback, Input, JobResult, Request, Status};
use guild_protocol::nostr::{Event, kind};

use crate::said;

pub(crate) const NOW_S: u64 = 1_800_000_000;
/// Half of them buy, half of them work.
const PEOPLE: u64 = 1_000;
const EVENTS_A_SECOND: u64 = 50;

/// At least `count` events, signed on all cores, in the order in which they were made.
pub(crate) fn events(count: u64) -> Result<Vec<Event>, String> {
    let jobs = count.div_ceil(3);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let part = jobs.div_ceil(threads);
    let signed = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|n| scope.spawn(move || (n * part..jobs.min((n + 1) * part)).map(job).collect()))
            .collect();
        let join = |part: std::thread::ScopedJoinHandle<'_, _>| part.join().map_err(|_| "panicked");
        parts.into_iter().map(join).collect::<Result<Vec<Result<Vec<[Event; 3]>, String>>, _>>()
    })
    .map_err(said)?;
    let signed = signed.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(signed.into_iter().flatten().flatten().collect())
}

fn key(n: u64) -> Result<SecretKey, String> {
    format!("{:064x}", n + 1).parse().map_err(said)
}

fn job(n: u64) -> Result<[Event; 3], String> {
    let (buyer, provider) = (key(n * 7 % (PEOPLE / 2))?, key(PEOPLE / 2 + n * 11 % (PEOPLE / 2))?);
    let created_at = NOW_S - 10_000 + n * 3 / EVENTS_A_SECOND;
    let mut request = Request::new(kind::DEFAULT_REQUEST);
    request.inputs.push(Input::text(format!("{{\"texts\":[\"the {n}th text to be embedded\"]}}")));
    request.schema_id = Some("oa.embedding.v1".to_owned());
    request.output = Some("application/json".to_owned());
    request.bid = Some(Msat(21_000));
    request.providers.push(provider.public_key());
    let request = request.draft(created_at).and_then(|draft| draft.sign(&buyer)).map_err(said)?;
    let feedback = Feedback::about(&request, Status::Processing);
    let feedback =
        feedback.draft(created_at + 1).and_then(|draft| draft.sign(&provider)).map_err(said)?;
    let mut result =
        JobResult::answering(&request, "{\"embeddings\":[[0.1,0.2,0.3,0.4]]}").map_err(said)?;
    result.request_json = None;
    let result =
        result.draft(created_at + 2).and_then(|draft| draft.sign(&provider)).map_err(said)?;
    Ok([request, feedback, result])
}

/// As a relay sends it.
pub(crate) fn frame(event: &Event) -> String {
    guild_protocol::nostr::message::event_frame("s", &event.to_json())
}
