//! A service with a model, as agents ask it: it speaks as OpenAI does, on loopback.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::support::Home;

/// The tool that it calls if it may.
pub(crate) const TOOL: &str = "look_up";

/// It answers until the test ends.
pub(crate) struct Thinker {
    port: u16,
    asked: Arc<AtomicU64>,
}

impl Thinker {
    pub(crate) fn start() -> Thinker {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let count = count.clone();
                // A worker that is killed leaves a broken connection: that ends this thread alone.
                std::thread::spawn(move || answer(&stream, &count).unwrap_or_default());
            }
        });
        Thinker { port, asked }
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
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

fn answer(stream: &TcpStream, count: &AtomicU64) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
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
    count.fetch_add(1, Ordering::SeqCst);
    let asked: Value = serde_json::from_slice(&body)?;
    let delta = think(&asked);
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5 });
    let streamed = asked["stream"] == true;
    let (kind, text) = match streamed {
        true => {
            let reason = if delta["tool_calls"].is_null() { "stop" } else { "tool_calls" };
            let first = json!({ "model": "thinker", "choices": [{ "index": 0, "delta": delta }] });
            let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
            let used = json!({ "choices": [], "usage": usage });
            let text = format!("data: {first}\n\ndata: {last}\n\ndata: {used}\n\ndata: [DONE]\n\n");
            ("text/event-stream", text)
        }
        false => {
            let reason = if delta["tool_calls"].is_null() { "stop" } else { "tool_calls" };
            let choice = json!({ "index": 0, "message": delta, "finish_reason": reason });
            let whole = json!({ "model": "thinker", "choices": [choice], "usage": usage });
            ("application/json", whole.to_string())
        }
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
}

/// Calls the tool once if it may; then says that it is done.
fn think(asked: &Value) -> Value {
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
