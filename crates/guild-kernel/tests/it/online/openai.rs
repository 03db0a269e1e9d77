//! As OpenAI speaks, and as others think it does.

use super::*;

fn url(stage: &Stage) -> String {
    format!("{}/v1/", stage.url)
}

fn chunk(delta: Value, finish: Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_730_000_000,
        "model": "gpt-x-2026", "system_fingerprint": "fp_1", "service_tier": "default",
        "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }],
        "usage": null,
    })
}

fn usage() -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_730_000_000,
        "model": "gpt-x-2026", "choices": [],
        "usage": {
            "prompt_tokens": 1_000, "completion_tokens": 201, "total_tokens": 1_201,
            "prompt_tokens_details": { "cached_tokens": 0, "audio_tokens": 0 },
            "completion_tokens_details": { "reasoning_tokens": 64 },
        },
    })
}

fn stream(chunks: &[Value]) -> String {
    format!("{}data: [DONE]\n\n", events(chunks))
}

fn answered(body: &str) -> Reply {
    let stage = Stage::answering(EVENTS, body);
    asked(endpoint(Provider::OpenAiCompatible, &url(&stage))).unwrap()
}

#[test]
fn a_question_is_asked_as_openai_wants_it() {
    let stage =
        Stage::answering(EVENTS, stream(&[chunk(json!({ "content": "x" }), json!("stop"))]));
    let config = json!({
        "model": "here/gpt-x", "temperature": 0.25, "top_p": 0.5, "max_tokens": 100, "seed": 7,
        "stop": ["END"], "reasoning_effort": "low", "save_reasoning_content": true,
        "provider_options": { "user": "u", "model": "other", "stream": false },
    });
    ask(endpoint(Provider::OpenAi, &url(&stage)), talk(config)).0.unwrap();
    let asked = stage.asked();
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(asked.headers["content-type"], "application/json");
    assert_eq!(asked.headers["host"], stage.url.strip_prefix("http://").unwrap());
    let call = |id, city| {
        let arguments = json!({ "city": city }).to_string();
        let function = json!({ "name": "weather", "arguments": arguments });
        json!({ "id": id, "type": "function", "function": function })
    };
    let tool = json!({
        "name": "weather", "description": "What the weather is.",
        "parameters": { "type": "object", "properties": { "city": { "type": "string" } } },
    });
    assert_eq!(
        asked.body,
        json!({
            "model": "gpt-x",
            "messages": [
                { "role": "system", "content": "You are a clerk." },
                { "role": "user", "content": "Rome or Oslo?" },
                { "role": "assistant", "content": "I look.",
                  "tool_calls": [call("c1", "Rome"), call("c2", "Oslo")] },
                { "role": "tool", "tool_call_id": "c1", "content": "{\"sky\":\"blue\"}" },
                { "role": "tool", "tool_call_id": "c2", "content": "rain" },
                { "role": "system", "content": "One step is left." },
            ],
            "stream": true,
            "stream_options": { "include_usage": true },
            "tools": [{ "type": "function", "function": tool }],
            "tool_choice": "required",
            "temperature": 0.25, "top_p": 0.5, "seed": 7, "stop": ["END"],
            "reasoning_effort": "low", "max_completion_tokens": 100, "user": "u",
        })
    );
}

#[test]
fn others_are_asked_in_older_words_and_get_their_thoughts_back() {
    let stage = Stage::answering(EVENTS, stream(&[]));
    let config = json!({ "max_tokens": 100, "save_reasoning_content": true });
    let mut endpoint = endpoint(Provider::OpenAiCompatible, &url(&stage));
    endpoint.key = None;
    ask(endpoint, talk(config)).0.unwrap();
    let Asked { headers, body, .. } = stage.asked();
    assert!(!headers.contains_key("authorization"));
    assert_eq!(body["model"], "priced");
    assert_eq!(body["max_tokens"], 100);
    assert_eq!(body["messages"][2]["reasoning_content"], "Two cities.");
    assert_eq!(
        body["messages"][5],
        json!({ "role": "user", "content": "[system] One step is left." })
    );
}

#[test]
fn text_and_thoughts_come_in_pieces() {
    let body = stream(&[
        chunk(json!({ "role": "assistant", "content": "" }), Value::Null),
        chunk(json!({ "reasoning_content": "Easy" }), Value::Null),
        chunk(json!({ "reasoning": "." }), Value::Null),
        chunk(json!({ "content": "Grüß" }), Value::Null),
        chunk(json!({ "content": " Gott 👋" }), Value::Null),
        chunk(json!({}), json!("stop")),
        usage(),
    ]);
    for size in [1, 5, 4_096] {
        let head = format!("HTTP/1.1 {EVENTS}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let body = [head.as_bytes(), &chunked(&body, size), b"0\r\n\r\n"].concat();
        let stage = Stage::new(vec![Act::Send(body)]);
        let (reply, chunks) =
            ask(endpoint(Provider::OpenAi, &url(&stage)), hello(json!({ "model": "priced" })));
        let reply = reply.unwrap();
        assert_eq!(reply.text, "Grüß Gott 👋");
        assert_eq!(reply.reasoning.as_deref(), Some("Easy."));
        assert_eq!(reply.calls, []);
        let usage = reply.usage;
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (1_000, 201));
        assert_eq!((usage.cost_micro_usd, usage.cost_unknown), (6_015, false));
        assert_eq!(usage.model.as_deref(), Some("here/priced"));
        assert_eq!(short(&chunks), ["thought Easy", "thought .", "text Grüß", "text  Gott 👋"]);
    }
}

#[test]
fn calls_come_at_once_and_their_arguments_in_pieces() {
    let piece = |index: u32, arguments: &str| {
        let call = json!({ "index": index, "function": { "arguments": arguments } });
        chunk(json!({ "tool_calls": [call] }), Value::Null)
    };
    let begin = |index: u32, id: &str| {
        let function = json!({ "name": "weather", "arguments": "" });
        let call = json!({ "index": index, "id": id, "type": "function", "function": function });
        chunk(json!({ "role": "assistant", "content": null, "tool_calls": [call] }), Value::Null)
    };
    let body = stream(&[
        begin(0, "call_a"),
        piece(0, "{\"ci"),
        piece(0, "ty\":\"Rome\"}"),
        begin(1, "call_b"),
        piece(1, "{\"city\":"),
        piece(1, "\"Oslo\"}"),
        chunk(json!({}), json!("tool_calls")),
    ]);
    let stage = Stage::answering(EVENTS, body);
    let (reply, chunks) = ask(endpoint(Provider::OpenAi, &url(&stage)), hello(json!({})));
    let reply = reply.unwrap();
    assert_eq!(reply.calls, [call("call_a", "Rome"), call("call_b", "Oslo")]);
    assert_eq!((reply.text.as_str(), reply.reasoning), ("", None));
    // Nobody said what was used.
    assert!(reply.usage.cost_unknown);
    let expected = ["call weather", "call {\"ci", "call ty\":\"Rome\"}", "call weather"];
    assert_eq!(short(&chunks)[..4], expected);
}

#[test]
fn sloppy_services_are_understood() {
    let call = |call: Value| chunk(json!({ "tool_calls": [call] }), Value::Null);
    let function =
        |city: &str| json!({ "name": "weather", "arguments": json!({ "city": city }).to_string() });
    let end = chunk(json!({}), json!("tool_calls"));
    // All numbered zero.
    let same = stream(&[
        call(json!({ "index": 0, "id": "a", "function": function("Rome") })),
        call(json!({ "index": 0, "id": "b", "function": function("Oslo") })),
        end.clone(),
    ]);
    assert_eq!(answered(&same).calls, [super::call("a", "Rome"), super::call("b", "Oslo")]);
    // Not numbered, and without ids.
    let none = stream(&[
        call(json!({ "function": function("Rome") })),
        call(json!({ "function": function("Oslo") })),
        end.clone(),
    ]);
    assert_eq!(answered(&none).calls, [super::call("", "Rome"), super::call("", "Oslo")]);
    // Not numbered, in pieces, the name again with each.
    let again = stream(&[
        call(json!({ "id": "a", "function": { "name": "weather", "arguments": "{\"city\":" } })),
        call(json!({ "id": "a", "function": { "name": "weather", "arguments": "\"Rome\"}" } })),
        end.clone(),
    ]);
    assert_eq!(answered(&again).calls, [super::call("a", "Rome")]);
    // Numbered absurdly, the arguments an object.
    let absurd = json!({ "index": u32::MAX, "id": "a", "function": { "name": "weather", "arguments": { "city": "Rome" } } });
    assert_eq!(answered(&stream(&[call(absurd), end.clone()])).calls, [super::call("a", "Rome")]);
    // No arguments at all; an id that cannot be kept; arguments that are no JSON stay what they are.
    let odd = stream(&[
        call(json!({ "index": 0, "id": "x".repeat(300), "function": { "name": "now" } })),
        call(json!({ "index": 1, "id": "b", "function": { "name": "now", "arguments": "{\"a" } })),
        end,
    ]);
    let calls = answered(&odd).calls;
    assert_eq!((calls[0].id.as_str(), calls[0].arguments.as_str()), ("", "{}"));
    assert_eq!(calls[1].arguments, "{\"a");
    // A list of texts and thoughts, no end but the last word, usage in a list of no choices at all.
    let thinking = json!([{ "type": "text", "text": "hm" }]);
    let parts =
        json!([{ "type": "thinking", "thinking": thinking }, { "type": "text", "text": "No" }]);
    let last = json!({ "choices": null, "usage": { "prompt_tokens": 2, "completion_tokens": 1 } });
    let reply = answered(&stream(&[chunk(json!({ "content": parts }), Value::Null), last]));
    assert_eq!((reply.text.as_str(), reply.reasoning.as_deref()), ("No", Some("hm")));
    assert_eq!(reply.usage.cost_micro_usd, 21);
    // A refusal is what it says.
    let refusal = chunk(json!({ "refusal": "I can't." }), json!("stop"));
    assert_eq!(answered(&stream(&[refusal])).text, "I can't.");
    // Nothing is said.
    let nothing = chunk(json!({ "content": null }), json!("stop"));
    assert_eq!(answered(&stream(&[nothing])).text, "");
}

#[test]
fn an_answer_that_is_not_streamed_is_read() {
    let function = json!({ "name": "weather", "arguments": "{\"city\":\"Rome\"}" });
    let message = json!({
        "role": "assistant", "content": "I look.", "reasoning_content": "hm", "refusal": null,
        "tool_calls": [{ "id": "call_a", "type": "function", "function": function }],
        "annotations": [],
    });
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_730_000_000, "model": "gpt-x",
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": "tool_calls" }],
        "usage": { "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14 },
    });
    let stage = Stage::answering(JSON, serde_json::to_vec_pretty(&body).unwrap());
    let (reply, chunks) =
        ask(endpoint(Provider::OpenAi, &url(&stage)), hello(json!({ "stream": false })));
    let reply = reply.unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning.as_deref()), ("I look.", Some("hm")));
    assert_eq!(reply.calls, [call("call_a", "Rome")]);
    assert_eq!(reply.usage.cost_micro_usd, 90);
    assert_eq!(chunks.len(), 4);
    let body = stage.asked().body;
    assert_eq!(body["stream"], false);
    assert_eq!(body.get("stream_options"), None);
    assert_eq!(body.get("tools"), None);
    assert_eq!(body.get("tool_choice"), None);
}

#[test]
fn a_model_without_a_price_costs_what_nobody_knows() {
    let stage = Stage::answering(EVENTS, stream(&[chunk(json!({}), json!("stop")), usage()]));
    let (reply, _) =
        ask(endpoint(Provider::OpenAi, &url(&stage)), hello(json!({ "model": "new" })));
    let usage = reply.unwrap().usage;
    assert_eq!((usage.prompt_tokens, usage.cost_micro_usd, usage.cost_unknown), (1_000, 0, true));
    assert_eq!(usage.model.as_deref(), Some("here/new"));
}
