//! A service of another make, which speaks as all five do.

use std::process::{Child, Command, Stdio};

use super::*;

/// The service, ended with the test however that ends.
struct Stranger {
    child: Child,
    url: String,
}

impl Stranger {
    fn at_work() -> Stranger {
        let script = testbed::javascript::installed().unwrap().join("models.mjs");
        let mut command = Command::new("node");
        let mut child = command
            .arg(script)
            .arg(KEY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Stranger { child, url: url.trim().to_owned() }
    }

    fn endpoint(&self, provider: Provider) -> Endpoint {
        let path = match provider {
            Provider::OpenAi | Provider::OpenAiCompatible => "/v1",
            Provider::Gemini => "/v1beta",
            Provider::Anthropic | Provider::Ollama => "",
        };
        endpoint(provider, &format!("{}{path}", self.url))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn prompt(text: &str, is_streamed: bool) -> Prompt {
    Prompt {
        config: json!({ "stream": is_streamed }),
        messages: vec![Message::System("Be brief.".to_owned()), Message::User(text.to_owned())],
        tools: vec![weather()],
        must_call: false,
    }
}

#[test]
fn a_service_of_another_make_is_understood() {
    let stranger = Stranger::at_work();
    for provider in Provider::ALL {
        for is_streamed in [true, false] {
            let of = format!("{} {is_streamed}", provider.as_str());
            let ask = |prompt| ask(stranger.endpoint(provider), prompt).0;
            let reply = ask(prompt("greet", is_streamed)).unwrap();
            assert_eq!(reply.text, "Grüß Gott, stranger.", "{of}");
            // It counts no tokens where it speaks as Ollama does.
            let counts = provider != Provider::Ollama;
            assert_eq!(reply.usage.prompt_tokens > 0, counts, "{of}");
            assert_eq!(reply.usage.cost_micro_usd > 0, counts, "{of}");
            assert!(!reply.usage.cost_unknown, "{of}");
            // Two calls at once; their results lead to an answer.
            let mut talk = prompt("weather", is_streamed);
            let reply = ask(talk.clone()).unwrap();
            let arguments: Vec<Value> = reply
                .calls
                .iter()
                .map(|call| serde_json::from_str(&call.arguments).unwrap())
                .collect();
            assert_eq!(arguments, [json!({ "city": "Rome" }), json!({ "city": "Oslo" })], "{of}");
            let (text, reasoning, calls) = (reply.text, reply.reasoning, reply.calls);
            let results = calls.iter().map(|call| result(&call.id, "fine")).collect::<Vec<_>>();
            talk.messages.push(Message::Assistant { text, reasoning, calls });
            talk.messages.extend(results);
            assert_eq!(ask(talk).unwrap().text, "Both are fine.", "{of}");
            // Thoughts.
            let reply = ask(prompt("think", is_streamed)).unwrap();
            assert_eq!(reply.text, "42", "{of}");
            assert_eq!(reply.reasoning.as_deref(), Some("Six times seven."), "{of}");
            // Failures.
            let busy = ask(prompt("crowd", is_streamed));
            assert!(matches!(busy, Err(Failure::Busy { .. })), "{of}: {busy:?}");
            let refused = ask(prompt("nonsense", is_streamed));
            assert!(matches!(refused, Err(Failure::Refused(_))), "{of}: {refused:?}");
            // It breaks off in the middle.
            if is_streamed {
                let cut = ask(prompt("cut", is_streamed));
                assert!(matches!(cut, Err(Failure::Busy { .. })), "{of}: {cut:?}");
            }
        }
        let mut stranger = stranger.endpoint(provider);
        stranger.key = Some(Secret::new("wrong-key"));
        let refused = ask(stranger, prompt("greet", true)).0;
        let Err(Failure::Refused(message)) = &refused else { panic!("{refused:?}") };
        assert!(message.contains("401") && !message.contains("wrong-key"), "{message}");
    }
}
