//! A submission that runs, and the conversation with it.
//!
//! Whoever is in the sandbox can say anything at any time. So a call carries an id that nobody could know before, one
//! answer with that id is taken, and everything else on the channel ends the conversation.

use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};

use guild_protocol::hash::to_hex;
use guild_protocol::json::{self, Doc};
use guild_sandbox::{Outcome, Running, Spec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Value, json};

use super::Judge;
use crate::Result;

/// An answer is at most so long.
pub(super) const MAX_ANSWER_BYTES: usize = 4 << 20;
const MAX_ANSWER_DEPTH: usize = 64;
const ID_BYTES: usize = 16;
const PIECE_BYTES: usize = 64 << 10;
/// Of what it prints as errors, so much is kept.
const KEPT_BYTES: usize = 4 << 10;
/// How long it may take to end once its input has ended.
const GRACE_US: u64 = 2_000_000;

/// Why a conversation is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Broken {
    /// No answer in time.
    Late,
    /// It is gone.
    Ended,
    /// It said something that is no answer to this call.
    Noise(String),
}

/// A call that was answered.
#[derive(Debug)]
pub(super) struct Answered {
    line: Vec<u8>,
    /// From the first byte of the call to the last of the answer.
    pub(super) wall_us: u64,
}

/// What a call gave.
#[derive(Debug, PartialEq)]
pub(super) enum Gave<'a> {
    Value(Doc<'a>),
    Error { names: Vec<String>, message: String },
}

/// How a subject ended.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// Whether it spoke after its last answer.
    pub(super) spoke: bool,
    pub(super) printed: Vec<u8>,
}

/// A submission that runs.
pub(super) struct Subject<'a> {
    running: Running,
    stdin: Option<PipeWriter>,
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
    /// What it has said and nobody has read yet.
    heard: Vec<u8>,
    printed: Vec<u8>,
    judge: &'a Judge<'a>,
}

impl<'a> Subject<'a> {
    pub(super) fn start(
        judge: &'a Judge<'a>,
        spec: &Spec,
    ) -> Result<Subject<'a>, guild_sandbox::Error> {
        let mut running = judge.sandbox.start(spec)?;
        // While it loads what it needs.
        judge.prepare();
        let (stdin, stdout, stderr) =
            (running.stdin.take(), running.stdout.take(), running.stderr.take());
        let fds = [
            stdin.as_ref().map(AsFd::as_fd),
            stdout.as_ref().map(AsFd::as_fd),
            stderr.as_ref().map(AsFd::as_fd),
        ];
        fds.into_iter().flatten().try_for_each(never_wait).map_err(|errno| {
            let why = std::io::Error::from(errno).to_string();
            guild_sandbox::Error::Failed { step: "set the flags of a pipe".to_owned(), why }
        })?;
        let (heard, printed) = (Vec::new(), Vec::new());
        Ok(Subject { running, stdin, stdout, stderr, heard, printed, judge })
    }

    /// Waits until the submission is loaded.
    pub(super) fn ready(&mut self, timeout_ms: u64) -> Result<Answered, Broken> {
        self.ask(json!({"ready": true}), timeout_ms)
    }

    /// Calls a function and takes its one answer.
    pub(super) fn call(
        &mut self,
        function: &str,
        args: Vec<Value>,
        timeout_ms: u64,
    ) -> Result<Answered, Broken> {
        self.ask(json!({"call": function, "args": args}), timeout_ms)
    }

    fn ask(&mut self, mut request: Value, timeout_ms: u64) -> Result<Answered, Broken> {
        let mut id = [0; ID_BYTES];
        self.judge.random.fill(&mut id);
        let id = to_hex(&id);
        if let Some(members) = request.as_object_mut() {
            members.insert("id".to_owned(), Value::from(id.as_str()));
        }
        let mut line = request.to_string().into_bytes();
        line.push(b'\n');
        let stopwatch = self.judge.stopwatch;
        // What came before the call cannot be its answer.
        self.step(0, &[])?;
        if !self.heard.is_empty() {
            return Err(Broken::Noise("it spoke before it was asked".to_owned()));
        }
        let start_us = stopwatch.now_us();
        let until_us = start_us.saturating_add(timeout_ms.saturating_mul(1_000));
        let mut sent = 0;
        let end = loop {
            let rest = line.get(sent..).unwrap_or_default();
            let left_us = until_us.saturating_sub(stopwatch.now_us());
            if left_us == 0 {
                return Err(Broken::Late);
            }
            sent = sent.saturating_add(self.step(left_us, rest)?);
            match self.heard.iter().position(|byte| *byte == b'\n') {
                Some(_) if sent < line.len() => {
                    return Err(Broken::Noise(
                        "it answered before it had read the call".to_owned(),
                    ));
                }
                Some(end) => break end,
                None if self.heard.len() > MAX_ANSWER_BYTES => {
                    return Err(Broken::Noise("its answer is too long".to_owned()));
                }
                None => {}
            }
        };
        let wall_us = stopwatch.now_us().saturating_sub(start_us);
        let rest = self.heard.split_off(end.saturating_add(1));
        let mut answer = std::mem::replace(&mut self.heard, rest);
        answer.pop();
        if !self.heard.is_empty() {
            return Err(Broken::Noise("it said more than one answer".to_owned()));
        }
        check_id(&answer, &id)?;
        Ok(Answered { line: answer, wall_us })
    }

    /// Waits for room or for something new, and moves what can be moved. How much of `rest` went.
    fn step(&mut self, at_most_us: u64, rest: &[u8]) -> Result<usize, Broken> {
        let stdin = self.stdin.as_ref().filter(|_| !rest.is_empty());
        let mut fds = Vec::with_capacity(3);
        for (pipe, flags) in [
            (self.stdout.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.stderr.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (stdin.map(AsFd::as_fd), PollFlags::OUT),
        ] {
            fds.extend(pipe.map(|pipe| PollFd::from_borrowed_fd(pipe, flags)));
        }
        wait(&mut fds, at_most_us).map_err(|_| Broken::Ended)?;
        let sent = match stdin.map(|stdin| rustix::io::write(stdin, rest)) {
            Some(Ok(sent)) => sent,
            Some(Err(Errno::AGAIN | Errno::INTR)) | None => 0,
            Some(Err(_)) => {
                // Nobody reads it any more, and waiting for room would be no waiting. What was said is still read.
                self.stdin = None;
                0
            }
        };
        self.hear_errors();
        match hear(self.stdout.as_ref(), &mut self.heard) {
            Heard::End => Err(Broken::Ended),
            Heard::Something | Heard::Nothing => Ok(sent),
        }
    }

    fn hear_errors(&mut self) {
        let mut piece = Vec::new();
        if let Heard::End = hear(self.stderr.as_ref(), &mut piece) {
            self.stderr = None;
        }
        let left = KEPT_BYTES.saturating_sub(self.printed.len());
        self.printed.extend(piece.into_iter().take(left));
    }

    /// Ends its input and waits for its end. What it says now is noise.
    pub(super) fn end(mut self) -> Result<Ended> {
        self.stdin = None;
        let stopwatch = self.judge.stopwatch;
        let until_us = stopwatch.now_us().saturating_add(GRACE_US);
        loop {
            let left_us = until_us.saturating_sub(stopwatch.now_us());
            // One that speaks without an end is not listened to until its limit.
            if left_us == 0 || self.heard.len() > PIECE_BYTES {
                return self.stop();
            }
            if self.step(left_us, &[]).is_err() {
                break;
            }
        }
        self.conclude()
    }

    /// Ends it now.
    pub(super) fn stop(self) -> Result<Ended> {
        self.running.handle().kill()?;
        self.conclude()
    }

    fn conclude(mut self) -> Result<Ended> {
        self.stdin = None;
        let outcome = self.running.wait()?;
        let mut left = Vec::new();
        while let Heard::Something = hear(self.stderr.as_ref(), &mut left) {}
        let room = KEPT_BYTES.saturating_sub(self.printed.len());
        self.printed.extend(left.into_iter().take(room));
        Ok(Ended { outcome, spoke: !self.heard.is_empty(), printed: self.printed })
    }
}

enum Heard {
    Something,
    Nothing,
    End,
}

fn hear(pipe: Option<&PipeReader>, into: &mut Vec<u8>) -> Heard {
    let Some(pipe) = pipe else { return Heard::End };
    let start = into.len();
    into.resize(start.saturating_add(PIECE_BYTES), 0);
    let read = rustix::io::read(pipe, into.get_mut(start..).unwrap_or_default());
    let came = read.as_ref().copied().unwrap_or(0);
    into.truncate(start.saturating_add(came));
    match read {
        Ok(0) => Heard::End,
        Ok(_) => Heard::Something,
        Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
        Err(_) => Heard::End,
    }
}

fn never_wait(pipe: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(pipe)?;
    rustix::fs::fcntl_setfl(pipe, flags | OFlags::NONBLOCK)
}

fn wait(fds: &mut [PollFd<'_>], at_most_us: u64) -> rustix::io::Result<()> {
    let seconds = i64::try_from(at_most_us / 1_000_000).unwrap_or(i64::MAX);
    let ns = i64::try_from((at_most_us % 1_000_000).saturating_mul(1_000)).unwrap_or(0);
    match poll(fds, Some(&Timespec { tv_sec: seconds, tv_nsec: ns })) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// An answer is one object with the id of the call, and either a value or an error.
fn check_id(line: &[u8], id: &str) -> Result<(), Broken> {
    let (said, _) = parse(line)?;
    match said == id {
        true => Ok(()),
        false => Err(Broken::Noise("its answer has the id of no call".to_owned())),
    }
}

fn parse(line: &[u8]) -> Result<(String, Gave<'_>), Broken> {
    let noise = |why: String| Broken::Noise(why);
    let limits = json::Limits { max_bytes: MAX_ANSWER_BYTES, max_depth: MAX_ANSWER_DEPTH };
    let doc = Doc::parse_within(line, limits)
        .map_err(|error| noise(format!("its answer is not plain JSON: {}", error.message())))?;
    let Doc::Object(members) = doc else {
        return Err(noise("its answer is no object".to_owned()));
    };
    let (mut id, mut gave) = (None, None);
    for (name, member) in members {
        match (name.as_ref(), member) {
            ("id", Doc::Text(text)) => id = Some(text.into_owned()),
            ("ok", value) if gave.is_none() => gave = Some(Gave::Value(value)),
            ("error", about) if gave.is_none() => gave = Some(error(&about)),
            (name, _) => {
                let name: String = name.chars().take(40).collect();
                return Err(noise(format!("its answer has a field {name:?} too many")));
            }
        }
    }
    match (id, gave) {
        (Some(id), Some(gave)) => Ok((id, gave)),
        _ => Err(noise("its answer lacks the id, or both ok and error".to_owned())),
    }
}

fn error<'a>(about: &Doc<'_>) -> Gave<'a> {
    let text = |name: &str| match about.get(name) {
        Some(Doc::Text(text)) => text.chars().take(200).collect(),
        _ => String::new(),
    };
    let mut names: Vec<String> = vec![text("type")];
    if let Some(Doc::Array(more)) = about.get("is") {
        names.extend(more.iter().take(50).filter_map(|name| match name {
            Doc::Text(name) => Some(name.chars().take(200).collect()),
            _ => None,
        }));
    }
    Gave::Error { names, message: text("message") }
}

impl Answered {
    /// What was answered.
    pub(super) fn gave(&self) -> Gave<'_> {
        // It was read once already.
        parse(&self.line).map_or(Gave::Value(Doc::Null), |(_, gave)| gave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &[u8]) -> String {
        match check_id(line, "7") {
            Err(Broken::Noise(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_has_one_form() {
        assert_eq!(check_id(br#"{"id":"7","ok":[1,null]}"#, "7"), Ok(()));
        assert_eq!(check_id(br#"{"error":{"type":"ValueError"},"id":"7"}"#, "7"), Ok(()));
        let wrong: [(&[u8], &str); 17] = [
            (b"", "plain JSON"),
            (b"hello", "plain JSON"),
            (b"\xff\xfe", "plain JSON"),
            (b"\0", "plain JSON"),
            (br#"{"id":"7","ok":NaN}"#, "plain JSON"),
            (br#"{"id":"7","ok":Infinity}"#, "plain JSON"),
            (br#"{"id":"7","ok":1e999}"#, "plain JSON"),
            (br#"{"id":"7","ok":9007199254740993}"#, "plain JSON"),
            (br#"{"id":"7","ok":1,"ok":2}"#, "plain JSON"),
            (br#"{"id":"7","ok":{"a":1,"a":2}}"#, "plain JSON"),
            (br#"{"id":"7","ok":1} {"id":"7","ok":2}"#, "plain JSON"),
            (br#"[7]"#, "no object"),
            (br#"{"id":"7"}"#, "lacks"),
            (br#"{"ok":1}"#, "lacks"),
            (br#"{"id":7,"ok":1}"#, "too many"),
            (br#"{"id":"7","ok":1,"error":{}}"#, "too many"),
            (br#"{"id":"8","ok":1}"#, "the id of no call"),
        ];
        for (line, says) in wrong {
            let why = refused(line);
            assert!(why.contains(says), "{why}: {}", String::from_utf8_lossy(line));
        }
        let deep = format!(r#"{{"id":"7","ok":{}{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
        assert!(refused(deep.as_bytes()).contains("plain JSON"));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn nothing_is_an_answer_by_accident(line in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            proptest::prop_assert!(check_id(&line, "0123456789abcdef0123456789abcdef").is_err());
        }
    }
}
