//! The quick way to an event: straight from the text, without a document in between.
//!
//! It reads what nearly every event is. Of anything else it says nothing: the general reader then reads it, or says
//! what is wrong with it. So whatever is read here must be what the general reader would have read.

use std::borrow::Cow;

use super::{Event, Limits};
use crate::json::{MAX_SAFE_INTEGER, Reader};
use crate::nostr::Tag;

/// The fields, as far as they have come.
#[derive(Default)]
struct Fields {
    id: Option<super::EventId>,
    pubkey: Option<crate::identity::PublicKey>,
    created_at: Option<u64>,
    kind: Option<u16>,
    tags: Option<Vec<Tag>>,
    content: Option<String>,
    sig: Option<crate::identity::Signature>,
}

/// The event that begins here.
pub(in super::super) fn event(reader: &mut Reader<'_>, limits: &Limits) -> Option<Event> {
    let mut fields = Fields::default();
    reader.open(b'{')?;
    loop {
        let name = reader.quoted()?;
        reader.colon()?;
        fields.read(&name, reader)?;
        if !reader.goes_on(b'}')? {
            break;
        }
    }
    let event = fields.event()?;
    limits.check(&event.tags, &event.content).is_ok().then_some(event)
}

impl Fields {
    fn read(&mut self, name: &str, reader: &mut Reader<'_>) -> Option<()> {
        match name {
            "id" => once(&mut self.id, hex(reader)?),
            "pubkey" => once(&mut self.pubkey, hex(reader)?),
            "created_at" => once(&mut self.created_at, whole(reader)?),
            "kind" => once(&mut self.kind, u16::try_from(whole(reader)?).ok()?),
            "tags" => once(&mut self.tags, tags(reader)?),
            "content" => once(&mut self.content, reader.quoted()?.into_owned()),
            "sig" => once(&mut self.sig, hex(reader)?),
            _ => None,
        }
    }

    fn event(self) -> Option<Event> {
        Some(Event {
            id: self.id?,
            pubkey: self.pubkey?,
            created_at: self.created_at?,
            kind: self.kind?,
            tags: self.tags?,
            content: self.content?,
            sig: self.sig?,
        })
    }
}

/// A field that stands twice is refused by the general reader.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

fn hex<T: std::str::FromStr>(reader: &mut Reader<'_>) -> Option<T> {
    let text = reader.quoted()?;
    // A key may also be read from its npub form, which does not stand in an event.
    (!text.starts_with("npub")).then(|| text.parse().ok()).flatten()
}

fn whole(reader: &mut Reader<'_>) -> Option<u64> {
    let number = reader.whole()?;
    (number <= MAX_SAFE_INTEGER).then_some(number)
}

fn tags(reader: &mut Reader<'_>) -> Option<Vec<Tag>> {
    // The items of one tag: once it is known how many there are, they get as much room as they need.
    let (mut tags, mut items) =
        (Vec::with_capacity(TYPICAL_TAGS), Vec::with_capacity(TYPICAL_TAGS));
    list(reader, |reader| {
        list(reader, |reader| {
            items.push(reader.quoted()?);
            Some(())
        })?;
        tags.push(items.drain(..).map(Cow::into_owned).collect());
        Some(())
    })?;
    Some(tags)
}

/// Few events have more tags, few tags have more items.
const TYPICAL_TAGS: usize = 8;

/// Reads a list, item by item.
fn list<'a>(
    reader: &mut Reader<'a>,
    mut item: impl FnMut(&mut Reader<'a>) -> Option<()>,
) -> Option<()> {
    reader.open(b'[')?;
    if reader.closes(b']') {
        return Some(());
    }
    loop {
        item(reader)?;
        if !reader.goes_on(b']')? {
            return Some(());
        }
    }
}
