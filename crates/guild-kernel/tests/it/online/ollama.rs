//! As Ollama speaks.

use super::*;

fn line(message: Value) -> Value {
    json!({ "model": "llama", "created_at": "2026-01-01T00:00:00.1Z", "message": message, "done": false })
}

fn last() -> Value {
    json!({
        "model": "llama", "created_at": "2026-01-01T00:00:01Z",
        "message": { "role": "assistant", "content": "" }, "done": true, "done_reason": "stop",
        "total_duration": 5_191_566_416_i64, "load_duration": 2_154_458, "prompt_eval_count": 26,
        "prompt_eval_duration": 383_809_000, "eval_count": 298, "eval_duration": 4_799_921_000_i64,
    })
}

fn lines(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_question_is_asked_as_ollama_wants_it() {
    let stage = Stage::answering(LINES, lines(&[last()]));
    let config = json!({
        "temperature": 0.25, "top_p": 0.5, "max_tokens": 100, "stop": ["END"], "seed": 7,
        "provider_options": { "options": { "num_ctx": 8_192 }, "keep_alive": "5m" },
    });
    let mut endpoint = endpoint(Provider::Ollama, &stage.url);
    endpoint.key = None;
    ask(endpoint, talk(config)).0.unwrap();
    let asked = stage.asked();
    assert_eq!(asked.path, "/api/chat");
    assert!(!asked.headers.contains_key("authorization"));
    let call = |city| json!({ "function": { "name": "weather", "arguments": { "city": city } } });
    let tool = json!({
        "name": "weather", "description": "What the weather is.",
        "parameters": { "type": "object", "properties": { "city": { "type": "string" } } },
    });
    assert_eq!(
        asked.body,
        json!({
            "model": "priced",
            "messages": [
                { "role": "system", "content": "You are a clerk." },
                { "role": "user", "content": "Rome or Oslo?" },
                { "role": "assistant", "content": "I look.", "thinking": "Two cities.",
                  "tool_calls": [call("Rome"), call("Oslo")] },
                { "role": "tool", "tool_name": "weather", "content": "{\"sky\":\"blue\"}" },
                { "role": "tool", "tool_name": "weather", "content": "rain" },
                { "role": "system", "content": "One step is left." },
            ],
            "stream": true,
            "tools": [{ "type": "function", "function": tool }],
            "options": {
                "temperature": 0.25, "top_p": 0.5, "num_predict": 100, "stop": ["END"], "seed": 7,
                "num_ctx": 8_192,
            },
            "keep_alive": "5m",
        })
    );
}

#[test]
fn lines_are_read() {
    let call =
        |city: &str| json!({ "function": { "name": "weather", "arguments": { "city": city } } });
    let said = |content: &str| json!({ "role": "assistant", "content": content });
    let body = lines(&[
        line(json!({ "role": "assistant", "content": "", "thinking": "Two " })),
        line(json!({ "role": "assistant", "content": "", "thinking": "cities." })),
        line(said("I ")),
        line(said("look.")),
        line(json!({ "role": "assistant", "content": "", "tool_calls": [call("Rome")] })),
        line(json!({ "role": "assistant", "content": "", "tool_calls": [call("Oslo")] })),
        last(),
    ]);
    let head = format!("HTTP/1.1 {LINES}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let stage =
        Stage::new(vec![Act::Send([head.as_bytes(), &chunked(&body, 7)].concat()), Act::Wait]);
    let (reply, chunks) = ask(endpoint(Provider::Ollama, &stage.url), hello(json!({})));
    let reply = reply.unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning.as_deref()), ("I look.", Some("Two cities.")));
    assert_eq!(reply.calls, [super::call("", "Rome"), super::call("", "Oslo")]);
    assert_eq!((reply.usage.prompt_tokens, reply.usage.completion_tokens), (26, 298));
    assert_eq!(reply.usage.cost_micro_usd, 4_548);
    assert_eq!(short(&chunks)[..3], ["thought Two ", "thought cities.", "text I "]);
}

#[test]
fn an_answer_that_is_not_streamed_is_read() {
    let mut body = last();
    body["message"]["content"] = json!("Hello.");
    let stage = Stage::answering(JSON, body.to_string());
    let prompt = hello(json!({ "stream": false }));
    let reply = ask(endpoint(Provider::Ollama, &stage.url), prompt).0.unwrap();
    assert_eq!(reply.text, "Hello.");
}

#[test]
fn an_error_in_the_middle_is_no_answer() {
    let said = line(json!({ "role": "assistant", "content": "Hel" }));
    let error = json!({ "error": "model runner has unexpectedly stopped" });
    let stage = Stage::answering(LINES, lines(&[said.clone(), error]));
    let failed = asked(endpoint(Provider::Ollama, &stage.url)).unwrap_err();
    let message = "here: model runner has unexpectedly stopped".to_owned();
    assert_eq!(failed, Failure::Busy { message, retry_after_ms: None, cost_unknown: true });
    // Nor is one without its last line, or with half of it.
    for half in [String::new(), last().to_string()[..100].to_owned()] {
        let stage = Stage::answering(LINES, lines(std::slice::from_ref(&said)) + &half);
        let failed = asked(endpoint(Provider::Ollama, &stage.url)).unwrap_err();
        assert!(matches!(failed, Failure::Busy { .. }), "{failed:?}");
    }
}
