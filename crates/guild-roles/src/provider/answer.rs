//! What is published about a request: encrypted if it was.

use guild_market::job::TakenJob;
use guild_network::archive::Verified;
use guild_network::publish::{self, Destinations};
use guild_protocol::env::UnixMs;
use guild_protocol::nostr::job::{Feedback, InputType, JobResult, Price, Status};
use guild_protocol::nostr::{Draft, Event, tag, unix_s};
use guild_store::Tx;

use super::Shared;
use crate::Result;

/// How long relays keep what we say about a job; the job itself is over long before.
const FEEDBACK_KEPT_S: u64 = 7 * 24 * 3_600;
/// A request is repeated in its result up to this size: it may be as large as an event can be.
const REPEATED_MAX_BYTES: usize = 16 * 1024;

impl Shared {
    /// Says that work begins, and what it costs.
    pub(super) fn processing(
        &self,
        request: &Event,
        job: &TakenJob,
        now_ms: UnixMs,
    ) -> Result<Event> {
        let mut feedback = Feedback::about(request, Status::Processing);
        feedback.price = Some(Price::new(job.price));
        self.sign_feedback(feedback, now_ms)
    }

    /// Says why nothing comes: the sentence, and the code in brackets.
    pub(super) fn error(&self, request: &Event, job: &TakenJob, now_ms: UnixMs) -> Result<Event> {
        let mut feedback = Feedback::about(request, Status::Error);
        let said = |text: &Option<String>| text.clone().unwrap_or_default();
        feedback.info = Some(format!("{} [{}]", said(&job.words), said(&job.code)));
        self.sign_feedback(feedback, now_ms)
    }

    fn sign_feedback(&self, mut feedback: Feedback, now_ms: UnixMs) -> Result<Event> {
        let at = unix_s(now_ms);
        feedback.expires_at = Some(at.saturating_add(FEEDBACK_KEPT_S));
        let draft = match feedback.encrypted {
            true => feedback.sealed_draft(at, &self.key, &*self.node.random)?,
            false => feedback.draft(at)?,
        };
        Ok(draft.sign(&self.key)?)
    }

    /// The result with this output.
    pub(super) fn result(
        &self,
        request: &Event,
        job: &TakenJob,
        output_text: &str,
        now_ms: UnixMs,
    ) -> Result<Event> {
        let mut result = JobResult::answering(request, output_text)?;
        result.price = Some(Price::new(job.price));
        if result.request_json.as_ref().is_some_and(|text| text.len() > REPEATED_MAX_BYTES) {
            result.request_json = None;
            result.inputs = Vec::new();
        }
        // Of what may be read and not be sent nothing is repeated.
        result.inputs.retain(|input| !matches!(input.input_type, InputType::Other(_)));
        let at = unix_s(now_ms).max(request.created_at);
        let draft: Draft = match result.encrypted {
            true => result.sealed_draft(at, &self.key, &*self.node.random)?,
            false => result.draft(at)?,
        };
        Ok(draft.sign(&self.key)?)
    }

    /// Keeps an answer and queues it for our relays and some of those that the buyer reads.
    pub(super) fn publish(
        &self,
        tx: &mut Tx<'_>,
        answer: Event,
        request: &Event,
        now_ms: UnixMs,
    ) -> Result<()> {
        let hints = tag::all(&request.tags, "relays").flatten().map(String::as_str);
        let own = Destinations::own(&self.options.relays);
        let to = own.and_of(&request.pubkey, hints, self.options.max_hints);
        Ok(publish::enqueue(tx, &Verified::check(answer)?, &to, now_ms)?)
    }

    /// Queues a refusal for our relays alone, and keeps it as others' events are: anybody can cause any number of them.
    pub(super) fn publish_refusal(
        &self,
        tx: &mut Tx<'_>,
        refusal: Event,
        now_ms: UnixMs,
    ) -> Result<()> {
        let to = Destinations::own(&self.options.relays);
        Ok(publish::enqueue_unpinned(tx, &Verified::check(refusal)?, &to, now_ms)?)
    }
}
