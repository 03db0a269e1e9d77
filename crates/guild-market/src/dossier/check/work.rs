//! One request: who asked whom for what, what came, and what it was worth.

use std::sync::Arc;

use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::job::{JobResult, Request, correlates};
use guild_protocol::nostr::{Event, EventId, kind, tag};
use guild_protocol::receipt::Receipt;
use guild_protocol::schema::{Job, SchemaId};

use super::document::{self, Document, Own};
use super::{Desk, money, replay, trial};
use crate::dossier::{Problem, Work, code, input_at, output_at, verdict_at};
use crate::job;
use crate::verify::{Options as Strictness, Subject, verify_ballot};

/// What was found of a request, for whoever looks at several.
pub(super) struct Seat {
    pub(super) work: Work,
    pub(super) job: Option<Job>,
    /// What was delivered, as it came.
    pub(super) output: Option<String>,
    pub(super) verdict: Option<Document>,
    pub(super) receipt: Option<Receipt>,
    /// What was asked for with the result.
    pub(super) asked_msat: Option<i64>,
}

impl Seat {
    pub(super) fn of(&self) -> String {
        self.work.request_id.hex()
    }
}

/// The events of a request that hold.
pub(super) struct Asked {
    pub(super) request: Arc<Event>,
    /// What it says; none if it travelled encrypted or cannot be read.
    pub(super) said: Option<Request>,
    pub(super) result: Option<Arc<Event>>,
}

pub(super) fn check(desk: &mut Desk<'_>, work: &Work) -> Seat {
    let mut seat = Seat {
        work: work.clone(),
        job: None,
        output: None,
        verdict: None,
        receipt: None,
        asked_msat: None,
    };
    let of = seat.of();
    let Some(request) = desk.event(&work.request_id) else { return seat };
    let said = Request::parse(&request, None).ok();
    let outcome = is_request(desk, work, &request, said.as_ref());
    if !desk.report.record("request", &of, outcome) {
        return seat;
    }
    let mut asked = Asked { request, said, result: None };
    heard(desk, work, &asked.request);
    asked.result = result(desk, work, &asked.request);
    seat.asked_msat = money::price(&asked);
    seat.output = output(desk, &asked, work);
    if work.revealed.is_some() || work.state == "judged" {
        trial::check(desk, &asked, &seat);
        return seat;
    }
    seat.job = input(desk, &asked, work);
    seat.verdict = verdict(desk, &seat);
    seat.receipt = money::receipt(desk, &seat, &asked);
    let outcome = ended(&seat);
    desk.report.record("status", &of, outcome);
    if seat.work.state == "withheld" {
        desk.report.note("whether it was disputed and paid after all is not in it");
    }
    if seat.verdict.as_ref().is_some_and(Document::is_overruled) {
        desk.report.note(
            "a dispute has decided otherwise than it was judged; what was said in it is not in it",
        );
    }
    money::check(desk, &seat, &asked);
    replay::check(desk, &seat);
    if desk.options.rerun {
        again(desk, &seat);
    }
    seat
}

fn is_request(
    desk: &Desk<'_>,
    work: &Work,
    request: &Event,
    said: Option<&Request>,
) -> Result<(), Problem> {
    let wrong = |why: &str| Err(Problem::new(&code::REQUEST, why));
    let private = tag::has(&request.tags, "encrypted");
    if !kind::is_request(request.kind) {
        return wrong("the event is no request");
    }
    if request.pubkey != desk.manifest.buyer {
        return wrong("it was signed by somebody else than the buyer");
    }
    if private != desk.manifest.private {
        return wrong("it is private and the rest is not, or the other way round");
    }
    if said.is_none() && !private {
        return wrong("it cannot be read");
    }
    let schema_id = said.and_then(|said| said.schema_id.as_deref());
    if schema_id.is_some_and(|said| said != work.schema_id) {
        return wrong("it asks for another kind of work");
    }
    let mut addressed = tag::values(&request.tags, "p").peekable();
    let provider = work.provider.map(|provider| provider.hex());
    let open_to_all = addressed.peek().is_none();
    if !open_to_all && !addressed.any(|key| Some(key) == provider.as_deref()) {
        return wrong("it is addressed to somebody else");
    }
    Ok(())
}

/// Whether somebody may answer: who was addressed, or anybody if nobody was.
fn may_answer(request: &Event, author: &PublicKey) -> bool {
    let mut addressed = tag::values(&request.tags, "p").peekable();
    let author = author.hex();
    addressed.peek().is_none() || addressed.any(|key| key == author)
}

/// What else was said about it.
fn heard(desk: &mut Desk<'_>, work: &Work, request: &Event) {
    for id in &work.heard {
        let Some(event) = desk.event(id) else { continue };
        let names = tag::values(&event.tags, "e").any(|named| named == request.id.hex());
        let by_one_of_both = match event.kind {
            kind::DELETION => event.pubkey == request.pubkey,
            kind::FEEDBACK => may_answer(request, &event.pubkey),
            _ => {
                correlates(request, &[event.pubkey], &event).is_ok()
                    && may_answer(request, &event.pubkey)
            }
        };
        let outcome = match names && by_one_of_both {
            true => Ok(()),
            false => {
                let message = format!("{id} is not about it, or not by one of the two");
                Err(Problem::new(&code::FEEDBACK, message))
            }
        };
        desk.report.record("feedback", request.id.hex(), outcome);
    }
}

/// The result that counts, if it is one.
fn result(desk: &mut Desk<'_>, work: &Work, request: &Event) -> Option<Arc<Event>> {
    let result_id: EventId = work.result_id?;
    let event = desk.event(&result_id)?;
    let outcome = match &work.provider {
        None => Err(Problem::new(&code::RESULT, "nobody is said to have delivered it")),
        Some(provider) => correlates(request, &[*provider], &event)
            .map_err(|error| Problem::new(&code::RESULT, error.to_string())),
    };
    desk.report.record("result", request.id.hex(), outcome).then_some(event)
}

/// What the result says. Of a private one the text lies beside it.
fn output(desk: &mut Desk<'_>, asked: &Asked, work: &Work) -> Option<String> {
    let result = asked.result.as_ref()?;
    if tag::has(&result.tags, "encrypted") {
        desk.report.note(
            "the work is private: that the encrypted events hold the texts that lie beside them is the buyer's word; \
             the receipt signs for their hashes",
        );
        let text = desk.bytes(&output_at(&work.request_id))?;
        return String::from_utf8(text.to_vec()).ok();
    }
    let result = JobResult::parse(result, None).ok()?;
    // As the verdict counts it: what no JSON holds stands as what no JSON holds either.
    Some(result.content.replace('\0', "\u{1}"))
}

/// What was asked for, under the hash that the request names.
fn input(desk: &mut Desk<'_>, asked: &Asked, work: &Work) -> Option<Job> {
    let of = work.request_id.hex();
    let (text, named) = match &asked.said {
        Some(said) => match job::referred(said) {
            None => {
                let inline = said.inputs.iter().find(|input| input.input_type.is_inline());
                (inline.map(|input| input.data.clone()).unwrap_or_default(), said.job_hash)
            }
            Some((_, hash)) => {
                let text = desk.bytes(&input_at(&work.request_id))?;
                if hash.is_some_and(|hash| hash != Hash::of(text)) {
                    let wrong = "it has another hash than its request says";
                    let problem = Problem::new(&code::INPUT, wrong);
                    desk.report.record("input", of, Err(problem));
                    return None;
                }
                (String::from_utf8_lossy(text).into_owned(), said.job_hash)
            }
        },
        None => {
            let text = desk.bytes(&input_at(&work.request_id))?;
            (String::from_utf8_lossy(text).into_owned(), None)
        }
    };
    let registry = desk.options.registry;
    let schema_id = work.schema_id.parse::<SchemaId>().ok();
    let Some(schema_id) = schema_id.filter(|id| registry.get(id).is_ok()) else {
        let words = format!(
            "{} is not known to this program: its input and votes are not checked",
            work.schema_id
        );
        desk.report.note(words);
        return None;
    };
    let job = registry.validate_input_text(&schema_id, text.as_bytes());
    let outcome = match (&job, named) {
        (Err(problems), _) => Err(Problem::new(&code::INPUT, problems.to_string())),
        (Ok(_), None) if asked.said.is_some() => {
            Err(Problem::new(&code::INPUT, "the request names no job_hash"))
        }
        (Ok(job), Some(named)) if job.job_hash() != named => {
            let message = format!("it has the hash {}, the request says {named}", job.job_hash());
            Err(Problem::new(&code::INPUT, message))
        }
        _ => Ok(()),
    };
    if desk.report.record("input", of, outcome) { job.ok() } else { None }
}

/// The document of the verdict, if it is one about this work.
fn verdict(desk: &mut Desk<'_>, seat: &Seat) -> Option<Document> {
    let hash = seat.work.verdict_hash?;
    let bytes = desk.bytes(&verdict_at(&hash))?;
    let read = Document::read(bytes).map_err(|why| Problem::new(&code::VERDICT, why));
    let outcome = read.and_then(|document| match Hash::of(bytes) == hash {
        true => about(seat, &document).map(|()| document),
        false => Err(Problem::new(&code::VERDICT, "it has another hash than its name says")),
    });
    let (document, outcome) = match outcome {
        Ok(document) => (Some(document), Ok(())),
        Err(problem) => (None, Err(problem)),
    };
    desk.report.record("verdict", seat.of(), outcome);
    document
}

fn about(seat: &Seat, document: &Document) -> Result<(), Problem> {
    let wrong = |why: &str| Err(Problem::new(&code::VERDICT, why));
    if Some(document.provider_id) != seat.work.provider {
        return wrong("it is about somebody else's result");
    }
    if document.schema_id != seat.work.schema_id {
        return wrong("it is about another kind of work");
    }
    if let Some(job) = &seat.job {
        if document.job_hash != job.job_hash() {
            return wrong("it is about another job");
        }
        let mode = job.payload().get("verification").and_then(|wanted| wanted.get("mode"));
        let objective = mode.and_then(|mode| mode.as_str()) == Some("objective");
        if objective != (document.mode == "objective") {
            return wrong("it judges in another mode than was ordered");
        }
    }
    match seat.output.as_ref().map(|output| Hash::of(output.as_bytes())) {
        Some(hash) if hash != document.output_hash => {
            let message = format!("{hash} was delivered, {} was judged", document.output_hash);
            Err(Problem::new(&code::OUTPUT, message))
        }
        _ => Ok(()),
    }
}

/// Whether what became of the order is what verdict and receipt say.
fn ended(seat: &Seat) -> Result<(), Problem> {
    let Work { state, result_id, verdict_hash, receipt_id, .. } = &seat.work;
    let wrong = |why: &str| Err(Problem::new(&code::STATUS, format!("it is {state}, and {why}")));
    let passed = seat.verdict.as_ref().map(|verdict| verdict.passed);
    match state.as_str() {
        "released" | "withheld" if result_id.is_none() => wrong("there is no result"),
        "released" | "withheld" if verdict_hash.is_none() => wrong("there is no verdict"),
        "released" if passed == Some(false) => wrong("its verdict did not pass"),
        "withheld" if passed == Some(true) => wrong("its verdict passed"),
        "released" | "withheld" => Ok(()),
        "expired" | "failed" | "cancelled" => {
            match result_id.is_some() || verdict_hash.is_some() || receipt_id.is_some() {
                true => wrong("something was settled"),
                false => Ok(()),
            }
        }
        _ => Err(Problem::new(&code::MANIFEST, "a request ended in no way that there is")),
    }
}

/// Judges again, by the judge itself.
fn again(desk: &mut Desk<'_>, seat: &Seat) {
    let (Some(job), Some(output_text), Some(verdict)) = (&seat.job, &seat.output, &seat.verdict)
    else {
        return;
    };
    let Some(hash) = seat.work.verdict_hash else { return };
    let Some(bytes) = desk.bytes(&verdict_at(&hash)) else { return };
    if verdict.own() == Own::Unchecked {
        return desk.report.note("a result was never judged by itself, so nothing is judged again");
    }
    if crate::verify::is_sandbox_run(job) && verdict.mode == "objective" {
        return desk.report.note("commands are not run again by this check");
    }
    let strictness = Strictness {
        min_likeness: verdict.min_likeness.unwrap_or(Strictness::default().min_likeness),
    };
    let subject = Subject { job, provider: &verdict.provider_id, output_text };
    let registry = desk.options.registry;
    if verdict.known_answer.is_some() {
        desk.report.note("a test was compared with a known answer, which is not here: its form alone is judged again");
    }
    let judged = match (verdict.known_answer.is_some(), verdict.consensus.is_some()) {
        (true, _) => crate::verify::verify_form(registry, &strictness, &subject),
        (false, true) => verify_ballot(registry, &strictness, &subject, &[]),
        (false, false) => crate::verify::verify(registry, &strictness, &subject),
    };
    let said = document::ballot(bytes, verdict.own());
    let outcome = match judged {
        Ok(judged) if said.as_deref() == Some(judged.document.as_bytes()) => Ok(()),
        Ok(judged) => {
            let what = if judged.passed { "passes" } else { "does not pass" };
            Err(Problem::new(&code::RERUN, format!("judged again, it {what}: {}", judged.document)))
        }
        Err(error) => Err(Problem::new(&code::RERUN, error.to_string())),
    };
    desk.report.record("rerun", seat.of(), outcome);
}
