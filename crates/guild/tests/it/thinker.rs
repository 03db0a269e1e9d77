//! A service with a model, as agents ask it: it speaks as OpenAI does, on loopback.
//!
//! What it does is said by the task: `call NAME ARGUMENTS` on a line is a call, one in each step, in the order of the
//! lines; the arguments [`HUGE`] are as large as an answer can be, and the second half of them comes when the gate is
//! open. `talk` is an answer that comes word by word until the gate is open. As a judge of rankings it chooses the one
//! that begins with `right`.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::support::Home;

/// The tool that it calls if it may.
pub(crate) const TOOL: &str = "look_up";
/// Stands for arguments of nearly ten million bytes, which is what an answer may have in all.
pub(crate) const HUGE: &str = "HUGE";
const HUGE_BYTES: usize = 9_900_000;
/// What it says again and again while it talks.
pub(crate) const WORDS: &str = "la\n\u{1b}[2J ";

/// It answers until the test ends.
pub(crate) struct Thinker {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    asked: AtomicU64,
    takes_ms: AtomicU64,
    gate: AtomicBool,
}

impl Shared {
    fn is_open(&self) -> bool {
        self.gate.load(Ordering::SeqCst)
    }
}

impl Thinker {
    pub(crate) fn start() -> Thinker {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let all = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = all.clone();
                // A worker that is killed leaves a broken connection: that ends this thread alone.
                std::thread::spawn(move || answer(&stream, &shared).unwrap_or_default());
            }
        });
        Thinker { port, shared }
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// From now on it thinks so long before it answers.
    pub(crate) fn take_ms(&self, takes_ms: u64) {
        self.shared.takes_ms.store(takes_ms, Ordering::SeqCst);
    }

    /// Lets whoever waits at the gate go on.
    pub(crate) fn open_gate(&self) {
        self.shared.gate.store(true, Ordering::SeqCst);
    }

    /// Tells a node where it is.
    pub(crate) fn tell(&self, home: &Home) {
        let port = self.port;
        home.write(
            ".local/share/guildhall/models.toml",
            format!(
                "[[endpoint]]\nname = \"here\"\nprovider = \"openai_compatible\"\n\
                 url = \"http://127.0.0.1:{port}/v1\"\ndefault_model = \"thinker\"\n\
                 [endpoint.prices.thinker]\nprompt_micro_usd = 1000000\ncompletion_micro_usd = 2000000\n"
            ),
        );
    }
}

fn answer(stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    let asked = read(stream)?;
    shared.asked.fetch_add(1, Ordering::SeqCst);
    testbed::wait_ms(shared.takes_ms.load(Ordering::SeqCst));
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5 });
    if lines(&asked).any(|line| line == "talk") {
        return talk(stream, shared, &usage);
    }
    let delta = think(&asked);
    let streamed = asked["stream"] == true;
    let reason = if delta["tool_calls"].is_null() { "stop" } else { "tool_calls" };
    let (kind, text) = match streamed {
        true => {
            let first = json!({ "model": "thinker", "choices": [{ "index": 0, "delta": delta }] });
            ("text/event-stream", format!("data: {first}\n\n{}", end(reason, &usage)))
        }
        false => {
            let choice = json!({ "index": 0, "message": delta, "finish_reason": reason });
            let whole = json!({ "model": "thinker", "choices": [choice], "usage": usage });
            ("application/json", whole.to_string())
        }
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len()
    )?;
    if text.len() < HUGE_BYTES {
        return stream.write_all(text.as_bytes());
    }
    let (one, other) = text.as_bytes().split_at(HUGE_BYTES / 2);
    stream.write_all(one)?;
    while !shared.is_open() {
        testbed::wait_ms(10);
    }
    stream.write_all(other)
}

/// The question.
fn read(stream: &TcpStream) -> std::io::Result<Value> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

fn end(reason: &str, usage: &Value) -> String {
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
    let used = json!({ "choices": [], "usage": usage });
    format!("data: {last}\n\ndata: {used}\n\ndata: [DONE]\n\n")
}

/// Says words until the gate is open.
fn talk(mut stream: &TcpStream, shared: &Shared, usage: &Value) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    while !shared.is_open() {
        let delta = json!({ "role": "assistant", "content": WORDS });
        let piece = json!({ "model": "thinker", "choices": [{ "index": 0, "delta": delta }] });
        write!(stream, "data: {piece}\n\n")?;
        testbed::wait_ms(20);
    }
    stream.write_all(end("stop", usage).as_bytes())
}

/// The lines of what users say.
fn lines(asked: &Value) -> impl Iterator<Item = &str> {
    let messages = asked["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let users = messages.iter().filter(|message| message["role"] == "user");
    users.filter_map(|message| message["content"].as_str()).flat_map(str::lines)
}

/// The call that the task asks for next, if it asks for calls.
fn scripted(asked: &Value) -> Option<Value> {
    let mut calls = lines(asked).filter_map(|line| line.strip_prefix("call ")).peekable();
    calls.peek()?;
    let messages = asked["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let answered = messages.iter().filter(|message| message["role"] == "tool").count();
    let Some((name, arguments)) = calls.nth(answered).and_then(|call| call.split_once(' ')) else {
        return Some(json!({ "role": "assistant", "content": "It is done." }));
    };
    let arguments = match arguments {
        HUGE => json!({ "key": "x".repeat(HUGE_BYTES) }).to_string(),
        arguments => arguments.to_owned(),
    };
    let call = json!({
        "index": 0, "id": format!("call_{answered}"), "type": "function",
        "function": { "name": name, "arguments": arguments },
    });
    Some(json!({ "role": "assistant", "content": null, "tool_calls": [call] }))
}

/// What it chooses, if it is shown answers to choose from.
fn judged(asked: &Value) -> Option<Value> {
    let shown: Value = lines(asked).find_map(|line| serde_json::from_str(line).ok())?;
    let answers = shown["answers"].as_object()?.iter();
    let is_right = |text: &Value| {
        let said: Value =
            serde_json::from_str(text.as_str().unwrap_or_default()).unwrap_or_default();
        said["topk"][0]["id"] == "right"
    };
    let winner = answers.filter(|(_, text)| is_right(text)).map(|(name, _)| name).next();
    let content = json!({ "winner": winner, "reason": "it begins with what is right" });
    Some(json!({ "role": "assistant", "content": content.to_string() }))
}

/// Does what the task asks for. Without that it calls the tool once if it may, and then says that it is done.
fn think(asked: &Value) -> Value {
    if let Some(answer) = scripted(asked).or_else(|| judged(asked)) {
        return answer;
    }
    let empty = Vec::new();
    let tools = asked["tools"].as_array().unwrap_or(&empty);
    let may_call = tools.iter().any(|tool| tool["function"]["name"] == TOOL);
    let messages = asked["messages"].as_array().unwrap_or(&empty);
    let has_called = messages.iter().any(|message| message["role"] == "tool");
    if may_call && !has_called {
        let call = json!({
            "index": 0, "id": "call_1", "type": "function",
            "function": { "name": TOOL, "arguments": "{\"key\":\"answer\"}" },
        });
        return json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    }
    json!({ "role": "assistant", "content": "It is done." })
}
