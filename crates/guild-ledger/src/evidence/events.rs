//! `events.jsonl`: only that it is a list of numbered objects.

use guild_protocol::json::Doc;

use super::code;
use super::finding::{Findings, Part, Place, Refusal};
use super::record;

/// The node's events, checked for their form.
#[derive(Debug, Default)]
pub struct Events {
    findings: Findings,
    lines: u64,
    last_seq: Option<i64>,
}

impl Events {
    /// No event yet.
    pub fn new() -> Events {
        Events::default()
    }

    /// Takes the next line of `events.jsonl`, with its line feed.
    pub fn line(&mut self, line: &[u8]) {
        self.lines = self.lines.saturating_add(1);
        if let Err(message) = self.check(line) {
            let place = Place::line(Part::Events, self.lines);
            self.findings.push(Refusal::new(&code::EVENT, message).at(place));
        }
    }

    fn check(&mut self, line: &[u8]) -> Result<(), String> {
        let text = line.strip_suffix(b"\n");
        let doc = record::parse(text.unwrap_or(line)).map_err(|refusal| refusal.message)?;
        if text.is_none() {
            return Err("has no line feed at its end".to_owned());
        }
        let seq = match doc {
            Doc::Object(_) => record::seq_of(&doc),
            _ => None,
        };
        let Some(seq) = seq else { return Err("is no object with a number `seq`".to_owned()) };
        // A number that is far too large must not make all that follow look wrong.
        let former = self.last_seq.replace(seq);
        match former {
            Some(former) if former >= seq => Err(format!("{seq} follows {former}")),
            _ => Ok(()),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.lines
    }

    pub(super) fn finish(self) -> Findings {
        self.findings
    }
}
