//! Everything that can go wrong on the way.

use super::*;

fn failed(stage: &Stage) -> Failure {
    asked(endpoint(Provider::OpenAiCompatible, &stage.url)).unwrap_err()
}

fn busy(message: &str, retry_after_ms: Option<i64>) -> Failure {
    Failure::Busy { message: message.to_owned(), retry_after_ms, cost_unknown: false }
}

/// It was asked, and may have worked.
fn broken(message: &str) -> Failure {
    Failure::Busy { message: message.to_owned(), retry_after_ms: None, cost_unknown: true }
}

fn delta(text: &str) -> String {
    events(&[json!({ "choices": [{ "index": 0, "delta": { "content": text } }] })])
}

const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

#[test]
fn a_status_says_whether_to_ask_again() {
    let json = "Content-Type: application/json";
    let status = |head: &str, body: Value| {
        failed(&Stage::answering(&format!("{head}\r\n{json}"), body.to_string()))
    };
    let openai = |kind: &str, code: Value, message: &str| json!({ "error": { "message": message, "type": kind, "param": null, "code": code } });
    let anthropic = |kind: &str, message: &str| json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "r" });
    let gemini = |code: u32, status: &str, message: &str| json!({ "error": { "code": code, "message": message, "status": status } });
    assert_eq!(
        status("400 Bad Request", openai("invalid_request_error", json!(null), "Invalid 'tools'.")),
        Failure::Refused("here: 400 Bad Request: Invalid 'tools'.".to_owned())
    );
    // It repeats the key.
    let body = openai(
        "invalid_request_error",
        json!("invalid_api_key"),
        &format!("Incorrect API key: {KEY}."),
    );
    assert_eq!(
        status("401 Unauthorized", body),
        Failure::Refused("here: 401 Unauthorized: Incorrect API key: [key].".to_owned())
    );
    assert_eq!(
        status("404 Not Found", anthropic("not_found_error", "model: x")),
        Failure::Refused("here: 404 Not Found: model: x".to_owned())
    );
    assert_eq!(
        status("404 Not Found", json!({ "error": "model 'x' not found" })),
        Failure::Refused("here: 404 Not Found: model 'x' not found".to_owned())
    );
    assert_eq!(
        status(
            "429 Too Many Requests\r\nRetry-After: 20",
            openai("tokens", json!("rate_limit_exceeded"), "Slow down")
        ),
        busy("here: 429 Too Many Requests: Slow down", Some(20_000))
    );
    assert_eq!(
        status(
            "429 Too Many Requests",
            openai("insufficient_quota", json!("insufficient_quota"), "Pay")
        ),
        Failure::Refused("here: 429 Too Many Requests: Pay".to_owned())
    );
    assert_eq!(
        failed(&Stage::answering(
            "429 Too Many Requests\r\nRetry-After: Tue, 29 Oct 2024 16:56:05 GMT",
            ""
        )),
        busy("here: 429 Too Many Requests", Some(5_000))
    );
    assert_eq!(
        status(
            "500 Internal Server Error",
            gemini(500, "INTERNAL", "An internal error has occurred.")
        ),
        busy("here: 500 Internal Server Error: An internal error has occurred.", None)
    );
    assert_eq!(
        status("529 Overloaded", anthropic("overloaded_error", "Overloaded")),
        busy("here: 529 <unknown status code>: Overloaded", None)
    );
    let page = "<html><head><title>502 Bad Gateway</title></head></html>";
    assert_eq!(
        failed(&Stage::answering("502 Bad Gateway\r\nContent-Type: text/html", page)),
        busy("here: 502 Bad Gateway: a web page", None)
    );
    // A way elsewhere is not followed: it would take the key along.
    assert!(matches!(
        status("307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/", Value::Null),
        Failure::Refused(_)
    ));
}

#[test]
fn a_refusal_that_never_ends_is_read_to_a_limit() {
    // The key stands across the place where it is cut for showing.
    let text = format!("{}{KEY}{}", "x".repeat(360), "y".repeat(2_000_000));
    let stage = Stage::answering("400 Bad Request", text);
    let Failure::Refused(message) = failed(&stage) else { panic!("busy") };
    assert!(message.chars().count() <= 401, "{message}");
    assert!(message.contains("xxx[key]yyy") && !message.contains("sk-"), "{message}");
}

#[test]
fn a_stream_that_is_cut_is_no_answer() {
    let chunk = |text: &str| chunked(text, 4_096);
    let head = format!("HTTP/1.1 {EVENTS}\r\nTransfer-Encoding: chunked\r\n\r\n");
    // In the middle of a chunk, between two, and with an end but without the last word.
    let half = [head.as_bytes(), b"fff\r\n", delta("Hel").as_bytes()].concat();
    let between = [head.as_bytes(), &chunk(&delta("Hel"))].concat();
    let ended = [head.as_bytes(), &chunk(&delta("Hel")), b"0\r\n\r\n"].concat();
    let nothing = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec();
    let silent = Vec::new();
    let noise = b"SSH-2.0-OpenSSH_9\r\n".to_vec();
    for bytes in [half, between, ended, nothing, silent, noise] {
        let failed = failed(&Stage::new(vec![Act::Send(bytes)]));
        assert!(matches!(failed, Failure::Busy { retry_after_ms: None, .. }), "{failed:?}");
    }
    // Neither is half a text that is not streamed.
    let failed = failed(&Stage::answering(JSON, "{\"choices\": [{\"message\": {\"content\": \"He"));
    assert!(matches!(failed, Failure::Busy { .. }), "{failed:?}");
    // All was said, and then the line broke: that is one.
    let all = [head.as_bytes(), &chunk(&(delta("Hello") + END)), b"ff\r\n"].concat();
    let stage = Stage::new(vec![Act::Send(all)]);
    let reply = asked(endpoint(Provider::OpenAiCompatible, &stage.url)).unwrap();
    assert_eq!(reply.text, "Hello");
}

/// Asks a service that stops after this, with a clock that runs out once the text was seen.
fn stalled(bytes: Vec<u8>, last: &'static str) -> Result<Reply, Failure> {
    let stage = Stage::new(vec![Act::Send(bytes), Act::Wait]);
    let clock = Arc::<Still>::default();
    let late = clock.clone();
    let seen = move |chunk: &Chunk| {
        if *chunk == Chunk::Text(last.to_owned()) {
            late.make_late();
        }
    };
    let endpoint = endpoint(Provider::OpenAiCompatible, &stage.url);
    let (reply, _) = ask_with(endpoint, Limits::default(), clock, hello(json!({})), seen);
    stage.gone.recv().unwrap();
    reply
}

#[test]
fn a_stream_that_stalls_ends() {
    let head = format!("HTTP/1.1 {EVENTS}\r\n\r\n");
    let failed = stalled((head.clone() + &delta("Hel")).into_bytes(), "Hel").unwrap_err();
    assert_eq!(failed, broken("here: it did not go on within 60000 ms"));
    // All was said, and nobody closed the line.
    let reply = stalled((head + &delta("Hello") + END).into_bytes(), "Hello").unwrap();
    assert_eq!(reply.text, "Hello");
}

#[test]
fn a_service_that_never_begins_is_left() {
    let stage = Stage::new(vec![Act::Wait]);
    let clock = Arc::<Still>::default();
    let endpoint = endpoint(Provider::OpenAiCompatible, &stage.url);
    let endpoints = Endpoints { list: vec![endpoint], ..Endpoints::default() };
    let model = Online::new(endpoints, Arc::new(StillClock(clock.clone()))).unwrap();
    let asked =
        std::thread::spawn(move || block_on(model.answer(hello(json!({})), Box::new(|_| ()))));
    // Only once it was asked is it too late.
    stage.asked();
    clock.make_late();
    let failed = asked.join().unwrap().unwrap_err();
    assert_eq!(failed, broken("here: it did not begin to answer within 300000 ms"));
    stage.gone.recv().unwrap();
}

#[test]
fn whoever_stops_waiting_ends_the_connection() {
    let head = format!("HTTP/1.1 {EVENTS}\r\n\r\n") + &delta("Hel");
    let stage = Stage::new(vec![Act::Send(head.into_bytes()), Act::Wait]);
    let endpoint = endpoint(Provider::OpenAiCompatible, &stage.url);
    let endpoints = Endpoints { list: vec![endpoint], ..Endpoints::default() };
    let model = Online::new(endpoints, Arc::new(StillClock(Arc::default()))).unwrap();
    let seen = Arc::new(AtomicBool::new(false));
    let mark = seen.clone();
    let sink = Box::new(move |_| mark.store(true, Ordering::SeqCst));
    let mut answer = model.answer(hello(json!({})), sink);
    block_on(poll_fn(|cx| {
        let is_pending = answer.as_mut().poll(cx).is_pending();
        assert!(is_pending);
        if seen.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }));
    drop(answer);
    stage.gone.recv().unwrap();
}

#[test]
fn nobody_is_there() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failed =
        asked(endpoint(Provider::OpenAiCompatible, &format!("http://{free}"))).unwrap_err();
    let Failure::Busy { message, retry_after_ms: None, cost_unknown: false } = failed else {
        panic!("{failed:?}")
    };
    assert!(message.starts_with("here: connecting failed: "), "{message}");
}

#[test]
fn a_service_without_tls_is_not_told_the_key() {
    let stage = Stage::answering(EVENTS, delta("x") + END);
    let url = stage.url.replace("http://", "https://");
    let failed = asked(endpoint(Provider::OpenAiCompatible, &url)).unwrap_err();
    assert!(matches!(failed, Failure::Busy { .. }), "{failed:?}");
    assert!(stage.asked.recv().is_err());
}

#[test]
fn what_cannot_be_read_is_garbled() {
    let page = "<!doctype html><html></html>";
    let calls = |count: usize| {
        let call = |index| json!({ "index": index, "id": format!("c{index}"), "function": { "name": "x" } });
        let calls: Vec<_> = (0..count).map(call).collect();
        events(&[json!({ "choices": [{ "index": 0, "delta": { "tool_calls": calls } }] })]) + END
    };
    for (head, body) in [
        ("200 OK\r\nContent-Type: text/html", page.to_owned()),
        ("200 OK", page.to_owned()),
        (JSON, "{\"choices\": [}".to_owned()),
        (JSON, "no".to_owned()),
        (EVENTS, "data: {\"choices\": [}\n\n".to_owned()),
        ("200 OK\r\nContent-Type: application/json\r\nContent-Encoding: br", "x".to_owned()),
        (EVENTS, calls(65)),
    ] {
        let failed = failed(&Stage::answering(head, body));
        assert!(matches!(failed, Failure::Garbled(_)), "{head}: {failed:?}");
    }
    let stage = Stage::answering(EVENTS, calls(64));
    let reply = asked(endpoint(Provider::OpenAiCompatible, &stage.url)).unwrap();
    assert_eq!(reply.calls.len(), 64);
}

/// Ten megabytes and no more: as one text, as many events, and as a line that never ends.
#[test]
fn an_answer_has_an_end() {
    let too_long = Failure::Garbled("here: the answer is longer than 10000000 bytes".to_owned());
    let event = delta(&"x".repeat(100_000));
    let many: String = std::iter::repeat_n(event.as_str(), 101).collect();
    let whole = json!({ "choices": [{ "message": { "content": "x".repeat(11_000_000) } }] });
    let line = format!("data: {}", "x".repeat(11_000_000));
    let blank = " ".repeat(11_000_000);
    for (head, body) in
        [(EVENTS, many), (JSON, whole.to_string()), (EVENTS, line), ("200 OK", blank)]
    {
        assert_eq!(failed(&Stage::answering(head, body)), too_long, "{head}");
    }
    // A little less is taken.
    let most: String = std::iter::repeat_n(event.as_str(), 99).collect();
    let stage = Stage::answering(EVENTS, most + END);
    let reply = asked(endpoint(Provider::OpenAiCompatible, &stage.url)).unwrap();
    assert_eq!(reply.text.len(), 9_900_000);
}

#[test]
fn a_name_that_leads_nowhere_is_refused() {
    let url = "http://127.0.0.1:1";
    let refused = |endpoint: Endpoint, config: Value| {
        let (answer, _) = ask(endpoint, hello(config));
        assert!(matches!(answer, Err(Failure::Refused(_))), "{answer:?}");
    };
    let here = || endpoint(Provider::OpenAi, url);
    refused(here(), json!({ "model": 3 }));
    refused(here(), json!({ "model": "a b" }));
    refused(Endpoint { default_model: None, ..here() }, json!({}));
    refused(Endpoint { default_model: None, ..here() }, json!({ "model": "here/" }));
    refused(Endpoint { default_model: None, ..here() }, Value::Null);
}
