//! Models behind a line: services that play what these services send, and everything that can go wrong on the way.

mod anthropic;
mod failures;
mod foreign;
mod gemini;
mod ollama;
mod openai;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};

use guild_kernel::model::{
    Chunk, Endpoint, Endpoints, Failure, Limits, Message, Model, ModelCall, Online, Price, Prompt,
    Provider, Reply, Secret, ToolSpec,
};
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use serde_json::{Value, json};

const KEY: &str = "sk-test-0123456789";

/// A clock that stands still until it is told that all waits are over.
#[derive(Default)]
struct Still {
    is_late: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Still {
    fn make_late(&self) {
        self.is_late.store(true, Ordering::SeqCst);
        self.wakers.lock().unwrap().drain(..).for_each(Waker::wake);
    }
}

struct StillClock(Arc<Still>);

impl Clock for StillClock {
    fn now_ms(&self) -> UnixMs {
        1_730_220_960_000
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        let still = self.0.clone();
        Box::pin(poll_fn(move |cx| {
            still.wakers.lock().unwrap().push(cx.waker().clone());
            if still.is_late.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        }))
    }
}

/// What a service was asked.
#[derive(Debug)]
struct Asked {
    path: String,
    headers: BTreeMap<String, String>,
    body: Value,
}

/// What a service does once it was asked.
enum Act {
    Send(Vec<u8>),
    /// Waits until the other side is gone.
    Wait,
}

/// A service that answers one question.
struct Stage {
    url: String,
    asked: mpsc::Receiver<Asked>,
    /// Says when the other side is gone.
    gone: mpsc::Receiver<()>,
}

impl Stage {
    fn new(acts: Vec<Act>) -> Stage {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let ((ask, asked), (go, gone)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            // Whoever does not speak HTTP is not answered.
            let Some(question) = read(&stream) else { return };
            let _ = ask.send(question);
            play(stream, acts, &go);
        });
        Stage { url, asked, gone }
    }

    /// Answers with this head and body, and ends the connection.
    fn answering(head: &str, body: impl AsRef<[u8]>) -> Stage {
        let head = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n");
        Stage::new(vec![Act::Send([head.as_bytes(), body.as_ref()].concat())])
    }

    fn asked(&self) -> Asked {
        self.asked.recv().unwrap()
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.strip_prefix("POST ")?.split(' ').next()?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { path, headers, body: serde_json::from_slice(&body).unwrap() })
}

fn play(mut stream: TcpStream, acts: Vec<Act>, gone: &mpsc::Sender<()>) {
    for act in acts {
        match act {
            // Whoever has read enough goes away in the middle.
            Act::Send(bytes) => drop(stream.write_all(&bytes)),
            Act::Wait => {
                while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
                let _ = gone.send(());
            }
        }
    }
}

/// Server-sent events, as they stand in documentation: each a JSON text, named by its type if it has one.
fn events(data: &[Value]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

/// The same in chunks that end anywhere, in the middle of letters, too.
fn chunked(body: &str, size: usize) -> Vec<u8> {
    let chunk = |part: &[u8]| [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
    body.as_bytes().chunks(size).flat_map(chunk).collect()
}

const EVENTS: &str = "200 OK\r\nContent-Type: text/event-stream; charset=utf-8";
const JSON: &str = "200 OK\r\nContent-Type: application/json";
const LINES: &str = "200 OK\r\nContent-Type: application/x-ndjson";

fn endpoint(provider: Provider, url: &str) -> Endpoint {
    let price = Price { prompt_micro_usd: 3_000_000, completion_micro_usd: 15_000_000 };
    Endpoint {
        name: "here".to_owned(),
        provider,
        url: Some(url.to_owned()),
        key: Some(Secret::new(KEY)),
        default_model: Some("priced".to_owned()),
        prices: BTreeMap::from([("priced".to_owned(), price)]),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(future)
}

/// Asks once. Chunks are seen as they come.
fn ask_with(
    endpoint: Endpoint,
    limits: Limits,
    clock: Arc<Still>,
    prompt: Prompt,
    mut seen: impl FnMut(&Chunk) + Send + 'static,
) -> (Result<Reply, Failure>, Vec<Chunk>) {
    let endpoints = Endpoints { list: vec![endpoint], limits };
    let model = Online::new(endpoints, Arc::new(StillClock(clock))).unwrap();
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let kept = chunks.clone();
    let sink = Box::new(move |chunk| {
        seen(&chunk);
        kept.lock().unwrap().push(chunk);
    });
    let answer = block_on(model.answer(prompt, sink));
    let chunks = std::mem::take(&mut *chunks.lock().unwrap());
    (answer, chunks)
}

fn ask(endpoint: Endpoint, prompt: Prompt) -> (Result<Reply, Failure>, Vec<Chunk>) {
    ask_with(endpoint, Limits::default(), Arc::default(), prompt, |_| ())
}

/// Asks something small.
fn asked(endpoint: Endpoint) -> Result<Reply, Failure> {
    ask(endpoint, hello(json!({}))).0
}

fn hello(config: Value) -> Prompt {
    Prompt { config, messages: vec![Message::User("Hello".to_owned())], ..Prompt::default() }
}

fn call(id: &str, city: &str) -> ModelCall {
    let arguments = format!("{{\"city\":\"{city}\"}}");
    ModelCall { id: id.to_owned(), tool_name: "weather".to_owned(), arguments }
}

fn result(id: &str, text: &str) -> Message {
    Message::Tool { model_call_id: id.into(), tool_name: "weather".into(), text: text.into() }
}

fn weather() -> ToolSpec {
    let city = json!({ "type": "string" });
    ToolSpec {
        name: "weather".to_owned(),
        description: "What the weather is.".to_owned(),
        parameters: json!({ "type": "object", "properties": { "city": city } }),
    }
}

/// A talk with all that there can be: what was called came back in another order, and the system speaks twice.
fn talk(config: Value) -> Prompt {
    Prompt {
        config,
        messages: vec![
            Message::System("You are a clerk.".to_owned()),
            Message::User("Rome or Oslo?".to_owned()),
            Message::Assistant {
                text: "I look.".to_owned(),
                reasoning: Some("Two cities.".to_owned()),
                calls: vec![call("c1", "Rome"), call("c2", "Oslo")],
            },
            result("c2", "rain"),
            result("c1", "{\"sky\":\"blue\"}"),
            Message::System("One step is left.".to_owned()),
        ],
        tools: vec![weather()],
        must_call: true,
    }
}

/// What a piece of an answer is, in short.
fn short(chunks: &[Chunk]) -> Vec<String> {
    let short = |chunk: &Chunk| match chunk {
        Chunk::Text(text) => format!("text {text}"),
        Chunk::Reasoning(text) => format!("thought {text}"),
        Chunk::Call(text) => format!("call {text}"),
    };
    chunks.iter().map(short).collect()
}
