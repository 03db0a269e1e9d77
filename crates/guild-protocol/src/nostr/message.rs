//! What clients and relays say to each other: one JSON array per frame (NIP-01, NIP-42, NIP-77).
//!
//! ```
//! use guild_protocol::nostr::{Filter, Limits, message::ClientMessage};
//! let ask = ClientMessage::Req { sub: "cards".into(), filters: vec![Filter::kinds([31990])] };
//! assert_eq!(ask.to_json(), r#"["REQ","cards",{"kinds":[31990]}]"#);
//! assert_eq!(ClientMessage::parse(ask.to_json().as_bytes(), &Limits::DEFAULT).unwrap(), ask);
//! ```

use std::borrow::Cow;

use super::{Event, EventId, Filter, Limits, code, event};
use crate::json::{self, Doc, Reader};
use crate::{Error, Result};

/// A subscription's name is never longer than this.
pub const MAX_SUB_BYTES: usize = 64;
/// One REQ never has more filters than this.
pub const MAX_FILTERS: usize = 64;
/// An event is the deepest thing in a message, and one level below its top.
const MAX_DEPTH: usize = 9;
/// What a message may be longer than its event.
const ROOM_BYTES: usize = 1_024;

/// From a client to a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage {
    /// Publishes an event. Neither id nor signature are checked yet.
    Event(Box<Event>),
    /// Asks for what is stored, and from then on for what comes in.
    Req {
        /// The client's name for it.
        sub: String,
        /// What passes any of them.
        filters: Vec<Filter>,
    },
    /// Asks how many there are.
    Count {
        /// The client's name for it.
        sub: String,
        /// What passes any of them.
        filters: Vec<Filter>,
    },
    /// Ends a subscription.
    Close(String),
    /// Proves a key.
    Auth(Box<Event>),
    /// Begins a reconciliation.
    NegOpen {
        /// The client's name for it.
        sub: String,
        /// Of which events.
        filter: Filter,
        /// The first negentropy message, in hex.
        message: String,
    },
    /// Goes on with it.
    NegMsg {
        /// The client's name for it.
        sub: String,
        /// The negentropy message, in hex.
        message: String,
    },
    /// Ends it.
    NegClose(String),
}

/// From a relay to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayMessage {
    /// An event that passes. Neither id nor signature are checked yet.
    Event {
        /// Of which subscription.
        sub: String,
        /// The event.
        event: Box<Event>,
    },
    /// What became of a published event.
    Ok {
        /// Which.
        id: EventId,
        /// Whether it has it now.
        accepted: bool,
        /// `prefix: words`.
        message: String,
    },
    /// A published event was refused without being named: some relays do not read what is too long for them.
    Refused(String),
    /// All that was stored has been sent.
    Eose(String),
    /// The relay ended a subscription.
    Closed {
        /// Which.
        sub: String,
        /// `prefix: words`.
        message: String,
    },
    /// For people.
    Notice(String),
    /// What to sign to prove a key.
    Auth(String),
    /// How many there are.
    Count {
        /// Of which question.
        sub: String,
        /// So many.
        count: u64,
    },
    /// Goes on with a reconciliation.
    NegMsg {
        /// Of which.
        sub: String,
        /// The negentropy message, in hex.
        message: String,
    },
    /// Ends it.
    NegErr {
        /// Of which.
        sub: String,
        /// `prefix: words`.
        message: String,
    },
}

impl ClientMessage {
    /// Reads a frame, within the limits of its event.
    pub fn parse(text: &[u8], limits: &Limits) -> Result<ClientMessage> {
        if let Some((_, event)) = quick(text, limits, false) {
            return Ok(ClientMessage::Event(event));
        }
        ClientMessage::parse_any(text, limits)
    }

    fn parse_any(text: &[u8], limits: &Limits) -> Result<ClientMessage> {
        let (verb, mut parts) = Parts::read(text, limits)?;
        let message = match verb.as_str() {
            "EVENT" => ClientMessage::Event(parts.event(limits)?),
            "REQ" => ClientMessage::Req { sub: parts.sub()?, filters: parts.filters()? },
            "COUNT" => ClientMessage::Count { sub: parts.sub()?, filters: parts.filters()? },
            "CLOSE" => ClientMessage::Close(parts.sub()?),
            "AUTH" => ClientMessage::Auth(parts.event(limits)?),
            "NEG-OPEN" => ClientMessage::NegOpen {
                sub: parts.sub()?,
                filter: Filter::from_doc(parts.next("filter")?)?,
                message: parts.text("message")?,
            },
            "NEG-MSG" => {
                ClientMessage::NegMsg { sub: parts.sub()?, message: parts.text("message")? }
            }
            "NEG-CLOSE" => ClientMessage::NegClose(parts.sub()?),
            other => return Err(unknown(other)),
        };
        Ok(message)
    }

    /// The frame.
    pub fn to_json(&self) -> String {
        frame(match self {
            ClientMessage::Event(event) => vec![text("EVENT"), event.to_doc()],
            ClientMessage::Req { sub, filters } => with_filters("REQ", sub, filters),
            ClientMessage::Count { sub, filters } => with_filters("COUNT", sub, filters),
            ClientMessage::Close(sub) => vec![text("CLOSE"), text(sub)],
            ClientMessage::Auth(event) => vec![text("AUTH"), event.to_doc()],
            ClientMessage::NegOpen { sub, filter, message } => {
                vec![text("NEG-OPEN"), text(sub), filter.to_doc(), text(message)]
            }
            ClientMessage::NegMsg { sub, message } => {
                vec![text("NEG-MSG"), text(sub), text(message)]
            }
            ClientMessage::NegClose(sub) => vec![text("NEG-CLOSE"), text(sub)],
        })
    }
}

impl RelayMessage {
    /// Reads a frame, within the limits of its event.
    pub fn parse(frame: &[u8], limits: &Limits) -> Result<RelayMessage> {
        if let Some((sub, event)) = quick(frame, limits, true) {
            return Ok(RelayMessage::Event { sub, event });
        }
        RelayMessage::parse_any(frame, limits)
    }

    fn parse_any(frame: &[u8], limits: &Limits) -> Result<RelayMessage> {
        let (verb, mut parts) = Parts::read(frame, limits)?;
        let message = match verb.as_str() {
            "EVENT" => RelayMessage::Event { sub: parts.sub()?, event: parts.event(limits)? },
            "OK" => {
                let (id, accepted) =
                    (parts.text("id")?, parts.next("accepted")? == Doc::Bool(true));
                let message = parts.words()?;
                match id.is_empty() && !accepted {
                    true => RelayMessage::Refused(message),
                    false => RelayMessage::Ok { id: id.parse()?, accepted, message },
                }
            }
            "EOSE" => RelayMessage::Eose(parts.sub()?),
            "CLOSED" => RelayMessage::Closed { sub: parts.sub()?, message: parts.words()? },
            "NOTICE" => RelayMessage::Notice(parts.words()?),
            "AUTH" => RelayMessage::Auth(parts.text("challenge")?),
            "COUNT" => RelayMessage::Count { sub: parts.sub()?, count: parts.count()? },
            "NEG-MSG" => {
                RelayMessage::NegMsg { sub: parts.sub()?, message: parts.text("message")? }
            }
            "NEG-ERR" => RelayMessage::NegErr { sub: parts.sub()?, message: parts.words()? },
            other => return Err(unknown(other)),
        };
        Ok(message)
    }

    /// The frame.
    pub fn to_json(&self) -> String {
        frame(match self {
            RelayMessage::Event { sub, event } => vec![text("EVENT"), text(sub), event.to_doc()],
            RelayMessage::Ok { id, accepted, message } => {
                let id = Doc::Text(id.hex().into());
                vec![text("OK"), id, Doc::Bool(*accepted), text(message)]
            }
            RelayMessage::Refused(message) => {
                vec![text("OK"), text(""), Doc::Bool(false), text(message)]
            }
            RelayMessage::Eose(sub) => vec![text("EOSE"), text(sub)],
            RelayMessage::Closed { sub, message } => vec![text("CLOSED"), text(sub), text(message)],
            RelayMessage::Notice(message) => vec![text("NOTICE"), text(message)],
            RelayMessage::Auth(challenge) => vec![text("AUTH"), text(challenge)],
            RelayMessage::Count { sub, count } => {
                let count = Doc::Number(count.to_string().into());
                let answer = Doc::Object(vec![("count".into(), count)]);
                vec![text("COUNT"), text(sub), answer]
            }
            RelayMessage::NegMsg { sub, message } => {
                vec![text("NEG-MSG"), text(sub), text(message)]
            }
            RelayMessage::NegErr { sub, message } => {
                vec![text("NEG-ERR"), text(sub), text(message)]
            }
        })
    }
}

/// The frame that carries an event whose JSON text is already there, as it is stored.
pub fn event_frame(sub: &str, event_json: &str) -> String {
    let sub = event::doc_text(&text(sub));
    format!(r#"["EVENT",{sub},{event_json}]"#)
}

fn text(text: &str) -> Doc<'_> {
    Doc::Text(Cow::Borrowed(text))
}

fn frame(parts: Vec<Doc<'_>>) -> String {
    event::doc_text(&Doc::Array(parts))
}

fn with_filters<'a>(verb: &'a str, sub: &'a str, filters: &[Filter]) -> Vec<Doc<'a>> {
    [text(verb), text(sub)]
        .into_iter()
        .chain(filters.iter().map(|filter| filter.to_doc()))
        .collect()
}

fn malformed(message: impl Into<String>) -> Error {
    Error::new(&code::MESSAGE, message)
}

fn unknown(verb: &str) -> Error {
    malformed(format!("{:?} is not known here", crate::hash::shorten(verb)))
}

/// A frame that carries an event, with a subscription or without, if it has the form that nearly all have.
fn quick(frame: &[u8], limits: &Limits, has_sub: bool) -> Option<(String, Box<Event>)> {
    let mut reader = Reader::new(frame, max_bytes(limits))?;
    reader.open(b'[')?;
    (reader.quoted()? == "EVENT" && reader.goes_on(b']')?).then_some(())?;
    let mut sub = String::new();
    if has_sub {
        sub = reader.quoted().filter(|sub| is_sub(sub))?.into_owned();
        reader.goes_on(b']')?.then_some(())?;
    }
    let event = event::quick::event(&mut reader, limits)?;
    (reader.closes(b']') && reader.ends()).then(|| (sub, Box::new(event)))
}

fn max_bytes(limits: &Limits) -> usize {
    limits.max_bytes.saturating_add(ROOM_BYTES)
}

fn is_sub(sub: &str) -> bool {
    (1..=MAX_SUB_BYTES).contains(&sub.len())
}

/// The items of a message behind its verb.
struct Parts<'a>(std::vec::IntoIter<Doc<'a>>);

impl<'a> Parts<'a> {
    fn read(text: &'a [u8], limits: &Limits) -> Result<(String, Parts<'a>)> {
        let max_bytes = max_bytes(limits);
        let doc = Doc::parse_within(text, json::Limits { max_bytes, max_depth: MAX_DEPTH })?;
        let Doc::Array(items) = doc else { return Err(malformed("a message is a list")) };
        let mut parts = Parts(items.into_iter());
        Ok((parts.text("verb")?, parts))
    }

    fn next(&mut self, what: &str) -> Result<Doc<'a>> {
        self.0.next().ok_or_else(|| malformed("is missing").at(what))
    }

    fn text(&mut self, what: &str) -> Result<String> {
        match self.next(what)? {
            Doc::Text(text) => Ok(text.into_owned()),
            _ => Err(malformed("expected a text").at(what)),
        }
    }

    /// Words for people, which not everybody sends.
    fn words(&mut self) -> Result<String> {
        match self.0.next() {
            None | Some(Doc::Null) => Ok(String::new()),
            Some(Doc::Text(text)) => Ok(text.into_owned()),
            Some(_) => Err(malformed("expected a text").at("message")),
        }
    }

    fn sub(&mut self) -> Result<String> {
        let sub = self.text("subscription")?;
        if !is_sub(&sub) {
            let message = format!("a subscription's name has 1 to {MAX_SUB_BYTES} bytes");
            return Err(malformed(message).at("subscription"));
        }
        Ok(sub)
    }

    fn event(&mut self, limits: &Limits) -> Result<Box<Event>> {
        Event::from_doc(self.next("event")?, limits).map(Box::new)
    }

    fn filters(&mut self) -> Result<Vec<Filter>> {
        let filters: Vec<Filter> = self.0.by_ref().map(Filter::from_doc).collect::<Result<_>>()?;
        match filters.len() {
            0 => Err(malformed("no filter says what is wanted").at("filters")),
            1..=MAX_FILTERS => Ok(filters),
            n => {
                let message = format!("{n} filters are more than the limit of {MAX_FILTERS}");
                Err(malformed(message).at("filters"))
            }
        }
    }

    fn count(&mut self) -> Result<u64> {
        let answer = self.next("count")?;
        let count = match answer.get("count") {
            Some(Doc::Number(written)) => written.parse().ok(),
            _ => None,
        };
        count.ok_or_else(|| malformed("expected a whole number").at("count"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::SecretKey;
    use crate::nostr::Draft;

    fn event() -> Box<Event> {
        let key: SecretKey = format!("{:064x}", 7).parse().unwrap();
        let draft = Draft { kind: 1, created_at: 1, tags: vec![], content: "\"hi\"".to_owned() };
        Box::new(draft.sign(&key).unwrap())
    }

    #[test]
    fn what_is_written_is_read_again() {
        let sub = || "s".to_owned();
        let words = || "error: \"x\"".to_owned();
        let filters = || vec![Filter::default(), Filter::kinds([1])];
        for message in [
            ClientMessage::Event(event()),
            ClientMessage::Req { sub: sub(), filters: filters() },
            ClientMessage::Count { sub: sub(), filters: filters() },
            ClientMessage::Close(sub()),
            ClientMessage::Auth(event()),
            ClientMessage::NegOpen { sub: sub(), filter: Filter::kinds([1]), message: "61".into() },
            ClientMessage::NegMsg { sub: sub(), message: "61".into() },
            ClientMessage::NegClose(sub()),
        ] {
            let json = message.to_json();
            assert_eq!(ClientMessage::parse(json.as_bytes(), &Limits::DEFAULT), Ok(message));
        }
        for message in [
            RelayMessage::Event { sub: sub(), event: event() },
            RelayMessage::Ok { id: event().id, accepted: false, message: words() },
            RelayMessage::Eose(sub()),
            RelayMessage::Closed { sub: sub(), message: words() },
            RelayMessage::Notice(words()),
            RelayMessage::Auth("c".to_owned()),
            RelayMessage::Count { sub: sub(), count: 3 },
            RelayMessage::NegMsg { sub: sub(), message: "61".into() },
            RelayMessage::NegErr { sub: sub(), message: words() },
        ] {
            let json = message.to_json();
            assert_eq!(RelayMessage::parse(json.as_bytes(), &Limits::DEFAULT), Ok(message));
        }
    }

    #[test]
    fn an_event_in_its_usual_form_takes_the_quick_way() {
        let frame = event_frame("s", &event().to_json());
        assert_eq!(quick(frame.as_bytes(), &Limits::DEFAULT, true), Some(("s".into(), event())));
        let spaced = frame.replace(',', " ,\n ").replace(':', "\t: ");
        assert_eq!(quick(spaced.as_bytes(), &Limits::DEFAULT, true), Some(("s".into(), event())));
        // What is not usual takes the other, and what is refused there is refused.
        let unknown = frame.replace("\"kind\"", "\"seen\":true,\"kind\"");
        assert_eq!(quick(unknown.as_bytes(), &Limits::DEFAULT, true), None);
        assert!(RelayMessage::parse(unknown.as_bytes(), &Limits::DEFAULT).is_ok());
        let twice = frame.replace("\"kind\":1", "\"kind\":1,\"kind\":1");
        assert!(RelayMessage::parse(twice.as_bytes(), &Limits::DEFAULT).is_err());
    }

    /// Texts that say what some would read differently: parts of frames, put together at random.
    fn pieces() -> impl Strategy<Value = String> {
        let event = event().to_json();
        let fields: Vec<String> =
            event[1..event.len() - 1].split(",\"").map(str::to_owned).collect();
        let piece = prop_oneof![
            6 => proptest::sample::select(fields).prop_map(|field| format!("\"{}", field.trim_start_matches('"'))),
            1 => Just("\"kind\":01".to_owned()),
            1 => Just("\"kind\":1.0".to_owned()),
            1 => Just("\"kind\":65536".to_owned()),
            1 => Just("\"created_at\":9007199254740992".to_owned()),
            1 => Just("\"created_at\":-0".to_owned()),
            1 => Just("\"pubkey\":\"npub1qqq\"".to_owned()),
            1 => Just("\"tags\":[[\"e\",\"\\ud800\"],[]]".to_owned()),
            1 => Just("\"tags\":[[\"e\",\"\\u00e9\\n\"], [ ] ]".to_owned()),
            1 => Just("\"tags\":[[1]]".to_owned()),
            1 => Just("\"tags\":[null]".to_owned()),
            1 => Just("\"tags\":[[\"a\",]]".to_owned()),
            1 => Just("\"\\u006bind\":7".to_owned()),
            1 => Just("\"more\":{\"deep\":[1]}".to_owned()),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.join(","))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn both_ways_lead_to_the_same_event(
            order in Just((0..7_usize).collect::<Vec<_>>()).prop_shuffle(),
            odd in pieces(),
            cut in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            kind in 0..4_u8,
        ) {
            let usual = event().to_json();
            let fields: Vec<&str> = usual[1..usual.len() - 1].splitn(7, ",\"").collect();
            let shuffled: Vec<String> =
                order.iter().map(|i| format!("\"{}", fields[*i].trim_start_matches('"'))).collect();
            let event = match kind {
                0 | 1 => format!("{{{}}}", shuffled.join(", ")),
                2 => format!("{{{odd}}}"),
                _ => format!("{{{},{odd}}}", shuffled.join(",")),
            };
            let mut frame = event_frame("s", &event).into_bytes();
            if kind == 1 {
                let at = cut.index(frame.len());
                frame[at] = byte;
            }
            let general = RelayMessage::parse_any(&frame, &Limits::DEFAULT);
            prop_assert_eq!(RelayMessage::parse(&frame, &Limits::DEFAULT), general);
        }
    }

    #[test]
    fn a_stored_event_needs_no_second_writing() {
        let message = RelayMessage::Event { sub: "a\"b".to_owned(), event: event() };
        assert_eq!(event_frame("a\"b", &event().to_json()), message.to_json());
    }

    #[test]
    fn rubbish_is_refused() {
        let long = format!(r#"["CLOSE","{}"]"#, "s".repeat(MAX_SUB_BYTES + 1));
        let many = format!(r#"["REQ","s"{}]"#, ",{}".repeat(MAX_FILTERS + 1));
        let deep = format!(r#"["REQ","s",{{"ids":{}{}}}]"#, "[".repeat(20), "]".repeat(20));
        for bad in [
            "",
            "{}",
            "[]",
            "[1]",
            r#"["PLEASE"]"#,
            r#"["REQ"]"#,
            r#"["REQ","s"]"#,
            r#"["CLOSE",""]"#,
            r#"["EVENT",{}]"#,
            &long,
            &many,
            &deep,
        ] {
            assert!(ClientMessage::parse(bad.as_bytes(), &Limits::DEFAULT).is_err(), "{bad}");
        }
        let big = vec![b' '; Limits::DEFAULT.max_bytes + 2 * ROOM_BYTES];
        assert_eq!(
            RelayMessage::parse(&big, &Limits::DEFAULT).unwrap_err().code(),
            &json::code::SIZE
        );
    }
}
