//! As Gemini speaks.

use super::*;

fn piece(parts: Value, finish: Option<&str>) -> Value {
    let mut candidate = json!({ "content": { "parts": parts, "role": "model" }, "index": 0 });
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": 90, "toolUsePromptTokenCount": 10, "candidatesTokenCount": 30,
            "thoughtsTokenCount": 20, "totalTokenCount": 150,
        },
        "modelVersion": "gemini-x", "responseId": "r1",
    })
}

fn url(stage: &Stage) -> String {
    format!("{}/v1beta", stage.url)
}

fn calls() -> Vec<Value> {
    let part =
        |city: &str| json!({ "functionCall": { "name": "weather", "args": { "city": city } } });
    let mut first = part("Rome");
    first["thoughtSignature"] = json!("CsUBAVE=");
    vec![
        piece(
            json!([{ "text": "Two ", "thought": true }, { "text": "cities.", "thought": true }]),
            None,
        ),
        piece(json!([{ "text": "I " }]), None),
        piece(json!([{ "text": "look." }]), None),
        piece(json!([first, part("Oslo")]), None),
        piece(json!([{ "text": "", "thoughtSignature": "unused" }]), Some("STOP")),
    ]
}

#[test]
fn a_question_is_asked_as_gemini_wants_it() {
    let stage = Stage::answering(EVENTS, events(&calls()));
    let config = json!({
        "model": "models/gemini-2.5-pro", "temperature": 0.25, "top_p": 0.5, "max_tokens": 100,
        "stop": ["END"], "seed": 7, "tool_choice": { "name": "weather" },
        "provider_options": {
            "generationConfig": { "thinkingConfig": { "includeThoughts": true } }, "contents": [],
        },
    });
    ask(endpoint(Provider::Gemini, &url(&stage)), talk(config)).0.unwrap();
    let asked = stage.asked();
    assert_eq!(asked.path, "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse");
    assert_eq!(asked.headers["x-goog-api-key"], KEY);
    let call = |city| json!({ "functionCall": { "name": "weather", "args": { "city": city } } });
    let result =
        |response| json!({ "functionResponse": { "name": "weather", "response": response } });
    assert_eq!(
        asked.body,
        json!({
            "systemInstruction": { "parts": [{ "text": "You are a clerk." }] },
            "contents": [
                { "role": "user", "parts": [{ "text": "Rome or Oslo?" }] },
                { "role": "model", "parts": [{ "text": "I look." }, call("Rome"), call("Oslo")] },
                { "role": "user", "parts": [
                    result(json!({ "sky": "blue" })), result(json!({ "result": "rain" })),
                ] },
                { "role": "user", "parts": [{ "text": "[system] One step is left." }] },
            ],
            "tools": [{ "functionDeclarations": [{
                "name": "weather", "description": "What the weather is.",
                "parametersJsonSchema": { "type": "object", "properties": { "city": { "type": "string" } } },
            }] }],
            "toolConfig": { "functionCallingConfig": {
                "mode": "ANY", "allowedFunctionNames": ["weather"],
            } },
            "generationConfig": {
                "temperature": 0.25, "topP": 0.5, "maxOutputTokens": 100, "stopSequences": ["END"],
                "seed": 7, "thinkingConfig": { "includeThoughts": true },
            },
        })
    );
}

#[test]
fn calls_come_whole_and_without_ids() {
    let stage = Stage::answering(EVENTS, events(&calls()));
    let (reply, chunks) = ask(endpoint(Provider::Gemini, &url(&stage)), hello(json!({})));
    let reply = reply.unwrap();
    assert_eq!(reply.text, "I look.");
    assert_eq!(reply.calls, [call("", "Rome"), call("", "Oslo")]);
    assert!(reply.reasoning.unwrap().starts_with("Two cities.\n"));
    assert_eq!((reply.usage.prompt_tokens, reply.usage.completion_tokens), (100, 50));
    assert_eq!(reply.usage.cost_micro_usd, 1_050);
    assert_eq!(short(&chunks)[..3], ["thought Two ", "thought cities.", "text I "]);
}

/// Newer models refuse calls that come back without their signatures.
#[test]
fn calls_come_back_with_their_signatures() {
    let stage = Stage::answering(EVENTS, events(&calls()));
    let reply = asked(endpoint(Provider::Gemini, &url(&stage))).unwrap();
    let again = |model: &str, reasoning: Option<String>| {
        let stage = Stage::answering(EVENTS, events(&calls()));
        let mut prompt = hello(json!({ "model": model }));
        let calls = reply.calls.clone();
        prompt.messages.push(Message::Assistant { text: String::new(), reasoning, calls });
        prompt.messages.extend([result("", "sun"), result("", "rain")]);
        ask(endpoint(Provider::Gemini, &url(&stage)), prompt).0.unwrap();
        let body = stage.asked().body;
        let results = &body["contents"][2]["parts"];
        let result = |place: usize| &results[place]["functionResponse"]["response"]["result"];
        assert_eq!((result(0), result(1)), (&json!("sun"), &json!("rain")));
        let parts = &body["contents"][1]["parts"];
        [0, 1].map(|place| parts[place].get("thoughtSignature").cloned())
    };
    let signed = || reply.reasoning.clone();
    assert_eq!(again("gemini-3-pro", signed()), [Some(json!("CsUBAVE=")), None]);
    assert_eq!(again("gemini-2.5-pro", signed()), [Some(json!("CsUBAVE=")), None]);
    let unsigned = Some(json!("skip_thought_signature_validator"));
    assert_eq!(again("gemini-3-pro", None), [unsigned, None]);
    assert_eq!(again("gemini-2.5-pro", Some("Hm.".to_owned())), [None, None]);
}

#[test]
fn an_answer_that_is_not_streamed_is_read() {
    let body = piece(json!([{ "text": "Hello." }]), Some("STOP"));
    let stage = Stage::answering(JSON, body.to_string());
    let prompt = hello(json!({ "stream": false }));
    let reply = ask(endpoint(Provider::Gemini, &url(&stage)), prompt).0.unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning), ("Hello.", None));
    assert_eq!(stage.asked().path, "/v1beta/models/priced:generateContent");
    // A proxy that does not know `alt=sse` sends a list.
    let list = json!([
        piece(json!([{ "text": "Hel" }]), None),
        piece(json!([{ "text": "lo." }]), Some("STOP"))
    ]);
    let stage = Stage::answering(JSON, list.to_string());
    assert_eq!(asked(endpoint(Provider::Gemini, &url(&stage))).unwrap().text, "Hello.");
    // Nothing written is a count that is left out.
    let nothing = json!({
        "candidates": [{ "finishReason": "STOP" }], "usageMetadata": { "promptTokenCount": 2 },
    });
    let stage = Stage::answering(EVENTS, events(&[nothing]));
    let reply = asked(endpoint(Provider::Gemini, &url(&stage))).unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.usage.cost_micro_usd, reply.usage.cost_unknown),
        ("", 6, false)
    );
}

#[test]
fn what_is_withheld_is_refused() {
    let failed = |event: Value| {
        let stage = Stage::answering(EVENTS, events(&[event]));
        asked(endpoint(Provider::Gemini, &url(&stage))).unwrap_err()
    };
    let blocked = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" } });
    let refused = "here: the question is refused: PROHIBITED_CONTENT";
    assert_eq!(failed(blocked), Failure::Refused(refused.to_owned()));
    let withheld = json!({ "candidates": [{ "finishReason": "SAFETY", "index": 0 }] });
    let refused = "here: the answer is withheld: SAFETY";
    assert_eq!(failed(withheld), Failure::Refused(refused.to_owned()));
    let chance = json!({ "candidates": [{ "finishReason": "MALFORMED_FUNCTION_CALL" }] });
    assert!(matches!(failed(chance), Failure::Busy { .. }));
    let error =
        json!({ "error": { "code": 503, "message": "Overloaded.", "status": "UNAVAILABLE" } });
    assert!(matches!(failed(error), Failure::Busy { .. }));
    // Without a reason to end it was cut off.
    assert!(matches!(failed(piece(json!([{ "text": "Hel" }]), None)), Failure::Busy { .. }));
}
