//! The result of a request.

use super::{
    Input, OUTSIDE, Placed, Price, RequestRef, code, key_of, placed, push_other, seal, wrong_kind,
};
use crate::env::Random;
use crate::identity::{PublicKey, SecretKey};
use crate::nostr::{Draft, Event, Limits, Tag, kind, nip44, tag};
use crate::{Error, Result};

/// The result of a request (kinds 6000 to 6999).
///
/// ```
/// use guild_protocol::identity::SecretKey;
/// use guild_protocol::nostr::{kind, job::{JobResult, Request, correlates}};
/// use guild_protocol::env::Signer;
/// let key = |n: u8| format!("{n:064x}").parse::<SecretKey>().unwrap();
/// let (buyer, provider) = (key(1), key(2));
/// let mut request = Request::new(kind::DEFAULT_REQUEST);
/// request.providers.push(provider.public_key());
/// let request = request.draft(1_700_000_000).unwrap().sign(&buyer).unwrap();
///
/// let result = JobResult::answering(&request, "done").unwrap();
/// let event = result.draft(1_700_000_001).unwrap().sign(&provider).unwrap();
/// assert_eq!(JobResult::parse(&event, None).unwrap(), result);
/// correlates(&request, &[provider.public_key()], &event).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobResult {
    /// The request's kind + 1000.
    pub kind: u16,
    /// Which request it answers.
    pub request: RequestRef,
    /// The text of the request, as the provider says it was.
    pub request_json: Option<String>,
    /// Who asked.
    pub customer: Option<PublicKey>,
    /// The request's inputs; none if it was encrypted.
    pub inputs: Vec<Input>,
    /// What is asked for it.
    pub price: Option<Price>,
    /// The result itself.
    pub content: String,
    /// Whether the content travels encrypted.
    pub encrypted: bool,
    /// Tags that have no meaning here, a `status` included.
    pub other_tags: Vec<Tag>,
}

impl JobResult {
    /// The answer to a request: encrypted if that was.
    pub fn answering(request: &Event, content: impl Into<String>) -> Result<JobResult> {
        let kind =
            kind::result_of(request.kind).ok_or_else(|| wrong_kind(request.kind, "a request"))?;
        let encrypted = tag::has(&request.tags, seal::ENCRYPTED);
        let inputs = if encrypted {
            Vec::new()
        } else {
            tag::all(&request.tags, "i").map(Input::of).collect::<Result<_>>()?
        };
        Ok(JobResult {
            kind,
            request: RequestRef::to(request),
            request_json: Some(request.to_json()),
            customer: Some(request.pubkey),
            inputs,
            price: None,
            content: content.into(),
            encrypted,
            other_tags: Vec::new(),
        })
    }

    /// Reads a result. An encrypted one needs the key of its author or of its recipient.
    pub fn parse(event: &Event, key: Option<&SecretKey>) -> Result<JobResult> {
        if !kind::is_result(event.kind) {
            return Err(wrong_kind(event.kind, "a result"));
        }
        let opened = seal::open(event, key)?;
        let mut parts = Parts::default();
        for tag in placed(OUTSIDE, &event.tags) {
            parts.take(tag).map_err(|e| e.within(&tag.place()))?;
        }
        Ok(JobResult {
            kind: event.kind,
            request: parts.request.ok_or_else(no_request)?,
            request_json: parts.request_json,
            customer: parts.customer,
            inputs: parts.inputs,
            price: parts.price,
            encrypted: opened.is_some(),
            content: opened.unwrap_or_else(|| event.content.clone()),
            other_tags: parts.other_tags,
        })
    }

    /// The request that the result carries, verified, if it carries one and it is the one it names.
    pub fn carried_request(&self) -> Result<Option<Event>> {
        let Some(text) = &self.request_json else { return Ok(None) };
        let event = Event::parse_verified(text.as_bytes(), &Limits::DEFAULT)
            .map_err(|e| e.within("request"))?;
        if event.id != self.request.id {
            let message = format!("the result carries the request {}", event.id);
            return Err(Error::new(&code::WRONG_REQUEST, message).at("request"));
        }
        Ok(Some(event))
    }

    /// The result in the open.
    pub fn draft(&self, created_at: u64) -> Result<Draft> {
        seal::require_open(self.encrypted)?;
        let mut tags = self.tags()?;
        for (i, input) in self.inputs.iter().enumerate() {
            tags.push(input.to_tag().map_err(|e| e.within(&format!("inputs[{i}]")))?);
        }
        push_other(&mut tags, &self.other_tags)?;
        Ok(Draft { kind: self.kind, created_at, tags, content: self.content.clone() })
    }

    /// The result encrypted to its customer, without the inputs.
    pub fn sealed_draft(
        &self,
        created_at: u64,
        own: &SecretKey,
        random: &dyn Random,
    ) -> Result<Draft> {
        let customer = self.customer.as_ref().ok_or_else(seal::no_recipient)?;
        let content = nip44::encrypt(own, customer, &self.content, random)?;
        let mut tags = self.tags()?;
        tags.push(tag::tag([seal::ENCRYPTED]));
        push_other(&mut tags, &self.other_tags)?;
        Ok(Draft { kind: self.kind, created_at, tags, content })
    }

    fn tags(&self) -> Result<Vec<Tag>> {
        if !kind::is_result(self.kind) {
            return Err(wrong_kind(self.kind, "a result"));
        }
        let mut tags = Vec::new();
        tags.extend(self.request_json.as_ref().map(|text| tag::tag(["request", text])));
        tags.push(self.request.to_tag().map_err(|e| e.at("request"))?);
        tags.extend(self.customer.map(|key| tag::tag(["p", &key.hex()])));
        if let Some(price) = &self.price {
            tags.push(price.to_tag().map_err(|e| e.at("price"))?);
        }
        Ok(tags)
    }
}

pub(super) fn no_request() -> Error {
    Error::new(&code::NO_REQUEST, "no e tag names the request").at("e")
}

#[derive(Default)]
struct Parts {
    request: Option<RequestRef>,
    request_json: Option<String>,
    customer: Option<PublicKey>,
    inputs: Vec<Input>,
    price: Option<Price>,
    other_tags: Vec<Tag>,
}

impl Parts {
    /// Of each tag that may stand once, the first counts.
    fn take(&mut self, tag: Placed<'_>) -> Result<()> {
        match (tag.name, tag.rest) {
            ("e", rest) if self.request.is_none() => self.request = Some(RequestRef::of(rest)?),
            ("request", [first, ..]) if self.request_json.is_none() => {
                self.request_json = Some(first.clone());
            }
            ("p", rest) if self.customer.is_none() => self.customer = Some(key_of(rest)?),
            ("i", rest) => self.inputs.push(Input::of(rest)?),
            ("amount", rest) if self.price.is_none() => self.price = Some(Price::of(rest)?),
            (seal::ENCRYPTED, _) => {}
            _ => self.other_tags.push(tag.whole.clone()),
        }
        Ok(())
    }
}
