//! A request for work.

use super::{
    INSIDE, Input, OUTSIDE, Placed, bad_tag, check_relay, code, key_of, msat_of, msat_text, placed,
    push_other, seal, wrong_kind,
};
use crate::amount::Msat;
use crate::env::Random;
use crate::hash::{Hash, shorten};
use crate::identity::{PublicKey, SecretKey};
use crate::nostr::{Draft, Event, Tag, kind, tag};
use crate::{Error, Result};

/// A named setting of a job: `["param", name, value, …]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Mostly one; none for a switch.
    pub values: Vec<String>,
}

impl Param {
    /// A setting with one value.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Param {
        Param { name: name.into(), values: vec![value.into()] }
    }
}

const SCHEMA_ID: &str = "schema_id";
/// An older name for `schema_id`. Read, never sent.
const JOB_TYPE: &str = "job_type";
const JOB_HASH: &str = "job_hash";

/// A request for work (kinds 5000 to 5999).
///
/// ```
/// use guild_protocol::{identity::SecretKey, nostr::{kind, job::{Input, Request}}};
/// let buyer: SecretKey = format!("{:064x}", 1).parse().unwrap();
/// let mut request = Request::new(kind::DEFAULT_REQUEST);
/// request.inputs.push(Input::text("{\"texts\":[\"hello\"]}"));
/// request.schema_id = Some("oa.embedding.v1".into());
/// let event = request.draft(1_700_000_000).unwrap().sign(&buyer).unwrap();
/// assert_eq!(event.tags[1], ["param", "schema_id", "oa.embedding.v1"]);
/// assert_eq!(Request::parse(&event, None).unwrap(), request);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// 5000 to 5999. The schema, not the kind, says what is asked.
    pub kind: u16,
    /// The inputs, in order.
    pub inputs: Vec<Input>,
    /// The MIME type wanted of the result.
    pub output: Option<String>,
    /// Names the job's schema, as `oa.sandbox_run.v1`.
    pub schema_id: Option<String>,
    /// Binds the job's input. Whoever works on it recomputes it.
    pub job_hash: Option<Hash>,
    /// All further settings, in order.
    pub params: Vec<Param>,
    /// The most that is paid.
    pub bid: Option<Msat>,
    /// Where the answer should be published.
    pub relays: Vec<String>,
    /// Whom it addresses. Others may still answer, and are not believed.
    pub providers: Vec<PublicKey>,
    /// Topics.
    pub topics: Vec<String>,
    /// Whether inputs and settings travel encrypted; the answer must then too.
    pub encrypted: bool,
    /// Tags that have no meaning here.
    pub other_tags: Vec<Tag>,
}

impl Request {
    /// An empty request of this kind.
    pub fn new(kind: u16) -> Request {
        Request {
            kind,
            inputs: Vec::new(),
            output: None,
            schema_id: None,
            job_hash: None,
            params: Vec::new(),
            bid: None,
            relays: Vec::new(),
            providers: Vec::new(),
            topics: Vec::new(),
            encrypted: false,
            other_tags: Vec::new(),
        }
    }

    /// The first value of a setting.
    pub fn param(&self, name: &str) -> Option<&str> {
        let param = self.params.iter().find(|param| param.name == name)?;
        param.values.first().map(String::as_str)
    }

    /// Reads a request. An encrypted one needs the key of its author or of its recipient.
    /// The content of a request in the open has no meaning and is not read.
    pub fn parse(event: &Event, key: Option<&SecretKey>) -> Result<Request> {
        if !kind::is_request(event.kind) {
            return Err(wrong_kind(event.kind, "a request"));
        }
        let inside = match seal::open(event, key)? {
            Some(plaintext) => Some(seal::read_tags(&plaintext)?),
            None => None,
        };
        let mut request = Request::new(event.kind);
        request.encrypted = inside.is_some();
        let mut alias = None;
        for tag in placed(OUTSIDE, &event.tags)
            .chain(placed(INSIDE, inside.as_deref().unwrap_or_default()))
        {
            request.take(tag, &mut alias).map_err(|e| e.within(&tag.place()))?;
        }
        request.schema_id = request.schema_id.or(alias);
        Ok(request)
    }

    fn take(&mut self, tag: Placed<'_>, alias: &mut Option<String>) -> Result<()> {
        match (tag.name, tag.rest) {
            ("i", rest) => self.inputs.push(Input::of(rest)?),
            ("output", [first, ..]) if self.output.is_none() => self.output = Some(mime(first)),
            ("param", rest) => self.take_param(rest, alias)?,
            ("bid", rest) => set_once(&mut self.bid, msat_of(rest)?, "bid")?,
            ("relays", rest) => self.relays.extend_from_slice(rest),
            // A `p` inside a ciphertext could only contradict the one that made the ciphertext.
            ("p", rest) if !tag.is_inside() => self.providers.push(key_of(rest)?),
            ("t", [first, ..]) => self.topics.push(first.clone()),
            (seal::ENCRYPTED, _) => {}
            _ => self.other_tags.push(tag.whole.clone()),
        }
        Ok(())
    }

    fn take_param(&mut self, rest: &[String], alias: &mut Option<String>) -> Result<()> {
        let Some((name, values)) = rest.split_first() else {
            return Err(bad_tag("a parameter has no name"));
        };
        let value = || values.first().filter(|v| !v.is_empty()).ok_or_else(|| bad_tag("no value"));
        match name.as_str() {
            SCHEMA_ID => set_once(&mut self.schema_id, value()?.clone(), SCHEMA_ID),
            JOB_TYPE => set_once(alias, value()?.clone(), JOB_TYPE),
            JOB_HASH => set_once(&mut self.job_hash, Hash::parse_liberal(value()?)?, JOB_HASH),
            _ => {
                self.params.push(Param { name: name.clone(), values: values.to_vec() });
                Ok(())
            }
        }
    }

    /// The request in the open.
    pub fn draft(&self, created_at: u64) -> Result<Draft> {
        seal::require_open(self.encrypted)?;
        let mut tags = self.private_tags()?;
        tags.append(&mut self.public_tags()?);
        Ok(Draft { kind: self.kind, created_at, tags, content: String::new() })
    }

    /// The request with its inputs and settings encrypted to its one provider. Who asks whom, the kind, the bid,
    /// the output, relays and topics stay readable.
    pub fn sealed_draft(
        &self,
        created_at: u64,
        own: &SecretKey,
        random: &dyn Random,
    ) -> Result<Draft> {
        let [provider] = self.providers.as_slice() else {
            return Err(seal::no_recipient());
        };
        let content = seal::seal_tags(own, provider, &self.private_tags()?, random)?;
        let mut tags = self.public_tags()?;
        tags.push(tag::tag([seal::ENCRYPTED]));
        Ok(Draft { kind: self.kind, created_at, tags, content })
    }

    /// Inputs, settings, and whatever is not understood.
    fn private_tags(&self) -> Result<Vec<Tag>> {
        let mut tags = Vec::new();
        for (i, input) in self.inputs.iter().enumerate() {
            tags.push(input.to_tag().map_err(|e| e.within(&format!("inputs[{i}]")))?);
        }
        if let Some(schema_id) = &self.schema_id {
            if schema_id.is_empty() {
                return Err(not_allowed("a schema id is not empty").at("schema_id"));
            }
            tags.push(tag::tag(["param", SCHEMA_ID, schema_id]));
        }
        if let Some(job_hash) = &self.job_hash {
            tags.push(tag::tag(["param", JOB_HASH, &job_hash.to_string()]));
        }
        for (i, param) in self.params.iter().enumerate() {
            if [SCHEMA_ID, JOB_TYPE, JOB_HASH, ""].contains(&param.name.as_str()) {
                let message = format!("a further setting may not be named {:?}", param.name);
                return Err(not_allowed(message).at(format!("params[{i}]")));
            }
            let head = ["param".to_owned(), param.name.clone()];
            tags.push(head.into_iter().chain(param.values.iter().cloned()).collect());
        }
        // A tag that is not understood may be private: what was read inside must not be sent outside.
        push_other(&mut tags, &self.other_tags)?;
        Ok(tags)
    }

    fn public_tags(&self) -> Result<Vec<Tag>> {
        if !kind::is_request(self.kind) {
            return Err(wrong_kind(self.kind, "a request"));
        }
        let mut tags = Vec::new();
        if let Some(output) = &self.output {
            if !output.contains('/') {
                let message = format!("{:?} is not a MIME type", shorten(output));
                return Err(not_allowed(message).at("output"));
            }
            tags.push(tag::tag(["output", output]));
        }
        if let Some(bid) = self.bid {
            tags.push(tag::tag(["bid", &msat_text(bid).map_err(|e| e.at("bid"))?]));
        }
        if !self.relays.is_empty() {
            self.relays.iter().try_for_each(|url| check_relay(url)).map_err(|e| e.at("relays"))?;
            let name = std::iter::once("relays".to_owned());
            tags.push(name.chain(self.relays.iter().cloned()).collect());
        }
        tags.extend(self.providers.iter().map(|key| tag::tag(["p", &key.hex()])));
        tags.extend(self.topics.iter().map(|topic| tag::tag(["t", topic])));
        Ok(tags)
    }
}

fn not_allowed(message: impl Into<String>) -> Error {
    Error::new(&code::BAD_VALUE, message)
}

/// The same value twice says nothing new; two values would let two readers do different work.
fn set_once<T: PartialEq>(slot: &mut Option<T>, value: T, name: &str) -> Result<()> {
    if slot.as_ref().is_some_and(|old| *old != value) {
        return Err(bad_tag(format!("{name} stands twice, with two values")));
    }
    *slot = Some(value);
    Ok(())
}

/// The documents write `json` and `text` where NIP-90 wants a MIME type.
fn mime(written: &str) -> String {
    match written {
        "json" => "application/json",
        "text" => "text/plain",
        other => other,
    }
    .to_owned()
}
