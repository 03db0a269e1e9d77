//! How a job is going.

use std::fmt;

use super::result::no_request;
use super::{
    INSIDE, OUTSIDE, Placed, Price, RequestRef, bad_tag, code, key_of, placed, push_other, seal,
    wrong_kind,
};
use crate::env::Random;
use crate::hash::shorten;
use crate::identity::{PublicKey, SecretKey};
use crate::nostr::{Draft, Event, Tag, kind, tag};
use crate::{Error, Result};

/// What feedback says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Nothing more happens until the price is paid.
    PaymentRequired,
    /// Work has begun.
    Processing,
    /// Work has failed.
    Error,
    /// Work is done.
    Success,
    /// A part is done.
    Partial,
    /// Anything else, as written. Read, never sent; no timer should believe it.
    Other(String),
}

impl Status {
    fn of(written: &str) -> Status {
        match written {
            "payment-required" => Status::PaymentRequired,
            "processing" => Status::Processing,
            "error" => Status::Error,
            "success" => Status::Success,
            "partial" => Status::Partial,
            other => Status::Other(other.to_owned()),
        }
    }

    /// The word on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Status::PaymentRequired => "payment-required",
            Status::Processing => "processing",
            Status::Error => "error",
            Status::Success => "success",
            Status::Partial => "partial",
            Status::Other(other) => other,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a job is going (kind 7000).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feedback {
    /// What it says.
    pub status: Status,
    /// The same for people.
    pub info: Option<String>,
    /// What is asked for.
    pub price: Option<Price>,
    /// Which request it is about.
    pub request: RequestRef,
    /// Who asked.
    pub customer: Option<PublicKey>,
    /// A sample, a part, or the whole result.
    pub content: String,
    /// Unix seconds after which relays may drop it (NIP-40).
    pub expires_at: Option<u64>,
    /// Whether it travels encrypted.
    pub encrypted: bool,
    /// Tags that have no meaning here.
    pub other_tags: Vec<Tag>,
}

impl Feedback {
    /// Feedback about a request: encrypted if that was.
    ///
    /// ```
    /// use guild_protocol::identity::SecretKey;
    /// use guild_protocol::nostr::{kind, job::{Feedback, Request, Status}};
    /// let key = |n: u8| format!("{n:064x}").parse::<SecretKey>().unwrap();
    /// let request = Request::new(kind::DEFAULT_REQUEST).draft(1).unwrap().sign(&key(1)).unwrap();
    /// let mut feedback = Feedback::about(&request, Status::Processing);
    /// feedback.info = Some("half way".into());
    /// let event = feedback.draft(2).unwrap().sign(&key(2)).unwrap();
    /// assert_eq!(event.tags[0], ["status", "processing", "half way"]);
    /// assert_eq!(Feedback::parse(&event, None).unwrap(), feedback);
    /// ```
    pub fn about(request: &Event, status: Status) -> Feedback {
        Feedback {
            status,
            info: None,
            price: None,
            request: RequestRef::to(request),
            customer: Some(request.pubkey),
            content: String::new(),
            expires_at: None,
            encrypted: tag::has(&request.tags, seal::ENCRYPTED),
            other_tags: Vec::new(),
        }
    }

    /// Reads feedback. Of an encrypted one the ciphertext may hold the content alone, or a list of tags with the
    /// status, the price, the request and the content among them.
    pub fn parse(event: &Event, key: Option<&SecretKey>) -> Result<Feedback> {
        if event.kind != kind::FEEDBACK {
            return Err(wrong_kind(event.kind, "feedback"));
        }
        let opened = seal::open(event, key)?;
        let inside = opened.as_deref().and_then(status_tags);
        // The first of its name counts. What is inside says more; but which request it is about, and who asked,
        // is what everybody sees.
        let mut parts = Parts::default();
        for tag in placed(INSIDE, inside.as_deref().unwrap_or_default()) {
            parts.take(tag).map_err(|e| e.within(&tag.place()))?;
        }
        let secret_request = parts.request.take();
        for tag in placed(OUTSIDE, &event.tags) {
            parts.take(tag).map_err(|e| e.within(&tag.place()))?;
        }
        let status = parts.status.ok_or_else(no_status)?;
        Ok(Feedback {
            status,
            info: parts.info,
            price: parts.price,
            request: one_request(secret_request, parts.request)?,
            customer: parts.customer,
            encrypted: opened.is_some(),
            content: match (inside, opened) {
                (Some(_), _) => parts.content.unwrap_or_default(),
                (None, Some(plaintext)) => plaintext,
                (None, None) => event.content.clone(),
            },
            expires_at: parts.expires_at,
            other_tags: parts.other_tags,
        })
    }

    /// The feedback in the open.
    pub fn draft(&self, created_at: u64) -> Result<Draft> {
        seal::require_open(self.encrypted)?;
        let mut tags = vec![self.status_tag(self.info.as_deref())?];
        if let Some(price) = &self.price {
            tags.push(price.to_tag().map_err(|e| e.at("price"))?);
        }
        tags.append(&mut self.public_tags()?);
        push_other(&mut tags, &self.other_tags)?;
        Ok(Draft { kind: kind::FEEDBACK, created_at, tags, content: self.content.clone() })
    }

    /// The feedback encrypted to its customer. The bare status stays readable, so that a reader that looks only
    /// outside still sees it; words, price and content do not.
    pub fn sealed_draft(
        &self,
        created_at: u64,
        own: &SecretKey,
        random: &dyn Random,
    ) -> Result<Draft> {
        let customer = self.customer.as_ref().ok_or_else(seal::no_recipient)?;
        let mut inside = vec![self.status_tag(self.info.as_deref())?];
        if let Some(price) = &self.price {
            inside.push(price.to_tag().map_err(|e| e.at("price"))?);
        }
        inside.push(tag::tag(["content", &self.content]));
        // A tag that is not understood may be private: what was read inside must not be sent outside.
        push_other(&mut inside, &self.other_tags)?;
        let content = seal::seal_tags(own, customer, &inside, random)?;
        let mut tags = vec![self.status_tag(None)?];
        tags.append(&mut self.public_tags()?);
        tags.push(tag::tag([seal::ENCRYPTED]));
        Ok(Draft { kind: kind::FEEDBACK, created_at, tags, content })
    }

    fn status_tag(&self, info: Option<&str>) -> Result<Tag> {
        if let Status::Other(other) = &self.status {
            let message = format!("{:?} is not a status of NIP-90", shorten(other));
            return Err(Error::new(&code::BAD_VALUE, message).at("status"));
        }
        let mut tag = tag::tag(["status", self.status.as_str()]);
        tag.extend(info.map(str::to_owned));
        Ok(tag)
    }

    fn public_tags(&self) -> Result<Vec<Tag>> {
        let mut tags = vec![self.request.to_tag().map_err(|e| e.at("request"))?];
        tags.extend(self.customer.map(|key| tag::tag(["p", &key.hex()])));
        tags.extend(self.expires_at.map(|at| tag::tag(["expiration", &at.to_string()])));
        Ok(tags)
    }
}

/// The tags of a plaintext, if it is a list of tags with a status; any other plaintext is the content itself.
fn status_tags(plaintext: &str) -> Option<Vec<Tag>> {
    seal::read_tags(plaintext).ok().filter(|tags| tag::has(tags, "status"))
}

fn one_request(inside: Option<RequestRef>, outside: Option<RequestRef>) -> Result<RequestRef> {
    match (outside, inside) {
        (Some(outside), Some(inside)) if outside.id != inside.id => {
            Err(bad_tag("the ciphertext names another request than the event").at("e"))
        }
        (Some(request), _) | (None, Some(request)) => Ok(request),
        (None, None) => Err(no_request()),
    }
}

fn no_status() -> Error {
    Error::new(&code::NO_STATUS, "no status tag, neither outside nor inside").at("status")
}

#[derive(Default)]
struct Parts {
    status: Option<Status>,
    info: Option<String>,
    price: Option<Price>,
    request: Option<RequestRef>,
    customer: Option<PublicKey>,
    content: Option<String>,
    expires_at: Option<u64>,
    other_tags: Vec<Tag>,
}

impl Parts {
    fn take(&mut self, tag: Placed<'_>) -> Result<()> {
        match (tag.name, tag.rest) {
            ("status", [status, rest @ ..]) => {
                if self.status.is_none() {
                    self.status = Some(Status::of(status));
                    self.info = rest.first().filter(|text| !text.is_empty()).cloned();
                }
            }
            ("amount", rest) if self.price.is_none() => self.price = Some(Price::of(rest)?),
            ("e", rest) if self.request.is_none() => self.request = Some(RequestRef::of(rest)?),
            ("p", rest) if self.customer.is_none() && !tag.is_inside() => {
                self.customer = Some(key_of(rest)?);
            }
            ("content", [content, ..]) if tag.is_inside() => self.content = Some(content.clone()),
            ("expiration", [at, ..]) if self.expires_at.is_none() => {
                let at = at.parse().map_err(|_| bad_tag("not a whole number of seconds"))?;
                self.expires_at = Some(at);
            }
            (seal::ENCRYPTED, _) => {}
            _ => self.other_tags.push(tag.whole.clone()),
        }
        Ok(())
    }
}
