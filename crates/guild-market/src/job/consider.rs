//! Which requests we take: a pure decision.

use std::collections::BTreeMap;

use guild_network::content::Path;
use guild_protocol::amount::Msat;
use guild_protocol::error::Code;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::Event;
use guild_protocol::nostr::job::{Input, InputType, Request};
use guild_protocol::schema::{Job, Registry, SchemaId};

use crate::benchmark::{self, Benchmark};
use crate::claim::Claimant;
use crate::error::code;
use crate::meeting::{BENCHMARK_TYPE, INPUT_HASH};
use crate::order::TIME_LIMIT;
use crate::sandbox_run;

/// What we do, and on which terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Under which key.
    pub provider: PublicKey,
    /// Each kind of work, with the price of a [unit](crate::sandbox_run::price_units): usually one job. Zero is free.
    pub prices: BTreeMap<SchemaId, Msat>,
    /// The most bytes of an input.
    pub max_input_bytes: usize,
    /// The most jobs at once.
    pub max_open_jobs: u64,
    /// What a buyer may owe us, work that is not paid included.
    pub credit: Msat,
    /// For how long work that was done and not paid counts against the credit.
    pub unpaid_ms: i64,
    /// How much work an hour is done for nothing, to be met by whoever may hire us: for one buyer,
    pub max_samples: u64,
    /// and for all: another key costs nothing.
    pub max_samples_of_all: u64,
}

/// What requests are decided by.
#[derive(Clone, Copy)]
pub struct Shop<'a> {
    /// What we do, and on which terms.
    pub offer: &'a Offer,
    /// The schemas that are known.
    pub registry: &'a Registry,
    /// Whether this very work can be done, although its kind is offered. Asked before anything is promised, inside a
    /// transaction: it only looks.
    pub can_do: &'a dyn Fn(&Job) -> Result<(), Refusal>,
    /// Who works on what is accepted, as long as it has room.
    pub claimant: &'a Claimant,
}

/// How a buyer stands with us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What it may owe us.
    pub credit: Msat,
    /// What it owes us.
    pub owed: Msat,
    /// The price of the work that we do for it, and of what we did lately and it has not paid: because it has not
    /// signed for it yet, has signed for less, or did not accept it.
    pub open: Msat,
    /// How many jobs of anybody we do now.
    pub open_jobs: u64,
    /// What we did for it for nothing within an hour, to be met.
    pub samples: u64,
    /// The same for all.
    pub samples_of_all: u64,
}

/// Whether a request says that it is a trial, of work that is shown for nothing.
pub(super) fn is_sample(request: &Request) -> bool {
    let asked = request.schema_id.as_deref().filter(|id| *id != benchmark::SCHEMA_ID);
    let has_check = |one: &Benchmark| asked == Some(one.schema_id());
    request.param(BENCHMARK_TYPE).is_some() && Benchmark::ALL.iter().any(has_check)
}

/// A refusal that the buyer gets to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why, as a code.
    pub code: &'static Code,
    /// Why, about this case.
    pub words: String,
}

/// The longest sentence of a refusal. It may repeat what a stranger wrote.
const WORDS_MAX_CHARS: usize = 300;

impl Refusal {
    /// A refusal with this code and a sentence about this very case. What nobody can see is not in it: no database
    /// takes every character, and a refusal that cannot be written down is never sent.
    pub fn new(code: &'static Code, words: impl AsRef<str>) -> Refusal {
        let seen = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        Refusal { code, words: words.as_ref().chars().take(WORDS_MAX_CHARS).map(seen).collect() }
    }

    /// What the buyer gets to read: the sentence, and the code in brackets.
    pub fn to_feedback(&self) -> String {
        format!("{} [{}]", self.words, self.code.name)
    }
}

/// What we do about a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// We take it.
    Accept {
        /// The work, with every default filled in.
        job: Box<Job>,
        /// What it costs.
        price: Msat,
        /// Until when, in Unix seconds, if the buyer says so.
        due_s: Option<u64>,
    },
    /// We do not, and say why.
    Refuse(Refusal),
    /// We do not even answer: it is not meant for us, or nobody waits for it any more.
    Ignore(String),
}

/// Decides about a request, in this order:
///
/// | what | decision |
/// |---|---|
/// | our own request; addressed to others only; its time is over; open, and of a schema that we do not serve | ignore |
/// | a schema that we do not serve; no schema | `market.schema_not_served` |
/// | no input, an input by reference, or one that is no JSON of its schema | `market.input_missing`, or what is wrong with it |
/// | an input over our limit | `market.input_too_large` |
/// | another job hash than that of the input | `market.job_hash_wrong` |
/// | work that cannot be done here | what the worker says |
/// | a bid below our price, or none, and no trial that we do for nothing | `market.bid_too_low` |
/// | owed, not paid and this one are together more than the credit | `market.over_credit` |
/// | as many jobs as we can do | `market.busy` |
pub fn consider(
    shop: &Shop<'_>,
    event: &Event,
    request: &Request,
    standing: &Standing,
    now_s: u64,
) -> Decision {
    let due_s = due_s(event, request);
    if let Some(why) = ignored(shop.offer, event, request, due_s, now_s) {
        return Decision::Ignore(why);
    }
    let agreed = terms(shop, request).and_then(|(job, price)| {
        let has_samples = standing.samples < shop.offer.max_samples
            && standing.samples_of_all < shop.offer.max_samples_of_all;
        // Who wants to be hired shows for nothing what it can do, so often.
        let price = if has_samples && is_sample(request) { Msat(0) } else { price };
        check_buyer(shop.offer, request, standing, price)?;
        Ok((job, price))
    });
    match agreed {
        Ok((job, price)) => Decision::Accept { job: Box::new(job), price, due_s },
        Err(refusal) => Decision::Refuse(refusal),
    }
}

/// When the result is due: so many seconds after the request was made.
fn due_s(event: &Event, request: &Request) -> Option<u64> {
    let seconds: u64 = request.param(TIME_LIMIT)?.parse().ok()?;
    Some(event.created_at.saturating_add(seconds))
}

fn ignored(
    offer: &Offer,
    event: &Event,
    request: &Request,
    due_s: Option<u64>,
    now_s: u64,
) -> Option<String> {
    let because = |why: &str| Some(why.to_owned());
    if event.pubkey == offer.provider {
        return because("it is our own");
    }
    let addressed = request.providers.contains(&offer.provider);
    if !addressed && !request.providers.is_empty() {
        return because("it is addressed to others");
    }
    let expires_s = event.tag("expiration").and_then(|written| written.parse::<u64>().ok());
    if [due_s, expires_s].into_iter().flatten().any(|end_s| end_s <= now_s) {
        return because("its time is over");
    }
    if !addressed && price_of(offer, request).is_err() {
        return because("it is open, and of a schema that we do not serve");
    }
    None
}

fn price_of(offer: &Offer, request: &Request) -> Result<(SchemaId, Msat), Refusal> {
    let not_served = |words: String| Refusal::new(&code::SCHEMA_NOT_SERVED, words);
    let Some(named) = schema_of(request) else {
        return Err(not_served("the request names no schema".to_owned()));
    };
    let schema_id = named.parse::<SchemaId>().map_err(|error| not_served(error.to_string()))?;
    match offer.prices.get(&schema_id) {
        Some(price) => Ok((schema_id, *price)),
        None => Err(not_served(format!("{schema_id} is not served here"))),
    }
}

/// The schema that a request names. One that names none is a benchmark if its input says so: the documents write them
/// like that.
fn schema_of(request: &Request) -> Option<&str> {
    const BENCHMARK_MAX_BYTES: usize = 64 * 1_024;
    if let Some(named) = &request.schema_id {
        return Some(named);
    }
    let text = payload_text(request).filter(|text| text.len() <= BENCHMARK_MAX_BYTES)?;
    let spec: serde_json::Value = guild_protocol::json::decode(text.as_bytes()).ok()?;
    spec.get("benchmark_id")?.is_string().then_some(benchmark::SCHEMA_ID)
}

/// The JSON text that a request carries as its input: the first inline one marked `spec`, else the first inline one.
pub fn payload_text(request: &Request) -> Option<&str> {
    let inline = || request.inputs.iter().filter(|input| input.input_type.is_inline());
    let marked = inline().find(|input| input.marker.as_deref() == Some("spec"));
    marked.or_else(|| inline().next()).map(|input| input.data.as_str())
}

/// An input that a request only refers to: its content id and path, and what its bytes must hash to, if the request
/// says so. Only content is followed: any other address could make us call whomever a stranger names.
///
/// ```
/// use guild_market::job::referred;
/// use guild_protocol::nostr::job::{Input, InputType, Request};
/// let cid = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq";
/// let asked = |url: &str| {
///     let mut request = Request::new(5000);
///     request.inputs.push(Input { data: url.to_owned(), input_type: InputType::Url, relay: None, marker: None });
///     referred(&request).map(|(path, _)| path.to_string())
/// };
/// assert_eq!(asked(&format!("http://127.0.0.1:4848/ipfs/{cid}/a?x#y")), Some(format!("{cid}/a")));
/// assert_eq!(asked(&format!("ipfs://{cid}")).as_deref(), Some(cid));
/// assert_eq!(asked("http://169.254.169.254/latest/meta-data"), None);
/// ```
pub fn referred(request: &Request) -> Option<(Path, Option<Hash>)> {
    if payload_text(request).is_some() {
        return None;
    }
    let named = || request.inputs.iter().filter(|input| input.input_type == InputType::Url);
    let marked = named().find(|input| input.marker.as_deref() == Some("spec"));
    let url = marked.or_else(|| named().next()).map(|input| input.data.as_str())?;
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let path = match url.split_once("://") {
        Some(("ipfs", path)) => path,
        Some(("http" | "https", rest)) => rest.split_once('/')?.1.strip_prefix("ipfs/")?,
        _ => return None,
    };
    let hash = request.param(INPUT_HASH).and_then(|written| written.parse().ok());
    Some((path.parse().ok()?, hash))
}

/// The request, as if it carried its input.
#[must_use]
pub fn carrying(request: &Request, text: String) -> Request {
    let mut request = request.clone();
    request.inputs.retain(|input| input.input_type != InputType::Url);
    request.inputs.push(Input::text(text).marked("spec"));
    request
}

fn terms(shop: &Shop<'_>, request: &Request) -> Result<(Job, Msat), Refusal> {
    let Shop { offer, registry, can_do, .. } = shop;
    let (schema_id, price) = price_of(offer, request)?;
    let Some(text) = payload_text(request) else {
        return Err(Refusal::new(
            &code::INPUT_MISSING,
            "the request carries no input of the type text",
        ));
    };
    if text.len() > offer.max_input_bytes {
        let (is, most) = (text.len(), offer.max_input_bytes);
        let words = format!("{is} bytes of input are more than the {most} that are taken here");
        return Err(Refusal::new(&code::INPUT_TOO_LARGE, words));
    }
    let job = registry.validate_input_text(&schema_id, text.as_bytes()).map_err(|problems| {
        let first = guild_protocol::Error::from(problems);
        Refusal::new(first.code(), first.to_string())
    })?;
    match request.job_hash {
        Some(claimed) if claimed != job.job_hash() => {
            let words = format!("the input has the job hash {}", job.job_hash());
            Err(Refusal::new(&code::JOB_HASH, words))
        }
        _ => can_do(&job).map(|()| {
            let price = sandbox_run::price(price, &job);
            (job, price)
        }),
    }
}

fn check_buyer(
    offer: &Offer,
    request: &Request,
    standing: &Standing,
    price: Msat,
) -> Result<(), Refusal> {
    let bid = request.bid.unwrap_or(Msat(0));
    if bid < price {
        let words = format!("the price is {} msat, the bid {}", price.0, bid.0);
        return Err(Refusal::new(&code::BID, words));
    }
    let with_this = [standing.owed.0, standing.open.0, price.0];
    let with_this = with_this.into_iter().fold(0i64, i64::saturating_add);
    if price.0 > 0 && with_this > standing.credit.0 {
        let credit = standing.credit.0;
        let words = format!("{with_this} msat would be owed or not paid, the credit is {credit}");
        return Err(Refusal::new(&code::OVER_CREDIT, words));
    }
    if standing.open_jobs >= offer.max_open_jobs {
        let words = format!("{} jobs are being done already", standing.open_jobs);
        return Err(Refusal::new(&code::BUSY, words));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_no_character_that_cannot_be_written_down() {
        let words = format!("a\0b\u{1b}[2J\u{9b}é {}", "x".repeat(1_000));
        let refusal = Refusal::new(&code::BUSY, words);
        let seen = "a\u{fffd}b\u{fffd}[2J\u{fffd}é xx";
        assert!(refusal.words.starts_with(seen), "{:?}", refusal.words);
        assert_eq!(refusal.words.chars().count(), WORDS_MAX_CHARS);
    }
}
