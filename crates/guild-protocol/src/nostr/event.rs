//! One signed event (NIP-01).
//!
//! Reading, the id and the signature are three steps, because a busy reader wants them apart: read within limits,
//! drop what is known by the *computed* id, and only then pay for the signature. The claimed id proves nothing.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::{Tag, code, tag};
use crate::env::Signer;
use crate::hash::{Hash, from_hex_exact, shorten, to_hex, write_hex};
use crate::identity::{PublicKey, Signature};
use crate::json::{self, Doc, MAX_SAFE_INTEGER};
use crate::{Error, Result};

pub(super) mod quick;
mod text;

pub use text::EventText;

/// What a reader accepts at most. The defaults are also what a writer keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the event's JSON text.
    pub max_bytes: usize,
    /// Bytes of its content.
    pub max_content_bytes: usize,
    /// Tags of an event.
    pub max_tags: usize,
    /// Items of a tag.
    pub max_tag_items: usize,
    /// Bytes of an item of a tag.
    pub max_tag_item_bytes: usize,
}

impl Limits {
    /// What `Limits::default()` gives. Whatever carries events follows it: the frames of relays, the bodies that the
    /// gateway reads, and the inputs of orders, which become items of tags.
    pub const DEFAULT: Limits = Limits {
        max_bytes: 512 * 1024,
        max_content_bytes: 256 * 1024,
        max_tags: 2_000,
        max_tag_items: 256,
        max_tag_item_bytes: 256 * 1024,
    };

    /// Checks the parts of an event that have no fixed size.
    pub fn check(&self, tags: &[Tag], content: &str) -> Result<()> {
        self.check_content(content)?;
        at_most(&code::TAG_COUNT, tags.len(), self.max_tags, "tags").map_err(|e| e.at("tags"))?;
        for (i, tag) in tags.iter().enumerate() {
            self.check_tag(tag).map_err(|e| e.within(&format!("tags[{i}]")))?;
        }
        Ok(())
    }

    fn check_content(&self, content: &str) -> Result<()> {
        at_most(&code::CONTENT_SIZE, content.len(), self.max_content_bytes, "bytes")
            .map_err(|e| e.at("content"))
    }

    fn check_tag(&self, tag: &[String]) -> Result<()> {
        at_most(&code::TAG_COUNT, tag.len(), self.max_tag_items, "items")?;
        for (i, item) in tag.iter().enumerate() {
            at_most(&code::TAG_SIZE, item.len(), self.max_tag_item_bytes, "bytes")
                .map_err(|e| e.at(format!("[{i}]")))?;
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

fn at_most(code: &'static crate::error::Code, is: usize, most: usize, of: &str) -> Result<()> {
    if is <= most {
        return Ok(());
    }
    Err(Error::new(code, format!("{is} {of} are more than the limit of {most}")))
}

/// Names an event: the SHA-256 of what was signed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId([u8; 32]);

impl EventId {
    /// An id computed elsewhere.
    pub const fn from_bytes(bytes: [u8; 32]) -> EventId {
        EventId(bytes)
    }

    /// The 32 bytes: the digest that is signed.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex digits.
    pub fn hex(&self) -> String {
        to_hex(&self.0)
    }
}

impl FromStr for EventId {
    type Err = Error;
    fn from_str(text: &str) -> Result<EventId> {
        let bytes = from_hex_exact(text);
        bytes.map(EventId).ok_or_else(|| {
            let message = format!("{:?} is not 64 lower-case hex digits", shorten(text));
            Error::new(&code::BAD_ID, message)
        })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl serde::Serialize for EventId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for EventId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<EventId, D::Error> {
        <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// An event as it was read or made. Only [`Event::verify`] says whether it is what its author signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The claimed id.
    pub id: EventId,
    /// The claimed author.
    pub pubkey: PublicKey,
    /// Unix seconds, as the author says.
    pub created_at: u64,
    /// See [`kind`](super::kind).
    pub kind: u16,
    /// In the author's order.
    pub tags: Vec<Tag>,
    /// Text; its form depends on the kind.
    pub content: String,
    /// The author's signature over the id.
    pub sig: Signature,
}

/// Deeper than an event ever is, so that fields we do not know may hold something small.
const MAX_DEPTH: usize = 8;

impl Event {
    /// Reads the JSON text of an event within limits. Says nothing about its id or signature.
    /// Fields that NIP-01 does not know are not signed, and are dropped.
    pub fn parse(text: &[u8], limits: &Limits) -> Result<Event> {
        at_most(&code::EVENT_SIZE, text.len(), limits.max_bytes, "bytes")?;
        let json = json::Limits { max_bytes: limits.max_bytes, max_depth: MAX_DEPTH };
        Event::from_doc(Doc::parse_within(text, json)?, limits)
    }

    /// The event that a part of a larger document holds, as in a relay's message.
    pub fn from_doc(doc: Doc<'_>, limits: &Limits) -> Result<Event> {
        let Doc::Object(members) = doc else {
            return Err(shape("an event is an object"));
        };
        let mut fields = Fields(members);
        let event = Event {
            id: fields.parsed("id")?,
            pubkey: fields.parsed("pubkey")?,
            created_at: fields.number("created_at", MAX_SAFE_INTEGER)?,
            kind: u16::try_from(fields.number("kind", u64::from(u16::MAX))?).unwrap_or(u16::MAX),
            tags: fields.tags(limits)?,
            content: fields.text("content")?,
            sig: fields.parsed("sig")?,
        };
        limits.check_content(&event.content)?;
        Ok(event)
    }

    /// Reads an event and checks its id and its signature.
    ///
    /// ```
    /// use guild_protocol::{env::Signer, identity::SecretKey, nostr::{Draft, Event, Limits}};
    /// let key: SecretKey = format!("{:064x}", 1).parse().unwrap();
    /// let draft = Draft { kind: 1, created_at: 1_700_000_000, tags: vec![], content: "hello".into() };
    /// let text = draft.sign(&key).unwrap().to_json();
    /// assert_eq!(Event::parse_verified(text.as_bytes(), &Limits::DEFAULT).unwrap().pubkey, key.public_key());
    /// let forged = text.replace("hello", "hallo");
    /// let refused = Event::parse_verified(forged.as_bytes(), &Limits::DEFAULT).unwrap_err();
    /// assert_eq!(refused.code().name, "nostr.event_id_wrong");
    /// ```
    pub fn parse_verified(text: &[u8], limits: &Limits) -> Result<Event> {
        let event = Event::parse(text, limits)?;
        event.verify()?;
        Ok(event)
    }

    /// The id of what the event says, whatever it claims.
    pub fn compute_id(&self) -> EventId {
        compute_id(&self.pubkey, self.created_at, self.kind, &self.tags, &self.content)
    }

    /// Whether the claimed id is the computed one.
    pub fn verify_id(&self) -> Result<()> {
        self.claims(self.compute_id())
    }

    fn claims(&self, computed: EventId) -> Result<()> {
        if computed == self.id {
            return Ok(());
        }
        let message = format!("the content has the id {computed}, the event claims {}", self.id);
        Err(Error::new(&code::WRONG_ID, message).at("id"))
    }

    /// Whether the author signed the claimed id. Means something only after [`Event::verify_id`].
    pub fn verify_signature(&self) -> Result<()> {
        self.pubkey.verify(self.id.as_bytes(), &self.sig).map_err(|e| e.at("sig"))
    }

    /// Whether the author signed what the event says.
    pub fn verify(&self) -> Result<()> {
        self.verify_id()?;
        self.verify_signature()
    }

    /// The first value of the first tag with this name.
    pub fn tag(&self, name: &str) -> Option<&str> {
        tag::value(&self.tags, name)
    }

    /// The event as a part of a larger document, as in a message to a relay.
    pub fn to_doc(&self) -> Doc<'_> {
        let member = |key: &'static str, doc| (Cow::Borrowed(key), doc);
        // In canonical order, as `Doc` demands.
        Doc::Object(vec![
            member("content", text_doc(&self.content)),
            member("created_at", number_doc(self.created_at)),
            member("id", Doc::Text(self.id.hex().into())),
            member("kind", number_doc(u64::from(self.kind))),
            member("pubkey", Doc::Text(self.pubkey.hex().into())),
            member("sig", Doc::Text(self.sig.hex().into())),
            member("tags", tags_doc(&self.tags)),
        ])
    }

    /// The event as canonical JSON: equal events have equal texts.
    pub fn to_json(&self) -> String {
        self.text().into_json()
    }

    /// The event as canonical JSON, for whoever needs its parts too.
    pub fn text(&self) -> EventText {
        EventText::of(self)
    }

    /// Its text, if the claimed id is the computed one: both need every part written.
    pub fn verified_text(&self) -> Result<EventText> {
        let text = self.text();
        self.claims(text.compute_id()).map(|()| text)
    }
}

/// About as many bytes as an event has beside its content.
const TYPICAL_BYTES: usize = 768;

fn write_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(number.to_string().as_bytes());
}

fn write_tags(tags: &[Tag], out: &mut Vec<u8>) {
    out.push(b'[');
    for (i, tag) in tags.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.push(b'[');
        for (j, item) in tag.iter().enumerate() {
            if j > 0 {
                out.push(b',');
            }
            json::write_text(item, out);
        }
        out.push(b']');
    }
    out.push(b']');
}

/// An event before it has an author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// See [`kind`](super::kind).
    pub kind: u16,
    /// Unix seconds.
    pub created_at: u64,
    /// In the order to send.
    pub tags: Vec<Tag>,
    /// Text; its form depends on the kind.
    pub content: String,
}

impl Draft {
    /// The signed event. A draft beyond the default limits is refused: others would not take it either.
    pub fn sign(self, signer: &dyn Signer) -> Result<Event> {
        Limits::DEFAULT.check(&self.tags, &self.content)?;
        if self.created_at > MAX_SAFE_INTEGER {
            return Err(shape("the time is beyond 2^53−1 seconds").at("created_at"));
        }
        let Draft { kind, created_at, tags, content } = self;
        let pubkey = signer.public_key();
        let id = compute_id(&pubkey, created_at, kind, &tags, &content);
        let sig = signer.sign_digest(id.as_bytes())?;
        let event = Event { id, pubkey, created_at, kind, tags, content, sig };
        at_most(&code::EVENT_SIZE, event.to_json().len(), Limits::DEFAULT.max_bytes, "bytes")?;
        Ok(event)
    }
}

/// NIP-01: SHA-256 over `[0,pubkey,created_at,kind,tags,content]` without white space. Its escapes are those of
/// RFC 8785, and all implementations in use agree on them, also for the control characters the text leaves open.
fn compute_id(
    pubkey: &PublicKey,
    created_at: u64,
    kind: u16,
    tags: &[Tag],
    content: &str,
) -> EventId {
    let mut signed = Vec::with_capacity(content.len().saturating_add(TYPICAL_BYTES));
    signed.extend_from_slice(b"[0,\"");
    write_hex(pubkey.as_bytes(), &mut signed);
    signed.extend_from_slice(b"\",");
    write_number(created_at, &mut signed);
    signed.push(b',');
    write_number(u64::from(kind), &mut signed);
    signed.push(b',');
    write_tags(tags, &mut signed);
    signed.push(b',');
    json::write_text(content, &mut signed);
    signed.push(b']');
    EventId(*Hash::of(&signed).as_bytes())
}

fn number_doc(number: u64) -> Doc<'static> {
    Doc::Number(number.to_string().into())
}

fn text_doc(text: &str) -> Doc<'_> {
    Doc::Text(Cow::Borrowed(text))
}

/// Tags as a document.
pub(super) fn tags_doc(tags: &[Tag]) -> Doc<'_> {
    Doc::Array(tags.iter().map(|tag| tag_doc(tag)).collect())
}

fn tag_doc(tag: &[String]) -> Doc<'_> {
    Doc::Array(tag.iter().map(|item| text_doc(item)).collect())
}

/// The canonical text of a document.
pub(super) fn doc_text(doc: &Doc<'_>) -> String {
    // Made of texts only, so it is UTF-8 and nothing is lost.
    String::from_utf8_lossy(&doc.to_canonical()).into_owned()
}

/// The tags that a document holds: a list of lists of texts.
pub(super) fn tags_of(doc: Doc<'_>, limits: &Limits) -> Result<Vec<Tag>> {
    let Doc::Array(tags) = doc else {
        return Err(shape("tags are a list"));
    };
    at_most(&code::TAG_COUNT, tags.len(), limits.max_tags, "tags")?;
    let read = |(i, tag)| {
        let tag = tag_of(tag).and_then(|tag| limits.check_tag(&tag).map(|()| tag));
        tag.map_err(|e: Error| e.within(&format!("[{i}]")))
    };
    tags.into_iter().enumerate().map(read).collect()
}

fn tag_of(doc: Doc<'_>) -> Result<Tag> {
    let Doc::Array(items) = doc else {
        return Err(shape("a tag is a list"));
    };
    let text = |(i, item)| match item {
        Doc::Text(text) => Ok(text.into_owned()),
        _ => Err(shape("an item of a tag is a text").at(format!("[{i}]"))),
    };
    items.into_iter().enumerate().map(text).collect()
}

fn shape(message: impl Into<String>) -> Error {
    Error::new(&code::SHAPE, message)
}

/// The members of the object that should be an event.
struct Fields<'a>(Vec<(Cow<'a, str>, Doc<'a>)>);

impl<'a> Fields<'a> {
    fn take(&mut self, name: &str) -> Result<Doc<'a>> {
        let found = self.0.iter_mut().find(|(key, _)| key == name);
        match found {
            Some((_, doc)) => Ok(std::mem::replace(doc, Doc::Null)),
            None => Err(shape("the field is missing").at(name)),
        }
    }

    fn text(&mut self, name: &str) -> Result<String> {
        match self.take(name)? {
            Doc::Text(text) => Ok(text.into_owned()),
            _ => Err(shape("expected a text").at(name)),
        }
    }

    fn parsed<T: FromStr<Err = Error>>(&mut self, name: &str) -> Result<T> {
        let Doc::Text(text) = self.take(name)? else {
            return Err(shape("expected a text").at(name));
        };
        // Also refuses the npub form, which the key's own reader takes.
        if text.starts_with("npub") {
            return Err(shape("a key is written in hex digits here").at(name));
        }
        text.parse().map_err(|e: Error| e.at(name))
    }

    fn number(&mut self, name: &str, most: u64) -> Result<u64> {
        let number = match self.take(name)? {
            Doc::Number(written) => written.parse().ok(),
            _ => None,
        };
        number
            .filter(|number| *number <= most)
            .ok_or_else(|| shape(format!("expected a whole number of at most {most}")).at(name))
    }

    fn tags(&mut self, limits: &Limits) -> Result<Vec<Tag>> {
        tags_of(self.take("tags")?, limits).map_err(|e| e.within("tags"))
    }
}
