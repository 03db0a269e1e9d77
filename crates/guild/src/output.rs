//! What a command says: its answer to standard output, as text or as one JSON object on a line; everything else to
//! standard error.
//!
//! With `--json`, `ok` is true exactly when the exit code is 0, and `error` is there exactly when there is no answer.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::Path;

use serde::Serialize;

use crate::error::{EXIT_COULD_NOT_FIND_OUT, EXIT_NO, Error, Result, code};

/// How a command ended that has said what it had to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// Neither yes nor no: something that decides it is not known yet.
    Open,
    /// Some parts failed, and were shown; the worst of their exit codes.
    Failed(u8),
}

impl Answer {
    pub(crate) fn of(yes: bool) -> Answer {
        if yes { Answer::Yes } else { Answer::No }
    }

    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Answer::Yes => 0,
            Answer::No => EXIT_NO,
            Answer::Open => EXIT_COULD_NOT_FIND_OUT,
            Answer::Failed(code) => code,
        }
    }

    /// The answer for two things together: the worse one.
    pub(crate) fn and(self, other: Answer) -> Answer {
        if other.exit_code() > self.exit_code() { other } else { self }
    }
}

/// The two streams of a command.
pub(crate) struct Output {
    json: bool,
    paint_errors: bool,
    stdout: BufWriter<Stdout>,
    /// The reader has gone (`guild schema ls | head -1`): nothing more to say, and nothing wrong.
    closed: bool,
    /// A line of progress stands on the terminal.
    moving: bool,
}

#[derive(Serialize)]
struct Line<T> {
    ok: bool,
    #[serde(flatten)]
    body: T,
}

/// A path in a JSON answer. A name that is not UTF-8 is shown as well as can be; it is no reason not to answer.
pub(crate) fn lossy<S: serde::Serializer>(
    path: impl AsRef<Path>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.as_ref().display())
}

#[derive(Serialize)]
struct Failure<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'a str,
    kind: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
    help: &'a str,
    /// Lines that show what to write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    example: Vec<&'a str>,
    /// All of them, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<ProblemBody<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    problems_left_out: usize,
}

#[derive(Serialize)]
struct ProblemBody<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl<'a> ErrorBody<'a> {
    fn of(error: &'a Error) -> ErrorBody<'a> {
        let problem =
            |e: &'a Error| ProblemBody { code: e.code().name, message: e.message(), at: e.place() };
        let several = !error.others().is_empty();
        let all = std::iter::once(error).chain(error.others()).filter(|_| several);
        ErrorBody {
            code: error.code().name,
            kind: error.kind().as_str(),
            message: error.message(),
            file: error.file(),
            at: error.place(),
            help: error.remedy(),
            example: error.example_lines().to_vec(),
            problems: all.map(problem).collect(),
            problems_left_out: error.left_out(),
        }
    }
}

impl Output {
    /// Answers as text or JSON. Errors are painted on a terminal only, and not if `plain`.
    pub(crate) fn new(json: bool, plain: bool) -> Output {
        let paint_errors = !plain && io::stderr().is_terminal();
        let stdout = BufWriter::new(io::stdout());
        Output { json, paint_errors, stdout, closed: false, moving: false }
    }

    /// Whether a program reads the answer.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// One line of text, whatever a file or a stranger said in it.
    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        self.raw(printable(text).as_bytes())?;
        self.raw(b"\n")
    }

    /// A piece of a text of several lines, whatever a stranger said in it: all lines begin at a column, and nothing
    /// but the ends of lines steers the terminal.
    pub(crate) fn flow(&mut self, text: &str, column: usize) -> Result<()> {
        self.raw(flowing(text, column).as_bytes())
    }

    /// Text that this program made itself, as it is.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        self.stand_still();
        let written = self.stdout.write_all(bytes);
        self.settle(written)
    }

    /// Whether a person looks at the answer as it is written.
    pub(crate) fn is_terminal(&self) -> bool {
        !self.json && io::stdout().is_terminal()
    }

    /// Empties the screen of a terminal: what comes next begins at its top.
    pub(crate) fn clear(&mut self) -> Result<()> {
        self.raw(b"\x1b[H\x1b[2J")
    }

    /// Names and values, the values in one column.
    pub(crate) fn fields(&mut self, fields: &[(&str, &str)]) -> Result<()> {
        in_columns(fields).iter().try_for_each(|line| self.line(line))
    }

    /// The same as remarks, beside an answer that is something else.
    pub(crate) fn remarks(&mut self, fields: &[(&str, &str)]) {
        in_columns(fields).iter().for_each(|line| self.remark(line));
    }

    /// A JSON value on one line, whatever a stranger said in it: what would steer a terminal is written as an escape.
    pub(crate) fn document(&mut self, value: &serde_json::Value) -> Result<()> {
        self.raw(steerless(value).as_bytes())?;
        self.raw(b"\n")
    }

    /// The answer for a program: one object on one line.
    pub(crate) fn object(&mut self, ok: bool, body: impl Serialize) -> Result<()> {
        let line = serde_json::to_vec(&Line { ok, body })
            .map_err(|e| Error::new(&code::IO_FAILED, format!("the answer is not JSON: {e}")))?;
        self.raw(&line)?;
        self.raw(b"\n")
    }

    /// A remark to the person, beside the answer.
    pub(crate) fn remark(&mut self, text: &str) {
        self.beside(&format!("{}\n", printable(text)));
    }

    /// How far it is, for a person who waits: one line that the next one replaces, as does whatever else is said. An
    /// empty one ends it.
    pub(crate) fn progress(&mut self, text: &str) {
        if !self.json && io::stderr().is_terminal() {
            self.moving = false;
            self.beside(&moving_line(text));
            self.moving = !text.is_empty();
        }
    }

    /// Shows a failure; the exit code it deserves.
    pub(crate) fn error(&mut self, error: &Error) -> u8 {
        if self.json {
            // There is no third stream to complain to.
            let _ = self.object(false, Failure { error: ErrorBody::of(error) });
        } else {
            let text = render(error, self.paint_errors);
            self.beside(&text);
        }
        error.exit_code()
    }

    /// Shows what is left, and gives the exit code.
    pub(crate) fn conclude(&mut self, answer: Result<Answer>) -> u8 {
        let code = match answer {
            Ok(answer) => answer.exit_code(),
            Err(error) => self.error(&error),
        };
        match self.flush() {
            Ok(()) => code,
            Err(error) => {
                // The answer did not arrive: say so where it can be heard.
                let text = render(&error, self.paint_errors);
                let _ = io::stderr().write_all(text.as_bytes());
                error.exit_code()
            }
        }
    }

    /// What was said so far goes out now.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let flushed = self.stdout.flush();
        self.settle(flushed)
    }

    fn beside(&mut self, text: &str) {
        // Keep the order in which a person sees both streams.
        let _ = self.stdout.flush();
        self.stand_still();
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// Takes the line of progress away, if there is one.
    fn stand_still(&mut self) {
        if std::mem::take(&mut self.moving) {
            let _ = io::stderr().write_all(moving_line("").as_bytes());
        }
    }

    fn settle(&mut self, written: io::Result<()>) -> Result<()> {
        match written {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            written => written.map_err(|e| Error::io(Path::new("standard output"), &e)),
        }
    }
}

fn flowing(text: &str, column: usize) -> String {
    let next = format!("\n{}", " ".repeat(column));
    let lines: Vec<Cow<'_, str>> = text.split('\n').map(printable).collect();
    lines.join(&next)
}

fn steerless(value: &serde_json::Value) -> String {
    let shown = |c: char| match steers(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    value.to_string().chars().map(shown).collect()
}

fn in_columns(fields: &[(&str, &str)]) -> Vec<String> {
    let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    fields.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect()
}

/// A failure as a person reads it. Several problems with one remedy share it.
fn render(error: &Error, paint: bool) -> String {
    let (red, blue, off) =
        if paint { ("\x1b[1;31m", "\x1b[1;34m", "\x1b[0m") } else { ("", "", "") };
    let mut text = String::new();
    let all: Vec<&Error> = std::iter::once(error).chain(error.others()).collect();
    for (i, problem) in all.iter().enumerate() {
        let name = problem.code().name;
        // The place stands on its own line; it is repeated only where the sentence needs it.
        let subject = problem.place().filter(|_| lacks_subject(problem.message()));
        let said = sentence(problem.message(), subject);
        text.push_str(&format!("{red}error[{name}]{off}: {}\n", printable(&said)));
        let place: Vec<_> = [error.file(), problem.place()].into_iter().flatten().collect();
        if !place.is_empty() {
            text.push_str(&format!("  {blue}-->{off} {}\n", printable(&place.join(", "))));
        }
        if all.get(i + 1).is_none_or(|next| next.remedy() != problem.remedy()) {
            text.push_str(&format!("{blue}help{off}: {}\n", printable(problem.remedy())));
        }
    }
    error.example_lines().iter().for_each(|line| text.push_str(&format!("    {line}\n")));
    if error.left_out() > 0 {
        text.push_str(&format!("(and {} more)\n", error.left_out()));
    }
    text
}

/// The message as a whole sentence: "is missing" at `texts` becomes "texts is missing".
pub(crate) fn sentence(message: &str, place: Option<&str>) -> String {
    match place {
        Some(place) if lacks_subject(message) => format!("{place} {message}"),
        Some(place) => format!("{place}: {message}"),
        None => message.to_owned(),
    }
}

/// Whether a message begins with a verb: then its subject is the place.
fn lacks_subject(message: &str) -> bool {
    const VERBS: [&str; 7] = ["breaks", "does", "has", "is", "must", "says", "was"];
    VERBS.contains(&message.split(' ').next().unwrap_or_default())
}

/// What makes a line of progress of a text. It is cut at the edge of the terminal, not wrapped, so that the next one
/// can replace it; and the cursor stays behind it, so that the `^C` of whoever is tired of it goes with it.
fn moving_line(text: &str) -> String {
    match text {
        "" => "\r\x1b[K".to_owned(),
        text => format!("\r\x1b[K\x1b[?7l{}\x1b[?7h", printable(text)),
    }
}

/// The text on one line, with whatever steers a terminal made visible: hostile input can neither move the cursor,
/// nor add a line that looks like one of ours, nor show its letters in another order.
fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let shown = text
        .chars()
        .map(|c| if steers(c) { c.escape_default().to_string() } else { c.to_string() });
    Cow::Owned(shown.collect())
}

fn steers(c: char) -> bool {
    let separates = matches!(c, '\u{2028}' | '\u{2029}');
    let turns_around = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    (c.is_control() && c != '\t') || separates || turns_around
}

/// From now on a panic prints a short request to report it, in place of the runtime's own words.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        let what = info.payload_as_str().unwrap_or("no message");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let bug = Error::new(&code::BUG, format!("this is a bug in guild: {what}")).at(place);
        let _ = io::stderr().write_all(render(&bug, false).as_bytes());
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_answer_wins() {
        assert_eq!(Answer::Yes.and(Answer::No), Answer::No);
        assert_eq!(Answer::Failed(2).and(Answer::No), Answer::Failed(2));
        assert_eq!(Answer::Failed(2).and(Answer::Failed(3)).exit_code(), 3);
    }

    #[test]
    fn a_line_of_progress_replaces_the_one_before_and_is_never_wrapped() {
        assert_eq!(moving_line("⠋ 2 of 3"), "\r\x1b[K\x1b[?7l⠋ 2 of 3\x1b[?7h");
        assert_eq!(moving_line("a\nb\x1b[2J"), "\r\x1b[K\x1b[?7la\\nb\\u{1b}[2J\x1b[?7h");
        assert_eq!(moving_line(""), "\r\x1b[K");
    }

    #[test]
    fn a_document_stays_json_and_cannot_steer_the_terminal() {
        let value = serde_json::json!({"a\u{202e}": "\u{9b}2J \u{1b}[2J é"});
        let text = steerless(&value);
        assert_eq!(text, r#"{"a\u202e":"\u009b2J \u001b[2J é"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn lines_of_a_flowing_text_begin_at_its_column() {
        assert_eq!(flowing("a\nb\x1b[2J\n\rc", 2), "a\n  b\\u{1b}[2J\n  \\rc");
        assert_eq!(flowing("", 2), "");
    }

    #[test]
    fn hostile_text_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\u{9b}é\t"), "a\\u{1b}[2Jb\\u{9b}é\t");
        assert_eq!(printable("a\n  ok\rb\u{2028}"), "a\\n  ok\\rb\\u{2028}");
        assert_eq!(printable("\u{202e}a\u{2069}\u{200f}"), "\\u{202e}a\\u{2069}\\u{200f}");
    }

    #[test]
    fn paint_changes_no_word() {
        let error = Error::new(&code::IO_FAILED, "it broke").at("line 3").in_file(Path::new("x"));
        let plain = render(&error, false);
        insta::assert_snapshot!(plain, @"
        error[io.failed]: it broke
          --> x, line 3
        help: Check the disk and the path, then try again.
        ");
        let mut painted = render(&error, true);
        for paint in ["\x1b[1;31m", "\x1b[1;34m", "\x1b[0m"] {
            painted = painted.replace(paint, "");
        }
        assert_eq!(painted, plain);
    }
}
