//! What somebody asks a relay for (NIP-01).
//!
//! A filter is the conjunction of its conditions; a list inside a condition is a disjunction. A list that is empty lets
//! nothing through. A condition that is not known is refused: leaving it out would answer more than was asked for.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::{Event, EventId, code, event};
use crate::identity::PublicKey;
use crate::json::{Doc, MAX_SAFE_INTEGER};
use crate::{Error, Result};

/// A list in a filter never has more values than this.
pub const MAX_VALUES: usize = 2_000;

/// One filter.
///
/// ```
/// use guild_protocol::nostr::{Filter, kind};
/// let filter = Filter { limit: Some(0), ..Filter::kinds([kind::ANNOUNCEMENT]) }.tag('k', ["5050"]);
/// assert_eq!(filter.to_json(), r##"{"#k":["5050"],"kinds":[31990],"limit":0}"##);
/// assert_eq!(Filter::parse(filter.to_json().as_bytes()).unwrap(), filter);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// These events only.
    pub ids: Option<BTreeSet<EventId>>,
    /// Only by these.
    pub authors: Option<BTreeSet<PublicKey>>,
    /// Only of these kinds.
    pub kinds: Option<BTreeSet<u16>>,
    /// For each letter: only events with a tag of that name whose first value is one of these.
    pub tags: BTreeMap<char, BTreeSet<String>>,
    /// Not older than this, in Unix seconds.
    pub since: Option<u64>,
    /// Not newer than this, in Unix seconds.
    pub until: Option<u64>,
    /// Of those that are stored, at most so many, the newest.
    pub limit: Option<u64>,
}

impl Filter {
    /// Everything of these kinds.
    pub fn kinds(kinds: impl IntoIterator<Item = u16>) -> Filter {
        Filter { kinds: Some(kinds.into_iter().collect()), ..Filter::default() }
    }

    /// The same, and only with one of these values as the first of a tag with this name.
    #[must_use]
    pub fn tag<V: Into<String>>(
        mut self,
        name: char,
        values: impl IntoIterator<Item = V>,
    ) -> Filter {
        self.tags.insert(name, values.into_iter().map(Into::into).collect());
        self
    }

    /// Reads a filter.
    pub fn parse(text: &[u8]) -> Result<Filter> {
        Filter::from_doc(Doc::parse(text)?)
    }

    /// The filter that a part of a larger document holds.
    pub fn from_doc(doc: Doc<'_>) -> Result<Filter> {
        let Doc::Object(members) = doc else { return Err(malformed("a filter is an object")) };
        let mut filter = Filter::default();
        for (key, value) in members {
            filter.take(&key, value).map_err(|e| e.within(&key))?;
        }
        Ok(filter)
    }

    fn take(&mut self, key: &str, value: Doc<'_>) -> Result<()> {
        match key {
            "ids" => self.ids = Some(values(value, |text| text.parse())?),
            "authors" => self.authors = Some(authors(value)?),
            "kinds" => self.kinds = Some(kinds(value)?),
            "since" => self.since = Some(number(&value)?),
            "until" => self.until = Some(number(&value)?),
            "limit" => self.limit = Some(number(&value)?),
            _ => {
                let mut letters = key.strip_prefix('#').unwrap_or_default().chars();
                let (Some(letter @ ('a'..='z' | 'A'..='Z')), None) =
                    (letters.next(), letters.next())
                else {
                    return Err(malformed("this condition is not known"));
                };
                self.tags.insert(letter, values(value, |text| Ok(text.to_owned()))?);
            }
        }
        Ok(())
    }

    /// Whether an event passes, the `limit` aside.
    pub fn matches(&self, event: &Event) -> bool {
        let among =
            |id: &Option<BTreeSet<EventId>>| id.as_ref().is_none_or(|s| s.contains(&event.id));
        among(&self.ids)
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind))
            && self.authors.as_ref().is_none_or(|authors| authors.contains(&event.pubkey))
            && self.since.is_none_or(|since| event.created_at >= since)
            && self.until.is_none_or(|until| event.created_at <= until)
            && self.tags.iter().all(|(letter, wanted)| has_tag(event, *letter, wanted))
    }

    /// Whether no event can pass.
    pub fn is_empty(&self) -> bool {
        self.ids.as_ref().is_some_and(BTreeSet::is_empty)
            || self.authors.as_ref().is_some_and(BTreeSet::is_empty)
            || self.kinds.as_ref().is_some_and(BTreeSet::is_empty)
            || self.tags.values().any(BTreeSet::is_empty)
            || matches!((self.since, self.until), (Some(since), Some(until)) if since > until)
    }

    /// The filter as a part of a larger document.
    pub fn to_doc(&self) -> Doc<'static> {
        let mut members: Vec<(Cow<'static, str>, Doc<'static>)> = Vec::new();
        let text = |text: String| Doc::Text(Cow::Owned(text));
        let count = |number: u64| Doc::Number(number.to_string().into());
        // In canonical order, as `Doc` demands.
        for (letter, values) in &self.tags {
            let values = values.iter().cloned().map(text).collect();
            members.push((format!("#{letter}").into(), Doc::Array(values)));
        }
        if let Some(authors) = &self.authors {
            let authors = authors.iter().map(|key| text(key.hex())).collect();
            members.push(("authors".into(), Doc::Array(authors)));
        }
        if let Some(ids) = &self.ids {
            let ids = ids.iter().map(|id| text(id.hex())).collect();
            members.push(("ids".into(), Doc::Array(ids)));
        }
        if let Some(kinds) = &self.kinds {
            let kinds = kinds.iter().map(|kind| count(u64::from(*kind))).collect();
            members.push(("kinds".into(), Doc::Array(kinds)));
        }
        for (key, value) in [("limit", self.limit), ("since", self.since), ("until", self.until)] {
            members.extend(value.map(|value| (Cow::Borrowed(key), count(value))));
        }
        Doc::Object(members)
    }

    /// The filter as canonical JSON.
    pub fn to_json(&self) -> String {
        event::doc_text(&self.to_doc())
    }
}

fn has_tag(event: &Event, letter: char, wanted: &BTreeSet<String>) -> bool {
    event.tags.iter().any(|tag| match tag.as_slice() {
        [name, value, ..] => {
            let mut letters = name.chars();
            letters.next() == Some(letter) && letters.next().is_none() && wanted.contains(value)
        }
        _ => false,
    })
}

fn malformed(message: impl Into<String>) -> Error {
    Error::new(&code::FILTER, message)
}

fn values<T: Ord>(doc: Doc<'_>, read: impl Fn(&str) -> Result<T>) -> Result<BTreeSet<T>> {
    let item = |item| match item {
        Doc::Text(text) => read(&text),
        _ => Err(malformed("expected texts")),
    };
    list(doc)?.into_iter().map(item).collect()
}

fn list(doc: Doc<'_>) -> Result<Vec<Doc<'_>>> {
    match doc {
        Doc::Array(items) if items.len() <= MAX_VALUES => Ok(items),
        Doc::Array(items) => {
            let message = format!("{} values are more than the limit of {MAX_VALUES}", items.len());
            Err(malformed(message))
        }
        _ => Err(malformed("expected a list")),
    }
}

/// A key that is none has signed nothing, so it may be left out; but it must be written as one.
fn authors(doc: Doc<'_>) -> Result<BTreeSet<PublicKey>> {
    let written = values(doc, |text| {
        text.parse::<EventId>().map_err(|_| malformed("a key is 64 lower-case hex digits"))
    })?;
    Ok(written.iter().filter_map(|key| key.hex().parse().ok()).collect())
}

/// A number that no event can have as its kind lets nothing through.
fn kinds(doc: Doc<'_>) -> Result<BTreeSet<u16>> {
    let written: Vec<u64> = list(doc)?.iter().map(number).collect::<Result<_>>()?;
    Ok(written.into_iter().filter_map(|kind| u16::try_from(kind).ok()).collect())
}

fn number(doc: &Doc<'_>) -> Result<u64> {
    let number = match doc {
        Doc::Number(written) => written.parse().ok().filter(|n| *n <= MAX_SAFE_INTEGER),
        _ => None,
    };
    number.ok_or_else(|| malformed("expected a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Signer;
    use crate::identity::SecretKey;
    use crate::nostr::{Draft, tag};

    fn event() -> (SecretKey, Event) {
        let key: SecretKey = format!("{:064x}", 7).parse().unwrap();
        let tags =
            vec![tag::tag(["k", "5050", "5051"]), tag::tag(["k", "5002"]), tag::tag(["kk", "1"])];
        let draft = Draft { kind: 31990, created_at: 100, tags, content: String::new() };
        let event = draft.sign(&key).unwrap();
        (key, event)
    }

    #[test]
    fn every_condition_counts() {
        let (key, event) = event();
        let yes = [
            "{}".to_owned(),
            format!(r#"{{"ids":["{}"],"limit":0}}"#, event.id),
            format!(r#"{{"authors":["{}"],"kinds":[1,31990]}}"#, key.public_key().hex()),
            r##"{"since":100,"until":100,"#k":["5002","x"]}"##.to_owned(),
        ];
        for text in yes {
            assert!(Filter::parse(text.as_bytes()).unwrap().matches(&event), "{text}");
        }
        let no = [
            r#"{"ids":[]}"#,
            r#"{"kinds":[1,99999]}"#,
            r#"{"since":101}"#,
            r#"{"until":99}"#,
            r##"{"#k":["5051"]}"##,
            r##"{"#k":["5050"],"#t":["x"]}"##,
            r#"{"authors":["ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"]}"#,
        ];
        for text in no {
            assert!(!Filter::parse(text.as_bytes()).unwrap().matches(&event), "{text}");
        }
    }

    #[test]
    fn what_no_event_passes_is_seen() {
        for text in
            [r#"{"ids":[]}"#, r#"{"kinds":[70000]}"#, r#"{"since":2,"until":1}"#, r##"{"#e":[]}"##]
        {
            assert!(Filter::parse(text.as_bytes()).unwrap().is_empty(), "{text}");
        }
        assert!(!Filter::default().is_empty());
    }

    #[test]
    fn rubbish_is_refused_where_it_is() {
        let bad = [
            ("[]", None),
            (r#"{"ids":["xx"]}"#, Some("ids")),
            (r#"{"authors":[1]}"#, Some("authors")),
            (r#"{"kinds":["1"]}"#, Some("kinds")),
            (r#"{"limit":-1}"#, Some("limit")),
            (r#"{"since":1.5}"#, Some("since")),
            (r#"{"search":"x"}"#, Some("search")),
            (r##"{"#kk":["x"]}"##, Some("#kk")),
            (r##"{"#1":["x"]}"##, Some("#1")),
        ];
        for (text, place) in bad {
            assert_eq!(Filter::parse(text.as_bytes()).unwrap_err().place(), place, "{text}");
        }
    }
}
