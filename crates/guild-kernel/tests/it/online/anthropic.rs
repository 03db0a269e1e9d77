//! As Anthropic speaks.

use super::*;

/// With the names of the events, as they are sent.
fn stream(data: &[Value]) -> String {
    let event =
        |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    data.iter().map(event).collect()
}

fn start(usage: Value) -> Value {
    json!({ "type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    } })
}

fn begin(index: u32, block: Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn delta(index: u32, delta: Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn json_delta(index: u32, piece: &str) -> Value {
    delta(index, json!({ "type": "input_json_delta", "partial_json": piece }))
}

fn stop(index: u32) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn end(reason: &str, output_tokens: u32) -> [Value; 2] {
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    let usage = json!({ "output_tokens": output_tokens });
    [
        json!({ "type": "message_delta", "delta": delta, "usage": usage }),
        json!({ "type": "message_stop" }),
    ]
}

/// Thoughts, a text, and two calls whose pieces are mixed.
fn with_everything() -> Vec<Value> {
    let usage = json!({
        "input_tokens": 70, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 10,
        "output_tokens": 1, "service_tier": "standard",
    });
    let tool = |id: &str| json!({ "type": "tool_use", "id": id, "name": "weather", "input": {} });
    let mut all = vec![
        start(usage),
        begin(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        json!({ "type": "ping" }),
        delta(0, json!({ "type": "thinking_delta", "thinking": "Zwei " })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "Städte." })),
        delta(0, json!({ "type": "signature_delta", "signature": "EqQB" })),
        delta(0, json!({ "type": "signature_delta", "signature": "zz==" })),
        stop(0),
        begin(1, json!({ "type": "redacted_thinking", "data": "Emwk" })),
        stop(1),
        begin(2, json!({ "type": "text", "text": "" })),
        delta(2, json!({ "type": "text_delta", "text": "I" })),
        delta(2, json!({ "type": "text_delta", "text": " look." })),
        stop(2),
        begin(3, tool("toolu_a")),
        begin(4, tool("toolu_b")),
        json_delta(3, ""),
        json_delta(3, "{\"city\":"),
        json_delta(4, "{\"city\":\"Os"),
        json_delta(3, "\"Rome\"}"),
        json_delta(4, "lo\"}"),
        stop(3),
        stop(4),
        begin(
            5,
            json!({ "type": "server_tool_use", "id": "s", "name": "web_search", "input": {} }),
        ),
        json_delta(5, "{}"),
        stop(5),
    ];
    all.extend(end("tool_use", 200));
    all
}

#[test]
fn a_question_is_asked_as_anthropic_wants_it() {
    for (base, path) in [("", "/v1/messages"), ("/proxy/v1/", "/proxy/v1/messages")] {
        let stage = Stage::answering(EVENTS, stream(&with_everything()));
        let config = json!({
            "temperature": 0.25, "top_p": 0.5, "max_tokens": 100, "stop": "END", "seed": 7,
            "provider_options": { "metadata": { "user_id": "u" }, "messages": [] },
        });
        let url = format!("{}{base}", stage.url);
        ask(endpoint(Provider::Anthropic, &url), talk(config)).0.unwrap();
        let asked = stage.asked();
        assert_eq!(asked.path, path);
        assert_eq!(asked.headers["x-api-key"], KEY);
        assert_eq!(asked.headers["anthropic-version"], "2023-06-01");
        assert!(!asked.headers.contains_key("authorization"));
        let call = |id, city| json!({ "type": "tool_use", "id": id, "name": "weather", "input": { "city": city } });
        let result =
            |id, text| json!({ "type": "tool_result", "tool_use_id": id, "content": text });
        assert_eq!(
            asked.body,
            json!({
                "model": "priced",
                "max_tokens": 100,
                "system": "You are a clerk.",
                "messages": [
                    { "role": "user", "content": "Rome or Oslo?" },
                    { "role": "assistant", "content": [
                        { "type": "text", "text": "I look." }, call("c1", "Rome"), call("c2", "Oslo"),
                    ] },
                    { "role": "user", "content": [
                        result("c1", "{\"sky\":\"blue\"}"), result("c2", "rain"),
                    ] },
                    { "role": "user", "content": "[system] One step is left." },
                ],
                "stream": true,
                "tools": [{
                    "name": "weather", "description": "What the weather is.",
                    "input_schema": { "type": "object", "properties": { "city": { "type": "string" } } },
                }],
                "tool_choice": { "type": "any" },
                "temperature": 0.25, "top_p": 0.5, "stop_sequences": ["END"],
                "metadata": { "user_id": "u" },
            })
        );
    }
}

#[test]
fn everything_comes_in_pieces() {
    let stage = Stage::answering(EVENTS, stream(&with_everything()));
    let (reply, chunks) = ask(endpoint(Provider::Anthropic, &stage.url), hello(json!({})));
    let reply = reply.unwrap();
    assert_eq!(reply.text, "I look.");
    assert_eq!(reply.calls, [call("toolu_a", "Rome"), call("toolu_b", "Oslo")]);
    assert!(reply.reasoning.unwrap().starts_with("Zwei Städte.\n"));
    assert_eq!((reply.usage.prompt_tokens, reply.usage.completion_tokens), (100, 200));
    assert_eq!((reply.usage.cost_micro_usd, reply.usage.cost_unknown), (3_300, false));
    let expected = ["thought Zwei ", "thought Städte.", "text I", "text  look.", "call weather"];
    assert_eq!(short(&chunks)[..5], expected);
}

/// It refuses thoughts that led to calls and come back without their signatures.
#[test]
fn thoughts_come_back_with_their_signatures() {
    let stage = Stage::answering(EVENTS, stream(&with_everything()));
    let reply = asked(endpoint(Provider::Anthropic, &stage.url)).unwrap();
    let again = |provider, reasoning: Option<String>| {
        let stage = Stage::answering(EVENTS, stream(&with_everything()));
        let mut prompt =
            hello(json!({ "provider_options": { "thinking": { "type": "adaptive" } } }));
        let calls = reply.calls.clone();
        prompt.messages.push(Message::Assistant { text: String::new(), reasoning, calls });
        prompt.messages.extend([result("toolu_b", "rain"), result("toolu_a", "sun")]);
        prompt.tools = vec![weather()];
        prompt.must_call = true;
        let _ = ask(endpoint(provider, &stage.url), prompt);
        stage.asked().body
    };
    let body = again(Provider::Anthropic, reply.reasoning.clone());
    let content = body["messages"][1]["content"].as_array().unwrap();
    let thinking =
        json!({ "type": "thinking", "thinking": "Zwei Städte.", "signature": "EqQBzz==" });
    assert_eq!(content[0], thinking);
    assert_eq!(content[1], json!({ "type": "redacted_thinking", "data": "Emwk" }));
    assert_eq!((content.len(), &content[2]["type"]), (4, &json!("tool_use")));
    // Whoever thinks cannot be made to call.
    assert_eq!(body.get("tool_choice"), None);
    // What was changed on the way is left out; others never see a signature.
    let changed = reply.reasoning.as_ref().map(|text| text.replace("Zwei", "Drei!"));
    let body = again(Provider::Anthropic, changed);
    assert_eq!(body["messages"][1]["content"][0]["type"], "tool_use");
    for provider in
        [Provider::OpenAi, Provider::OpenAiCompatible, Provider::Gemini, Provider::Ollama]
    {
        assert!(!again(provider, reply.reasoning.clone()).to_string().contains("EqQB"));
    }
}

#[test]
fn an_answer_that_is_not_streamed_is_read() {
    let body = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
        "content": [
            { "type": "text", "text": "I look." },
            { "type": "tool_use", "id": "toolu_a", "name": "weather", "input": { "city": "Rome" } },
            { "type": "tool_use", "id": "toolu_b", "name": "now", "input": {} },
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": { "input_tokens": 10, "output_tokens": 4 },
    });
    let stage = Stage::answering(JSON, body.to_string());
    let prompt = hello(json!({ "stream": false }));
    let reply = ask(endpoint(Provider::Anthropic, &stage.url), prompt).0.unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning), ("I look.", None));
    assert_eq!(reply.calls[0], call("toolu_a", "Rome"));
    assert_eq!(
        (reply.calls[1].tool_name.as_str(), reply.calls[1].arguments.as_str()),
        ("now", "{}")
    );
    assert_eq!(reply.usage.cost_micro_usd, 90);
    let body = stage.asked().body;
    assert_eq!((&body["stream"], &body["max_tokens"]), (&json!(false), &json!(8_192)));
}

#[test]
fn errors_in_the_middle_and_refusals_are_told_apart() {
    let failed = |events: Vec<Value>| {
        let mut all = vec![start(json!({ "input_tokens": 1, "output_tokens": 1 }))];
        all.extend(events);
        let stage = Stage::answering(EVENTS, stream(&all));
        asked(endpoint(Provider::Anthropic, &stage.url)).unwrap_err()
    };
    let error = |kind, message| json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "r" });
    assert_eq!(
        failed(vec![error("overloaded_error", "Overloaded")]),
        Failure::Busy {
            message: "here: Overloaded".to_owned(),
            retry_after_ms: None,
            cost_unknown: true
        }
    );
    assert_eq!(
        failed(vec![error("invalid_request_error", "no")]),
        Failure::Refused("here: no".to_owned())
    );
    let refused = Failure::Refused("here: the model refuses to answer".to_owned());
    assert_eq!(failed(end("refusal", 1).to_vec()), refused);
    // Said all but the last word.
    let text = begin(0, json!({ "type": "text", "text": "x" }));
    assert!(matches!(failed(vec![text]), Failure::Busy { .. }));
}

#[test]
fn nothing_at_all_is_an_answer() {
    let mut all = vec![start(json!({ "input_tokens": 3, "output_tokens": 1 }))];
    all.extend(end("end_turn", 2));
    let stage = Stage::answering(EVENTS, stream(&all));
    let reply = asked(endpoint(Provider::Anthropic, &stage.url)).unwrap();
    assert_eq!((reply.text.as_str(), reply.calls.len()), ("", 0));
    assert_eq!(reply.usage.cost_micro_usd, 39);
}
