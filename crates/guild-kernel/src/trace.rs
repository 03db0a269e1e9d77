//! Traces, as W3C Trace Context writes them: `00-<trace>-<span>-01`. A turn belongs to the trace under which it was
//! asked for, else to that of the turn that asks, else to one of its own. The spans of turns and calls follow from
//! their names: the same call has the same span however often its command leaves.

use guild_protocol::hash::Hash;

use crate::{AgentTurnId, Error, Result, code};

const TRACE_DIGITS: usize = 32;
const SPAN_DIGITS: usize = 16;

/// What somebody who asks for a turn says of its trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// The trace.
    pub(crate) trace_id: String,
    /// What was said in whole, if a span was named.
    pub(crate) parent_traceparent: Option<String>,
}

/// Lower-case hexadecimal digits that are not all zero.
fn is_name(text: &str, digits: usize) -> bool {
    text.len() == digits
        && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        && text.bytes().any(|b| b != b'0')
}

impl Given {
    /// A trace id, or a whole `traceparent` of the form that we write.
    pub(crate) fn parse(text: &str) -> Result<Given> {
        if is_name(text, TRACE_DIGITS) {
            return Ok(Given { trace_id: text.to_owned(), parent_traceparent: None });
        }
        let parts: Vec<&str> = text.split('-').collect();
        if let [version, trace, span, flags] = parts.as_slice() {
            let is_flags = flags.len() == 2 && flags.bytes().all(|b| b.is_ascii_hexdigit());
            let named = is_name(trace, TRACE_DIGITS) && is_name(span, SPAN_DIGITS);
            if *version == "00" && is_flags && named {
                let parent_traceparent = Some(text.to_owned());
                return Ok(Given { trace_id: (*trace).to_owned(), parent_traceparent });
            }
        }
        let message = "trace_id is neither 32 hexadecimal digits nor a traceparent";
        Err(Error::refused(&code::MALFORMED, message))
    }
}

/// The trace of a turn that nobody named one for.
pub(crate) fn own(agent_turn_id: &str) -> String {
    first_digits(agent_turn_id, TRACE_DIGITS)
}

fn first_digits(name: &str, digits: usize) -> String {
    let hex = Hash::of(name.as_bytes()).hex();
    hex.get(..digits).unwrap_or_default().to_owned()
}

/// The trace that a turn belongs to; rows of others may hold anything, or nothing.
fn trace_of(trace_id: Option<&str>, agent_turn_id: &str) -> String {
    match trace_id.filter(|text| is_name(text, TRACE_DIGITS)) {
        Some(trace_id) => trace_id.to_owned(),
        None => own(agent_turn_id),
    }
}

/// What something that a turn does is sent under: the span of what this names.
pub(crate) fn traceparent(trace_id: Option<&str>, agent_turn_id: &str, span_of: &str) -> String {
    let (trace, span) = (trace_of(trace_id, agent_turn_id), first_digits(span_of, SPAN_DIGITS));
    format!("00-{trace}-{span}-01")
}

/// The span of the turn itself.
pub(crate) fn of_turn(trace_id: Option<&str>, agent_turn_id: &AgentTurnId) -> String {
    traceparent(trace_id, agent_turn_id.as_str(), agent_turn_id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn a_trace_is_kept_where_it_is_one_and_made_where_it_is_not() {
        let made = traceparent(Some(TRACE), "turn_1", "call_1");
        assert!(made.starts_with(&format!("00-{TRACE}-")) && made.ends_with("-01"), "{made}");
        assert_eq!(made.len(), 55);
        assert_eq!(made, traceparent(Some(TRACE), "turn_1", "call_1"));
        assert_ne!(made, traceparent(Some(TRACE), "turn_1", "call_2"));
        let own = traceparent(None, "turn_1", "call_1");
        for bad in ["", "x", "00000000000000000000000000000000", "0AF7651916CD43DD8448EB211C80319C"]
        {
            assert_eq!(traceparent(Some(bad), "turn_1", "call_1"), own, "{bad}");
        }
    }

    #[test]
    fn a_trace_is_given_alone_or_with_its_span() {
        let alone = Given::parse(TRACE).unwrap();
        assert_eq!((alone.trace_id.as_str(), alone.parent_traceparent), (TRACE, None));
        let whole = format!("00-{TRACE}-b7ad6b7169203331-01");
        let given = Given::parse(&whole).unwrap();
        assert_eq!((given.trace_id.as_str(), given.parent_traceparent), (TRACE, Some(whole)));
        let made = traceparent(None, "turn_1", "call_1");
        assert_eq!(Given::parse(&made).unwrap().parent_traceparent, Some(made), "what we write");
        let bad = [
            "",
            "x",
            "00000000000000000000000000000000",
            "0AF7651916CD43DD8448EB211C80319C",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-é",
        ];
        for bad in bad {
            assert_eq!(Given::parse(bad).unwrap_err().code(), &code::MALFORMED, "{bad}");
        }
    }
}
